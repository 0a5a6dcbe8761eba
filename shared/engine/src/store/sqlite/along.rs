//! Shell: rows whose histories have no end, folded side by side as the log tells of them. Their events lie far apart from
//! each other: to read one history after the other is to read all pages of the log again and again.

use std::collections::{HashMap, VecDeque};

use rusqlite::{Connection, params};
use saga_core::decider::RetentionPolicy;
use saga_core::row::{Folding, RowKind};

use super::fold::{Judged, Made, Which, check, for_each_row, is_row, select_rows};
use super::values::oops;
use crate::store::{FoldReport, StoreFault};

/// Rows that are held at once, some tens of megabytes. Of more, one history is folded after the other.
const MOST_ROWS: i64 = 50_000;

/// So many events, more or less, lie on a page of the log. Where fewer than one of them is of the kind, most pages are read
/// for nothing.
const EVENTS_OF_A_PAGE: i64 = 12;

/// What is done with the log.
const READING: &str = "folding along the log";

/// How far the rows of a kind have been folded. A check in parts goes on from there; it is kept in memory, and whoever
/// finds it gone has to check otherwise.
pub(super) struct Along {
    kind: &'static str,
    /// The position of the event that was looked at last.
    up_to: i64,
    rows: HashMap<String, Folded>,
    /// Behind the end of the log: rows that do not look like their events, each of which is looked at alone.
    doubtful: Option<VecDeque<String>>,
}

/// A row that is being folded.
struct Folded {
    version: i64,
    created_at: i64,
    updated_at: i64,
    /// Whether it has any event, beside a snapshot.
    is_there: bool,
    /// `None` once an event was missing, or could not be folded.
    state: Option<Box<dyn Folding>>,
}

impl Along {
    /// Whether the rows of a kind are checked in this way: there are few of them, and many events of theirs in the log.
    pub(super) fn is_for(conn: &Connection, kind: &RowKind) -> Result<bool, StoreFault> {
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
        let sizes = conn.query_row(&sizes, [MOST_ROWS + 1], read).map_err(oops(READING))?;
        let (rows, events, log): (i64, i64, i64) = sizes;
        Ok(rows <= MOST_ROWS && events.saturating_mul(EVENTS_OF_A_PAGE) >= log)
    }

    /// Before the first event, but for those that snapshots stand for.
    pub(super) fn begin(conn: &Connection, kind: &RowKind) -> Result<Self, StoreFault> {
        let read = |row: &rusqlite::Row<'_>| {
            let (id, state): (String, String) = (row.get(0)?, row.get(1)?);
            let (version, created_at) = (row.get(2)?, row.get(3)?);
            let state = (kind.begin)(Some(&state)).ok();
            Ok((id, Folded { version, created_at, updated_at: created_at, is_there: false, state }))
        };
        let rows = conn
            .prepare_cached("SELECT row_id, state, version, created_at FROM snapshot WHERE kind = ?1")
            .and_then(|mut select| select.query_map([kind.name], read)?.collect())
            .map_err(oops(READING))?;
        Ok(Self { kind: kind.name, up_to: 0, rows, doubtful: None })
    }

    /// The position from which a check in parts goes on.
    pub(super) fn next(&self) -> String {
        format!("{}@{}", self.kind, self.up_to)
    }

    /// Whether it stands at this place of a check of the kind: at its [`next`](Along::next), without the kind's name.
    pub(super) fn is_at(&self, kind: &RowKind, place: Option<&str>) -> bool {
        let position = place.and_then(|place| place.strip_prefix('@')).and_then(|at| at.parse().ok());
        self.kind == kind.name && position == Some(self.up_to)
    }

    /// Goes on by about so many events. Answers whether every row has been checked.
    pub(super) fn go_on(
        &mut self,
        conn: &Connection,
        kind: &RowKind,
        events: u64,
        report: &mut FoldReport,
    ) -> Result<bool, StoreFault> {
        if self.doubtful.is_none() {
            if !self.read(conn, kind, events, report)? {
                return Ok(false);
            }
            self.doubtful = Some(self.compare(conn, kind, report)?);
        }
        self.look_again(conn, kind, events, report)
    }

    /// Folds those of the next so many places of the log that are of the kind. Answers whether these were the last.
    fn read(
        &mut self,
        conn: &Connection,
        kind: &RowKind,
        places: u64,
        report: &mut FoldReport,
    ) -> Result<bool, StoreFault> {
        let end: i64 = conn
            .prepare_cached("SELECT coalesce(max(seq), 0) FROM event")
            .and_then(|mut select| select.query_row([], |row| row.get(0)))
            .map_err(oops(READING))?;
        // Where all has left there is nothing to read, and that may be nearly all of a log's places.
        let next: Option<i64> = conn
            .prepare_cached("SELECT min(seq) FROM event WHERE seq > ?1")
            .and_then(|mut select| select.query_row([self.up_to], |row| row.get(0)))
            .map_err(oops(READING))?;
        let up_to = next.map_or(self.up_to, |next| next - 1).saturating_add_unsigned(places);
        // By the log, and not by the index of rows, which `+` keeps out of it.
        let mut select = conn
            .prepare_cached(
                "SELECT row_id, version, recorded_at, data FROM event
                 WHERE seq > ?1 AND seq <= ?2 AND +kind = ?3 ORDER BY seq",
            )
            .map_err(oops(READING))?;
        let mut found = select.query(params![self.up_to, up_to, kind.name]).map_err(oops(READING))?;
        while let Some(event) = found.next().map_err(oops(READING))? {
            report.events += u64::from(self.take(kind, event).map_err(oops(READING))?);
        }
        // What is written meanwhile lies behind the end.
        self.up_to = up_to.min(end.max(self.up_to));
        Ok(up_to > end)
    }

    /// Folds an event into its row. Answers whether it counts: what was brought back is in the snapshot already.
    fn take(&mut self, kind: &RowKind, event: &rusqlite::Row<'_>) -> rusqlite::Result<bool> {
        let (id, version, at) = (event.get_ref(0)?.as_str()?, event.get(1)?, event.get(2)?);
        let row = match self.rows.get_mut(id) {
            Some(row) => row,
            None => self.rows.entry(id.to_owned()).or_insert_with(|| Folded::begun(kind, at)),
        };
        row.is_there = true;
        if version <= row.version {
            return Ok(false);
        }
        let (is_next, data) = (version == row.version + 1, event.get_ref(3)?.as_str()?);
        row.state.take_if(|state| !is_next || state.add(data).is_err());
        (row.version, row.updated_at) = (version, at);
        Ok(true)
    }

    /// Every row of the table with what its events came to. Answers which are not the same.
    fn compare(
        &mut self,
        conn: &Connection,
        kind: &RowKind,
        report: &mut FoldReport,
    ) -> Result<VecDeque<String>, StoreFault> {
        let mut doubtful = VecDeque::new();
        let select = format!("{} ORDER BY id", select_rows(kind));
        let mut select = conn.prepare_cached(&select).map_err(oops(READING))?;
        let mut found = select.query([]).map_err(oops(READING))?;
        while let Some(row) = found.next().map_err(oops(READING))? {
            let id: String = row.get(0).map_err(oops(READING))?;
            match self.rows.remove(&id) {
                Some(folded) if folded.is(&id, row) => report.rows += 1,
                _ => doubtful.push_back(id),
            }
        }
        doubtful.extend(self.rows.drain().map(|(id, _)| id));
        Ok(doubtful)
    }

    /// Looks at what is doubtful, row by row: events may have left while the others were folded, and what was brought back
    /// stands behind what came after it. Answers whether that was all.
    fn look_again(
        &mut self,
        conn: &Connection,
        kind: &RowKind,
        events: u64,
        report: &mut FoldReport,
    ) -> Result<bool, StoreFault> {
        let (mut forged, select) = (0, select_rows(kind));
        while report.events < events
            && let Some(id) = self.doubtful.as_mut().and_then(VecDeque::pop_front)
        {
            for_each_row(conn, kind, Which::Of(&id), Some(&select), |history, row| {
                let judged = check(kind, history, row, false, report)?;
                forged += u64::from(matches!(judged, Judged::Forged));
                Ok(true)
            })?;
        }
        report.forged(kind, forged);
        Ok(self.doubtful.as_ref().is_none_or(VecDeque::is_empty))
    }
}

impl Folded {
    /// Before its first event, which was decided then.
    fn begun(kind: &RowKind, at: i64) -> Self {
        let state = (kind.begin)(None).ok();
        Self { version: 0, created_at: at, updated_at: at, is_there: true, state }
    }

    /// Whether it is the row that was found.
    fn is(&self, id: &str, found: &rusqlite::Row<'_>) -> bool {
        let Self { version, created_at, updated_at, .. } = *self;
        let state = self.state.as_ref().filter(|_| self.is_there);
        let made = |searched_by| Made { id, version, created_at, updated_at, searched_by };
        state.is_some_and(|state| is_row(found, id, state.as_ref(), made))
    }
}
