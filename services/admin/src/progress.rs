//! Shell: how far redrives are: counted from the letters whenever somebody asks.

use jiff::Timestamp;
use serde::Serialize;
use shared::decider::{Decider, FieldValue};
use shared::http::Problem;
use shared::store::{LetterStatus, Query, Store, StoreFault};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::filter::{Filter, Wanted};
use crate::letters::{AGAIN, Letter, Tag};
use crate::reading::{count, id_of, parsed, row};
use crate::redrive::{Drive, Redrive, RedriveStatus};

/// Rounds of which late letters are waited for; each begins because a human says so.
const MOST_ROUNDS: usize = 100;

/// A redrive as people see it.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct RedriveView {
    /// Its id.
    pub(crate) id: Uuid,
    /// Where it stands.
    pub(crate) status: RedriveStatus,
    /// Why it stopped by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped_because: Option<String>,
    /// Which letters.
    filter: Filter,
    /// How many are sent first, and must be resolved before the rest follows.
    canary: u32,
    /// Letters per second at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<u32>,
    /// Even those whose replays failed too often.
    force: bool,
    /// Who started it.
    operator: String,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Which try this is, from 1.
    round: u32,
    /// Letters that matched at the start.
    matching: u64,
    /// Letters sent; those that somebody replayed by hand since do not count any more.
    sent: u64,
    /// Those that are handled.
    resolved: u64,
    /// Those that failed again, or were given up since.
    failed: u64,
    /// Those that nothing has been heard of yet.
    in_flight: u64,
    /// Letters still to be sent in this round.
    remaining: u64,
    /// When it was started.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When its status changed last.
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
}

/// A redrive with what it has done so far.
///
/// # Errors
/// When the store fails.
pub(crate) async fn redrive(store: &dyn Store, id: Uuid, drive: Drive) -> Result<RedriveView, StoreFault> {
    let [mut sent, mut resolved, mut failed, mut in_flight] = [0; 4];
    for (standing, letters) in courses(store, id).await? {
        sent += letters;
        match LetterStatus::named(&standing) {
            Some(LetterStatus::Resolved) => resolved += letters,
            Some(LetterStatus::Replaying) => in_flight += letters,
            Some(LetterStatus::Pending | LetterStatus::Discarded) | None => failed += letters,
        }
    }
    let remaining = match drive.status {
        RedriveStatus::Done => 0,
        RedriveStatus::Canary
        | RedriveStatus::Running
        | RedriveStatus::Paused
        | RedriveStatus::Stopped
        | RedriveStatus::Cancelled => count(store, &to_send(&drive)).await?,
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
        failed,
        in_flight,
        remaining,
        created_at: drive.created_at,
        updated_at: drive.updated_at,
    })
}

/// The letters that a redrive has still to send in its round.
#[must_use]
pub(crate) fn to_send(drive: &Drive) -> Wanted {
    Wanted {
        before: Some(drive.round_began_at),
        replayable: !drive.plan.force,
        ..Wanted::pending(drive.plan.filter.clone())
    }
}

/// Where the letters stand that a redrive has sent in all its rounds: (status or [`AGAIN`], how many).
async fn courses(store: &dyn Store, redrive: Uuid) -> Result<Vec<(String, u64)>, StoreFault> {
    // Everything that begins with `<redrive>/`: '0' is the character after '/'.
    let bound = |end: char| ("redrive", FieldValue::Text(format!("{redrive}{end}")));
    let query = Query { from: vec![bound('/')], below: vec![bound('0')], ..Query::default() };
    let counts = store.counts(Letter::KIND, "redrive", query).await?;
    let standing =
        |(course, count): (String, u64)| (course.rsplit('/').next().unwrap_or_default().to_owned(), count);
    Ok(counts.into_iter().map(standing).collect())
}

/// How many letters one round has sent.
///
/// # Errors
/// When the store fails.
pub(crate) async fn sent(store: &dyn Store, tag: Tag) -> Result<u64, StoreFault> {
    let course = tag.course("");
    let bound = |end: char| ("redrive", FieldValue::Text(format!("{}{end}", course.trim_end_matches('/'))));
    let query = Query { from: vec![bound('/')], below: vec![bound('0')], ..Query::default() };
    total(store, query).await
}

/// How many letters of a redrive are on their way, those of earlier rounds counted: they may have lost their way
/// for a while.
///
/// # Errors
/// When the store fails.
pub(crate) async fn in_flight(store: &dyn Store, tag: Tag) -> Result<u64, StoreFault> {
    let replaying = |round| FieldValue::Text(Tag { round, ..tag }.course(LetterStatus::Replaying.as_str()));
    let rounds = (1..=tag.round).rev().take(MOST_ROUNDS).map(replaying).collect();
    total(store, Query { one_of: vec![("redrive", rounds)], ..Query::default() }).await
}

async fn total(store: &dyn Store, query: Query) -> Result<u64, StoreFault> {
    Ok(store.counts(Letter::KIND, "redrive", query).await?.values().sum())
}

/// A letter that one round sent, and that failed again: in the same way as before, or in any way.
///
/// # Errors
/// When the store fails.
pub(crate) async fn failed_again(
    store: &dyn Store,
    tag: Tag,
    in_any_way: bool,
) -> Result<Option<(Uuid, Letter)>, StoreFault> {
    let mut standings = vec![FieldValue::Text(tag.course(AGAIN))];
    if in_any_way {
        standings.push(FieldValue::Text(tag.course(LetterStatus::Pending.as_str())));
    }
    let query = Query { one_of: vec![("redrive", standings)], limit: 1, ..Query::default() };
    match store.find(Letter::KIND, query).await?.first() {
        Some(row) => Ok(Some((id_of(row)?, parsed(row)?))),
        None => Ok(None),
    }
}

/// A redrive, or 404.
///
/// # Errors
/// 404, or when the store fails.
pub(crate) async fn known_redrive(store: &dyn Store, id: Uuid) -> Result<RedriveView, Problem> {
    let found = row::<Redrive>(store, id).await?;
    let drive = found.and_then(|redrive| redrive.drive().cloned());
    let drive = drive.ok_or_else(|| Problem::not_found(format_args!("redrive {id}")))?;
    Ok(redrive(store, id, drive).await?)
}
