//! Shell: who asks, for what, and why, as requests carry it; whatever is wrong with it is named.

use axum::Extension;
use axum::body::{Body as RawBody, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use garde::Validate;
use saga_core::access::Role;
use saga_engine::host::http::{Body, Caller, FieldError, Problem, Segment, one_line, trimmed_if_any};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::{IntoParams, ToSchema};

use super::Admin;
use crate::dead_letter::filter::Filter;
use crate::request::InvalidField;

/// Longest name of an operator, in bytes.
const LONGEST_NAME: usize = 100;

/// Longest reason, in characters.
const LONGEST_REASON: usize = 500;

/// A request to change something.
pub(super) struct Change<P, B> {
    /// What the routes stand on.
    pub(super) admin: Admin,
    /// What its path names: a dead letter, a service, nothing (`()`).
    pub(super) path: P,
    /// Who asks: see [`Operator`].
    pub(super) operator: String,
    /// What its body says: see [`Ask`].
    pub(super) body: B,
}

impl<P, B> FromRequest<Admin> for Change<P, B>
where
    P: DeserializeOwned + Send,
    B: DeserializeOwned + Validate<Context = ()> + 'static,
{
    type Rejection = Problem;

    async fn from_request(request: Request, admin: &Admin) -> Result<Self, Problem> {
        let (mut parts, body) = request.into_parts();
        let Segment(path) = Segment::from_request_parts(&mut parts, admin).await?;
        let Operator(operator) = Operator::from_request_parts(&mut parts, admin).await?;
        let Ask(body) = Ask::from_request(Request::from_parts(parts, body), admin).await?;
        Ok(Self { admin: admin.clone(), path, operator, body })
    }
}

/// Who asks: the holder of the token, where one is needed, and nobody else; else who the header `X-Operator` says.
#[derive(IntoParams)]
#[into_params(names("X-Operator"), parameter_in = Header)]
pub(super) struct Operator(
    /// Who asks, 1 to 100 visible ASCII characters; `anonymous` when it is absent. Where tokens are on, it is the name of
    /// the token that counts, and not this.
    #[param(required = false, min_length = 1, max_length = 100, pattern = "^[!-~]([ -~]*[!-~])?$")]
    pub(super) String,
);

impl FromRequestParts<Admin> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, admin: &Admin) -> Result<Self, Problem> {
        const FIELD: &str = "X-Operator";
        // What it says must make sense, though it may not be what counts.
        let bad = || Problem::field(FIELD, format!("must be 1 to {LONGEST_NAME} visible ASCII characters"));
        let said = parts.headers.get(FIELD).map(|value| named(value).ok_or_else(bad)).transpose()?;
        if let Some(caller) = parts.extensions.get::<Caller>() {
            return Ok(Self(caller.name.clone()));
        }
        match said {
            Some(name) => Ok(Self(name)),
            None if admin.app.settings.service.require_operator => {
                Err(Problem::field(FIELD, "is required: service.require_operator is set"))
            }
            None => Ok(Self("anonymous".to_owned())),
        }
    }
}

/// The name in a header; `None` when it cannot be one.
fn named(value: &HeaderValue) -> Option<String> {
    let name = value.to_str().ok()?.trim();
    let is_visible = name.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    (!name.is_empty() && name.len() <= LONGEST_NAME && is_visible).then(|| name.to_owned())
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

/// Why it is asked for, and nothing else.
#[derive(Debug, Default, Deserialize, Validate, ToSchema, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct Why {
    /// Why, 1 to 500 characters; kept in the audit log.
    #[garde(inner(length(chars, min = 1, max = 500), custom(one_line)))]
    #[schema(min_length = 1, max_length = 500, format = "trimmed-line")]
    #[param(min_length = 1, max_length = 500, format = "trimmed-line")]
    #[serde(default, deserialize_with = "trimmed_if_any")]
    pub(super) reason: Option<String>,
}

/// [`Why`], as it is described where a reason is needed.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes what is read as [`Why`]")]
pub(super) struct NeededWhy {
    /// Why, 1 to 500 characters; kept in the audit log.
    #[schema(min_length = 1, max_length = 500, format = "trimmed-line")]
    reason: String,
}

/// Why a reason is needed: this is the rule, and there are no others. The command line goes by it too.
#[derive(Debug, Clone, Copy)]
pub(super) enum Because {
    /// Something is given up: nobody comes back to it unless they are told.
    GivesUp,
    /// Something goes on, or is held, against what the services would decide by themselves.
    Forces,
    /// Many messages are changed, none of them named.
    ChangesMany,
}

/// A reason, where one is needed.
///
/// # Errors
/// 422 without one.
pub(super) fn needed(reason: Option<String>, because: Because) -> Result<Option<String>, Problem> {
    let because = match because {
        Because::GivesUp => "this gives something up",
        Because::Forces => "this forces or holds something",
        Because::ChangesMany => "this changes many messages at once",
    };
    match reason {
        None => Err(Problem::field("reason", format!("is required: {because}"))),
        given => Ok(given),
    }
}

/// Who asks, where a token is needed.
pub(super) type TokenHolder = Option<Extension<Caller>>;

/// Whether whoever asks may force something: what the services refuse by themselves is overruled by admins alone. Where
/// tokens are off, anybody may.
///
/// # Errors
/// 403 that names the role.
pub(super) fn may_force(force: bool, holder: TokenHolder) -> Result<(), Problem> {
    match holder {
        Some(Extension(Caller { name, role })) if force && !role.may(Role::Admin) => {
            let needed = Role::Admin;
            let detail = format!("force needs the role {needed}, and the token {name} has the role {role}");
            Err(Problem::new(StatusCode::FORBIDDEN, detail))
        }
        Some(_) | None => Ok(()),
    }
}

/// A reason that came in another way than in a body.
///
/// # Errors
/// 422 for one that is empty or too long.
pub(super) fn checked_reason(reason: Option<String>) -> Result<Option<String>, Problem> {
    if let Some(Err(error)) = reason.as_ref().map(|reason| one_line(reason, &())) {
        return Err(Problem::field("reason", error.to_string()));
    }
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
    let invalid = filter.invalid_fields(prefix);
    if invalid.is_empty() { Ok(filter) } else { Err(invalid_request(invalid)) }
}

/// 422 for these members of the request.
pub(super) fn invalid_request(fields: Vec<InvalidField>) -> Problem {
    let error = |InvalidField { field, detail }| FieldError { field, detail };
    Problem::fields(fields.into_iter().map(error).collect())
}
