//! Shell: owner, identity and position of a database, and the loss of data that its position reveals.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tracing::warn;
use uuid::Uuid;

use super::StoreFault;
use super::encoding::hex;
use super::sql::{Row, Sql};
use super::sql_error::{SqlError, db_fault};

/// Reason why a database cannot be used, for people.
pub(super) type Reason = String;

/// Identity and progress of a database. The counters only grow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabasePosition {
    /// Service that owns the database.
    pub service: String,
    /// Id of the database; another database of the same service has another.
    pub id: Uuid,
    /// Position of the last event.
    pub events: i64,
    /// Number of messages processed and published.
    pub messages: i64,
}

impl DatabasePosition {
    /// Reads the position of a database.
    pub(super) async fn read<S: Sql>(db: &S) -> Result<Self, SqlError> {
        let sql = format!(
            "SELECT coalesce(service, ''), id, {}, (SELECT CAST(coalesce(sum(count), 0) AS bigint) FROM message_count)
             FROM (SELECT 1) AS always LEFT JOIN identity ON true",
            S::LAST_EVENT
        );
        let read = |row: &Row<'_>| {
            let id: Option<Uuid> = row.get(1)?;
            let id = id.unwrap_or_default();
            Ok(Self { service: row.get(0)?, id, events: row.get(2)?, messages: row.get(3)? })
        };
        db.query_one(&sql, &[], read).await
    }

    /// Describes the loss of a database that had this position and is `found` at another; `None` if nothing is lost.
    pub(super) fn lost(&self, found: Option<&Self>) -> Option<Reason> {
        let Self { service, events, messages, .. } = self;
        match found {
            None => Some(format!("it is empty, and had {events} events of {service}")),
            Some(found) if found.id != self.id => Some(format!(
                "it is another one than the one with {events} events of {service} that was here"
            )),
            Some(found) if found.events < *events || found.messages < *messages => Some(format!(
                "it has lost data: it had come to event {events} and message {messages}, and is at event {} and \
                 message {}",
                found.events, found.messages
            )),
            Some(_) => None,
        }
    }

    /// True if a database that is `found` at a position has lost what led to this one.
    #[must_use]
    pub fn is_ahead_of(&self, found: &Self) -> bool {
        self.lost(Some(found)).is_some()
    }

    /// Checks a database that is `found` at a position against this one, which was kept elsewhere.
    ///
    /// # Errors
    /// Describes a loss that was not accepted, and the command that accepts it.
    pub fn check(&self, found: &Self, accept_loss: &str) -> Result<(), Reason> {
        // The name leaves the found position out: it grows until this one is written again.
        let name = self.name_of_loss(None);
        self.lost(Some(found)).map_or(Ok(()), |lost| self.check_accepted(&lost, &[name], accept_loss))
    }

    /// Checks a database file against this position, which was kept beside it.
    pub(super) fn check_file(&self, found: Option<&Self>, accept_loss: &str) -> Result<(), Reason> {
        // The same loss may be accepted by either name: an emptied database has no position before its tables are created.
        let names = [self.name_of_loss(found), self.name_of_loss(None)];
        self.lost(found).map_or(Ok(()), |lost| self.check_accepted(&lost, &names, accept_loss))
    }

    /// Name of exactly one loss, so that a setting that accepts it accepts no other.
    fn name_of_loss(&self, found: Option<&Self>) -> String {
        let found = found.map(|found| (found.id, found.events, found.messages));
        hex(&Sha256::digest(format!("{} {} {} {found:?}", self.id, self.events, self.messages)))[..12]
            .to_owned()
    }

    /// Fails unless the loss is accepted by one of its names. The name comes last in the error.
    fn check_accepted(&self, lost: &str, names: &[String], accept_loss: &str) -> Result<(), Reason> {
        if names.iter().any(|name| name == accept_loss) {
            warn!("a loss is accepted: {lost}");
            return Ok(());
        }
        let (name, service) = (names.first().map_or("", String::as_str), &self.service);
        let other = match accept_loss {
            "" => String::new(),
            accepted => format!(" (the accepted loss {accepted} is another one)"),
        };
        Err(format!(
            "{lost}{other}; restore it from a copy, or accept this loss: sagactl start {service} --accept-loss {name}, or \
             --set store.accept_loss={name}"
        ))
    }
}

/// Rejects a database of another service.
pub(super) async fn check_owner<S: Sql>(db: &S, service: &str) -> Result<(), StoreFault> {
    let owner = db.query_opt("SELECT service FROM identity", &[], |row| row.get::<String>(0)).await;
    match owner.map_err(db_fault("reading the owner of the database"))? {
        Some(owner) if owner != service && !owner.is_empty() && !service.is_empty() => {
            Err(StoreFault::Unusable(format!("it is {owner}'s, not {service}'s: see store.url")))
        }
        Some(_) | None => Ok(()),
    }
}

/// Records the owner of the database, unless it has one.
pub(super) async fn identify<S: Sql>(db: &S, service: &str) -> Result<(), StoreFault> {
    let context = "recording the owner of the database";
    let named = "UPDATE identity SET service = $1 WHERE service = '' AND $1 <> ''";
    db.execute(named, &[&service]).await.map_err(db_fault(context))?;
    let made = "INSERT INTO identity (service, id)
         SELECT $1::text, $2::uuid WHERE NOT EXISTS (SELECT 1 FROM identity)";
    db.execute(made, &[&service, &Uuid::now_v7()]).await.map(drop).map_err(db_fault(context))
}
