//! Shell: the one writer of a database: a thread that merges what waits into one commit; or whoever calls.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rusqlite::Connection;
use saga_core::retry::panic_text;
use tokio::sync::oneshot;

use super::checkpoint::Checkpoints;
use super::opening::MarkFile;
use super::place::Place;
use super::values::oops;
use crate::store::{Answer, StoreFault};

/// Jobs that one commit may carry. A job is a whole batch; more would make the first wait for the last.
const MERGED_JOBS: usize = 64;
/// Jobs that may wait for the writer; a caller beyond that waits with its job in hand.
const WAITING_JOBS: usize = 256;
/// So long may a job that nobody waits for be carried along until another needs a commit, before it gets its own.
const CARRIED_FOR: Duration = Duration::from_millis(100);

/// Work inside a write transaction; called again when the transaction has to be repeated.
type Work = Box<dyn FnMut(&Connection) -> Result<(), StoreFault> + Send>;

/// What the thread is handed.
pub(super) struct Job {
    work: Work,
    done: oneshot::Sender<Result<(), StoreFault>>,
    haste: Haste,
}

/// Whether somebody waits for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Haste {
    /// It is committed at once, with whatever else waits.
    Now,
    /// It waits for another commit, for [`CARRIED_FOR`] at most.
    Carried,
}

pub(super) enum Writer {
    /// A thread of its own: the normal way. Both are there until this is dropped.
    Thread(Option<(SyncSender<Job>, JoinHandle<()>)>),
    /// On the caller's thread: for the simulation, where nothing may run beside it.
    Inline(Mutex<Connection>),
}

impl Writer {
    /// Starts a thread that writes.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub(super) fn start(
        conn: Connection,
        place: Place,
        marks: MarkFile,
        checkpoints: Checkpoints,
    ) -> std::io::Result<Self> {
        let (jobs, waiting) = sync_channel(WAITING_JOBS);
        let thread = std::thread::Builder::new()
            .name("sqlite-writer".to_owned())
            .spawn(move || write_jobs(&conn, &waiting, &place, marks, checkpoints))?;
        Ok(Self::Thread(Some((jobs, thread))))
    }

    /// Runs `work` in a write transaction, merged with whatever else waits.
    pub(super) fn write<T: Send + 'static>(
        &self,
        haste: Haste,
        mut work: impl FnMut(&Connection) -> Result<T, StoreFault> + Send + 'static,
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
                    hand_over(&jobs, Job { work, done, haste }).await?;
                    finished.await.map_err(|_| StoreFault::Closed)??;
                    let answer = slot.lock().take();
                    answer.ok_or(StoreFault::Closed)
                });
            }
            Self::Inline(conn) => conn.lock(),
        };
        let answer = in_transaction(&conn, || work(&conn));
        Box::pin(std::future::ready(answer))
    }
}

impl Drop for Writer {
    /// Waits for the thread: what was handed over is written.
    fn drop(&mut self) {
        if let Self::Thread(writer) = self
            && let Some((jobs, thread)) = writer.take()
        {
            drop(jobs);
            // A writer that panicked has nothing more to say.
            let _ = thread.join();
        }
    }
}

/// Waits for a place in the writer's queue without holding up the runtime.
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

/// The next jobs for one transaction; `None` when there will be none any more.
fn next_jobs(waiting: &Receiver<Job>) -> Option<Vec<Job>> {
    let mut jobs = vec![waiting.recv().ok()?];
    let until = Instant::now() + CARRIED_FOR;
    while jobs.len() < MERGED_JOBS {
        let is_carried = jobs.iter().all(|job| job.haste == Haste::Carried);
        // What is carried waits for others; they are gone when nobody can send any more.
        let next = match is_carried {
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

/// The writer thread: takes what waits, runs it in one transaction, commits, tells everyone.
fn write_jobs(
    conn: &Connection,
    waiting: &Receiver<Job>,
    place: &Place,
    mut marks: MarkFile,
    mut checkpoints: Checkpoints,
) {
    while let Some(mut jobs) = next_jobs(waiting) {
        let merged = in_transaction(conn, || jobs.iter_mut().try_for_each(|job| (job.work)(conn)));
        // After the commit: only then is it known where that went.
        let is_there = place.check().is_ok();
        match merged {
            Ok(()) if !is_there => jobs.into_iter().for_each(|job| tell(job, place.check())),
            Ok(()) => jobs.into_iter().for_each(|job| tell(job, Ok(()))),
            // One of them failed, so none is committed. Each gets a transaction of its own, and its own answer.
            Err(_) if jobs.len() > 1 => {
                for mut job in jobs {
                    let answer = in_transaction(conn, || (job.work)(conn));
                    tell(job, answer.and_then(|()| place.check()));
                }
            }
            Err(fault) => {
                if let Some(job) = jobs.pop() {
                    tell(job, Err(fault));
                }
            }
        }
        marks.write_now_and_then(conn);
        checkpoints.now_and_then(conn);
    }
    marks.write(conn);
    checkpoints.finish(conn);
}

fn tell(job: Job, answer: Result<(), StoreFault>) {
    // Whoever asked may be gone: then nobody needs the answer.
    let _ = job.done.send(answer);
}

pub(super) fn in_transaction<T>(
    conn: &Connection,
    work: impl FnOnce() -> Result<T, StoreFault>,
) -> Result<T, StoreFault> {
    conn.prepare_cached("BEGIN IMMEDIATE")
        .and_then(|mut begin| begin.execute([]))
        .map_err(oops("beginning"))?;
    let worked = catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(StoreFault::Panicked(panic_text(panic.as_ref()).to_owned())));
    let committed = worked.and_then(|answer| {
        conn.prepare_cached("COMMIT")
            .and_then(|mut commit| commit.execute([]))
            .map_err(oops("committing"))?;
        Ok(answer)
    });
    if committed.is_err() && !conn.is_autocommit() {
        // Nothing to add to the fault that is already on its way.
        let _ = conn.execute_batch("ROLLBACK");
    }
    committed
}
