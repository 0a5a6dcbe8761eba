//! Pure: what holds of admin's views in whatever order, and however often, their facts are heard.

use admin::letters::{Letter, LetterCommand, LetterEvent, Replay, Tag};
use admin::policy::AdminService;
use proptest::prelude::*;
use shared::contract::{DeadLettered, Fact, FactType};
use shared::decider::Decider;
use shared::envelope::Envelope;
use shared::saga::{HeardFact, SagaView};
use uuid::Uuid;

use crate::domain::any_sequence;
use crate::given::{
    ORDER, asks, by_ada, command_id, fact, letter, letter_id, replay, replay_requested, resolved,
};
use crate::world::message::{envelope, facts_heard};
use crate::world::{Stimulus, World, batches_do_what_single_inputs_do};

const ORDERS: [Uuid; 2] = [ORDER, Uuid::from_u128(2)];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_letter_takes_any_sequence_of_wishes(wishes in prop::collection::vec(wish(), 0..24)) {
        let adds_up = |wish: &LetterCommand| matches!(wish, LetterCommand::Replay(_) | LetterCommand::Note(..));
        let (mut version, mut newest) = (0, None);
        any_sequence::<Letter>(&wishes, adds_up, |letter, events| {
            assert!(events.is_empty() || letter.version() > version, "every event is a new version");
            version = letter.version();
            newest = newest.max(letter.said().map(|said| said.replays));
            assert_eq!(letter.said().map(|said| said.replays), newest, "what it shows is the newest");
        });
    }

    /// Operators act one after another; what services say may come in any order, and again.
    #[test]
    fn a_letter_is_the_same_whatever_the_order_and_repetition_of_what_its_service_said(
        wishes in prop::collection::vec(wish(), 1..16), places in prop::collection::vec(any::<prop::sample::Index>(), 32),
    ) {
        let mut letter = Letter::default();
        let mut events = Vec::new();
        for wish in &wishes {
            for event in letter.decide(wish).unwrap_or_default() {
                letter.evolve(&event);
                events.push(event);
            }
        }
        let is_said = |event: &LetterEvent| matches!(event, LetterEvent::Announced(_) | LetterEvent::Resolved(_));
        let (said, mut shuffled): (Vec<_>, Vec<_>) = events.iter().cloned().partition(is_said);
        for (event, place) in said.iter().chain(&said).zip(&places) {
            shuffled.insert(place.index(shuffled.len() + 1), event.clone());
        }
        let mut other = Letter::default();
        shuffled.iter().for_each(|event| other.evolve(event));
        prop_assert_eq!(letter, other);
    }

    #[test]
    fn however_many_ask_at_once_a_letter_goes_back_once(others in 1_usize..8, together: bool) {
        let mut admin = World::of(AdminService);
        let dead = letter("payment-refund", Some(ORDER), 0);
        admin.hears(Fact::DeadLettered(Box::new(dead.clone())));
        let commands: Vec<_> = (0..=others as u128)
            .map(|number| Stimulus::Command {
                id: command_id(number), saga: ORDER, command: asks(number, replay(dead.id)), key: None,
            })
            .collect();
        let size = if together { commands.len() } else { 1 };
        let outcomes: Vec<_> = commands.chunks(size).flat_map(|chunk| admin.takes_batch(chunk)).collect();
        let done = outcomes.iter().filter(|outcome| outcome.name() == "done").count();
        prop_assert_eq!((done, outcomes.len()), (1, others + 1));
        prop_assert_eq!(admin.told(), [replay_requested(&dead, 2)]);
    }

    #[test]
    fn a_saga_view_takes_any_sequence_of_facts(facts in prop::collection::vec(heard(), 0..16)) {
        let heard: Vec<_> = facts.iter().map(heard_fact).collect();
        any_sequence::<SagaView>(&heard, |_| false, |view, _| assert!(view.last_fact_at().is_some()));
    }

    #[test]
    fn the_views_are_the_same_whatever_the_order_and_repetition_of_what_is_heard(
        (facts, shuffled) in prop::collection::vec(heard(), 1..16).prop_flat_map(|facts| {
            let repeated: Vec<_> = facts.iter().chain(&facts).cloned().collect();
            (Just(facts), Just(repeated).prop_shuffle())
        }),
    ) {
        let views = |facts: &[Fact]| {
            let mut admin = World::of(AdminService);
            facts.iter().for_each(|fact| drop(admin.hears(fact.clone()).comes_out("done")));
            ORDERS.map(|order| (admin.row::<SagaView>(order), admin.row::<Letter>(letter_id(Some(order)))))
        };
        prop_assert_eq!(views(&facts), views(&shuffled));
    }

    #[test]
    fn a_batch_does_what_its_inputs_do_one_by_one(
        facts in prop::collection::vec(heard().prop_map(Stimulus::Fact), 1..32), size in 2_usize..33, use_inbox: bool,
    ) {
        batches_do_what_single_inputs_do(|| AdminService, &facts, size, use_inbox);
    }
}

/// Any wish concerning a letter.
fn wish() -> impl Strategy<Value = LetterCommand> {
    let dead = |replays| DeadLettered {
        fingerprint: format!("f{}", replays % 2),
        ..letter("payment-refund", Some(ORDER), replays)
    };
    let tag = prop::option::of((1_u32..3).prop_map(|round| Tag { redrive: ORDER, round }));
    prop_oneof![
        4 => (0_u32..5).prop_map(move |replays| LetterCommand::Announce(Box::new(dead(replays)))),
        1 => (0_u32..5).prop_map(move |replays| LetterCommand::Resolve(Box::new(resolved(&dead(replays))))),
        3 => (any::<bool>(), tag).prop_map(|(force, tag)| {
            LetterCommand::Replay(Replay { by: by_ada(), force, version: None, tag, edited: None })
        }),
        1 => Just(LetterCommand::Discard(by_ada())),
        1 => Just(LetterCommand::Restore(by_ada())),
        1 => Just(LetterCommand::Note(by_ada(), "noted".to_owned())),
    ]
}

/// Any fact of two sagas; a dead letter may have died again.
fn heard() -> impl Strategy<Value = Fact> {
    let types: Vec<FactType> = facts_heard::<AdminService>().into_iter().collect();
    let order = || prop::sample::select(ORDERS.to_vec());
    let died_again = (order(), 0_u32..3);
    prop_oneof![
        6 => (prop::sample::select(types), order()).prop_map(|(heard, order)| fact(heard, order)),
        1 => died_again.prop_map(|(order, at)| Fact::DeadLettered(Box::new(letter("payment-refund", Some(order), at)))),
    ]
}

fn heard_fact(fact: &Fact) -> HeardFact {
    let envelope = Envelope::from_bytes(&envelope(fact)).expect("an envelope");
    HeardFact::of(&envelope.open().expect("it can be read"))
}
