//! Pure: signatures by which a receiver verifies sender and time, as in Standard Webhooks
//! (<https://www.standardwebhooks.com>): HMAC-SHA256 over `id.timestamp.body`.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

const PREFIX: &str = "whsec_";

/// A key that the receiver knows too. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

impl Secret {
    /// Parses keys separated by spaces or commas. There are two while one replaces the other.
    ///
    /// # Errors
    /// Returns the problem with a key, without its value.
    pub fn all_in(text: &str) -> Result<Vec<Self>, &'static str> {
        let is_between = |letter: char| letter == ',' || letter.is_whitespace();
        text.split(is_between).filter(|secret| !secret.is_empty()).map(Self::of).collect()
    }

    fn of(text: &str) -> Result<Self, &'static str> {
        let encoded = text.strip_prefix(PREFIX).ok_or("a key must start with whsec_")?;
        let key = BASE64.decode(encoded).map_err(|_| "a key must be base64 after whsec_")?;
        match key.len() {
            24..=64 => Ok(Self(key)),
            _ => Err("a key must have 24 to 64 bytes"),
        }
    }

    fn signature(&self, signed: &str) -> String {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else {
            unreachable!("HMAC takes a key of any length (RFC 2104)")
        };
        mac.update(signed.as_bytes());
        format!("v1,{}", BASE64.encode(mac.finalize().into_bytes()))
    }
}

/// Returns the header `webhook-signature` for a body sent at this second since 1970: one signature for each key.
pub fn signatures(secrets: &[Secret], id: &str, second: i64, body: &str) -> String {
    let signed = format!("{id}.{second}.{body}");
    secrets.iter().map(|secret| secret.signature(&signed)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the libraries that verify such signatures; so does `openssl dgst -sha256 -mac HMAC`.
    #[test]
    fn signature_equals_example_of_standard_webhooks() {
        let secrets = Secret::all_in("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("a secret");
        let signed =
            signatures(&secrets, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn two_keys_make_two_signatures() {
        let [old, new] = ["a", "b"].map(|letter| format!("whsec_{}", BASE64.encode(letter.repeat(24))));
        let by = |text: &str| signatures(&Secret::all_in(text).expect("secrets"), "id", 7, "{}");
        let both = by(&format!("{new}, {old}"));
        assert_eq!(both.split(' ').collect::<Vec<_>>(), [by(&new), by(&old)]);
        assert_ne!(by(&new), by(&old));
        assert!(Secret::all_in(" ").is_ok_and(|none| none.is_empty()));
    }

    #[test]
    fn invalid_key_is_rejected_without_showing_it() {
        let short = format!("whsec_{}", BASE64.encode("a".repeat(23)));
        let long = format!("whsec_{}", BASE64.encode("a".repeat(65)));
        for text in ["hunter2hunter2hunter2hunter2", "whsec_hunter2*", &short, &long] {
            let why = Secret::all_in(text).expect_err("no secret");
            assert!(!why.contains("hunter2"), "{why}");
        }
        let secret = Secret::of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("a secret");
        assert_eq!(format!("{secret:?}"), "Secret(***)");
    }
}
