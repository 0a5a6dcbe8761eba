//! Shell: due rows, due retries and lapsed tasks come back as inputs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use saga_core::input::{DueOutcome, Input, Outcome};
use saga_core::row::RowKey;
use saga_core::service::Service;
use saga_core::waiting::{Retry, is_over};
use tracing::{info, warn};
use uuid::Uuid;

use super::admission::{StepAdmission, StepPermit};
use super::clock::SharedClock;
use super::engine::Engine;
use super::task_runner::IsNew;
use super::trouble::Trouble;
use crate::store::{DueQuery, Store, StoreFault};

/// The timers' settings.
#[derive(Clone)]
pub struct TimerSettings {
    /// Who claims tasks.
    pub owner: String,
    /// For how long.
    pub task_lease: SignedDuration,
    /// The longest that anything waits for another try.
    pub longest_delay: SignedDuration,
    /// At most this many of each sort at once.
    pub limit: usize,
    /// Looks at least this often.
    pub poll: Duration,
    /// What stands before each step.
    pub admissions: Vec<StepAdmission>,
    /// The time of day.
    pub clock: SharedClock,
}

/// Runs until dropped: looks for what is due, hands it in, sleeps until the next thing is.
///
/// Call it before the engine takes anything in: what is older than this call belongs to an earlier life.
pub fn run<S: Service>(
    engine: Engine<S>,
    store: Arc<dyn Store>,
    settings: TimerSettings,
) -> impl Future<Output = ()> + Send {
    let began = settings.clock.now();
    let mut stuck = Stuck::default();
    let mut trouble = Trouble::default();
    async move {
        let wake = engine.timer_wake();
        let mut earlier_life = Some(match settings.clock.trusted() {
            // By a time that may be wrong nothing is due. What this life has claimed meanwhile is claimed again.
            Some(trusted) => {
                trusted.await;
                settings.clock.now()
            }
            None => began,
        });
        loop {
            // Armed before looking: what is written after the look finds the wake-up already waiting.
            let woken = wake.notified();
            engine.timers_look_now();
            match fire(&engine, store.as_ref(), &settings, &mut stuck, earlier_life).await {
                Ok(fired) => {
                    if trouble.ended() {
                        info!("timers look again");
                    }
                    earlier_life = None;
                    if !fired.is_full {
                        let pause = until(fired.next, &settings);
                        engine.timers_look_in(pause);
                        let _ = tokio::time::timeout(pause, woken).await;
                    }
                }
                Err(fault) => {
                    if let Some(what) = trouble.met(&fault) {
                        warn!("timers cannot look: {what}");
                    }
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
    let now = earlier_life.unwrap_or_else(|| settings.clock.now());
    stuck.rows.retain(|_, until| !is_over(*until, now, STUCK_FOR));
    let admission = engine.tasks().admission();
    let tasks = admission.task_room().min(settings.limit);
    let due = store.claim_due(due_query(settings, stuck, tasks, now, recover)).await?;

    let mut rows: Vec<_> = due.rows.into_iter().filter(|(key, _)| !stuck.rows.contains_key(key)).collect();
    rows.truncate(settings.limit);
    let known_stuck = stuck.len();
    let retries = admitted(due.retries, settings, stuck);
    // What is newly stuck took up places in this look.
    let mut is_full =
        stuck.len() > known_stuck || [rows.len(), retries.len()].iter().any(|count| *count >= settings.limit);

    let is_any_left = due.tasks.len() == tasks;
    engine.tasks().start(due.tasks, IsNew::No);
    // Calls that ended since the look tell nobody any more.
    is_full |= admission.looked_for_due(is_any_left);
    let retried = retries.into_iter().map(|(admission, retry, mut permit)| async move {
        let input = Input::retry(admission.step(), retry, fastrand::u32(..))
            .with_injected_failure(permit.begin().failure);
        if let Ok(outcome) = engine.settle(input).await {
            permit.ended(&outcome);
        }
    });
    let fired = rows.iter().map(|(key, due_at)| engine.settle(Input::due(key.clone(), *due_at)));
    // What the engine cannot take now is still due at the next look.
    let (outcomes, _) = tokio::join!(join_all(fired), join_all(retried));
    for ((key, _), outcome) in rows.into_iter().zip(outcomes) {
        if let Ok(Outcome::Due(DueOutcome::Faulted(_))) = outcome {
            stuck.rows.insert(key, now.checked_add(STUCK_FOR).unwrap_or(Timestamp::MAX));
        }
    }
    Ok(Fired { is_full, next: due.next })
}

fn due_query(
    settings: &TimerSettings,
    stuck: &Stuck,
    tasks: usize,
    now: Timestamp,
    recover: bool,
) -> DueQuery {
    // What waits for an open breaker must not take up the places of what does not.
    let shut = settings.admissions.iter().filter(|admission| admission.is_shut());
    DueQuery {
        now,
        limit: settings.limit + stuck.len(),
        tasks,
        paused: shut.map(|admission| admission.step().name.to_owned()).collect(),
        owner: settings.owner.clone(),
        lease: settings.task_lease,
        longest_delay: settings.longest_delay,
        recover,
    }
}

/// The retries that may be tried now; the others stay due.
fn admitted<'s>(
    due: Vec<Retry>,
    settings: &'s TimerSettings,
    stuck: &mut Stuck,
) -> Vec<(&'s StepAdmission, Retry, StepPermit)> {
    let mut admitted = Vec::new();
    for retry in due {
        let is_its = |admission: &&StepAdmission| admission.step().name == retry.step;
        match settings.admissions.iter().find(is_its) {
            Some(admission) if admitted.len() < settings.limit => {
                admitted.extend(admission.permit().map(|permit| (admission, retry, permit)));
            }
            Some(_) => {}
            None if stuck.retries.insert(retry.message_id) => {
                warn!(step = retry.step, message_id = %retry.message_id, "waits for a step that is not here");
            }
            None => {}
        }
    }
    admitted
}

fn until(next: Option<Timestamp>, settings: &TimerSettings) -> Duration {
    let now = settings.clock.now();
    let wait = next.map_or(SignedDuration::MAX, |next| next.duration_since(now));
    Duration::try_from(wait).unwrap_or(Duration::ZERO).min(settings.poll)
}
