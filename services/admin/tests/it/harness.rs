//! Shell: the admin service in this process: its real routes, engine, store and driver, without a broker. The test acts as
//! the services: it sends their messages and takes messages to them from the outbox. Internal routes of services are served
//! by admin's own, which are the same.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use admin::AdminApp;
use admin::service::{AdminMessage, AdminService};
use contract::FactType;
use contract::metrics::OF_ADMIN;
use contract::topology::{PARTICIPANTS, producers};
use futures::future::{BoxFuture, join_all};
use jiff::{SignedDuration, Timestamp};
use reqwest::{Method, RequestBuilder};
use saga_core::input::{Input, MessageOutcome, Outcome};
use saga_core::message::{Envelope, Message as _};
use saga_core::service::{Service, steps_of};
use saga_core::waiting::Task;
use saga_engine::host::app::{App, AppParts, Controls, Health};
use saga_engine::host::http::{self, Authorization, HttpClient, Listener, Readiness, client_builder};
use saga_engine::host::internal_api;
use saga_engine::host::messaging::Messaging;
use saga_engine::host::metrics::Metrics;
use saga_engine::host::settings::{self, Sources};
use saga_engine::runtime::clock::{BrokerClock, SystemClock};
use saga_engine::runtime::injected_faults::InjectedFaults;
use saga_engine::runtime::startup_backlog::StartupBacklog;
use saga_engine::runtime::task_runner::{CallFailed, NoTasks, TaskHandler};
use saga_engine::runtime::tracer::Tracer;
use saga_engine::runtime::{self, Runtime, RuntimeDeps};
use saga_engine::store::sqlite::SqliteStore;
use saga_engine::store::{Lease, PublishOutcome, RELAY_LEASE, Store};
use saga_engine::testing::service_under_test::envelope;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Time limit of every wait.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Names of the services that admin calls.
pub fn others() -> impl Iterator<Item = &'static str> {
    PARTICIPANTS.iter().map(|participant| participant.name).filter(|name| *name != admin::NAME)
}

pub struct AdminHarness {
    pub app: AdminApp,
    pub http: reqwest::Client,
    pub base: String,
    lease: Lease,
    _background: JoinSet<()>,
}

impl AdminHarness {
    pub async fn new() -> Self {
        Self::with(&[]).await
    }

    /// Starts with more settings, in which `{base}` is the address of admin.
    pub async fn with(flags: &[&str]) -> Self {
        let store = Arc::new(SqliteStore::in_memory(AdminService::rows()).expect("a database in memory"));
        Self::over(store, flags).await
    }

    /// Starts on an existing database.
    pub async fn over(store: Arc<dyn Store>, flags: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let scheme =
            if flags.iter().any(|flag| flag.starts_with("http.tls.cert=")) { "https" } else { "http" };
        let base = format!("{scheme}://{}", listener.local_addr().expect("an address"));
        let program = admin::program();
        let here = producers().filter(|name| *name != admin::NAME);
        let here = here.map(|name| format!("service.{name}={base}"));
        // Nobody listens there.
        let nowhere = "service.bank=http://127.0.0.1:9".to_owned();
        // Nobody is told anything, unless a test wants it.
        let silent = "service.notifications.check_every=1h".to_owned();
        let own = flags.iter().map(|flag| flag.replace("{base}", &base));
        let flags = here.into_iter().chain([nowhere, silent]).chain(own).collect();
        let settings = settings::load::<admin::settings::AdminSettings>(
            "admin",
            program.defaults,
            &Sources { file: None, flags },
        );
        let settings = Arc::new(settings.expect("settings"));
        let listener = Listener::on(listener, &settings.http).expect("a certificate");
        let authorization = Authorization::new(&settings.http, program.access).expect("tokens");
        let http_client = HttpClient::new(&settings.http).expect("a token");
        let steps = steps_of::<AdminService>().iter().map(|step| step.name).collect();
        let faults = InjectedFaults::new(settings.faults.clone(), program.faults, steps);
        let (metrics, stop) = (Metrics::new(admin::NAME, &OF_ADMIN), CancellationToken::new());
        let handler: Arc<dyn TaskHandler> = match settings.service.notifications.webhook.url.as_str() {
            "" => Arc::new(Outside),
            _ => (program.handler)(&settings).expect("a receiver"),
        };
        let dependency = handler.dependency();
        let deps = RuntimeDeps {
            startup_backlog: StartupBacklog::none(),
            tracer: Tracer::off(),
            store: store.clone(),
            handler,
            clock: Arc::new(SystemClock),
            observer: Arc::new(metrics.clone()),
            faults: faults.clone(),
        };
        let runtime_config = settings.runtime_config(dependency);
        let service = Arc::new((program.service)(&settings));
        let overridden = store.overrides().await.expect("the store works");
        let breaker_of = |name: &str| settings.breaker_of(name);
        let Runtime { engine, admission, overrides, loops: mut background, .. } =
            runtime::start(service, &deps, &runtime_config, breaker_of, &overridden);
        let clock = Arc::new(BrokerClock::new(Arc::new(SystemClock)));
        let app = App::from(AppParts {
            engine,
            store,
            settings,
            clock,
            metrics,
            messaging: Messaging::new(None),
            controls: Controls { admission, overrides, faults },
            health: Health { history: Default::default(), overload: program.overload },
            http_client,
            in_flight: None,
            stop,
        });
        for work in (program.background)(app.clone()) {
            background.spawn(work);
        }
        let routes = (program.routes)(app.clone()).merge(internal_api::routes(app.clone()).into());
        let ready: http::ReadinessProbe = Arc::new(|| Box::pin(async { Readiness::of(BTreeMap::new()) }));
        let router = http::router(
            routes,
            (program.pages)(),
            &app.settings.http,
            authorization,
            ready,
            app.metrics.clone(),
            Tracer::off(),
        );
        background.spawn(http::serve(
            listener,
            router,
            Arc::new(app.settings.http.clone()),
            app.stop.clone(),
        ));
        let now = Timestamp::now();
        let until = now + SignedDuration::from_hours(1);
        let lease = app
            .store
            .acquire_lease(RELAY_LEASE, None, "test", now, until)
            .await
            .expect("a lease")
            .expect("a free one");
        Self { app, http: client_builder().build().expect("a client"), base, lease, _background: background }
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}/api/admin{path}", self.base))
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> impl Future<Output = Value> {
        answered(self.request(Method::GET, path), 200)
    }

    /// Posts as the operator `ada`.
    #[track_caller]
    pub fn post(&self, path: &str, body: &Value, status: u16) -> impl Future<Output = Value> {
        answered(self.request(Method::POST, path).header("X-Operator", "ada").json(body), status)
    }

    #[track_caller]
    pub fn delete(&self, path: &str, status: u16) -> impl Future<Output = Value> {
        answered(self.request(Method::DELETE, path).header("X-Operator", "ada"), status)
    }

    /// Ids of all pages of a list.
    pub async fn ids(&self, path: &str, list: &str) -> Vec<Value> {
        let (mut ids, mut next) = (Vec::new(), path.to_owned());
        loop {
            let page = self.get(&next).await;
            ids.extend(each(&page[list], "id"));
            match page["next"].as_str() {
                Some(cursor) => next = format!("{path}&cursor={cursor}"),
                None => return ids,
            }
        }
    }

    /// Processes a message of a service.
    pub async fn receives(&self, message: &AdminMessage) {
        let outcome = self.app.engine.process(input_of(message)).await.expect("the store works");
        assert!(matches!(outcome, Outcome::Message(MessageOutcome::Done)), "{outcome:?}");
    }

    /// Processes many messages concurrently.
    pub async fn receives_all(&self, messages: &[AdminMessage]) {
        for messages in messages.chunks(1_000) {
            join_all(messages.iter().map(|message| self.receives(message))).await;
        }
    }

    /// Takes the unpublished messages from the outbox.
    pub async fn publishes(&self) -> Vec<AdminMessage> {
        let now = Timestamp::now() + SignedDuration::from_secs(1);
        let pending = self.app.store.pending_entries(1_000).await.expect("the outbox");
        let done = pending.iter().map(|entry| entry.seq).collect();
        let published = PublishOutcome { done, ..PublishOutcome::default() };
        assert!(
            self.app.store.settle(&self.lease, published, now).await.expect("settled"),
            "the lease holds"
        );
        let opened = pending.iter().map(|entry| {
            Envelope::from_bytes(&entry.payload).expect("an envelope").open().expect("a message").fact
        });
        opened.collect()
    }

    /// Takes messages until there are so many.
    pub async fn publishes_at_least(&self, number: usize) -> Vec<AdminMessage> {
        let (mut sent, until) = (Vec::new(), Instant::now() + PATIENCE);
        while sent.len() < number {
            sent.extend(self.publishes().await);
            assert!(Instant::now() < until, "waited in vain for {number} messages: {sent:?}");
            tokio::task::yield_now().await;
        }
        sent
    }

    /// Records that the broker rejected an entry.
    pub async fn refuse(&self, seq: i64, now: Timestamp) {
        let published =
            PublishOutcome { rejected: vec![(seq, "too large".to_owned())], ..PublishOutcome::default() };
        self.settles(published, now).await;
    }

    /// Records the outcome of a publication.
    pub async fn settles(&self, published: PublishOutcome, now: Timestamp) {
        assert!(
            self.app.store.settle(&self.lease, published, now).await.expect("settled"),
            "the lease holds"
        );
    }

    /// Everything that a request can change: dead letters, redrives, audit log, breakers, faults, and the outbox.
    pub async fn everything(&self) -> Value {
        let log = self.get("/audit").await;
        let (dead_letters, redrives) = (self.get("/dlq").await, self.get("/dlq/redrive").await);
        let (breakers, faults) = (self.get("/breakers").await, self.get("/faults").await);
        let outbox = self.app.store.stats().await.expect("stats").outbox_pending;
        serde_json::json!([log, dead_letters, redrives, breakers, faults, outbox])
    }

    /// Waits until a redrive has this status. `answer` is the reply of the services to each message.
    #[track_caller]
    pub fn drive_until_status(
        &self,
        redrive: &str,
        status: &str,
        mut answer: impl FnMut(&AdminMessage) -> Option<AdminMessage>,
    ) -> impl Future<Output = Value> {
        let caller = std::panic::Location::caller();
        async move {
            let until = Instant::now() + PATIENCE;
            loop {
                let answers: Vec<AdminMessage> =
                    self.publishes().await.iter().filter_map(&mut answer).collect();
                self.receives_all(&answers).await;
                let view = self.get(&format!("/dlq/redrive/{redrive}")).await;
                if view["status"] == status {
                    return view;
                }
                assert!(Instant::now() < until, "waited in vain for {status}, from {caller}: {view}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

/// Body of a response with this status.
#[track_caller]
pub fn answered(request: RequestBuilder, status: u16) -> impl Future<Output = Value> {
    let caller = std::panic::Location::caller();
    async move {
        let answer = request.send().await.expect("an answer");
        let (got, text) = (answer.status(), answer.text().await.expect("a body"));
        assert_eq!(got, status, "from {caller}: {text}");
        serde_json::from_str(&text).unwrap_or_default()
    }
}

/// Member of each element of a list.
#[track_caller]
pub fn each(list: &Value, member: &str) -> Vec<Value> {
    list.as_array().expect("a list").iter().map(|one| one[member].clone()).collect()
}

/// Input with a message, from the producer of its type, or from payment.
fn input_of(message: &AdminMessage) -> Input<AdminService> {
    let name = message.message_type().name;
    let step =
        AdminService::steps().iter().find(|step| step.consumes_type(name)).expect("some step hears this");
    let producer = FactType::named(name).map_or("payment", FactType::producer);
    Input::message(step, envelope(producer, message).into(), Uuid::nil(), 0)
}

/// Gives admin a breaker of a dependency, as services have. Makes no calls.
struct Outside;

impl TaskHandler for Outside {
    fn dependency(&self) -> &'static str {
        "outside"
    }

    fn call<'a>(&'a self, task: &'a Task) -> BoxFuture<'a, Result<Value, CallFailed>> {
        NoTasks.call(task)
    }
}
