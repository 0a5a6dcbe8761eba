//! Shell: encodings of times and digests that all stores use.

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

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

/// Maximum length of an indexed text in bytes. An index entry of PostgreSQL holds 2,704 bytes, with the id of the row.
const MAX_INDEXED_BYTES: usize = 500;

/// Shortens a text that is too long for an index. The end of a shortened text is a hash of the whole, so that equal texts stay
/// equal, and different ones different.
pub(super) fn indexed(text: String) -> String {
    /// Hexadecimal digits of the hash.
    const DIGITS: usize = 12;
    const MARK: char = '…';
    if text.len() <= MAX_INDEXED_BYTES {
        return text;
    }
    let end = text.floor_char_boundary(MAX_INDEXED_BYTES - DIGITS - MARK.len_utf8());
    format!("{}{MARK}{}", &text[..end], &hex(&Sha256::digest(&text))[..DIGITS])
}
