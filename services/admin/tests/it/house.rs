//! Shell: the admin service in this process: its real routes, engine, store and driver, without a broker. The test
//! plays the services: it says what they would say, and takes from the outbox what they would hear. Their internal
//! routes are admin's own, which are the same in all services.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use admin::AdminApp;
use admin::policy::AdminService;
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use reqwest::{Method, RequestBuilder};
use serde_json::Value;
use shared::app::App;
use shared::contract::Fact;
use shared::engine::calls::Calls;
use shared::engine::{self, Bounds, Engine, Input, Outcome, Rules};
use shared::envelope::Envelope;
use shared::faults::Faults;
use shared::gate::Breakers;
use shared::http::{self, Readiness};
use shared::metrics::Metrics;
use shared::resilience::Guard;
use shared::service::Service;
use shared::settings::{self, Sources};
use shared::store::sqlite::SqliteStore;
use shared::store::{Lease, Published, Store};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::world::message::{envelope, step_that_hears};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct House {
    pub app: AdminApp,
    pub http: reqwest::Client,
    pub base: String,
    lease: Lease,
    _background: JoinSet<()>,
}

impl House {
    pub async fn new() -> Self {
        Self::with(&[]).await
    }

    /// With some settings of its own.
    pub async fn with(flags: &[&str]) -> Self {
        let store = Arc::new(SqliteStore::in_memory(AdminService::rows()).expect("a database in memory"));
        Self::over(store, flags).await
    }

    /// Over a database that may have been another one's, which is gone.
    pub async fn over(store: Arc<dyn Store>, flags: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let base = format!("http://{}", listener.local_addr().expect("an address"));
        let program = admin::program();
        let here = ["order", "inventory", "payment"].map(|name| format!("service.{name}={base}"));
        // Nobody listens there.
        let nowhere = "service.bank=http://127.0.0.1:9".to_owned();
        let own = flags.iter().map(|flag| (*flag).to_owned());
        let flags = here.into_iter().chain([nowhere]).chain(own).collect();
        let settings = settings::load("admin", program.defaults, &Sources { file: None, flags });
        let settings = Arc::new(settings.expect("settings"));
        let steps: Vec<_> = AdminService::steps().iter().map(|step| step.name).collect();
        let guard = Guard::new("outside", settings.breaker_of("outside"));
        let (calls, _) = Calls::new(1, guard.clone());
        let breakers = Breakers::new(&steps, |name| settings.breaker_of(name)).with(guard);
        let faults = Faults::new(settings.faults.clone(), program.faults, steps);
        let rules = Rules {
            retry: settings.retry,
            step_retry: BTreeMap::new(),
            task_retry: settings.task.retry,
            owner: "house".to_owned(),
            task_lease: SignedDuration::from_secs(60),
            use_inbox: true,
        };
        let (metrics, bounds) = (Metrics::default(), Bounds { batch_max: 256, queue: 4096 });
        let (engine, looping) =
            Engine::new(Arc::new(AdminService), store.clone(), rules, bounds, metrics.clone(), calls);
        let stop = CancellationToken::new();
        let app = App { engine, store, bus: None, metrics, breakers, faults, settings, stop };
        let mut background = JoinSet::new();
        background.spawn(engine::run(looping));
        for work in (program.background)(app.clone()) {
            background.spawn(work);
        }
        let routes = (program.routes)(app.clone()).merge(shared::operator::routes(app.clone()).into());
        let ready: http::Health =
            Arc::new(|| Box::pin(async { Readiness { ready: true, checks: BTreeMap::new() } }));
        let router = http::router(routes, &app.settings.http, ready, app.metrics.clone());
        let stopped = app.stop.clone();
        background.spawn(async move {
            let _ = http::serve(listener, router, stopped).await;
        });
        let now = Timestamp::now();
        let until = now + SignedDuration::from_hours(1);
        let lease =
            app.store.take_lease(None, "test", now, until).await.expect("a lease").expect("a free one");
        Self { app, http: reqwest::Client::new(), base, lease, _background: background }
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}/api/admin{path}", self.base))
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> impl Future<Output = Value> {
        answered(self.request(Method::GET, path), 200)
    }

    /// Ada asks for something.
    #[track_caller]
    pub fn post(&self, path: &str, body: &Value, status: u16) -> impl Future<Output = Value> {
        answered(self.request(Method::POST, path).header("X-Operator", "ada").json(body), status)
    }

    #[track_caller]
    pub fn delete(&self, path: &str, status: u16) -> impl Future<Output = Value> {
        answered(self.request(Method::DELETE, path).header("X-Operator", "ada"), status)
    }

    /// A service says something.
    pub async fn hears(&self, fact: &Fact) {
        let outcome = self.app.engine.settle(said(fact)).await.expect("the store works");
        assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    }

    /// Services say many things at once.
    pub async fn hears_all(&self, facts: &[Fact]) {
        for facts in facts.chunks(1_000) {
            join_all(facts.iter().map(|fact| self.hears(fact))).await;
        }
    }

    /// What services would hear, and have not heard yet.
    pub async fn tells(&self) -> Vec<Fact> {
        let now = Timestamp::now() + SignedDuration::from_secs(1);
        let pending = self.app.store.pending(now, 1_000).await.expect("the outbox");
        let done = pending.iter().map(|entry| entry.seq).collect();
        let published = Published { done, ..Published::default() };
        assert!(
            self.app.store.settle(&self.lease, published, now).await.expect("settled"),
            "the lease holds"
        );
        let opened = pending.iter().map(|entry| {
            Envelope::from_bytes(&entry.payload).expect("an envelope").open().expect("a message").fact
        });
        opened.collect()
    }

    /// The broker will never take this entry.
    pub async fn refuse(&self, seq: i64, now: Timestamp) {
        let published = Published { refused: vec![(seq, "too large".to_owned())], ..Published::default() };
        assert!(
            self.app.store.settle(&self.lease, published, now).await.expect("settled"),
            "the lease holds"
        );
    }

    /// What anybody could have changed: letters, redrives, the log, breakers and faults, and what is told.
    pub async fn everything(&self) -> Value {
        let log = self.get("/audit/log").await;
        let (letters, redrives) = (self.get("/dlq").await, self.get("/dlq/redrive").await);
        let (breakers, faults) = (self.get("/breakers").await, self.get("/faults").await);
        let outbox = self.app.store.stats().await.expect("stats").outbox_pending;
        serde_json::json!([log, letters, redrives, breakers, faults, outbox])
    }

    /// Waits until a redrive is in this status, playing the services meanwhile: `answer` is what they say to each
    /// thing they hear.
    #[track_caller]
    pub fn plays(
        &self,
        redrive: &str,
        status: &str,
        mut answer: impl FnMut(&Fact) -> Option<Fact>,
    ) -> impl Future<Output = Value> {
        let caller = std::panic::Location::caller();
        async move {
            let until = Instant::now() + PATIENCE;
            loop {
                let answers: Vec<Fact> = self.tells().await.iter().filter_map(&mut answer).collect();
                self.hears_all(&answers).await;
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

/// The body of an answer of this status.
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

/// A message that says this.
fn said(fact: &Fact) -> Input<AdminService> {
    Input::message(step_that_hears::<AdminService>(fact), envelope(fact).into(), Uuid::nil(), 0)
}
