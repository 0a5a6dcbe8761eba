//! Shell: orders after the faults have ended must be processed at once. They reveal a lost wake-up that only
//! a poll makes good.

use std::sync::Arc;
use std::time::Duration;

use contract::order::CancelReason;
use inventory::domain::ProductCommand;
use inventory::service::Command;
use order::domain::Order;
use saga_engine::store::roles::Monitoring as _;
use tokio::time::sleep;

use crate::client::Client;
use crate::coverage::CoveragePoint;
use crate::deployment::AnyDeployment as _;
use crate::law::Law;
use crate::process::Process;
use crate::sim::ready;
use crate::world::{World, rows};

/// Time after which no loop backs off any more.
const BACKOFF_TIME: Duration = Duration::from_secs(40);
/// Maximum duration of an undisturbed saga; the loops poll half as often.
const MAX_SAGA_TIME: Duration = Duration::from_secs(14);
/// Maximum time until another replica leads in place of one without a broker: the failed rounds, and a poll.
const HANDOVER_TIME: Duration = Duration::from_secs(12);
/// Timeout of an order that is not paid.
const ORDER_TIMEOUT: Duration = Duration::from_secs(20);

impl World {
    /// Places two orders, and one that nobody can pay for: each ends in time.
    pub async fn check_recovery(&mut self) {
        sleep(BACKOFF_TIME).await;
        // Open breakers delay work until a poll, which is not tested here. A half-open one might open at the
        // next failure.
        for service in self.services() {
            service.reset_breakers(|_| true);
        }
        let id = self.sim.fresh_id();
        let restock = Command { sku: "tea".to_owned(), change: ProductCommand::Restock(9), operator: None };
        self.inventory.ask(&self.sim, (id, id), restock, None).await;
        let before = self.ended_orders();
        for token in ["tok_ok", "tok_error_once"] {
            self.place_recovery_order(token, MAX_SAGA_TIME);
        }
        sleep(MAX_SAGA_TIME).await;
        if self.ended_orders() < before + 2 {
            self.report_delay("an undisturbed order waits for a poll");
        }
        self.wait_until_idle().await;
        self.check_crash_recovery().await;
        self.check_cut_off_replica().await;
        self.sim.set_bank_away(true);
        let before = self.timed_out_orders();
        self.place_recovery_order("tok_ok", ORDER_TIMEOUT);
        let clock_difference = 2 * Duration::from_millis(self.sim.profile().skew_ms as u64);
        sleep(ORDER_TIMEOUT + clock_difference + Duration::from_secs(3)).await;
        if self.timed_out_orders() == before {
            self.report_delay("a passed deadline had no effect");
        }
        self.sim.set_bank_away(false);
        self.wait_until_idle().await;
    }

    /// Kills payment during a call to the bank. Its next start must continue at once, without waiting for a
    /// lease.
    async fn check_crash_recovery(&mut self) {
        let [payment] = self.payment.processes.as_slice() else { return };
        let (payment, before) = (payment.clone(), self.ended_orders());
        self.place_recovery_order("tok_ok", ORDER_TIMEOUT - Duration::from_secs(1));
        let placed_at = self.sim.age();
        while self.payment.open_calls() == 0 && self.sim.age() < placed_at + MAX_SAGA_TIME {
            sleep(Duration::from_millis(1)).await;
        }
        payment.kill();
        sleep(MAX_SAGA_TIME).await;
        if self.ended_orders() == before {
            self.report_delay("a crash delayed an order by more than a restart");
        }
        self.wait_until_idle().await;
    }

    /// Cuts one replica of each service off from the broker, perhaps the leader. The others must publish in its place.
    async fn check_cut_off_replica(&mut self) {
        let instances = self.sim.profile().instances;
        if instances < 2 {
            return;
        }
        let number = self.sim.below(instances);
        let cut_off: Vec<_> =
            self.services().iter().filter_map(|service| service.processes().get(number).cloned()).collect();
        self.set_cut_off(&cut_off, true);
        self.place_recovery_order("tok_ok", ORDER_TIMEOUT + HANDOVER_TIME);
        sleep(HANDOVER_TIME + MAX_SAGA_TIME).await;
        for (name, store) in self.stores() {
            let pending = ready(store.stats()).unwrap_or_default().outbox_pending;
            if pending > 0 {
                let what = format!("{pending} entries of {name} wait for replica {}", number + 1);
                self.sim.breaks(Law::OutboxEmpties, what);
            }
        }
        self.sim.count(CoveragePoint::ReplicaCutOff);
        self.set_cut_off(&cut_off, false);
        self.wait_until_idle().await;
    }

    fn set_cut_off(&self, processes: &[Process], is_cut_off: bool) {
        processes.iter().for_each(|process| process.set_cut_off(is_cut_off));
        self.broker.wake_all();
    }

    fn report_delay(&self, what: &str) {
        self.sim.breaks(Law::OrderEnds, format!("{what}: {:?}", self.pending_work()));
    }

    fn place_recovery_order(&mut self, token: &'static str, timeout: Duration) {
        let key = format!("late-{token}-{}", timeout.as_secs());
        self.customers.lock().remember(&key, self.sim.age());
        let client = Client {
            sim: self.sim.clone(),
            live: self.order.live.clone(),
            customers: Arc::clone(&self.customers),
            key,
            lines: vec![("tea".to_owned(), 1)],
            token,
            timeout,
        };
        self.clients.spawn(client.order());
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
