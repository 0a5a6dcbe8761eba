//! Pure: views and ledger entries of payments.

use contract::payment::PaymentFailure;
use contract::reconciliation::PaymentState;
use contract::{FactType, payment_id};
use payment::domain::{Payment, PaymentEvent, RefundReason};
use payment::ledger::{fact_of, ledger_entry};
use payment::view::view_of;
use saga_engine::testing::NOON;

use crate::given::{
    ORDER, REFERENCE, bank_refused, bank_undone, cancelled, captured, charging, context, total,
};

/// Covers each status with its ledger state.
#[test]
fn payment_view_and_ledger_entry_show_status_and_money() {
    let (pays, reference) = (context(), REFERENCE.to_owned());
    let back = |reason| (pays.clone(), reference.clone(), reason);
    let (by_order, by_operator) = (back(RefundReason::OrderCancelled), back(RefundReason::Operator));
    let expired = Payment::Expired { context: pays.clone(), may_be_sent: true };
    for (payment, status, state, reference, by_people) in [
        (Payment::New, "NEW", PaymentState::None, "", false),
        (Payment::Void, "VOID", PaymentState::None, "", false),
        (Payment::Voided(pays.clone()), "VOID", PaymentState::None, "", false),
        (Payment::Charging(pays.clone()), "CHARGING", PaymentState::Open, "", false),
        (expired, "EXPIRED", PaymentState::Open, "", false),
        (Payment::Doomed(pays.clone()), "DOOMED", PaymentState::Open, "", false),
        (Payment::Reversing(pays.clone()), "REVERSING", PaymentState::Open, "", false),
        (Payment::Voiding(Some(pays.clone())), "VOIDING", PaymentState::Open, "", false),
        (Payment::Voiding(None), "VOIDING", PaymentState::Open, "", false),
        (Payment::Closing(pays.clone()), "CLOSING", PaymentState::Open, "", false),
        (Payment::Failed(pays.clone(), PaymentFailure::Declined), "FAILED", PaymentState::None, "", false),
        (
            Payment::Captured(pays.clone(), reference.clone()),
            "CAPTURED",
            PaymentState::Captured,
            REFERENCE,
            false,
        ),
        (
            Payment::Refunding(by_order.0, by_order.1, by_order.2),
            "REFUNDING",
            PaymentState::Open,
            REFERENCE,
            false,
        ),
        (
            Payment::Refunded(by_operator.0, by_operator.1, by_operator.2),
            "REFUNDED",
            PaymentState::Refunded,
            REFERENCE,
            true,
        ),
    ] {
        let is_known = !matches!(payment, Payment::New | Payment::Void | Payment::Voiding(None));
        let entry = ledger_entry(ORDER, &payment, &[]);
        assert_eq!((entry.order, entry.state, &entry.reference[..]), (ORDER, state, reference), "{status}");
        assert_eq!(entry.amount, is_known.then(total), "{status}");
        assert_eq!(entry.customer, is_known.then(|| "ada".to_owned()), "{status}");
        assert_eq!(entry.refunded_by_operator, by_people, "{status}");
        assert_eq!((entry.captured, entry.refunded, entry.published), (vec![], vec![], vec![]));
        let view = view_of(ORDER, &payment);
        let Some(view) = view else {
            assert_eq!(payment, Payment::New, "only of what never was nothing is seen");
            continue;
        };
        assert_eq!((view.id, view.order, &view.status[..]), (payment_id(ORDER), ORDER, status));
        assert_eq!((view.amount, view.customer), (entry.amount, entry.customer));
        assert_eq!(view.bank_reference, reference);
        assert_eq!(view.failure, (status == "FAILED").then_some(PaymentFailure::Declined));
    }
}

#[test]
fn ledger_entry_lists_captures_refunds_and_published_facts() {
    let mut given_back = captured();
    given_back.receives(cancelled(ORDER));
    given_back.gets_result(&given_back.open_task(), bank_undone());
    let mut refused = charging();
    refused.gets_result(&refused.open_task(), bank_refused(PaymentFailure::Declined));
    let (one, none) = (vec![total()], vec![]);
    let (processed, refunded) = (FactType::PaymentProcessed, FactType::PaymentRefunded);
    for (payment, taken, back, said) in [
        (charging(), &none, &none, vec![]),
        (captured(), &one, &none, vec![processed]),
        (given_back, &one, &one, vec![processed, refunded]),
        (refused, &none, &none, vec![FactType::PaymentFailed]),
    ] {
        let entry = ledger_entry(ORDER, &payment.row::<Payment>(ORDER), &payment.history::<Payment>(ORDER));
        assert_eq!((&entry.captured, &entry.refunded), (taken, back));
        assert_eq!(entry.published.iter().map(|said| said.fact).collect::<Vec<_>>(), said);
        assert!(entry.published.iter().all(|said| said.at == NOON));
    }
}

#[test]
fn each_event_maps_to_its_fact() {
    let failed = Some(FactType::PaymentFailed);
    for (event, fact) in [
        (PaymentEvent::Requested(context()), None),
        (PaymentEvent::Doomed, None),
        (PaymentEvent::ClosureRequested(context()), None),
        (PaymentEvent::ReversalRequested, None),
        (PaymentEvent::RefundRequested(RefundReason::Operator), None),
        (PaymentEvent::Captured(REFERENCE.to_owned()), Some(FactType::PaymentProcessed)),
        (PaymentEvent::Refused(PaymentFailure::Declined), failed),
        (PaymentEvent::GivenUp, failed),
        (PaymentEvent::Refunded, Some(FactType::PaymentRefunded)),
        (PaymentEvent::Voided, Some(FactType::PaymentVoided)),
        (PaymentEvent::Reversed, Some(FactType::PaymentVoided)),
    ] {
        assert_eq!(fact_of(&event), fact, "{event:?}");
    }
}
