//! Shell: damaged rows are listed as unreadable, and do not hide others.

use admin::audit_log::AuditEntry;
use admin::dead_letters::view::DeadLetterView;
use admin::redrive::decider::Redrive;
use saga_core::decider::Decider;
use saga_core::decision::{Reads, RowWrite, Writes};
use saga_core::row::{RowKey, RowKind};
use serde_json::{Value, json};

use crate::given::{announced, handled};
use crate::harness::{AdminHarness, each};
use crate::routes::numbered;

/// Damages the state of a row and keeps its indexed fields.
pub async fn is_damaged<D: Decider>(admin: &AdminHarness, id: &str) {
    let (store, key) = (&admin.app.store, RowKey::of::<D>(id));
    let history = store.events(key.clone(), 0, usize::MAX).await.expect("the store works");
    let events = history.into_iter().map(|event| event.data);
    let mut projected = RowKind::of::<D>().fold(id, None, events).expect("a history that folds");
    projected.state = "damaged".to_owned();
    let version = store.row(key.clone()).await.expect("the store works").expect("a row").version;
    let rows =
        vec![RowWrite { key, read_version: version, version: version + 1, projected, searched_by: None }];
    let writes = Writes { rows, ..Writes::default() };
    store.transact(Reads::default(), Box::new(move |_| writes.clone())).await.expect("a commit");
}

fn id_of(number: u64) -> String {
    numbered(number).id.to_string()
}

async fn admin_with(dead_letters: u64) -> AdminHarness {
    let admin = AdminHarness::new().await;
    admin
        .receives_all(&(0..dead_letters).map(|number| announced(&numbered(number))).collect::<Vec<_>>())
        .await;
    admin
}

#[tokio::test]
async fn damaged_dead_letters_are_listed_as_unreadable_without_ending_a_page() {
    let admin = admin_with(7).await;
    for number in [2, 3, 4, 5] {
        is_damaged::<DeadLetterView>(&admin, &id_of(number)).await;
    }
    let (mut pages, mut next) = (Vec::new(), String::new());
    loop {
        let page = admin.get(&format!("/dlq?limit=2{next}")).await;
        let unreadable = page["unreadable"].as_array().cloned().unwrap_or_default();
        pages.push((each(&page["dead_letters"], "id"), unreadable));
        match page["next"].as_str() {
            Some(cursor) => next = format!("&cursor={cursor}"),
            None => break,
        }
    }
    let ids = |numbers: &[u64]| numbers.iter().map(|number| Value::from(id_of(*number))).collect::<Vec<_>>();
    let wanted =
        [(ids(&[6]), ids(&[5])), (ids(&[]), ids(&[4, 3])), (ids(&[1]), ids(&[2])), (ids(&[0]), ids(&[]))];
    assert_eq!(pages, wanted);
    assert_eq!(each(&admin.get("/dlq?text=no").await["dead_letters"], "id"), ids(&[6, 1, 0]));
}

#[tokio::test]
async fn group_sample_is_the_latest_readable_dead_letter() {
    let admin = admin_with(6).await;
    is_damaged::<DeadLetterView>(&admin, &id_of(5)).await;
    is_damaged::<DeadLetterView>(&admin, &id_of(4)).await;
    let groups = admin.get("/dlq/groups").await;
    let charge =
        groups["groups"].as_array().expect("groups").iter().find(|group| group["fingerprint"] == "f-charge");
    let charge = charge.expect("the cause is shown");
    assert_eq!((&charge["count"], &charge["sample"]), (&json!(4), &json!(id_of(2))), "{charge}");
}

#[tokio::test]
async fn redrive_skips_damaged_dead_letters() {
    let admin = admin_with(6).await;
    for number in [0, 1, 2] {
        is_damaged::<DeadLetterView>(&admin, &id_of(number)).await;
    }
    let request = json!({"filter": {"service": "payment"}, "reason": "the bank is back", "canary": 1});
    admin.post("/dlq/redrive", &request, 202).await;
    let sent = admin.publishes_at_least(1).await;
    assert_eq!(sent.len(), 1, "the canary goes alone");
    admin.receives(&handled(&numbered(3))).await;
    assert_eq!(admin.publishes_at_least(2).await.len(), 2, "and the rest follows");
}

#[tokio::test]
async fn damaged_redrives_and_audit_entries_are_listed_as_unreadable() {
    let admin = AdminHarness::new().await;
    for nobody in ["nobody", "nobody else"] {
        let request = json!({"filter": {"service": nobody}, "reason": "to have two"});
        admin.post("/dlq/redrive", &request, 202).await;
    }
    let ids = each(&admin.get("/dlq/redrive").await["redrives"], "id");
    is_damaged::<Redrive>(&admin, ids[0].as_str().expect("an id")).await;
    let list = admin.get("/dlq/redrive").await;
    assert_eq!(each(&list["redrives"], "id"), ids[1..]);
    assert_eq!(list["unreadable"], json!([ids[0]]));

    let log = admin.get("/audit").await;
    let entries = each(&log["entries"], "id");
    is_damaged::<AuditEntry>(&admin, entries[1].as_str().expect("an id")).await;
    let log = admin.get("/audit").await;
    assert_eq!((&each(&log["entries"], "id")[0], &log["unreadable"]), (&entries[0], &json!([entries[1]])));
    assert_eq!(log["entries"].as_array().map(Vec::len), Some(entries.len() - 1));
    let others: Vec<_> =
        entries.iter().enumerate().filter(|(place, _)| *place != 1).map(|(_, id)| id.clone()).collect();
    assert_eq!(admin.ids("/audit?limit=1", "entries").await, others, "a page may end at it");
}
