//! Shell: detection of a connection pooler, such as pgbouncer, that shares server connections between clients.
//!
//! The store relies on the state of its sessions: settings, prepared statements, `LISTEN`, and the advisory lock that is the
//! name of the replica. A pooler keeps them only in session mode, in which a client has one server connection to itself.
//! In transaction and statement mode they leak to other clients, so nothing is set before this check.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::{Client, Error, SimpleQueryMessage};

use super::db_location::DbLocation;
use crate::store::StoreFault;
use crate::store::sql_error::db_fault;

/// Number of times that both clients ask. Once is enough unless others use the same pool at that moment.
const ROUNDS: usize = 4;

/// Maximum wait for each of the two.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Identity of the server process that answers. A process id alone may occur on several servers.
const SERVER_PROCESS: &str = "SELECT pg_backend_pid() || ' ' || coalesce(
         (SELECT backend_start::text FROM pg_stat_get_activity(pg_backend_pid())), '')";

#[derive(Debug, thiserror::Error)]
pub(super) enum Unanswered {
    #[error("no answer within {MAX_WAIT:?}")]
    First,
    /// A pooler lets a client wait while its pool has no other connection.
    #[error(
        "there was no second connection within {MAX_WAIT:?}, and a process needs two: allow more in the connection pooler \
         (pgbouncer: default_pool_size)"
    )]
    Second,
}

/// Rejects a pooler that is not in session mode.
///
/// Two clients ask in turn which server process answers them. Each always gets its own if it has a connection to itself.
/// A pooler that assigns a connection to each transaction either gives both the same one, or one client several.
pub(super) async fn check(location: &DbLocation) -> Result<(), StoreFault> {
    let asked = async {
        let first = Probe::connect(location).await?;
        first.server_process().await.map(|own| (first, own))
    };
    let (first, own) = in_time(Unanswered::First, asked).await?;
    let asked = async {
        let second = Probe::connect(location).await?;
        let others = second.server_process().await?;
        let mut is_shared = own == others;
        // Twice in a row: a pooler that takes its connections in turn may give each of two alternating clients its own.
        for _ in 1..ROUNDS {
            for (client, process) in [(&first, &own), (&first, &own), (&second, &others), (&second, &others)]
            {
                is_shared |= client.server_process().await? != *process;
            }
        }
        second.close().await;
        Ok(is_shared)
    };
    let is_shared = in_time(Unanswered::Second, asked).await?;
    first.close().await;
    match is_shared {
        true => Err(StoreFault::Unusable(
            "a connection pooler in transaction or statement mode is in front of its server: set pool_mode = session \
             for this database (pgbouncer), or connect to the server directly (store.url)"
                .to_owned(),
        )),
        false => Ok(()),
    }
}

async fn in_time<T>(
    unanswered: Unanswered,
    answer: impl Future<Output = Result<T, StoreFault>>,
) -> Result<T, StoreFault> {
    timeout(MAX_WAIT, answer).await.unwrap_or_else(|_| {
        Err(StoreFault::Database { context: "connecting to the database", source: unanswered.into() })
    })
}

struct Probe {
    client: Client,
    driver: JoinHandle<Result<(), Error>>,
}

impl Probe {
    async fn connect(location: &DbLocation) -> Result<Self, StoreFault> {
        let connected = location.connect_unset().await;
        let (client, connection) = connected.map_err(db_fault("connecting to the database"))?;
        Ok(Self { client, driver: tokio::spawn(connection) })
    }

    async fn server_process(&self) -> Result<Option<String>, StoreFault> {
        let messages = self.client.simple_query(SERVER_PROCESS).await;
        let messages = messages.map_err(db_fault("checking for a connection pooler"))?;
        Ok(messages.iter().find_map(|message| {
            let SimpleQueryMessage::Row(row) = message else { return None };
            row.get(0).map(str::to_owned)
        }))
    }

    /// Closes the connection, which the server may lack otherwise.
    async fn close(self) {
        drop(self.client);
        let _ = self.driver.await;
    }
}
