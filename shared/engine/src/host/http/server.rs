//! Shell: composition of the router: middleware around a service's routes.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::error_handling::HandleErrorLayer;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::{Next, from_fn, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tower::ServiceBuilder;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa_axum::router::OpenApiRouter;
use utoipa_swagger_ui::SwaggerUi;

use super::authorization::{Authorization, authorize_request};
use super::openapi::completed;
use super::origin_guard::{OriginGuard, guard_origin};
use super::problem::Problem;
use super::readiness::ReadinessProbe;
use super::request_body::{BodyLimits, buffer_body};
use super::settings::HttpSettings;
use super::telemetry::{RequestTelemetry, observe_request};
use crate::host::metrics::Metrics;
use crate::runtime::tracer::Tracer;

#[derive(Clone)]
struct Operations {
    health: ReadinessProbe,
    metrics: Metrics,
}

/// Adds health, metrics, documentation, limits, problems and authorization to `routes`. `pages` are served to everybody.
pub fn router(
    routes: OpenApiRouter,
    pages: Router,
    settings: &HttpSettings,
    authorization: Authorization,
    health: ReadinessProbe,
    metrics: Metrics,
    tracer: Tracer,
) -> Router {
    let (routes, api) = routes.split_for_parts();
    let authorization = Arc::new(authorization);
    let scheme = if settings.tls.cert.is_some() { "https" } else { "http" };
    let telemetry =
        RequestTelemetry { metrics: metrics.clone(), tracer, authorization: authorization.clone(), scheme };
    let operations = Router::new()
        .route("/livez", get(|| async { "alive\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics_text))
        .with_state(Operations { health, metrics });
    let HttpSettings { timeout, body_timeout, body_limit_bytes, .. } = *settings;
    let description = completed(&api, &authorization);
    let guard = Arc::new(OriginGuard::new(settings));
    let limits = BodyLimits { body_timeout, body_limit_bytes };
    let bounded = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(|_| async {
            Problem::unavailable("too many requests are in flight", 1)
        }))
        .load_shed()
        .layer(GlobalConcurrencyLimitLayer::new(settings.max_requests));
    routes
        .layer(bounded)
        .merge(operations)
        // Inside the router, which has matched the route by then.
        .layer(from_fn(move |request, next| authorize_request(authorization.clone(), request, next)))
        .merge(pages)
        .merge(SwaggerUi::new("/docs").external_url_unchecked("/openapi.json", description))
        .fallback(
            |request: Request| async move { Problem::not_found(format!("route {}", request.uri().path())) },
        )
        // `buffer_body` has limited the body by then.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn(move |request, next| within(timeout, request, next)))
        .layer(from_fn(move |request, next| buffer_body(limits, request, next)))
        .layer(from_fn(move |request, next| guard_origin(guard.clone(), request, next)))
        .layer(CatchPanicLayer::custom(|_| Problem::internal(&"a handler panicked").into_response()))
        .layer(map_response(as_problem))
        .layer(from_fn(move |request, next| observe_request(telemetry.clone(), request, next)))
}

async fn readyz(State(operations): State<Operations>) -> Response {
    (operations.health)().await.into_response()
}

/// Answers in the text format of Prometheus, or in OpenMetrics, which has exemplars, if the client accepts that.
async fn metrics_text(State(operations): State<Operations>, headers: HeaderMap) -> Result<Response, Problem> {
    let mut accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let (text, content_type) = if accepted.any(|types| types.contains("application/openmetrics-text")) {
        (operations.metrics.text(), "application/openmetrics-text; version=1.0.0; charset=utf-8")
    } else {
        (operations.metrics.prometheus_text(), "text/plain; version=0.0.4; charset=utf-8")
    };
    let text = text.map_err(|error| Problem::internal(&error))?;
    Ok(([(header::CONTENT_TYPE, content_type), (header::VARY, "accept")], text).into_response())
}

/// Time limit of the request that carries it as an extension. Slow routes extend it.
#[derive(Debug, Clone, Default)]
pub struct TimeLimit(Arc<OnceLock<Duration>>);

impl TimeLimit {
    /// Extends the limit to `limit`, if that is longer than `http.timeout`. Takes effect once.
    pub fn lengthen(&self, limit: Duration) {
        let _ = self.0.set(limit);
    }
}

async fn within(timeout: Duration, mut request: Request, next: Next) -> Response {
    let limit = TimeLimit::default();
    request.extensions_mut().insert(limit.clone());
    let mut running = pin!(next.run(request));
    if let Ok(response) = tokio::time::timeout(timeout, &mut running).await {
        return response;
    }
    let limit = limit.0.get().map_or(timeout, |longer| timeout.max(*longer));
    match tokio::time::timeout(limit.saturating_sub(timeout), running).await {
        Ok(response) => response,
        Err(_) => Problem::unavailable(format!("not done within {limit:?}; it may still complete"), 1)
            .into_response(),
    }
}

/// Rewrites error answers of libraries (405, 413, …) as problem documents.
async fn as_problem(response: Response) -> Response {
    let status = response.status();
    let is_error = status.is_client_error() || status.is_server_error();
    let has_form = response.headers().get(header::CONTENT_TYPE).is_some_and(|value| {
        value.as_bytes().starts_with(b"application/problem+json")
            || response.headers().contains_key("x-readiness")
    });
    if !is_error || has_form {
        return response;
    }
    let detail = status.canonical_reason().unwrap_or("the request failed").to_lowercase();
    let mut problem = Problem::new(status, detail).into_response();
    if let Some(allow) = response.headers().get(header::ALLOW) {
        problem.headers_mut().insert(header::ALLOW, allow.clone());
    }
    problem
}
