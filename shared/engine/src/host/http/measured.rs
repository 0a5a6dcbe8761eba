//! Shell: measures each answer, and each that nobody waited for, and writes down the span of one that belongs to a trace.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use saga_core::trace::{TRACEPARENT, TraceContext};

use super::gate::Gate;
use crate::host::metrics::Metrics;
use crate::runtime::operation::{NO_ROUTE, Operation};
use crate::runtime::tracer::{self, SpanDetails, Tracer};

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

/// The status that is noted when who asked hung up before there was an answer: 499, as other servers say it.
const HUNG_UP: u16 = 499;

/// Answers, and takes note of that, or of whoever did not wait for it.
pub(super) async fn measure(measures: Measures, request: Request, next: Next) -> Response {
    let said = context_in(request.headers()).filter(|_| measures.tracer.is_on());
    let noted = Noted::of(measures, &request, said);
    let (tracer, parent) = (noted.measures.tracer.clone(), noted.parent());
    let answer = async move {
        let response = next.run(request).await;
        noted.answered(response.status());
        response
    };
    tracer::answering(&tracer, parent, answer).await
}

/// A request under way. Once it is dropped, answered or not, note is taken of it.
struct Noted {
    measures: Measures,
    began: Instant,
    method: &'static str,
    /// As the router understood it: what it did not would be a label for each path that anybody makes up.
    route: Option<MatchedPath>,
    /// The trace that the caller says it is of.
    said: Option<TraceContext>,
    status: Option<StatusCode>,
}

impl Noted {
    fn of(measures: Measures, request: &Request, said: Option<TraceContext>) -> Self {
        let route = request.extensions().get::<MatchedPath>().cloned();
        let (began, method) = (Instant::now(), name_of(request.method()));
        Self { measures, began, method, route, said, status: None }
    }

    fn template(&self) -> &str {
        self.route.as_ref().map_or(NO_ROUTE, MatchedPath::as_str)
    }

    /// What is said, of a caller who is followed.
    fn parent(&self) -> Option<TraceContext> {
        // Whom a guarded route answers is of this system: he came by a token, where tokens are asked for.
        let Measures { tracer, gate, .. } = &self.measures;
        self.said.filter(|_| tracer.follows_anybody() || gate.guards(self.method, self.template()))
    }

    fn answered(mut self, status: StatusCode) {
        self.status = Some(status);
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        let (took, parent) = (self.began.elapsed(), self.parent());
        let Self { measures: Measures { metrics, tracer, .. }, method, .. } = self;
        let is_refused = self.status.is_some_and(|status| REFUSED.contains(&status));
        let begun = tracer::of_the_answer().filter(|_| parent.is_none() || !is_refused);
        let status = self.status.map_or(HUNG_UP, |status| status.as_u16());
        let route = self.route.as_ref().map_or(NO_ROUTE, MatchedPath::as_str);
        metrics.answered((method, route, &status.to_string()), took, begun.map(|begun| begun.context));
        let Some(begun) = begun else { return };
        let failed = self.status.filter(StatusCode::is_server_error).map(|status| status.to_string());
        if failed.is_some() {
            tracer.keep(begun.context);
        }
        let path = self.route.as_ref().map(|path| path.as_str().to_owned());
        let operation = Operation::Answer { method, route: path, status };
        let links = self.said.filter(|_| parent.is_none()).into_iter().collect();
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
