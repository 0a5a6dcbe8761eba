//! Shell: queries of dead letters in admin's tables.

use std::collections::BTreeMap;

use saga_core::decider::{Decider, FieldValue};
use saga_core::query::{FoundRow, Group, Query};
use saga_core::retry::error_chain;
use saga_engine::store::StoreFault;
use saga_engine::store::roles::Queries;
use tracing::error;
use uuid::Uuid;

use super::events::Replay;
use super::filter::{Position, Selection, has_text};
use super::view::DeadLetterView;
use crate::rows::{id_of, parsed};

/// Rows of one query with a text filter, which is evaluated here.
const TEXT_CHUNK: usize = 1_000;

/// Minimum number of rows of a query for dead letters to replay, as some may not be replayed.
const MIN_PAGE: usize = 16;

/// Result of a query.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) dead_letters: Vec<(Uuid, DeadLetterView)>,
    /// Ids of damaged rows.
    pub(crate) unreadable: Vec<String>,
    /// Start of the next page, when there is one.
    pub(crate) next: Option<Position>,
}

/// Finds at most `limit` dead letters after `after`, by the time of their last failure.
pub(crate) async fn find(
    store: &dyn Queries,
    wanted: &Selection,
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
            if read.as_ref().is_ok_and(|(_, dead_letter)| !has_text(&wanted.filter, dead_letter)) {
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

/// As [`find`], without damaged rows. Empty only when no row can be read.
pub(crate) async fn find_readable(
    store: &dyn Queries,
    wanted: &Selection,
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

/// Reads dead letters by id, without damaged ones.
pub(crate) async fn by_ids(store: &dyn Queries, ids: &[Uuid]) -> Result<Vec<DeadLetterView>, StoreFault> {
    let named = ids.iter().map(|id| FieldValue::Text(id.to_string())).collect();
    let query = Query { one_of: vec![("id", named)], limit: ids.len(), ..Query::default() };
    let rows = store.find(DeadLetterView::KIND, query).await?;
    Ok(rows.iter().filter_map(|row| parsed(row).ok()).collect())
}

/// Finds ids of at most `limit` dead letters that accept this replay, oldest failure first.
pub(crate) async fn find_for(
    store: &dyn Queries,
    wanted: &Selection,
    replay: &Replay,
    limit: usize,
) -> Result<Vec<Uuid>, StoreFault> {
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let found = find(store, wanted, false, after.as_ref(), limit.max(MIN_PAGE)).await?;
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

/// Counts dead letters by the value of a field, largest group first.
pub(crate) async fn grouped(
    store: &dyn Queries,
    by: &'static str,
    wanted: &Selection,
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
            let at = dead_letter.report().map_or(0, |report| report.last_failed_at.as_microsecond());
            let value = match dead_letter.fields(&id.to_string()).swap_remove(field) {
                FieldValue::Text(text) => text,
                FieldValue::Integer(number) => number.to_string(),
                FieldValue::Null => String::new(),
            };
            let new = Group { value: value.clone(), count: 0, first: at, last: at, latest: String::new() };
            let group = groups.entry(value).or_insert(new);
            // In the order of time, each is the latest so far.
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

pub(crate) async fn count(store: &dyn Queries, wanted: &Selection) -> Result<u64, StoreFault> {
    if wanted.filter.text.is_none() {
        return Ok(store.counts(DeadLetterView::KIND, "status", wanted.query()).await?.values().sum());
    }
    let groups = grouped(store, "status", wanted, usize::MAX).await?;
    Ok(groups.iter().map(|group| group.count).sum())
}
