//! Shell: full disk of the broker: orders are rejected, and after a restart with free space everything continues.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use async_nats::jetstream;
use futures::TryStreamExt as _;
use reqwest::StatusCode;
use serde_json::Value;

use crate::system::{System, order_for, wait_until};

/// Size of the broker's disk.
const DISK: &str = "24m";
/// Upper limit in case another disk was mounted by mistake.
const ALL_BYTES: usize = 32 * 1024 * 1024;
/// More than a message needs, and far less than a quarter of the disk.
const SCRAP_BYTES: usize = 2 * 1024 * 1024;

/// nats-server does not recover from a full disk without a restart. Until then no order is accepted.
#[tokio::test]
async fn full_disk_of_the_broker_is_reported_rejects_orders_and_is_repaired_by_a_restart() {
    let (system, mut watched) = with_a_small_disk();
    let readiness = async || {
        let answer = system.http.get(system.url("order", "/readyz")).send().await.ok()?;
        Some((answer.status(), answer.json::<Value>().await.ok()?["checks"]["publish_stall"]["text"].clone()))
    };
    let ok = (StatusCode::OK, Value::from("ok"));
    // All of it: until a service has met the broker it rejects what would change something.
    wait_until("everything is ready", async || watched.log().contains("ready after")).await;
    wait_until("readiness reports it", async || readiness().await.as_ref() == Some(&ok)).await;
    system.list("pen", 1_000).await;
    assert_eq!(system.order(&[("pen", 1)], "tok_ok").await["status"], "CONFIRMED");

    let place = async || {
        let request = system.post("order", "/api/orders").json(&order_for(&[("pen", 1)], "tok_ok"));
        request.send().await.expect("an answer")
    };
    watched.fill("filler", ALL_BYTES);
    wait_until("orders are rejected", async || place().await.status() == StatusCode::SERVICE_UNAVAILABLE)
        .await;
    let rejected = place().await;
    let seconds =
        rejected.headers().get("Retry-After").and_then(|value| value.to_str().ok()?.parse::<u32>().ok());
    assert!(seconds.is_some_and(|seconds| seconds > 0), "{:?}", rejected.headers());
    let (status, publishing) = readiness().await.expect("an answer");
    let printed = publishing.as_str().expect("words").to_owned();
    assert!(
        status == StatusCode::OK && printed.starts_with("the broker takes no messages since "),
        "{printed}"
    );
    watched.remove("filler");
    watched.restart_broker();
    wait_until("orders are taken", async || place().await.status() == StatusCode::ACCEPTED).await;
    assert_eq!(system.order(&[("pen", 1)], "tok_ok").await["status"], "CONFIRMED");
    wait_until("it is ready again", async || readiness().await.as_ref() == Some(&ok)).await;
    system.assert_reconciled().await;
}

/// Regression: without a limit nats-server uses three quarters of the space that is free at its start. It rejected everything
/// while a quarter of its disk was free, and after a restart its streams exceeded the new limit.
#[tokio::test]
async fn streams_may_fill_the_broker_disk_before_and_after_a_restart() {
    let (system, mut watched) = with_a_small_disk();
    wait_until("everything is ready", async || watched.log().contains("ready after")).await;
    system.list("pen", 1_000).await;
    watched.fill("kept free", SCRAP_BYTES + SCRAP_BYTES / 2);
    let stored = store_all_it_takes(&system).await;
    let left = watched.fill("filler", ALL_BYTES);
    assert!(left < SCRAP_BYTES, "{left} bytes were left when it took no more");

    let place = async || {
        let request = system.post("order", "/api/orders").json(&order_for(&[("pen", 1)], "tok_ok"));
        request.send().await.expect("an answer")
    };
    wait_until("orders are rejected", async || place().await.status() == StatusCode::SERVICE_UNAVAILABLE)
        .await;
    watched.remove("filler");
    watched.remove("kept free");
    watched.restart_broker();
    wait_until("orders are taken", async || place().await.status() == StatusCode::ACCEPTED).await;
    assert_eq!(system.order(&[("pen", 1)], "tok_ok").await["status"], "CONFIRMED");
    assert_eq!(stored_by_admin(&system).await, stored, "exactly the acknowledged messages are stored");
    system.assert_reconciled().await;
}

/// Publishes until the broker rejects messages. Returns the number of messages in admin's stream.
async fn store_all_it_takes(system: &System) -> usize {
    let (client, _) = system.broker_as("admin").await;
    let broker = jetstream::new(client);
    loop {
        let payload = vec![b'x'; SCRAP_BYTES / 4];
        let sent = broker.publish("admin.replay_requested.nobody", payload.into()).await;
        match sent.expect("the connection is there").await {
            Ok(stored) => assert!(stored.sequence < 1_000, "the disk has room for all"),
            Err(_) => return stored_by_admin(system).await,
        }
    }
}

/// Number of messages in admin's stream, without those that record the position of its database.
async fn stored_by_admin(system: &System) -> usize {
    let (client, _) = system.broker_as("admin").await;
    let stream = jetstream::new(client).get_stream("ADMIN").await.expect("admin may ask");
    let counts = stream.info_with_subjects("admin.replay_requested.>").await.expect("the broker answers");
    counts.try_fold(0, async |sum, (_, count)| Ok(sum + count)).await.expect("the broker answers")
}

/// Creates a system whose broker has a small disk.
fn with_a_small_disk() -> (System, Watched) {
    let system = System::not_started();
    let settings = [
        "order.bus.publish_timeout=1s",
        "order.readiness.max_publish_stall=1s",
        "order.service.max_publish_stall=2s",
        "order.service.deadline=5m",
    ];
    // Without a broker's past, which stays behind on the other disk.
    system.sagactl(&system.up(&["--detach", "--no-seed"], &settings));
    system.sagactl(&["down"]);
    let watched = Watched::start(&system, &system.up(&["--no-seed"], &settings));
    (system, watched)
}

/// `sagactl up` in the foreground, in a shell with a small disk for the broker.
struct Watched {
    shell: Child,
    log: PathBuf,
    /// Path of the small disk outside the namespace.
    disk: PathBuf,
}

impl Watched {
    fn start(system: &System, up: &[String]) -> Self {
        let (disk, log) = (system.path().join("nats"), system.path().join("up.log"));
        let lines = File::create(&log).expect("a log");
        // The words of each line that comes are those of a command. Only commands of this shell see the disk.
        let script = format!(
            "mount -t tmpfs -o size={DISK} tmpfs \"$1\" && data=$2 sagactl=$3 && shift 3 || exit 1
             \"$sagactl\" --data \"$data\" \"$@\" &
             while read -r line; do \"$sagactl\" --data \"$data\" $line; done; wait"
        );
        let shell = private_mounts()
            .args([&script, "sh"])
            .arg(&disk)
            .arg(system.path())
            .arg(env!("CARGO_BIN_EXE_sagactl"))
            .args(up)
            .current_dir(crate::system::workspace())
            .stdin(Stdio::piped())
            .stdout(lines.try_clone().expect("a log"))
            .stderr(lines)
            .spawn()
            .expect("unshare runs");
        let root = Path::new("/proc").join(shell.id().to_string()).join("root");
        let disk = root.join(disk.strip_prefix("/").expect("an absolute path"));
        Self { shell, log, disk }
    }

    /// Restarts the broker as its runbook does.
    fn restart_broker(&mut self) {
        let input = self.shell.stdin.as_mut().expect("a pipe");
        input.write_all(b"stop nats\nstart nats\n").expect("the shell reads");
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).expect("the log")
    }

    /// Fills the disk up to a size. Returns the number of bytes.
    fn fill(&self, name: &str, at_most_bytes: usize) -> usize {
        let mut filler = File::create(self.disk.join(name)).expect("a file on the small disk");
        let mut written = 0;
        while written < at_most_bytes {
            match filler.write(&[0; 4096]) {
                Ok(bytes) => written += bytes,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::StorageFull);
                    return written;
                }
            }
        }
        assert!(written < ALL_BYTES, "the disk is not the small one");
        written
    }

    fn remove(&self, name: &str) {
        std::fs::remove_file(self.disk.join(name)).expect("it is there");
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("-- up: {}", self.log());
        }
        // It was started here, and it is waited for: no other process can be killed. What it has started the
        // system stops.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// Creates a shell with private mounts; its script is still missing.
fn private_mounts() -> Command {
    let ways: [&[&str]; 2] = [&["--user", "--map-root-user", "--mount"], &["--mount"]];
    for way in ways {
        let mut command = Command::new("unshare");
        command.args(way).args(["sh", "-c"]);
        let mut probe = Command::new("unshare");
        let probe = probe.args(way).args(["sh", "-c", "mount -t tmpfs tmpfs /mnt"]).output();
        if probe.is_ok_and(|output| output.status.success()) {
            return command;
        }
    }
    panic!(
        "this test needs a small disk of its own: install unshare (package util-linux), and run it as root or allow user \
         namespaces (sysctl kernel.unprivileged_userns_clone=1 user.max_user_namespaces=1000 \
         kernel.apparmor_restrict_unprivileged_userns=0)"
    );
}
