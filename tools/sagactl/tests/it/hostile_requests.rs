//! Shell: thousands of hostile requests are rejected with a problem document; none is stored.

use std::time::Duration;

use fastrand::Rng;
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::system::System;

const REQUESTS: usize = 5_000;
const AT_ONCE: usize = 16;
const SEED: u64 = 13;
/// Longer than the time limits of the servers.
const PATIENCE: Duration = Duration::from_secs(30);

/// Program, method, path, and a valid body (but the bank's lacks its key).
type Route = (&'static str, &'static str, &'static str, Value);

/// Category of hostile requests, and a function that makes one from a valid request.
type Category = (&'static str, fn(&mut Rng, &Route) -> Vec<u8>);

const CATEGORIES: [Category; 12] = [
    ("wrong types", wrong_type),
    ("huge numbers", huge_number),
    ("broken JSON", broken_json),
    ("deep nesting", deep_nesting),
    ("control characters", control_characters),
    ("unknown encodings", unknown_encoding),
    ("overlong heads", overlong_head),
    ("wrong methods", wrong_method),
    ("path tricks", path_trick),
    ("headers of others", header_of_others),
    ("no HTTP", no_http),
    ("half a request", half_a_request),
];

#[tokio::test]
async fn hostile_requests_break_and_store_nothing() {
    let system = System::start(&[]);
    system.list("pen", 10).await;
    system.assert_reconciled().await;
    let before = everything(&system).await;
    let (routes, mut dice) = (routes(), Rng::with_seed(SEED));
    let requests: Vec<_> = (0..REQUESTS)
        .map(|number| {
            let (category, make) = CATEGORIES[number % CATEGORIES.len()];
            let route = &routes[dice.usize(..routes.len())];
            (number, category, route.0, make(&mut dice, route))
        })
        .collect();
    let answers = futures::stream::iter(requests).map(|(number, category, program, request)| {
        let address = system.url(program, "").replace("http://", "");
        async move {
            let shown = String::from_utf8_lossy(&request[..request.len().min(300)]).into_owned();
            let what = format!("request {number} to {program} ({category}): {shown:?}");
            // A client that stops sending gets no answer.
            let says_more = !["half a request", "no HTTP"].contains(&category);
            let answer = timeout(PATIENCE, answer_to(&address, &request, says_more)).await;
            check(category, &answer.unwrap_or_else(|_| panic!("it hangs: {what}")), &what)
        }
    });
    let reported: usize = answers.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await.into_iter().sum();
    assert!(reported > REQUESTS * 9 / 10, "only {reported} were answered in words");
    assert_eq!(everything(&system).await, before, "nothing is stored");
    system.assert_reconciled().await;
    system.order(&[("pen", 1)], "tok_ok").await;
}

/// Returns 1 if the answer is a problem document.
#[track_caller]
fn check(category: &str, answer: &str, what: &str) -> usize {
    let status: u16 = answer.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
    assert!(status < 500, "{what}: {answer}");
    // A path may lead to something that is there, and half a request is worth no answer.
    let may_do = ["path tricks", "wrong methods"].contains(&category) && (200..400).contains(&status);
    if may_do || (category == "half a request" && status == 0) {
        return 0;
    }
    assert!(status >= 400, "{what}: {answer}");
    let is_head = what.contains("\"HEAD ");
    let is_problem = answer.to_ascii_lowercase().contains("content-type: application/problem+json");
    assert!(is_problem && (is_head || answer.contains("\"detail\":\"")), "{what}: {answer}");
    1
}

/// Reads everything that a program answers.
async fn answer_to(address: &str, request: &[u8], says_more: bool) -> String {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    // An early rejection may close the connection before the request is read.
    let _ = stream.write_all(request).await;
    if !says_more {
        let _ = stream.shutdown().await;
    }
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// Reads all stored resources.
async fn everything(system: &System) -> Vec<Value> {
    let mut all = Vec::new();
    for (program, path) in [
        ("order", "/internal/ledger"),
        ("order", "/internal/ledger/catalogue"),
        ("inventory", "/internal/ledger/stock"),
        ("inventory", "/internal/ledger/reservations"),
        ("payment", "/internal/ledger"),
        ("bank", "/v1/charges"),
        ("admin", "/api/admin/dlq/count"),
        ("admin", "/api/admin/dlq/redrive"),
        ("admin", "/api/admin/audit"),
        ("payment", "/internal/faults"),
        ("bank", "/internal/faults"),
    ] {
        all.push(system.get(program, path).await);
    }
    all
}

fn routes() -> Vec<Route> {
    let money = json!({"amount_minor": 100, "currency": "EUR"});
    let line = json!({"sku": "pen", "quantity": 1});
    let fault = json!({"kind": "delay", "step": "payment-processing", "delay_ms": 5});
    let order = json!({"customer": "ada", "lines": [line], "payment": {"token": "tok_ok"}});
    let product =
        json!({"sku": "ink", "name": "ink", "unit_price": money, "quantity": 5, "replenish": false});
    vec![
        ("order", "POST", "/api/orders", order),
        ("inventory", "POST", "/api/products", product),
        ("inventory", "POST", "/api/products/pen/restock", json!({"quantity": 5})),
        ("inventory", "PUT", "/api/products/pen/price", json!({"unit_price": money})),
        ("payment", "POST", "/internal/faults", fault),
        ("bank", "POST", "/v1/charges", json!({"amount": money, "token": "tok_ok", "reference": "x"})),
        ("admin", "POST", "/api/admin/dlq/replay", json!({"ids": [], "reason": "x"})),
        ("admin", "POST", "/api/admin/reconciliation/baselines", json!({"step": "none", "reason": "x"})),
    ]
}

/// Creates a request with a body, on a connection that is closed afterwards.
fn request((_, method, path, _): &Route, body: &[u8]) -> Vec<u8> {
    with_headers(method, path, "content-type: application/json\r\n", body)
}

fn with_headers(method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// Replaces one leaf of the body by the output of `make`, verbatim.
fn with_leaf(dice: &mut Rng, route: &Route, make: impl Fn(&mut Rng, &Value) -> Option<String>) -> Vec<u8> {
    const MARK: &str = "@here@";
    let mut body = route.3.clone();
    let leaves = leaves(&mut body);
    let made: Vec<_> =
        leaves.into_iter().filter_map(|leaf| make(dice, leaf).map(|made| (leaf, made))).collect();
    let Some(chosen) = (!made.is_empty()).then(|| dice.usize(..made.len())) else {
        return broken_json(dice, route);
    };
    let (leaf, made) = made.into_iter().nth(chosen).expect("one of them");
    *leaf = MARK.into();
    request(route, body.to_string().replace(&format!("{MARK:?}"), &made).as_bytes())
}

fn leaves(value: &mut Value) -> Vec<&mut Value> {
    match value {
        Value::Object(members) => members.values_mut().flat_map(leaves).collect(),
        Value::Array(items) => items.iter_mut().flat_map(leaves).collect(),
        leaf @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => vec![leaf],
    }
}

fn one_of<'a>(dice: &mut Rng, all: &[&'a str]) -> &'a str {
    all[dice.usize(..all.len())]
}

fn wrong_type(dice: &mut Rng, route: &Route) -> Vec<u8> {
    with_leaf(dice, route, |dice, leaf| {
        let wrong: &[&str] = match leaf {
            Value::String(_) => &["1", "true", "[]", "{}", "[\"a\"]", "1.5"],
            Value::Number(_) => &["\"1\"", "true", "[]", "{}", "1.5", "-1", "[1]"],
            Value::Bool(_) | Value::Null | Value::Array(_) | Value::Object(_) => {
                &["\"yes\"", "1", "[]", "{}"]
            }
        };
        Some(one_of(dice, wrong).to_owned())
    })
}

fn huge_number(dice: &mut Rng, route: &Route) -> Vec<u8> {
    with_leaf(dice, route, |dice, leaf| {
        let huge = ["1e400", "-1e400", "99999999999999999999999999", "18446744073709551616", "1e19", "-0.1"];
        leaf.is_number().then(|| one_of(dice, &huge).to_owned())
    })
}

fn broken_json(dice: &mut Rng, route: &Route) -> Vec<u8> {
    let whole = route.3.to_string().into_bytes();
    let body = match dice.usize(..5) {
        0 => whole[..dice.usize(1..whole.len())].to_vec(),
        1 => [&whole[..], b"}"].concat(),
        2 => (0..dice.usize(1..200)).map(|_| dice.u8(128..)).collect(),
        3 => b"{\"customer\":\"\xff\xfe\"}".to_vec(),
        _ => [&b"\xef\xbb\xbf"[..], &whole].concat(),
    };
    request(route, &body)
}

fn deep_nesting(dice: &mut Rng, route: &Route) -> Vec<u8> {
    let (depth, open) = (dice.usize(100..20_000), one_of(dice, &["[", "{\"a\":", "[{\"lines\":"]));
    request(route, open.repeat(depth.min(60_000 / open.len())).as_bytes())
}

fn control_characters(dice: &mut Rng, route: &Route) -> Vec<u8> {
    with_leaf(dice, route, |dice, leaf| {
        let control =
            ["\\u0000", "\\n", "\\r\\n", "\\u001b[2J", "\\u0007", "\\u202e", "\\u2028", "\u{7f}", "\n"];
        let text = leaf.as_str()?;
        // The bank's words are its own, and its key is missing.
        Some(format!("\"{text}{}x\"", one_of(dice, &control)))
    })
}

fn unknown_encoding(dice: &mut Rng, (_, method, path, body): &Route) -> Vec<u8> {
    let headers = [
        "content-type: application/json\r\ncontent-encoding: gzip\r\n",
        "content-type: application/json\r\ncontent-encoding: x-evil\r\n",
        "content-type: application/json; charset=utf-7\r\n",
        "content-type: text/plain\r\n",
        "content-type: application/x-www-form-urlencoded\r\n",
        "content-type: \r\n",
        "",
    ];
    with_headers(method, path, one_of(dice, &headers), body.to_string().as_bytes())
}

fn overlong_head(dice: &mut Rng, (_, method, path, _): &Route) -> Vec<u8> {
    let long = "x".repeat(dice.usize(20_000..60_000));
    match dice.usize(..4) {
        0 => with_headers(method, path, &format!("x-long: {long}\r\n"), b""),
        1 => with_headers(method, path, &"x-many: 1\r\n".repeat(dice.usize(200..2_000)), b""),
        2 => with_headers(method, &format!("{path}?{long}"), "", b""),
        _ => with_headers(method, path, &format!("{long}: 1\r\n"), b""),
    }
}

fn wrong_method(dice: &mut Rng, (_, _, path, _): &Route) -> Vec<u8> {
    let method = one_of(dice, &["DELETE", "PATCH", "TRACE", "OPTIONS", "HEAD", "BREW", "post", "CONNECT"]);
    // That of faults takes away all there are: none.
    let path = if method == "DELETE" {
        path.replace("/internal/faults", "/internal/outbox")
    } else {
        (*path).into()
    };
    with_headers(method, &path, "", b"")
}

fn path_trick(dice: &mut Rng, (_, _, path, _): &Route) -> Vec<u8> {
    let tricks = [
        "/../../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/..%2f..%2fetc%2fpasswd",
        "/%00",
        "/%ff%fe",
        "/%",
        "//",
        "/;jsessionid=1",
        "/\\..\\..",
        "?limit=-1",
        "?limit=99999999999999999999",
        "?limit=1&limit=2",
        "?cursor=%00",
        "?status=%ff",
        "?%00=1",
        "?customer=%0d%0ax-evil:1",
        "/'%20or%201=1--",
        "/01890000-0000-7000-8000-000000000001/events?cursor=-1",
        "/%F0%9F%92%A3",
    ];
    with_headers("GET", &format!("{path}{}", one_of(dice, &tricks)), "", b"")
}

fn header_of_others(dice: &mut Rng, (_, method, path, body): &Route) -> Vec<u8> {
    let headers = [
        "origin: https://evil.example\r\n",
        "origin: null\r\n",
        "sec-fetch-site: cross-site\r\n",
        "host: evil.example\r\n",
        "idempotency-key: a\r\nidempotency-key: b\r\n",
        "x-operator: ada\r\nx-operator: eve\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n",
        "content-length: 1\r\n",
        "content-type: text/plain\r\n",
    ];
    let headers = format!("content-type: application/json\r\n{}", one_of(dice, &headers));
    with_headers(method, path, &headers, body.to_string().as_bytes())
}

fn no_http(dice: &mut Rng, (_, method, path, _): &Route) -> Vec<u8> {
    match dice.usize(..6) {
        0 => (0..dice.usize(20..400)).map(|_| dice.u8(128..)).chain(*b"\r\n\r\n").collect(),
        1 => format!("{method} {path} HTTP/3.7\r\nhost: localhost\r\n\r\n").into_bytes(),
        2 => format!("{method} {path}\r\n\r\n").into_bytes(),
        3 => format!("{method} {path} HTTP/1.1\r\nno colon\r\n\r\n").into_bytes(),
        4 => {
            format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n").into_bytes()
        }
        _ => format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nx: a\0b\r\n\r\n").into_bytes(),
    }
}

fn half_a_request(dice: &mut Rng, route: &Route) -> Vec<u8> {
    let whole = request(route, route.3.to_string().as_bytes());
    whole[..dice.usize(1..whole.len())].to_vec()
}
