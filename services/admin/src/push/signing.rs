//! Pure: how a receiver knows that a notice comes from here, and is not an old one: signatures as Standard Webhooks
//! has them (<https://www.standardwebhooks.com>): HMAC-SHA256 over `id.timestamp.body`.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// How a secret begins.
const PREFIX: &str = "whsec_";

/// A secret that the receiver knows too. `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

impl Secret {
    /// All that are in this text, with spaces or commas between them; while one takes the place of another there are
    /// two.
    ///
    /// # Errors
    /// What is wrong with one of them, without a word of it.
    pub fn all_in(text: &str) -> Result<Vec<Self>, &'static str> {
        let is_between = |letter: char| letter == ',' || letter.is_whitespace();
        text.split(is_between).filter(|secret| !secret.is_empty()).map(Self::of).collect()
    }

    fn of(text: &str) -> Result<Self, &'static str> {
        let encoded = text.strip_prefix(PREFIX).ok_or("a secret begins with whsec_")?;
        let key = BASE64.decode(encoded).map_err(|_| "behind whsec_ a secret is base64")?;
        match key.len() {
            24..=64 => Ok(Self(key)),
            _ => Err("a secret is 24 to 64 bytes"),
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

/// What the header `webhook-signature` says of a body that is sent at this second since 1970: a signature by each
/// secret, any of which a receiver may know.
#[must_use]
pub fn signatures(secrets: &[Secret], id: &str, second: i64, body: &str) -> String {
    let signed = format!("{id}.{second}.{body}");
    secrets.iter().map(|secret| secret.signature(&signed)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the libraries that verify such signatures; so does `openssl dgst -sha256 -mac HMAC`.
    #[test]
    fn a_signature_is_what_every_library_of_standard_webhooks_expects() {
        let secrets = Secret::all_in("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("a secret");
        let signed =
            signatures(&secrets, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn while_a_secret_takes_the_place_of_another_both_sign() {
        let [old, new] = ["a", "b"].map(|letter| format!("whsec_{}", BASE64.encode(letter.repeat(24))));
        let by = |text: &str| signatures(&Secret::all_in(text).expect("secrets"), "id", 7, "{}");
        let both = by(&format!("{new}, {old}"));
        assert_eq!(both.split(' ').collect::<Vec<_>>(), [by(&new), by(&old)]);
        assert_ne!(by(&new), by(&old));
        assert!(Secret::all_in(" ").is_ok_and(|none| none.is_empty()));
    }

    #[test]
    fn what_is_no_secret_is_refused_without_a_word_of_it() {
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
