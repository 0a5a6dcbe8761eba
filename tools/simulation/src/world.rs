//! Shell: everything there is: the services with their databases, the broker, the bank; and how they come to rest.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use admin::policy::AdminService;
use admin::redrive::decider::{Drive, Redrive};
use admin::redrive::progress;
use bank::policy::BankService;
use futures::FutureExt as _;
use inventory::policy::InventoryService;
use jiff::{SignedDuration, Timestamp};
use order::policy::OrderService;
use parking_lot::Mutex;
use payment::policy::PaymentService;
use saga_core::decider::Decider;
use saga_core::input::{CommandOutcome, Input, RequestKey};
use saga_core::query::Query;
use saga_core::row::{RowKey, StoredEvent};
use saga_core::service::{Service, Step, steps_of};
use saga_engine::runtime::bus::Durable;
use saga_engine::runtime::faults::Faults;
use saga_engine::runtime::tasks::{NoCalls, TaskHandler};
use saga_engine::store::sqlite::{SqliteStore, Template};
use saga_engine::store::{DueQuery, Overridden, Store, StoreFault};
use tokio::task::JoinSet;
use tokio::time::sleep;
use uuid::Uuid;

use crate::bank::BankHandler;
use crate::broker::Broker;
use crate::bus::SharedBroker;
use crate::client::Customers;
use crate::instance::{Beside, Doors, Instance, Shared, inject, watched};
use crate::process::Process;
use crate::redriver::{self, Breakers};
use crate::sayings::Sayings;
use crate::sim::{Sim, ready};
use crate::tampered::{Tamper, Tampered};
use crate::watch;

/// A world that needs longer than this to come to rest never does.
const LONGEST_UNREST: Duration = Duration::from_mins(30);

pub struct World {
    pub sim: Sim,
    pub broker: SharedBroker,
    pub order: Site<OrderService>,
    pub inventory: Site<InventoryService>,
    pub payment: Site<PaymentService>,
    pub admin: Site<AdminService>,
    pub bank: Site<BankService>,
    pub customers: Arc<Mutex<Customers>>,
    /// People who wait for an answer.
    pub people: JoinSet<()>,
    /// Messages with an envelope that no service has published, by subject.
    pub forged: BTreeMap<String, u64>,
    /// Inbox marks and keys of what is older than this may be gone.
    pub trimmed_until: Duration,
    /// Whether it did not come to rest, and never will.
    is_stuck: bool,
    instances: JoinSet<()>,
}

/// A service with its database and its instances.
pub struct Site<S: Service> {
    pub shared: Shared,
    pub doors: Doors<S>,
    pub processes: Vec<Process>,
    pub faults: Vec<Faults>,
}

impl World {
    /// A world in which everybody lives, and nothing has happened.
    #[must_use]
    pub fn new(sim: Sim) -> Self {
        let mut broker = Broker::default();
        declare::<OrderService>(&mut broker);
        declare::<InventoryService>(&mut broker);
        declare::<PaymentService>(&mut broker);
        declare::<AdminService>(&mut broker);
        let (broker, mut instances) = (SharedBroker::new(sim.clone(), broker), JoinSet::new());
        let (sabotage, all) = (sim.sabotage(), sim.weather().instances);
        let mut make = Maker { sim: &sim, broker: &broker, instances: &mut instances };
        let bank = make.site(1, || BankService { limit_major: 10_000 }, None, |_| Arc::new(NoCalls), None);
        let called = bank.doors.clone();
        let to_bank =
            |process| -> Arc<dyn TaskHandler> { Arc::new(BankHandler::new(process, called.clone())) };
        let order = make.site(all, || OrderService, sabotage.of_order(), |_| Arc::new(NoCalls), None);
        let inventory =
            make.site(all, || InventoryService, sabotage.of_inventory(), |_| Arc::new(NoCalls), None);
        let payment = make.site(all, || PaymentService, sabotage.of_payment(), to_bank, None);
        let others = (order.doors.clone(), inventory.doors.clone(), payment.doors.clone());
        let breakers: Breakers = Arc::new(move |service| {
            let breakers = match service {
                OrderService::NAME => others.0.breakers(),
                InventoryService::NAME => others.1.breakers(),
                PaymentService::NAME => others.2.breakers(),
                _ => vec![],
            };
            breakers.into_iter().next()
        });
        let beside: Beside<AdminService> =
            Arc::new(move |inside| redriver::run(inside, breakers.clone()).boxed());
        let admin = make.site(all, || AdminService, None, |_| Arc::new(NoCalls), Some(beside));
        Self {
            sim,
            broker,
            order,
            inventory,
            payment,
            admin,
            bank,
            customers: Arc::default(),
            people: JoinSet::new(),
            forged: BTreeMap::new(),
            trimmed_until: Duration::ZERO,
            is_stuck: false,
            instances,
        }
    }

    /// The stores of those who speak on the bus.
    #[must_use]
    pub fn stores(&self) -> [(&'static str, &SqliteStore); 4] {
        [
            (OrderService::NAME, self.order.store()),
            (InventoryService::NAME, self.inventory.store()),
            (PaymentService::NAME, self.payment.store()),
            (AdminService::NAME, self.admin.store()),
        ]
    }

    #[must_use]
    pub fn processes(&self) -> Vec<Process> {
        let all = [
            &self.order.processes,
            &self.inventory.processes,
            &self.payment.processes,
            &self.admin.processes,
            &self.bank.processes,
        ];
        all.into_iter().flatten().cloned().collect()
    }

    /// Every step of every service.
    #[must_use]
    pub fn all_steps() -> Vec<&'static Step> {
        let all = [
            steps_of::<OrderService>(),
            steps_of::<InventoryService>(),
            steps_of::<PaymentService>(),
            steps_of::<AdminService>(),
        ];
        all.into_iter().flatten().collect()
    }

    /// The step of this name, of whatever service.
    #[must_use]
    pub fn step(name: &str) -> Option<&'static Step> {
        Self::all_steps().into_iter().find(|step| step.name == name)
    }

    /// From now on things go wrong.
    pub fn get_rough(&mut self) {
        self.sim.set_rough(true);
        self.order.inject(&self.sim);
        self.inventory.inject(&self.sim);
        self.payment.inject(&self.sim);
        self.admin.inject(&self.sim);
    }

    /// From now on nothing goes wrong any more.
    pub fn get_calm(&mut self) {
        self.sim.set_rough(false);
        self.sim.set_bank_away(false);
        self.broker.set_away(false);
        self.processes().iter().for_each(Process::resume);
        self.order.get_calm();
        self.inventory.get_calm();
        self.payment.get_calm();
        self.admin.get_calm();
    }

    /// Lets time pass until nobody owes anything.
    pub async fn come_to_rest(&mut self) {
        let deadline = self.sim.age() + LONGEST_UNREST;
        let mut pause = Duration::from_millis(500);
        while !self.is_stuck {
            while self.people.try_join_next().is_some() {}
            self.retry_refused();
            let Some(unrest) = self.unrest() else { return };
            if self.sim.age() > deadline {
                self.is_stuck = true;
                self.sim.object(format!("not at rest after {LONGEST_UNREST:?}: {unrest}"));
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(4));
        }
    }

    /// What is still under way.
    #[must_use]
    pub fn unrest(&self) -> Option<String> {
        if !self.people.is_empty() {
            return Some(format!("{} people wait for an answer", self.people.len()));
        }
        if let Some(dead) = self.processes().iter().find(|process| !process.is_alive()) {
            return Some(format!("{} is dead", dead.name()));
        }
        if let Some((durable, index)) = self.broker.lock().on_its_way() {
            return Some(format!("{durable} is to have message {index}"));
        }
        if self.payment.doors.calls() > 0 {
            return Some("the bank is being called".to_owned());
        }
        if let Some(redrive) = self.redrive_under_way() {
            return Some(format!("redrive {redrive} goes on"));
        }
        self.stores().into_iter().find_map(|(name, store)| {
            let stats = ready(store.stats()).unwrap_or_default();
            if stats.outbox_pending + stats.outbox_failed + stats.retries + stats.tasks > 0 {
                return Some(format!("{name} still owes something: {stats:?}"));
            }
            overdue(store, Timestamp::MAX).map(|row| format!("{row} will come due"))
        })
    }

    /// All redrives, whatever became of them.
    #[must_use]
    pub fn redrives(&self) -> Vec<(Uuid, Drive)> {
        let rows = rows::<Redrive>(self.admin.store()).into_iter();
        rows.filter_map(|(id, redrive)| Some((id.parse().ok()?, redrive.drive()?.clone()))).collect()
    }

    /// A redrive that waits for nothing outside of admin, and is not over.
    #[must_use]
    pub fn redrive_under_way(&self) -> Option<Uuid> {
        let goes_on = |(id, drive): &(Uuid, Drive)| {
            drive.status.is_sending()
                && ready(progress::in_flight(self.admin.store(), drive.tag(*id)))
                    .is_ok_and(|count| count == 0)
        };
        self.redrives().into_iter().find(goes_on).map(|(id, _)| id)
    }

    /// A message comes again, unless a mark of it may have been trimmed: so long, no redelivery takes.
    pub fn deliver_again(&self, index: usize) {
        let stored_at = {
            let broker = self.broker.lock();
            if index >= broker.messages().len() {
                return;
            }
            broker.first_stored(index)
        };
        if stored_at > self.trimmed_until {
            self.broker.deliver_again(index);
        }
    }

    /// Checks what memory alone knows, before it goes.
    pub fn look_at_breakers(&self) {
        self.order.look_at_breakers(&self.sim);
        self.inventory.look_at_breakers(&self.sim);
        self.payment.look_at_breakers(&self.sim);
        self.admin.look_at_breakers(&self.sim);
    }

    pub fn end(&mut self) {
        self.people.abort_all();
        self.instances.abort_all();
    }
}

impl<S: Service> Site<S> {
    #[must_use]
    pub fn store(&self) -> &SqliteStore {
        &self.shared.store
    }

    fn inject(&self, sim: &Sim) {
        self.faults.iter().for_each(|faults| inject(faults, sim));
    }

    fn get_calm(&self) {
        self.doors.release_breakers();
        // Whoever is dead starts with none that is forced.
        let Overridden { revision, .. } = ready(self.store().overrides()).unwrap_or_default();
        let _ = ready(self.store().override_with(revision, "{}".to_owned()));
        for faults in &self.faults {
            self.shared.journal.lock().injected += watch::hits(faults);
            faults.clear();
        }
    }

    fn look_at_breakers(&self, sim: &Sim) {
        for (views, faults) in self.doors.breakers().iter().zip(&self.faults) {
            let struck = watch::struck(&self.shared.journal.lock(), faults);
            watch::breakers(sim, struck, views);
        }
    }

    /// Asks one of the instances for a command. `None` when nobody answers in time.
    pub async fn ask(
        &self,
        sim: &Sim,
        (id, saga): (Uuid, Uuid),
        command: S::Command,
        key: Option<RequestKey>,
    ) -> Option<CommandOutcome<Tampered<S>>> {
        self.doors.ask(sim, Input::command(id, saga, command, key)).await
    }
}

/// The empty database of a service, made once for all seeds.
fn template<S: Service>() -> Result<Arc<Template>, StoreFault> {
    static MADE: Mutex<BTreeMap<&str, Arc<Template>>> = Mutex::new(BTreeMap::new());
    match MADE.lock().entry(S::NAME) {
        Entry::Occupied(made) => Ok(made.get().clone()),
        Entry::Vacant(none) => Ok(none.insert(Arc::new(Template::of(S::rows())?)).clone()),
    }
}

struct Maker<'a> {
    sim: &'a Sim,
    broker: &'a SharedBroker,
    instances: &'a mut JoinSet<()>,
}

impl Maker<'_> {
    /// A service with an empty database and so many instances.
    fn site<S: Service>(
        &mut self,
        instances: usize,
        service: impl Fn() -> S,
        tamper: Option<Tamper<S>>,
        handler: impl Fn(Process) -> Arc<dyn TaskHandler>,
        beside: Option<Beside<S>>,
    ) -> Site<S> {
        let store = match template::<S>().and_then(|template| SqliteStore::copy_of(&template)) {
            Ok(store) => Arc::new(store),
            Err(fault) => panic!("no database in memory: {fault}"),
        };
        let (journal, forgotten, broker) = (Arc::default(), Arc::default(), self.broker.clone());
        let sayings = Sayings::default();
        let shared = Shared { store, journal, forgotten, broker, sayings };
        let (doors, mut processes, mut faults) = (Doors::default(), Vec::new(), Vec::new());
        for number in 1..=instances {
            let process = Process::new(self.sim.clone(), format!("{}-{number}", S::NAME));
            let (service, handler) =
                (watched(service(), tamper, self.sim.sabotage()), handler(process.clone()));
            let instance =
                Instance::new(process, shared.clone(), doors.clone(), service, handler, beside.clone());
            processes.push(instance.process());
            faults.push(instance.faults());
            self.instances.spawn(instance.run());
        }
        Site { shared, doors, processes, faults }
    }
}

fn declare<S: Service>(broker: &mut Broker) {
    for durable in Durable::all(S::NAME, &steps_of::<S>()) {
        broker.declare(durable.name(), durable.step.name, durable.subscription.subjects(S::NAME));
    }
}

/// A row that should have come due by then, and did not.
#[must_use]
pub fn overdue(store: &SqliteStore, now: Timestamp) -> Option<String> {
    let (owner, paused) = ("nobody".to_owned(), vec![]);
    let (lease, longest_delay) = (SignedDuration::MAX, SignedDuration::MAX);
    let query = DueQuery { now, limit: 1, tasks: 0, paused, owner, lease, longest_delay, recover: false };
    let due = ready(store.due(query)).ok()?;
    due.rows.first().map(|(key, _)| key.id.clone())
}

/// All rows of a kind.
#[must_use]
pub fn rows<D: Decider>(store: &SqliteStore) -> Vec<(String, D)> {
    let found = ready(store.find(D::KIND, Query { limit: 10_000, ..Query::default() })).unwrap_or_default();
    found.into_iter().filter_map(|row| Some((row.id, serde_json::from_str(&row.state).ok()?))).collect()
}

/// The whole history of a row, oldest event first.
#[must_use]
pub fn history<D: Decider>(store: &SqliteStore, id: impl ToString) -> Vec<StoredEvent> {
    ready(store.events(RowKey::of::<D>(id), 0, usize::MAX)).unwrap_or_default()
}

/// The same, as far as it can be read.
#[must_use]
pub fn events<D: Decider>(store: &SqliteStore, id: impl ToString) -> Vec<D::Event> {
    let history = history::<D>(store, id).into_iter();
    history.filter_map(|event| serde_json::from_str(&event.data).ok()).collect()
}
