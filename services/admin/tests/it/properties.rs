//! Pure: properties of the views under any order and repetition of messages.

use admin::dead_letters::events::{DeadLetterCommand, DeadLetterEvent, Replay, Tag};
use admin::dead_letters::view::DeadLetterView;
use admin::service::{AdminMessage, AdminService};
use contract::saga_fact::SagaFact;
use contract::saga_view::{SagaCommand, SagaView};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use saga_core::dead_letter::DeadLettered;
use saga_core::decider::Decider;
use saga_core::message::Envelope;
use saga_engine::testing::decider::any_sequence;
use saga_engine::testing::service_under_test::envelope;
use saga_engine::testing::{NOON, Stimulus, batches_do_what_single_inputs_do, consumed_facts};
use uuid::Uuid;

use crate::given::{
    Admin, ORDER, announced, asks, by_ada, command_id, dead_letter, dead_letter_id, dead_refund, fact,
    replay, replay_requested, resolved, revision,
};

const ORDERS: [Uuid; 2] = [ORDER, Uuid::from_u128(2)];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn dead_letter_accepts_any_sequence_of_commands(commands in prop::collection::vec(command(), 0..24)) {
        let adds_up = |(command, _): &(DeadLetterCommand, Timestamp)| {
            matches!(command, DeadLetterCommand::Replay(..) | DeadLetterCommand::Note(..))
        };
        let (mut version, mut revision, mut newest) = (0, 0, None);
        any_sequence::<DeadLetterView>(&commands, adds_up, |dead_letter, events| {
            assert!(events.is_empty() || dead_letter.version() > version, "every event is a new version");
            version = dead_letter.version();
            for request in events.iter().filter_map(DeadLetterEvent::revision) {
                assert!(request > revision, "its service hears the newest, whatever the clock says");
                revision = request;
            }
            newest = newest.max(dead_letter.report().map(|report| report.replays));
            assert_eq!(dead_letter.report().map(|report| report.replays), newest, "what it shows is the newest");
        });
    }

    /// Commands are ordered; reports may come in any order, and again.
    #[test]
    fn dead_letter_is_independent_of_order_and_repetition_of_reports(
        commands in prop::collection::vec(command(), 1..16), positions in prop::collection::vec(any::<prop::sample::Index>(), 32),
    ) {
        let mut dead_letter = DeadLetterView::default();
        let mut events = Vec::new();
        for command in &commands {
            for event in dead_letter.decide(command).unwrap_or_default() {
                dead_letter.evolve(&event);
                events.push(event);
            }
        }
        let is_report = |event: &DeadLetterEvent| matches!(event, DeadLetterEvent::Announced(_) | DeadLetterEvent::Resolved(_));
        let (reports, mut shuffled): (Vec<_>, Vec<_>) = events.iter().cloned().partition(is_report);
        for (event, place) in reports.iter().chain(&reports).zip(&positions) {
            shuffled.insert(place.index(shuffled.len() + 1), event.clone());
        }
        let mut other = DeadLetterView::default();
        shuffled.iter().for_each(|event| other.evolve(event));
        prop_assert_eq!(dead_letter, other);
    }

    #[test]
    fn concurrent_replays_publish_one_request(others in 1_usize..8, together: bool) {
        let mut admin = Admin::of(AdminService);
        let dead = dead_refund(0);
        admin.receives(announced(&dead));
        let commands: Vec<_> = (0..=others as u128)
            .map(|number| Stimulus::Command {
                id: command_id(number), saga: ORDER, command: asks(number, replay(dead.id)), key: None,
            })
            .collect();
        let size = if together { commands.len() } else { 1 };
        let outcomes: Vec<_> = commands.chunks(size).flat_map(|chunk| admin.takes_batch(chunk)).collect();
        let done = outcomes.iter().filter(|outcome| outcome.name() == "done").count();
        prop_assert_eq!((done, outcomes.len()), (1, others + 1));
        prop_assert_eq!(admin.published(), [replay_requested(&dead, revision(0))]);
    }

    #[test]
    fn saga_view_accepts_any_sequence_of_facts(facts in prop::collection::vec(received(), 0..16)) {
        let received: Vec<_> = facts.iter().map(|fact| SagaCommand::RecordFact(heard_fact(fact))).collect();
        any_sequence::<SagaView>(&received, |_| false, |view, _| assert!(view.last_fact_at().is_some()));
    }

    #[test]
    fn views_are_independent_of_order_and_repetition_of_messages(
        (facts, shuffled) in prop::collection::vec(received(), 1..16).prop_flat_map(|facts| {
            let repeated: Vec<_> = facts.iter().chain(&facts).cloned().collect();
            (Just(facts), Just(repeated).prop_shuffle())
        }),
    ) {
        let views = |facts: &[AdminMessage]| {
            let mut admin = Admin::of(AdminService);
            facts.iter().for_each(|fact| drop(admin.receives(fact.clone()).has_outcome("done")));
            admin.store.measures_only(admin::program().metrics);
            ORDERS.map(|order| (admin.row::<SagaView>(order), admin.row::<DeadLetterView>(dead_letter_id(Some(order)))))
        };
        prop_assert_eq!(views(&facts), views(&shuffled));
    }

    #[test]
    fn batch_equals_its_inputs_one_by_one(
        facts in prop::collection::vec(received().prop_map(Stimulus::Fact), 1..32), size in 2_usize..33, use_inbox: bool,
    ) {
        batches_do_what_single_inputs_do(|| AdminService, &facts, size, use_inbox);
    }
}

/// Any command to a dead letter, with a clock that may be put back.
fn command() -> impl Strategy<Value = (DeadLetterCommand, Timestamp)> {
    let dead = |replays| DeadLettered { fingerprint: format!("f{}", replays % 2), ..dead_refund(replays) };
    let tag = prop::option::of((1_u32..3).prop_map(|round| Tag { redrive: ORDER, round }));
    let request = prop_oneof![
        4 => (0_u32..5).prop_map(move |replays| DeadLetterCommand::Announce(Box::new(dead(replays)))),
        1 => (0_u32..5).prop_map(move |replays| DeadLetterCommand::Resolve(Box::new(resolved(&dead(replays))))),
        3 => (any::<bool>(), tag).prop_map(|(force, tag)| {
            DeadLetterCommand::Replay(by_ada(), Replay { force, tag, ..Replay::default() })
        }),
        1 => Just(DeadLetterCommand::Discard(by_ada())),
        1 => Just(DeadLetterCommand::Restore(by_ada())),
        1 => Just(DeadLetterCommand::ResolveManually(by_ada())),
        1 => Just(DeadLetterCommand::WithdrawResolution(by_ada())),
        1 => Just(DeadLetterCommand::Note(by_ada(), "noted".to_owned())),
    ];
    (request, (0_i64..3).prop_map(|second| NOON + SignedDuration::from_secs(second)))
}

/// Any fact of two sagas.
fn received() -> impl Strategy<Value = AdminMessage> {
    let types: Vec<_> = consumed_facts::<AdminService>().into_iter().collect();
    let order = || prop::sample::select(ORDERS.to_vec());
    let died_again = (order(), 0_u32..3);
    prop_oneof![
        6 => (prop::sample::select(types), order()).prop_map(|(received, order)| fact(received, order)),
        1 => died_again.prop_map(|(order, at)| announced(&dead_letter("payment-refund", Some(order), at))),
    ]
}

fn heard_fact(fact: &AdminMessage) -> SagaFact {
    let envelope = Envelope::from_bytes(&envelope("payment", fact)).expect("an envelope");
    SagaFact::of(&envelope.open().expect("it can be read"))
}
