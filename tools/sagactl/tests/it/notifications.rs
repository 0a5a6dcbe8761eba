//! Shell: notifications of findings arrive within seconds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::operator::LONG_DEADLINE;
use crate::system::{System, wait_until};

/// Secret that must not appear in any output.
const SECRET: &str = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Received notifications; while `is_silent`, requests are not answered.
#[derive(Default)]
struct Receiver {
    notifications: Vec<Value>,
    is_silent: bool,
}

/// Receives notifications, each on its own connection.
async fn receive(listener: TcpListener, received: Arc<Mutex<Receiver>>) {
    let mut silent = Vec::new();
    while let Ok((mut connection, _)) = listener.accept().await {
        if received.lock().is_silent {
            silent.push(connection);
            continue;
        }
        let (mut bytes, mut notification) = (Vec::new(), None);
        while notification.is_none() && connection.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            notification = text.split_once("\r\n\r\n").and_then(|(_, body)| serde_json::from_str(body).ok());
        }
        received.lock().notifications.extend(notification);
        let _ = connection.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
    }
}

fn new(notification: &Value) -> &Value {
    &notification["data"]["new"][0]["key"]
}

/// A later start may come from another shell. Secrets are in no argument, and readable only by their owner.
#[test]
fn environment_of_up_is_kept_for_later_starts() {
    use std::os::unix::fs::PermissionsExt as _;
    let system = System::not_started();
    let up = system.up(&["--detach", "--no-seed"], &[]);
    let mut up = system.command(&up);
    up.env("ADMIN__SERVICE__NOTIFICATIONS__WEBHOOK__URL", "http://127.0.0.1:9/hidden");
    up.env("ADMIN__SERVICE__NOTIFICATIONS__WEBHOOK__SECRET", format!("whsec_{SECRET}"));
    let up = up.output().expect("sagactl runs");
    let printed = String::from_utf8_lossy(&up.stdout);
    assert!(up.status.success() && printed.contains("notifications go to http://127.0.0.1:9 "), "{printed}");
    assert!(!printed.contains("hidden") && !printed.contains(SECRET), "{printed}");
    system.sagactl(&["kill", "admin"]);
    system.sagactl(&["start", "admin"]);
    let reported = system.sagactl(&["notifications"]);
    assert!(reported.contains("notifications go to http://127.0.0.1:9"), "{reported}");
    let kept = system.path().join("credentials/environment.json");
    assert_eq!(kept.metadata().expect("it is kept").permissions().mode() & 0o777, 0o600);
    // A new up uses its own environment.
    system.sagactl(&["down"]);
    let printed = system.sagactl(&system.up(&["--detach", "--no-seed"], &[]));
    assert!(printed.contains("notifications go to standard output"), "{printed}");
}

// Its receiver answers while sagactl runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notifications_of_a_dead_letter_and_of_its_end_arrive_within_seconds() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/hidden", listener.local_addr().expect("an address"));
    let received = Arc::new(Mutex::new(Receiver::default()));
    let mut receiving = JoinSet::new();
    receiving.spawn(receive(listener, received.clone()));
    let system = System::start(&[
        LONG_DEADLINE,
        &format!("admin.service.notifications.webhook.url={url}"),
        &format!("admin.service.notifications.webhook.secret=whsec_{SECRET}"),
        "admin.service.notifications.check_every=500ms",
        "admin.service.notifications.min_interval=2s",
    ]);
    system.list("pen", 10).await;
    let tested = system.sagactl(&["notifications", "test", "--reason", "a test"]);
    assert!(tested.starts_with("the test notification was delivered to http://127.0.0.1:"), "{tested}");
    let notifications = || received.lock().notifications.clone();

    system.dead_letter_orders(1).await;
    let dead_lettered = Instant::now();
    wait_until("the notification has arrived", async || notifications().len() == 2).await;
    assert!(dead_lettered.elapsed() < Duration::from_secs(5), "{:?}", dead_lettered.elapsed());
    let (_, dead_letter) = system.dead_letter();
    let fingerprint = dead_letter["fingerprint"].as_str().expect("a fingerprint");
    let reported = notifications();
    assert_eq!(
        (&reported[0]["type"], &reported[1]["type"]),
        (&"saga.test".into(), &"saga.needs_human".into())
    );
    assert_eq!(new(&reported[1]), &Value::from(format!("dead_letters:{fingerprint}")));
    // The delivery is recorded after the receiver has answered.
    let mut listed = String::new();
    wait_until("the finding is reported", async || {
        listed = system.sagactl(&["notifications", "list"]);
        listed.contains("needs_human") && listed.contains("DELIVERED") && listed.contains("  reported: ")
    })
    .await;

    // A receiver that hangs delays only notifications.
    received.lock().is_silent = true;
    let id = dead_letter["id"].as_str().expect("an id");
    system.sagactl(&["dlq", "replay", id]);
    wait_until("the recovery is notified", async || {
        system.sagactl_json(&["notifications"])["items"][0]["kind"] == "recovered"
    })
    .await;
    system.assert_reconciled().await;
    assert_eq!(notifications().len(), 2);
    received.lock().is_silent = false;
    wait_until("the notification arrives", async || notifications().len() > 2).await;
    assert_eq!(notifications()[2]["type"], "saga.recovered");

    let mut printed = vec![system.sagactl(&["notifications", "--json"]), listed, tested];
    for log in std::fs::read_dir(system.path().join("log")).expect("logs") {
        let bytes = std::fs::read(log.expect("a log").path()).expect("a log");
        printed.push(String::from_utf8_lossy(&bytes).into_owned());
    }
    for text in printed {
        assert!(!text.contains(SECRET) && !text.contains("/hidden"), "{text}");
    }
}
