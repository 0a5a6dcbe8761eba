//! Shell: whether every row is the fold of its events: all at once, in parts, of what has changed, page by page.

use rusqlite::Connection;
use rusqlite::types::ValueRef;
use saga_core::row::RowKind;
use sha2::{Digest, Sha256};

use super::along::Along;
use super::fold::{Judged, Which, check, for_each_row, select_rows};
use super::read;
use super::values::{hex, oops};
use crate::store::checking::LONGEST_LOOKED_AT;
use crate::store::{CheckedPage, CheckedRow, CheckedRows, FoldReport, Part, StoreFault};

/// Compares every row of every kind with the fold of its events.
pub(super) fn verify(conn: &Connection, kinds: &[RowKind]) -> Result<FoldReport, StoreFault> {
    let mut report = FoldReport::default();
    let mut digest = Sha256::new();
    for kind in kinds {
        verify_kind(conn, kind, "", u64::MAX, &mut report, |id, row| add(&mut digest, kind, id, row))?;
    }
    report.digest = hex(&digest.finalize());
    Ok(report)
}

/// The same of the rows behind `after`, until so many events are folded: a `kind/id`, or a `kind@position` of what is
/// folded [along the log](Along).
pub(super) fn verify_part(
    conn: &Connection,
    kinds: &[RowKind],
    Part { after, events, but }: &Part,
    along: &mut Option<Along>,
) -> Result<FoldReport, StoreFault> {
    // Of no events nothing would ever come to its end.
    let events = (*events).max(1);
    let mut report = FoldReport::default();
    let end_of_kind = |after: &str| after.find(['/', '@']);
    let (first, mut after) =
        after.as_deref().and_then(|after| Some(after.split_at(end_of_kind(after)?))).unzip();
    let rest = kinds.iter().skip_while(|kind| first.is_some_and(|first| first != kind.name));
    let rest = rest.filter(|kind| !but.iter().any(|but| but == kind.name));
    for kind in rest {
        let after = after.take();
        let from_here = along.take_if(|along| along.is_at(kind, after));
        let begun = match (from_here, after) {
            (Some(along), _) => Some(along),
            (None, None) if Along::is_for(conn, kind)? => Some(Along::begin(conn, kind)?),
            (None, _) => None,
        };
        if let Some(mut begun) = begun {
            if !begun.go_on(conn, kind, events, &mut report)? {
                report.next = Some(begun.next());
                *along = Some(begun);
                break;
            }
            continue;
        }
        // What was folded so far may be gone, with a process or for another check: from the first row, then.
        let id = after.and_then(|after| after.strip_prefix('/')).unwrap_or_default();
        if let Some(last) = verify_kind(conn, kind, id, events, &mut report, |_, _| ())? {
            report.next = Some(format!("{}/{last}", kind.name));
            break;
        }
    }
    Ok(report)
}

/// The same of the rows that have one of the next `events` events behind the position `after`.
pub(super) fn verify_changed(
    conn: &Connection,
    kinds: &[RowKind],
    after: i64,
    events: u64,
) -> Result<FoldReport, StoreFault> {
    let mut report = FoldReport::default();
    let changed = super::past::changed(conn, after, usize::try_from(events).unwrap_or(usize::MAX))?;
    for kind in kinds {
        let select = select_rows(kind);
        for (_, id) in changed.rows.iter().filter(|(of, _)| of == kind.name) {
            for_each_row(conn, kind, Which::Of(id), Some(&select), |history, row| {
                if let Some(row) = row
                    && matches!(row.get_ref(1), Ok(ValueRef::Integer(version)) if version > LONGEST_LOOKED_AT)
                {
                    return Ok(false);
                }
                check(kind, history, row, false, &mut report)?;
                Ok(true)
            })?;
        }
    }
    report.next = (!changed.is_over).then(|| changed.up_to.to_string());
    Ok(report)
}

/// Compares the rows of a kind behind `after`. Answers where it stopped, if it did: there were enough events.
fn verify_kind(
    conn: &Connection,
    kind: &RowKind,
    after: &str,
    events: u64,
    report: &mut FoldReport,
    mut seen: impl FnMut(&str, Option<&rusqlite::Row<'_>>),
) -> Result<Option<String>, StoreFault> {
    let (mut forged, mut last) = (0, None);
    for_each_row(conn, kind, Which::Behind(after), Some(&select_rows(kind)), |history, row| {
        if history.is_there {
            seen(history.id, row);
        }
        let judged = check(kind, history, row, false, report)?;
        forged += u64::from(matches!(judged, Judged::Forged));
        let is_enough = report.events >= events;
        last = is_enough.then(|| history.id.to_owned());
        Ok(!is_enough)
    })?;
    report.forged(kind, forged);
    Ok(last)
}

/// A page of the rows of a kind, and whether they are the folds of their histories.
pub(super) fn checked(
    conn: &Connection,
    kind: &RowKind,
    CheckedPage { after, limit, with_histories }: &CheckedPage,
) -> Result<CheckedRows, StoreFault> {
    let (mut checked, mut seen, mut forged) = (CheckedRows::default(), 0, 0);
    let behind = Which::Behind(after.as_deref().unwrap_or_default());
    for_each_row(conn, kind, behind, Some(&select_rows(kind)), |history, row| {
        // What a snapshot stands for is in no fold.
        let is_whole = history.snapshot.is_none();
        let judged = check(kind, history, row, *with_histories && is_whole, &mut checked.folds)?;
        forged += u64::from(matches!(judged, Judged::Forged));
        if let Some(row) = row {
            let id = history.id.to_owned();
            checked.rows.push(match judged {
                Judged::Fold(fold) if is_whole => CheckedRow::Fold { id, row: fold.with_history() },
                Judged::Fold(_) | Judged::Differs | Judged::Forged => {
                    let state = row.get(2).map_err(oops("reading a row"))?;
                    let history = match with_histories {
                        true => read::history(conn, kind.name, &id, 0, usize::MAX)?,
                        false => vec![],
                    };
                    CheckedRow::Other { id, state, history }
                }
            });
        }
        seen += 1;
        let is_over = seen == *limit;
        checked.folds.next = is_over.then(|| history.id.to_owned());
        Ok(!is_over)
    })?;
    checked.folds.forged(kind, forged);
    Ok(checked)
}

/// Adds a row to a digest, each value behind its type and its length.
fn add(digest: &mut Sha256, kind: &RowKind, id: &str, row: Option<&rusqlite::Row<'_>>) {
    let mut value = |tag: u8, bytes: &[u8]| {
        digest.update([tag]);
        digest.update(bytes.len().to_le_bytes());
        digest.update(bytes);
    };
    value(0, kind.name.as_bytes());
    value(0, id.as_bytes());
    let Some(row) = row else { return };
    for column in (0..6 + kind.fields.len()).map_while(|column| row.get_ref(column).ok()) {
        match column {
            ValueRef::Null => value(1, &[]),
            ValueRef::Integer(number) => value(2, &number.to_le_bytes()),
            ValueRef::Real(number) => value(3, &number.to_le_bytes()),
            ValueRef::Text(text) => value(4, text),
            ValueRef::Blob(bytes) => value(5, bytes),
        }
    }
}
