//! Shell: telemetry each answer, and each that nobody waited for, and writes down the span of one that belongs to a trace.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use saga_core::trace::{TRACEPARENT, TraceContext};

use super::authorization::Authorization;
use crate::host::metrics::Metrics;
use crate::runtime::operation::{NO_ROUTE, Operation};
use crate::runtime::tracer::{self, SpanDetails, Tracer};

/// What is measured by, and traced with.
#[derive(Clone)]
pub(super) struct RequestTelemetry {
    pub(super) metrics: Metrics,
    pub(super) tracer: Tracer,
    pub(super) authorization: Arc<Authorization>,
}

/// Who is refused is not let in: nothing of it is recorded because he says so.
const DENIED: [StatusCode; 3] =
    [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::TOO_MANY_REQUESTS];

/// The status that is record when who asked hung up before there was an answer: 499, as other servers say it.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// Answers, and takes note of that, or of whoever did not wait for it.
pub(super) async fn observe_request(telemetry: RequestTelemetry, request: Request, next: Next) -> Response {
    let caller_context = context_in(request.headers()).filter(|_| telemetry.tracer.is_on());
    let record = RequestRecord::of(telemetry, &request, caller_context);
    let (tracer, parent) = (record.telemetry.tracer.clone(), record.parent());
    let answer = async move {
        let response = next.run(request).await;
        record.set_status(response.status());
        response
    };
    tracer::answering(&tracer, parent, answer).await
}

/// A request under way. Once it is dropped, answered or not, note is taken of it.
struct RequestRecord {
    telemetry: RequestTelemetry,
    began: Instant,
    method: &'static str,
    /// As the router understood it: what it did not would be a label for each path that anybody makes up.
    route: Option<MatchedPath>,
    /// The trace that the caller says it is of.
    caller_context: Option<TraceContext>,
    status: Option<StatusCode>,
}

impl RequestRecord {
    fn of(telemetry: RequestTelemetry, request: &Request, caller_context: Option<TraceContext>) -> Self {
        let route = request.extensions().get::<MatchedPath>().cloned();
        let (began, method) = (Instant::now(), name_of(request.method()));
        Self { telemetry, began, method, route, caller_context, status: None }
    }

    fn template(&self) -> &str {
        self.route.as_ref().map_or(NO_ROUTE, MatchedPath::as_str)
    }

    /// What is caller_context, of a caller who is followed.
    fn parent(&self) -> Option<TraceContext> {
        // Whom a guarded route answers is of this system: he came by a token, where tokens are asked for.
        let RequestTelemetry { tracer, authorization, .. } = &self.telemetry;
        self.caller_context
            .filter(|_| tracer.follows_anybody() || authorization.is_guarded(self.method, self.template()))
    }

    fn set_status(mut self, status: StatusCode) {
        self.status = Some(status);
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        let (took, parent) = (self.began.elapsed(), self.parent());
        let Self { telemetry: RequestTelemetry { metrics, tracer, .. }, method, .. } = self;
        let is_refused = self.status.is_some_and(|status| DENIED.contains(&status));
        let begun = tracer::of_the_answer().filter(|_| parent.is_none() || !is_refused);
        let status = self.status.map_or(CLIENT_CLOSED_REQUEST, |status| status.as_u16());
        let route = self.route.as_ref().map_or(NO_ROUTE, MatchedPath::as_str);
        metrics.record_request((method, route, &status.to_string()), took, begun.map(|begun| begun.context));
        let Some(begun) = begun else { return };
        let failed = self.status.filter(StatusCode::is_server_error).map(|status| status.to_string());
        if failed.is_some() {
            tracer.keep(begun.context);
        }
        let path = self.route.as_ref().map(|path| path.as_str().to_owned());
        let operation = Operation::Answer { method, route: path, status };
        let links = self.caller_context.filter(|_| parent.is_none()).into_iter().collect();
        tracer.end(begun, took, || SpanDetails { operation, failed, links });
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
