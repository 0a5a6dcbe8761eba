//! Shell: customers that order during the disruptions and retry with an idempotency key until they are answered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::http::client_builder;
use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use uuid::Uuid;

use super::effects::Span;
use super::verdict::Orders;
use devstack::{Component, System, catalogue};

/// Maximum number of customers without an answer; no more orders are placed meanwhile.
const MAX_WAITING: usize = 500;
/// Time-out of a request, which is retried then.
const TIMEOUT: Duration = Duration::from_secs(5);
const RETRY_AFTER: Duration = Duration::from_millis(300);
/// Time after the run in which every customer must be answered.
const GRACE_PERIOD: Duration = Duration::from_mins(1);
/// `Prefer` header of a request that waits for the end of an order, and its time-out.
const WAIT: &str = "wait=2";
const WAIT_TIMEOUT: Duration = Duration::from_secs(4);
/// Payment tokens, most of which succeed.
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

pub struct Customers {
    client: Client,
    url: String,
    seed: u64,
    rate: u32,
    length: Duration,
    skus: Vec<String>,
}

impl Customers {
    pub fn of(system: &System, seed: u64, rate: u32, length: Duration) -> anyhow::Result<Self> {
        let client = client_builder().timeout(TIMEOUT).build()?;
        let url = format!("{}/api/orders", system.url_of(Component::ORDER));
        let skus = catalogue::shop().into_iter().map(|product| product.sku).collect();
        Ok(Self { client, url, seed, rate, length, skus })
    }

    /// Places orders for the length of the run, and waits until all are answered.
    pub async fn order(self, began: Instant) -> Orders {
        let (until, customers) = (began + self.length, Arc::new(self));
        let permits = Arc::new(Semaphore::new(MAX_WAITING));
        let mut tick = interval(Duration::from_secs(1) / customers.rate);
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let (mut in_flight, mut orders, mut number) = (JoinSet::new(), Orders::default(), 0);
        while Instant::now() < until {
            tick.tick().await;
            let Ok(permit) = permits.clone().try_acquire_owned() else { continue };
            let customers = customers.clone();
            in_flight.spawn(async move {
                let placed = began.elapsed();
                let placed_order = customers.place(number, until + GRACE_PERIOD).await;
                // Only customers without an answer count against the limit.
                drop(permit);
                let id = placed_order?;
                let has_ended = customers.wait_for_end(id, until + GRACE_PERIOD).await;
                Ok((id, has_ended.then(|| Span { placed, ended: began.elapsed() })))
            });
            number += 1;
            while let Some(ended) = in_flight.try_join_next() {
                orders.add(ended.unwrap_or_else(|panic| Err(panic.to_string())));
            }
        }
        while let Some(ended) = in_flight.join_next().await {
            orders.add(ended.unwrap_or_else(|panic| Err(panic.to_string())));
        }
        orders
    }

    async fn place(&self, number: u64, until: Instant) -> Result<Uuid, String> {
        let mut rng = fastrand::Rng::with_seed(self.seed.wrapping_mul(1_000_003).wrapping_add(number));
        let lines: Vec<Value> = (0..rng.usize(1..=3))
            .map(|_| json!({"sku": self.skus[rng.usize(..self.skus.len())], "quantity": rng.u32(1..=2)}))
            .collect();
        let token = TOKENS[rng.usize(..TOKENS.len())];
        let body =
            json!({"customer": format!("customer-{number}"), "lines": lines, "payment": {"token": token}});
        let place = || {
            let key = format!("chaos-{}-{number}", self.seed);
            self.client.post(&self.url).header("Idempotency-Key", key).json(&body)
        };
        let answer = answered(&place, until).await.map_err(|why| format!("order {number}: {why}"))?;
        let id = accepted_id(&answer, number)?;
        // Some repeat the request as if the answer was lost, some cancel.
        match rng.u32(..20) {
            0 => {
                let again = answered(&place, until).await.map_err(|why| format!("order {number}: {why}"))?;
                if accepted_id(&again, number)? != id {
                    return Err(format!("order {number} was placed twice with one idempotency key"));
                }
            }
            1 => {
                tokio::time::sleep(Duration::from_millis(rng.u64(..3_000))).await;
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

    /// Waits until an order has ended. Returns `false` if that is unknown; orders that never end are found afterwards.
    async fn wait_for_end(&self, id: Uuid, until: Instant) -> bool {
        let show = || {
            let request = self.client.get(format!("{}/{id}", self.url)).header("Prefer", WAIT);
            request.timeout(WAIT_TIMEOUT)
        };
        while Instant::now() < until {
            let Ok((_, order)) = answered(&show, until).await else { return false };
            if order["status"] == "CONFIRMED" || order["status"] == "CANCELLED" {
                return true;
            }
        }
        false
    }
}

type Answer = (StatusCode, Value);

/// Retries until there is an answer: connection errors, time-outs and 5xx are retried.
async fn answered(request: &impl Fn() -> RequestBuilder, until: Instant) -> Result<Answer, String> {
    loop {
        let last = match request().send().await {
            Ok(response) if response.status().is_server_error() => response.status().to_string(),
            Ok(response) => {
                let status = response.status();
                match response.json().await {
                    Ok(body) => return Ok((status, body)),
                    Err(_) => "incomplete answer".to_owned(),
                }
            }
            Err(error) => error.without_url().to_string(),
        };
        if Instant::now() >= until {
            return Err(format!("no answer; last attempt: {last}"));
        }
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

fn accepted_id((status, body): &Answer, number: u64) -> Result<Uuid, String> {
    let id = body.get("id").and_then(Value::as_str).and_then(|id| id.parse().ok());
    id.filter(|_| status.is_success()).ok_or_else(|| format!("order {number} was answered {status}: {body}"))
}
