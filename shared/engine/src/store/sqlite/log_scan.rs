//! Shell: verifies the rows of a kind by one scan of the event log, for kinds with few rows and unbounded histories.
//!
//! Events of such rows lie far apart from each other. Reading one history after the other would read all pages of the log
//! again and again.

use std::collections::{HashMap, VecDeque};

use rusqlite::{Connection, params};
use saga_core::decider::RetentionPolicy;
use saga_core::row::RowKind;

use super::history::{event_row, read_snapshot};
use super::values::db_fault;
use crate::store::StoreFault;
use crate::store::fold::{EventRow, Folded, HistorySql, Rows, SideBySide};
use crate::store::verification::{Place, Scan, ScanProgress, Verdict, VerificationReport, compare};

const SCANNING: &str = "scanning the log";

/// Maximum number of rows that are folded at once, some tens of megabytes. More rows are verified row by row.
const MAX_ROWS: i64 = 50_000;

/// Approximate number of events on a page of the log. If fewer than one of them is of the kind, a scan reads most pages in
/// vain.
const EVENTS_PER_PAGE: i64 = 12;

/// Number of rows that are read at once.
const READ_AT_ONCE: i64 = 1_000;

/// Scan of a verification in parts, if there is one: whatever is left in `0` continues with the next part.
pub(super) struct LogScans<'s>(pub(super) &'s mut Option<LogScan>);

impl Scan<Connection> for LogScans<'_> {
    async fn verify_part(
        &mut self,
        conn: &Connection,
        kind: &RowKind,
        place: Option<&Place<'_>>,
        events: u64,
        report: &mut VerificationReport,
    ) -> Result<Option<ScanProgress>, StoreFault> {
        let scan = match place {
            Some(Place::Log(position)) => self.0.take_if(|scan| scan.is_at(kind, *position)),
            Some(Place::Row(_)) => None,
            None if suits(conn, kind)? => Some(LogScan::begin(conn, kind)?),
            None => None,
        };
        let Some(mut scan) = scan else { return Ok(None) };
        if scan.advance(conn, kind, events, report).await? {
            return Ok(Some(ScanProgress::Finished));
        }
        let next = scan.next();
        *self.0 = Some(scan);
        Ok(Some(ScanProgress::Next(next)))
    }
}

/// Returns true if a scan suits the kind: few rows, and many events of theirs in the log.
fn suits(conn: &Connection, kind: &RowKind) -> Result<bool, StoreFault> {
    if kind.retention != RetentionPolicy::PurgeEvents {
        return Ok(false);
    }
    let sizes = format!(
        "SELECT (SELECT count(*) FROM (SELECT 1 FROM row_{0} LIMIT ?1)),
             (SELECT CAST(total(version) AS INTEGER) FROM (SELECT version FROM row_{0} LIMIT ?1)),
             (SELECT coalesce(max(seq), 0) FROM event) - (SELECT coalesce(min(seq), 0) FROM event)",
        kind.name
    );
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let sizes = conn.query_row(&sizes, [MAX_ROWS + 1], read).map_err(db_fault(SCANNING))?;
    let (rows, events, positions): (i64, i64, i64) = sizes;
    Ok(rows <= MAX_ROWS && events.saturating_mul(EVENTS_PER_PAGE) >= positions)
}

/// Progress of a scan. Kept in memory: a verification that finds it gone restarts the kind, row by row.
pub(super) struct LogScan {
    kind: &'static str,
    /// Position up to which the log was read.
    up_to: i64,
    rows: HashMap<String, Folded>,
    /// Rows that did not equal their folds at the end of the log. Each is verified by itself.
    suspects: Option<VecDeque<String>>,
}

impl LogScan {
    /// Begins a scan at the first event, with the snapshots.
    fn begin(conn: &Connection, kind: &RowKind) -> Result<Self, StoreFault> {
        let read = |row: &rusqlite::Row<'_>| {
            let (id, snapshot): (String, _) = (row.get(3)?, read_snapshot(row)?);
            let folded = Folded::begin(kind, id.clone(), Some(&snapshot), Some(snapshot.created_at));
            Ok((id, folded))
        };
        let rows = conn
            .prepare_cached("SELECT version, state, created_at, row_id FROM snapshot WHERE kind = ?1")
            .and_then(|mut select| select.query_map([kind.name], read)?.collect())
            .map_err(db_fault(SCANNING))?;
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
    async fn advance(
        &mut self,
        conn: &Connection,
        kind: &RowKind,
        events: u64,
        report: &mut VerificationReport,
    ) -> Result<bool, StoreFault> {
        if self.suspects.is_none() {
            if !self.read_log(conn, kind, events, report)? {
                return Ok(false);
            }
            self.suspects = Some(self.compare_table(conn, kind, report).await?);
        }
        self.verify_suspects(conn, kind, events, report).await
    }

    /// Folds the events of the kind in the next so many positions. Returns true at the end of the log.
    fn read_log(
        &mut self,
        conn: &Connection,
        kind: &RowKind,
        positions: u64,
        report: &mut VerificationReport,
    ) -> Result<bool, StoreFault> {
        let fault = db_fault(SCANNING);
        let end: i64 = conn
            .prepare_cached("SELECT coalesce(max(seq), 0) FROM event")
            .and_then(|mut select| select.query_row([], |row| row.get(0)))
            .map_err(&fault)?;
        // Purged positions are skipped: they may be most of the log.
        let next: Option<i64> = conn
            .prepare_cached("SELECT min(seq) FROM event WHERE seq > ?1")
            .and_then(|mut select| select.query_row([self.up_to], |row| row.get(0)))
            .map_err(&fault)?;
        let up_to = next.map_or(self.up_to, |next| next - 1).saturating_add_unsigned(positions);
        // `+` keeps SQLite from reading by the index of rows instead of the log.
        let mut select = conn
            .prepare_cached(
                "SELECT version, data, recorded_at, is_published, row_id FROM event
                 WHERE seq > ?1 AND seq <= ?2 AND +kind = ?3 ORDER BY seq",
            )
            .map_err(&fault)?;
        let mut events = select.query(params![self.up_to, up_to, kind.name]).map_err(&fault)?;
        while let Some(event) = events.next().map_err(&fault)? {
            report.events += u64::from(self.add(kind, &event_row(event).map_err(&fault)?));
        }
        // Events that are written meanwhile come after the end.
        self.up_to = up_to.min(end.max(self.up_to));
        Ok(up_to > end)
    }

    /// Folds an event into its row. Returns false for an event that the row has already.
    fn add(&mut self, kind: &RowKind, event: &EventRow) -> bool {
        let begun = || Folded::begin(kind, event.row_id.clone(), None, Some(event.recorded_at));
        let row = self.rows.entry(event.row_id.clone()).or_insert_with(begun);
        let is_new = event.version > row.version;
        if is_new {
            row.add(event, false);
        } else {
            row.has_events = true;
        }
        is_new
    }

    /// Compares every row of the table with its fold. Returns those that differ.
    async fn compare_table(
        &mut self,
        conn: &Connection,
        kind: &RowKind,
        report: &mut VerificationReport,
    ) -> Result<VecDeque<String>, StoreFault> {
        let (mut suspects, mut last) = (VecDeque::new(), String::new());
        loop {
            let page = conn.table_rows(kind, &Rows::After(String::new()), &last, READ_AT_ONCE).await?;
            let is_last = i64::try_from(page.len()).is_ok_and(|count| count < READ_AT_ONCE);
            for row in page {
                let folded = self.rows.remove(&row.id).filter(|folded| folded.has_events);
                match folded {
                    Some(folded) if !folded.has_gap() && folded.equals::<Connection>(kind, &row) => {
                        report.rows += 1
                    }
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
    async fn verify_suspects(
        &mut self,
        conn: &Connection,
        kind: &RowKind,
        events: u64,
        report: &mut VerificationReport,
    ) -> Result<bool, StoreFault> {
        let mut without_events = 0;
        while report.events < events
            && let Some(id) = self.suspects.as_mut().and_then(VecDeque::pop_front)
        {
            let mut row = SideBySide::of(conn, kind, Rows::One(id)).await?;
            if let Some((folded, row)) = row.next(false).await? {
                let verdict = compare::<Connection>(kind, folded, row.as_ref(), report);
                without_events += u64::from(matches!(verdict, Verdict::WithoutEvents));
            }
        }
        report.add_rows_without_events(kind, without_events);
        Ok(self.suspects.as_ref().is_none_or(VecDeque::is_empty))
    }
}
