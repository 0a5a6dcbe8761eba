//! What replays of dead letters would be worth, and what they were worth in the end.

use admin::policy::AdminMessage;
use contract::Fact;
use contract::order::{CancelReason, OrderCreated};
use jiff::{SignedDuration, Timestamp};
use saga_core::dead_letter::{
    DeadLetterMessage, DeadLetterOrigin, DeadLetterResolved, DeadLettered, ReplayEffect,
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::given::{announced, cancelled, dead_letter, fact, resolved};
use crate::harness::{AdminHarness, each};
use crate::redrives::{id_of, numbers};

pub const CHARGE: &str = "payment-processing";

pub fn order(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

/// The charge of this order is parked, for a cause that all of them share.
pub fn parked(number: u128) -> DeadLettered {
    let (id, reason) = (Uuid::from_u128(1_000 + number), "declined by nobody".to_owned());
    let last_failed_at = Timestamp::constant(1_700_000_000, 0);
    DeadLettered { id, reason, last_failed_at, ..dead_letter(CHARGE, Some(order(number)), 0) }
}

fn created(number: u128, deadline: Timestamp) -> AdminMessage {
    let AdminMessage::Fact(Fact::OrderCreated(created)) = fact("OrderCreated", order(number)) else {
        panic!("an order is created")
    };
    AdminMessage::Fact(OrderCreated { deadline, ..created }.into())
}

/// Four orders whose charges are parked: two wait, one is late, one is cancelled.
pub async fn four_parked() -> (AdminHarness, [Timestamp; 2]) {
    let admin = AdminHarness::new().await;
    // As the store keeps times.
    let now = Timestamp::from_microsecond(Timestamp::now().as_microsecond()).expect("a time");
    let soon = now + SignedDuration::from_mins(5);
    let later = soon + SignedDuration::from_mins(5);
    let past = soon - SignedDuration::from_mins(10);
    for (number, deadline) in [(1, soon), (2, later), (3, past), (4, later)] {
        admin.hears_all(&[created(number, deadline), announced(&parked(number))]).await;
    }
    admin.receives(&cancelled(order(4), CancelReason::CustomerRequest)).await;
    (admin, [soon, later])
}

#[tokio::test]
async fn a_group_says_how_many_sagas_still_wait_and_for_how_long() {
    let (admin, [soon, later]) = four_parked().await;
    let groups = admin.get("/dlq/groups").await["groups"].clone();
    assert_eq!([&groups[0]["count"], &groups[0]["awaited"], &groups[0]["ended"]], [4, 2, 2]);
    assert_eq!(groups[0]["first_until"], soon.to_string());
    assert_eq!(groups[0]["last_until"], later.to_string());
    // Counted by the store, or one by one because a text is looked for.
    for filter in [json!({"step": CHARGE}), json!({"text": "declined"})] {
        let asked = json!({"filter": filter, "preview": true});
        let preview = admin.post("/dlq/redrive", &asked, 200).await;
        assert_eq!([&preview["matching"], &preview["awaited"], &preview["ended"]], [4, 2, 2], "{filter}");
        assert_eq!([&preview["first_until"], &preview["last_until"]], [&json!(soon), &json!(later)]);
        assert_eq!(preview["groups"][0]["awaited"], 2, "{filter}");
    }
}

#[tokio::test]
async fn a_dead_letter_says_whether_its_saga_still_waits_for_it() {
    let (admin, [soon, _]) = four_parked().await;
    let worth =
        async |number| admin.get(&format!("/dlq/{}", parked(number).id)).await["replay_value"].clone();
    assert_eq!(worth(1).await, json!({"awaited": true, "saga_status": "DEAD_LETTERED", "until": soon}));
    assert_eq!(worth(3).await, json!({"awaited": false, "saga_status": "DEAD_LETTERED"}));
    assert_eq!(worth(4).await, json!({"awaited": false, "saga_status": "COMPENSATING"}));
    let listed = admin.get("/dlq").await["dead_letters"].clone();
    let awaited: Vec<Value> =
        each(&listed, "replay_value").iter().map(|value| value["awaited"].clone()).collect();
    assert_eq!(awaited.iter().filter(|awaited| **awaited == json!(true)).count(), 2);
}

#[tokio::test]
async fn a_saga_whose_step_is_parked_says_so_and_names_the_dead_letter() {
    let (admin, _) = four_parked().await;
    let ids = admin.ids("/sagas?status=DEAD_LETTERED", "sagas").await;
    assert_eq!(ids.len(), 3, "the one that is late is not cancelled yet");
    let saga = admin.get(&format!("/sagas/{}", order(1))).await;
    assert_eq!(saga["status"], "DEAD_LETTERED");
    assert_eq!(saga["dead_letters"], json!([{"dead_letter": parked(1).id, "step": CHARGE}]));
}

/// Counted by the store, or one by one because a text is looked for; beside one of the catalogue, which is missed.
#[tokio::test]
async fn nobody_waits_for_what_nobody_of_this_system_sent() {
    let admin = AdminHarness::new().await;
    let of_no_saga = |number: u128, origin, cause: &str| DeadLettered {
        id: Uuid::from_u128(number),
        origin,
        message_type: None,
        fingerprint: cause.to_owned(),
        reason: format!("declined: {cause}"),
        ..dead_letter("order-catalogue", None, 0)
    };
    let foreign = of_no_saga(1, DeadLetterOrigin::Foreign, "garbage");
    let missed = of_no_saga(2, DeadLetterOrigin::Message, "catalogue");
    admin.hears_all(&[announced(&foreign), announced(&missed)]).await;
    let worth = async |id: Uuid| admin.get(&format!("/dlq/{id}")).await["replay_value"]["awaited"].clone();
    assert_eq!((worth(foreign.id).await, worth(missed.id).await), (json!(false), json!(true)));
    let groups = admin.get("/dlq/groups").await["groups"].clone();
    let of = |cause: &str| {
        let mut groups = groups.as_array().expect("groups").iter();
        let group = groups.find(|group| group["fingerprint"] == cause).expect("it is there");
        [group["awaited"].clone(), group["ended"].clone()]
    };
    assert_eq!((of("garbage"), of("catalogue")), ([json!(0), json!(1)], [json!(1), json!(0)]));
    for filter in [json!({"step": "order-catalogue"}), json!({"text": "declined"})] {
        let asked = json!({"filter": filter, "preview": true});
        let preview = admin.post("/dlq/redrive", &asked, 200).await;
        assert_eq!([&preview["awaited"], &preview["ended"]], [1, 1], "{filter}");
    }
    let groups = admin.get("/overview").await["dead_letters"]["groups"].clone();
    let told = each(&groups, "foreign");
    assert_eq!(told.iter().filter(|foreign| **foreign == json!(true)).count(), 1, "{groups}");
}

/// Handled, it is resolved either way: what came of it is another matter.
#[tokio::test]
async fn a_replay_says_whether_it_took_effect() {
    let (admin, _) = four_parked().await;
    let asked = json!({"filter": {"step": CHARGE}, "canary": 4, "reason": "mended"});
    let id = id_of(&admin.post("/dlq/redrive", &asked, 202).await);
    let no = "the order is cancelled already";
    let answer = |fact: &AdminMessage| {
        let AdminMessage::DeadLetter(DeadLetterMessage::ReplayRequested(asked)) = fact else { return None };
        let dead = (1..=4).map(parked).find(|dead| dead.id == asked.dead_letter)?;
        let effect = match dead.id.as_u128() - 1_000 {
            1 | 2 => ReplayEffect::TookEffect,
            3 => ReplayEffect::ChangedNothing,
            _ => ReplayEffect::Rejected { reason: no.to_owned() },
        };
        let said = DeadLetterResolved { effect, ..resolved(&dead) };
        Some(DeadLetterMessage::DeadLetterResolved(said).into())
    };
    let redrive = admin.plays(&id, "DONE", answer).await;
    assert_eq!((numbers(&redrive), &redrive["in_vain"]), ([4, 4, 4, 0, 0, 0], &json!(2)));
    let effect = async |number| {
        let shown = admin.get(&format!("/dlq/{}", parked(number).id)).await;
        assert_eq!((&shown["status"], &shown["replay_value"]), (&json!("RESOLVED"), &Value::Null));
        shown["effect"].clone()
    };
    assert_eq!(effect(1).await, json!({"kind": "took_effect"}));
    assert_eq!(effect(3).await, json!({"kind": "changed_nothing"}));
    assert_eq!(effect(4).await, json!({"kind": "rejected", "reason": no}));
}
