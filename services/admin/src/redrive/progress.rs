//! Shell: the progress of redrives, counted from the dead letters on request.

use admin_api::redrives::{RedriveStatus, RedriveView};
use saga_core::dead_letter::DeadLetterStatus;
use saga_core::decider::{Decider, FieldValue};
use saga_core::query::{FoundRow, Query};
use saga_engine::host::queries::readable_rows;
use saga_engine::store::StoreFault;
use saga_engine::store::roles::Queries;
use uuid::Uuid;

use super::decider::{Counted, Drive, Redrive};
use crate::dead_letters::events::{AGAIN, IN_VAIN, Tag};
use crate::dead_letters::filter::Selection;
use crate::dead_letters::reading;
use crate::dead_letters::view::DeadLetterView;
use crate::rows::{id_of, parsed, row};

/// Number of earlier rounds whose replays are counted. An operator starts each round.
const MAX_ROUNDS: usize = 100;

/// Reads a redrive with its progress; `None` when there is none.
pub(crate) async fn view(store: &dyn Queries, id: Uuid) -> Result<Option<RedriveView>, StoreFault> {
    match row::<Redrive>(store, id).await?.as_ref().and_then(Redrive::drive) {
        Some(drive) => view_of(store, id, drive.clone()).await.map(Some),
        None => Ok(None),
    }
}

/// Counts the progress of each redrive of a page. Returns the ids of damaged ones too.
pub(crate) async fn views(
    store: &dyn Queries,
    page: &[FoundRow],
) -> Result<(Vec<RedriveView>, Vec<String>), StoreFault> {
    let (redrives, unreadable) = readable_rows(page, |row| Ok((id_of(row)?, parsed::<Redrive>(row)?)));
    let mut views = Vec::with_capacity(redrives.len());
    for (id, redrive) in redrives {
        if let Some(drive) = redrive.drive() {
            views.push(view_of(store, id, drive.clone()).await?);
        }
    }
    Ok((views, unreadable))
}

/// Counts the progress of a redrive.
pub(crate) async fn view_of(store: &dyn Queries, id: Uuid, drive: Drive) -> Result<RedriveView, StoreFault> {
    let [mut sent, mut resolved, mut in_vain, mut failed, mut in_flight] = [0; 5];
    for (status, count) in courses(store, &id.to_string()).await? {
        sent += count;
        match DeadLetterStatus::named(&status) {
            None if status == IN_VAIN => (resolved, in_vain) = (resolved + count, in_vain + count),
            Some(DeadLetterStatus::Resolved) => resolved += count,
            Some(DeadLetterStatus::Replaying) => in_flight += count,
            Some(
                DeadLetterStatus::Pending | DeadLetterStatus::Discarded | DeadLetterStatus::ResolvedManually,
            )
            | None => failed += count,
        }
    }
    let remaining = match drive.status {
        RedriveStatus::Done => 0,
        RedriveStatus::Canary
        | RedriveStatus::Running
        | RedriveStatus::Paused
        | RedriveStatus::Stopped
        | RedriveStatus::Cancelled => reading::count(store, &to_send(&drive)).await?,
    };
    Ok(RedriveView {
        id,
        status: drive.status,
        stopped_because: drive.stopped_because,
        filter: drive.plan.filter,
        canary: drive.plan.canary,
        rate: drive.plan.rate,
        force: drive.plan.force,
        operator: drive.plan.by.operator,
        reason: drive.plan.by.reason,
        round: drive.round,
        matching: drive.plan.matching,
        sent,
        resolved,
        in_vain,
        failed,
        in_flight,
        remaining,
        round_sent: drive.sent,
        round_matching: drive.sent + remaining,
        created_at: drive.created_at,
        updated_at: drive.updated_at,
    })
}

/// Query of the dead letters that this round has not replayed.
pub(crate) fn to_send(drive: &Drive) -> Selection {
    Selection {
        before: Some(drive.round_started_at),
        replayable: !drive.plan.force,
        ..Selection::pending(drive.plan.filter.clone())
    }
}

/// Counts the dead letters of a redrive, or of `<redrive>/<round>`, by status, [`AGAIN`] or [`IN_VAIN`].
async fn courses(store: &dyn Queries, of: &str) -> Result<Vec<(String, u64)>, StoreFault> {
    let counts = store.counts(DeadLetterView::KIND, "redrive", below(of)).await?;
    let status = |course: &str| course.rsplit('/').next().unwrap_or_default().to_owned();
    Ok(counts.into_iter().map(|(course, count)| (status(&course), count)).collect())
}

/// Counts the outcome of replays, as far as the status of the redrive needs it.
pub(crate) async fn counted(store: &dyn Queries, drive: &Drive, tag: Tag) -> Result<Counted, StoreFault> {
    // Counted first: what is not in flight any more is resolved or failed by the time that is counted.
    let in_flight = in_flight(store, tag).await?;
    let mut counted = Counted { in_flight, ..Counted::default() };
    if drive.status == RedriveStatus::Canary {
        for (status, count) in courses(store, &format!("{}/{}", tag.redrive, tag.round)).await? {
            let is_in_vain = status == IN_VAIN;
            if is_in_vain || DeadLetterStatus::named(&status) == Some(DeadLetterStatus::Resolved) {
                counted.resolved += count;
                counted.in_vain += if is_in_vain { count } else { 0 };
            }
        }
    }
    Ok(counted)
}

/// Counts the replays in flight, those of earlier rounds included.
pub async fn in_flight(store: &dyn Queries, tag: Tag) -> Result<u64, StoreFault> {
    let replaying =
        |round| FieldValue::Text(Tag { round, ..tag }.course(DeadLetterStatus::Replaying.as_str()));
    let rounds = (1..=tag.round).rev().take(MAX_ROUNDS).map(replaying).collect();
    let query = Query { one_of: vec![("redrive", rounds)], ..Query::default() };
    Ok(store.counts(DeadLetterView::KIND, "redrive", query).await?.values().sum())
}

/// Builds a query for values that start with `<prefix>/`: '0' is the character after '/'.
fn below(prefix: &str) -> Query {
    let bound = |end: char| ("redrive", FieldValue::Text(format!("{prefix}{end}")));
    Query { from: vec![bound('/')], below: vec![bound('0')], ..Query::default() }
}

/// Finds a dead letter that failed again since this round started, and its error.
///
/// In the canary round any error counts. Later, a dead letter of any round counts if its fingerprint is the same.
pub(crate) async fn failed_again(
    store: &dyn Queries,
    drive: &Drive,
    tag: Tag,
) -> Result<Option<(String, String)>, StoreFault> {
    let again = |round| FieldValue::Text(Tag { round, ..tag }.course(AGAIN));
    let mut statuses = vec![again(tag.round)];
    if drive.status == RedriveStatus::Canary {
        statuses.push(FieldValue::Text(tag.course(DeadLetterStatus::Pending.as_str())));
    }
    let query = Query { one_of: vec![("redrive", statuses)], limit: 1, ..Query::default() };
    let mut found = store.find(DeadLetterView::KIND, query.clone()).await?;
    if found.is_empty() {
        let rounds = (1..=tag.round).rev().take(MAX_ROUNDS).map(again).collect();
        let since = ("failed_at", drive.round_started_at.as_microsecond().into());
        let query = Query { one_of: vec![("redrive", rounds)], from: vec![since], ..query };
        found = store.find(DeadLetterView::KIND, query).await?;
    }
    Ok(found.first().map(|row| {
        let why = match parsed::<DeadLetterView>(row) {
            Ok(dead_letter) => dead_letter.report().map(|report| report.reason.clone()).unwrap_or_default(),
            Err(_) => "unknown, its row is damaged".to_owned(),
        };
        (row.id.clone(), why)
    }))
}
