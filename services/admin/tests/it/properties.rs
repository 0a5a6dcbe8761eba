//! Pure: what holds of admin's views in whatever order, and however often, their facts are heard.

use admin::policy::{AdminService, DeadLetterView};
use proptest::prelude::*;
use shared::contract::{DeadLettered, Fact, FactType};
use shared::envelope::Envelope;
use shared::saga::{HeardFact, SagaView};
use uuid::Uuid;

use crate::domain::any_sequence;
use crate::given::{ORDER, fact, letter, letter_id};
use crate::world::message::{envelope, facts_heard};
use crate::world::{Stimulus, World, batches_do_what_single_inputs_do};

const ORDERS: [Uuid; 2] = [ORDER, Uuid::from_u128(2)];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_dead_letters_view_takes_any_sequence_of_letters(minutes in prop::collection::vec(0_i64..5, 0..12)) {
        let letters: Vec<_> = minutes.iter().map(|minutes| letter("payment-refund", Some(ORDER), *minutes)).collect();
        let mut newest: Option<DeadLettered> = None;
        any_sequence::<DeadLetterView>(&letters, |_| false, |view, events| {
            newest = newest.take().into_iter().chain(events.iter().cloned()).max_by_key(|letter| letter.last_failed_at);
            assert_eq!(view.0, newest, "it shows the newest");
        });
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
            ORDERS.map(|order| (admin.row::<SagaView>(order), admin.row::<DeadLetterView>(letter_id(Some(order)))))
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

/// Any fact of two sagas; a dead letter may have died again.
fn heard() -> impl Strategy<Value = Fact> {
    let types: Vec<FactType> = facts_heard::<AdminService>().into_iter().collect();
    let order = || prop::sample::select(ORDERS.to_vec());
    let died_again = (order(), 0_i64..3);
    prop_oneof![
        6 => (prop::sample::select(types), order()).prop_map(|(heard, order)| fact(heard, order)),
        1 => died_again.prop_map(|(order, at)| Fact::DeadLettered(letter("payment-refund", Some(order), at))),
    ]
}

fn heard_fact(fact: &Fact) -> HeardFact {
    let envelope = Envelope::from_bytes(&envelope(fact)).expect("an envelope");
    HeardFact::of(&envelope.open().expect("it can be read"))
}
