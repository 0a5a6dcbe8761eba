//! Shell: timers: due rows and retries become inputs; due tasks, and those with expired leases, go to the task queue.

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

use super::admission::{StepAdmission, StepPermit};
use super::clock::SharedClock;
use super::engine::Engine;
use super::error_throttle::ErrorThrottle;
use super::startup_backlog::StartupBacklog;
use super::task_queue::IsNew;
use crate::store::{DueQuery, Store, StoreFault};

/// Settings and dependencies of the timers.
#[derive(Clone)]
pub struct TimerSettings {
    /// Name of this instance, which claims tasks.
    pub owner: String,
    /// Duration of a claim, after which another process may take the task.
    pub task_lease: SignedDuration,
    /// Maximum delay of any retry.
    pub longest_delay: SignedDuration,
    /// Maximum number of rows, and of retries, in one scan.
    pub limit: usize,
    /// Maximum time between two scans.
    pub poll: Duration,
    /// Admissions of all steps, for permits of retries.
    pub admissions: Vec<StepAdmission>,
    /// Clock that decides what is due.
    pub clock: SharedClock,
    /// Messages that are processed before due rows.
    pub startup_backlog: StartupBacklog,
}

/// Runs until dropped: scans for what is due, submits it, and sleeps until the next due time.
///
/// Must be called before the engine accepts inputs: claims that are older than this call belong to the process before.
pub fn run<S: Service>(
    engine: Engine<S>,
    store: Arc<dyn Store>,
    settings: TimerSettings,
) -> impl Future<Output = ()> + Send {
    let began = settings.clock.now();
    let mut skipped = Skipped::default();
    let mut errors = ErrorThrottle::default();
    async move {
        let wake = engine.timer_wake();
        let mut recover_at = Some(match settings.clock.trusted() {
            // No deadline is judged by a time that may be wrong. Claims that this process makes until then are taken over too.
            Some(trusted) => {
                trusted.await;
                settings.clock.now()
            }
            None => began,
        });
        loop {
            // Armed before the scan: what is written after it finds the wake-up waiting.
            let woken = wake.notified();
            engine.timers_scan();
            match scan(&engine, store.as_ref(), &settings, &mut skipped, recover_at).await {
                Ok(scanned) => {
                    if errors.recovered() {
                        info!("store available again, timers continue");
                    }
                    recover_at = None;
                    if !scanned.is_full {
                        let pause = until(scanned.next, &settings);
                        engine.timers_sleep(pause);
                        tokio::select! {
                            _ = tokio::time::timeout(pause, woken) => {}
                            () = settings.startup_backlog.wait(), if !settings.startup_backlog.is_processed() => {}
                        }
                    }
                }
                Err(fault) => {
                    if let Some(what) = errors.failed(&fault) {
                        warn!("timers cannot read the store, retries and deadlines wait: {what}");
                    }
                    tokio::time::sleep(settings.poll).await;
                }
            }
        }
    }
}

struct Scanned {
    /// True if there may be more than the scan could take.
    is_full: bool,
    next: Option<Timestamp>,
}

/// Due items that cannot be processed, skipped for a while so that they do not block those behind them.
#[derive(Default)]
struct Skipped {
    /// Rows whose handler failed, each with the end of its skip.
    rows: BTreeMap<RowKey, Timestamp>,
    /// Steps with retries that this build does not have.
    steps: BTreeSet<String>,
}

/// Time for which a row whose handler failed is skipped. Each further failure is logged.
const SKIP_FOR: SignedDuration = SignedDuration::from_secs(30);

impl Skipped {
    /// Logs each step once whose retries wait for a build that has it.
    fn warn_about_unknown_steps(&mut self, with_retries: Vec<String>, settings: &TimerSettings) {
        let is_known = |step: &String| settings.admissions.iter().any(|own| own.step().name == step);
        for step in with_retries.into_iter().filter(|step| !is_known(step)) {
            if self.steps.insert(step.clone()) {
                warn!(step, "retries of a step that this build does not have wait for one that has it");
            }
        }
    }
}

/// Processes what is due. With `recover_at`, also takes over the claims of the process before.
async fn scan<S: Service>(
    engine: &Engine<S>,
    store: &dyn Store,
    settings: &TimerSettings,
    skipped: &mut Skipped,
    recover_at: Option<Timestamp>,
) -> Result<Scanned, StoreFault> {
    let now = recover_at.unwrap_or_else(|| settings.clock.now());
    skipped.rows.retain(|_, until| !is_over(*until, now, SKIP_FOR));
    let admission = engine.tasks().admission();
    let tasks = admission.task_room().min(settings.limit);
    let due = store.claim_due(due_query(settings, skipped, tasks, now, recover_at.is_some())).await?;

    let mut rows: Vec<_> = due.rows.into_iter().filter(|(key, _)| !skipped.rows.contains_key(key)).collect();
    // A deadline that fires too early cannot be taken back. Retries and calls do no harm.
    let must_wait = settings.clock.is_doubtful() || !settings.startup_backlog.is_processed();
    rows.truncate(if must_wait { 0 } else { settings.limit });
    skipped.warn_about_unknown_steps(due.retry_steps, settings);
    let retries = admitted(due.retries, settings);
    let mut is_full = [rows.len(), retries.len()].iter().any(|count| *count >= settings.limit);

    let is_any_left = due.tasks.len() == tasks;
    engine.tasks().start(due.tasks, IsNew::No);
    // Calls that ended since the query do not wake the timers any more.
    is_full |= admission.record_due_scan(is_any_left);
    let retried = retries.into_iter().map(|(admission, retry, mut permit)| async move {
        let input = Input::retry(admission.step(), retry, fastrand::u32(..))
            .with_injected_failure(permit.begin().failure);
        if let Ok(outcome) = engine.process(input).await {
            permit.complete(&outcome);
        }
    });
    let fired = rows.iter().map(|(key, due_at)| engine.process(Input::due(key.clone(), *due_at)));
    // What the engine cannot store now is still due at the next scan.
    let (outcomes, _) = tokio::join!(join_all(fired), join_all(retried));
    for ((key, _), outcome) in rows.into_iter().zip(outcomes) {
        if let Ok(Outcome::Due(DueOutcome::Faulted(_))) = outcome {
            skipped.rows.insert(key, now.checked_add(SKIP_FOR).unwrap_or(Timestamp::MAX));
        }
    }
    Ok(Scanned { is_full, next: due.next })
}

fn due_query(
    settings: &TimerSettings,
    skipped: &Skipped,
    tasks: usize,
    now: Timestamp,
    recover: bool,
) -> DueQuery {
    // Retries of blocked steps must not take up the room of others. Those of unknown steps are left to other builds.
    let open = settings.admissions.iter().filter(|admission| !admission.is_blocked());
    DueQuery {
        now,
        limit: settings.limit + skipped.rows.len(),
        tasks,
        steps: open.map(|admission| admission.step().name.to_owned()).collect(),
        owner: settings.owner.clone(),
        lease: settings.task_lease,
        longest_delay: settings.longest_delay,
        recover,
    }
}

/// Selects the retries that have a permit now. The others stay due.
fn admitted(due: Vec<Retry>, settings: &TimerSettings) -> Vec<(&StepAdmission, Retry, StepPermit)> {
    let mut admitted = Vec::new();
    for retry in due {
        let is_its = |admission: &&StepAdmission| admission.step().name == retry.step;
        if let Some(admission) = settings.admissions.iter().find(is_its)
            && admitted.len() < settings.limit
        {
            admitted.extend(admission.try_acquire().map(|permit| (admission, retry, permit)));
        }
    }
    admitted
}

fn until(next: Option<Timestamp>, settings: &TimerSettings) -> Duration {
    let now = settings.clock.now();
    let wait = next.map_or(SignedDuration::MAX, |next| next.duration_since(now));
    Duration::try_from(wait).unwrap_or(Duration::ZERO).min(settings.poll)
}
