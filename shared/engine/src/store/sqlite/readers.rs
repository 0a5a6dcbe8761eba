//! Shell: the readers' connections, in lanes: what must be quick never waits behind what takes long, and what nobody
//! waits for any more is interrupted.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::{Connection, OpenFlags};
use saga_core::retry::panic_text;
use tokio::sync::Semaphore;

use super::values::oops;
use super::{CACHE_KIB, prepare_once};
use crate::store::{Answer, StoreFault};

/// Steps of SQLite's machine between two looks at whether anybody still waits: some tens of microseconds.
const STEPS_BETWEEN_LOOKS: i32 = 1_000;

/// What is read, by how long it may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    /// The relay's look at the outbox.
    Relay,
    /// How much waits: readiness, and the metrics.
    Health,
    /// One row, or one page of its history.
    Row,
    /// Lists and counts.
    Scan,
    /// All rows against their events; one at a time.
    Audit,
}

impl Lane {
    /// Each with its connections.
    const ALL: [(Self, usize); 5] =
        [(Self::Relay, 1), (Self::Health, 1), (Self::Row, 2), (Self::Scan, 2), (Self::Audit, 1)];
}

/// All lanes of one database.
pub(super) struct Readers {
    lanes: Vec<(Lane, Arc<Connections>)>,
}

struct Connections {
    /// As many as there are connections.
    free: Arc<Semaphore>,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    /// Opens them all.
    pub(super) fn open(path: &Path) -> rusqlite::Result<Self> {
        let connections = |(lane, count): (Lane, usize)| -> rusqlite::Result<_> {
            let idle = (0..count).map(|_| open_reader(path)).collect::<Result<_, _>>()?;
            let free = Arc::new(Semaphore::new(count));
            Ok((lane, Arc::new(Connections { free, idle: Mutex::new(idle) })))
        };
        Ok(Self { lanes: Lane::ALL.into_iter().map(connections).collect::<Result<_, _>>()? })
    }

    /// Runs `work` on a connection of this lane. Dropped, it leaves its lane, and interrupts what it had begun.
    pub(super) fn read<T: Send + 'static>(
        &self,
        lane: Lane,
        work: impl FnOnce(&Connection) -> Result<T, StoreFault> + Send + 'static,
    ) -> Answer<'static, T> {
        let connections = self.lanes.iter().find(|(of, _)| *of == lane).map(|(_, lane)| lane.clone());
        Box::pin(async move {
            let connections = connections.ok_or(StoreFault::Closed)?;
            let place = connections.free.clone().acquire_owned().await.map_err(|_| StoreFault::Closed)?;
            let waiting = Waiting::default();
            let is_abandoned = waiting.0.clone();
            let reading = tokio::task::spawn_blocking(move || {
                let taken = connections.idle.lock().pop();
                let mut conn = taken.ok_or(StoreFault::Closed)?;
                let answer = read(&mut conn, is_abandoned, work);
                connections.idle.lock().push(conn);
                drop(place);
                answer
            });
            let answer = reading.await.unwrap_or(Err(StoreFault::Closed));
            drop(waiting);
            answer
        })
    }
}

/// Somebody waits, until this is dropped.
#[derive(Default)]
struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Reads one snapshot.
fn read<T>(
    conn: &mut Connection,
    is_abandoned: Arc<AtomicBool>,
    work: impl FnOnce(&Connection) -> Result<T, StoreFault>,
) -> Result<T, StoreFault> {
    let context = "watching whether anybody waits";
    let watch = move || is_abandoned.load(Ordering::Relaxed);
    conn.progress_handler(STEPS_BETWEEN_LOOKS, Some(watch)).map_err(oops(context))?;
    let answer = catch_unwind(AssertUnwindSafe(|| in_snapshot(conn, work)));
    conn.progress_handler(0, None::<fn() -> bool>).map_err(oops(context))?;
    // Whatever ended it, the next one begins with a snapshot of its own.
    if !conn.is_autocommit() {
        conn.execute_batch("ROLLBACK").map_err(oops("leaving a snapshot"))?;
    }
    answer.unwrap_or_else(|panic| Err(StoreFault::Panicked(panic_text(panic.as_ref()).to_owned())))
}

fn in_snapshot<T>(
    conn: &Connection,
    work: impl FnOnce(&Connection) -> Result<T, StoreFault>,
) -> Result<T, StoreFault> {
    conn.execute_batch("BEGIN").map_err(oops("beginning to read"))?;
    let answer = work(conn)?;
    conn.execute_batch("COMMIT").map_err(oops("ending a read"))?;
    Ok(answer)
}

fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let conn = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    prepare_once(&conn)?;
    conn.busy_timeout(Duration::from_secs(5))?;
    conn.pragma_update(None, "cache_size", -CACHE_KIB / 8)?;
    Ok(conn)
}
