//! Shell: the only writer of a database: a thread that merges waiting jobs into one commit, or the caller's own thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use saga_core::retry::{error_chain, panic_text};
use tokio::sync::oneshot;

use super::checkpoint::Checkpoints;
use super::connection::SharedConnection;
use super::db_location::DbLocation;
use super::db_open::PositionFile;
use super::run;
use crate::store::backend::Urgency;
use crate::store::highest_position::HighestPosition;
use crate::store::sql_error::{db_fault, is_locked};
use crate::store::write_health::WriteHealth;
use crate::store::{Answer, DatabasePosition, StoreFault};

/// Maximum number of jobs in one commit. A job is a whole batch; with more, the first would wait for the last.
const MERGED_JOBS: usize = 64;
/// Maximum number of jobs that wait for the writer. Further callers wait to hand over their jobs.
const WAITING_JOBS: usize = 256;
/// Time after which an [`Urgency::Deferrable`] job gets a commit of its own, unless another job brought one.
const DEFERRED_FOR: Duration = Duration::from_millis(100);

/// Work in a write transaction; called again if the transaction is repeated.
type Work = Box<dyn FnMut(&SharedConnection) -> Result<(), StoreFault> + Send>;

/// Job for the writer thread.
pub(super) struct Job {
    work: Work,
    done: oneshot::Sender<Result<(), StoreFault>>,
    urgency: Urgency,
}

pub(super) enum Writer {
    /// Thread of its own: the normal case. `Some` until dropped.
    Thread(Option<(SyncSender<Job>, JoinHandle<()>)>),
    /// Runs on the caller's thread, for the simulation, where nothing may run concurrently.
    Inline(SharedConnection),
}

impl Writer {
    /// Starts the writer thread.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(super) fn start(
        conn: SharedConnection,
        location: DbLocation,
        positions: PositionFile,
        checkpoints: Checkpoints,
        health: WriteHealth,
    ) -> std::io::Result<Self> {
        let (jobs, waiting) = sync_channel(WAITING_JOBS);
        let thread = std::thread::Builder::new()
            .name("sqlite-writer".to_owned())
            .spawn(move || write_jobs(&conn, &waiting, &location, &health, (positions, checkpoints)))?;
        Ok(Self::Thread(Some((jobs, thread))))
    }

    /// Runs `work` in a write transaction, merged with other waiting jobs.
    pub(super) fn write<T: Send + 'static>(
        &self,
        urgency: Urgency,
        mut work: impl FnMut(&SharedConnection) -> Result<T, StoreFault> + Send + 'static,
    ) -> Answer<'_, T> {
        let conn = match self {
            Self::Thread(writer) => {
                let jobs = writer.as_ref().map(|(jobs, _)| jobs.clone());
                return Box::pin(async move {
                    let jobs = jobs.ok_or(StoreFault::Closed)?;
                    let slot = Arc::new(Mutex::new(None));
                    let filled = slot.clone();
                    let work: Work = Box::new(move |conn| {
                        let answer = work(conn)?;
                        *filled.lock() = Some(answer);
                        Ok(())
                    });
                    let (done, finished) = oneshot::channel();
                    hand_over(&jobs, Job { work, done, urgency }).await?;
                    finished.await.map_err(|_| StoreFault::Closed)??;
                    let answer = slot.lock().take();
                    answer.ok_or(StoreFault::Closed)
                });
            }
            Self::Inline(conn) => conn,
        };
        let answer = in_transaction(conn, || work(conn));
        Box::pin(std::future::ready(answer))
    }
}

impl Drop for Writer {
    /// Waits until all handed-over jobs are written.
    fn drop(&mut self) {
        if let Self::Thread(writer) = self
            && let Some((jobs, thread)) = writer.take()
        {
            drop(jobs);
            // A panic of the writer was reported where it happened.
            let _ = thread.join();
        }
    }
}

/// Waits for room in the writer's queue, without blocking the runtime.
async fn hand_over(jobs: &SyncSender<Job>, mut job: Job) -> Result<(), StoreFault> {
    use std::sync::mpsc::TrySendError;
    loop {
        match jobs.try_send(job) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Disconnected(_)) => return Err(StoreFault::Closed),
            Err(TrySendError::Full(back)) => {
                job = back;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
}

/// Takes the next jobs for one transaction; `None` when all senders are gone.
fn next_jobs(waiting: &Receiver<Job>) -> Option<Vec<Job>> {
    let mut jobs = vec![waiting.recv().ok()?];
    let until = Instant::now() + DEFERRED_FOR;
    while jobs.len() < MERGED_JOBS {
        let are_deferrable = jobs.iter().all(|job| job.urgency == Urgency::Deferrable);
        let next = match are_deferrable {
            true => waiting.recv_timeout(until.saturating_duration_since(Instant::now())).ok(),
            false => waiting.try_recv().ok(),
        };
        match next {
            Some(job) => jobs.push(job),
            None => break,
        }
    }
    Some(jobs)
}

/// Loop of the writer thread: takes waiting jobs, runs them in one transaction, commits, replies.
fn write_jobs(
    conn: &SharedConnection,
    waiting: &Receiver<Job>,
    location: &DbLocation,
    health: &WriteHealth,
    (mut positions, mut checkpoints): (PositionFile, Checkpoints),
) {
    while let Some(mut jobs) = next_jobs(waiting) {
        let highest = positions.highest().clone();
        let in_progress = jobs.iter().any(|job| job.urgency.is_short()).then(|| health.begin());
        let merged = in_order(conn, &highest, || jobs.iter_mut().try_for_each(|job| (job.work)(conn)));
        if let Some(in_progress) = in_progress {
            in_progress.end(&merged);
        }
        // Checked after the commit: the file may be replaced until then.
        let is_in_place = location.check().is_ok();
        match merged {
            Ok(()) if !is_in_place => jobs.into_iter().for_each(|job| reply(job, location.check())),
            Ok(()) => jobs.into_iter().for_each(|job| reply(job, Ok(()))),
            // None of them would get the lock either, and each would wait for it.
            Err(fault) if is_locked(&fault) => {
                let reason = error_chain(&fault);
                for job in jobs {
                    let source = reason.clone().into();
                    reply(job, Err(StoreFault::Database { context: "writing a batch", source }));
                }
            }
            // One job failed, so that none is committed. Each gets a transaction and a reply of its own.
            Err(_) if jobs.len() > 1 => {
                for mut job in jobs {
                    let answer = in_order(conn, &highest, || (job.work)(conn));
                    reply(job, answer.and_then(|()| location.check()));
                }
            }
            Err(fault) => {
                if let Some(job) = jobs.pop() {
                    reply(job, Err(fault));
                }
            }
        }
        positions.write_if_due(conn);
        checkpoints.run_if_due(&conn.lock());
    }
    positions.write(conn);
    checkpoints.finish(&conn.lock());
}

fn reply(job: Job, answer: Result<(), StoreFault>) {
    // The caller may have given up.
    let _ = job.done.send(answer);
}

/// Runs `work` in a write transaction on a database that has not gone back in time.
fn in_order(
    conn: &SharedConnection,
    highest: &HighestPosition,
    work: impl FnOnce() -> Result<(), StoreFault>,
) -> Result<(), StoreFault> {
    let committed = in_transaction(conn, || {
        highest.check()?;
        run(highest.read(conn))?;
        work()?;
        run(DatabasePosition::read(conn)).map_err(db_fault("reading the position of the database"))
    })?;
    highest.raise(&committed);
    Ok(())
}

/// Runs `work` in a write transaction, which is rolled back if `work` fails or panics.
pub(super) fn in_transaction<T>(
    conn: &SharedConnection,
    work: impl FnOnce() -> Result<T, StoreFault>,
) -> Result<T, StoreFault> {
    let execute = |sql| conn.lock().prepare_cached(sql).and_then(|mut statement| statement.execute([]));
    execute("BEGIN IMMEDIATE").map_err(db_fault("beginning"))?;
    let worked = catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(StoreFault::Panicked(panic_text(panic.as_ref()).to_owned())));
    let committed = worked.and_then(|answer| {
        execute("COMMIT").map_err(db_fault("committing"))?;
        Ok(answer)
    });
    if committed.is_err() && !conn.lock().is_autocommit() {
        // The first fault is the one to report.
        let _ = conn.lock().execute_batch("ROLLBACK");
    }
    committed
}
