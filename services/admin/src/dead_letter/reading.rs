//! Shell: dead letters, looked up and counted in admin's own tables.

use std::collections::BTreeMap;

use saga_core::decider::{Decider, FieldValue};
use saga_core::query::{FoundRow, Group, Query};
use saga_core::retry::error_chain;
use saga_engine::store::{Store, StoreFault};
use tracing::error;
use uuid::Uuid;

use super::events::Replay;
use super::filter::{Position, Wanted};
use super::view::DeadLetterView;
use crate::rows::{id_of, parsed};

/// Rows in one look while a text is looked for: those that lack it are dropped here.
const TEXT_CHUNK: usize = 1_000;

/// Rows in one look for those that may be replayed, at least: some may not.
const LEAST_PAGE: usize = 16;

/// Dead letters that were looked up.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Those that can be read.
    pub(crate) dead_letters: Vec<(Uuid, DeadLetterView)>,
    /// Ids of those that cannot, because their rows are damaged: they hide no other.
    pub(crate) unreadable: Vec<String>,
    /// Where the next ones begin, when there are more.
    pub(crate) next: Option<Position>,
}

/// At most `limit` dead letters behind `after`, by the time of their last failure: newest first, or oldest first.
pub(crate) async fn find(
    store: &dyn Store,
    wanted: &Wanted,
    newest_first: bool,
    after: Option<&Position>,
    limit: usize,
) -> Result<Found, StoreFault> {
    let mut query = Query { descending: newest_first, limit: limit + 1, ..wanted.query() };
    if wanted.filter.text.is_some() {
        query.limit = query.limit.max(TEXT_CHUNK);
    }
    if let Some(position) = after {
        position.resume(&mut query);
    }
    let (mut found, mut last) = (Found::default(), None);
    loop {
        let rows = store.find(DeadLetterView::KIND, query.clone()).await?;
        for row in &rows {
            let read = readable(row);
            if read.as_ref().is_ok_and(|(_, dead_letter)| !wanted.filter.has_text(dead_letter)) {
                continue;
            }
            if found.dead_letters.len() + found.unreadable.len() == limit {
                return Ok(Found { next: last, ..found });
            }
            last = Some(Position::of(row));
            match read {
                Ok(dead_letter) => found.dead_letters.push(dead_letter),
                Err(fault) => {
                    error!("{}", error_chain(&fault));
                    found.unreadable.push(row.id.clone());
                }
            }
        }
        match rows.last() {
            Some(last) if rows.len() == query.limit => Position::of(last).resume(&mut query),
            Some(_) | None => return Ok(found),
        }
    }
}

/// The same without the damaged ones: none only when there is none that can be read.
pub(crate) async fn find_readable(
    store: &dyn Store,
    wanted: &Wanted,
    newest_first: bool,
    limit: usize,
) -> Result<Vec<(Uuid, DeadLetterView)>, StoreFault> {
    let mut after = None;
    loop {
        let found = find(store, wanted, newest_first, after.as_ref(), limit).await?;
        after = found.next;
        if !found.dead_letters.is_empty() || after.is_none() {
            return Ok(found.dead_letters);
        }
    }
}

/// The dead letters that these ids name and that can be read.
pub(crate) async fn by_ids(store: &dyn Store, ids: &[Uuid]) -> Result<Vec<DeadLetterView>, StoreFault> {
    let named = ids.iter().map(|id| FieldValue::Text(id.to_string())).collect();
    let query = Query { one_of: vec![("id", named)], limit: ids.len(), ..Query::default() };
    let rows = store.find(DeadLetterView::KIND, query).await?;
    Ok(rows.iter().filter_map(|row| parsed(row).ok()).collect())
}

/// Ids of at most `limit` that would not refuse this replay, the one that failed longest ago first. What is damaged, or
/// would refuse it, keeps none of the others from being found.
pub(crate) async fn find_for(
    store: &dyn Store,
    wanted: &Wanted,
    replay: &Replay,
    limit: usize,
) -> Result<Vec<Uuid>, StoreFault> {
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let found = find(store, wanted, false, after.as_ref(), limit.max(LEAST_PAGE)).await?;
        let here = found.dead_letters.iter().filter(|(_, dead_letter)| dead_letter.may_be_replayed(replay));
        ids.extend(here.map(|(id, _)| *id));
        after = found.next;
        if ids.len() >= limit || after.is_none() {
            ids.truncate(limit);
            return Ok(ids);
        }
    }
}

pub(crate) fn readable(row: &FoundRow) -> Result<(Uuid, DeadLetterView), StoreFault> {
    Ok((id_of(row)?, parsed(row)?))
}

/// Dead letters counted by the value of a field, largest group first.
pub(crate) async fn grouped(
    store: &dyn Store,
    by: &'static str,
    wanted: &Wanted,
    limit: usize,
) -> Result<Vec<Group>, StoreFault> {
    if wanted.filter.text.is_none() {
        let query = Query { limit, ..wanted.query() };
        return store.groups(DeadLetterView::KIND, by, "failed_at", query).await;
    }
    let field = DeadLetterView::FIELDS.iter().position(|field| *field == by).unwrap_or_default();
    let mut groups = BTreeMap::<String, Group>::new();
    let mut after = None;
    loop {
        let found = find(store, wanted, false, after.as_ref(), TEXT_CHUNK).await?;
        for (id, dead_letter) in &found.dead_letters {
            let at = dead_letter.said().map_or(0, |said| said.last_failed_at.as_microsecond());
            let value = match dead_letter.fields(&id.to_string()).swap_remove(field) {
                FieldValue::Text(text) => text,
                FieldValue::Integer(number) => number.to_string(),
                FieldValue::Null => String::new(),
            };
            let new = Group { value: value.clone(), count: 0, first: at, last: at, latest: String::new() };
            let group = groups.entry(value).or_insert(new);
            // Oldest first: each is later than those before.
            (group.count, group.last, group.latest) = (group.count + 1, at, id.to_string());
        }
        after = found.next;
        if after.is_none() {
            break;
        }
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    groups.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.value.cmp(&b.value)));
    groups.truncate(limit);
    Ok(groups)
}

/// How many dead letters are wanted.
pub(crate) async fn count(store: &dyn Store, wanted: &Wanted) -> Result<u64, StoreFault> {
    if wanted.filter.text.is_none() {
        return Ok(store.counts(DeadLetterView::KIND, "status", wanted.query()).await?.values().sum());
    }
    let groups = grouped(store, "status", wanted, usize::MAX).await?;
    Ok(groups.iter().map(|group| group.count).sum())
}
