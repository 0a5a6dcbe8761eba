//! PostgreSQL behind pgbouncer: session pooling works, and the other modes are rejected.

use std::sync::Arc;
use std::time::Duration;

use saga_core::service::Service as _;
use saga_engine::store::roles::{Queries as _, Replicas as _, Verification as _};
use saga_engine::store::{OpenOptions, ReplicaSignal, StoreFault};
use tokio_postgres::{Client, NoTls};

use super::postgres_connections::query;
use crate::support::{
    Depot, Pgbouncer, PostgresServer, commit, execute, in_time, open_postgres, open_postgres_as, put,
    recorded, shelf, wait_until,
};

type Outcome = Result<(), StoreFault>;

const SERVER_CONNECTIONS: &str = "SELECT count(*)::text FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid()";

#[tokio::test(flavor = "multi_thread")]
async fn transaction_and_statement_pooling_is_rejected_and_leaves_nothing_behind() -> Outcome {
    let server = PostgresServer::any();
    let url = server.database().await;
    let cases = ["transaction", "statement"].into_iter().flat_map(|mode| {
        [1, 2, 5].into_iter().flat_map(move |size| [0, 1].map(|round_robin| (mode, size, round_robin)))
    });
    for (mode, size, round_robin) in cases {
        let case = format!("{mode}, {size}, round robin {round_robin}");
        let more = format!("server_round_robin = {round_robin}\nmin_pool_size = {size}");
        let pgbouncer = Pgbouncer::start(&url, mode, size, &more).await;
        let client = connect(pgbouncer.url()).await;
        in_time("an answer", client.simple_query("SELECT 1")).await.expect("an answer");
        let is_filled = async || query(&url, SERVER_CONNECTIONS).await == size.to_string();
        wait_until("the pool is filled", is_filled).await;
        let opened = in_time("an answer", open_postgres(pgbouncer.url(), Depot::rows())).await;
        let Err(StoreFault::Unusable(reason)) = opened else { panic!("{case}: it was opened") };
        assert!(reason.contains("pool_mode = session"), "{case}: {reason}");
        let untouched = "DO $$ BEGIN
             ASSERT NOT EXISTS (SELECT FROM pg_class WHERE relname = 'event'), 'a table was made';
             ASSERT current_setting('client_min_messages') <> 'warning', 'a setting leaked';
             ASSERT current_setting('jit') = 'on', 'a setting leaked';
         END $$";
        for _ in 0..size {
            in_time("an answer", execute(pgbouncer.url(), untouched)).await;
        }
        drop(pgbouncer);
        wait_until("the pool is gone", async || query(&url, SERVER_CONNECTIONS).await == "0").await;
    }
    Ok(())
}

/// Names, notifications and settings of sessions, with two replicas.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_work_behind_session_pooling() -> Outcome {
    let server = PostgresServer::any();
    let url = server.database().await;
    let pgbouncer = Pgbouncer::start(&url, "session", 20, "").await;
    let open = async |instance| {
        let options = OpenOptions { instance, max_connections: 5, ..OpenOptions::default() };
        open_postgres_as(pgbouncer.url(), Depot::rows(), &options).await
    };
    let (first, second) = (Arc::new(open("depot-1").await?), open("depot-2").await?);
    let taken = open("depot-1").await.err().map(|fault| fault.to_string()).unwrap_or_default();
    assert!(taken.contains("depot-1"), "{taken}");

    let (mut signals, mut count) = (second.signals().expect("they may share it"), 0);
    let is_signalled = async || {
        // The first may not know yet that there is another.
        let before = vec![put(1); count];
        count += 1;
        commit(first.as_ref(), recorded("tea", &before, &[put(1)])).await.expect("a commit");
        std::iter::from_fn(|| signals.try_recv().ok()).any(|it| matches!(it, ReplicaSignal::RowsChanged(_)))
    };
    wait_until("the other replica is notified", is_signalled).await;
    assert!(second.row(shelf("tea")).await?.is_some());
    in_time("it is verified", first.verify()).await?;

    // Names are free again once their sessions have ended.
    drop(first);
    wait_until("the name is free", async || open("depot-1").await.is_ok()).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn session_pool_without_a_second_connection_is_named() -> Outcome {
    let server = PostgresServer::any();
    let url = server.database().await;
    let pgbouncer = Pgbouncer::start(&url, "session", 1, "").await;
    let options = OpenOptions { wait: Duration::ZERO, ..OpenOptions::default() };
    let opened = in_time("an answer", open_postgres_as(pgbouncer.url(), Depot::rows(), &options)).await;
    let Err(StoreFault::Unusable(reason)) = opened else { panic!("it was opened") };
    assert!(reason.contains("default_pool_size"), "{reason}");
    Ok(())
}

/// A batch waits for a lock although the database has a time-out of a millisecond.
#[tokio::test(flavor = "multi_thread")]
async fn session_settings_override_those_of_the_database() -> Outcome {
    for is_pooled in [false, true] {
        let server = PostgresServer::any();
        let url = server.database().await;
        let name = url.rsplit('/').next().expect("a name");
        server.execute("postgres", &format!("ALTER DATABASE {name} SET lock_timeout = 1")).await;
        let pgbouncer = Pgbouncer::start(&url, "session", 5, "").await;
        let store = open_postgres(if is_pooled { pgbouncer.url() } else { &url }, Depot::rows()).await?;
        let client = connect(&url).await;
        client.batch_execute("BEGIN; SELECT FROM head FOR UPDATE").await.expect("a lock");
        let releases = async {
            let waiting = "SELECT count(*)::text FROM pg_locks WHERE NOT granted
                 AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())";
            wait_until("the batch waits", async || query(&url, waiting).await == "1").await;
            // Well beyond the time-out of the database.
            client.batch_execute("SELECT pg_sleep(0.1); COMMIT").await.expect("it is released");
        };
        let (committed, ()) = tokio::join!(commit(&store, recorded("tea", &[], &[put(1)])), releases);
        committed?;
    }
    Ok(())
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}
