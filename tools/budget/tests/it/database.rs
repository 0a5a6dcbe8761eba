//! Shell: counts what SQLite does, through trace callbacks on each connection that a store opens.

#![expect(unsafe_code, reason = "SQLite calls back in C; no safe way leads to the connections of a store")]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rusqlite::{Connection, OpenFlags, auto_extension, ffi};

use crate::allocations::uncounted;

/// Sizes of the write-ahead log's header and of each page's header, which starts with the page number.
const LOG_HEAD: usize = 32;
const PAGE_HEAD: usize = 24;
const PAGE: usize = 4096;

/// Traces by path of the database. They are never freed, since SQLite keeps pointers to them.
static TRACES: Mutex<BTreeMap<String, &'static DatabaseTrace>> = Mutex::new(BTreeMap::new());

/// Work of SQLite inside transactions. Work outside of them, such as periodic markers, belongs to no saga.
#[derive(Default)]
pub struct DatabaseTrace {
    statements: Mutex<BTreeMap<String, u64>>,
    pages: AtomicU64,
}

/// Resources used by a database so far.
#[derive(Debug, Clone, Default)]
pub struct Usage {
    /// Statements by verb and table.
    pub statements: BTreeMap<String, u64>,
    /// Pages written to the log.
    pub pages: u64,
    pub log_bytes: u64,
    /// Size of the database after a checkpoint.
    pub database_bytes: u64,
}

impl DatabaseTrace {
    /// Number of committed write transactions.
    pub fn commits(&self) -> u64 {
        self.statements.lock().get("COMMIT").copied().unwrap_or(0)
    }

    pub fn usage(&self, path: &Path) -> Usage {
        let (_, page_count) = pages_of(path);
        Usage {
            statements: self.statements.lock().clone(),
            pages: self.pages.load(Ordering::Relaxed),
            log_bytes: log(path).len() as u64,
            database_bytes: page_count * PAGE as u64,
        }
    }
}

/// Traces the connections that `open` opens to the database at this path.
pub fn traced<T>(path: &Path, open: impl FnOnce() -> T) -> (T, &'static DatabaseTrace) {
    let trace: &'static DatabaseTrace = Box::leak(Box::default());
    TRACES.lock().insert(path.display().to_string(), trace);
    // SAFETY: `on_open` opens and closes nothing, and changes no list of extensions.
    unsafe { auto_extension::register_auto_extension(on_open) }.expect("SQLite takes extensions");
    let opened = open();
    auto_extension::cancel_auto_extension(on_open);
    (opened, trace)
}

/// Counts the pages in the log after its first `offset` bytes, by table or index. The first page of the
/// database has the change counter, so each commit writes it.
pub fn pages_written(path: &Path, offset: u64) -> BTreeMap<String, u64> {
    let (names, _) = pages_of(path);
    let log = log(path);
    let offset = usize::try_from(offset).expect("a small log").max(LOG_HEAD);
    let mut written = BTreeMap::new();
    for page in log[offset..].chunks_exact(PAGE_HEAD + PAGE) {
        let number = u32::from_be_bytes(page[..4].try_into().expect("four bytes"));
        let name = match number {
            1 => "the first page",
            _ => names.get(&number).map_or("free", String::as_str),
        };
        *written.entry(name.to_owned()).or_default() += 1;
    }
    written
}

/// Runs a checkpoint and truncates the log, so that none happens while pages are counted.
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

/// Owner of each page, and the number of pages.
fn pages_of(path: &Path) -> (BTreeMap<u32, String>, u64) {
    let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("the database");
    let mut select = conn.prepare("SELECT pageno, name FROM dbstat").expect("the bundled SQLite has it");
    let names = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("it is no damaged one");
    let names = names.collect::<Result<_, _>>().expect("it is no damaged one");
    let count: i64 = conn.query_row("PRAGMA page_count", [], |row| row.get(0)).expect("a number");
    (names, count.unsigned_abs())
}

/// Called by SQLite for each new connection.
unsafe extern "C" fn on_open(
    db: *mut ffi::sqlite3,
    _: *mut *mut c_char,
    _: *const ffi::sqlite3_api_routines,
) -> c_int {
    // SAFETY: SQLite passes an open connection, and the name of its file ends with a zero byte.
    let path = unsafe { CStr::from_ptr(ffi::sqlite3_db_filename(db, c"main".as_ptr())) };
    let trace = TRACES.lock().get(path.to_string_lossy().as_ref()).copied();
    if let Some(trace) = trace {
        let events = ffi::SQLITE_TRACE_STMT | ffi::SQLITE_TRACE_PROFILE;
        let context = std::ptr::from_ref(trace).cast_mut().cast::<c_void>();
        // SAFETY: a trace is never freed.
        unsafe { ffi::sqlite3_trace_v2(db, events, Some(on_trace), context) };
    }
    ffi::SQLITE_OK
}

/// Called by SQLite when a statement starts or ends.
unsafe extern "C" fn on_trace(
    event: c_uint,
    context: *mut c_void,
    statement: *mut c_void,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the context is the trace that `on_open` has set; both events are about a statement.
    let (trace, statement) =
        unsafe { (&*context.cast::<DatabaseTrace>(), statement.cast::<ffi::sqlite3_stmt>()) };
    // SAFETY: the statement and its connection are open.
    let (db, sql) =
        unsafe { (ffi::sqlite3_db_handle(statement), CStr::from_ptr(ffi::sqlite3_sql(statement))) };
    let sql = sql.to_str().unwrap_or_default();
    uncounted(|| match event {
        ffi::SQLITE_TRACE_STMT => {
            // SAFETY: the connection is open.
            let is_outside = unsafe { ffi::sqlite3_get_autocommit(db) } != 0;
            if !is_outside || sql.starts_with("BEGIN") {
                *trace.statements.lock().entry(statement_name(sql)).or_default() += 1;
            }
        }
        _ if sql == "COMMIT" => {
            let (mut pages, mut highest) = (0, 0);
            // SAFETY: the connection is open, and used by this thread only.
            unsafe {
                ffi::sqlite3_db_status(db, ffi::SQLITE_DBSTATUS_CACHE_WRITE, &mut pages, &mut highest, 1)
            };
            trace.pages.fetch_add(u64::try_from(pages).unwrap_or(0), Ordering::Relaxed);
        }
        _ => {}
    });
    0
}

/// Names a statement by its verb and its table.
fn statement_name(sql: &str) -> String {
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
