//! Shell: verifies that every row is the fold of its events: all at once, in parts, what changed, or page by page.

use saga_core::row::{AnyWithHistory, Folding, RowKind, StoredEvent};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::StoreFault;
use super::encoding::hex;
use super::fold::{Cell, Folded, HistorySql, Rows, SideBySide, TableRow};
use super::history::ChangedRows;

/// Result of verifying rows against their events.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct VerificationReport {
    /// Number of rows that were verified.
    pub rows: u64,
    /// Number of folded events. A verification in parts may fold events of a row more than once.
    pub events: u64,
    /// Rows that differ from the fold of their events, as `kind/id`; at most 100.
    pub differing: Vec<String>,
    /// Digest over all rows, by which two states of a table differ; empty for a part of them.
    pub digest: String,
    /// Start of the next part, in a verification in parts; `None` at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Part of all rows to verify.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerificationPart {
    /// [`VerificationReport::next`] of the part before, opaque to the caller; `None` for the first part.
    pub after: Option<String>,
    /// Number of events after which the part ends, approximately. It always ends at a row, or at a position of the log.
    pub events: u64,
    /// Kinds to leave out, because they are verified otherwise.
    pub but: Vec<String>,
}

/// Page of rows to read and verify.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifiedPage {
    /// Id after which the page begins.
    pub after: Option<String>,
    /// Maximum number of rows, counting histories without a row.
    pub limit: usize,
    /// Returns each row with its history, all in memory. Unsuitable for rows with unbounded history.
    pub with_histories: bool,
}

/// Rows that were read and verified.
#[derive(Debug, Default)]
pub struct VerifiedRows {
    /// Rows in the order of their ids.
    pub rows: Vec<VerifiedRow>,
    /// Result of the verification. Its `next` is the id after which the next page begins.
    pub folds: VerificationReport,
}

/// Row that was read and verified.
#[derive(Debug)]
pub enum VerifiedRow {
    /// Row that equals the fold of all its events.
    Fold {
        /// Id of the row within its kind.
        id: String,
        /// [`WithHistory`](saga_core::row::WithHistory) of the row's decider; without events unless they were requested.
        row: AnyWithHistory,
    },
    /// Row that differs from its fold, or has purged events.
    Other {
        /// Id of the row within its kind.
        id: String,
        /// State of the row as JSON.
        state: String,
        /// Existing events, oldest first; empty unless they were requested.
        history: Vec<StoredEvent>,
    },
}

/// Maximum number of differing rows that a report names.
const NAMED_DIFFERENCES: usize = 100;

/// Maximum history length in [`verify_changed`]. Only a full verification folds longer histories, such as a product's.
const LONGEST_HISTORY: i64 = 256;

impl VerificationReport {
    fn add_difference(&mut self, kind: &RowKind, id: &str) {
        if self.differing.len() < NAMED_DIFFERENCES {
            self.differing.push(format!("{}/{id}", kind.name));
        }
    }

    /// Reports rows that have no events at all.
    pub(super) fn add_rows_without_events(&mut self, kind: &RowKind, rows: u64) {
        if rows > 0 {
            self.differing.push(format!("{}: {rows} rows without events", kind.name));
        }
    }
}

/// SQL that verification needs from a store.
pub(super) trait VerificationSql: HistorySql {
    /// Rows among the next `limit` events after a position.
    async fn changed(&self, after: i64, limit: usize) -> Result<ChangedRows, StoreFault>;

    /// Whole history of a row, oldest event first.
    async fn stored_history(&self, kind: &RowKind, id: &str) -> Result<Vec<StoredEvent>, StoreFault>;
}

/// Verdict on a row and its history.
pub(super) enum Verdict {
    /// Equals the fold of its events.
    Equal(Box<dyn Folding>),
    /// Row that differs, or is missing.
    Different,
    /// Row that has no event at all.
    WithoutEvents,
}

/// Compares a row with its folded history.
pub(super) fn compare<S: HistorySql>(
    kind: &RowKind,
    folded: Folded,
    row: Option<&TableRow>,
    report: &mut VerificationReport,
) -> Verdict {
    if !folded.has_events {
        return Verdict::WithoutEvents;
    }
    (report.rows, report.events) = (report.rows + 1, report.events + folded.count);
    let is_equal = row.is_some_and(|row| folded.equals::<S>(kind, row));
    if !is_equal || folded.has_gap() {
        report.add_difference(kind, &folded.id);
        return Verdict::Different;
    }
    folded.into_state().map_or(Verdict::Different, Verdict::Equal)
}

/// Verifies every row of every kind.
pub(super) async fn verify<S: HistorySql>(
    sql: &S,
    kinds: &[RowKind],
) -> Result<VerificationReport, StoreFault> {
    let mut report = VerificationReport::default();
    let mut digest = Sha256::new();
    for kind in kinds {
        verify_kind(sql, kind, "", u64::MAX, &mut report, Some(&mut digest)).await?;
    }
    report.digest = hex(&digest.finalize());
    Ok(report)
}

/// Place in a verification in parts.
pub(super) enum Place<'p> {
    /// After the row with this id.
    Row(&'p str),
    /// After this position of the log.
    Log(i64),
}

/// Kind and place of a [`VerificationReport::next`]: `kind/id`, or `kind@position` of a scan of the log.
fn parse_place(after: &str) -> Option<(&str, Place<'_>)> {
    let (kind, rest) = after.split_at(after.find(['/', '@'])?);
    let place = match rest.strip_prefix('@') {
        Some(position) => Place::Log(position.parse().ok()?),
        None => Place::Row(rest.strip_prefix('/')?),
    };
    Some((kind, place))
}

/// Way to verify kinds whose histories are not to be read row by row.
pub(super) trait Scan<S> {
    /// Verifies a part of the rows of a kind; `None` if they are to be read row by row.
    async fn verify_part(
        &mut self,
        sql: &S,
        kind: &RowKind,
        place: Option<&Place<'_>>,
        events: u64,
        report: &mut VerificationReport,
    ) -> Result<Option<ScanProgress>, StoreFault>;
}

/// Progress of a [`Scan`] after a part.
pub(super) enum ScanProgress {
    /// All rows of the kind are verified.
    Finished,
    /// The next part begins here.
    Next(String),
}

/// Reads all histories row by row.
pub(super) struct RowByRow;

impl<S> Scan<S> for RowByRow {
    async fn verify_part(
        &mut self,
        _sql: &S,
        _kind: &RowKind,
        _place: Option<&Place<'_>>,
        _events: u64,
        _report: &mut VerificationReport,
    ) -> Result<Option<ScanProgress>, StoreFault> {
        Ok(None)
    }
}

/// Verifies a part of all rows.
pub(super) async fn verify_part<S: HistorySql>(
    sql: &S,
    kinds: &[RowKind],
    VerificationPart { after, events, but }: &VerificationPart,
    scan: &mut impl Scan<S>,
) -> Result<VerificationReport, StoreFault> {
    // Parts of zero events would never come to an end.
    let events = (*events).max(1);
    let mut report = VerificationReport::default();
    let (first, mut place) = after.as_deref().and_then(parse_place).unzip();
    let rest = kinds.iter().skip_while(|kind| first.is_some_and(|first| first != kind.name));
    for kind in rest.filter(|kind| !but.iter().any(|but| but == kind.name)) {
        let place = place.take();
        match scan.verify_part(sql, kind, place.as_ref(), events, &mut report).await? {
            Some(ScanProgress::Finished) => continue,
            Some(ScanProgress::Next(next)) => {
                report.next = Some(next);
                break;
            }
            None => {}
        }
        // A scan may be lost, with its process or to another verification: then the kind restarts, row by row.
        let id = match place {
            Some(Place::Row(id)) => id,
            Some(Place::Log(_)) | None => "",
        };
        if let Some(last) = verify_kind(sql, kind, id, events, &mut report, None).await? {
            report.next = Some(format!("{}/{last}", kind.name));
            break;
        }
    }
    Ok(report)
}

/// Verifies the rows that changed in the next `events` events after a position.
pub(super) async fn verify_changed<S: VerificationSql>(
    sql: &S,
    kinds: &[RowKind],
    after: i64,
    events: u64,
) -> Result<VerificationReport, StoreFault> {
    let mut report = VerificationReport::default();
    let changed = sql.changed(after, usize::try_from(events).unwrap_or(usize::MAX)).await?;
    for kind in kinds {
        for (_, id) in changed.rows.iter().filter(|(of, _)| of == kind.name) {
            let mut row = SideBySide::of(sql, kind, Rows::One(id.clone())).await?;
            let version = row.peek_row().await?.map(|row| &row.version);
            if matches!(version, Some(Cell::Integer(version)) if *version > LONGEST_HISTORY) {
                continue;
            }
            if let Some((folded, row)) = row.next(false).await? {
                compare::<S>(kind, folded, row.as_ref(), &mut report);
            }
        }
    }
    report.next = (!changed.is_over).then(|| changed.up_to.to_string());
    Ok(report)
}

/// Verifies rows of a kind until `events` events are folded. Returns the id of the last row, if there may be more.
async fn verify_kind<S: HistorySql>(
    sql: &S,
    kind: &RowKind,
    after: &str,
    events: u64,
    report: &mut VerificationReport,
    mut digest: Option<&mut Sha256>,
) -> Result<Option<String>, StoreFault> {
    let (mut without_events, mut last) = (0, None);
    let mut all = SideBySide::of(sql, kind, Rows::After(after.to_owned())).await?;
    while let Some((folded, row)) = all.next(false).await? {
        if let Some(digest) = digest.as_mut().filter(|_| folded.has_events) {
            add_to_digest(digest, kind, &folded.id, row.as_ref());
        }
        let id = folded.id.clone();
        let verdict = compare::<S>(kind, folded, row.as_ref(), report);
        without_events += u64::from(matches!(verdict, Verdict::WithoutEvents));
        if report.events >= events {
            last = Some(id);
            break;
        }
    }
    report.add_rows_without_events(kind, without_events);
    Ok(last)
}

/// Reads and verifies a page of rows of a kind.
pub(super) async fn verified_rows<S: VerificationSql>(
    sql: &S,
    kind: &RowKind,
    VerifiedPage { after, limit, with_histories }: &VerifiedPage,
) -> Result<VerifiedRows, StoreFault> {
    let (mut page, mut seen, mut without_events) = (VerifiedRows::default(), 0, 0);
    let mut all = SideBySide::of(sql, kind, Rows::After(after.clone().unwrap_or_default())).await?;
    while let Some((folded, row)) = all.next(*with_histories).await? {
        let (id, has_snapshot) = (folded.id.clone(), folded.has_snapshot);
        let verdict = compare::<S>(kind, folded, row.as_ref(), &mut page.folds);
        without_events += u64::from(matches!(verdict, Verdict::WithoutEvents));
        seen += 1;
        let is_full = seen == *limit;
        page.folds.next = is_full.then(|| id.clone());
        if let Some(row) = row {
            page.rows.push(match verdict {
                Verdict::Equal(fold) if !has_snapshot => VerifiedRow::Fold { id, row: fold.with_history() },
                Verdict::Equal(_) | Verdict::Different | Verdict::WithoutEvents => {
                    let history = match with_histories {
                        true => sql.stored_history(kind, &id).await?,
                        false => vec![],
                    };
                    VerifiedRow::Other { id, state: state_of(kind, row)?, history }
                }
            });
        }
        if is_full {
            break;
        }
    }
    page.folds.add_rows_without_events(kind, without_events);
    Ok(page)
}

fn state_of(kind: &RowKind, row: TableRow) -> Result<String, StoreFault> {
    match row.state {
        Cell::Text(state) => Ok(state),
        Cell::Null | Cell::Integer(_) | Cell::Other(_) => Err(StoreFault::Rejected {
            context: "reading a row",
            source: format!("the state of {}/{} is no text", kind.name, row.id).into(),
        }),
    }
}

/// Adds a row to a digest, each value with its type and length.
fn add_to_digest(digest: &mut Sha256, kind: &RowKind, id: &str, row: Option<&TableRow>) {
    let mut add = |tag: u8, bytes: &[u8]| {
        digest.update([tag]);
        digest.update(bytes.len().to_le_bytes());
        digest.update(bytes);
    };
    add(0, kind.name.as_bytes());
    add(0, id.as_bytes());
    let Some(TableRow { version, state, created_at, updated_at, due, fields, .. }) = row else { return };
    for cell in [version, state, created_at, updated_at, due].into_iter().chain(fields) {
        match cell {
            Cell::Null => add(1, &[]),
            Cell::Integer(number) => add(2, &number.to_le_bytes()),
            Cell::Text(text) => add(4, text.as_bytes()),
            Cell::Other(bytes) => add(5, bytes),
        }
    }
}
