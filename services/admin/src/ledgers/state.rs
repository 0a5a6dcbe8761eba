//! Pure: the result of the last reconciliation, shared by all instances of admin.

use std::convert::Infallible;

use admin_api::reconciliation::{ReconciliationSummary, Verdict};
use saga_core::decider::{Decider, RetentionPolicy};
use serde::{Deserialize, Serialize};

/// Id of the only row.
pub const RECONCILIATION_STATE: &str = "last";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReconciliationState {
    /// Last result; `None` before the first, and after it was invalidated.
    pub last: Option<ReconciliationSummary>,
    /// Number of times that a result was invalidated.
    pub invalidated: u64,
}

#[derive(Debug, Clone)]
pub enum ReconciliationCommand {
    /// Drops the last result, because a manual resolution changed what the next one would be.
    Invalidate,
    Record {
        result: ReconciliationSummary,
        /// [`ReconciliationState::invalidated`] when the reconciliation started. A result is ignored when another
        /// invalidation came in between.
        invalidated: u64,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
pub enum ReconciliationEvent {
    Invalidated {
        /// Number of invalidations, this one included.
        invalidated: u64,
    },
    Recorded(ReconciliationSummary),
}

impl Decider for ReconciliationState {
    const KIND: &'static str = "reconciliation";
    const RETENTION: RetentionPolicy = RetentionPolicy::PurgeEvents;
    type Command = ReconciliationCommand;
    type Event = ReconciliationEvent;
    type Rejection = Infallible;

    fn decide(&self, command: &ReconciliationCommand) -> Result<Vec<ReconciliationEvent>, Infallible> {
        Ok(match command {
            // Counted even without a result: a reconciliation may be running.
            ReconciliationCommand::Invalidate => {
                vec![ReconciliationEvent::Invalidated { invalidated: self.invalidated + 1 }]
            }
            ReconciliationCommand::Record { result, invalidated } => {
                // A certain discrepancy stays until a conclusive reconciliation.
                let was_unbalanced = self.last.as_ref().is_some_and(ReconciliationSummary::is_unbalanced);
                let is_conclusive = !(was_unbalanced && result.verdict == Verdict::InFlight);
                let is_news =
                    is_conclusive && *invalidated == self.invalidated && self.last.as_ref() != Some(result);
                is_news.then(|| ReconciliationEvent::Recorded(result.clone())).into_iter().collect()
            }
        })
    }

    fn evolve(&mut self, event: &ReconciliationEvent) {
        match event {
            ReconciliationEvent::Invalidated { invalidated } => {
                *self = Self { last: None, invalidated: *invalidated };
            }
            ReconciliationEvent::Recorded(result) => self.last = Some(result.clone()),
        }
    }

    fn event_name(event: &ReconciliationEvent) -> &'static str {
        event.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn result(verdict: Verdict) -> ReconciliationSummary {
        ReconciliationSummary { verdict, at: jiff::Timestamp::UNIX_EPOCH, discrepancies: 0 }
    }

    fn execute(state: &mut ReconciliationState, command: &ReconciliationCommand) {
        let Ok(events) = state.decide(command);
        events.iter().for_each(|event| state.evolve(event));
    }

    #[test]
    fn result_of_reconciliation_started_before_invalidation_is_ignored() {
        let mut state = ReconciliationState::default();
        let record =
            |verdict, invalidated| ReconciliationCommand::Record { result: result(verdict), invalidated };
        execute(&mut state, &record(Verdict::Unbalanced, 0));
        execute(&mut state, &ReconciliationCommand::Invalidate);
        execute(&mut state, &record(Verdict::Unbalanced, 0));
        assert_eq!(state, ReconciliationState { last: None, invalidated: 1 });
        execute(&mut state, &record(Verdict::Balanced, 1));
        assert_eq!(state.last, Some(result(Verdict::Balanced)));
    }
}
