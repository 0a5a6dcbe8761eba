//! Shell: read connections, in lanes, so that short reads never wait for long ones. A read whose future is dropped is
//! interrupted.

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
use super::connection::SharedConnection;
use super::{CACHE_KIB, prepare_once};
use crate::store::backend::Lane;
use crate::store::sql_error::db_fault;
use crate::store::{Answer, StoreFault};

/// Interval of checks for dropped futures, in steps of SQLite's virtual machine: some tens of microseconds.
const STEPS_BETWEEN_CHECKS: i32 = 1_000;

/// Maximum time for which a long read waits for an overlong log to restart.
const YIELDS_FOR: Duration = Duration::from_secs(2);
/// Interval of checks for that restart.
const CHECK_EVERY: Duration = Duration::from_millis(5);

/// All lanes, with their numbers of connections.
const LANES: [(Lane, usize); 5] =
    [(Lane::Relay, 1), (Lane::Health, 1), (Lane::Row, 2), (Lane::Scan, 2), (Lane::Verification, 1)];

/// Read connections of a database.
pub(super) struct Readers {
    lanes: Vec<(Lane, Arc<Connections>)>,
    log: LogLength,
}

struct Connections {
    /// Permits, one for each idle connection.
    free: Arc<Semaphore>,
    idle: Mutex<Vec<SharedConnection>>,
    /// Closed after the connections: closing a file of the database ends SQLite's locks on it.
    _file: Arc<File>,
}

impl Readers {
    /// Opens all connections to the database at `path`, which is also open as `file`.
    pub(super) fn open(path: &Path, file: &Arc<File>, log: LogLength) -> rusqlite::Result<Self> {
        let connections = |(lane, count): (Lane, usize)| -> rusqlite::Result<_> {
            let idle = (0..count).map(|_| open_reader(path)).collect::<Result<_, _>>()?;
            let free = Arc::new(Semaphore::new(count));
            let connections = Connections { free, idle: Mutex::new(idle), _file: file.clone() };
            Ok((lane, Arc::new(connections)))
        };
        Ok(Self { lanes: LANES.into_iter().map(connections).collect::<Result<_, _>>()?, log })
    }

    /// Runs `work` on a connection of this lane. Dropping the future interrupts it.
    pub(super) fn read<T: Send + 'static>(
        &self,
        lane: Lane,
        work: impl FnOnce(&SharedConnection) -> Result<T, StoreFault> + Send + 'static,
    ) -> Answer<'static, T> {
        let connections = self.lanes.iter().find(|(of, _)| *of == lane).map(|(_, lane)| lane.clone());
        let log = (lane == Lane::Verification).then(|| self.log.clone());
        Box::pin(async move {
            let connections = connections.ok_or(StoreFault::Closed)?;
            let permit = connections.free.clone().acquire_owned().await.map_err(|_| StoreFault::Closed)?;
            // A log whose beginning is being read at every moment never restarts.
            if let Some(log) = log {
                wait_for_restart(&log).await;
            }
            let caller = Caller::default();
            let is_dropped = caller.0.clone();
            let reading = tokio::task::spawn_blocking(move || {
                let taken = connections.idle.lock().pop();
                let mut conn = taken.ok_or(StoreFault::Closed)?;
                let answer = read(&mut conn, is_dropped, work);
                connections.idle.lock().push(conn);
                drop(permit);
                answer
            });
            let answer = reading.await.unwrap_or(Err(StoreFault::Closed));
            drop(caller);
            answer
        })
    }
}

/// Waits for a limited time while the log is overlong.
async fn wait_for_restart(log: &LogLength) {
    let restarted = async {
        while log.is_overdue() {
            tokio::time::sleep(CHECK_EVERY).await;
        }
    };
    // Another long read prevents the restart: waiting longer would not help.
    let _ = tokio::time::timeout(YIELDS_FOR, restarted).await;
}

/// Caller of a read. Sets the flag when it is dropped.
#[derive(Default)]
struct Caller(Arc<AtomicBool>);

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `work` in one snapshot.
fn read<T>(
    conn: &mut SharedConnection,
    is_dropped: Arc<AtomicBool>,
    work: impl FnOnce(&SharedConnection) -> Result<T, StoreFault>,
) -> Result<T, StoreFault> {
    let context = "preparing to interrupt a read";
    let is_dropped = move || is_dropped.load(Ordering::Relaxed);
    conn.get_mut().progress_handler(STEPS_BETWEEN_CHECKS, Some(is_dropped)).map_err(db_fault(context))?;
    let answer = catch_unwind(AssertUnwindSafe(|| in_snapshot(conn, work)));
    conn.get_mut().progress_handler(0, None::<fn() -> bool>).map_err(db_fault(context))?;
    // However the read ended, the next one gets a snapshot of its own.
    if !conn.lock().is_autocommit() {
        conn.lock().execute_batch("ROLLBACK").map_err(db_fault("leaving a snapshot"))?;
    }
    answer.unwrap_or_else(|panic| Err(StoreFault::Panicked(panic_text(panic.as_ref()).to_owned())))
}

fn in_snapshot<T>(
    conn: &SharedConnection,
    work: impl FnOnce(&SharedConnection) -> Result<T, StoreFault>,
) -> Result<T, StoreFault> {
    conn.lock().execute_batch("BEGIN").map_err(db_fault("beginning to read"))?;
    let answer = work(conn)?;
    conn.lock().execute_batch("COMMIT").map_err(db_fault("ending a read"))?;
    Ok(answer)
}

fn open_reader(path: &Path) -> rusqlite::Result<SharedConnection> {
    let conn = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    prepare_once(&conn)?;
    conn.busy_timeout(Duration::from_secs(5))?;
    conn.pragma_update(None, "cache_size", -CACHE_KIB / 8)?;
    Ok(SharedConnection::new(conn))
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    /// Readers of a database whose log has so many pages.
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
    async fn only_verification_waits_for_overlong_log_to_restart() {
        let (_folder, readers, log) = readers(1_000_000);
        let mut verification = readers.read(Lane::Verification, |_| Ok(()));
        assert!(verification.as_mut().now_or_never().is_none());
        readers.read(Lane::Row, |_| Ok(())).await.expect("a row");
        assert!(verification.as_mut().now_or_never().is_none());
        log.set(1);
        verification.await.expect("a verification");
    }

    #[tokio::test(start_paused = true)]
    async fn verification_waits_for_limited_time() {
        let (_folder, readers, _log) = readers(1_000_000);
        let began = tokio::time::Instant::now();
        readers.read(Lane::Verification, |_| Ok(())).await.expect("a verification");
        assert!(began.elapsed() >= YIELDS_FOR);
    }
}
