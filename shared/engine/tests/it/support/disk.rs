//! A store over a file in which statements can be made to fail.
//!
//! The fault is real: a trigger, put into the database from outside, makes SQLite refuse a statement.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use saga_core::service::Service as _;
use saga_engine::store::Store;
use saga_engine::store::sqlite::SqliteStore;
use tempfile::TempDir;

use super::depot::Depot;

/// Disk under a store.
pub struct Disk {
    path: PathBuf,
    _folder: TempDir,
}

impl Disk {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { path: folder.path().join("depot.db"), _folder: folder }
    }

    /// Opens its store. One at a time.
    pub fn store(&self) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(&self.path, Depot::rows()).expect("its database"))
    }

    /// Makes inserts into this table fail.
    pub fn rejects(&self, table: &str, severity: &str) {
        self.change(&format!(
            "CREATE TRIGGER no_{table} BEFORE INSERT ON {table} BEGIN SELECT RAISE({severity}, 'disk full'); END"
        ));
    }

    /// Lets inserts into this table succeed again.
    pub fn works(&self, table: &str) {
        self.change(&format!("DROP TRIGGER no_{table}"));
    }

    /// Somebody has written this event of a shelf, so that nobody else can.
    pub fn conflicts_at(&self, label: &str, version: i64) {
        self.change(&format!(
            "INSERT INTO event (kind, row_id, version, name, data, causation_id, recorded_at)
             VALUES ('shelf', '{label}', {version}, 'Listed', '\"Listed\"', x'00', 0)"
        ));
    }

    /// New shelves that are decided before `at` are somebody else's when they are written.
    pub fn conflicts_before(&self, at: jiff::Timestamp) {
        self.change(&format!(
            "CREATE TRIGGER conflict BEFORE INSERT ON row_shelf WHEN NEW.updated_at < {}
             BEGIN SELECT RAISE(IGNORE); END",
            at.as_microsecond()
        ));
    }

    fn change(&self, sql: &str) {
        let conn = Connection::open(&self.path).expect("the file");
        conn.busy_timeout(Duration::from_secs(5)).expect("a pragma");
        conn.execute_batch(sql).expect("the change");
    }
}
