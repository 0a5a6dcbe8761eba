//! Shell: guard against requests that a browser sends for a foreign page (CSRF, DNS rebinding).
//!
//! Any page can make its reader's browser send requests to this machine. The browser still sends the name of this
//! server in `Host`, and the page's origin in `Origin` and `Sec-Fetch-Site`. Without a preflight it cannot send
//! `application/json`. The guard checks all of these before the body is read.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderName, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use hyper::body::Body as _;

use super::problem::Problem;
use super::request_body::closing_response;
use super::settings::HttpSettings;

/// Answers that any route may give before its handler runs, with their reasons.
pub const COMMON_ERRORS: [(StatusCode, &str); 9] = [
    (StatusCode::BAD_REQUEST, "it is no HTTP/1.1 request, or a header is missing or repeated"),
    (StatusCode::FORBIDDEN, "a browser sent it for a page of a foreign origin (`http.allowed_origins`)"),
    (StatusCode::REQUEST_TIMEOUT, "its head or body exceeded its time-out"),
    (StatusCode::PAYLOAD_TOO_LARGE, "its body is larger than `http.body_limit_bytes`"),
    (StatusCode::URI_TOO_LONG, "its path and parameters are too long"),
    (StatusCode::UNSUPPORTED_MEDIA_TYPE, "its body is not application/json, or is compressed"),
    (StatusCode::MISDIRECTED_REQUEST, "its `Host` is no name of this server (`http.allowed_hosts`)"),
    (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "its headers are too many, or too long"),
    (
        StatusCode::SERVICE_UNAVAILABLE,
        "the service is overloaded, or cannot store anything; retry after Retry-After",
    ),
];

/// Headers that must not be repeated: a proxy might read the first of two, and this server the second.
const SINGLE_HEADERS: [HeaderName; 7] = [
    header::HOST,
    header::ORIGIN,
    header::AUTHORIZATION,
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    HeaderName::from_static("idempotency-key"),
    HeaderName::from_static("x-operator"),
];

/// Host names and origins that a server accepts.
pub(super) struct OriginGuard {
    /// Names of this server, in lower case.
    hosts: Vec<String>,
    /// True if any host name is accepted.
    allows_any_host: bool,
    /// True if the server listens beyond loopback. The addresses by which clients reach it are then unknown.
    is_open: bool,
    origins: Vec<String>,
}

impl OriginGuard {
    pub(super) fn new(settings: &HttpSettings) -> Self {
        let lower = |names: &[String]| names.iter().map(|name| name.to_ascii_lowercase()).collect::<Vec<_>>();
        let mut hosts = lower(&settings.allowed_hosts);
        if settings.bind.parse::<SocketAddr>().is_err() {
            hosts.push(settings.bound_name().to_ascii_lowercase());
        }
        let is_open = settings.is_open();
        let allows_any_host = hosts.iter().any(|host| host == "*");
        Self { hosts, allows_any_host, is_open, origins: lower(&settings.allowed_origins) }
    }

    /// Checks repeated headers, host, origin and content type.
    fn check(&self, request: &Request) -> Result<(), Problem> {
        let headers = request.headers();
        if let Some(name) = SINGLE_HEADERS.iter().find(|name| headers.get_all(*name).iter().count() > 1) {
            return Err(Problem::new(StatusCode::BAD_REQUEST, format!("the header {name} is repeated")));
        }
        let host = self.host(request)?;
        self.origin(request, host)?;
        check_content_type(request)
    }

    /// Checks the host. Under DNS rebinding, a page's host name resolves first to its own server and then to this one,
    /// and the browser treats both as one origin. The page cannot change the name that the browser sends.
    fn host<'a>(&self, request: &'a Request) -> Result<Option<&'a str>, Problem> {
        let host = match request.headers().get(header::HOST) {
            Some(host) => Some(host.to_str().map_err(|_| bad_host())?),
            None if request.version() >= Version::HTTP_11 => {
                return Err(Problem::new(StatusCode::BAD_REQUEST, "the header host is missing"));
            }
            None => None,
        };
        for authority in host.into_iter().chain(request.uri().authority().map(Authority::as_str)) {
            // A port must be a number, and a user name is not allowed.
            let named: Authority = authority.parse().map_err(|_| bad_host())?;
            let is_well_formed =
                !authority.contains('@') && !authority.ends_with(':') && !named.host().is_empty();
            let rest = authority.strip_prefix(named.host()).ok_or_else(bad_host)?;
            if !is_well_formed || !(rest.is_empty() || named.port_u16().is_some()) {
                return Err(bad_host());
            }
            if !self.is_own_name(named.host()) {
                let detail = format!(
                    "{:?} is no name of this server; to accept it, add it to http.allowed_hosts",
                    named.host()
                );
                return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, detail));
            }
        }
        Ok(host)
    }

    /// True if the host is a name or address of this server. An address cannot be rebound.
    fn is_own_name(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let name = host.strip_suffix('.').unwrap_or(&host);
        let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        self.allows_any_host
            || name == "localhost"
            || name.ends_with(".localhost")
            || self.hosts.iter().any(|host| host == name)
            || address.is_ok_and(|address| self.is_open || address.is_loopback())
    }

    /// Checks the origin of a page. Rejects what a browser sends for another site, except for navigation: a link to
    /// `/docs` is harmless.
    fn origin(&self, request: &Request, host: Option<&str>) -> Result<(), Problem> {
        let headers = request.headers();
        let forbidden = |from: &str| {
            let detail =
                format!("{from} may not send requests here; to allow it, add it to http.allowed_origins");
            Err(Problem::new(StatusCode::FORBIDDEN, detail))
        };
        if let Some(origin) = headers.get(header::ORIGIN) {
            let origin = origin.to_str().unwrap_or("an unreadable origin").to_ascii_lowercase();
            let authority = origin.split_once("://").map(|(_, authority)| authority);
            let is_own = authority.is_some() && authority == host.map(str::to_ascii_lowercase).as_deref();
            return match is_own || self.origins.contains(&origin) {
                true => Ok(()),
                false => forbidden(&format!("a page of {origin:?}")),
            };
        }
        let header = |name| headers.get(name).map(|value| value.as_bytes());
        match header("sec-fetch-site") {
            None | Some(b"same-origin" | b"none") => Ok(()),
            Some(_) => {
                let is_shown = header("sec-fetch-mode") == Some(b"navigate")
                    && header("sec-fetch-dest") == Some(b"document")
                    && request.method().is_safe();
                if is_shown { Ok(()) } else { forbidden("a page of another site") }
            }
        }
    }
}

fn bad_host() -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "the header host is no name or address with an optional port")
}

/// Checks the content type. A browser sends text and forms to any site without a preflight, but not JSON. Other
/// `application/…+json` types are not accepted.
fn check_content_type(request: &Request) -> Result<(), Problem> {
    let headers = request.headers();
    let unsupported = |detail: String| Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
    if let Some(coding) = headers.get(header::CONTENT_ENCODING)
        && !coding.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        return unsupported(format!(
            "the content-encoding {coding:?} is not understood; send the body as it is"
        ));
    }
    match headers.get(header::CONTENT_TYPE) {
        Some(given) if !given.to_str().is_ok_and(is_json) => {
            unsupported(format!("the content-type is {given:?}; only application/json is taken"))
        }
        None if !request.body().is_end_stream() => {
            unsupported("the content-type is missing; only application/json is taken".to_owned())
        }
        Some(_) | None => Ok(()),
    }
}

/// True for `application/json`, optionally with the only charset that JSON has (RFC 8259 §8.1).
fn is_json(content_type: &str) -> bool {
    let mut parts = content_type.split(';').map(str::trim);
    let is_utf8 = |parameter: &str| {
        parameter.split_once('=').is_some_and(|(name, value)| {
            name.eq_ignore_ascii_case("charset") && value.trim_matches('"').eq_ignore_ascii_case("utf-8")
        })
    };
    parts.next().is_some_and(|essence| essence.eq_ignore_ascii_case("application/json"))
        && parts.all(|parameter| parameter.is_empty() || is_utf8(parameter))
}

/// Passes a request on, or answers why it is rejected.
pub(super) async fn guard_origin(guard: Arc<OriginGuard>, request: Request, next: Next) -> Response {
    match guard.check(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) if request.body().is_end_stream() => problem.into_response(),
        // The body stays unread, so the connection is closed.
        Err(problem) => closing_response(problem),
    }
}
