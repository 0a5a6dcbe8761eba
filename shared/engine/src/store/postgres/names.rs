//! Shell: the names of the processes that share a database. Each is a lock, held on the connection on which its process
//! listens: no two have one name, and whoever is gone has none.

use sha2::{Digest as _, Sha256};
use tokio_postgres::{Client, Error, ToStatement};

use super::pool::Connection;
use super::values::query_one;

/// The class of the locks (`pg_locks.classid`).
const NAMES: i32 = 0x5a6a;

/// Those that are held, where the first argument is [`NAMES`].
macro_rules! held {
    () => {
        "FROM pg_locks
         WHERE locktype = 'advisory' AND classid = $1::int::oid AND objsubid = 2 AND granted
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    };
}

/// For [`is_anybody_there`].
pub(super) const IS_ANYBODY_THERE: &str = concat!("SELECT count(*) > 1 ", held!());

const IS_THERE: &str = concat!("SELECT EXISTS (SELECT ", held!(), " AND objid = $2::int::oid)");

/// Takes the name, for as long as the connection lasts. `false` while another one has it.
pub(super) async fn take(client: &Client, instance: &str) -> Result<bool, Error> {
    // Whoever has no name is one more all the same.
    let name = if instance.is_empty() { fastrand::i32(..) } else { name_of(instance) };
    let taken = client.query_one("SELECT pg_try_advisory_lock($1, $2)", &[&NAMES, &name]).await;
    taken.map(|row| row.get(0))
}

/// Whether another process than this one, which has its name, uses the database; `asking` is [`IS_ANYBODY_THERE`].
pub(super) async fn is_anybody_there(
    client: &Client,
    asking: &(impl ToStatement + ?Sized),
) -> Result<bool, Error> {
    client.query_one(asking, &[&NAMES]).await.map(|row| row.get(0))
}

/// Whether a process of this name is there.
pub(super) async fn is_there(conn: &Connection, instance: &str) -> Result<bool, Error> {
    query_one(conn, IS_THERE, &[&NAMES, &name_of(instance)]).await.map(|row| row.get(0))
}

/// The same for the same name in every build.
fn name_of(instance: &str) -> i32 {
    let digest = Sha256::digest(instance);
    i32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]])
}
