//! Shell: errors at start are reported in one line; temporary problems are waited for.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use client::http::client_builder;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::system::{System, free_ports, programs, text, wait_until};

/// Runs a service that must fail to start. Returns its one line of output.
fn refusal(service: &str, settings: &[String]) -> String {
    let mut command = Command::new(programs().join(service));
    for setting in settings {
        command.args(["--set", setting]);
    }
    let output = command.output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{service} {settings:?} started: {errors}");
    let own: Vec<_> = errors.lines().filter(|line| line.starts_with(&format!("{service}: "))).collect();
    assert_eq!(own.len(), 1, "one line: {errors}");
    own.join("")
}

/// A container's health check has only the program itself.
#[test]
fn healthy_command_reports_readiness_of_the_running_service() {
    let system = System::start(&[]);
    let bind = format!("http.bind={}", system.url("order", "").trim_start_matches("http://"));
    let healthy = || Command::new(programs().join("order")).args(["healthy", "--set", &bind]).output();
    let printed = healthy().expect("it runs");
    assert!(printed.status.success() && printed.stdout == b"order: ready\n", "{printed:?}");
    system.sagactl(&["stop", "order"]);
    let printed = healthy().expect("it runs");
    assert!(!printed.status.success() && printed.stdout.is_empty(), "{printed:?}");
    let errors = String::from_utf8_lossy(&printed.stderr);
    assert!(errors.starts_with("order: no server listens at ") && errors.lines().count() == 1, "{errors}");
}

fn store_in(folder: &Path, name: &str) -> String {
    format!("store.url=sqlite:{}", folder.join(name).display())
}

#[test]
fn unsupported_span_format_is_rejected_in_one_line() {
    for (variable, value, because) in [
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", "it has to be gzip or none"),
        ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "brotli", "it has to be gzip or none"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "it has to be http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "it has to be http/protobuf"),
    ] {
        let folder = TempDir::new().expect("a temporary folder");
        let store = store_in(folder.path(), "bank.db");
        let mut bank = Command::new(programs().join("bank"));
        bank.args([
            "--set",
            &store,
            "--set",
            "http.bind=127.0.0.1:0",
            "--set",
            "trace.endpoint=http://127.0.0.1:9",
        ]);
        let output = bank.env(variable, value).output().expect("it runs");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{variable}={value} started: {errors}");
        let own: Vec<_> = errors.lines().filter(|line| line.starts_with("bank: ")).collect();
        let [line] = own[..] else { panic!("one line: {errors}") };
        assert!(line.contains(variable) && line.contains(value) && line.contains(because), "{line}");
    }
}

#[test]
fn impossible_start_is_explained_in_one_line() {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path();
    std::fs::write(path.join("noise.db"), vec![7_u8; 8192]).expect("written");
    std::fs::write(path.join("file"), "").expect("written");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    let cases = [
        (vec!["engine.max_batch=0".to_owned()], "engine.max_batch"),
        (vec!["engine.batch=1".to_owned()], "batch"),
        (vec!["service.deadline=yesterday".to_owned()], "deadline"),
        (vec!["retention.inbox=1h".to_owned()], "retention.inbox"),
        (vec!["store.url=mysql://x".to_owned()], "store.url"),
        (vec!["store.url=postgres://db.example/order".to_owned()], "store.url: it names no user"),
        (
            vec![
                "store.url=postgres://order:secret@127.0.0.1:1/order".to_owned(),
                "store.connect_timeout=0s".to_owned(),
            ],
            "database postgres://order@127.0.0.1:1/order: database: connecting to the database: error connecting to server",
        ),
        (
            vec![
                "store.url=postgres://order@127.0.0.1:1/order".to_owned(),
                format!("store.password_file={}", path.join("none").display()),
            ],
            "none: is not there",
        ),
        (vec!["log.filter=!!".to_owned()], "log.filter"),
        (vec![store_in(path, "noise.db")], "noise.db"),
        (vec![store_in(path, "file/order.db")], "file/order.db"),
        (vec![store_in(path, "a.db"), format!("http.bind={address}")], "name another port in http.bind"),
        (vec!["http.bind=nonsense".to_owned()], "http.bind must be an address"),
        (vec!["http.bind=127.0.0.1:99999".to_owned()], "http.bind must be an address"),
        (
            vec![store_in(path, "c.db"), format!("http.tokens={}", path.join("nope.json").display())],
            "nope.json: is not there: name the file of the tokens",
        ),
        (
            vec![
                store_in(path, "b.db"),
                "http.bind=127.0.0.1:0".to_owned(),
                "bus.url=nonsense://x".to_owned(),
            ],
            "nonsense",
        ),
    ];
    for (settings, named) in cases {
        let line = refusal("order", &settings);
        assert!(line.contains(named), "{named} is not in: {line}");
    }
}

#[test]
fn second_process_on_a_database_is_rejected() {
    let system = System::start(&[]);
    let url = store_in(system.path(), "order/order.db");
    let line = refusal("order", &[url, "http.bind=127.0.0.1:0".to_owned()]);
    assert!(line.contains("another process holds it"), "{line}");
}

#[test]
fn second_up_changes_nothing() {
    let system = System::start(&[]);
    let again = system.try_sagactl(&["up", "--detach"]);
    assert!(!again.status.success(), "a second up is rejected");
    system.sagactl(&["status"]);
}

#[test]
fn invalid_setting_is_rejected_by_name_whether_or_not_the_system_runs() {
    let system = System::not_started();
    let cases = [
        ("order.service.deadlne=5s", "unknown field `deadlne`, expected one of `deadline`"),
        ("order.service.deadline=soon", "service.deadline"),
        ("admin.engine.max_batch=0", "engine.max_batch must be at least 1"),
        ("payment.resilience.bnk.timeout=1s", "resilience.bnk is of nothing here; there are"),
        ("order-2.service.deadline=5s", "no process order-2 here: name one of order"),
        ("shop.x=1", "unknown service"),
    ];
    let rejections = || {
        let rejection = |(set, because): (&str, &str)| {
            let up = system.try_sagactl(&system.up(&["--detach"], &[set]));
            let errors = text(&up.stderr);
            assert_eq!(up.status.code(), Some(2), "{set}: {errors}");
            assert!(errors.contains(because), "{set}: {errors}");
            errors
        };
        cases.map(rejection)
    };
    let stopped = rejections();
    assert!(!system.path().join("system.json").exists(), "nothing was started");
    system.sagactl(&system.up(&["--detach"], &[]));
    assert_eq!(rejections(), stopped);
}

#[test]
fn options_that_a_running_system_ignores_are_named() {
    let system = System::start(&["order.service.deadline=5s"]);
    let again = system.try_sagactl(&system.up(&["--detach"], &["order.service.deadline=5s"]));
    assert_eq!(again.status.code(), Some(3), "{}", text(&again.stderr));
    assert!(!text(&again.stdout).contains("not in effect"), "{}", text(&again.stdout));
    let mut other = system.command(&system.up(&["--tokens"], &["order.service.deadline=7s"]));
    let other = other.env("ORDER__LOG__FILTER", "debug").output().expect("sagactl runs");
    assert_eq!(other.status.code(), Some(3), "{}", text(&other.stderr));
    let ignored =
        "not in effect: --tokens, --set order.service.deadline=7s, ORDER__LOG__FILTER; stop the system with";
    assert!(text(&other.stdout).contains(ignored), "{}", text(&other.stdout));
}

/// Fake broker of another version.
#[test]
fn old_broker_version_is_rejected_in_one_line() {
    let folder = TempDir::new().expect("a temporary folder");
    let greeter = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = greeter.local_addr().expect("an address");
    std::thread::spawn(move || {
        while let Ok((mut caller, _)) = greeter.accept() {
            let info =
                r#"{"server_id":"x","version":"2.9.25","proto":1,"headers":true,"max_payload":1048576}"#;
            let _ = caller.write_all(format!("INFO {info}\r\nPONG\r\n").as_bytes());
            // Held open until the service leaves.
            let _ = caller.read_to_end(&mut Vec::new());
        }
    });
    let store = store_in(folder.path(), "order.db");
    let line =
        refusal("order", &[store, "http.bind=127.0.0.1:0".to_owned(), format!("bus.url=nats://{address}")]);
    assert!(line.contains("2.9.25") && line.contains("2.15"), "{line}");
}

#[tokio::test]
async fn requests_beyond_the_limit_are_shed_but_probes_are_not() {
    let system = System::start(&["order.http.max_requests=1"]);
    system.list("pen", 10).await;
    system.sagactl(&["stop", "payment"]);
    let held = system.post("order", "/api/orders").header("Prefer", "wait=20");
    let held = held.json(&crate::system::order_for(&[("pen", 1)], "tok_ok"));
    let mut status = 0;
    // It may meet the other request and be shed itself: then it comes again.
    let holding = wait_until("the held request is answered", async || {
        let again = held.try_clone().expect("a body that repeats");
        status = again.send().await.expect("an answer").status().as_u16();
        status != 503
    });
    let shedding = async {
        wait_until("the next request is shed", async || {
            let answer = system.http.get(system.url("order", "/api/orders")).send().await;
            answer.is_ok_and(|answer| answer.status() == 503 && answer.headers().contains_key("retry-after"))
        })
        .await;
        let probe = system.http.get(system.url("order", "/readyz")).send().await;
        assert_eq!(probe.expect("an answer").status(), 200);
        system.sagactl(&["start", "payment"]);
    };
    tokio::join!(holding, shedding);
    assert_eq!(status, 201);
}

/// Process that is killed when dropped.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It was started here, and it is waited for: no other process can be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn service_without_a_broker_is_not_ready_and_becomes_ready_later() {
    let folder = TempDir::new().expect("a temporary folder");
    let base = free_ports();
    let service = Command::new(programs().join("order"))
        .args(["--set", &format!("http.bind=127.0.0.1:{base}")])
        .args(["--set", &format!("bus.url=nats://127.0.0.1:{}", base + 1)])
        .args(["--set", &store_in(folder.path(), "order.db")])
        .stderr(Stdio::null())
        .spawn();
    let _service = Process(service.expect("it starts"));
    let http = client_builder().build().expect("a client");
    let url = format!("http://127.0.0.1:{base}/readyz");
    wait_until("the missing broker is reported", async || {
        let Ok(answer) = http.get(&url).send().await else { return false };
        let body: Value = answer.json().await.unwrap_or_default();
        body["checks"]["broker"]["text"] == "not connected" && body["ready"] == false
    })
    .await;
    let store = folder.path().join("nats");
    let broker = Command::new(nats_server())
        .args(["--addr", "127.0.0.1", "--jetstream", "--port", &(base + 1).to_string(), "--store_dir"])
        .arg(store)
        .stderr(Stdio::null())
        .spawn();
    let _broker = Process(broker.expect("it starts"));
    wait_until("it is ready", async || {
        http.get(&url).send().await.is_ok_and(|answer| answer.status().is_success())
    })
    .await;
}

/// Path of the broker, as the scripts find it.
fn nats_server() -> std::path::PathBuf {
    if let Some(named) = std::env::var_os("NATS_SERVER_BIN") {
        return named.into();
    }
    let fetched = crate::system::workspace().join("target/tools/nats-server");
    if fetched.exists() { fetched } else { "nats-server".into() }
}

/// A supervisor restarts what does not live, and an integrity check or a database server may take minutes.
#[tokio::test]
async fn service_that_opens_its_database_lives_and_is_not_ready() {
    // Accepts connections, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address");
    let base = free_ports();
    let service = Command::new(programs().join("order"))
        .args(["--set", &format!("http.bind=127.0.0.1:{base}")])
        .args(["--set", &format!("store.url=postgres://order@{address}/order")])
        .args(["--set", "store.connect_timeout=10m"])
        .stderr(Stdio::null())
        .spawn();
    let _service = Process(service.expect("it starts"));
    let http = client_builder().build().expect("a client");
    let ask = async |path: &str| http.get(format!("http://127.0.0.1:{base}{path}")).send().await;
    wait_until("it lives", async || ask("/livez").await.is_ok_and(|answer| answer.status() == 200)).await;
    let answer = ask("/readyz").await.expect("an answer");
    assert_eq!(answer.status(), 503);
    let readiness: Value = answer.json().await.expect("JSON");
    assert_eq!(readiness["checks"]["startup"]["text"], "opening the database", "{readiness}");
    let answer = ask("/api/orders").await.expect("an answer");
    assert!(answer.status() == 503 && answer.headers().contains_key("retry-after"), "{answer:?}");
}

/// A load balancer learns late that a service stops, and sends it requests until then.
#[tokio::test]
async fn stopping_service_is_not_ready_and_takes_connections_for_the_drain_time() {
    let folder = TempDir::new().expect("a temporary folder");
    let base = free_ports();
    let service = Command::new(programs().join("bank"))
        .args(["--set", &format!("http.bind=127.0.0.1:{base}"), "--set", "http.drain=3s"])
        .args(["--set", &store_in(folder.path(), "bank.db")])
        .stderr(Stdio::null())
        .spawn();
    let mut service = Process(service.expect("it starts"));
    let http = client_builder().build().expect("a client");
    let ask = async |path: &str| http.get(format!("http://127.0.0.1:{base}{path}")).send().await;
    wait_until("it is ready", async || ask("/readyz").await.is_ok_and(|answer| answer.status() == 200)).await;
    let pid = Pid::from_raw(i32::try_from(service.0.id()).expect("a pid"));
    let stopped = Instant::now();
    kill(pid, Signal::SIGTERM).expect("it is ours");
    let mut readiness = Value::Null;
    wait_until("it is not ready", async || {
        let answer = ask("/readyz").await.expect("connections are taken");
        let is_stopping = answer.status() == 503;
        assert!(!is_stopping || answer.headers()["connection"] == "close", "{answer:?}");
        readiness = answer.json().await.expect("JSON");
        is_stopping
    })
    .await;
    assert_eq!(readiness["checks"]["stopping"]["state"], "failed", "{readiness}");
    let listed = ask("/v1/charges").await.expect("connections are taken");
    assert_eq!(
        (listed.status().as_u16(), &listed.headers()["connection"]),
        (200, &"close".parse().expect("it"))
    );
    wait_until("it has ended", async || service.0.try_wait().expect("it is ours").is_some()).await;
    assert!(stopped.elapsed() >= Duration::from_secs(3), "after {:?}", stopped.elapsed());
    assert!(service.0.wait().expect("it ended").success());
}
