//! Shell: foreign messages at the broker change neither sagas nor ledgers.

use async_nats::{Client, HeaderMap};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::system::{System, text, wait_until};

/// Publishes on a subject that the user may use, and waits for the acknowledgement.
async fn publish(client: &Client, subject: &str, payload: &str) {
    publish_with(client, subject, HeaderMap::new(), payload).await;
}

async fn publish_with(client: &Client, subject: &str, headers: HeaderMap, payload: &str) {
    let jetstream = async_nats::jetstream::new(client.clone());
    let (subject, payload) = (subject.to_owned(), payload.to_owned().into());
    let ack = jetstream.publish_with_headers(subject, headers, payload).await.expect("published");
    ack.await.expect("stored");
}

fn envelope(number: u128, message_type: &str, producer: &str, order: &str, data: &Value) -> String {
    json!({
        "id": Uuid::from_u128(number), "type": message_type, "version": 1, "producer": producer,
        "correlation_id": order, "causation_id": Uuid::nil(), "occurred_at": "2026-01-01T00:00:00Z", "data": data,
    })
    .to_string()
}

/// A user with the credentials of order cannot publish as another service.
#[tokio::test]
async fn foreign_messages_are_dead_lettered_and_change_no_saga() {
    let system = System::start(&[]);
    system.list("pen", 10).await;
    let confirmed = system.order(&[("pen", 1)], "tok_ok").await;
    let cancelled = system.order(&[("pen", 1)], "tok_declined").await;
    // Admin consumes facts with a delay.
    let status = async |order: &str| {
        let sagas = system.get("admin", "/api/admin/sagas").await["sagas"].clone();
        let sagas = sagas.as_array().expect("a list");
        sagas.iter().find(|saga| saga["id"] == order).map_or(Value::Null, |saga| saga["status"].clone())
    };
    let [confirmed, cancelled] = [&confirmed, &cancelled].map(|order| order["id"].as_str().expect("an id"));
    wait_until("both are over", async || {
        (status(confirmed).await, status(cancelled).await) == ("COMPLETED".into(), "COMPENSATED".into())
    })
    .await;
    let before = system.assert_reconciled().await;

    let (order, _) = system.broker_as("order").await;
    let about = |order: &str| json!({"order": order, "lines": [], "reason": "operator"});
    for (number, subject, message_type, producer, of) in [
        (1, "order.created", "PaymentProcessed", "payment", confirmed),
        (2, "order.cancelled", "StockReserved", "inventory", cancelled),
        (3, "order.cancelled", "OrderCancelled", "mallory", cancelled),
        (4, "order.created", "OrderCancelled", "order", confirmed),
        (5, "order.confirmed", "OrderEaten", "mallory", confirmed),
    ] {
        publish(&order, subject, &envelope(number, message_type, producer, of, &about(of))).await;
    }
    // Messages that claim to be copies of the broker, from there or from nowhere.
    for (number, claim) in [(6, "payment.processed"), (7, "")] {
        let mut copied = HeaderMap::new();
        copied.insert("Nats-Subject", claim);
        let forged = envelope(number, "PaymentProcessed", "payment", confirmed, &about(confirmed));
        publish_with(&order, "order.created", copied, &forged).await;
    }
    publish(&order, "order.cancelled", "no envelope at all").await;
    let large = "x".repeat(2 * 1024 * 1024);
    let rejected = order
        .publish("order.created", large.into())
        .await
        .and(order.flush().await.map_err(|_| async_nats::PublishErrorKind::Send.into()));
    assert!(rejected.is_err(), "what is too large gets nowhere");

    // Consumers of `order.created`, `order.confirmed` and `order.cancelled`: the view of each, inventory, payment.
    let dead_lettered =
        async || system.get("admin", "/api/admin/dlq?limit=100").await["dead_letters"].clone();
    wait_until("all are dead-lettered", async || {
        dead_lettered().await.as_array().is_some_and(|all| all.len() == 19)
    })
    .await;
    for dead_letter in dead_lettered().await.as_array().expect("a list") {
        assert_eq!(dead_letter["saga"], Value::Null, "{dead_letter}");
        let reason = dead_letter["reason"].as_str().expect("a reason");
        assert!(
            reason.contains("does not belong on order.")
                || (reason.contains("does not belong on \"") && reason.contains("\", copied to order."))
                || reason.starts_with("not an envelope"),
            "{reason}"
        );
    }
    assert_eq!(
        (status(confirmed).await, status(cancelled).await),
        ("COMPLETED".into(), "COMPENSATED".into())
    );
    let counted = system.metric("inventory", "message_foreign_total", &[]).await;
    assert!(counted >= 6.0, "{counted}");
    let after = system.assert_reconciled().await;
    assert_eq!(after["summary"]["orders"], before["summary"]["orders"]);
}

/// Card token in messages that cannot be read, and a part of it that no text may hold.
const CARD: &str = "tok_4711-0815";
const SECRET: &str = "4711-0815";

#[tokio::test]
async fn card_tokens_of_unreadable_messages_are_shown_and_logged_nowhere() {
    let services = ["order", "inventory", "payment", "admin"];
    let settings = services.map(|service| format!("{service}.log.filter=debug"));
    let system = System::start(&settings.each_ref().map(String::as_str));
    let order = Uuid::from_u128(0x5EED).to_string();
    let (sender, _) = system.broker_as("order").await;
    let data = json!({"order": order, "customer": "ada", "payment": {"token": CARD}});
    let of = |number: u128, data: &Value| envelope(number, "OrderCreated", "order", &order, data);
    let whole = of(1, &data);
    let cut = &whole[..whole.find(SECRET).expect("the token") + SECRET.len()];
    let later = of(2, &data).replace("\"version\":1", "\"version\":99");
    for unreadable in [
        cut.to_owned(),
        later,
        of(3, &data.to_string().into()),
        of(4, &json!({"order": order, "payment": CARD})),
        of(5, &json!([CARD])),
        envelope(6, CARD, "order", &order, &data),
        format!("ada\",\"payment\":{{\"token\":\"{SECRET}\"}}}}"),
    ] {
        publish(&sender, "order.created", &unreadable).await;
    }
    let mut packed = HeaderMap::new();
    packed.insert("Saga-Pack", "2");
    publish_with(&sender, "order.created", packed, &format!("{} -\n{whole}\n99 -\n{whole}", whole.len()))
        .await;

    let all = async || system.get("admin", "/api/admin/dlq?limit=100").await["dead_letters"].clone();
    // Of inventory and of the view of sagas.
    wait_until("all are dead-lettered", async || all().await.as_array().is_some_and(|all| all.len() == 16))
        .await;
    let mut shown = vec![
        ("dlq list".to_owned(), system.sagactl(&["dlq", "list"])),
        ("dlq groups".to_owned(), system.sagactl(&["dlq", "groups"])),
        ("status".to_owned(), text(&system.try_sagactl(&["status"]).stdout)),
        ("doctor".to_owned(), text(&system.try_sagactl(&["doctor"]).stdout)),
        ("audit".to_owned(), system.get("admin", "/api/admin/audit").await.to_string()),
    ];
    for dead_letter in all().await.as_array().expect("a list") {
        let id = dead_letter["id"].as_str().expect("an id");
        let detail = system.get("admin", &format!("/api/admin/dlq/{id}")).await;
        let payload = detail["payload_base64"].as_str().expect("a payload");
        let payload = String::from_utf8(BASE64.decode(payload).expect("base64")).expect("UTF-8");
        shown.push((format!("payload of {}", detail["reason"]), payload));
        shown.push((format!("detail of {id}"), detail.to_string()));
        shown.push((format!("dlq show {id}"), system.sagactl(&["dlq", "show", id])));
    }
    for service in services {
        let log = std::fs::read_to_string(system.path().join(format!("log/{service}.log"))).expect("a log");
        shown.push((format!("log of {service}"), log));
        let metrics = system.http.get(system.url(service, "/metrics")).send().await.expect("an answer");
        shown.push((format!("metrics of {service}"), metrics.text().await.expect("a text")));
    }
    for (place, text) in shown {
        assert!(!text.contains(SECRET), "{place}:\n{text}");
    }
}

#[tokio::test]
async fn fact_of_unknown_order_creates_no_saga() {
    let system = System::start(&["order.retry.max_attempts=1"]);
    system.list("pen", 10).await;
    let real = system.order(&[("pen", 1)], "tok_ok").await;
    system.assert_reconciled().await;
    let nowhere = Uuid::from_u128(0x5EED).to_string();
    let data = json!({
        "order": nowhere, "payment": contract::payment_id(Uuid::from_u128(0x5EED)), "bank_reference": "forged",
        "amount": {"amount_minor": 1_000, "currency": "EUR"},
    });
    let (payment, _) = system.broker_as("payment").await;
    publish(&payment, "payment.processed", &envelope(1, "PaymentProcessed", "payment", &nowhere, &data))
        .await;
    let path = format!("/api/admin/sagas/{nowhere}");
    wait_until("the view has consumed it", async || {
        let answer = system.http.get(system.url("admin", &path)).send().await.expect("an answer");
        answer.status() == 200
    })
    .await;
    let shown = system.get("admin", &path).await;
    assert_eq!((&shown["status"], &shown["remaining"]), (&"UNKNOWN".into(), &json!([])), "{shown}");
    let unknown = system.get("admin", "/api/admin/sagas?status=UNKNOWN").await;
    assert_eq!(unknown["sagas"][0]["id"], nowhere.as_str(), "{unknown}");

    let report = system.get("admin", "/api/admin/reconciliation?wait=10").await;
    let found = report["discrepancies"].as_array().expect("a list");
    let of = |rule: &str| found.iter().filter(|it| it["rule"] == rule).count();
    assert_eq!(of("every fact was published by a service"), 1, "{report:#}");
    assert_eq!(
        of("every fact was published by a service") + of("published = handled + waiting + dead"),
        found.len()
    );
    assert!(found.iter().all(|it| it["subject"] != real["id"]), "{report:#}");
    assert_eq!(system.order(&[("pen", 1)], "tok_ok").await["status"], "CONFIRMED");
}
