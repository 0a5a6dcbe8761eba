//! Shell: an empty database in the place of one that has worked, as after the loss of a volume.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::system::{System, order_for, text, wait_until};

/// The folder of a stopped service, kept elsewhere in the meantime.
struct Kept {
    folder: PathBuf,
    kept: PathBuf,
}

impl Kept {
    fn of(system: &System, service: &str) -> Self {
        system.sagactl(&["stop", service]);
        let folder = system.path().join(service);
        let kept = folder.with_extension("kept");
        fs::rename(&folder, &kept).expect("the folder is moved");
        Self { folder, kept }
    }

    fn put_back(self) {
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder).expect("removed");
        }
        fs::rename(self.kept, self.folder).expect("the folder is moved back");
    }
}

/// Admin publishes no facts here: its position is recorded at an interval.
#[tokio::test]
async fn service_rejects_empty_database_in_place_of_one_that_has_worked() {
    let system = System::start(&[]);
    system.list("pen", 5).await;
    let order = system.order(&[("pen", 1)], "tok_ok").await;
    let id = order["id"].as_str().expect("an id").to_owned();
    let is_completed = async || {
        // 404 at first.
        let saga = system.http.get(system.url("admin", &format!("/api/admin/sagas/{id}")));
        let saga = saga.send().await.expect("an answer").json::<Value>().await;
        saga.is_ok_and(|saga| saga["status"] == "COMPLETED")
    };
    wait_until("admin has seen the saga", is_completed).await;
    let (client, _errors) = system.broker_as("admin").await;
    let broker = async_nats::jetstream::new(client);
    let has_position =
        async || broker.get_stream("ADMIN").await.is_ok_and(|stream| stream.cached_info().state.messages > 0);
    wait_until("the stream of admin has its position", has_position).await;
    for service in ["order", "inventory", "payment", "admin"] {
        let kept = Kept::of(&system, service);
        let started = system.try_sagactl(&["start", service]);
        assert_eq!(started.status.code(), Some(1), "{service}: {}", text(&started.stdout));
        assert!(text(&started.stderr).contains("--accept-loss"), "{service}: {}", text(&started.stderr));
        kept.put_back();
        system.sagactl(&["start", service]);
    }
}

/// Guarantee 4: the empty bank knows no keys, and would capture a second time what the first one has captured.
#[tokio::test]
async fn payment_calls_no_bank_with_another_ledger() {
    let system = System::start(&["order.service.deadline=10m", "payment.breaker.open_for=1s"]);
    system.list("pen", 5).await;
    system.order(&[("pen", 1)], "tok_ok").await;
    let ledger = async || system.get("bank", "/v1/ledger").await["id"].as_str().expect("an id").to_owned();
    let first = ledger().await;
    let finding = async || {
        let findings = system.get("admin", "/api/admin/overview").await["findings"].clone();
        let of_bank = |finding: &&Value| finding["code"] == "bank_ledger_rejected";
        findings.as_array().expect("a list").iter().find(of_bank).cloned()
    };
    assert_eq!(finding().await, None);
    let kept = Kept::of(&system, "bank");
    system.sagactl(&["start", "bank"]);
    // Before anybody pays: the finding names both ledgers, and what the bank suggests.
    let second = ledger().await;
    wait_until("it is a finding", async || finding().await.is_some()).await;
    let found = finding().await.expect("a finding").to_string();
    for part in [first.as_str(), second.as_str(), "--accept-loss"] {
        assert!(found.contains(part), "{part}: {found}");
    }
    let status = text(&system.try_sagactl(&["status"]).stdout);
    assert!(status.contains(&first) && status.contains(&second), "{status}");

    let asked = system.post("order", "/api/orders").json(&order_for(&[("pen", 1)], "tok_ok"));
    let order: Value = asked.send().await.expect("an answer").json().await.expect("JSON");
    let log = system.path().join("log/payment.log");
    let is_rejected = async || fs::read_to_string(&log).is_ok_and(|log| log.contains("and not ledger"));
    wait_until("payment logs the other ledger", is_rejected).await;
    let charges = system.get("bank", "/v1/charges").await;
    assert_eq!(charges["entries"], json!([]), "nothing is captured");
    assert_eq!(system.payment_status(&order).await, "CHARGING");

    system.sagactl(&["stop", "bank"]);
    kept.put_back();
    system.sagactl(&["start", "bank"]);
    let is_captured = async || system.payment_status(&order).await == "CAPTURED";
    wait_until("the charge is captured by the first bank", is_captured).await;
    wait_until("the finding is over", async || finding().await.is_none()).await;
    system.assert_reconciled().await;
}
