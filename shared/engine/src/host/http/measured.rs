//! Shell: measures each answer, and writes down the span of one that belongs to a trace.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use saga_core::trace::{TRACEPARENT, TraceContext};

use super::gate::Gate;
use crate::host::metrics::{Metrics, names};
use crate::runtime::deed::{Deed, NO_ROUTE};
use crate::runtime::tracer::{self, Told, Tracer};

/// What is measured by, and traced with.
#[derive(Clone)]
pub(super) struct Measures {
    pub(super) metrics: Metrics,
    pub(super) tracer: Tracer,
    pub(super) gate: Arc<Gate>,
}

/// Who is refused is not let in: nothing of it is recorded because he says so.
const REFUSED: [StatusCode; 3] =
    [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::TOO_MANY_REQUESTS];

/// Answers, and takes note of that.
pub(super) async fn measure(measures: Measures, request: Request, next: Next) -> Response {
    let Measures { metrics, tracer, gate } = measures;
    let began = Instant::now();
    let method = name_of(request.method());
    // As the router understood it: what it did not would be a label for each path that anybody makes up.
    let path = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let route = path.as_deref().unwrap_or(NO_ROUTE);
    let said = context_in(request.headers()).filter(|_| tracer.is_on());
    // Whom a guarded route answers is of this system: he came by a token, where tokens are asked for.
    let is_followed = || tracer.follows_anybody() || gate.guards(method, route);
    let parent = said.filter(|_| is_followed());
    let (response, begun) = tracer::answering(&tracer, parent, next.run(request)).await;
    let (took, status) = (began.elapsed(), response.status());
    let begun = begun.filter(|_| parent.is_none() || !REFUSED.contains(&status));
    metrics.add(&names::REQUESTS, &[method, route, status.as_str()], 1);
    metrics.took(&names::REQUEST_DURATION, &[method, route], took, begun.map(|begun| begun.context));
    if let Some(begun) = begun {
        let failed = status.is_server_error().then(|| status.to_string());
        if failed.is_some() {
            tracer.keep(begun.context);
        }
        let deed = Deed::Answer { method, route: path, status: status.as_u16() };
        let links = said.filter(|_| parent.is_none()).into_iter().collect();
        tracer.end(begun, took, || Told { deed, failed, links });
    }
    response
}

/// Methods that there are routes for; whatever else somebody sends is one.
fn name_of(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => "other",
    }
}

/// What the caller says of its trace.
fn context_in(headers: &HeaderMap) -> Option<TraceContext> {
    TraceContext::parse(headers.get(TRACEPARENT)?.to_str().ok()?)
}
