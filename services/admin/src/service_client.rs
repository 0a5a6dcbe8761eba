//! Shell: admin's HTTP calls to the other services.

use std::error::Error;
use std::io;
use std::iter::successors;
use std::time::Duration;

use contract::topology::{PARTICIPANTS, Participant};
use futures::future::join_all;
use jiff::Timestamp;
use reqwest::header::ACCEPT;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use saga_core::retry::error_chain;
use saga_engine::host::health_report::HealthReport;
use saga_engine::host::http::{HttpClient, Problem, Readiness, client_builder, retry_after};
use saga_engine::host::queries::{MESSAGE_PACK, Page};
use saga_engine::trust::untrusted_certificate;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tracing::debug;

use crate::settings::AdminSettings;
use crate::topology::NAME;

/// Time limit of a call. The verification of a large database takes longest.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Time limit of a call that an operator or a redrive waits for.
const SHORT_TIMEOUT: Duration = Duration::from_secs(3);

/// Time limit of a request whose work grows with the data. `sagactl` waits a little longer.
const LONG_TIMEOUT: Duration = Duration::from_secs(25);

/// Names of the other participants.
pub(crate) fn all() -> Vec<&'static str> {
    names(|_| true)
}

/// Names of the other participants with a stream. The rest has neither an outbox nor breakers.
pub(crate) fn on_the_broker() -> Vec<&'static str> {
    names(|participant| participant.has_stream)
}

/// Names of the participants that are not on the broker.
pub(crate) fn off_the_broker() -> Vec<&'static str> {
    names(|participant| !participant.has_stream)
}

fn names(wanted: impl Fn(&Participant) -> bool) -> Vec<&'static str> {
    let others = PARTICIPANTS.iter().filter(|participant| participant.name != NAME);
    others.filter(|participant| wanted(participant)).map(|participant| participant.name).collect()
}

#[derive(Clone)]
pub(crate) struct ServiceClient {
    http: Client,
    outgoing: HttpClient,
    settings: AdminSettings,
}

impl ServiceClient {
    pub(crate) fn of(settings: &AdminSettings, outgoing: HttpClient) -> Self {
        // What could fail was checked at startup.
        let http = outgoing.trusting(client_builder().timeout(TIMEOUT)).ok();
        let http = http.and_then(|http| http.build().ok()).unwrap_or_default();
        Self { http, outgoing, settings: settings.clone() }
    }

    /// # Errors
    /// Returns 503 that names the service.
    pub(crate) async fn get<T: DeserializeOwned>(&self, service: &str, path: &str) -> Result<T, Problem> {
        self.query(service, path, vec![]).await
    }

    /// Reads the readiness, of a service that is not ready too.
    ///
    /// # Errors
    /// Returns 503 that names the service.
    pub(crate) async fn readiness(&self, service: &str) -> Result<Readiness, Problem> {
        let unreachable = |error| does_not_answer(service, error);
        let request = self.request(Method::GET, service, "/readyz")?.timeout(SHORT_TIMEOUT);
        self.send(request).await.map_err(unreachable)?.json().await.map_err(unreachable)
    }

    /// Reads the health report of a service.
    pub(crate) async fn health_report(&self, service: &str) -> Result<HealthReport, Problem> {
        self.get_soon(service, "/internal/health").await
    }

    /// As [`ServiceClient::get`], with a short time limit.
    pub(crate) async fn get_soon<T: DeserializeOwned>(
        &self,
        service: &str,
        path: &str,
    ) -> Result<T, Problem> {
        self.command(Method::GET, service, path, None).await
    }

    /// Sends a command with a JSON body, with a short time limit.
    ///
    /// # Errors
    /// Returns the problem of the service when it rejects the command, and 503 that names it when it does not answer.
    pub(crate) async fn command<T: DeserializeOwned>(
        &self,
        method: Method,
        service: &str,
        path: &str,
        body: Option<Value>,
    ) -> Result<T, Problem> {
        let response = self.ask(method, service, path, body, SHORT_TIMEOUT).await?;
        response.json().await.map_err(|error| does_not_answer(service, error))
    }

    /// As [`ServiceClient::command`], with a long time limit.
    pub(crate) async fn command_long<T: DeserializeOwned>(
        &self,
        service: &str,
        path: &str,
    ) -> Result<T, Problem> {
        let response = self.ask(Method::POST, service, path, None, LONG_TIMEOUT).await?;
        response.json().await.map_err(|error| does_not_answer(service, error))
    }

    /// As [`ServiceClient::command`], for responses without a body.
    pub(crate) async fn command_only(
        &self,
        method: Method,
        service: &str,
        path: &str,
    ) -> Result<(), Problem> {
        self.ask(method, service, path, None, SHORT_TIMEOUT).await.map(drop)
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
        let response = self.send(request).await.map_err(|error| does_not_answer(service, error))?;
        let status = response.status();
        let asked_for = retry_after(status, response.headers(), Timestamp::now());
        let problem = match response.error_for_status_ref().err() {
            None => return Ok(response),
            Some(_) if status.is_client_error() => rejection(service, status, response).await,
            Some(_) => failure(service, response).await,
        };
        Err(waiting(problem, asked_for))
    }

    /// Address of a service; `None` when there is no such service.
    pub(crate) fn address(&self, service: &str) -> Option<&str> {
        self.settings.addresses.of(service)
    }

    fn request(&self, method: Method, service: &str, path: &str) -> Result<RequestBuilder, Problem> {
        let base = self.address(service);
        let base = base.ok_or_else(|| Problem::not_found(format_args!("service {service}")))?;
        Ok(self.http.request(method, format!("{}{path}", base.trim_end_matches('/'))))
    }

    async fn send(&self, request: RequestBuilder) -> reqwest::Result<Response> {
        self.outgoing.send(request, None).await
    }

    /// Reads a page of a ledger.
    pub(crate) async fn page<T: DeserializeOwned>(
        &self,
        service: &str,
        path: &str,
        query: Vec<(&str, String)>,
    ) -> Result<Page<T>, Problem> {
        let unreachable = |error| does_not_answer(service, error);
        let request = self.request(Method::GET, service, path)?.query(&query).header(ACCEPT, MESSAGE_PACK);
        let response = answered(service, self.send(request).await.map_err(unreachable)?).await?;
        let headers = response.headers().clone();
        let body = response.bytes().await.map_err(unreachable)?;
        Page::decode(&headers, &body).map_err(|error| no_answer(service, error.as_ref(), UNREADABLE))
    }

    /// As [`ServiceClient::get`], with a query.
    pub(crate) async fn query<T: DeserializeOwned>(
        &self,
        service: &str,
        path: &str,
        query: Vec<(&str, String)>,
    ) -> Result<T, Problem> {
        let unreachable = |error| does_not_answer(service, error);
        let request = self.request(Method::GET, service, path)?.query(&query);
        let response = answered(service, self.send(request).await.map_err(unreachable)?).await?;
        response.json().await.map_err(unreachable)
    }
}

/// Passes on an answer without an error. The problem of a service that failed is told as it tells it.
async fn answered(service: &str, response: Response) -> Result<Response, Problem> {
    if response.status().is_server_error() {
        return Err(failure(service, response).await);
    }
    response.error_for_status().map_err(|error| does_not_answer(service, error))
}

/// Problem of a service that answers an error of its own.
async fn failure(service: &str, response: Response) -> Problem {
    let status = response.status();
    let told = response.json::<Problem>().await.ok().map(|problem| problem.detail);
    let why = told.filter(|detail| !detail.is_empty()).unwrap_or_else(|| "its log has the error".to_owned());
    Problem::unavailable(format!("{service} answers {status}: {why}"), 1)
}

/// Calls services concurrently.
pub(crate) async fn each<T, F: Future<Output = T>>(
    services: impl IntoIterator<Item = &'static str>,
    ask: impl Fn(&'static str) -> F,
) -> Vec<(&'static str, T)> {
    let ask = &ask;
    join_all(services.into_iter().map(|service| async move { (service, ask(service).await) })).await
}

/// Passes on the time in which a service asks for no other request.
fn waiting(problem: Problem, asked_for: Option<Duration>) -> Problem {
    let seconds = asked_for.and_then(|time| u32::try_from(time.as_secs()).ok());
    Problem { retry_after_s: seconds.or(problem.retry_after_s), ..problem }
}

/// Returns the problem with which a service rejected a request.
async fn rejection(service: &str, status: StatusCode, response: Response) -> Problem {
    if let Some(why) = token_problem(status) {
        return Problem::unavailable(format!("{service} {why}"), 1);
    }
    match response.json::<Problem>().await {
        Ok(problem) => problem,
        Err(_) => Problem::new(status, format!("{service} rejects the request without a reason")),
    }
}

/// Describes a problem with admin's own token, which the operator did not cause.
fn token_problem(status: StatusCode) -> Option<&'static str> {
    match status {
        StatusCode::UNAUTHORIZED => Some(
            "rejects admin's token: http.token of admin must name a file with a token of the role admin that is in \
             http.tokens of that service",
        ),
        StatusCode::TOO_MANY_REQUESTS => Some("limits the rate of admin's token (http.rate)"),
        _ => None,
    }
}

fn does_not_answer(service: &str, error: reqwest::Error) -> Problem {
    let why = match error.status() {
        Some(status) if token_problem(status).is_some() => {
            token_problem(status).unwrap_or_default().to_owned()
        }
        Some(status) => format!("answers {status}: is it another version?"),
        None => {
            let error = error.without_url();
            return no_answer(service, &error, &in_plain_words(&error));
        }
    };
    Problem::unavailable(format!("{service} {why}"), 1)
}

/// Logs the error of the library, and returns a plain problem.
fn no_answer(service: &str, error: &dyn Error, why: &str) -> Problem {
    debug!(service, error = error_chain(error), "a service does not answer");
    Problem::unavailable(format!("{service} does not answer: {why}"), 1)
}

/// Problem of a complete but invalid response.
const UNREADABLE: &str = "its response cannot be read: is it another version?";

/// Connection errors whose names operators know.
const PLAIN: [io::ErrorKind; 4] = [
    io::ErrorKind::ConnectionRefused,
    io::ErrorKind::ConnectionReset,
    io::ErrorKind::HostUnreachable,
    io::ErrorKind::NetworkUnreachable,
];

/// Describes a connection error without the words of a library, which are in the log.
fn in_plain_words(error: &reqwest::Error) -> String {
    if let Some(certificate) = untrusted_certificate(error) {
        return certificate;
    }
    let causes = successors(error.source(), |&error| error.source());
    let kind = causes.filter_map(|error| error.downcast_ref().map(io::Error::kind)).last();
    match kind.filter(|kind| PLAIN.contains(kind)) {
        Some(kind) => kind.to_string(),
        None if error.is_timeout() => "no answer in time".to_owned(),
        None if error.is_connect() => "no connection".to_owned(),
        None if error.is_decode() => UNREADABLE.to_owned(),
        None => "the connection was closed".to_owned(),
    }
}
