//! Shell: each service is a user of the broker with only the permissions that it needs.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use async_nats::jetstream::{self, stream::Republish};
use async_nats::{Client, ConnectOptions};
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;
use uuid::Uuid;

use crate::system::{System, order_for, wait_until};

/// Time limit for answers of a local broker, which takes milliseconds.
const SOON: Duration = Duration::from_secs(5);

impl System {
    /// Returns the credentials file of a user.
    fn credentials(&self, user: &str) -> PathBuf {
        self.path().join(format!("credentials/{user}.nk"))
    }

    /// Connects as a user. Returns the connection and its errors.
    pub async fn broker_as(&self, user: &str) -> (Client, mpsc::UnboundedReceiver<String>) {
        let seed = std::fs::read_to_string(self.credentials(user)).expect("credentials");
        let (complaints, complained) = mpsc::unbounded_channel();
        let client = ConnectOptions::with_nkey(seed.trim().to_owned())
            .custom_inbox_prefix(format!("_INBOX.{user}"))
            .event_callback(move |event| {
                let _ = complaints.send(event.to_string());
                std::future::ready(())
            })
            .connect(self.broker_url())
            .await
            .expect("the broker knows the user");
        (client, complained)
    }
}

/// Forged message of a service with stolen credentials: the order is paid.
fn paid(order: &str) -> String {
    let payment = Uuid::from_u128(9);
    let data = json!({"payment": payment, "order": order, "amount": {"amount_minor": 1_000, "currency": "EUR"}, "bank_reference": "forged"});
    json!({
        "id": Uuid::from_u128(8), "type": "PaymentProcessed", "version": 1, "producer": "payment", "correlation_id": order,
        "causation_id": Uuid::from_u128(7), "occurred_at": "2026-01-01T00:00:00Z", "data": data,
    })
    .to_string()
}

/// Publishes or requests, and expects a permission violation.
async fn assert_denied(system: &System, user: &str, subject: &str, body: String) {
    let (client, mut complaints) = system.broker_as(user).await;
    client.publish(subject.to_owned(), body.into()).await.expect("the connection is there");
    client.flush().await.expect("the connection is there");
    let rejected = async {
        while let Some(complaint) = complaints.recv().await {
            let complaint = complaint.to_lowercase();
            if complaint.contains("permissions violation") && complaint.contains(&subject.to_lowercase()) {
                return;
            }
        }
    };
    timeout(SOON, rejected).await.unwrap_or_else(|_| panic!("{user} was not denied {subject}"));
}

#[tokio::test]
async fn broker_rejects_a_payment_forged_by_another_service() {
    let system = System::start(&["payment.faults.seed=1"]);
    system.list("pen", 10).await;
    system.sagactl(&["stop", "payment"]);
    let request = system.post("order", "/api/orders").json(&order_for(&[("pen", 1)], "tok_ok"));
    let placed: Value = request.send().await.expect("an answer").json().await.expect("JSON");
    let order = placed["id"].as_str().expect("an id");
    for user in ["order", "inventory", "admin", "sagactl"] {
        assert_denied(&system, user, "payment.processed", paid(order)).await;
    }
    let anyone = async_nats::connect(system.broker_url()).await;
    assert!(anyone.is_err(), "a connection without credentials is rejected");
    system.sagactl(&["start", "payment"]);
    wait_until("it is paid for", async || {
        system.get("order", &format!("/api/orders/{order}")).await["status"] == "CONFIRMED"
    })
    .await;
    // What every service needs works: all of this went through, and nothing was rejected.
    system.assert_reconciled().await;
    for service in ["order", "inventory", "payment", "admin"] {
        let log = std::fs::read_to_string(system.path().join(format!("log/{service}.log"))).expect("a log");
        assert!(!log.to_lowercase().contains("violation"), "{service}:\n{log}");
        assert!(!log.contains("lets anyone in"), "{service}");
    }
}

/// A user who may change a stream can let the broker copy messages to any subject. Consumers must recognise such copies.
#[tokio::test]
async fn payment_republished_from_another_stream_confirms_nothing() {
    let system = System::start(&[]);
    system.list("pen", 10).await;
    system.sagactl(&["stop", "payment"]);
    let request = system.post("order", "/api/orders").json(&order_for(&[("pen", 1)], "tok_ok"));
    let placed: Value = request.send().await.expect("an answer").json().await.expect("JSON");
    let order = placed["id"].as_str().expect("an id");
    let status = async || system.get("order", &format!("/api/orders/{order}")).await["status"].clone();

    let (client, _complaints) = system.broker_as("order").await;
    let broker = jetstream::new(client);
    let own = broker.get_stream("ORDER").await.expect("its own stream").cached_info().config.clone();
    let (source, destination) = ("order.cancelled".to_owned(), "payment.processed".to_owned());
    let mut copying = own.clone();
    copying.republish = Some(Republish { source, destination, headers_only: false });
    broker.update_stream(copying).await.expect("its own stream");
    let printed =
        broker.publish("order.cancelled", paid(order).into()).await.expect("the connection is there");
    printed.await.expect("order may publish that");

    wait_until("the copy is dead-lettered by the step that consumes payments", async || {
        let listed = system.get("admin", "/api/admin/dlq").await;
        let is_the_copy = |dead_letter: &Value| {
            dead_letter["step"] == "order-confirmation" && dead_letter["origin"] == "foreign"
        };
        listed["dead_letters"].as_array().is_some_and(|all| all.iter().any(is_the_copy))
    })
    .await;
    assert_ne!(status().await, "CONFIRMED");
    broker.update_stream(own).await.expect("its own stream");
    system.sagactl(&["start", "payment"]);
    wait_until("payment's own word confirms it", async || status().await == "CONFIRMED").await;
}

#[tokio::test]
async fn broker_users_cannot_change_or_read_what_belongs_to_others() {
    let system = System::start(&[]);
    let producers = ["order", "inventory", "payment", "admin"];
    let a_consumer = |stream: &str, name: &str| {
        json!({"stream_name": stream, "config": {"durable_name": name, "ack_policy": "explicit"}}).to_string()
    };
    for user in producers.into_iter().chain(["sagactl"]) {
        for other in producers.into_iter().filter(|other| *other != user) {
            let stream = other.to_uppercase();
            assert_denied(&system, user, &format!("{other}.created"), String::new()).await;
            assert_denied(&system, user, &format!("$JS.API.STREAM.UPDATE.{stream}"), "{}".to_owned()).await;
        }
        for stream in ["ORDER", "PAYMENT", "ADVISORY"] {
            for what in ["DELETE", "PURGE", "MSG.DELETE"] {
                assert_denied(&system, user, &format!("$JS.API.STREAM.{what}.{stream}"), String::new()).await;
            }
        }
        let durable = "$JS.API.CONSUMER.DURABLE.CREATE.PAYMENT.mine";
        assert_denied(&system, user, durable, a_consumer("PAYMENT", "mine")).await;
        // A service creates its own anew, if somebody has changed them.
        if user != "order" {
            let durable = "$JS.API.CONSUMER.DELETE.PAYMENT.order-confirmation";
            assert_denied(&system, user, durable, String::new()).await;
        }
        assert_denied(&system, user, "$JS.ACK.PAYMENT.admin-nobody.1.1.1.1.0", "+ACK".to_owned()).await;
    }
    for (user, stream, name) in [
        ("order", "ORDER", "order-spy"),
        ("order", "PAYMENT", "admin-saga-view-payment"),
        ("inventory", "PAYMENT", "inventory-spy"),
        ("payment", "ADMIN", "order-operations"),
    ] {
        let subject = format!("$JS.API.CONSUMER.CREATE.{stream}.{name}");
        assert_denied(&system, user, &subject, a_consumer(stream, name)).await;
        assert_denied(&system, user, &format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"), "1".to_owned())
            .await;
    }
    // The user of sagactl only reads: it creates, deletes and pulls from no consumer, and acknowledges nothing.
    for request in ["PAUSE", "UNPIN", "DELETE", "MSG.NEXT", "INFO"] {
        let subject = format!("$JS.API.CONSUMER.{request}.PAYMENT.order-confirmation");
        assert_denied(&system, "sagactl", &subject, "1".to_owned()).await;
    }
    for subject in [
        "$JS.API.CONSUMER.CREATE.PAYMENT",
        "$JS.API.CONSUMER.CREATE.PAYMENT.mine",
        "$JS.API.CONSUMER.CREATE.PAYMENT.mine.payment.processed",
        "$JS.API.CONSUMER.DURABLE.CREATE.PAYMENT.order-confirmation",
        "$JS.API.CONSUMER.NAMES.PAYMENT",
        "$JS.API.CONSUMER.LEADER.STEPDOWN.PAYMENT.order-confirmation",
        "$JS.API.STREAM.LEADER.STEPDOWN.PAYMENT",
        "$JS.API.STREAM.CREATE.MINE",
        "$JS.API.STREAM.MSG.GET.ADMIN",
        "$JS.API.STREAM.SNAPSHOT.PAYMENT",
        "$JS.ACK.PAYMENT.order-confirmation.1.1.1.1.0",
        "payment.processed",
        "_INBOX.payment.mine",
    ] {
        assert_denied(&system, "sagactl", subject, a_consumer("PAYMENT", "mine")).await;
    }
    for (user, received) in [
        ("order", "_INBOX.payment.>"),
        ("inventory", "_INBOX.>"),
        ("admin", ">"),
        ("payment", "order.>"),
        ("sagactl", "admin.>"),
        ("sagactl", ">"),
        ("sagactl", "$JS.API.>"),
    ] {
        let (client, mut complaints) = system.broker_as(user).await;
        let mut messages = client.subscribe(received).await.expect("the connection is there");
        client.flush().await.expect("the connection is there");
        let rejected = async {
            while let Some(complaint) = complaints.recv().await {
                if complaint.to_lowercase().contains("permissions violation for subscription") {
                    return;
                }
            }
        };
        timeout(SOON, rejected).await.unwrap_or_else(|_| panic!("{user} may subscribe to {received}"));
        assert!(timeout(Duration::from_millis(1), messages.next()).await.is_err(), "nothing comes");
    }
}

#[tokio::test]
async fn lost_broker_key_is_reported_with_the_commands_that_create_another() {
    let system = System::start(&[]);
    system.sagactl(&["stop", "payment"]);
    let key = system.credentials("payment");
    std::fs::remove_file(&key).expect("it was there");
    let rejected = system.try_sagactl(&["start", "payment"]);
    let errors = String::from_utf8_lossy(&rejected.stderr);
    assert_eq!(rejected.status.code(), Some(1), "{errors}");
    assert!(errors.contains(&key.display().to_string()) && errors.contains(" down and then "), "{errors}");
    system.sagactl(&["down"]);
    system.sagactl(&system.up(&["--detach"], &[]));
    assert_eq!(system.order(&[("ceramic-mug", 1)], "tok_ok").await["status"], "CONFIRMED");
}

#[tokio::test]
async fn service_with_unknown_key_reports_it_and_names_its_file() {
    let system = System::start(&[]);
    system.sagactl(&["stop", "payment"]);
    let key = system.credentials("order");
    let address = format!("127.0.0.1:{}", crate::system::free_ports());
    let readyz = format!("http://{address}/readyz");
    let stranger = system.path().join("stranger.nk");
    // A key that the broker does not know.
    let seed = "SUAFOG7UEY22277RGART7JZICIP5PC3DJTAF2W5YMJBMO7QETTZ4DW4HQE";
    std::fs::write(&stranger, seed).expect("a file");
    assert_ne!(std::fs::read_to_string(&key).expect("a key").trim(), seed);
    let log = system.path().join("stranger.log");
    let set = [
        format!("http.bind={address}"),
        format!("store.url=sqlite:{}", system.path().join("stranger.db").display()),
        format!("bus.url={}", system.broker_url()),
        format!("bus.credentials={}", stranger.display()),
        format!("log.file={}", log.display()),
    ];
    let arguments = set.iter().flat_map(|setting| ["--set", setting]);
    let service = std::process::Command::new(crate::system::programs().join("payment"))
        .args(arguments)
        .stderr(std::process::Stdio::null())
        .spawn()
        .map(crate::startup::Process)
        .expect("it starts");
    let mut reported = serde_json::Value::Null;
    crate::system::wait_until("the error is reported", async || {
        let Ok(answer) = system.http.get(&readyz).send().await else { return false };
        let body: serde_json::Value = answer.json().await.unwrap_or_default();
        reported = body["checks"]["broker"]["text"].clone();
        reported.as_str().is_some_and(|text| text.contains("authorization violation"))
    })
    .await;
    // It has tried more than once by then.
    crate::system::wait_until("it was rejected several times", async || {
        let refusals = std::fs::read_to_string(system.path().join("log/nats.log")).unwrap_or_default();
        refusals.matches("authentication error").count() >= 3
    })
    .await;
    drop(service);
    let reported = reported.as_str().unwrap_or_default();
    assert!(reported.contains("stranger.nk") && reported.contains("bus.credentials"), "{reported}");
    let log = std::fs::read_to_string(log).expect("a log");
    assert_eq!(log.to_lowercase().matches("authorization violation").count(), 1, "{log}");
    assert!(!log.contains(seed));
}

#[tokio::test]
async fn credentials_are_readable_by_their_owner_alone_and_in_no_log() {
    let system = System::start(&[]);
    system.list("pen", 10).await;
    system.order(&[("pen", 1)], "tok_ok").await;
    let mode = |path: &str| {
        let path = system.path().join(path);
        std::fs::metadata(&path).expect("it is there").permissions().mode() & 0o777
    };
    let users = ["admin", "order", "inventory", "payment", "sagactl"];
    for user in users {
        assert_eq!(mode(&format!("credentials/{user}.nk")), 0o600, "{user}");
    }
    assert_eq!((mode("credentials"), mode("nats/nats.conf")), (0o700, 0o600));
    let configured = std::fs::read_to_string(system.path().join("nats/nats.conf")).expect("it is there");
    for user in users {
        let seed = std::fs::read_to_string(system.credentials(user)).expect("credentials");
        assert!(!configured.contains(seed.trim()), "the broker has no secret");
        for log in ["nats", "order", "inventory", "payment", "admin"] {
            let log = std::fs::read_to_string(system.path().join(format!("log/{log}.log"))).expect("a log");
            assert!(!log.contains(seed.trim()), "{user}");
        }
    }

    // The broker alone, its configuration lost.
    system.sagactl(&["stop", "nats"]);
    std::fs::remove_file(system.path().join("nats/nats.conf")).expect("it was there");
    system.sagactl(&["start", "nats"]);
    assert_eq!(system.order(&[("pen", 1)], "tok_ok").await["status"], "CONFIRMED");
    system.assert_reconciled().await;
}
