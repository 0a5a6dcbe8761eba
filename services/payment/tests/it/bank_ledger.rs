//! Pure: calls name the ledger of the bank, which is stored before anything is charged.

use payment::bank_ledger::{BANK, BankLedger};
use payment::bank_task::{BankCall, BankTask, CHARGE, REFUND};
use payment::service::PaymentService;
use saga_core::waiting::Task;
use saga_engine::testing::ServiceUnderTest;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::given::{ORDER, bank_captured, cancelled, charging, processed, reserved};

const FIRST: Uuid = Uuid::from_u128(11);
const SECOND: Uuid = Uuid::from_u128(12);

/// Payment service whose first charge waits for the bank, which has introduced itself.
fn introduced() -> ServiceUnderTest<PaymentService> {
    let mut payment = charging();
    let asking = payment.open_task();
    assert_eq!(task(&asking).ledger, None);
    payment
        .gets_result(&asking, json!({"introduced": true, "ledger": FIRST}))
        .publishes([])
        .records(&["Named"])
        .calls(&[CHARGE]);
    let charge = payment.open_task();
    assert_eq!(task(&charge), BankTask { ledger: Some(FIRST), ..task(&asking) });
    payment
}

#[test]
fn charge_is_requested_after_ledger_is_stored() {
    let mut payment = introduced();
    assert_eq!(named(&payment), Some(FIRST));
    payment.gets_result(&payment.open_task(), captured_by(FIRST)).publishes([processed(ORDER)]);
    payment.receives(cancelled(ORDER)).calls(&[REFUND]);
    payment.gets_result(&payment.open_task(), json!({"introduced": true, "ledger": SECOND})).calls(&[REFUND]);
    let refund = task(&payment.open_task());
    assert_eq!((refund.call, refund.ledger), (BankCall::Refund, Some(FIRST)), "not by an introduction");
}

#[test]
fn next_charge_names_stored_ledger() {
    let mut payment = introduced();
    payment.gets_result(&payment.open_task(), captured_by(FIRST));
    payment.receives(reserved(Uuid::from_u128(2)));
    assert_eq!(task(&payment.open_task()).ledger, Some(FIRST));
}

/// Only a bank whose operator accepted the loss answers a call that names another ledger.
#[test]
fn answer_of_other_ledger_replaces_stored_one() {
    let mut payment = introduced();
    payment.gets_result(&payment.open_task(), captured_by(SECOND)).publishes([processed(ORDER)]);
    assert_eq!(named(&payment), Some(SECOND));
}

#[test]
fn second_introduction_does_not_replace_stored_ledger() {
    let mut payment = charging();
    let first = payment.open_task();
    payment.gets_result(&first, json!({"introduced": true, "ledger": FIRST}));
    let mut late = payment.open_task();
    late.payload = first.payload;
    payment.store.tasks.insert(late.id, late.clone());
    payment.gets_result(&late, json!({"introduced": true, "ledger": SECOND})).calls(&[CHARGE]);
    assert_eq!(named(&payment), Some(FIRST));
    assert_eq!(task(&payment.open_task()).ledger, Some(FIRST));
}

fn named(payment: &ServiceUnderTest<PaymentService>) -> Option<Uuid> {
    payment.row::<BankLedger>(BANK).0
}

fn task(task: &Task) -> BankTask {
    serde_json::from_str(&task.payload).expect("a task of the bank")
}

fn captured_by(ledger: Uuid) -> Value {
    let mut answer = bank_captured();
    answer["ledger"] = json!(ledger);
    answer
}
