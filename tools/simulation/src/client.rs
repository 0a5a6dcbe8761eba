//! Shell: somebody who orders, and tries again with the same key until somebody answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use order::policy::{Command, NewOrder, OrderService};
use parking_lot::Mutex;
use saga_core::input::{CommandOutcome, Input, RequestKey};
use tokio::time::sleep;
use uuid::Uuid;

use crate::instance::Doors;
use crate::sim::Sim;
use crate::tampered::Tampered;

/// Tries of one client, with one key.
const TRIES: usize = 6;

#[derive(Debug, Default)]
pub struct Customers {
    /// Orders that somebody was told of.
    pub orders: Vec<Uuid>,
    /// Orders by the key that they were placed with, each with the age of the world when it was first used.
    keys: BTreeMap<String, (Option<Uuid>, Duration)>,
}

impl Customers {
    /// Somebody begins to use a key.
    pub fn remember(&mut self, key: &str, age: Duration) {
        self.keys.entry(key.to_owned()).or_insert((None, age));
    }

    /// The keys that were first used after this age of the world.
    #[must_use]
    pub fn keys_since(&self, age: Duration) -> Vec<String> {
        let young = self.keys.iter().filter(|(_, (_, used))| *used >= age);
        young.map(|(key, _)| key.clone()).collect()
    }

    /// How many keys were used.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.keys.len()
    }
}

pub struct Client {
    pub sim: Sim,
    pub doors: Doors<OrderService>,
    /// What customers know of their orders.
    pub customers: Arc<Mutex<Customers>>,
    /// The key of all tries.
    pub key: String,
    pub lines: Vec<(String, u32)>,
    pub token: &'static str,
    /// How long it may take.
    pub patience: Duration,
}

impl Client {
    /// Tries with the same key until somebody answers.
    pub async fn order(self) {
        for _ in 0..TRIES {
            let order = self.sim.fresh_id();
            let new = NewOrder {
                order,
                customer: format!("the customer of {}", self.key),
                lines: self.lines.clone(),
                token: self.token.to_owned(),
                patience: SignedDuration::try_from(self.patience).unwrap_or(SignedDuration::MAX),
            };
            let request = RequestKey { key: self.key.clone(), fingerprint: "same".to_owned() };
            let input = Input::command(order, order, Command::Place(new), Some(request));
            match self.doors.ask(&self.sim, input).await {
                Some(outcome) => return self.is_answered(&outcome),
                None => sleep(self.sim.up_to(1_000)).await,
            }
        }
    }

    fn is_answered(&self, outcome: &CommandOutcome<Tampered<OrderService>>) {
        let answer = match outcome {
            CommandOutcome::Done(reply) | CommandOutcome::Replayed(reply) => reply.order.id,
            CommandOutcome::Rejected(rejection) => {
                return self.sim.object(format!("an order was rejected: {rejection}"));
            }
            CommandOutcome::Faulted(reason) => {
                return self.sim.object(format!("an order broke something: {reason}"));
            }
            CommandOutcome::KeyReused => {
                return self.sim.object(format!("{} is said to be another request's", self.key));
            }
        };
        let mut customers = self.customers.lock();
        let known = customers.keys.get_mut(&self.key).and_then(|(order, _)| order.replace(answer));
        match known {
            None => customers.orders.push(answer),
            Some(known) if known == answer => {}
            Some(known) => self.sim.object(format!("{} placed {known}, and {answer} too", self.key)),
        }
        self.sim.note(|| format!("order {answer} placed with {}, {}", self.key, self.token));
    }
}
