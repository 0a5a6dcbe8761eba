//! Who takes part, and what each tells of its ledger.

use contract::FactType;
use contract::money::{Currency, Money};
use contract::reconciliation::PublishedFact;
use contract::saga::SagaStatus;
use contract::topology::{PARTICIPANTS, named, producers};
use jiff::Timestamp;
use saga_core::row::{PastEvent, StoredEvent};
use uuid::Uuid;

#[test]
fn every_participant_is_found_by_its_name_and_those_with_streams_produce() {
    for participant in &PARTICIPANTS {
        assert_eq!(named(participant.name), Some(participant));
        assert_eq!(producers().any(|name| name == participant.name), participant.has_stream);
    }
    assert_eq!(named("nobody"), None);
    assert_eq!(producers().collect::<Vec<_>>(), ["admin", "order", "inventory", "payment"]);
}

#[test]
fn a_saga_is_over_when_it_is_completed_compensated_or_settled() {
    let over: Vec<_> = SagaStatus::ALL.iter().filter(|status| status.is_terminal()).collect();
    assert_eq!(over, [&SagaStatus::Completed, &SagaStatus::Compensated, &SagaStatus::Settled]);
    let names = SagaStatus::ALL.iter().map(|status| status.as_str());
    for (name, status) in names.zip(SagaStatus::ALL) {
        assert_eq!(serde_json::to_value(status).expect("JSON"), name);
    }
}

/// What cannot be read is another's business: the fold of its row says so.
#[test]
fn a_history_says_when_each_fact_was_told_and_passes_over_what_it_cannot_read() {
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
fn money_is_multiplied_in_the_units_of_its_currency() {
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
