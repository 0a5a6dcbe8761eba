//! The view of a saga.

use contract::manual_resolution::ManualResolution;
use contract::order::CancelReason;
use contract::payment::{PaymentFailed, PaymentFailure};
use contract::saga_fact::SagaFact;
use contract::saga_view::{SagaCommand, SagaEvent, SagaView};
use contract::{Fact, FactType, payment_id};
use jiff::{SignedDuration, Timestamp};
use saga_core::dead_letter::{
    DeadLetterMessage, DeadLetterOrigin, DeadLetterResolved, DeadLetterRestored, DeadLettered,
    OperatorMessage, ReplayEffect,
};
use saga_core::decider::{Decider as _, FieldValue};
use saga_core::message::Received;

use crate::wire::{example, examples, golden_text, id};

/// A note summarizes a message for people.
#[test]
fn every_fact_has_its_golden_detail() {
    let facts = examples().into_iter().map(OperatorMessage::Fact);
    let messages = [dead_lettered(), resolved(), restored()].map(OperatorMessage::DeadLetter);
    let lines = facts.chain(messages).enumerate().map(|(second, message)| {
        let recorded = saga_fact(second, message);
        assert_eq!((recorded.message_id, recorded.causation_id), (id(second as u128), id(1)));
        assert_eq!((&recorded.producer[..], recorded.occurred_at), ("somebody", at(second)));
        assert_eq!(SagaView::event_name(&SagaEvent::FactRecorded(recorded.clone())), recorded.message_type);
        let detail = serde_json::to_string(&recorded.detail).expect("JSON");
        format!("{} {detail}", recorded.message_type)
    });
    golden_text("details", &lines.collect::<Vec<_>>().join("\n"));
    let unknown = SagaFact { message_type: "Praised".to_owned(), ..saga_fact(1, resolved().into()) };
    assert_eq!(SagaView::event_name(&SagaEvent::FactRecorded(unknown)), "FactRecorded");
}

#[test]
fn view_event_round_trips_and_unknown_event_is_rejected() {
    let resolution = r#"{"operator":"ann","reason":"by hand","at":"2027-01-15T08:00:00Z","was":"COMPENSATION_STUCK","accepted":[],"revision":1}"#;
    let resolution: ManualResolution = serde_json::from_str(resolution).expect("a resolution");
    let read = |text: &str| serde_json::from_str::<SagaEvent>(text).ok();
    let fact = saga_fact(1, resolved().into());
    for event in [SagaEvent::FactRecorded(fact), SagaEvent::ResolvedManually(resolution)] {
        let text = serde_json::to_string(&event).expect("JSON");
        assert_eq!(read(&text).as_ref(), Some(&event), "{text}");
        let beside = text.replacen('{', r#"{"beside":1,"#, 1);
        assert_eq!(read(&beside), None, "{beside}");
        // A later build may store more members of a fact or a resolution.
        let with_more = text.replacen(":{", r#":{"unknown":{"any":[1]},"#, 1);
        assert_ne!(with_more, text);
        assert_eq!(read(&with_more), Some(event), "{with_more}");
    }
    for text in ["{}", "7", r#""FactRecorded""#, r#"{"ResolvedManually":null}"#, r#"{"Praised":{}}"#] {
        assert_eq!(read(text), None, "{text}");
    }
}

#[test]
fn cancelled_saga_waits_for_compensation_of_done_stages() {
    use FactType::{
        OrderCancelled, OrderConfirmed, OrderCreated, PaymentProcessed, PaymentRefunded, PaymentVoided,
        StockReleased, StockReservationFailed, StockReserved,
    };
    let release = ("inventory", "inventory-stock-release", StockReleased);
    // Stock that was never reserved is released too: the answer says so.
    for (said, remaining) in [
        (&[OrderCreated, OrderCancelled][..], &[release, ("payment", "payment-refund", PaymentVoided)][..]),
        (
            &[OrderCreated, StockReserved, PaymentProcessed, OrderCancelled],
            &[release, ("payment", "payment-refund", PaymentRefunded)],
        ),
        (&[OrderCreated, OrderCancelled, PaymentVoided], &[release]),
        (&[OrderCreated, OrderCancelled, StockReservationFailed, PaymentVoided], &[]),
        // A rejection by a stage that was done all the same must be undone.
        (&[OrderCreated, OrderCancelled, StockReservationFailed, StockReserved, PaymentVoided], &[release]),
        (&[OrderCreated, OrderCancelled, StockReleased, PaymentRefunded], &[]),
        (&[OrderCreated, StockReserved, PaymentProcessed, OrderConfirmed], &[]),
        (&[OrderCreated, OrderConfirmed], &[]),
        // No such order.
        (&[OrderCancelled], &[]),
    ] {
        let view = after(said);
        let owed = view.remaining();
        let owed: Vec<_> = owed.iter().map(|it| (&it.owner[..], &it.step[..], it.fact)).collect();
        assert_eq!(owed, remaining, "{said:?}");
    }
    let doing: Vec<_> = after(&[OrderCreated, StockReservationFailed]).remaining();
    assert_eq!(doing.len(), 2, "a refusal is an answer: {doing:?}");
}

/// A declined card leaves nothing to undo; a charge without a clear answer must be reversed.
#[test]
fn only_unclear_payment_failure_needs_compensation() {
    for (reason, is_owed) in [
        (PaymentFailure::Declined, false),
        (PaymentFailure::UnknownCard, false),
        (PaymentFailure::InsufficientFunds, false),
        (PaymentFailure::LimitExceeded, false),
        (PaymentFailure::Exhausted, true),
    ] {
        let mut view = after(&[FactType::OrderCreated, FactType::OrderCancelled, FactType::StockReleased]);
        let failed = PaymentFailed { order: id(42), payment: payment_id(id(42)), reason };
        view.record(&saga_fact(9, OperatorMessage::Fact(failed.into())));
        assert_eq!(!view.remaining().is_empty(), is_owed, "{reason:?}");
    }
}

/// The earliest time of each fact counts, whatever the order of arrival.
#[test]
fn view_keeps_earliest_time_of_each_fact() {
    let mut view = SagaView::default();
    assert_eq!(view.last_fact_at(), None);
    for (second, message) in [
        (7, OperatorMessage::Fact(example(FactType::OrderCancelled))),
        (8, dead_lettered().into()),
        (3, OperatorMessage::Fact(example(FactType::StockReserved))),
        (2, OperatorMessage::Fact(example(FactType::OrderCreated))),
    ] {
        let recorded = saga_fact(second, message);
        let (command, event) = (SagaCommand::RecordFact(recorded.clone()), SagaEvent::FactRecorded(recorded));
        assert_eq!(view.decide(&command).as_ref(), Ok(&vec![event.clone()]), "it is new");
        view.evolve(&event);
        assert_eq!(view.decide(&command), Ok(vec![]), "it is known");
    }
    assert_eq!(view.last_fact_at(), Some(at(8)));
    assert_eq!(view.cancelled_because, Some(CancelReason::OutOfStock));
    let again = SagaFact { message_id: id(99), occurred_at: at(1), ..saga_fact(8, dead_lettered().into()) };
    view.record(&again);
    assert_eq!((view.facts["DeadLettered"], view.last_fact_at()), (at(1), Some(at(7))));
}

#[test]
fn saga_is_indexed_by_status_next_step_and_end() {
    let text = |text: &str| FieldValue::Text(text.to_owned());
    let deadline = FieldValue::Integer(1_000_000_060_000_000);
    let started = after(&[FactType::OrderCreated]);
    let (next, customer) = (text("inventory-stock-reservation"), text("ada"));
    assert_eq!(
        started.fields(""),
        [text("STARTED"), next, customer.clone(), deadline.clone(), FieldValue::Integer(0)]
    );
    let completed = after(&[FactType::OrderCreated, FactType::OrderConfirmed]);
    assert_eq!(
        completed.fields(""),
        [text("COMPLETED"), FieldValue::Null, customer, deadline, FieldValue::Integer(1)]
    );
    let unknown = SagaView::default().fields("");
    assert_eq!((&unknown[2], &unknown[3]), (&FieldValue::Null, &FieldValue::Null));
}

/// Only a dead-lettered compensation fails the saga, no other step.
#[test]
fn dead_lettered_compensation_fails_saga_until_resolved() {
    let cancelled = [FactType::OrderCreated, FactType::PaymentProcessed, FactType::OrderCancelled];
    for (step, status) in [("payment-refund", "COMPENSATION_STUCK"), ("payment-processing", "COMPENSATING")] {
        let mut view = after(&cancelled);
        let DeadLetterMessage::DeadLettered(mut said) = dead_lettered() else { panic!("it is one") };
        step.clone_into(&mut said.step);
        view.record(&saga_fact(8, DeadLetterMessage::DeadLettered(said).into()));
        assert_eq!(view.status().as_str(), status, "{step}");
        let mut other = view.clone();
        let DeadLetterMessage::DeadLetterResolved(mut said) = resolved() else { panic!("it is one") };
        view.record(&saga_fact(9, DeadLetterMessage::DeadLetterResolved(said.clone()).into()));
        assert_eq!(view.status().as_str(), "COMPENSATING");
        said.dead_letter = id(77);
        other.record(&saga_fact(9, DeadLetterMessage::DeadLetterResolved(said).into()));
        assert_eq!(other.status().as_str(), status, "another's end");
    }
}

fn after(said: &[FactType]) -> SagaView {
    let mut view = SagaView::default();
    let facts = said.iter().map(|fact_type| example(*fact_type)).map(OperatorMessage::Fact);
    facts.enumerate().for_each(|(second, fact)| view.record(&saga_fact(second, fact)));
    view
}

/// Other sagas still wait for somebody, or are compared with what an operator accepted.
#[test]
fn only_ended_sagas_without_open_dead_letters_are_finished() {
    use FactType::{
        OrderCancelled, OrderConfirmed, OrderCreated, PaymentProcessed, PaymentRefunded, StockReleased,
        StockReserved,
    };
    let hear = |facts: &[FactType]| {
        let mut view = SagaView::default();
        for (second, fact) in facts.iter().enumerate() {
            view.record(&saga_fact(second, OperatorMessage::Fact(example(*fact))));
        }
        view
    };
    let under_way = [OrderCreated, StockReserved, PaymentProcessed];
    let confirmed = [&under_way[..], &[OrderConfirmed]].concat();
    let cancelled = [&confirmed[..], &[OrderCancelled, StockReleased]].concat();
    let undone = [&cancelled[..], &[PaymentRefunded]].concat();
    let finished = [&under_way[..], &confirmed, &cancelled, &undone].map(|facts| hear(facts).is_finished());
    assert_eq!(finished, [false, true, false, true]);
    let mut parked = hear(&undone);
    parked.record(&saga_fact(50, dead_lettered().into()));
    assert!(!parked.is_finished(), "a human is to see to it");
    parked.record(&saga_fact(51, resolved().into()));
    assert!(parked.is_finished());
}

fn saga_fact(second: usize, fact: OperatorMessage<Fact>) -> SagaFact {
    SagaFact::of(&Received {
        id: id(second as u128),
        producer: "somebody".to_owned(),
        correlation_id: id(42),
        causation_id: id(1),
        occurred_at: at(second),
        fact,
    })
}

fn dead_lettered() -> DeadLetterMessage {
    DeadLetterMessage::DeadLettered(Box::new(DeadLettered {
        trace: None,
        id: id(44),
        service: "payment".to_owned(),
        step: "payment-refund".to_owned(),
        origin: DeadLetterOrigin::Task,
        message_id: id(45),
        message_type: None,
        saga: Some(id(42)),
        reason: "no answer".to_owned(),
        error_chain: vec![],
        fingerprint: String::new(),
        attempts: 1,
        first_failed_at: at(0),
        last_failed_at: at(0),
        replays: 0,
        delivery: None,
        payload_base64: String::new(),
        original: None,
    }))
}

fn resolved() -> DeadLetterMessage {
    DeadLetterMessage::DeadLetterResolved(DeadLetterResolved {
        dead_letter: id(44),
        service: "payment".to_owned(),
        step: "payment-refund".to_owned(),
        saga: Some(id(42)),
        message_id: id(45),
        replays: 2,
        effect: ReplayEffect::TookEffect,
    })
}

fn restored() -> DeadLetterMessage {
    let (dead_letter, service) = (id(44), "payment".to_owned());
    DeadLetterMessage::DeadLetterRestored(DeadLetterRestored { dead_letter, service, revision: 1 })
}

fn at(second: usize) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second as i64)
}
