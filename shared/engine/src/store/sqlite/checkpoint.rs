//! Shell: the write-ahead log is copied back into the database beside the writer, which goes on meanwhile.
//!
//! SQLite's own way is to copy within the commit that makes the log long enough, and to sync the database: all that come
//! meanwhile wait for it. Here a thread of its own copies and syncs most of it, and the writer, between two commits, what
//! has come since then. After that the log begins anew (<https://sqlite.org/wal.html#performance_considerations>).

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use tracing::warn;

/// Pages of write-ahead log (4 KiB each) after which it is copied back.
const CHECKPOINT_PAGES: u32 = 8_000;
/// What is left of so long a log the writer copies itself: a fourth of it.
const LEFT_TO_THE_WRITER: u32 = 4;
/// As long as more is left, the thread takes it up again after a sixteenth of so long a log.
const TAKEN_UP_AGAIN: u32 = 16;
/// At the end what still reads is waited for so long.
const LAST_READERS: Duration = Duration::from_millis(500);

/// How long the log is, in pages, as of the last commit.
#[derive(Debug, Clone, Default)]
pub(super) struct LogLength(Arc<AtomicU32>);

impl LogLength {
    fn pages(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, pages: u32) {
        self.0.store(pages, Ordering::Relaxed);
    }

    /// Whether it should have begun anew long ago. While somebody reads what it had earlier it cannot.
    pub(super) fn is_overdue(&self) -> bool {
        self.pages() > 2 * CHECKPOINT_PAGES
    }
}

/// The writer's side. Dropped, it waits for a copy under way.
pub(super) struct Checkpoints {
    log: LogLength,
    /// How long it was when the thread began to copy it last.
    begun_at: u32,
    /// Pages of it that are copied back.
    done: u32,
    /// Whether the thread has copied of this log what it could.
    is_copied: bool,
    /// It is copied back when it is so long.
    every: u32,
    /// What copies beside the writer; a thread has it while it does. Once it is lost, the writer copies alone.
    conn: Option<Connection>,
    copying: Option<JoinHandle<(Connection, u32)>>,
    file: Arc<File>,
}

impl Checkpoints {
    /// Of the database at `path`, which `writer` alone writes. It is synced by `file`, which is to be closed after all
    /// connections of this process: with it SQLite's locks would go.
    ///
    /// # Errors
    /// When it cannot be opened once more.
    pub(super) fn of(path: &Path, writer: &mut Connection, file: Arc<File>) -> rusqlite::Result<Self> {
        Self::every(CHECKPOINT_PAGES, path, writer, file)
    }

    fn every(every: u32, path: &Path, writer: &mut Connection, file: Arc<File>) -> rusqlite::Result<Self> {
        let is_there = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(path, is_there)?;
        // What is copied is synced as what is committed is.
        conn.pragma_update(None, "synchronous", "FULL")?;
        let log = LogLength::default();
        let counted = log.clone();
        writer.wal_hook(Some(move |_: &mut _, pages| {
            counted.set(u32::try_from(pages).unwrap_or(0));
            Ok(())
        }))?;
        Ok(Self { log, begun_at: 0, done: 0, is_copied: false, every, conn: Some(conn), copying: None, file })
    }

    /// How long the log is.
    pub(super) fn log(&self) -> LogLength {
        self.log.clone()
    }

    /// Between two commits: has the log copied back when it is long enough.
    pub(super) fn now_and_then(&mut self, writer: &Connection) {
        let pages = self.log.pages();
        if let Some(copying) = self.copying.take_if(|copying| copying.is_finished()) {
            match copying.join() {
                Ok((conn, done)) => (self.conn, self.done) = (Some(conn), done),
                Err(_) => warn!(
                    "the thread that copies the write-ahead log back has panicked: the writer copies alone"
                ),
            }
            self.is_copied = true;
        }
        if self.copying.is_some() {
            return;
        }
        // Shorter than it was: it has begun anew. Not asked before the copier has ended, whose answer may be of the log before.
        if pages < self.begun_at {
            (self.begun_at, self.done, self.is_copied) = (0, 0, false);
        }
        // Little is left. The writer tries at each commit until the log begins anew, which is in the first moment when
        // nobody reads what it had earlier; until then that is no more than a look at who reads.
        if self.is_copied && pages.saturating_sub(self.done) <= self.every / LEFT_TO_THE_WRITER {
            self.done = copy(writer).unwrap_or(self.done);
            return;
        }
        let more = if self.is_copied { (self.every / TAKEN_UP_AGAIN).max(1) } else { self.every };
        if pages - self.begun_at < more {
            return;
        }
        self.begun_at = pages;
        self.copying = self.conn.take().and_then(|conn| copy_beside(conn, self.file.clone()));
        if self.copying.is_none() {
            self.done = copy(writer).unwrap_or(self.done);
            self.is_copied = true;
        }
    }

    /// At the end: copies everything back, so that nothing is left in the log. What still reads may prevent that; then it
    /// is done when the database is opened again.
    pub(super) fn finish(self, writer: &Connection) {
        drop(self);
        let finished = writer.busy_timeout(LAST_READERS).and_then(|()| {
            writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0))
        });
        match finished {
            Ok(false) => {}
            Ok(true) => warn!("the write-ahead log stays: somebody still reads the database"),
            Err(error) => warn!("the write-ahead log is not copied back: {error}"),
        }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        if let Some(copying) = self.copying.take() {
            // One that panicked has nothing more to say.
            let _ = copying.join();
        }
    }
}

/// Copies in a thread, which gives the connection back, and says how many pages are copied. `None` when there is no thread
/// to be had.
fn copy_beside(conn: Connection, file: Arc<File>) -> Option<JoinHandle<(Connection, u32)>> {
    let copying = std::thread::Builder::new().name("sqlite-copier".to_owned()).spawn(move || {
        let done = copy(&conn).unwrap_or(0);
        // SQLite syncs the database with the last page of the log alone, and that moves on meanwhile. So the writer would
        // sync all that was written here.
        if let Err(error) = file.sync_data() {
            warn!("the database is not synced: {error}");
        }
        (conn, done)
    });
    copying
        .inspect_err(|error| warn!("no thread copies the write-ahead log back, the writer does: {error}"))
        .ok()
}

/// Copies as much as nobody reads any more. What could not be copied stays in the log, and is copied next time. Answers how
/// many pages of the log are copied.
fn copy(conn: &Connection) -> Option<u32> {
    let copied = conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get::<_, i64>(2));
    copied
        .inspect_err(|error| warn!("the write-ahead log is not copied back: {error}"))
        .map(|pages| u32::try_from(pages).unwrap_or(0))
        .ok()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tempfile::TempDir;

    use super::*;

    /// A database with a table, its writer, and how it is copied back: after so many pages.
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
        checkpoints.now_and_then(writer);
        checkpoints.log.pages()
    }

    /// Goes on writing until `is_so` says of the pages before and after a commit that it happened.
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
    fn the_log_is_copied_back_and_begins_anew_while_the_writer_goes_on() {
        let (folder, writer, mut checkpoints) = every(10);
        for _ in 0..3 {
            insert_until(&writer, &mut checkpoints, |before, after, _| after < before);
        }
        // What was copied is in the database itself.
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
    fn a_log_that_somebody_reads_is_not_copied_again_at_each_commit() {
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

    /// As by an audit in parts: the moments between two of them are short, and no copy of the thread falls into one.
    #[test]
    fn a_log_that_is_read_nearly_always_begins_anew_in_a_moment_between() {
        let (folder, writer, mut checkpoints) = every(64);
        let reader = reader(&folder);
        for round in 0.. {
            reader.execute_batch(BEGIN).expect("a snapshot");
            let before = insert(&writer, &mut checkpoints);
            while checkpoints.copying.as_ref().is_some_and(|copying| !copying.is_finished()) {
                std::thread::yield_now();
            }
            insert(&writer, &mut checkpoints);
            reader.execute_batch("COMMIT").expect("an end");
            insert(&writer, &mut checkpoints);
            if insert(&writer, &mut checkpoints) < before {
                return;
            }
            assert!(round < 200, "{before} pages");
        }
    }

    /// The log may begin anew while the copier still syncs the database: its answer is of the log before.
    #[test]
    fn what_was_copied_of_the_log_before_is_not_copied_of_the_new_one() {
        let (_folder, writer, mut checkpoints) = every(1_000);
        let before = (0..20).map(|_| insert(&writer, &mut checkpoints)).last().expect("a log");
        let conn = checkpoints.conn.take().expect("one");
        let (go_on, goes_on) = std::sync::mpsc::channel::<()>();
        let (copied, is_copied) = std::sync::mpsc::channel();
        checkpoints.begun_at = before;
        checkpoints.copying = Some(std::thread::spawn(move || {
            let done = copy(&conn).unwrap_or(0);
            copied.send(()).expect("somebody waits");
            goes_on.recv().expect("a word");
            (conn, done)
        }));
        is_copied.recv().expect("it is copied");
        assert!(insert(&writer, &mut checkpoints) < before, "the log has begun anew");
        go_on.send(()).expect("it waits");
        while checkpoints.copying.as_ref().is_some_and(|copying| !copying.is_finished()) {
            std::thread::yield_now();
        }
        insert(&writer, &mut checkpoints);
        assert_eq!((checkpoints.begun_at, checkpoints.done, checkpoints.is_copied), (0, 0, false));
    }

    #[test]
    fn at_the_end_nothing_is_left_in_the_log() {
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
    fn without_its_thread_the_writer_copies_alone() {
        let (_folder, writer, mut checkpoints) = every(10);
        checkpoints.conn = None;
        insert_until(&writer, &mut checkpoints, |before, after, _| after < before);
    }

    #[test]
    fn where_the_thread_panicked_the_writer_goes_on_copying() {
        let (_folder, writer, mut checkpoints) = every(10);
        let conn = checkpoints.conn.take().expect("one");
        checkpoints.copying = Some(std::thread::spawn(move || panic!("with {conn:?}")));
        for _ in 0..2 {
            insert_until(&writer, &mut checkpoints, |before, after, _| after < before);
        }
    }
}
