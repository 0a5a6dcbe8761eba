//! Shell: what becomes of a database that a build before `PaymentVoided` has written: histories as it wrote them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use contract::fact::FactType;
use contract::reconciliation::PaymentEntry;
use contract::unsaid_payment_id;
use jiff::Timestamp;
use payment::domain::Payment;
use saga_core::decision::{OutboxWrite, Reads, Writes};
use saga_core::row::RowKind;
use saga_engine::store::sqlite::SqliteStore;
use saga_engine::store::{Published, RELAY, Store};
use saga_engine::testing::histories;
use saga_engine::testing::program::{Folder, Running};
use serde_json::Value;
use uuid::Uuid;

pub const PAYMENT: &str = env!("CARGO_BIN_EXE_payment");

/// A broker that is not there: what is said stays in the outbox, where a test can see it.
pub const NOWHERE: &str = "[bus]\nurl = \"nats://127.0.0.1:1\"\n";

const REQUESTED: &str =
    r#"{"Requested":{"customer":"ada","total":{"amount_minor":3300,"currency":"EUR"},"token":"tok_ok"}}"#;
const VOIDED: &str = r#""Voided""#;

/// When the earlier build decided everything.
pub const THEN: Timestamp = Timestamp::constant(1_700_000_000, 0);

/// Histories of one payment each.
pub const NEVER_CHARGED: [&str; 1] = [VOIDED];
const REVERSED: [&str; 3] = [REQUESTED, r#""GivenUp""#, r#""Reversed""#];
const DECLINED: [&str; 2] = [REQUESTED, r#"{"Refused":"declined"}"#];
const CAPTURED: [&str; 2] = [REQUESTED, r#"{"Captured":"ch_1"}"#];

/// The first many payments are more than one look takes.
const MANY: u128 = 230;

#[test]
fn cancellations_that_an_earlier_build_left_unanswered_are_answered_once() {
    let folder = Arc::new(Folder::new());
    let (reversed, declined, captured, answered) = (order(1001), order(1002), order(1003), order(1004));
    let mut writes = Writes { decided_at: THEN, ..Writes::default() };
    for number in 0..MANY {
        has_history(&mut writes, order(number), &NEVER_CHARGED);
    }
    has_history(&mut writes, reversed, &REVERSED);
    has_history(&mut writes, declined, &DECLINED);
    has_history(&mut writes, captured, &CAPTURED);
    has_history(&mut writes, answered, &NEVER_CHARGED);
    let (subject, payload) = ("payment.voided".to_owned(), "{}".into());
    let told = OutboxWrite {
        trace: None,
        id: answered,
        saga: answered,
        subject,
        payload,
        event: Some(writes.events.len() - 1),
    };
    writes.outbox.push(told);
    is_written(&folder, writes);

    let silent: Vec<Uuid> = (0..MANY).map(order).chain([reversed]).collect();
    let mut payment = Running::start_in(&folder, PAYMENT, NOWHERE);
    waits_until(|| promised(&payment) >= silent.len(), "every silent payment is answered for");
    // Once the look is over, another start finds nothing to say.
    let rows = || payment.get("/internal/verify").body["rows"].as_u64();
    waits_until(|| rows().map(u128::from) == Some(MANY + 5), "the look is remembered");
    for _ in 0..2 {
        assert_eq!(promised(&payment), silent.len());
        assert_eq!(payment.get("/internal/verify").body["differing"], Value::Array(vec![]));
        drop(payment);
        payment = Running::start_in(&folder, PAYMENT, NOWHERE);
    }

    let ledger = payment.get("/internal/ledger").body;
    let entries: Vec<PaymentEntry> = serde_json::from_value(ledger["entries"].clone()).expect("a ledger");
    for entry in entries {
        let said: Vec<_> = entry.said.iter().map(|said| (said.fact, said.at > THEN)).collect();
        let expected = match entry.order {
            order if order == declined => vec![(FactType::PaymentFailed, false)],
            order if order == captured => vec![(FactType::PaymentProcessed, false)],
            order if order == answered => vec![(FactType::PaymentVoided, false)],
            order if order == reversed => {
                vec![(FactType::PaymentFailed, false), (FactType::PaymentVoided, true)]
            }
            _ => vec![(FactType::PaymentVoided, true)],
        };
        assert_eq!(said, expected, "order {}: the books see what was said, when it was said", entry.order);
    }
    let page = format!("/api/payments/{}", unsaid_payment_id(order(0)));
    assert_eq!(payment.get(&page).body["status"], "VOID");
}

pub fn order(number: u128) -> Uuid {
    Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0000 + number)
}

/// What the earlier build would have written of a payment: rows and events, and nothing of what was told.
pub fn has_history(writes: &mut Writes, order: Uuid, history: &[&str]) {
    histories::has_history::<Payment>(writes, order, history);
}

/// Writes it, and has all that is in the outbox published.
pub fn is_written(folder: &Folder, writes: Writes) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let kinds = vec![RowKind::of::<Payment>()];
        let store = SqliteStore::open(&folder.database(), kinds).expect("a database");
        store.transact(Reads::default(), Box::new(move |_| writes.clone())).await.expect("a commit");
        let lease = store.take_lease(RELAY, None, "earlier", THEN, THEN).await.expect("an answer");
        let lease = lease.expect("nobody holds it");
        let pending = store.pending(10).await.expect("an answer");
        let done = pending.iter().map(|entry| entry.seq).collect();
        let published = Published { done, ..Published::default() };
        assert!(store.settle(&lease, published, THEN).await.expect("an answer"));
    });
}

/// How many answers wait for the broker.
fn promised(payment: &Running) -> usize {
    let outbox = payment.get("/internal/outbox").body;
    let entries = outbox.as_array().expect("a list");
    assert!(entries.iter().all(|entry| entry["subject"] == "payment.voided"), "{outbox}");
    entries.len()
}

#[track_caller]
#[expect(clippy::disallowed_methods, reason = "there is no runtime here to hold up")]
fn waits_until(is_so: impl Fn() -> bool, what: &str) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(20), "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
