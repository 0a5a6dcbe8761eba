//! Pure: facts that a service has lost, after an operator accepted the loss.

use contract::FactType;
use contract::reconciliation::PublishedFact;
use jiff::{SignedDuration, Timestamp};
use saga_core::service_stats::ServiceStats;

use super::shop::{CONFIRMED, Shop, at};

fn lost(shop: &mut Shop, service: &str, before: Timestamp) {
    shop.service_stats.retain(|stats| stats.service != service);
    let stats = shop.service_stats[0].clone();
    let (service, published, steps) = (service.to_owned(), [].into(), vec![]);
    shop.service_stats.push(ServiceStats { service, published, steps, lost_before: Some(before), ..stats });
}

/// Payment asked the bank for the outcome again, an hour later.
#[test]
fn fact_decided_again_after_accepted_loss_keeps_its_first_time_in_the_view() {
    let mut shop = Shop::consistent();
    let decided = &mut shop.payments[CONFIRMED].published[0];
    assert_eq!(decided.fact, FactType::PaymentProcessed);
    let first = decided.at;
    decided.at += SignedDuration::from_hours(1);
    assert_eq!(shop.discrepancies().len(), 1);
    lost(&mut shop, "inventory", first);
    assert_eq!(shop.discrepancies().len(), 1, "another service lost data");
    lost(&mut shop, "payment", first - SignedDuration::from_micros(1));
    assert_eq!(shop.discrepancies().len(), 1, "it was published after the loss");
    lost(&mut shop, "payment", first);
    assert_eq!(shop.discrepancies(), [""; 0]);
    // A view that is later than the history has another cause.
    shop.payments[CONFIRMED].published[0].at = first - SignedDuration::from_secs(1);
    assert_eq!(shop.discrepancies().len(), 1);
}

/// The order was refunded before the loss, and its charge reversed after it.
#[test]
fn fact_without_history_is_accepted_with_the_loss_of_its_service() {
    let mut shop = Shop::consistent();
    let mut view = shop.views[CONFIRMED].1.clone();
    shop.receives(&mut view, CONFIRMED, FactType::PaymentVoided, 9);
    shop.views[CONFIRMED].1 = view;
    assert_eq!(shop.discrepancies().len(), 1);
    lost(&mut shop, "payment", at(CONFIRMED, 8));
    assert_eq!(shop.discrepancies().len(), 1);
    lost(&mut shop, "payment", at(CONFIRMED, 9));
    assert_eq!(shop.discrepancies(), [""; 0]);
}

/// The replica of payment that repeated the outcome has a clock that is behind.
#[test]
fn outcome_repeated_after_an_extension_may_be_a_little_earlier_in_the_view() {
    let mut shop = Shop::consistent();
    let first = shop.payments[CONFIRMED].published[0].at;
    let later = |shop: &mut Shop, seconds| {
        shop.payments[CONFIRMED].published[0].at = first + SignedDuration::from_secs(seconds);
        shop.discrepancies().len()
    };
    assert_eq!(later(&mut shop, 1), 1, "nothing was extended");
    let mut view = shop.views[CONFIRMED].1.clone();
    shop.receives(&mut view, CONFIRMED, FactType::DeadlineExtended, 9);
    shop.orders[CONFIRMED].deadline = view.deadline.expect("a deadline");
    shop.views[CONFIRMED].1 = view;
    let extended = PublishedFact { fact: FactType::DeadlineExtended, at: at(CONFIRMED, 9) };
    shop.orders[CONFIRMED].published.push(extended);
    assert_eq!([0, 1, 5, 6, -1].map(|seconds| later(&mut shop, seconds)), [0, 0, 0, 1, 1]);
}
