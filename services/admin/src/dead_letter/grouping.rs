//! Shell: dead letters by cause, each with a sample and what handling them would be worth.

use std::collections::BTreeMap;

use jiff::Timestamp;
use saga_core::dead_letter::DeadLetterOrigin;
use saga_core::decider::{Decider as _, FieldValue};
use saga_core::query::{Group, Query};
use saga_engine::store::{Store, StoreFault};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::filter::{Filter, Wanted};
use super::reading::{find_readable, grouped, readable};
use super::view::DeadLetterView;
use super::weighing;
use super::worth::WorthOfMany;

/// Dead letters of one cause.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct DeadLetterGroup {
    /// What they have in common.
    pub(crate) fingerprint: String,
    /// How many there are.
    pub(crate) count: u64,
    /// The service that parked them.
    pub(crate) service: String,
    /// The step that failed, or the kind of task.
    pub(crate) step: String,
    /// Whether they are messages, something that is none, or calls.
    pub(crate) origin: DeadLetterOrigin,
    /// Type of the messages, when it could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    message_type: Option<String>,
    /// Why the latest of them failed.
    pub(crate) reason: String,
    /// When the earliest of them failed last.
    #[schema(value_type = String, format = DateTime)]
    first_failed_at: Timestamp,
    /// When the latest of them failed last.
    #[schema(value_type = String, format = DateTime)]
    pub(crate) last_failed_at: Timestamp,
    /// Id of the latest of them, to look at.
    pub(crate) sample: Uuid,
    /// What handling them would be worth now.
    #[serde(flatten)]
    pub(crate) worth: WorthOfMany,
}

/// Dead letters by cause, largest group first.
pub(crate) async fn groups(
    store: &dyn Store,
    wanted: &Wanted,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<DeadLetterGroup>, StoreFault> {
    let mut found = grouped(store, "fingerprint", wanted, limit).await?;
    let worths = weighing::by_cause(store, wanted, now).await?;
    let ids = found.iter().map(|group| FieldValue::Text(group.latest.clone())).collect();
    let query = Query { one_of: vec![("id", ids)], limit: found.len(), ..Query::default() };
    let mut samples = BTreeMap::new();
    for row in store.find(DeadLetterView::KIND, query).await? {
        if let Ok((_, dead_letter)) = readable(&row) {
            samples.insert(row.id, dead_letter);
        }
    }
    for group in &mut found {
        if !samples.contains_key(&group.latest) {
            // The latest is damaged.
            let filter = Filter { fingerprint: Some(group.value.clone()), ..wanted.filter.clone() };
            let alike = Wanted { filter, ..wanted.clone() };
            let readable = find_readable(store, &alike, true, 1).await?;
            for (id, dead_letter) in readable {
                group.latest = id.to_string();
                samples.insert(group.latest.clone(), dead_letter);
            }
        }
    }
    let time = |micros| Timestamp::from_microsecond(micros).unwrap_or_default();
    let described = |group: Group| {
        let said = samples.get(&group.latest)?.said()?.clone();
        let worth = worths.get(&group.value).copied().unwrap_or_default();
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
            worth,
        })
    };
    Ok(found.into_iter().filter_map(described).collect())
}
