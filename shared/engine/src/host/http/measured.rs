//! Shell: measures each answer, and each that nobody waited for, and writes down the span of one that belongs to a trace.

use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use saga_core::trace::{TRACEPARENT, TraceContext};

use crate::host::metrics::{Metrics, names};
use crate::runtime::tracer::{self, SpanKind, Tracer};

/// What is measured by, and traced with.
#[derive(Clone)]
pub(super) struct Measures {
    pub(super) metrics: Metrics,
    pub(super) tracer: Tracer,
}

/// What stands for a route where there is none.
const NO_ROUTE: &str = "none";

/// The status that is noted when who asked hung up before there was an answer: 499, as other servers say it.
const HUNG_UP: u16 = 499;

/// Answers, and takes note of that, or of whoever did not wait for it.
pub(super) async fn measure(measures: Measures, request: Request, next: Next) -> Response {
    let (tracer, parent) = (measures.tracer.clone(), context_in(request.headers()));
    let noted = Noted::of(measures, &request);
    let answer = async move {
        let response = next.run(request).await;
        noted.answered(response.status());
        response
    };
    tracer::answering(&tracer, parent, answer).await.0
}

/// A request under way. Once it is dropped, answered or not, note is taken of it.
struct Noted {
    measures: Measures,
    began: Instant,
    method: &'static str,
    /// As the router understood it: what it did not would be a label for each path that anybody makes up.
    route: Option<MatchedPath>,
    status: Option<StatusCode>,
}

impl Noted {
    fn of(measures: Measures, request: &Request) -> Self {
        let route = request.extensions().get::<MatchedPath>().cloned();
        Self { measures, began: Instant::now(), method: name_of(request.method()), route, status: None }
    }

    fn answered(mut self, status: StatusCode) {
        self.status = Some(status);
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        let Self { measures: Measures { metrics, tracer }, method, .. } = self;
        let route = self.route.as_ref().map_or(NO_ROUTE, MatchedPath::as_str);
        let (took, begun) = (self.began.elapsed(), tracer::of_the_answer());
        let status = self.status.map_or(HUNG_UP, |status| status.as_u16()).to_string();
        metrics.add(&names::REQUESTS, &[method, route, &status], 1);
        metrics.took(&names::REQUEST_DURATION, &[method, route], took, begun.map(|begun| begun.context));
        let Some(begun) = begun else { return };
        tracer.end(begun, took, SpanKind::Server, |span| {
            span.name = format!("{method} {route}").into();
            span.failed = self.status.filter(StatusCode::is_server_error).map(|status| status.to_string());
            span.attributes = vec![
                ("http.request.method", (*method).to_owned()),
                ("http.route", route.to_owned()),
                ("http.response.status_code", status),
            ];
        });
    }
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
