//! Shell: what needs somebody is told by itself, within seconds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::operator::PATIENT;
use crate::system::{System, wait_until};

/// What must stand nowhere that people look.
const SECRET: &str = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// The notices that came, and whether the next are answered.
#[derive(Default)]
struct Heard {
    notices: Vec<Value>,
    is_deaf: bool,
}

/// Takes notices, each on a connection of its own.
async fn receive(listener: TcpListener, heard: Arc<Mutex<Heard>>) {
    let mut deaf = Vec::new();
    while let Ok((mut connection, _)) = listener.accept().await {
        if heard.lock().is_deaf {
            deaf.push(connection);
            continue;
        }
        let (mut bytes, mut notice) = (Vec::new(), None);
        while notice.is_none() && connection.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            notice = text.split_once("\r\n\r\n").and_then(|(_, body)| serde_json::from_str(body).ok());
        }
        heard.lock().notices.extend(notice);
        let _ = connection.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
    }
}

fn new(notice: &Value) -> &Value {
    &notice["data"]["new"][0]["key"]
}

/// Whoever starts it again may have another shell: secrets are in none of its arguments, and readable by nobody else.
#[test]
fn environment_of_up_is_kept_for_later_starts() {
    use std::os::unix::fs::PermissionsExt as _;
    let system = System::not_started();
    let up = system.up(&["--detach", "--no-seed"], &[]);
    let mut up = system.command(&up);
    up.env("ADMIN__SERVICE__NOTIFICATIONS__WEBHOOK__URL", "http://127.0.0.1:9/hidden");
    up.env("ADMIN__SERVICE__NOTIFICATIONS__WEBHOOK__SECRET", format!("whsec_{SECRET}"));
    let up = up.output().expect("sagactl runs");
    let said = String::from_utf8_lossy(&up.stdout);
    assert!(up.status.success() && said.contains("notices     go to http://127.0.0.1:9 "), "{said}");
    assert!(!said.contains("hidden") && !said.contains(SECRET), "{said}");
    system.sagactl(&["kill", "admin"]);
    system.sagactl(&["start", "admin"]);
    let told = system.sagactl(&["notifications"]);
    assert!(told.contains("notifications go to http://127.0.0.1:9"), "{told}");
    let kept = system.path().join("credentials/environment.json");
    assert_eq!(kept.metadata().expect("it is kept").permissions().mode() & 0o777, 0o600);
    // Another up has what its own environment says.
    system.sagactl(&["down"]);
    let said = system.sagactl(&system.up(&["--detach", "--no-seed"], &[]));
    assert!(said.contains("notices     go to standard output"), "{said}");
}

// Its receiver answers while sagactl runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notifications_of_a_dead_letter_and_of_its_end_arrive_within_seconds() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/hidden", listener.local_addr().expect("an address"));
    let heard = Arc::new(Mutex::new(Heard::default()));
    let mut receiving = JoinSet::new();
    receiving.spawn(receive(listener, heard.clone()));
    let system = System::start(&[
        PATIENT,
        &format!("admin.service.notifications.webhook.url={url}"),
        &format!("admin.service.notifications.webhook.secret=whsec_{SECRET}"),
        "admin.service.notifications.check_every=500ms",
        "admin.service.notifications.min_interval=2s",
    ]);
    system.list("pen", 10).await;
    let tested = system.sagactl(&["notifications", "test", "--reason", "is anybody there"]);
    assert!(tested.starts_with("the test notification was delivered to http://127.0.0.1:"), "{tested}");
    let notices = || heard.lock().notices.clone();

    system.park(1).await;
    let parked = Instant::now();
    wait_until("somebody is told", async || notices().len() == 2).await;
    assert!(parked.elapsed() < Duration::from_secs(5), "{:?}", parked.elapsed());
    let (_, dead_letter) = system.dead_letter();
    let fingerprint = dead_letter["fingerprint"].as_str().expect("a fingerprint");
    let told = notices();
    assert_eq!((&told[0]["type"], &told[1]["type"]), (&"saga.test".into(), &"saga.needs_human".into()));
    assert_eq!(new(&told[1]), &Value::from(format!("dead_letters:{fingerprint}")));
    // The delivery is recorded after the receiver has answered.
    let mut listed = String::new();
    wait_until("the finding is reported", async || {
        listed = system.sagactl(&["notifications", "list"]);
        listed.contains("needs_human") && listed.contains("DELIVERED") && listed.contains("  reported: ")
    })
    .await;

    // A receiver that hangs is nobody's business but the notices'.
    heard.lock().is_deaf = true;
    let id = dead_letter["id"].as_str().expect("an id");
    system.sagactl(&["dlq", "replay", id]);
    wait_until("it is told that all is well again", async || {
        system.sagactl_json(&["notifications"])["items"][0]["kind"] == "recovered"
    })
    .await;
    system.assert_reconciled().await;
    assert_eq!(notices().len(), 2);
    heard.lock().is_deaf = false;
    wait_until("it arrives", async || notices().len() > 2).await;
    assert_eq!(notices()[2]["type"], "saga.recovered");

    let mut said = vec![system.sagactl(&["notifications", "--json"]), listed, tested];
    for log in std::fs::read_dir(system.path().join("log")).expect("logs") {
        let bytes = std::fs::read(log.expect("a log").path()).expect("a log");
        said.push(String::from_utf8_lossy(&bytes).into_owned());
    }
    for text in said {
        assert!(!text.contains(SECRET) && !text.contains("/hidden"), "{text}");
    }
}
