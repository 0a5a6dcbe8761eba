//! Several instances of admin, whose drivers look at the same redrive.

use std::sync::Arc;
use std::time::Duration;

use admin::commands::{Command, CommandKind, Reply};
use admin::dead_letter::events::Tag;
use admin::dead_letter::filter::Filter;
use admin::driver::{Surroundings, drive};
use admin::policy::AdminService;
use admin::redrive::decider::{Drive, Redrive};
use admin::redrive::events::{Plan, RedriveCommand, RedriveStatus};
use admin::redrive::progress;
use parking_lot::Mutex;
use saga_core::breaker::BreakerPolicy;
use saga_core::input::{CommandOutcome, Input, Outcome};
use saga_core::row::RowKey;
use saga_core::service::{Service, steps_of};
use saga_engine::host::metrics::Metrics;
use saga_engine::host::settings::{self, Sources};
use saga_engine::runtime::admission::BreakerView;
use saga_engine::runtime::clock::SystemClock;
use saga_engine::runtime::engine::Engine;
use saga_engine::runtime::faults::Faults;
use saga_engine::runtime::tasks::NoCalls;
use saga_engine::runtime::{self, Means, Running};
use saga_engine::store::Store;
use saga_engine::store::sqlite::SqliteStore;
use saga_engine::testing::service_under_test::envelope;
use tokio::task::JoinSet;
use tokio::time::timeout;
use uuid::Uuid;

use crate::given::{announced, by_ada};
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
        let flags = ["order", "inventory", "payment", "bank"]
            .map(|name| format!("service.{name}=http://127.0.0.1:9"))
            .to_vec();
        let settings =
            settings::load("admin", program.defaults, &Sources { file: None, flags }).expect("settings");
        let steps = steps_of::<AdminService>().iter().map(|step| step.name).collect();
        let means = Means {
            store: store.clone(),
            handler: Arc::new(NoCalls),
            clock: Arc::new(SystemClock),
            observer: Arc::new(Metrics::default()),
            faults: Faults::new(settings.faults.clone(), program.faults, steps),
        };
        let service = Arc::new((program.service)(&settings));
        let Running { engine, loops, .. } =
            runtime::start(service, &means, &settings.carriage("outside"), |_| BreakerPolicy::default());
        let instance = Self { store, engine, _loops: Arc::new(loops) };
        for number in 0..dead_letters {
            let message = announced(&numbered(number));
            let name = "DeadLettered";
            let step = AdminService::steps().iter().find(|step| step.is_told(name)).expect("a step");
            let input = Input::message(step, envelope("payment", &message).into(), Uuid::nil(), 0);
            instance.engine.settle(input).await.expect("the store works");
        }
        instance
    }

    async fn asks(&self, about: Uuid, kind: CommandKind) -> Reply {
        let command = Command { id: Uuid::now_v7(), by: by_ada(), kind };
        match self.engine.settle(Input::command(command.id, about, command, None)).await {
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

/// A driver; while it asks for breakers the first time, the driver of another instance sends these.
struct Slow {
    instance: Instance,
    other_sends: Mutex<Option<(Uuid, Vec<Uuid>)>>,
}

impl Surroundings for Slow {
    type Service = AdminService;

    fn store(&self) -> &dyn Store {
        self.instance.store.as_ref()
    }

    fn engine(&self) -> &Engine<AdminService> {
        &self.instance.engine
    }

    fn fresh_id(&self) -> Uuid {
        Uuid::now_v7()
    }

    async fn breakers_of(&self, _: &str) -> Option<Vec<BreakerView>> {
        let sends = self.other_sends.lock().take();
        if let Some((redrive, dead_letters)) = sends {
            let tag = Tag { redrive, round: 1 };
            self.instance.asks(redrive, CommandKind::Send { tag, dead_letters }).await;
        }
        Some(vec![])
    }
}

/// For a second, while nobody answers.
async fn driven(instance: &Instance, redrive: Uuid, other_sends: Vec<Uuid>) {
    let around = Slow { instance: instance.clone(), other_sends: Mutex::new(Some((redrive, other_sends))) };
    let _ = timeout(Duration::from_secs(1), drive(around)).await;
}

#[tokio::test]
async fn a_redrive_is_not_done_while_what_another_driver_sent_is_on_its_way() {
    let instance = Instance::with(20).await;
    let redrive = instance.starts(0, None).await;
    driven(&instance, redrive, (0..20).map(|number| numbered(number).id).collect()).await;
    let (status, in_flight) = (instance.drive(redrive).await.status, instance.in_flight(redrive).await);
    assert_eq!((status, in_flight), (RedriveStatus::Running, 20));
}

#[tokio::test]
async fn a_canary_is_not_passed_while_what_another_driver_sent_is_on_its_way() {
    let instance = Instance::with(3).await;
    let redrive = instance.starts(5, None).await;
    driven(&instance, redrive, (0..3).map(|number| numbered(number).id).collect()).await;
    let (status, in_flight) = (instance.drive(redrive).await.status, instance.in_flight(redrive).await);
    assert_eq!((status, in_flight), (RedriveStatus::Canary, 3));
}

/// Each has its own pace.
#[tokio::test]
async fn several_instances_together_are_no_faster_than_told() {
    let instance = Instance::with(40).await;
    let redrive = instance.starts(0, Some(1)).await;
    // They do not look at the same moment.
    let one = async |late_ms| {
        tokio::time::sleep(Duration::from_millis(late_ms)).await;
        driven(&instance, redrive, vec![]).await;
    };
    let all = async { tokio::join!(one(0), one(150), one(300), one(450)) };
    let _ = timeout(Duration::from_millis(950), all).await;
    let sent = instance.in_flight(redrive).await;
    assert!(sent <= 1, "{sent} in less than a second, at one a second");
}

/// A driver where one service hangs: the question for its breakers takes the three seconds that it may take.
struct Hung(Instance);

impl Surroundings for Hung {
    type Service = AdminService;

    fn store(&self) -> &dyn Store {
        self.0.store.as_ref()
    }

    fn engine(&self) -> &Engine<AdminService> {
        &self.0.engine
    }

    fn fresh_id(&self) -> Uuid {
        Uuid::now_v7()
    }

    async fn breakers_of(&self, _: &str) -> Option<Vec<BreakerView>> {
        tokio::time::sleep(Duration::from_secs(3)).await;
        None
    }
}

/// Each redrive asks by itself, one after another: with twenty, a look takes a minute.
#[tokio::test]
async fn redrives_do_not_wait_one_after_another_for_a_service_that_hangs() {
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
    let began = tokio::time::Instant::now();
    let driving = drive(Hung(instance.clone()));
    let watching = async {
        loop {
            let mut in_flight = 0;
            for redrive in &redrives {
                in_flight += instance.in_flight(*redrive).await;
            }
            if in_flight == 2 {
                return began.elapsed();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let took = tokio::select! {
        () = driving => panic!("it ends"),
        took = watching => took,
    };
    assert!(took < Duration::from_secs(4), "both canaries were sent after {took:?}");
}
