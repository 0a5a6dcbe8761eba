//! Shell: what is looked at before a database is used: whether its server is new enough, and whose it is.

use saga_core::retry::error_chain;
use saga_core::row::RowKind;
use tokio_postgres::error::SqlState;
use uuid::Uuid;

use super::pool::Connection;
use super::values::{execute, oops, query, query_one, query_opt};
use crate::store::{Mark, StoreFault};

/// As `server_version_num` has it.
const OLDEST_SERVER: i32 = 150_000;

type Sentence = String;

/// What is said of a database that cannot be used at all, for people: what the server says, and what to do.
pub(super) fn unusable(fault: &StoreFault) -> Sentence {
    let code = match fault {
        StoreFault::Database { source, .. } | StoreFault::Refused { source, .. } => {
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
        if let Some(said) = error.downcast_ref::<tokio_postgres::error::DbError>() {
            return Some((said.code().clone(), said.message().to_owned()));
        }
        next = error.source();
    }
    None
}

/// Looks at a server and a database before anything is changed there.
pub(super) async fn check_before(
    conn: &Connection,
    kinds: &[RowKind],
    service: &str,
    must_exist: bool,
) -> Result<(), StoreFault> {
    let version: i32 = query_one(conn, "SELECT current_setting('server_version_num')::int", &[])
        .await
        .map_err(oops("asking the server for its version"))?
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
        .map_err(oops("asking the server whether it can be written"))?
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
        Err(sentence) => Err(StoreFault::Unusable(sentence)),
    }
}

/// The tables of the schema that is used.
async fn tables(conn: &Connection) -> Result<Vec<String>, StoreFault> {
    let found = query(
        conn,
        "SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace",
        &[],
    );
    let found = found.await.map_err(oops("reading which tables there are"))?;
    Ok(found.iter().map(|row| row.get(0)).collect())
}

/// Whether it is this service's, as it says itself; and whether it is anybody's of ours at all.
async fn check_owner(
    conn: &Connection,
    there: &[String],
    kinds: &[RowKind],
    service: &str,
) -> Result<Result<(), Sentence>, StoreFault> {
    let has = |name: &str| there.iter().any(|table| table == name);
    if !has("migration") {
        // Tables of others, whose names are ours too: to make ours would fail halfway, or take theirs.
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
        .map_err(oops("reading whose database it is"))?
        .map(|row| row.get(0));
    match owner {
        Some(owner) if owner != service && !owner.is_empty() => {
            Ok(Err(format!("it is {owner}'s, not {service}'s: see store.url")))
        }
        _ => Ok(Ok(())),
    }
}

/// Says whose it is, if nobody did.
pub(super) async fn identify(conn: &Connection, service: &str) -> Result<(), StoreFault> {
    let context = "saying whose database it is";
    let named = "UPDATE identity SET service = $1 WHERE service = '' AND $1 <> ''";
    execute(conn, named, &[&service]).await.map_err(oops(context))?;
    let made = "INSERT INTO identity (service, id) SELECT $1::text, $2::uuid WHERE NOT EXISTS (SELECT FROM identity)";
    execute(conn, made, &[&service, &Uuid::now_v7()]).await.map(drop).map_err(oops(context))
}

/// How far it has come.
pub(super) async fn mark(conn: &Connection) -> Result<Mark, StoreFault> {
    let row = query_opt(
        conn,
        "SELECT identity.service, identity.id, head.event,
                (SELECT coalesce(sum(count), 0)::bigint FROM message_count)
         FROM head, identity",
        &[],
    );
    let Some(row) = row.await.map_err(oops("reading how far it came"))? else { return Ok(Mark::default()) };
    Ok(Mark { service: row.get(0), id: row.get(1), events: row.get(2), messages: row.get(3) })
}
