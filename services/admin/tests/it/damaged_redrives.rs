//! Shell: redrives with damaged rows.

use admin::dead_letters::filter::key_of;
use admin::dead_letters::view::DeadLetterView;
use admin::redrive::decider::Redrive;
use admin_api::dead_letters::Filter;
use serde_json::json;

use crate::damaged::is_damaged;
use crate::harness::AdminHarness;
use crate::redrives::{Services, admin_with, started};

/// Two filters, in the order of the row of active redrives.
fn two_filters() -> [Filter; 2] {
    let mut filters = ["f-charge", "f-refund"]
        .map(|name| Filter { fingerprint: Some(name.to_owned()), ..Filter::default() });
    filters.sort_by_key(key_of);
    filters
}

#[tokio::test]
async fn damaged_redrive_does_not_block_others() {
    let (admin, _) = admin_with(9).await;
    let [first, second] = two_filters();
    let damaged = started(&admin, json!({"filter": first})).await;
    admin.publishes_at_least(1).await;
    is_damaged::<Redrive>(&admin, &damaged).await;
    started(&admin, json!({"filter": second})).await;
    assert_eq!(admin.publishes_at_least(1).await.len(), 1, "the canary of the other");
}

/// Fails the canary of a redrive again, and damages its row before the driver reads it.
async fn canary_fails_and_is_damaged(admin: &AdminHarness, services: &Services, redrive: &str) {
    let request = admin.publishes_at_least(1).await.remove(0);
    admin.post(&format!("/dlq/redrive/{redrive}/pause"), &json!({}), 200).await;
    admin.receives(&services.fails(&request, None).expect("an answer")).await;
    let id = services.requested(&request).expect("a dead letter").id;
    is_damaged::<DeadLetterView>(admin, &id.to_string()).await;
    admin.post(&format!("/dlq/redrive/{redrive}/resume"), &json!({}), 200).await;
}

#[tokio::test]
async fn damaged_failed_dead_letter_does_not_block_other_redrives() {
    let (admin, services) = admin_with(9).await;
    let [first, second] = two_filters();
    let redrive = started(&admin, json!({"filter": first})).await;
    canary_fails_and_is_damaged(&admin, &services, &redrive).await;
    started(&admin, json!({"filter": second})).await;
    assert_eq!(admin.publishes_at_least(1).await.len(), 1, "the canary of the other");
}

#[tokio::test]
async fn damaged_failed_dead_letter_stops_its_redrive() {
    let (admin, services) = admin_with(9).await;
    let redrive = started(&admin, json!({})).await;
    canary_fails_and_is_damaged(&admin, &services, &redrive).await;
    admin.drive_until_status(&redrive, "STOPPED", |_| None).await;
}
