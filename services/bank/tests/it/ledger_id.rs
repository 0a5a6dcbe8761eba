//! Shell: two running banks behind one address, as after the loss of a volume.

use std::sync::Arc;

use serde_json::{Value, json};

use saga_engine::testing::program::{Answer, Folder, Running};

const BANK: &str = env!("CARGO_BIN_EXE_bank");
const KEY: &str = "00000000-0000-0000-0000-000000000001";

/// Guarantee 4: a merchant repeats a charge whose answer was lost, and an empty bank would capture it again.
#[test]
fn bank_with_other_ledger_does_not_capture_again() {
    let first = Running::start(BANK, "");
    let ledger = id(&first);
    let captured = charge(&first, &ledger);
    assert_eq!((captured.status, &captured.body["outcome"]), (200, &json!("captured")), "{captured:?}");

    let folder = Arc::new(Folder::new());
    let second = Running::start_in(&folder, BANK, "");
    let rejected = charge(&second, &ledger);
    assert_eq!(rejected.status, 421, "{rejected:?}");
    assert_eq!(second.get("/v1/charges").body["entries"], json!([]), "nothing was captured");
    for route in ["refund", "reverse"] {
        let rejected =
            second.post(&format!("/v1/charges/{KEY}/{route}"), &[("Ledger-Id", &ledger)], &Value::Null);
        assert_eq!(rejected.status, 421, "{rejected:?}");
    }
    let own = id(&second);
    assert_ne!(own, ledger);

    // An operator accepts exactly this loss.
    let detail = rejected.body["detail"].as_str().expect("a detail");
    let loss = detail.rsplit_once("accept_loss=").expect("a name").1.to_owned();
    drop(second);
    let accepting = Running::start_in(&folder, BANK, &format!("[store]\naccept_loss = \"{loss}\"\n"));
    assert_eq!(id(&accepting), own, "the ledger is that of the database");
    assert_eq!(charge(&accepting, &ledger).status, 200);
    let foreign = uuid::Uuid::from_u128(1).to_string();
    assert_eq!(charge(&accepting, &foreign).status, 421, "no other loss is accepted");
}

#[test]
fn ledger_id_must_be_a_uuid() {
    assert_eq!(charge(&Running::start(BANK, ""), "first").status, 422);
}

fn charge(bank: &Running, ledger: &str) -> Answer {
    let charge = json!({"amount": {"amount_minor": 100, "currency": "EUR"}, "token": "tok_ok", "reference": "order 1"});
    bank.post("/v1/charges", &[("Idempotency-Key", KEY), ("Ledger-Id", ledger)], &charge)
}

fn id(bank: &Running) -> String {
    let answer = bank.get("/v1/ledger");
    answer.body["id"].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned()
}
