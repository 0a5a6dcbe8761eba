//! Shell: search in the audit log. What the store cannot compare is compared here, up to a number of rows per request.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use admin_api::audit_log::Entry;
use saga_core::decider::FieldValue;
use saga_core::query::{FoundRow, Order, Query};
use saga_engine::store::StoreFault;

use super::paging::cut;
use crate::audit_log::AuditEntry;
use crate::rows;

/// Bounds of what one request reads.
pub(super) struct Bounds {
    /// Rows of each read after the first.
    pub(super) page: usize,
    /// Rows of all reads. The answer then has what was found so far, and a cursor.
    pub(super) rows: usize,
}

pub(super) const BOUNDS: Bounds = Bounds { page: 1_000, rows: 50_000 };

/// Part of the audit log that was searched.
pub(super) struct Found {
    /// Wanted rows, newest first.
    pub(super) rows: Vec<FoundRow>,
    /// Id of the row after which the search goes on; `None` at the end of the log.
    pub(super) next: Option<String>,
    /// Number of rows that were read.
    pub(super) read: usize,
}

/// Time and id of a row, by which the log is sorted.
type Position = (i64, String);

/// Time of a row. A damaged one counts as the newest: the store puts it on no page but the first.
fn time_of(row: &FoundRow) -> i64 {
    match row.ordered_by {
        FieldValue::Integer(at) => at,
        FieldValue::Text(_) | FieldValue::Null => i64::MAX,
    }
}

/// Order of the log, from a row on.
pub(super) fn newest_after(row: Option<&FoundRow>) -> Order {
    Order { field: "at", after: row.map(time_of) }
}

/// Finds the newest wanted rows of several queries, which may find the same ones. Damaged rows count as wanted.
///
/// # Errors
/// Returns the error of `find`.
pub(super) async fn search<F: Future<Output = Result<Vec<FoundRow>, StoreFault>> + Send>(
    find: impl Fn(Query) -> F + Sync,
    queries: Vec<Query>,
    is_wanted: impl Fn(&Entry) -> bool + Sync,
    limit: usize,
    bounds: Bounds,
) -> Result<Found, StoreFault> {
    let is_wanted = |row: &FoundRow| match rows::parsed(row) {
        Ok(AuditEntry(entry)) => entry.is_some_and(|entry| is_wanted(&entry)),
        Err(_) => true,
    };
    let share = bounds.rows / queries.len().max(1);
    let (mut found, mut end, mut read) = (BTreeMap::new(), None::<Position>, 0);
    for mut query in queries {
        (query.limit, query.descending) = (limit + 1, true);
        let (mut wanted, mut read_here) = (0, 0);
        loop {
            let page = find(query.clone()).await?;
            let is_last = page.len() < query.limit;
            read_here += page.len();
            let timed = page.iter().rev().find(|row| matches!(row.ordered_by, FieldValue::Integer(_)));
            let is_first = query.order.is_none_or(|order| order.after.is_none());
            let last = timed.or(page.last().filter(|_| is_first)).map(|row| (time_of(row), row.id.clone()));
            for row in page.into_iter().filter(is_wanted) {
                wanted += 1;
                found.insert(Reverse((time_of(&row), row.id.clone())), row);
            }
            let Some((at, id)) = last.filter(|_| !is_last && wanted <= limit) else { break };
            if read_here >= share {
                // Older rows of the other queries have to wait for those of this one.
                end = end.max(Some((at, id)));
                break;
            }
            query.after = Some(id);
            query.order = Some(Order { field: "at", after: Some(at) });
            query.limit = bounds.page.min(share - read_here);
        }
        read += read_here;
    }
    let is_searched = |position: &Position| end.as_ref().is_none_or(|end| position >= end);
    let found = found.into_iter().filter(|(Reverse(position), _)| is_searched(position));
    let (rows, next) = cut(found.map(|(_, row)| row).collect(), limit, |row| row.id.clone());
    Ok(Found { rows, next: next.or(end.map(|(_, id)| id)), read })
}

#[cfg(test)]
mod tests {
    use admin_api::actor::Actor;
    use admin_api::audit_log::{Action, DONE};
    use jiff::Timestamp;
    use saga_core::decider::Decider as _;
    use saga_core::decision::{Reads, RowWrite, Writes};
    use saga_core::row::{RowKey, RowKind};
    use saga_core::service::Service as _;
    use saga_engine::store::Store;
    use saga_engine::store::sqlite::SqliteStore;
    use uuid::Uuid;

    use super::*;
    use crate::audit_log::AuditEvent;
    use crate::service::AdminService;

    const ENTRIES: usize = 3_500;

    fn id(number: usize) -> String {
        Uuid::from_u128(number as u128).to_string()
    }

    /// A log in which every tenth entry is by eve, and all name her in their reason. The times of some are damaged.
    async fn log(damaged: &[usize]) -> Box<dyn Store> {
        let store: Box<dyn Store> =
            Box::new(SqliteStore::in_memory(AdminService::rows()).expect("a database in memory"));
        let row = |number: usize| {
            let operator = if number.is_multiple_of(10) { "eve" } else { "ada" }.to_owned();
            let entry = Entry {
                at: Timestamp::from_second(number.try_into().expect("a time")).expect("a time"),
                by: Actor { operator, reason: Some("asked by eve".to_owned()) },
                action: Action::Note,
                target: "a test".to_owned(),
                detail: None,
                outcome: DONE.to_owned(),
            };
            let event = serde_json::to_string(&AuditEvent::Written(entry)).expect("JSON");
            let mut projected =
                RowKind::of::<AuditEntry>().fold(&id(number), None, [event]).expect("an entry");
            if damaged.contains(&number) {
                projected.fields[3] = "damaged".into();
            }
            let key = RowKey::of::<AuditEntry>(id(number));
            RowWrite { key, read_version: 0, version: 1, projected, searched_by: None }
        };
        let writes = Writes { rows: (0..ENTRIES).map(row).collect(), ..Writes::default() };
        store.transact(Reads::default(), Box::new(move |_| writes.clone())).await.expect("a commit");
        store
    }

    /// Finds entries of eve by a text that all have.
    async fn by_eve(store: &dyn Store, after: Option<Position>, limit: usize, rows: usize) -> Found {
        let order = Some(Order { field: "at", after: after.as_ref().map(|(at, _)| *at) });
        let texts = vec!["eve".to_owned()];
        let query = Query { texts, order, after: after.map(|(_, id)| id), ..Query::default() };
        let find = |query| store.find(AuditEntry::KIND, query);
        let is_wanted = |entry: &Entry| entry.by.operator == "eve";
        search(find, vec![query], is_wanted, limit, Bounds { page: 1_000, rows })
            .await
            .expect("the store works")
    }

    fn ids(found: &Found) -> Vec<&str> {
        found.rows.iter().map(|row| row.id.as_str()).collect()
    }

    #[tokio::test]
    async fn rows_read_are_bounded_and_the_search_goes_on_after_them() {
        let store = log(&[]).await;
        let found = by_eve(store.as_ref(), None, 2, 1_000).await;
        assert_eq!(ids(&found), [id(3_490), id(3_480)]);
        assert_eq!(found.next, Some(id(3_480)));
        assert!(found.read <= 1_003, "{}", found.read);

        let (mut all, mut after, mut requests) = (vec![], None, 0);
        loop {
            let found = by_eve(store.as_ref(), after, 200, 1_000).await;
            assert!(found.read <= 1_000, "{}", found.read);
            requests += 1;
            all.extend(ids(&found).into_iter().map(str::to_owned));
            let Some(next) = found.next else { break };
            let number = next.parse::<Uuid>().expect("an id").as_u128();
            after = Some((i64::try_from(number).expect("a time") * 1_000_000, next));
        }
        assert_eq!(
            (requests, all),
            (4, (0..ENTRIES).rev().step_by(10).map(|number| id(number - 9)).collect())
        );
    }

    #[tokio::test]
    async fn damaged_time_does_not_end_the_search() {
        let store = log(&[1, 2, 3]).await;
        let found = by_eve(store.as_ref(), None, 2, 10_000).await;
        assert_eq!(ids(&found), [id(3_490), id(3_480)]);
    }
}
