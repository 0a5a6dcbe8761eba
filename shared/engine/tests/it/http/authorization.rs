//! Shell: who may ask for what: nobody without a token where one is needed, and nobody beyond the role of his.

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
    guarded: &["/internal/"],
    rules: &[
        Rule { method: "GET", path: "/internal/who", role: Role::Viewer },
        Rule { method: "POST", path: "/internal/who", role: Role::Operator },
    ],
};

/// The tokens of three people, and of one whose time is over, in a file.
pub struct Kept {
    folder: TempDir,
    tokens: Tokens,
}

fn token(name: &str) -> Token {
    let mut bytes = [0; 32];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    Token::of(bytes)
}

impl Kept {
    pub fn new() -> Self {
        let mut kept = Self { folder: tempfile::tempdir().expect("a folder"), tokens: Tokens::default() };
        let past = Timestamp::now() - SignedDuration::from_secs(1);
        for (name, role, expires) in [
            ("vera", Role::Viewer, None),
            ("oscar", Role::Operator, Some(past + SignedDuration::from_hours(1))),
            ("ada", Role::Admin, None),
            ("late", Role::Admin, Some(past)),
        ] {
            kept.issue(name, role, expires, None);
        }
        kept.write();
        kept
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

async fn asks(server: &Server, method: &str, path: &str, headers: &str) -> Answer {
    server.answers(format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n")).await
}

pub fn bearer(name: &str) -> String {
    format!("authorization: Bearer {}\r\n", token(name).secret())
}

async fn asks_as(server: &Server, method: &str, name: &str) -> Answer {
    asks(server, method, "/internal/who", &bearer(name)).await
}

#[tokio::test]
async fn requests_need_no_token_while_authorization_is_off() {
    let server = Server::guarded(HttpSettings::default(), &ACCESS).await;
    for headers in [String::new(), bearer("vera"), "authorization: Basic eDp5\r\n".to_owned()] {
        assert_eq!(asks(&server, "DELETE", "/internal/who", &headers).await.body, "nobody knows");
    }
}

#[tokio::test]
async fn role_reaches_its_routes_and_rejection_names_required_role() {
    let kept = Kept::new();
    let server = kept.server().await;
    for (name, statuses) in [("vera", [200, 403, 403]), ("oscar", [200, 200, 403]), ("ada", [200, 200, 200])]
    {
        for (method, status) in ["GET", "POST", "DELETE"].into_iter().zip(statuses) {
            let answer = asks_as(&server, method, name).await;
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
        assert_eq!(asks(&server, "GET", path, &bearer("oscar")).await.status, 403, "{path}");
        assert_eq!(asks(&server, "GET", path, &bearer("ada")).await.status, 200, "{path}");
    }
    // What is nowhere is nowhere for everybody.
    for path in ["//internal/who", "/internal/who/", "/x/../internal/who", "/INTERNAL/who"] {
        assert_eq!(asks(&server, "GET", path, "").await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn missing_or_bad_token_is_rejected() {
    let kept = Kept::new();
    let server = kept.server().await;
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
        let answer = asks(&server, "GET", "/internal/who", &headers).await;
        assert!(answer.problem(401).contains(words), "{headers}: {answer:?}");
        assert!(answer.head.contains("www-authenticate: bearer"), "{answer:?}");
        assert!(!answer.body.contains(&secret[5..]), "{answer:?}");
    }
    let twice = asks(&server, "GET", "/internal/who", &(bearer("vera") + &bearer("ada"))).await;
    assert!(twice.problem(400).contains("authorization is there twice"), "{twice:?}");
    assert_eq!(asks(&server, "GET", &format!("/internal/who?access_token={secret}"), "").await.status, 401);
    let huge = format!("authorization: Bearer saga_{}\r\n", "A".repeat(20_000));
    asks(&server, "GET", "/internal/who", &huge).await.problem(431);
    // What is not guarded is open, with and without one.
    for headers in [String::new(), bearer("nobody")] {
        for path in ["/livez", "/readyz", "/metrics", "/docs/", "/openapi.json"] {
            assert_eq!(asks(&server, "GET", path, &headers).await.status, 200, "{path}");
        }
    }
}

#[tokio::test]
async fn metrics_beyond_loopback_need_viewer_and_probes_need_nothing() {
    let kept = Kept::new();
    let settings = HttpSettings { bind: "0.0.0.0:0".to_owned(), ..kept.settings() };
    let server = Server::guarded(settings, &ACCESS).await;
    assert_eq!(asks(&server, "GET", "/metrics", "").await.status, 401);
    assert_eq!(asks(&server, "GET", "/metrics", &bearer("vera")).await.status, 200);
    assert_eq!(asks(&server, "GET", "/livez", "").await.status, 200);
    assert_eq!(asks(&server, "GET", "/readyz", "").await.status, 200);
}

#[tokio::test]
async fn token_changes_apply_within_a_second_without_restart() {
    let mut kept = Kept::new();
    let server = kept.server().await;
    assert_eq!(asks_as(&server, "POST", "oscar").await.status, 200);
    kept.tokens.revoke("oscar").expect("it was issued");
    kept.issue("otto", Role::Operator, None, None);
    kept.write();
    let revoked = Instant::now();
    wait_until("oscar is refused", async || asks_as(&server, "POST", "oscar").await.status == 401).await;
    assert!(revoked.elapsed() < Duration::from_secs(1), "after {:?}", revoked.elapsed());
    assert_eq!(asks_as(&server, "POST", "otto").await.body, "otto, operator");
    // A file that cannot be read lets nobody in, as it may have revoked anybody.
    kept.put("{");
    wait_until("nobody is let in", async || asks_as(&server, "POST", "otto").await.status == 503).await;
    assert!(asks_as(&server, "POST", "otto").await.problem(503).contains("http.tokens"));
    assert_eq!(asks(&server, "GET", "/internal/who", "").await.status, 401);
    kept.write();
    wait_until("otto is let in again", async || asks_as(&server, "POST", "otto").await.status == 200).await;
}

#[tokio::test]
async fn rate_limited_token_delays_no_other() {
    let mut kept = Kept::new();
    kept.issue("busy", Role::Viewer, None, NonZeroU32::new(1_000));
    kept.write();
    let one = NonZeroU32::MIN;
    let burst = NonZeroU32::new(3).expect("three");
    let server = Server::guarded(HttpSettings { rate: one, burst, ..kept.settings() }, &ACCESS).await;
    for _ in 0..3 {
        assert_eq!(asks_as(&server, "GET", "vera").await.status, 200);
    }
    let refused = asks_as(&server, "GET", "vera").await;
    assert!(refused.problem(429).contains("vera asks too often"), "{refused:?}");
    assert!(refused.head.contains("retry-after: 1"), "{refused:?}");
    assert_eq!(asks_as(&server, "GET", "oscar").await.status, 200);
    for _ in 0..20 {
        assert_eq!(asks_as(&server, "GET", "busy").await.status, 200, "it has a rate of its own");
    }
    wait_until("vera may ask again", async || asks_as(&server, "GET", "vera").await.status == 200).await;
}

#[test]
fn unusable_files_are_rejected_by_setting_name() {
    let kept = Kept::new();
    let (file, missing) = (kept.folder.path().join("file"), kept.folder.path().join("missing"));
    let refusal = |text: &str, mode: u32| {
        std::fs::write(&file, text).expect("written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("it is ours");
        let settings =
            HttpSettings { tokens: Some(file.clone()), token: Some(file.clone()), ..HttpSettings::default() };
        let gate = Authorization::new(&settings, &ACCESS).err().map(|bad| bad.to_string());
        let outgoing = HttpClient::new(&settings).err().map(|bad| bad.to_string());
        (gate.unwrap_or_default(), outgoing.unwrap_or_default())
    };
    let (gate, outgoing) = refusal("nonsense", 0o600);
    assert!(gate.contains("http.tokens") && gate.contains("sagactl token create"), "{gate}");
    assert!(outgoing.contains("http.token ") && outgoing.contains("no token"), "{outgoing}");
    let (gate, outgoing) = refusal(&kept.tokens.written(), 0o644);
    assert!(gate.is_empty() && outgoing.contains("chmod 600"), "{gate} {outgoing}");
    assert!(refusal(&kept.tokens.written(), 0o660).0.contains("written by others"));
    assert!(refusal(token("ada").secret(), 0o600).1.is_empty());
    assert!(!refusal(token("ada").secret(), 0o600).0.contains(token("ada").secret()));
    let settings = HttpSettings { tokens: Some(missing), ..HttpSettings::default() };
    assert!(Authorization::new(&settings, &ACCESS).is_err());
}
