//! Shell: people who order, repeat themselves and change their minds.

use jiff::SignedDuration;
use order::policy::{Command, NewOrder};
use shared::contract::CancelReason;
use shared::engine::{Input, Outcome, RequestKey};

use crate::world::World;

/// Orders at most.
const ORDERS: usize = 8;
/// Patience of an order.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);

impl World {
    pub(crate) fn place_an_order(&mut self) {
        if self.orders.len() >= ORDERS {
            return;
        }
        let order = self.fresh_id();
        // Sometimes the client repeats itself, with the key it used before.
        let key = format!("key-{}", self.rng.u8(0..10));
        let repeated = self.keys.get(&key).copied();
        let lines = match self.rng.u8(0..4) {
            0 => vec![("tea".to_owned(), 1)],
            1 => vec![("tea".to_owned(), 2), ("cup".to_owned(), 1)],
            2 => vec![("cup".to_owned(), 1), ("tea".to_owned(), 1), ("cup".to_owned(), 1)],
            _ => vec![("pot".to_owned(), 1), ("cup".to_owned(), 1)],
        };
        let token =
            ["tok_ok", "tok_ok", "tok_ok", "tok_ok", "tok_declined", "tok_error_once"][self.rng.usize(0..6)];
        let new = NewOrder {
            order,
            customer: "ada".to_owned(),
            lines,
            token: token.to_owned(),
            patience: PATIENCE,
        };
        let request = RequestKey { key: key.clone(), fingerprint: "same".to_owned() };
        let input = Input::command(order, order, Command::Place(new), Some(request));
        let Ok(committed) = self.order.commit(vec![input], self.now) else {
            return;
        };
        match committed.outcomes.first() {
            Some(Outcome::Done(_)) => {
                self.orders.push(order);
                self.keys.insert(key, order);
                self.note(|| format!("order {order} placed, {token}"));
            }
            Some(Outcome::Replayed(reply)) if reply.order.as_ref().map(|order| order.id) == repeated => {}
            other => self.object(format!("an order was answered with {:?}", other.map(Outcome::name))),
        }
        // The answer may be lost with the process: the client would repeat it with the same key.
        if self.chance(self.weather.dies) {
            self.order.crash(self.now);
        }
    }

    pub(crate) fn cancel_an_order(&mut self) {
        if self.orders.is_empty() {
            return;
        }
        let order = self.orders[self.rng.usize(0..self.orders.len())];
        let id = self.fresh_id();
        let command = Command::Cancel { order, reason: CancelReason::CustomerRequest };
        let _ = self.order.commit(vec![Input::command(id, order, command, None)], self.now);
        self.note(|| format!("order {order} cancelled by its customer"));
    }
}
