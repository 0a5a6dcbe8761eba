//! Shell: the format of a pack: several facts of one subject in one message, which costs the broker about as much as one.
//!
//! Each fact is a line with its length and trace context (`612 00-…-01`, or `612 -`), its payload byte for byte, and a line
//! feed.

use std::io::Write as _;

use bytes::Bytes;
use saga_core::trace::TRACEPARENT;

use crate::store::OutboxEntry;

/// Header with the number of facts in a message. A message without it is one fact. A fact from a pack has it as well: `3/64`
/// is the third of 64.
pub(super) use saga_core::dead_letter::PACK_HEADER as HEADER;

/// Maximum size of a pack in bytes, unless a single fact is larger. Bounds the memory of a consumer, which requests many
/// messages at once.
pub(super) const MAX_BYTES: usize = 32 * 1024;

/// Maximum number of facts in a pack. A larger number makes a pack invalid.
pub(super) const MAX_FACTS: usize = 1_000;

/// Maximum length of the line before a payload: 7 digits and a `traceparent` of 55 characters.
const MAX_LINE: usize = 64;

/// Fact of a message, alone or from a pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PackedFact {
    pub(super) payload: Bytes,
    /// Headers: of a fact from a pack its number and its `traceparent`, otherwise those of the message.
    pub(super) headers: Vec<(String, String)>,
}

/// Packs the payloads of these entries.
pub(super) fn pack(entries: &[&OutboxEntry]) -> Bytes {
    let length = entries.iter().map(|entry| entry.payload.len() + MAX_LINE + 1).sum();
    let mut packed = Vec::with_capacity(length);
    for entry in entries {
        // Infallible: writes to memory.
        let _ = match entry.trace {
            Some(trace) => writeln!(packed, "{} {trace}", entry.payload.len()),
            None => writeln!(packed, "{} -", entry.payload.len()),
        };
        packed.extend_from_slice(&entry.payload);
        packed.push(b'\n');
    }
    packed.into()
}

/// Unpacks a pack whose header is `count`. `None` if it is invalid.
pub(super) fn unpack(count: &str, packed: &Bytes) -> Option<Vec<PackedFact>> {
    let of: usize = count.parse().ok().filter(|count| (1..=MAX_FACTS).contains(count))?;
    let mut facts = Vec::with_capacity(of);
    let mut at = 0;
    for part in 1..=of {
        let rest = packed.get(at..)?;
        let sequence_end = rest.iter().take(MAX_LINE + 1).position(|byte| *byte == b'\n')?;
        let (length, trace) = std::str::from_utf8(&rest[..sequence_end]).ok()?.split_once(' ')?;
        let begin = at + sequence_end + 1;
        let end = begin.checked_add(length.parse().ok()?)?;
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

#[cfg(test)]
mod tests {
    use saga_core::trace::TraceContext;
    use uuid::Uuid;

    use super::*;

    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn entry(payload: &'static [u8], trace: Option<TraceContext>) -> OutboxEntry {
        let (id, subject) = (Uuid::nil(), String::new());
        OutboxEntry { trace, seq: 0, id, saga: id, subject, payload: Bytes::from_static(payload) }
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
        assert_eq!(facts[2].headers, [header(HEADER, "3/3"), header(TRACEPARENT, TRACE)]);
    }

    #[test]
    fn incomplete_or_malformed_pack_is_rejected() {
        let packed = pack(&[&entry(b"one", None), &entry(b"two", None)]);
        assert_eq!(unpack("2", &packed).map(|facts| facts.len()), Some(2));
        for count in ["0", "1", "3", "1001", "18446744073709551615", "-1", "1/2", ""] {
            assert_eq!(unpack(count, &packed), None, "{count}");
        }
        for length in 0..packed.len() {
            assert_eq!(unpack("2", &packed.slice(..length)), None, "cut at {length}");
        }
        for bytes in
            ["", "{}", "3 -\nabcd\n", "18446744073709551615 -\na\n", "3\nabc\n", "-3 -\nabc\n", "4 -\nabc\n"]
        {
            assert_eq!(unpack("1", &Bytes::from(bytes)), None, "{bytes:?}");
        }
    }
}
