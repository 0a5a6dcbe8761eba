//! The running bank with faults made on purpose, seen by a merchant.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use saga_engine::testing::program::{Answer, Folder, Running};

const BANK: &str = env!("CARGO_BIN_EXE_bank");
const ON: &str = "[faults]\nenabled = true\nseed = 7\n";
const KEY: &str = "00000000-0000-0000-0000-000000000001";

#[test]
fn the_bank_takes_no_faults_unless_its_settings_allow_them() {
    let bank = Running::start(BANK, "");
    let answer = inject(&bank, json!({ "kind": "bank_error" }));
    assert_eq!(answer.status, 403, "{answer:?}");
    assert_eq!(charge(&bank, KEY).status, 200);
    assert_eq!(bank.get("/internal/faults").body["enabled"], false);
}

#[test]
fn a_fault_that_is_not_the_banks_is_refused_by_name() {
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
fn an_error_does_nothing_and_ends_when_it_was_told_to() {
    let bank = Running::start(BANK, ON);
    assert_eq!(inject(&bank, json!({ "kind": "bank_error", "next": 2 })).status, 201);
    assert_eq!(charge(&bank, KEY).status, 503);
    assert_eq!(bank.get(&format!("/v1/charges/{KEY}")).status, 404, "nothing was done");
    assert_eq!(charge(&bank, KEY).status, 503);
    assert_eq!(outcome(&charge(&bank, KEY)), "captured");
    assert_eq!(bank.get("/internal/faults").body["faults"], json!([]));
}

/// Law 4: the answer is lost, the charge is not; asked again the bank gives the first answer.
#[test]
fn a_lost_answer_was_done_and_is_given_again() {
    let bank = Running::start(BANK, ON);
    assert_eq!(inject(&bank, json!({ "kind": "bank_lose_answer", "next": 1 })).status, 201);
    assert_eq!(charge(&bank, KEY).status, 500);
    assert_eq!(status(&bank), "CAPTURED");
    assert_eq!(outcome(&charge(&bank, KEY)), "captured");
    let ledger = bank.get("/v1/charges").body;
    assert_eq!(ledger["entries"].as_array().map(Vec::len), Some(1), "{ledger}");
}

/// A defect: the charge was captured and its answer lost; asked again, the bank said "declined" and kept the money.
#[test]
fn a_charge_that_was_captured_is_not_declined_afterwards_whatever_is_injected() {
    let bank = Running::start(BANK, ON);
    inject(&bank, json!({ "kind": "bank_lose_answer", "next": 1 }));
    assert_eq!(charge(&bank, KEY).status, 500);
    inject(&bank, json!({ "kind": "bank_decline" }));
    assert_eq!(outcome(&charge(&bank, KEY)), "captured");

    // And the other way round: what was declined is not captured afterwards.
    let other = "00000000-0000-0000-0000-000000000002";
    assert_eq!(outcome(&charge(&bank, other)), "refused");
    bank.delete("/internal/faults");
    let again = charge(&bank, other);
    assert_eq!((outcome(&again), &again.body["reason"]), ("refused", &json!("declined")));
}

#[test]
fn a_refund_that_is_refused_says_why_and_changes_nothing() {
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

/// A refund whose answer is lost was made once, and asking again says so.
#[test]
fn a_refund_whose_answer_is_lost_was_made() {
    let bank = Running::start(BANK, ON);
    charge(&bank, KEY);
    inject(&bank, json!({ "kind": "bank_lose_answer", "next": 1 }));
    let path = format!("/v1/charges/{KEY}/refund");
    assert_eq!(bank.post(&path, &[], &json!({})).status, 500);
    assert_eq!(status(&bank), "REFUNDED");
    assert_eq!(outcome(&bank.post(&path, &[], &json!({}))), "undone");
}

#[test]
fn latency_delays_the_answer_and_nothing_else() {
    let bank = Running::start(BANK, ON);
    inject(&bank, json!({ "kind": "bank_latency", "delay_ms": 300, "next": 1 }));
    let began = Instant::now();
    assert_eq!(outcome(&charge(&bank, KEY)), "captured");
    assert!(began.elapsed() >= Duration::from_millis(300));
}

/// Whoever calls a bank that hangs has to give up by itself; the bank goes on serving others.
#[test]
fn a_call_that_hangs_gets_no_answer_and_does_nothing() {
    let bank = Running::start(BANK, ON);
    inject(&bank, json!({ "kind": "bank_hang", "next": 1 }));
    let headers = [("Idempotency-Key", KEY)];
    let hanging = bank.asks("POST", "/v1/charges", &headers, &kind().to_string(), Duration::from_millis(300));
    assert!(hanging.is_none(), "{hanging:?}");
    assert_eq!(bank.get(&format!("/v1/charges/{KEY}")).status, 404);
    assert_eq!(outcome(&charge(&bank, KEY)), "captured");
}

/// What an operator injects is there until he takes it away, whoever restarts the bank meanwhile.
#[test]
fn a_fault_is_there_after_a_restart_until_it_is_cleared() {
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
