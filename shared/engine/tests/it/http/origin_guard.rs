//! Shell: origin guard: rejects forged requests of browsers, and names the reason and the setting.

use saga_engine::host::http::HttpSettings;

use super::server::{Answer, Server};

const WORD: &str = r#"{"word":"tea"}"#;

/// Sends `POST /echo` with these headers and the length.
async fn post(server: &Server, headers: &str) -> Answer {
    let length = WORD.len();
    server.request(format!("POST /echo HTTP/1.1\r\n{headers}content-length: {length}\r\n\r\n{WORD}")).await
}

async fn get(server: &Server, headers: &str) -> Answer {
    server.request(format!("GET /livez HTTP/1.1\r\n{headers}\r\n")).await
}

async fn bound_to(bind: &str, hosts: &[&str], origins: &[&str]) -> Server {
    let listed = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    Server::start(HttpSettings {
        bind: bind.to_owned(),
        allowed_hosts: listed(hosts),
        allowed_origins: listed(origins),
        ..HttpSettings::default()
    })
    .await
}

#[tokio::test]
async fn foreign_host_names_are_rejected() {
    let here = bound_to("127.0.0.1:0", &["Shop.Example"], &[]).await;
    let open = bound_to("0.0.0.0:0", &[], &[]).await;
    let any = bound_to("0.0.0.0:0", &["*"], &[]).await;
    for (host, statuses) in [
        ("localhost", [200, 200, 200]),
        ("LocalHost:8080", [200, 200, 200]),
        ("localhost.", [200, 200, 200]),
        ("order.localhost:8081", [200, 200, 200]),
        ("127.0.0.1:8080", [200, 200, 200]),
        ("127.9.9.9", [200, 200, 200]),
        ("[::1]:8080", [200, 200, 200]),
        ("shop.example", [200, 421, 200]),
        ("shop.example:443", [200, 421, 200]),
        ("192.0.2.7:8080", [421, 200, 200]),
        ("[2001:db8::7]", [421, 200, 200]),
        ("evil.example", [421, 421, 200]),
        ("localhost.evil.example", [421, 421, 200]),
        ("evil.example:8080", [421, 421, 200]),
        ("127.0.0.1.evil.example", [421, 421, 200]),
        ("", [400; 3]),
        ("a b", [400; 3]),
        ("localhost:port", [400; 3]),
        ("localhost:", [400; 3]),
        ("ada@localhost", [400; 3]),
        ("localhost/..", [400; 3]),
        ("localhost:99999", [400; 3]),
    ] {
        for (server, status) in [&here, &open, &any].into_iter().zip(statuses) {
            for answer in [
                get(server, &format!("host: {host}\r\n")).await,
                post(server, &format!("host: {host}\r\ncontent-type: application/json\r\n")).await,
            ] {
                assert_eq!(answer.status, status, "{host:?}: {answer:?}");
                if status == 421 {
                    assert!(answer.problem(421).contains("http.allowed_hosts"), "{answer:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn repeated_host_and_foreign_absolute_path_are_rejected() {
    let server = Server::start(HttpSettings::default()).await;
    assert!(get(&server, "").await.problem(400).contains("host"));
    assert!(get(&server, "host: localhost\r\nhost: localhost\r\n").await.problem(400).contains("repeated"));
    let absolute =
        |authority: &str| format!("GET http://{authority}/livez HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert_eq!(server.request(absolute("127.0.0.1")).await.status, 200);
    server.request(absolute("evil.example")).await.problem(421);
    // Of HTTP/1.0, which no browser speaks.
    assert_eq!(server.request("GET /livez HTTP/1.0\r\n\r\n").await.status, 200);
}

#[tokio::test]
async fn requests_of_foreign_origins_are_rejected() {
    let server = bound_to("127.0.0.1:0", &[], &["https://shop.example"]).await;
    let own = "host: localhost:8080\r\ncontent-type: application/json\r\n";
    for (headers, status) in [
        ("", 200),
        ("origin: http://localhost:8080\r\n", 200),
        ("origin: https://localhost:8080\r\nsec-fetch-site: same-origin\r\n", 200),
        ("origin: https://shop.example\r\nsec-fetch-site: cross-site\r\n", 200),
        ("sec-fetch-site: same-origin\r\n", 200),
        ("sec-fetch-site: none\r\n", 200),
        ("origin: null\r\n", 403),
        ("origin: \r\n", 403),
        ("origin: http://localhost\r\n", 403),
        ("origin: http://localhost:3000\r\n", 403),
        ("origin: https://shop.example.evil.example\r\n", 403),
        ("origin: https://evil.example\r\n", 403),
        ("sec-fetch-site: cross-site\r\n", 403),
        ("sec-fetch-site: same-site\r\n", 403),
        ("sec-fetch-site: cross-site\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\n", 403),
    ] {
        let answer = post(&server, &format!("{own}{headers}")).await;
        assert_eq!(answer.status, status, "{headers:?}: {answer:?}");
        if status == 403 {
            assert!(answer.problem(403).contains("http.allowed_origins"), "{answer:?}");
        }
    }
    let link = "sec-fetch-site: cross-site\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: ";
    for (headers, status) in [
        (format!("{link}document\r\n"), 200),
        (format!("{link}iframe\r\n"), 403),
        ("sec-fetch-site: cross-site\r\nsec-fetch-mode: no-cors\r\n".to_owned(), 403),
        ("origin: https://evil.example\r\n".to_owned(), 403),
    ] {
        assert_eq!(get(&server, &format!("host: localhost\r\n{headers}")).await.status, status, "{headers}");
    }
}

#[tokio::test]
async fn body_other_than_json_is_rejected() {
    let server = Server::start(HttpSettings::default()).await;
    for (headers, status) in [
        ("content-type: application/json\r\n", 200),
        ("content-type: Application/JSON; charset=\"UTF-8\"\r\n", 200),
        ("content-type: application/json;\r\n", 200),
        ("content-type: application/json\r\ncontent-encoding: identity\r\n", 200),
        ("", 415),
        ("content-type: \r\n", 415),
        ("content-type: text/plain\r\n", 415),
        ("content-type: text/plain; application/json\r\n", 415),
        ("content-type: application/x-www-form-urlencoded\r\n", 415),
        ("content-type: multipart/form-data; boundary=x\r\n", 415),
        ("content-type: application/merge-patch+json\r\n", 415),
        ("content-type: application/json; charset=utf-16\r\n", 415),
        ("content-type: application/jsonp\r\n", 415),
        ("content-type: application/json\r\ncontent-encoding: gzip\r\n", 415),
        ("content-type: application/json\r\ncontent-encoding: br, identity\r\n", 415),
        ("content-type: application/json\r\ncontent-type: application/json\r\n", 400),
        ("content-type: application/json\r\nidempotency-key: a\r\nidempotency-key: b\r\n", 400),
    ] {
        let answer = post(&server, &format!("host: localhost\r\n{headers}")).await;
        assert_eq!(answer.status, status, "{headers:?}: {answer:?}");
        if status != 200 {
            answer.problem(status);
        }
    }
    // A form with nothing in it is one as well.
    let form =
        "POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\ncontent-length: 0\r\n\r\n";
    server.request(form).await.problem(415);
}
