//! Shell: canaries: what they take, and those that end without being resolved.

use admin::service::AdminMessage;
use saga_core::dead_letter::{DeadLetterMessage, DeadLettered};
use serde_json::json;
use uuid::Uuid;

use crate::given::announced;
use crate::harness::AdminHarness;
use crate::redrives::{admin_with, started};
use crate::replay_values::{dead_lettered, four_parked, order};

/// Waits until the redrive stops. At most so many more requests are published meanwhile.
async fn stops(admin: &AdminHarness, redrive: &str, already: usize) {
    let mut published = 0;
    let shown = admin
        .drive_until_status(redrive, "STOPPED", |_| {
            published += 1;
            None
        })
        .await;
    assert!(published <= already, "{published} followed a canary that was never resolved: {shown}");
    let because = shown["stopped_because"].as_str().expect("a reason");
    assert!(because.contains("only 0 of a canary of 1 were resolved"), "{because}");
}

#[tokio::test]
async fn canary_replayed_by_hand_stops_the_redrive() {
    let (admin, services) = admin_with(20).await;
    let redrive = started(&admin, json!({"canary": 1})).await;
    let canary = services.requested(&admin.publishes_at_least(1).await[0]).expect("a canary").id;
    let by_hand = json!({"force": true, "reason": "it got lost"});
    admin.post(&format!("/dlq/{canary}/replay"), &by_hand, 202).await;
    // The hand's own replay, and perhaps another canary.
    stops(&admin, &redrive, 2).await;
}

#[tokio::test]
async fn failed_canary_discarded_during_a_pause_stops_the_redrive() {
    let (admin, services) = admin_with(20).await;
    let redrive = started(&admin, json!({"canary": 1})).await;
    let request = admin.publishes_at_least(1).await.remove(0);
    let canary = services.requested(&request).expect("a canary").id;
    admin.post(&format!("/dlq/redrive/{redrive}/pause"), &json!({}), 200).await;
    admin.receives(&services.fails(&request, None).expect("an answer")).await;
    admin.delete(&format!("/dlq/{canary}?reason=hopeless"), 200).await;
    admin.post(&format!("/dlq/redrive/{redrive}/resume"), &json!({}), 200).await;
    // The discard, and perhaps another canary.
    stops(&admin, &redrive, 2).await;
}

#[tokio::test]
async fn failed_canary_replayed_by_another_redrive_stops_the_first() {
    let (admin, services) = admin_with(20).await;
    let redrive = started(&admin, json!({"canary": 1})).await;
    let request = admin.publishes_at_least(1).await.remove(0);
    let canary = services.requested(&request).expect("a canary");
    admin.post(&format!("/dlq/redrive/{redrive}/pause"), &json!({}), 200).await;
    admin.receives(&services.fails(&request, Some("another")).expect("an answer")).await;
    let other = json!({"filter": {"fingerprint": "another"}, "canary": 1});
    started(&admin, other).await;
    assert_eq!(
        services.requested(&admin.publishes_at_least(1).await[0]).map(|dead| dead.id),
        Some(canary.id)
    );
    admin.post(&format!("/dlq/redrive/{redrive}/resume"), &json!({}), 200).await;
    stops(&admin, &redrive, 1).await;
}

/// A round stopped because of a breaker. Replays of that round fail again while the next one sends.
#[tokio::test]
async fn same_error_in_an_earlier_round_stops_the_next_round() {
    let (admin, services) = admin_with(80).await;
    let redrive = started(&admin, json!({"canary": 0, "rate": 20})).await;
    let mut received = admin.publishes_at_least(1).await;
    let path = "/breakers/payment/outside";
    admin.post(path, &json!({"action": "open", "reason": "a test"}), 200).await;
    let mut goes_astray = |fact: &admin::service::AdminMessage| {
        received.push(fact.clone());
        None
    };
    admin.drive_until_status(&redrive, "STOPPED", &mut goes_astray).await;
    admin.post(path, &json!({"action": "reset"}), 200).await;
    admin.post(&format!("/dlq/redrive/{redrive}/resume"), &json!({}), 200).await;
    for fact in &received {
        admin.receives(&services.fails(fact, None).expect("an answer")).await;
    }
    let mut shown = serde_json::Value::Null;
    while !["STOPPED", "DONE"].contains(&shown["status"].as_str().unwrap_or_default()) {
        let answers: Vec<_> =
            admin.publishes().await.iter().filter_map(|fact| services.handles(fact)).collect();
        admin.receives_all(&answers).await;
        shown = admin.get(&format!("/dlq/redrive/{redrive}")).await;
    }
    assert_eq!(shown["status"], "STOPPED", "{shown}");
}

/// With a slow clock of the service, the failure seems to predate the round.
#[tokio::test]
async fn dead_letter_that_failed_by_a_slow_clock_is_not_sent_twice_in_a_round() {
    let (admin, services) = admin_with(1).await;
    let redrive = started(&admin, json!({"canary": 0, "force": true})).await;
    let mut times = 0;
    let done = admin
        .drive_until_status(&redrive, "DONE", |fact| {
            let dead: DeadLettered = services.requested(fact)?;
            times += 1;
            if times > 1 {
                return services.handles(fact);
            }
            let last_failed_at = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(30);
            let fingerprint = "new".to_owned();
            Some(announced(&DeadLettered { replays: 1, last_failed_at, fingerprint, ..dead }))
        })
        .await;
    assert_eq!(times, 1, "{done}");
}

/// Of four dead letters two are awaited; the others would be replayed in vain, and prove nothing.
#[tokio::test]
async fn canary_takes_only_dead_letters_that_a_saga_waits_for() {
    let (admin, _) = four_parked().await;
    started(&admin, json!({"canary": 4})).await;
    let sent = admin.publishes_at_least(2).await;
    let mut ids: Vec<_> = sent.iter().filter_map(replayed).collect();
    ids.sort_unstable();
    assert_eq!(ids, [dead_lettered(1).id, dead_lettered(2).id]);
}

#[tokio::test]
async fn redrive_that_nobody_waits_for_stops_before_its_canary() {
    let (admin, _) = four_parked().await;
    let redrive = started(&admin, json!({"canary": 1, "filter": {"saga": order(4)}})).await;
    let shown = admin
        .drive_until_status(&redrive, "STOPPED", |fact| panic!("nothing is to be sent, but {fact:?} was"))
        .await;
    let because = shown["stopped_because"].as_str().expect("a reason");
    assert!(because.contains("no saga waits"), "{because}");
}

fn replayed(fact: &AdminMessage) -> Option<Uuid> {
    let AdminMessage::DeadLetter(DeadLetterMessage::ReplayRequested(body)) = fact else { return None };
    Some(body.dead_letter)
}
