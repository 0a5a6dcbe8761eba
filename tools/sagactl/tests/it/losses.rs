//! Shell: the drill of the operations page: one service is restored from an older copy, the loss is accepted, and the facts are
//! published again. Every customer's money is right afterwards, and what is left for a person is a finite list.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use contract::payment_id;
use jiff::Timestamp;
use reqwest::StatusCode;
use serde_json::Value;
use uuid::Uuid;

use crate::system::{System, order_for, text, wait_until};

/// The deadline of orders is long enough for a busy machine, and over when the copy is back. A fact of a lost order becomes a dead
/// letter soon.
const SETTINGS: [&str; 3] = ["order.service.deadline=8s", "order.retry.base=50ms", "order.retry.cap=200ms"];

/// Rules that only a person can repair: the order, or the bank's charge, no longer exists.
const LOST_ORDER: &str = "everything belongs to an order";
const LOST_CHARGE: [&str; 3] =
    ["bank ledger = payments", "one capture per confirmed order", "cancelled = money back"];

/// A system in which orders ended before and after the copy of one service's database was taken.
struct Drill {
    system: System,
    service: &'static str,
    copy: PathBuf,
    /// In flight when the copy was taken, and confirmed afterwards.
    in_flight: Value,
    /// Confirmed before the copy, and after it.
    confirmed: Vec<Value>,
    /// Confirmed after the copy, then cancelled by the customer and refunded.
    cancelled: Value,
    /// Declined after the copy.
    declined: Value,
}

impl Drill {
    /// Plays orders around a copy of the service's database.
    async fn play(service: &'static str) -> Self {
        let system = System::start(&SETTINGS);
        system.list("pen", 1_000).await;
        let before = system.order(&[("pen", 1)], "tok_ok").await;
        let in_flight = system.post("order", "/api/orders").json(&order_for(&[("pen", 2)], "tok_slow"));
        let in_flight: Value = in_flight.send().await.expect("an answer").json().await.expect("JSON");
        wait_until("the bank is being called", async || {
            let path = format!("/api/payments/{}", id(&in_flight));
            let payment = system.http.get(system.url("payment", &path)).send().await.expect("an answer");
            payment.json::<Value>().await.is_ok_and(|payment| payment["status"] == "CHARGING")
        })
        .await;
        let copy = system.path().join("copy.db");
        system.database(service).execute("VACUUM INTO ?1", [copy.to_str()]).expect("a copy");

        ended(&system, &in_flight, "CONFIRMED").await;
        let after = system.order(&[("pen", 3)], "tok_ok").await;
        let (cancelled, declined) =
            (system.order(&[("pen", 4)], "tok_ok").await, system.order(&[("pen", 5)], "tok_declined").await);
        cancel(&system, &cancelled).await;
        wait_until("the money is back", async || system.payment_status(&cancelled).await == "REFUNDED").await;
        system.assert_reconciled().await;
        Self { system, service, copy, in_flight, confirmed: vec![before, after], cancelled, declined }
    }

    /// Restores the copy after the deadlines of all orders, accepts the loss, and publishes the facts again.
    async fn restore(&self) {
        let Self { system, service, .. } = self;
        let last: Timestamp =
            self.declined["deadline"].as_str().expect("a deadline").parse().expect("a time");
        wait_until("the deadlines have passed", async || Timestamp::now() > last).await;
        system.try_sagactl(&["stop", service]);
        let folder = system.path().join(service);
        for suffix in ["-wal", "-shm"] {
            let _ = fs::remove_file(folder.join(format!("{service}.db{suffix}")));
        }
        fs::copy(&self.copy, folder.join(format!("{service}.db"))).expect("restored");
        self.accept_loss();
        system.sagactl(&["outbox", "republish", "--since", "1h", "--reason", "a drill"]);
    }

    /// Starts the service, and accepts each loss that it names: the lock file and the broker remember a position each.
    fn accept_loss(&self) {
        let start = |more: &[&str]| self.system.try_sagactl(&[&["start", self.service], more].concat());
        let mut started = start(&[]);
        assert!(!started.status.success(), "an older copy was accepted");
        for _ in 0..2 {
            let errors = text(&started.stderr);
            let Some((_, loss)) = errors.rsplit_once("store.accept_loss=") else { break };
            let loss: String = loss.chars().take_while(char::is_ascii_alphanumeric).collect();
            started = start(&["--accept-loss", &loss]);
        }
        assert!(started.status.success(), "{}", text(&started.stderr));
    }

    /// Reconciles fully until nothing moves. Accepts the counts of messages that the service has lost, as the page says.
    async fn reconciled(&self) -> Value {
        let until = Instant::now() + Duration::from_secs(120);
        loop {
            let report = self.system.get("admin", "/api/admin/reconciliation?full=true&wait=10").await;
            let missed = of_rule(&report, "published = handled + waiting + dead");
            let is_moving = report["in_flight"].as_array().is_none_or(|moving| !moving.is_empty());
            let is_open = is_moving || report["verdict"] == "IN_FLIGHT" || report["suspected_count"] != 0;
            if !is_open && missed.is_empty() {
                return report;
            }
            assert!(Instant::now() < until, "the ledgers do not come to rest: {report:#}");
            for step in missed {
                self.system.try_sagactl(&["reconcile", "--accept", &step, "--reason", "counts were lost"]);
            }
        }
    }

    async fn assert_balanced(&self) {
        let report = self.reconciled().await;
        assert_eq!(report["verdict"], "BALANCED", "{report:#}");
    }

    /// Asserts the state of every charge at the bank.
    async fn assert_money_is_right(&self) {
        for order in self.confirmed.iter().chain([&self.in_flight]) {
            assert_eq!(charge(&self.system, order).await, "CAPTURED", "{order:#}");
            ended(&self.system, order, "CONFIRMED").await;
        }
        assert_eq!(charge(&self.system, &self.cancelled).await, "REFUNDED");
        assert_eq!(charge(&self.system, &self.declined).await, "REFUSED");
    }

    /// A customer who cancels an order from before the loss gets the money back.
    async fn cancel_one_more(&self) {
        let (system, order) = (&self.system, &self.confirmed[1]);
        cancel(system, order).await;
        wait_until("the money is back", async || charge(system, order).await == "REFUNDED").await;
    }
}

/// Plays the drill of a service after whose loss nothing is left for a person.
async fn assert_loss_is_repaired(service: &'static str) -> Drill {
    let drill = Drill::play(service).await;
    drill.restore().await;
    drill.assert_balanced().await;
    drill.assert_money_is_right().await;
    drill.cancel_one_more().await;
    drill.assert_balanced().await;
    drill
}

/// Payment has forgotten captures and a refund. What it cannot know it asks of the bank.
#[tokio::test]
async fn money_is_right_after_payment_lost_data() {
    assert_loss_is_repaired("payment").await;
}

/// The customer cancels before payment hears of the order again.
#[tokio::test]
async fn order_cancelled_before_payment_hears_of_it_again_is_refunded() {
    let drill = Drill::play("payment").await;
    let (system, order) = (&drill.system, &drill.confirmed[1]);
    system.sagactl(&["stop", "payment"]);
    cancel(system, order).await;
    drill.restore().await;
    wait_until("the money is back", async || charge(system, order).await == "REFUNDED").await;
    drill.assert_balanced().await;
}

#[tokio::test]
async fn money_is_right_after_inventory_lost_data() {
    let drill = assert_loss_is_repaired("inventory").await;
    assert_eq!(drill.system.stock("pen").await, (1_000 - 3, 0, 3), "one and two pens are sold");
}

#[tokio::test]
async fn money_is_right_after_admin_lost_data() {
    assert_loss_is_repaired("admin").await;
}

/// The order in flight was confirmed before the loss. It is neither cancelled nor refunded, although its deadline has passed.
/// Orders that were placed after the copy are for a person: nobody else knows whether the customer still wants them.
#[tokio::test]
async fn money_is_right_after_order_lost_data() {
    let drill = Drill::play("order").await;
    drill.restore().await;
    let system = &drill.system;
    ended(system, &drill.in_flight, "CONFIRMED").await;
    let report = drill.reconciled().await;
    let lost = [&drill.confirmed[1], &drill.cancelled, &drill.declined];
    let expected: BTreeSet<String> = lost.into_iter().map(id).collect();
    assert_eq!(of_rule(&report, LOST_ORDER), expected, "{report:#}");
    assert_eq!(report["discrepancy_count"], 3, "{report:#}");
    assert_eq!(charge(system, &drill.confirmed[0]).await, "CAPTURED");
    assert_eq!(charge(system, &drill.in_flight).await, "CAPTURED");
    // A person gives the money of the lost order back.
    let refund = format!("/api/payments/{}/refund", id(&drill.confirmed[1]));
    let refunded = system.post("payment", &refund).send().await.expect("an answer");
    assert_eq!(refunded.status(), StatusCode::OK);
    wait_until("the money is back", async || charge(system, &drill.confirmed[1]).await == "REFUNDED").await;
}

/// The bank is the last to know: what it has lost is compared with its statement by a person.
#[tokio::test]
async fn lost_charges_of_the_bank_are_listed_and_not_repeated() {
    let drill = Drill::play("bank").await;
    drill.restore().await;
    let report = drill.reconciled().await;
    let lost: BTreeSet<String> =
        [&drill.in_flight, &drill.confirmed[1], &drill.cancelled].into_iter().map(id).collect();
    let listed: BTreeSet<String> = LOST_CHARGE.iter().flat_map(|rule| of_rule(&report, rule)).collect();
    assert_eq!(listed, lost, "{report:#}");
    assert_eq!(charge(&drill.system, &drill.confirmed[0]).await, "CAPTURED");
    assert_eq!(charge(&drill.system, &drill.confirmed[1]).await, "", "nobody was charged a second time");
    // The bank cannot refund what it has lost: a dead letter tells a person at once.
    cancel(&drill.system, &drill.confirmed[1]).await;
    wait_until("the refund is a dead letter", async || {
        let letters = drill.system.get("admin", "/api/admin/dlq").await;
        letters.to_string().contains(&id(&drill.confirmed[1]))
    })
    .await;
}

fn id(order: &Value) -> String {
    order["id"].as_str().expect("an id").to_owned()
}

async fn cancel(system: &System, order: &Value) {
    let cancelled = system.post("order", &format!("/api/orders/{}/cancel", id(order))).send().await;
    assert_eq!(cancelled.expect("an answer").status(), StatusCode::OK);
}

async fn ended(system: &System, order: &Value, status: &str) {
    wait_until("the order ends", async || {
        system.get("order", &format!("/api/orders/{}", id(order))).await["status"] == status
    })
    .await;
}

/// State of an order's charge at the bank; empty if it has none.
async fn charge(system: &System, order: &Value) -> String {
    let key = payment_id(id(order).parse::<Uuid>().expect("an id"));
    let answer = system.http.get(system.url("bank", &format!("/v1/charges/{key}"))).send().await;
    let charge: Value = answer.expect("an answer").json().await.expect("JSON");
    charge["status"].as_str().unwrap_or_default().to_owned()
}

/// Subjects of the listed discrepancies of a rule.
fn of_rule(report: &Value, rule: &str) -> BTreeSet<String> {
    let listed = report["discrepancies"].as_array().expect("a list");
    let found = listed.iter().filter(|found| found["rule"] == rule);
    found.map(|found| found["subject"].as_str().expect("a subject").to_owned()).collect()
}
