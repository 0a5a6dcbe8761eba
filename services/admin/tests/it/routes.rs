//! Shell: routes of dead letters, breakers, faults, outboxes and the audit log.

use admin::service::AdminMessage;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use contract::order::CancelReason;
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use reqwest::{Method, StatusCode};
use saga_core::dead_letter::{DeadLetterMessage, DeadLetterOrigin, DeadLettered};
use saga_core::ids::derived;
use saga_core::message::{Envelope, Message as _};
use saga_engine::testing::service_under_test::envelope;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::given::{ORDER, announced, cancelled, dead_letter, dead_refund, fact, handled};
use crate::harness::{AdminHarness, answered, each};

/// Time of the first failure, before any test runs.
const LONG_AGO: Timestamp = Timestamp::constant(1_700_000_000, 0);

/// The `number`-th of many dead letters, in the order of time. Every third has another cause and step.
pub fn numbered(number: u64) -> DeadLettered {
    let is_other = number.is_multiple_of(3);
    let (step, fingerprint) =
        if is_other { ("payment-refund", "f-refund") } else { ("payment-processing", "f-charge") };
    let at = LONG_AGO + SignedDuration::from_secs(i64::try_from(number).expect("a small number"));
    DeadLettered {
        id: Uuid::from_u128(0xDEAD_0000 + u128::from(number)),
        message_id: Uuid::from_u128(0xBEEF_0000 + u128::from(number)),
        fingerprint: fingerprint.to_owned(),
        reason: format!(
            "the bank said \"no\" to call {number}: {}",
            if is_other { "Timed out" } else { "no route" }
        ),
        first_failed_at: at,
        last_failed_at: at,
        saga: None,
        ..dead_letter(step, None, 0)
    }
}

/// A dead letter of a refund, and its message.
pub fn editable() -> (DeadLettered, Value) {
    let received = cancelled(ORDER, CancelReason::CustomerRequest);
    let payload = envelope("order", &received);
    let dead = DeadLettered { payload_base64: BASE64.encode(&payload), ..dead_refund(0) };
    (dead, serde_json::from_slice(&payload).expect("JSON"))
}

pub async fn admin_with(dead_letters: u64) -> AdminHarness {
    let admin = AdminHarness::new().await;
    let facts: Vec<_> = (0..dead_letters).map(|number| announced(&numbered(number))).collect();
    admin.receives_all(&facts).await;
    admin
}

#[tokio::test]
async fn dead_letters_are_listed_by_last_failure_page_by_page() {
    let admin = admin_with(25).await;
    // Three that failed at the same time are told apart by their ids.
    let twins = [1, 2, 3].map(|id| DeadLettered { id: Uuid::from_u128(id), ..numbered(10) });
    admin.receives_all(&twins.each_ref().map(announced)).await;
    let seen = admin.ids("/dlq?limit=4", "dead_letters").await;
    let mut all: Vec<DeadLettered> = (0..25).map(numbered).chain(twins).collect();
    all.sort_by_key(|dead| std::cmp::Reverse((dead.last_failed_at, dead.id)));
    assert_eq!(seen, all.iter().map(|dead| dead.id.to_string()).collect::<Vec<_>>());
}

#[tokio::test]
async fn counts_and_groups_come_from_the_view_of_admin() {
    let admin = admin_with(12).await;
    admin.receives(&handled(&numbered(0))).await;
    admin.delete(&format!("/dlq/{}?reason=hopeless", numbered(1).id), 200).await;
    admin.post(&format!("/dlq/{}/replay", numbered(2).id), &json!({}), 202).await;
    let wanted = json!({
        "total": 10,
        "by_status": {"PENDING": 9, "REPLAYING": 1, "RESOLVED": 1, "DISCARDED": 1, "RESOLVED_MANUALLY": 0},
        "by_service": {"payment": 10},
    });
    assert_eq!(admin.get("/dlq/count").await, wanted);

    let groups = admin.get("/dlq/groups").await["groups"].clone();
    let [charge, refund] = [&groups[0], &groups[1]];
    assert_eq!((&charge["fingerprint"], &charge["count"]), (&json!("f-charge"), &json!(6)));
    assert_eq!((&refund["fingerprint"], &refund["count"]), (&json!("f-refund"), &json!(3)));
    let last = numbered(11);
    assert_eq!(charge["sample"], last.id.to_string());
    assert_eq!(charge["reason"], last.reason);
    assert_eq!(charge["step"], "payment-processing");
    assert_eq!(charge["first_failed_at"], numbered(4).last_failed_at.to_string());
    assert_eq!(charge["last_failed_at"], last.last_failed_at.to_string());
    assert_eq!(admin.get("/dlq/groups?limit=1").await["groups"].as_array().map(Vec::len), Some(1));
    assert_eq!(admin.get("/dlq/groups?status=RESOLVED").await["groups"][0]["count"], 1);
    assert_eq!(
        admin.get("/dlq/groups?step=payment-refund").await["groups"].as_array().map(Vec::len),
        Some(1)
    );
}

#[tokio::test]
async fn dead_letter_detail_has_report_notes_and_history() {
    let admin = AdminHarness::new().await;
    let (dead, payload) = editable();
    admin.receives(&announced(&dead)).await;
    let path = format!("/dlq/{}", dead.id);
    admin.post(&format!("{path}/notes"), &json!({"text": "called the bank"}), 201).await;
    admin.post(&format!("{path}/replay"), &json!({"reason": "it is back"}), 202).await;
    admin
        .receives(&announced(&DeadLettered { payload_base64: dead.payload_base64.clone(), ..dead_refund(1) }))
        .await;

    let answer = admin.request(Method::GET, &path).send().await.expect("an answer");
    let tag = answer.headers()["etag"].clone();
    let shown: Value = answer.json().await.expect("JSON");
    assert_eq!((tag.to_str().expect("text"), &shown["version"]), ("\"4\"", &json!(4)));
    assert_eq!(shown["status"], "PENDING");
    assert_eq!(shown["replays"], 1);
    assert_eq!(shown["payload"], payload);
    assert_eq!(shown["payload_base64"], dead.payload_base64);
    assert_eq!(shown["error_chain"], json!(["failed 2 times"]));
    assert_eq!(
        (&shown["notes"][0]["operator"], &shown["notes"][0]["text"]),
        (&json!("ada"), &json!("called the bank"))
    );
    let story = each(&shown["history"], "what");
    assert_eq!(story, ["dead-lettered", "noted", "replayed", "failed again"]);
    assert_eq!(shown["history"][2]["reason"], "it is back");
}

#[tokio::test]
async fn dead_letter_without_json_payload_is_shown() {
    let admin = AdminHarness::new().await;
    let foreign = DeadLettered {
        origin: DeadLetterOrigin::Foreign,
        message_type: None,
        payload_base64: BASE64.encode([0xFF, 0x00]),
        ..dead_letter("payment-refund", None, 0)
    };
    admin.receives(&announced(&foreign)).await;
    let shown = admin.get(&format!("/dlq/{}", foreign.id)).await;
    assert_eq!((&shown["payload"], &shown["payload_base64"]), (&Value::Null, &json!("/wA=")));
    assert_eq!(shown["origin"], "foreign");
}

#[tokio::test]
async fn second_of_two_concurrent_replays_is_rejected() {
    let admin = admin_with(1).await;
    let dead = numbered(0);
    let path = format!("/dlq/{}/replay", dead.id);
    let both = join_all([0, 1].map(|_| admin.request(Method::POST, &path).send())).await;
    let mut statuses: Vec<_> = both.into_iter().map(|answer| answer.expect("an answer").status()).collect();
    statuses.sort();
    assert_eq!(statuses, [StatusCode::ACCEPTED, StatusCode::CONFLICT]);
    assert_eq!(asked_to_replay(&admin).await.len(), 1);
}

#[tokio::test]
async fn replay_after_three_failures_needs_force_and_reason() {
    let admin = AdminHarness::new().await;
    let dead = DeadLettered { replays: 3, ..numbered(1) };
    admin.receives(&announced(&dead)).await;
    let path = format!("/dlq/{}/replay", dead.id);
    admin.post(&path, &json!({"reason": "now it works"}), 409).await;
    let forced = admin.post(&path, &json!({"force": true, "reason": "now it works"}), 202).await;
    assert_eq!((&forced["status"], &forced["version"]), (&json!("REPLAYING"), &json!(5)));
    admin.post(&path, &json!({"reason": "again"}), 409).await;
    admin.post(&path, &json!({"force": true, "reason": "it got lost"}), 202).await;
    let wanted_body = asked_to_replay(&admin).await;
    assert_eq!(wanted_body.len(), 2);
    assert!(wanted_body[0] < wanted_body[1], "{wanted_body:?}");
}

/// Revisions of the requested replays.
async fn asked_to_replay(admin: &AdminHarness) -> Vec<u64> {
    let of = |published| match published {
        AdminMessage::DeadLetter(DeadLetterMessage::ReplayRequested(wanted_body)) => {
            Some(wanted_body.revision)
        }
        AdminMessage::DeadLetter(_) | AdminMessage::Fact(_) => None,
    };
    admin.publishes().await.into_iter().filter_map(of).collect()
}

#[tokio::test]
async fn dead_letter_is_discarded_and_restored() {
    let admin = admin_with(1).await;
    let path = format!("/dlq/{}", numbered(0).id);
    assert_eq!(admin.delete(&format!("{path}?reason=a%20test"), 200).await["status"], "DISCARDED");
    admin.delete(&format!("{path}?reason=again"), 409).await;
    admin.delete(&path, 422).await;
    admin.post(&format!("{path}/replay"), &json!({}), 409).await;
    assert_eq!(admin.post(&format!("{path}/restore"), &json!({}), 200).await["status"], "PENDING");
    let published: Vec<_> =
        admin.publishes().await.iter().map(|published| published.message_type().name).collect();
    assert_eq!(published, ["DeadLetterDiscarded", "DeadLetterRestored"]);
    let log = admin.get(&format!("/audit?target={}", numbered(0).id)).await;
    let actions = each(&log["entries"], "action");
    assert_eq!(actions, ["dlq.restore", "dlq.discard"]);
    assert_eq!(log["entries"][1]["reason"], "a test");
}

#[tokio::test]
async fn bulk_replay_selects_by_ids_or_cause() {
    let admin = admin_with(6).await;
    let [one, two] = [1, 2].map(|number| numbered(number).id);
    let reason = "the bank is back";
    let answer =
        admin.post("/dlq/replay", &json!({"ids": [one, two, one, ORDER], "reason": reason}), 200).await;
    assert_eq!(
        answer,
        json!({"done": 2, "rejected": [{"id": ORDER, "detail": "there is no such dead letter"}]})
    );
    let answer = admin
        .post("/dlq/replay", &json!({"filter": {"fingerprint": "f-charge"}, "reason": reason}), 200)
        .await;
    assert_eq!(answer, json!({"done": 2, "rejected": []}));
    assert_eq!(admin.publishes().await.len(), 4);
    let log = admin.get("/audit?action=dlq.replay_many&operator=ada").await;
    assert_eq!(log["entries"][0]["target"], "f-charge");
    let wanted = json!({"filter": {"fingerprint": "f-charge"}, "matching": 2});
    assert_eq!(
        (&log["entries"][0]["detail"], &log["entries"][0]["outcome"]),
        (&wanted, &json!("done: 2 of 2"))
    );
    assert_eq!(log["entries"][1]["outcome"], "done: 2 of 3");
    assert_eq!(log["entries"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn bulk_replay_of_too_large_group_is_rejected() {
    let admin = AdminHarness::new().await;
    let many: Vec<_> = (0..1_001)
        .map(|number| announced(&DeadLettered { fingerprint: "f-many".to_owned(), ..numbered(number) }))
        .collect();
    admin.receives_all(&many).await;
    let wanted_body = json!({"filter": {"fingerprint": "f-many"}, "reason": "the bank is back"});
    let problem = admin.post("/dlq/replay", &wanted_body, 422).await;
    assert_eq!(problem["errors"][0]["field"], "filter");
    assert!(admin.publishes().await.is_empty());
}

pub async fn edited(admin: &AdminHarness) -> (Uuid, Envelope) {
    let published = admin.publishes().await;
    let [AdminMessage::DeadLetter(DeadLetterMessage::ReplayRequested(wanted_body))] = published.as_slice()
    else {
        panic!("one replay, not {published:?}")
    };
    let edited = wanted_body.edited.as_ref().expect("an edited message");
    let bytes = BASE64.decode(&edited.payload_base64).expect("base64");
    (edited.message_id, Envelope::from_bytes(&bytes).expect("an envelope"))
}

#[tokio::test]
async fn edit_replaces_data_and_keeps_the_envelope_under_a_new_id() {
    let admin = AdminHarness::new().await;
    let (dead, before) = editable();
    admin.receives(&announced(&dead)).await;
    assert_eq!(admin.get("/dlq").await["dead_letters"][0]["edited"], json!(false));
    let path = format!("/dlq/{}/edit", dead.id);
    let data = json!({"order": ORDER, "lines": [{"sku": "mug", "quantity": 5}], "reason": "operator"});
    let changes = json!([
        {"path": "data.lines[0].quantity", "before": 2, "after": 5},
        {"path": "data.reason", "before": "customer_request", "after": "operator"},
    ]);
    let before_all = admin.everything().await;
    let preview = admin.post(&path, &json!({"data": data, "preview": true}), 200).await;
    assert_eq!((&preview["changes"], &preview["status"]), (&changes, &json!("PENDING")), "{preview:#}");
    assert_eq!(admin.everything().await, before_all);
    let item = admin.post(&path, &json!({"data": data, "reason": "five, not two"}), 202).await;
    assert_eq!(item["changes"], changes);
    assert_eq!((&item["status"], &item["edited"]), (&json!("REPLAYING"), &json!(true)));
    let (id, envelope) = edited(&admin).await;
    assert_eq!((envelope.id, id), (id, derived(&["edited", &dead.id.to_string(), "2", &data.to_string()])));
    assert_ne!(json!(id), before["id"]);
    assert_eq!(json!(envelope.correlation_id), before["correlation_id"]);
    assert_eq!(json!(envelope.causation_id), before["causation_id"]);
    assert_eq!(serde_json::from_str::<Value>(envelope.data.get()).expect("JSON"), data);
    let entry = admin.get("/audit").await["entries"][0].clone();
    assert_eq!((&entry["action"], &entry["detail"]["changes"]), (&json!("dlq.edit"), &changes), "{entry:#}");

    // Operators see what was sent, and what it was before.
    let detail = admin.get(&format!("/dlq/{}", dead.id)).await;
    assert_eq!((&detail["message_id"], &detail["payload"]["id"]), (&json!(id), &json!(id)));
    assert_eq!(detail["original"]["message_id"], json!(dead.message_id));
    assert_eq!(detail["original"]["payload_base64"], json!(dead.payload_base64));
}

/// Other services act on lines and payment already.
#[tokio::test]
async fn edit_of_immutable_member_is_rejected() {
    let admin = AdminHarness::new().await;
    let payload = envelope("order", &fact("OrderCreated", ORDER));
    let message_type = Some("OrderCreated".to_owned());
    let dead = DeadLettered { payload_base64: BASE64.encode(&payload), message_type, ..dead_refund(0) };
    admin.receives(&announced(&dead)).await;
    let (before_all, path) = (admin.everything().await, format!("/dlq/{}/edit", dead.id));
    let before = serde_json::from_slice::<Value>(&payload).expect("JSON")["data"].clone();
    let with = |pointer: &str, value: Value| {
        let mut data = before.clone();
        *data.pointer_mut(pointer).expect("a member") = value;
        data
    };
    for (data, field) in [
        (with("/order", json!(Uuid::from_u128(99))), "data.order"),
        (with("/lines/0/sku", json!("another")), "data.lines"),
        (with("/lines/0/quantity", json!(77)), "data.lines"),
        (with("/payment/total/amount_minor", json!(1)), "data.payment"),
        (with("/payment/customer", json!("eve")), "data.payment"),
    ] {
        let problem = admin.post(&path, &json!({"data": data, "reason": "a test"}), 422).await;
        assert_eq!(problem["errors"][0]["field"], field, "{data}: {problem}");
        let detail = problem["errors"][0]["detail"].as_str().expect("why");
        assert!(detail.contains("may not change it: ") && detail.contains(" would "), "{detail}");
    }
    assert_eq!(admin.everything().await, before_all);
    let another = json!({"data": with("/payment/token", json!("tok_new")), "reason": "a new card"});
    let edited = admin.post(&path, &another, 202).await;
    let changes = json!([{"path": "data.payment.token", "before": "***", "after": "***"}]);
    assert_eq!(edited["changes"], changes, "told, and not shown");
    let log = admin.get("/audit").await;
    assert!(!log.to_string().contains("tok_new"), "{log:#}");
    assert_eq!(log["entries"][0]["detail"]["changes"], changes);
}

#[tokio::test]
async fn edit_that_step_cannot_decode_is_rejected_with_the_path() {
    let admin = AdminHarness::new().await;
    let (dead, before) = editable();
    admin.receives(&announced(&dead)).await;
    let before_all = admin.everything().await;
    let path = format!("/dlq/{}/edit", dead.id);
    let line = |quantity: Value| json!({"order": ORDER, "lines": [{"sku": "mug", "quantity": quantity}], "reason": "operator"});
    let with = |member: &str, value: Value| {
        let mut payload = before.clone();
        payload[member] = value;
        payload
    };
    for (edit, field) in [
        (json!({"data": line(json!("two"))}), "data.lines[0].quantity"),
        (json!({"data": line(json!(-1))}), "data.lines[0].quantity"),
        (json!({"data": {"order": ORDER, "lines": []}}), "data.reason"),
        (json!({"data": {"order": "x", "lines": [], "reason": "operator"}}), "data.order"),
        (json!({"data": 7}), "data"),
        (json!({"payload": {}}), "payload.type"),
        (json!({"payload": with("type", json!("OrderBurnt"))}), "payload.type"),
        // The step does not hear it; its service was asked.
        (
            json!({"payload": serde_json::from_slice::<Value>(&envelope("order", &fact("OrderConfirmed", ORDER))).expect("JSON")}),
            "payload.type",
        ),
        (json!({"payload": with("version", json!(9))}), "payload.version"),
        (json!({"payload": with("occurred_at", json!("noon"))}), "payload.occurred_at"),
        (json!({"payload": with("data", line(json!(1.5)))}), "payload.data.lines[0].quantity"),
    ] {
        let mut body = edit;
        body["reason"] = json!("a test");
        let problem = admin.post(&path, &body, 422).await;
        assert_eq!(problem["errors"][0]["field"], field, "{body}: {problem}");
    }
    assert_eq!(admin.everything().await, before_all);
    let payload = with("data", line(json!(3)));
    admin.post(&path, &json!({"payload": payload, "reason": "three"}), 202).await;
    let (id, envelope) = edited(&admin).await;
    assert_eq!((envelope.id, json!(envelope.correlation_id)), (id, before["correlation_id"].clone()));
}

#[tokio::test]
async fn calls_and_unreadable_messages_cannot_be_edited_by_data() {
    let admin = AdminHarness::new().await;
    let call = DeadLettered { origin: DeadLetterOrigin::Task, message_type: None, ..numbered(1) };
    let foreign =
        DeadLettered { origin: DeadLetterOrigin::Foreign, payload_base64: BASE64.encode("?"), ..numbered(2) };
    admin.receives_all(&[announced(&call), announced(&foreign)]).await;
    let edit = json!({"data": {}, "reason": "a test"});
    let problem = admin.post(&format!("/dlq/{}/edit", call.id), &edit, 409).await;
    assert_eq!(problem["detail"], "a call cannot be edited");
    let problem = admin.post(&format!("/dlq/{}/edit", foreign.id), &edit, 422).await;
    assert_eq!(problem["errors"][0]["field"], "data");
}

#[tokio::test]
async fn forced_and_reset_breakers_have_audit_entries() {
    let admin = AdminHarness::new().await;
    let all = admin.get("/breakers").await;
    assert_eq!(each(&all, "service"), ["admin", "order", "inventory", "payment"]);
    // The stand-in's breakers are admin's own, whichever service they are asked of.
    for service in ["admin", "order"] {
        let path = format!("/breakers/{service}/admin-saga-view");
        let open = admin.post(&path, &json!({"action": "open", "reason": "a test"}), 200).await;
        assert_eq!(open["state"], "FORCED_OPEN", "{open}");
        assert_eq!(admin.post(&path, &json!({"action": "reset"}), 200).await["state"], "CLOSED");
    }
    let log = admin.get("/audit?target=order/admin-saga-view").await;
    let entries = log["entries"].as_array().expect("a list");
    let [reset, open] = entries.as_slice() else { panic!("two entries: {log}") };
    assert_eq!((&reset["action"], &reset["outcome"]), (&json!("breaker.reset"), &json!("done")));
    assert_eq!((&open["action"], &open["reason"]), (&json!("breaker.open"), &json!("a test")));
}

#[tokio::test]
async fn faults_are_injected_listed_and_cleared() {
    let admin = AdminHarness::with(&["faults.enabled=true", "faults.seed=7"]).await;
    let wanted_body = json!({"service": "admin", "kind": "fail_transiently", "step": "admin-saga-view", "next": 2, "probability": 50});
    let made = admin.post("/faults", &wanted_body, 201).await;
    assert_eq!(
        (&made["service"], &made["hits"], &made["probability"]),
        (&json!("admin"), &json!(0), &json!(50))
    );
    let all = admin.get("/faults").await;
    assert_eq!(all["unreachable"], json!(["bank"]));
    assert_eq!(all["seeds"]["admin"], 7);
    // The three others are admin's own routes: they show the same fault.
    assert_eq!(all["faults"].as_array().map(Vec::len), Some(4));
    assert_eq!(admin.delete(&format!("/faults/payment/{}", made["id"]), 200).await["cleared"], 1);
    admin.post("/faults", &json!({"service": "order", "kind": "pause"}), 201).await;
    let cleared = admin.delete("/faults", 200).await;
    assert_eq!((&cleared["cleared"], &cleared["unreachable"]), (&json!(1), &json!(["bank"])));
    assert_eq!(admin.get("/faults").await["faults"], json!([]));
    let log = admin.get("/audit").await;
    let actions = each(&log["entries"], "action");
    assert_eq!(actions, ["fault.clear_all", "fault.inject", "fault.clear", "fault.inject"]);
}

#[tokio::test]
async fn rejected_outbox_entries_are_retried() {
    let admin = admin_with(1).await;
    admin.post(&format!("/dlq/{}/replay", numbered(0).id), &json!({}), 202).await;
    let seq = admin.app.store.outbox_items(1).await.expect("the outbox")[0].seq;
    let now = Timestamp::now() + SignedDuration::from_secs(1);
    admin.refuse(seq, now).await;
    for (service, body, retried) in
        [("payment", json!({"seq": seq}), 1), ("admin", json!({"reason": "mended"}), 0)]
    {
        let answer = admin.post(&format!("/outbox/{service}/retry"), &body, 200).await;
        assert_eq!(answer, json!({"retried": retried}), "{service} {body}");
    }
    admin.post("/outbox/admin/retry", &json!({"seq": seq + 1}), 404).await;
    assert_eq!(admin.publishes().await.len(), 1);
    let entries = admin.get("/audit?action=outbox.retry").await["entries"].clone();
    assert_eq!((&entries[2]["target"], &entries[2]["detail"]), (&json!("payment"), &json!({"seq": seq})));
}

#[tokio::test]
async fn republication_needs_a_reason() {
    let admin = admin_with(1).await;
    admin.post(&format!("/dlq/{}/replay", numbered(0).id), &json!({}), 202).await;
    assert_eq!(admin.publishes().await.len(), 1);
    let (early, late) = ("2020-01-01T00:00:00Z", "2100-01-01T00:00:00Z");
    for (since, republished) in [(late, 0), (early, 1)] {
        let answer =
            admin.post("/outbox/admin/republish", &json!({"since": since, "reason": "disk"}), 200).await;
        assert_eq!(answer["republished"], republished, "since {since}");
        assert!(answer["kept_since"].as_str().is_some_and(|kept| kept > early), "{answer}");
    }
    let published = admin.publishes().await;
    assert_eq!(published.len(), 1, "the same once more");
    admin.post("/outbox/payment/republish", &json!({"since": early, "reason": "disk"}), 200).await;
    admin.post("/outbox/nobody/republish", &json!({"since": early}), 404).await;
    admin.post("/outbox/admin/republish", &json!({}), 422).await;
    let entries = admin.get("/audit?action=outbox.republish").await["entries"].clone();
    assert_eq!((&entries[0]["target"], &entries[0]["reason"]), (&json!("payment"), &json!("disk")));
    assert_eq!(entries[0]["detail"], json!({"since": early}));
}

#[tokio::test]
async fn audit_log_is_paged() {
    let admin = admin_with(1).await;
    for number in 0..7 {
        let note = json!({"text": number.to_string()});
        admin.post(&format!("/dlq/{}/notes", numbered(0).id), &note, 201).await;
    }
    let seen = admin.ids("/audit?limit=3", "entries").await;
    assert_eq!(seen.len(), 7);
    assert!(seen.is_sorted_by(|newer, older| newer.as_str() > older.as_str()), "newest first: {seen:?}");
}

#[tokio::test]
async fn every_route_is_documented() {
    let admin = AdminHarness::new().await;
    let api = answered(admin.http.get(format!("{}/openapi.json", admin.base)), 200).await;
    let mut lines = Vec::new();
    for (path, methods) in api["paths"].as_object().expect("paths") {
        for (method, route) in methods.as_object().expect("methods") {
            let parameters = route["parameters"].as_array().cloned().unwrap_or_default();
            let parameter = |parameter: &Value| {
                let [name, place] = ["name", "in"].map(|member| parameter[member].as_str().expect("text"));
                assert_eq!(place == "path", path.contains(&format!("{{{name}}}")), "{name} of {path}");
                format!(" {place}:{name}")
            };
            let parameters: String = parameters.iter().map(parameter).collect();
            lines.push(format!("{} {path}{parameters}", method.to_uppercase()));
        }
    }
    insta::with_settings!({ snapshot_path => "../snapshots", prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("routes", lines.join("\n"));
    });
}
