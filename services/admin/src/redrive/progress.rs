//! Shell: how far redrives are: counted from the dead letters whenever somebody asks.

use jiff::Timestamp;
use saga_core::dead_letter::DeadLetterStatus;
use saga_core::decider::{Decider, FieldValue};
use saga_core::query::Query;
use saga_engine::store::{Store, StoreFault};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::decider::{Counted, Drive, Redrive};
use super::events::RedriveStatus;
use crate::dead_letter::events::{AGAIN, IN_VAIN, Tag};
use crate::dead_letter::filter::{Filter, Wanted};
use crate::dead_letter::reading;
use crate::dead_letter::view::DeadLetterView;
use crate::rows::{parsed, row};

/// Rounds of which late dead letters are waited for; each begins because a human says so.
const MOST_ROUNDS: usize = 100;

/// A redrive as people see it.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct RedriveView {
    /// Id of the redrive; also of the entry of its start in the audit log.
    pub(crate) id: Uuid,
    /// Where it stands.
    pub(crate) status: RedriveStatus,
    /// Why it stopped by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped_because: Option<String>,
    /// Which dead letters, of those that wait for a human.
    filter: Filter,
    /// How many are sent first, and must be resolved before the rest follows.
    canary: u32,
    /// Dead letters per second at most; as fast as it goes without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<u32>,
    /// Even those whose replays failed too often.
    force: bool,
    /// Who started it.
    operator: String,
    /// Why it was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Which round this is, from 1.
    round: u32,
    /// Dead letters that matched at the start.
    matching: u64,
    /// Dead letters sent; those that somebody replayed by hand since do not count any more.
    sent: u64,
    /// Those that are handled.
    resolved: u64,
    /// Those of them that changed nothing: their sagas had ended.
    in_vain: u64,
    /// Those that failed again, or were given up since.
    failed: u64,
    /// Those that nothing has been heard of yet.
    in_flight: u64,
    /// Dead letters still to be sent in this round.
    remaining: u64,
    /// Dead letters that this round has sent; the counts above are of all rounds.
    round_sent: u64,
    /// Those and the remaining ones: what matches in this round.
    round_matching: u64,
    /// When it was started.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When its status changed last.
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
}

/// A redrive with what it has done so far; `None` when there is no such redrive.
pub(crate) async fn view(store: &dyn Store, id: Uuid) -> Result<Option<RedriveView>, StoreFault> {
    match row::<Redrive>(store, id).await?.as_ref().and_then(Redrive::drive) {
        Some(drive) => view_of(store, id, drive.clone()).await.map(Some),
        None => Ok(None),
    }
}

/// A redrive that was read already, with what it has done so far.
pub(crate) async fn view_of(store: &dyn Store, id: Uuid, drive: Drive) -> Result<RedriveView, StoreFault> {
    let [mut sent, mut resolved, mut in_vain, mut failed, mut in_flight] = [0; 5];
    for (standing, count) in courses(store, &id.to_string()).await? {
        sent += count;
        match DeadLetterStatus::named(&standing) {
            None if standing == IN_VAIN => (resolved, in_vain) = (resolved + count, in_vain + count),
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

/// The dead letters that a redrive has still to send in its round.
#[must_use]
pub(crate) fn to_send(drive: &Drive) -> Wanted {
    Wanted {
        before: Some(drive.round_began_at),
        replayable: !drive.plan.force,
        ..Wanted::pending(drive.plan.filter.clone())
    }
}

/// Where the dead letters stand that a redrive, or `<redrive>/<round>`, has sent: (status, [`AGAIN`] or [`IN_VAIN`],
/// how many).
async fn courses(store: &dyn Store, of: &str) -> Result<Vec<(String, u64)>, StoreFault> {
    let counts = store.counts(DeadLetterView::KIND, "redrive", below(of)).await?;
    let standing = |course: &str| course.rsplit('/').next().unwrap_or_default().to_owned();
    Ok(counts.into_iter().map(|(course, count)| (standing(&course), count)).collect())
}

/// What has become of the dead letters that a redrive sent, as far as it matters where it stands.
pub(crate) async fn counted(store: &dyn Store, drive: &Drive, tag: Tag) -> Result<Counted, StoreFault> {
    // First: what is not on its way any more is handled by the time that is counted, if it ever is.
    let in_flight = in_flight(store, tag).await?;
    let mut counted = Counted { in_flight, ..Counted::default() };
    if drive.status == RedriveStatus::Canary {
        for (standing, count) in courses(store, &format!("{}/{}", tag.redrive, tag.round)).await? {
            counted.canary += count;
            if standing == IN_VAIN || DeadLetterStatus::named(&standing) == Some(DeadLetterStatus::Resolved) {
                counted.resolved += count;
            }
        }
    }
    Ok(counted)
}

/// How many dead letters of a redrive are on their way, those of earlier rounds counted.
///
/// # Errors
/// When the store fails.
pub async fn in_flight(store: &dyn Store, tag: Tag) -> Result<u64, StoreFault> {
    let replaying =
        |round| FieldValue::Text(Tag { round, ..tag }.course(DeadLetterStatus::Replaying.as_str()));
    let rounds = (1..=tag.round).rev().take(MOST_ROUNDS).map(replaying).collect();
    let query = Query { one_of: vec![("redrive", rounds)], ..Query::default() };
    Ok(store.counts(DeadLetterView::KIND, "redrive", query).await?.values().sum())
}

/// Asks for everything that begins with `<prefix>/`: '0' is the character after '/'.
fn below(prefix: &str) -> Query {
    let bound = |end: char| ("redrive", FieldValue::Text(format!("{prefix}{end}")));
    Query { from: vec![bound('/')], below: vec![bound('0')], ..Query::default() }
}

/// Id of a dead letter that failed again since this round began, and why: one that any round sent, in the way it had
/// failed before, or one of this round's canary, in any way.
pub(crate) async fn failed_again(
    store: &dyn Store,
    drive: &Drive,
    tag: Tag,
) -> Result<Option<(String, String)>, StoreFault> {
    let again = |round| FieldValue::Text(Tag { round, ..tag }.course(AGAIN));
    let mut standings = vec![again(tag.round)];
    if drive.status == RedriveStatus::Canary {
        standings.push(FieldValue::Text(tag.course(DeadLetterStatus::Pending.as_str())));
    }
    let query = Query { one_of: vec![("redrive", standings)], limit: 1, ..Query::default() };
    let mut found = store.find(DeadLetterView::KIND, query.clone()).await?;
    if found.is_empty() {
        let rounds = (1..=tag.round).rev().take(MOST_ROUNDS).map(again).collect();
        let since = ("failed_at", drive.round_began_at.as_microsecond().into());
        let query = Query { one_of: vec![("redrive", rounds)], from: vec![since], ..query };
        found = store.find(DeadLetterView::KIND, query).await?;
    }
    Ok(found.first().map(|row| {
        let why = match parsed::<DeadLetterView>(row) {
            Ok(dead_letter) => dead_letter.said().map(|said| said.reason.clone()).unwrap_or_default(),
            Err(_) => "why cannot be read, its row is damaged".to_owned(),
        };
        (row.id.clone(), why)
    }))
}
