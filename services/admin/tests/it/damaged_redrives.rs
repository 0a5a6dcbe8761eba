//! What one damaged row does to redrives.

use admin::dead_letters::filter::key_of;
use admin::dead_letters::view::DeadLetterView;
use admin::redrive::decider::Redrive;
use admin_api::dead_letters::Filter;
use serde_json::json;

use crate::damaged::is_damaged;
use crate::harness::AdminHarness;
use crate::redrives::{Services, admin_with, started};

/// Two filters, the one that the roster has first before the other.
fn two_filters() -> [Filter; 2] {
    let mut filters = ["f-charge", "f-refund"]
        .map(|name| Filter { fingerprint: Some(name.to_owned()), ..Filter::default() });
    filters.sort_by_key(key_of);
    filters
}

#[tokio::test]
async fn a_damaged_redrive_keeps_no_other_from_going_on() {
    let (admin, _) = admin_with(9).await;
    let [first, second] = two_filters();
    let damaged = started(&admin, json!({"filter": first})).await;
    admin.tells_at_least(1).await;
    is_damaged::<Redrive>(&admin, &damaged).await;
    started(&admin, json!({"filter": second})).await;
    assert_eq!(admin.tells_at_least(1).await.len(), 1, "the canary of the other");
}

/// The canary of this redrive fails again, and before that is looked at its row is damaged.
async fn canary_fails_and_is_damaged(admin: &AdminHarness, services: &Services, redrive: &str) {
    let asked = admin.tells_at_least(1).await.remove(0);
    admin.post(&format!("/dlq/redrive/{redrive}/pause"), &json!({}), 200).await;
    admin.receives(&services.fails(&asked, None).expect("an answer")).await;
    let id = services.asked(&asked).expect("a dead letter").id;
    is_damaged::<DeadLetterView>(admin, &id.to_string()).await;
    admin.post(&format!("/dlq/redrive/{redrive}/resume"), &json!({}), 200).await;
}

/// It failed again, and then its row was damaged: the redrive that sent it cannot tell why, but others may go on.
#[tokio::test]
async fn a_damaged_dead_letter_that_failed_again_keeps_no_other_redrive_from_going_on() {
    let (admin, services) = admin_with(9).await;
    let [first, second] = two_filters();
    let redrive = started(&admin, json!({"filter": first})).await;
    canary_fails_and_is_damaged(&admin, &services, &redrive).await;
    started(&admin, json!({"filter": second})).await;
    assert_eq!(admin.tells_at_least(1).await.len(), 1, "the canary of the other");
}

/// The same with one redrive: it stops, since the error came back; it does not try for ever.
#[tokio::test]
async fn a_damaged_dead_letter_that_failed_again_stops_its_redrive() {
    let (admin, services) = admin_with(9).await;
    let redrive = started(&admin, json!({})).await;
    canary_fails_and_is_damaged(&admin, &services, &redrive).await;
    admin.plays(&redrive, "STOPPED", |_| None).await;
}
