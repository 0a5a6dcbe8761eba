//! Shell: the router around a service's own routes, and the server under it.

use std::time::Duration;

use axum::Router;
use axum::error_handling::HandleErrorLayer;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header;
use axum::middleware::{Next, from_fn, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::ServiceBuilder;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa_axum::router::OpenApiRouter;
use utoipa_swagger_ui::SwaggerUi;

use super::problem::Problem;
use super::readiness::Health;
use crate::host::metrics::Metrics;

/// A stop that takes longer than this is cut short: orchestrators kill after 10 s at the latest.
const STOP_WITHIN: Duration = Duration::from_secs(9);

/// Settings of the HTTP server.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpSettings {
    /// Address to listen on. Loopback unless told otherwise.
    pub bind: String,
    /// Largest body taken, in bytes.
    pub body_limit_bytes: usize,
    /// Requests under way at once; more are answered 503. Probes and metrics are not counted.
    pub max_requests: usize,
    /// How long a request may take; longer than the longest `Prefer: wait`.
    #[serde(with = "humantime_serde")]
    pub timeout: Duration,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            bind: String::new(),
            body_limit_bytes: 64 * 1024,
            max_requests: 8_192,
            timeout: Duration::from_secs(40),
        }
    }
}

#[derive(Clone)]
struct Operations {
    health: Health,
    metrics: Metrics,
}

/// Puts health, metrics, documentation, limits and errors around `routes`.
pub fn router(routes: OpenApiRouter, settings: &HttpSettings, health: Health, metrics: Metrics) -> Router {
    let (routes, api) = routes.split_for_parts();
    let operations = Router::new()
        .route("/livez", get(|| async { "alive\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics_text))
        .with_state(Operations { health, metrics });
    let timeout = settings.timeout;
    let bounded = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(|_| async {
            Problem::unavailable("too many requests are under way", 1)
        }))
        .load_shed()
        .layer(GlobalConcurrencyLimitLayer::new(settings.max_requests));
    routes
        .layer(bounded)
        .merge(operations)
        .merge(SwaggerUi::new("/docs").url("/openapi.json", api))
        .fallback(
            |request: Request| async move { Problem::not_found(format!("route {}", request.uri().path())) },
        )
        .layer(DefaultBodyLimit::max(settings.body_limit_bytes))
        .layer(from_fn(move |request, next| within(timeout, request, next)))
        .layer(CatchPanicLayer::custom(|_| Problem::internal(&"a handler panicked").into_response()))
        .layer(map_response(as_problem))
}

async fn readyz(State(operations): State<Operations>) -> Response {
    (operations.health)().await.into_response()
}

async fn metrics_text(State(operations): State<Operations>) -> Result<Response, Problem> {
    let text = operations.metrics.text().map_err(|error| Problem::internal(&error))?;
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, content_type)], text).into_response())
}

async fn within(timeout: Duration, request: Request, next: Next) -> Response {
    match tokio::time::timeout(timeout, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            Problem::unavailable(format!("not done within {timeout:?}; it may still be"), 1).into_response()
        }
    }
}

/// Whatever error a library answered (405, 413, …) gets the one form that all errors have.
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

/// Binds the address.
///
/// # Errors
/// When it is no address, or taken.
pub fn bind(settings: &HttpSettings) -> BoxFuture<'_, std::io::Result<TcpListener>> {
    Box::pin(TcpListener::bind(&settings.bind))
}

/// Serves until `stop`, then lets running requests finish, within 9 seconds.
///
/// # Errors
/// When the listener fails.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) -> std::io::Result<()> {
    let stopped = stop.clone();
    let serving =
        axum::serve(listener, router).with_graceful_shutdown(async move { stopped.cancelled().await });
    let overdue = async {
        stop.cancelled().await;
        tokio::time::sleep(STOP_WITHIN).await;
    };
    tokio::select! {
        served = serving => served,
        () = overdue => Ok(()),
    }
}

/// Does so beside the rest.
pub fn spawn(
    listener: TcpListener,
    router: Router,
    stop: CancellationToken,
) -> JoinHandle<std::io::Result<()>> {
    tokio::spawn(serve(listener, router, stop))
}
