//! Shell: asks a running service whether it is ready, in its own container: neither a shell nor curl is needed there.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::http::{HttpSettings, Readiness};

/// Shorter than whoever asks is patient with a check.
const WITHIN: Duration = Duration::from_secs(2);
/// More than any answer to this question has.
const LONGEST_ANSWER_BYTES: u64 = 64 * 1024;

/// Asks the service that runs with these settings. It is ready when this succeeds.
///
/// # Errors
/// When it does not answer, or says that it is not ready: what it complains of.
pub(super) fn ask(settings: &HttpSettings) -> anyhow::Result<String> {
    let address = address(&settings.bind)?;
    let connect = || TcpStream::connect_timeout(&address, WITHIN);
    let mut stream = connect().with_context(|| format!("nobody listens at {address}"))?;
    if settings.tls.cert.is_some() {
        // Whoever shakes hands by its own certificate would learn no more than that.
        return Ok(format!("listens at {address}, with TLS: it was asked no further"));
    }
    let answer = exchange(&mut stream).with_context(|| format!("no answer from {address}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).unwrap_or_default();
    let complaints = serde_json::from_str(body).map(|readiness: Readiness| readiness.complaints());
    match (status, complaints.unwrap_or_default()) {
        ("200", none) if none.is_empty() => Ok("ready".to_owned()),
        ("200", complaints) => Ok(format!("ready, although {complaints}")),
        (_, none) if none.is_empty() => bail!("{address} answers {status:?}, and does not say why"),
        (_, complaints) => bail!("not ready: {complaints}"),
    }
}

/// Where one reaches, on this machine, who listens there.
fn address(bind: &str) -> anyhow::Result<SocketAddr> {
    let mut found = bind.to_socket_addrs().with_context(|| format!("http.bind {bind:?} is no address"))?;
    let mut address = found.next().with_context(|| format!("http.bind {bind:?} is no address"))?;
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    Ok(address)
}

fn exchange(stream: &mut TcpStream) -> std::io::Result<String> {
    stream.set_read_timeout(Some(WITHIN))?;
    stream.set_write_timeout(Some(WITHIN))?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(LONGEST_ANSWER_BYTES).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Asks somebody who answers this.
    fn hear(answer: &'static str) -> Result<String, String> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let bind = format!("0.0.0.0:{}", listener.local_addr().expect("an address").port());
        let answering = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("somebody asks");
            let mut asked = [0; 256];
            let read = stream.read(&mut asked).expect("a request");
            assert!(asked[..read].starts_with(b"GET /readyz "));
            stream.write_all(answer.as_bytes()).expect("the other side listens");
        });
        let said = ask(&HttpSettings { bind, ..HttpSettings::default() });
        answering.join().expect("it was asked");
        said.map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn who_says_that_it_is_ready_is_and_nobody_else() {
        let late = r#"{"ready":true,"degraded":true,"checks":{"broker":{"state":"degraded","text":"not connected","since":"2026-01-01T00:00:00Z"}}}"#;
        let failed = r#"{"ready":false,"degraded":false,"checks":{"store":{"state":"failed","text":"is full","since":"2026-01-01T00:00:00Z"}}}"#;
        let http = |status: &str, body: &str| -> &'static str {
            format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\n\r\n{body}").leak()
        };
        let well = r#"{"ready":true,"degraded":false,"checks":{}}"#;
        assert_eq!(hear(http("200 OK", well)), Ok("ready".to_owned()));
        assert_eq!(hear(http("200 OK", late)), Ok("ready, although broker: not connected".to_owned()));
        assert_eq!(
            hear(http("503 Service Unavailable", failed)),
            Err("not ready: store: is full".to_owned())
        );
        assert!(hear(http("404 Not Found", "{}")).is_err_and(|why| why.contains("404")));
        assert!(hear("").is_err());
    }

    #[test]
    fn who_is_not_there_is_not_ready() {
        let closed = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let bind = closed.expect("a port").to_string();
        let said = ask(&HttpSettings { bind, ..HttpSettings::default() }).expect_err("nobody is there");
        assert!(said.to_string().contains("nobody listens"), "{said:#}");
    }

    #[test]
    fn it_asks_on_this_machine_wherever_the_service_listens() {
        let of = |bind: &str| address(bind).map(|address| address.to_string()).ok();
        assert_eq!(of("0.0.0.0:8081").as_deref(), Some("127.0.0.1:8081"));
        assert_eq!(of("[::]:8081").as_deref(), Some("[::1]:8081"));
        assert_eq!(of("127.0.0.1:9").as_deref(), Some("127.0.0.1:9"));
        assert_eq!(of("8081"), None);
    }
}
