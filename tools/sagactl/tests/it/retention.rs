//! Shell: retention: ended orders are purged, and restored from the archive.

use std::path::Path;

use serde_json::Value;

use crate::operator::LONG_DEADLINE;
use crate::system::{System, wait_until};

const SERVICES: [&str; 4] = ["order", "inventory", "payment", "admin"];

/// Settings that archive and purge everything as soon as possible.
fn briefly(archive: &Path) -> Vec<String> {
    let archive = format!("retention.archive={}", archive.display());
    let settings = [
        "bus.duplicate_window=1s",
        "bus.retention=1s",
        "retention.inbox=1s",
        "retention.idempotency_key=1s",
        "retention.published=1s",
        "retention.history=1s",
        "retention.every=100ms",
        &archive,
    ];
    let of_each = |service: &str| settings.map(|setting| format!("{service}.{setting}"));
    SERVICES.iter().flat_map(|service| of_each(service)).collect()
}

/// Counts the rows of a kind.
fn rows(system: &System, service: &str, kind: &str) -> usize {
    let count = format!("SELECT count(*) FROM row_{kind}");
    let counted = system.database(service).query_row(&count, [], |row| row.get::<_, i64>(0));
    counted.ok().and_then(|rows| usize::try_from(rows).ok()).expect("SQL")
}

async fn status(system: &System, order: &Value) -> u16 {
    let path = format!("/api/orders/{}", order["id"].as_str().expect("an id"));
    let answer = system.http.get(system.url("order", &path)).send().await.expect("an answer");
    answer.status().as_u16()
}

#[tokio::test]
async fn ended_orders_are_purged_under_load_and_restored_from_archive() {
    let archive = tempfile::tempdir().expect("a folder");
    let settings = briefly(archive.path());
    let system = System::start(&settings.iter().map(String::as_str).collect::<Vec<_>>());
    system.list("pen", 1_000).await;
    let first = system.order(&[("pen", 2)], "tok_ok").await;
    let declined = system.order(&[("pen", 3)], "tok_declined").await;
    let mut placed: usize = 2;
    wait_until("the first orders have left, while others come", async || {
        let order = system.order(&[("pen", 1)], "tok_ok").await;
        assert_eq!(order["status"], "CONFIRMED", "{order}");
        placed += 1;
        (status(&system, &first).await, status(&system, &declined).await) == (404, 404)
    })
    .await;
    system.assert_reconciled().await;
    let left_with =
        [("order", "order"), ("inventory", "reservation"), ("payment", "payment"), ("admin", "saga")];
    // The last event of a service stays: its position must not be given twice.
    wait_until("all but the last has left, in every service", async || {
        left_with.iter().all(|(service, kind)| rows(&system, service, kind) <= 1)
    })
    .await;

    // Sold stock stays sold after its orders were purged.
    // Two of the first, none of the second, one of each of the others.
    let (on_hand, reserved, _) = system.stock("pen").await;
    assert_eq!((on_hand, reserved), (1_000 - placed as u64, 0));
    system.assert_reconciled().await;

    system.sagactl(&["stop", "order"]);
    system.sagactl(&["rebuild", "order", "order", "--archived"]);
    // And the one by which the listing was waited for.
    assert_eq!(rows(&system, "order", "order"), placed + 1);
    system.sagactl(&["start", "order"]);
    system.assert_reconciled().await;
}

/// Admin still shows a purged dead letter. An operator who restores it must not wait for ever.
#[tokio::test]
async fn purged_dead_letter_is_forgotten() {
    let kept = ["bus.retention", "retention.inbox", "retention.dead_letter"];
    let kept = kept.map(|setting| format!("payment.{setting}=5s"));
    let mut settings: Vec<_> = kept.iter().map(String::as_str).collect();
    settings.extend([LONG_DEADLINE, "payment.bus.duplicate_window=1s", "payment.retention.every=100ms"]);
    let system = System::start(&settings);
    system.list("pen", 10).await;
    system.dead_letter_orders(1).await;
    let (id, _) = system.dead_letter();
    let status = || system.sagactl_json(&["dlq", "show", &id])["status"].clone();
    system.sagactl(&["dlq", "discard", &id, "--reason", "a test"]);
    wait_until("it has left", async || {
        let count = "SELECT count(*) FROM dead_letter";
        system.database("payment").query_row(count, [], |row| row.get::<_, i64>(0)).expect("SQL") == 0
    })
    .await;
    system.sagactl(&["dlq", "restore", &id]);
    wait_until("its service has reported it", async || status() == "DISCARDED").await;
    assert!(system.sagactl(&["dlq", "show", &id]).contains("gone at its service"));
    assert_eq!(system.sagactl_json(&["dlq", "count"])["total"], 0, "asking made no dead letter");
}
