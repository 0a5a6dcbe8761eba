//! Shell: inbox, readiness, retention and metrics in running services.

use serde_json::Value;

use crate::operator::LONG_DEADLINE;
use crate::system::{System, order_for, wait_until};

impl System {
    /// Sums the counters of a program with this name and these labels.
    pub async fn metric(&self, program: &str, name: &str, labels: &[&str]) -> f64 {
        let text = self.http.get(self.url(program, "/metrics")).send().await.expect("an answer");
        let text = text.text().await.expect("text");
        let matching = text.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']))
                && labels.iter().all(|label| line.contains(label))
        });
        matching.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }
}

#[tokio::test]
async fn message_published_twice_is_processed_once_and_counted_as_duplicate() {
    let system = System::start(&[]);
    system.list("pen", 10).await;
    system.sagactl(&["faults", "inject", "order", "publish_twice"]);
    assert_eq!(system.order(&[("pen", 2)], "tok_ok").await["status"], "CONFIRMED");
    wait_until("the duplicates are counted", async || {
        let labels = [r#"outcome="duplicate""#];
        system.metric("inventory", "saga_input_total", &labels).await >= 2.0
    })
    .await;
    // The cancellation of the order that tried the catalogue may have been one of them, and the sale yet to come.
    wait_until("the pens are sold once", async || system.stock("pen").await == (8, 0, 2)).await;
    system.assert_reconciled().await;
}

#[tokio::test]
async fn consumer_stall_ends_readiness_until_it_passes() {
    let system = System::start(&["inventory.readiness.max_consumer_stall=500ms"]);
    system.list("pen", 10).await;
    let readiness = async || {
        let answer = system.http.get(system.url("inventory", "/readyz")).send().await.expect("an answer");
        (
            answer.status().as_u16(),
            answer.json::<Value>().await.expect("JSON")["checks"]["consumer_stall"]["text"].clone(),
        )
    };
    wait_until("it is ready", async || readiness().await == (200, Value::from("ok"))).await;
    let slow = ["--step", "inventory-stock-reservation", "--delay", "4s"];
    system.sagactl(&[&["faults", "inject", "inventory", "delay"], &slow[..]].concat());
    system.place(1).await;
    let reported = "inventory-stock-reservation is stalled: 1 messages wait, none processed since ";
    wait_until("the stall is reported", async || {
        let (status, steps) = readiness().await;
        status == 503 && steps.as_str().is_some_and(|steps| steps.starts_with(reported))
    })
    .await;
    wait_until("it is ready again", async || readiness().await.0 == 200).await;
    system.assert_reconciled().await;
}

#[tokio::test]
async fn open_breaker_degrades_but_does_not_end_readiness() {
    let system = System::start(&[]);
    system.sagactl(&["breakers", "open", "payment/bank", "--reason", "maintenance"]);
    let readiness = async || {
        let answer = system.http.get(system.url("payment", "/readyz")).send().await.expect("an answer");
        (answer.status().as_u16(), answer.json::<Value>().await.expect("JSON"))
    };
    let (status, printed) = readiness().await;
    assert_eq!((status, &printed["degraded"]), (200, &Value::Bool(true)), "{printed:#}");
    assert_eq!(printed["checks"]["breakers"]["text"], "open: bank");
    system.sagactl(&["breakers", "reset", "payment/bank"]);
    assert_eq!(readiness().await.1["degraded"], false);
}

#[tokio::test]
async fn finished_rows_are_purged_while_running() {
    let system = System::start(&["order.retention.every=100ms", "order.retention.idempotency_key=1s"]);
    system.list("pen", 100).await;
    let place = async || {
        let request = system.post("order", "/api/orders").header("Idempotency-Key", "one");
        let answer = request.json(&order_for(&[("pen", 1)], "tok_ok")).send().await.expect("an answer");
        answer.json::<Value>().await.expect("JSON")["id"].clone()
    };
    let first = place().await;
    wait_until("the key is forgotten", async || place().await != first).await;
    system.assert_reconciled().await;
}

#[tokio::test]
async fn dead_letters_and_open_tasks_are_in_metrics() {
    let system = System::start(&[LONG_DEADLINE]);
    system.list("pen", 10).await;
    system.dead_letter_orders(1).await;
    wait_until("the dead letter shows", async || {
        system.metric("payment", "dead_letter_unresolved", &[]).await >= 1.0
    })
    .await;
    system.sagactl(&["stop", "bank"]);
    system.place(1).await;
    wait_until("the open task grows old", async || {
        system.metric("payment", "task_oldest_open_age_seconds", &[]).await > 1.0
    })
    .await;
    system.sagactl(&["start", "bank"]);
    wait_until("no task is open", async || {
        system.metric("payment", "task_oldest_open_age_seconds", &[]).await == 0.0
    })
    .await;
}
