//! Shell: the `Idempotency-Key` header (IETF draft-ietf-httpapi-idempotency-key-header).

use axum::http::HeaderMap;
use saga_core::input::RequestKey;
use sha2::{Digest, Sha256};
use utoipa::IntoParams;

use super::problem::Problem;

/// Name of the header in requests.
const HEADER: &str = "idempotency-key";

/// Maximum length of a key: enough for any UUID or hash, and cheap to store.
const LONGEST_KEY: usize = 200;

/// Header `Idempotency-Key`, for the descriptions of routes.
#[derive(IntoParams)]
#[into_params(names("Idempotency-Key"), parameter_in = Header)]
pub struct IdempotencyKey(
    /// A repetition under the same key gets the same answer, with the header `Idempotency-Replayed: true`. Another request
    /// under the key is rejected with 422. The key may stand in quotes, which are not part of it.
    #[param(
        required = false,
        min_length = 1,
        max_length = 200,
        pattern = r#"^([!#-~]([ -~]*[!-~])?|"[!#-\[\]-~]+")$"#
    )]
    pub String,
);

/// True if the request has a key, valid or not.
#[must_use]
pub fn has_request_key(headers: &HeaderMap) -> bool {
    headers.contains_key(HEADER)
}

/// Reads the request's key within `scope` (the route), if it has one.
///
/// # Errors
/// As [`idempotency_key`].
pub fn request_key(headers: &HeaderMap, scope: &str, body: &[u8]) -> Result<Option<RequestKey>, Problem> {
    let Some(key) = idempotency_key(headers)? else {
        return Ok(None);
    };
    let digest = Sha256::digest(body);
    let fingerprint = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Some(RequestKey { key: format!("{scope} {key}"), fingerprint }))
}

/// Reads the key of a request, if it has one. The draft has a structured string in quotes; most clients send plain text.
///
/// # Errors
/// 422 for a key that cannot be used.
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get(HEADER) else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default().trim();
    let key = if text.starts_with('"') { unquoted(text) } else { Some(text.to_owned()) };
    match key.filter(|key| !key.trim().is_empty() && key.len() <= LONGEST_KEY) {
        Some(key) => Ok(Some(key)),
        None => {
            let detail = format!("must be 1 to {LONGEST_KEY} visible ASCII characters, optionally in quotes");
            Err(Problem::field("Idempotency-Key", detail))
        }
    }
}

/// Parses a structured string (RFC 9651 §4.2.5). `None` unless it is one, without parameters.
fn unquoted(text: &str) -> Option<String> {
    let mut characters = text.strip_prefix('"')?.chars();
    let mut key = String::new();
    loop {
        match characters.next()? {
            '"' => return characters.as_str().is_empty().then_some(key),
            '\\' => key.push(characters.next().filter(|escaped| ['"', '\\'].contains(escaped))?),
            plain @ ' '..='~' => key.push(plain),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn key_in(value: &str) -> Result<Option<String>, u16> {
        let value = HeaderValue::from_bytes(value.as_bytes()).expect("a value");
        let headers = [(HeaderName::from_static(HEADER), value)].into_iter().collect();
        idempotency_key(&headers).map_err(|problem| problem.status)
    }

    #[test]
    fn quoted_and_plain_forms_are_one_key() {
        for (value, key) in [
            ("one", "one"),
            ("\"one\"", "one"),
            (" \t\"one\" ", "one"),
            ("  one  ", "one"),
            ("one two", "one two"),
            ("\"one two\"", "one two"),
            ("\" one\"", " one"),
            (r#""a\"b\\c""#, r#"a"b\c"#),
            (r#"a"b"#, r#"a"b"#),
        ] {
            assert_eq!(key_in(value), Ok(Some(key.to_owned())), "{value:?}");
        }
        let longest = "x".repeat(LONGEST_KEY);
        assert_eq!(key_in(&format!("\"{longest}\"")), Ok(Some(longest)));
        assert_eq!(idempotency_key(&HeaderMap::new()).map_err(|problem| problem.status), Ok(None));
    }

    #[test]
    fn blank_broken_and_overlong_keys_are_rejected() {
        let overlong = "x".repeat(LONGEST_KEY + 1);
        for value in
            ["", "  ", "\"\"", "\"  \"", "\"", "\"one", "\"one\"two", "\"one\";a=1", r#""on\e""#, "\u{e9}"]
        {
            assert_eq!(key_in(value), Err(422), "{value:?}");
        }
        for value in [overlong.clone(), format!("\"{overlong}\"")] {
            assert_eq!(key_in(&value), Err(422), "{value:?}");
        }
    }
}
