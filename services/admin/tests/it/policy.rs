//! Pure: whatever the services say, admin keeps a view of it.

use std::collections::BTreeSet;

use admin::policy::{AdminService, DeadLetterView};
use shared::contract::{CancelReason, Fact, FactType};
use shared::decider::{Decider, FieldValue};
use shared::saga::{SagaStatus, SagaView};

use crate::given::{ORDER, cancelled, deadline, fact, letter, total};
use crate::world::World;
use crate::world::message::facts_heard;

#[test]
fn a_completed_saga_owes_nothing() {
    let mut admin = World::of(AdminService);
    use FactType::{OrderConfirmed, OrderCreated, PaymentProcessed, StockReserved};
    for (heard, next) in [
        (OrderCreated, Some("inventory-stock-reservation")),
        (StockReserved, Some("payment-processing")),
        (PaymentProcessed, Some("order-confirmation")),
        (OrderConfirmed, None),
    ] {
        admin.hears(fact(heard, ORDER)).records(&[heard.name()]).tells([]);
        let owed = admin.row::<SagaView>(ORDER).remaining().into_iter().next();
        assert_eq!(owed.map(|owed| owed.step).as_deref(), next, "after {heard:?}");
    }
    let view: SagaView = admin.row(ORDER);
    assert_eq!(
        (view.status(), view.total, view.deadline),
        (SagaStatus::Completed, Some(total()), Some(deadline()))
    );
}

#[test]
fn a_late_capture_takes_a_compensated_saga_back_to_work() {
    use FactType::{OrderCreated, PaymentProcessed, PaymentRefunded, StockReleased, StockReserved};
    let mut admin = World::of(AdminService);
    let mut status_after = |heard: Fact| {
        admin.hears(heard).comes_out("done");
        admin.row::<SagaView>(ORDER).status()
    };
    status_after(fact(OrderCreated, ORDER));
    status_after(fact(StockReserved, ORDER));
    assert_eq!(status_after(cancelled(ORDER, CancelReason::TimedOut)), SagaStatus::TimedOut);
    assert_eq!(status_after(fact(StockReleased, ORDER)), SagaStatus::Compensated);
    assert_eq!(status_after(fact(PaymentProcessed, ORDER)), SagaStatus::Compensating);
    assert_eq!(status_after(fact(PaymentRefunded, ORDER)), SagaStatus::Compensated);
}

#[test]
fn a_saga_whose_compensation_is_parked_has_failed() {
    let mut admin = World::of(AdminService);
    for heard in [FactType::OrderCreated, FactType::StockReserved, FactType::PaymentProcessed] {
        admin.hears(fact(heard, ORDER));
    }
    admin.hears(cancelled(ORDER, CancelReason::CustomerRequest));
    let parked = admin.hears(Fact::DeadLettered(letter("payment-refund", Some(ORDER), 0)));
    parked.records(&["DeadLettered", "DeadLettered"]).tells([]);
    assert_eq!(admin.row::<SagaView>(ORDER).status(), SagaStatus::Failed);
}

#[test]
fn a_dead_letter_without_a_saga_touches_none() {
    let mut admin = World::of(AdminService);
    let letter = letter("payment-processing", None, 0);
    admin.hears(Fact::DeadLettered(letter.clone())).records(&["DeadLettered"]);
    assert_eq!(admin.row::<DeadLetterView>(letter.id), DeadLetterView(Some(letter)));
    assert_eq!(admin.kept.rows.len(), 1);
}

#[test]
fn a_letter_that_died_again_replaces_the_older_one_and_never_the_other_way_round() {
    let mut admin = World::of(AdminService);
    let [first, again] = [0, 5].map(|minutes| letter("payment-refund", Some(ORDER), minutes));
    admin.hears(Fact::DeadLettered(again.clone()));
    admin.hears(Fact::DeadLettered(first.clone()));
    admin.hears(Fact::DeadLettered(again.clone())).changes_nothing();
    assert_eq!(admin.row::<DeadLetterView>(first.id), DeadLetterView(Some(again)));
}

#[test]
fn what_operators_look_for_is_searchable() {
    let mut admin = World::of(AdminService);
    admin.hears(fact(FactType::OrderCreated, ORDER));
    let fields = admin.row::<SagaView>(ORDER).fields(&ORDER.to_string());
    let wanted = [
        ("status", "STARTED".into()),
        ("next_step", "inventory-stock-reservation".into()),
        ("customer", "ada".into()),
        ("deadline", deadline().as_microsecond().into()),
        ("finished", 0.into()),
    ];
    let named = |names: &[&'static str], fields: Vec<FieldValue>| {
        names.iter().copied().zip(fields).collect::<Vec<_>>()
    };
    assert_eq!(named(SagaView::FIELDS, fields), wanted);

    let letter = DeadLetterView(Some(letter("payment-refund", Some(ORDER), 0)));
    let wanted = [
        ("service", "payment".into()),
        ("step", "payment-refund".into()),
        ("fingerprint", "f1".into()),
        ("saga", FieldValue::Text(ORDER.to_string())),
    ];
    assert_eq!(named(DeadLetterView::FIELDS, letter.fields("1")), wanted);
}

/// Admin hears everything that belongs to a saga; of products it hears nothing.
#[test]
fn every_fact_of_a_saga_is_heard_and_kept() {
    let of_sagas = FactType::ALL.into_iter().filter(|heard| fact(*heard, ORDER).saga().is_some());
    assert_eq!(of_sagas.clone().collect::<BTreeSet<_>>(), facts_heard::<AdminService>());
    for heard in of_sagas {
        let mut admin = World::of(AdminService);
        admin.hears(fact(heard, ORDER)).comes_out("done");
        admin.hears(fact(heard, ORDER)).comes_out("done").changes_nothing();
        assert!(admin.row::<SagaView>(ORDER).heard.contains_key(&heard), "{heard:?}");
    }
}
