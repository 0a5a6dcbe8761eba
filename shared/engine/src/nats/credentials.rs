//! Shell: credentials and TLS of a connection to the broker.

use std::fmt;
use std::future::ready;
use std::path::{Path, PathBuf};

use async_nats::{Auth, AuthError, ConnectOptions};
use nkeys::KeyPair;
use serde::{Deserialize, Serialize};
use tokio_rustls::rustls;

use crate::protected_file::{BadFile, read_protected};
use crate::reloaded::Kept;
use crate::trust::{Authorities, ClientCertificate};

/// TLS to the broker (section `bus.tls`). Not needed for a `tls://` address whose authority the system trusts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsSettings {
    /// File with the certificates of the only trusted authorities. With it, TLS is required.
    pub ca: Option<PathBuf>,
    /// File with the client certificate; together with `key`.
    pub cert: Option<PathBuf>,
    /// File with the private key of `cert`.
    pub key: Option<PathBuf>,
}

impl TlsSettings {
    /// Describes an impossible combination of settings.
    #[must_use]
    pub fn problem(&self) -> Option<&'static str> {
        let is_half = self.cert.is_some() != self.key.is_some();
        is_half.then_some("bus.tls.cert and bus.tls.key belong together: name both files, or neither")
    }

    /// Adds these settings to the options of a connection. Each connection uses the files as they are by then, and the last
    /// good ones in place of bad ones.
    pub(super) fn apply(&self, options: ConnectOptions) -> Result<ConnectOptions, BadFile> {
        let certificate = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                Some((ClientCertificate::open(("bus.tls.cert", cert), ("bus.tls.key", key))?, cert, key))
            }
            _ => None,
        };
        // An authority or a certificate is named only for connections that must be checked.
        match (&self.ca, certificate) {
            (Some(ca), certificate) => {
                let certificate = certificate.map(|(certificate, ..)| certificate);
                let config = Authorities::open("bus.tls.ca", ca)?.client_config(certificate);
                let bad = |error: rustls::Error| BadFile {
                    setting: "bus.tls.ca",
                    file: ca.clone(),
                    why: error.to_string(),
                };
                Ok(options.tls_client_config(config.map_err(bad)?).require_tls(true))
            }
            // The client trusts the authorities of the system.
            (None, Some((_, cert, key))) => {
                Ok(options.add_client_certificate(cert.clone(), key.clone()).require_tls(true))
            }
            (None, None) => Ok(options),
        }
    }
}

/// Options with the credentials in `file`, the seed of an nkey or a `.creds` file, as each connection finds them.
///
/// The secret has a file of its own, as settings may be shown. The seed of an nkey is never sent, and the broker does not
/// have it.
pub(super) fn with_credentials(file: &Path) -> Result<ConnectOptions, BadFile> {
    let named = file.to_owned();
    let credentials = Kept::open(vec![file.to_owned()], move || Credentials::read(&named))?;
    Ok(ConnectOptions::with_auth_callback(move |nonce| ready(credentials.current().sign(&nonce))))
}

/// Credentials of a user of the broker.
struct Credentials {
    /// Token of a `.creds` file.
    jwt: Option<String>,
    key: KeyPair,
}

impl Credentials {
    fn read(file: &Path) -> Result<Self, BadFile> {
        let bad = |why: String| BadFile { setting: "bus.credentials", file: file.to_owned(), why };
        let text = read_protected("bus.credentials", file, 0, NO_CREDENTIALS)?;
        let mut lines = text.lines().map(str::trim);
        let jwt = match lines.by_ref().any(|line| line.contains("BEGIN NATS USER JWT")) {
            true => lines.next().map(str::to_owned),
            false => None,
        };
        let seed = text.lines().map(str::trim).find(|line| line.starts_with("SU"));
        let no_seed = "holds neither the seed of a user's nkey (SU…) nor a user's credentials (.creds)";
        let key = KeyPair::from_seed(seed.ok_or_else(|| bad(no_seed.to_owned()))?);
        Ok(Self { jwt, key: key.map_err(|error| bad(error.to_string()))? })
    }

    fn sign(&self, nonce: &[u8]) -> Result<Auth, AuthError> {
        let mut auth = Auth::new();
        auth.signature = Some(self.key.sign(nonce).map_err(AuthError::new)?);
        match &self.jwt {
            Some(jwt) => auth.jwt = Some(jwt.clone()),
            None => auth.nkey = Some(self.key.public_key()),
        }
        Ok(auth)
    }
}

/// Advice on credentials that were lost, or never created.
const NO_CREDENTIALS: &str = "name the file of this service, or create one (`sagactl up` or `sagactl credentials`) and \
    restart the broker, which must know it";

/// Address without the user and the password that it may contain.
pub(super) struct RedactedUrl<'a>(pub(super) &'a str);

impl fmt::Display for RedactedUrl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for address in self.0.split(',') {
            let (scheme, rest) =
                address.split_once("://").map_or(("", address), |(scheme, rest)| (scheme, rest));
            let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
            let colon = if scheme.is_empty() { "" } else { "://" };
            write!(f, "{separator}{scheme}{colon}{host}")?;
            separator = ",";
        }
        Ok(())
    }
}
