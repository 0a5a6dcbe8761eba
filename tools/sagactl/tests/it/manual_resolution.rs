//! Shell: manual resolution of a refund that can never succeed, and its withdrawal.

use serde_json::{Value, json};

use crate::system::{System, wait_until};

/// Exit code of `sagactl status` if a human is needed.
const HUMAN_NEEDED: Option<i32> = Some(5);

#[tokio::test]
async fn permanently_rejected_refund_is_resolved_manually_and_reopened() {
    let (system, order) = cancelled_while("bank_refuse_refund", 2).await;
    let id = order["id"].as_str().expect("an id");
    let saga = || system.sagactl_json(&["saga", "show", id]);
    let status = || system.try_sagactl(&["status"]).status.code();
    wait_until("the refund is dead-lettered", async || saga()["status"] == "COMPENSATION_STUCK").await;
    assert_eq!(system.get("admin", "/api/admin/reconciliation?wait=30").await["verdict"], "UNBALANCED");
    assert_eq!(status(), HUMAN_NEEDED);
    let payment = system.sagactl(&["payment", "show", id]);
    for told in
        ["REFUNDING, blocked by a dead letter", "CAPTURED as ", "sagactl dlq replay ", "RefundRequested"]
    {
        assert!(payment.contains(told), "{told}: {payment}");
    }

    system.assert_rejected(&["saga", "resolve", id], 2, "--reason");
    let resolved =
        system.sagactl(&["saga", "resolve", id, "--reason", "paid by cheque 4711", "--operator", "ada"]);
    assert!(
        resolved.contains("is RESOLVED_MANUALLY") && resolved.contains("cancelled = money back"),
        "{resolved}"
    );
    assert_eq!(saga()["status"], "RESOLVED_MANUALLY");
    wait_until("payment has consumed the request", async || {
        system.payment_status(&order).await == "RESOLVED_MANUALLY"
    })
    .await;
    let report = system.assert_reconciled().await;
    let listed = &report["resolved"][0];
    assert_eq!([&listed["subject"], &listed["operator"], &listed["difference"]], [id, "ada", "20.00 EUR"]);
    let reconciled = system.sagactl(&["reconcile"]);
    assert!(
        reconciled.contains("resolved manually: 1") && reconciled.contains("by ada: paid by cheque 4711"),
        "{reconciled}"
    );
    wait_until("no human is needed", async || status() == Some(0)).await;
    let dead_letter =
        system.sagactl_json(&["dlq", "list", "--status", "resolved_manually"])["items"][0]["id"].clone();
    let dead_letter = dead_letter.as_str().expect("its id");
    system.assert_rejected(&["dlq", "replay", dead_letter], 2, "RESOLVED_MANUALLY");
    system.assert_rejected(&["saga", "resolve", id, "--reason", "again"], 2, "resolved manually already");
    assert!(system.sagactl(&["saga", "show", id]).contains("by ada at "), "the operator is shown");

    // A stopped service consumes the request after its restart.
    system.sagactl(&["stop", "payment"]);
    let taken_back = system.sagactl(&["saga", "withdraw-resolution", id, "--reason", "the cheque bounced"]);
    assert!(taken_back.contains("is COMPENSATION_STUCK"), "{taken_back}");
    system.sagactl(&["start", "payment"]);
    wait_until("payment has consumed the request", async || {
        system.payment_status(&order).await == "REFUNDING"
    })
    .await;
    assert_eq!(status(), HUMAN_NEEDED);
    assert_eq!(system.get("admin", "/api/admin/reconciliation?wait=30").await["verdict"], "UNBALANCED");
    let log = system.sagactl_json(&["log", "--action", "saga.withdraw_resolution"]);
    assert_eq!(log["items"][0]["reason"], "the cheque bounced");

    // The bank gives it back after all.
    system.sagactl(&["faults", "clear"]);
    system.sagactl(&["dlq", "replay", dead_letter, "--wait"]);
    let payment = system.sagactl_json(&["payment", "show", id]);
    assert_eq!((&payment["status"], &payment["charge"]["status"]), (&json!("REFUNDED"), &json!("REFUNDED")));
    assert_eq!(system.sagactl_json(&["payment", "show", payment["id"].as_str().expect("an id")]), payment);
    wait_until("it is compensated", async || saga()["status"] == "COMPENSATED").await;
    assert_eq!(system.assert_reconciled().await["resolved"], json!([]));
    system.assert_rejected(&["saga", "resolve", id, "--reason", "x"], 2, "there is nothing to resolve");
}

/// Payment has not even read the cancellation, so it has nothing to resolve.
#[tokio::test]
async fn payment_with_a_dead_lettered_cancellation_is_resolved_with_its_saga() {
    let system = System::start(&[]);
    system.list("pen", 10).await;
    let order = system.order(&[("pen", 1)], "tok_ok").await;
    let id = order["id"].as_str().expect("an id");
    system.sagactl(&["faults", "inject", "payment", "fail_permanently", "--step", "payment-refund"]);
    let cancel = system.post("order", &format!("/api/orders/{id}/cancel")).json(&json!({}));
    assert!(cancel.send().await.expect("an answer").status().is_success());
    system.wait_for_dead_letters(1).await;
    let resolve = format!("sagactl saga resolve {id}");
    system.assert_rejected(&["payment", "resolve", id, "--reason", "cheque"], 2, &resolve);
    system.sagactl(&["saga", "resolve", id, "--reason", "cheque"]);
}

/// The bank answers no call, so nothing is dead-lettered and the call would be repeated for ever.
#[tokio::test]
async fn unanswered_call_is_resolved_while_open() {
    let (system, order) = cancelled_while("bank_error", 1).await;
    let id = order["id"].as_str().expect("an id");
    wait_until("the bank is to be asked", async || system.payment_status(&order).await == "REFUNDING").await;
    system.sagactl(&["payment", "resolve", id, "--reason", "paid by cheque"]);
    wait_until("payment has consumed the request", async || {
        system.payment_status(&order).await == "RESOLVED_MANUALLY"
    })
    .await;
    let report = system.assert_reconciled().await;
    assert_eq!([&report["resolved"][0]["subject"], &report["resolved"][0]["difference"]], [id, "10.00 EUR"]);
    system.assert_rejected(&["payment", "resolve", id, "--reason", "again"], 2, "nothing to resolve");

    // Taken back, it is asked again.
    system.sagactl(&["faults", "clear"]);
    system.sagactl(&["payment", "withdraw-resolution", id, "--reason", "the cheque bounced"]);
    wait_until("the money is back", async || system.payment_status(&order).await == "REFUNDED").await;
    assert_eq!(system.assert_reconciled().await["resolved"], json!([]));
}

#[tokio::test]
async fn resolution_is_rejected_while_bank_is_unreachable() {
    let system = System::start(&[]);
    system.list("pen", 10).await;
    let order = system.order(&[("pen", 1)], "tok_ok").await;
    let id = order["id"].as_str().expect("an id");
    system.sagactl(&["stop", "bank"]);
    let cancel = system.post("order", &format!("/api/orders/{id}/cancel")).json(&json!({}));
    assert!(cancel.send().await.expect("an answer").status().is_success());
    wait_until("the bank is to be asked", async || system.payment_status(&order).await == "REFUNDING").await;
    // The state at the bank is unknown, so its discrepancies cannot be accepted.
    system.assert_rejected(&["payment", "resolve", id, "--reason", "cheque"], 1, "bank");
    let payment = system.sagactl(&["payment", "show", id]);
    assert!(payment.contains("unknown: bank does not answer"), "{payment}");
    let unknown = "01890000-0000-7000-8000-000000000001";
    system.assert_rejected(&["payment", "show", unknown], 4, "there is no payment of order");
    assert_eq!(system.payment_status(&order).await, "REFUNDING");
    system.sagactl(&["start", "bank"]);
    wait_until("it is back", async || system.payment_status(&order).await == "REFUNDED").await;
    system.assert_rejected(&["payment", "resolve", id, "--reason", "cheque"], 2, "nothing to resolve");
    assert_eq!(system.assert_reconciled().await["resolved"], Value::Array(vec![]));
}

/// Confirms an order of so many pens, and cancels it while the bank has a fault.
async fn cancelled_while(fault: &str, pens: u32) -> (System, Value) {
    let system = System::start(&[]);
    system.list("pen", 10).await;
    let order = system.order(&[("pen", pens)], "tok_ok").await;
    let id = order["id"].as_str().expect("an id");
    system.sagactl(&["faults", "inject", "bank", fault]);
    let cancel = system.post("order", &format!("/api/orders/{id}/cancel")).json(&json!({}));
    assert!(cancel.send().await.expect("an answer").status().is_success());
    (system, order)
}
