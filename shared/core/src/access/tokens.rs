//! Pure: issued tokens: holder, role and expiry. Only digests of the tokens are known.

use std::num::NonZeroU32;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::role::Role;
use super::token::{Digest, Token};

/// Longest name, as in the audit log.
const LONGEST_NAME: usize = 100;
/// Names with another meaning in the audit log.
const TAKEN: [&str; 2] = ["system", "anonymous"];

/// Token that was issued, without the token itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issued {
    /// Name of the holder: the operator in the audit log.
    pub name: String,
    /// Role that the holder has.
    pub role: Role,
    /// SHA-256 of the token, in hexadecimal.
    pub sha256: Digest,
    /// Time at which the token was issued.
    pub created: Timestamp,
    /// End of validity; without it the token is valid until it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// Requests a second; without it the service's default (`http.rate`) applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<NonZeroU32>,
}

/// Issued tokens that were not revoked: the content of their file.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tokens {
    tokens: Vec<Issued>,
}

/// Reason to reject a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidToken {
    /// Token that was never issued, or was revoked.
    #[error("the token is unknown: it was revoked, or belongs to another system")]
    NeverIssued,
    /// Token whose validity has ended.
    #[error("the token has expired")]
    Expired,
}

/// Reason not to issue a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IssueError {
    /// Name with characters that are not allowed, or of a wrong length.
    #[error(
        "{0:?} is no valid token name: use 1 to 100 characters of a-z, A-Z, 0-9, dots, dashes, underscores and @"
    )]
    BadName(String),
    /// Name with another meaning in the audit log.
    #[error("{0:?} has another meaning in the audit log: choose another name")]
    Taken(String),
    /// Name that another token has already.
    #[error("a token of the name {0:?} exists: revoke it first, or choose another name")]
    Exists(String),
}

impl Tokens {
    /// Parses the file.
    ///
    /// # Errors
    /// If it does not have the form of [`Tokens::written`], or two tokens have one name.
    pub fn read(text: &str) -> Result<Self, String> {
        let all: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let mut read = Self::default();
        for issued in all.tokens {
            read.issue(issued).map_err(|error| error.to_string())?;
        }
        Ok(read)
    }

    /// Serializes all tokens in the form of the file.
    #[must_use]
    pub fn written(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// All tokens, in the order of issue.
    #[must_use]
    pub fn all(&self) -> &[Issued] {
        &self.tokens
    }

    /// Adds a token.
    ///
    /// # Errors
    /// If the name is invalid or taken.
    pub fn issue(&mut self, issued: Issued) -> Result<(), IssueError> {
        let name = &issued.name;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_@".contains(&byte);
        if !(1..=LONGEST_NAME).contains(&name.len()) || !name.bytes().all(is_plain) {
            return Err(IssueError::BadName(name.clone()));
        }
        if TAKEN.contains(&name.as_str()) {
            return Err(IssueError::Taken(name.clone()));
        }
        if self.tokens.iter().any(|other| other.name == *name) {
            return Err(IssueError::Exists(name.clone()));
        }
        self.tokens.push(issued);
        Ok(())
    }

    /// Removes the token of this name; `None` if there is none.
    pub fn revoke(&mut self, name: &str) -> Option<Issued> {
        let index = self.tokens.iter().position(|issued| issued.name == name)?;
        Some(self.tokens.remove(index))
    }

    /// Finds the holder of a token. Compares all digests, so that the time tells nothing.
    ///
    /// # Errors
    /// If the token is unknown or expired.
    pub fn holder(&self, token: &Token, now: Timestamp) -> Result<&Issued, InvalidToken> {
        let digest = token.digest();
        let found = self
            .tokens
            .iter()
            .fold(None, |found, issued| if issued.sha256.is(&digest) { Some(issued) } else { found });
        match found {
            None => Err(InvalidToken::NeverIssued),
            Some(issued) if issued.expires.is_some_and(|expires| expires <= now) => {
                Err(InvalidToken::Expired)
            }
            Some(issued) => Ok(issued),
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn token(number: u8) -> Token {
        Token::of([number; 32])
    }

    fn issued(name: &str, number: u8) -> Issued {
        let sha256 = token(number).digest();
        Issued { name: name.to_owned(), role: Role::Viewer, sha256, created: NOW, expires: None, rate: None }
    }

    fn tokens() -> Tokens {
        let mut tokens = Tokens::default();
        for (number, name) in (1..).zip(["ada", "eve", "bob"]) {
            tokens.issue(issued(name, number)).expect("a good name");
        }
        tokens
    }

    #[test]
    fn token_is_valid_until_revoked() {
        let mut tokens = tokens();
        let name =
            |tokens: &Tokens, number| tokens.holder(&token(number), NOW).map(|found| found.name.clone());
        assert_eq!([1, 2, 3].map(|number| name(&tokens, number).expect("one")), ["ada", "eve", "bob"]);
        assert_eq!(name(&tokens, 4), Err(InvalidToken::NeverIssued));
        assert_eq!(tokens.revoke("eve").map(|revoked| revoked.name), Some("eve".to_owned()));
        assert_eq!(name(&tokens, 2), Err(InvalidToken::NeverIssued));
        assert_eq!(name(&tokens, 3), Ok("bob".to_owned()));
        assert!(tokens.revoke("eve").is_none());
        tokens.issue(issued("eve", 9)).expect("the name is free again");
    }

    #[test]
    fn token_is_invalid_from_expiry_on() {
        let mut tokens = Tokens::default();
        let expires = NOW + SignedDuration::from_secs(60);
        tokens.issue(Issued { expires: Some(expires), ..issued("ada", 1) }).expect("a good name");
        let at = |seconds| {
            let now = NOW + SignedDuration::from_secs(seconds);
            tokens.holder(&token(1), now).map(|found| found.name.as_str())
        };
        assert_eq!(
            (at(59), at(60), at(61)),
            (Ok("ada"), Err(InvalidToken::Expired), Err(InvalidToken::Expired))
        );
    }

    #[test]
    fn token_name_must_be_valid_and_unique() {
        let mut tokens = tokens();
        let long = "x".repeat(101);
        for bad in ["", "a b", "a\n", "jörg", "a/b", &long] {
            assert_eq!(tokens.issue(issued(bad, 9)), Err(IssueError::BadName(bad.to_owned())));
        }
        assert!(matches!(tokens.issue(issued("system", 9)), Err(IssueError::Taken(_))));
        assert!(matches!(tokens.issue(issued("anonymous", 9)), Err(IssueError::Taken(_))));
        assert!(matches!(tokens.issue(issued("ada", 9)), Err(IssueError::Exists(_))));
        tokens.issue(issued("ada.lovelace@shop-1_b", 9)).expect("a good name");
    }

    #[test]
    fn token_file_round_trips_and_damaged_file_is_rejected() {
        let text = tokens().written();
        assert!(!text.contains("saga_") && text.contains(r#""role": "viewer""#), "{text}");
        let read = Tokens::read(&text).expect("it was written here");
        assert_eq!(read.all().len(), 3);
        assert!(read.holder(&token(3), NOW).is_ok());
        let twice = text.replace("\"eve\"", "\"ada\"");
        for damaged in ["", "{}", "[]", &text[..text.len() - 4], &twice, &text.replace("viewer", "king")] {
            assert!(Tokens::read(damaged).is_err(), "{damaged}");
        }
    }
}
