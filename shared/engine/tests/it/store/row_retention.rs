//! Purging of finished rows.

use std::sync::Arc;

use jiff::Timestamp;
use saga_core::decider::{Decider, RetentionPolicy, Sums};
use saga_core::decision::{EventWrite, OutboxWrite, Reads, RowWrite, Writes};
use saga_core::ids::{first_at, message_id};
use saga_core::row::{RowKey, RowKind};
use saga_core::waiting::{Retry, Task};
use saga_engine::host::archive::{Archive, Period, purge};
use saga_engine::store::roles::{Queries as _, Retention as _, Verification as _};
use saga_engine::store::sqlite::SqliteStore;
use saga_engine::store::{PurgedRows, RetentionCutoffs, StoreFault};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use uuid::Uuid;

use crate::support::{at, commit, dead, load, outbox_writes, retry, task, tasks};

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Trip of so many miles, which ends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trip {
    miles: i64,
    has_ended: bool,
}

pub type Driven = i64;

impl Decider for Trip {
    const KIND: &'static str = "trip";
    const RETENTION: RetentionPolicy = RetentionPolicy::PurgeRows;
    type Command = ();
    type Event = Driven;
    type Rejection = ();

    fn decide(&self, (): &()) -> Result<Vec<Driven>, ()> {
        Ok(vec![])
    }

    fn evolve(&mut self, driven: &Driven) {
        self.miles += driven;
        self.has_ended |= *driven == 0;
    }

    fn event_name(_: &Driven) -> &'static str {
        "Driven"
    }

    fn is_finished(&self) -> bool {
        self.has_ended
    }

    fn purged_sums(&self) -> Sums {
        vec![("miles".to_owned(), self.miles)]
    }
}

/// Id of a saga that began at this second.
pub fn saga(second: i64) -> Uuid {
    first_at(at(second)).map(|first| Uuid::from_u128(first.as_u128() | 7)).expect("after 1970")
}

pub fn trip(second: i64) -> RowKey {
    RowKey::of::<Trip>(saga(second))
}

/// Writes of a trip that began at the second `began`.
pub fn driven(began: i64, before: &[Driven], new: &[Driven]) -> Writes {
    let key = trip(began);
    let all = before.iter().chain(new).map(i64::to_string).collect::<Vec<_>>();
    let kind = RowKind::of::<Trip>();
    let projected = kind.fold(&key.id, None, all).expect("a fold");
    let read_version = i64::try_from(before.len()).expect("short");
    let versions = read_version + 1..;
    let event = |(version, driven): (i64, &Driven)| EventWrite {
        key: key.clone(),
        version,
        name: "Driven",
        data: driven.to_string(),
        causation_id: saga(began),
    };
    let events: Vec<_> = versions.zip(new).map(event).collect();
    let version = read_version + i64::try_from(new.len()).expect("short");
    let rows = vec![RowWrite { key: key.clone(), read_version, version, projected, searched_by: None }];
    Writes { rows, events, decided_at: at(began), ..Writes::default() }
}

struct Garage {
    folder: TempDir,
    store: Arc<SqliteStore>,
    archive: Archive,
}

impl Garage {
    /// Depot with trips that began at the seconds 1 to 9 and ended, except the fifth, and a recent trip.
    async fn new() -> Result<Self, Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let store = SqliteStore::open(
            &folder.path().join("garage.db"),
            vec![RowKind::of::<Trip>(), RowKind::of::<Receipt>()],
        )?;
        let archive = Archive::open(&folder.path().join("archive"), "garage", Period::Month)?;
        for second in 1..=9 {
            let last = if second == 5 { 1 } else { 0 };
            commit(&store, driven(second, &[], &[second, 10, last])).await?;
        }
        commit(&store, driven(500, &[], &[1, 0])).await?;
        Ok(Self { folder, store: Arc::new(store), archive })
    }

    /// Changes the file by a statement.
    fn execute(&self, sql: &str) {
        let conn = rusqlite::Connection::open(self.folder.path().join("garage.db")).expect("the file");
        assert!(conn.execute(sql, []).expect("the change") > 0, "{sql} changed nothing");
    }

    async fn purge_before(&self, second: i64) -> Outcome {
        Ok(purge(self.store.as_ref(), Some(&self.archive), before(second), 4).await?)
    }

    /// Seconds at which the stored trips began.
    async fn trips(&self) -> Result<Vec<i64>, StoreFault> {
        let mut there = Vec::new();
        for second in (1..=9).chain([500]) {
            if self.store.row(trip(second)).await?.is_some() {
                there.push(second);
            }
        }
        Ok(there)
    }

    async fn purged(&self) -> Result<PurgedRows, StoreFault> {
        self.store.purged_rows("trip").await
    }
}

fn before(second: i64) -> RetentionCutoffs {
    RetentionCutoffs { history: at(second), began: at(second), dead_letters: Timestamp::MIN }
}

#[tokio::test]
async fn finished_rows_are_purged_with_events_and_summed() -> Outcome {
    let garage = Garage::new().await?;
    assert_eq!(garage.purged().await?, PurgedRows::default());
    garage.purge_before(4).await?;
    assert_eq!(garage.trips().await?, [4, 5, 6, 7, 8, 9, 500]);
    let PurgedRows { before, sums } = garage.purged().await?;
    assert_eq!(sums, [("miles".to_owned(), 1 + 2 + 3 + 30)].into());
    assert!(before.is_some_and(|before| before > saga(3) && before < saga(4)), "{before:?}");
    assert_eq!(garage.store.events(trip(1), 0, 9).await?, []);

    garage.purge_before(100).await?;
    assert_eq!(garage.trips().await?, [5, 500], "the fifth goes on");
    assert_eq!(garage.purged().await?.sums, [("miles".to_owned(), 45 - 5 + 80)].into());
    let checked = garage.store.verify().await?;
    assert_eq!((checked.rows, checked.events, checked.differing), (2, 5, vec![]));
    Ok(())
}

/// The scan has passed the trip's first events. Its last event is scanned again when it is old.
#[tokio::test]
async fn row_finished_late_is_purged_late() -> Outcome {
    let garage = Garage::new().await?;
    garage.purge_before(100).await?;
    commit(garage.store.as_ref(), Writes { decided_at: at(510), ..driven(5, &[5, 10, 1], &[0]) }).await?;
    commit(garage.store.as_ref(), Writes { decided_at: at(900), ..driven(900, &[], &[1]) }).await?;
    garage.purge_before(505).await?;
    assert_eq!(garage.trips().await?, [5]);
    garage.purge_before(520).await?;
    assert_eq!(garage.trips().await?, [0; 0]);
    Ok(())
}

#[tokio::test]
async fn row_changed_before_purge_is_kept() -> Outcome {
    let garage = Garage::new().await?;
    let leaving = garage.store.find_purgeable(before(3), 100).await?;
    assert_eq!(leaving.rows.len(), 2);
    commit(garage.store.as_ref(), Writes { decided_at: at(600), ..driven(1, &[1, 10, 0], &[7]) }).await?;
    garage.archive.write(&leaving)?;
    assert_eq!(garage.store.purge(leaving).await?, 3);
    assert_eq!(garage.trips().await?, [1, 3, 4, 5, 6, 7, 8, 9, 500]);
    assert_eq!(garage.store.events(trip(1), 0, 9).await?.len(), 4);
    assert_eq!(garage.store.verify().await?.differing, [""; 0]);
    Ok(())
}

/// A dead letter or a task of the saga is open.
#[tokio::test]
async fn row_of_saga_with_open_work_is_not_purged() -> Outcome {
    let garage = Garage::new().await?;
    let mut letter = dead("driving", 3, at(1));
    letter.saga = Some(saga(3));
    let call = tasks([Task { correlation_id: saga(4), ..task(4, at(1)) }], "us", at(2));
    commit(garage.store.as_ref(), Writes { new_dead_letters: vec![letter], ..call }).await?;
    garage.purge_before(100).await?;
    assert_eq!(garage.trips().await?, [3, 4, 5, 500]);
    Ok(())
}

/// The scan of the log passes each event once, and these rows get no more events.
#[tokio::test]
async fn held_row_is_purged_once_nothing_of_its_saga_is_open() -> Outcome {
    let garage = Garage::new().await?;
    let mut letter = dead("driving", 3, at(1));
    letter.saga = Some(saga(3));
    let retried =
        Retry { message_id: message_id(saga(4), "depot", saga(4), 0), ..retry("driving", 4, at(1)) };
    let calls = tasks([Task { correlation_id: saga(6), ..task(6, at(1)) }], "us", at(2));
    let new_dead_letters = vec![letter.clone()];
    commit(garage.store.as_ref(), Writes { new_dead_letters, retries: vec![retried], ..calls }).await?;
    // Pending in sequence, and failed.
    let entries =
        [2, 1].map(|second| OutboxWrite { saga: saga(second), ..outbox_writes([1]).outbox.remove(0) });
    commit(garage.store.as_ref(), Writes { outbox: entries.to_vec(), ..Writes::default() }).await?;
    garage.execute("UPDATE outbox SET status = 'FAILED' WHERE seq = 2");
    for _ in 0..2 {
        garage.purge_before(100).await?;
        assert_eq!(garage.trips().await?, [1, 2, 3, 4, 5, 6, 500], "5 goes on");
    }
    garage.execute("UPDATE dead_letter SET status = 'RESOLVED'");
    garage.execute("DELETE FROM retry");
    garage.purge_before(100).await?;
    assert_eq!(garage.trips().await?, [1, 2, 5, 6, 500]);
    garage.execute("DELETE FROM task");
    garage.execute("DELETE FROM outbox");
    // One that has changed since then is left to the scan.
    commit(garage.store.as_ref(), Writes { decided_at: at(90), ..driven(1, &[1, 10, 0], &[7]) }).await?;
    garage.purge_before(80).await?;
    assert_eq!(garage.trips().await?, [1, 5, 500]);
    commit(garage.store.as_ref(), Writes { decided_at: at(900), ..driven(900, &[], &[1]) }).await?;
    garage.purge_before(600).await?;
    assert_eq!(garage.trips().await?, [5]);
    assert_eq!(garage.purged().await?.sums, [("miles".to_owned(), 45 - 5 + 80 + 7 + 1)].into());
    assert_eq!(garage.store.verify().await?.differing, [""; 0]);
    Ok(())
}

#[tokio::test]
async fn held_row_behind_many_others_is_purged() -> Outcome {
    let garage = Garage::new().await?;
    let call = tasks([Task { correlation_id: saga(4), ..task(4, at(1)) }], "us", at(2));
    commit(garage.store.as_ref(), call).await?;
    garage.purge_before(100).await?;
    garage.execute("DELETE FROM task");
    garage.execute(
        "WITH RECURSIVE id (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM id WHERE number < 1000)
         INSERT INTO held_row SELECT 'trip', printf('00000000-0000-0000-0000-%012d', number) FROM id",
    );
    garage.purge_before(100).await?;
    assert_eq!(garage.trips().await?, [5, 500]);
    Ok(())
}

/// Receipt of a trip, under the id of its saga. Not each trip has one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Receipt(bool);

impl Decider for Receipt {
    const KIND: &'static str = "receipt";
    const RETENTION: RetentionPolicy = RetentionPolicy::PurgeRowsLast;
    type Command = ();
    type Event = Driven;
    type Rejection = ();

    fn decide(&self, (): &()) -> Result<Vec<Driven>, ()> {
        Ok(vec![])
    }

    fn evolve(&mut self, _: &Driven) {
        self.0 = true;
    }

    fn event_name(_: &Driven) -> &'static str {
        "Driven"
    }

    fn is_finished(&self) -> bool {
        self.0
    }
}

#[tokio::test]
async fn row_of_the_last_kind_is_purged_after_the_other_row_of_its_saga() -> Outcome {
    let garage = Garage::new().await?;
    let receipt = |second: i64| RowKey { kind: "receipt", ..trip(second) };
    for second in [2, 5] {
        let mut writes = driven(second, &[], &[0]);
        writes.events[0].key = receipt(second);
        writes.rows[0].key = receipt(second);
        writes.rows[0].projected = RowKind::of::<Receipt>().fold(&receipt(second).id, None, ["0"])?;
        commit(garage.store.as_ref(), writes).await?;
    }
    commit(garage.store.as_ref(), Writes { decided_at: at(900), ..driven(900, &[], &[1]) }).await?;
    garage.purge_before(600).await?;
    assert_eq!(garage.trips().await?, [5]);
    assert!(garage.store.row(receipt(2)).await?.is_none());
    assert!(garage.store.row(receipt(5)).await?.is_some(), "its trip goes on");
    Ok(())
}

#[tokio::test]
async fn rows_restored_from_archive_leave_purged_sums() -> Outcome {
    let garage = Garage::new().await?;
    let whole = garage.store.verify().await?;
    garage.purge_before(100).await?;
    let left = garage.purged().await?;
    // Twice, as after a crash between the two.
    for _ in 0..2 {
        garage.archive.restore(garage.store.as_ref(), "trip").await?;
    }
    assert_eq!(garage.purged().await?, left, "until they are folded");
    garage.store.rebuild("trip").await?;
    let back = garage.store.verify().await?;
    assert_eq!((back.differing, back.digest, back.events), (vec![], whole.digest, whole.events));
    assert_eq!(garage.purged().await?.sums, [("miles".to_owned(), 0)].into());
    garage.store.rebuild("trip").await?;
    assert_eq!(garage.purged().await?.sums, [("miles".to_owned(), 0)].into());
    // They leave again once all that was there is old, too.
    commit(garage.store.as_ref(), driven(900, &[], &[1])).await?;
    garage.purge_before(800).await?;
    assert_eq!(garage.purged().await?.sums, [("miles".to_owned(), 120 + 1)].into());
    assert!(garage.folder.path().join("archive").is_dir());
    Ok(())
}

/// A late message must not start a purged saga again.
#[tokio::test]
async fn load_reports_lowest_saga_id_never_purged() -> Outcome {
    let garage = Garage::new().await?;
    let known =
        async || Ok::<_, StoreFault>(load(garage.store.as_ref(), Reads::default()).await?.purged_before);
    assert_eq!(known().await?, None);
    garage.purge_before(4).await?;
    assert_eq!(known().await?, garage.purged().await?.before);
    let first = known().await?;
    garage.purge_before(100).await?;
    assert!(known().await? > first, "it only rises");
    Ok(())
}

#[tokio::test]
async fn finished_row_with_gap_in_history_is_not_purged() -> Outcome {
    let garage = Garage::new().await?;
    let path = garage.folder.path().join("garage.db");
    rusqlite::Connection::open(path)?
        .execute("DELETE FROM event WHERE row_id = ?1 AND version = 2", [trip(2).id])?;
    garage.purge_before(100).await?;
    assert_eq!(garage.trips().await?, [2, 5, 500]);
    assert_eq!(garage.store.verify().await?.differing, [format!("trip/{}", saga(2))]);
    Ok(())
}
