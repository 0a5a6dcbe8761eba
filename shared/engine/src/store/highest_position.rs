//! Shell: the highest position that this process has seen of its database. A database below it has gone back in time: an
//! older copy was restored, or its server failed over to a standby without the last commits.
//!
//! Such a database looks healthy. Whoever continues on it repeats what was done, and forgets what was promised. So the
//! first comparison that fails ends all use of the database by this process.

use std::sync::Arc;

use parking_lot::Mutex;
use tracing::error;

use super::StoreFault;
use super::identity::DatabasePosition;
use super::sql::Sql;
use super::sql_error::db_fault;

/// Highest position of a database in the lifetime of this process. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct HighestPosition(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    highest: Option<DatabasePosition>,
    /// Highest number of a writing transaction; 0 where the database does not count them.
    generation: i64,
    /// Description of the loss, which no later position revokes: the database may grow past the highest position again.
    lost: Option<String>,
}

impl HighestPosition {
    /// Fails if the database has gone back in time.
    pub(super) fn check(&self) -> Result<(), StoreFault> {
        self.0.lock().lost.clone().map_or(Ok(()), |lost| Err(StoreFault::DataLost(lost)))
    }

    /// Highest position so far. A read that begins after this call finds no lower one.
    pub(super) fn known(&self) -> Option<DatabasePosition> {
        self.0.lock().highest.clone()
    }

    /// Highest generation so far. A transaction that begins after this call finds no lower one.
    pub(super) fn known_generation(&self) -> i64 {
        self.0.lock().generation
    }

    /// Reads the position of the database, and compares it.
    pub(super) async fn read<S: Sql>(&self, db: &S) -> Result<DatabasePosition, StoreFault> {
        let (known, known_generation) = (self.known(), self.known_generation());
        let context = "reading the position of the database";
        let found = DatabasePosition::read(db).await.map_err(db_fault(context))?;
        self.compare(known.as_ref(), &found)?;
        if let Some(sql) = S::GENERATION {
            let generation = db.query_one(sql, &[], |row| row.get(0)).await.map_err(db_fault(context))?;
            self.compare_generation(known_generation, generation)?;
        }
        Ok(found)
    }

    /// Compares a position that was read after `known` was the highest, and keeps it if it is higher.
    pub(super) fn compare(
        &self,
        known: Option<&DatabasePosition>,
        found: &DatabasePosition,
    ) -> Result<(), StoreFault> {
        self.check()?;
        match known.and_then(|known| known.lost(Some(found))) {
            Some(lost) => self.lose(lost),
            None => self.raise(found),
        }
        self.check()
    }

    /// Keeps the position of a commit, if it is higher than any before.
    pub(super) fn raise(&self, found: &DatabasePosition) {
        let mut seen = self.0.lock();
        match &mut seen.highest {
            Some(highest) => {
                highest.events = highest.events.max(found.events);
                highest.messages = highest.messages.max(found.messages);
            }
            None => seen.highest = Some(found.clone()),
        }
    }

    /// Compares a generation that was read after `known` was the highest, and keeps it if it is higher.
    pub(super) fn compare_generation(&self, known: i64, found: i64) -> Result<(), StoreFault> {
        if found < known {
            let highest =
                self.known().map_or_else(String::new, |DatabasePosition { events, messages, .. }| {
                    format!("event {events}, message {messages} and ")
                });
            self.lose(format!(
                "it has lost data: it had come to {highest}transaction {known}, and is at transaction {found}"
            ));
        }
        self.raise_generation(found);
        self.check()
    }

    /// Keeps the generation of a commit, if it is higher than any before.
    pub(super) fn raise_generation(&self, found: i64) {
        let mut seen = self.0.lock();
        seen.generation = seen.generation.max(found);
    }

    fn lose(&self, lost: String) {
        let mut seen = self.0.lock();
        if seen.lost.is_none() {
            error!(
                "the database has gone back in time, so that nothing is stored or published any more: {lost}"
            );
            seen.lost = Some(lost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(events: i64, messages: i64) -> DatabasePosition {
        DatabasePosition { events, messages, ..DatabasePosition::default() }
    }

    #[test]
    fn lower_position_is_a_loss_for_ever() {
        for lower in [position(4, 9), position(5, 8)] {
            let highest = HighestPosition::default();
            for found in [position(5, 8), position(5, 9)] {
                highest.compare(highest.known().as_ref(), &found).expect("not lower");
            }
            let fault = highest.compare(highest.known().as_ref(), &lower).expect_err("lower");
            assert!(fault.to_string().contains("it had come to event 5 and message 9"), "{fault}");
            highest.compare(highest.known().as_ref(), &position(6, 10)).expect_err("it grew again");
            assert_eq!(highest.known(), Some(position(5, 9)));
        }
    }

    /// A read that began before a commit may end after it.
    #[test]
    fn position_is_compared_with_the_one_before_its_read() {
        let highest = HighestPosition::default();
        highest.raise(&position(5, 5));
        let known = highest.known();
        highest.raise(&position(6, 6));
        highest.compare(known.as_ref(), &position(5, 5)).expect("as of then");
        let known = highest.known_generation();
        highest.raise_generation(7);
        highest.compare_generation(known, 6).expect("as of then");
        assert_eq!(highest.known_generation(), 7);
    }

    #[test]
    fn lower_generation_is_a_loss() {
        let highest = HighestPosition::default();
        highest.compare_generation(0, 7).expect("the first");
        let fault = highest.compare_generation(7, 6).expect_err("lower").to_string();
        assert!(fault.contains("transaction 7, and is at transaction 6"), "{fault}");
        highest.check().expect_err("for ever");
    }

    #[test]
    fn another_database_is_a_loss() {
        let highest = HighestPosition::default();
        highest.raise(&position(5, 5));
        let other = DatabasePosition { id: uuid::Uuid::from_u128(7), ..position(9, 9) };
        highest.compare(highest.known().as_ref(), &other).expect_err("another");
    }
}
