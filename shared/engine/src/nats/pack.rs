//! Shell: packs: several facts of one subject in one message, which costs the broker about as much as one.
//!
//! In the payload each fact is a line with its length and trace context (`612 00-…-01`, or `612 -`), its bytes, and a line
//! feed.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use saga_core::trace::TRACEPARENT;
use uuid::Uuid;

use crate::store::OutboxEntry;

/// Header with the number of facts in a message. A message without it is one fact. A fact from a pack has it as well: `3/64`
/// is the third of 64.
pub use saga_core::dead_letter::PACK_HEADER as HEADER;

/// Maximum size of a pack in bytes, unless a single fact is larger. Bounds the memory of a consumer, which requests many
/// messages at once.
const MAX_BYTES: usize = 32 * 1024;

/// Maximum number of facts in a pack, and of `bus.max_pack`. A larger number makes a pack invalid.
pub const MAX_FACTS: usize = 1_000;

/// Maximum number of packs in flight. After an outage, only these are in doubt.
const WINDOW: usize = 32;

/// Maximum length of the line before a payload: 7 digits and a `traceparent` of 55 characters.
const MAX_LINE: usize = 64;

/// Fact of a message, alone or from a pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedFact {
    /// Payload as the service published it.
    pub payload: Bytes,
    /// Headers: of a fact from a pack its number and its `traceparent`, otherwise those of the message.
    pub headers: Vec<(String, String)>,
}

/// Facts of a delivered message that are not acknowledged. The message is acknowledged with its last fact.
#[derive(Debug)]
pub struct Unacknowledged(AtomicUsize);

impl Unacknowledged {
    /// Creates the count of a message with so many facts.
    #[must_use]
    pub const fn new(facts: usize) -> Self {
        Self(AtomicUsize::new(facts))
    }

    /// Acknowledges one fact. Returns true for the last one.
    #[must_use]
    pub fn acknowledge_one(&self) -> bool {
        self.0.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// Forms the packs that may be in flight together. Returns them and the remaining entries. Each saga is in only one of the
/// packs, so that its entries cannot overtake each other.
#[must_use]
pub fn packs_of<'e, 's>(
    entries: &'s [&'e OutboxEntry],
    max_facts: usize,
) -> (Vec<Vec<&'e OutboxEntry>>, &'s [&'e OutboxEntry]) {
    let mut packs: Vec<Vec<&OutboxEntry>> = Vec::new();
    // Last pack of each subject, and its size in bytes.
    let mut open: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut pack_of: BTreeMap<Uuid, usize> = BTreeMap::new();
    for (index, entry) in entries.iter().copied().enumerate() {
        let size = entry.payload.len();
        let has_room = |(pack, bytes): &(usize, usize)| {
            bytes + size <= MAX_BYTES && packs.get(*pack).is_some_and(|pack| pack.len() < max_facts)
        };
        let fitting = open.get(entry.subject.as_str()).copied().filter(has_room);
        let (pack, bytes) = fitting.unwrap_or((packs.len(), 0));
        let is_elsewhere = pack_of.get(&entry.saga).is_some_and(|other| *other != pack);
        if is_elsewhere || pack == WINDOW {
            return (packs, &entries[index..]);
        }
        if pack == packs.len() {
            packs.push(vec![]);
        }
        packs[pack].push(entry);
        open.insert(&entry.subject, (pack, bytes + size));
        pack_of.insert(entry.saga, pack);
    }
    (packs, &[])
}

/// Derives the message id of a pack from all of its entries. With the id of another pack, the broker would drop it as a
/// duplicate.
#[must_use]
pub fn id_of(entries: &[&OutboxEntry]) -> Uuid {
    let ids: Vec<u8> = entries.iter().flat_map(|entry| *entry.id.as_bytes()).collect();
    Uuid::new_v5(&Uuid::NAMESPACE_OID, &ids)
}

/// Packs the payloads of these entries.
#[must_use]
pub fn pack(entries: &[&OutboxEntry]) -> Bytes {
    let length = entries.iter().map(|entry| entry.payload.len() + MAX_LINE + 1).sum();
    let mut packed = Vec::with_capacity(length);
    for entry in entries {
        // Infallible: writes to memory.
        let _ = match entry.sent_context() {
            Some(trace) => writeln!(packed, "{} {trace}", entry.payload.len()),
            None => writeln!(packed, "{} -", entry.payload.len()),
        };
        packed.extend_from_slice(&entry.payload);
        packed.push(b'\n');
    }
    packed.into()
}

/// Unpacks a pack whose header is `count`. `None` if it is invalid.
#[must_use]
pub fn unpack(count: &str, packed: &Bytes) -> Option<Vec<PackedFact>> {
    let of = number(count).filter(|count| (1..=MAX_FACTS).contains(count))?;
    let mut facts = Vec::with_capacity(of);
    let mut at = 0;
    for part in 1..=of {
        let rest = packed.get(at..)?;
        let line_end = rest.iter().take(MAX_LINE + 1).position(|byte| *byte == b'\n')?;
        let (length, trace) = std::str::from_utf8(&rest[..line_end]).ok()?.split_once(' ')?;
        let begin = at + line_end + 1;
        let end = begin.checked_add(number(length)?)?;
        if packed.get(end) != Some(&b'\n') {
            return None;
        }
        let mut headers = vec![(HEADER.to_owned(), format!("{part}/{of}"))];
        if trace != "-" {
            headers.push((TRACEPARENT.to_owned(), trace.to_owned()));
        }
        facts.push(PackedFact { payload: packed.slice(begin..end), headers });
        at = end + 1;
    }
    (at == packed.len()).then_some(facts)
}

/// Parses a number as a pack writes it: without a sign, leading zeros or spaces.
fn number(text: &str) -> Option<usize> {
    text.parse().ok().filter(|number: &usize| number.to_string() == text)
}

#[cfg(test)]
mod tests {
    use saga_core::trace::TraceContext;

    use super::*;

    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn entry(payload: &'static [u8], trace: Option<TraceContext>) -> OutboxEntry {
        let (id, subject) = (Uuid::nil(), String::new());
        OutboxEntry {
            trace,
            seq: 0,
            id,
            saga: id,
            subject,
            payload: Bytes::from_static(payload),
            is_repetition: false,
        }
    }

    #[test]
    fn unpacked_facts_have_the_same_bytes_and_trace_contexts() {
        let entries =
            [entry(b"{\"a\":1}", None), entry(b"", None), entry(b"\n3 -\n\xff", TraceContext::parse(TRACE))];
        let packed = pack(&entries.iter().collect::<Vec<_>>());
        let facts = unpack("3", &packed).expect("a pack");
        for (fact, entry) in facts.iter().zip(&entries) {
            assert_eq!(fact.payload, entry.payload);
        }
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(facts[0].headers, [header(HEADER, "1/3")]);
        let sent = entries[2].sent_context().expect("it has a trace").to_string();
        assert_eq!(facts[2].headers, [header(HEADER, "3/3"), header(TRACEPARENT, &sent)]);
    }

    #[test]
    fn incomplete_or_malformed_pack_is_rejected() {
        let packed = pack(&[&entry(b"one", None), &entry(b"two", None)]);
        assert_eq!(unpack("2", &packed).map(|facts| facts.len()), Some(2));
        for count in ["0", "1", "3", "1001", "18446744073709551615", "-1", "+2", "02", " 2 ", "1/2", ""] {
            assert_eq!(unpack(count, &packed), None, "{count}");
        }
        for length in 0..packed.len() {
            assert_eq!(unpack("2", &packed.slice(..length)), None, "cut at {length}");
        }
        for line in ["", "3", "4 -", "-3 -", "+3 -", "03 -", " 3 -", "18446744073709551615 -"] {
            let bytes = format!("{line}\nabc\n");
            assert_eq!(unpack("1", &bytes.into()), None, "{line:?}");
        }
        for bytes in ["", "{}", "3 -\nabcd\n"] {
            assert_eq!(unpack("1", &Bytes::from(bytes)), None, "{bytes:?}");
        }
        assert!(unpack("1", &Bytes::from("3 -\nabc\n")).is_some());
    }

    fn entry_of(seq: i64, saga: u128, subject: &str, length: usize) -> OutboxEntry {
        let (id, saga) = (Uuid::from_u128(seq.unsigned_abs().into()), Uuid::from_u128(saga));
        let (subject, payload) = (subject.to_owned(), Bytes::from(vec![b'x'; length]));
        OutboxEntry { trace: None, seq, id, saga, subject, payload, is_repetition: false }
    }

    fn shape(entries: &[OutboxEntry], max_facts: usize) -> (Vec<Vec<i64>>, usize) {
        let entries: Vec<_> = entries.iter().collect();
        let (packs, left) = packs_of(&entries, max_facts);
        (packs.iter().map(|pack| pack.iter().map(|entry| entry.seq).collect()).collect(), left.len())
    }

    #[test]
    fn facts_of_one_subject_share_a_pack() {
        let entries = [(1, "a"), (2, "b"), (3, "a"), (4, "b")];
        let entries = entries.map(|(seq, subject)| entry_of(seq, seq.unsigned_abs().into(), subject, 9));
        assert_eq!(shape(&entries, 10), (vec![vec![1, 3], vec![2, 4]], 0));
    }

    #[test]
    fn entries_of_one_saga_are_never_in_two_packs_in_flight() {
        let entries = [(1, 7, "a"), (2, 7, "a"), (3, 8, "b"), (4, 7, "b"), (5, 9, "a")];
        let entries = entries.map(|(seq, saga, subject)| entry_of(seq, saga, subject, 9));
        assert_eq!(shape(&entries, 10), (vec![vec![1, 2], vec![3]], 2));
        // Same subject, but the first pack is full.
        assert_eq!(shape(&entries[..2], 1), (vec![vec![1]], 1));
    }

    #[test]
    fn packs_are_bounded_in_size_and_number() {
        let each = |count: u32, length| {
            (1..=count).map(|seq| entry_of(seq.into(), seq.into(), "a", length)).collect::<Vec<_>>()
        };
        assert_eq!(shape(&each(4, MAX_BYTES / 2), 10), (vec![vec![1, 2], vec![3, 4]], 0));
        let (packs, left) = shape(&each(40, 9), 1);
        assert_eq!((packs.len(), left), (WINDOW, 40 - WINDOW));
    }

    #[test]
    fn pack_id_depends_on_all_its_entries() {
        let [one, two, three] = [1, 2, 3].map(|seq| entry_of(seq, 1, "a", 9));
        assert_eq!(id_of(&[&one, &two]), id_of(&[&one, &two]));
        assert_ne!(id_of(&[&one, &two]), id_of(&[&one, &three]));
        assert_ne!(id_of(&[&one, &two]), id_of(&[&one, &two, &three]));
    }
}
