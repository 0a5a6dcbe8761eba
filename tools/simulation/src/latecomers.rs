//! Shell: people who come when all is well again: they are served at once. What waits for a poll although somebody
//! should have been woken, shows here.

use std::sync::Arc;
use std::time::Duration;

use contract::order::CancelReason;
use inventory::domain::ProductCommand;
use inventory::policy::Command;
use order::domain::Order;
use tokio::time::sleep;

use crate::client::Client;
use crate::world::{World, rows};

/// By then whoever backs off after a fault has noticed that it is over.
const CALM: Duration = Duration::from_secs(40);
/// A saga that nothing disturbs takes no longer; the loops poll half as often.
const PROMPT: Duration = Duration::from_secs(14);
/// Patience of an order that is not paid.
const PATIENCE: Duration = Duration::from_secs(20);

impl World {
    /// Two more orders, and one that nobody can pay for: each ends when it should.
    pub async fn serve_latecomers(&mut self) {
        sleep(CALM).await;
        // What waits for an open breaker waits for a poll, and is not meant here; nor is one that what failed long ago opens
        // at the next call, however that ends.
        self.order.doors.reset_breakers(|_| true);
        self.inventory.doors.reset_breakers(|_| true);
        self.payment.doors.reset_breakers(|_| true);
        let id = self.sim.fresh_id();
        let restock = Command { sku: "tea".to_owned(), asked: ProductCommand::Restock(9) };
        self.inventory.ask(&self.sim, (id, id), restock, None).await;
        let before = self.ended_orders();
        for token in ["tok_ok", "tok_error_once"] {
            self.come_late(token, PROMPT);
        }
        sleep(PROMPT).await;
        if self.ended_orders() < before + 2 {
            let unrest = self.unrest();
            self.sim.object(format!("law 3: an order that nothing disturbs waits for a poll: {unrest:?}"));
        }
        self.come_to_rest().await;
        self.survive_a_crash().await;
        self.sim.set_bank_away(true);
        let before = self.timed_out_orders();
        self.come_late("tok_ok", PATIENCE);
        // Clocks may differ by this much.
        sleep(
            PATIENCE + 2 * Duration::from_millis(self.sim.weather().skew_ms as u64) + Duration::from_secs(3),
        )
        .await;
        if self.timed_out_orders() == before {
            self.sim.object(format!("law 3: a deadline passed, and nothing happened: {:?}", self.unrest()));
        }
        self.sim.set_bank_away(false);
        self.come_to_rest().await;
    }

    /// Payment dies with a call to the bank under way; its next life goes on at once, and waits for no lease.
    async fn survive_a_crash(&mut self) {
        let [payment] = self.payment.processes.as_slice() else { return };
        let (payment, before) = (payment.clone(), self.ended_orders());
        self.come_late("tok_ok", PATIENCE - Duration::from_secs(1));
        let asked_at = self.sim.age();
        while self.payment.doors.calls() == 0 && self.sim.age() < asked_at + PROMPT {
            sleep(Duration::from_millis(1)).await;
        }
        payment.kill();
        sleep(PROMPT).await;
        if self.ended_orders() == before {
            self.sim.object(format!("law 3: a crash cost more than a restart: {:?}", self.unrest()));
        }
        self.come_to_rest().await;
    }

    fn come_late(&mut self, token: &'static str, patience: Duration) {
        let key = format!("late-{token}-{}", patience.as_secs());
        self.customers.lock().remember(&key, self.sim.age());
        let client = Client {
            sim: self.sim.clone(),
            doors: self.order.doors.clone(),
            customers: Arc::clone(&self.customers),
            key,
            lines: vec![("tea".to_owned(), 1)],
            token,
            patience,
        };
        self.people.spawn(client.order());
    }

    fn ended_orders(&self) -> usize {
        let orders = rows::<Order>(self.order.store()).into_iter();
        orders.filter(|(_, order)| matches!(order, Order::Confirmed(_))).count()
    }

    fn timed_out_orders(&self) -> usize {
        let is_late = |order: &Order| order.cancelled_because() == Some(CancelReason::TimedOut);
        rows::<Order>(self.order.store()).iter().filter(|(_, order)| is_late(order)).count()
    }
}
