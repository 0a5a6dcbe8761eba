//! Shell: a client that places an order and repeats the request with the same key until it is answered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use order::service::{Command, NewOrder, OrderService};
use parking_lot::Mutex;
use saga_core::input::{CommandOutcome, Input, RequestKey};
use tokio::time::sleep;
use uuid::Uuid;

use crate::instance::LiveInstances;
use crate::instrumented::Instrumented;
use crate::sim::Sim;

/// Requests of one client with one key.
const ATTEMPTS: usize = 6;

#[derive(Debug, Default)]
pub struct Customers {
    /// Ids of orders that a client received.
    pub orders: Vec<Uuid>,
    /// Order of each key, and the age of the world when it was first used.
    keys: BTreeMap<String, (Option<Uuid>, Duration)>,
}

impl Customers {
    /// Records the first use of a key.
    pub fn remember(&mut self, key: &str, age: Duration) {
        self.keys.entry(key.to_owned()).or_insert((None, age));
    }

    /// Keys first used after this age of the world.
    pub fn keys_since(&self, age: Duration) -> Vec<String> {
        let young = self.keys.iter().filter(|(_, (_, used))| *used >= age);
        young.map(|(key, _)| key.clone()).collect()
    }

    pub fn keys(&self) -> usize {
        self.keys.len()
    }
}

pub struct Client {
    pub sim: Sim,
    pub live: LiveInstances<OrderService>,
    /// Orders known to all clients.
    pub customers: Arc<Mutex<Customers>>,
    /// Idempotency key of all attempts.
    pub key: String,
    pub lines: Vec<(String, u32)>,
    pub token: &'static str,
    pub timeout: Duration,
}

impl Client {
    /// Repeats the request until it is answered.
    pub async fn order(self) {
        for _ in 0..ATTEMPTS {
            let order = self.sim.fresh_id();
            let new = NewOrder {
                order,
                customer: format!("the customer of {}", self.key),
                lines: self.lines.clone(),
                token: self.token.to_owned(),
                timeout: SignedDuration::try_from(self.timeout).unwrap_or(SignedDuration::MAX),
            };
            let request = RequestKey { key: self.key.clone(), fingerprint: "same".to_owned() };
            let input = Input::command(order, order, Command::Place(new), Some(request));
            match self.live.ask(&self.sim, input).await {
                Some(outcome) => return self.record_answer(&outcome),
                None => sleep(self.sim.up_to(1_000)).await,
            }
        }
    }

    fn record_answer(&self, outcome: &CommandOutcome<Instrumented<OrderService>>) {
        let answer = match outcome {
            CommandOutcome::Done(reply) | CommandOutcome::Replayed(reply) => reply.order.id,
            CommandOutcome::Rejected(rejection) => {
                return self.sim.violation(format!("a valid order was rejected: {rejection}"));
            }
            CommandOutcome::Faulted(reason) => {
                return self.sim.violation(format!("an order caused a fault: {reason}"));
            }
            CommandOutcome::KeyReused => {
                return self.sim.violation(format!("key {} was taken for that of another request", self.key));
            }
        };
        let mut customers = self.customers.lock();
        let earlier = customers.keys.get_mut(&self.key).and_then(|(order, _)| order.replace(answer));
        match earlier {
            None => customers.orders.push(answer),
            Some(earlier) if earlier == answer => {}
            Some(earlier) => {
                self.sim.violation(format!("key {} placed two orders, {earlier} and {answer}", self.key))
            }
        }
        self.sim.note(|| format!("order {answer} placed with {}, {}", self.key, self.token));
    }
}
