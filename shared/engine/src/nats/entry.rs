//! Shell: how a service gets in at the broker: as whom, by which credentials, and over TLS.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use async_nats::ConnectOptions;
use serde::{Deserialize, Serialize};

/// TLS to the broker (section `bus.tls`). A `tls://` address needs none of it when the system trusts the broker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsSettings {
    /// File with the certificates of the authorities that are trusted, and of no others; with it only TLS will do.
    pub ca: Option<PathBuf>,
    /// File with the certificate by which the broker knows this client; with `key`.
    pub cert: Option<PathBuf>,
    /// File with the key of `cert`.
    pub key: Option<PathBuf>,
}

/// A file by which a service gets in, and that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{setting} {}", file.display())]
pub struct BadFile {
    /// The setting that names it.
    setting: &'static str,
    /// Which.
    file: PathBuf,
    source: io::Error,
}

impl TlsSettings {
    /// What cannot be, if anything.
    #[must_use]
    pub fn complaint(&self) -> Option<&'static str> {
        let is_half = self.cert.is_some() != self.key.is_some();
        is_half.then_some("bus.tls.cert and bus.tls.key belong together: name both files, or neither")
    }

    /// The same connection, over TLS if that is set.
    pub(super) fn apply(&self, mut options: ConnectOptions) -> Result<ConnectOptions, BadFile> {
        if let Some(ca) = &self.ca {
            check_pem("bus.tls.ca", ca)?;
            // Whoever names whom to trust does not want a connection that needs no trust.
            options = options.add_root_certificates(ca.clone()).require_tls(true);
        }
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            check_pem("bus.tls.cert", cert)?;
            check_pem("bus.tls.key", key)?;
            options = options.add_client_certificate(cert.clone(), key.clone()).require_tls(true);
        }
        Ok(options)
    }
}

/// The same connection, by the credentials in `file`: the seed of an nkey, or what NATS calls a user's credentials.
///
/// The secret is in a file of its own and not among the settings, where it might be shown; of an nkey it is not even
/// sent, and the broker does not have it.
pub(super) fn by_credentials(options: ConnectOptions, file: &Path) -> Result<ConnectOptions, BadFile> {
    let bad = |source| BadFile { setting: "bus.credentials", file: file.to_owned(), source };
    let text = fs::read_to_string(file).map_err(|error| {
        let is_missing = error.kind() == io::ErrorKind::NotFound;
        bad(if is_missing { io::Error::new(io::ErrorKind::NotFound, NOT_THERE) } else { error })
    })?;
    if text.contains("BEGIN NATS USER JWT") {
        return options.credentials(&text).map_err(bad);
    }
    match text.lines().map(str::trim).find(|line| line.starts_with("SU")) {
        Some(seed) => Ok(options.nkey(seed.to_owned())),
        None => {
            let why = "holds neither the seed of a user's nkey (SU…) nor a user's credentials (.creds)";
            Err(bad(io::Error::new(io::ErrorKind::InvalidData, why)))
        }
    }
}

/// Said of credentials that were lost, or never made.
const NOT_THERE: &str = "is not there: name the file that was made for this service, or have one made (`sagactl up` or \
    `sagactl credentials`) and start the broker again, which has to know it";

fn check_pem(setting: &'static str, file: &Path) -> Result<(), BadFile> {
    let bad = |source| BadFile { setting, file: file.to_owned(), source };
    let text = fs::read(file).map_err(bad)?;
    match text.windows(PEM.len()).any(|window| window == PEM) {
        true => Ok(()),
        false => Err(bad(io::Error::new(io::ErrorKind::InvalidData, "is no PEM file"))),
    }
}

/// How everything in a PEM file begins (RFC 7468).
const PEM: &[u8] = b"-----BEGIN ";

/// An address without the user and the password that it may hold, to be shown.
pub(super) struct Shown<'a>(pub(super) &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for address in self.0.split(',') {
            let (scheme, rest) =
                address.split_once("://").map_or(("", address), |(scheme, rest)| (scheme, rest));
            let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
            let colon = if scheme.is_empty() { "" } else { "://" };
            write!(f, "{separator}{scheme}{colon}{place}")?;
            separator = ",";
        }
        Ok(())
    }
}
