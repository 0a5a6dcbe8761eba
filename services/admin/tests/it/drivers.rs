//! Shell: drivers of several instances of admin on the same redrive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use admin::commands::{Command, CommandKind, Reply};
use admin::dead_letters::events::Tag;
use admin::redrive::decider::{Drive, Redrive};
use admin::redrive::events::{Plan, RedriveCommand};
use admin::redrive::progress;
use admin::redrive_driver::{DriverContext, drive};
use admin::service::AdminService;
use admin_api::dead_letters::Filter;
use admin_api::redrives::RedriveStatus;
use contract::metrics::OF_ADMIN;
use futures::future::BoxFuture;
use jiff::SignedDuration;
use saga_core::breaker::BreakerPolicy;
use saga_core::input::{CommandOutcome, Input, Outcome};
use saga_core::row::RowKey;
use saga_core::service::{Service, steps_of};
use saga_engine::host::metrics::Metrics;
use saga_engine::host::settings::{self, Sources};
use saga_engine::runtime::admission::BreakerView;
use saga_engine::runtime::clock::SystemClock;
use saga_engine::runtime::engine::Engine;
use saga_engine::runtime::injected_faults::InjectedFaults;
use saga_engine::runtime::startup_backlog::StartupBacklog;
use saga_engine::runtime::task_runner::NoTasks;
use saga_engine::runtime::tracer::Tracer;
use saga_engine::runtime::{self, Runtime, RuntimeDeps};
use saga_engine::store::roles::Queries;
use saga_engine::store::sqlite::SqliteStore;
use saga_engine::store::{Store, StoredOverrides};
use saga_engine::testing::service_under_test::envelope;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::given::{announced, by_ada};
use crate::harness::others;
use crate::routes::numbered;

/// An instance of admin without a driver.
#[derive(Clone)]
struct Instance {
    store: Arc<dyn Store>,
    engine: Engine<AdminService>,
    _loops: Arc<JoinSet<()>>,
}

impl Instance {
    async fn with(dead_letters: u64) -> Self {
        let store: Arc<dyn Store> =
            Arc::new(SqliteStore::in_memory(AdminService::rows()).expect("a database in memory"));
        let program = admin::program();
        let flags = others().map(|name| format!("service.{name}=http://127.0.0.1:9")).collect();
        let settings =
            settings::load("admin", program.defaults, &Sources { file: None, flags }).expect("settings");
        let steps = steps_of::<AdminService>().iter().map(|step| step.name).collect();
        let deps = RuntimeDeps {
            startup_backlog: StartupBacklog::none(),
            tracer: Tracer::off(),
            store: store.clone(),
            handler: Arc::new(NoTasks),
            clock: Arc::new(SystemClock),
            observer: Arc::new(Metrics::new(admin::NAME, &OF_ADMIN)),
            faults: InjectedFaults::new(settings.faults.clone(), program.faults, steps),
        };
        let service = Arc::new((program.service)(&settings));
        let (runtime_config, overridden) = (settings.runtime_config("outside"), StoredOverrides::default());
        let Runtime { engine, loops, .. } =
            runtime::start(service, &deps, &runtime_config, |_| BreakerPolicy::default(), &overridden);
        let instance = Self { store, engine, _loops: Arc::new(loops) };
        for number in 0..dead_letters {
            let message = announced(&numbered(number));
            let name = "DeadLettered";
            let step = AdminService::steps().iter().find(|step| step.consumes_type(name)).expect("a step");
            let input = Input::message(step, envelope("payment", &message).into(), Uuid::nil(), 0);
            instance.engine.process(input).await.expect("the store works");
        }
        instance
    }

    async fn asks(&self, about: Uuid, kind: CommandKind) -> Reply {
        let command = Command { id: Uuid::now_v7(), by: by_ada(), kind };
        match self.engine.process(Input::command(command.id, about, command, None)).await {
            Ok(Outcome::Command(CommandOutcome::Done(reply))) => reply,
            other => panic!("{other:?}"),
        }
    }

    async fn starts(&self, canary: u32, rate: Option<u32>) -> Uuid {
        let filter = Filter { service: Some("payment".to_owned()), ..Filter::default() };
        self.starts_for(filter, canary, rate).await
    }

    async fn starts_for(&self, filter: Filter, canary: u32, rate: Option<u32>) -> Uuid {
        let plan = Plan { filter, canary, rate, force: false, by: by_ada(), matching: 0 };
        let id = Uuid::now_v7();
        self.asks(id, CommandKind::Redrive(id, RedriveCommand::Start(Box::new(plan)))).await;
        id
    }

    async fn drive(&self, id: Uuid) -> Drive {
        let row = self.store.row(RowKey::of::<Redrive>(id)).await.expect("the store works").expect("a row");
        let redrive: Redrive = serde_json::from_str(&row.state).expect("a redrive");
        redrive.drive().expect("it was started").clone()
    }

    async fn in_flight(&self, id: Uuid) -> u64 {
        progress::in_flight(self.store.as_ref(), self.drive(id).await.tag(id)).await.expect("the store works")
    }
}

/// Context of a driver whose request for breakers takes as long as this future.
struct Around<F>(Instance, F);

impl<F: Fn() -> BoxFuture<'static, ()> + Send + Sync> DriverContext for Around<F> {
    type Service = AdminService;

    fn rows(&self) -> &dyn Queries {
        self.0.store.as_ref()
    }

    fn engine(&self) -> &Engine<AdminService> {
        &self.0.engine
    }

    fn fresh_id(&self) -> Uuid {
        Uuid::now_v7()
    }

    async fn breakers_of(&self, _: &str) -> Option<Vec<BreakerView>> {
        (self.1)().await;
        Some(vec![])
    }
}

/// Drives until a condition holds.
async fn drive_until<F>(around: Around<F>, what: &str, holds: impl AsyncFn() -> bool)
where
    F: Fn() -> BoxFuture<'static, ()> + Send + Sync,
{
    let waiting = async {
        while !holds().await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        () = drive(around) => panic!("it ends"),
        waited = timeout(Duration::from_secs(20), waiting) => waited.unwrap_or_else(|_| panic!("in time: {what}")),
    }
}

/// Runs a driver without answers; while it first requests breakers, another driver sends these.
async fn driven_beside_another(instance: &Instance, redrive: Uuid, sent: u64) {
    let request = Arc::new(AtomicU32::new(0));
    let asking = {
        let (instance, request) = (instance.clone(), request.clone());
        move || -> BoxFuture<'static, ()> {
            let (instance, is_first) = (instance.clone(), request.fetch_add(1, Ordering::SeqCst) == 0);
            Box::pin(async move {
                if is_first {
                    let tag = Tag { redrive, round: 1 };
                    let dead_letters = (0..sent).map(|number| numbered(number).id).collect();
                    instance.asks(redrive, CommandKind::Send { tag, dead_letters }).await;
                }
            })
        }
    };
    let before = instance.drive(redrive).await.status;
    drive_until(Around(instance.clone(), asking), "its first look is over", async || {
        request.load(Ordering::SeqCst) > 1 || instance.drive(redrive).await.status != before
    })
    .await;
}

#[tokio::test]
async fn redrive_is_not_done_while_replays_of_another_driver_are_in_flight() {
    let instance = Instance::with(20).await;
    let redrive = instance.starts(0, None).await;
    driven_beside_another(&instance, redrive, 20).await;
    let (status, in_flight) = (instance.drive(redrive).await.status, instance.in_flight(redrive).await);
    assert_eq!((status, in_flight), (RedriveStatus::Running, 20));
}

#[tokio::test]
async fn canary_does_not_pass_while_replays_of_another_driver_are_in_flight() {
    let instance = Instance::with(3).await;
    let redrive = instance.starts(5, None).await;
    driven_beside_another(&instance, redrive, 3).await;
    let (status, in_flight) = (instance.drive(redrive).await.status, instance.in_flight(redrive).await);
    assert_eq!((status, in_flight), (RedriveStatus::Canary, 3));
}

fn at_once() -> BoxFuture<'static, ()> {
    Box::pin(std::future::ready(()))
}

#[tokio::test]
async fn instances_together_keep_the_rate() {
    let instance = Instance::with(40).await;
    let redrive = instance.starts(0, Some(1)).await;
    let sent = async || {
        let events =
            instance.store.events(RowKey::of::<Redrive>(redrive), 0, 99).await.expect("the store works");
        let sent = events.into_iter().filter(|event| event.name == "Sent");
        sent.map(|event| event.recorded_at).collect::<Vec<_>>()
    };
    let mut others = JoinSet::new();
    for _ in 0..3 {
        others.spawn(drive(Around(instance.clone(), at_once)));
    }
    drive_until(Around(instance.clone(), at_once), "two are sent", async || sent().await.len() > 1).await;
    let sent = sent().await;
    assert!(sent[1].duration_since(sent[0]) >= SignedDuration::from_secs(1), "one a second: {sent:?}");
}

#[tokio::test]
async fn hanging_service_does_not_serialize_redrives() {
    let instance = Instance::with(9).await;
    let mut redrives = Vec::new();
    for step in ["payment-processing", "payment-refund"] {
        for fingerprint in ["f-charge", "f-refund"] {
            let filter = Filter {
                step: Some(step.to_owned()),
                fingerprint: Some(fingerprint.to_owned()),
                ..Filter::default()
            };
            redrives.push(instance.starts_for(filter, 1, None).await);
        }
    }
    // Two of them have something to send.
    let both = Arc::new(Barrier::new(2));
    let asking = move || -> BoxFuture<'static, ()> {
        let both = both.clone();
        Box::pin(async move {
            both.wait().await;
        })
    };
    drive_until(Around(instance.clone(), asking), "both canaries are sent", async || {
        let mut in_flight = 0;
        for redrive in &redrives {
            in_flight += instance.in_flight(*redrive).await;
        }
        in_flight == 2
    })
    .await;
}
