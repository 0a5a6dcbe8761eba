//! Shell: the tables: numbered migrations for the machinery, declarations for the kinds of rows.

use rusqlite::{Connection, OptionalExtension, params};
use sha2::{Digest, Sha256};

use super::{now_micros, oops};
use crate::row::{Projected, RowKind};
use crate::store::{FoldReport, StoreFault};

/// Applied in order, once each, never changed afterwards.
const MIGRATIONS: [&str; 1] = [include_str!("migrations/0001_base.sql")];

/// At most this many differing rows are named; one is enough to know.
const NAMED_DIFFERENCES: usize = 100;

/// Brings the tables up to this build. The caller holds the write lock.
pub(super) fn migrate(conn: &Connection) -> Result<(), StoreFault> {
    conn.execute_batch(
        "CREATE TABLE IF NOT EXISTS migration (
             number INTEGER PRIMARY KEY, checksum TEXT NOT NULL, applied_at INTEGER NOT NULL)",
    )
    .map_err(oops("creating the table of migrations"))?;
    let applied: Vec<(i64, String)> = conn
        .prepare("SELECT number, checksum FROM migration ORDER BY number")
        .and_then(|mut statement| statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect())
        .map_err(oops("reading the table of migrations"))?;
    if applied.len() > MIGRATIONS.len() {
        return Err(StoreFault::Unusable(format!(
            "the database has schema {}, this build knows {}: start a newer build",
            applied.len(),
            MIGRATIONS.len()
        )));
    }
    for (index, sql) in MIGRATIONS.iter().enumerate() {
        let number = i64::try_from(index + 1).unwrap_or(i64::MAX);
        let checksum = hex(&Sha256::digest(sql));
        match applied.get(index) {
            Some((_, known)) if *known == checksum => {}
            Some(_) => {
                return Err(StoreFault::Unusable(format!(
                    "migration {number} of the database is not the one of this build: it was changed after it was applied"
                )));
            }
            None => {
                conn.execute_batch(sql).map_err(oops("applying a migration"))?;
                conn.execute(
                    "INSERT INTO migration (number, checksum, applied_at) VALUES (?1, ?2, ?3)",
                    params![number, checksum, now_micros()],
                )
                .map_err(oops("recording a migration"))?;
            }
        }
    }
    Ok(())
}

/// Makes the table of a kind. A table whose declaration has changed is folded anew from the events.
pub(super) fn declare(conn: &Connection, kind: &RowKind) -> Result<(), StoreFault> {
    let fields = kind.fields.join(",");
    let known: Option<String> = conn
        .query_row("SELECT fields FROM row_kind WHERE name = ?1", [kind.name], |row| row.get(0))
        .optional()
        .map_err(oops("reading the declared kinds"))?;
    if known.as_deref() == Some(&fields) {
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
    rebuild(conn, kind)?;
    Ok(())
}

/// Deletes the rows of a kind and folds them anew. Answers how many there are.
pub(super) fn rebuild(conn: &Connection, kind: &RowKind) -> Result<u64, StoreFault> {
    conn.execute(&format!("DELETE FROM row_{}", kind.name), [])
        .map_err(oops("deleting the rows of a kind"))?;
    let sql = super::write::insert_sql(kind);
    let mut insert = conn.prepare(&sql).map_err(oops("preparing to write folded rows"))?;
    let mut count = 0;
    for_each_fold(conn, kind, |folded| {
        let mut values: Vec<rusqlite::types::Value> = vec![
            folded.id.to_owned().into(),
            folded.version.into(),
            folded.projected.state.clone().into(),
            folded.created_at.into(),
            folded.updated_at.into(),
            folded.projected.due.map(|due| due.as_microsecond()).into(),
        ];
        values.extend(folded.projected.fields.iter().map(super::write::field_value));
        insert.execute(rusqlite::params_from_iter(values)).map_err(oops("writing a folded row"))?;
        count += 1;
        Ok(())
    })?;
    Ok(count)
}

/// Compares every row of every kind with the fold of its events.
pub(super) fn verify(conn: &Connection, kinds: &[RowKind]) -> Result<FoldReport, StoreFault> {
    let mut report = FoldReport::default();
    let mut digest = Sha256::new();
    for kind in kinds {
        let columns: String = kind.fields.iter().map(|field| format!(", {field}")).collect();
        let sql = format!(
            "SELECT version, state, due, created_at, updated_at{columns} FROM row_{} WHERE id = ?1",
            kind.name
        );
        let mut select = conn.prepare(&sql).map_err(oops("preparing to read rows"))?;
        let mut folded_rows = 0_u64;
        for_each_fold(conn, kind, |folded| {
            folded_rows += 1;
            report.rows += 1;
            report.events += u64::try_from(folded.version).unwrap_or(0);
            let row = select
                .query_row([folded.id], |row| {
                    let fields = (5..5 + kind.fields.len())
                        .map(|column| row.get::<_, rusqlite::types::Value>(column))
                        .collect::<Result<Vec<_>, _>>()?;
                    let times = (row.get::<_, i64>(3)?, row.get::<_, i64>(4)?);
                    Ok((
                        row.get::<_, i64>(0)?,
                        row.get::<_, String>(1)?,
                        row.get::<_, Option<i64>>(2)?,
                        times,
                        fields,
                    ))
                })
                .optional()
                .map_err(oops("reading a row"))?;
            let wanted_fields: Vec<_> =
                folded.projected.fields.iter().map(super::write::field_value).collect();
            let wanted = (
                folded.version,
                folded.projected.state.clone(),
                folded.projected.due.map(|due| due.as_microsecond()),
                (folded.created_at, folded.updated_at),
                wanted_fields,
            );
            digest.update(format!("{}/{}/{row:?}\n", kind.name, folded.id));
            if row != Some(wanted) && report.differing.len() < NAMED_DIFFERENCES {
                report.differing.push(format!("{}/{}", kind.name, folded.id));
            }
            Ok(())
        })?;
        let rows: u64 = conn
            .query_row(&format!("SELECT count(*) FROM row_{}", kind.name), [], |row| row.get::<_, i64>(0))
            .map_err(oops("counting rows"))?
            .try_into()
            .unwrap_or(0);
        if rows > folded_rows {
            report.differing.push(format!("{}: {} rows without events", kind.name, rows - folded_rows));
        }
    }
    report.digest = hex(&digest.finalize());
    Ok(report)
}

/// A row as its events make it.
struct Folded<'a> {
    id: &'a str,
    version: i64,
    created_at: i64,
    updated_at: i64,
    projected: Projected,
}

fn for_each_fold(
    conn: &Connection,
    kind: &RowKind,
    mut each: impl FnMut(&Folded<'_>) -> Result<(), StoreFault>,
) -> Result<(), StoreFault> {
    let context = "reading the history";
    let mut statement = conn
        .prepare(
            "SELECT row_id, version, data, recorded_at FROM event WHERE kind = ?1 ORDER BY row_id, version",
        )
        .map_err(oops(context))?;
    let mut rows = statement.query([kind.name]).map_err(oops(context))?;
    let mut history: Vec<String> = Vec::new();
    let mut current: Option<(String, i64, i64, i64)> = None;
    let mut finish = |row: Option<(String, i64, i64, i64)>, history: &mut Vec<String>| match row {
        None => Ok(()),
        Some((id, version, created_at, updated_at)) => {
            let projected = (kind.fold)(&id, &mut history.drain(..)).map_err(|source| {
                StoreFault::Database { context: "folding the history of a row", source: Box::new(source) }
            })?;
            each(&Folded { id: &id, version, created_at, updated_at, projected })
        }
    };
    while let Some(row) = rows.next().map_err(oops(context))? {
        let read =
            |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
        let (id, version, data, at): (String, i64, String, i64) = read(row).map_err(oops(context))?;
        match &mut current {
            Some((same, last_version, _, updated_at)) if *same == id => {
                (*last_version, *updated_at) = (version, at)
            }
            _ => finish(current.replace((id, version, at, at)), &mut history)?,
        }
        history.push(data);
    }
    finish(current, &mut history)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
