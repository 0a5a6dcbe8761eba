//! Canaries that are over without being resolved.

use saga_core::dead_letter::DeadLettered;
use serde_json::json;

use crate::given::announced;
use crate::harness::AdminHarness;
use crate::redrives::{admin_with, driver_has_looked, numbers, started};

/// It stops, and says so; no more than what was told already, and so many more, is told meanwhile.
async fn stops(admin: &AdminHarness, redrive: &str, already: usize) {
    let mut told = 0;
    let shown = admin
        .plays(redrive, "STOPPED", |_| {
            told += 1;
            None
        })
        .await;
    assert!(told <= already, "{told} followed a canary that was never resolved: {shown}");
    let because = shown["stopped_because"].as_str().expect("a reason");
    assert!(because.contains("only 0 of a canary of 1 were resolved"), "{because}");
}

/// An operator hands the canary back by hand, because it seems to have got lost: nobody has heard yet how it went.
#[tokio::test]
async fn a_canary_that_is_taken_over_by_hand_is_not_resolved() {
    let (admin, services) = admin_with(20).await;
    let redrive = started(&admin, json!({"canary": 1})).await;
    let canary = services.asked(&admin.tells_at_least(1).await[0]).expect("a canary").id;
    let by_hand = json!({"force": true, "reason": "it got lost"});
    admin.post(&format!("/dlq/{canary}/replay"), &by_hand, 202).await;
    // The hand's own replay, and perhaps another canary.
    stops(&admin, &redrive, 2).await;
}

/// While the redrive rests, its canary fails again and is given up.
#[tokio::test]
async fn a_canary_that_failed_and_was_given_up_in_a_pause_is_not_resolved() {
    let (admin, services) = admin_with(20).await;
    let redrive = started(&admin, json!({"canary": 1})).await;
    let asked = admin.tells_at_least(1).await.remove(0);
    let canary = services.asked(&asked).expect("a canary").id;
    admin.post(&format!("/dlq/redrive/{redrive}/pause"), &json!({}), 200).await;
    admin.receives(&services.fails(&asked, None).expect("an answer")).await;
    admin.delete(&format!("/dlq/{canary}?reason=hopeless"), 200).await;
    admin.post(&format!("/dlq/redrive/{redrive}/resume"), &json!({}), 200).await;
    // The discard, and perhaps another canary.
    stops(&admin, &redrive, 2).await;
}

/// While the redrive rests, its canary fails again, and another redrive takes it.
#[tokio::test]
async fn a_canary_that_failed_and_was_taken_by_another_redrive_is_not_resolved() {
    let (admin, services) = admin_with(20).await;
    let redrive = started(&admin, json!({"canary": 1})).await;
    let asked = admin.tells_at_least(1).await.remove(0);
    let canary = services.asked(&asked).expect("a canary");
    admin.post(&format!("/dlq/redrive/{redrive}/pause"), &json!({}), 200).await;
    admin.receives(&services.fails(&asked, Some("another")).expect("an answer")).await;
    let other = json!({"filter": {"fingerprint": "another"}, "canary": 1});
    started(&admin, other).await;
    assert_eq!(services.asked(&admin.tells_at_least(1).await[0]).map(|dead| dead.id), Some(canary.id));
    admin.post(&format!("/dlq/redrive/{redrive}/resume"), &json!({}), 200).await;
    stops(&admin, &redrive, 1).await;
}

/// An earlier build counted the canary from the dead letters; its redrive goes on in this one.
#[tokio::test]
async fn the_canary_of_an_earlier_build_is_not_sent_twice() {
    use admin::redrive::decider::Redrive;
    use saga_core::decision::{Reads, RowWrite, Writes};
    use saga_core::row::{RowKey, RowKind};

    let (admin, _) = admin_with(20).await;
    let redrive = started(&admin, json!({"canary": 1})).await;
    admin.tells_at_least(1).await;
    let (store, key) = (admin.app.store.clone(), RowKey::of::<Redrive>(&redrive));
    let history = store.events(key.clone(), 0, 9).await.expect("the store works");
    // As that build left it: what it knew no event of has not happened.
    let events = history.into_iter().filter(|event| event.name == "Started").map(|event| event.data);
    let projected = RowKind::of::<Redrive>().fold(&key.id, None, events).expect("a history that folds");
    let version = store.row(key.clone()).await.expect("the store works").expect("a row").version;
    let rows =
        vec![RowWrite { key, read_version: version, version: version + 1, projected, searched_by: None }];
    let writes = Writes { rows, ..Writes::default() };
    store.transact(Reads::default(), Box::new(move |_| writes.clone())).await.expect("a commit");
    driver_has_looked(&admin).await;
    driver_has_looked(&admin).await;
    let shown = admin.get(&format!("/dlq/redrive/{redrive}")).await;
    assert_eq!(numbers(&shown)[1], 1, "sent: {shown}");
}

/// A round stopped because of a breaker. While the next one sends, what the first one sent comes back as it had
/// failed before.
#[tokio::test]
async fn the_same_error_from_an_earlier_round_stops_the_next_one_too() {
    let (admin, services) = admin_with(80).await;
    let redrive = started(&admin, json!({"canary": 0, "rate": 20})).await;
    let mut heard = admin.tells_at_least(1).await;
    let path = "/breakers/payment/outside";
    admin.post(path, &json!({"action": "open", "reason": "a test"}), 200).await;
    let mut goes_astray = |fact: &admin::policy::AdminMessage| {
        heard.push(fact.clone());
        None
    };
    admin.plays(&redrive, "STOPPED", &mut goes_astray).await;
    admin.post(path, &json!({"action": "reset"}), 200).await;
    admin.post(&format!("/dlq/redrive/{redrive}/resume"), &json!({}), 200).await;
    for fact in &heard {
        admin.receives(&services.fails(fact, None).expect("an answer")).await;
    }
    let mut shown = serde_json::Value::Null;
    while !["STOPPED", "DONE"].contains(&shown["status"].as_str().unwrap_or_default()) {
        let answers: Vec<_> =
            admin.publishes().await.iter().filter_map(|fact| services.handles(fact)).collect();
        admin.hears_all(&answers).await;
        shown = admin.get(&format!("/dlq/redrive/{redrive}")).await;
    }
    assert_eq!(shown["status"], "STOPPED", "{shown}");
}

/// The clock of the service is a little behind admin's: what failed again seems to have failed before the round began.
#[tokio::test]
async fn what_failed_again_by_a_slow_clock_is_not_sent_again_in_its_round() {
    let (admin, services) = admin_with(1).await;
    let redrive = started(&admin, json!({"canary": 0, "force": true})).await;
    let mut times = 0;
    let done = admin
        .plays(&redrive, "DONE", |fact| {
            let dead: DeadLettered = services.asked(fact)?;
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
