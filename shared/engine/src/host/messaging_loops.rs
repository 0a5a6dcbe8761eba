//! Shell: loops of a service that need the broker: streams, start-up check, relay and consumers.

use anyhow::anyhow;
use saga_core::retry::error_chain;
use saga_core::service::Service;
use tokio::task::{JoinError, JoinSet};
use tracing::info;

use super::app::App;
use super::broker_retry::BrokerRetry;
use super::metrics::names;
use super::{clock_sync, startup_check};
use crate::nats::{NatsBus, Publisher, exchange_kept_traces, stream_reset, watch_position};
use crate::runtime::admission::StepAdmission;
use crate::runtime::bus::Durable;
use crate::runtime::clock::Moment;
use crate::runtime::consumer_stall::{self, ReplicaRole, StallWatch};
use crate::runtime::{self, RuntimeConfig, RuntimeDeps, ended, spawn};
use crate::store::DatabasePosition;

/// Loops of a service that need the broker, before they start.
pub(super) struct MessagingLoops {
    pub(super) producers: Vec<&'static str>,
    pub(super) steps: Vec<StepAdmission>,
    pub(super) deps: RuntimeDeps,
    pub(super) runtime_config: RuntimeConfig,
    /// Position of the database when it was opened.
    pub(super) opened_at: DatabasePosition,
}

impl MessagingLoops {
    /// Connects, checks, and runs relay and consumers. Returns only the error that ends the service.
    pub(super) async fn run<S: Service, X: Send + Sync + 'static>(self, app: App<S, X>) -> anyhow::Error {
        let Some(bus) = app.messaging.bus.clone() else { return std::future::pending().await };
        if let Err(error) = self.prepare(&app, &bus).await {
            return error;
        }
        let mut loops = self.start(&app, &bus);
        let ended = tokio::select! {
            ended = ended(&mut loops) => ended,
            () = clock_sync::run(&app.clock, &bus, app.store.as_ref(), &app.settings.clock, &app.metrics) => None,
            () = stream_reset::watch(&bus, S::NAME, app.store.clone()) => None,
            () = watch_position(&bus, S::NAME, app.store.clone()) => None,
            () = exchange_kept_traces(&bus, S::NAME, app.engine.tracer()) => None,
        };
        anyhow!("a messaging loop ended: {}", ended.map_or_else(|| "it has returned".to_owned(), end_of_loop))
    }

    /// Waits for the broker, creates streams, and checks database and clock.
    async fn prepare<S: Service, X>(&self, app: &App<S, X>, bus: &NatsBus) -> anyhow::Result<()> {
        if !bus.is_connected() {
            info!("waiting for the broker at {}", app.settings.bus.shown_url());
        }
        bus.wait_until_connected().await?;
        bus.warn_if_open();
        let mut retry = BrokerRetry::default();
        while let Err(fault) = bus.ensure_streams(&self.producers).await {
            let why = error_chain(&fault);
            app.messaging.publish_stall.stalled(&why, Moment::now(app.clock.as_ref()));
            retry.pause_after(&format!("streams cannot be created yet, retrying: {why}")).await;
        }
        let (settings, store) = (&app.settings.store, app.store.as_ref());
        startup_check::check_database(bus, S::NAME, settings, store, self.opened_at.clone()).await?;
        app.messaging.publish_stall.clear();
        clock_sync::first_sync(&app.clock, bus, store).await;
        app.messaging.startup_checked.cancel();
        Ok(())
    }

    /// Starts relay, consumers and the watch for consumer stalls.
    fn start<S: Service, X: Send + Sync + 'static>(self, app: &App<S, X>, bus: &NatsBus) -> JoinSet<()> {
        let Self { steps, deps, runtime_config, .. } = self;
        let publisher = Publisher::new(bus.clone(), S::NAME, app.controls.faults.clone())
            .with_position_header(app.store.clone())
            .with_publish_stall(app.messaging.publish_stall.clone());
        for durable in steps.iter().flat_map(|admission| Durable::all(S::NAME, &[admission.step()])) {
            app.metrics.show(&names::REDELIVERIES, &[&durable.name()]);
            app.metrics.show(&names::CONSUMER_LAG, &[&durable.name()]);
        }
        let mut loops =
            runtime::start_messaging(&app.engine, &steps, &deps, &runtime_config, bus, Box::new(publisher));
        let (is_shared, role_bus) = (app.store.is_shared(), bus.clone());
        let role = move || match is_shared {
            false => ReplicaRole::Only,
            true if role_bus.is_follower() => ReplicaRole::Follower,
            true => ReplicaRole::Peer,
        };
        let watch = StallWatch {
            role,
            stalls: app.messaging.consumer_stalls.clone(),
            limit: app.settings.readiness.max_consumer_stall,
            clock: deps.clock,
            observer: deps.observer,
        };
        spawn(&mut loops, Box::pin(consumer_stall::run::<S, _>(bus.clone(), steps, watch)));
        loops
    }
}

/// Describes the end of a loop that never ends unless it panics.
pub(super) fn end_of_loop(ended: Result<(), JoinError>) -> String {
    ended.map_or_else(|error| error.to_string(), |()| "it has returned".to_owned())
}
