//! Shell: HTTP over TLS: trust, slow handshakes, renewed certificates.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use saga_engine::host::http::{self, HttpSettings, HttpTlsSettings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, IpAddr, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::server::Server;
use crate::support::{Authority, in_time, wait_until};

const LIVEZ: &str = "GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

fn tls(cert: &Path, key: &Path) -> HttpSettings {
    let tls = HttpTlsSettings { cert: Some(cert.to_owned()), key: Some(key.to_owned()), ca: None };
    HttpSettings { tls, ..HttpSettings::default() }
}

/// Connects as a client that trusts this authority.
async fn connected(server: &Server, authority: &Authority) -> std::io::Result<TlsStream<TcpStream>> {
    let pem = std::fs::read(authority.ca()).expect("a file");
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&pem).expect("a certificate")).expect("an authority");
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::IpAddress(IpAddr::from(server.address.ip()));
    let stream = TcpStream::connect(server.address).await?;
    in_time("the handshake", TlsConnector::from(Arc::new(config)).connect(name, stream)).await
}

/// Sends a request, and reads the whole answer.
async fn answered(server: &Server, authority: &Authority) -> std::io::Result<String> {
    let mut stream = connected(server, authority).await?;
    stream.write_all(LIVEZ.as_bytes()).await?;
    let mut answer = Vec::new();
    in_time("an answer", stream.read_to_end(&mut answer)).await?;
    Ok(String::from_utf8(answer).expect("text"))
}

#[tokio::test]
async fn only_client_trusting_the_authority_is_answered() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (cert, key) = authority.sign("server");
    let server = Server::start(tls(&cert, &key)).await;
    assert!(answered(&server, &authority).await.expect("an answer").starts_with("HTTP/1.1 200"));
    assert!(connected(&server, &other).await.is_err());
    // In the clear: neither a request nor noise is answered, and nothing breaks.
    for bytes in [LIVEZ.as_bytes(), b"\0\x01\x02", &[0x16; 40], &[0xff; 20_000]] {
        let mut plain = server.send(bytes).await;
        let received = plain.is_closed().await;
        assert!(!received.contains("HTTP") && !received.contains("alive"), "{received}");
    }
    assert!(answered(&server, &authority).await.is_ok());
}

#[tokio::test]
async fn slow_handshake_times_out_and_frees_connection() {
    let authority = Authority::new();
    let (cert, key) = authority.sign("server");
    let (header_timeout, max_connections) = (Duration::from_millis(300), 1);
    let server = Server::start(HttpSettings { header_timeout, max_connections, ..tls(&cert, &key) }).await;
    // The beginning of a client's hello, of which the rest never comes.
    let mut slow = server.send([0x16, 0x03, 0x01, 0x02, 0x00, 0x01]).await;
    assert!(!slow.is_closed().await.contains("HTTP"));
    wait_until("the seat is free again", async || answered(&server, &authority).await.is_ok()).await;
    // One more takes the only seat from who has not come further than that.
    let _slow = server.send([0x16, 0x03]).await;
    assert!(answered(&server, &authority).await.is_ok());
}

#[tokio::test]
async fn renewed_certificate_is_served_without_restart_and_broken_one_is_not() {
    let authority = Authority::new();
    let (cert, key) = authority.sign("server");
    let server = Server::start(tls(&cert, &key)).await;
    let shown = async || {
        let stream = connected(&server, &authority).await.ok()?;
        Some(stream.get_ref().1.peer_certificates()?.first()?.to_vec())
    };
    let before = shown().await.expect("a certificate");
    std::fs::write(&cert, "nonsense").expect("written");
    let (renewed_cert, renewed_key) = authority.sign("renewed");
    std::fs::rename(renewed_key, &key).expect("renamed");
    // Half done: what was there before is shown on, however often it is looked at.
    let half_done = Instant::now();
    wait_until("it was looked at again", async || {
        assert_eq!(shown().await.as_ref(), Some(&before));
        half_done.elapsed() > Duration::from_millis(600)
    })
    .await;
    std::fs::rename(renewed_cert, &cert).expect("renamed");
    wait_until("the new one is shown", async || shown().await.is_some_and(|now| now != before)).await;
}

#[tokio::test]
async fn unusable_or_mismatched_tls_files_are_rejected_by_setting_name() {
    let authority = Authority::new();
    let (cert, key) = authority.sign("server");
    let (_, other_key) = authority.sign("other");
    let nonsense = authority.folder.path().join("nonsense");
    std::fs::write(&nonsense, "nonsense").expect("written");
    let missing = authority.folder.path().join("missing");
    for (cert, key, words) in [
        (&missing, &key, "http.tls.cert"),
        (&nonsense, &key, "http.tls.cert"),
        (&cert, &nonsense, "http.tls.key"),
        (&cert, &other_key, "cannot be used with"),
    ] {
        let settings = HttpSettings { bind: "127.0.0.1:0".to_owned(), ..tls(cert, key) };
        let Err(error) = http::bind(&settings).await else { panic!("{words}") };
        assert!(error.to_string().contains(words), "{error}");
    }
    let half = HttpSettings {
        tls: HttpTlsSettings { cert: Some(cert), ..HttpTlsSettings::default() },
        ..HttpSettings::default()
    };
    assert!(half.check().is_err_and(|why| why.contains("belong together")));
}
