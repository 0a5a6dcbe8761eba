//! Shell: incremental verification since the last checkpoint.

use std::path::Path;

use serde_json::{Value, json};

use crate::system::System;

/// Incremental verification even of few orders.
const CHANGES_ALONE: &str = "admin.service.full_verification_below=0";

/// Asserts that the system is balanced, and the extent of the verification.
async fn balanced(system: &System, reads: Reads) -> Value {
    let whole = if matches!(reads, Reads::Asked) { "&full=true" } else { "" };
    let report = system.get("admin", &format!("/api/admin/reconciliation?wait=30{whole}")).await;
    assert_eq!(report["verdict"], "BALANCED", "{report:#}");
    match reads {
        Reads::Everything | Reads::Asked => assert_eq!(report["scope"]["full"], true, "{report:#}"),
        Reads::Changes(orders) => {
            let scope = &report["scope"];
            assert_eq!((&scope["full"], &scope["orders_read"]), (&json!(false), &json!(orders)), "{scope}");
        }
    }
    report
}

/// Extent of a verification.
#[derive(Clone, Copy)]
enum Reads {
    /// Everything, by default.
    Everything,
    /// Everything, on request.
    Asked,
    /// Changes since the checkpoint, with the number of orders.
    Changes(u64),
}

/// Totals, without the number of verified rows.
fn sums(report: &Value) -> Value {
    let mut summary = report["summary"].clone();
    summary["rows_checked"] = Value::Null;
    summary
}

fn path_of(order: &Value, what: &str) -> String {
    format!("/api/orders/{}{what}", order["id"].as_str().expect("an id"))
}

fn by_hand(system: &System, service: &str, sql: &str) {
    let changed = system.database(service).execute(sql, []).expect("SQL");
    assert_eq!(changed, 1, "{sql}");
}

#[tokio::test]
async fn incremental_verification_equals_full_verification() {
    let system = System::start(&[CHANGES_ALONE]);
    system.list("pen", 1_000).await;
    system.list("ink", 1_000).await;
    let first = system.order(&[("pen", 2), ("ink", 1)], "tok_ok").await;
    system.order(&[("ink", 3)], "tok_declined").await;
    let other = system.order(&[("ink", 4)], "tok_ok").await;
    let whole = balanced(&system, Reads::Everything).await;
    assert_eq!(sums(&balanced(&system, Reads::Changes(0)).await), sums(&whole));

    // One of those that were closed is undone, and others come.
    let cancelled = system.post("order", &path_of(&first, "/cancel")).send().await.expect("an answer");
    assert!(cancelled.status().is_success(), "{}", cancelled.status());
    system.order(&[("pen", 5)], "tok_ok").await;
    system.order(&[("pen", 5_000)], "tok_ok").await;
    let changes = balanced(&system, Reads::Changes(3)).await;
    assert_eq!(sums(&changes), sums(&balanced(&system, Reads::Asked).await));
    assert_eq!((&changes["summary"]["cancelled"], &changes["summary"]["sold"]), (&json!(5), &json!(9)));

    // What is carried forward outlives admin, whenever it ends.
    system.order(&[("pen", 1)], "tok_ok").await;
    system.sagactl(&["kill", "admin"]);
    system.sagactl(&["start", "admin"]);
    let after = balanced(&system, Reads::Changes(1)).await;
    assert_eq!(sums(&after), sums(&balanced(&system, Reads::Asked).await));

    // Whatever goes wrong with one that was closed is found, and stays found.
    system.charge(other["id"].as_str().expect("an id")).await;
    for _ in 0..2 {
        let report = system.get("admin", "/api/admin/reconciliation?wait=10").await;
        assert_eq!((&report["verdict"], &report["scope"]["full"]), (&json!("UNBALANCED"), &json!(false)));
        let found = report["discrepancies"].as_array().expect("a list");
        assert!(found.iter().all(|found| found["subject"] == other["id"]), "{report:#}");
        assert!(found.iter().any(|found| found["rule"] == "one charge per order"), "{report:#}");
    }
}

#[tokio::test]
async fn manual_change_is_found_by_full_verification_and_of_stock_at_once() {
    let system = System::start(&[CHANGES_ALONE]);
    system.list("pen", 1_000).await;
    let order = system.order(&[("pen", 2)], "tok_ok").await;
    balanced(&system, Reads::Everything).await;
    let id = order["id"].as_str().expect("an id");
    by_hand(&system, "payment", &format!("UPDATE row_payment SET status = 'REFUNDED' WHERE id = '{id}'"));
    balanced(&system, Reads::Changes(0)).await;
    let report = system.get("admin", "/api/admin/reconciliation?wait=10&full=true").await;
    assert_eq!(report["verdict"], "UNBALANCED", "{report:#}");
    assert_eq!(report["discrepancies"][0]["detail"], format!("payment/{id}"), "{report:#}");
    by_hand(&system, "payment", &format!("UPDATE row_payment SET status = 'CAPTURED' WHERE id = '{id}'"));
    balanced(&system, Reads::Asked).await;

    // Each product is held against the orders that were carried forward, whether or not it has changed.
    let moved =
        "UPDATE row_product SET state = json_set(state, '$.on_hand', 997, '$.sold', 3) WHERE id = 'pen'";
    by_hand(&system, "inventory", moved);
    let report = system.get("admin", "/api/admin/reconciliation?wait=10").await;
    assert_eq!((&report["verdict"], &report["scope"]["full"]), (&json!("UNBALANCED"), &json!(false)));
    assert_eq!(report["discrepancies"][0]["rule"], "stock = reservations", "{report:#}");
}

/// A restored copy lacks what was verified, and its history differs afterwards.
#[tokio::test]
async fn replaced_database_is_verified_in_full() {
    let system = System::start(&[CHANGES_ALONE]);
    system.list("pen", 1_000).await;
    system.order(&[("pen", 1)], "tok_ok").await;
    balanced(&system, Reads::Everything).await;
    let (bank, copy) = (system.path().join("bank"), tempfile::tempdir().expect("a folder"));
    system.sagactl(&["stop", "bank"]);
    copy_files(&bank, copy.path());
    system.sagactl(&["start", "bank"]);
    let lost = system.order(&[("pen", 1)], "tok_ok").await;
    balanced(&system, Reads::Changes(1)).await;
    system.sagactl(&["stop", "bank"]);
    std::fs::remove_dir_all(&bank).expect("it goes");
    std::fs::create_dir(&bank).expect("a folder");
    copy_files(copy.path(), &bank);
    system.sagactl(&["start", "bank"]);
    for _ in 0..2 {
        let report = system.get("admin", "/api/admin/reconciliation?wait=10").await;
        assert_eq!((&report["verdict"], &report["scope"]["full"]), (&json!("UNBALANCED"), &json!(true)));
        assert_eq!(report["discrepancies"][0]["subject"], lost["id"], "{report:#}");
        // Now its history is as long again, with something else at its end.
        system.order(&[("pen", 1)], "tok_ok").await;
    }
}

fn copy_files(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("a file");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("a copy");
    }
}
