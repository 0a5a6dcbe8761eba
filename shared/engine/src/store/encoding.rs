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
