//! Shell: dead letters, looked up and counted in admin's own tables.

use std::collections::BTreeMap;

use jiff::Timestamp;
use saga_core::dead_letter::DeadLetterOrigin;
use saga_core::dead_letter::DeadLetterStatus;
use saga_core::decider::{Decider, FieldValue};
use saga_core::query::{Group, Query};
use saga_engine::store::{Store, StoreFault};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::filter::{Position, Wanted};
use super::view::DeadLetterView;
use crate::rows::{id_of, parsed};

/// Rows in one look while a text is looked for: those that lack it are dropped here.
const TEXT_CHUNK: usize = 1_000;

/// At most `limit` dead letters behind `after`, by the time of their last failure: newest first, or oldest first.
pub(crate) async fn find(
    store: &dyn Store,
    wanted: &Wanted,
    newest_first: bool,
    after: Option<&Position>,
    limit: usize,
) -> Result<Vec<(Uuid, DeadLetterView)>, StoreFault> {
    let mut query = Query { descending: newest_first, limit, ..wanted.query() };
    if wanted.filter.text.is_some() {
        query.limit = limit.max(TEXT_CHUNK);
    }
    if let Some(position) = after {
        position.resume(&mut query);
    }
    let mut found = Vec::new();
    loop {
        let rows = store.find(DeadLetterView::KIND, query.clone()).await?;
        for row in &rows {
            let (id, dead_letter) = (id_of(row)?, parsed::<DeadLetterView>(row)?);
            if wanted.filter.has_text(&dead_letter) {
                found.push((id, dead_letter));
            }
        }
        match rows.last() {
            Some(last) if found.len() < limit && rows.len() == query.limit => {
                Position::of(id_of(last)?, &parsed(last)?).resume(&mut query);
            }
            _ => {
                found.truncate(limit);
                return Ok(found);
            }
        }
    }
}

/// Dead letters counted by the value of a field, largest group first.
pub(crate) async fn grouped(
    store: &dyn Store,
    by: &'static str,
    wanted: &Wanted,
    limit: usize,
) -> Result<Vec<Group>, StoreFault> {
    if wanted.filter.text.is_none() {
        let query = Query { order: None, limit, ..wanted.query() };
        return store.groups(DeadLetterView::KIND, by, "failed_at", query).await;
    }
    let field = DeadLetterView::FIELDS.iter().position(|field| *field == by).unwrap_or_default();
    let mut groups = BTreeMap::<String, Group>::new();
    let mut after = None;
    loop {
        let found = find(store, wanted, false, after.as_ref(), TEXT_CHUNK).await?;
        for (id, dead_letter) in &found {
            let at = Position::of(*id, dead_letter).micros;
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
        match found.last() {
            Some((id, dead_letter)) if found.len() == TEXT_CHUNK => {
                after = Some(Position::of(*id, dead_letter))
            }
            _ => break,
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
    let groups = grouped(store, "status", wanted, DeadLetterStatus::ALL.len() + 1).await?;
    Ok(groups.iter().map(|group| group.count).sum())
}

/// Dead letters of one cause.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct DeadLetterGroup {
    /// What they have in common.
    fingerprint: String,
    /// How many there are.
    count: u64,
    /// The service that parked them.
    service: String,
    /// The step that failed, or the kind of task.
    step: String,
    /// Whether they are messages, something that is none, or calls.
    origin: DeadLetterOrigin,
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
    /// Id of the latest of them, to look at.
    sample: Uuid,
}

/// Dead letters by cause, largest group first.
pub(crate) async fn groups(
    store: &dyn Store,
    wanted: &Wanted,
    limit: usize,
) -> Result<Vec<DeadLetterGroup>, StoreFault> {
    let found = grouped(store, "fingerprint", wanted, limit).await?;
    let ids = found.iter().map(|group| FieldValue::Text(group.latest.clone())).collect();
    let query = Query { one_of: vec![("id", ids)], limit: found.len(), ..Query::default() };
    let mut samples = BTreeMap::new();
    for row in store.find(DeadLetterView::KIND, query).await? {
        samples.insert(row.id.clone(), parsed::<DeadLetterView>(&row)?);
    }
    let time = |micros| Timestamp::from_microsecond(micros).unwrap_or_default();
    let described = |group: Group| {
        let said = samples.get(&group.latest)?.said()?.clone();
        Some(DeadLetterGroup {
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
    Ok(found.into_iter().filter_map(described).collect())
}
