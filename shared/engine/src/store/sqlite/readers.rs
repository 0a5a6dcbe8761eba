//! Shell: the readers' connections, in lanes: what must be quick never waits behind what takes long, and what nobody
//! waits for any more is interrupted.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::{Connection, OpenFlags};
use saga_core::retry::panic_text;
use tokio::sync::Semaphore;

use super::checkpoint::LogLength;
use super::values::oops;
use super::{CACHE_KIB, prepare_once};
use crate::store::{Answer, StoreFault};

/// Steps of SQLite's machine between two looks at whether anybody still waits: some tens of microseconds.
const STEPS_BETWEEN_LOOKS: i32 = 1_000;

/// What takes long waits for a moment when the log begins anew: so long at most, and looks so often.
const GIVES_WAY_FOR: Duration = Duration::from_secs(2);
const LOOKS_AGAIN_AFTER: Duration = Duration::from_millis(5);

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
    log: LogLength,
}

struct Connections {
    /// As many as there are connections.
    free: Arc<Semaphore>,
    idle: Mutex<Vec<Connection>>,
    /// Closed after them: with it SQLite's locks would go.
    _file: Arc<File>,
}

impl Readers {
    /// Opens them all, of the database at `path`, which is open as `file` beside them and has this log.
    pub(super) fn open(path: &Path, file: &Arc<File>, log: LogLength) -> rusqlite::Result<Self> {
        let connections = |(lane, count): (Lane, usize)| -> rusqlite::Result<_> {
            let idle = (0..count).map(|_| open_reader(path)).collect::<Result<_, _>>()?;
            let free = Arc::new(Semaphore::new(count));
            let connections = Connections { free, idle: Mutex::new(idle), _file: file.clone() };
            Ok((lane, Arc::new(connections)))
        };
        Ok(Self { lanes: Lane::ALL.into_iter().map(connections).collect::<Result<_, _>>()?, log })
    }

    /// Runs `work` on a connection of this lane. Dropped, it leaves its lane, and interrupts what it had begun.
    pub(super) fn read<T: Send + 'static>(
        &self,
        lane: Lane,
        work: impl FnOnce(&Connection) -> Result<T, StoreFault> + Send + 'static,
    ) -> Answer<'static, T> {
        let connections = self.lanes.iter().find(|(of, _)| *of == lane).map(|(_, lane)| lane.clone());
        let log = (lane == Lane::Audit).then(|| self.log.clone());
        Box::pin(async move {
            let connections = connections.ok_or(StoreFault::Closed)?;
            let place = connections.free.clone().acquire_owned().await.map_err(|_| StoreFault::Closed)?;
            // A log of which somebody reads the beginning at every moment never begins anew.
            if let Some(log) = log {
                give_way(&log).await;
            }
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

/// Waits while the log is far too long, for a while.
async fn give_way(log: &LogLength) {
    let anew = async {
        while log.is_overdue() {
            tokio::time::sleep(LOOKS_AGAIN_AFTER).await;
        }
    };
    // One reader that takes long keeps it from that: nothing is won by waiting longer.
    let _ = tokio::time::timeout(GIVES_WAY_FOR, anew).await;
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

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    /// Readers of a database that says that its log is so long.
    fn readers(pages: u32) -> (tempfile::TempDir, Readers, LogLength) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("some.db");
        Connection::open(&path)
            .and_then(|conn| conn.execute_batch("CREATE TABLE t (x)"))
            .expect("a database");
        let (file, log) = (File::open(&path).expect("a file"), LogLength::default());
        log.set(pages);
        (folder, Readers::open(&path, &Arc::new(file), log.clone()).expect("readers"), log)
    }

    #[tokio::test]
    async fn what_takes_long_gives_way_to_a_log_that_is_far_too_long_and_nothing_else_does() {
        let (_folder, readers, log) = readers(1_000_000);
        let mut audit = readers.read(Lane::Audit, |_| Ok(()));
        assert!(audit.as_mut().now_or_never().is_none());
        readers.read(Lane::Row, |_| Ok(())).await.expect("a row");
        assert!(audit.as_mut().now_or_never().is_none());
        log.set(1);
        audit.await.expect("an audit");
    }

    #[tokio::test(start_paused = true)]
    async fn it_gives_way_for_a_while_only() {
        let (_folder, readers, _log) = readers(1_000_000);
        let began = tokio::time::Instant::now();
        readers.read(Lane::Audit, |_| Ok(())).await.expect("an audit");
        assert!(began.elapsed() >= GIVES_WAY_FOR);
    }
}
