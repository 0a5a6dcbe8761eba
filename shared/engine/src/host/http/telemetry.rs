//! Shell: metrics and spans of requests, those that clients abandoned included.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::Response;
use saga_core::trace::{TRACEPARENT, TraceContext};

use super::authorization::Authorization;
use super::baggage;
use crate::host::metrics::Metrics;
use crate::runtime::span_attribute::OTHER_METHOD;
use crate::runtime::span_operation::SpanOperation;
use crate::runtime::tracer::{self, RequestCaller, SpanDetails, SpanFailure, Tracer};

/// Metrics and tracer of a server's requests.
#[derive(Clone)]
pub(super) struct RequestTelemetry {
    pub(super) metrics: Metrics,
    pub(super) tracer: Tracer,
    pub(super) authorization: Arc<Authorization>,
    /// Scheme of all requests: `http` or `https`.
    pub(super) scheme: &'static str,
}

/// Label of requests without a route.
const NO_ROUTE: &str = "none";

/// Statuses of denied requests, whose trace context is not trusted.
const DENIED: [StatusCode; 3] =
    [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::TOO_MANY_REQUESTS];

/// Status of a request whose client closed the connection before the answer, as nginx has it.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// Runs a request, and records its outcome, or that the client abandoned it.
pub(super) async fn observe_request(telemetry: RequestTelemetry, request: Request, next: Next) -> Response {
    let caller_context = context_in(request.headers()).filter(|_| telemetry.tracer.is_on());
    let record = RequestRecord::of(telemetry, &request, caller_context);
    let caller = record.parent().map(|context| {
        let correlation_id = baggage::correlation_id_in(request.headers());
        RequestCaller { context, correlation_id }
    });
    let tracer = record.telemetry.tracer.clone();
    let answer = async move {
        let response = next.run(request).await;
        record.set_status(response.status());
        response
    };
    tracer::answering(&tracer, caller, answer).await
}

/// Request in flight. Recorded when dropped, answered or not.
struct RequestRecord {
    telemetry: RequestTelemetry,
    began: Instant,
    method: &'static str,
    /// Matched route. Unmatched paths are not labels, because clients could invent any number.
    route: Option<MatchedPath>,
    uri: Uri,
    /// Trace context that the caller sent.
    caller_context: Option<TraceContext>,
    status: Option<StatusCode>,
}

impl RequestRecord {
    fn of(telemetry: RequestTelemetry, request: &Request, caller_context: Option<TraceContext>) -> Self {
        let route = request.extensions().get::<MatchedPath>().cloned();
        let (began, method, uri) = (Instant::now(), name_of(request.method()), request.uri().clone());
        Self { telemetry, began, method, route, uri, caller_context, status: None }
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
        let Self { telemetry: RequestTelemetry { metrics, tracer, scheme, .. }, method, uri, .. } = self;
        let is_denied = self.status.is_some_and(|status| DENIED.contains(&status));
        let span = tracer::request_span().filter(|_| parent.is_none() || !is_denied);
        let status = self.status.map(|status| status.as_u16());
        let (route, label) =
            (self.route.as_ref().map(MatchedPath::as_str), status.unwrap_or(CLIENT_CLOSED_REQUEST));
        let labels = (*method, route.unwrap_or(NO_ROUTE), &*label.to_string());
        metrics.record_request(labels, took, span.map(|span| span.context));
        let Some(span) = span else { return };
        let failed = error_type(self.status);
        if self.status.is_some_and(|status| status.is_server_error()) {
            tracer.keep(span.context);
        }
        let links = self.caller_context.filter(|_| parent.is_none()).into_iter().collect();
        tracer.end(span, took, || SpanDetails {
            operation: SpanOperation::Answer {
                method,
                scheme,
                route: route.map(str::to_owned),
                path: uri.path().to_owned(),
                status,
                correlation_id: tracer::request_correlation_id(),
            },
            failed: failed.map(|error_type| SpanFailure { error_type, description: String::new() }),
            links,
            transaction: None,
        });
    }
}

/// Class of the error of a response: its status, or that the client did not wait for it.
fn error_type(status: Option<StatusCode>) -> Option<Cow<'static, str>> {
    match status {
        Some(status) if status.is_server_error() => Some(status.as_str().to_owned().into()),
        Some(_) => None,
        None => Some("client_closed_request".into()),
    }
}

/// Returns the label of a method; unknown methods share one.
pub(super) fn name_of(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => OTHER_METHOD,
    }
}

/// Parses the caller's trace context.
fn context_in(headers: &HeaderMap) -> Option<TraceContext> {
    TraceContext::parse(headers.get(TRACEPARENT)?.to_str().ok()?)
}
