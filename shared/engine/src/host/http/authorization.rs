//! Shell: who may ask for what: looks at the token of a request, and at what its route needs.

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
use crate::host::reloaded::{BadFile, OnReadError, Reloaded, read_protected};

/// Nobody else may write the file: he could add a token of his own. It holds no token, so that others may read it.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// How often it is looked whether the token holds with which somebody listens to a stream of events.
const RECHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Who asks, as the token says. Only on requests that needed one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The name of the token.
    pub name: String,
    /// What its holder may do.
    pub role: Role,
}

/// Who is let in where.
pub struct Authorization {
    access: &'static Access,
    /// `None` when no token is asked for.
    tokens: Option<Reloaded<Tokens>>,
    rate: Rate,
    /// What is left to each name. Never more of them than tokens were issued since the start.
    allowances: Mutex<BTreeMap<String, Allowance>>,
    started: Instant,
    guards_metrics: bool,
}

/// Said where there is no file of tokens.
const MISSING_TOKENS: &str = "name the file of the tokens that this service accepts; `sagactl token create NAME --role admin \
    --file FILE` makes one";

/// A token that has let somebody in, and what for.
struct Authorized {
    caller: Caller,
    token: Token,
    needed: Role,
}

/// Why a request is not let in, and what the answer says of it beside the problem.
struct Denied(Box<Problem>, Option<&'static str>);

impl Authorization {
    /// The authorization that these settings ask for, before what `access` guards.
    ///
    /// # Errors
    /// When the file of the tokens cannot be used.
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
            Reloaded::open(vec![file.clone()], OnReadError::Clear, read)
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

    /// Whether tokens are asked for.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.tokens.is_some()
    }

    /// The role that a route needs; `None` when it is open, or no token is asked for.
    fn required_role(&self, method: &str, path: &str) -> Option<Role> {
        let metrics = (self.guards_metrics && path == "/metrics").then_some(Role::Viewer);
        metrics.or_else(|| self.access.needs(method, path)).filter(|_| self.is_on())
    }

    /// Whether a route is described as one that takes a token.
    pub(super) fn is_guarded(&self, method: &str, path: &str) -> bool {
        self.access.needs(method, path).is_some()
    }

    fn authorize(&self, request: &Request) -> Result<Option<Authorized>, Denied> {
        // As the router understood it. What it did not is nowhere.
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
            info!(token = caller.name, method = %request.method(), path = path.as_str(), %needed, "refused: too small a role");
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

    /// Whether it would let in the same now.
    fn is_still_authorized(&self, token: &Token, needed: Role) -> bool {
        let tokens = self.tokens.as_ref().and_then(Reloaded::current);
        let is_enough = |tokens: Arc<Tokens>| {
            tokens.holder(token, Timestamp::now()).is_ok_and(|issued| issued.role.may(needed))
        };
        tokens.is_some_and(is_enough)
    }

    /// Whose token the request carries, and how often he may ask.
    fn caller(&self, request: &Request, needed: Role) -> Result<(Caller, Token, Rate), Denied> {
        let unauthorized = |why: String, challenge| {
            debug!("refused: {why}");
            Denied(Box::new(Problem::new(StatusCode::UNAUTHORIZED, why)), Some(challenge))
        };
        let Some(given) = request.headers().get(header::AUTHORIZATION) else {
            let why = format!("this needs a token of the role {needed}: send `Authorization: Bearer saga_…`");
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

fn rate_limited(caller: &Caller, rate: Rate, wait: std::time::Duration) -> Problem {
    let seconds = u32::try_from(wait.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX).max(1);
    let detail = format!(
        "the token {} asks too often: {} times in a second are taken, and {} at once (http.rate and http.burst, \
         unless it has a rate of its own)",
        caller.name, rate.per_second, rate.burst
    );
    Problem { retry_after_s: Some(seconds), ..Problem::new(StatusCode::TOO_MANY_REQUESTS, detail) }
}

/// Lets a request go on, with who asks, or says why not.
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

/// A stream of events may last for days: it ends with the token that opened it. Any other answer is over soon.
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
