//! Shell: customers who order while everything breaks: each repeats itself under its key until it is answered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use uuid::Uuid;

use super::effects::Span;
use super::verdict::Orders;
use devstack::{Member, System, catalogue};

/// Customers at the same time; while all of them wait, nobody else comes.
const AT_ONCE: usize = 500;
/// Whoever gets no answer within this asks again.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Pause before a customer asks again.
const AGAIN_AFTER: Duration = Duration::from_millis(300);
/// Whoever is not answered for so long after the run has ended goes away, and complains.
const PATIENCE: Duration = Duration::from_mins(1);
/// How long an answer is held for an order to end, and how long one is waited for.
const WAIT: &str = "wait=2";
const WAIT_TIMEOUT: Duration = Duration::from_secs(4);
/// Cards, most of which work.
const TOKENS: [&str; 10] = [
    "tok_ok",
    "tok_ok",
    "tok_ok",
    "tok_ok",
    "tok_ok",
    "tok_ok",
    "tok_ok",
    "tok_declined",
    "tok_error_once",
    "tok_lost_answer",
];

/// All customers of a run.
pub struct Customers {
    client: Client,
    url: String,
    seed: u64,
    rate: u32,
    length: Duration,
    skus: Vec<String>,
}

impl Customers {
    /// Customers of this system, so many per second.
    pub fn of(system: &System, seed: u64, rate: u32, length: Duration) -> anyhow::Result<Self> {
        let client = Client::builder().no_proxy().timeout(TIMEOUT).build()?;
        let url = format!("{}/api/orders", system.url_of(Member::ORDER));
        let skus = catalogue::shop().into_iter().map(|product| product.sku).collect();
        Ok(Self { client, url, seed, rate, length, skus })
    }

    /// Lets them order for the length of the run, and waits until all have been answered.
    pub async fn order(self, began: Instant) -> Orders {
        let (until, customers) = (began + self.length, Arc::new(self));
        let places = Arc::new(Semaphore::new(AT_ONCE));
        let mut tick = interval(Duration::from_secs(1) / customers.rate);
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let (mut under_way, mut orders, mut number) = (JoinSet::new(), Orders::default(), 0);
        while Instant::now() < until {
            tick.tick().await;
            let Ok(place) = places.clone().try_acquire_owned() else { continue };
            let customers = customers.clone();
            under_way.spawn(async move {
                let placed = began.elapsed();
                let ordered = customers.one(number, until + PATIENCE).await;
                // Whoever has an order is no longer in the way of the next.
                drop(place);
                let id = ordered?;
                let is_known = customers.is_over(id, until + PATIENCE).await;
                Ok((id, is_known.then(|| Span { placed, ended: began.elapsed() })))
            });
            number += 1;
            while let Some(ended) = under_way.try_join_next() {
                orders.add(ended.unwrap_or_else(|panic| Err(panic.to_string())));
            }
        }
        while let Some(ended) = under_way.join_next().await {
            orders.add(ended.unwrap_or_else(|panic| Err(panic.to_string())));
        }
        orders
    }

    async fn one(&self, number: u64, until: Instant) -> Result<Uuid, String> {
        let mut dice = fastrand::Rng::with_seed(self.seed.wrapping_mul(1_000_003).wrapping_add(number));
        let lines: Vec<Value> = (0..dice.usize(1..=3))
            .map(|_| json!({"sku": self.skus[dice.usize(..self.skus.len())], "quantity": dice.u32(1..=2)}))
            .collect();
        let token = TOKENS[dice.usize(..TOKENS.len())];
        let body =
            json!({"customer": format!("customer-{number}"), "lines": lines, "payment": {"token": token}});
        let place = || {
            let key = format!("chaos-{}-{number}", self.seed);
            self.client.post(&self.url).header("Idempotency-Key", key).json(&body)
        };
        let id =
            taken(&answered(&place, until).await.map_err(|why| format!("order {number}: {why}"))?, number)?;
        // Some never saw the answer, and some change their mind.
        match dice.u32(..20) {
            0 => {
                let again = answered(&place, until).await.map_err(|why| format!("order {number}: {why}"))?;
                if taken(&again, number)? != id {
                    return Err(format!("order {number} was placed twice under one key"));
                }
            }
            1 => {
                tokio::time::sleep(Duration::from_millis(dice.u64(..3_000))).await;
                let cancel = || self.client.post(format!("{}/{id}/cancel", self.url));
                let (status, _) =
                    answered(&cancel, until).await.map_err(|why| format!("cancelling {id}: {why}"))?;
                if !status.is_success() && status != StatusCode::CONFLICT {
                    return Err(format!("cancelling {id} was answered {status}"));
                }
            }
            _ => {}
        }
        Ok(id)
    }

    /// Waits until an order has ended; whether its end became known. One that never ends is found by others.
    async fn is_over(&self, id: Uuid, until: Instant) -> bool {
        let ask = || {
            let asked = self.client.get(format!("{}/{id}", self.url)).header("Prefer", WAIT);
            asked.timeout(WAIT_TIMEOUT)
        };
        while Instant::now() < until {
            let Ok((_, order)) = answered(&ask, until).await else { return false };
            if order["status"] == "CONFIRMED" || order["status"] == "CANCELLED" {
                return true;
            }
        }
        false
    }
}

type Answer = (StatusCode, Value);

/// Asks until there is an answer that is one: nobody there, no answer in time and 5xx are asked again.
async fn answered(request: &impl Fn() -> RequestBuilder, until: Instant) -> Result<Answer, String> {
    loop {
        let last = match request().send().await {
            Ok(response) if response.status().is_server_error() => response.status().to_string(),
            Ok(response) => {
                let status = response.status();
                match response.json().await {
                    Ok(body) => return Ok((status, body)),
                    Err(_) => "half an answer".to_owned(),
                }
            }
            Err(error) => error.without_url().to_string(),
        };
        if Instant::now() >= until {
            return Err(format!("no answer; the last try: {last}"));
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}

fn taken((status, body): &Answer, number: u64) -> Result<Uuid, String> {
    let id = body.get("id").and_then(Value::as_str).and_then(|id| id.parse().ok());
    id.filter(|_| status.is_success()).ok_or_else(|| format!("order {number} was answered {status}: {body}"))
}
