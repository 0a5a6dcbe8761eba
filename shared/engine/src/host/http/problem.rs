//! Shell: errors as people and programs get them: RFC 9457 `application/problem+json`.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use saga_core::retry::error_chain;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::store::StoreFault;

/// Error in one field of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldError {
    /// Path of the field, e.g. `lines[0].quantity`.
    pub field: String,
    /// Description of the error for people.
    pub detail: String,
}

/// Problem document (RFC 9457), the body of every error.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// URI reference that identifies the type of problem.
    #[serde(rename = "type")]
    pub kind: String,
    /// Short title of the type, for people.
    pub title: String,
    /// HTTP status, the same as that of the response.
    pub status: u16,
    /// This very case: what happened, to what, and what to do.
    pub detail: String,
    /// Errors in single fields of the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// Seconds after which trying again makes sense.
    #[serde(skip)]
    pub retry_after_s: Option<u32>,
}

impl Problem {
    /// A problem of a status.
    #[must_use]
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            kind: "about:blank".to_owned(),
            title: status.canonical_reason().unwrap_or("Error").to_owned(),
            status: status.as_u16(),
            detail: detail.into(),
            errors: Vec::new(),
            retry_after_s: None,
        }
    }

    /// Makes a 422 for one field.
    #[must_use]
    pub fn field(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::fields(vec![FieldError { field: field.into(), detail: detail.into() }])
    }

    /// Makes a 422 for several fields.
    #[must_use]
    pub fn fields(errors: Vec<FieldError>) -> Self {
        let names: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        let detail = format!("invalid: {}", names.join(", "));
        Self { errors, ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail) }
    }

    /// Makes a 404 that names what does not exist.
    #[must_use]
    pub fn not_found(what: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("there is no {what}"))
    }

    /// Makes a 409: the request conflicts with the current state.
    #[must_use]
    pub fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, detail)
    }

    /// Makes a 503 with `Retry-After` in seconds.
    #[must_use]
    pub fn unavailable(detail: impl Into<String>, retry_after_s: u32) -> Self {
        Self { retry_after_s: Some(retry_after_s), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, detail) }
    }

    /// Makes a 500. Logs the cause, and does not show it to the caller.
    #[must_use]
    pub fn internal(cause: &dyn std::fmt::Display) -> Self {
        tracing::error!("request failed: {cause}");
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "something broke here; the log of this service says what",
        )
    }
}

/// An unavailable database is a 503: the same request succeeds later.
impl From<StoreFault> for Problem {
    fn from(fault: StoreFault) -> Self {
        let cause = error_chain(&fault);
        match fault {
            StoreFault::Database { .. } | StoreFault::Closed => {
                tracing::warn!("request not answered: {cause}");
                Self::unavailable("this service cannot read its database right now: ask again in a moment", 1)
            }
            StoreFault::DataLost(_) => {
                tracing::warn!("request not answered: {cause}");
                Self::unavailable(
                    "the database of this service has lost data, and is not used until it is restored",
                    30,
                )
            }
            StoreFault::Rejected { .. }
            | StoreFault::Conflict(_)
            | StoreFault::Unusable(_)
            | StoreFault::Panicked(_) => Self::internal(&cause),
        }
    }
}

impl From<crate::runtime::engine::Unavailable> for Problem {
    fn from(unavailable: crate::runtime::engine::Unavailable) -> Self {
        Self::unavailable(unavailable.to_string(), 1)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, axum::Json(&self)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unavailable_store_is_503_and_broken_store_is_500() {
        let problem = |fault: StoreFault| {
            let problem = Problem::from(fault);
            (problem.status, problem.retry_after_s)
        };
        let source = || "connection refused".into();
        assert_eq!(problem(StoreFault::Database { context: "reading", source: source() }), (503, Some(1)));
        assert_eq!(problem(StoreFault::Closed), (503, Some(1)));
        assert_eq!(problem(StoreFault::DataLost("it is at event 3".to_owned())), (503, Some(30)));
        assert_eq!(problem(StoreFault::Rejected { context: "reading", source: source() }), (500, None));
    }
}
