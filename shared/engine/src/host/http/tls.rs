//! Shell: TLS of the HTTP server, with certificate and key reloaded from their files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::reloaded::{BadFile, Kept, read_protected};

/// Forbidden permissions of the key file: a reader could impersonate this service.
const OPEN_TO_OTHERS: u32 = 0o007;

/// TLS of a service's HTTP server and requests (section `http.tls`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpTlsSettings {
    /// PEM file with the certificate chain of this service; with `key`. The server then speaks only TLS.
    pub cert: Option<PathBuf>,
    /// PEM file with the private key of `cert`.
    pub key: Option<PathBuf>,
    /// PEM file with the only authorities that this service trusts in its requests to other services.
    pub ca: Option<PathBuf>,
}

impl HttpTlsSettings {
    /// True if certificate and key are both set, or neither.
    pub(super) fn is_complete(&self) -> bool {
        self.cert.is_some() == self.key.is_some()
    }
}

/// TLS acceptor made from the current files; `None` without TLS.
pub(super) struct Tls(Option<Kept<TlsAcceptor>>);

impl Tls {
    /// Reads certificate and key.
    ///
    /// # Errors
    /// When the files cannot be used, or do not belong together.
    pub(super) fn of(settings: &HttpTlsSettings) -> Result<Self, BadFile> {
        let (Some(cert), Some(key)) = (settings.cert.clone(), settings.key.clone()) else {
            return Ok(Self(None));
        };
        let files = vec![cert.clone(), key.clone()];
        let read = move || acceptor(&cert, &key);
        // Certificate and key are renewed one after the other; until both match, the old ones stay in use.
        Kept::open(files, read).map(|kept| Self(Some(kept)))
    }

    pub(super) fn acceptor(&self) -> Option<TlsAcceptor> {
        self.0.as_ref().map(|kept| kept.current().as_ref().clone())
    }
}

/// Advice for a missing certificate or key.
const NO_CERTIFICATE: &str = "name a file with the certificate of this service, in PEM";
const NO_KEY: &str = "name a file with the key of http.tls.cert, in PEM";

fn acceptor(cert: &Path, key: &Path) -> Result<TlsAcceptor, BadFile> {
    let bad = |setting, file: &Path, why: String| BadFile { setting, file: file.to_owned(), why };
    let no_cert = |why: &dyn std::fmt::Display| bad("http.tls.cert", cert, why.to_string());
    let text = read_protected("http.tls.cert", cert, 0, NO_CERTIFICATE)?;
    let chain = CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| no_cert(&error))?;
    if chain.is_empty() {
        return Err(no_cert(&"it holds no certificate in PEM"));
    }
    let text = read_protected("http.tls.key", key, OPEN_TO_OTHERS, NO_KEY)?;
    let secret = PrivateKeyDer::from_pem_slice(text.as_bytes())
        .map_err(|error| bad("http.tls.key", key, format!("it holds no key in PEM: {error}")))?;
    let unusable = |error: tokio_rustls::rustls::Error| {
        bad("http.tls.key", key, format!("it cannot be used with {}: {error}", cert.display()))
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(unusable)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
