//! Shell: the world: services with their databases, the broker and the bank; and how it becomes idle.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use admin::redrive::decider::{Drive, Redrive};
use admin::redrive::progress;
use admin::service::AdminService;
use bank::service::BankService;
use futures::FutureExt as _;
use inventory::service::InventoryService;
use jiff::{SignedDuration, Timestamp};
use order::service::OrderService;
use parking_lot::Mutex;
use payment::service::PaymentService;
use saga_core::breaker::State;
use saga_core::decider::Decider;
use saga_core::query::Query;
use saga_core::row::{RowKey, StoredEvent};
use saga_core::service::{Service, Step, steps_of};
use saga_engine::runtime::admission::BreakerView;
use saga_engine::runtime::bus::Durable;
use saga_engine::runtime::task_runner::{NoTasks, TaskHandler};
use saga_engine::store::roles::{DueWork as _, Monitoring as _, Overrides as _, Queries as _};
use saga_engine::store::sqlite::SqliteStore;
use saga_engine::store::{DueQuery, StoredOverrides};
use tokio::task::JoinSet;
use tokio::time::sleep;
use uuid::Uuid;

use crate::bank_calls::BankHandler;
use crate::broker::Broker;
use crate::bus::SharedBroker;
use crate::client::Customers;
use crate::deployment::{AnyDeployment, Deployer, Deployment};
use crate::instance::{Background, MAX_REDELIVERY_TIME, Shared, inject};
use crate::invariants;
use crate::process::Process;
use crate::redriver::{self, Breakers};
use crate::sim::{Sim, ready};

/// Time after which a world that is not idle counts as stuck.
const MAX_TIME_TO_IDLE: Duration = Duration::from_mins(30);

pub struct World {
    pub sim: Sim,
    pub broker: SharedBroker,
    pub order: Deployment<OrderService>,
    pub inventory: Deployment<InventoryService>,
    pub payment: Deployment<PaymentService>,
    pub admin: Deployment<AdminService>,
    pub bank: Deployment<BankService>,
    pub customers: Arc<Mutex<Customers>>,
    /// Clients that wait for an answer.
    pub clients: JoinSet<()>,
    /// Messages with an envelope that no service has published, by subject.
    pub forged: BTreeMap<String, u64>,
    /// Inbox marks and keys before this age may be purged.
    pub trimmed_until: Duration,
    /// True once the world did not become idle in time.
    is_stuck: bool,
    instances: JoinSet<()>,
}

impl World {
    /// Creates a world with all instances, in which nothing has happened yet.
    pub fn new(sim: Sim) -> Self {
        let mut broker = Broker::default();
        declare::<OrderService>(&mut broker);
        declare::<InventoryService>(&mut broker);
        declare::<PaymentService>(&mut broker);
        declare::<AdminService>(&mut broker);
        let (broker, mut instances) = (SharedBroker::new(sim.clone(), broker), JoinSet::new());
        let (planted_fault, all) = (sim.planted_fault(), sim.profile().instances);
        let mut deployer = Deployer { sim: &sim, broker: &broker, instances: &mut instances };
        let bank = deployer.deploy(1, || BankService { limit_major: 10_000 }, None);
        let called = bank.live.clone();
        let to_bank =
            |process| -> Arc<dyn TaskHandler> { Arc::new(BankHandler::new(process, called.clone())) };
        let order = deployer.deploy(all, || OrderService, planted_fault.of_order());
        let inventory = deployer.deploy(all, || InventoryService, planted_fault.of_inventory());
        let payment = deployer.deploy_with(all, || PaymentService, planted_fault.of_payment(), to_bank, None);
        let others = [order.boxed(), inventory.boxed(), payment.boxed()];
        let breakers: Breakers = Arc::new(move |service| {
            let other = others.iter().find(|other| other.name() == service)?;
            other.breakers().into_iter().next()
        });
        let background: Background<AdminService> =
            Arc::new(move |parts| redriver::run(parts, breakers.clone()).boxed());
        let admin = deployer.deploy_with(all, || AdminService, None, |_| Arc::new(NoTasks), Some(background));
        Self {
            sim,
            broker,
            order,
            inventory,
            payment,
            admin,
            bank,
            customers: Arc::default(),
            clients: JoinSet::new(),
            forged: BTreeMap::new(),
            trimmed_until: Duration::ZERO,
            is_stuck: false,
            instances,
        }
    }

    /// Services that use the broker.
    pub fn services(&self) -> [&dyn AnyDeployment; 4] {
        [&self.order, &self.inventory, &self.payment, &self.admin]
    }

    pub fn stores(&self) -> [(&'static str, &SqliteStore); 4] {
        self.services().map(|service| (service.name(), service.shared().store.as_ref()))
    }

    pub fn processes(&self) -> Vec<Process> {
        let all = self.services().into_iter().map(AnyDeployment::processes).chain([self.bank.processes()]);
        all.flatten().cloned().collect()
    }

    /// Every step of every service.
    pub fn all_steps() -> Vec<&'static Step> {
        let all = [
            steps_of::<OrderService>(),
            steps_of::<InventoryService>(),
            steps_of::<PaymentService>(),
            steps_of::<AdminService>(),
        ];
        all.into_iter().flatten().collect()
    }

    /// Finds a step by name.
    pub fn step(name: &str) -> Option<&'static Step> {
        Self::all_steps().into_iter().find(|step| step.name == name)
    }

    pub fn start_faults(&self) {
        self.sim.set_faults_on(true);
        for service in self.services() {
            service.faults().iter().for_each(|faults| inject(faults, &self.sim));
        }
    }

    /// Ends all faults and outages.
    pub fn stop_faults(&self) {
        self.sim.set_faults_on(false);
        self.sim.set_bank_away(false);
        self.sim.set_broker_offset(SignedDuration::ZERO);
        for process in self.processes() {
            process.set_cut_off(false);
            process.set_clock_offset(SignedDuration::ZERO);
            process.set_clock_jump(SignedDuration::ZERO);
        }
        self.broker.set_away(false);
        self.processes().iter().for_each(Process::resume);
        for service in self.services() {
            let is_forced =
                |view: &BreakerView| matches!(view.state, State::ForcedOpen | State::ForcedClosed);
            service.reset_breakers(is_forced);
            let Shared { store, journal, .. } = service.shared();
            // A process that is down starts without forced breakers.
            let StoredOverrides { revision, .. } = ready(store.overrides()).unwrap_or_default();
            let _ = ready(store.replace_overrides(revision, "{}".to_owned()));
            for faults in service.faults() {
                journal.lock().injected += invariants::hits(faults);
                faults.clear();
            }
        }
    }

    /// Lets time pass until no work is pending.
    pub async fn wait_until_idle(&mut self) {
        let deadline = self.sim.age() + MAX_TIME_TO_IDLE;
        let mut pause = Duration::from_millis(500);
        while !self.is_stuck {
            while self.clients.try_join_next().is_some() {}
            self.retry_rejected_entries();
            let Some(pending_work) = self.pending_work() else { return };
            if self.sim.age() > deadline {
                self.is_stuck = true;
                self.sim.violation(format!("not idle after {MAX_TIME_TO_IDLE:?}: {pending_work}"));
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(4));
        }
    }

    /// Any work that is pending; `None` when idle.
    pub fn pending_work(&self) -> Option<String> {
        if !self.clients.is_empty() {
            return Some(format!("{} clients wait for an answer", self.clients.len()));
        }
        if let Some(dead) = self.processes().iter().find(|process| !process.is_alive()) {
            return Some(format!("{} is down", dead.name()));
        }
        if let Some((durable, index)) = self.broker.lock().pending_delivery() {
            return Some(format!("message {index} is to be delivered to {durable}"));
        }
        if self.payment.open_calls() > 0 {
            return Some("the bank is being called".to_owned());
        }
        if let Some(redrive) = self.running_redrive() {
            return Some(format!("redrive {redrive} is running"));
        }
        self.stores().into_iter().find_map(|(name, store)| {
            let stats = ready(store.stats()).unwrap_or_default();
            if stats.outbox_pending + stats.outbox_failed + stats.retries + stats.tasks > 0 {
                return Some(format!("{name} has work left: {stats:?}"));
            }
            overdue(store, Timestamp::MAX).map(|row| format!("{row} will come due"))
        })
    }

    pub fn redrives(&self) -> Vec<(Uuid, Drive)> {
        let rows = rows::<Redrive>(self.admin.store()).into_iter();
        rows.filter_map(|(id, redrive)| Some((id.parse().ok()?, redrive.drive()?.clone()))).collect()
    }

    /// A redrive that waits for nothing and has not ended.
    pub fn running_redrive(&self) -> Option<Uuid> {
        let is_running = |(id, drive): &(Uuid, Drive)| {
            drive.status.is_sending()
                && ready(progress::in_flight(self.admin.store(), drive.tag(*id)))
                    .is_ok_and(|count| count == 0)
        };
        self.redrives().into_iter().find(is_running).map(|(id, _)| id)
    }

    /// Redelivers a message, unless its inbox mark may be purged: redeliveries do not take that long.
    pub fn redeliver(&self, index: usize) {
        let stored_at = {
            let broker = self.broker.lock();
            if index >= broker.messages().len() {
                return;
            }
            broker.first_stored(index)
        };
        let purges = self.sim.profile().clock_jumps > 0;
        let is_old = purges && stored_at + MAX_REDELIVERY_TIME < self.sim.age();
        if stored_at > self.trimmed_until && !is_old {
            self.broker.redeliver(index);
        }
    }

    /// Checks the breakers before their state in memory is lost.
    pub fn check_breakers(&self) {
        for service in self.services() {
            for (views, faults) in service.breakers().iter().zip(service.faults()) {
                let injected = invariants::injected_failures(&service.shared().journal.lock(), faults);
                invariants::check_breakers(&self.sim, injected, views);
            }
        }
    }

    pub fn end(&mut self) {
        self.clients.abort_all();
        self.instances.abort_all();
    }
}

fn declare<S: Service>(broker: &mut Broker) {
    for durable in Durable::all(S::NAME, &steps_of::<S>()) {
        broker.declare(durable.name(), durable.step.name, durable.subscription.subjects(S::NAME));
    }
}

/// Any row that came due before this time.
pub fn overdue(store: &SqliteStore, now: Timestamp) -> Option<String> {
    let (owner, steps) = ("nobody".to_owned(), vec![]);
    let (lease, longest_delay) = (SignedDuration::MAX, SignedDuration::MAX);
    let query = DueQuery { now, limit: 1, tasks: 0, steps, owner, lease, longest_delay, recover: false };
    let due = ready(store.claim_due(query)).ok()?;
    due.rows.first().map(|(key, _)| key.id.clone())
}

/// All rows of a kind.
pub fn rows<D: Decider>(store: &SqliteStore) -> Vec<(String, D)> {
    let found = ready(store.find(D::KIND, Query { limit: 10_000, ..Query::default() })).unwrap_or_default();
    found.into_iter().filter_map(|row| Some((row.id, serde_json::from_str(&row.state).ok()?))).collect()
}

/// Complete history of a row, oldest event first.
pub fn history<D: Decider>(store: &SqliteStore, id: impl ToString) -> Vec<StoredEvent> {
    ready(store.events(RowKey::of::<D>(id), 0, usize::MAX)).unwrap_or_default()
}

/// Readable events of a row, oldest first.
pub fn events<D: Decider>(store: &SqliteStore, id: impl ToString) -> Vec<D::Event> {
    let history = history::<D>(store, id).into_iter();
    history.filter_map(|event| serde_json::from_str(&event.data).ok()).collect()
}
