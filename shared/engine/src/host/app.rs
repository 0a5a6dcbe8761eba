//! Shell: what makes a service the one it is, and what its routes see of it while it runs.

use std::ops::Deref;
use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use saga_core::access::Access;
use saga_core::fault::FaultKind;
use saga_core::metric::Metric;
pub use saga_core::outbox::PublishedAgain;
use saga_core::service::Service;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;

use super::http::Outgoing;
use super::metrics::Metrics;
use super::settings::Settings;
use super::shedding::{SharedShedding, UnderWay};
use super::standing::Standing;
use crate::nats::NatsBus;
use crate::runtime::admission::SharedAdmission;
use crate::runtime::clock::{BrokerClock, Clock as _};
use crate::runtime::engine::Engine;
use crate::runtime::faults::Faults;
use crate::runtime::handover::Handover;
use crate::runtime::held_up::HeldUp;
use crate::runtime::overrides::Overrides;
use crate::runtime::standstill::Standstills;
use crate::runtime::tasks::{NoCalls, TaskHandler};
use crate::store::{Store, StoreFault};

/// A running service, as its routes and background work see it. Cheap to clone: every request does so several times.
pub struct App<S: Service, X>(Arc<AppParts<S, X>>);

/// What a running service consists of.
pub struct AppParts<S: Service, X> {
    /// Takes commands, and tells when a row changes.
    pub engine: Engine<S>,
    /// The store, for reading.
    pub store: Arc<dyn Store>,
    /// The broker; `None` for a program that speaks to nobody.
    pub bus: Option<NatsBus>,
    /// The time of day: the broker's, once it was asked.
    pub clock: Arc<BrokerClock>,
    /// What `/metrics` shows of this process.
    pub metrics: Metrics,
    /// What stands before its steps and its calls: breakers, room for tasks.
    pub admission: SharedAdmission,
    /// What operators have breakers and faults do, in every process of the service.
    pub overrides: Overrides,
    /// Whether the broker takes its messages.
    pub publishing: HeldUp,
    /// Its steps that make no progress although messages wait.
    pub standstills: Standstills,
    /// How its checks stand, and since when.
    pub standing: Standing,
    /// The faults injected into this process; never any while `faults.enabled` is false.
    pub faults: Faults,
    /// How it asks other services.
    pub outgoing: Outgoing,
    /// Everything that was set, as it was read at the start.
    pub settings: Arc<Settings<X>>,
    /// Cancelled once the database and the clock were held against the broker.
    pub met: CancellationToken,
    /// As [`Program::refuses`].
    pub refuses: fn(&App<S, X>) -> Option<String>,
    /// What it has under way, of [`Program::under_way`].
    pub shedding: Option<SharedShedding>,
    /// Resolves when the service stops.
    pub stop: CancellationToken,
}

impl<S: Service, X> Clone for App<S, X> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: Service, X> Deref for App<S, X> {
    type Target = AppParts<S, X>;

    fn deref(&self) -> &AppParts<S, X> {
        &self.0
    }
}

impl<S: Service, X> From<AppParts<S, X>> for App<S, X> {
    fn from(parts: AppParts<S, X>) -> Self {
        Self(Arc::new(parts))
    }
}

impl<S: Service, X> App<S, X> {
    /// Has published again what was published since then, as far as it is kept.
    ///
    /// What was begun goes on to its end, whether or not anybody waits for it: it may take longer than that.
    ///
    /// # Errors
    /// When the store fails. What was marked before is published all the same; asking again does no harm.
    pub async fn republish(&self, since: Timestamp) -> Result<PublishedAgain, StoreFault> {
        let kept_since = self.settings.retention.cutoffs(self.clock.now()).published;
        let marking = tokio::spawn(mark_all(self.store.clone(), self.engine.relay(), since));
        let republished = marking.await.unwrap_or(Err(StoreFault::Closed))?;
        Ok(PublishedAgain { republished, kept_since })
    }

    /// Why nothing new may be begun yet: a database that has lost something would begin it as if that had never been.
    #[must_use]
    pub fn not_met(&self) -> Option<&'static str> {
        let is_met = self.bus.is_none() || self.met.is_cancelled();
        (!is_met).then_some("waits for the broker, which knows how far the database had come")
    }
}

async fn mark_all(store: Arc<dyn Store>, relay: Arc<Handover>, since: Timestamp) -> Result<u64, StoreFault> {
    /// Some tens of milliseconds of the writer's time.
    const CHUNK: usize = 5_000;
    let (mut count, mut after) = (0, 0);
    loop {
        let marked = store.republish(since, after, CHUNK).await?;
        relay.look_again();
        count += marked.count as u64;
        match marked.last {
            Some(last) if marked.count == CHUNK => after = last,
            _ => return Ok(count),
        }
    }
}

/// Work that runs beside the rest until the service stops.
pub type Background = BoxFuture<'static, ()>;

/// What makes a service the one it is.
pub struct Program<S: Service, X> {
    /// Its own defaults, as TOML.
    pub defaults: &'static str,
    /// Everyone who has a stream, when it takes part in the messaging; empty when it does not.
    pub producers: Vec<&'static str>,
    /// Faults that it can be told to make.
    pub faults: &'static [FaultKind],
    /// Makes the service.
    pub service: fn(&Settings<X>) -> S,
    /// Makes what calls the outside.
    pub handler: fn(&Settings<X>) -> anyhow::Result<Arc<dyn TaskHandler>>,
    /// Its own routes; those of the internal API are added to them.
    pub routes: fn(App<S, X>) -> OpenApiRouter,
    /// Which of its routes need a token, and of which role.
    pub access: &'static Access,
    /// The kinds of its tasks.
    pub tasks: &'static [&'static str],
    /// What it measures beside what every service does.
    pub metrics: &'static [&'static Metric],
    /// What runs beside.
    pub background: fn(App<S, X>) -> Vec<Background>,
    /// Why it refuses for now what it promises to take, which ends its readiness; beside what ends everybody's.
    pub refuses: fn(&App<S, X>) -> Option<String>,
    /// What it begins that others end, when there is a bound to how much of it is under way.
    pub under_way: Option<UnderWay<X>>,
}

/// For services that call nobody.
///
/// # Errors
/// Never.
pub fn no_calls<X>(_: &Settings<X>) -> anyhow::Result<Arc<dyn TaskHandler>> {
    Ok(Arc::new(NoCalls))
}
