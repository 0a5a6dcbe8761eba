//! Pure: what every state of a dead letter's view answers to every letter, and where a saga stands after every
//! fact, printed.

use admin::policy::{AdminService, DeadLetterView};
use shared::contract::FactType;
use shared::saga::SagaView;

use crate::domain::{Names, aligned, table};
use crate::given::{ORDER, fact, letter};
use crate::world::World;
use crate::world::message::facts_heard;

#[test]
fn every_state_of_a_dead_letters_view_answers_every_letter() {
    let names = Names {
        state: |view: &DeadLetterView| {
            view.0.as_ref().map_or("unknown".to_owned(), |known| known.reason.clone())
        },
        command: |letter| letter.reason.clone(),
        rejection: |never| match *never {},
    };
    let letters = [4, 5, 6].map(|minutes| letter("payment-refund", Some(ORDER), minutes));
    let states = [DeadLetterView::default(), DeadLetterView(Some(letters[1].clone()))];
    insta::with_settings!({ snapshot_path => "../snapshots", prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("dead_letter_view", table(&states, &letters, &names));
    });
}

#[test]
fn every_fact_moves_every_saga() {
    use FactType::{
        OrderCancelled, OrderConfirmed, OrderCreated, PaymentProcessed, StockReleased,
        StockReservationFailed, StockReserved,
    };
    let stories: [(&str, &[FactType]); 7] = [
        ("unheard of", &[]),
        ("created", &[OrderCreated]),
        ("reserved", &[OrderCreated, StockReserved]),
        ("paid", &[OrderCreated, StockReserved, PaymentProcessed]),
        ("confirmed", &[OrderCreated, StockReserved, PaymentProcessed, OrderConfirmed]),
        ("refused", &[OrderCreated, StockReservationFailed, OrderCancelled]),
        ("cancelled late", &[OrderCreated, StockReserved, PaymentProcessed, OrderCancelled, StockReleased]),
    ];
    let mut lines =
        vec![["then".to_owned()].into_iter().chain(stories.map(|(name, _)| name.to_owned())).collect()];
    for then in facts_heard::<AdminService>() {
        let status = |(_, story): &(&str, &[FactType])| status_after(story.iter().chain([&then]));
        lines
            .push([then.name().to_owned()].into_iter().chain(stories.iter().map(status)).collect::<Vec<_>>());
    }
    let lines: Vec<[String; 8]> =
        lines.into_iter().map(|line| line.try_into().expect("a column for each story")).collect();
    insta::with_settings!({ snapshot_path => "../snapshots", prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("saga_view", aligned(&lines));
    });
}

fn status_after<'a>(story: impl Iterator<Item = &'a FactType>) -> String {
    let mut admin = World::of(AdminService);
    for heard in story {
        admin.hears(fact(*heard, ORDER)).comes_out("done");
    }
    admin.row::<SagaView>(ORDER).status().as_str().to_owned()
}
