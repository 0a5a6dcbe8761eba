//! Service under test: a till with tins, filled by a shop and emptied by a courier.
//! Messages script its failures, so that it stays pure.

use jiff::Timestamp;
use saga_core::decider::{Decider, FieldValue};
use saga_core::ids;
use saga_core::input::Input;
use saga_core::message::{Envelope, Message, MessageType, Received, raw};
use saga_core::row::{RowKey, RowKind};
use saga_core::service::{HandlerError, HandlerResult, Service, Step, Subscription, TaskResult};
use saga_core::unit_of_work::{Policy, UnitOfWork};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

pub const NOON: Timestamp = Timestamp::constant(1_800_000_000, 0);
pub const ATTEMPTS: u32 = 3;
/// Coins at which a tin is collected.
pub const FULL: i64 = 100;

const PAID: MessageType = MessageType::new("Paid", "paid");
const COUNTED: MessageType = MessageType::new("Counted", "counted");
const LOST: MessageType = MessageType::new("DeadLettered", "dead_lettered");
pub static STEPS: [Step; 2] = [
    Step::new("counting", &[Subscription::to("shop", &[PAID])]),
    Step::new("watching", &[Subscription::to("shop", &[PAID, LOST])]),
];
pub const COUNTING: &Step = &STEPS[0];
/// Consumes the same messages, and announcements of dead letters.
pub const WATCHING: &Step = &STEPS[1];

/// Scripted behaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mood {
    Fine,
    NotYet,
    Broken,
    Panics,
    /// Puts the coins into the tin that this one's row names.
    OnRecord,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Fact {
    Paid { tin: String, coins: i64, mood: Mood },
    Counted { in_tin: String, before: i64, after: i64, heard: bool },
}

impl Message for Fact {
    fn message_type(&self) -> MessageType {
        match self {
            Self::Paid { .. } => PAID,
            Self::Counted { .. } => COUNTED,
        }
    }

    fn named(name: &str) -> Option<MessageType> {
        [PAID, COUNTED].into_iter().find(|known| known.name == name)
    }

    fn saga(&self) -> Option<Uuid> {
        None
    }

    /// Marks facts about the tin of this name as failures.
    fn is_failure(&self) -> bool {
        matches!(self, Self::Counted { in_tin, .. } if in_tin == "wrong")
    }

    fn encode(&self) -> serde_json::Result<Box<RawValue>> {
        raw(self)
    }

    fn decode<'de, D: Deserializer<'de>>(_: MessageType, data: D) -> Result<Self, D::Error> {
        Deserialize::deserialize(data)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoCoins;

impl std::fmt::Display for NoCoins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no coins")
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tin {
    pub coins: i64,
    pub look_at: Option<Timestamp>,
}

pub enum TinCommand {
    Put(i64),
    LookAt(Timestamp),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum TinEvent {
    Put(i64),
    LookSet(Timestamp),
}

impl Decider for Tin {
    const KIND: &'static str = "tin";
    const FIELDS: &'static [&'static str] = &["name", "coins"];
    type Command = TinCommand;
    type Event = TinEvent;
    type Rejection = NoCoins;

    fn decide(&self, command: &TinCommand) -> Result<Vec<TinEvent>, NoCoins> {
        match command {
            TinCommand::Put(0) => Ok(vec![]),
            TinCommand::Put(coins) if *coins < 0 => Err(NoCoins),
            TinCommand::Put(coins) => Ok(vec![TinEvent::Put(*coins)]),
            TinCommand::LookAt(at) => Ok(vec![TinEvent::LookSet(*at)]),
        }
    }

    fn evolve(&mut self, event: &TinEvent) {
        match event {
            TinEvent::Put(coins) => self.coins += coins,
            TinEvent::LookSet(at) => self.look_at = Some(*at),
        }
    }

    fn event_name(event: &TinEvent) -> &'static str {
        match event {
            TinEvent::Put(_) => "Put",
            TinEvent::LookSet(_) => "LookSet",
        }
    }

    fn fields(&self, id: &str) -> Vec<FieldValue> {
        vec![id.into(), self.coins.into()]
    }

    fn due(&self) -> Option<Timestamp> {
        self.look_at
    }
}

impl Policy<Fact> for Tin {
    fn whenever(event: &TinEvent, id: &str, before: &Self, work: &mut UnitOfWork<'_, Fact>) {
        let TinEvent::Put(_) = event else { return };
        let (after, heard) = (work.row::<Self>(id).coins, work.message().is_some());
        work.publish(Fact::Counted { in_tin: id.to_owned(), before: before.coins, after, heard });
        if before.coins < FULL && after >= FULL {
            work.add_task("collect", &id);
        }
    }
}

#[derive(Debug)]
pub struct Till;

/// Change, time and saga of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply(pub bool, pub Timestamp, pub Uuid);

#[derive(Debug, Clone)]
pub enum TillCommand {
    Put(&'static str, i64),
    LookAt(&'static str, Timestamp),
    PutTwice(&'static str, i64),
    /// Puts coins, then rejects.
    PutAndRegret(&'static str, i64),
}

impl Service for Till {
    const NAME: &'static str = "till";
    const OPERATOR: Option<&'static str> = Some("desk");
    type Fact = Fact;
    type Command = TillCommand;
    type Reply = Reply;
    type Rejection = NoCoins;

    fn rows() -> Vec<RowKind> {
        vec![RowKind::of::<Tin>()]
    }

    fn steps() -> &'static [Step] {
        &STEPS
    }

    fn rows_of_command(&self, command: &TillCommand) -> Vec<RowKey> {
        let (TillCommand::Put(tin, _)
        | TillCommand::PutTwice(tin, _)
        | TillCommand::LookAt(tin, _)
        | TillCommand::PutAndRegret(tin, _)) = command;
        vec![RowKey::of::<Tin>(tin)]
    }

    fn on_command(
        &self,
        command: &TillCommand,
        work: &mut UnitOfWork<'_, Fact>,
    ) -> Result<Reply, HandlerError<NoCoins>> {
        let is_changed = match command {
            TillCommand::Put(tin, coins) => work.decide::<Tin>(tin, &TinCommand::Put(*coins))?,
            TillCommand::LookAt(tin, at) => work.decide::<Tin>(tin, &TinCommand::LookAt(*at))?,
            TillCommand::PutTwice(tin, coins) => {
                work.decide::<Tin>(tin, &TinCommand::Put(*coins))?;
                work.decide::<Tin>(tin, &TinCommand::Put(*coins))?
            }
            TillCommand::PutAndRegret(tin, coins) => {
                work.decide::<Tin>(tin, &TinCommand::Put(*coins))?;
                work.decide::<Tin>(tin, &TinCommand::Put(-1))?
            }
        };
        Ok(Reply(is_changed, work.now(), work.correlation_id()))
    }

    fn rows_of_message(&self, message: &Received<Fact>) -> Vec<RowKey> {
        match &message.fact {
            Fact::Paid { tin, .. } => vec![RowKey::of::<Tin>(tin)],
            Fact::Counted { .. } => vec![],
        }
    }

    fn additional_rows(&self, message: &Received<Fact>, work: &mut UnitOfWork<'_, Fact>) -> Vec<RowKey> {
        match &message.fact {
            Fact::Paid { tin, mood: Mood::OnRecord, .. } => {
                vec![RowKey::of::<Tin>(work.row::<Tin>(tin).coins)]
            }
            Fact::Paid { .. } | Fact::Counted { .. } => vec![],
        }
    }

    fn on_message(
        &self,
        step: &'static Step,
        message: &Received<Fact>,
        work: &mut UnitOfWork<'_, Fact>,
    ) -> HandlerResult<Self> {
        let Fact::Paid { tin, coins, mood } = &message.fact else {
            return Err(HandlerError::unhandled(step, message));
        };
        let tin = match mood {
            Mood::Fine => tin.clone(),
            Mood::NotYet => return Err(HandlerError::Transient("nobody has counted".to_owned())),
            Mood::Broken => return Err(HandlerError::Permanent("the lid is off".to_owned())),
            Mood::Panics => panic!("it is dark in {tin}"),
            Mood::OnRecord => work.row::<Tin>(tin).coins.to_string(),
        };
        work.decide::<Tin>(tin, &TinCommand::Put(*coins))?;
        Ok(())
    }

    fn rows_of_result(&self, result: &TaskResult<'_>) -> Vec<RowKey> {
        vec![RowKey::of::<Tin>(result.payload.trim_matches('"'))]
    }

    /// A tin without an owner needs no task.
    fn is_task_needed(&self, result: &TaskResult<'_>, work: &mut UnitOfWork<'_, Fact>) -> bool {
        work.row::<Tin>(result.payload.trim_matches('"')).look_at.is_none()
    }

    /// Puts the returned coins; a failed call is a permanent error.
    fn on_task_result(
        &self,
        result: &TaskResult<'_>,
        work: &mut UnitOfWork<'_, Fact>,
    ) -> HandlerResult<Self> {
        let tin = result.payload.trim_matches('"');
        match result.answer {
            Ok(coins) => {
                let coins = coins.as_i64().unwrap_or_default();
                work.decide::<Tin>(tin, &TinCommand::Put(coins))?;
                Ok(())
            }
            Err(failed) => Err(HandlerError::Permanent(format!("{:?} {}", failed.kind, failed.reason()))),
        }
    }

    fn on_deadline(&self, row: &RowKey, work: &mut UnitOfWork<'_, Fact>) -> HandlerResult<Self> {
        let coins = work.row::<Tin>(&row.id).coins;
        if coins == 13 {
            return Err(HandlerError::Transient("thirteen".to_owned()));
        }
        // An empty tin is rejected.
        work.decide::<Tin>(&row.id, &TinCommand::Put(if coins == 0 { -1 } else { 1 }))?;
        Ok(())
    }
}

/// A message of the shop about a payment.
pub fn paid(id: u128, tin: &str, coins: i64, mood: Mood) -> Vec<u8> {
    envelope(id, &Fact::Paid { tin: tin.to_owned(), coins, mood })
}

/// Bytes of a message with this id, from the shop or an operator.
pub fn envelope(id: u128, message: &impl Message) -> Vec<u8> {
    let MessageType { name, version, is_addressed, .. } = message.message_type();
    let envelope = Envelope {
        id: Uuid::from_u128(id),
        message_type: name.to_owned(),
        version,
        producer: if is_addressed { "desk" } else { "shop" }.to_owned(),
        correlation_id: Uuid::from_u128(0x5A6A),
        causation_id: Uuid::nil(),
        occurred_at: NOON,
        data: message.encode().expect("JSON"),
    };
    serde_json::to_vec(&envelope).expect("JSON")
}

/// A message as a step gets it from the broker, with maximum backoff.
pub fn delivered(step: &'static Step, payload: &[u8]) -> Input<Till> {
    Input::message(step, payload.to_vec().into(), ids::of_stream_position("SHOP", 7), u32::MAX)
}
