//! A real PostgreSQL server, and a database of its own for each test.
//!
//! The server is the one that `SAGA_TEST_POSTGRES` names, as `scripts/test.sh` starts it for all tests; without that, or for
//! tests that stop it, `scripts/private-postgres.sh` starts one.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use saga_core::row::RowKind;
use saga_core::service::Service as _;
use saga_engine::store::postgres::{DbLocation, PostgresStore};
use saga_engine::store::{OpenOptions, StoreFault};
use tokio_postgres::NoTls;
use uuid::Uuid;

use super::Depot;

/// PostgreSQL server. Stopped when dropped if it was started for this test.
pub struct PostgresServer {
    url: String,
    process: Option<Child>,
}

impl PostgresServer {
    /// Server shared by all tests, or one for this test.
    pub fn any() -> Self {
        match std::env::var("SAGA_TEST_POSTGRES") {
            Ok(url) => Self { url, process: None },
            Err(_) => Self::started(&[]),
        }
    }

    /// Starts a server for this test.
    pub fn started(more: &[&str]) -> Self {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scripts/private-postgres.sh");
        let mut process = Command::new(&script)
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", script.display()));
        let mut url = String::new();
        let stdout = process.stdout.take().expect("its output");
        BufReader::new(stdout).read_line(&mut url).expect("its URL");
        assert!(url.starts_with("postgres://"), "scripts/private-postgres.sh started none: see above");
        Self { url: url.trim().to_owned(), process: Some(process) }
    }

    /// Creates a database, and returns its URL.
    pub async fn database(&self) -> String {
        let name = format!("t{}", Uuid::now_v7().simple());
        self.execute("postgres", &format!("CREATE DATABASE {name}")).await;
        self.url_of(&name)
    }

    pub fn url_of(&self, database: &str) -> String {
        format!("{}/{database}", self.url)
    }

    /// Runs SQL in one of its databases, as its owner.
    pub async fn execute(&self, database: &str, sql: &str) {
        execute(&self.url_of(database), sql).await;
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // It stops when its input ends.
            drop(process.stdin.take());
            let _ = process.wait();
        }
    }
}

/// Runs SQL in the database at this URL.
pub async fn execute(url: &str, sql: &str) {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    let connection = tokio::spawn(connection);
    client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    drop(client);
    let _ = connection.await;
}

/// Opens a database as whoever's it is.
pub async fn open_postgres(url: &str, kinds: Vec<RowKind>) -> Result<PostgresStore, StoreFault> {
    open_postgres_as(url, kinds, &OpenOptions::default()).await
}

/// The same as somebody's.
pub async fn open_postgres_as(
    url: &str,
    kinds: Vec<RowKind>,
    opening: &OpenOptions<'_>,
) -> Result<PostgresStore, StoreFault> {
    let location = DbLocation::of(url, None).map_err(StoreFault::Unusable)?;
    PostgresStore::open(&location, kinds, opening).await
}

/// A new database, opened; and its server.
pub async fn new_postgres() -> (PostgresServer, PostgresStore) {
    let server = PostgresServer::any();
    let url = server.database().await;
    let store = open_postgres(&url, Depot::rows()).await.expect("a new database");
    (server, store)
}
