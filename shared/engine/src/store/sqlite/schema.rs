//! Shell: creates and upgrades the tables: numbered migrations for the engine's own, declarations for those of row kinds.

use rusqlite::{Connection, OptionalExtension, params};
use saga_core::row::RowKind;

use super::connection::SharedConnection;
use super::run;
use super::values::now_micros;
use crate::store::StoreFault;
use crate::store::fold;
use crate::store::migrations::{Applied, Migration, missing};
use crate::store::sql_error::db_fault;

/// Migrations in order. A migration never changes once released.
const MIGRATIONS: [&str; 1] = [include_str!("migrations/0001_base.sql")];

/// Applies the migrations that the database lacks. The caller holds the write lock.
pub(super) fn migrate(conn: &Connection) -> Result<(), StoreFault> {
    apply(conn, &MIGRATIONS)
}

fn apply(conn: &Connection, migrations: &[&'static str]) -> Result<(), StoreFault> {
    conn.execute_batch(
        "CREATE TABLE IF NOT EXISTS migration (
             number INTEGER PRIMARY KEY, checksum TEXT NOT NULL, applied_at INTEGER NOT NULL)",
    )
    .map_err(db_fault("creating the table of migrations"))?;
    // One process at a time uses the file, so that no migration needs to suit an older build as well.
    let applied = |row: &rusqlite::Row<'_>| Ok(Applied { checksum: row.get(0)?, is_additive: false });
    let applied: Vec<Applied> = conn
        .prepare("SELECT checksum FROM migration ORDER BY number")
        .and_then(|mut statement| statement.query_map([], applied)?.collect())
        .map_err(db_fault("reading the table of migrations"))?;
    for Migration { number, sql, checksum } in missing(migrations, &applied)? {
        conn.execute_batch(sql).map_err(db_fault("applying a migration"))?;
        conn.execute(
            "INSERT INTO migration (number, checksum, applied_at) VALUES (?1, ?2, ?3)",
            params![number, checksum, now_micros()],
        )
        .map_err(db_fault("recording a migration"))?;
    }
    Ok(())
}

/// Creates the table of a row kind. Creates it anew, and folds its rows from the events, if it is missing or its fields
/// have changed.
pub(super) fn declare(shared: &SharedConnection, kind: &RowKind) -> Result<(), StoreFault> {
    let conn = &*shared.lock();
    let fields = kind.fields.join(",");
    let declared: Option<String> = conn
        .query_row("SELECT fields FROM row_kind WHERE name = ?1", [kind.name], |row| row.get(0))
        .optional()
        .map_err(db_fault("reading the declared kinds"))?;
    let exists: bool = conn
        .query_row(
            "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'row_' || ?1)",
            [kind.name],
            |row| row.get(0),
        )
        .map_err(db_fault("looking for the table of a kind"))?;
    if declared.as_deref() == Some(&fields) && exists {
        return Ok(());
    }
    let (name, columns): (_, String) =
        (kind.name, kind.fields.iter().map(|field| format!(", {field}")).collect());
    let mut sql = format!(
        "DROP TABLE IF EXISTS row_{name};
         CREATE TABLE row_{name} (
             id TEXT PRIMARY KEY, version INTEGER NOT NULL, state TEXT NOT NULL,
             created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, due INTEGER{columns}
         ) WITHOUT ROWID;
         CREATE INDEX row_{name}_due ON row_{name} (due) WHERE due IS NOT NULL;"
    );
    for field in kind.fields {
        sql.push_str(&format!("CREATE INDEX row_{name}_{field} ON row_{name} ({field}, id);"));
    }
    conn.execute_batch(&sql).map_err(db_fault("creating the table of a kind"))?;
    conn.execute("INSERT OR REPLACE INTO row_kind (name, fields) VALUES (?1, ?2)", params![name, fields])
        .map_err(db_fault("recording a declared kind"))?;
    run(fold::rebuild(shared, kind)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Migration as the next release may bring it.
    const EXAMPLE: &str = "-- Additive: a priority for each entry.
        ALTER TABLE outbox ADD COLUMN priority INTEGER NOT NULL DEFAULT 5;";

    fn base() -> Connection {
        let conn = Connection::open_in_memory().expect("a database");
        migrate(&conn).expect("the base schema");
        conn
    }

    #[test]
    fn additive_migration_keeps_stored_entries_and_applies_once() {
        let conn = base();
        let insert = "INSERT INTO outbox (seq, id, saga, subject, payload, status, created_at)
             VALUES (?1, x'01', x'02', 'depot.stored', x'03', ?2, 4)";
        let statuses = [None, Some("FAILED"), Some("BLOCKED"), Some("RETRY"), Some("REPUBLISH")];
        for (seq, status) in (1..).zip(statuses) {
            conn.execute(insert, params![seq, status]).expect("an entry");
        }
        for _ in 0..2 {
            apply(&conn, &[MIGRATIONS[0], EXAMPLE]).expect("the upgrade");
            let entries: i64 = conn
                .query_row("SELECT count(*) FROM outbox WHERE priority = 5", [], |row| row.get(0))
                .expect("a count");
            assert_eq!(entries, 5);
        }
    }

    #[test]
    fn older_build_refuses_upgraded_file() {
        let conn = base();
        apply(&conn, &[MIGRATIONS[0], EXAMPLE]).expect("the upgrade");
        let fault = migrate(&conn).expect_err("the schema is newer").to_string();
        assert!(fault.contains("start a newer build"), "{fault}");
    }

    #[test]
    fn outbox_rejects_unknown_status() {
        let insert = "INSERT INTO outbox (id, saga, subject, payload, status, created_at)
             VALUES (x'01', x'02', 'depot.stored', x'03', 'PUBLISHED', 4)";
        assert!(base().execute(insert, []).is_err());
    }
}
