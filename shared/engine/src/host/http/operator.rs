//! Shell: the name of the operator who sends a request, for the audit log.

use axum::extract::FromRequestParts;
use axum::http::HeaderValue;
use axum::http::request::Parts;
use utoipa::IntoParams;

use super::authorization::Caller;
use super::problem::Problem;

/// Name of an operator who gives none.
pub const ANONYMOUS: &str = "anonymous";

/// Header with the operator's name.
const HEADER: &str = "X-Operator";

/// Maximum length of a name, in bytes.
const MAX_NAME: usize = 100;

/// Operator of a request: the holder of the token where tokens are on, otherwise the name in the header `X-Operator`.
#[derive(Debug, Clone, PartialEq, Eq, IntoParams)]
#[into_params(names("X-Operator"), parameter_in = Header)]
pub struct Operator(
    /// Name of the operator, 1 to 100 visible ASCII characters; default `anonymous`. Ignored where tokens are on: the name
    /// of the token counts.
    #[param(required = false, min_length = 1, max_length = 100, pattern = "^[!-~]([ -~]*[!-~])?$")]
    pub String,
);

impl<S: Send + Sync> FromRequestParts<S> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        operator_name(parts).map(|name| Self(name.unwrap_or_else(|| ANONYMOUS.to_owned())))
    }
}

/// Returns the name of a request's operator, if it is known.
///
/// # Errors
/// 422 for an impossible name in the header, even where it is ignored.
pub fn operator_name(parts: &Parts) -> Result<Option<String>, Problem> {
    let bad = || Problem::field(HEADER, format!("must be 1 to {MAX_NAME} visible ASCII characters"));
    let given = parts.headers.get(HEADER).map(|value| name_in(value).ok_or_else(bad)).transpose()?;
    let caller = parts.extensions.get::<Caller>();
    Ok(caller.map(|caller| caller.name.clone()).or(given))
}

fn name_in(value: &HeaderValue) -> Option<String> {
    let name = value.to_str().ok()?.trim();
    let is_visible = name.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    (!name.is_empty() && name.len() <= MAX_NAME && is_visible).then(|| name.to_owned())
}
