//! Shell: TLS of clients, with trusted authorities that are read again when their file changes.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{ResolvesClientCert, WebPkiServerVerifier};
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};

use crate::protected_file::{BadFile, read_protected_bytes};
use crate::reloaded::Kept;

/// Words by which a certificate that is not trusted is recognised in an error.
pub const UNTRUSTED: &str = "is not trusted here";
/// Words around the description of such a certificate.
const BEGIN: &str = "the certificate of ";
const END: &str = "that this side trusts";

/// Describes the certificate on which a connection failed, as it is not trusted: whose, why, and by which file.
#[must_use]
pub fn untrusted_certificate(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    // Several libraries wrap the error, some of them as text.
    let texts = std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string);
    let text = texts.filter(|text| text.contains(UNTRUSTED)).last()?;
    let (begin, end) = (text.find(BEGIN)?, text.rfind(END)? + END.len());
    text.get(begin..end).map(str::to_owned)
}

/// Verifier of servers by the authorities of a file.
pub(crate) struct Authorities {
    setting: &'static str,
    file: PathBuf,
    verifier: Kept<Arc<WebPkiServerVerifier>>,
}

impl Authorities {
    /// Reads the authorities that the file of `setting` holds in PEM.
    ///
    /// # Errors
    /// When the file cannot be used.
    pub(crate) fn open(setting: &'static str, file: &Path) -> Result<Arc<Self>, BadFile> {
        let named = file.to_owned();
        let verifier = Kept::open(vec![file.to_owned()], move || verifier(setting, &named))?;
        Ok(Arc::new(Self { setting, file: file.to_owned(), verifier }))
    }

    /// Creates a client configuration that trusts nobody else.
    ///
    /// # Errors
    /// When the TLS library supports none of its own protocol versions.
    pub(crate) fn client_config(
        self: &Arc<Self>,
        certificate: Option<ClientCertificate>,
    ) -> Result<ClientConfig, Error> {
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(self.clone());
        Ok(match certificate {
            Some(certificate) => builder.with_client_cert_resolver(Arc::new(certificate)),
            None => builder.with_no_client_auth(),
        })
    }
}

/// Client certificate from files that are read again when they change.
#[derive(Clone)]
pub(crate) struct ClientCertificate(Kept<Arc<CertifiedKey>>);

impl ClientCertificate {
    /// Reads a certificate chain and its key, each with its setting.
    ///
    /// # Errors
    /// When the files cannot be used, or do not belong together.
    pub(crate) fn open(cert: (&'static str, &Path), key: (&'static str, &Path)) -> Result<Self, BadFile> {
        let files = vec![cert.1.to_owned(), key.1.to_owned()];
        let (cert, key) = ((cert.0, cert.1.to_owned()), (key.0, key.1.to_owned()));
        let read = move || certified_key((cert.0, &cert.1), (key.0, &key.1));
        Kept::open(files, read).map(Self)
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("client certificate")
    }
}

impl ResolvesClientCert for ClientCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.current().as_ref().clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

fn certified_key(
    (setting, file): (&'static str, &Path),
    (key_setting, key_file): (&'static str, &Path),
) -> Result<Arc<CertifiedKey>, BadFile> {
    let bad = |setting, file: &Path, why: String| BadFile { setting, file: file.to_owned(), why };
    let bytes = read_protected_bytes(setting, file, 0, "name a PEM file")?;
    let chain = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| bad(setting, file, format!("is not a PEM file: {error}")))?;
    if chain.is_empty() {
        return Err(bad(setting, file, "is not a PEM file".to_owned()));
    }
    let bytes = read_protected_bytes(key_setting, key_file, 0, "name a PEM file")?;
    let key = PrivateKeyDer::from_pem_slice(&bytes)
        .map_err(|error| bad(key_setting, key_file, format!("is not a PEM file: {error}")))?;
    CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()).map(Arc::new).map_err(|error| {
        bad(key_setting, key_file, format!("it cannot be used with {}: {error}", file.display()))
    })
}

/// Advice for a missing file of authorities.
const NO_AUTHORITIES: &str = "name a file with the certificates, in PEM, of the authorities that are trusted";

fn verifier(setting: &'static str, file: &Path) -> Result<Arc<WebPkiServerVerifier>, BadFile> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots(setting, file)?), provider)
        .build()
        .map_err(|error| BadFile { setting, file: file.to_owned(), why: error.to_string() })
}

/// Reads the authorities that the file of `setting` holds in PEM.
///
/// # Errors
/// When the file cannot be used, or holds none.
pub(crate) fn roots(setting: &'static str, file: &Path) -> Result<RootCertStore, BadFile> {
    let bad = |why: String| BadFile { setting, file: file.to_owned(), why };
    let bytes = read_protected_bytes(setting, file, 0, NO_AUTHORITIES)?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&bytes) {
        let certificate = certificate.map_err(|error| bad(format!("is not a PEM file: {error}")))?;
        roots.add(certificate).map_err(|error| bad(error.to_string()))?;
    }
    match roots.is_empty() {
        true => Err(bad("is not a PEM file: it holds no certificates in PEM".to_owned())),
        false => Ok(roots),
    }
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "authorities of {} {}", self.setting, self.file.display())
    }
}

/// Certificate of a server that this side does not trust.
struct Untrusted {
    server: String,
    problem: String,
    authorities: String,
}

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, problem, authorities } = self;
        write!(
            f,
            "{BEGIN}{server} {UNTRUSTED} ({problem}): renew it there, or correct the {authorities} {END}"
        )
    }
}

/// The library shows such an error by `Debug`.
impl fmt::Debug for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Untrusted {}

impl ServerCertVerifier for Authorities {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verifier = self.verifier.current();
        let verified =
            verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        verified.map_err(|error| {
            let (server, problem) = (server_name.to_str().into_owned(), error.to_string());
            let untrusted = Untrusted { server, problem, authorities: format!("{self:?}") };
            Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(untrusted))))
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.current().verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.current().verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.current().supported_verify_schemes()
    }
}
