//! Shell: this service's requests to others: clients without the environment's proxy, the token, and trusted authorities.

use std::sync::Arc;
use std::time::Instant;

use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Client, ClientBuilder, Proxy, RequestBuilder, Response, Url};
use saga_core::access::Token;
use saga_core::trace::{TRACEPARENT, TraceContext};
use uuid::Uuid;

use super::baggage;
use super::settings::{CLIENT_IDLE_TIMEOUT, HttpSettings};
use super::telemetry::name_of;
use crate::reloaded::{BadFile, Kept, read_protected};
use crate::runtime::http_exchange::HttpExchange;
use crate::runtime::span_operation::SpanOperation;
use crate::runtime::tracer::{self, SpanDetails, SpanFailure, Tracer};
use crate::trust::Authorities;

/// Forbidden permissions of the token file: a reader could act as this service.
const OPEN_TO_OTHERS: u32 = 0o007;

/// Makes a builder of clients that ignore the proxy of the environment.
///
/// Docker and many companies set `HTTP_PROXY` for every process. That proxy reaches no service of this system.
#[expect(clippy::disallowed_methods, reason = "the one place where the environment's proxy is turned off")]
pub fn client_builder() -> ClientBuilder {
    Client::builder().no_proxy().pool_idle_timeout(CLIENT_IDLE_TIMEOUT)
}

/// Makes a builder of clients for programs outside this system, through `http.proxy` if that is set.
pub fn external_client_builder(settings: &HttpSettings) -> ClientBuilder {
    // The address was checked with the settings.
    let proxy = settings.proxy.as_ref().and_then(|proxy| Proxy::all(proxy).ok());
    proxy.into_iter().fold(client_builder(), ClientBuilder::proxy)
}

/// Credentials and tracer for requests to other services. Clones share the reloaded token.
#[derive(Clone, Default)]
pub struct HttpClient {
    tracer: Tracer,
    token: Option<Kept<Token>>,
    authorities: Option<Arc<Authorities>>,
}

impl HttpClient {
    /// Reads the token and the authorities.
    ///
    /// # Errors
    /// When a file of the settings cannot be used.
    pub fn new(settings: &HttpSettings) -> Result<Self, BadFile> {
        let kept = |file: &std::path::PathBuf| {
            let named = file.clone();
            let read = move || {
                let text = read_protected("http.token", &named, OPEN_TO_OTHERS, NO_TOKEN)?;
                let why = "it holds no token (saga_…): `sagactl token create` makes one".to_owned();
                Token::parse(text.trim()).ok_or(BadFile { setting: "http.token", file: named.clone(), why })
            };
            Kept::open(vec![file.clone()], read)
        };
        let authorities = |file: &std::path::PathBuf| Authorities::open("http.tls.ca", file);
        Ok(Self {
            tracer: Tracer::off(),
            token: settings.token.as_ref().map(kept).transpose()?,
            authorities: settings.tls.ca.as_ref().map(authorities).transpose()?,
        })
    }

    /// Records the requests of this client in spans.
    #[must_use]
    pub(crate) fn traced(self, tracer: Tracer) -> Self {
        Self { tracer, ..self }
    }

    /// Sends a request with the token. It continues the trace of the call or request in progress, and is recorded in it.
    /// `template` is its path with placeholders in place of ids.
    ///
    /// # Errors
    /// When the request cannot be sent, or is not answered.
    pub async fn send(
        &self,
        request: RequestBuilder,
        template: Option<&'static str>,
    ) -> reqwest::Result<Response> {
        let request = match self.token() {
            Some(token) => request.bearer_auth(token.secret()),
            None => request,
        };
        let (client, request) = request.build_split();
        let mut request = request?;
        let of_call = tracer::call_context();
        let span = match (of_call, tracer::request_span()) {
            (None, Some(parent)) => self.tracer.begin(Some(parent.context), Uuid::nil()),
            _ => None,
        };
        let Some(context) = of_call.map(|(context, _)| context).or(span.map(|span| span.context)) else {
            return client.execute(request).await;
        };
        let correlation_id = of_call.map(|(_, id)| id).or_else(tracer::request_correlation_id);
        add_context(request.headers_mut(), context, correlation_id);
        let url = request.url();
        let sent = exchange(name_of(request.method()), url, url.path(), template);
        // Recorded before the answer too: a call that takes too long is dropped.
        tracer::record_exchange(sent.clone());
        let began = Instant::now();
        let answer = client.execute(request).await;
        let http = answered(sent, &answer);
        if let Some(span) = span {
            let failed =
                http.error_type().map(|error_type| SpanFailure { error_type, description: String::new() });
            self.tracer.end(span, began.elapsed(), || SpanDetails {
                operation: SpanOperation::Request { http, correlation_id },
                failed,
                links: vec![],
                transaction: None,
            });
        } else {
            tracer::record_exchange(http);
        }
        answer
    }

    /// Has a client trust the authorities of `http.tls.ca` alone, as the file holds them at each connection. Without the
    /// setting it trusts those of the system.
    ///
    /// # Errors
    /// When the TLS library supports none of its own protocol versions.
    pub fn trusting(&self, client: ClientBuilder) -> Result<ClientBuilder, tokio_rustls::rustls::Error> {
        Ok(match &self.authorities {
            Some(authorities) => client.tls_backend_preconfigured(authorities.client_config(None)?),
            None => client,
        })
    }

    /// Returns the current token; `None` when none is set.
    #[must_use]
    pub fn token(&self) -> Option<Arc<Token>> {
        self.token.as_ref().map(Kept::current)
    }
}

/// Adds trace context and correlation id.
fn add_context(headers: &mut HeaderMap, context: TraceContext, correlation_id: Option<Uuid>) {
    if let Ok(value) = HeaderValue::try_from(context.to_string()) {
        headers.insert(TRACEPARENT, value);
    }
    if let Some(value) = correlation_id.and_then(baggage::header_of) {
        headers.insert(baggage::BAGGAGE, value);
    }
}

/// Describes a request to `path` of the host of `url` that is about to be sent.
fn exchange(method: &'static str, url: &Url, path: &str, template: Option<&'static str>) -> HttpExchange {
    HttpExchange {
        method,
        url: format!("{}{path}", url.origin().ascii_serialization()),
        address: url.host_str().unwrap_or_default().to_owned(),
        port: url.port_or_known_default(),
        template,
        status: None,
        error: None,
    }
}

/// Records a request to a program outside this system in the span of the call that is being made. Its path may be secret.
pub fn record_external(url: &Url, answer: &reqwest::Result<Response>) {
    tracer::record_exchange(answered(exchange("POST", url, "/REDACTED", None), answer));
}

/// Adds the status of the response, or the error.
fn answered(sent: HttpExchange, answer: &reqwest::Result<Response>) -> HttpExchange {
    let error = match answer {
        Ok(response) => return HttpExchange { status: Some(response.status().as_u16()), ..sent },
        Err(error) if error.is_timeout() => "timeout",
        Err(error) if error.is_connect() => "connect",
        Err(_) => "connection_closed",
    };
    HttpExchange { error: Some(error), ..sent }
}

/// Advice for a missing token file.
const NO_TOKEN: &str =
    "name the file with the token by which this service asks others (`sagactl token create`)";
