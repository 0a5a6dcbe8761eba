//! Shell: customers who place, repeat and cancel orders.

use std::time::Duration;

use contract::order::CancelReason;
use order::service::Command;
use saga_core::input::Input;

use crate::client::Client;
use crate::world::World;

const ORDERS: usize = 8;
const ORDER_TIMEOUT: Duration = Duration::from_secs(60);
/// Time during which clients repeat a key.
const KEY_LIFETIME: Duration = Duration::from_secs(30);

impl World {
    /// Places an order, or repeats one under its key.
    pub fn place_order(&mut self) {
        let (sim, age) = (self.sim.clone(), self.sim.age());
        let mut customers = self.customers.lock();
        let (used, recent) = (customers.keys(), customers.keys_since(age.saturating_sub(KEY_LIFETIME)));
        let key = if sim.below(4) == 0 && !recent.is_empty() {
            recent[sim.below(recent.len())].clone()
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
            live: self.order.live.clone(),
            customers: self.customers.clone(),
            key,
            lines: lines(sim.below(4)),
            token: sim.one_of(&tokens),
            timeout: ORDER_TIMEOUT,
        };
        self.clients.spawn(client.order());
    }

    pub fn cancel_order(&mut self) {
        let (sim, live) = (self.sim.clone(), self.order.live.clone());
        let customers = self.customers.lock();
        let Some(order) = customers.orders.get(sim.below(customers.orders.len())).copied() else { return };
        self.clients.spawn(async move {
            sim.note(|| format!("customer cancels order {order}"));
            let command = Command::Cancel { order, reason: CancelReason::CustomerRequest };
            live.ask(&sim, Input::command(sim.fresh_id(), order, command, None)).await;
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
