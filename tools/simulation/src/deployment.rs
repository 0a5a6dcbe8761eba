//! Shell: deployments: services with their databases and instances.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use parking_lot::Mutex;
use saga_core::input::{CommandOutcome, Input, RequestKey};
use saga_core::service::{Service, Step, steps_of};
use saga_engine::runtime::admission::{BreakerAction, BreakerView};
use saga_engine::runtime::injected_faults::InjectedFaults;
use saga_engine::runtime::task_runner::{NoTasks, TaskHandler};
use saga_engine::store::StoreFault;
use saga_engine::store::sqlite::{SqliteStore, Template};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::bus::SharedBroker;
use crate::instance::{Background, Instance, LiveInstances, Shared, instrumented};
use crate::instrumented::{HandlerOverride, Instrumented};
use crate::notifications::Notifications;
use crate::process::Process;
use crate::sim::{Sim, ready};

/// A service with its database and its instances.
pub struct Deployment<S: Service> {
    pub shared: Shared,
    pub live: LiveInstances<S>,
    pub processes: Vec<Process>,
    pub faults: Vec<InjectedFaults>,
}

/// A service with its instances, of whatever type.
pub trait AnyDeployment: Send + Sync {
    fn name(&self) -> &'static str;
    fn steps(&self) -> Vec<&'static Step>;
    fn shared(&self) -> &Shared;
    fn processes(&self) -> &[Process];
    /// Injected faults of each instance.
    fn faults(&self) -> &[InjectedFaults];
    /// Breakers of each running instance.
    fn breakers(&self) -> Vec<Vec<BreakerView>>;
    /// Sets the breakers of this name in all instances, through one of them.
    fn set_breaker(&self, sim: &Sim, name: &str, action: BreakerAction);
    /// Resets the breakers that match, with their history.
    fn reset_breakers(&self, matching: fn(&BreakerView) -> bool);
    /// Tasks waiting and in flight.
    fn open_calls(&self) -> usize;
    fn boxed(&self) -> Box<dyn AnyDeployment>;
}

impl<S: Service> AnyDeployment for Deployment<S> {
    fn name(&self) -> &'static str {
        S::NAME
    }

    fn steps(&self) -> Vec<&'static Step> {
        steps_of::<S>()
    }

    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn processes(&self) -> &[Process] {
        &self.processes
    }

    fn faults(&self) -> &[InjectedFaults] {
        &self.faults
    }

    fn breakers(&self) -> Vec<Vec<BreakerView>> {
        self.live.lock().values().map(|instance| instance.admission.breakers()).collect()
    }

    fn set_breaker(&self, sim: &Sim, name: &str, action: BreakerAction) {
        let all: Vec<_> = self.live.lock().values().map(|instance| instance.overrides.clone()).collect();
        if let Some(overrides) = all.get(sim.below(all.len())) {
            // A store in memory does not fail.
            let _ = ready(overrides.set_breaker(name, action));
        }
    }

    fn reset_breakers(&self, matching: fn(&BreakerView) -> bool) {
        for instance in self.live.lock().values() {
            for view in instance.admission.breakers().iter().filter(|view| matching(view)) {
                let _ = instance.admission.set_breaker(&view.name, BreakerAction::Reset);
            }
        }
    }

    fn open_calls(&self) -> usize {
        self.live.lock().values().map(|instance| instance.admission.open_tasks()).sum()
    }

    fn boxed(&self) -> Box<dyn AnyDeployment> {
        let Self { shared, live, processes, faults } = self;
        let (shared, live) = (shared.clone(), live.clone());
        Box::new(Self { shared, live, processes: processes.clone(), faults: faults.clone() })
    }
}

impl<S: Service> Deployment<S> {
    pub fn store(&self) -> &SqliteStore {
        &self.shared.store
    }

    /// Runs a command on one of the instances; `None` after a time-out.
    pub async fn ask(
        &self,
        sim: &Sim,
        (id, saga): (Uuid, Uuid),
        command: S::Command,
        key: Option<RequestKey>,
    ) -> Option<CommandOutcome<Instrumented<S>>> {
        self.live.ask(sim, Input::command(id, saga, command, key)).await
    }
}

/// Empty database of a service, created once for all seeds.
fn template<S: Service>() -> Result<Arc<Template>, StoreFault> {
    static TEMPLATES: Mutex<BTreeMap<&str, Arc<Template>>> = Mutex::new(BTreeMap::new());
    match TEMPLATES.lock().entry(S::NAME) {
        Entry::Occupied(template) => Ok(template.get().clone()),
        Entry::Vacant(entry) => Ok(entry.insert(Arc::new(Template::of(S::rows())?)).clone()),
    }
}

/// Starts the instances of services.
pub struct Deployer<'a> {
    pub sim: &'a Sim,
    pub broker: &'a SharedBroker,
    pub instances: &'a mut JoinSet<()>,
}

impl Deployer<'_> {
    /// Deploys a service without tasks, with an empty database and this many instances.
    pub fn deploy<S: Service>(
        &mut self,
        instances: usize,
        service: impl Fn() -> S,
        handler_override: Option<HandlerOverride<S>>,
    ) -> Deployment<S> {
        self.deploy_with(instances, service, handler_override, |_| Arc::new(NoTasks), None)
    }

    /// Deploys a service with a handler of its tasks and a loop beside the engine's own.
    pub fn deploy_with<S: Service>(
        &mut self,
        instances: usize,
        service: impl Fn() -> S,
        handler_override: Option<HandlerOverride<S>>,
        handler: impl Fn(Process) -> Arc<dyn TaskHandler>,
        background: Option<Background<S>>,
    ) -> Deployment<S> {
        let store = match template::<S>().and_then(|template| SqliteStore::copy_of(&template)) {
            Ok(store) => Arc::new(store),
            Err(fault) => panic!("no database in memory: {fault}"),
        };
        let (journal, forgotten, broker) = (Arc::default(), Arc::default(), self.broker.clone());
        let notifications = Notifications::default();
        let shared = Shared { store, journal, forgotten, broker, notifications };
        let (live, mut processes, mut faults) = (LiveInstances::default(), Vec::new(), Vec::new());
        for number in 1..=instances {
            let process = Process::new(self.sim.clone(), format!("{}-{number}", S::NAME));
            let service = instrumented(service(), handler_override, self.sim.planted_fault());
            let handler = handler(process.clone());
            let instance =
                Instance::new(process, shared.clone(), live.clone(), service, handler, background.clone());
            processes.push(instance.process.clone());
            faults.push(instance.faults.clone());
            self.instances.spawn(instance.run());
        }
        Deployment { shared, live, processes, faults }
    }
}
