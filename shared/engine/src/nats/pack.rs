//! Shell: several facts of one subject in one message of the broker, which costs it about what a single one costs.
//!
//! Each fact is a line that tells its length and where it stands in its trace (`612 00-…-01`, or `612 -`), then its
//! payload byte for byte, then a line feed.

use std::io::Write as _;

use bytes::Bytes;
use saga_core::trace::TRACEPARENT;

use crate::store::OutboxEntry;

/// The header that says how many facts a message carries; a message without it is one fact. A fact that came in a
/// pack bears it too, as `3/64`: the third of them.
pub(super) use saga_core::dead_letter::PACK_HEADER as HEADER;

/// What a pack holds at most, in bytes, but for a fact that is larger by itself: a consumer asks for many messages at
/// once, and this bounds what it has to hold.
pub(super) const BYTES_MAX: usize = 32 * 1024;

/// Facts that a pack holds at most; one that says it holds more is none.
pub(super) const FACTS_MAX: usize = 1_000;

/// Most of a line before a payload: a length of up to 7 digits and a `traceparent` of 55.
const LINE_MAX: usize = 64;

/// A fact that came in a pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Packed {
    pub(super) payload: Bytes,
    /// Which of how many it is, from 1 on, and its `traceparent`.
    pub(super) headers: Vec<(String, String)>,
}

/// The facts, one after the other.
pub(super) fn pack(entries: &[&OutboxEntry]) -> Bytes {
    let length = entries.iter().map(|entry| entry.payload.len() + LINE_MAX + 1).sum();
    let mut packed = Vec::with_capacity(length);
    for entry in entries {
        // Writing to memory cannot fail.
        let _ = match entry.trace {
            Some(trace) => writeln!(packed, "{} {trace}", entry.payload.len()),
            None => writeln!(packed, "{} -", entry.payload.len()),
        };
        packed.extend_from_slice(&entry.payload);
        packed.push(b'\n');
    }
    packed.into()
}

/// The facts of a pack whose header says `count`; `None` when it is none.
pub(super) fn unpack(count: &str, packed: &Bytes) -> Option<Vec<Packed>> {
    let of: usize = count.parse().ok().filter(|count| (1..=FACTS_MAX).contains(count))?;
    let mut facts = Vec::with_capacity(of);
    let mut at = 0;
    for part in 1..=of {
        let rest = packed.get(at..)?;
        let line_end = rest.iter().take(LINE_MAX + 1).position(|byte| *byte == b'\n')?;
        let (length, trace) = std::str::from_utf8(&rest[..line_end]).ok()?.split_once(' ')?;
        let begin = at + line_end + 1;
        let end = begin.checked_add(length.parse().ok()?)?;
        if packed.get(end) != Some(&b'\n') {
            return None;
        }
        let mut headers = vec![(HEADER.to_owned(), format!("{part}/{of}"))];
        if trace != "-" {
            headers.push((TRACEPARENT.to_owned(), trace.to_owned()));
        }
        facts.push(Packed { payload: packed.slice(begin..end), headers });
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
    fn what_is_packed_comes_out_byte_for_byte_and_in_its_trace() {
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
    fn what_is_no_whole_pack_is_none() {
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
