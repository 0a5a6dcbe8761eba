//! Databases that go back in time while a store uses them.

use std::time::Duration;

use rusqlite::Connection;
use rusqlite::backup::Backup;
use saga_core::decision::Writes;
use saga_core::service::Service as _;
use saga_engine::store::postgres::PostgresStore;
use saga_engine::store::roles::{History as _, Monitoring as _, Overrides as _};
use saga_engine::store::sqlite::SqliteStore;
use saga_engine::store::{DatabasePosition, PublishOutcome, RELAY_LEASE, Store, StoreFault, TrimCutoffs};

use super::DepotFile;
use crate::support::{
    Depot, PostgresServer, at, commit, execute, id, open_postgres, outbox_writes, put, recorded, shelf,
    wait_until,
};

type Outcome = Result<(), StoreFault>;

/// A batch is the first to find the loss: it is not stored.
#[tokio::test(flavor = "multi_thread")]
async fn batch_on_restored_database_is_not_stored() -> Outcome {
    let (_server, store) = restored_postgres(Change::Event).await?;
    assert_lost(commit(&store, recorded("cup", &[], &[put(1)])).await);
    assert_unusable(&store).await;
    let (file, store) = restored_sqlite(Change::Event).await?;
    assert_lost(commit(&store, recorded("cup", &[], &[put(1)])).await);
    assert_unusable(&store).await;
    drop(store);
    let conn = Connection::open(file.path()).expect("the file");
    let events: i64 = conn.query_row("SELECT count(*) FROM event", [], |row| row.get(0)).expect("a count");
    assert_eq!(events, 1, "as it was restored");
    Ok(())
}

/// As in a service that only consumes: it has no event, and publishes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn lost_inbox_marks_are_a_loss() -> Outcome {
    let (_server, store) = restored_postgres(Change::InboxMark).await?;
    assert_lost(commit(&store, outbox_writes([7])).await);
    let (_file, store) = restored_sqlite(Change::InboxMark).await?;
    assert_lost(commit(&store, outbox_writes([7])).await);
    Ok(())
}

/// The relay, upkeep and operators write as well.
#[tokio::test(flavor = "multi_thread")]
async fn every_write_on_restored_database_fails() -> Outcome {
    for write in [Write::Lease, Write::Settlement, Write::Trim, Write::Overrides] {
        let (_server, store) = restored_postgres(Change::Event).await?;
        assert_lost(write.on(&store).await);
        let (_file, store) = restored_sqlite(Change::Event).await?;
        assert_lost(write.on(&store).await);
    }
    Ok(())
}

/// Readiness asks twice a second, and finds the loss where nothing is written.
#[tokio::test(flavor = "multi_thread")]
async fn statistics_of_restored_database_fail() -> Outcome {
    for change in [Change::Event, Change::InboxMark] {
        let (_server, store) = restored_postgres(change).await?;
        assert_lost(store.stats().await);
        assert_unusable(&store).await;
        let (_file, store) = restored_sqlite(change).await?;
        assert_lost(store.stats().await);
        assert_unusable(&store).await;
    }
    Ok(())
}

/// The position beside the file is evidence at the next start, however often the store wrote meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn restored_file_is_rejected_at_next_start() -> Outcome {
    let (file, store) = restored_sqlite(Change::Event).await?;
    // Longer than the interval between two positions.
    let until = std::time::Instant::now() + Duration::from_millis(1_500);
    wait_until("the position is due", async || {
        let _ = commit(&store, recorded("cup", &[], &[put(1)])).await;
        std::time::Instant::now() > until
    })
    .await;
    drop(store);
    let fault = file.open().err().expect("it is older").to_string();
    assert!(fault.contains("it had come to event 2") && fault.contains("accept_loss="), "{fault}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn database_below_recorded_position_is_lost() -> Outcome {
    let (file, store) = DepotFile::new()?;
    commit(&store, recorded("tea", &[], &[put(1)])).await?;
    let position = store.position().await?;
    store.check_position(position.clone()).await?;
    let recorded_elsewhere = DatabasePosition { events: position.events + 1, ..position };
    assert_lost(store.check_position(recorded_elsewhere).await);
    assert_unusable(&store).await;
    drop(file);
    Ok(())
}

#[derive(Debug, Clone, Copy)]
enum Change {
    Event,
    InboxMark,
}

impl Change {
    fn writes(self) -> Writes {
        match self {
            Self::Event => recorded("tea", &[put(1)], &[put(1)]),
            Self::InboxMark => Writes { inbox: vec![("filling", id(7))], ..outbox_writes([]) },
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Write {
    Lease,
    Settlement,
    Trim,
    Overrides,
}

impl Write {
    async fn on(self, store: &dyn Store) -> Outcome {
        let lease = saga_engine::store::Lease { owner: "depot-1".to_owned(), fence: 1 };
        match self {
            Self::Lease => store.acquire_lease(RELAY_LEASE, None, "depot-1", at(1), at(9)).await.map(drop),
            Self::Settlement => {
                let outcome = PublishOutcome { done: vec![1], ..PublishOutcome::default() };
                store.settle(&lease, outcome, at(1)).await.map(drop)
            }
            Self::Trim => {
                let cutoffs = TrimCutoffs { inbox: at(1), keys: at(1), published: at(1) };
                store.trim(cutoffs, 9).await.map(drop)
            }
            Self::Overrides => store.replace_overrides(0, "{}".to_owned()).await.map(drop),
        }
    }
}

#[track_caller]
fn assert_lost<T>(answer: Result<T, StoreFault>) {
    match answer {
        Err(StoreFault::DataLost(lost)) => assert!(lost.contains("it has lost data"), "{lost}"),
        Err(other) => panic!("another fault: {other}"),
        Ok(_) => panic!("it was done"),
    }
}

async fn assert_unusable(store: &dyn Store) {
    assert_lost(store.row(shelf("tea")).await);
    assert_lost(store.position().await);
    assert_lost(store.pending_entries(9).await);
    assert_lost(commit(store, outbox_writes([8])).await);
}

/// Live store, and the copy of its file from before `change` was restored into the file.
async fn restored_sqlite(change: Change) -> Result<(DepotFile, SqliteStore), StoreFault> {
    let (file, store) = DepotFile::new()?;
    commit(&store, recorded("tea", &[], &[put(1)])).await?;
    let copy = file.path().with_extension("copy");
    let restore = |from: &std::path::Path, to: &std::path::Path| {
        let (from, mut to) = (Connection::open(from).expect("a file"), Connection::open(to).expect("a file"));
        to.busy_timeout(Duration::from_secs(9)).expect("patience");
        let backup = Backup::new(&from, &mut to).expect("a backup");
        backup.run_to_completion(1_000, Duration::from_millis(5), None).expect("all pages");
    };
    restore(&file.path(), &copy);
    commit(&store, change.writes()).await?;
    restore(&copy, &file.path());
    Ok((file, store))
}

/// Live store, and the copy of its database from before `change` put in its place.
async fn restored_postgres(change: Change) -> Result<(PostgresServer, PostgresStore), StoreFault> {
    let server = PostgresServer::any();
    let url = server.database().await;
    let name = url.rsplit('/').next().expect("a name").to_owned();
    let first = open_postgres(&url, Depot::rows()).await?;
    commit(&first, recorded("tea", &[], &[put(1)])).await?;
    drop(first);
    let close = format!(
        "UPDATE pg_database SET datallowconn = false WHERE datname = '{name}';
         SELECT pg_terminate_backend(pid, 9000) FROM pg_stat_activity WHERE datname = '{name}'"
    );
    let admin = server.url_of("postgres");
    execute(&admin, &close).await;
    execute(&admin, &format!("CREATE DATABASE {name}_copy TEMPLATE {name}")).await;
    let open = format!("UPDATE pg_database SET datallowconn = true WHERE datname LIKE '{name}%'");
    execute(&admin, &open).await;
    let store = open_postgres(&url, Depot::rows()).await?;
    commit(&store, change.writes()).await?;
    execute(&admin, &close).await;
    execute(&admin, &format!("ALTER DATABASE {name} RENAME TO {name}_newer")).await;
    execute(&admin, &format!("ALTER DATABASE {name}_copy RENAME TO {name}")).await;
    execute(&admin, &open).await;
    // Without a comparison.
    wait_until("it is connected again", async || store.overrides().await.is_ok()).await;
    Ok((server, store))
}
