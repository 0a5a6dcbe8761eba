//! Pure: the tokens that were issued: whose each is, what it may do, and until when. Of the tokens themselves only
//! digests are known.

use std::num::NonZeroU32;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::role::Role;
use super::token::{Digest, Token};

/// Longest name: as long as an operator's in the audit log.
const LONGEST_NAME: usize = 100;
/// Names that the audit log has for others.
const TAKEN: [&str; 2] = ["system", "anonymous"];

/// A token that was issued.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issued {
    /// Whose it is: the operator, in the audit log.
    pub name: String,
    /// What its holder may do.
    pub role: Role,
    /// The SHA-256 of the token, in hexadecimal.
    pub sha256: Digest,
    /// When it was issued.
    pub created: Timestamp,
    /// From when on it is worth nothing; without it, it holds until it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// Requests in a second, where that is not what the service says (`http.rate`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<NonZeroU32>,
}

/// Every token that was issued and not revoked, as their file has them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tokens {
    tokens: Vec<Issued>,
}

/// Why a token lets nobody in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// It was never issued, or was revoked.
    #[error("the token is unknown: it was revoked, or is of another system")]
    NeverIssued,
    /// Its time is over.
    #[error("the token has expired")]
    Expired,
}

/// Why a token is not issued.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The name cannot be one.
    #[error("{0:?} is no name of a token: 1 to 100 of a-z, A-Z, 0-9, dots, dashes, underscores and @")]
    BadName(String),
    /// The audit log has it for others.
    #[error("{0:?} is what the audit log calls others: choose another name")]
    Taken(String),
    /// There is one of that name.
    #[error("there is a token of the name {0:?}: revoke it first, or choose another name")]
    Exists(String),
}

impl Tokens {
    /// Reads their file.
    ///
    /// # Errors
    /// When it is not of the form that [`Tokens::written`] gives it, or has two of one name.
    pub fn read(text: &str) -> Result<Self, String> {
        let all: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let mut read = Self::default();
        for issued in all.tokens {
            read.issue(issued).map_err(|refusal| refusal.to_string())?;
        }
        Ok(read)
    }

    /// What their file holds.
    #[must_use]
    pub fn written(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// All of them, in the order in which they were issued.
    #[must_use]
    pub fn all(&self) -> &[Issued] {
        &self.tokens
    }

    /// Adds one.
    ///
    /// # Errors
    /// When its name cannot be one, or is another's.
    pub fn issue(&mut self, issued: Issued) -> Result<(), Refusal> {
        let name = &issued.name;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_@".contains(&byte);
        if !(1..=LONGEST_NAME).contains(&name.len()) || !name.bytes().all(is_plain) {
            return Err(Refusal::BadName(name.clone()));
        }
        if TAKEN.contains(&name.as_str()) {
            return Err(Refusal::Taken(name.clone()));
        }
        if self.tokens.iter().any(|other| other.name == *name) {
            return Err(Refusal::Exists(name.clone()));
        }
        self.tokens.push(issued);
        Ok(())
    }

    /// Takes back the one of this name; `None` when there is none.
    pub fn revoke(&mut self, name: &str) -> Option<Issued> {
        let place = self.tokens.iter().position(|issued| issued.name == name)?;
        Some(self.tokens.remove(place))
    }

    /// Whose token this is. All are looked at, whichever it is.
    ///
    /// # Errors
    /// When it is nobody's, or its time is over.
    pub fn holder(&self, token: &Token, now: Timestamp) -> Result<&Issued, Unknown> {
        let digest = token.digest();
        let found = self
            .tokens
            .iter()
            .fold(None, |found, issued| if issued.sha256.is(&digest) { Some(issued) } else { found });
        match found {
            None => Err(Unknown::NeverIssued),
            Some(issued) if issued.expires.is_some_and(|expires| expires <= now) => Err(Unknown::Expired),
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
    fn a_token_is_its_holders_until_it_is_revoked() {
        let mut tokens = tokens();
        let name =
            |tokens: &Tokens, number| tokens.holder(&token(number), NOW).map(|found| found.name.clone());
        assert_eq!([1, 2, 3].map(|number| name(&tokens, number).expect("one")), ["ada", "eve", "bob"]);
        assert_eq!(name(&tokens, 4), Err(Unknown::NeverIssued));
        assert_eq!(tokens.revoke("eve").map(|revoked| revoked.name), Some("eve".to_owned()));
        assert_eq!(name(&tokens, 2), Err(Unknown::NeverIssued));
        assert_eq!(name(&tokens, 3), Ok("bob".to_owned()));
        assert!(tokens.revoke("eve").is_none());
        tokens.issue(issued("eve", 9)).expect("the name is free again");
    }

    #[test]
    fn a_token_is_worth_nothing_from_its_last_moment_on() {
        let mut tokens = Tokens::default();
        let expires = NOW + SignedDuration::from_secs(60);
        tokens.issue(Issued { expires: Some(expires), ..issued("ada", 1) }).expect("a good name");
        let at = |seconds| {
            let now = NOW + SignedDuration::from_secs(seconds);
            tokens.holder(&token(1), now).map(|found| found.name.as_str())
        };
        assert_eq!((at(59), at(60), at(61)), (Ok("ada"), Err(Unknown::Expired), Err(Unknown::Expired)));
    }

    #[test]
    fn names_are_those_that_the_audit_log_can_have_and_each_is_one_holders() {
        let mut tokens = tokens();
        let long = "x".repeat(101);
        for bad in ["", "a b", "a\n", "jörg", "a/b", &long] {
            assert_eq!(tokens.issue(issued(bad, 9)), Err(Refusal::BadName(bad.to_owned())));
        }
        assert!(matches!(tokens.issue(issued("system", 9)), Err(Refusal::Taken(_))));
        assert!(matches!(tokens.issue(issued("anonymous", 9)), Err(Refusal::Taken(_))));
        assert!(matches!(tokens.issue(issued("ada", 9)), Err(Refusal::Exists(_))));
        tokens.issue(issued("ada.lovelace@shop-1_b", 9)).expect("a good name");
    }

    #[test]
    fn the_file_is_read_as_it_was_written_and_a_damaged_one_is_not() {
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
