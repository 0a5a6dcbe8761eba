//! Shell: the store on SQLite: one writer thread, and readers beside it.

mod checkpoint;
mod db_location;
mod db_open;
mod due_work;
mod history;
mod history_at;
mod leases;
mod load;
mod log_scan;
mod monitoring;
mod outbox;
mod overrides;
mod queries;
mod readers;
mod retention;
mod roles;
mod schema;
mod trim;
mod values;
mod write;
mod writer;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use parking_lot::Mutex;
use rusqlite::Connection;
use rusqlite::backup::Backup;
use rusqlite::config::DbConfig;
use saga_core::retry::error_chain;
use saga_core::row::RowKind;

use self::checkpoint::Checkpoints;
use self::db_location::DbLocation;
use self::db_open::PositionFile;
use self::log_scan::LogScan;
use self::readers::{Lane, Readers};
use self::values::db_fault;
use self::write::KindSql;
use self::writer::{Urgency, Writer, in_transaction};
use super::{Answer, OpenOptions, StoreFault};

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
    kinds: Arc<Kinds>,
    /// Location of the file; `None` in memory.
    location: Option<DbLocation>,
    /// Progress of a verification in parts.
    scan: Arc<Mutex<Option<LogScan>>>,
    _lock: Option<File>,
}

struct Kinds {
    declared: Vec<RowKind>,
    sql: BTreeMap<&'static str, KindSql>,
}

/// Empty database in memory with all its tables, to be copied. Creating the tables takes as long as hundreds of
/// transactions, and a simulation needs thousands of databases.
pub struct Template {
    kinds: Arc<Kinds>,
    made: Mutex<Connection>,
}

impl Template {
    /// Template with tables for rows of these kinds.
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
        let refused = |reason| StoreFault::Unusable(format!("database {}: {reason}", path.display()));
        if options.must_exist && !path.metadata().is_ok_and(|file| file.len() > 0) {
            return Err(refused("there is none".to_owned()));
        }
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| unusable("its folder cannot be made", &error))?;
        }
        let lock = lock(path).map_err(|error| unusable("cannot be locked", &error))?;
        let mut positions = PositionFile::new(&lock).map_err(|error| unusable("cannot be locked", &error))?;
        let mut conn = Connection::open(path).map_err(|error| unusable("cannot be opened", &error))?;
        configure(&conn).map_err(|error| refused(db_open::unusable(&error)))?;
        let kinds = Arc::new(Kinds::of(kinds));
        db_open::check_before(&mut conn, options, &positions).map_err(refused)?;
        prepare(&conn, &kinds).map_err(|fault| unusable("cannot be used", &error_chain(&fault)))?;
        let made = made_in_memory(&kinds)?;
        db_open::check_after(&conn, &made, options, &mut positions).map_err(refused)?;
        outbox::check_position(&conn)?;
        let location = DbLocation::of(path).map_err(|error| unusable("cannot be found", &error))?;
        let file =
            File::open(path).map(Arc::new).map_err(|error| unusable("cannot be opened again", &error))?;
        let checkpoints = Checkpoints::of(path, &mut conn, file.clone())
            .map_err(|error| unusable("cannot be opened again", &error))?;
        let readers = Readers::open(path, &file, checkpoints.log())
            .map_err(|error| unusable("cannot be read", &error))?;
        let writer = Writer::start(conn, location.clone(), positions, checkpoints)
            .map_err(|error| unusable("no thread for its writer", &error))?;
        let (readers, location, scan) = (Some(readers), Some(location), Arc::default());
        Ok(Self { writer, readers, kinds, location, scan, _lock: Some(lock) })
    }

    /// Database in memory that works on the caller's thread: every future is ready at once.
    ///
    /// # Errors
    /// None in practice.
    pub fn in_memory(kinds: Vec<RowKind>) -> Result<Self, StoreFault> {
        let kinds = Arc::new(Kinds::of(kinds));
        Ok(Self::inline(made_in_memory(&kinds)?, kinds))
    }

    /// Copy of the template in memory; works like [`SqliteStore::in_memory`].
    ///
    /// # Errors
    /// None in practice.
    pub fn copy_of(template: &Template) -> Result<Self, StoreFault> {
        let mut conn = empty_in_memory()?;
        let made = template.made.lock();
        Backup::new(&made, &mut conn)
            .and_then(|copy| copy.step(-1))
            .map_err(db_fault("copying a database in memory"))?;
        Ok(Self::inline(conn, template.kinds.clone()))
    }

    fn inline(conn: Connection, kinds: Arc<Kinds>) -> Self {
        let (writer, scan) = (Writer::Inline(Mutex::new(conn)), Arc::default());
        Self { writer, readers: None, kinds, location: None, scan, _lock: None }
    }

    /// Runs `work` in a write transaction, merged with other waiting work.
    fn write<T: Send + 'static>(
        &self,
        work: impl FnMut(&Connection) -> Result<T, StoreFault> + Send + 'static,
    ) -> Answer<'_, T> {
        self.writer.write(Urgency::Immediate, work)
    }

    /// Runs `work` on a read connection. Dropping the future interrupts it.
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

/// Database in memory with all tables.
fn made_in_memory(kinds: &Kinds) -> Result<Connection, StoreFault> {
    let conn = empty_in_memory()?;
    prepare(&conn, kinds)?;
    Ok(conn)
}

fn empty_in_memory() -> Result<Connection, StoreFault> {
    let conn = Connection::open_in_memory().map_err(db_fault("opening a database in memory"))?;
    prepare_once(&conn).map_err(db_fault("configuring a database in memory"))?;
    Ok(conn)
}

fn prepare(conn: &Connection, kinds: &Kinds) -> Result<(), StoreFault> {
    in_transaction(conn, || {
        schema::migrate(conn)?;
        kinds.declared.iter().try_for_each(|kind| schema::declare(conn, kind))
    })
}

/// Makes each commit durable: `synchronous=FULL` syncs the write-ahead log before the commit returns.
fn configure(conn: &Connection) -> rusqlite::Result<()> {
    prepare_once(conn)?;
    conn.busy_timeout(Duration::from_secs(5))?;
    conn.pragma_update(None, "journal_mode", "WAL")?;
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    conn.pragma_update(None, "cache_size", -CACHE_KIB)?;
    // A log that grew during a long read gives its disk space back.
    conn.pragma_update(None, "journal_size_limit", LOG_BYTES_KEPT)?;
    // `Checkpoints` copies the log, never a commit.
    conn.pragma_update(None, "wal_autocheckpoint", 0)
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
