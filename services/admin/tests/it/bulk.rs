//! Shell: bulk changes of dead letters, or of the orders behind them.

use admin::service::AdminMessage;
use admin_api::bulk::BulkOutcome;
use admin_api::bulk::Rejected;
use contract::Fact;
use jiff::{SignedDuration, Timestamp};
use saga_core::message::Message as _;
use serde_json::json;
use uuid::Uuid;

use crate::harness::each;
use crate::redrives::admin_with;
use crate::replay_values::{CHARGE, dead_lettered, four_parked, order};
use crate::routes::numbered;

const WHY: &str = "it is past mending";

#[tokio::test]
async fn bulk_discard_restore_and_note_by_filter_have_one_audit_entry_each() {
    let (admin, _) = admin_with(6).await;
    let filter = json!({"fingerprint": "f-charge"});
    let request = json!({"filter": filter, "reason": WHY});
    assert_eq!(admin.post("/dlq/discard", &request, 200).await, json!({"done": 4, "rejected": []}));
    // What is meant is what waits: none does any more.
    assert_eq!(admin.post("/dlq/discard", &request, 200).await, json!({"done": 0, "rejected": []}));
    let noted = json!({"filter": filter, "text": "asked the bank"});
    assert_eq!(admin.post("/dlq/notes", &noted, 200).await["done"], 4);
    assert_eq!(admin.post("/dlq/restore", &request, 200).await["done"], 4);
    assert_eq!(admin.get("/dlq/count").await["by_status"]["PENDING"], 6);
    let published: Vec<_> =
        admin.publishes().await.iter().map(|published| published.message_type().name).collect();
    assert_eq!(
        (&published[..4], &published[4..]),
        (&["DeadLetterDiscarded"; 4][..], &["DeadLetterRestored"; 4][..])
    );
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
async fn bulk_change_lists_rejections_and_changes_the_rest() {
    let (admin, _) = admin_with(2).await;
    let [one, two] = [0, 1].map(|number| numbered(number).id);
    admin.post("/dlq/discard", &json!({"ids": [one], "reason": WHY}), 200).await;
    let unknown = Uuid::from_u128(404);
    let request = json!({"ids": [one, two, two, unknown], "reason": WHY});
    let answer = admin.post("/dlq/discard", &request, 200).await;
    let mut rejection = each(&answer["rejected"], "detail");
    rejection.sort_by_key(ToString::to_string);
    assert_eq!(answer["done"], 1);
    assert_eq!(rejection, ["the dead letter is DISCARDED", "there is no such dead letter"]);
}

#[tokio::test]
async fn bulk_discard_of_thousands_is_executed_in_parts() {
    let (admin, _) = admin_with(1_200).await;
    let request = json!({"filter": {"service": "payment"}, "reason": WHY});
    assert_eq!(admin.post("/dlq/discard", &request, 200).await["done"], 1_200);
    assert_eq!(admin.get("/dlq/count").await["by_status"]["DISCARDED"], 1_200);
    let entry = admin.get("/audit").await["entries"][0].clone();
    assert_eq!(entry["outcome"], "done: 1200 of 1200");
    assert_eq!(entry["detail"]["sagas_listed"], false, "too many to list: {entry}");
}

#[tokio::test]
async fn bulk_replay_by_force_includes_replays_that_may_be_lost() {
    let (admin, _) = admin_with(1).await;
    let replay = async |force: bool| {
        let request = json!({"filter": {"service": "payment"}, "force": force, "reason": WHY});
        admin.post("/dlq/replay", &request, 200).await["done"].clone()
    };
    let done = [replay(false).await, replay(false).await, replay(true).await];
    assert_eq!(done, [1, 0, 1], "the second finds none that waits, and the third repeats the first");
}

#[tokio::test]
async fn bulk_resolution_and_replay_above_the_limit_are_rejected_with_the_count() {
    let (admin, _) = admin_with(1_002).await;
    for (path, otherwise) in [("/dlq/resolve", "narrow it down"), ("/dlq/replay", "use a redrive")] {
        let request = json!({"filter": {"service": "payment"}, "reason": WHY});
        let answer = admin.post(path, &request, 422).await.to_string();
        let wanted = format!("matches 1002, which is more than 1000: {otherwise}");
        assert!(answer.contains(&wanted), "{answer}");
    }
    assert_eq!(admin.get("/audit").await["entries"], json!([]));
}

#[tokio::test]
async fn extension_reaches_only_orders_that_still_wait() {
    let (admin, [_, later]) = four_parked().await;
    let request = json!({"filter": {"step": CHARGE}, "seconds": 3_600, "reason": "the bank mends it"});
    let answer = admin.post("/sagas/extend", &request, 200).await;
    assert_eq!(answer["done"], 2);
    let rejection = each(&answer["rejected"], "detail");
    assert!(
        rejection[0].as_str().is_some_and(|why| why.starts_with("its deadline passed at ")),
        "{rejection:?}"
    );
    assert_eq!(rejection[1], "the saga is COMPENSATING");
    let published: Vec<(Uuid, Timestamp)> = admin
        .publishes()
        .await
        .into_iter()
        .filter_map(|published| {
            let AdminMessage::Fact(Fact::DeadlineExtensionRequested(request)) = published else {
                return None;
            };
            Some((request.order, request.deadline))
        })
        .collect();
    assert_eq!(published.iter().map(|(order, _)| *order).collect::<Vec<_>>(), [order(1), order(2)]);
    assert!(
        published.iter().all(|(_, until)| *until > later + SignedDuration::from_mins(45)),
        "{published:?}"
    );
    let entry = admin.get("/audit").await["entries"][0].clone();
    assert_eq!((&entry["action"], &entry["outcome"]), (&json!("saga.extend"), &json!("done: 2 of 4")));

    // By itself; for less than it waits already it is refused.
    let one = async |seconds| {
        let request = json!({"seconds": seconds, "reason": "the customer is patient"});
        admin.post(&format!("/sagas/{}/extend", order(1)), &request, 200).await
    };
    assert_eq!(one(7_200).await["done"], 1);
    let detail = one(1).await["rejected"][0]["detail"].clone();
    assert!(detail.as_str().is_some_and(|why| why.starts_with("it waits until ")), "{detail}");
    let nobody = json!({"seconds": 60, "reason": "x"});
    admin.post(&format!("/sagas/{}/extend", dead_lettered(1).id), &nobody, 404).await;
}

#[test]
fn unlisted_rejections_are_counted_by_whether_the_saga_ended() {
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
