//! Shell: the store on SQLite: one writer thread, and readers beside it.

mod checkpoint;
mod connection;
mod db_location;
mod db_open;
mod leases;
mod load;
mod readers;
mod schema;
mod values;
mod write;
mod writer;

use std::collections::BTreeMap;
use std::fs::File;
use std::future::ready;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use jiff::Timestamp;
use parking_lot::Mutex;
use rusqlite::Connection;
use rusqlite::backup::Backup;
use rusqlite::config::DbConfig;
use saga_core::decision::{Decide, Reads};
use saga_core::retry::error_chain;
use saga_core::row::RowKind;

use self::checkpoint::Checkpoints;
use self::connection::SharedConnection;
use self::db_location::DbLocation;
use self::db_open::PositionFile;
use self::readers::Readers;
use self::write::KindSql;
use self::writer::{Writer, in_transaction};
use super::backend::{Backend, DiskUse, Kinds, Lane, LocationCheck, Urgency, Work};
use super::highest_position::HighestPosition;
use super::log_scan::LogScan;
use super::roles::{Leases, Replicas, Transactions};
use super::sql_error::db_fault;
use super::write_health::WriteHealth;
use super::{Answer, Lease, OpenOptions, OutboxEntry, ReplicaSignal, StoreFault};

/// Page cache of a connection in KiB: enough for the newest rows, and far below the 60 MiB that a service may use.
const CACHE_KIB: i64 = 8 * 1024;

/// Maximum size of the write-ahead log's file after the log restarts.
const LOG_BYTES_KEPT: i64 = 64 << 20;

/// SQLite database file that only this process uses.
pub struct SqliteStore {
    /// Dropped first, which waits for the thread: the file may be opened again after that.
    writer: Writer,
    /// `None` beside an inline writer, whose connection also reads.
    readers: Option<Readers>,
    tables: Tables,
    /// Location of the file; `None` in memory.
    location: Option<DbLocation>,
    highest_position: HighestPosition,
    write_health: WriteHealth,
    log_scan: Arc<Mutex<Option<LogScan>>>,
    _lock: Option<File>,
}

/// Kinds of rows, and the statements for their tables.
#[derive(Clone)]
struct Tables {
    kinds: Arc<Kinds>,
    sql: Arc<BTreeMap<&'static str, KindSql>>,
}

/// Empty database in memory with all its tables, to be copied. Creating the tables takes as long as hundreds of
/// transactions, and a simulation needs thousands of databases.
pub struct Template {
    tables: Tables,
    conn: SharedConnection,
}

impl Template {
    /// Template with tables for rows of these kinds.
    ///
    /// # Errors
    /// None in practice.
    pub fn of(kinds: Vec<RowKind>) -> Result<Self, StoreFault> {
        let tables = Tables::of(kinds);
        let conn = create_in_memory(&tables.kinds)?;
        Ok(Self { tables, conn })
    }
}

impl SqliteStore {
    /// Opens the file with default options; see [`SqliteStore::open_as`].
    ///
    /// # Errors
    /// Like [`SqliteStore::open_as`].
    pub fn open(path: &Path, kinds: Vec<RowKind>) -> Result<Self, StoreFault> {
        Self::open_as(path, kinds, &OpenOptions::default())
    }

    /// Opens or creates the file, brings its tables up to date and starts the writer thread.
    ///
    /// # Errors
    /// [`StoreFault::Unusable`] with the reason. Examples are missing permission, a damaged file, and a file of a newer build,
    /// of another service, in use by another process, or behind its position.
    pub fn open_as(path: &Path, kinds: Vec<RowKind>, options: &OpenOptions<'_>) -> Result<Self, StoreFault> {
        let unusable = |what: &str, error: &dyn std::fmt::Display| {
            StoreFault::Unusable(format!("database {}: {what}: {error}", path.display()))
        };
        let rejected = |reason| StoreFault::Unusable(format!("database {}: {reason}", path.display()));
        if options.must_exist && !path.metadata().is_ok_and(|file| file.len() > 0) {
            return Err(rejected("there is none".to_owned()));
        }
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| unusable("its folder cannot be made", &error))?;
        }
        let lock = lock(path).map_err(|error| unusable("cannot be locked", &error))?;
        let highest_position = HighestPosition::default();
        let mut positions = PositionFile::new(&lock, highest_position.clone())
            .map_err(|error| unusable("cannot be locked", &error))?;
        let conn = Connection::open(path).map_err(|error| unusable("cannot be opened", &error))?;
        configure(&conn).map_err(|error| rejected(db_open::unusable(&error)))?;
        let (mut conn, tables) = (SharedConnection::new(conn), Tables::of(kinds));
        db_open::check_before(&mut conn, options, &positions).map_err(rejected)?;
        prepare(&conn, &tables.kinds).map_err(|fault| unusable("cannot be used", &error_chain(&fault)))?;
        let reference = create_in_memory(&tables.kinds)?;
        db_open::check_after(&conn, &reference, options, &mut positions).map_err(rejected)?;
        let location = DbLocation::of(path).map_err(|error| unusable("cannot be found", &error))?;
        let file =
            File::open(path).map(Arc::new).map_err(|error| unusable("cannot be opened again", &error))?;
        let checkpoints = Checkpoints::of(path, conn.get_mut(), file.clone())
            .map_err(|error| unusable("cannot be opened again", &error))?;
        let readers = Readers::open(path, &file, checkpoints.log())
            .map_err(|error| unusable("cannot be read", &error))?;
        let write_health = WriteHealth::default();
        let writer = Writer::start(conn, location.clone(), positions, checkpoints, write_health.clone())
            .map_err(|error| unusable("no thread for its writer", &error))?;
        let (readers, location, log_scan) = (Some(readers), Some(location), Arc::default());
        Ok(Self {
            writer,
            readers,
            tables,
            location,
            highest_position,
            write_health,
            log_scan,
            _lock: Some(lock),
        })
    }

    /// Database in memory that works on the caller's thread: every future is ready at once.
    ///
    /// # Errors
    /// None in practice.
    pub fn in_memory(kinds: Vec<RowKind>) -> Result<Self, StoreFault> {
        let tables = Tables::of(kinds);
        Ok(Self::inline(create_in_memory(&tables.kinds)?, tables))
    }

    /// Copy of the template in memory; works like [`SqliteStore::in_memory`].
    ///
    /// # Errors
    /// None in practice.
    pub fn copy_of(template: &Template) -> Result<Self, StoreFault> {
        let mut conn = empty_in_memory()?;
        Backup::new(&template.conn.lock(), &mut conn)
            .and_then(|copy| copy.step(-1))
            .map_err(db_fault("copying a database in memory"))?;
        Ok(Self::inline(SharedConnection::new(conn), template.tables.clone()))
    }

    fn inline(conn: SharedConnection, tables: Tables) -> Self {
        let (writer, highest_position) = (Writer::Inline(conn), HighestPosition::default());
        let (write_health, log_scan) = (WriteHealth::default(), Arc::default());
        Self {
            writer,
            readers: None,
            tables,
            location: None,
            highest_position,
            write_health,
            log_scan,
            _lock: None,
        }
    }
}

impl Tables {
    fn of(kinds: Vec<RowKind>) -> Self {
        let sql = kinds.iter().map(|kind| (kind.name, KindSql::of(kind))).collect();
        Self { kinds: Arc::new(Kinds(kinds)), sql: Arc::new(sql) }
    }
}

impl Backend for SqliteStore {
    type Conn = SharedConnection;

    const MIN_SETTLE_INTERVAL: Duration = Duration::ZERO;

    fn kinds(&self) -> &Arc<Kinds> {
        &self.tables.kinds
    }

    fn log_scan(&self) -> &Arc<Mutex<Option<LogScan>>> {
        &self.log_scan
    }

    fn read<A: Send + Sync + 'static, T: Send + 'static>(
        &self,
        lane: Lane,
        args: A,
        work: Work<SharedConnection, A, T>,
    ) -> Answer<'_, T> {
        if let Err(lost) = self.highest_position.check() {
            return Box::pin(ready(Err(lost)));
        }
        match (&self.writer, &self.readers) {
            (Writer::Thread(_), Some(readers)) => readers.read(lane, move |conn| run(work(conn, &args))),
            (Writer::Thread(_), None) => Box::pin(ready(Err(StoreFault::Closed))),
            (Writer::Inline(conn), _) => Box::pin(ready(run(work(conn, &args)))),
        }
    }

    fn snapshot<A: Send + Sync + 'static, T: Send + 'static>(
        &self,
        lane: Lane,
        args: A,
        work: Work<SharedConnection, A, T>,
    ) -> Answer<'_, T> {
        self.read(lane, args, work)
    }

    fn highest_position(&self) -> &HighestPosition {
        &self.highest_position
    }

    /// Runs work in a write transaction, merged with other waiting work.
    fn write<A: Send + Sync + 'static, T: Send + 'static>(
        &self,
        urgency: Urgency,
        args: A,
        work: Work<SharedConnection, A, T>,
    ) -> Answer<'_, T> {
        self.writer.write(urgency, move |conn| run(work(conn, &args)))
    }

    fn notify(&self, _signal: ReplicaSignal) {}

    fn write_health(&self) -> &WriteHealth {
        &self.write_health
    }

    fn location_check(&self) -> LocationCheck {
        let location = self.location.clone();
        Arc::new(move || {
            let Some(location) = &location else { return Ok(DiskUse::default()) };
            location.check()?;
            Ok(location.disk_use())
        })
    }
}

impl Transactions for SqliteStore {
    fn transact(&self, reads: Reads, mut decide: Decide) -> Answer<'_, Vec<OutboxEntry>> {
        let sql = self.tables.sql.clone();
        self.writer.write(Urgency::Immediate, move |conn| {
            let conn = conn.lock();
            let writes = load::load_and_decide(&conn, &sql, &reads, &mut decide)?;
            write::write(&conn, &sql, &writes)
        })
    }
}

impl Replicas for SqliteStore {}

impl Leases for SqliteStore {
    fn acquire_lease<'a>(
        &'a self,
        name: &'static str,
        held: Option<&'a Lease>,
        owner: &'a str,
        now: Timestamp,
        until: Timestamp,
    ) -> Answer<'a, Option<Lease>> {
        let (held, owner) = (held.cloned(), owner.to_owned());
        self.writer.write(Urgency::Immediate, move |conn| {
            leases::acquire(&conn.lock(), name, held.as_ref(), &owner, now, until)
        })
    }

    fn release_lease<'a>(&'a self, name: &'static str, owner: &'a str) -> Answer<'a, ()> {
        let owner = owner.to_owned();
        self.writer.write(Urgency::Immediate, move |conn| leases::release(&conn.lock(), name, &owner))
    }
}

/// Time for which a write waits while another process holds a lock on the file, as a tool for SQLite may for a moment.
const LOCKED_FOR: Duration = Duration::from_secs(2);

/// Creates a database in memory with all tables.
fn create_in_memory(kinds: &Kinds) -> Result<SharedConnection, StoreFault> {
    let conn = SharedConnection::new(empty_in_memory()?);
    prepare(&conn, kinds)?;
    Ok(conn)
}

fn empty_in_memory() -> Result<Connection, StoreFault> {
    let conn = Connection::open_in_memory().map_err(db_fault("opening a database in memory"))?;
    prepare_once(&conn).map_err(db_fault("configuring a database in memory"))?;
    Ok(conn)
}

fn prepare(conn: &SharedConnection, kinds: &Kinds) -> Result<(), StoreFault> {
    in_transaction(conn, || {
        schema::migrate(&conn.lock())?;
        kinds.0.iter().try_for_each(|kind| schema::declare(conn, kind))
    })
}

fn configure(conn: &Connection) -> rusqlite::Result<()> {
    prepare_once(conn)?;
    conn.busy_timeout(LOCKED_FOR)?;
    conn.pragma_update(None, "journal_mode", "WAL")?;
    sync_writes(conn)?;
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    conn.pragma_update(None, "cache_size", -CACHE_KIB)?;
    // A log that grew during a long read gives its disk space back.
    conn.pragma_update(None, "journal_size_limit", LOG_BYTES_KEPT)?;
    // `Checkpoints` copies the log, never a commit.
    conn.pragma_update(None, "wal_autocheckpoint", 0)
}

/// Makes each commit and checkpoint durable: `synchronous=FULL` syncs before a commit returns, and `fullfsync` flushes the cache
/// of the disk on macOS, where a sync alone does not.
fn sync_writes(conn: &Connection) -> rusqlite::Result<()> {
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.pragma_update(None, "fullfsync", true)
}

/// Keeps statements prepared. Without the query planner's stability guarantee (SQLITE_DBCONFIG_ENABLE_QPSG), a build with
/// SQLITE_ENABLE_STAT4, such as the bundled one, prepares a statement again whenever a value is bound to a range.
fn prepare_once(conn: &Connection) -> rusqlite::Result<()> {
    conn.set_prepared_statement_cache_capacity(128);
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(|_| ())
}

/// Locks out other processes. SQLite would allow them, but batches of two engines would conflict.
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

/// Runs an algorithm whose SQL never waits, as none does on SQLite.
fn run<T>(algorithm: impl Future<Output = T>) -> T {
    match algorithm.now_or_never() {
        Some(result) => result,
        None => unreachable!("SQL on SQLite was not finished at once"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::super::PublishOutcome;
    use super::super::roles::{Monitoring as _, Outbox as _};
    use super::*;

    /// Database with so many published entries and three pending ones.
    fn store_with_published(count: i64) -> SqliteStore {
        let mut store = SqliteStore::in_memory(vec![]).expect("a database");
        let conn = connection(&mut store);
        let entries = "INSERT INTO outbox (seq, id, saga, subject, payload, created_at)
             WITH RECURSIVE counted (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < ?1 + 3)
             SELECT n, randomblob(16), randomblob(16), 'depot.stored', zeroblob(500), 0 FROM counted";
        conn.execute(entries, [count]).expect("entries");
        conn.execute("INSERT INTO publication VALUES (?1, 0)", [count]).expect("a publication");
        conn.execute("INSERT INTO lease VALUES ('relay', 'depot-1', 1, 9)", []).expect("a lease");
        store
    }

    fn connection(store: &mut SqliteStore) -> &mut Connection {
        match &mut store.writer {
            Writer::Inline(conn) => conn.get_mut(),
            Writer::Thread(_) => unreachable!("the database is in memory"),
        }
    }

    #[test]
    fn every_commit_is_synced_to_the_disk() {
        let conn = Connection::open_in_memory().expect("a database");
        configure(&conn).expect("it is configured");
        let pragma = |name| conn.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0));
        assert_eq!(["synchronous", "fullfsync"].map(pragma), [Ok(2), Ok(1)]);
    }

    /// Cost of some work, in steps of SQLite's virtual machine.
    fn steps<T>(store: &mut SqliteStore, work: impl FnOnce(&SqliteStore) -> Answer<'_, T>) -> (T, u64) {
        let counted = Arc::new(AtomicU64::new(0));
        let counter = counted.clone();
        let count = move || {
            counter.fetch_add(1, Ordering::Relaxed);
            false
        };
        connection(store).progress_handler(1, Some(count)).expect("a counter");
        let result = run(work(store)).expect("a result");
        connection(store).progress_handler(0, None::<fn() -> bool>).expect("no counter");
        (result, counted.load(Ordering::Relaxed))
    }

    #[test]
    fn relay_and_readiness_cost_the_same_beside_many_published_entries() {
        let costs = |count: i64| {
            let mut store = store_with_published(count);
            let lease = Lease { owner: "depot-1".to_owned(), fence: 1 };
            let outcome = PublishOutcome { done: vec![count + 1, count + 2], ..PublishOutcome::default() };
            let (entries, reading) = steps(&mut store, |store| store.pending_entries(9));
            let (stats, counting) = steps(&mut store, |store| store.stats());
            let (items, listing) = steps(&mut store, |store| store.outbox_items(9));
            let (is_settled, settling) =
                steps(&mut store, |store| store.settle(&lease, outcome, Timestamp::UNIX_EPOCH));
            let (retried, retrying) = steps(&mut store, |store| store.retry_failed_entries(None));
            assert_eq!((entries.len(), stats.outbox_pending, items.len()), (3, 3, 3));
            assert_eq!((is_settled, retried), (true, 0));
            [reading, counting, listing, settling, retrying]
        };
        let (few, many) = (costs(10), costs(5_000));
        for (few, many) in few.into_iter().zip(many) {
            assert!(many < few + 100, "{many} steps beside 5000 published entries, {few} beside ten");
        }
    }
}
