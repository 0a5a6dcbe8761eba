//! Shell: credentials and TLS of a connection to the broker.

use std::fmt;
use std::path::{Path, PathBuf};

use async_nats::ConnectOptions;
use serde::{Deserialize, Serialize};

use crate::protected_file::{BadFile, read_protected, read_protected_bytes};

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

    /// Adds these settings to the options of a connection.
    pub(super) fn apply(&self, mut options: ConnectOptions) -> Result<ConnectOptions, BadFile> {
        if let Some(ca) = &self.ca {
            check_pem("bus.tls.ca", ca)?;
            // An authority is named only for connections that must be checked.
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

/// Adds the credentials in `file`, the seed of an nkey or a `.creds` file, to the options of a connection.
///
/// The secret has a file of its own, as settings may be shown. The seed of an nkey is never sent, and the broker does not
/// have it.
pub(super) fn with_credentials(options: ConnectOptions, file: &Path) -> Result<ConnectOptions, BadFile> {
    let bad = |why: String| BadFile { setting: "bus.credentials", file: file.to_owned(), why };
    let text = read_protected("bus.credentials", file, 0, NO_CREDENTIALS)?;
    if text.contains("BEGIN NATS USER JWT") {
        return options.credentials(&text).map_err(|error| bad(error.to_string()));
    }
    match text.lines().map(str::trim).find(|line| line.starts_with("SU")) {
        Some(seed) => Ok(options.nkey(seed.to_owned())),
        None => {
            let why = "holds neither the seed of a user's nkey (SU…) nor a user's credentials (.creds)";
            Err(bad(why.to_owned()))
        }
    }
}

/// Advice on credentials that were lost, or never created.
const NO_CREDENTIALS: &str = "name the file of this service, or create one (`sagactl up` or `sagactl credentials`) and \
    restart the broker, which must know it";

fn check_pem(setting: &'static str, file: &Path) -> Result<(), BadFile> {
    /// First bytes of each item in a PEM file (RFC 7468). Text between the items may have any encoding.
    const BEGIN: &[u8] = b"-----BEGIN ";
    let bytes = read_protected_bytes(setting, file, 0, "name a PEM file")?;
    match bytes.windows(BEGIN.len()).any(|window| window == BEGIN) {
        true => Ok(()),
        false => Err(BadFile { setting, file: file.to_owned(), why: "is not a PEM file".to_owned() }),
    }
}

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
