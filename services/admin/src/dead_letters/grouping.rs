//! Shell: groups of dead letters by cause, each with a sample and its replay value.

use std::collections::BTreeMap;

use admin_api::dead_letters::{DeadLetterGroup, Filter};
use jiff::Timestamp;
use saga_core::decider::{Decider as _, FieldValue};
use saga_core::query::{Group, Query};
use saga_engine::store::StoreFault;
use saga_engine::store::roles::Queries;

use super::filter::Selection;
use super::reading::{find_readable, grouped, readable};
use super::replay_values;
use super::view::DeadLetterView;

/// Returns groups by cause, largest first.
pub(crate) async fn groups(
    store: &dyn Queries,
    wanted: &Selection,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<DeadLetterGroup>, StoreFault> {
    let mut found = grouped(store, "fingerprint", wanted, limit).await?;
    let values = replay_values::by_cause(store, wanted, now).await?;
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
            // The latest is damaged: look for another sample.
            let filter = Filter { fingerprint: Some(group.value.clone()), ..wanted.filter.clone() };
            let alike = Selection { filter, ..wanted.clone() };
            let readable = find_readable(store, &alike, true, 1).await?;
            for (id, dead_letter) in readable {
                group.latest = id.to_string();
                samples.insert(group.latest.clone(), dead_letter);
            }
        }
    }
    let time = |micros| Timestamp::from_microsecond(micros).unwrap_or_default();
    let described = |group: Group| {
        let report = samples.get(&group.latest)?.report()?.clone();
        let replay_values = values.get(&group.value).copied().unwrap_or_default();
        Some(DeadLetterGroup {
            fingerprint: group.value,
            count: group.count,
            service: report.service,
            step: report.step,
            origin: report.origin,
            message_type: report.message_type,
            reason: report.reason,
            first_failed_at: time(group.first),
            last_failed_at: time(group.last),
            sample: group.latest.parse().ok()?,
            replay_values,
        })
    };
    Ok(found.into_iter().filter_map(described).collect())
}
