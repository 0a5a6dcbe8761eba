//! One wish about many: dead letters, or the orders behind them.

use admin::policy::AdminMessage;
use admin_api::bulk::BulkOutcome;
use admin_api::bulk::Rejected;
use contract::Fact;
use jiff::{SignedDuration, Timestamp};
use saga_core::message::Message as _;
use serde_json::json;
use uuid::Uuid;

use crate::harness::each;
use crate::redrives::admin_with;
use crate::replay_values::{CHARGE, four_parked, order, parked};
use crate::routes::numbered;

const WHY: &str = "it is past mending";

#[tokio::test]
async fn many_are_given_up_taken_up_again_and_noted_by_a_filter_each_written_down_once() {
    let (admin, _) = admin_with(6).await;
    let filter = json!({"fingerprint": "f-charge"});
    let asked = json!({"filter": filter, "reason": WHY});
    assert_eq!(admin.post("/dlq/discard", &asked, 200).await, json!({"done": 4, "rejected": []}));
    // What is meant is what waits: none does any more.
    assert_eq!(admin.post("/dlq/discard", &asked, 200).await, json!({"done": 0, "rejected": []}));
    let noted = json!({"filter": filter, "text": "asked the bank"});
    assert_eq!(admin.post("/dlq/notes", &noted, 200).await["done"], 4);
    assert_eq!(admin.post("/dlq/restore", &asked, 200).await["done"], 4);
    assert_eq!(admin.get("/dlq/count").await["by_status"]["PENDING"], 6);
    let told: Vec<_> = admin.publishes().await.iter().map(|told| told.message_type().name).collect();
    assert_eq!((&told[..4], &told[4..]), (&["DeadLetterDiscarded"; 4][..], &["DeadLetterRestored"; 4][..]));
    let log = admin.get("/audit").await["entries"].clone();
    assert_eq!(
        each(&log, "action"),
        ["dlq.restore_many", "dlq.note_many", "dlq.discard_many", "dlq.discard_many"]
    );
    assert_eq!(each(&log, "outcome"), ["done: 4 of 4", "done: 4 of 4", "done: 0 of 0", "done: 4 of 4"]);
    assert_eq!(log[0]["detail"], json!({"filter": filter, "matching": 4}));
    assert_eq!((&log[0]["reason"], &log[0]["operator"]), (&json!(WHY), &json!("ada")));
}

#[tokio::test]
async fn those_that_it_cannot_be_done_to_are_named_and_the_rest_is_done() {
    let (admin, _) = admin_with(2).await;
    let [one, two] = [0, 1].map(|number| numbered(number).id);
    admin.post("/dlq/discard", &json!({"ids": [one], "reason": WHY}), 200).await;
    let unknown = Uuid::from_u128(404);
    let asked = json!({"ids": [one, two, two, unknown], "reason": WHY});
    let answer = admin.post("/dlq/discard", &asked, 200).await;
    let mut refused = each(&answer["rejected"], "detail");
    refused.sort_by_key(ToString::to_string);
    assert_eq!(answer["done"], 1);
    assert_eq!(refused, ["the dead letter is DISCARDED", "there is no such dead letter"]);
}

/// More than one transaction's worth.
#[tokio::test]
async fn thousands_are_given_up_in_parts_and_each_once() {
    let (admin, _) = admin_with(1_200).await;
    let asked = json!({"filter": {"service": "payment"}, "reason": WHY});
    assert_eq!(admin.post("/dlq/discard", &asked, 200).await["done"], 1_200);
    assert_eq!(admin.get("/dlq/count").await["by_status"]["DISCARDED"], 1_200);
    assert_eq!(admin.get("/audit").await["entries"][0]["outcome"], "done: 1200 of 1200");
}

#[tokio::test]
async fn more_than_may_be_settled_or_handed_back_at_once_are_counted_and_refused() {
    let (admin, _) = admin_with(1_002).await;
    for (path, otherwise) in [("/dlq/resolve", "narrow it down"), ("/dlq/replay", "use a redrive")] {
        let asked = json!({"filter": {"service": "payment"}, "reason": WHY});
        let answer = admin.post(path, &asked, 422).await.to_string();
        let wanted = format!("matches 1002, which is more than 1000: {otherwise}");
        assert!(answer.contains(&wanted), "{answer}");
    }
    assert_eq!(admin.get("/audit").await["entries"], json!([]));
}

#[tokio::test]
async fn the_orders_behind_dead_letters_are_given_more_time_if_they_still_wait() {
    let (admin, [_, later]) = four_parked().await;
    let asked = json!({"filter": {"step": CHARGE}, "seconds": 3_600, "reason": "the bank mends it"});
    let answer = admin.post("/sagas/extend", &asked, 200).await;
    assert_eq!(answer["done"], 2);
    let refused = each(&answer["rejected"], "detail");
    assert!(refused[0].as_str().is_some_and(|why| why.starts_with("its deadline passed at ")), "{refused:?}");
    assert_eq!(refused[1], "the saga is COMPENSATING");
    let told: Vec<(Uuid, Timestamp)> = admin
        .publishes()
        .await
        .into_iter()
        .filter_map(|told| {
            let AdminMessage::Fact(Fact::DeadlineExtensionRequested(asked)) = told else { return None };
            Some((asked.order, asked.deadline))
        })
        .collect();
    assert_eq!(told.iter().map(|(order, _)| *order).collect::<Vec<_>>(), [order(1), order(2)]);
    assert!(told.iter().all(|(_, until)| *until > later + SignedDuration::from_mins(45)), "{told:?}");
    let entry = admin.get("/audit").await["entries"][0].clone();
    assert_eq!((&entry["action"], &entry["outcome"]), (&json!("saga.extend"), &json!("done: 2 of 4")));

    // By itself; for less than it waits already it is refused.
    let one = async |seconds| {
        let asked = json!({"seconds": seconds, "reason": "the customer is patient"});
        admin.post(&format!("/sagas/{}/extend", order(1)), &asked, 200).await
    };
    assert_eq!(one(7_200).await["done"], 1);
    let detail = one(1).await["rejected"][0]["detail"].clone();
    assert!(detail.as_str().is_some_and(|why| why.starts_with("it waits until ")), "{detail}");
    let nobody = json!({"seconds": 60, "reason": "x"});
    let unknown = admin.post(&format!("/sagas/{}/extend", parked(1).id), &nobody, 200).await;
    assert_eq!(unknown["rejected"][0]["detail"], "there is no such saga");
}

/// A defect: of more than are listed, those that needed it no more were told as failures.
#[test]
fn of_those_that_are_not_listed_who_needed_it_no_more_is_counted() {
    let ended =
        |number| Rejected { id: Uuid::from_u128(number), detail: "it is over".to_owned(), has_ended: true };
    let mut part = BulkOutcome::default();
    (0..1_200).for_each(|number| part.reject(ended(number)));
    part.add(Uuid::nil(), Err("no"));
    assert_eq!((part.rejected.len(), part.more_rejected, part.more_ended), (1_000, 201, 200));
    let mut all = BulkOutcome::default();
    all.reject(ended(0));
    all.add_all(part);
    assert_eq!((all.total(), all.more_rejected, all.more_ended), (1_202, 202, 201));
}
