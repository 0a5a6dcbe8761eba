//! Shell: whether every row is the fold of its events: all at once, in parts, of what has changed, page by page.

use saga_core::decider::FieldValue;
use saga_core::row::RowKind;
use sha2::{Digest, Sha256};
use tokio_postgres::Row;

use super::fold::{Judged, SideBySide, Which, check, field_of};
use super::pool::Connection;
use super::read;
use super::values::{hex, oops, query_opt};
use crate::store::checking::LONGEST_LOOKED_AT;
use crate::store::{CheckedPage, CheckedRow, CheckedRows, FoldReport, Part, StoreFault};

/// Compares every row of every kind with the fold of its events.
pub(super) async fn verify(conn: &Connection, kinds: &[RowKind]) -> Result<FoldReport, StoreFault> {
    let mut report = FoldReport::default();
    let mut digest = Sha256::new();
    for kind in kinds {
        verify_kind(conn, kind, "", u64::MAX, &mut report, Some(&mut digest)).await?;
    }
    report.digest = hex(&digest.finalize());
    Ok(report)
}

/// The same of the rows behind `after`, a `kind/id`, until so many events are folded.
pub(super) async fn verify_part(
    conn: &Connection,
    kinds: &[RowKind],
    Part { after, events, but }: &Part,
) -> Result<FoldReport, StoreFault> {
    // Of no events nothing would ever come to its end.
    let events = (*events).max(1);
    let mut report = FoldReport::default();
    let (first, mut after) = after.as_deref().and_then(|after| after.split_once('/')).unzip();
    let rest = kinds.iter().skip_while(|kind| first.is_some_and(|first| first != kind.name));
    for kind in rest.filter(|kind| !but.iter().any(|but| but == kind.name)) {
        let id = after.take().unwrap_or_default();
        if let Some(last) = verify_kind(conn, kind, id, events, &mut report, None).await? {
            report.next = Some(format!("{}/{last}", kind.name));
            break;
        }
    }
    Ok(report)
}

/// The same of the rows that have one of the next `events` events behind the position `after`.
pub(super) async fn verify_changed(
    conn: &Connection,
    kinds: &[RowKind],
    after: i64,
    events: u64,
) -> Result<FoldReport, StoreFault> {
    let mut report = FoldReport::default();
    let changed = super::past::changed(conn, after, usize::try_from(events).unwrap_or(usize::MAX)).await?;
    for kind in kinds {
        let longest = format!("SELECT version FROM row_{} WHERE id = $1", kind.name);
        for (_, id) in changed.rows.iter().filter(|(of, _)| of == kind.name) {
            let version = query_opt(conn, &longest, &[id]).await.map_err(oops("reading a row"))?;
            if version.is_some_and(|row| row.get::<_, i64>(0) > LONGEST_LOOKED_AT) {
                continue;
            }
            let mut one = SideBySide::of(conn, kind, Which::Of(id.clone()), true).await?;
            if let Some((mut folded, row)) = one.next(false).await? {
                check(kind, &mut folded, row.as_ref(), &mut report);
            }
        }
    }
    report.next = (!changed.is_over).then(|| changed.up_to.to_string());
    Ok(report)
}

/// Compares the rows of a kind behind `after`. Answers where it stopped, if it did: there were enough events.
async fn verify_kind(
    conn: &Connection,
    kind: &RowKind,
    after: &str,
    events: u64,
    report: &mut FoldReport,
    mut digest: Option<&mut Sha256>,
) -> Result<Option<String>, StoreFault> {
    let (mut forged, mut last) = (0, None);
    let mut all = SideBySide::of(conn, kind, Which::Behind(after.to_owned()), true).await?;
    while let Some((mut folded, row)) = all.next(false).await? {
        if let Some(digest) = digest.as_mut().filter(|_| folded.is_there) {
            add(digest, kind, &folded.id, row.as_ref());
        }
        let judged = check(kind, &mut folded, row.as_ref(), report);
        forged += u64::from(matches!(judged, Judged::Forged));
        if report.events >= events {
            last = Some(folded.id);
            break;
        }
    }
    report.forged(kind, forged);
    Ok(last)
}

/// A page of the rows of a kind, and whether they are the folds of their histories.
pub(super) async fn checked(
    conn: &Connection,
    kind: &RowKind,
    CheckedPage { after, limit, with_histories }: &CheckedPage,
) -> Result<CheckedRows, StoreFault> {
    let (mut checked, mut seen, mut forged) = (CheckedRows::default(), 0, 0);
    let behind = Which::Behind(after.clone().unwrap_or_default());
    let mut all = SideBySide::of(conn, kind, behind, true).await?;
    while let Some((mut folded, row)) = all.next(*with_histories).await? {
        let judged = check(kind, &mut folded, row.as_ref(), &mut checked.folds);
        forged += u64::from(matches!(judged, Judged::Forged));
        let id = folded.id.clone();
        if let Some(row) = row {
            checked.rows.push(match judged {
                Judged::Fold(fold) if !folded.has_snapshot => {
                    CheckedRow::Fold { id, row: fold.with_history() }
                }
                Judged::Fold(_) | Judged::Differs | Judged::Forged => {
                    let history = match with_histories {
                        true => read::history(conn, kind.name, &id, 0, usize::MAX).await?,
                        false => vec![],
                    };
                    CheckedRow::Other { id, state: row.get(2), history }
                }
            });
        }
        seen += 1;
        if seen == *limit {
            checked.folds.next = Some(folded.id);
            break;
        }
    }
    checked.folds.forged(kind, forged);
    Ok(checked)
}

/// Adds a row to a digest, each value behind its length.
fn add(digest: &mut Sha256, kind: &RowKind, id: &str, row: Option<&Row>) {
    let mut value = |bytes: &[u8]| {
        digest.update(bytes.len().to_le_bytes());
        digest.update(bytes);
    };
    value(kind.name.as_bytes());
    value(id.as_bytes());
    let Some(row) = row else { return };
    value(row.get::<_, &str>(2).as_bytes());
    for number in [row.get(1), row.get(3), row.get(4), row.get::<_, Option<i64>>(5).unwrap_or(i64::MIN)] {
        value(&number.to_le_bytes());
    }
    for at in 0..kind.fields.len() {
        match field_of(kind, row, at) {
            FieldValue::Text(text) => value(text.as_bytes()),
            FieldValue::Integer(number) => value(&number.to_le_bytes()),
            FieldValue::Null => value(&[0xff]),
        }
    }
}
