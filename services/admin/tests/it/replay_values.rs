//! Shell: replay values of dead letters, and the effects of replays.

use admin::service::AdminMessage;
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

/// Dead letter of the charge of an order; all have one cause.
pub fn dead_lettered(number: u128) -> DeadLettered {
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

/// Four orders with dead-lettered charges: two wait, one is late, one is cancelled.
pub async fn four_parked() -> (AdminHarness, [Timestamp; 2]) {
    let admin = AdminHarness::new().await;
    // As the store keeps times.
    let now = Timestamp::from_microsecond(Timestamp::now().as_microsecond()).expect("a time");
    let soon = now + SignedDuration::from_mins(5);
    let later = soon + SignedDuration::from_mins(5);
    let past = soon - SignedDuration::from_mins(10);
    for (number, deadline) in [(1, soon), (2, later), (3, past), (4, later)] {
        admin.receives_all(&[created(number, deadline), announced(&dead_lettered(number))]).await;
    }
    admin.receives(&cancelled(order(4), CancelReason::CustomerRequest)).await;
    (admin, [soon, later])
}

#[tokio::test]
async fn group_shows_awaited_dead_letters_and_deadlines() {
    let (admin, [soon, later]) = four_parked().await;
    let groups = admin.get("/dlq/groups").await["groups"].clone();
    assert_eq!([&groups[0]["count"], &groups[0]["awaited"], &groups[0]["ended"]], [4, 2, 2]);
    assert_eq!(groups[0]["first_until"], soon.to_string());
    assert_eq!(groups[0]["last_until"], later.to_string());
    // Counted by the store, or one by one because a text is looked for.
    for filter in [json!({"step": CHARGE}), json!({"text": "declined"})] {
        let request = json!({"filter": filter, "preview": true});
        let preview = admin.post("/dlq/redrive", &request, 200).await;
        assert_eq!([&preview["matching"], &preview["awaited"], &preview["ended"]], [4, 2, 2], "{filter}");
        assert_eq!([&preview["first_until"], &preview["last_until"]], [&json!(soon), &json!(later)]);
        assert_eq!(preview["groups"][0]["awaited"], 2, "{filter}");
    }
}

#[tokio::test]
async fn dead_letter_shows_its_replay_value() {
    let (admin, [soon, _]) = four_parked().await;
    let worth =
        async |number| admin.get(&format!("/dlq/{}", dead_lettered(number).id)).await["replay_value"].clone();
    assert_eq!(worth(1).await, json!({"awaited": true, "saga_status": "DEAD_LETTERED", "until": soon}));
    assert_eq!(worth(3).await, json!({"awaited": false, "saga_status": "DEAD_LETTERED"}));
    assert_eq!(worth(4).await, json!({"awaited": false, "saga_status": "COMPENSATING"}));
    let listed = admin.get("/dlq").await["dead_letters"].clone();
    let awaited: Vec<Value> =
        each(&listed, "replay_value").iter().map(|value| value["awaited"].clone()).collect();
    assert_eq!(awaited.iter().filter(|awaited| **awaited == json!(true)).count(), 2);
}

#[tokio::test]
async fn dead_lettered_saga_names_its_dead_letter() {
    let (admin, _) = four_parked().await;
    let ids = admin.ids("/sagas?status=DEAD_LETTERED", "sagas").await;
    assert_eq!(ids.len(), 3, "the one that is late is not cancelled yet");
    let saga = admin.get(&format!("/sagas/{}", order(1))).await;
    assert_eq!(saga["status"], "DEAD_LETTERED");
    assert_eq!(saga["dead_letters"], json!([{"dead_letter": dead_lettered(1).id, "step": CHARGE}]));
}

/// Counted by the store, or one by one with a text filter.
#[tokio::test]
async fn foreign_message_is_not_awaited() {
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
    admin.receives_all(&[announced(&foreign), announced(&missed)]).await;
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
        let request = json!({"filter": filter, "preview": true});
        let preview = admin.post("/dlq/redrive", &request, 200).await;
        assert_eq!([&preview["awaited"], &preview["ended"]], [1, 1], "{filter}");
    }
    let groups = admin.get("/overview").await["dead_letters"]["groups"].clone();
    let published = each(&groups, "foreign");
    assert_eq!(published.iter().filter(|foreign| **foreign == json!(true)).count(), 1, "{groups}");
}

#[tokio::test]
async fn replay_shows_its_effect() {
    let (admin, _) = four_parked().await;
    let request = json!({"filter": {"step": CHARGE}, "canary": 4, "reason": "mended"});
    let id = id_of(&admin.post("/dlq/redrive", &request, 202).await);
    let no = "the order is cancelled already";
    let answer = |fact: &AdminMessage| {
        let AdminMessage::DeadLetter(DeadLetterMessage::ReplayRequested(request)) = fact else { return None };
        let dead = (1..=4).map(dead_lettered).find(|dead| dead.id == request.dead_letter)?;
        let effect = match dead.id.as_u128() - 1_000 {
            1 | 2 => ReplayEffect::TookEffect,
            3 => ReplayEffect::ChangedNothing,
            _ => ReplayEffect::Rejected { reason: no.to_owned() },
        };
        let resolution = DeadLetterResolved { effect, ..resolved(&dead) };
        Some(DeadLetterMessage::DeadLetterResolved(resolution).into())
    };
    let redrive = admin.drive_until_status(&id, "DONE", answer).await;
    assert_eq!((numbers(&redrive), &redrive["in_vain"]), ([4, 4, 4, 0, 0, 0], &json!(2)));
    let effect = async |number| {
        let shown = admin.get(&format!("/dlq/{}", dead_lettered(number).id)).await;
        assert_eq!((&shown["status"], &shown["replay_value"]), (&json!("RESOLVED"), &Value::Null));
        shown["effect"].clone()
    };
    assert_eq!(effect(1).await, json!({"kind": "took_effect"}));
    assert_eq!(effect(3).await, json!({"kind": "changed_nothing"}));
    assert_eq!(effect(4).await, json!({"kind": "rejected", "reason": no}));
}
