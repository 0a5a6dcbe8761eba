//! Batches: the changes of each input, and their isolation.

mod dead_letters;
mod desk;
mod messages;
mod operators;
mod task_results;
pub(crate) mod till;
mod traces;
mod world;

use jiff::{SignedDuration, Timestamp};
use saga_core::breaker::Verdict;
use saga_core::decider::FieldValue;
use saga_core::decision::Writes;
use saga_core::input::{CommandOutcome, DueOutcome, Input, MessageOutcome, Outcome, RequestKey};
use saga_core::message::Envelope;
use saga_core::row::RowKey;
use saga_core::waiting::Task;
use serde_json::json;
use uuid::Uuid;

use self::till::{FULL, Fact, NOON, NoCoins, Reply, Till, TillCommand, Tin};
use self::world::World;

/// Rows, events, outbox entries and tasks of an input are written in one transaction.
#[test]
fn batch_writes_each_row_once_and_publishes_by_policy() {
    let mut world = World::new();
    let first = world.command(TillCommand::Put("a", 60));
    let nothing = world.command(TillCommand::Put("a", 0));
    let second = world.command(TillCommand::Put("a", 40));
    let third = world.command(TillCommand::LookAt("b", NOON));
    let ids = [first.id, second.id];
    let (writes, outcomes) = world.decide(&[first, nothing, second, third]);

    let replies: Vec<_> = outcomes.into_iter().filter_map(Outcome::of_command).collect();
    let changed = replies.iter().map(|reply| {
        let CommandOutcome::Done(Reply(is_changed, now, saga)) = reply else { panic!("{reply:?}") };
        (*is_changed, *now, saga.as_u128())
    });
    assert_eq!(
        changed.collect::<Vec<_>>(),
        [true, false, true, true].map(|is_changed| (is_changed, NOON, 0x5A6A))
    );

    let rows: Vec<_> = writes
        .rows
        .iter()
        .map(|row| {
            (&row.key.id[..], row.read_version, row.version, &row.projected.fields[..], row.projected.due)
        })
        .collect();
    let fields = |name: &str, coins: i64| vec![FieldValue::Text(name.to_owned()), FieldValue::Integer(coins)];
    assert_eq!(
        rows,
        [("a", 0, 2, &fields("a", 100)[..], None), ("b", 0, 1, &fields("b", 0)[..], Some(NOON))]
    );
    let events: Vec<_> = writes.events.iter().map(|it| (&it.key.id[..], it.version, it.name)).collect();
    assert_eq!(events, [("a", 1, "Put"), ("a", 2, "Put"), ("b", 1, "LookSet")]);
    assert_eq!((&writes.events[1].data[..], writes.events[1].causation_id), (r#"{"Put":40}"#, ids[1]));

    // Looking at a tin publishes nothing.
    let entries: Vec<_> = writes.outbox.iter().map(|entry| (entry.event, fact(&entry.payload))).collect();
    let counted = |before, after| Fact::Counted { in_tin: "a".to_owned(), before, after, heard: false };
    assert_eq!(entries, [(Some(0), counted(0, 60)), (Some(1), counted(60, 100))]);
    let envelopes: Vec<_> = writes.outbox.iter().map(|it| envelope(&it.payload)).collect();
    for ((entry, envelope), cause) in writes.outbox.iter().zip(&envelopes).zip(ids) {
        assert_eq!((&entry.subject[..], entry.id), ("till.counted", envelope.id));
        assert_eq!((&envelope.producer[..], envelope.occurred_at), ("till", NOON));
        assert_eq!((envelope.causation_id, envelope.correlation_id), (cause, Uuid::from_u128(0x5A6A)));
    }
    assert_ne!(envelopes[0].id, envelopes[1].id);

    let [Task { kind, payload, attempts: 0, claim: 1, created_at, dead_letter: None, .. }] =
        &writes.tasks[..]
    else {
        panic!("one call: {:?}", writes.tasks)
    };
    assert_eq!((&kind[..], &payload[..], *created_at), ("collect", r#""a""#, NOON));
    assert_eq!(writes.claim, Some(("till-1".to_owned(), NOON + SignedDuration::from_secs(30))));
    assert_eq!(writes.decided_at, NOON);

    // The next batch starts from there.
    let again = world.command(TillCommand::Put("a", 1));
    let (writes, _) = world.decide_one(again);
    assert_eq!((writes.rows[0].read_version, writes.rows[0].version, writes.tasks.len()), (2, 3, 0));
    assert_eq!(fact(&writes.outbox[0].payload), counted(100, 101));
}

#[test]
fn outbox_entry_names_its_event() {
    let mut world = World::new();
    let inputs = [TillCommand::LookAt("a", NOON), TillCommand::Put("a", 1), TillCommand::PutTwice("b", 1)];
    let inputs = inputs.map(|command| world.command(command));
    let (writes, _) = world.decide(&inputs);
    let entries: Vec<_> = writes.outbox.iter().map(|entry| entry.event).collect();
    assert_eq!((entries, writes.events.len()), (vec![Some(1), Some(2), Some(3)], 4));
}

#[test]
fn input_rejected_midway_leaves_no_changes() {
    let mut world = World::new();
    let inputs = [
        world.command(TillCommand::Put("a", 1)),
        world.command(TillCommand::PutAndRegret("a", FULL)),
        world.command(TillCommand::Put("a", 2)),
    ];
    let (writes, outcomes) = world.decide(&inputs);
    let names: Vec<_> = outcomes.iter().map(Outcome::name).collect();
    assert_eq!(names, ["done", "rejected", "done"]);
    assert_eq!((world.tin("a").coins, writes.events.len(), writes.tasks.len()), (3, 2, 0));
    assert_eq!(writes.events[1].version, 2);
}

#[test]
fn idempotency_key_repeats_answer_and_rejects_other_request() {
    let mut world = World::new();
    let key = |fingerprint: &str| RequestKey { key: "k".to_owned(), fingerprint: fingerprint.to_owned() };
    let under = |id: u128, fingerprint| {
        Input::command(Uuid::from_u128(id), Uuid::nil(), TillCommand::Put("a", 1), Some(key(fingerprint)))
    };
    // The same within one batch as across batches.
    let (_, mut outcomes) = world.decide(&[under(1, "x"), under(2, "x"), under(3, "y")]);
    outcomes.extend(world.decide(&[under(4, "x"), under(5, "y")]).1);
    let names: Vec<_> = outcomes.iter().map(Outcome::name).collect();
    assert_eq!(names, ["done", "replayed", "key_reused", "replayed", "key_reused"]);
    let announced = |index: usize| {
        let Outcome::Command(CommandOutcome::Done(reply) | CommandOutcome::Replayed(reply)) =
            &outcomes[index]
        else {
            panic!("{outcomes:?}")
        };
        reply.clone()
    };
    assert_eq!([announced(1), announced(3)], [announced(0), announced(0)]);
    assert_eq!(world.tin("a").coins, 1);

    // A rejection is not stored as an answer.
    let rejected = |id| {
        Input::command(
            Uuid::from_u128(id),
            Uuid::nil(),
            TillCommand::Put("a", -1),
            Some(RequestKey { key: "other".to_owned(), fingerprint: String::new() }),
        )
    };
    for id in [6, 7] {
        let (writes, name) = world.decide_one(rejected(id));
        assert_eq!((name, writes.is_empty()), ("rejected", true));
    }
}

#[test]
fn due_row_is_handled_and_publishes() {
    let mut world = World::new();
    let due = |tin: &str| Input::due(RowKey::of::<Tin>(tin), NOON);
    let put = [("empty", 0), ("unlucky", 13), ("full", 5)];
    for (tin, coins) in put {
        let put = world.command(TillCommand::Put(tin, coins));
        world.decide_one(put);
    }
    let (_, outcomes) = world.decide(&[due("empty"), due("unlucky"), due("full")]);
    let [Outcome::Due(rejected), Outcome::Due(faulted), Outcome::Due(DueOutcome::Done)] = &outcomes[..]
    else {
        panic!("{outcomes:?}")
    };
    assert!(matches!(rejected, DueOutcome::Rejected(NoCoins)), "{rejected:?}");
    assert!(matches!(faulted, DueOutcome::Faulted(reason) if reason == "thirteen"), "{faulted:?}");
    assert_eq!(world.tin("full").coins, 6);

    let ids = [due("a").id, due("a").id, due("b").id, Input::<Till>::due(RowKey::of::<Tin>("a"), later()).id];
    assert_eq!(ids[0], ids[1], "a row that is found due twice is one input");
    assert!(!ids[2..].contains(&ids[0]), "another row, or the same at another time, is another");
    let saga = Uuid::from_u128(9);
    let of_saga = Input::<Till>::due(RowKey::of::<Tin>(saga), NOON);
    assert_eq!((of_saga.correlation_id, due("a").correlation_id), (saga, ids[0]));
}

/// Names are used in metrics, logs and breakers.
#[test]
fn outcome_names_are_unique_and_only_success_counts_for_breaker() {
    let reply = || Reply(true, NOON, Uuid::nil());
    let why = || "why".to_owned();
    let outcomes: [(Outcome<Till>, _, _); 14] = [
        (Outcome::Command(CommandOutcome::Done(reply())), "done", Verdict::Success),
        (Outcome::Command(CommandOutcome::Replayed(reply())), "replayed", Verdict::Success),
        (Outcome::Command(CommandOutcome::Rejected(NoCoins)), "rejected", Verdict::Ignored),
        (Outcome::Command(CommandOutcome::KeyReused), "key_reused", Verdict::Ignored),
        (Outcome::Command(CommandOutcome::Faulted(why())), "faulted", Verdict::Ignored),
        (Outcome::Message(MessageOutcome::Done), "done", Verdict::Success),
        (Outcome::Message(MessageOutcome::Duplicate), "duplicate", Verdict::Ignored),
        (Outcome::Message(MessageOutcome::Rejected(NoCoins)), "rejected", Verdict::Ignored),
        (Outcome::Message(MessageOutcome::TaskNeeded), "task_needed", Verdict::Ignored),
        (Outcome::Message(MessageOutcome::Retried(why())), "retried", Verdict::Ignored),
        (Outcome::Message(MessageOutcome::Dead(why())), "dead_lettered", Verdict::Ignored),
        (Outcome::Due(DueOutcome::Done), "done", Verdict::Success),
        (Outcome::Due(DueOutcome::Rejected(NoCoins)), "rejected", Verdict::Ignored),
        (Outcome::Due(DueOutcome::Faulted(why())), "faulted", Verdict::Ignored),
    ];
    for (outcome, name, verdict) in outcomes {
        assert_eq!((outcome.name(), outcome.verdict()), (name, verdict), "{outcome:?}");
        let is_command = matches!(outcome, Outcome::Command(_));
        assert_eq!(outcome.of_command().is_some(), is_command, "{name}");
    }
}

#[test]
fn writes_are_empty_only_when_there_is_nothing_to_write() {
    assert!(Writes::default().is_empty());
    let mut world = World::new();
    let put = world.command(TillCommand::Put("a", FULL));
    let (mut writes, _) = world.decide_one(put);
    assert!(!writes.is_empty());
    writes.release_claims();
    assert_eq!((writes.claim.clone(), writes.tasks[0].claim), (None, 0), "nobody has claimed it");
    let Writes { rows, outbox, tasks, .. } = writes;
    let place = ("counting", Uuid::nil());
    let task_retry = saga_core::decision::TaskRetry {
        id: Uuid::nil(),
        attempts: 1,
        next_attempt: NOON,
        last_error: String::new(),
        trace: None,
    };
    let (retry, stored) = operators::examples();
    let dead = stored.dead_letter.clone();
    let key = saga_core::decision::KeyedAnswer { fingerprint: String::new(), reply: json!(1).to_string() };
    let each = [
        Writes { rows, ..Writes::default() },
        Writes { outbox, ..Writes::default() },
        Writes { inbox: vec![place], ..Writes::default() },
        Writes { retries: vec![retry.clone()], ..Writes::default() },
        Writes { retries_again: vec![retry], ..Writes::default() },
        Writes { retries_done: vec![place], ..Writes::default() },
        Writes { tasks: tasks.clone(), ..Writes::default() },
        Writes { tasks_again: tasks, ..Writes::default() },
        Writes { task_retries: vec![task_retry], ..Writes::default() },
        Writes { tasks_done: vec![Uuid::nil()], ..Writes::default() },
        Writes { new_dead_letters: vec![dead], ..Writes::default() },
        Writes { changed_dead_letters: vec![stored], ..Writes::default() },
        Writes { keys: vec![(String::new(), key)], ..Writes::default() },
    ];
    for (index, writes) in each.iter().enumerate() {
        assert!(!writes.is_empty(), "{index}: {writes:?}");
    }
}

/// A row kind without overrides has no fields, no due time and no policy.
#[test]
fn row_kind_defaults_are_empty() {
    use saga_core::decider::Decider;

    #[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
    struct Plain(u32);
    impl Decider for Plain {
        const KIND: &'static str = "plain";
        type Command = ();
        type Event = ();
        type Rejection = NoCoins;
        fn decide(&self, (): &()) -> Result<Vec<()>, NoCoins> {
            Ok(vec![()])
        }
        fn evolve(&mut self, (): &()) {
            self.0 += 1;
        }
        fn event_name((): &()) -> &'static str {
            "Grown"
        }
    }
    let kind = saga_core::row::RowKind::of::<Plain>();
    assert_eq!((kind.name, kind.fields), ("plain", &[][..]));
    let grown = kind.fold("a", None, ["null", "null"]).expect("a fold");
    assert_eq!((&grown.state[..], &grown.fields[..], grown.due), ("2", &[][..], None));
    assert!(kind.fold("a", None, ["1"]).is_err(), "that is none of its events");
    let whole = saga_core::row::RowKind::of::<Tin>();
    let tin = whole.fold("a", None, [r#"{"Put":3}"#]).expect("a fold");
    assert_eq!(tin.fields, Tin { coins: 3, look_at: None }.fields("a"));
}

fn later() -> Timestamp {
    NOON + SignedDuration::from_secs(1)
}

fn envelope(payload: &[u8]) -> Envelope {
    Envelope::from_bytes(payload).expect("an envelope")
}

fn fact(payload: &[u8]) -> Fact {
    envelope(payload).open().expect("a fact of the till").fact
}
