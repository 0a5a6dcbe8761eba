//! Shell: the store on SQLite: how a database is opened, and who does what: one writer, readers beside it.

mod along;
mod checkpoint;
mod departures;
mod fold;
mod leases;
mod left;
mod opening;
mod outbox;
mod overrides;
mod past;
mod place;
mod read;
mod readers;
mod schema;
mod values;
mod verify;
mod write;
mod writer;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use rusqlite::Connection;
use rusqlite::backup::Backup;
use rusqlite::config::DbConfig;
use saga_core::decision::{Decide, Reads};
use saga_core::query::{FoundRow, Group, Join, Joined, Query};
use saga_core::retry::error_chain;
use saga_core::row::{RowKey, RowKind, StoredEvent};
use saga_core::service_stats::{MessageCounts, StoreStats};

use self::along::Along;
use self::checkpoint::Checkpoints;
use self::opening::MarkFile;
use self::place::Place;
use self::readers::{Lane, Readers};
use self::values::oops;
use self::write::KindSql;
use self::writer::{Haste, Writer, in_transaction};
use super::{
    Answer, Changes, CheckedPage, CheckedRows, Cutoffs, Departures, Due, DueQuery, FailingTask, FoldReport,
    Lease, Leaving, LeavingEvent, Left, Mark, Opening, OutboxEntry, OutboxItem, Overridden, Part, Published,
    PublishedRun, Republished, RowAsOf, Store, StoreFault, StoredDeadLetters,
};

/// Pages that one connection may cache, in KiB: the working set of the newest rows, well under the
/// 60 MiB that a whole service may take.
const CACHE_KIB: i64 = 8 * 1024;

/// What the file of the write-ahead log keeps of its length when the log begins anew.
const LOG_BYTES_KEPT: i64 = 64 << 20;

/// A SQLite database file, held by this process alone.
pub struct SqliteStore {
    /// First to be dropped, and waited for: whoever drops the store may open the file again.
    writer: Writer,
    /// None beside an inline writer, whose connection reads too.
    readers: Option<Readers>,
    kinds: Arc<Kinds>,
    /// None in memory.
    place: Option<Place>,
    /// What a check in parts has folded so far.
    along: Arc<Mutex<Option<Along>>>,
    _lock: Option<File>,
}

struct Kinds {
    declared: Vec<RowKind>,
    sql: BTreeMap<&'static str, KindSql>,
}

/// An empty database in memory with all its tables. Making them takes as long as hundreds of transactions; a simulation
/// needs thousands of databases.
pub struct Template {
    kinds: Arc<Kinds>,
    made: Mutex<Connection>,
}

impl Template {
    /// With tables for rows of these kinds.
    ///
    /// # Errors
    /// None in practice.
    pub fn of(kinds: Vec<RowKind>) -> Result<Self, StoreFault> {
        let kinds = Arc::new(Kinds::of(kinds));
        let made = Mutex::new(made_in_memory(&kinds)?);
        Ok(Self { kinds, made })
    }
}

impl SqliteStore {
    /// Opens the file as whoever's it is; see [`SqliteStore::open_as`].
    ///
    /// # Errors
    /// As there.
    pub fn open(path: &Path, kinds: Vec<RowKind>) -> Result<Self, StoreFault> {
        Self::open_as(path, kinds, &Opening::default())
    }

    /// Opens the file, creating it with its folder when it is not there, brings its tables up to date and
    /// starts the writer thread.
    ///
    /// # Errors
    /// When the file cannot be used: no permission, no database, damaged, of a newer build, of another service, held
    /// by another process, or without what it had when it was open last. The sentence says which.
    pub fn open_as(path: &Path, kinds: Vec<RowKind>, opening: &Opening<'_>) -> Result<Self, StoreFault> {
        let unusable = |what: &str, error: &dyn std::fmt::Display| {
            StoreFault::Unusable(format!("database {}: {what}: {error}", path.display()))
        };
        let refused = |sentence| StoreFault::Unusable(format!("database {}: {sentence}", path.display()));
        if opening.must_exist && !path.metadata().is_ok_and(|file| file.len() > 0) {
            return Err(refused("there is none".to_owned()));
        }
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| unusable("its folder cannot be made", &error))?;
        }
        let lock = lock(path).map_err(|error| unusable("cannot be locked", &error))?;
        let mut marks = MarkFile::new(&lock).map_err(|error| unusable("cannot be locked", &error))?;
        let mut conn = Connection::open(path).map_err(|error| unusable("cannot be opened", &error))?;
        configure(&conn).map_err(|error| refused(opening::unusable(&error)))?;
        let kinds = Arc::new(Kinds::of(kinds));
        opening::check_before(&mut conn, opening, &marks).map_err(refused)?;
        prepare(&conn, &kinds).map_err(|fault| unusable("cannot be used", &error_chain(&fault)))?;
        let made = made_in_memory(&kinds)?;
        opening::check_after(&conn, &made, opening, &mut marks).map_err(refused)?;
        outbox::check_position(&conn)?;
        let place = Place::of(path).map_err(|error| unusable("cannot be found", &error))?;
        let file =
            File::open(path).map(Arc::new).map_err(|error| unusable("cannot be opened again", &error))?;
        let checkpoints = Checkpoints::of(path, &mut conn, file.clone())
            .map_err(|error| unusable("cannot be opened again", &error))?;
        let readers = Readers::open(path, &file, checkpoints.log())
            .map_err(|error| unusable("cannot be read", &error))?;
        let writer = Writer::start(conn, place.clone(), marks, checkpoints)
            .map_err(|error| unusable("no thread for its writer", &error))?;
        let (readers, place, along) = (Some(readers), Some(place), Arc::default());
        Ok(Self { writer, readers, kinds, place, along, _lock: Some(lock) })
    }

    /// A database in memory that works on the caller's thread: every answer is ready at once.
    ///
    /// # Errors
    /// None in practice.
    pub fn in_memory(kinds: Vec<RowKind>) -> Result<Self, StoreFault> {
        let kinds = Arc::new(Kinds::of(kinds));
        Ok(Self::inline(made_in_memory(&kinds)?, kinds))
    }

    /// As [`SqliteStore::in_memory`], with a copy of what is in the template.
    ///
    /// # Errors
    /// None in practice.
    pub fn copy_of(template: &Template) -> Result<Self, StoreFault> {
        let mut conn = empty_in_memory()?;
        let made = template.made.lock();
        Backup::new(&made, &mut conn)
            .and_then(|copy| copy.step(-1))
            .map_err(oops("copying a database in memory"))?;
        Ok(Self::inline(conn, template.kinds.clone()))
    }

    fn inline(conn: Connection, kinds: Arc<Kinds>) -> Self {
        let (writer, along) = (Writer::Inline(Mutex::new(conn)), Arc::default());
        Self { writer, readers: None, kinds, place: None, along, _lock: None }
    }

    /// Runs `work` in a write transaction, merged with whatever else waits.
    fn write<T: Send + 'static>(
        &self,
        work: impl FnMut(&Connection) -> Result<T, StoreFault> + Send + 'static,
    ) -> Answer<'_, T> {
        self.writer.write(Haste::Now, work)
    }

    /// Runs `work` on a reader's connection. Dropped before it is done, it is interrupted.
    fn read<T: Send + 'static>(
        &self,
        lane: Lane,
        work: impl FnOnce(&Connection) -> Result<T, StoreFault> + Send + 'static,
    ) -> Answer<'_, T> {
        match (&self.writer, &self.readers) {
            (Writer::Thread(_), Some(readers)) => readers.read(lane, work),
            (Writer::Thread(_), None) => Box::pin(std::future::ready(Err(StoreFault::Closed))),
            (Writer::Inline(conn), _) => {
                let answer = work(&conn.lock());
                Box::pin(std::future::ready(answer))
            }
        }
    }
}

impl Store for SqliteStore {
    fn transact(&self, reads: Reads, mut decide: Decide) -> Answer<'_, Vec<OutboxEntry>> {
        let kinds = self.kinds.clone();
        self.write(move |conn| {
            let writes = write::decided(conn, &kinds.sql, &reads, &mut decide)?;
            write::write(conn, &kinds.sql, &writes)
        })
    }

    fn take_lease<'a>(
        &'a self,
        name: &'static str,
        held: Option<&'a Lease>,
        owner: &'a str,
        now: Timestamp,
        until: Timestamp,
    ) -> Answer<'a, Option<Lease>> {
        let (held, owner) = (held.cloned(), owner.to_owned());
        self.write(move |conn| leases::take(conn, name, held.as_ref(), &owner, now, until))
    }

    fn pending(&self, limit: usize) -> Answer<'_, Vec<OutboxEntry>> {
        self.read(Lane::Relay, move |conn| outbox::pending(conn, limit))
    }

    fn behind(&self, position: i64, limit: usize) -> Answer<'_, Option<Vec<OutboxEntry>>> {
        self.read(Lane::Relay, move |conn| outbox::behind(conn, position, limit))
    }

    fn line_end(&self) -> Answer<'_, Option<i64>> {
        self.read(Lane::Relay, outbox::line_end)
    }

    fn settle(&self, lease: &Lease, published: Published, now: Timestamp) -> Answer<'_, bool> {
        let lease = lease.clone();
        self.write(move |conn| outbox::settle(conn, &lease, &published, now))
    }

    fn settle_run(&self, lease: &Lease, run: PublishedRun) -> Answer<'_, bool> {
        let lease = lease.clone();
        self.writer.write(Haste::Carried, move |conn| outbox::settle_run(conn, &lease, &run))
    }

    fn retry_failed(&self, seq: Option<i64>) -> Answer<'_, u64> {
        self.write(move |conn| outbox::retry_failed(conn, seq))
    }

    fn republish(&self, since: Timestamp, after: i64, limit: usize) -> Answer<'_, Republished> {
        self.write(move |conn| outbox::republish(conn, since, after, limit))
    }

    fn due(&self, query: DueQuery) -> Answer<'_, Due> {
        let kinds = self.kinds.clone();
        self.write(move |conn| read::due(conn, &kinds.declared, &query))
    }

    fn row(&self, key: RowKey) -> Answer<'_, Option<FoundRow>> {
        self.read(Lane::Row, move |conn| read::row(conn, &key))
    }

    fn find(&self, kind: &'static str, query: Query) -> Answer<'_, Vec<FoundRow>> {
        let lane = if query.is_for_one() { Lane::Row } else { Lane::Scan };
        self.read(lane, move |conn| read::find(conn, kind, &query))
    }

    fn counts(
        &self,
        kind: &'static str,
        by: &'static str,
        query: Query,
    ) -> Answer<'_, BTreeMap<String, u64>> {
        self.read(Lane::Scan, move |conn| read::counts(conn, kind, by, &query))
    }

    fn groups(
        &self,
        kind: &'static str,
        by: &'static str,
        times: &'static str,
        query: Query,
    ) -> Answer<'_, Vec<Group>> {
        self.read(Lane::Scan, move |conn| read::groups(conn, kind, by, times, &query))
    }

    fn joined(&self, kind: &'static str, join: Join, query: Query) -> Answer<'_, Vec<Joined>> {
        self.read(Lane::Scan, move |conn| read::joined(conn, kind, &join, &query))
    }

    fn events(&self, key: RowKey, after: i64, limit: usize) -> Answer<'_, Vec<StoredEvent>> {
        self.read(Lane::Row, move |conn| read::history(conn, key.kind, &key.id, after, limit))
    }

    fn histories(&self, kind: &'static str, ids: Vec<String>) -> Answer<'_, Vec<Vec<StoredEvent>>> {
        self.read(Lane::Scan, move |conn| {
            ids.iter().map(|id| read::history(conn, kind, id, 0, usize::MAX)).collect()
        })
    }

    fn rows_as_of(&self, kind: &'static str, ids: Vec<String>, seq: i64) -> Answer<'_, Vec<RowAsOf>> {
        let kinds = self.kinds.clone();
        self.read(Lane::Scan, move |conn| {
            let kind = kinds.of_name(kind)?;
            let as_of = |id: &String| past::row_as_of(conn, kind, id, seq).transpose();
            ids.iter().filter_map(as_of).collect()
        })
    }

    fn changes(&self, kind: &'static str, after: i64, limit: usize) -> Answer<'_, Changes> {
        self.read(Lane::Scan, move |conn| past::changes(conn, kind, after, limit))
    }

    fn fingerprint(&self, seq: i64) -> Answer<'_, Option<String>> {
        self.read(Lane::Health, move |conn| past::fingerprint(conn, seq))
    }

    fn verify_changed(&self, after: i64, events: u64) -> Answer<'_, FoldReport> {
        let kinds = self.kinds.clone();
        self.read(Lane::Audit, move |conn| verify::verify_changed(conn, &kinds.declared, after, events))
    }

    fn mark(&self) -> Answer<'_, Mark> {
        self.read(Lane::Health, Mark::of)
    }

    fn kept_since(&self) -> Answer<'_, Option<Timestamp>> {
        self.read(Lane::Health, outbox::kept_since)
    }

    fn stats(&self) -> Answer<'_, StoreStats> {
        let place = self.place.clone();
        self.read(Lane::Health, move |conn| {
            place.map_or(Ok(()), |place| place.check())?;
            read::stats(conn)
        })
    }

    fn tallies(&self) -> Answer<'_, MessageCounts> {
        self.read(Lane::Scan, read::tallies)
    }

    fn outbox(&self, limit: usize) -> Answer<'_, Vec<OutboxItem>> {
        self.read(Lane::Scan, move |conn| outbox::items(conn, limit))
    }

    fn failing_tasks(&self, limit: usize) -> Answer<'_, Vec<FailingTask>> {
        self.read(Lane::Scan, move |conn| read::failing_tasks(conn, limit))
    }

    fn dead_letters(&self, limit: usize) -> Answer<'_, StoredDeadLetters> {
        self.read(Lane::Scan, move |conn| read::dead_letters(conn, limit))
    }

    fn verify(&self) -> Answer<'_, FoldReport> {
        let kinds = self.kinds.clone();
        self.read(Lane::Audit, move |conn| verify::verify(conn, &kinds.declared))
    }

    fn verify_part(&self, part: Part) -> Answer<'_, FoldReport> {
        let (kinds, along) = (self.kinds.clone(), self.along.clone());
        let work =
            move |conn: &Connection| verify::verify_part(conn, &kinds.declared, &part, &mut along.lock());
        self.read(Lane::Audit, work)
    }

    fn checked_rows(&self, kind: &'static str, page: CheckedPage) -> Answer<'_, CheckedRows> {
        let kinds = self.kinds.clone();
        self.read(Lane::Audit, move |conn| verify::checked(conn, kinds.of_name(kind)?, &page))
    }

    fn rebuild(&self, kind: &'static str) -> Answer<'_, u64> {
        let kinds = self.kinds.clone();
        self.write(move |conn| fold::rebuild(conn, kinds.of_name(kind)?))
    }

    fn bring_back(&self, kind: &'static str, events: Vec<LeavingEvent>) -> Answer<'_, u64> {
        self.write(move |conn| departures::bring_back(conn, kind, &events))
    }

    fn departures(&self, before: Departures, limit: usize) -> Answer<'_, Leaving> {
        let kinds = self.kinds.clone();
        self.read(Lane::Audit, move |conn| departures::find(conn, &kinds.declared, before, limit))
    }

    fn left(&self, kind: &'static str) -> Answer<'_, Left> {
        self.read(Lane::Row, move |conn| left::left_of(conn, kind))
    }

    fn depart(&self, leaving: Leaving) -> Answer<'_, u64> {
        self.writer.write(Haste::Carried, move |conn| departures::leave(conn, &leaving))
    }

    fn overrides(&self) -> Answer<'_, Overridden> {
        self.read(Lane::Row, overrides::overrides)
    }

    fn override_with(&self, revision: i64, text: String) -> Answer<'_, bool> {
        self.write(move |conn| overrides::override_with(conn, revision, &text))
    }

    fn trim(&self, cutoffs: Cutoffs, limit: usize) -> Answer<'_, u64> {
        self.write(move |conn| read::trim(conn, cutoffs, limit))
    }
}

impl Kinds {
    fn of(declared: Vec<RowKind>) -> Self {
        let sql = declared.iter().map(|kind| (kind.name, KindSql::of(kind))).collect();
        Self { declared, sql }
    }

    fn of_name(&self, name: &str) -> Result<&RowKind, StoreFault> {
        let declared = self.declared.iter().find(|declared| declared.name == name);
        declared.ok_or_else(|| StoreFault::Unusable(format!("rows of kind {name:?} are not declared")))
    }
}

/// A database in memory with all tables.
fn made_in_memory(kinds: &Kinds) -> Result<Connection, StoreFault> {
    let conn = empty_in_memory()?;
    prepare(&conn, kinds)?;
    Ok(conn)
}

fn empty_in_memory() -> Result<Connection, StoreFault> {
    let conn = Connection::open_in_memory().map_err(oops("opening a database in memory"))?;
    prepare_once(&conn).map_err(oops("configuring a database in memory"))?;
    Ok(conn)
}

fn prepare(conn: &Connection, kinds: &Kinds) -> Result<(), StoreFault> {
    in_transaction(conn, || {
        schema::migrate(conn)?;
        kinds.declared.iter().try_for_each(|kind| schema::declare(conn, kind))
    })
}

/// Durable at each commit: `synchronous=FULL` syncs the write-ahead log before the commit returns.
fn configure(conn: &Connection) -> rusqlite::Result<()> {
    prepare_once(conn)?;
    conn.busy_timeout(Duration::from_secs(5))?;
    conn.pragma_update(None, "journal_mode", "WAL")?;
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    conn.pragma_update(None, "cache_size", -CACHE_KIB)?;
    // A log that grew while somebody read it does not keep its place on the disk.
    conn.pragma_update(None, "journal_size_limit", LOG_BYTES_KEPT)?;
    // The log is copied back by `Checkpoints`, never within a commit.
    conn.pragma_update(None, "wal_autocheckpoint", 0)
}

/// Statements stay prepared. Without the query planner's stability guarantee (SQLITE_DBCONFIG_ENABLE_QPSG), a build
/// with SQLITE_ENABLE_STAT4 such as the bundled one prepares a statement anew whenever a value is bound to a range.
fn prepare_once(conn: &Connection) -> rusqlite::Result<()> {
    conn.set_prepared_statement_cache_capacity(128);
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(|_| ())
}

/// Keeps a second process off the file: SQLite would allow it, the engine's batches would collide.
fn lock(path: &Path) -> std::io::Result<File> {
    let mut name = PathBuf::from(path).into_os_string();
    name.push(".lock");
    let file = File::options().create(true).truncate(false).read(true).write(true).open(name)?;
    file.try_lock().map_err(|error| match error {
        std::fs::TryLockError::WouldBlock => {
            std::io::Error::other("another process holds it; stop that one first")
        }
        std::fs::TryLockError::Error(error) => error,
    })?;
    Ok(file)
}
