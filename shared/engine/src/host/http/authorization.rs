//! Shell: authorization by bearer tokens: checks the token of a request against the role that its route requires.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use jiff::Timestamp;
use parking_lot::Mutex;
use saga_core::access::{Access, Allowance, Rate, Role, Token, Tokens};
use tokio::time::sleep;
use tracing::{debug, info};

use super::problem::Problem;
use super::settings::HttpSettings;
use crate::reloaded::{BadFile, OnReadError, Reloaded, read_protected};

/// Forbidden permissions of the token file: a writer could add a token. Reading is harmless, because the file holds
/// digests only.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Interval at which the token of an open event stream is checked again.
const RECHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Authenticated caller of a request to a guarded route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Name of the token, by which the log and the audit log know the caller.
    pub name: String,
    /// Role that the token grants.
    pub role: Role,
}

/// Tokens, roles and rate limits of a server's routes.
pub struct Authorization {
    access: &'static Access,
    /// Issued tokens; `None` while authorization is off.
    tokens: Option<Reloaded<Tokens>>,
    rate: Rate,
    /// Remaining allowance of each token name. Bounded by the number of tokens issued since the start.
    allowances: Mutex<BTreeMap<String, Allowance>>,
    started: Instant,
    guards_metrics: bool,
}

/// Advice for a missing token file.
const MISSING_TOKENS: &str = "name the file of the tokens that this service accepts; `sagactl token create NAME --role admin \
    --file FILE` makes one";

/// Authorized request: the caller, its token, and the required role.
struct Authorized {
    caller: Caller,
    token: Token,
    needed: Role,
}

/// Denied request: the problem, and the `WWW-Authenticate` challenge.
struct Denied(Box<Problem>, Option<&'static str>);

impl Authorization {
    /// Reads the tokens of the settings, and guards the routes of `access`.
    ///
    /// # Errors
    /// When the token file cannot be used.
    pub fn new(settings: &HttpSettings, access: &'static Access) -> Result<Self, BadFile> {
        let watched = |file: &std::path::PathBuf| {
            let named = file.clone();
            let read = move || {
                let text = read_protected("http.tokens", &named, WRITABLE_BY_OTHERS, MISSING_TOKENS)?;
                Tokens::read(&text).map_err(|why| BadFile {
                    setting: "http.tokens",
                    file: named.clone(),
                    why: format!("{why}: `sagactl token create` makes one"),
                })
            };
            Reloaded::open(vec![file.clone()], OnReadError::Deny, read)
        };
        Ok(Self {
            access,
            tokens: settings.tokens.as_ref().map(watched).transpose()?,
            rate: Rate { per_second: settings.rate, burst: settings.burst },
            allowances: Mutex::default(),
            started: Instant::now(),
            guards_metrics: settings.is_open(),
        })
    }

    /// True if guarded routes require tokens.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.tokens.is_some()
    }

    /// Returns the role that a route requires; `None` for an open route, or while authorization is off.
    fn required_role(&self, method: &str, path: &str) -> Option<Role> {
        let metrics = (self.guards_metrics && path == "/metrics").then_some(Role::Viewer);
        metrics.or_else(|| self.role_of(method, path)).filter(|_| self.is_on())
    }

    fn role_of(&self, method: &str, path: &str) -> Option<Role> {
        if is_of_engine(path) { None } else { self.access.needs(method, path) }
    }

    /// True if a route is guarded, even while authorization is off.
    pub(super) fn is_guarded(&self, method: &str, path: &str) -> bool {
        self.role_of(method, path).is_some()
    }

    fn authorize(&self, request: &Request) -> Result<Option<Authorized>, Denied> {
        // The matched route, not the path: an unmatched path has no route to guard.
        let Some(path) = request.extensions().get::<MatchedPath>() else { return Ok(None) };
        let Some(needed) = self.required_role(request.method().as_str(), path.as_str()) else {
            return Ok(None);
        };
        let (caller, token, rate) = self.caller(request, needed)?;
        let mut allowances = self.allowances.lock();
        let taken = allowances.entry(caller.name.clone()).or_default().take(self.started.elapsed(), rate);
        drop(allowances);
        if let Err(wait) = taken {
            return Err(Denied(Box::new(rate_limited(&caller, rate, wait)), None));
        }
        if !caller.role.may(needed) {
            info!(holder = caller.name, method = %request.method(), path = path.as_str(), %needed, "refused: too small a role");
            let detail = format!(
                "this needs the role {needed}, and the token {} has the role {}: ask with another, or have one \
                 issued by `sagactl token create`",
                caller.name, caller.role
            );
            return Err(Denied(
                Box::new(Problem::new(StatusCode::FORBIDDEN, detail)),
                Some("Bearer error=\"insufficient_scope\""),
            ));
        }
        Ok(Some(Authorized { caller, token, needed }))
    }

    /// True if the token would still be accepted.
    fn is_still_authorized(&self, token: &Token, needed: Role) -> bool {
        let tokens = self.tokens.as_ref().and_then(Reloaded::current);
        let is_enough = |tokens: Arc<Tokens>| {
            tokens.holder(token, Timestamp::now()).is_ok_and(|issued| issued.role.may(needed))
        };
        tokens.is_some_and(is_enough)
    }

    /// Authenticates the request, and returns the caller with its rate limit.
    fn caller(&self, request: &Request, needed: Role) -> Result<(Caller, Token, Rate), Denied> {
        let unauthorized = |why: String, challenge| {
            debug!("refused: {why}");
            Denied(Box::new(Problem::new(StatusCode::UNAUTHORIZED, why)), Some(challenge))
        };
        let Some(given) = request.headers().get(header::AUTHORIZATION) else {
            let why =
                format!("this requires a token with the role {needed}: send `Authorization: Bearer saga_…`");
            return Err(unauthorized(why, "Bearer"));
        };
        let invalid =
            |why: &dyn std::fmt::Display| unauthorized(why.to_string(), "Bearer error=\"invalid_token\"");
        let token = Token::of_header(given.as_bytes())
            .ok_or_else(|| invalid(&"the header authorization is not of the form `Bearer saga_…`"))?;
        let tokens = self.tokens.as_ref().and_then(Reloaded::current);
        let tokens = tokens.ok_or_else(|| {
            let detail = "the tokens cannot be read (http.tokens): the log of this service says why";
            Denied(Box::new(Problem::unavailable(detail, 5)), None)
        })?;
        let issued = tokens.holder(&token, Timestamp::now()).map_err(|unknown| invalid(&unknown))?;
        let rate = issued.rate.map_or(self.rate, |rate| Rate { per_second: rate, burst: rate });
        Ok((Caller { name: issued.name.clone(), role: issued.role }, token, rate))
    }
}

/// True for the routes that every server has: probes, metrics and the documentation.
fn is_of_engine(path: &str) -> bool {
    ["/livez", "/readyz", "/metrics", "/openapi.json"].contains(&path) || path.starts_with("/docs")
}

fn rate_limited(caller: &Caller, rate: Rate, wait: std::time::Duration) -> Problem {
    let seconds = u32::try_from(wait.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX).max(1);
    let detail = format!(
        "the token {} asks too often: {} times in a second are taken, and {} at once (http.rate and http.burst, \
         unless it has a rate of its own)",
        caller.name, rate.per_second, rate.burst
    );
    Problem { retry_after_s: Some(seconds), ..Problem::new(StatusCode::TOO_MANY_REQUESTS, detail) }
}

/// Passes an authorized request on with its [`Caller`], or answers why it is denied.
pub(super) async fn authorize_request(
    authorization: Arc<Authorization>,
    mut request: Request,
    next: Next,
) -> Response {
    match authorization.authorize(&request) {
        Ok(None) => next.run(request).await,
        Ok(Some(Authorized { caller, token, needed })) => {
            request.extensions_mut().insert(caller);
            let response = next.run(request).await;
            if is_stream(&response) {
                until_token_lapses(response, authorization, token, needed)
            } else {
                response
            }
        }
        Err(Denied(problem, challenge)) => {
            let mut response = problem.into_response();
            if let Some(challenge) = challenge {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
            }
            response
        }
    }
}

fn is_stream(response: &Response) -> bool {
    let content_type = response.headers().get(header::CONTENT_TYPE);
    content_type.is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"))
}

/// Ends an event stream when its token lapses, because the stream may last for days. Other answers end soon.
fn until_token_lapses(
    response: Response,
    authorization: Arc<Authorization>,
    token: Token,
    needed: Role,
) -> Response {
    let lapses = async move {
        while authorization.is_still_authorized(&token, needed) {
            sleep(RECHECK_INTERVAL).await;
        }
    };
    response.map(|body| Body::from_stream(body.into_data_stream().take_until(Box::pin(lapses))))
}
