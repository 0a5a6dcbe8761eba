//! Shell: requests to the services, with errors in one line.

use std::error::Error;
use std::io;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use cli::exit::rejected;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Certificate, ClientBuilder, Method, RequestBuilder, Response, StatusCode};
use serde_json::Value;
use tokio_rustls::rustls::{self, CertificateError};

use crate::access::Access;

const TIMEOUT: Duration = Duration::from_secs(10);

/// Larger than any answer of the services.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

#[derive(Clone)]
pub struct Http(reqwest::Client);

/// Answer of a service, with any status.
pub struct Answer {
    pub status: StatusCode,
    /// Null if it is not JSON.
    pub body: Value,
}

impl Answer {
    /// Returns the status, and the text of a problem document: its invalid fields, else its detail.
    pub fn error_text(&self) -> String {
        let errors = self.body.get("errors").and_then(Value::as_array);
        let text = |value: &Value, name| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let field = |error: &Value| Some(format!("{}: {}", text(error, "field")?, text(error, "detail")?));
        let fields: Vec<_> = errors.into_iter().flatten().filter_map(field).collect();
        match text(&self.body, "detail") {
            _ if !fields.is_empty() => format!("{}: {}", self.status, fields.join("; ")),
            Some(detail) => format!("{}: {detail}", self.status),
            None => self.status.to_string(),
        }
    }
}

/// Makes a builder of clients that ignore the proxy of the environment: it reaches no local system.
#[expect(clippy::disallowed_methods, reason = "the one place where the environment's proxy is turned off")]
pub fn client_builder() -> ClientBuilder {
    reqwest::Client::builder().no_proxy()
}

impl Http {
    pub fn new() -> anyhow::Result<Self> {
        Self::with_access(&Access::default())
    }

    /// Creates a client with a token and certificate authorities.
    pub fn with_access(access: &Access) -> anyhow::Result<Self> {
        // A redirect could send the token elsewhere.
        let mut client = client_builder().redirect(Policy::none()).timeout(TIMEOUT);
        if let Some(token) = &access.token {
            let mut value = HeaderValue::try_from(format!("Bearer {}", token.secret()))?;
            value.set_sensitive(true);
            client = client.default_headers([(AUTHORIZATION, value)].into_iter().collect());
        }
        if let Some(pem) = &access.authorities {
            let trusted = Certificate::from_pem_bundle(pem).unwrap_or_default();
            if trusted.is_empty() {
                return Err(rejected("the file of --ca (SAGA_CA) holds no certificates in PEM"));
            }
            client = client.tls_certs_only(trusted);
        }
        Ok(Self(client.build().context("no HTTP client can be made")?))
    }

    pub async fn get(&self, url: &str) -> anyhow::Result<Answer> {
        fetch(self.request(Method::GET, url), url).await
    }

    /// Sends a `GET` with a time limit of its own.
    pub async fn get_within(&self, url: &str, limit: Duration) -> anyhow::Result<Answer> {
        fetch(self.request(Method::GET, url).timeout(limit), url).await
    }

    pub async fn post(&self, url: &str, body: &Value) -> anyhow::Result<Answer> {
        fetch(self.request(Method::POST, url).json(body), url).await
    }

    /// Creates a request, to be sent with [`fetch`] or [`send`].
    pub fn request(&self, method: Method, url: &str) -> RequestBuilder {
        self.0.request(method, url)
    }
}

/// Sends a request and reads the whole answer.
pub async fn fetch(request: RequestBuilder, url: &str) -> anyhow::Result<Answer> {
    read(send(request, url).await?).await
}

/// Sends a request and reads only the head of the answer.
pub async fn send(request: RequestBuilder, url: &str) -> anyhow::Result<Response> {
    request.send().await.map_err(|error| no_answer(error, url))
}

/// Creates the error for a request without an answer. The text of the library is of no use to operators.
fn no_answer(error: reqwest::Error, url: &str) -> anyhow::Error {
    if let Some(error) = causes(&error).find_map(|error| error.downcast_ref::<rustls::Error>()) {
        return anyhow!("{}", tls_error(error, url));
    }
    if error.is_timeout() {
        return anyhow!("{url} did not answer in time");
    }
    let is_secure = url.starts_with("https:");
    if causes(&error).filter_map(|error| error.downcast_ref()).any(hyper::Error::is_parse) {
        return anyhow!("{url} answers, but not in HTTP: it seems to use TLS: write https:// instead");
    }
    let broken = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset];
    let is_broken = |error: &io::Error| broken.contains(&error.kind());
    if is_secure
        && error.is_connect()
        && causes(&error).filter_map(|error| error.downcast_ref()).any(is_broken)
    {
        return anyhow!("{}", not_tls(url));
    }
    if error.is_connect() {
        return anyhow!("nothing answers at {url}: is the system running?");
    }
    if error.is_request() {
        return anyhow!("{url} closed the connection without an answer");
    }
    anyhow::Error::new(error.without_url()).context(format!("request to {url}"))
}

fn tls_error(error: &rustls::Error, url: &str) -> String {
    // Advice to use plain HTTP, which shows the token to everybody, only if the peer surely does not use TLS.
    if matches!(error, rustls::Error::InvalidMessage(_)) {
        return not_tls(url);
    }
    let rustls::Error::InvalidCertificate(why) = error else {
        return format!("no TLS connection to {url}: {error}");
    };
    let text = |why| format!("the certificate of {url} {why}");
    if matches!(why, CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }) {
        return text("is for another name: use the name or address that it is for");
    }
    if matches!(why, CertificateError::Expired | CertificateError::ExpiredContext { .. }) {
        return text("has expired");
    }
    if matches!(why, CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. }) {
        return text("is not valid yet: check the clocks of both machines");
    }
    text("is not trusted: name a file with the certificate of its authority with --ca (SAGA_CA)")
}

fn not_tls(url: &str) -> String {
    format!("{url} answers, but not in TLS: it seems to use plain HTTP: write http:// instead")
}

/// Lists an error and its causes.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| {
        let error: &'a (dyn Error + 'static) = *error;
        // An error wrapped in an IO error is not its source.
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        wrapped.map(|error| error as &(dyn Error + 'static)).or_else(|| error.source())
    })
}

/// Reads the body of an answer.
pub async fn read(mut response: Response) -> anyhow::Result<Answer> {
    let (status, url) = (response.status(), response.url().clone());
    let mut bytes = Vec::new();
    let broken = |error: reqwest::Error| match error.is_timeout() {
        true => no_answer(error, url.as_str()),
        false => anyhow::Error::new(error.without_url()).context(format!("answer of {url}")),
    };
    while let Some(chunk) = response.chunk().await.map_err(broken)? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MAX_ANSWER_BYTES {
            bail!("the answer of {url} is too large: is it a service of this system?");
        }
    }
    Ok(Answer { status, body: serde_json::from_slice(&bytes).unwrap_or(Value::Null) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio_rustls::rustls::{AlertDescription, InvalidMessage, PeerIncompatible};

    use super::*;

    #[tokio::test]
    async fn endless_answer_is_rejected_beyond_the_size_limit() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("an address"));
        let answering = async {
            let (mut stream, _) = listener.accept().await.expect("somebody asks");
            assert!(stream.read(&mut [0; 1024]).await.expect("a request") > 0);
            let (mut sent, blanks) = (0, vec![b' '; 1024 * 1024]);
            let mut part = &b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"[..];
            while stream.write_all(part).await.is_ok() && sent < 4 * MAX_ANSWER_BYTES {
                part = &blanks;
                sent += part.len();
            }
            sent
        };
        let http = Http::new().expect("a client");
        let (answer, sent) = tokio::join!(http.get(&url), answering);
        assert!(answer.err().is_some_and(|error| error.to_string().contains("is too large")));
        assert!(sent < 2 * MAX_ANSWER_BYTES, "{sent}");
    }

    #[test]
    fn plain_http_is_suggested_only_if_peer_does_not_use_tls() {
        let text_of = |error| tls_error(&error, "https://admin");
        let plain = text_of(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType));
        assert!(plain.contains("write http:// instead"), "{plain}");
        for error in [
            rustls::Error::AlertReceived(AlertDescription::HandshakeFailure),
            rustls::Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered),
            rustls::Error::InvalidCertificate(CertificateError::NotValidYet),
        ] {
            let text = text_of(error.clone());
            assert!(!text.contains("http://") && !text.contains("--ca"), "{error:?}: {text}");
        }
    }

    #[test]
    fn error_text_names_the_invalid_fields() {
        let text_of = |body| Answer { status: StatusCode::UNPROCESSABLE_ENTITY, body }.error_text();
        let errors = json!([{"field": "reason", "detail": "is needed"}, {"field": "rate", "detail": "is 0"}]);
        let fields = json!({"detail": "invalid: reason, rate", "errors": errors});
        assert_eq!(text_of(fields), "422 Unprocessable Entity: reason: is needed; rate: is 0");
        assert_eq!(text_of(json!({"detail": "no"})), "422 Unprocessable Entity: no");
        assert_eq!(text_of(Value::Null), "422 Unprocessable Entity");
    }
}
