//! Shell: verifies the rows of a kind by one scan of the event log, for kinds with few rows and unbounded histories.
//!
//! Events of such rows lie far apart from each other. Reading one history after the other would read all pages of the log
//! again and again.

use std::collections::{HashMap, VecDeque};

use saga_core::decider::RetentionPolicy;
use saga_core::row::RowKind;

use super::StoreFault;
use super::cell::Cell;
use super::fold::{Folded, SideBySide};
use super::sql::{Row, Sql, limit_of};
use super::sql_error::{SqlError, db_fault};
use super::stored_rows::{EventRow, FOLDED_EVENT, Rows, event_row, read_snapshot, table_rows};
use super::verdict::{Verdict, VerificationReport, compare};

const SCANNING: &str = "scanning the log";

/// Maximum number of rows that are folded at once, some tens of megabytes. More rows are verified row by row.
const MAX_ROWS: i64 = 50_000;

/// Approximate number of events on a page of the log. If fewer than one of them is of the kind, a scan reads most pages in
/// vain.
const EVENTS_PER_PAGE: i64 = 12;

/// Number of rows that are read at once.
const READ_AT_ONCE: i64 = 1_000;

/// Place in a verification in parts.
pub(super) enum Place<'p> {
    /// After the row with this id.
    Row(&'p str),
    /// After this position of the log.
    Log(i64),
}

/// Progress of a scan after a part.
pub(super) enum ScanProgress {
    /// All rows of the kind are verified.
    Finished,
    /// The next part begins here.
    Next(String),
}

/// Returns true if a scan suits the kind: few rows, and many events of theirs in the log.
async fn suits<S: Sql>(db: &S, kind: &RowKind) -> Result<bool, SqlError> {
    if kind.retention != RetentionPolicy::PurgeEvents {
        return Ok(false);
    }
    let sql = include_str!("sql/log_share.sql").replace("{kind}", kind.name);
    let read = |row: &Row<'_>| -> Result<[i64; 3], SqlError> { Ok([row.get(0)?, row.get(1)?, row.get(2)?]) };
    let [rows, events, positions] = db.query_one(&sql, &[&(MAX_ROWS + 1)], read).await?;
    Ok(rows <= MAX_ROWS && events.saturating_mul(EVENTS_PER_PAGE) >= positions)
}

/// Progress of a scan. Kept in memory: a verification that finds it gone restarts the kind, row by row.
pub(super) struct LogScan {
    kind: &'static str,
    /// Position up to which the log was read.
    up_to: i64,
    rows: HashMap<Cell, Folded>,
    /// Rows that did not equal their folds at the end of the log. Each is verified by itself.
    suspects: Option<VecDeque<Cell>>,
}

impl LogScan {
    /// Verifies about so many events of a kind by a scan, which is left in `scan` for the next part. Returns `None` if the rows
    /// are to be read row by row.
    pub(super) async fn verify_part<S: Sql>(
        scan: &mut Option<Self>,
        db: &S,
        kind: &RowKind,
        (place, events): (Option<&Place<'_>>, u64),
        report: &mut VerificationReport,
    ) -> Result<Option<ScanProgress>, StoreFault> {
        let current = match place {
            Some(Place::Log(position)) => scan.take_if(|scan| scan.is_at(kind, *position)),
            Some(Place::Row(_)) => None,
            None if suits(db, kind).await.map_err(db_fault(SCANNING))? => {
                Some(Self::begin(db, kind).await.map_err(db_fault(SCANNING))?)
            }
            None => None,
        };
        let Some(mut current) = current else { return Ok(None) };
        if current.advance(db, kind, events, report).await? {
            return Ok(Some(ScanProgress::Finished));
        }
        let next = current.next();
        *scan = Some(current);
        Ok(Some(ScanProgress::Next(next)))
    }

    /// Begins a scan at the first event, with the snapshots.
    async fn begin<S: Sql>(db: &S, kind: &RowKind) -> Result<Self, SqlError> {
        let sql = "SELECT version, state, created_at, row_id FROM snapshot WHERE kind = $1";
        let read = |row: &Row<'_>| Ok((row.cell(3, false)?, read_snapshot(row)?));
        let mut rows = HashMap::new();
        for (id, snapshot) in db.query(sql, &[&kind.name], read).await? {
            let folded = Folded::begin(kind, id.clone(), Some(&snapshot), Some(snapshot.created_at));
            rows.insert(id, folded);
        }
        Ok(Self { kind: kind.name, up_to: 0, rows, suspects: None })
    }

    /// Start of the next part.
    fn next(&self) -> String {
        format!("{}@{}", self.kind, self.up_to)
    }

    /// True if the scan is of this kind and stands at this position.
    fn is_at(&self, kind: &RowKind, position: i64) -> bool {
        self.kind == kind.name && self.up_to == position
    }

    /// Continues by about so many events. Returns true once every row is verified.
    async fn advance<S: Sql>(
        &mut self,
        db: &S,
        kind: &RowKind,
        events: u64,
        report: &mut VerificationReport,
    ) -> Result<bool, StoreFault> {
        if self.suspects.is_none() {
            if !self.read_log(db, kind, events, report).await.map_err(db_fault(SCANNING))? {
                return Ok(false);
            }
            self.suspects = Some(self.compare_table(db, kind, report).await?);
        }
        self.verify_suspects(db, kind, events, report).await
    }

    /// Folds the events of the kind in the next so many positions. Returns true at the end of the log.
    async fn read_log<S: Sql>(
        &mut self,
        db: &S,
        kind: &RowKind,
        positions: u64,
        report: &mut VerificationReport,
    ) -> Result<bool, SqlError> {
        // Purged positions are skipped: they may be most of the log.
        let ends = format!("SELECT {}, (SELECT min(seq) FROM event WHERE seq > $1)", S::LAST_EVENT);
        let read = |row: &Row<'_>| -> Result<(i64, Option<i64>), SqlError> { Ok((row.get(0)?, row.get(1)?)) };
        let (end, next) = db.query_one(&ends, &[&self.up_to], read).await?;
        let up_to = next.map_or(self.up_to, |next| next - 1).saturating_add_unsigned(positions);
        // The concatenation keeps the planner from reading by the index of rows instead of the log.
        let sql = format!(
            "SELECT {FOLDED_EVENT}, seq FROM event WHERE seq > $1 AND seq <= $2 AND kind || '' = $3 ORDER BY seq LIMIT $4"
        );
        let mut last = self.up_to;
        loop {
            let read = |row: &Row<'_>| Ok((row.get::<i64>(5)?, event_row(row)?));
            let events = db.query(&sql, &[&last, &up_to, &kind.name, &READ_AT_ONCE], read).await?;
            let is_last = limit_of(events.len()) < READ_AT_ONCE;
            for (seq, event) in events {
                report.events += u64::from(self.add(kind, &event));
                last = seq;
            }
            if is_last {
                break;
            }
        }
        // Events that are written meanwhile come after the end.
        self.up_to = up_to.min(end.max(self.up_to));
        Ok(up_to > end)
    }

    /// Folds an event into its row. Returns false for an event that the row has already.
    fn add(&mut self, kind: &RowKind, event: &EventRow) -> bool {
        let begun = || Folded::begin(kind, event.row_id.clone(), None, event.recorded_at.integer());
        let row = self.rows.entry(event.row_id.clone()).or_insert_with(begun);
        let is_new = event.version.integer().is_none_or(|version| version > row.version);
        if is_new {
            row.add(event, false);
        } else {
            row.has_events = true;
        }
        is_new
    }

    /// Compares every row of the table with its fold. Returns those that differ.
    async fn compare_table<S: Sql>(
        &mut self,
        db: &S,
        kind: &RowKind,
        report: &mut VerificationReport,
    ) -> Result<VecDeque<Cell>, StoreFault> {
        let (mut suspects, mut last) = (VecDeque::new(), Cell::Text(String::new()));
        loop {
            let page = table_rows(db, kind, &Rows::all(), &last, READ_AT_ONCE).await;
            let page = page.map_err(db_fault(SCANNING))?;
            let is_last = limit_of(page.len()) < READ_AT_ONCE;
            for row in page {
                let folded = self.rows.remove(&row.id).filter(|folded| folded.has_events);
                match folded {
                    Some(folded) if !folded.has_gap() && folded.equals::<S>(kind, &row) => report.rows += 1,
                    _ => suspects.push_back(row.id.clone()),
                }
                last = row.id;
            }
            if is_last {
                break;
            }
        }
        suspects.extend(self.rows.drain().map(|(id, _)| id));
        Ok(suspects)
    }

    /// Verifies suspects row by row: events may have been purged during the scan, and restored events stand after newer
    /// ones. Returns true once all are verified.
    async fn verify_suspects<S: Sql>(
        &mut self,
        db: &S,
        kind: &RowKind,
        events: u64,
        report: &mut VerificationReport,
    ) -> Result<bool, StoreFault> {
        let mut without_events = 0;
        while report.events < events
            && let Some(id) = self.suspects.as_mut().and_then(VecDeque::pop_front)
        {
            let mut row = SideBySide::of(db, kind, Rows::One(id)).await?;
            if let Some((folded, row)) = row.next(false).await? {
                let verdict = compare::<S>(kind, folded, row.as_ref(), report);
                without_events += u64::from(matches!(verdict, Verdict::WithoutEvents));
            }
        }
        report.add_rows_without_events(kind, without_events);
        Ok(self.suspects.as_ref().is_none_or(VecDeque::is_empty))
    }
}
