//! Service under test, and a database in memory: a till with tins, filled by a shop and emptied by a courier.
//! Messages script its failures, so that it stays pure.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use saga_core::dead_letter::StoredDeadLetter;
use saga_core::decider::{Decider, FieldValue};
use saga_core::decision::{DecisionConfig, InboxState, KeyedAnswer, Loaded, Writes, decide, reads};
use saga_core::ids;
use saga_core::input::{Input, Outcome};
use saga_core::message::{Envelope, Message, MessageType, Received, raw};
use saga_core::retry::RetryPolicy;
use saga_core::row::{Projected, RowKey, RowKind, StoredRow};
use saga_core::service::{HandlerError, HandlerResult, Service, Step, Subscription, TaskResult};
use saga_core::unit_of_work::{Policy, UnitOfWork};
use saga_core::waiting::{Retry, Task};
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
static STEPS: [Step; 2] = [
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

/// Database in memory.
pub struct World {
    pub now: Timestamp,
    pub rules: DecisionConfig,
    pub rows: BTreeMap<RowKey, (i64, Projected)>,
    pub inbox: BTreeMap<(&'static str, Uuid), InboxState>,
    pub tasks: BTreeMap<Uuid, Task>,
    pub retries: BTreeMap<(String, Uuid), Retry>,
    pub keys: BTreeMap<String, KeyedAnswer>,
    pub dead_letters: BTreeMap<Uuid, StoredDeadLetter>,
    command_count: u128,
}

impl World {
    pub fn new() -> Self {
        let retry = RetryPolicy {
            max_attempts: ATTEMPTS,
            base: Duration::from_secs(4),
            cap: Duration::from_secs(60),
        };
        let rules = DecisionConfig {
            retry,
            step_retry: BTreeMap::new(),
            task_retry: RetryPolicy { base: Duration::from_secs(8), ..retry },
            owner: "till-1".to_owned(),
            task_lease: SignedDuration::from_secs(30),
            keep_failed: false,
            use_inbox: true,
        };
        Self {
            now: NOON,
            rules,
            rows: BTreeMap::new(),
            inbox: BTreeMap::new(),
            tasks: BTreeMap::new(),
            retries: BTreeMap::new(),
            keys: BTreeMap::new(),
            dead_letters: BTreeMap::new(),
            command_count: 0,
        }
    }

    pub fn command(&mut self, command: TillCommand) -> Input<Till> {
        self.command_count += 1;
        Input::command(Uuid::from_u128(0xC0 + self.command_count), Uuid::from_u128(0x5A6A), command, None)
    }

    /// Decides one batch on exactly what it reads, and applies the writes.
    #[track_caller]
    pub fn takes(&mut self, inputs: &[Input<Till>]) -> (Writes, Vec<Outcome<Till>>) {
        let mut reads = reads(&Till, inputs);
        let mut loaded = self.load(&reads);
        let (writes, outcomes) = loop {
            let (writes, outcomes) = decide(&Till, inputs, loaded, &self.rules, self.now);
            if writes.to_read.is_empty() {
                break (writes, outcomes);
            }
            assert!(outcomes.is_empty() && writes.is_empty(), "nothing is written yet");
            reads.rows.extend(writes.to_read.iter().cloned());
            loaded = Loaded { also_read: writes.to_read, ..self.load(&reads) };
        };
        self.keep(&writes);
        (writes, outcomes)
    }

    /// Decides one input and names its outcome.
    #[track_caller]
    pub fn take(&mut self, input: Input<Till>) -> (Writes, &'static str) {
        let (writes, outcomes) = self.takes(&[input]);
        (writes, outcomes[0].name())
    }

    fn load(&self, reads: &saga_core::decision::Reads) -> Loaded {
        let row = |key: &RowKey| {
            let (version, projected) = self.rows.get(key)?;
            Some((key.clone(), StoredRow { version: *version, state: projected.state.clone() }))
        };
        Loaded {
            rows: reads.rows.iter().filter_map(row).collect(),
            inbox: found(&reads.inbox, &self.inbox),
            tasks: found(&reads.tasks, &self.tasks).into_iter().map(|(id, task)| (id, task.claim)).collect(),
            keys: found(&reads.keys, &self.keys),
            dead_letters: found(&reads.dead_letters, &self.dead_letters),
            ..Loaded::default()
        }
    }

    fn keep(&mut self, writes: &Writes) {
        for place in &writes.retries_done {
            self.retries.remove(&(place.0.to_owned(), place.1));
            self.inbox.remove(place);
        }
        for retry in writes.retries.iter().chain(&writes.retries_again) {
            let step = STEPS.iter().find(|step| step.name == retry.step).expect("a step of the till");
            self.inbox.insert((step.name, retry.message_id), InboxState::Retrying);
            self.retries.insert((retry.step.clone(), retry.message_id), retry.clone());
        }
        self.inbox.extend(writes.inbox.iter().map(|place| (*place, InboxState::Processed)));
        writes.tasks_done.iter().for_each(|id| drop(self.tasks.remove(id)));
        self.tasks.extend(writes.tasks.iter().chain(&writes.tasks_again).map(|task| (task.id, task.clone())));
        self.keys.extend(writes.keys.iter().cloned());
        for dead in &writes.new_dead_letters {
            let stored = StoredDeadLetter {
                dead_letter: dead.clone(),
                status: saga_core::dead_letter::DeadLetterStatus::Pending,
                revision: 0,
                inbox_id: dead.message_id,
            };
            self.dead_letters.insert(dead.id, stored);
        }
        self.dead_letters
            .extend(writes.changed_dead_letters.iter().map(|it| (it.dead_letter.id, it.clone())));
        for row in &writes.rows {
            let version = self.rows.get(&row.key).map_or(0, |(version, _)| *version);
            assert_eq!(row.read_version, version, "{:?} is guarded", row.key);
            self.rows.insert(row.key.clone(), (row.version, row.projected.clone()));
        }
    }

    pub fn tin(&self, name: &str) -> Tin {
        let row = self.rows.get(&RowKey::of::<Tin>(name));
        row.map_or_else(Tin::default, |(_, row)| serde_json::from_str(&row.state).expect("a tin"))
    }
}

fn found<K: Ord + Clone, V: Clone>(
    keys: &std::collections::BTreeSet<K>,
    kept: &BTreeMap<K, V>,
) -> BTreeMap<K, V> {
    keys.iter().filter_map(|key| Some((key.clone(), kept.get(key)?.clone()))).collect()
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
