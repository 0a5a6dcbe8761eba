//! Databases that answer reads and take no writes.

use std::time::{Duration, Instant};

use futures::future::join_all;
use rusqlite::Connection;
use saga_core::service::Service as _;
use saga_engine::store::StoreFault;
use saga_engine::store::roles::Monitoring as _;

use super::DepotFile;
use crate::support::{Depot, PostgresServer, commit, open_postgres, put, recorded, wait_until};

type Outcome = Result<(), StoreFault>;

/// Regression: a request waited for the lock once per batch, and readiness saw nothing.
#[tokio::test(flavor = "multi_thread")]
async fn lock_of_another_process_fails_all_waiting_writes_and_is_a_problem() -> Outcome {
    let (file, store) = DepotFile::new()?;
    commit(&store, recorded("tea", &[], &[put(1)])).await?;
    assert_eq!(store.write_problem(), None);
    let other = Connection::open(file.path()).expect("the file");
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let began = Instant::now();
    let shelves: Vec<_> = (0..30).map(|number| format!("shelf {number}")).collect();
    let writes = shelves.iter().map(|shelf| commit(&store, recorded(shelf, &[], &[put(1)])));
    for written in join_all(writes).await {
        assert!(matches!(written, Err(StoreFault::Database { .. })), "{written:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(30), "each write waited for the lock");
    store.stats().await?;
    let problem = store.write_problem().expect("it takes no writes");
    assert!(problem.contains("database is locked"), "{problem}");
    store.probe_write().await.expect_err("still locked");

    other.execute_batch("ROLLBACK").expect("the end");
    store.probe_write().await?;
    assert_eq!(store.write_problem(), None);
    commit(&store, recorded("cup", &[], &[put(1)])).await
}

/// The lock is the first thing that happens after the start: only a probe notices it.
#[tokio::test(flavor = "multi_thread")]
async fn probe_notices_what_no_other_write_does() -> Outcome {
    let (file, store) = DepotFile::new()?;
    file.execute("INSERT INTO lease (name, owner, fence, until) VALUES ('other', 'depot-1', 1, 9)");
    let broken = Connection::open(file.path()).expect("the file");
    broken
        .execute_batch("CREATE TRIGGER broken BEFORE INSERT ON lease BEGIN SELECT RAISE(ABORT, 'the disk is broken'); END")
        .expect("a trigger");
    store.probe_write().await.expect_err("it is broken");
    let problem = store.write_problem().expect("it takes no writes");
    assert!(problem.contains("probing") && problem.contains("the disk is broken"), "{problem}");
    broken.execute_batch("DROP TRIGGER broken").expect("repaired");
    store.probe_write().await?;
    assert_eq!(store.write_problem(), None);
    let left: i64 = broken.query_row("SELECT count(*) FROM lease", [], |row| row.get(0)).expect("a count");
    assert_eq!(left, 1, "probes leave nothing");
    Ok(())
}

/// Reads go on, so that nothing but a write notices it.
#[tokio::test(flavor = "multi_thread")]
async fn read_only_server_is_a_problem_until_it_takes_writes_again() -> Outcome {
    let server = PostgresServer::started(&[]);
    let store = open_postgres(&server.database().await, Depot::rows()).await?;
    store.probe_write().await?;
    let read_only = async |value: &str| {
        server
            .execute("postgres", &format!("ALTER SYSTEM SET default_transaction_read_only = {value}"))
            .await;
        server.execute("postgres", "SELECT pg_reload_conf()").await;
    };
    read_only("on").await;
    wait_until("a write fails", async || commit(&store, recorded("tea", &[], &[put(1)])).await.is_err())
        .await;
    assert!(store.write_problem().is_some());
    store.probe_write().await.expect_err("it is read-only");
    read_only("off").await;
    wait_until("it takes writes again", async || store.probe_write().await.is_ok()).await;
    assert_eq!(store.write_problem(), None);
    Ok(())
}
