//! Shell: this service's requests to others: clients without the environment's proxy, the token, and trusted authorities.

use std::sync::Arc;

use reqwest::{Client, ClientBuilder, Proxy};
use saga_core::access::Token;

use super::settings::{CLIENT_IDLE_TIMEOUT, HttpSettings};
use crate::reloaded::{BadFile, OnReadError, Reloaded, read_protected};
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

/// Credentials for requests to other services. Clones share the reloaded token.
#[derive(Clone, Default)]
pub struct HttpClient {
    token: Option<Arc<Reloaded<Token>>>,
    authorities: Option<Arc<Authorities>>,
}

impl HttpClient {
    /// Reads the token and the authorities.
    ///
    /// # Errors
    /// When a file of the settings cannot be used.
    pub fn new(settings: &HttpSettings) -> Result<Self, BadFile> {
        let watched = |file: &std::path::PathBuf| {
            let named = file.clone();
            let read = move || {
                let text = read_protected("http.token", &named, OPEN_TO_OTHERS, NO_TOKEN)?;
                let why = "it holds no token (saga_…): `sagactl token create` makes one".to_owned();
                Token::parse(text.trim()).ok_or(BadFile { setting: "http.token", file: named.clone(), why })
            };
            Reloaded::open(vec![file.clone()], OnReadError::KeepOld, read).map(Arc::new)
        };
        let authorities = |file: &std::path::PathBuf| Authorities::open("http.tls.ca", file);
        Ok(Self {
            token: settings.token.as_ref().map(watched).transpose()?,
            authorities: settings.tls.ca.as_ref().map(authorities).transpose()?,
        })
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
        self.token.as_ref().and_then(|token| token.current())
    }
}

/// Advice for a missing token file.
const NO_TOKEN: &str =
    "name the file with the token by which this service asks others (`sagactl token create`)";
