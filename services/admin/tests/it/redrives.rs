//! Shell: redrives, driven by the real driver; the test plays the services.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use shared::contract::{DeadLettered, Fact};
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use crate::house::House;
use crate::routes::{announced, numbered};

/// The services as the test plays them.
struct Services(BTreeMap<Uuid, DeadLettered>);

impl Services {
    fn of(letters: u64) -> Self {
        Self((0..letters).map(|number| (numbered(number).id, numbered(number))).collect())
    }

    async fn announce(&self, house: &House) {
        let facts: Vec<Fact> = self.0.values().map(announced).collect();
        house.hears_all(&facts).await;
    }

    fn asked(&self, fact: &Fact) -> Option<DeadLettered> {
        if let Fact::ReplayRequested(asked) = fact { self.0.get(&asked.letter).cloned() } else { None }
    }

    /// The replay goes well.
    fn handles(&self, fact: &Fact) -> Option<Fact> {
        self.asked(fact).map(|letter| Fact::DeadLetterResolved(crate::given::resolved(&letter)))
    }

    /// The replay fails, as it had before or in another way.
    fn fails(&self, fact: &Fact, fingerprint: Option<&str>) -> Option<Fact> {
        let letter = self.asked(fact)?;
        Some(announced(&DeadLettered {
            replays: letter.replays + 1,
            last_failed_at: jiff::Timestamp::now(),
            fingerprint: fingerprint.map_or(letter.fingerprint.clone(), ToOwned::to_owned),
            ..letter
        }))
    }
}

fn id_of(redrive: &Value) -> String {
    redrive["id"].as_str().expect("an id").to_owned()
}

async fn started(house: &House, more: Value) -> String {
    let mut asked = json!({"filter": {"service": "payment"}, "reason": "the bank is back"});
    let members = more.as_object().expect("members").clone();
    asked.as_object_mut().expect("an object").extend(members);
    id_of(&house.post("/dlq/redrive", &asked, 202).await)
}

fn numbers(redrive: &Value) -> [i64; 6] {
    ["matching", "sent", "resolved", "failed", "in_flight", "remaining"]
        .map(|member| redrive[member].as_i64().expect("a number"))
}

/// Another redrive, which finds nothing, is done once the driver has looked at all of them twice.
async fn driver_has_looked(house: &House) {
    let nothing = json!({"filter": {"service": "nobody"}, "reason": "to see the driver look"});
    let redrive = id_of(&house.post("/dlq/redrive", &nothing, 202).await);
    let until = Instant::now() + Duration::from_secs(20);
    while house.get(&format!("/dlq/redrive/{redrive}")).await["status"] != "DONE" {
        assert!(Instant::now() < until, "the driver looks");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_preview_tells_what_would_happen_and_changes_nothing() {
    let (house, services) = (House::new().await, Services::of(9));
    services.announce(&house).await;
    let worn = DeadLettered { replays: 3, ..numbered(4) };
    house.hears(&announced(&worn)).await;
    let before = house.everything().await;
    let asked = json!({"filter": {"service": "payment"}, "preview": true});
    let preview = house.post("/dlq/redrive", &asked, 200).await;
    assert_eq!([&preview["matching"], &preview["replayable"], &preview["over_limit"]], [9, 8, 1]);
    assert_eq!(preview["groups"].as_array().map(Vec::len), Some(2));
    let forced = json!({"filter": {"service": "payment"}, "preview": true, "force": true});
    assert_eq!(house.post("/dlq/redrive", &forced, 200).await["replayable"], 9);
    let by_text = json!({"filter": {"text": "NO ROUTE"}, "preview": true});
    let preview = house.post("/dlq/redrive", &by_text, 200).await;
    assert_eq!([&preview["matching"], &preview["replayable"]], [6, 5]);
    assert_eq!(preview["groups"][0]["count"], 6);
    assert_eq!(house.everything().await, before);
}

#[tokio::test]
async fn the_canary_goes_first_and_the_rest_follows_once_it_is_resolved() {
    let (house, services) = (House::new().await, Services::of(50));
    services.announce(&house).await;
    let redrive = started(&house, json!({"canary": 3})).await;
    // Nobody answers: the canary waits, and nothing follows it.
    let waiting = house.plays(&redrive, "CANARY", |_| None).await;
    assert_eq!(waiting["status"], "CANARY");
    let mut heard = Vec::new();
    let until = Instant::now() + Duration::from_secs(20);
    while heard.len() < 3 {
        heard.extend(house.tells().await);
        assert!(Instant::now() < until, "the canary is sent");
        tokio::task::yield_now().await;
    }
    driver_has_looked(&house).await;
    heard.extend(house.tells().await);
    assert_eq!(heard.len(), 3);
    let oldest: Vec<_> =
        heard.iter().filter_map(|fact| services.asked(fact)).map(|letter| letter.id).collect();
    assert_eq!(oldest, [0, 1, 2].map(|number| numbered(number).id), "the oldest first");
    for fact in &heard[..2] {
        house.hears(&services.handles(fact).expect("an answer")).await;
    }
    driver_has_looked(&house).await;
    let shown = house.get(&format!("/dlq/redrive/{redrive}")).await;
    assert_eq!((&shown["status"], numbers(&shown)), (&json!("CANARY"), [50, 3, 2, 0, 1, 47]));
    house.hears(&services.handles(&heard[2]).expect("an answer")).await;
    let done = house.plays(&redrive, "DONE", |fact| services.handles(fact)).await;
    assert_eq!(numbers(&done), [50, 50, 50, 0, 0, 0]);
    assert_eq!(house.get("/dlq/count").await["total"], 0);
    let letter = house.get(&format!("/dlq/{}", numbered(9).id)).await;
    assert_eq!((&letter["redrive"], &letter["history"][1]["operator"]), (&json!(redrive), &json!("ada")));
}

#[tokio::test]
async fn a_canary_that_fails_again_stops_the_redrive_and_another_round_may_do_better() {
    let (house, services) = (House::new().await, Services::of(20));
    services.announce(&house).await;
    let redrive = started(&house, json!({})).await;
    let stopped = house.plays(&redrive, "STOPPED", |fact| services.fails(fact, Some("another"))).await;
    assert_eq!(numbers(&stopped), [20, 1, 0, 1, 0, 19]);
    let because = stopped["stopped_because"].as_str().expect("a reason");
    assert!(because.contains("the canary") && because.contains(&numbered(0).id.to_string()), "{because}");
    let entry = house.get("/audit/log?action=redrive.stop").await["entries"][0].clone();
    assert_eq!((&entry["operator"], &entry["target"]), (&json!("system"), &json!(redrive)));
    assert_eq!(entry["reason"], because);

    let again = house.post(&format!("/dlq/redrive/{redrive}/resume"), &json!({}), 200).await;
    assert_eq!((&again["status"], &again["round"]), (&json!("CANARY"), &json!(2)));
    let done = house.plays(&redrive, "DONE", |fact| services.handles(fact)).await;
    assert_eq!(numbers(&done), [20, 20, 20, 0, 0, 0]);
    assert!(done.get("stopped_because").is_none(), "{done}");
}

/// Letters of a round that stopped may still be on their way when the next round has nothing left to send.
#[tokio::test]
async fn late_letters_of_an_earlier_round_are_waited_for() {
    let (house, services) = (House::new().await, Services::of(40));
    services.announce(&house).await;
    let redrive = started(&house, json!({"canary": 0, "rate": 20})).await;
    let (mut heard, until) = (Vec::new(), Instant::now() + Duration::from_secs(20));
    while heard.is_empty() {
        assert!(Instant::now() < until, "the first letter is sent");
        heard = house.tells().await;
        tokio::task::yield_now().await;
    }
    let path = "/breakers/payment/outside";
    house.post(path, &json!({"action": "open", "reason": "a test"}), 200).await;
    let mut goes_astray = |fact: &Fact| {
        heard.push(fact.clone());
        None
    };
    let stopped = house.plays(&redrive, "STOPPED", &mut goes_astray).await;
    let late = numbers(&stopped)[4];
    assert!((1..40).contains(&late), "{stopped}");
    house.post(path, &json!({"action": "reset"}), 200).await;
    house.post(&format!("/dlq/redrive/{redrive}/resume"), &json!({}), 200).await;
    let mut nothing_left = Value::Null;
    let until = Instant::now() + Duration::from_secs(20);
    while numbers_or_none(&nothing_left) != Some([40, 40, 40 - late, 0, late, 0]) {
        assert!(Instant::now() < until, "{nothing_left}");
        nothing_left = house.plays(&redrive, "RUNNING", |fact| services.handles(fact)).await;
    }
    driver_has_looked(&house).await;
    assert_eq!(house.get(&format!("/dlq/redrive/{redrive}")).await["status"], "RUNNING");
    for fact in &heard {
        house.hears(&services.handles(fact).expect("an answer")).await;
    }
    let done = house.plays(&redrive, "DONE", |fact| services.handles(fact)).await;
    assert_eq!(numbers(&done), [40, 40, 40, 0, 0, 0]);
}

fn numbers_or_none(redrive: &Value) -> Option<[i64; 6]> {
    redrive.is_object().then(|| numbers(redrive))
}

#[tokio::test]
async fn the_same_error_again_stops_it_and_another_does_not() {
    let (house, services) = (House::new().await, Services::of(20));
    services.announce(&house).await;
    let redrive = started(&house, json!({"canary": 0})).await;
    let is =
        |fact: &Fact, number| services.asked(fact).is_some_and(|letter| letter.id == numbered(number).id);
    let done = house
        .plays(&redrive, "DONE", |fact| match is(fact, 7) {
            true => services.fails(fact, Some("something else")),
            false => services.handles(fact),
        })
        .await;
    assert_eq!(numbers(&done), [20, 20, 19, 1, 0, 0]);

    let (house, services) = (House::new().await, Services::of(20));
    services.announce(&house).await;
    let redrive = started(&house, json!({"canary": 0, "rate": 1})).await;
    let stopped = house.plays(&redrive, "STOPPED", |fact| services.fails(fact, None)).await;
    let because = stopped["stopped_because"].as_str().expect("a reason");
    assert!(because.contains("the same error came back"), "{because}");
    assert!(numbers(&stopped)[5] > 0, "the rest was not sent: {stopped}");
}

#[tokio::test]
async fn an_open_breaker_stops_it_before_anything_is_sent() {
    let (house, services) = (House::new().await, Services::of(5));
    services.announce(&house).await;
    // `outside` is the name of no step: it may be what the steps need.
    let path = "/breakers/payment/outside";
    house.post(path, &json!({"action": "open", "reason": "a test"}), 200).await;
    let redrive = started(&house, json!({})).await;
    let stopped = house.plays(&redrive, "STOPPED", |_| None).await;
    assert_eq!(stopped["stopped_because"], "the breaker outside of payment is open");
    assert_eq!(numbers(&stopped), [5, 0, 0, 0, 0, 5]);
    house.post(path, &json!({"action": "reset"}), 200).await;
    house.post(&format!("/dlq/redrive/{redrive}/resume"), &json!({"reason": "it is back"}), 200).await;
    house.plays(&redrive, "DONE", |fact| services.handles(fact)).await;
}

#[tokio::test]
async fn a_service_that_is_away_is_no_reason_to_stop() {
    let house = House::with(&["service.order=http://127.0.0.1:9"]).await;
    let mut services = Services::of(5);
    services.0.values_mut().for_each(|letter| letter.service = "order".to_owned());
    services.announce(&house).await;
    let redrive = started(&house, json!({"filter": {"service": "order"}})).await;
    let done = house.plays(&redrive, "DONE", |fact| services.handles(fact)).await;
    assert_eq!(numbers(&done), [5, 5, 5, 0, 0, 0]);
}

#[tokio::test]
async fn worn_letters_are_left_alone_unless_forced() {
    let (house, services) = (House::new().await, Services::of(4));
    services.announce(&house).await;
    let worn = DeadLettered { replays: 3, ..numbered(2) };
    house.hears(&announced(&worn)).await;
    let redrive = started(&house, json!({})).await;
    let done = house.plays(&redrive, "DONE", |fact| services.handles(fact)).await;
    assert_eq!(numbers(&done), [4, 3, 3, 0, 0, 0]);
    let forced = started(&house, json!({"force": true})).await;
    let done = house.plays(&forced, "DONE", |fact| services.handles(fact)).await;
    assert_eq!(numbers(&done), [1, 1, 1, 0, 0, 0]);
}

#[tokio::test]
async fn a_redrive_is_paused_resumed_and_cancelled() {
    let (house, services) = (House::new().await, Services::of(6));
    services.announce(&house).await;
    let redrive = started(&house, json!({"rate": 1, "canary": 1})).await;
    let same = json!({"filter": {"service": "payment"}, "reason": "twice"});
    house.post("/dlq/redrive", &same, 409).await;
    let path = |what: &str| format!("/dlq/redrive/{redrive}/{what}");
    house.post(&path("resume"), &json!({}), 409).await;
    assert_eq!(house.post(&path("pause"), &json!({"reason": "lunch"}), 200).await["status"], "PAUSED");
    house.post(&path("pause"), &json!({}), 409).await;
    house.post("/dlq/redrive", &same, 409).await;
    assert_eq!(house.post(&path("resume"), &json!({}), 200).await["status"], "CANARY");
    house.plays(&redrive, "RUNNING", |fact| services.handles(fact)).await;
    let cancelled = house.post(&path("cancel"), &json!({}), 200).await;
    assert_eq!(cancelled["status"], "CANCELLED");
    house.post(&path("resume"), &json!({}), 409).await;
    house.post(&path("cancel"), &json!({}), 409).await;
    let log = house.get(&format!("/audit/log?target={redrive}")).await;
    let actions: Vec<_> =
        log["entries"].as_array().expect("a list").iter().map(|entry| &entry["action"]).collect();
    assert_eq!(actions, ["redrive.cancel", "redrive.resume", "redrive.pause", "redrive.start"]);
    // Now another one may have the letters.
    let next = id_of(&house.post("/dlq/redrive", &same, 202).await);
    house.plays(&next, "DONE", |fact| services.handles(fact)).await;
    let listed = house.get("/dlq/redrive?limit=1").await;
    assert_eq!((&listed["redrives"][0]["id"], &listed["next"]), (&json!(next), &json!(next)));
    let rest = house.get(&format!("/dlq/redrive?cursor={next}")).await;
    assert_eq!((&rest["redrives"][0]["id"], rest.get("next")), (&json!(redrive), None));
}

/// The driver remembers nothing: another one takes the redrive up where its row and the letters are.
#[tokio::test]
async fn a_redrive_survives_the_death_of_admin() {
    let (house, services) = (House::new().await, Services::of(40));
    services.announce(&house).await;
    let redrive = started(&house, json!({"rate": 20, "canary": 2})).await;
    house.plays(&redrive, "RUNNING", |fact| services.handles(fact)).await;
    let store = house.app.store.clone();
    drop(house);
    let house = House::over(store, &[]).await;
    let done = house.plays(&redrive, "DONE", |fact| services.handles(fact)).await;
    assert_eq!(numbers(&done), [40, 40, 40, 0, 0, 0]);
}

#[tokio::test]
async fn a_redrive_is_no_faster_than_told() {
    let (house, services) = (House::new().await, Services::of(6));
    services.announce(&house).await;
    let began = Instant::now();
    let redrive = started(&house, json!({"rate": 10, "canary": 0})).await;
    house.plays(&redrive, "DONE", |fact| services.handles(fact)).await;
    // One goes at once, each other earns its tenth of a second.
    assert!(began.elapsed() >= Duration::from_millis(500), "{:?}", began.elapsed());
}

/// However many there are, each is sent once, and quickly.
#[tokio::test]
async fn thousands_are_sent_each_once() {
    let (house, services) = (House::new().await, Services::of(3_000));
    services.announce(&house).await;
    let redrive = started(&house, json!({"canary": 5})).await;
    let mut times = BTreeMap::<Uuid, u32>::new();
    let done = house
        .plays(&redrive, "DONE", |fact| {
            services.asked(fact).into_iter().for_each(|letter| *times.entry(letter.id).or_default() += 1);
            services.handles(fact)
        })
        .await;
    assert_eq!(numbers(&done), [3_000, 3_000, 3_000, 0, 0, 0]);
    assert_eq!((times.len(), times.values().max()), (3_000, Some(&1)));
}

#[tokio::test]
async fn watchers_see_it_move_and_are_let_go_at_the_end() {
    let (house, services) = (House::new().await, Services::of(4));
    services.announce(&house).await;
    let redrive = started(&house, json!({})).await;
    let request = house.request(Method::GET, &format!("/dlq/redrive/{redrive}/events"));
    let answer = request.send().await.expect("an answer");
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let watching = tokio::spawn(timeout(Duration::from_secs(20), answer.text()));
    house.plays(&redrive, "DONE", |fact| services.handles(fact)).await;
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
async fn watchers_are_let_go_when_admin_stops() {
    let (house, services) = (House::new().await, Services::of(4));
    services.announce(&house).await;
    let redrive = started(&house, json!({})).await;
    let request = house.request(Method::GET, &format!("/dlq/redrive/{redrive}/events"));
    let mut answer = request.send().await.expect("an answer");
    let first = timeout(Duration::from_secs(20), answer.chunk()).await.expect("in time");
    assert!(first.expect("bytes").expect("an event").starts_with(b"event: progress"));
    house.app.stop.cancel();
    let the_end = async { while let Ok(Some(_)) = answer.chunk().await {} };
    timeout(Duration::from_secs(20), the_end).await.expect("the stream ends");
}

#[tokio::test]
async fn watchers_are_bounded() {
    let (house, services) = (House::new().await, Services::of(1));
    services.announce(&house).await;
    let redrive = started(&house, json!({})).await;
    let path = format!("/dlq/redrive/{redrive}/events");
    let mut watchers = Vec::new();
    for _ in 0..64 {
        watchers.push(house.request(Method::GET, &path).send().await.expect("an answer"));
    }
    assert!(watchers.iter().all(|watcher| watcher.status() == 200));
    let one_more = house.request(Method::GET, &path).send().await.expect("an answer");
    assert_eq!((one_more.status().as_u16(), one_more.headers()["retry-after"].as_bytes()), (503, &b"5"[..]));
}
