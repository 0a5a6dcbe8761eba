//! Pure: facts as messages: their bytes, who says them, who hears them.

use std::collections::BTreeSet;

use shared::contract::{Fact, FactType};
use shared::envelope::Envelope;
use shared::ids;
use shared::service::{Service, Step};
use uuid::Uuid;

use super::NOON;

/// The bytes of a message that says `fact`. Its id follows from what it says.
pub fn envelope(fact: &Fact) -> Vec<u8> {
    let data = fact.to_json().expect("every fact has a JSON form");
    let id = ids::derived(&["heard", fact.fact_type().name(), data.get()]);
    let envelope = Envelope {
        id,
        message_type: fact.fact_type().name().to_owned(),
        version: fact.fact_type().version(),
        producer: speaker(fact).to_owned(),
        correlation_id: fact.saga().unwrap_or(id),
        causation_id: Uuid::nil(),
        occurred_at: NOON,
        data,
    };
    serde_json::to_vec(&envelope).expect("every envelope has a JSON form")
}

/// The service that says a fact.
pub fn speaker(fact: &Fact) -> &str {
    match fact {
        Fact::OrderCreated(_) | Fact::OrderConfirmed(_) | Fact::OrderCancelled(_) => "order",
        Fact::StockReserved(_)
        | Fact::StockReservationFailed(_)
        | Fact::StockReleased(_)
        | Fact::StockReplenished(_)
        | Fact::ProductListed(_)
        | Fact::PriceChanged(_) => "inventory",
        Fact::PaymentProcessed(_) | Fact::PaymentFailed(_) | Fact::PaymentRefunded(_) => "payment",
        Fact::DeadLettered(letter) => &letter.service,
        Fact::DeadLetterResolved(letter) => &letter.service,
        Fact::ReplayRequested(_) | Fact::DeadLetterDiscarded(_) | Fact::DeadLetterRestored(_) => "admin",
    }
}

/// The step of a service that hears `fact`: it has one at most.
#[track_caller]
pub fn step_that_hears<S: Service>(fact: &Fact) -> &'static Step {
    steps_that_hear::<S>(speaker(fact), fact.fact_type()).next().expect("some step hears this fact")
}

/// Every type of fact that some step of a service hears; an operator's wishes not counted, which the engine itself
/// hears for every service.
pub fn facts_heard<S: Service>() -> BTreeSet<FactType> {
    let heard = S::steps().iter().flat_map(|step| step.hears).flat_map(|heard| heard.facts).copied();
    heard.filter(|fact_type| !fact_type.is_addressed()).collect()
}

/// The steps of a service that hear such a fact of `producer`.
pub fn steps_that_hear<S: Service>(producer: &str, fact: FactType) -> impl Iterator<Item = &'static Step> {
    S::steps().iter().filter(move |step| {
        step.hears.iter().any(|heard| heard.producer == producer && heard.facts.contains(&fact))
    })
}
