//! Pure: whatever the services say, admin keeps a view of it.

use std::convert::Infallible;

use shared::contract::{DeadLettered, Fact};
use shared::decider::{Decider, FieldValue};
use shared::envelope::Message;
use shared::row::{RowKey, RowKind};
use shared::saga::{HeardFact, SagaView};
use shared::service::{Heard, Refusal, Service, Step};
use shared::unit::Unit;

/// The admin service's reactions.
pub struct AdminService;

/// A dead letter as admin keeps it: `None` until it is heard of.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DeadLetterView(pub Option<DeadLettered>);

impl Decider for DeadLetterView {
    const KIND: &'static str = "dead_letter_view";
    const FIELDS: &'static [&'static str] = &["service", "step", "fingerprint", "saga"];
    type Command = DeadLettered;
    type Event = DeadLettered;
    type Rejection = Infallible;

    fn decide(&self, letter: &DeadLettered) -> Result<Vec<DeadLettered>, Infallible> {
        let is_known = self.0.as_ref().is_some_and(|known| known.last_failed_at >= letter.last_failed_at);
        Ok(if is_known { vec![] } else { vec![letter.clone()] })
    }

    fn evolve(&mut self, letter: &DeadLettered) {
        self.0 = Some(letter.clone());
    }

    fn event_name(_: &DeadLettered) -> &'static str {
        "DeadLettered"
    }

    fn fields(&self, _: &str) -> Vec<FieldValue> {
        let text = |text: Option<String>| text.map_or(FieldValue::Null, FieldValue::Text);
        let letter = self.0.as_ref();
        vec![
            text(letter.map(|letter| letter.service.clone())),
            text(letter.map(|letter| letter.step.clone())),
            text(letter.map(|letter| letter.fingerprint.clone())),
            text(letter.and_then(|letter| letter.saga).map(|saga| saga.to_string())),
        ]
    }
}

impl Service for AdminService {
    const NAME: &'static str = crate::NAME;
    type Command = Infallible;
    type Reply = ();
    type Rejection = Infallible;

    fn rows() -> Vec<RowKind> {
        vec![RowKind::of::<SagaView>(), RowKind::of::<DeadLetterView>()]
    }

    fn steps() -> &'static [Step] {
        &crate::STEPS
    }

    fn reads(&self, heard: &Heard<'_, Infallible>) -> Vec<RowKey> {
        match heard {
            Heard::Message(_, message) => {
                let saga = message.fact.saga().map(RowKey::of::<SagaView>);
                let letter = match &message.fact {
                    Fact::DeadLettered(letter) => Some(RowKey::of::<DeadLetterView>(letter.id)),
                    Fact::OrderCreated(_)
                    | Fact::OrderConfirmed(_)
                    | Fact::OrderCancelled(_)
                    | Fact::StockReserved(_)
                    | Fact::StockReservationFailed(_)
                    | Fact::StockReleased(_)
                    | Fact::StockReplenished(_)
                    | Fact::ProductListed(_)
                    | Fact::PriceChanged(_)
                    | Fact::PaymentProcessed(_)
                    | Fact::PaymentFailed(_)
                    | Fact::PaymentRefunded(_) => None,
                };
                saga.into_iter().chain(letter).collect()
            }
            Heard::Command(_) | Heard::Called { .. } | Heard::Due(_) => vec![],
        }
    }

    fn react(&self, heard: &Heard<'_, Infallible>, unit: &mut Unit<'_>) -> Result<(), Refusal<Infallible>> {
        match heard {
            Heard::Message(_, message) => {
                keep(message, unit);
                Ok(())
            }
            Heard::Command(_) | Heard::Called { .. } | Heard::Due(_) => {
                Err(Refusal::Broken("admin only listens".to_owned()))
            }
        }
    }
}

fn keep(message: &Message, unit: &mut Unit<'_>) {
    if let Some(saga) = message.fact.saga() {
        let Ok(_) = unit.decide::<SagaView>(saga, &HeardFact::of(message));
    }
    if let Fact::DeadLettered(letter) = &message.fact {
        let Ok(_) = unit.decide::<DeadLetterView>(letter.id, letter);
    }
}
