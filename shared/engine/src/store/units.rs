//! Shell: times and digests as the tables of every store keep them.

use jiff::Timestamp;

/// Microseconds since 1970.
pub(super) fn micros(at: Timestamp) -> i64 {
    at.as_microsecond()
}

/// What [`micros`] wrote.
pub(super) fn timestamp(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX)
}

/// Two digits for each byte.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
