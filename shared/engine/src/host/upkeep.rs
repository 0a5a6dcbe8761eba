//! Shell: what goes on beside the loops: watching the store, trimming what is finished, telling whether all is well.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use saga_core::retry::error_chain;
use saga_core::service::Service;
use tracing::error;

use super::app::App;
use super::http::{Health, Readiness};
use super::timekeeping::complaint;
use crate::runtime::clock::Clock as _;
use crate::runtime::signed;

pub(super) async fn watch_stats<S: Service, X: Send + Sync + 'static>(app: App<S, X>) {
    loop {
        match app.store.stats().await {
            Ok(stats) => app.metrics.take_stats(stats, app.clock.now()),
            Err(fault) => error!("the store cannot be asked: {}", error_chain(&fault)),
        }
        app.admission.breakers().iter().for_each(|view| app.metrics.take_breaker(view));
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

pub(super) async fn trim<S: Service, X: Send + Sync + 'static>(app: App<S, X>) {
    loop {
        tokio::time::sleep(app.settings.retention.every).await;
        let retention = &app.settings.retention;
        let cutoffs = retention.cutoffs(app.clock.now());
        loop {
            match app.store.trim(cutoffs, retention.chunk).await {
                // Small chunks with a breath between them: the engine's batches go first.
                Ok(gone) if gone as usize >= retention.chunk => {
                    tokio::time::sleep(Duration::from_millis(20)).await
                }
                Ok(_) => break,
                Err(fault) => {
                    error!("finished entries cannot be trimmed: {}", error_chain(&fault));
                    break;
                }
            }
        }
    }
}

pub(super) fn health<S: Service, X: Send + Sync + 'static>(app: App<S, X>) -> Health {
    Arc::new(move || {
        let app = app.clone();
        Box::pin(async move {
            let mut checks = BTreeMap::new();
            let mut ready = true;
            let mut check = |name: &str, problem: Option<String>| {
                ready &= problem.is_none();
                checks.insert(name.to_owned(), problem.unwrap_or_else(|| "ok".to_owned()));
            };
            let stats = app.store.stats().await;
            let now = app.clock.now();
            match stats {
                Ok(stats) => {
                    let age =
                        stats.outbox_oldest.map_or(SignedDuration::ZERO, |oldest| now.duration_since(oldest));
                    let limit = signed(app.settings.engine.ready_lag);
                    check("store", None);
                    check(
                        "outbox",
                        (age > limit).then(|| format!("oldest entry has waited {}s", age.as_secs())),
                    );
                }
                Err(fault) => check("store", Some(error_chain(&fault))),
            }
            if let Some(bus) = &app.bus {
                check("broker", (!bus.is_connected()).then(|| "not connected".to_owned()));
                let held_up = app.publishing.in_words(app.settings.engine.ready_held_up, Timestamp::now());
                check("publishing", held_up);
                check("steps", app.standstills.in_words(app.settings.engine.ready_standstill, now));
                check("database", app.not_met().map(str::to_owned));
                // It does not hurt, as deadlines go by the broker's; but somebody should put it right.
                let complaint = complaint(app.clock.offset(), &app.settings.clock);
                checks.insert("clock".to_owned(), complaint.unwrap_or_else(|| "ok".to_owned()));
            }
            Readiness { ready, checks }
        })
    })
}
