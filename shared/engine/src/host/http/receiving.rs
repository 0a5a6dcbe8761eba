//! Shell: takes in the whole of a request before anything is begun with it.

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

use super::problem::Problem;
use super::seats::Seat;

/// What is answered even when no seat is left.
const PROBES: [&str; 3] = ["/livez", "/readyz", "/metrics"];

/// How much of a request is taken in, and for how long.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    pub(super) body_timeout: Duration,
    pub(super) body_limit_bytes: usize,
}

/// Takes in the body, and only then lets the request go on: until it is all there, it holds up nobody. 408 for a body
/// that takes too long, 413 for one that is too large.
pub(super) async fn whole(patience: Patience, request: Request, next: Next) -> Response {
    let seat = request.extensions().get::<Arc<Seat>>().cloned();
    let is_probe = PROBES.contains(&request.uri().path());
    if seat.as_ref().is_some_and(|seat| seat.is_for_probes()) && !is_probe {
        return last(Problem::unavailable("all connections are taken by requests under way", 1));
    }
    let (parts, body) = request.into_parts();
    let bytes = match received(body, patience).await {
        Ok(bytes) => bytes,
        Err(problem) => return last(problem),
    };
    if seat.is_some_and(|seat| !seat.begins()) {
        return last(Problem::unavailable("this connection is being closed", 1));
    }
    next.run(Request::from_parts(parts, Body::from(bytes))).await
}

async fn received(body: Body, patience: Patience) -> Result<Bytes, Problem> {
    let Patience { body_timeout, body_limit_bytes: limit } = patience;
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
            let detail = format!("the body was not there within {body_timeout:?} (http.body_timeout)");
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, detail))
        }
    }
}

/// The last answer on its connection.
pub(super) fn last(problem: Problem) -> Response {
    let mut response = problem.into_response();
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
