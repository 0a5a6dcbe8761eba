//! Shell: checks before a database is used: that its server is new enough, and that it belongs to the service.

use saga_core::retry::error_chain;
use saga_core::row::RowKind;
use tokio_postgres::error::SqlState;
use uuid::Uuid;

use super::pool::Connection;
use super::values::{db_fault, execute, query, query_one, query_opt};
use crate::store::{DatabasePosition, StoreFault};

/// Oldest supported version, as a `server_version_num`.
const OLDEST_SERVER: i32 = 150_000;

/// Reason why a database cannot be used, for people.
type Reason = String;

/// Explains a fault on opening a database: the server's message, and what to do.
pub(super) fn unusable(fault: &StoreFault) -> Reason {
    let code = match fault {
        StoreFault::Database { source, .. } | StoreFault::Rejected { source, .. } => {
            database_error(source.as_ref())
        }
        StoreFault::Conflict(_) | StoreFault::Unusable(_) | StoreFault::Panicked(_) | StoreFault::Closed => {
            None
        }
    };
    let Some((code, message)) = code else { return error_chain(fault) };
    let advice = match code {
        _ if code == SqlState::INVALID_PASSWORD || code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            ": see the user and the password of store.url, and store.password_file"
        }
        _ if code == SqlState::INVALID_CATALOG_NAME => ": make it first (createdb), or see store.url",
        _ if code == SqlState::INSUFFICIENT_PRIVILEGE => {
            ": its user must own the database, or be granted CREATE and USAGE on its schema public"
        }
        _ => "",
    };
    format!("{message}{advice}")
}

fn database_error(error: &(dyn std::error::Error + 'static)) -> Option<(SqlState, String)> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<tokio_postgres::error::DbError>() {
            return Some((error.code().clone(), error.message().to_owned()));
        }
        next = error.source();
    }
    None
}

/// Checks a server and a database before anything is changed there.
pub(super) async fn check_before(
    conn: &Connection,
    kinds: &[RowKind],
    service: &str,
    must_exist: bool,
) -> Result<(), StoreFault> {
    let version: i32 = query_one(conn, "SELECT current_setting('server_version_num')::int", &[])
        .await
        .map_err(db_fault("reading the version of the server"))?
        .get(0);
    if version < OLDEST_SERVER {
        return Err(StoreFault::Unusable(format!(
            "its server is PostgreSQL {}.{}; 15 or newer is needed",
            version / 10_000,
            version % 10_000
        )));
    }
    let is_standby: bool = query_one(conn, "SELECT pg_is_in_recovery()", &[])
        .await
        .map_err(db_fault("checking whether the server is a standby"))?
        .get(0);
    if is_standby {
        return Err(StoreFault::Unusable("its server is a standby, which cannot be written".to_owned()));
    }
    let there = tables(conn).await?;
    if must_exist && !there.iter().any(|table| table == "migration") {
        return Err(StoreFault::Unusable("there is none".to_owned()));
    }
    match check_owner(conn, &there, kinds, service).await? {
        Ok(()) => Ok(()),
        Err(reason) => Err(StoreFault::Unusable(reason)),
    }
}

/// Names of the tables in the current schema.
async fn tables(conn: &Connection) -> Result<Vec<String>, StoreFault> {
    let found = query(
        conn,
        "SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace",
        &[],
    );
    let found = found.await.map_err(db_fault("reading the names of the tables"))?;
    Ok(found.iter().map(|row| row.get(0)).collect())
}

/// Rejects a database of another service, or of another program.
async fn check_owner(
    conn: &Connection,
    there: &[String],
    kinds: &[RowKind],
    service: &str,
) -> Result<Result<(), Reason>, StoreFault> {
    let has = |name: &str| there.iter().any(|table| table == name);
    if !has("migration") {
        // Tables of another program with the same names: creating ours would fail halfway, or use theirs.
        let ours = ["event", "outbox", "inbox", "task"].map(str::to_owned);
        let theirs: Vec<_> = there
            .iter()
            .filter(|name| {
                ours.contains(name) || kinds.iter().any(|kind| format!("row_{}", kind.name) == **name)
            })
            .cloned()
            .collect();
        if !theirs.is_empty() {
            let theirs = theirs.join(", ");
            return Ok(Err(format!("it has tables of something else, {theirs}: see store.url")));
        }
        return Ok(Ok(()));
    }
    if service.is_empty() || !has("identity") {
        return Ok(Ok(()));
    }
    let owner: Option<String> = query_opt(conn, "SELECT service FROM identity", &[])
        .await
        .map_err(db_fault("reading the owner of the database"))?
        .map(|row| row.get(0));
    match owner {
        Some(owner) if owner != service && !owner.is_empty() => {
            Ok(Err(format!("it is {owner}'s, not {service}'s: see store.url")))
        }
        _ => Ok(Ok(())),
    }
}

/// Records the owner of the database, unless it has one.
pub(super) async fn identify(conn: &Connection, service: &str) -> Result<(), StoreFault> {
    let context = "recording the owner of the database";
    let named = "UPDATE identity SET service = $1 WHERE service = '' AND $1 <> ''";
    execute(conn, named, &[&service]).await.map_err(db_fault(context))?;
    let made = "INSERT INTO identity (service, id) SELECT $1::text, $2::uuid WHERE NOT EXISTS (SELECT FROM identity)";
    execute(conn, made, &[&service, &Uuid::now_v7()]).await.map(drop).map_err(db_fault(context))
}

/// Identity and progress of the database.
pub(super) async fn position(conn: &Connection) -> Result<DatabasePosition, StoreFault> {
    let row = query_opt(
        conn,
        "SELECT identity.service, identity.id, head.event,
                (SELECT coalesce(sum(count), 0)::bigint FROM message_count)
         FROM head, identity",
        &[],
    );
    let Some(row) = row.await.map_err(db_fault("reading the position of the database"))? else {
        return Ok(DatabasePosition::default());
    };
    Ok(DatabasePosition { service: row.get(0), id: row.get(1), events: row.get(2), messages: row.get(3) })
}
