//! Shell: rows against their history: every row must be the fold of its events, and can be made from them.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension};
use saga_core::row::RowKind;
use sha2::{Digest, Sha256};

use super::values::{field_value, hex, insert_sql, oops};
use crate::store::{FoldReport, StoreFault};

/// At most this many differing rows are named; one is enough to know.
const NAMED_DIFFERENCES: usize = 100;

/// A row's events.
struct History {
    id: String,
    version: i64,
    created_at: i64,
    updated_at: i64,
    /// As JSON, oldest first.
    events: Vec<String>,
}

impl History {
    /// Whether an event is missing.
    fn has_gap(&self) -> bool {
        i64::try_from(self.events.len()) != Ok(self.version)
    }

    /// The row as its events make it, in the order of the table's columns.
    fn folded(&self, kind: &RowKind) -> serde_json::Result<Vec<Value>> {
        let projected = (kind.fold)(&self.id, &mut self.events.iter().cloned())?;
        let due = projected.due.map(|due| due.as_microsecond());
        let mut values: Vec<Value> = vec![
            self.id.clone().into(),
            self.version.into(),
            projected.state.into(),
            self.created_at.into(),
            self.updated_at.into(),
            due.into(),
        ];
        values.extend(projected.fields.iter().map(field_value));
        Ok(values)
    }
}

/// Deletes the rows of a kind and folds them anew. Answers how many there are.
pub(super) fn rebuild(conn: &Connection, kind: &RowKind) -> Result<u64, StoreFault> {
    let delete = format!("DELETE FROM row_{}", kind.name);
    conn.execute(&delete, []).map_err(oops("deleting the rows of a kind"))?;
    let mut insert = conn.prepare(&insert_sql(kind)).map_err(oops("preparing to write folded rows"))?;
    let mut count = 0;
    for_each_history(conn, kind, |history| {
        let values = history.folded(kind).map_err(|error| {
            StoreFault::Unusable(format!(
                "the events of {}/{} cannot be folded: {error}",
                kind.name, history.id
            ))
        })?;
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
        let columns = 6 + kind.fields.len();
        let fields: String = kind.fields.iter().map(|field| format!(", {field}")).collect();
        let sql = format!(
            "SELECT id, version, state, created_at, updated_at, due{fields} FROM row_{} WHERE id = ?1",
            kind.name
        );
        let mut select = conn.prepare(&sql).map_err(oops("preparing to read rows"))?;
        let mut with_history = 0;
        for_each_history(conn, kind, |history| {
            with_history += 1;
            report.events += history.events.len() as u64;
            let read = |row: &rusqlite::Row<'_>| (0..columns).map(|column| row.get(column)).collect();
            let row: Option<Vec<Value>> =
                select.query_row([&history.id], read).optional().map_err(oops("reading a row"))?;
            digest.update(format!("{}/{row:?}\n", kind.name));
            let is_same = history.folded(kind).is_ok_and(|folded| row == Some(folded));
            if (history.has_gap() || !is_same) && report.differing.len() < NAMED_DIFFERENCES {
                report.differing.push(format!("{}/{}", kind.name, history.id));
            }
            Ok(())
        })?;
        report.rows += with_history;
        let count = format!("SELECT count(*) FROM row_{}", kind.name);
        let rows: i64 = conn.query_row(&count, [], |row| row.get(0)).map_err(oops("counting rows"))?;
        let forged = u64::try_from(rows).unwrap_or(0).saturating_sub(with_history);
        if forged > 0 {
            report.differing.push(format!("{}: {forged} rows without events", kind.name));
        }
    }
    report.digest = hex(&digest.finalize());
    Ok(report)
}

fn for_each_history(
    conn: &Connection,
    kind: &RowKind,
    mut each: impl FnMut(&History) -> Result<(), StoreFault>,
) -> Result<(), StoreFault> {
    let context = "reading the history";
    let mut statement = conn
        .prepare(
            "SELECT row_id, version, data, recorded_at FROM event WHERE kind = ?1 ORDER BY row_id, version",
        )
        .map_err(oops(context))?;
    let mut rows = statement.query([kind.name]).map_err(oops(context))?;
    let mut current: Option<History> = None;
    while let Some(row) = rows.next().map_err(oops(context))? {
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
        let (id, version, event, at): (String, i64, String, i64) = read(row).map_err(oops(context))?;
        match &mut current {
            Some(history) if history.id == id => {
                (history.version, history.updated_at) = (version, at);
                history.events.push(event);
            }
            _ => {
                let begun = History { id, version, created_at: at, updated_at: at, events: vec![event] };
                if let Some(whole) = current.replace(begun) {
                    each(&whole)?;
                }
            }
        }
    }
    current.map_or(Ok(()), |last| each(&last))
}
