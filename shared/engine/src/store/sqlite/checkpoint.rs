//! Shell: checkpoints of the write-ahead log, concurrent to the writer.
//!
//! SQLite's automatic checkpoint copies the log into the database, and syncs it, within the commit that makes the log long
//! enough; all other commits wait. Here a thread copies and syncs most of the log. The writer copies the rest between two
//! commits. After that the log restarts (<https://sqlite.org/wal.html#performance_considerations>).

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};
use tracing::warn;

/// Length of the log, in pages of 4 KiB, at which it is checkpointed.
const CHECKPOINT_PAGES: u32 = 8_000;
/// Fraction of that length that the writer copies itself.
const WRITER_FRACTION: u32 = 4;
/// Fraction of that length after which the thread copies again while more is left.
const REPEAT_FRACTION: u32 = 16;
/// Time after which the thread copies again, however little was written since.
const REPEAT_AFTER: Duration = Duration::from_secs(5);
/// Maximum wait for readers when the database is closed.
const LAST_READERS: Duration = Duration::from_millis(500);

/// Length of the log in pages, as of the last commit.
#[derive(Debug, Clone, Default)]
pub(super) struct LogLength(Arc<AtomicU32>);

impl LogLength {
    fn pages(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, pages: u32) {
        self.0.store(pages, Ordering::Relaxed);
    }

    /// True if the log should have restarted long ago. It cannot while readers use its beginning.
    pub(super) fn is_overdue(&self) -> bool {
        self.pages() > 2 * CHECKPOINT_PAGES
    }
}

/// Checkpoints, as the writer starts them. Dropping it waits for a running copy.
pub(super) struct Checkpoints {
    log: LogLength,
    /// Length of the log when the thread last began to copy.
    begun_at: u32,
    /// Time of that beginning.
    begun: Instant,
    /// Number of pages copied so far.
    done: u32,
    /// True if the thread has copied what it could of this log.
    is_copied: bool,
    /// Length at which the log is checkpointed.
    every: u32,
    /// Connection of the copying thread, which owns it while it copies. Without it, the writer copies alone.
    conn: Option<Connection>,
    copying: Option<JoinHandle<(Connection, u32)>>,
    file: Arc<File>,
}

impl Checkpoints {
    /// Checkpoints of the database at `path`, which only `writer` writes. They sync `file`, which must be closed after all
    /// connections of this process: closing it ends SQLite's locks.
    ///
    /// # Errors
    /// If the database cannot be opened once more.
    pub(super) fn of(path: &Path, writer: &mut Connection, file: Arc<File>) -> rusqlite::Result<Self> {
        Self::every(CHECKPOINT_PAGES, path, writer, file)
    }

    fn every(every: u32, path: &Path, writer: &mut Connection, file: Arc<File>) -> rusqlite::Result<Self> {
        let is_there = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(path, is_there)?;
        // The copy must be as durable as a commit.
        super::sync_writes(&conn)?;
        let log = LogLength::default();
        let counted = log.clone();
        writer.wal_hook(Some(move |_: &mut _, pages| {
            counted.set(u32::try_from(pages).unwrap_or(0));
            Ok(())
        }))?;
        let (conn, begun) = (Some(conn), Instant::now());
        Ok(Self { log, begun_at: 0, begun, done: 0, is_copied: false, every, conn, copying: None, file })
    }

    /// Length of the log, shared with the readers.
    pub(super) fn log(&self) -> LogLength {
        self.log.clone()
    }

    /// Checkpoints the log if it is long enough. Called between two commits.
    pub(super) fn run_if_due(&mut self, writer: &Connection) {
        let pages = self.log.pages();
        if let Some(copying) = self.copying.take_if(|copying| copying.is_finished()) {
            match copying.join() {
                Ok((conn, done)) => (self.conn, self.done) = (Some(conn), done),
                Err(_) => warn!(
                    "the checkpoint thread of the write-ahead log has panicked: the writer copies alone"
                ),
            }
            self.is_copied = true;
        }
        if self.copying.is_some() {
            return;
        }
        // A shorter log has restarted. Checked only after the thread ended, whose result may be about the earlier log.
        if pages < self.begun_at {
            (self.begun_at, self.done, self.is_copied) = (0, 0, false);
        }
        // With little left, the writer tries at each commit until the log restarts: at the first moment without a reader of its
        // beginning. Until then each try only checks for readers.
        if self.is_copied && pages.saturating_sub(self.done) <= self.every / WRITER_FRACTION {
            self.done = copy(writer).unwrap_or(self.done);
            return;
        }
        if !self.is_due(pages) {
            return;
        }
        (self.begun_at, self.begun) = (pages, Instant::now());
        self.copying = self.conn.take().and_then(|conn| copy_beside(conn, self.file.clone()));
        if self.copying.is_none() {
            self.done = copy(writer).unwrap_or(self.done);
            self.is_copied = true;
        }
    }

    /// True if the thread should copy. Retries after a time too: a reader that prevented the copy may have ended, and with few
    /// writes the log would stay long.
    fn is_due(&self, pages: u32) -> bool {
        let more = if self.is_copied { (self.every / REPEAT_FRACTION).max(1) } else { self.every };
        pages - self.begun_at >= more || (self.is_copied && self.begun.elapsed() >= REPEAT_AFTER)
    }

    /// Copies the whole log when the database is closed. Readers may prevent that; then the next start does it.
    pub(super) fn finish(self, writer: &Connection) {
        drop(self);
        let finished = writer.busy_timeout(LAST_READERS).and_then(|()| {
            writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0))
        });
        match finished {
            Ok(false) => {}
            Ok(true) => {
                warn!("the write-ahead log is kept until the next start: the database is still being read")
            }
            Err(error) => warn!("the write-ahead log cannot be checkpointed: {error}"),
        }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        if let Some(copying) = self.copying.take() {
            // A panic was reported where it happened.
            let _ = copying.join();
        }
    }
}

/// Copies in a thread, which returns the connection and the number of copied pages; `None` if no thread can be started.
fn copy_beside(conn: Connection, file: Arc<File>) -> Option<JoinHandle<(Connection, u32)>> {
    let copying = std::thread::Builder::new().name("sqlite-copier".to_owned()).spawn(move || {
        let done = copy(&conn).unwrap_or(0);
        // SQLite syncs the database only with the last page of the log, which moves on meanwhile. Without this, the writer would
        // sync all pages that were copied here.
        if let Err(error) = file.sync_data() {
            warn!("the database cannot be synced: {error}");
        }
        (conn, done)
    });
    copying
        .inspect_err(|error| {
            warn!("no thread for checkpoints, the writer copies the write-ahead log: {error}")
        })
        .ok()
}

/// Copies the pages that no reader needs any more. Returns the number of copied pages of the log.
fn copy(conn: &Connection) -> Option<u32> {
    let copied = conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get::<_, i64>(2));
    copied
        .inspect_err(|error| warn!("the write-ahead log cannot be checkpointed: {error}"))
        .map(|pages| u32::try_from(pages).unwrap_or(0))
        .ok()
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// Database with a table, its writer, and checkpoints after so many pages.
    fn every(pages: u32) -> (TempDir, Connection, Checkpoints) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("some.db");
        let mut writer = Connection::open(&path).expect("a database");
        writer
            .execute_batch("PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0; CREATE TABLE t (x)")
            .expect("a table");
        let file = File::open(&path).expect("a file");
        let checkpoints = Checkpoints::every(pages, &path, &mut writer, Arc::new(file)).expect("a thread");
        (folder, writer, checkpoints)
    }

    fn insert(writer: &Connection, checkpoints: &mut Checkpoints) -> u32 {
        writer.execute("INSERT INTO t VALUES (1)", []).expect("stored");
        checkpoints.run_if_due(writer);
        checkpoints.log.pages()
    }

    fn wait_for_thread(checkpoints: &Checkpoints) {
        while checkpoints.copying.as_ref().is_some_and(|copying| !copying.is_finished()) {
            std::thread::yield_now();
        }
    }

    /// Writes until `is_so` holds for the lengths of the log before and after a commit.
    fn insert_until(
        writer: &Connection,
        checkpoints: &mut Checkpoints,
        is_so: impl Fn(u32, u32, &Checkpoints) -> bool,
    ) {
        let (began, mut before) = (Instant::now(), 0);
        loop {
            let after = insert(writer, checkpoints);
            if is_so(before, after, checkpoints) {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(30), "{after} pages, {} copied", checkpoints.done);
            before = after;
        }
    }

    #[test]
    fn log_restarts_while_writer_continues() {
        let (folder, writer, mut checkpoints) = every(10);
        for _ in 0..3 {
            insert_until(&writer, &mut checkpoints, |before, after, _| after < before);
        }
        // The copied pages are in the database itself.
        let alone = folder.path().join("alone.db");
        std::fs::copy(folder.path().join("some.db"), &alone).expect("a copy");
        let copied: i64 = Connection::open(alone)
            .and_then(|copy| copy.query_row("SELECT count(*) FROM t", [], |row| row.get(0)))
            .expect("a whole database");
        assert!(copied >= 30, "{copied}");
    }

    fn reader(folder: &TempDir) -> Connection {
        Connection::open(folder.path().join("some.db")).expect("a reader")
    }

    const BEGIN: &str = "BEGIN; SELECT * FROM t";

    #[test]
    fn log_with_long_reader_is_not_copied_at_each_commit() {
        let (folder, writer, mut checkpoints) = every(320);
        let reader = reader(&folder);
        reader.execute_batch(BEGIN).expect("a snapshot");
        insert_until(&writer, &mut checkpoints, |_, _, checkpoints| checkpoints.is_copied);
        let mut begun_at = std::collections::BTreeSet::new();
        let first = insert(&writer, &mut checkpoints);
        let mut last = first;
        while last < first + 200 {
            last = insert(&writer, &mut checkpoints);
            begun_at.insert(checkpoints.begun_at);
        }
        assert!((2..=12).contains(&begun_at.len()), "each twenty pages: {begun_at:?}");
        assert!(checkpoints.done < first, "it is still read");
        reader.execute_batch("COMMIT").expect("an end");
        insert_until(&writer, &mut checkpoints, |before, after, _| after < before);
    }

    /// Regression: a quiet service kept the log of a former reader for minutes, until enough was written.
    #[test]
    fn log_restarts_after_long_reader_with_few_writes() {
        let (folder, writer, mut checkpoints) = every(320);
        let reader = reader(&folder);
        reader.execute_batch(BEGIN).expect("a snapshot");
        while !checkpoints.is_copied {
            insert(&writer, &mut checkpoints);
            wait_for_thread(&checkpoints);
        }
        reader.execute_batch("COMMIT").expect("an end");
        let before = checkpoints.log.pages();
        for _ in 0..5 {
            checkpoints.begun -= REPEAT_AFTER;
            if insert(&writer, &mut checkpoints) < before {
                return;
            }
            wait_for_thread(&checkpoints);
        }
        panic!("{} pages, {} copied", checkpoints.log.pages(), checkpoints.done);
    }

    /// Reads like a verification in parts: the pauses between its reads are shorter than a copy by the thread.
    #[test]
    fn log_with_nearly_constant_readers_restarts_in_pause() {
        let (folder, writer, mut checkpoints) = every(64);
        let reader = reader(&folder);
        for round in 0.. {
            reader.execute_batch(BEGIN).expect("a snapshot");
            let before = insert(&writer, &mut checkpoints);
            wait_for_thread(&checkpoints);
            insert(&writer, &mut checkpoints);
            reader.execute_batch("COMMIT").expect("an end");
            insert(&writer, &mut checkpoints);
            if insert(&writer, &mut checkpoints) < before {
                return;
            }
            assert!(round < 200, "{before} pages");
        }
    }

    /// The log may restart while the thread still syncs the database.
    #[test]
    fn result_about_earlier_log_is_not_taken_for_restarted_log() {
        let (_folder, writer, mut checkpoints) = every(1_000);
        let before = (0..20).map(|_| insert(&writer, &mut checkpoints)).last().expect("a log");
        let conn = checkpoints.conn.take().expect("one");
        let (go_on, goes_on) = std::sync::mpsc::channel::<()>();
        let (copied, is_copied) = std::sync::mpsc::channel();
        checkpoints.begun_at = before;
        checkpoints.copying = Some(std::thread::spawn(move || {
            let done = copy(&conn).unwrap_or(0);
            copied.send(()).expect("the test waits");
            goes_on.recv().expect("permission");
            (conn, done)
        }));
        is_copied.recv().expect("it is copied");
        assert!(insert(&writer, &mut checkpoints) < before, "the log has restarted");
        go_on.send(()).expect("it waits");
        wait_for_thread(&checkpoints);
        insert(&writer, &mut checkpoints);
        assert_eq!((checkpoints.begun_at, checkpoints.done, checkpoints.is_copied), (0, 0, false));
    }

    #[test]
    fn finish_empties_log() {
        let (folder, writer, mut checkpoints) = every(10);
        let log = folder.path().join("some.db-wal");
        for _ in 0..35 {
            insert(&writer, &mut checkpoints);
        }
        assert!(log.metadata().expect("a log").len() > 0);
        checkpoints.finish(&writer);
        assert_eq!(log.metadata().expect("a log").len(), 0);
    }

    #[test]
    fn writer_copies_alone_without_thread() {
        let (_folder, writer, mut checkpoints) = every(10);
        checkpoints.conn = None;
        insert_until(&writer, &mut checkpoints, |before, after, _| after < before);
    }

    #[test]
    fn writer_copies_after_thread_panicked() {
        let (_folder, writer, mut checkpoints) = every(10);
        let conn = checkpoints.conn.take().expect("one");
        checkpoints.copying = Some(std::thread::spawn(move || panic!("with {conn:?}")));
        for _ in 0..2 {
            insert_until(&writer, &mut checkpoints, |before, after, _| after < before);
        }
    }
}
