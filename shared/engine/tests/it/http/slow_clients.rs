//! Shell: slow and idle clients: time-outs of heads, bodies, idle connections and unread answers, eviction, probes,
//! stop.

use std::time::Duration;

use futures::future::join_all;
use saga_engine::host::http::{HttpSettings, STOP_WITHIN};
use tokio::time::Instant;

use super::server::Server;
use crate::support::wait_until;

const LIVEZ: &str = "GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n";
const ECHO: &str = "POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
const SHORT: Duration = Duration::from_millis(300);

fn echo(word: &str) -> String {
    let body = format!(r#"{{"word":"{word}"}}"#);
    format!("{ECHO}content-length: {}\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn slow_head_is_answered_with_408_and_closed() {
    let server = Server::start(HttpSettings { header_timeout: SHORT, ..HttpSettings::default() }).await;
    let mut slow = server.send("GET /livez HTTP/1.1\r\nhost: loc").await;
    assert!(slow.answer().await.problem(408).contains("head"));
    assert_eq!(slow.is_closed().await, "");
    // The same on a connection that has been answered before.
    let mut second = server.send(LIVEZ).await;
    assert_eq!(second.answer().await.status, 200);
    second.send("GET /li").await;
    second.answer().await.problem(408);
}

#[tokio::test]
async fn slow_body_is_answered_with_408() {
    let server = Server::start(HttpSettings { body_timeout: SHORT, ..HttpSettings::default() }).await;
    for framing in ["content-length: 40", "transfer-encoding: chunked"] {
        let mut slow = server.send(format!("{ECHO}{framing}\r\n\r\n")).await;
        let answer = slow.answer().await;
        assert!(answer.problem(408).contains("http.body_timeout"), "{answer:?}");
        assert_eq!(slow.is_closed().await, "");
    }
}

#[tokio::test]
async fn idle_connection_is_closed_without_answer() {
    let server = Server::start(HttpSettings { idle_timeout: SHORT, ..HttpSettings::default() }).await;
    let mut silent = server.send("").await;
    let mut answered_once = server.send(LIVEZ).await;
    assert_eq!(answered_once.answer().await.status, 200);
    assert_eq!((silent.is_closed().await, answered_once.is_closed().await), (String::new(), String::new()));
}

#[tokio::test]
async fn unread_answer_times_out_and_frees_connection() {
    let settings = HttpSettings { write_timeout: SHORT, max_connections: 1, ..HttpSettings::default() };
    let server = Server::start(settings).await;
    let mut lazy = server.send("GET /large HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    lazy.read_some().await;
    server.request(echo("tea")).await.problem(503);
    wait_until("the seat is free again", async || server.request(echo("tea")).await.status == 200).await;
    assert!(lazy.is_closed().await.len() < 64 << 20, "it was cut short");
}

#[tokio::test]
async fn longest_idle_connection_is_evicted_when_full() {
    let server = Server::start(HttpSettings { max_connections: 10, ..HttpSettings::default() }).await;
    let half = "POST /echo HTTP/1.1\r\nhost: localhost\r\n";
    let mut idle = join_all((0..50).map(|_| server.send(""))).await;
    let mut half_open = join_all((0..50).map(|_| server.send(half))).await;
    let half_sent = format!("{ECHO}content-length: 40\r\n\r\n{{");
    let _bodies = join_all((0..50).map(|_| server.send(&half_sent))).await;
    for _ in 0..50 {
        assert_eq!(server.request(echo("tea")).await.body, "tea");
        assert_eq!(server.request(LIVEZ).await.status, 200);
    }
    assert_eq!(idle[0].is_closed().await, "");
    assert!(half_open[0].answer().await.problem(503).contains("all connections are in use"));
}

#[tokio::test]
async fn probes_are_answered_while_requests_occupy_every_connection() {
    let server = Server::start(HttpSettings { max_connections: 3, ..HttpSettings::default() }).await;
    let mut pending = server.hold(3).await;
    let rejected = server.request(echo("tea")).await;
    assert!(rejected.problem(503).contains("all connections are in use"), "{rejected:?}");
    assert!(rejected.head.contains("connection: close") && rejected.head.contains("retry-after: 1"));
    // Not even those who sit on the seats for probes keep them.
    let _idle = join_all((0..200).map(|_| server.send(""))).await;
    for probe in ["/livez", "/readyz", "/metrics"] {
        let answer = server.request(format!("GET {probe} HTTP/1.1\r\nhost: localhost\r\n\r\n")).await;
        assert_eq!(answer.status, 200, "{probe}: {answer:?}");
    }
    server.release();
    for connection in &mut pending {
        assert_eq!(connection.answer().await.body, "let go");
    }
    assert_eq!(server.request(echo("tea")).await.body, "tea");
}

/// A reconciliation may take ten minutes.
#[tokio::test]
async fn route_with_extended_limit_may_exceed_timeout() {
    let timeout = Duration::from_millis(20);
    let server = Server::start(HttpSettings { timeout, ..HttpSettings::default() }).await;
    let mut long = server.hold_at("/long", 1).await;
    let pending = server.request("GET /held HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert!(pending.problem(503).contains("not done within 20ms"), "{pending:?}");
    server.release();
    assert_eq!(long[0].answer().await.body, "let go");
}

#[tokio::test]
async fn malformed_request_gets_problem_document() {
    let server = Server::start(HttpSettings::default()).await;
    let long = "x".repeat(20_000);
    for (bytes, status) in [
        ("\0\x01\x02\x03\r\n\r\n".to_owned(), 400),
        ("GET\r\n\r\n".to_owned(), 400),
        ("GET /livez HTTP/9.9\r\n\r\n".to_owned(), 400),
        ("GET /livez HTTP/1.1\r\nhost localhost\r\n\r\n".to_owned(), 400),
        ("GET /livez HTTP/1.1\r\nhost: a\r\ncontent-length: x\r\n\r\n".to_owned(), 400),
        ("GET /livez HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n".to_owned(), 400),
        (format!("GET /livez HTTP/1.1\r\nhost: a\r\nlong: {long}\r\n\r\n"), 431),
        (format!("GET /livez HTTP/1.1\r\nhost: a\r\n{}\r\n", "many: x\r\n".repeat(200)), 431),
        (format!("GET /{long} HTTP/1.1\r\nhost: a\r\n\r\n"), 431),
        (format!("{ECHO}content-length: 100000\r\n\r\n"), 413),
        (format!("{ECHO}transfer-encoding: chunked\r\n\r\n{}", "4000\r\n".to_owned() + &long), 400),
    ] {
        let answer = server.request(&bytes).await;
        answer.problem(status);
        assert!(answer.head.contains("connection: close") || status == 413, "{answer:?}");
    }
}

/// Hyper ignores the length, a proxy may not: then the body holds a request that the proxy has not seen.
#[tokio::test]
async fn ambiguous_framing_is_rejected_and_closes_connection() {
    let server = Server::start(HttpSettings::default()).await;
    let hidden = "0\r\n\r\nGET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let length = format!("content-length: {}", hidden.len());
    for (headers, status) in [
        (format!("{length}\r\ntransfer-encoding: chunked"), 400),
        (format!("transfer-encoding: chunked\r\n{length}"), 400),
        (format!("{length}\r\nTransfer-Encoding: gzip"), 400),
        ("transfer-encoding: chunked, chunked".to_owned(), 400),
        ("transfer-encoding: chunked, identity".to_owned(), 501),
        ("transfer-encoding: gzip".to_owned(), 501),
        ("transfer-encoding: gzip, chunked".to_owned(), 501),
        ("transfer-encoding: gzip\r\ntransfer-encoding: chunked".to_owned(), 501),
    ] {
        // Alone, and in one packet with the request before it.
        for before in ["", LIVEZ] {
            let mut connection = server.send(format!("{before}{ECHO}{headers}\r\n\r\n{hidden}")).await;
            let text = connection.is_closed().await;
            let answers: Vec<_> = text.split("HTTP/1.1 ").skip(1).collect();
            assert_eq!(answers.len(), if before.is_empty() { 1 } else { 2 }, "{headers}: {text}");
            let last = answers.last().expect("an answer");
            assert!(last.starts_with(&status.to_string()), "{headers}: {last}");
            assert!(last.contains("connection: close") && last.contains("problem+json"), "{last}");
        }
    }
}

/// Requests behind a chunked body are not examined.
#[tokio::test]
async fn chunked_request_is_answered_and_closes_connection() {
    let server = Server::start(HttpSettings::default()).await;
    let body = r#"{"word":"tea"}"#;
    let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n{LIVEZ}", body.len());
    let mut connection = server.send(format!("{ECHO}transfer-encoding: chunked\r\n\r\n{chunks}")).await;
    let answer = connection.answer().await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "tea"));
    assert!(answer.head.contains("connection: close"), "{answer:?}");
    assert_eq!(connection.is_closed().await, "");
}

#[tokio::test]
async fn stop_finishes_requests_and_closes_idle_connections() {
    let server = Server::start(HttpSettings { drain: Duration::ZERO, ..HttpSettings::default() }).await;
    let mut pending = server.hold(1).await;
    let mut half_open = server.send("GET /livez HTTP/1.1\r\nho").await;
    let mut idle = server.send(LIVEZ).await;
    assert_eq!(idle.answer().await.status, 200);
    let started = Instant::now();
    server.stop.cancel();
    half_open.answer().await.problem(503);
    assert_eq!(idle.is_closed().await, "");
    server.release();
    assert_eq!(pending[0].answer().await.body, "let go");
    server.ended().await;
    assert!(started.elapsed() < STOP_WITHIN, "nobody else was waited for");
}

/// A load balancer learns late that a service stops.
#[tokio::test]
async fn stopping_server_accepts_connections_for_the_drain_time_and_closes_each_after_its_answer() {
    let drain = Duration::from_secs(2);
    let server = Server::start(HttpSettings { drain, ..HttpSettings::default() }).await;
    let mut kept = server.send(LIVEZ).await;
    let before = kept.answer().await;
    assert!(before.status == 200 && !before.head.contains("connection: close"), "{before:?}");
    let stopped = Instant::now();
    server.stop.cancel();
    kept.send(LIVEZ).await;
    for mut connection in [kept, server.send(echo("tea")).await] {
        let answer = connection.answer().await;
        assert!(answer.status == 200 && answer.head.contains("connection: close"), "{answer:?}");
        assert_eq!(connection.is_closed().await, "");
    }
    let address = server.address;
    server.ended().await;
    assert!(stopped.elapsed() >= drain, "after {:?}", stopped.elapsed());
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn abandoned_request_is_counted_as_499() {
    let server = Server::start(HttpSettings::default()).await;
    let pending = server.hold(1).await;
    let counted = async || {
        let mut scrape = server.send("GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        let text = scrape.answer().await.body;
        text.lines().filter(|line| line.contains("route=\"/held\"")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(counted().await, [""; 0], "it is under way");
    drop(pending);
    let hung_up = "http_request_total{method=\"GET\",route=\"/held\",status=\"499\"} 1".to_owned();
    wait_until("it is counted", async || counted().await.contains(&hung_up)).await;
    let took = "http_request_duration_seconds_count{method=\"GET\",route=\"/held\"} 1".to_owned();
    assert!(counted().await.contains(&took));
}
