//! Shell: dead letters: list, show, replay, edit, discard, restore.

use serde_json::json;

use crate::operator::{LONG_DEADLINE, STEP, UNKNOWN_ID};
use crate::system::{System, wait_until};

/// Output of an empty list.
const NONE: &str = "no dead letters in these statuses (--status ALL shows all)\n";

#[tokio::test]
async fn dead_letter_is_found_shown_and_replayed() {
    let system = System::start(&[LONG_DEADLINE]);
    system.list("pen", 10).await;
    // Admin may have still to hear of the pens.
    wait_until("the list is empty, and all is heard", async || system.sagactl(&["dlq", "list"]) == NONE)
        .await;
    assert_eq!(system.sagactl_json(&["dlq", "count"])["total"], 0);
    assert_eq!(system.sagactl(&["dlq", "groups"]), NONE);

    let orders = system.dead_letter_orders(1).await;
    let (id, dead_letter) = system.dead_letter();
    assert_eq!(
        [&dead_letter["service"], &dead_letter["step"], &dead_letter["saga"]],
        ["payment", STEP, &orders[0]]
    );
    assert!(system.sagactl(&["dlq", "list", "--status", "pending", "--step", STEP]).contains(&id));
    assert_eq!(system.sagactl(&["dlq", "list", "--service", "inventory"]), NONE);
    let fingerprint = dead_letter["fingerprint"].as_str().expect("a fingerprint");
    assert!(system.sagactl(&["dlq", "groups"]).contains(fingerprint));
    assert!(system.sagactl(&["saga", "list", "--stuck-at", STEP]).contains(&orders[0]));

    system.sagactl(&["dlq", "note", &id, "asked the bank"]);
    let shown = system.sagactl(&["dlq", "show", &id]);
    for wanted in [STEP, fingerprint, &orders[0], "StockReserved", "asked the bank"] {
        assert!(shown.contains(wanted), "{wanted} is not in: {shown}");
    }
    assert!(!shown.contains("tok_ok") && shown.contains("\"***\""), "the card token is hidden: {shown}");

    let replayed = system.sagactl(&["dlq", "replay", &id, "--operator", "ada", "--reason", "bank is back"]);
    assert!(replayed.contains(&format!("{id} is REPLAYING")), "{replayed}");
    system.wait_until_confirmed(&orders).await;
    wait_until("it is resolved", async || system.sagactl_json(&["dlq", "show", &id])["status"] == "RESOLVED")
        .await;
    system.assert_rejected(&["dlq", "replay", &id], 2, "RESOLVED");
    let timeline = system.sagactl(&["saga", "show", &orders[0]]);
    assert!(timeline.contains("OrderConfirmed") && timeline.contains("no remaining steps"), "{timeline}");
    let log = system.sagactl_json(&["log", "--by", "ada", "--action", "dlq.replay"]);
    assert_eq!([&log["items"][0]["target"], &log["items"][0]["reason"]], [id.as_str(), "bank is back"]);
    system.assert_reconciled().await;
}

#[tokio::test]
async fn dead_letter_is_discarded_restored_and_edited() {
    let system = System::start(&[LONG_DEADLINE]);
    system.list("pen", 10).await;
    let orders = system.dead_letter_orders(1).await;
    let (id, _) = system.dead_letter();

    system.sagactl(&["dlq", "discard", &id, "--reason", "a test"]);
    system.assert_rejected(&["dlq", "discard", &id, "--reason", "again"], 2, "DISCARDED");
    system.assert_rejected(&["dlq", "discard", &id], 2, "--reason");
    system.assert_rejected(&["dlq", "replay", &id], 2, "DISCARDED");
    system.sagactl(&["dlq", "restore", &id]);
    system.assert_rejected(&["dlq", "restore", &id], 2, "PENDING");
    // What is rejected does not keep the rest from being done.
    system.assert_rejected(&["dlq", "discard", UNKNOWN_ID, &id, "--reason", "again"], 4, UNKNOWN_ID);
    assert_eq!(system.sagactl_json(&["dlq", "show", &id])["status"], "DISCARDED");
    system.sagactl(&["dlq", "restore", &id]);

    let data = &system.sagactl_json(&["dlq", "show", &id])["payload"]["data"];
    assert_eq!(data["payment"]["token"], "***", "it is shown to nobody");
    system.assert_rejected(&["dlq", "edit", &id, "--reason", "a test"], 2, "--new-data");
    system.assert_rejected(&["dlq", "edit", &id, "--reason", "a test", "--new-data", "{}"], 2, "data");
    let file = system.path().join("data.json");
    std::fs::write(&file, data.to_string()).expect("written");
    let preview = system.sagactl(&["dlq", "edit", &id, "--preview", "--file", &file.display().to_string()]);
    assert_eq!(
        preview,
        format!("the message is unchanged, except for its id\n{id} is PENDING, and nothing was replayed\n")
    );
    system.sagactl(&["dlq", "edit", &id, "--reason", "as it was", "--file", &file.display().to_string()]);
    // The token that was hidden is the old one again: with any other the bank would decline.
    system.wait_until_confirmed(&orders).await;
    assert_eq!(system.sagactl_json(&["dlq", "show", &id])["edited"], true);
    system.assert_reconciled().await;
}

#[tokio::test]
async fn replay_after_three_failures_needs_force() {
    let system = System::start(&[LONG_DEADLINE]);
    system.list("pen", 10).await;
    system.sagactl(&["faults", "inject", "payment", "fail_permanently", "--step", STEP, "--next", "4"]);
    let orders = system.place(1).await;
    system.wait_for_dead_letters(1).await;
    let (id, dead_letter) = system.dead_letter();
    let fingerprint = dead_letter["fingerprint"].as_str().expect("a fingerprint");
    for replays in 1..=3 {
        let replay = ["dlq", "replay", "--fingerprint", fingerprint, "--reason", "hope"];
        assert_eq!(system.sagactl(&replay), "1 replayed, 0 rejected\n");
        wait_until("it has failed again", async || {
            let dead_letter = system.sagactl_json(&["dlq", "show", &id]);
            (&dead_letter["status"], &dead_letter["replays"]) == (&json!("PENDING"), &json!(replays))
        })
        .await;
    }
    system.assert_rejected(&["dlq", "replay", &id], 2, "force");
    system.assert_rejected(&["dlq", "replay", "--fingerprint", fingerprint, "--reason", "hope"], 2, &id);
    system.assert_rejected(&["dlq", "redrive", "--step", STEP, "--reason", "hope"], 2, "--force");
    system.sagactl(&["dlq", "replay", &id, "--force", "--reason", "mended"]);
    system.wait_until_confirmed(&orders).await;
    system.assert_reconciled().await;
}
