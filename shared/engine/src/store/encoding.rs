//! Shell: encodings of times and digests that all stores use.

use jiff::Timestamp;

pub(super) fn micros(at: Timestamp) -> i64 {
    at.as_microsecond()
}

/// Time of these microseconds since 1970.
pub(super) fn timestamp(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX)
}

/// Hexadecimal digits, two for each byte.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Replaces NUL characters, which error messages, fields and searched texts may contain, and PostgreSQL does not store.
pub(super) fn without_nul(text: impl Into<String>) -> String {
    let text = text.into();
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}
