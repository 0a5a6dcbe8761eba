//! Shell: admin's calls to the other services.

use std::error::Error;
use std::io;
use std::iter::successors;
use std::time::Duration;

use contract::topology::{PARTICIPANTS, Participant};
use futures::future::join_all;
use reqwest::header::ACCEPT;
use reqwest::{Certificate, Client, Method, RequestBuilder, Response, StatusCode};
use saga_core::retry::error_chain;
use saga_core::service_stats::HistoryPosition;
use saga_core::trace::TRACEPARENT;
use saga_engine::host::health_report::HealthReport;
use saga_engine::host::http::{HttpClient, Problem, Readiness};
use saga_engine::host::queries::{ChangedIds, MESSAGE_PACK, Page};
use saga_engine::runtime::tracer;
use saga_engine::store::{VerificationPart, VerificationReport};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tracing::debug;

use crate::AdminSettings;

/// How long one answer may take; a full check of a large database is the longest.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// How long an operator, or a redrive, waits for a service that may be away.
const SOON: Duration = Duration::from_secs(3);

/// How long an operator waits for what takes longer the more there is of it; `sagactl` waits a little longer.
const AT_LENGTH: Duration = Duration::from_secs(25);

/// The participants other than admin.
pub(crate) fn all() -> Vec<&'static str> {
    names(|_| true)
}

/// Those of them that take part in the messaging: the others have neither an outbox nor breakers.
pub(crate) fn on_the_broker() -> Vec<&'static str> {
    names(|participant| participant.has_stream)
}

fn names(wanted: impl Fn(&Participant) -> bool) -> Vec<&'static str> {
    let others = PARTICIPANTS.iter().filter(|participant| participant.name != crate::NAME);
    others.filter(|participant| wanted(participant)).map(|participant| participant.name).collect()
}

/// What is asked of the other services.
#[derive(Clone)]
pub(crate) struct OtherServices {
    http: Client,
    outgoing: HttpClient,
    settings: AdminSettings,
}

impl OtherServices {
    pub(crate) fn of(settings: &AdminSettings, outgoing: HttpClient) -> Self {
        let mut http = Client::builder().timeout(ANSWER_WITHIN);
        if let Some(pem) = outgoing.authorities() {
            // Read at the start, where they are checked.
            http = http.tls_certs_only(Certificate::from_pem_bundle(pem.as_bytes()).unwrap_or_default());
        }
        let http = http.build().unwrap_or_default();
        Self { http, outgoing, settings: settings.clone() }
    }

    /// What `service` answers at `path`.
    ///
    /// # Errors
    /// 503 that names the service.
    pub(crate) async fn get<T: DeserializeOwned>(&self, service: &str, path: &str) -> Result<T, Problem> {
        let unreachable = |error| does_not_answer(service, error);
        let response = self.request(Method::GET, service, path)?.send().await.map_err(unreachable)?;
        response.error_for_status().map_err(unreachable)?.json().await.map_err(unreachable)
    }

    /// How `service` is: also one that is not ready says so.
    ///
    /// # Errors
    /// 503 that names the service.
    pub(crate) async fn readiness(&self, service: &str) -> Result<Readiness, Problem> {
        let unreachable = |error| does_not_answer(service, error);
        let request = self.request(Method::GET, service, "/readyz")?.timeout(SOON);
        request.send().await.map_err(unreachable)?.json().await.map_err(unreachable)
    }

    /// What `service` says of itself in one look.
    ///
    /// # Errors
    /// As [`OtherServices::get`].
    pub(crate) async fn health_report(&self, service: &str) -> Result<HealthReport, Problem> {
        self.get_soon(service, "/internal/health").await
    }

    /// What `service` answers at `path`, soon.
    ///
    /// # Errors
    /// As [`OtherServices::tell`].
    pub(crate) async fn get_soon<T: DeserializeOwned>(
        &self,
        service: &str,
        path: &str,
    ) -> Result<T, Problem> {
        self.tell(Method::GET, service, path, None).await
    }

    /// What `service` answers to a command, soon; `body` is sent as JSON.
    ///
    /// # Errors
    /// The service's own problem when it refuses; 503 that names it when it does not answer.
    pub(crate) async fn tell<T: DeserializeOwned>(
        &self,
        method: Method,
        service: &str,
        path: &str,
        body: Option<Value>,
    ) -> Result<T, Problem> {
        let response = self.ask(method, service, path, body, SOON).await?;
        response.json().await.map_err(|error| does_not_answer(service, error))
    }

    /// As [`OtherServices::tell`], to do what may take long.
    ///
    /// # Errors
    /// As [`OtherServices::tell`].
    pub(crate) async fn tell_at_length<T: DeserializeOwned>(
        &self,
        service: &str,
        path: &str,
    ) -> Result<T, Problem> {
        let response = self.ask(Method::POST, service, path, None, AT_LENGTH).await?;
        response.json().await.map_err(|error| does_not_answer(service, error))
    }

    /// As [`OtherServices::tell`], of a service that has nothing to say beyond that it is done.
    ///
    /// # Errors
    /// As [`OtherServices::tell`].
    pub(crate) async fn tell_only(&self, method: Method, service: &str, path: &str) -> Result<(), Problem> {
        self.ask(method, service, path, None, SOON).await.map(drop)
    }

    async fn ask(
        &self,
        method: Method,
        service: &str,
        path: &str,
        body: Option<Value>,
        within: Duration,
    ) -> Result<Response, Problem> {
        let mut request = self.request(method, service, path)?.timeout(within);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.map_err(|error| does_not_answer(service, error))?;
        let status = response.status();
        if status.is_client_error() {
            return Err(refusal(service, status, response).await);
        }
        response.error_for_status().map_err(|error| does_not_answer(service, error))
    }

    /// Where a service is, as the settings say; `None` when there is no such service.
    pub(crate) fn address(&self, service: &str) -> Option<&str> {
        self.settings.addresses.of(service)
    }

    fn request(&self, method: Method, service: &str, path: &str) -> Result<RequestBuilder, Problem> {
        let base = self.address(service);
        let base = base.ok_or_else(|| Problem::not_found(format_args!("service {service}")))?;
        let request = self.http.request(method, format!("{}{path}", base.trim_end_matches('/')));
        let request = match tracer::request_span() {
            Some(begun) => request.header(TRACEPARENT, begun.context.to_string()),
            None => request,
        };
        Ok(match self.outgoing.token() {
            Some(token) => request.bearer_auth(token.secret()),
            None => request,
        })
    }

    /// The page of a service's ledger that starts behind `after`; the first without it.
    ///
    /// # Errors
    /// As [`OtherServices::get`].
    pub(crate) async fn page<T: DeserializeOwned>(
        &self,
        service: &str,
        path: &str,
        after: Option<&str>,
    ) -> Result<Page<T>, Problem> {
        self.paged(service, path, after.map(|after| ("after", after.to_owned())).into_iter().collect()).await
    }

    /// Only the rows of these ids; at most 100 of them.
    ///
    /// # Errors
    /// As [`OtherServices::get`].
    pub(crate) async fn only<T: DeserializeOwned>(
        &self,
        service: &str,
        path: &str,
        ids: &[&str],
    ) -> Result<Page<T>, Problem> {
        self.paged(service, path, vec![("only", ids.join(","))]).await
    }

    /// Whether the rows of a service are the folds of their events: a part of them. A service of an earlier build answers
    /// for all of them.
    ///
    /// # Errors
    /// As [`OtherServices::get`].
    pub(crate) async fn folds(
        &self,
        service: &str,
        part: VerificationPart,
    ) -> Result<VerificationReport, Problem> {
        let VerificationPart { after, events, but } = part;
        let after = after.map(|after| ("after", after));
        let but = (!but.is_empty()).then(|| ("exclude", but.join(",")));
        let which = [("events", events.to_string())].into_iter().chain(after).chain(but);
        self.asked(service, "/internal/verify", which.collect()).await
    }

    /// The same of the rows that have changed behind a position, of about so many events.
    ///
    /// # Errors
    /// As [`OtherServices::get`].
    pub(crate) async fn changed_folds(
        &self,
        service: &str,
        since: i64,
        events: u64,
    ) -> Result<VerificationReport, Problem> {
        let which = [("events", events.to_string()), ("since", since.to_string())].into_iter();
        self.asked(service, "/internal/verify", which.collect()).await
    }

    /// The place of the event at `at` in the history of a service; of its last event without it.
    ///
    /// # Errors
    /// As [`OtherServices::get`].
    pub(crate) async fn place(&self, service: &str, at: Option<i64>) -> Result<HistoryPosition, Problem> {
        let which = at.map(|at| ("at", at.to_string())).into_iter().collect();
        self.asked(service, "/internal/position", which).await
    }

    /// The rows of a kind that have changed behind a position, by their ids or by the field `by`.
    ///
    /// # Errors
    /// As [`OtherServices::get`].
    pub(crate) async fn changes(
        &self,
        service: &str,
        kind: &str,
        after: i64,
        by: Option<&str>,
    ) -> Result<ChangedIds, Problem> {
        let which = [("kind", kind.to_owned()), ("after", after.to_string())];
        let by = by.map(|by| ("by", by.to_owned()));
        self.asked(service, "/internal/changes", which.into_iter().chain(by).collect()).await
    }

    /// The rows of these ids as they were when the event at a position was the last.
    ///
    /// # Errors
    /// As [`OtherServices::get`].
    pub(crate) async fn as_of<T: DeserializeOwned>(
        &self,
        service: &str,
        path: &str,
        ids: &[&str],
        at: i64,
    ) -> Result<Page<T>, Problem> {
        self.paged(service, path, vec![("only", ids.join(",")), ("as_of", at.to_string())]).await
    }

    async fn paged<T: DeserializeOwned>(
        &self,
        service: &str,
        path: &str,
        which: Vec<(&str, String)>,
    ) -> Result<Page<T>, Problem> {
        let unreachable = |error| does_not_answer(service, error);
        let request = self.request(Method::GET, service, path)?.query(&which).header(ACCEPT, MESSAGE_PACK);
        let response = request.send().await.map_err(unreachable)?.error_for_status().map_err(unreachable)?;
        let headers = response.headers().clone();
        let body = response.bytes().await.map_err(unreachable)?;
        Page::decode(&headers, &body).map_err(|error| no_answer(service, error.as_ref(), UNREADABLE))
    }

    async fn asked<T: DeserializeOwned>(
        &self,
        service: &str,
        path: &str,
        which: Vec<(&str, String)>,
    ) -> Result<T, Problem> {
        let unreachable = |error| does_not_answer(service, error);
        let request = self.request(Method::GET, service, path)?.query(&which);
        let response = request.send().await.map_err(unreachable)?;
        response.error_for_status().map_err(unreachable)?.json().await.map_err(unreachable)
    }
}

/// Asks each of these services, all at once.
pub(crate) async fn each<T, F: Future<Output = T>>(
    services: impl IntoIterator<Item = &'static str>,
    ask: impl Fn(&'static str) -> F,
) -> Vec<(&'static str, T)> {
    let ask = &ask;
    join_all(services.into_iter().map(|service| async move { (service, ask(service).await) })).await
}

/// What a service refuses, it refuses for reasons of its own: they reach the operator as they are.
async fn refusal(service: &str, status: StatusCode, response: Response) -> Problem {
    if let Some(why) = of_own_token(status) {
        return Problem::unavailable(format!("{service} {why}"), 1);
    }
    match response.json::<Problem>().await {
        Ok(problem) => problem,
        Err(_) => Problem::new(status, format!("{service} refuses and does not say why")),
    }
}

/// What is wrong with admin's own token, which is no fault of the operator's.
fn of_own_token(status: StatusCode) -> Option<&'static str> {
    match status {
        StatusCode::UNAUTHORIZED => Some(
            "does not take admin's own token: http.token of admin must name a file with one of the role admin that \
             stands in http.tokens of that service",
        ),
        StatusCode::TOO_MANY_REQUESTS => Some("is asked too often with admin's own token (http.rate)"),
        _ => None,
    }
}

fn does_not_answer(service: &str, error: reqwest::Error) -> Problem {
    let why = match error.status() {
        Some(status) if of_own_token(status).is_some() => of_own_token(status).unwrap_or_default().to_owned(),
        Some(status) => format!("answers {status} to what this build asks: is it of another build?"),
        None => {
            let error = error.without_url();
            return no_answer(service, &error, &in_plain_words(&error));
        }
    };
    Problem::unavailable(format!("{service} {why}"), 1)
}

/// What came of a question is no answer: the log says why in the words of a library, the problem in plain ones.
fn no_answer(service: &str, error: &dyn Error, why: &str) -> Problem {
    debug!(service, error = error_chain(error), "a service does not answer");
    Problem::unavailable(format!("{service} does not answer: {why}"), 1)
}

/// Why an answer is none that came whole.
const UNREADABLE: &str = "what it says cannot be read: is it of another build?";

/// What operators know by its name, of all that may befall a connection.
const PLAIN: [io::ErrorKind; 4] = [
    io::ErrorKind::ConnectionRefused,
    io::ErrorKind::ConnectionReset,
    io::ErrorKind::HostUnreachable,
    io::ErrorKind::NetworkUnreachable,
];

/// Why nothing was answered, in no library's words: those are in the log.
fn in_plain_words(error: &reqwest::Error) -> String {
    let causes = successors(error.source(), |&error| error.source());
    let kind = causes.filter_map(|error| error.downcast_ref().map(io::Error::kind)).last();
    match kind.filter(|kind| PLAIN.contains(kind)) {
        Some(kind) => kind.to_string(),
        None if error.is_timeout() => "no answer in time".to_owned(),
        None if error.is_connect() => "no connection comes about".to_owned(),
        None if error.is_decode() => UNREADABLE.to_owned(),
        None => "the connection broke off".to_owned(),
    }
}
