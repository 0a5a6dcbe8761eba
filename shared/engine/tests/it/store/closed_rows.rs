//! Purging of closed rows, and of held rows, on both databases.

use jiff::Timestamp;
use saga_core::decider::{ClosedRows, Decider, FieldValue, RetentionPolicy};
use saga_core::decision::{EventWrite, RowWrite, Writes};
use saga_core::row::{RowKey, RowKind};
use saga_engine::host::archive::purge;
use saga_engine::store::sqlite::SqliteStore;
use saga_engine::store::{RetentionCutoffs, Store};
use serde::{Deserialize, Serialize};

use super::row_retention::{Trip, driven, saga, trip};
use crate::support::{PostgresServer, at, commit, dead, id, open_postgres};

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Complaint of a passenger, until it is closed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Complaint {
    is_closed: bool,
    since: i64,
}

impl Decider for Complaint {
    const KIND: &'static str = "complaint";
    const FIELDS: &'static [&'static str] = &["status", "since"];
    const NUMBERS: &'static [&'static str] = &["since"];
    const RETENTION: RetentionPolicy = RetentionPolicy::PurgeClosedRows(ClosedRows {
        status: "status",
        closed: &["CLOSED", "WITHDRAWN"],
        since: "since",
    });
    type Command = ();
    type Event = Self;
    type Rejection = ();

    fn decide(&self, (): &()) -> Result<Vec<Self>, ()> {
        Ok(vec![])
    }

    fn evolve(&mut self, event: &Self) {
        self.clone_from(event);
    }

    fn event_name(_: &Self) -> &'static str {
        "Changed"
    }

    fn fields(&self, _: &str) -> Vec<FieldValue> {
        vec![(if self.is_closed { "CLOSED" } else { "OPEN" }).into(), self.since.into()]
    }
}

fn rows() -> Vec<RowKind> {
    vec![RowKind::of::<Trip>(), RowKind::of::<Complaint>()]
}

/// Complaint under this id, whose second event is at the second `changed`.
fn complaint(name: &str, since: i64, is_closed: bool, changed: i64) -> Writes {
    let key = RowKey { kind: Complaint::KIND, id: name.to_owned() };
    let state = Complaint { is_closed, since: at(since).as_microsecond() };
    let data = serde_json::to_string(&state).expect("JSON");
    let event = |version| EventWrite {
        key: key.clone(),
        version,
        name: "Changed",
        data: data.clone(),
        causation_id: id(1),
    };
    let projected = RowKind::of::<Complaint>().fold(name, None, [&data, &data]).expect("a fold");
    let rows = vec![RowWrite { key: key.clone(), read_version: 0, version: 2, projected, searched_by: None }];
    Writes { rows, events: vec![event(1), event(2)], decided_at: at(changed), ..Writes::default() }
}

async fn closed_rows_are_purged_by_age_and_held_rows_later(store: &dyn Store) -> Outcome {
    let mut letter = dead("driving", 3, at(1));
    letter.saga = Some(saga(3));
    commit(store, Writes { new_dead_letters: vec![letter], ..driven(3, &[], &[3, 0]) }).await?;
    commit(store, driven(4, &[], &[4, 0])).await?;
    let names = ["open", "closed", "noted", "young"];
    for (name, since, is_closed, changed) in
        [("open", 1, false, 1), ("closed", 2, true, 9), ("noted", 3, true, 60), ("young", 60, true, 60)]
    {
        commit(store, complaint(name, since, is_closed, changed)).await?;
    }
    commit(store, complaint("last", 2, true, 9)).await?;
    let there = async || {
        let mut there = Vec::new();
        for name in names.into_iter().chain(["last"]) {
            let key = RowKey { kind: Complaint::KIND, id: name.to_owned() };
            there.extend(store.row(key).await.expect("the store works").map(|_| name));
        }
        there
    };

    // History is kept, dead letters are not.
    let cutoffs = RetentionCutoffs { history: Timestamp::MIN, began: Timestamp::MIN, dead_letters: at(50) };
    purge(store, None, cutoffs, 2).await?;
    assert_eq!(there().await, ["open", "noted", "young", "last"], "the last event of all is kept");
    assert_eq!(store.purged_rows("trip").await?.before, None, "no saga was purged");
    assert_eq!(store.verify().await?.differing, [""; 0]);

    let cutoffs = RetentionCutoffs { history: at(50), began: at(50), ..cutoffs };
    let trips = async || {
        let mut there = Vec::new();
        for second in [3, 4] {
            there.extend(store.row(trip(second)).await.expect("the store works").map(|_| second));
        }
        there
    };
    commit(store, driven(900, &[], &[1])).await?;
    for _ in 0..2 {
        purge(store, None, cutoffs, 2).await?;
        assert_eq!(trips().await, [3], "its dead letter is open");
    }
    assert_eq!(there().await, ["open", "noted", "young"]);
    let mut resolved = store.dead_letters(1).await?.readable.remove(0);
    (resolved.status, resolved.revision) = (saga_core::dead_letter::DeadLetterStatus::Resolved, 1);
    commit(store, Writes { changed_dead_letters: vec![resolved], ..Writes::default() }).await?;
    purge(store, None, cutoffs, 2).await?;
    assert_eq!(trips().await, [0; 0]);
    assert_eq!(store.purged_rows("trip").await?.sums, [("miles".to_owned(), 7)].into());
    assert_eq!(store.verify().await?.differing, [""; 0]);
    Ok(())
}

#[tokio::test]
async fn sqlite_purges_closed_rows_by_age_and_held_rows_later() -> Outcome {
    closed_rows_are_purged_by_age_and_held_rows_later(&SqliteStore::in_memory(rows())?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_purges_closed_rows_by_age_and_held_rows_later() -> Outcome {
    let server = PostgresServer::any();
    let store = open_postgres(&server.database().await, rows()).await?;
    closed_rows_are_purged_by_age_and_held_rows_later(&store).await
}
