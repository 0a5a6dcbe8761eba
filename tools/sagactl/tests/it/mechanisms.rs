//! Shell: the mechanisms are at work in the programs as they run, not only where each is tested by itself.

use serde_json::Value;

use crate::operator::PATIENT;
use crate::system::{System, order_for, wait_until};

impl System {
    /// The sum of a program's counters of this name that have all of these labels.
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

/// The inbox: what the broker holds twice is known the second time, before anything is decided.
#[tokio::test]
async fn what_is_published_twice_is_handled_once_and_known_as_a_duplicate() {
    let system = System::start(&[]);
    system.list("pen", 10).await;
    system.sagactl(&["faults", "inject", "order", "publish_twice"]);
    assert_eq!(system.order(&[("pen", 2)], "tok_ok").await["status"], "CONFIRMED");
    wait_until("the second ones are known", async || {
        let labels = [r#"outcome="duplicate""#];
        system.metric("inventory", "saga_input_total", &labels).await >= 2.0
    })
    .await;
    // The cancellation of the order that tried the catalogue may have been one of them, and the sale yet to come.
    wait_until("the pens are sold once", async || system.stock("pen").await == (8, 0, 2)).await;
    system.assert_reconciled().await;
}

/// Readiness: a step that makes no progress is named, with what waits for it, until it goes on.
#[tokio::test]
async fn a_step_that_stands_still_ends_readiness_until_it_goes_on() {
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
    let told = "inventory-stock-reservation is stalled: 1 messages wait, none processed since ";
    wait_until("it is told", async || {
        let (status, steps) = readiness().await;
        status == 503 && steps.as_str().is_some_and(|steps| steps.starts_with(told))
    })
    .await;
    wait_until("it is ready again", async || readiness().await.0 == 200).await;
    system.assert_reconciled().await;
}

/// Readiness: what is behind an open breaker is late, and everything else is done.
#[tokio::test]
async fn an_open_breaker_degrades_its_service_and_ends_no_readiness() {
    let system = System::start(&[]);
    system.sagactl(&["breakers", "open", "payment/bank", "--reason", "maintenance"]);
    let readiness = async || {
        let answer = system.http.get(system.url("payment", "/readyz")).send().await.expect("an answer");
        (answer.status().as_u16(), answer.json::<Value>().await.expect("JSON"))
    };
    let (status, said) = readiness().await;
    assert_eq!((status, &said["degraded"]), (200, &Value::Bool(true)), "{said:#}");
    assert_eq!(said["checks"]["breakers"]["text"], "open: bank");
    system.sagactl(&["breakers", "reset", "payment/bank"]);
    assert_eq!(readiness().await.1["degraded"], false);
}

/// Retention: an idempotency key is kept for as long as it is set to be, and no longer.
#[tokio::test]
async fn finished_things_are_trimmed_while_the_service_runs() {
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

/// The metrics that alerts stand on: what waits for a human, and how long a call has been owed.
#[tokio::test]
async fn what_waits_for_a_human_or_for_the_bank_shows_in_the_metrics() {
    let system = System::start(&[PATIENT]);
    system.list("pen", 10).await;
    system.park(1).await;
    wait_until("the dead letter shows", async || {
        system.metric("payment", "dead_letter_unresolved", &[]).await >= 1.0
    })
    .await;
    system.sagactl(&["stop", "bank"]);
    system.place(1).await;
    wait_until("the call that is owed grows old", async || {
        system.metric("payment", "task_oldest_open_age_seconds", &[]).await > 1.0
    })
    .await;
    system.sagactl(&["start", "bank"]);
    wait_until("nothing is owed any more", async || {
        system.metric("payment", "task_oldest_open_age_seconds", &[]).await == 0.0
    })
    .await;
}
