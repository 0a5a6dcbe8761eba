//! Steps, their consumers, and the engine's step for operator commands.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use saga_core::decider::RetentionPolicy;
use saga_core::decision::{DecisionConfig, Loaded, decide, reads};
use saga_core::input::Input;
use saga_core::message::{Envelope, Message, MessageType, raw};
use saga_core::retry::RetryPolicy;
use saga_core::row::{RowKey, RowKind, StoredRow};
use saga_core::service::{HandlerError, Service, Step, Subscription, steps_of, stream_of};
use saga_core::unit_of_work::UnitOfWork;
use saga_core::waiting::Task;
use serde::Deserializer;
use serde_json::json;
use serde_json::value::RawValue;
use uuid::Uuid;

#[test]
fn step_with_two_producers_has_two_consumers() {
    static TWO: [Subscription; 2] = [Subscription::to("order", &[]), Subscription::to("payment", &[])];
    static ONE: [Subscription; 1] = [Subscription::to("order", &[])];
    let (two, one) = (Step::new("watching", &TWO), Step::new("watching", &ONE));
    assert_eq!(TWO.map(|it| two.durable(&it)), ["watching-order", "watching-payment"]);
    assert_eq!(one.durable(&ONE[0]), "watching");
}

/// Commands are addressed: no other service receives them.
#[test]
fn engine_step_consumes_commands_addressed_to_its_service() {
    let [operations] = steps_of::<Quiet>()[..] else { panic!("one step, which nobody declared") };
    assert_eq!((operations.name, operations.is_for_operators()), ("quiet-operations", true));
    let [commands] = operations.consumes else { panic!("one subscription") };
    let suffixes = ["replay_requested", "dead_letter_discarded", "dead_letter_restored"];
    assert_eq!(commands.subjects("quiet"), suffixes.map(|suffix| format!("admin.{suffix}.quiet")));
    assert_eq!(
        (commands.stream().as_str(), &operations.durable(commands)[..]),
        ("ADMIN", "quiet-operations")
    );
}

#[test]
fn step_declares_consumed_types_and_needs() {
    static HEARD: [Subscription; 1] = [Subscription::to("shop", &[MessageType::new("Paid", "paid")])];
    let step = Step::new("counting", &HEARD).needing(&["bank"]);
    assert_eq!((step.needs, step.consumes.len(), step.is_for_operators()), (&["bank"][..], 1, false));
    assert_eq!([step.consumes_type("Paid"), step.consumes_type("Counted")], [true, false]);
    assert_eq!((stream_of("shop"), HEARD[0].stream()), ("SHOP".to_owned(), "SHOP".to_owned()));
}

/// A message or command without a handler becomes a dead letter that names the missing declaration.
#[test]
fn undeclared_input_is_a_permanent_error() {
    let now = Timestamp::UNIX_EPOCH;
    let retry = RetryPolicy { max_attempts: 9, base: Duration::ZERO, cap: Duration::ZERO };
    let rules = rules(retry);
    let heard = rung();
    let task = Task {
        trace: None,
        id: Uuid::from_u128(3),
        kind: "collect".to_owned(),
        correlation_id: Uuid::from_u128(2),
        payload: String::new(),
        attempts: 0,
        claim: 1,
        created_at: now,
        dead_letter: None,
    };
    let called = Input::task_result(task.clone(), Ok(json!(1)), 0);
    let key = RowKey { kind: "tin", id: "a".to_owned() };
    let inputs = [
        Input::command(Uuid::nil(), Uuid::nil(), "dance", None),
        heard,
        called,
        Input::due(key.clone(), now),
        Input::task_check(task.clone()),
    ];
    // Messages and task results read the row of their saga of each kind; due rows and commands read what they name.
    let saga = |kind| RowKey { kind, id: Uuid::from_u128(2).to_string() };
    let rows = |input: usize| reads(&Bare, &inputs[input..=input]).rows;
    let of_saga = BTreeSet::from([saga("other"), saga("tin")]);
    assert_eq!(
        (rows(0), rows(1), rows(2), rows(3)),
        (BTreeSet::new(), of_saga.clone(), of_saga, [key].into())
    );

    let loaded = Loaded { tasks: BTreeMap::from([(task.id, 1)]), ..Loaded::default() };
    let (writes, outcomes) = decide(&Bare, &inputs, loaded, &rules, now);
    assert!(writes.to_read.is_empty(), "nothing is on record");
    let reasons: Vec<_> = outcomes.iter().map(|outcome| format!("{outcome:?}")).collect();
    for (reason, expected) in reasons.iter().zip([
        "Command(Faulted(\"bare has no command handler\"))",
        "Message(Dead(\"listening has no handler for Rung\"))",
        "Message(Dead(\"bare has no handler for results of task collect\"))",
        "Due(Faulted(\"bare has no handler for due rows (tin/a)\"))",
        "Message(Duplicate)",
    ]) {
        assert_eq!(reason, expected);
    }
    let loaded = Loaded { tasks: BTreeMap::from([(task.id, 1)]), ..Loaded::default() };
    let (_, outcomes) = decide(&Bare, &[Input::task_check(task)], loaded, &rules, now);
    assert_eq!(outcomes[0].name(), "task_needed", "who says nothing wants what it asked for");
    assert_eq!(steps_of::<Bare>().len(), 0, "no operator, no step for one");
}

fn rules(retry: RetryPolicy) -> DecisionConfig {
    DecisionConfig {
        retry,
        step_retry: BTreeMap::new(),
        task_retry: retry,
        owner: String::new(),
        task_lease: SignedDuration::ZERO,
        keep_failed: false,
        lost_before: None,
        use_inbox: true,
    }
}

/// A message of the second saga.
fn rung() -> Input<Bare> {
    of_the_second_saga("Rung")
}

fn of_the_second_saga(message_type: &str) -> Input<Bare> {
    static HEARING: Step = Step::new("listening", &[Subscription::to("shop", &[RUNG, HUNG_UP])]);
    let envelope = Envelope {
        id: Uuid::from_u128(1),
        message_type: message_type.to_owned(),
        version: 1,
        producer: "shop".to_owned(),
        correlation_id: Uuid::from_u128(2),
        causation_id: Uuid::nil(),
        occurred_at: Timestamp::UNIX_EPOCH,
        data: raw(&()).expect("JSON"),
    };
    let payload = serde_json::to_vec(&envelope).expect("JSON");
    Input::message(&HEARING, payload.into(), Uuid::nil(), 0)
}

/// The row was purged. A late message must not create it again.
#[test]
fn message_about_purged_saga_is_dead_lettered() {
    let retry = RetryPolicy { max_attempts: 9, base: Duration::ZERO, cap: Duration::ZERO };
    let there = StoredRow { version: 1, state: "null".to_owned() };
    let tin = RowKey { kind: "tin", id: Uuid::from_u128(2).to_string() };
    let failure_of = |purged_before: Option<u128>, rows: BTreeMap<RowKey, StoredRow>| {
        let loaded = Loaded { purged_before: purged_before.map(Uuid::from_u128), rows, ..Loaded::default() };
        let reads = reads(&Bare, &[rung()]);
        assert!(reads.rows.contains(&tin));
        let (_, outcomes) = decide(&Bare, &[rung()], loaded, &rules(retry), Timestamp::UNIX_EPOCH);
        format!("{:?}", outcomes[0])
    };
    assert!(failure_of(Some(3), BTreeMap::new()).contains("was purged (retention.history)"));
    for (purged_before, rows) in [
        (None, BTreeMap::new()),
        (Some(2), BTreeMap::new()),
        (Some(3), BTreeMap::from([(tin.clone(), there)])),
    ] {
        assert!(failure_of(purged_before, rows).contains("has no handler"), "{purged_before:?}");
    }
}

/// Nothing is left to cancel: no dead letter.
#[test]
fn cancellation_of_purged_saga_has_no_effect() {
    let rules = rules(RetryPolicy { max_attempts: 9, base: Duration::ZERO, cap: Duration::ZERO });
    let loaded = |purged_before| Loaded { purged_before, ..Loaded::default() };
    let given_up = |purged_before| {
        let input = of_the_second_saga("HungUp");
        let (writes, outcomes) =
            decide(&Bare, &[input], loaded(purged_before), &rules, Timestamp::UNIX_EPOCH);
        (outcomes[0].name(), writes.inbox.len(), writes.new_dead_letters.len())
    };
    assert_eq!(given_up(Some(Uuid::from_u128(3))), ("done", 1, 0));
    assert_eq!(given_up(None), ("dead_lettered", 0, 1), "of what is there it is told");
}

const RUNG: MessageType = MessageType::new("Rung", "rung");
const HUNG_UP: MessageType = MessageType::new("HungUp", "hung_up");

/// A fact without an address.
#[derive(Debug, Clone, PartialEq)]
enum Rung {
    Rung,
    HungUp,
}

impl Message for Rung {
    fn message_type(&self) -> MessageType {
        match self {
            Self::Rung => RUNG,
            Self::HungUp => HUNG_UP,
        }
    }

    fn named(name: &str) -> Option<MessageType> {
        [RUNG, HUNG_UP].into_iter().find(|known| known.name == name)
    }

    fn asks_to_stop(&self) -> bool {
        *self == Self::HungUp
    }

    fn saga(&self) -> Option<Uuid> {
        None
    }

    fn encode(&self) -> serde_json::Result<Box<RawValue>> {
        raw(&())
    }

    fn decode<'de, D: Deserializer<'de>>(message_type: MessageType, _: D) -> Result<Self, D::Error> {
        Ok(if message_type == HUNG_UP { Self::HungUp } else { Self::Rung })
    }
}

/// A service that declares only its rows.
#[derive(Debug)]
struct Bare;

impl Service for Bare {
    const NAME: &'static str = "bare";
    type Fact = Rung;
    type Command = &'static str;
    type Reply = ();
    type Rejection = Infallible;

    fn rows() -> Vec<RowKind> {
        let kind = |name, retention| RowKind {
            name,
            fields: &[],
            numbers: &[],
            retention,
            finished: |_| Ok(None),
            begin: |_| unreachable!("no row is folded"),
        };
        vec![kind("tin", RetentionPolicy::PurgeRows), kind("other", RetentionPolicy::Keep)]
    }
}

#[test]
fn fact_without_address_has_no_addressee() {
    assert_eq!((Rung::Rung.addressee(), Rung::Rung.subject("shop")), (None, "shop.rung".to_owned()));
}

/// A service without commands.
struct Quiet;

impl Service for Quiet {
    const NAME: &'static str = "quiet";
    const OPERATOR: Option<&'static str> = Some("admin");
    type Fact = Infallible;
    type Command = Infallible;
    type Reply = ();
    type Rejection = Infallible;

    fn rows() -> Vec<RowKind> {
        vec![]
    }

    fn rows_of_command(&self, command: &Infallible) -> Vec<RowKey> {
        match *command {}
    }

    fn on_command(
        &self,
        command: &Infallible,
        _: &mut UnitOfWork<'_, Infallible>,
    ) -> Result<(), HandlerError<Infallible>> {
        match *command {}
    }
}
