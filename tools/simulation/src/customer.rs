//! Shell: people who order, repeat themselves and change their minds.

use std::time::Duration;

use contract::order::CancelReason;
use order::policy::Command;
use saga_core::input::Input;

use crate::client::Client;
use crate::world::World;

const ORDERS: usize = 8;
const PATIENCE: Duration = Duration::from_secs(60);
/// A client repeats a key for so long.
const REPETITION: Duration = Duration::from_secs(30);

impl World {
    /// Somebody orders, or repeats an order under the key of an earlier one.
    pub fn place_an_order(&mut self) {
        let (sim, age) = (self.sim.clone(), self.sim.age());
        let mut customers = self.customers.lock();
        let (used, known) = (customers.keys(), customers.keys_since(age.saturating_sub(REPETITION)));
        let key = if sim.below(4) == 0 && !known.is_empty() {
            known[sim.below(known.len())].clone()
        } else if used < ORDERS {
            format!("key-{used}")
        } else {
            return;
        };
        customers.remember(&key, age);
        drop(customers);
        let tokens = ["tok_ok", "tok_ok", "tok_ok", "tok_ok", "tok_declined", "tok_error_once"];
        let client = Client {
            sim: sim.clone(),
            doors: self.order.doors.clone(),
            customers: self.customers.clone(),
            key,
            lines: lines(sim.below(4)),
            token: sim.one_of(&tokens),
            patience: PATIENCE,
        };
        self.people.spawn(client.order());
    }

    /// A customer wants an order cancelled.
    pub fn cancel_an_order(&mut self) {
        let (sim, doors) = (self.sim.clone(), self.order.doors.clone());
        let customers = self.customers.lock();
        let Some(order) = customers.orders.get(sim.below(customers.orders.len())).copied() else { return };
        self.people.spawn(async move {
            sim.note(|| format!("order {order} is to be cancelled by its customer"));
            let command = Command::Cancel { order, reason: CancelReason::CustomerRequest };
            doors.ask(&sim, Input::command(sim.fresh_id(), order, command, None)).await;
        });
    }
}

fn lines(kind: usize) -> Vec<(String, u32)> {
    let lines: &[(&str, u32)] = match kind {
        0 => &[("tea", 1)],
        1 => &[("tea", 2), ("cup", 1)],
        2 => &[("cup", 1), ("tea", 1), ("cup", 1)],
        _ => &[("pot", 1), ("cup", 1)],
    };
    lines.iter().map(|(sku, quantity)| ((*sku).to_owned(), *quantity)).collect()
}
