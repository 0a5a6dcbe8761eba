//! Shell: extractors of bodies, query parameters and path segments, whose rejections are problems that name the field.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use garde::Validate;
use saga_core::ids::EXAMPLE;
use saga_core::secrets::Secrets;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;

use super::plain_words::in_plain_words;
use super::problem::{FieldError, Problem};

const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Parsed and validated JSON body, with its bytes.
pub struct Body<T>(pub T, pub Bytes);

impl<T, S> FromRequest<S> for Body<T>
where
    T: DeserializeOwned + Validate<Context = ()> + 'static,
    S: Send + Sync,
{
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let secrets = request.extensions().get::<Secrets>().copied().unwrap_or_default();
        let bytes = Bytes::from_request(request, state)
            .await
            .map_err(|rejection| Problem::new(rejection.status(), rejection.body_text()))?;
        let mut json = serde_json::Deserializer::from_slice(&bytes);
        let value: T = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let path = error.path().to_string();
            let cause = error.into_inner();
            if cause.is_data() {
                let message = secrets.blank_quoted(&cause.to_string(), &bytes);
                Problem::field(field_at_fault(&path, &message), in_plain_words(&message))
            } else {
                not_json(&cause)
            }
        })?;
        json.end().map_err(|error| not_json(&error))?;
        value.validate().map_err(|report| {
            let errors = report
                .iter()
                .map(|(path, error)| FieldError { field: path.to_string(), detail: error.to_string() })
                .collect();
            Problem::fields(errors)
        })?;
        Ok(Self(value, bytes))
    }
}

fn not_json(error: &serde_json::Error) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, format!("the body is not valid JSON: {error}"))
}

/// Names the missing member, where the parser reports only the object around it.
fn field_at_fault(path: &str, message: &str) -> String {
    let missing = message.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
    match (path, missing) {
        (path, None) => path.to_owned(),
        (".", Some(member)) => member.to_owned(),
        (path, Some(member)) => format!("{path}.{member}"),
    }
}

/// Query parameters of a request. Rejects a bad one with 400 and its name.
pub struct Params<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(value)) => Ok(Self(value)),
            Err(rejection) => Err(named(rejection.body_text())),
        }
    }
}

/// Parsed path segment. Rejects a bad one with 400.
pub struct Segment<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Segment<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(value)) => Ok(Self(value)),
            Err(rejection) => Err(named(rejection.body_text())),
        }
    }
}

/// Start of the message of the id parser.
const NO_UUID: &str = "UUID parsing failed";
/// Message in place of the id parser's.
fn no_id() -> String {
    format!("this is no id: ids look like {EXAMPLE}")
}

/// Problem with the parser's message about one parameter: `…: unknown field `x`, …`, `…: Cannot parse `x` with …` or
/// `…: x: what is wrong`.
fn named(sentence: String) -> Problem {
    let sentence = match sentence.split_once(NO_UUID) {
        Some((before, _)) => before.to_owned() + &no_id(),
        None => sentence,
    };
    let wrong = sentence.split_once(": ").map_or("", |(_, wrong)| wrong);
    let quoted = |marker: &str| wrong.split_once(marker)?.1.split('`').next();
    let markers = ["unknown field `", "missing field `", "Cannot parse `"];
    let named = markers.into_iter().find_map(|marker| Some((quoted(marker)?, wrong)));
    match named.or_else(|| wrong.split_once(": ")) {
        Some((field, detail)) => {
            let detail = in_plain_words(detail).replace(" member ", " parameter ");
            let errors = vec![FieldError { field: field.to_owned(), detail }];
            Problem { errors, ..Problem::new(StatusCode::BAD_REQUEST, format!("invalid: {field}")) }
        }
        None => Problem::new(StatusCode::BAD_REQUEST, in_plain_words(&sentence)),
    }
}

/// Header `Prefer`, for the descriptions of routes.
#[derive(IntoParams)]
#[into_params(names("Prefer"), parameter_in = Header)]
pub struct Prefer(
    /// `wait=10` delays the answer until the outcome, for up to 10 seconds; the maximum is 30 (RFC 7240). Other
    /// preferences are ignored.
    #[param(required = false, example = "wait=1")]
    pub String,
);

/// Returns the wait that a client prefers (`Prefer: wait=10`, RFC 7240 §4.3), capped at 30 seconds.
#[must_use]
pub fn wait_preference(headers: &HeaderMap) -> Option<Duration> {
    headers
        .get_all("prefer")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .find_map(|preference| preference.trim().strip_prefix("wait=")?.trim().parse().ok())
        .map(|seconds| Duration::from_secs(seconds).min(LONGEST_WAIT))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize, Validate)]
    #[garde(allow_unvalidated)]
    #[expect(dead_code, reason = "only the parser's errors matter")]
    struct Paid {
        token: String,
        card: Option<u8>,
    }

    #[tokio::test]
    async fn problem_quotes_no_secret() {
        const SECRETS: Secrets = Secrets { members: &["token"], prefixes: &["tok_"] };
        for (body, detail) in [
            (r#"{"token": 4111111111111111}"#, "invalid value: `***`, expected a string at line 1 column 26"),
            (r#"{"card": "tok_4711", "token": ""}"#, "tok"),
        ] {
            let mut request = Request::new(axum::body::Body::from(body));
            request.extensions_mut().insert(SECRETS);
            let problem = Body::<Paid>::from_request(request, &()).await.err().expect("a bad body");
            let found = &problem.errors[0].detail;
            assert!(!found.contains("4711") && !found.contains("4111"), "{found}");
            assert!(found == detail || found.contains("***"), "{found}");
        }
    }

    #[test]
    fn rejection_names_bad_parameter() {
        for (sentence, field, detail) in [
            ("Failed to deserialize query string: saga: UUID parsing failed: x", "saga", no_id().as_str()),
            (
                "Failed to deserialize query string: unknown field `bogus`, expected `a`",
                "bogus",
                "unknown parameter `bogus`",
            ),
            ("Invalid URL: Cannot parse `id` with value `x`: UUID parsing failed", "id", "Cannot parse"),
        ] {
            let problem = named(sentence.to_owned());
            let [error] = &problem.errors[..] else { panic!("{problem:?}") };
            assert_eq!((problem.status, error.field.as_str()), (400, field));
            assert!(error.detail.starts_with(detail), "{}", error.detail);
        }
        let id = named("Invalid URL: Cannot parse `id` with value `x`: UUID parsing failed: bad".to_owned());
        assert_eq!(id.detail, "invalid: id");
        assert_eq!(id.errors[0].detail, format!("Cannot parse `id` with value `x`: {}", no_id()));
        assert_eq!(named("something else".to_owned()).errors, []);
    }
}
