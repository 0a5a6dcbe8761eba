//! Shell: due rows, due retries and lapsed tasks come back as inputs.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use tracing::warn;

use super::input::{Earlier, Input};
use super::{Engine, error_chain};
use crate::service::Service;
use crate::store::{Store, StoreFault};

/// The timers' settings.
#[derive(Debug, Clone)]
pub struct TimerSettings {
    /// Who claims tasks.
    pub owner: String,
    /// For how long.
    pub task_lease: SignedDuration,
    /// At most this many of each sort at once.
    pub limit: usize,
    /// Looks at least this often.
    pub poll: Duration,
}

/// Runs until dropped: looks for what is due, hands it in, sleeps until the next thing is.
///
/// Call it before the engine takes anything in: what is older than this call belongs to an earlier life.
pub fn run<S: Service>(
    engine: Engine<S>,
    store: Arc<dyn Store>,
    settings: TimerSettings,
) -> impl Future<Output = ()> + Send {
    let mut earlier_life = Some(Timestamp::now());
    async move {
        let wake = engine.timer_wake();
        loop {
            // Armed before looking: what is written after the look finds the wake-up already waiting.
            let woken = wake.notified();
            match fire(&engine, store.as_ref(), &settings, earlier_life).await {
                Ok(fired) => {
                    earlier_life = None;
                    if !fired.is_full {
                        let _ = tokio::time::timeout(until(fired.next, settings.poll), woken).await;
                    }
                }
                Err(fault) => {
                    warn!("timers cannot look: {}", error_chain(&fault));
                    tokio::time::sleep(settings.poll).await;
                }
            }
        }
    }
}

/// What one look came to.
struct Fired {
    /// There may be more than it could take.
    is_full: bool,
    /// When the next thing will come due.
    next: Option<Timestamp>,
}

/// One look: everything that is due is settled when this returns.
async fn fire<S: Service>(
    engine: &Engine<S>,
    store: &dyn Store,
    settings: &TimerSettings,
    earlier_life: Option<Timestamp>,
) -> Result<Fired, StoreFault> {
    let recover = earlier_life.is_some();
    let now = earlier_life.unwrap_or_else(Timestamp::now);
    let lease_until = now.checked_add(settings.task_lease).unwrap_or(Timestamp::MAX);
    let due = store.due(now, settings.limit, &settings.owner, lease_until, recover).await?;
    let is_full =
        [due.rows.len(), due.retries.len(), due.tasks.len()].iter().any(|count| *count >= settings.limit);
    engine.calls().start(due.tasks);
    let rows = due.rows.iter().map(|(key, due_at)| Input::due(key.clone(), *due_at));
    let retries = due.retries.iter().filter_map(|retry| {
        let step = S::steps().iter().find(|step| step.name == retry.step)?;
        let earlier = Earlier { attempts: retry.attempts, first_failed_at: retry.first_failed_at };
        Some(Input::message(step, retry.payload.clone(), retry.message_id, Some(earlier), fastrand::u32(..)))
    });
    // What the engine cannot take now is still due at the next look.
    join_all(rows.chain(retries).map(|input| engine.settle(input))).await;
    Ok(Fired { is_full, next: due.next })
}

fn until(next: Option<Timestamp>, poll: Duration) -> Duration {
    let wait = next.map_or(SignedDuration::MAX, |next| next.duration_since(Timestamp::now()));
    Duration::try_from(wait).unwrap_or(Duration::ZERO).min(poll)
}
