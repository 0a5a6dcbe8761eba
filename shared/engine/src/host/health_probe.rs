//! Shell: probe of a running service's readiness from inside its container, which has neither a shell nor curl.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::http::{HttpSettings, Readiness};
use crate::unverified_tls;

/// Limit on the whole probe, name resolution included. Shorter than the usual time-out of container health checks.
const WITHIN: Duration = Duration::from_secs(2);
/// Maximum size of the answer.
const LONGEST_ANSWER_BYTES: u64 = 64 * 1024;

/// Asks the service with these settings for its readiness, by TLS where it serves that. Returns a summary of degraded
/// checks.
///
/// # Errors
/// When the service does not answer in time, or is not ready; the error names the failed checks.
pub(super) fn fetch_readiness(settings: &HttpSettings) -> BoxFuture<'_, anyhow::Result<String>> {
    Box::pin(fetch_within(WITHIN, settings))
}

async fn fetch_within(within: Duration, settings: &HttpSettings) -> anyhow::Result<String> {
    let bind = &settings.bind;
    let answer = timeout(within, answer(settings)).await;
    let answer = answer.with_context(|| format!("no whole answer from {bind} within {within:?}"))??;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).unwrap_or_default();
    let problems = serde_json::from_str(body).map(|readiness: Readiness| readiness.problems());
    match (status, problems.unwrap_or_default()) {
        ("200", none) if none.is_empty() => Ok("ready".to_owned()),
        ("200", problems) => Ok(format!("ready, although {problems}")),
        (_, none) if none.is_empty() => bail!("{bind} answers {status:?} without a reason"),
        (_, problems) => bail!("not ready: {problems}"),
    }
}

/// Reads the raw answer to the probe.
async fn answer(settings: &HttpSettings) -> anyhow::Result<String> {
    let address = address(&settings.bind).await?;
    let stream = TcpStream::connect(address).await;
    let stream = stream.with_context(|| format!("no server listens at {address}"))?;
    let answer = if settings.tls.cert.is_some() {
        let shaken = connector()?.connect(ServerName::from(address.ip()), stream).await;
        exchange(shaken.with_context(|| format!("no TLS with the server at {address}"))?).await
    } else {
        exchange(stream).await
    };
    answer.with_context(|| format!("no answer from {address}"))
}

/// Resolves the address to probe. An unspecified address becomes loopback.
async fn address(bind: &str) -> anyhow::Result<SocketAddr> {
    let no_address = || format!("http.bind {bind:?} is no address");
    let found = lookup_host(bind).await.with_context(no_address)?.next();
    let mut address = found.with_context(no_address)?;
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    Ok(address)
}

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> std::io::Result<String> {
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    let mut answer = Vec::new();
    stream.take(LONGEST_ANSWER_BYTES).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Makes a connector that accepts every certificate. The probe asks the service's own address, which its certificate
/// need not name. Nothing secret is sent.
fn connector() -> anyhow::Result<TlsConnector> {
    Ok(TlsConnector::from(Arc::new(unverified_tls::client_config()?)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Instant;

    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::crypto::aws_lc_rs;

    use super::*;
    use crate::host::http::HttpTlsSettings;

    /// Probes a server that sends `answer`, by TLS with a self-signed certificate if `is_tls`.
    async fn probe(answer: &str, is_tls: bool) -> Result<String, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let bind = format!("0.0.0.0:{}", listener.local_addr().expect("an address").port());
        let answering = async {
            let (stream, _) = listener.accept().await.expect("somebody asks");
            match is_tls {
                true => respond(acceptor().accept(stream).await.expect("a handshake"), answer).await,
                false => respond(stream, answer).await,
            }
        };
        let tls = HttpTlsSettings { cert: is_tls.then(|| "own.pem".into()), ..HttpTlsSettings::default() };
        let settings = HttpSettings { bind, tls, ..HttpSettings::default() };
        let (result, ()) = tokio::join!(fetch_readiness(&settings), answering);
        result.map_err(|error| format!("{error:#}"))
    }

    async fn respond(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &str) {
        let mut request = [0; 256];
        let read = stream.read(&mut request).await.expect("a request");
        assert!(request[..read].starts_with(b"GET /readyz "));
        stream.write_all(answer.as_bytes()).await.expect("the other side listens");
        stream.shutdown().await.expect("the other side listens");
    }

    fn acceptor() -> TlsAcceptor {
        let own = rcgen::generate_simple_self_signed(vec!["elsewhere.example".to_owned()]).expect("a key");
        let key = own.signing_key.serialize_der().try_into().expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)
            .expect("they belong together");
        TlsAcceptor::from(Arc::new(config))
    }

    #[tokio::test]
    async fn probe_succeeds_only_for_ready_service() {
        let late = r#"{"ready":true,"degraded":true,"checks":{"broker":{"state":"degraded","text":"not connected","since":"2026-01-01T00:00:00Z"}}}"#;
        let failed = r#"{"ready":false,"degraded":false,"checks":{"store":{"state":"failed","text":"is full","since":"2026-01-01T00:00:00Z"}}}"#;
        let http = |status: &str, body: &str| {
            format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\n\r\n{body}")
        };
        let well = r#"{"ready":true,"degraded":false,"checks":{}}"#;
        for is_tls in [false, true] {
            let probe = async |answer: &str| probe(answer, is_tls).await;
            assert_eq!(probe(&http("200 OK", well)).await, Ok("ready".to_owned()), "TLS: {is_tls}");
            let late = probe(&http("200 OK", late)).await;
            assert_eq!(late, Ok("ready, although broker: not connected".to_owned()));
            let failed = probe(&http("503 Service Unavailable", failed)).await;
            assert_eq!(failed, Err("not ready: store: is full".to_owned()), "TLS: {is_tls}");
            assert!(probe(&http("404 Not Found", "{}")).await.is_err_and(|why| why.contains("404")));
            assert!(probe("").await.is_err());
        }
    }

    #[tokio::test]
    async fn probe_fails_without_listener_or_tls() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let bind = listener.local_addr().expect("an address").to_string();
        let tls = HttpTlsSettings { cert: Some(Path::new("own.pem").into()), ..HttpTlsSettings::default() };
        let settings = HttpSettings { bind: bind.clone(), tls, ..HttpSettings::default() };
        let speaking = async {
            let (mut stream, _) = listener.accept().await.expect("somebody asks");
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.expect("sent");
        };
        let (result, ()) = tokio::join!(fetch_readiness(&settings), speaking);
        assert!(result.expect_err("it is no TLS").to_string().contains("no TLS"));
        drop(listener);
        let result = fetch_readiness(&HttpSettings { bind, ..HttpSettings::default() }).await;
        let result = result.expect_err("nobody is there");
        assert!(result.to_string().contains("no server listens"), "{result:#}");
    }

    /// A server that sends a byte now and then must not prolong the probe.
    #[tokio::test]
    async fn probe_times_out_while_answer_trickles() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let bind = listener.local_addr().expect("an address").to_string();
        let dripping = async {
            let (mut stream, _) = listener.accept().await.expect("somebody asks");
            while stream.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let (settings, started) = (HttpSettings { bind, ..HttpSettings::default() }, Instant::now());
        let asking = fetch_within(Duration::from_millis(300), &settings);
        let result = tokio::select! {
            result = asking => result,
            () = dripping => panic!("it goes on as long as somebody listens"),
            () = tokio::time::sleep(Duration::from_secs(20)) => panic!("it is given up"),
        };
        assert!(result.expect_err("it is given up").to_string().contains("within 300ms"));
        assert!(started.elapsed() >= Duration::from_millis(300));
    }

    #[tokio::test]
    async fn probe_uses_loopback_for_unspecified_address() {
        let of = async |bind: &str| address(bind).await.map(|address| address.to_string()).ok();
        assert_eq!(of("0.0.0.0:8081").await.as_deref(), Some("127.0.0.1:8081"));
        assert_eq!(of("[::]:8081").await.as_deref(), Some("[::1]:8081"));
        assert_eq!(of("127.0.0.1:9").await.as_deref(), Some("127.0.0.1:9"));
        assert_eq!(of("8081").await, None);
    }
}
