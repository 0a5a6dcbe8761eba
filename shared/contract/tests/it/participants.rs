//! Participants, and their ledger entries.

use contract::FactType;
use contract::money::{Currency, Money};
use contract::reconciliation::PublishedFact;
use contract::saga::SagaStatus;
use contract::topology::{OPERATOR, PARTICIPANTS, named};
use jiff::Timestamp;
use saga_core::row::{PastEvent, StoredEvent};
use uuid::Uuid;

#[test]
fn participants_are_found_by_name() {
    for participant in &PARTICIPANTS {
        assert_eq!(named(participant.name), Some(participant));
    }
    assert_eq!(named("nobody"), None);
    assert_eq!(OPERATOR, "admin");
}

#[test]
fn completed_compensated_and_resolved_sagas_are_terminal() {
    let over: Vec<_> = SagaStatus::ALL.iter().filter(|status| status.is_terminal()).collect();
    assert_eq!(over, [&SagaStatus::Completed, &SagaStatus::Compensated, &SagaStatus::ResolvedManually]);
    let names = SagaStatus::ALL.iter().map(|status| status.as_str());
    for (name, status) in names.zip(SagaStatus::ALL) {
        assert_eq!(serde_json::to_value(status).expect("JSON"), name);
    }
}

/// Verification reports unreadable events; here they are skipped.
#[test]
fn history_lists_published_facts_and_skips_unreadable_events() {
    let event = |version, data: &str| StoredEvent {
        version,
        name: "PublishedFact".to_owned(),
        data: data.to_owned(),
        causation_id: Uuid::nil(),
        recorded_at: Timestamp::from_second(version).expect("a time"),
        is_published: true,
    };
    let history = [event(1, "1"), event(2, "none of ours"), event(3, "3"), event(4, "1")];
    let told = |number: &u32| (*number == 1).then_some(FactType::OrderCreated);
    let history = PastEvent::of(&history);
    let said: Vec<_> =
        PublishedFact::of(&history, told).into_iter().map(|it| (it.fact, it.at.as_second())).collect();
    assert_eq!(said, [(FactType::OrderCreated, 1), (FactType::OrderCreated, 4)]);
    assert_eq!(history.iter().map(|it| it.event).collect::<Vec<_>>(), [1, 3, 1]);
}

#[test]
fn money_is_multiplied_in_minor_units() {
    assert_eq!(Money::new(1299, Currency::EUR).times(3), Some(Money::new(3897, Currency::EUR)));
    let units = [Currency::EUR, Currency::JPY, Currency::KWD].map(Money::minor_per_major);
    assert_eq!(units, [100, 1, 1000]);
    for (money, text) in [
        (Money::new(-1205, Currency::EUR), "-12.05 EUR"),
        (Money::new(0, Currency::EUR), "0.00 EUR"),
        (Money::new(1_001, Currency::KWD), "1.001 KWD"),
    ] {
        assert_eq!(money.to_string(), text);
    }
}
