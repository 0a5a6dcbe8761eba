//! Shell: authorization: missing and bad tokens, roles, rate limits, and reloads of the token file.

use std::num::NonZeroU32;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use saga_core::access::{Access, Issued, Role, Rule, Token, Tokens};
use saga_engine::host::http::{Authorization, HttpClient, HttpSettings};
use tempfile::TempDir;
use tokio::time::Instant;

use super::server::{Answer, Server};
use crate::support::wait_until;

pub static ACCESS: Access = Access {
    rules: &[
        Rule { method: "GET", path: "/internal/who", role: Some(Role::Viewer) },
        Rule { method: "POST", path: "/internal/who", role: Some(Role::Operator) },
        Rule { method: "GET", path: "/large", role: None },
    ],
};

/// Token file with the tokens of three people, and an expired one.
pub struct TokenFile {
    folder: TempDir,
    tokens: Tokens,
}

fn token(name: &str) -> Token {
    let mut bytes = [0; 32];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    Token::of(bytes)
}

impl TokenFile {
    pub fn new() -> Self {
        let mut file = Self { folder: tempfile::tempdir().expect("a folder"), tokens: Tokens::default() };
        let past = Timestamp::now() - SignedDuration::from_secs(1);
        for (name, role, expires) in [
            ("vera", Role::Viewer, None),
            ("oscar", Role::Operator, Some(past + SignedDuration::from_hours(1))),
            ("ada", Role::Admin, None),
            ("late", Role::Admin, Some(past)),
        ] {
            file.issue(name, role, expires, None);
        }
        file.write();
        file
    }

    fn issue(&mut self, name: &str, role: Role, expires: Option<Timestamp>, rate: Option<NonZeroU32>) {
        let (sha256, created) = (token(name).digest(), Timestamp::now());
        let issued = Issued { name: name.to_owned(), role, sha256, created, expires, rate };
        self.tokens.issue(issued).expect("a good name");
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("tokens.json")
    }

    fn write(&self) {
        self.put(&self.tokens.written());
    }

    fn put(&self, text: &str) {
        let new = self.folder.path().join("new");
        std::fs::write(&new, text).expect("written");
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
        std::fs::rename(new, self.file()).expect("renamed");
    }

    pub fn settings(&self) -> HttpSettings {
        HttpSettings { tokens: Some(self.file()), ..HttpSettings::default() }
    }

    async fn server(&self) -> Server {
        Server::guarded(self.settings(), &ACCESS).await
    }
}

async fn request(server: &Server, method: &str, path: &str, headers: &str) -> Answer {
    server.request(format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n")).await
}

pub fn bearer(name: &str) -> String {
    format!("authorization: Bearer {}\r\n", token(name).secret())
}

async fn get_as(server: &Server, method: &str, name: &str) -> Answer {
    request(server, method, "/internal/who", &bearer(name)).await
}

#[tokio::test]
async fn requests_need_no_token_while_authorization_is_off() {
    let server = Server::guarded(HttpSettings::default(), &ACCESS).await;
    for headers in [String::new(), bearer("vera"), "authorization: Basic eDp5\r\n".to_owned()] {
        assert_eq!(request(&server, "DELETE", "/internal/who", &headers).await.body, "nobody knows");
    }
}

#[tokio::test]
async fn role_reaches_its_routes_and_rejection_names_required_role() {
    let file = TokenFile::new();
    let server = file.server().await;
    for (name, statuses) in [("vera", [200, 403, 403]), ("oscar", [200, 200, 403]), ("ada", [200, 200, 200])]
    {
        for (method, status) in ["GET", "POST", "DELETE"].into_iter().zip(statuses) {
            let answer = get_as(&server, method, name).await;
            assert_eq!(answer.status, status, "{method} as {name}: {answer:?}");
            if status == 200 {
                assert!(answer.body.starts_with(&format!("{name}, ")), "{answer:?}");
            } else {
                let needed = if method == "POST" { "the role operator" } else { "the role admin" };
                assert!(answer.problem(403).contains(needed), "{answer:?}");
                assert!(answer.head.contains("www-authenticate: bearer error=\"insufficient_scope\""));
            }
        }
    }
    // A route that no rule names is for admins, and so is one that only looks like a named one.
    for path in ["/internal/other", "/internal/%77ho", "/internal/WHO"] {
        assert_eq!(request(&server, "GET", path, &bearer("oscar")).await.status, 403, "{path}");
        assert_eq!(request(&server, "GET", path, &bearer("ada")).await.status, 200, "{path}");
    }
    // What is nowhere is nowhere for everybody.
    for path in ["//internal/who", "/internal/who/", "/x/../internal/who", "/INTERNAL/who"] {
        assert_eq!(request(&server, "GET", path, "").await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn missing_or_bad_token_is_rejected() {
    let file = TokenFile::new();
    let server = file.server().await;
    let good = token("vera");
    let secret = good.secret();
    for (headers, words) in [
        (String::new(), "role viewer"),
        (bearer("late"), "expired"),
        (bearer("nobody"), "unknown"),
        (format!("authorization: Basic {secret}\r\n"), "Bearer saga_"),
        (format!("authorization: {secret}\r\n"), "Bearer saga_"),
        (format!("authorization: Bearer {secret} {secret}\r\n"), "Bearer saga_"),
        (format!("authorization: Bearer {}\r\n", &secret[..40]), "Bearer saga_"),
        (format!("authorization: Bearer {secret}{}\r\n", "A".repeat(8_000)), "Bearer saga_"),
        ("authorization: Bearer saga_\u{e9}\r\n".to_owned(), "Bearer saga_"),
        ("authorization:\r\n".to_owned(), "Bearer saga_"),
        (format!("x-authorization: Bearer {secret}\r\n"), "role viewer"),
        (format!("cookie: token={secret}\r\n"), "role viewer"),
        ("x-operator: ada\r\n".to_owned(), "role viewer"),
    ] {
        let answer = request(&server, "GET", "/internal/who", &headers).await;
        assert!(answer.problem(401).contains(words), "{headers}: {answer:?}");
        assert!(answer.head.contains("www-authenticate: bearer"), "{answer:?}");
        assert!(!answer.body.contains(&secret[5..]), "{answer:?}");
    }
    let twice = request(&server, "GET", "/internal/who", &(bearer("vera") + &bearer("ada"))).await;
    assert!(twice.problem(400).contains("authorization is repeated"), "{twice:?}");
    assert_eq!(
        request(&server, "GET", &format!("/internal/who?access_token={secret}"), "").await.status,
        401
    );
    let huge = format!("authorization: Bearer saga_{}\r\n", "A".repeat(20_000));
    request(&server, "GET", "/internal/who", &huge).await.problem(431);
    // What is not guarded is open, with and without one.
    for headers in [String::new(), bearer("nobody")] {
        for path in ["/livez", "/readyz", "/metrics", "/docs/", "/openapi.json"] {
            assert_eq!(request(&server, "GET", path, &headers).await.status, 200, "{path}");
        }
    }
}

#[tokio::test]
async fn metrics_beyond_loopback_need_viewer_and_probes_need_nothing() {
    let file = TokenFile::new();
    let settings = HttpSettings { bind: "0.0.0.0:0".to_owned(), ..file.settings() };
    let server = Server::guarded(settings, &ACCESS).await;
    assert_eq!(request(&server, "GET", "/metrics", "").await.status, 401);
    assert_eq!(request(&server, "GET", "/metrics", &bearer("vera")).await.status, 200);
    assert_eq!(request(&server, "GET", "/livez", "").await.status, 200);
    assert_eq!(request(&server, "GET", "/readyz", "").await.status, 200);
}

#[tokio::test]
async fn token_changes_apply_within_a_second_without_restart() {
    let mut file = TokenFile::new();
    let server = file.server().await;
    assert_eq!(get_as(&server, "POST", "oscar").await.status, 200);
    file.tokens.revoke("oscar").expect("it was issued");
    file.issue("otto", Role::Operator, None, None);
    file.write();
    let revoked = Instant::now();
    wait_until("oscar is refused", async || get_as(&server, "POST", "oscar").await.status == 401).await;
    assert!(revoked.elapsed() < Duration::from_secs(1), "after {:?}", revoked.elapsed());
    assert_eq!(get_as(&server, "POST", "otto").await.body, "otto, operator");
    // A file that cannot be read lets nobody in, as it may have revoked anybody.
    file.put("{");
    wait_until("nobody is let in", async || get_as(&server, "POST", "otto").await.status == 503).await;
    assert!(get_as(&server, "POST", "otto").await.problem(503).contains("http.tokens"));
    assert_eq!(request(&server, "GET", "/internal/who", "").await.status, 401);
    file.write();
    wait_until("otto is let in again", async || get_as(&server, "POST", "otto").await.status == 200).await;
}

#[tokio::test]
async fn rate_limited_token_delays_no_other() {
    let mut file = TokenFile::new();
    file.issue("busy", Role::Viewer, None, NonZeroU32::new(1_000));
    file.write();
    let one = NonZeroU32::MIN;
    let burst = NonZeroU32::new(3).expect("three");
    let server = Server::guarded(HttpSettings { rate: one, burst, ..file.settings() }, &ACCESS).await;
    for _ in 0..3 {
        assert_eq!(get_as(&server, "GET", "vera").await.status, 200);
    }
    let rejected = get_as(&server, "GET", "vera").await;
    assert!(rejected.problem(429).contains("vera asks too often"), "{rejected:?}");
    assert!(rejected.head.contains("retry-after: 1"), "{rejected:?}");
    assert_eq!(get_as(&server, "GET", "oscar").await.status, 200);
    for _ in 0..20 {
        assert_eq!(get_as(&server, "GET", "busy").await.status, 200, "it has a rate of its own");
    }
    wait_until("vera may ask again", async || get_as(&server, "GET", "vera").await.status == 200).await;
}

#[test]
fn unusable_files_are_rejected_by_setting_name() {
    let tokens = TokenFile::new();
    let (file, missing) = (tokens.folder.path().join("file"), tokens.folder.path().join("missing"));
    let rejection = |text: &str, mode: u32| {
        std::fs::write(&file, text).expect("written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("it is ours");
        let settings =
            HttpSettings { tokens: Some(file.clone()), token: Some(file.clone()), ..HttpSettings::default() };
        let authorization = Authorization::new(&settings, &ACCESS).err().map(|bad| bad.to_string());
        let http_client = HttpClient::new(&settings).err().map(|bad| bad.to_string());
        (authorization.unwrap_or_default(), http_client.unwrap_or_default())
    };
    let (authorization, http_client) = rejection("nonsense", 0o600);
    assert!(
        authorization.contains("http.tokens") && authorization.contains("sagactl token create"),
        "{authorization}"
    );
    assert!(http_client.contains("http.token ") && http_client.contains("no token"), "{http_client}");
    let (authorization, http_client) = rejection(&tokens.tokens.written(), 0o644);
    assert!(authorization.is_empty() && http_client.contains("chmod 600"), "{authorization} {http_client}");
    assert!(rejection(&tokens.tokens.written(), 0o660).0.contains("written by others"));
    assert!(rejection(token("ada").secret(), 0o600).1.is_empty());
    assert!(!rejection(token("ada").secret(), 0o600).0.contains(token("ada").secret()));
    let settings = HttpSettings { tokens: Some(missing), ..HttpSettings::default() };
    assert!(Authorization::new(&settings, &ACCESS).is_err());
}
