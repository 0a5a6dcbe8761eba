//! Pure: facts, rows and services of a depot that accepts parcels, and a courier that books each on a van.

use std::convert::Infallible;

use jiff::Timestamp;
use saga_core::operator::Operator;
use saga_core::{
    Decider, HandlerError, HandlerResult, Message, MessageType, Policy, Received, RowKey, RowKind, Service,
};
use saga_core::{Step, Subscription, TaskResult, UnitOfWork};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

const PARCEL_BOOKED: MessageType = MessageType::new("ParcelBooked", "booked");
const PARCEL_CANCELLED: MessageType = MessageType::new("ParcelCancelled", "cancelled");
const SLOT_BOOKED: MessageType = MessageType::new("SlotBooked", "slot_booked");
const SLOT_REFUSED: MessageType = MessageType::new("SlotRefused", "slot_refused");
const SLOT_RELEASED: MessageType = MessageType::new("SlotReleased", "slot_released");

/// Facts of both services. Each parcel is a saga.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "fact")]
pub enum Fact {
    ParcelBooked { parcel: Uuid, to: String },
    ParcelCancelled { parcel: Uuid, why: String },
    SlotBooked { parcel: Uuid, slot: String },
    SlotRefused { parcel: Uuid },
    SlotReleased { parcel: Uuid },
}

impl Message for Fact {
    fn message_type(&self) -> MessageType {
        match self {
            Self::ParcelBooked { .. } => PARCEL_BOOKED,
            Self::ParcelCancelled { .. } => PARCEL_CANCELLED,
            Self::SlotBooked { .. } => SLOT_BOOKED,
            Self::SlotRefused { .. } => SLOT_REFUSED,
            Self::SlotReleased { .. } => SLOT_RELEASED,
        }
    }
    fn named(name: &str) -> Option<MessageType> {
        let all = [PARCEL_BOOKED, PARCEL_CANCELLED, SLOT_BOOKED, SLOT_REFUSED, SLOT_RELEASED];
        all.into_iter().find(|known| known.name == name)
    }
    fn saga(&self) -> Option<Uuid> {
        match self {
            Self::ParcelBooked { parcel, .. } | Self::ParcelCancelled { parcel, .. } => Some(*parcel),
            Self::SlotBooked { parcel, .. } => Some(*parcel),
            Self::SlotRefused { parcel } | Self::SlotReleased { parcel } => Some(*parcel),
        }
    }
    fn encode(&self) -> serde_json::Result<Box<RawValue>> {
        saga_core::message::raw(self)
    }
    fn decode<'de, D: Deserializer<'de>>(_: MessageType, data: D) -> Result<Self, D::Error> {
        Self::deserialize(data)
    }
}

/// Parcel at the depot. Its last event is its whole state, so events and states are the same type.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, strum::IntoStaticStr)]
pub enum Parcel {
    #[default]
    Unknown,
    Booked {
        to: String,
        deadline: Timestamp,
    },
    Dispatched {
        slot: String,
    },
    Cancelled {
        why: String,
    },
    Returned, // cancelled, and the courier has undone its part
}

#[derive(Debug, Clone)]
pub enum ParcelCommand {
    Book { to: String, deadline: Timestamp },
    Dispatch { slot: String },
    Cancel { why: &'static str },
    Return,
}

impl Decider for Parcel {
    const KIND: &'static str = "parcel";
    type Command = ParcelCommand;
    type Event = Self;
    type Rejection = Infallible;
    fn decide(&self, command: &ParcelCommand) -> Result<Vec<Self>, Infallible> {
        use ParcelCommand::{Book, Cancel, Dispatch, Return};
        Ok(match (command.clone(), self) {
            (Book { to, deadline }, Self::Unknown) => vec![Self::Booked { to, deadline }],
            (Dispatch { slot }, Self::Booked { .. }) => vec![Self::Dispatched { slot }],
            (Cancel { why }, Self::Booked { .. }) => vec![Self::Cancelled { why: why.to_owned() }],
            (Return, Self::Cancelled { .. }) => vec![Self::Returned],
            // Already done, or too late.
            (Book { .. } | Dispatch { .. } | Cancel { .. } | Return, _) => vec![],
        })
    }
    fn evolve(&mut self, event: &Self) {
        self.clone_from(event);
    }
    fn event_name(event: &Self) -> &'static str {
        event.into()
    }
    fn due(&self) -> Option<Timestamp> {
        if let Self::Booked { deadline, .. } = self { Some(*deadline) } else { None }
    }
}

type Work<'a> = UnitOfWork<'a, Fact>;

/// Publishes each booking and cancellation for the courier.
impl Policy<Fact> for Parcel {
    fn whenever(event: &Self, _: &str, _: &Self, work: &mut Work<'_>) {
        let parcel = work.correlation_id();
        match event.clone() {
            Self::Booked { to, .. } => work.publish(Fact::ParcelBooked { parcel, to }),
            Self::Cancelled { why } => work.publish(Fact::ParcelCancelled { parcel, why }),
            Self::Unknown | Self::Dispatched { .. } | Self::Returned => {}
        }
    }
}

pub struct Depot;
impl Service for Depot {
    const NAME: &'static str = "depot";
    type Fact = Fact;
    type Command = (Uuid, ParcelCommand);
    type Reply = ();
    type Rejection = Infallible;
    fn rows() -> Vec<RowKind> {
        vec![RowKind::of::<Parcel>()]
    }
    fn steps() -> &'static [Step] {
        const FACTS: Subscription = Subscription::to("courier", &[SLOT_BOOKED, SLOT_REFUSED, SLOT_RELEASED]);
        const { &[Step::new("depot-slots", &[FACTS])] }
    }
    fn rows_of_command(&self, (parcel, _): &Self::Command) -> Vec<RowKey> {
        vec![RowKey::of::<Parcel>(parcel)]
    }
    fn on_command(&self, (parcel, command): &Self::Command, work: &mut Work<'_>) -> HandlerResult<Self> {
        work.decide::<Parcel>(parcel, command)?;
        Ok(())
    }
    fn on_message(
        &self,
        step: &'static Step,
        message: &Received<Fact>,
        work: &mut Work<'_>,
    ) -> HandlerResult<Self> {
        let command = match &message.fact {
            Fact::SlotBooked { slot, .. } => ParcelCommand::Dispatch { slot: slot.clone() },
            Fact::SlotRefused { .. } => ParcelCommand::Cancel { why: "no van goes there" },
            Fact::SlotReleased { .. } => ParcelCommand::Return,
            Fact::ParcelBooked { .. } | Fact::ParcelCancelled { .. } => {
                Err(HandlerError::unhandled(step, message))?
            }
        };
        work.decide::<Parcel>(message.correlation_id, &command)?;
        Ok(())
    }
    fn on_deadline(&self, row: &RowKey, work: &mut Work<'_>) -> HandlerResult<Self> {
        work.decide::<Parcel>(&row.id, &ParcelCommand::Cancel { why: "no van in time" })?;
        Ok(())
    }
}

/// Has no rows: the carrier repeats its answers, and books nothing for a released parcel.
pub struct Courier;
impl Service for Courier {
    const NAME: &'static str = "courier";
    const OPERATOR: Option<&'static str> = Some(Operator::<Fact>::NAME);
    type Fact = Fact;
    type Command = Infallible;
    type Reply = ();
    type Rejection = Infallible;
    fn steps() -> &'static [Step] {
        const BOOKED: Subscription = Subscription::to("depot", &[PARCEL_BOOKED]);
        const CANCELLED: Subscription = Subscription::to("depot", &[PARCEL_CANCELLED]);
        const BOOKING: Step = Step::new("courier-booking", &[BOOKED]).needing(&["carrier"]);
        const { &[BOOKING, Step::new("courier-release", &[CANCELLED]).needing(&["carrier"])] }
    }
    fn on_message(
        &self,
        step: &'static Step,
        message: &Received<Fact>,
        work: &mut Work<'_>,
    ) -> HandlerResult<Self> {
        work.add_task(step.name, &message.fact);
        Ok(())
    }
    fn on_task_result(&self, result: &TaskResult<'_>, work: &mut Work<'_>) -> HandlerResult<Self> {
        // Without an answer nobody knows what the carrier has booked, so a human must look at it.
        let answer = result.answer.map_err(|failed| HandlerError::Permanent(failed.reason()))?;
        work.publish(Fact::deserialize(answer).map_err(|error| HandlerError::Permanent(error.to_string()))?);
        Ok(())
    }
}
