//! Shell: the end of a service: what ends it, and the order in which it stops.

use std::time::Duration;

use futures::future::{BoxFuture, join};
use saga_core::retry::error_chain;
use saga_core::service::Service;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use tracing::{error, info, warn};

use super::app::App;
use super::http;
use super::messaging_loops::end_of_loop;
use super::trace::{self, Tracing};
use crate::runtime::ended;
use crate::store::{RELAY_LEASE, Store};

/// Time within which a stopping service ends, unless `http.drain` is longer than by default. Supervisors kill it afterwards.
const STOPS_WITHIN: Duration = Duration::from_secs(10);
/// Running requests end first, then the loops. Then the lease is released while the last spans are sent.
const _: () = assert!(
    http::DRAIN.as_millis()
        + http::STOP_WITHIN.as_millis()
        + LOOPS_END_WITHIN.as_millis()
        + trace::LAST.as_millis()
        + BLOCKING_ENDS_WITHIN.as_millis()
        < STOPS_WITHIN.as_millis()
);
const _: () =
    assert!(RELEASE_LEASE_WITHIN.as_millis() + RECORD_STOP_WITHIN.as_millis() <= trace::LAST.as_millis());
/// Limit on ending the loops, which takes longer only where one of them blocks.
const LOOPS_END_WITHIN: Duration = Duration::from_millis(250);
/// Limit on what still blocks a thread when everything has ended, such as a write to the archive. The system may look a
/// name up for much longer, which concerns nobody then.
pub(super) const BLOCKING_ENDS_WITHIN: Duration = Duration::from_millis(250);
/// Limit on releasing the relay's lease. A stop does not wait for a database that is away.
const RELEASE_LEASE_WITHIN: Duration = Duration::from_secs(1);
/// Limit on recording the stop.
const RECORD_STOP_WITHIN: Duration = Duration::from_secs(1);

/// Reason why a running service ends.
pub(super) enum End {
    Signal,
    /// The start was rejected, e.g. for a database that has lost data.
    Rejected(anyhow::Error),
    /// A half-dead service must not look alive. It counts as a crash.
    Panicked(anyhow::Error),
}

/// Waits for a signal, or for the end of a loop. No background loop ever ends unless it panics.
pub(super) async fn wait_for_end(
    loops: &mut JoinSet<()>,
    mut messaging: AbortOnDropHandle<anyhow::Error>,
) -> (AbortOnDropHandle<anyhow::Error>, End) {
    let end = tokio::select! {
        () = shutdown_signal() => End::Signal,
        ended = &mut messaging => match ended {
            Ok(error) => End::Rejected(error),
            Err(panic) => End::Panicked(panic.into()),
        },
        Some(ended) = ended(loops) => {
            End::Panicked(anyhow::anyhow!("a background loop ended: {}", end_of_loop(ended)))
        }
    };
    (messaging, end)
}

/// Stops in the order in which others notice: HTTP, loops, lease of the relay and traces.
pub(super) async fn stop<S: Service, X>(
    app: &App<S, X>,
    mut loops: JoinSet<()>,
    messaging: AbortOnDropHandle<anyhow::Error>,
    serving: JoinHandle<()>,
    tracing: Tracing,
    end: &End,
) -> anyhow::Result<()> {
    app.stop.cancel();
    info!(service = S::NAME, "stopping");
    let served = serving.await;
    let ended = async {
        if !messaging.is_finished() {
            messaging.abort();
            let _ = messaging.await;
        }
        loops.shutdown().await;
    };
    if timeout(LOOPS_END_WITHIN, ended).await.is_err() {
        warn!("a loop does not end in time, and is left behind");
    }
    // Another replica need not wait until the lease lapses.
    let released = async {
        release_lease(app.store.as_ref(), &app.settings.instance).await;
        if matches!(end, End::Panicked(_)) {
            return;
        }
        if let Ok(Err(fault)) = timeout(RECORD_STOP_WITHIN, app.controls.overrides.record_stop()).await {
            warn!("stop not recorded, the next start counts a crash: {}", error_chain(&fault));
        }
    };
    join(released, tracing.finish()).await;
    served.map_err(Into::into)
}

async fn release_lease(store: &dyn Store, owner: &str) {
    let released = timeout(RELEASE_LEASE_WITHIN, store.release_lease(RELAY_LEASE, owner)).await;
    if let Ok(Err(fault)) = released {
        warn!("the relay's lease is not released and lapses: {}", error_chain(&fault));
    }
}

/// Resolves on SIGTERM and on Ctrl-C.
fn shutdown_signal() -> BoxFuture<'static, ()> {
    use tokio::signal::unix::{SignalKind, signal};
    Box::pin(async {
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            },
            Err(error) => {
                error!("no SIGTERM handler: {error}");
                let _ = tokio::signal::ctrl_c().await;
            }
        }
    })
}
