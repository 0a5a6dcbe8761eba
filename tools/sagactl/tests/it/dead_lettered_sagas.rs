//! Shell: sagas with dead letters: status, extension, and the effect of replays.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::operator::STEP;
use crate::system::{System, order_for, text, wait_until};

#[tokio::test]
async fn extended_order_is_saved_by_replay_and_ended_one_is_not() {
    let system = System::start(&["order.service.deadline=20s"]);
    system.list("pen", 10).await;
    let orders = system.dead_letter_orders(2).await;
    let [saved, lost] = &orders[..] else { panic!("two orders: {orders:?}") };
    let saga = async |id: &String| system.sagactl_json(&["saga", "show", id]);
    wait_until("both are dead-lettered", async || {
        saga(saved).await["status"] == "DEAD_LETTERED" && saga(lost).await["status"] == "DEAD_LETTERED"
    })
    .await;
    let letter = async |id: &String| {
        saga(id).await["dead_letters"][0]["dead_letter"].as_str().expect("its id").to_owned()
    };
    let (rescuing, in_vain) = (letter(saved).await, letter(lost).await);
    let group = system.sagactl_json(&["dlq", "groups"])["items"][0].clone();
    assert_eq!([&group["count"], &group["awaited"], &group["ended"]], [2, 2, 0]);
    let cause = group["fingerprint"].as_str().expect("a fingerprint").to_owned();

    // Both get time before the cause is mended: that of the orders, as the order service says.
    let before = saga(saved).await["deadline"].clone();
    let extend = ["saga", "extend", "--fingerprint", &cause, "--for", "10m", "--reason", "the bank mends it"];
    let extended = system.sagactl(&extend);
    assert!(
        extended.starts_with("asked to extend 2 until 2") && extended.contains("Z, 0 rejected"),
        "{extended}"
    );
    wait_until("the order waits longer", async || {
        let deadline = saga(saved).await["deadline"].clone();
        deadline != before
            && deadline == system.get("order", &format!("/api/orders/{saved}")).await["deadline"]
    })
    .await;
    let cancel = system.post("order", &format!("/api/orders/{lost}/cancel")).json(&json!({}));
    assert!(cancel.send().await.expect("an answer").status().is_success());
    wait_until("it is compensated", async || saga(lost).await["status"] == "COMPENSATED").await;
    let group = system.sagactl_json(&["dlq", "groups"])["items"][0].clone();
    assert_eq!([&group["awaited"], &group["ended"]], [1, 1]);
    let extended = system.sagactl(&extend);
    assert!(extended.starts_with("asked to extend 1 until "), "{extended}");
    assert!(extended.trim().ends_with("Z, 0 rejected, 1 had ended already"), "{extended}");
    let one = system.sagactl(&["saga", "extend", saved, "--for", "20m", "--reason", "more time"]);
    assert!(one.starts_with(&format!("{saved}: its deadline is 2")), "{one}");
    let nobody = ["saga", "extend", "--step", "order-confirmation", "--for", "10m", "--reason", "x"];
    let nothing = system.try_sagactl(&nobody);
    assert_eq!(nothing.status.code(), Some(4));
    assert_eq!(text(&nothing.stdout).trim(), "no dead letter matches: nothing was extended");

    let reported = system.sagactl(&["dlq", "replay", &rescuing, "--wait"]);
    assert_eq!(reported.trim(), format!("{rescuing} is RESOLVED: it took effect"));
    system.wait_until_confirmed(std::slice::from_ref(saved)).await;
    system.assert_rejected(&["dlq", "replay", &in_vain, "--wait=20s"], 2, "RESOLVED, but it changed nothing");
    let too_late = ["saga", "extend", saved, "--for", "10m", "--reason", "x"];
    system.assert_rejected(&too_late, 2, "the saga is COMPLETED");
    system.assert_reconciled().await;
}

#[tokio::test]
async fn failed_replay_is_reported_and_many_are_discarded_at_once() {
    let system = System::start(&[crate::operator::LONG_DEADLINE]);
    system.list("pen", 10).await;
    system.dead_letter_orders(3).await;
    let (id, shown) = system.dead_letter();
    assert!(shown["replay_value"]["awaited"].as_bool().is_some_and(|awaited| awaited), "{shown}");
    system.sagactl(&["faults", "inject", "payment", "fail_permanently", "--step", STEP, "--next", "1"]);
    system.assert_rejected(&["dlq", "replay", &id, "--wait"], 2, "PENDING again: ");
    let by_step = ["--step", STEP];
    let noted = system.sagactl(&[&["dlq", "note", "the fault is injected"], &by_step[..]].concat());
    assert_eq!(noted.trim(), "3 noted, 0 rejected");
    let discarded = system.sagactl(&[&["dlq", "discard", "--reason", "a test"], &by_step[..]].concat());
    assert_eq!(discarded.trim(), "3 discarded, 0 rejected");
    let restored = system.sagactl(&[&["dlq", "restore", "--reason", "a test"], &by_step[..]].concat());
    assert_eq!(restored.trim(), "3 restored, 0 rejected");
    system.assert_rejected(&["dlq", "discard", "--reason", "all"], 2, "select dead letters");
    let waited = [&["dlq", "replay", "--reason", "mended", "--wait"], &by_step[..]].concat();
    assert_eq!(system.sagactl(&waited).lines().filter(|line| line.ends_with("it took effect")).count(), 3);
    system.assert_reconciled().await;
}

#[tokio::test]
async fn replay_without_result_in_time_delays_no_others() {
    let system = System::start(&[crate::operator::LONG_DEADLINE]);
    system.list("pen", 10).await;
    let orders = system.dead_letter_orders(3).await;
    let page = system.sagactl_json(&["dlq", "list"]);
    let ids = page["items"].as_array().expect("a list").iter();
    let ids: Vec<&str> = ids.map(|item| item["id"].as_str().expect("an id")).collect();
    system.sagactl(&["faults", "inject", "payment", "pause", "--step", STEP]);
    let began = Instant::now();
    let replay = [&["dlq", "replay", "--json", "--wait=5s"], &ids[..]].concat();
    let replayed = system.try_sagactl(&replay);
    // All together: not one after another.
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
    let printed = String::from_utf8_lossy(&replayed.stderr);
    assert_eq!(replayed.status.code(), Some(1), "{printed}");
    let answer: Value = serde_json::from_slice(&replayed.stdout).expect("JSON");
    let rejected = answer["rejected"].as_array().expect("a list");
    assert_eq!(rejected.iter().map(|rejected| &rejected["id"]).collect::<Vec<_>>(), ids);
    for (rejected, id) in rejected.iter().zip(&ids) {
        assert!(
            rejected["problem"].as_str().is_some_and(|why| why.contains("still being replayed")),
            "{answer}"
        );
        assert!(printed.contains(&format!("{id}: still being replayed")), "{printed}");
    }
    assert_eq!(system.sagactl_json(&["dlq", "count"])["by_status"]["REPLAYING"], 3);
    system.sagactl(&["faults", "clear", "payment"]);
    system.wait_until_confirmed(&orders).await;
    system.assert_reconciled().await;
}

#[test]
fn replay_that_matches_nothing_reports_the_same_with_and_without_wait() {
    let system = System::start(&[]);
    let replay = ["dlq", "replay", "--fingerprint", "nobody-has-it"];
    for wait in [&[][..], &["--wait"]] {
        let reasoned = [&replay[..], &["--reason", "mended"], wait].concat();
        let nothing = system.try_sagactl(&reasoned);
        assert_eq!(nothing.status.code(), Some(4), "{wait:?}");
        assert_eq!(text(&nothing.stdout), "no dead letter matches: nothing was replayed\n");
        system.assert_rejected(&[&replay[..], wait].concat(), 2, "--reason");
    }
    let waited = [&replay[..], &["--reason", "mended", "--wait"]].concat();
    let nothing = system.try_sagactl(&[&waited[..], &["--json"]].concat());
    assert_eq!(nothing.status.code(), Some(4));
    let listed: Value = serde_json::from_slice(&nothing.stdout).expect("JSON");
    assert_eq!(listed, json!({"items": [], "next": null, "rejected": []}));
}

/// An outage leaves no dead letters: the orders that wait are found by their step.
#[tokio::test]
async fn all_orders_that_wait_for_a_step_are_extended() {
    let system = System::start(&["order.service.deadline=5m"]);
    system.list("pen", 10).await;
    let extend = ["saga", "extend", "--stuck-at", STEP, "--for", "1h", "--reason", "the bank is away"];
    wait_until("the order that the listing places is undone", async || {
        let sagas = system.get("admin", "/api/admin/sagas?status=COMPENSATED").await;
        sagas["total"] == system.get("admin", "/api/admin/sagas").await["total"] && sagas["total"] != 0
    })
    .await;
    assert_eq!(system.try_sagactl(&extend).status.code(), Some(4), "nothing waits");
    system.sagactl(&["stop", "payment"]);
    let mut orders = vec![];
    for _ in 0..2 {
        let order = system.post("order", "/api/orders").json(&order_for(&[("pen", 1)], "tok_ok"));
        orders.push(order.send().await.expect("an answer").json::<Value>().await.expect("JSON"));
    }
    let path = format!("/api/admin/sagas?stuck_at={STEP}");
    wait_until("both wait", async || {
        system.get("admin", &path).await["sagas"].as_array().is_some_and(|sagas| sagas.len() == 2)
    })
    .await;
    let extended = system.sagactl(&extend);
    assert!(
        extended.starts_with("asked to extend 2 until 2") && extended.contains("Z, 0 rejected"),
        "{extended}"
    );
    let entries = system.get("admin", "/api/admin/audit?action=saga.extend").await["entries"].take();
    let entries = entries.as_array().expect("entries").iter();
    let outcomes: Vec<_> = entries.map(|entry| json!([entry["target"], entry["outcome"]])).collect();
    assert_eq!(outcomes, [json!([STEP, "done: 2 of 2"]), json!([STEP, "done: 0 of 0"])]);
    for order in &orders {
        let path = format!("/api/orders/{}", order["id"].as_str().expect("an id"));
        wait_until("it waits longer", async || {
            system.get("order", &path).await["deadline"] != order["deadline"]
        })
        .await;
    }
    system.assert_rejected(&[&extend[..], &["--step", STEP]].concat(), 2, "name the orders in one way");
    system.sagactl(&["start", "payment"]);
    let ids: Vec<_> = orders.iter().map(|order| order["id"].as_str().expect("an id").to_owned()).collect();
    system.wait_until_confirmed(&ids).await;
}
