//! Shell: names of the replicas that share a database. Each is an advisory lock, held on the listening connection of its
//! replica: no two replicas have one name, and a dead one has none.

use sha2::{Digest as _, Sha256};
use tokio_postgres::{Client, Error, ToStatement};

use super::pool::Connection;
use crate::store::sql::Sql as _;
use crate::store::sql_error::SqlError;

/// Class of the locks (`pg_locks.classid`).
const NAMES: i32 = 0x5a6a;

/// Held locks; the first parameter is [`NAMES`].
macro_rules! held {
    () => {
        "FROM pg_locks
         WHERE locktype = 'advisory' AND classid = $1::int::oid AND objsubid = 2 AND granted
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    };
}

pub(super) const HAS_OTHERS: &str = concat!("SELECT count(*) > 1 ", held!());

const IS_HELD: &str = concat!("SELECT EXISTS (SELECT ", held!(), " AND objid = $2::int::oid)");

/// Takes the name for as long as the connection lasts. Returns false while another replica has it.
pub(super) async fn take(client: &Client, instance: &str) -> Result<bool, Error> {
    // A replica without a name counts as well.
    let name = if instance.is_empty() { fastrand::i32(..) } else { lock_of(instance) };
    let taken = client.query_one("SELECT pg_try_advisory_lock($1, $2)", &[&NAMES, &name]).await;
    taken.map(|row| row.get(0))
}

/// Returns true if another process uses the database, besides this one, which holds its name. `statement` is
/// [`HAS_OTHERS`].
pub(super) async fn has_others(
    client: &Client,
    statement: &(impl ToStatement + ?Sized),
) -> Result<bool, Error> {
    client.query_one(statement, &[&NAMES]).await.map(|row| row.get(0))
}

/// Returns true if a replica holds this name.
pub(super) async fn is_held(conn: &Connection, instance: &str) -> Result<bool, SqlError> {
    conn.query_one(IS_HELD, &[&NAMES, &lock_of(instance)], |row| row.get(0)).await
}

/// Lock of a name; the same in every build.
fn lock_of(instance: &str) -> i32 {
    let digest = Sha256::digest(instance);
    i32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]])
}
