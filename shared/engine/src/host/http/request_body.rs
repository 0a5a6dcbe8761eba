//! Shell: reads the whole body of a request before the request begins.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::LengthLimitError;
use hyper::body::Body as _;
use tokio::time::timeout;

use super::connection_pool::Slot;
use super::problem::Problem;

/// Paths that are served even when requests occupy every connection.
const PROBES: [&str; 3] = ["/livez", "/readyz", "/metrics"];

/// Limits on the body of a request.
#[derive(Clone, Copy)]
pub(super) struct BodyLimits {
    pub(super) body_timeout: Duration,
    pub(super) body_limit_bytes: usize,
}

/// Reads the body, and only then passes the request on: an incomplete request occupies no handler. Answers 408 for a slow
/// body, 413 for a large one.
pub(super) async fn buffer_body(limits: BodyLimits, request: Request, next: Next) -> Response {
    let slot = request.extensions().get::<Arc<Slot>>().cloned();
    let is_probe = PROBES.contains(&request.uri().path());
    if slot.as_ref().is_some_and(|slot| slot.is_for_probes()) && !is_probe {
        return closing_response(Problem::unavailable("all connections are in use by requests", 1));
    }
    let (parts, body) = request.into_parts();
    let bytes = match read_body(body, limits).await {
        Ok(bytes) => bytes,
        Err(problem) => return closing_response(problem),
    };
    if slot.is_some_and(|slot| !slot.begin_request()) {
        return closing_response(Problem::unavailable(
            "this connection is being closed: send the request again",
            1,
        ));
    }
    next.run(Request::from_parts(parts, Body::from(bytes))).await
}

async fn read_body(body: Body, limits: BodyLimits) -> Result<Bytes, Problem> {
    let BodyLimits { body_timeout, body_limit_bytes: limit } = limits;
    let too_large = || {
        let detail = format!("the body is larger than {limit} bytes (http.body_limit_bytes)");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
    };
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large());
    }
    match timeout(body_timeout, to_bytes(body, limit)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error))
            if std::error::Error::source(&error).is_some_and(|source| source.is::<LengthLimitError>()) =>
        {
            Err(too_large())
        }
        Ok(Err(_)) => Err(Problem::new(StatusCode::BAD_REQUEST, "the body is broken, or ends too early")),
        Err(_) => {
            let detail = format!("the body exceeded its time-out of {body_timeout:?} (http.body_timeout)");
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, detail))
        }
    }
}

/// Answers with a problem, and closes the connection.
pub(super) fn closing_response(problem: Problem) -> Response {
    let mut response = problem.into_response();
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
