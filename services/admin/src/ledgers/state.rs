//! Pure: the result of the last reconciliation, shared by all instances of admin.

use std::convert::Infallible;

use admin_api::reconciliation::{ReconciliationSummary, Unanswered, Verdict};
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
    /// Consecutive rounds in which a service left a question unanswered, up to [`UNANSWERED_ROUNDS`].
    #[serde(default)]
    pub unanswered_rounds: u32,
    /// Questions that the last such round left unanswered.
    #[serde(default)]
    pub unanswered: Vec<Unanswered>,
}

/// Consecutive rounds without a complete answer after which the reconciliation needs a human.
pub const UNANSWERED_ROUNDS: u32 = 3;

impl ReconciliationState {
    /// Questions that have stayed unanswered for so many rounds that a human is needed.
    #[must_use]
    pub fn unanswered(&self) -> &[Unanswered] {
        if self.unanswered_rounds >= UNANSWERED_ROUNDS { &self.unanswered } else { &[] }
    }

    /// Counts a round that left these questions unanswered.
    fn count_round(&self, unanswered: &[Unanswered]) -> Option<ReconciliationEvent> {
        let rounds = match unanswered {
            [] => 0,
            _ => (self.unanswered_rounds + 1).min(UNANSWERED_ROUNDS),
        };
        let is_news = rounds != self.unanswered_rounds || unanswered != self.unanswered;
        is_news.then(|| ReconciliationEvent::RoundCounted { rounds, unanswered: unanswered.to_vec() })
    }
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
        /// Questions that a periodic reconciliation left unanswered; `None` for one on request, which is no round.
        unanswered: Option<Vec<Unanswered>>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
pub enum ReconciliationEvent {
    Invalidated {
        /// Number of invalidations, this one included.
        invalidated: u64,
    },
    Recorded(ReconciliationSummary),
    RoundCounted {
        /// Consecutive rounds with unanswered questions.
        rounds: u32,
        unanswered: Vec<Unanswered>,
    },
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
            ReconciliationCommand::Record { result, invalidated, unanswered } => {
                // A certain discrepancy stays until a conclusive reconciliation.
                let was_unbalanced = self.last.as_ref().is_some_and(ReconciliationSummary::is_unbalanced);
                let is_conclusive = !(was_unbalanced && result.verdict == Verdict::InFlight);
                let is_news =
                    is_conclusive && *invalidated == self.invalidated && self.last.as_ref() != Some(result);
                let recorded = is_news.then(|| ReconciliationEvent::Recorded(result.clone()));
                let counted = unanswered.as_ref().and_then(|unanswered| self.count_round(unanswered));
                recorded.into_iter().chain(counted).collect()
            }
        })
    }

    fn evolve(&mut self, event: &ReconciliationEvent) {
        match event {
            ReconciliationEvent::Invalidated { invalidated } => {
                (self.last, self.invalidated) = (None, *invalidated);
            }
            ReconciliationEvent::Recorded(result) => self.last = Some(result.clone()),
            ReconciliationEvent::RoundCounted { rounds, unanswered } => {
                (self.unanswered_rounds, self.unanswered) = (*rounds, unanswered.clone());
            }
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
        ReconciliationSummary {
            verdict,
            at: jiff::Timestamp::UNIX_EPOCH,
            discrepancies: 0,
            resolved_to_check: 0,
        }
    }

    fn execute(state: &mut ReconciliationState, command: &ReconciliationCommand) {
        let Ok(events) = state.decide(command);
        events.iter().for_each(|event| state.evolve(event));
    }

    #[test]
    fn result_of_reconciliation_started_before_invalidation_is_ignored() {
        let mut state = ReconciliationState::default();
        let record = |verdict, invalidated| ReconciliationCommand::Record {
            result: result(verdict),
            invalidated,
            unanswered: None,
        };
        execute(&mut state, &record(Verdict::Unbalanced, 0));
        execute(&mut state, &ReconciliationCommand::Invalidate);
        execute(&mut state, &record(Verdict::Unbalanced, 0));
        assert_eq!(state, ReconciliationState { invalidated: 1, ..ReconciliationState::default() });
        execute(&mut state, &record(Verdict::Balanced, 1));
        assert_eq!(state.last, Some(result(Verdict::Balanced)));
    }

    #[test]
    fn question_unanswered_for_three_rounds_needs_a_human_until_it_is_answered() {
        let mut state = ReconciliationState::default();
        let order = Unanswered { service: "order".to_owned(), why: "its rows: answers 500".to_owned() };
        let round = |state: &mut ReconciliationState, unanswered: Option<&[Unanswered]>| {
            let unanswered = unanswered.map(<[Unanswered]>::to_vec);
            let result = result(Verdict::InFlight);
            execute(state, &ReconciliationCommand::Record { result, invalidated: 0, unanswered });
            state.unanswered().to_vec()
        };
        let open = [order];
        assert_eq!(round(&mut state, Some(&open)), []);
        assert_eq!(round(&mut state, Some(&open)), []);
        assert_eq!(round(&mut state, None), [], "a request is no round");
        assert_eq!(round(&mut state, Some(&open)), open);
        let before = state.clone();
        assert_eq!(round(&mut state, Some(&open)), open);
        assert_eq!(state, before, "the fourth round writes nothing");
        assert_eq!(round(&mut state, Some(&[])), []);
        assert_eq!(round(&mut state, Some(&open)), [], "counted from the beginning");
    }
}
