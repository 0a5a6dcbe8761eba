//! What is seen of a saga from outside.

use contract::heard_fact::HeardFact;
use contract::order::CancelReason;
use contract::payment::{PaymentFailed, PaymentFailure};
use contract::saga_view::{SagaCommand, SagaEvent, SagaView};
use contract::settlement::Settlement;
use contract::{Fact, FactType, payment_id};
use jiff::{SignedDuration, Timestamp};
use saga_core::dead_letter::{
    DeadLetterMessage, DeadLetterOrigin, DeadLetterResolved, DeadLetterRestored, DeadLettered,
    OperatorMessage,
};
use saga_core::decider::{Decider as _, FieldValue};
use saga_core::message::Received;

use crate::wire::{example, examples, golden_text, id};

/// A note is what a person reads of a message without opening it.
#[test]
fn everything_that_is_heard_has_its_golden_detail() {
    let facts = examples().into_iter().map(OperatorMessage::Fact);
    let messages = [dead_lettered(), resolved(), restored()].map(OperatorMessage::DeadLetter);
    let lines = facts.chain(messages).enumerate().map(|(second, message)| {
        let heard = heard(second, message);
        assert_eq!((heard.message_id, heard.causation_id), (id(second as u128), id(1)));
        assert_eq!((&heard.producer[..], heard.occurred_at), ("somebody", at(second)));
        assert_eq!(SagaView::event_name(&SagaEvent::Heard(heard.clone())), heard.message_type);
        let detail = serde_json::to_string(&heard.detail).expect("JSON");
        format!("{} {detail}", heard.message_type)
    });
    golden_text("details", &lines.collect::<Vec<_>>().join("\n"));
    let unknown = HeardFact { message_type: "Praised".to_owned(), ..heard(1, resolved().into()) };
    assert_eq!(SagaView::event_name(&SagaEvent::Heard(unknown)), "Heard");
}

#[test]
fn an_event_of_the_view_is_read_as_it_was_written_and_nothing_else_is_one() {
    let heard = heard(1, resolved().into());
    let settlement = r#"{"operator":"ann","reason":"by hand","at":"2027-01-15T08:00:00Z","was":"FAILED","accepted":[],"revision":1}"#;
    let settlement: Settlement = serde_json::from_str(settlement).expect("a settlement");
    let read = |text: &str| serde_json::from_str::<SagaEvent>(text).ok();
    for event in [SagaEvent::Heard(heard), SagaEvent::Settled(settlement)] {
        let text = serde_json::to_string(&event).expect("JSON");
        assert_eq!(read(&text), Some(event), "{text}");
        let (begun, beside) = (text.trim_end_matches('}'), r#","beside":1}"#);
        let is_settled = text.starts_with(r#"{"Settled""#);
        let ends = text.len() - begun.len() - 1;
        let with_more = format!("{begun}{}{beside}", "}".repeat(ends));
        // Later builds may say more of what they heard; of what an operator says, nothing stands beside it.
        assert_eq!(read(&with_more).is_none(), is_settled, "{with_more}");
    }
    for text in ["{}", "7", r#""Settled""#, r#"{"Settled":null}"#, r#"{"Praised":{}}"#] {
        assert_eq!(read(text), None, "{text}");
    }
}

#[test]
fn what_remains_of_a_cancelled_saga_is_what_each_has_to_undo() {
    use FactType::{
        OrderCancelled, OrderConfirmed, OrderCreated, PaymentProcessed, PaymentRefunded, PaymentVoided,
        StockReleased, StockReservationFailed, StockReserved,
    };
    let release = ("inventory", "inventory-stock-release", StockReleased);
    // Stock that was never held is released too: the answer says so.
    for (said, remaining) in [
        (&[OrderCreated, OrderCancelled][..], &[release, ("payment", "payment-refund", PaymentVoided)][..]),
        (
            &[OrderCreated, StockReserved, PaymentProcessed, OrderCancelled],
            &[release, ("payment", "payment-refund", PaymentRefunded)],
        ),
        (&[OrderCreated, OrderCancelled, PaymentVoided], &[release]),
        (&[OrderCreated, OrderCancelled, StockReservationFailed, PaymentVoided], &[]),
        // Who refuses, and did it all the same, has to undo it.
        (&[OrderCreated, OrderCancelled, StockReservationFailed, StockReserved, PaymentVoided], &[release]),
        (&[OrderCreated, OrderCancelled, StockReleased, PaymentRefunded], &[]),
        (&[OrderCreated, StockReserved, PaymentProcessed, OrderConfirmed], &[]),
        (&[OrderCreated, OrderConfirmed], &[]),
        // Nobody has ordered this.
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

/// A card that is declined owes nothing; a charge without a clear answer is still to be reversed.
#[test]
fn only_an_unclear_refusal_of_the_payment_is_undone() {
    for (reason, is_owed) in [
        (PaymentFailure::Declined, false),
        (PaymentFailure::InsufficientFunds, false),
        (PaymentFailure::LimitExceeded, false),
        (PaymentFailure::Exhausted, true),
    ] {
        let mut view = after(&[FactType::OrderCreated, FactType::OrderCancelled, FactType::StockReleased]);
        let failed = PaymentFailed { order: id(42), payment: payment_id(id(42)), reason };
        view.record(&heard(9, OperatorMessage::Fact(failed.into())));
        assert_eq!(!view.remaining().is_empty(), is_owed, "{reason:?}");
    }
}

/// Of each fact the first that was said counts, whenever it is heard.
#[test]
fn a_view_keeps_what_was_said_first_and_shows_it_in_the_order_of_the_contract() {
    let mut view = SagaView::default();
    assert_eq!(view.last_fact_at(), None);
    for (second, message) in [
        (7, OperatorMessage::Fact(example(FactType::OrderCancelled))),
        (8, dead_lettered().into()),
        (3, OperatorMessage::Fact(example(FactType::StockReserved))),
        (2, OperatorMessage::Fact(example(FactType::OrderCreated))),
    ] {
        let heard = heard(second, message);
        let (command, event) = (SagaCommand::Hear(heard.clone()), SagaEvent::Heard(heard));
        assert_eq!(view.decide(&command).as_ref(), Ok(&vec![event.clone()]), "it is new");
        view.evolve(&event);
        assert_eq!(view.decide(&command), Ok(vec![]), "it is known");
    }
    assert_eq!(view.last_fact_at(), Some(at(8)));
    assert_eq!(view.cancelled_because, Some(CancelReason::OutOfStock));
    let again = HeardFact { message_id: id(99), occurred_at: at(1), ..heard(8, dead_lettered().into()) };
    view.record(&again);
    assert_eq!((view.heard["DeadLettered"], view.last_fact_at()), (at(1), Some(at(7))));
    let shown = serde_json::to_string(&view).expect("JSON");
    let places = ["OrderCreated", "OrderCancelled", "StockReserved", "DeadLettered"]
        .map(|name| shown.find(&format!("\"{name}\"")).expect("it is shown"));
    assert!(places.is_sorted(), "{shown}");
}

#[test]
fn a_saga_is_found_by_its_status_its_next_step_and_whether_it_is_over() {
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

/// A human is needed only while what undoes is parked, and for no other step.
#[test]
fn a_compensation_that_is_parked_fails_the_saga_until_it_is_resolved() {
    let cancelled = [FactType::OrderCreated, FactType::PaymentProcessed, FactType::OrderCancelled];
    for (step, status) in [("payment-refund", "FAILED"), ("payment-processing", "COMPENSATING")] {
        let mut view = after(&cancelled);
        let DeadLetterMessage::DeadLettered(mut said) = dead_lettered() else { panic!("it is one") };
        step.clone_into(&mut said.step);
        view.record(&heard(8, DeadLetterMessage::DeadLettered(said).into()));
        assert_eq!(view.status().as_str(), status, "{step}");
        let mut other = view.clone();
        let DeadLetterMessage::DeadLetterResolved(mut said) = resolved() else { panic!("it is one") };
        view.record(&heard(9, DeadLetterMessage::DeadLetterResolved(said.clone()).into()));
        assert_eq!(view.status().as_str(), "COMPENSATING");
        said.dead_letter = id(77);
        other.record(&heard(9, DeadLetterMessage::DeadLetterResolved(said).into()));
        assert_eq!(other.status().as_str(), status, "another's end");
    }
}

fn after(said: &[FactType]) -> SagaView {
    let mut view = SagaView::default();
    let facts = said.iter().map(|fact_type| example(*fact_type)).map(OperatorMessage::Fact);
    facts.enumerate().for_each(|(second, fact)| view.record(&heard(second, fact)));
    view
}

/// The rest is somebody's to see to, or is held against what an operator settled.
#[test]
fn only_sagas_that_have_ended_and_wait_for_nobody_may_leave() {
    use FactType::{
        OrderCancelled, OrderConfirmed, OrderCreated, PaymentProcessed, PaymentRefunded, StockReleased,
        StockReserved,
    };
    let hear = |facts: &[FactType]| {
        let mut view = SagaView::default();
        for (second, fact) in facts.iter().enumerate() {
            view.record(&heard(second, OperatorMessage::Fact(example(*fact))));
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
    parked.record(&heard(50, dead_lettered().into()));
    assert!(!parked.is_finished(), "a human is to see to it");
    parked.record(&heard(51, resolved().into()));
    assert!(parked.is_finished());
}

fn heard(second: usize, fact: OperatorMessage<Fact>) -> HeardFact {
    HeardFact::of(&Received {
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
        effect: None,
    })
}

fn restored() -> DeadLetterMessage {
    let (dead_letter, service) = (id(44), "payment".to_owned());
    DeadLetterMessage::DeadLetterRestored(DeadLetterRestored { dead_letter, service, revision: 1 })
}

fn at(second: usize) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second as i64)
}
