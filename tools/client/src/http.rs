//! Shell: requests to the services, with errors of one line.

use std::error::Error;
use std::io;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Method, RequestBuilder, Response, StatusCode};
use serde_json::Value;
use tokio_rustls::rustls::{self, CertificateError};

use crate::access::Entry;
use cli::exit::refuse;

/// A local service that does not answer within this hangs.
const TIMEOUT: Duration = Duration::from_secs(10);

/// More than any answer has: what goes on beyond that is none.
const MOST_BYTES: usize = 64 * 1024 * 1024;

#[derive(Clone)]
pub struct Http(reqwest::Client);

/// What a service said, with any status.
pub struct Answer {
    pub status: StatusCode,
    /// Null when it is no JSON.
    pub body: Value,
}

impl Answer {
    /// What a problem document says is wrong, field by field where it names them, or the status.
    pub fn complaint(&self) -> String {
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

impl Http {
    /// For what anybody may ask.
    pub fn new() -> anyhow::Result<Self> {
        Self::by(&Entry::default())
    }

    /// For what needs a token.
    pub fn by(entry: &Entry) -> anyhow::Result<Self> {
        // Nobody leads elsewhere, with a token or without.
        let mut client = reqwest::Client::builder().no_proxy().redirect(Policy::none()).timeout(TIMEOUT);
        if let Some(token) = &entry.token {
            let mut value = HeaderValue::try_from(format!("Bearer {}", token.secret()))?;
            value.set_sensitive(true);
            client = client.default_headers([(AUTHORIZATION, value)].into_iter().collect());
        }
        if let Some(pem) = &entry.authorities {
            let trusted = Certificate::from_pem_bundle(pem).unwrap_or_default();
            if trusted.is_empty() {
                return Err(refuse("the file of --ca (SAGA_CA) holds no certificates in PEM"));
            }
            client = client.tls_certs_only(trusted);
        }
        Ok(Self(client.build().context("no HTTP client can be made")?))
    }

    pub async fn get(&self, url: &str) -> anyhow::Result<Answer> {
        answer(self.request(Method::GET, url), url).await
    }

    /// `GET` that may take longer than others.
    pub async fn get_within(&self, url: &str, limit: Duration) -> anyhow::Result<Answer> {
        answer(self.request(Method::GET, url).timeout(limit), url).await
    }

    pub async fn post(&self, url: &str, body: &Value) -> anyhow::Result<Answer> {
        answer(self.request(Method::POST, url).json(body), url).await
    }

    /// A request to be completed, and then sent with [`answer`] or [`begin`].
    pub fn request(&self, method: Method, url: &str) -> RequestBuilder {
        self.0.request(method, url)
    }
}

/// Sends a request and reads all of its answer.
pub async fn answer(request: RequestBuilder, url: &str) -> anyhow::Result<Answer> {
    read(begin(request, url).await?).await
}

/// Sends a request; of its answer only the head is read.
pub async fn begin(request: RequestBuilder, url: &str) -> anyhow::Result<Response> {
    request.send().await.map_err(|error| unanswered(error, url))
}

/// Why no answer came, in our words: what a library says of it helps nobody.
fn unanswered(error: reqwest::Error, url: &str) -> anyhow::Error {
    if let Some(error) = causes(&error).find_map(|error| error.downcast_ref::<rustls::Error>()) {
        return anyhow!("{}", refused_by_tls(error, url));
    }
    if error.is_timeout() {
        return anyhow!("{url} did not answer in time");
    }
    let is_secure = url.starts_with("https:");
    if causes(&error).filter_map(|error| error.downcast_ref()).any(hyper::Error::is_parse) {
        return anyhow!("{url} answers, but not in HTTP: it seems to speak TLS; write https:// instead");
    }
    let broken = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset];
    let is_broken = |error: &io::Error| broken.contains(&error.kind());
    if is_secure
        && error.is_connect()
        && causes(&error).filter_map(|error| error.downcast_ref()).any(is_broken)
    {
        return anyhow!("{}", no_tls(url));
    }
    if error.is_connect() {
        return anyhow!("nobody answers at {url}: is the system running?");
    }
    if error.is_request() {
        return anyhow!("{url} broke the connection off and gave no answer");
    }
    anyhow::Error::new(error.without_url()).context(format!("request to {url}"))
}

fn refused_by_tls(error: &rustls::Error, url: &str) -> String {
    // Only what is no TLS at all is plain HTTP: nobody is told to send a token there in the clear for less.
    if matches!(error, rustls::Error::InvalidMessage(_)) {
        return no_tls(url);
    }
    let rustls::Error::InvalidCertificate(why) = error else {
        return format!("{url} speaks TLS, and it comes to no connection: {error}");
    };
    let now = |why| format!("the certificate of {url} {why}");
    if matches!(why, CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }) {
        return now("is for another name: ask by the name, or the address, that it is for");
    }
    if matches!(why, CertificateError::Expired | CertificateError::ExpiredContext { .. }) {
        return now("is out of date");
    }
    if matches!(why, CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. }) {
        return now("is not valid yet: is a clock wrong, here or where it was made?");
    }
    now("is not trusted: name a file with the certificate of its authority with --ca (SAGA_CA)")
}

fn no_tls(url: &str) -> String {
    format!("{url} answers, but not in TLS: it seems to speak plain HTTP; write http:// instead")
}

/// An error and what is behind it.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| {
        let error: &'a (dyn Error + 'static) = *error;
        // What is wrapped in an IO error is not its source.
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        wrapped.map(|error| error as &(dyn Error + 'static)).or_else(|| error.source())
    })
}

/// Reads the rest of an answer.
pub async fn read(mut response: Response) -> anyhow::Result<Answer> {
    let (status, url) = (response.status(), response.url().clone());
    let mut bytes = Vec::new();
    let broken = |error: reqwest::Error| match error.is_timeout() {
        true => unanswered(error, url.as_str()),
        false => anyhow::Error::new(error.without_url()).context(format!("answer of {url}")),
    };
    while let Some(chunk) = response.chunk().await.map_err(broken)? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MOST_BYTES {
            bail!("the answer of {url} has no end: is that one of the system?");
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
    async fn an_answer_without_end_is_read_to_a_bound() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("an address"));
        let answering = async {
            let (mut stream, _) = listener.accept().await.expect("somebody asks");
            assert!(stream.read(&mut [0; 1024]).await.expect("a request") > 0);
            let (mut sent, blanks) = (0, vec![b' '; 1024 * 1024]);
            let mut part = &b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"[..];
            while stream.write_all(part).await.is_ok() && sent < 4 * MOST_BYTES {
                part = &blanks;
                sent += part.len();
            }
            sent
        };
        let http = Http::new().expect("a client");
        let (answer, sent) = tokio::join!(http.get(&url), answering);
        assert!(answer.err().is_some_and(|error| error.to_string().contains("has no end")));
        assert!(sent < 2 * MOST_BYTES, "{sent}");
    }

    /// Who writes http:// instead sends a token for all to read.
    #[test]
    fn only_who_speaks_no_tls_is_said_to_speak_plain_http() {
        let told = |error| refused_by_tls(&error, "https://admin");
        let plain = told(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType));
        assert!(plain.contains("write http:// instead"), "{plain}");
        for error in [
            rustls::Error::AlertReceived(AlertDescription::HandshakeFailure),
            rustls::Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered),
            rustls::Error::InvalidCertificate(CertificateError::NotValidYet),
        ] {
            let told = told(error.clone());
            assert!(!told.contains("http://") && !told.contains("--ca"), "{error:?}: {told}");
        }
    }

    #[test]
    fn a_complaint_names_the_fields() {
        let says = |body| Answer { status: StatusCode::UNPROCESSABLE_ENTITY, body }.complaint();
        let errors = json!([{"field": "reason", "detail": "is needed"}, {"field": "rate", "detail": "is 0"}]);
        let fields = json!({"detail": "invalid: reason, rate", "errors": errors});
        assert_eq!(says(fields), "422 Unprocessable Entity: reason: is needed; rate: is 0");
        assert_eq!(says(json!({"detail": "no"})), "422 Unprocessable Entity: no");
        assert_eq!(says(Value::Null), "422 Unprocessable Entity");
    }
}
