//! Shell: the console: the pages that admin serves to browsers. They are part of the program, and use its public API only.

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use rust_embed::{Embed, EmbeddedFile};
use saga_engine::host::http::Problem;
use tower_http::compression::CompressionLayer;

/// Paths of the screens, which one document serves.
const SCREENS: [&str; 9] = [
    "/",
    "/orders",
    "/orders/{id}",
    "/dead-letters",
    "/dead-letters/{id}",
    "/redrives/{id}",
    "/map",
    "/books",
    "/activity",
];

/// Scripts and styles come from this server alone, and no other site shows the console in a frame.
const POLICY: &str =
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'";

const HEADERS: [(HeaderName, HeaderValue); 5] = [
    (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    // Browsers ask each time whether a file has changed: a new version of admin has other files under the same names.
    (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
];

#[derive(Embed)]
#[folder = "console"]
struct Files;

/// Routes of the screens and their files.
pub(crate) fn pages() -> Router {
    let screens = SCREENS.iter().fold(Router::new(), |router, path| {
        router.route(path, get(|headers: HeaderMap| async move { answer("index.html", &headers) }))
    });
    screens
        .route(
            "/console/{*file}",
            get(|Path(file): Path<String>, headers: HeaderMap| async move { answer(&file, &headers) }),
        )
        .layer(CompressionLayer::new())
}

fn answer(name: &str, headers: &HeaderMap) -> Response {
    let Some(file) = Files::get(name) else {
        return Problem::not_found(format_args!("file {name} of the console")).into_response();
    };
    let etag = etag(&file);
    let is_known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| *known == etag);
    let tag = [(header::ETAG, etag)];
    if is_known {
        return (StatusCode::NOT_MODIFIED, tag, HEADERS).into_response();
    }
    let content_type = [(header::CONTENT_TYPE, content_type(name))];
    (tag, HEADERS, content_type, file.data.into_owned()).into_response()
}

/// Weak, because the same file may be sent compressed.
fn etag(file: &EmbeddedFile) -> String {
    let digest = file.metadata.sha256_hash();
    let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("W/\"{hex}\"")
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("json") => "application/json",
        Some(_) | None => "text/plain; charset=utf-8",
    }
}
