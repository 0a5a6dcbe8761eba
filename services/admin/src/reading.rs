//! Shell: what routes and driver look up in admin's own tables.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use shared::contract::LetterOrigin;
use shared::decider::{Decider, FieldValue};
use shared::row::RowKey;
use shared::store::{FoundRow, Group, LetterStatus, Query, Store, StoreFault};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::filter::{Place, Wanted};
use crate::letters::Letter;

/// Rows in one look while a text is looked for: those that lack it are dropped here.
const TEXT_CHUNK: usize = 1_000;

/// A stored state, read.
///
/// # Errors
/// When it cannot be: the row is damaged.
pub(crate) fn parsed<D: Decider>(row: &FoundRow) -> Result<D, StoreFault> {
    serde_json::from_str(&row.state)
        .map_err(|error| StoreFault::Unusable(format!("{} {} cannot be read: {error}", D::KIND, row.id)))
}

/// A row's id, read.
///
/// # Errors
/// When it is none: the row is damaged.
pub(crate) fn id_of(row: &FoundRow) -> Result<Uuid, StoreFault> {
    row.id.parse().map_err(|error| StoreFault::Unusable(format!("row {:?} has no id: {error}", row.id)))
}

/// One row's state; `None` when it is not there.
///
/// # Errors
/// When the store fails.
pub(crate) async fn row<D: Decider>(store: &dyn Store, id: impl ToString) -> Result<Option<D>, StoreFault> {
    let found = store.row(RowKey::of::<D>(id)).await?;
    found.as_ref().map(parsed).transpose()
}

/// Letters, by the time of their last failure: newest first, or oldest first.
///
/// # Errors
/// When the store fails.
pub(crate) async fn letters(
    store: &dyn Store,
    wanted: &Wanted,
    newest_first: bool,
    after: Option<&Place>,
    limit: usize,
) -> Result<Vec<(Uuid, Letter)>, StoreFault> {
    let mut query = Query { descending: newest_first, limit, ..wanted.query() };
    if wanted.filter.text.is_some() {
        query.limit = limit.max(TEXT_CHUNK);
    }
    if let Some(place) = after {
        place.resume(&mut query);
    }
    let mut found = Vec::new();
    loop {
        let rows = store.find(Letter::KIND, query.clone()).await?;
        for row in &rows {
            let (id, letter) = (id_of(row)?, parsed::<Letter>(row)?);
            if wanted.filter.has_text(&letter) {
                found.push((id, letter));
            }
        }
        let end = found.len().min(limit);
        match rows.last() {
            Some(last) if found.len() < limit && rows.len() == query.limit => {
                place(id_of(last)?, &parsed(last)?).resume(&mut query);
            }
            _ => {
                found.truncate(end);
                return Ok(found);
            }
        }
    }
}

/// Where a letter is in a list.
#[must_use]
pub(crate) fn place(id: Uuid, letter: &Letter) -> Place {
    Place { micros: letter.said().map_or(0, |said| said.last_failed_at.as_microsecond()), id }
}

/// Letters counted by the value of a field, largest group first.
///
/// # Errors
/// When the store fails.
pub(crate) async fn grouped(
    store: &dyn Store,
    by: &'static str,
    wanted: &Wanted,
    limit: usize,
) -> Result<Vec<Group>, StoreFault> {
    if wanted.filter.text.is_none() {
        let query = Query { order: None, limit, ..wanted.query() };
        return store.groups(Letter::KIND, by, "failed_at", query).await;
    }
    let field = Letter::FIELDS.iter().position(|field| *field == by).unwrap_or_default();
    let mut groups = BTreeMap::<String, Group>::new();
    let mut after = None;
    loop {
        let found = letters(store, wanted, false, after.as_ref(), TEXT_CHUNK).await?;
        for (id, letter) in &found {
            let at = place(*id, letter).micros;
            let value = match letter.fields(&id.to_string()).swap_remove(field) {
                FieldValue::Text(text) => text,
                FieldValue::Integer(number) => number.to_string(),
                FieldValue::Null => String::new(),
            };
            let new = Group { value: value.clone(), count: 0, first: at, last: at, latest: String::new() };
            let group = groups.entry(value).or_insert(new);
            // Oldest first: each is later than those before.
            (group.count, group.last, group.latest) = (group.count + 1, at, id.to_string());
        }
        match found.last() {
            Some((id, letter)) if found.len() == TEXT_CHUNK => after = Some(place(*id, letter)),
            _ => break,
        }
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    groups.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.value.cmp(&b.value)));
    groups.truncate(limit);
    Ok(groups)
}

/// How many letters there are.
///
/// # Errors
/// When the store fails.
pub(crate) async fn count(store: &dyn Store, wanted: &Wanted) -> Result<u64, StoreFault> {
    if wanted.filter.text.is_none() {
        return Ok(store.counts(Letter::KIND, "status", wanted.query()).await?.values().sum());
    }
    let groups = grouped(store, "status", wanted, LetterStatus::ALL.len() + 1).await?;
    Ok(groups.iter().map(|group| group.count).sum())
}

/// Letters of one cause.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct LetterGroup {
    /// What they have in common.
    fingerprint: String,
    /// How many there are.
    count: u64,
    /// The service that parked them.
    service: String,
    /// The step that failed, or the kind of task.
    step: String,
    /// What they were.
    origin: LetterOrigin,
    /// Type of the messages, when it could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    message_type: Option<String>,
    /// Why the latest of them failed.
    reason: String,
    /// When the earliest of them failed last.
    #[schema(value_type = String, format = DateTime)]
    first_failed_at: Timestamp,
    /// When the latest of them failed last.
    #[schema(value_type = String, format = DateTime)]
    last_failed_at: Timestamp,
    /// The latest of them.
    sample: Uuid,
}

/// Letters by cause, largest group first.
///
/// # Errors
/// When the store fails.
pub(crate) async fn groups(
    store: &dyn Store,
    wanted: &Wanted,
    limit: usize,
) -> Result<Vec<LetterGroup>, StoreFault> {
    let found = grouped(store, "fingerprint", wanted, limit).await?;
    let ids = found.iter().map(|group| FieldValue::Text(group.latest.clone())).collect();
    let query = Query { one_of: vec![("id", ids)], limit: found.len(), ..Query::default() };
    let mut samples = BTreeMap::new();
    for row in store.find(Letter::KIND, query).await? {
        samples.insert(row.id.clone(), parsed::<Letter>(&row)?);
    }
    let time = |micros| Timestamp::from_microsecond(micros).unwrap_or_default();
    let group = |group: Group| {
        let said = samples.get(&group.latest)?.said()?.clone();
        Some(LetterGroup {
            fingerprint: group.value,
            count: group.count,
            service: said.service,
            step: said.step,
            origin: said.origin,
            message_type: said.message_type,
            reason: said.reason,
            first_failed_at: time(group.first),
            last_failed_at: time(group.last),
            sample: group.latest.parse().ok()?,
        })
    };
    Ok(found.into_iter().filter_map(group).collect())
}
