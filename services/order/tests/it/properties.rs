//! Pure: properties of orders under any order and repetition of inputs.

use contract::order::CancelReason;
use contract::{Fact, FactType};
use jiff::{SignedDuration, Timestamp};
use order::catalogue::{CatalogueItem, PriceUpdate};
use order::domain::{Order, OrderCommand};
use order::ledger::fact_of;
use order::service::{Command, NewOrder, OrderService};
use proptest::prelude::*;
use saga_core::Message as _;
use saga_core::decider::Decider;
use saga_core::input::RequestKey;
use saga_core::row::RowKey;
use uuid::Uuid;

use crate::given::{cancel, euros, listed, paid, payment_failed, repriced, short_of_stock};
use crate::table::commands;
use saga_engine::testing::decider::any_sequence;
use saga_engine::testing::{NOON, ServiceUnderTest, Stimulus, batches_do_what_single_inputs_do};

const ORDERS: u128 = 4;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn order_accepts_any_sequence_of_commands(
        commands in prop::collection::vec(prop::sample::select(commands()), 0..12),
    ) {
        let mut last = Order::default();
        any_sequence::<Order>(&commands, |_| false, |order, _| {
            assert_eq!(order.due().is_some(), matches!(order, Order::Pending(_)), "only a pending order is due");
            assert!(last.cancelled_because().is_none() || *order == last, "a cancelled order changes no more");
            last = order.clone();
        });
        let at_last = last.decide(&OrderCommand::Expire(Timestamp::MAX)).unwrap_or_default();
        at_last.iter().for_each(|event| last.evolve(event));
        prop_assert!(last == Order::New || last.has_ended(), "an expired order has ended: {:?}", last);
    }

    #[test]
    fn catalogue_item_keeps_newest_price_in_any_order_of_updates(
        revisions in prop::collection::vec(1_u64..9, 1..12),
    ) {
        let updates: Vec<_> = revisions
            .iter()
            .map(|revision| PriceUpdate { unit_price: euros(100 + i64::try_from(*revision).unwrap_or(0)), revision: *revision })
            .collect();
        let mut newest = 0;
        any_sequence::<CatalogueItem>(&updates, |_| false, |item, events| {
            assert_eq!(events.is_empty(), item.revision == newest, "only a newer price is recorded");
            newest = item.revision;
        });
        prop_assert_eq!(Some(newest), revisions.into_iter().max());
    }

    #[test]
    fn order_is_published_once_and_ends_once_in_any_order_of_inputs(acts in prop::collection::vec(act(), 0..40)) {
        let mut shop = ServiceUnderTest::of(OrderService);
        for act in acts {
            shop.takes(act);
            shop.retries();
        }
        shop.store.measures_only(order::program().metrics);
        for (event, fact) in shop.store.events_with_facts::<Order>() {
            prop_assert_eq!(fact, fact_of(&event).map(FactType::name), "ledger and outbox agree about {:?}", event);
        }
        for order in (0..ORDERS).map(Uuid::from_u128) {
            let published: Vec<_> = shop.published().into_iter().filter(|fact| fact.saga() == Some(order)).collect();
            let names: Vec<_> = published.iter().map(|fact| fact.fact_type().name()).collect();
            let wanted: &[&str] = match shop.row::<Order>(order) {
                Order::New => &[],
                Order::Pending(_) => &["OrderCreated"],
                Order::Confirmed(_) => &["OrderCreated", "OrderConfirmed"],
                Order::Cancelled(..) if names.len() == 3 => &["OrderCreated", "OrderConfirmed", "OrderCancelled"],
                Order::Cancelled(..) => &["OrderCreated", "OrderCancelled"],
            };
            prop_assert_eq!(names, wanted);
        }
    }

    #[test]
    fn batch_has_same_effect_as_single_inputs(
        acts in prop::collection::vec(act(), 1..40), size in 2_usize..41, use_inbox: bool,
    ) {
        batches_do_what_single_inputs_do(|| OrderService, &acts, size, use_inbox);
    }
}

/// Any input: prices, requests with keys, cancellations, answers, passed deadlines.
fn act() -> impl Strategy<Value = Stimulus<OrderService>> {
    let order = || (0..ORDERS).prop_map(Uuid::from_u128);
    let reason = prop::sample::select(vec![CancelReason::CustomerRequest, CancelReason::Operator]);
    let price = (1_u64..5, any::<bool>()).prop_map(|(revision, is_first)| {
        let price = euros(1000 + i64::try_from(revision).unwrap_or(0));
        if is_first { listed("beans", price, revision) } else { repriced("beans", price, revision) }
    });
    let answer = (order(), prop::sample::select(vec![paid, payment_failed, short_of_stock]));
    prop_oneof![
        2 => price.prop_map(Stimulus::Fact),
        4 => (order(), 0_u8..3, 0_i64..2, any::<u128>()).prop_map(post),
        2 => (order(), reason, any::<u128>())
            .prop_map(|(order, reason, id)| command(id, order, cancel(order, reason), None)),
        6 => answer.prop_map(|(order, fact): (Uuid, fn(Uuid) -> Fact)| Stimulus::Fact(fact(order))),
        2 => order().prop_map(|order| Stimulus::Due(RowKey::of::<Order>(order), NOON)),
    ]
}

/// Request for an order, with a timeout of 0 or 1 minutes, under one of two keys or none.
fn post((order, key, timeout, id): (Uuid, u8, i64, u128)) -> Stimulus<OrderService> {
    let key = (key > 0).then(|| RequestKey { key: format!("k{key}"), fingerprint: order.to_string() });
    let new = NewOrder {
        order,
        customer: "ada".to_owned(),
        lines: vec![("beans".to_owned(), 1)],
        token: "tok_ok".to_owned(),
        timeout: SignedDuration::from_mins(timeout),
    };
    command(id, order, Command::Place(new), key)
}

fn command(id: u128, saga: Uuid, command: Command, key: Option<RequestKey>) -> Stimulus<OrderService> {
    Stimulus::Command { id: Uuid::from_u128(id), saga, command, key }
}
