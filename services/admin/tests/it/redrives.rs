//! Shell: redrives with the real driver; the test acts as the services.

use std::collections::BTreeMap;
use std::time::Duration;

use admin::service::AdminMessage;
use reqwest::Method;
use saga_core::dead_letter::{DeadLetterMessage, DeadLettered};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use crate::given::{announced, handled};
use crate::harness::{AdminHarness, each};
use crate::routes::numbered;

/// Fake services with their dead letters.
pub struct Services(pub BTreeMap<Uuid, DeadLettered>);

impl Services {
    pub fn of(dead_letters: u64) -> Self {
        Self((0..dead_letters).map(|number| (numbered(number).id, numbered(number))).collect())
    }

    pub async fn announce(&self, admin: &AdminHarness) {
        let facts: Vec<_> = self.0.values().map(announced).collect();
        admin.receives_all(&facts).await;
    }

    pub fn requested(&self, fact: &AdminMessage) -> Option<DeadLettered> {
        let AdminMessage::DeadLetter(DeadLetterMessage::ReplayRequested(body)) = fact else { return None };
        self.0.get(&body.dead_letter).cloned()
    }

    /// Resolves a replay.
    pub fn handles(&self, fact: &AdminMessage) -> Option<AdminMessage> {
        self.requested(fact).map(|dead| handled(&dead))
    }

    /// Fails a replay with this fingerprint.
    pub fn fails(&self, fact: &AdminMessage, fingerprint: Option<&str>) -> Option<AdminMessage> {
        let dead = self.requested(fact)?;
        Some(announced(&DeadLettered {
            replays: dead.replays + 1,
            last_failed_at: jiff::Timestamp::now(),
            fingerprint: fingerprint.map_or(dead.fingerprint.clone(), ToOwned::to_owned),
            ..dead
        }))
    }
}

/// Admin with so many dead letters, and the services that have them.
pub async fn admin_with(dead_letters: u64) -> (AdminHarness, Services) {
    let (admin, services) = (AdminHarness::new().await, Services::of(dead_letters));
    services.announce(&admin).await;
    (admin, services)
}

pub fn id_of(redrive: &Value) -> String {
    redrive["id"].as_str().expect("an id").to_owned()
}

pub async fn started(admin: &AdminHarness, more: Value) -> String {
    let mut body = json!({"filter": {"service": "payment"}, "reason": "the bank is back"});
    let members = more.as_object().expect("members").clone();
    body.as_object_mut().expect("an object").extend(members);
    id_of(&admin.post("/dlq/redrive", &body, 202).await)
}

pub fn numbers(redrive: &Value) -> [i64; 6] {
    ["matching", "sent", "resolved", "failed", "in_flight", "remaining"]
        .map(|member| redrive[member].as_i64().expect("a number"))
}

/// Runs an empty redrive, so that the driver has checked all redrives twice.
pub async fn driver_has_looked(admin: &AdminHarness) {
    let nothing = json!({"filter": {"service": "nobody"}, "reason": "to see the driver look"});
    let redrive = id_of(&admin.post("/dlq/redrive", &nothing, 202).await);
    let until = Instant::now() + Duration::from_secs(20);
    while admin.get(&format!("/dlq/redrive/{redrive}")).await["status"] != "DONE" {
        assert!(Instant::now() < until, "the driver looks");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn preview_of_redrive_changes_nothing() {
    let (admin, _) = admin_with(9).await;
    let worn = DeadLettered { replays: 3, ..numbered(4) };
    admin.receives(&announced(&worn)).await;
    let before = admin.everything().await;
    let body = json!({"filter": {"service": "payment"}, "preview": true});
    let preview = admin.post("/dlq/redrive", &body, 200).await;
    assert_eq!([&preview["matching"], &preview["replayable"], &preview["over_limit"]], [9, 8, 1]);
    assert_eq!(preview["groups"].as_array().map(Vec::len), Some(2));
    let forced = json!({"filter": {"service": "payment"}, "preview": true, "force": true});
    assert_eq!(admin.post("/dlq/redrive", &forced, 200).await["replayable"], 9);
    let by_text = json!({"filter": {"text": "NO ROUTE"}, "preview": true});
    let preview = admin.post("/dlq/redrive", &by_text, 200).await;
    assert_eq!([&preview["matching"], &preview["replayable"]], [6, 5]);
    assert_eq!(
        [&preview["groups"][0]["fingerprint"], &preview["groups"][0]["count"]],
        [&json!("f-charge"), &json!(6)]
    );
    let by_text = json!({"filter": {"text": "the bank"}, "preview": true});
    let groups = admin.post("/dlq/redrive", &by_text, 200).await["groups"].take();
    assert_eq!(each(&groups, "fingerprint"), ["f-charge", "f-refund"]);
    assert_eq!(
        each(&groups, "last_failed_at"),
        [8, 6].map(|number| numbered(number).last_failed_at.to_string())
    );
    assert_eq!(admin.everything().await, before);
}

#[tokio::test]
async fn rest_is_sent_after_the_canary_is_resolved() {
    let (admin, services) = admin_with(50).await;
    let redrive = started(&admin, json!({"canary": 3})).await;
    // Nobody answers: the canary waits, and nothing follows it.
    let waiting = admin.get(&format!("/dlq/redrive/{redrive}")).await;
    assert_eq!(waiting["status"], "CANARY");
    let mut received = admin.publishes_at_least(3).await;
    driver_has_looked(&admin).await;
    received.extend(admin.publishes().await);
    assert_eq!(received.len(), 3);
    let oldest: Vec<_> =
        received.iter().filter_map(|fact| services.requested(fact)).map(|dead| dead.id).collect();
    assert_eq!(oldest, [0, 1, 2].map(|number| numbered(number).id), "the oldest first");
    for fact in &received[..2] {
        admin.receives(&services.handles(fact).expect("an answer")).await;
    }
    driver_has_looked(&admin).await;
    let shown = admin.get(&format!("/dlq/redrive/{redrive}")).await;
    assert_eq!((&shown["status"], numbers(&shown)), (&json!("CANARY"), [50, 3, 2, 0, 1, 47]));
    admin.receives(&services.handles(&received[2]).expect("an answer")).await;
    let done = admin.drive_until_status(&redrive, "DONE", |fact| services.handles(fact)).await;
    assert_eq!(numbers(&done), [50, 50, 50, 0, 0, 0]);
    assert_eq!(admin.get("/dlq/count").await["total"], 0);
    let shown = admin.get(&format!("/dlq/{}", numbered(9).id)).await;
    assert_eq!((&shown["redrive"], &shown["history"][1]["operator"]), (&json!(redrive), &json!("ada")));
}

#[tokio::test]
async fn failed_canary_stops_the_redrive_and_another_round_can_succeed() {
    let (admin, services) = admin_with(20).await;
    let redrive = started(&admin, json!({})).await;
    let stopped =
        admin.drive_until_status(&redrive, "STOPPED", |fact| services.fails(fact, Some("another"))).await;
    assert_eq!(numbers(&stopped), [20, 1, 0, 1, 0, 19]);
    let because = stopped["stopped_because"].as_str().expect("a reason");
    assert!(because.contains("the canary") && because.contains(&numbered(0).id.to_string()), "{because}");
    let entry = admin.get("/audit?action=redrive.stop").await["entries"][0].clone();
    assert_eq!((&entry["operator"], &entry["target"]), (&json!("system"), &json!(redrive)));
    assert_eq!(entry["reason"], because);

    let again = admin.post(&format!("/dlq/redrive/{redrive}/resume"), &json!({}), 200).await;
    assert_eq!((&again["status"], &again["round"]), (&json!("CANARY"), &json!(2)));
    let of_round = |redrive: &Value| {
        ["round_sent", "remaining", "round_matching"]
            .map(|member| redrive[member].as_u64().expect("a number"))
    };
    let [sent, to_come, matching] = of_round(&again);
    assert_eq!((sent + to_come, matching), (20, 20), "{again}");
    let done = admin.drive_until_status(&redrive, "DONE", |fact| services.handles(fact)).await;
    assert_eq!(numbers(&done), [20, 20, 20, 0, 0, 0]);
    assert_eq!(of_round(&done), [20, 0, 20]);
    assert!(done.get("stopped_because").is_none(), "{done}");
}

/// Replays of a stopped round may be in flight when the next round has nothing left to send.
#[tokio::test]
async fn redrive_waits_for_replays_of_earlier_rounds() {
    let (admin, services) = admin_with(40).await;
    let redrive = started(&admin, json!({"canary": 0, "rate": 20})).await;
    let mut received = admin.publishes_at_least(1).await;
    let path = "/breakers/payment/outside";
    admin.post(path, &json!({"action": "open", "reason": "a test"}), 200).await;
    let mut goes_astray = |fact: &AdminMessage| {
        received.push(fact.clone());
        None
    };
    let stopped = admin.drive_until_status(&redrive, "STOPPED", &mut goes_astray).await;
    let late = numbers(&stopped)[4];
    assert!((1..40).contains(&late), "{stopped}");
    admin.post(path, &json!({"action": "reset"}), 200).await;
    admin.post(&format!("/dlq/redrive/{redrive}/resume"), &json!({}), 200).await;
    let mut nothing_left = Value::Null;
    let until = Instant::now() + Duration::from_secs(20);
    while numbers_or_none(&nothing_left) != Some([40, 40, 40 - late, 0, late, 0]) {
        assert!(Instant::now() < until, "{nothing_left}");
        nothing_left = admin.drive_until_status(&redrive, "RUNNING", |fact| services.handles(fact)).await;
    }
    driver_has_looked(&admin).await;
    assert_eq!(admin.get(&format!("/dlq/redrive/{redrive}")).await["status"], "RUNNING");
    for fact in &received {
        admin.receives(&services.handles(fact).expect("an answer")).await;
    }
    let done = admin.drive_until_status(&redrive, "DONE", |fact| services.handles(fact)).await;
    assert_eq!(numbers(&done), [40, 40, 40, 0, 0, 0]);
}

fn numbers_or_none(redrive: &Value) -> Option<[i64; 6]> {
    redrive.is_object().then(|| numbers(redrive))
}

#[tokio::test]
async fn same_error_stops_a_redrive_and_another_error_does_not() {
    let (admin, services) = admin_with(20).await;
    let redrive = started(&admin, json!({"canary": 0})).await;
    let is = |fact: &AdminMessage, number| {
        services.requested(fact).is_some_and(|dead| dead.id == numbered(number).id)
    };
    let done = admin
        .drive_until_status(&redrive, "DONE", |fact| match is(fact, 7) {
            true => services.fails(fact, Some("something else")),
            false => services.handles(fact),
        })
        .await;
    assert_eq!(numbers(&done), [20, 20, 19, 1, 0, 0]);

    let (admin, services) = admin_with(20).await;
    let redrive = started(&admin, json!({"canary": 0, "rate": 1})).await;
    let stopped = admin.drive_until_status(&redrive, "STOPPED", |fact| services.fails(fact, None)).await;
    let because = stopped["stopped_because"].as_str().expect("a reason");
    assert!(because.contains("the same error came back"), "{because}");
    assert!(numbers(&stopped)[5] > 0, "the rest was not sent: {stopped}");
}

#[tokio::test]
async fn open_breaker_stops_a_redrive_before_it_sends() {
    let (admin, services) = admin_with(5).await;
    // `outside` is the name of no step: it may be what the steps need.
    let path = "/breakers/payment/outside";
    admin.post(path, &json!({"action": "open", "reason": "a test"}), 200).await;
    let redrive = started(&admin, json!({})).await;
    let stopped = admin.drive_until_status(&redrive, "STOPPED", |_| None).await;
    assert_eq!(stopped["stopped_because"], "the breaker outside of payment is open");
    assert_eq!(numbers(&stopped), [5, 0, 0, 0, 0, 5]);
    admin.post(path, &json!({"action": "reset"}), 200).await;
    admin.post(&format!("/dlq/redrive/{redrive}/resume"), &json!({"reason": "it is back"}), 200).await;
    admin.drive_until_status(&redrive, "DONE", |fact| services.handles(fact)).await;
}

#[tokio::test]
async fn unreachable_service_does_not_stop_a_redrive() {
    let admin = AdminHarness::with(&["service.order=http://127.0.0.1:9"]).await;
    let mut services = Services::of(5);
    services.0.values_mut().for_each(|dead| dead.service = "order".to_owned());
    services.announce(&admin).await;
    let redrive = started(&admin, json!({"filter": {"service": "order"}})).await;
    let done = admin.drive_until_status(&redrive, "DONE", |fact| services.handles(fact)).await;
    assert_eq!(numbers(&done), [5, 5, 5, 0, 0, 0]);
}

#[tokio::test]
async fn dead_letters_with_three_failed_replays_need_force() {
    let (admin, services) = admin_with(4).await;
    let worn = DeadLettered { replays: 3, ..numbered(2) };
    admin.receives(&announced(&worn)).await;
    let redrive = started(&admin, json!({})).await;
    let done = admin.drive_until_status(&redrive, "DONE", |fact| services.handles(fact)).await;
    assert_eq!(numbers(&done), [4, 3, 3, 0, 0, 0]);
    let forced = started(&admin, json!({"force": true})).await;
    let done = admin.drive_until_status(&forced, "DONE", |fact| services.handles(fact)).await;
    assert_eq!(numbers(&done), [1, 1, 1, 0, 0, 0]);
}

#[tokio::test]
async fn redrive_is_paused_resumed_and_cancelled() {
    let (admin, services) = admin_with(6).await;
    let redrive = started(&admin, json!({"rate": 1, "canary": 1})).await;
    let same = json!({"filter": {"service": "payment"}, "reason": "twice"});
    admin.post("/dlq/redrive", &same, 409).await;
    let path = |what: &str| format!("/dlq/redrive/{redrive}/{what}");
    admin.post(&path("resume"), &json!({}), 409).await;
    assert_eq!(admin.post(&path("pause"), &json!({"reason": "lunch"}), 200).await["status"], "PAUSED");
    admin.post(&path("pause"), &json!({}), 409).await;
    admin.post("/dlq/redrive", &same, 409).await;
    assert_eq!(admin.post(&path("resume"), &json!({}), 200).await["status"], "CANARY");
    admin.drive_until_status(&redrive, "RUNNING", |fact| services.handles(fact)).await;
    let cancelled = admin.post(&path("cancel"), &json!({"reason": "a test"}), 200).await;
    assert_eq!(cancelled["status"], "CANCELLED");
    admin.post(&path("resume"), &json!({}), 409).await;
    admin.post(&path("cancel"), &json!({"reason": "a test"}), 409).await;
    let log = admin.get(&format!("/audit?target={redrive}")).await;
    let actions = each(&log["entries"], "action");
    assert_eq!(actions, ["redrive.cancel", "redrive.resume", "redrive.pause", "redrive.start"]);
    // Now another one may have the dead letters.
    let next = id_of(&admin.post("/dlq/redrive", &same, 202).await);
    admin.drive_until_status(&next, "DONE", |fact| services.handles(fact)).await;
    let listed = admin.get("/dlq/redrive?limit=1").await;
    assert_eq!((&listed["redrives"][0]["id"], &listed["next"]), (&json!(next), &json!(next)));
    let rest = admin.get(&format!("/dlq/redrive?cursor={next}")).await;
    assert_eq!((&rest["redrives"][0]["id"], rest.get("next")), (&json!(redrive), None));
}

#[tokio::test]
async fn redrive_continues_after_a_crash_of_admin() {
    let (admin, services) = admin_with(40).await;
    let redrive = started(&admin, json!({"rate": 20, "canary": 2})).await;
    admin.drive_until_status(&redrive, "RUNNING", |fact| services.handles(fact)).await;
    let store = admin.app.store.clone();
    drop(admin);
    let admin = AdminHarness::over(store, &[]).await;
    let done = admin.drive_until_status(&redrive, "DONE", |fact| services.handles(fact)).await;
    assert_eq!(numbers(&done), [40, 40, 40, 0, 0, 0]);
}

#[tokio::test]
async fn redrive_keeps_its_rate() {
    let (admin, services) = admin_with(6).await;
    let began = Instant::now();
    let redrive = started(&admin, json!({"rate": 10, "canary": 0})).await;
    admin.drive_until_status(&redrive, "DONE", |fact| services.handles(fact)).await;
    // One goes at once, each other earns its tenth of a second.
    assert!(began.elapsed() >= Duration::from_millis(500), "{:?}", began.elapsed());
}

#[tokio::test]
async fn redrive_sends_thousands_once_each() {
    let (admin, services) = admin_with(3_000).await;
    let redrive = started(&admin, json!({"canary": 5})).await;
    let mut times = BTreeMap::<Uuid, u32>::new();
    let done = admin
        .drive_until_status(&redrive, "DONE", |fact| {
            services.requested(fact).into_iter().for_each(|dead| *times.entry(dead.id).or_default() += 1);
            services.handles(fact)
        })
        .await;
    assert_eq!(numbers(&done), [3_000, 3_000, 3_000, 0, 0, 0]);
    assert_eq!((times.len(), times.values().max()), (3_000, Some(&1)));
}

#[tokio::test]
async fn redrive_counts_only_its_own_dead_letters() {
    let (admin, _) = admin_with(9).await;
    let mut redrives = Vec::new();
    for fingerprint in ["f-charge", "f-refund"] {
        redrives.push(started(&admin, json!({"filter": {"fingerprint": fingerprint}, "canary": 1})).await);
        admin.publishes_at_least(1).await;
    }
    for redrive in redrives {
        let shown = admin.get(&format!("/dlq/redrive/{redrive}")).await;
        assert_eq!(numbers(&shown)[1], 1, "sent: {shown}");
    }
}

#[tokio::test]
async fn event_stream_shows_progress_and_ends_with_the_redrive() {
    let (admin, services) = admin_with(4).await;
    let redrive = started(&admin, json!({})).await;
    let request = admin.request(Method::GET, &format!("/dlq/redrive/{redrive}/events"));
    let answer = request.send().await.expect("an answer");
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let watching = tokio::spawn(timeout(Duration::from_secs(20), answer.text()));
    admin.drive_until_status(&redrive, "DONE", |fact| services.handles(fact)).await;
    let text = watching.await.expect("no panic").expect("it ends").expect("text");
    let events: Vec<_> = text.split("\n\n").filter(|event| event.starts_with("event:")).collect();
    let (end, progress) = events.split_last().expect("events");
    assert!(end.starts_with("event: end\n"), "{end}");
    assert!(
        progress.len() > 1 && progress.iter().all(|event| event.starts_with("event: progress\n")),
        "{text}"
    );
    let data = end.split_once("data: ").expect("data").1;
    let last: Value = serde_json::from_str(data).expect("JSON");
    assert_eq!((&last["status"], numbers(&last)), (&json!("DONE"), [4, 4, 4, 0, 0, 0]));
}

#[tokio::test]
async fn event_stream_ends_when_admin_stops() {
    let (admin, _) = admin_with(4).await;
    let redrive = started(&admin, json!({})).await;
    let request = admin.request(Method::GET, &format!("/dlq/redrive/{redrive}/events"));
    let mut answer = request.send().await.expect("an answer");
    let first = timeout(Duration::from_secs(20), answer.chunk()).await.expect("in time");
    assert!(first.expect("bytes").expect("an event").starts_with(b"event: progress"));
    admin.app.stop.cancel();
    let the_end = async { while let Ok(Some(_)) = answer.chunk().await {} };
    timeout(Duration::from_secs(20), the_end).await.expect("the stream ends");
}

#[tokio::test]
async fn number_of_event_streams_is_bounded() {
    let (admin, _) = admin_with(1).await;
    let redrive = started(&admin, json!({})).await;
    let path = format!("/dlq/redrive/{redrive}/events");
    let mut watchers = Vec::new();
    for _ in 0..64 {
        watchers.push(admin.request(Method::GET, &path).send().await.expect("an answer"));
    }
    assert!(watchers.iter().all(|watcher| watcher.status() == 200));
    let one_more = admin.request(Method::GET, &path).send().await.expect("an answer");
    assert_eq!((one_more.status().as_u16(), one_more.headers()["retry-after"].as_bytes()), (503, &b"5"[..]));
}
