//! Shell: who asks, for what, and why, as requests carry it; whatever is wrong with it is named.

use axum::body::{Body as RawBody, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use garde::Validate;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use shared::http::{Body, Problem};
use shared::store::FoundRow;
use utoipa::{IntoParams, ToSchema};

use super::Admin;
use crate::filter::{Filter, Place};

/// Longest name of an operator.
const LONGEST_NAME: usize = 100;

/// Longest reason.
const LONGEST_REASON: usize = 500;

/// Who asks: the header `X-Operator`.
#[derive(IntoParams)]
#[into_params(names("X-Operator"), parameter_in = Header)]
pub(super) struct Operator(
    /// Who asks, 1 to 100 visible ASCII characters; `anonymous` when it is absent.
    #[param(required = false, min_length = 1, max_length = 100)]
    pub(super) String,
);

impl FromRequestParts<Admin> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, admin: &Admin) -> Result<Self, Problem> {
        const FIELD: &str = "X-Operator";
        let Some(value) = parts.headers.get(FIELD) else {
            return if admin.app.settings.service.require_operator {
                Err(Problem::field(FIELD, "is required: service.require_operator is set"))
            } else {
                Ok(Self("anonymous".to_owned()))
            };
        };
        let name = value.to_str().unwrap_or_default().trim();
        let is_visible = name.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
        if name.is_empty() || name.len() > LONGEST_NAME || !is_visible {
            return Err(Problem::field(
                FIELD,
                format!("must be 1 to {LONGEST_NAME} visible ASCII characters"),
            ));
        }
        Ok(Self(name.to_owned()))
    }
}

/// A JSON body that may be absent: then it is `{}`.
pub(super) struct Ask<T>(pub(super) T);

impl<T, S> FromRequest<S> for Ask<T>
where
    T: DeserializeOwned + Validate<Context = ()> + 'static,
    S: Send + Sync,
{
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let bytes = Bytes::from_request(Request::from_parts(parts.clone(), body), state)
            .await
            .map_err(|rejection| Problem::new(rejection.status(), rejection.body_text()))?;
        let body = if bytes.is_empty() { RawBody::from("{}") } else { RawBody::from(bytes) };
        Body::from_request(Request::from_parts(parts, body), state).await.map(|Body(value, _)| Self(value))
    }
}

/// A body that says why, and nothing else.
#[derive(Debug, Default, Deserialize, Validate, ToSchema, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct Why {
    /// Why.
    #[garde(inner(length(chars, min = 1, max = 500)))]
    pub(super) reason: Option<String>,
}

/// How many entries a page holds.
///
/// # Errors
/// 422 for more than 200, and for none.
pub(super) fn checked_limit(limit: Option<usize>) -> Result<usize, Problem> {
    match limit.unwrap_or(50) {
        limit @ 1..=200 => Ok(limit),
        _ => Err(Problem::field("limit", "must be 1 to 200")),
    }
}

/// A page of `limit` rows, of which one more were looked up; and where the next begins.
pub(super) fn paged(mut rows: Vec<FoundRow>, limit: usize) -> (Vec<FoundRow>, Option<String>) {
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| has_more).map(|row| row.id.clone());
    (rows, next)
}

/// A place in a list of letters, as clients keep it without knowing what it means.
pub(super) fn cursor(place: &Place) -> String {
    BASE64.encode(place.written())
}

/// The place that a cursor means.
///
/// # Errors
/// 422 for one that was not made here.
pub(super) fn place_of(cursor: &str) -> Result<Place, Problem> {
    let bytes = BASE64.decode(cursor).ok();
    let written = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    let place = written.and_then(|written| Place::read(&written));
    place.ok_or_else(|| Problem::field("cursor", "is no `next` of an earlier page"))
}

/// A reason, where one is needed.
///
/// # Errors
/// 422 without one.
pub(super) fn needed(reason: Option<String>, what: &str) -> Result<String, Problem> {
    reason.ok_or_else(|| Problem::field("reason", format!("is required: {what}")))
}

/// A reason that came in another way than in a body.
///
/// # Errors
/// 422 for one that is empty or too long.
pub(super) fn checked_reason(reason: Option<String>) -> Result<Option<String>, Problem> {
    match reason.as_ref().map(|reason| reason.chars().count()) {
        None | Some(1..=LONGEST_REASON) => Ok(reason),
        Some(_) => Err(Problem::field("reason", format!("must be 1 to {LONGEST_REASON} characters"))),
    }
}

/// A filter that makes sense; its members are named with `prefix` before them.
///
/// # Errors
/// 422 for one that does not.
pub(super) fn checked_filter(filter: Filter, prefix: &str) -> Result<Filter, Problem> {
    let faults = filter.faults(prefix);
    if faults.is_empty() { Ok(filter) } else { Err(Problem::fields(faults)) }
}
