//! Shell: notifications, from a finding to a receiver that may misbehave or be away.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use admin::dead_letters::view::DeadLetterView;
use admin::service::AdminService;
use reqwest::Method;
use saga_core::dead_letter::DeadLettered;
use saga_core::service::Service as _;
use saga_engine::reloaded::unusable_files;
use saga_engine::store::Store;
use saga_engine::store::roles::Monitoring as _;
use saga_engine::store::sqlite::SqliteStore;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};

use crate::damaged::is_damaged;
use crate::given::{announced, dead_letter, handled};
use crate::harness::{AdminHarness, PATIENCE, each};
use crate::receiver::{Manner, Received, Receiver, SECRET};

pub fn dead_lettered(fingerprint: &str, number: u128) -> DeadLettered {
    let id = uuid::Uuid::from_u128(number);
    DeadLettered { id, fingerprint: fingerprint.to_owned(), ..dead_letter("payment-processing", None, 0) }
}

fn database() -> Arc<dyn Store> {
    Arc::new(SqliteStore::in_memory(AdminService::rows()).expect("a database in memory"))
}

/// Admin with this receiver of notifications, and more settings.
async fn admin_over(store: Arc<dyn Store>, receiver: &Receiver, more: &[&str]) -> AdminHarness {
    let settings = receiver.settings();
    let flags: Vec<_> = settings.iter().map(String::as_str).chain(more.iter().copied()).collect();
    AdminHarness::over(store, &flags).await
}

pub async fn admin_for(receiver: &Receiver) -> AdminHarness {
    admin_over(database(), receiver, &[]).await
}

#[track_caller]
pub fn wait_until(what: &str, mut holds: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    let (what, caller) = (what.to_owned(), std::panic::Location::caller());
    async move {
        let until = Instant::now() + PATIENCE;
        while !holds().await {
            assert!(Instant::now() < until, "waited in vain until {what}, from {caller}");
            sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Distinct ids of notifications, in the order of their arrival.
fn ids(received: &[Received]) -> Vec<String> {
    let mut ids: Vec<_> = received.iter().map(|notice| notice.id.clone()).collect();
    ids.dedup();
    ids
}

async fn delivered(admin: &AdminHarness) -> Vec<Value> {
    let push = admin.get("/notifications").await;
    let notices = push["notifications"].as_array().expect("a list").iter();
    notices.filter(|notice| !notice["delivered_at"].is_null()).cloned().collect()
}

#[tokio::test]
async fn notifications_of_dead_letter_and_recovery_are_signed() {
    let receiver = Receiver::new(Manner::status(204)).await;
    let admin = admin_for(&receiver).await;
    let (first, second) = (dead_lettered("f", 1), dead_lettered("f", 2));
    admin.receives(&announced(&first)).await;
    wait_until("somebody is told", async || receiver.received().len() == 1).await;
    admin.receives(&announced(&second)).await;
    let notice = receiver.received().remove(0);
    assert_eq!(notice.signature, notice.wanted);
    assert_eq!(notice.body["type"], "saga.needs_human");
    assert_eq!(each(&notice.body["data"]["new"], "key"), ["dead_letters:f"]);
    let text = notice.body["data"]["text"].as_str().expect("text");
    assert!(text.starts_with("order-saga: a human is needed: 1 dead letter at payment-processing"), "{text}");

    wait_until("it is known to have arrived", async || delivered(&admin).await.len() == 1).await;
    let push = admin.get("/notifications").await;
    assert_eq!(push["to"], format!("http://127.0.0.1:{}", receiver.port), "the path is nobody's business");
    assert!(!push.to_string().contains(SECRET));
    assert_eq!(
        (&push["open"][0]["key"], &push["breaker"]["state"]),
        (&json!("dead_letters:f"), &json!("CLOSED"))
    );
    assert_eq!(push["notifications"][0]["id"], notice.id);

    admin.receives(&handled(&first)).await;
    admin.receives(&handled(&second)).await;
    wait_until("all is well again", async || receiver.received().len() == 2).await;
    let last = receiver.received().remove(1);
    assert_eq!(last.body["type"], "saga.recovered");
    assert_eq!(each(&last.body["data"]["cleared"], "key"), ["dead_letters:f"]);
    wait_until("nothing is wrong", async || admin.get("/notifications").await["open"] == json!([])).await;
}

#[tokio::test]
async fn receiver_gets_missed_notifications_after_an_outage() {
    let receiver = Receiver::new(Manner::status(500)).await;
    let admin = admin_for(&receiver).await;
    admin.receives(&announced(&dead_lettered("f", 1))).await;
    wait_until("its breaker is open", async || {
        admin.get("/notifications").await["breaker"]["state"] == "OPEN"
    })
    .await;
    admin.receives(&announced(&dead_lettered("g", 2))).await;
    let port = receiver.port;
    let before = ids(&receiver.received());
    assert_eq!(before.len(), 1, "it is one notice, however often it is sent");
    // Now nobody is there at all.
    drop(receiver);
    assert_eq!(admin.get("/dlq/count").await["total"], 2, "nobody waits for it");
    let receiver = Receiver::at(port, Manner::status(200)).await;
    wait_until("both have arrived", async || delivered(&admin).await.len() == 2).await;
    let received = receiver.received();
    assert_eq!(received.len(), 2, "{received:?}");
    assert_eq!(received[0].id, before[0]);
    assert_eq!(each(&received[1].body["data"]["new"], "key"), ["dead_letters:g"]);
    // That nobody was there is no dead letter, and no notice.
    assert_eq!(admin.app.store.stats().await.expect("stats").dead_letters, 0);
}

#[tokio::test]
async fn notification_survives_a_restart_of_admin() {
    let (store, receiver) = (database(), Receiver::new(Manner::Hangs).await);
    let admin = admin_over(store.clone(), &receiver, &[]).await;
    admin.receives(&announced(&dead_lettered("f", 1))).await;
    wait_until("it is sent", async || !receiver.received().is_empty()).await;
    drop(admin);
    receiver.answers(Manner::status(200));
    let sent = ids(&receiver.received());
    let admin = admin_over(store, &receiver, &[]).await;
    wait_until("it has arrived", async || !delivered(&admin).await.is_empty()).await;
    assert_eq!(ids(&receiver.received()), sent, "under the same id, and nothing else");
}

#[tokio::test]
async fn new_receiver_gets_the_open_findings() {
    let (store, before) = (database(), Receiver::new(Manner::status(200)).await);
    let admin = admin_over(store.clone(), &before, &[]).await;
    admin.receives(&announced(&dead_lettered("f", 1))).await;
    wait_until("it has arrived", async || delivered(&admin).await.len() == 1).await;
    drop(admin);
    let receiver = Receiver::new(Manner::status(200)).await;
    let admin = admin_over(store.clone(), &receiver, &[]).await;
    wait_until("the other is told", async || !receiver.received().is_empty()).await;
    assert_eq!(each(&receiver.received()[0].body["data"]["new"], "key"), ["dead_letters:f"]);
    wait_until("both have arrived", async || delivered(&admin).await.len() == 2).await;
    assert_eq!(before.received().len(), 1);
}

#[tokio::test]
async fn notification_waits_for_a_misbehaving_receiver() {
    let elsewhere = Receiver::new(Manner::status(200)).await;
    let redirect = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:{}/notices\r\ncontent-length: 0\r\n\r\n",
        elsewhere.port
    );
    let bad = [
        Manner::status(408),
        Manner::status(429),
        Manner::status(503),
        Manner::Says(redirect),
        Manner::Says("no HTTP at all\r\n\r\n".to_owned()),
        Manner::Hangs,
        Manner::Drips,
    ];
    for manner in bad {
        let receiver = Receiver::new(manner.clone()).await;
        let admin = admin_for(&receiver).await;
        admin.receives(&announced(&dead_lettered("f", 1))).await;
        wait_until("it is tried again", async || receiver.received().len() > 1).await;
        assert!(delivered(&admin).await.is_empty(), "{manner:?}");
        wait_until("it is said why", async || {
            admin.get("/notifications").await["notifications"][0]["failure"].is_string()
        })
        .await;
        let began = Instant::now();
        admin.get("/dlq").await;
        assert!(began.elapsed() < Duration::from_secs(1), "{manner:?} holds nobody up");
        receiver.answers(Manner::status(200));
        wait_until("it has arrived", async || delivered(&admin).await.len() == 1).await;
        assert_eq!(ids(&receiver.received()).len(), 1, "{manner:?}");
    }
    assert!(elsewhere.received().is_empty(), "a redirect is not followed");
}

/// Repeating the request changes nothing. The finding is reported by a notification of its own, later.
#[tokio::test]
async fn rejected_notification_is_not_repeated_and_its_finding_is_reported_later() {
    for status in [400, 401, 404, 422] {
        let receiver = Receiver::new(Manner::status(status)).await;
        let admin = admin_for(&receiver).await;
        admin.receives(&announced(&dead_lettered("f", 1))).await;
        wait_until("another is sent", async || ids(&receiver.received()).len() > 1).await;
        let received = ids(&receiver.received());
        let distinct: BTreeSet<_> = received.iter().collect();
        assert_eq!(distinct.len(), receiver.received().len(), "{status}: each is sent once");
        receiver.answers(Manner::status(200));
        wait_until("it has arrived", async || !delivered(&admin).await.is_empty()).await;
    }
}

/// Standard Webhooks: a receiver that answers 410 wants nothing more.
#[tokio::test]
async fn receiver_that_is_gone_is_asked_once() {
    let receiver = Receiver::new(Manner::status(410)).await;
    let admin = admin_for(&receiver).await;
    admin.receives(&announced(&dead_lettered("f", 1))).await;
    let given_up = async || {
        let notifications = admin.get("/notifications").await;
        let sent = notifications["notifications"].as_array().cloned().unwrap_or_default();
        sent.iter().filter(|sent| sent["given_up"].as_str().is_some_and(|why| why.contains("410"))).count()
    };
    wait_until("several are given up", async || given_up().await > 2).await;
    assert_eq!(receiver.received().len(), 1);
}

#[tokio::test]
async fn receiver_that_asks_for_a_pause_gets_it() {
    let busy = "HTTP/1.1 429 So\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n".to_owned();
    let receiver = Receiver::new(Manner::Says(busy)).await;
    let admin = admin_for(&receiver).await;
    admin.receives(&announced(&dead_lettered("f", 1))).await;
    wait_until("it is asked", async || receiver.received().len() == 1).await;
    let asked = Instant::now();
    receiver.answers(Manner::status(200));
    wait_until("it has arrived", async || delivered(&admin).await.len() == 1).await;
    // Measured after the answer was sent, which the machine may have delayed.
    assert!(asked.elapsed() > Duration::from_millis(500), "{:?}", asked.elapsed());
    assert_eq!(receiver.received().len(), 2);
}

#[tokio::test]
async fn endless_response_of_the_receiver_is_not_read() {
    let receiver = Receiver::new(Manner::Floods).await;
    let admin = admin_for(&receiver).await;
    admin.receives(&announced(&dead_lettered("f", 1))).await;
    wait_until("it has arrived", async || !delivered(&admin).await.is_empty()).await;
    assert_eq!(receiver.received().len(), 1);
    assert!(receiver.flooded() < 32 * 1024 * 1024, "{} bytes", receiver.flooded());
}

#[tokio::test]
async fn two_instances_send_one_notification() {
    let (store, receiver) = (database(), Receiver::new(Manner::status(200)).await);
    let one = admin_over(store.clone(), &receiver, &["instance=one"]).await;
    let _other = admin_over(store.clone(), &receiver, &["instance=other"]).await;
    for (number, fingerprint) in ["f", "g", "h"].into_iter().enumerate() {
        one.receives(&announced(&dead_lettered(fingerprint, number as u128))).await;
        let key = format!("dead_letters:{fingerprint}");
        wait_until("it is told", async || {
            let published = receiver.received();
            published.iter().any(|notice| each(&notice.body["data"]["new"], "key").contains(&json!(key)))
        })
        .await;
    }
    let published = receiver.received();
    let new: Vec<_> = published.iter().flat_map(|notice| each(&notice.body["data"]["new"], "key")).collect();
    assert_eq!(new, ["dead_letters:f", "dead_letters:g", "dead_letters:h"]);
    assert_eq!(ids(&published).len(), published.len(), "each was sent once");
}

#[tokio::test]
async fn many_dead_letters_are_a_finding_of_their_own() {
    let receiver = Receiver::new(Manner::status(200)).await;
    let admin = admin_over(database(), &receiver, &["service.notifications.dead_letter_threshold=3"]).await;
    let all: Vec<_> = (0..3).map(|number| announced(&dead_lettered("f", number))).collect();
    admin.receives_all(&all).await;
    let new = async || -> Vec<Value> {
        receiver.received().iter().flat_map(|notice| each(&notice.body["data"]["new"], "key")).collect()
    };
    wait_until("both are told", async || new().await.len() == 2).await;
    assert!(new().await.contains(&json!("many_dead_letters")));
}

/// Otherwise each restart would lose the finding of unbalanced ledgers.
#[tokio::test]
async fn reconciliation_result_survives_a_restart_of_admin() {
    let store = database();
    let admin = AdminHarness::over(store.clone(), &[]).await;
    assert_eq!(admin.get("/overview").await["reconciliation"], Value::Null);
    let report = admin.get("/reconciliation?wait=1").await;
    drop(admin);
    let ledgers = AdminHarness::over(store, &[]).await.get("/overview").await["reconciliation"].clone();
    assert_eq!((&ledgers["verdict"], &ledgers["at"]), (&report["verdict"], &report["checked_at"]));
}

#[tokio::test]
async fn periodic_reconciliation_notifies_of_unbalanced_ledgers() {
    let receiver = Receiver::new(Manner::status(200)).await;
    let admin = admin_over(
        database(),
        &receiver,
        &["service.reconcile_every=100ms", "service.notifications.min_interval=1ms"],
    )
    .await;
    let ledgers = async || admin.get("/overview").await["reconciliation"].clone();
    wait_until("the ledgers were reconciled", async || ledgers().await["verdict"] == "IN_FLIGHT").await;
    let dead = dead_lettered("f", 1);
    admin.receives(&announced(&dead)).await;
    is_damaged::<DeadLetterView>(&admin, &dead.id.to_string()).await;
    let keys = || {
        receiver
            .received()
            .iter()
            .flat_map(|notice| each(&notice.body["data"]["new"], "key"))
            .collect::<Vec<_>>()
    };
    wait_until("somebody is told", async || keys().contains(&json!("ledgers_unbalanced"))).await;
    let ledgers = ledgers().await;
    assert_eq!(ledgers["verdict"], "UNBALANCED");
    let log = admin.get("/audit").await;
    assert_eq!(log["entries"], json!([]), "it is daily work");
}

#[tokio::test]
async fn notifications_are_signed_by_the_last_good_keys_of_the_file() {
    let receiver = Receiver::new(Manner::status(204)).await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("secret");
    let put = |text: &str| {
        let new = file.with_extension("new");
        std::fs::write(&new, text).expect("written");
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
        std::fs::rename(new, &file).expect("renamed");
    };
    put("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    let set = format!("service.notifications.webhook.secret_file={}", file.display());
    let admin = admin_over(database(), &receiver, &["service.notifications.webhook.secret=", &set]).await;
    let is_signed = async || {
        let sent = admin.post("/notifications/test", &json!({}), 202).await;
        let has_arrived = async || delivered(&admin).await.iter().any(|notice| notice["id"] == sent["id"]);
        wait_until("it has arrived", has_arrived).await;
        let last = receiver.received().pop().expect("a notification");
        last.signature == last.wanted
    };
    assert!(!is_signed().await, "by the old key");
    put(SECRET);
    wait_until("the new key signs", is_signed).await;
    put("");
    let path = file.display().to_string();
    let is_kept_and_reported = async || {
        assert!(is_signed().await, "by the last good key");
        unusable_files().is_some_and(|files| files.contains(&path))
    };
    wait_until("the file is reported", is_kept_and_reported).await;
}

#[tokio::test]
async fn test_notification_arrives_one_at_a_time() {
    let receiver = Receiver::new(Manner::Hangs).await;
    let admin = admin_for(&receiver).await;
    let sent = admin.post("/notifications/test", &json!({"reason": "new receiver"}), 202).await;
    let rejected = admin.post("/notifications/test", &json!({}), 409).await;
    assert!(
        rejected["detail"].as_str().is_some_and(|why| why.contains("has not been delivered")),
        "{rejected}"
    );
    receiver.answers(Manner::status(200));
    wait_until("it has arrived", async || delivered(&admin).await.len() == 1).await;
    assert_eq!(receiver.received()[0].id, sent["id"].as_str().expect("an id"));
    assert_eq!(receiver.received()[0].body["type"], "saga.test");
    let log = admin.get("/audit?action=notifications.test").await;
    assert_eq!(
        (&log["entries"][0]["operator"], &log["entries"][0]["reason"]),
        (&json!("ada"), &json!("new receiver"))
    );
    admin
        .request(Method::POST, "/notifications/test")
        .send()
        .await
        .expect("an answer")
        .error_for_status()
        .expect("a test");
}

/// The database of admin may be the problem itself: its disk is full, or another process holds its lock.
#[tokio::test(flavor = "multi_thread")]
async fn person_is_notified_while_the_database_takes_no_writes() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("admin.db");
    let store = Arc::new(SqliteStore::open(&path, AdminService::rows()).expect("a database"));
    let receiver = Receiver::new(Manner::status(204)).await;
    let often = ["service.notifications.remind_after=100ms", "service.notifications.min_interval=100ms"];
    let admin = admin_over(store.clone(), &receiver, &often).await;
    admin.receives(&announced(&dead_lettered("f", 1))).await;
    wait_until("somebody is notified", async || !receiver.received().is_empty()).await;

    let other = rusqlite::Connection::open(&path).expect("the file");
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    wait_until("the lock is noticed", async || store.probe_write().await.is_err()).await;
    let before = ids(&receiver.received()).len();
    // One may have been on its way.
    wait_until("reminders go on", async || ids(&receiver.received()).len() > before + 2).await;
    let reminder = receiver.received().pop().expect("a reminder");
    assert_eq!(reminder.signature, reminder.wanted);
    let still = each(&reminder.body["data"]["still"], "key");
    assert!(still.contains(&json!("dead_letters:f")), "{still:?}");

    other.execute_batch("ROLLBACK").expect("the end");
    store.probe_write().await.expect("it works again");
    let before = delivered(&admin).await.len();
    wait_until("notifications are stored again", async || delivered(&admin).await.len() > before).await;
}

/// Regression: small writes go on where the larger one of a notification fails, as on a full disk.
#[tokio::test(flavor = "multi_thread")]
async fn person_is_notified_once_while_only_notifications_cannot_be_stored() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("admin.db");
    let store = Arc::new(SqliteStore::open(&path, AdminService::rows()).expect("a database"));
    let full = rusqlite::Connection::open(&path).expect("the file");
    full.execute_batch(
        "CREATE TRIGGER full BEFORE INSERT ON row_notifications BEGIN SELECT RAISE(ABORT, 'full'); END",
    )
    .expect("a trigger");
    let receiver = Receiver::new(Manner::status(204)).await;
    let often = ["service.notifications.remind_after=100ms", "service.notifications.min_interval=100ms"];
    let admin = admin_over(store.clone(), &receiver, &often).await;
    admin.receives(&announced(&dead_lettered("f", 1))).await;
    // The reminder shows that what was told is remembered although each round tries the database again.
    wait_until("a reminder arrives", async || {
        store.probe_write().await.expect("small writes go on");
        receiver.received().iter().any(|sent| each(&sent.body["data"]["still"], "key") == ["dead_letters:f"])
    })
    .await;
    let told = receiver.received();
    assert_eq!(told.iter().filter(|sent| !each(&sent.body["data"]["new"], "key").is_empty()).count(), 1);
}
