//! Shell: what SQLite does for a database, heard from SQLite itself: every connection that a store opens is watched.

#![expect(unsafe_code, reason = "SQLite calls back in C; no safe way leads to the connections of a store")]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rusqlite::{Connection, OpenFlags, auto_extension, ffi};

use crate::allocations::uncounted;

/// Bytes of the head of a write-ahead log, and of the head of each page in it, in which the page's number is first.
const LOG_HEAD: usize = 32;
const PAGE_HEAD: usize = 24;
const PAGE: usize = 4096;

/// The databases that are watched, by path. There for as long as the process, as SQLite holds on to them.
static WATCHED: Mutex<BTreeMap<String, &'static Watched>> = Mutex::new(BTreeMap::new());

/// What SQLite has done so far inside of transactions. What stands outside of them is no saga's: marks, by the clock.
#[derive(Default)]
pub struct Watched {
    statements: Mutex<BTreeMap<String, u64>>,
    pages: AtomicU64,
}

/// A look at a database.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Statements by verb and table.
    pub statements: BTreeMap<String, u64>,
    /// Pages that were written to the log.
    pub pages: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Bytes of the database, once the log is copied back.
    pub database_bytes: u64,
}

impl Watched {
    /// Write transactions that were committed.
    pub fn commits(&self) -> u64 {
        self.statements.lock().get("COMMIT").copied().unwrap_or(0)
    }

    /// What it has come to.
    pub fn look(&self, path: &Path) -> Seen {
        let (_, pages_in_all) = pages_of(path);
        Seen {
            statements: self.statements.lock().clone(),
            pages: self.pages.load(Ordering::Relaxed),
            log_bytes: log(path).len() as u64,
            database_bytes: pages_in_all * PAGE as u64,
        }
    }
}

/// Watches whatever is opened by `open`, which opens the database at this path.
pub fn watched<T>(path: &Path, open: impl FnOnce() -> T) -> (T, &'static Watched) {
    let watched: &'static Watched = Box::leak(Box::default());
    WATCHED.lock().insert(path.display().to_string(), watched);
    // SAFETY: `watch` opens and closes nothing, and changes no list of extensions.
    unsafe { auto_extension::register_auto_extension(watch) }.expect("SQLite takes extensions");
    let opened = open();
    auto_extension::cancel_auto_extension(watch);
    (opened, watched)
}

/// Which tables and indexes the pages are of that were written to the log behind its first so many bytes. In the first
/// page of all stands how many commits there were, so that each writes it.
pub fn pages_written(path: &Path, behind: u64) -> BTreeMap<String, u64> {
    let (names, _) = pages_of(path);
    let log = log(path);
    let behind = usize::try_from(behind).expect("a small log").max(LOG_HEAD);
    let mut written = BTreeMap::new();
    for page in log[behind..].chunks_exact(PAGE_HEAD + PAGE) {
        let number = u32::from_be_bytes(page[..4].try_into().expect("four bytes"));
        let name = match number {
            1 => "the first page",
            _ => names.get(&number).map_or("free", String::as_str),
        };
        *written.entry(name.to_owned()).or_default() += 1;
    }
    written
}

/// Copies the log back to the database, and begins it anew: with what is counted it must not come to that by itself.
pub fn empty_log(path: &Path) {
    let conn = Connection::open(path).expect("the database");
    let is_busy: bool = conn
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
        .expect("the log can be copied back");
    assert!(!is_busy && log(path).is_empty(), "nobody reads or writes meanwhile");
}

fn log(path: &Path) -> Vec<u8> {
    std::fs::read(format!("{}-wal", path.display())).expect("a write-ahead log")
}

/// Whose each page is, and how many there are.
fn pages_of(path: &Path) -> (BTreeMap<u32, String>, u64) {
    let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("the database");
    let mut select = conn.prepare("SELECT pageno, name FROM dbstat").expect("the bundled SQLite has it");
    let names = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("it is no damaged one");
    let names = names.collect::<Result<_, _>>().expect("it is no damaged one");
    let count: i64 = conn.query_row("PRAGMA page_count", [], |row| row.get(0)).expect("a number");
    (names, count.unsigned_abs())
}

/// SQLite has opened a connection.
unsafe extern "C" fn watch(
    db: *mut ffi::sqlite3,
    _: *mut *mut c_char,
    _: *const ffi::sqlite3_api_routines,
) -> c_int {
    // SAFETY: SQLite has just opened it, and names a file that ends with a zero.
    let path = unsafe { CStr::from_ptr(ffi::sqlite3_db_filename(db, c"main".as_ptr())) };
    let watched = WATCHED.lock().get(path.to_string_lossy().as_ref()).copied();
    if let Some(watched) = watched {
        let events = ffi::SQLITE_TRACE_STMT | ffi::SQLITE_TRACE_PROFILE;
        let context = std::ptr::from_ref(watched).cast_mut().cast::<c_void>();
        // SAFETY: what is watched is there for as long as the process.
        unsafe { ffi::sqlite3_trace_v2(db, events, Some(hear), context) };
    }
    ffi::SQLITE_OK
}

/// SQLite begins with a statement, or is done with it.
unsafe extern "C" fn hear(
    event: c_uint,
    context: *mut c_void,
    statement: *mut c_void,
    _: *mut c_void,
) -> c_int {
    // SAFETY: `watch` has given it, and it is never freed; a statement is what both events are about.
    let (watched, statement) =
        unsafe { (&*context.cast::<Watched>(), statement.cast::<ffi::sqlite3_stmt>()) };
    // SAFETY: the statement is there, and so is its connection.
    let (db, sql) =
        unsafe { (ffi::sqlite3_db_handle(statement), CStr::from_ptr(ffi::sqlite3_sql(statement))) };
    let sql = sql.to_str().unwrap_or_default();
    uncounted(|| match event {
        ffi::SQLITE_TRACE_STMT => {
            // SAFETY: the connection is there.
            let is_outside = unsafe { ffi::sqlite3_get_autocommit(db) } != 0;
            if !is_outside || sql.starts_with("BEGIN") {
                *watched.statements.lock().entry(named(sql)).or_default() += 1;
            }
        }
        _ if sql == "COMMIT" => {
            let (mut pages, mut highest) = (0, 0);
            // SAFETY: as above; it is asked by the thread that uses it.
            unsafe {
                ffi::sqlite3_db_status(db, ffi::SQLITE_DBSTATUS_CACHE_WRITE, &mut pages, &mut highest, 1)
            };
            watched.pages.fetch_add(u64::try_from(pages).unwrap_or(0), Ordering::Relaxed);
        }
        _ => {}
    });
    0
}

/// A statement by its verb and its table.
fn named(sql: &str) -> String {
    let words: Vec<&str> =
        sql.split(|c: char| c.is_whitespace() || "(),".contains(c)).filter(|it| !it.is_empty()).collect();
    let verb = words.first().copied().unwrap_or_default();
    let before_table = match verb {
        "INSERT" => "INTO",
        "UPDATE" => "UPDATE",
        _ => "FROM",
    };
    let table = words.iter().skip_while(|word| **word != before_table).nth(1);
    table.map_or_else(|| verb.to_owned(), |table| format!("{verb} {table}"))
}
