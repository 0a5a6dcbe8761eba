//! Shell: metrics and spans of requests, those that clients abandoned included.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use saga_core::trace::{TRACEPARENT, TraceContext};

use super::authorization::Authorization;
use crate::host::metrics::Metrics;
use crate::runtime::span_operation::{NO_ROUTE, SpanOperation};
use crate::runtime::tracer::{self, SpanDetails, Tracer};

/// Metrics and tracer of a server's requests.
#[derive(Clone)]
pub(super) struct RequestTelemetry {
    pub(super) metrics: Metrics,
    pub(super) tracer: Tracer,
    pub(super) authorization: Arc<Authorization>,
}

/// Statuses of denied requests, whose trace context is not trusted.
const DENIED: [StatusCode; 3] =
    [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::TOO_MANY_REQUESTS];

/// Status of a request whose client closed the connection before the answer, as nginx has it.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// Runs a request, and records its outcome, or that the client abandoned it.
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

/// Request in flight. Recorded when dropped, answered or not.
struct RequestRecord {
    telemetry: RequestTelemetry,
    began: Instant,
    method: &'static str,
    /// Matched route. Unmatched paths are not labels, because clients could invent any number.
    route: Option<MatchedPath>,
    /// Trace context that the caller sent.
    caller_context: Option<TraceContext>,
    status: Option<StatusCode>,
}

impl RequestRecord {
    fn of(telemetry: RequestTelemetry, request: &Request, caller_context: Option<TraceContext>) -> Self {
        let route = request.extensions().get::<MatchedPath>().cloned();
        let (began, method) = (Instant::now(), name_of(request.method()));
        Self { telemetry, began, method, route, caller_context, status: None }
    }

    /// Returns the caller's trace context, if the server continues that trace.
    fn parent(&self) -> Option<TraceContext> {
        // Callers of guarded routes belong to this system: they have a token, where tokens are required.
        let RequestTelemetry { tracer, authorization, .. } = &self.telemetry;
        let route = self.route.as_ref().map(MatchedPath::as_str);
        let is_guarded = route.is_some_and(|route| authorization.is_guarded(self.method, route));
        self.caller_context.filter(|_| tracer.follows_callers() || is_guarded)
    }

    fn set_status(mut self, status: StatusCode) {
        self.status = Some(status);
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        let (took, parent) = (self.began.elapsed(), self.parent());
        let Self { telemetry: RequestTelemetry { metrics, tracer, .. }, method, .. } = self;
        let is_denied = self.status.is_some_and(|status| DENIED.contains(&status));
        let span = tracer::request_span().filter(|_| parent.is_none() || !is_denied);
        let status = self.status.map_or(CLIENT_CLOSED_REQUEST, |status| status.as_u16());
        let route = self.route.as_ref().map_or(NO_ROUTE, MatchedPath::as_str);
        metrics.record_request((method, route, &status.to_string()), took, span.map(|span| span.context));
        let Some(span) = span else { return };
        let failed = self.status.filter(StatusCode::is_server_error).map(|status| status.to_string());
        if failed.is_some() {
            tracer.keep(span.context);
        }
        let path = self.route.as_ref().map(|path| path.as_str().to_owned());
        let operation = SpanOperation::Answer { method, route: path, status };
        let links = self.caller_context.filter(|_| parent.is_none()).into_iter().collect();
        tracer.end(span, took, || SpanDetails { operation, failed, links });
    }
}

/// Returns the label of a method; unknown methods share one.
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

/// Parses the caller's trace context.
fn context_in(headers: &HeaderMap) -> Option<TraceContext> {
    TraceContext::parse(headers.get(TRACEPARENT)?.to_str().ok()?)
}
