//! Shell: the tables: numbered migrations for the machinery, declarations for the kinds of rows.

use rusqlite::{Connection, OptionalExtension, params};
use saga_core::row::RowKind;

use super::values::{now_micros, oops};
use crate::store::StoreFault;
use crate::store::migrating::{Applied, Migration, missing};

/// Applied in order, once each, never changed afterwards.
const MIGRATIONS: [&str; 12] = [
    include_str!("migrations/0001_base.sql"),
    include_str!("migrations/0002_replay.sql"),
    include_str!("migrations/0003_renamed.sql"),
    include_str!("migrations/0004_identity.sql"),
    include_str!("migrations/0005_published.sql"),
    include_str!("migrations/0006_published_apart.sql"),
    include_str!("migrations/0007_trace.sql"),
    include_str!("migrations/0008_inbox.sql"),
    include_str!("migrations/0009_leaving.sql"),
    include_str!("migrations/0010_left.sql"),
    include_str!("migrations/0011_overrides.sql"),
    include_str!("migrations/0012_outbox_status.sql"),
];

/// Brings the tables up to this build. The caller holds the write lock.
pub(super) fn migrate(conn: &Connection) -> Result<(), StoreFault> {
    conn.execute_batch(
        "CREATE TABLE IF NOT EXISTS migration (
             number INTEGER PRIMARY KEY, checksum TEXT NOT NULL, applied_at INTEGER NOT NULL)",
    )
    .map_err(oops("creating the table of migrations"))?;
    // A file is used by one build at a time.
    let applied = |row: &rusqlite::Row<'_>| Ok(Applied { checksum: row.get(0)?, is_additive: false });
    let applied: Vec<Applied> = conn
        .prepare("SELECT checksum FROM migration ORDER BY number")
        .and_then(|mut statement| statement.query_map([], applied)?.collect())
        .map_err(oops("reading the table of migrations"))?;
    for Migration { number, sql, checksum } in missing(&MIGRATIONS, &applied)? {
        conn.execute_batch(sql).map_err(oops("applying a migration"))?;
        conn.execute(
            "INSERT INTO migration (number, checksum, applied_at) VALUES (?1, ?2, ?3)",
            params![number, checksum, now_micros()],
        )
        .map_err(oops("recording a migration"))?;
    }
    Ok(())
}

/// Makes the table of a kind, and takes over what it was formerly called. A table whose declaration has changed is
/// folded anew from the events, and so is one that has got events from under another name.
pub(super) fn declare(conn: &Connection, kind: &RowKind) -> Result<(), StoreFault> {
    let has_more = match kind.formerly {
        Some(former) => rename(conn, former, kind.name)?,
        None => false,
    };
    let fields = kind.fields.join(",");
    let known: Option<String> = conn
        .query_row("SELECT fields FROM row_kind WHERE name = ?1", [kind.name], |row| row.get(0))
        .optional()
        .map_err(oops("reading the declared kinds"))?;
    let is_there: bool = conn
        .query_row(
            "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'row_' || ?1)",
            [kind.name],
            |row| row.get(0),
        )
        .map_err(oops("looking for the table of a kind"))?;
    // A table that is missing is made of the events again.
    if known.as_deref() == Some(&fields) && is_there && !has_more {
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
    conn.execute_batch(&sql).map_err(oops("creating the table of a kind"))?;
    conn.execute("INSERT OR REPLACE INTO row_kind (name, fields) VALUES (?1, ?2)", params![name, fields])
        .map_err(oops("recording a declared kind"))?;
    super::fold::rebuild(conn, kind)?;
    Ok(())
}

/// Events of a kind that was formerly called something else are this kind's. Whether there was such a kind.
fn rename(conn: &Connection, former: &str, name: &str) -> Result<bool, StoreFault> {
    let renamed = conn.execute("DELETE FROM row_kind WHERE name = ?1", [former]).and_then(|known| {
        if known > 0 {
            conn.execute("UPDATE event SET kind = ?2 WHERE kind = ?1", [former, name])?;
            conn.execute("UPDATE snapshot SET kind = ?2 WHERE kind = ?1", [former, name])?;
            conn.execute("UPDATE carried SET kind = ?2 WHERE kind = ?1", [former, name])?;
            conn.execute_batch(&format!("DROP TABLE IF EXISTS row_{former}"))?;
        }
        Ok(known > 0)
    });
    renamed.map_err(oops("renaming a kind of rows"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number 12 rewrites the check of the outbox: every column of every entry is what it was, and so are its indexes.
    #[test]
    fn entries_of_every_status_come_through_unchanged() {
        let conn = Connection::open_in_memory().expect("a database");
        let (before, _) = MIGRATIONS.split_at(11);
        before.iter().for_each(|sql| conn.execute_batch(sql).expect("a migration"));
        let insert = "INSERT INTO outbox
             (seq, id, saga, subject, payload, status, attempts, last_error, created_at, published_at, trace)
             VALUES (?1, x'01', x'02', 'depot.stored', x'03', ?2, 4, 'not yet', 5, ?3, x'06')";
        let statuses = ["PENDING", "FAILED", "HELD", "RETRY", "REPUBLISH"];
        for (seq, status) in (7..).step_by(3).zip(statuses) {
            let published_at = (status == "REPUBLISH").then_some(8);
            conn.execute(insert, params![seq, status, published_at]).expect("an entry");
        }
        let all = || {
            let columns = "seq, id, saga, subject, payload, status, attempts, last_error, created_at, published_at, trace";
            let rows =
                texts(&conn, &format!("SELECT json_array({}) FROM outbox ORDER BY seq", quoted(columns)));
            let indexes =
                "SELECT sql FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'outbox' ORDER BY name";
            (rows, texts(&conn, indexes))
        };
        let was = all();
        conn.execute_batch(MIGRATIONS[11]).expect("the migration");
        assert_eq!(all(), was);
        assert_eq!(was.0.len(), statuses.len());
        assert!(conn.execute(insert, params![99, "PUBLISHED", None::<i64>]).is_err(), "it is no status");
        let [sql] =
            &texts(&conn, "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = 'outbox'")[..]
        else {
            panic!("one table");
        };
        assert!(sql.contains("CHECK (status = 'PENDING' OR"), "{sql}");
        assert_eq!(texts(&conn, "PRAGMA integrity_check"), ["ok"]);
    }

    fn quoted(columns: &str) -> String {
        columns.split(", ").map(|column| format!("quote({column})")).collect::<Vec<_>>().join(", ")
    }

    fn texts(conn: &Connection, sql: &str) -> Vec<String> {
        let mut select = conn.prepare(sql).expect("a statement");
        let texts = select.query_map([], |row| row.get(0)).expect("rows");
        texts.collect::<Result<_, _>>().expect("texts")
    }
}
