//! Shell: outcomes of the writes of this process. A database that answers reads may take no writes: its disk is full, it was made
//! read-only, or another process holds its lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use saga_core::retry::error_chain;

use super::StoreFault;

/// Age of the last success from which a probe writes. Bounds the time until readiness notices a database without writes.
const PROBE_AFTER: Duration = Duration::from_secs(5);
/// Time after which a write counts as hanging, unless others end meanwhile.
const HANGS_AFTER: Duration = Duration::from_secs(3);
/// Time in which no success refutes a full disk: small writes still find room where a batch does not.
const FULL_FOR: Duration = Duration::from_secs(30);

/// Outcomes of writes. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct WriteHealth(Arc<Mutex<Outcomes>>);

#[derive(Debug, Default)]
struct Outcomes {
    /// Begin of each write in progress, by its number.
    in_progress: BTreeMap<u64, Instant>,
    begun: u64,
    last_success: Option<Instant>,
    /// Failure of the last write.
    failure: Option<Failure>,
}

#[derive(Debug)]
struct Failure {
    at: Instant,
    text: String,
    is_full: bool,
}

/// Write in progress, until dropped.
#[derive(Debug)]
pub(super) struct WriteInProgress {
    health: WriteHealth,
    number: u64,
}

impl Drop for WriteInProgress {
    fn drop(&mut self) {
        self.health.0.lock().in_progress.remove(&self.number);
    }
}

impl WriteInProgress {
    /// Records the end of the write. A fault of its values says nothing about the database.
    pub(super) fn end<T>(self, outcome: &Result<T, StoreFault>) {
        match outcome {
            Ok(_) => self.health.succeed(Instant::now()),
            Err(fault @ StoreFault::Database { .. }) => self.health.fail(fault, Instant::now()),
            Err(_) => {}
        }
    }
}

impl WriteHealth {
    pub(super) fn begin(&self) -> WriteInProgress {
        let mut outcomes = self.0.lock();
        outcomes.begun += 1;
        let number = outcomes.begun;
        outcomes.in_progress.insert(number, Instant::now());
        WriteInProgress { health: self.clone(), number }
    }

    fn succeed(&self, now: Instant) {
        let mut outcomes = self.0.lock();
        outcomes.last_success = Some(now);
        let stays_full = |failure: &Failure| failure.is_full && now.duration_since(failure.at) < FULL_FOR;
        if !outcomes.failure.as_ref().is_some_and(stays_full) {
            outcomes.failure = None;
        }
    }

    fn fail(&self, fault: &StoreFault, now: Instant) {
        let is_full = super::sql_error::is_full(fault);
        self.0.lock().failure = Some(Failure { at: now, text: error_chain(fault), is_full });
    }

    /// True if nothing was written for a while, or the last write failed.
    pub(super) fn needs_probe(&self) -> bool {
        let outcomes = self.0.lock();
        outcomes.failure.is_some() || outcomes.last_success.is_none_or(|last| last.elapsed() >= PROBE_AFTER)
    }

    /// Describes why a write would fail now; `None` if it would succeed, as far as is known.
    pub(super) fn problem(&self) -> Option<String> {
        self.problem_at(Instant::now())
    }

    fn problem_at(&self, now: Instant) -> Option<String> {
        let outcomes = self.0.lock();
        if let Some(failure) = &outcomes.failure {
            return Some(format!("it takes no writes: {}", failure.text));
        }
        let oldest = outcomes.in_progress.values().min().map(|begun| now.duration_since(*begun))?;
        let is_idle = outcomes.last_success.is_none_or(|last| now.duration_since(last) >= HANGS_AFTER);
        (oldest >= HANGS_AFTER && is_idle).then(|| {
            format!(
                "a write has not ended for {}s: another process holds a lock on the database, or the disk hangs",
                oldest.as_secs()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(code: i32) -> StoreFault {
        let error = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
        super::super::sql_error::db_fault("committing")(error)
    }

    #[test]
    fn failed_write_is_a_problem_until_the_next_success() {
        let health = WriteHealth::default();
        assert_eq!(health.problem(), None);
        health.begin().end::<()>(&Err(fault(rusqlite::ffi::SQLITE_READONLY)));
        let problem = health.problem().expect("it failed");
        assert!(problem.contains("committing") && problem.contains("readonly"), "{problem}");
        assert!(health.needs_probe());
        health.begin().end(&Ok(()));
        assert_eq!((health.problem(), health.needs_probe()), (None, false));
    }

    /// Regression: on a full disk, each renewal of a lease ended the problem, until the next batch.
    #[test]
    fn full_disk_is_a_problem_until_no_write_has_failed_for_a_while() {
        let health = WriteHealth::default();
        health.begin().end::<()>(&Err(fault(rusqlite::ffi::SQLITE_FULL)));
        health.begin().end(&Ok(()));
        assert!(health.problem().is_some() && health.needs_probe());
        health.succeed(Instant::now() + FULL_FOR);
        assert_eq!(health.problem(), None);
    }

    #[test]
    fn fault_of_values_says_nothing_about_the_database() {
        let health = WriteHealth::default();
        health.begin().end::<()>(&Err(fault(rusqlite::ffi::SQLITE_CONSTRAINT)));
        assert_eq!(health.problem(), None);
    }

    #[test]
    fn write_hangs_unless_another_has_ended_meanwhile() {
        let health = WriteHealth::default();
        let hanging = health.begin();
        let later = Instant::now() + HANGS_AFTER;
        let problem = health.problem_at(later).expect("it hangs");
        assert!(problem.contains("not ended for 3s"), "{problem}");
        health.succeed(later);
        assert_eq!(health.problem_at(later), None);
        drop(hanging);
        assert_eq!(health.problem_at(later + HANGS_AFTER), None);
    }
}
