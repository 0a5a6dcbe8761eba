//! Shell: the write-ahead log is copied back into the database beside the writer, which goes on meanwhile.
//!
//! SQLite's own way is to copy within the commit that makes the log long enough, and to sync the database: all that come
//! meanwhile wait for it. Here a thread of its own copies most of it, and the writer, between two commits, what has come
//! since then. After that the log begins anew (<https://sqlite.org/wal.html#performance_considerations>).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tracing::warn;

/// Pages of write-ahead log (4 KiB each) after which it is copied back.
const CHECKPOINT_PAGES: u32 = 8_000;

/// The writer's side. Dropped, it waits for a copy under way.
pub(super) struct Checkpoints {
    /// Pages in the log, as of the last commit.
    pages: Arc<AtomicU32>,
    /// How many of them were there when it was copied last.
    copied: u32,
    /// So many more, and it is copied again.
    every: u32,
    /// What copies beside the writer; a thread has it while it does. Once it is lost, the writer copies alone.
    conn: Option<Connection>,
    copying: Option<JoinHandle<Connection>>,
}

impl Checkpoints {
    /// Of the database at `path`, which `writer` alone writes.
    ///
    /// # Errors
    /// When it cannot be opened once more.
    pub(super) fn of(path: &Path, writer: &mut Connection) -> rusqlite::Result<Self> {
        Self::every(CHECKPOINT_PAGES, path, writer)
    }

    fn every(every: u32, path: &Path, writer: &mut Connection) -> rusqlite::Result<Self> {
        let conn = Connection::open(path)?;
        // What is copied is synced as what is committed is.
        conn.pragma_update(None, "synchronous", "FULL")?;
        let pages = Arc::new(AtomicU32::new(0));
        let counted = pages.clone();
        writer.wal_hook(Some(move |_: &mut _, pages| {
            counted.store(u32::try_from(pages).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(Self { pages, copied: 0, every, conn: Some(conn), copying: None })
    }

    /// Between two commits: has the log copied back when it is long enough.
    pub(super) fn now_and_then(&mut self, writer: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        if let Some(copying) = self.copying.take_if(|copying| copying.is_finished()) {
            // One that panicked has its connection no more.
            self.conn = copying.join().ok();
            copy(writer);
            self.copied = pages;
            return;
        }
        // Fewer than there were: it has begun anew. Somebody who reads for long may keep it from that.
        if pages < self.copied {
            self.copied = 0;
        }
        if self.copying.is_some() || pages - self.copied < self.every {
            return;
        }
        self.copying = self.conn.take().and_then(copy_beside);
        if self.copying.is_none() {
            copy(writer);
            self.copied = pages;
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

/// Copies in a thread, which gives the connection back. `None` when there is no thread to be had.
fn copy_beside(conn: Connection) -> Option<JoinHandle<Connection>> {
    let copying = std::thread::Builder::new().name("sqlite-copier".to_owned()).spawn(move || {
        copy(&conn);
        conn
    });
    copying.inspect_err(|error| warn!("no thread copies the write-ahead log back: {error}")).ok()
}

/// Copies as much as nobody reads any more. What could not be copied stays in the log, and is copied next time.
fn copy(conn: &Connection) {
    if let Err(error) = conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())) {
        warn!("the write-ahead log is not copied back: {error}");
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use tempfile::TempDir;

    use super::*;

    /// A database with a table, its writer, and how it is copied back: every ten pages.
    fn every_ten() -> (TempDir, Connection, Checkpoints) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("some.db");
        let mut writer = Connection::open(&path).expect("a database");
        writer
            .execute_batch("PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0; CREATE TABLE t (x)")
            .expect("a table");
        let checkpoints = Checkpoints::every(10, &path, &mut writer).expect("a thread");
        (folder, writer, checkpoints)
    }

    fn insert(writer: &Connection, checkpoints: &mut Checkpoints) -> u32 {
        writer.execute("INSERT INTO t VALUES (1)", []).expect("stored");
        checkpoints.now_and_then(writer);
        checkpoints.pages.load(Ordering::Relaxed)
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
            assert!(
                began.elapsed() < Duration::from_secs(30),
                "{after} pages, {} copied",
                checkpoints.copied
            );
            before = after;
        }
    }

    #[test]
    fn the_log_is_copied_back_and_begins_anew_while_the_writer_goes_on() {
        let (folder, writer, mut checkpoints) = every_ten();
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

    #[test]
    fn a_log_that_somebody_reads_is_not_copied_again_at_each_commit() {
        let (folder, writer, mut checkpoints) = every_ten();
        let reader = Connection::open(folder.path().join("some.db")).expect("a reader");
        reader.execute_batch("BEGIN; SELECT * FROM t").expect("a snapshot");
        let is_copied = |_, _, checkpoints: &Checkpoints| checkpoints.copied > 0;
        insert_until(&writer, &mut checkpoints, is_copied);
        let copied = checkpoints.copied;
        for _ in 0..9 {
            assert!(insert(&writer, &mut checkpoints) > copied, "it cannot begin anew");
            assert_eq!((checkpoints.copying.is_none(), checkpoints.copied), (true, copied));
        }
        reader.execute_batch("COMMIT").expect("an end");
        insert_until(&writer, &mut checkpoints, |before, after, _| after < before);
    }

    #[test]
    fn without_its_thread_the_writer_copies_alone() {
        let (_folder, writer, mut checkpoints) = every_ten();
        checkpoints.conn = None;
        insert_until(&writer, &mut checkpoints, |before, after, _| after < before);
    }

    #[test]
    fn where_the_thread_panicked_the_writer_goes_on_copying() {
        let (_folder, writer, mut checkpoints) = every_ten();
        let conn = checkpoints.conn.take().expect("one");
        checkpoints.copying = Some(std::thread::spawn(move || panic!("with {conn:?}")));
        for _ in 0..2 {
            insert_until(&writer, &mut checkpoints, |before, after, _| after < before);
        }
    }
}
