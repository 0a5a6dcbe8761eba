//! Shell: due rows, due retries and lapsed tasks come back as inputs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use tracing::warn;
use uuid::Uuid;

use super::input::{Earlier, Input, Outcome};
use super::{Engine, error_chain};
use crate::row::RowKey;
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
    let mut stuck = Stuck::default();
    async move {
        let wake = engine.timer_wake();
        loop {
            // Armed before looking: what is written after the look finds the wake-up already waiting.
            let woken = wake.notified();
            match fire(&engine, store.as_ref(), &settings, &mut stuck, earlier_life).await {
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

/// What is due but cannot be settled here: passed over for a while, so that it holds up nothing behind it.
#[derive(Default)]
struct Stuck {
    /// Rows whose reaction broke, until when they are passed over.
    rows: BTreeMap<RowKey, Timestamp>,
    /// Retries of steps that this build does not have.
    retries: BTreeSet<Uuid>,
}

/// How long a row whose reaction broke is passed over; each time it breaks again, the log says so.
const STUCK_FOR: SignedDuration = SignedDuration::from_secs(30);

impl Stuck {
    fn len(&self) -> usize {
        self.rows.len() + self.retries.len()
    }
}

/// One look: everything that is due is settled when this returns.
async fn fire<S: Service>(
    engine: &Engine<S>,
    store: &dyn Store,
    settings: &TimerSettings,
    stuck: &mut Stuck,
    earlier_life: Option<Timestamp>,
) -> Result<Fired, StoreFault> {
    let recover = earlier_life.is_some();
    let now = earlier_life.unwrap_or_else(Timestamp::now);
    let lease_until = now.checked_add(settings.task_lease).unwrap_or(Timestamp::MAX);
    stuck.rows.retain(|_, until| *until > now);
    let limit = settings.limit + stuck.len();
    let due = store.due(now, limit, &settings.owner, lease_until, recover).await?;

    let mut rows: Vec<_> = due.rows.into_iter().filter(|(key, _)| !stuck.rows.contains_key(key)).collect();
    rows.truncate(settings.limit);
    let known_stuck = stuck.len();
    let mut retries = Vec::new();
    for retry in due.retries {
        match S::steps().iter().find(|step| step.name == retry.step) {
            Some(step) => retries.push((step, retry)),
            None if stuck.retries.insert(retry.message_id) => {
                warn!(step = retry.step, message_id = %retry.message_id, "waits for a step that is not here");
            }
            None => {}
        }
    }
    retries.truncate(settings.limit);
    // What is newly stuck took up places in this look.
    let is_full = stuck.len() > known_stuck
        || [rows.len(), retries.len(), due.tasks.len()].iter().any(|count| *count >= settings.limit);

    engine.calls().start(due.tasks);
    let retried = retries.into_iter().map(|(step, retry)| {
        let earlier = Earlier { attempts: retry.attempts, first_failed_at: retry.first_failed_at };
        engine.settle(Input::message(step, retry.payload, retry.message_id, Some(earlier), fastrand::u32(..)))
    });
    let fired = rows.iter().map(|(key, due_at)| engine.settle(Input::due(key.clone(), *due_at)));
    // What the engine cannot take now is still due at the next look.
    let (outcomes, _) = tokio::join!(join_all(fired), join_all(retried));
    for ((key, _), outcome) in rows.into_iter().zip(outcomes) {
        if let Ok(Outcome::Faulted(_)) = outcome {
            stuck.rows.insert(key, now.checked_add(STUCK_FOR).unwrap_or(Timestamp::MAX));
        }
    }
    Ok(Fired { is_full, next: due.next })
}

fn until(next: Option<Timestamp>, poll: Duration) -> Duration {
    let wait = next.map_or(SignedDuration::MAX, |next| next.duration_since(Timestamp::now()));
    Duration::try_from(wait).unwrap_or(Duration::ZERO).min(poll)
}
