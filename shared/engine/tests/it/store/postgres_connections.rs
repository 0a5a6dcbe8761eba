//! PostgreSQL: servers that change roles, and servers with few connections.

use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use saga_core::service::Service as _;
use saga_engine::store::postgres::PostgresStore;
use saga_engine::store::roles::{Monitoring as _, Queries as _, Verification as _};
use saga_engine::store::{OpenOptions, StoreFault};
use tokio_postgres::{NoTls, SimpleQueryMessage};

use crate::support::{
    Depot, PostgresServer, commit, execute, in_time, open_postgres, open_postgres_as, put, recorded, shelf,
    wait_until,
};

type Outcome = Result<(), StoreFault>;

/// Regression: the pool stayed with the demoted server, and every write failed until a restart.
#[tokio::test(flavor = "multi_thread")]
async fn writes_move_to_promoted_standby() -> Outcome {
    for is_stopped in [false, true] {
        let primary = PostgresServer::started(&[]);
        let url = primary.database().await;
        let standby = PostgresServer::started(&["--standby-of", &primary.url_of("postgres")]);
        // The standby comes first: it is never used as long as it is one.
        let store = open_postgres(&of_both(&standby, &url), Depot::rows()).await?;
        commit(&store, recorded("before", &[], &[put(1)])).await?;
        let end: String = query(&url, "SELECT pg_current_wal_lsn()::text").await;
        let replayed = format!("SELECT (pg_last_wal_replay_lsn() >= '{end}')::text");
        wait_until("the standby has it all", async || {
            query(&standby.url_of("postgres"), &replayed).await == "true"
        })
        .await;
        // Connections go on to a server that is demoted by its settings.
        match is_stopped {
            true => drop(primary),
            false => {
                primary.execute("postgres", "ALTER SYSTEM SET default_transaction_read_only = on").await;
                primary.execute("postgres", "SELECT pg_reload_conf()").await;
                wait_until("it is read-only", async || {
                    query(&url, "SHOW transaction_read_only").await == "on"
                })
                .await;
            }
        }
        let refused = commit(&store, recorded("between", &[], &[put(1)])).await;
        refused.expect_err("nobody takes writes");
        standby.execute("postgres", "SELECT pg_promote()").await;
        wait_until("writes move", async || commit(&store, recorded("behind", &[], &[put(1)])).await.is_ok())
            .await;
        assert!(store.row(shelf("before")).await?.is_some());
        let moved = standby.url_of(url.rsplit('/').next().expect("a name"));
        let shelves = query(&moved, "SELECT string_agg(id, ' ' ORDER BY id) FROM row_shelf").await;
        assert_eq!(shelves, "before behind", "stopped: {is_stopped}");
        in_time("it is verified", store.verify()).await?;
    }
    Ok(())
}

/// Long work waits for short work then. The other connection listens.
#[tokio::test(flavor = "multi_thread")]
async fn process_works_with_two_connections() -> Outcome {
    let limited = Limited::to(2).await;
    let store = Arc::new(limited.open("").await?);
    in_time("all is done", work(&store, "tea")).await
}

/// Three replicas with more work than connections: each waits, and nothing fails.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_few_connections() -> Outcome {
    let limited = Limited::to(8).await;
    let mut stores = vec![];
    for name in ["depot-1", "depot-2", "depot-3"] {
        stores.push(Arc::new(limited.open(name).await?));
    }
    let work = stores.iter().zip(["ale", "bun", "cup"]).map(|(store, label)| work(store, label));
    in_time("all is done", try_join_all(work)).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn process_opens_at_most_its_connections_and_closes_unused_ones() -> Outcome {
    let server = PostgresServer::any();
    let url = server.database().await;
    let options = OpenOptions { max_connections: 5, ..OpenOptions::default() };
    let store = Arc::new(open_postgres_as(&url, Depot::rows(), &options).await?);
    let count = "SELECT count(*)::text FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let open = async || query(&url, count).await.parse::<u32>().expect("a number");
    in_time("all is done", work(&store, "tea")).await?;
    assert!((2..=5).contains(&open().await), "{} connections", open().await);
    wait_until("unused ones are closed", async || open().await <= 1).await;
    commit(store.as_ref(), recorded("next", &[], &[put(1)])).await
}

/// Batches and reads of all kinds at once: more than there are connections, and few enough for a busy machine.
async fn work(store: &Arc<PostgresStore>, label: &'static str) -> Outcome {
    let all = (0..12).map(|number: u32| {
        let store = store.clone();
        async move {
            commit(store.as_ref(), recorded(&format!("{label}-{number}"), &[], &[put(1)])).await?;
            store.stats().await?;
            store.row(shelf(label)).await.map(drop)
        }
    });
    let verifying = async { store.verify().await.map(drop) };
    tokio::try_join!(try_join_all(all), verifying).map(drop)
}

/// Database of a role that may have few connections.
struct Limited {
    url: String,
    _server: PostgresServer,
}

impl Limited {
    async fn to(connections: u32) -> Self {
        let server = PostgresServer::any();
        let url = server.database().await;
        let name = url.rsplit('/').next().expect("a name").to_owned();
        let owner = format!(
            "CREATE ROLE few_of_{name} LOGIN PASSWORD 'few' CONNECTION LIMIT {connections};
             ALTER DATABASE {name} OWNER TO few_of_{name}"
        );
        execute(&url, &owner).await;
        let url = url.replace("saga@", &format!("few_of_{name}:few@"));
        Self { url, _server: server }
    }

    async fn open(&self, instance: &str) -> Result<PostgresStore, StoreFault> {
        let wait = Duration::from_secs(20);
        open_postgres_as(&self.url, Depot::rows(), &OpenOptions { instance, wait, ..OpenOptions::default() })
            .await
    }
}

/// URL of a database on either of two servers.
fn of_both(first: &PostgresServer, url: &str) -> String {
    let first = first.url_of("");
    let (_, host) = first.trim_end_matches('/').rsplit_once('@').expect("a host");
    url.replace("saga@", &format!("saga@{host},"))
}

/// First value of a row.
pub async fn query(url: &str, sql: &str) -> String {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    let connection = tokio::spawn(connection);
    let messages = client.simple_query(sql).await.expect("a row");
    drop(client);
    let _ = connection.await;
    let value = messages.iter().find_map(|message| {
        let SimpleQueryMessage::Row(row) = message else { return None };
        row.get(0).map(str::to_owned)
    });
    value.unwrap_or_default()
}
