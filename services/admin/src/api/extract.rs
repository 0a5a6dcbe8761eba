//! Shell: operator, reason and body of a request, with errors that name the invalid member.

use axum::Extension;
use axum::body::{Body as RawBody, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use garde::Validate;
use saga_core::access::Role;
use saga_engine::host::http::{
    ANONYMOUS, Body, Caller, FieldError, Problem, Segment, one_line, operator_name,
};
use serde::de::DeserializeOwned;
use utoipa::IntoParams;

use super::Admin;
use admin_api::dead_letters::Filter;

use crate::dead_letters::filter::{InvalidField, invalid_fields};

/// Maximum length of a reason, in characters.
const MAX_REASON: usize = 500;

/// A request for a change.
pub(super) struct Change<P, B> {
    pub(super) admin: Admin,
    /// Path parameters.
    pub(super) path: P,
    /// Name of the operator: see [`Operator`].
    pub(super) operator: String,
    /// Body: see [`OptionalBody`].
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
        let OptionalBody(body) = OptionalBody::from_request(Request::from_parts(parts, body), admin).await?;
        Ok(Self { admin: admin.clone(), path, operator, body })
    }
}

/// The operator: the holder of the token where tokens are on, otherwise the name in the header `X-Operator`.
#[derive(IntoParams)]
#[into_params(names("X-Operator"), parameter_in = Header)]
pub(super) struct Operator(
    /// Name of the operator, 1 to 100 visible ASCII characters; default `anonymous`. Ignored where tokens are on: the name
    /// of the token counts.
    #[param(required = false, min_length = 1, max_length = 100, pattern = "^[!-~]([ -~]*[!-~])?$")]
    pub(super) String,
);

impl FromRequestParts<Admin> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, admin: &Admin) -> Result<Self, Problem> {
        match operator_name(parts)? {
            Some(name) => Ok(Self(name)),
            None if admin.app.settings.service.require_operator => {
                Err(Problem::field("X-Operator", "is required: service.require_operator is set"))
            }
            None => Ok(Self(ANONYMOUS.to_owned())),
        }
    }
}

/// A JSON body that may be absent, which counts as `{}`.
pub(super) struct OptionalBody<T>(pub(super) T);

impl<T, S> FromRequest<S> for OptionalBody<T>
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

/// Changes that need a reason. The command line follows the same rule.
#[derive(Debug, Clone, Copy)]
pub(super) enum ReasonRule {
    /// Work is given up.
    GivesUp,
    /// An automatic decision is overruled.
    Forces,
    /// Many messages are changed at once.
    ChangesMany,
}

/// Requires a reason.
///
/// # Errors
/// Returns 422 without one.
pub(super) fn required_reason(
    reason: Option<String>,
    because: ReasonRule,
) -> Result<Option<String>, Problem> {
    let because = match because {
        ReasonRule::GivesUp => "this gives work up",
        ReasonRule::Forces => "this overrules an automatic decision",
        ReasonRule::ChangesMany => "this changes many messages at once",
    };
    match reason {
        None => Err(Problem::field("reason", format!("is required: {because}"))),
        given => Ok(given),
    }
}

/// The holder of the token, where tokens are on.
pub(super) type TokenHolder = Option<Extension<Caller>>;

/// Checks that only admins use force, where tokens are on.
///
/// # Errors
/// Returns 403 that names the role.
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

/// Validates a reason in the query.
///
/// # Errors
/// Returns 422 for one that is empty, too long, or not one line.
pub(super) fn checked_reason(reason: Option<String>) -> Result<Option<String>, Problem> {
    if let Some(Err(error)) = reason.as_ref().map(|reason| one_line(reason, &())) {
        return Err(Problem::field("reason", error.to_string()));
    }
    match reason.as_ref().map(|reason| reason.chars().count()) {
        None | Some(1..=MAX_REASON) => Ok(reason),
        Some(_) => Err(Problem::field("reason", format!("must be 1 to {MAX_REASON} characters"))),
    }
}

/// Validates a filter; `prefix` goes before the names of its members.
///
/// # Errors
/// Returns 422 for invalid members.
pub(super) fn checked_filter(filter: Filter, prefix: &str) -> Result<Filter, Problem> {
    let invalid = invalid_fields(&filter, prefix);
    if invalid.is_empty() { Ok(filter) } else { Err(invalid_request(invalid)) }
}

pub(super) fn invalid_request(fields: Vec<InvalidField>) -> Problem {
    let error = |InvalidField { field, detail }| FieldError { field, detail };
    Problem::fields(fields.into_iter().map(error).collect())
}
