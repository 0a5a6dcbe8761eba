//! Pure: a token, which is secret, and its digest, which is stored in its place.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::secrets::BLANK;

/// Random bytes in a token. 256 bits cannot be guessed, so one round of a fast hash is enough at rest.
pub const BYTES: usize = 32;
/// Prefix of a token, by which people and scanners recognize one in a log or commit.
pub const PREFIX: &str = "saga_";
/// Characters of a token after its prefix.
const LENGTH: usize = 43;

/// Token as its holder has it: `saga_` and 32 bytes in base64url (RFC 4648 §5). `Debug` does not show it.
#[derive(Clone)]
pub struct Token(String);

/// SHA-256 of a token. Gives no access.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Digest([u8; BYTES]);

impl Token {
    /// Creates a token from bytes, which must come from a cryptographic random generator.
    #[must_use]
    pub fn of(chance: [u8; BYTES]) -> Self {
        Self(format!("{PREFIX}{}", BASE64.encode(chance)))
    }

    /// Parses a token; `None` if the text cannot be one, whatever its length.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(PREFIX).filter(|rest| rest.len() == LENGTH)?;
        BASE64.decode(rest).ok().filter(|bytes| bytes.len() == BYTES).map(|_| Self(text.to_owned()))
    }

    /// Parses an `Authorization` header: the scheme `Bearer` in any case, and one token (RFC 6750 §2.1).
    #[must_use]
    pub fn of_header(value: &[u8]) -> Option<Self> {
        let (scheme, rest) = std::str::from_utf8(value).ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| Self::parse(rest.trim_matches(' ')))?
    }

    /// Reveals the token, to be sent or shown once.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// Digest, which is stored in place of the token.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest(Sha256::digest(self.0.as_bytes()).into())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{BLANK}")
    }
}

impl Digest {
    /// Compares two digests in constant time.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// Formats the digest in hexadecimal, lower case.
impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{self:?}"))
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        // 64 hexadecimal digits: `from_str_radix` alone would accept a sign.
        let is_hexadecimal = text.len() == 2 * BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bytes: Option<Vec<u8>> =
            if is_hexadecimal { text.as_bytes().chunks(2).map(byte).collect() } else { None };
        let digest = bytes.and_then(|bytes| bytes.try_into().ok());
        digest.map(Self).ok_or_else(|| serde::de::Error::custom("a SHA-256 is 64 hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_round_trips_and_invalid_text_is_rejected() {
        let token = Token::of([7; BYTES]);
        let text = token.secret().to_owned();
        assert_eq!((text.len(), text.starts_with("saga_BwcH")), (48, true), "{text}");
        let read = Token::parse(&text).expect("it is one");
        assert!(read.digest().is(&token.digest()));
        assert!(!Token::of([8; BYTES]).digest().is(&token.digest()));
        for none in [
            "",
            "saga_",
            &text[..47],
            &format!("{text}A"),
            &text.replace("saga_", "SAGA_"),
            &text.replace("saga_B", "saga_+"),
            &text.replace("saga_B", "saga_\u{e9}"),
            &format!(" {text}"),
            &format!("saga_{}", "A".repeat(1 << 20)),
        ] {
            assert!(Token::parse(none).is_none(), "{}", &none[..none.len().min(60)]);
        }
    }

    #[test]
    fn authorization_header_must_hold_scheme_and_one_token() {
        let text = Token::of([7; BYTES]).secret().to_owned();
        for (header, is_one) in [
            (format!("Bearer {text}"), true),
            (format!("bearer {text}"), true),
            (format!("BEARER   {text} "), true),
            (text.clone(), false),
            (format!("Bearer{text}"), false),
            (format!("Basic {text}"), false),
            (format!("Bearer {text} {text}"), false),
            (format!("Bearer {text},{text}"), false),
            (format!("Bearer\t{text}"), false),
            ("Bearer ".to_owned(), false),
            ("Bearer".to_owned(), false),
        ] {
            assert_eq!(Token::of_header(header.as_bytes()).is_some(), is_one, "{header}");
        }
        assert!(Token::of_header(&[b"Bearer \xff".as_slice(), text.as_bytes()].concat()).is_none());
    }

    #[test]
    fn token_debug_hides_secret_and_digest_round_trips() {
        let token = Token::of([7; BYTES]);
        assert_eq!(format!("{token:?}"), "saga_***");
        let written = serde_json::to_string(&token.digest()).expect("JSON");
        // From `printf saga_BwcH… | sha256sum`.
        assert_eq!(written, "\"f0ff968ba03d9d50e3c1a89e9fdb04b8f39c012657b39f83cdd49d9438a047f1\"");
        let read: Digest = serde_json::from_str(&written).expect("a digest");
        assert!(read.is(&token.digest()));
        let signs = format!("\"{}\"", "+1".repeat(32));
        for none in ["\"\"", "\"+f\"", &written.replace('"', ""), &written.replacen('f', "g", 1), &signs] {
            assert!(serde_json::from_str::<Digest>(none).is_err(), "{none}");
        }
    }
}
