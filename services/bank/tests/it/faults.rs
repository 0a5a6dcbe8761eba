//! Shell: the running bank with injected faults, seen by a merchant.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use saga_engine::testing::program::{Answer, Folder, Running};

const BANK: &str = env!("CARGO_BIN_EXE_bank");
const ON: &str = "[faults]\nenabled = true\nseed = 7\n";
const KEY: &str = "00000000-0000-0000-0000-000000000001";

#[test]
fn bank_rejects_faults_unless_enabled() {
    let bank = Running::start(BANK, "");
    let answer = inject(&bank, json!({ "kind": "bank_error" }));
    assert_eq!(answer.status, 403, "{answer:?}");
    assert_eq!(charge(&bank, KEY).status, 200);
    assert_eq!(bank.get("/internal/faults").body["enabled"], false);
}

#[test]
fn invalid_fault_is_rejected_with_field_name() {
    let bank = Running::start(BANK, ON);
    for (fault, member) in [
        (json!({ "kind": "fail_transiently" }), "kind"),
        (json!({ "kind": "bank_latency" }), "delay_ms"),
        (json!({ "kind": "bank_error", "probability": 0 }), "probability"),
        (json!({ "kind": "bank_error", "step": "bank" }), "step"),
    ] {
        let answer = inject(&bank, fault.clone());
        assert_eq!(answer.status, 422, "{fault} came out as {answer:?}");
        assert!(answer.body.to_string().contains(member), "{answer:?} does not name {member}");
    }
}

#[test]
fn injected_error_has_no_effect_and_ends_after_given_count() {
    let bank = Running::start(BANK, ON);
    assert_eq!(inject(&bank, json!({ "kind": "bank_error", "next": 2 })).status, 201);
    assert_eq!(charge(&bank, KEY).status, 503);
    assert_eq!(bank.get(&format!("/v1/charges/{KEY}")).status, 404, "nothing was done");
    assert_eq!(charge(&bank, KEY).status, 503);
    assert_eq!(outcome(&charge(&bank, KEY)), "captured");
    assert_eq!(bank.get("/internal/faults").body["faults"], json!([]));
}

/// Guarantee 4: only the answer is lost, and a repeated request gets the first answer.
#[test]
fn charge_with_lost_answer_is_captured_and_answered_when_repeated() {
    let bank = Running::start(BANK, ON);
    assert_eq!(inject(&bank, json!({ "kind": "bank_lose_answer", "next": 1 })).status, 201);
    assert_eq!(charge(&bank, KEY).status, 500);
    assert_eq!(status(&bank), "CAPTURED");
    assert_eq!(outcome(&charge(&bank, KEY)), "captured");
    let ledger = bank.get("/v1/charges").body;
    assert_eq!(ledger["entries"].as_array().map(Vec::len), Some(1), "{ledger}");
}

/// A past defect: the bank answered "declined" to the repeated request, and kept the captured money.
#[test]
fn captured_charge_is_not_declined_by_later_fault() {
    let bank = Running::start(BANK, ON);
    inject(&bank, json!({ "kind": "bank_lose_answer", "next": 1 }));
    assert_eq!(charge(&bank, KEY).status, 500);
    inject(&bank, json!({ "kind": "bank_decline" }));
    assert_eq!(outcome(&charge(&bank, KEY)), "captured");

    // The other way round: a declined charge is not captured afterwards.
    let other = "00000000-0000-0000-0000-000000000002";
    assert_eq!(outcome(&charge(&bank, other)), "refused");
    bank.delete("/internal/faults");
    let again = charge(&bank, other);
    assert_eq!((outcome(&again), &again.body["reason"]), ("refused", &json!("declined")));
}

#[test]
fn refused_refund_reports_reason_and_changes_nothing() {
    let bank = Running::start(BANK, ON);
    charge(&bank, KEY);
    inject(&bank, json!({ "kind": "bank_refuse_refund", "next": 2 }));
    for back in ["refund", "reverse"] {
        let refused = bank.post(&format!("/v1/charges/{KEY}/{back}"), &[], &json!({}));
        assert_eq!(refused.status, 409, "{refused:?}");
        assert!(refused.body["detail"].as_str().is_some_and(|why| why.contains("account")), "{refused:?}");
        assert_eq!(status(&bank), "CAPTURED");
    }
    let done = bank.post(&format!("/v1/charges/{KEY}/refund"), &[], &json!({}));
    assert_eq!((done.status, outcome(&done)), (200, "undone"));
    assert_eq!(status(&bank), "REFUNDED");
}

#[test]
fn refund_with_lost_answer_is_made() {
    let bank = Running::start(BANK, ON);
    charge(&bank, KEY);
    inject(&bank, json!({ "kind": "bank_lose_answer", "next": 1 }));
    let path = format!("/v1/charges/{KEY}/refund");
    assert_eq!(bank.post(&path, &[], &json!({})).status, 500);
    assert_eq!(status(&bank), "REFUNDED");
    assert_eq!(outcome(&bank.post(&path, &[], &json!({}))), "undone");
}

#[test]
fn injected_latency_delays_answer_only() {
    let bank = Running::start(BANK, ON);
    inject(&bank, json!({ "kind": "bank_latency", "delay_ms": 300, "next": 1 }));
    let began = Instant::now();
    assert_eq!(outcome(&charge(&bank, KEY)), "captured");
    assert!(began.elapsed() >= Duration::from_millis(300));
}

/// The caller needs a time-out; the bank continues to serve others.
#[test]
fn hanging_call_gets_no_answer_and_has_no_effect() {
    let bank = Running::start(BANK, ON);
    inject(&bank, json!({ "kind": "bank_hang", "next": 1 }));
    let headers = [("Idempotency-Key", KEY)];
    let hanging = bank.send("POST", "/v1/charges", &headers, &kind().to_string(), Duration::from_millis(300));
    assert!(hanging.is_none(), "{hanging:?}");
    assert_eq!(bank.get(&format!("/v1/charges/{KEY}")).status, 404);
    assert_eq!(outcome(&charge(&bank, KEY)), "captured");
}

#[test]
fn injected_fault_survives_restart_until_cleared() {
    let folder = Arc::new(Folder::new());
    let bank = Running::start_in(&folder, BANK, ON);
    inject(&bank, json!({ "kind": "bank_error" }));
    assert_eq!(charge(&bank, KEY).status, 503);
    drop(bank);
    let bank = Running::start_in(&folder, BANK, ON);
    assert_eq!(charge(&bank, KEY).status, 503);
    bank.delete("/internal/faults");
    drop(bank);
    assert_eq!(outcome(&charge(&Running::start_in(&folder, BANK, ON), KEY)), "captured");
}

fn inject(bank: &Running, fault: Value) -> Answer {
    bank.post("/internal/faults", &[], &fault)
}

fn kind() -> Value {
    let amount = json!({ "amount_minor": 3300, "currency": "EUR" });
    json!({ "amount": amount, "token": "tok_ok", "reference": "order 1" })
}

fn charge(bank: &Running, key: &str) -> Answer {
    bank.post("/v1/charges", &[("Idempotency-Key", key)], &kind())
}

fn outcome(answer: &Answer) -> &str {
    answer.body["outcome"].as_str().unwrap_or("none")
}

fn status(bank: &Running) -> String {
    let shown = bank.get(&format!("/v1/charges/{KEY}")).body;
    shown["status"].as_str().unwrap_or_default().to_owned()
}
