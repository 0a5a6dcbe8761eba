//! Shell: verifies that every row is the fold of its events: all at once, in parts, what changed, or page by page.

use saga_core::row::{AnyWithHistory, RowKind, StoredEvent};
use sha2::{Digest, Sha256};

use super::backend::{Backend, Lane, Urgency};
use super::cell::{Cell, Damaged};
use super::encoding::hex;
use super::fold::{SideBySide, rebuild};
use super::history::changed_rows;
use super::log_scan::{LogScan, Place, ScanProgress};
use super::reading::readable_history;
use super::roles::Verification;
use super::sql::Sql;
use super::sql_error::db_fault;
use super::stored_rows::{Rows, TableRow};
use super::verdict::{Verdict, VerificationReport, compare};
use super::{Answer, StoreFault};

/// Part of all rows to verify.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerificationPart {
    /// [`VerificationReport::next`] of the part before, opaque to the caller; `None` for the first part.
    pub after: Option<String>,
    /// Number of events after which the part ends, approximately. It always ends at a row, or at a position of the log.
    pub events: u64,
    /// Kinds to leave out, because they are verified otherwise.
    pub excluded_kinds: Vec<String>,
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
        /// State of the row as JSON; text that is no JSON if it is damaged.
        state: String,
        /// Existing events, oldest first; empty unless they were requested.
        history: Vec<StoredEvent>,
    },
}

/// Maximum history length in [`verify_changed`]. Only a full verification folds longer histories, such as a product's.
const LONGEST_HISTORY: i64 = 256;

impl<B: Backend> Verification for B {
    fn verify(&self) -> Answer<'_, VerificationReport> {
        self.snapshot(Lane::Verification, self.kinds().clone(), |db, kinds| Box::pin(verify(db, &kinds.0)))
    }

    fn verify_part(&self, part: VerificationPart) -> Answer<'_, VerificationReport> {
        let args = (self.kinds().clone(), self.log_scan().clone(), part);
        self.snapshot(Lane::Verification, args, |db, (kinds, log_scan, part)| {
            Box::pin(async move {
                // Another verification that finds none restarts the kind.
                let mut scan = log_scan.lock().take();
                let report = verify_part(db, &kinds.0, part, &mut scan).await;
                *log_scan.lock() = scan;
                report
            })
        })
    }

    fn verify_changed(&self, after: i64, events: u64) -> Answer<'_, VerificationReport> {
        self.snapshot(
            Lane::Verification,
            (self.kinds().clone(), after, events),
            |db, (kinds, after, events)| Box::pin(verify_changed(db, &kinds.0, *after, *events)),
        )
    }

    fn verified_rows(&self, kind: &'static str, page: VerifiedPage) -> Answer<'_, VerifiedRows> {
        self.snapshot(Lane::Verification, (self.kinds().clone(), kind, page), |db, (kinds, kind, page)| {
            Box::pin(async move { verified_rows(db, kinds.of_name(kind)?, page).await })
        })
    }

    fn rebuild(&self, kind: &'static str) -> Answer<'_, u64> {
        self.write(Urgency::Long, (self.kinds().clone(), kind), |db, (kinds, kind)| {
            Box::pin(async move { rebuild(db, kinds.of_name(kind)?).await })
        })
    }
}

/// Verifies every row of every kind.
async fn verify<S: Sql>(db: &S, kinds: &[RowKind]) -> Result<VerificationReport, StoreFault> {
    let mut report = VerificationReport::default();
    let mut digest = Sha256::new();
    for kind in kinds {
        verify_kind(db, kind, "", u64::MAX, &mut report, Some(&mut digest)).await?;
    }
    report.digest = hex(&digest.finalize());
    Ok(report)
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

/// Verifies a part of all rows.
async fn verify_part<S: Sql>(
    db: &S,
    kinds: &[RowKind],
    VerificationPart { after, events, excluded_kinds }: &VerificationPart,
    scan: &mut Option<LogScan>,
) -> Result<VerificationReport, StoreFault> {
    // Parts of zero events would never come to an end.
    let events = (*events).max(1);
    let mut report = VerificationReport::default();
    let (first, mut place) = after.as_deref().and_then(parse_place).unzip();
    let rest = kinds.iter().skip_while(|kind| first.is_some_and(|first| first != kind.name));
    for kind in rest.filter(|kind| !excluded_kinds.iter().any(|excluded| excluded == kind.name)) {
        let place = place.take();
        match LogScan::verify_part(scan, db, kind, (place.as_ref(), events), &mut report).await? {
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
        if let Some(last) = verify_kind(db, kind, id, events, &mut report, None).await? {
            report.next = Some(format!("{}/{last}", kind.name));
            break;
        }
    }
    Ok(report)
}

/// Verifies the rows that changed in the next `events` events after a position.
async fn verify_changed<S: Sql>(
    db: &S,
    kinds: &[RowKind],
    after: i64,
    events: u64,
) -> Result<VerificationReport, StoreFault> {
    let mut report = VerificationReport::default();
    let limit = usize::try_from(events).unwrap_or(usize::MAX);
    let changed = changed_rows(db, after, limit).await.map_err(db_fault("reading what has changed"))?;
    for kind in kinds {
        for (_, id) in changed.rows.iter().filter(|(of, _)| of == kind.name) {
            let mut row = SideBySide::of(db, kind, Rows::One(Cell::Text(id.clone()))).await?;
            let version = row.peek_row().await?.map(|row| &row.version);
            if matches!(version, Some(Cell::Integer(version)) if *version > LONGEST_HISTORY) {
                continue;
            }
            if let Some((folded, row)) = row.next(false).await? {
                compare::<S>(kind, folded, row.as_ref(), &mut report);
            }
        }
    }
    for position in changed.damaged {
        report.add_difference(format!("event {position}: its kind or row_id is damaged"));
    }
    report.next = (!changed.is_over).then(|| changed.up_to.to_string());
    Ok(report)
}

/// Verifies rows of a kind until `events` events are folded. Returns the id of the last row, if there may be more.
async fn verify_kind<S: Sql>(
    db: &S,
    kind: &RowKind,
    after: &str,
    events: u64,
    report: &mut VerificationReport,
    mut digest: Option<&mut Sha256>,
) -> Result<Option<String>, StoreFault> {
    let (mut without_events, mut last) = (0, None);
    let mut all = SideBySide::of(db, kind, Rows::After(Cell::Text(after.to_owned()))).await?;
    while let Some((folded, row)) = all.next(false).await? {
        if let Some(digest) = digest.as_mut().filter(|_| folded.has_events) {
            add_to_digest(digest, kind, &folded.id.to_string(), row.as_ref());
        }
        let id = folded.text_id().map(str::to_owned);
        let verdict = compare::<S>(kind, folded, row.as_ref(), report);
        without_events += u64::from(matches!(verdict, Verdict::WithoutEvents));
        // No part ends at a damaged id, as the next could not begin there.
        if report.events >= events && id.is_some() {
            last = id;
            break;
        }
    }
    report.add_rows_without_events(kind, without_events);
    Ok(last)
}

/// Reads and verifies a page of rows of a kind.
async fn verified_rows<S: Sql>(
    db: &S,
    kind: &RowKind,
    VerifiedPage { after, limit, with_histories }: &VerifiedPage,
) -> Result<VerifiedRows, StoreFault> {
    let (mut page, mut seen, mut without_events) = (VerifiedRows::default(), 0, 0);
    let mut all =
        SideBySide::of(db, kind, Rows::After(Cell::Text(after.clone().unwrap_or_default()))).await?;
    while let Some((folded, row)) = all.next(*with_histories).await? {
        let (id, has_snapshot) = (folded.text_id().map(str::to_owned), folded.has_snapshot);
        let verdict = compare::<S>(kind, folded, row.as_ref(), &mut page.folds);
        without_events += u64::from(matches!(verdict, Verdict::WithoutEvents));
        // A row with a damaged id is named, and no page ends there.
        let Some(id) = id else { continue };
        seen += 1;
        let is_full = seen == *limit;
        page.folds.next = is_full.then(|| id.clone());
        if let Some(row) = row {
            page.rows.push(match verdict {
                Verdict::Equal(fold) if !has_snapshot => VerifiedRow::Fold { id, row: fold.with_history() },
                Verdict::Equal(_) | Verdict::Different | Verdict::WithoutEvents => {
                    let history = match with_histories {
                        true => readable_history(db, kind.name, &id, (0, i64::MAX), i64::MAX)
                            .await
                            .map_err(db_fault("reading the history of a row"))?,
                        false => vec![],
                    };
                    VerifiedRow::Other { id, state: row.state.to_string(), history }
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
            Cell::Damaged(Damaged::Text(bytes) | Damaged::Blob(bytes)) => add(5, bytes),
            Cell::Damaged(Damaged::Real(bits)) => add(5, &bits.to_le_bytes()),
        }
    }
}
