//! Pure: assertions on the effect of one input.

use saga_core::dead_letter::DeadLettered;
use saga_core::input::{CommandOutcome, DueOutcome, MessageOutcome, Outcome};
use saga_core::service::Service;
use saga_core::waiting::Task;

/// Effect of one input, with assertions on it.
pub struct Then<S: Service> {
    /// Outcome of the input as the engine reports it.
    pub outcome: Outcome<S>,
    /// Names of the recorded events.
    pub events: Vec<&'static str>,
    /// Published facts, without announcements of dead letters.
    pub facts: Vec<S::Fact>,
    /// Tasks that the input added.
    pub tasks: Vec<Task>,
    /// New dead letters, and those that failed again.
    pub dead: Vec<DeadLettered>,
}

impl<S: Service> Then<S> {
    /// Expects exactly these facts, in this order.
    #[track_caller]
    pub fn publishes(self, expected: impl IntoIterator<Item = S::Fact>) -> Self {
        assert_eq!(self.facts, expected.into_iter().collect::<Vec<_>>(), "published facts");
        self
    }

    /// Expects tasks of exactly these kinds.
    #[track_caller]
    pub fn calls(self, expected: &[&str]) -> Self {
        assert_eq!(
            self.tasks.iter().map(|task| task.kind.as_str()).collect::<Vec<_>>(),
            expected,
            "added tasks"
        );
        self
    }

    /// Expects exactly these events, in this order.
    #[track_caller]
    pub fn records(self, expected: &[&str]) -> Self {
        assert_eq!(self.events, expected, "recorded events");
        self
    }

    /// Expects the outcome with this name.
    #[track_caller]
    pub fn has_outcome(self, expected: &str) -> Self {
        assert_eq!(self.outcome.name(), expected, "outcome");
        self
    }

    /// Expects no event, fact, task or dead letter.
    #[track_caller]
    pub fn changes_nothing(self) -> Self {
        assert_eq!(self.dead, [], "dead letters");
        self.records(&[]).publishes([]).calls(&[])
    }

    /// Expects a rejection without any change, and returns it.
    #[track_caller]
    pub fn rejection(self) -> S::Rejection {
        match self.has_outcome("rejected").changes_nothing().outcome {
            Outcome::Command(CommandOutcome::Rejected(rejection))
            | Outcome::Message(MessageOutcome::Rejected(rejection))
            | Outcome::Due(DueOutcome::Rejected(rejection)) => rejection,
            Outcome::Command(_) | Outcome::Message(_) | Outcome::Due(_) => {
                panic!("the name belongs to another outcome")
            }
        }
    }

    /// Expects one dead letter of this step or kind of task with this reason, and no other change.
    #[track_caller]
    pub fn is_dead_lettered(mut self, step: &str, reason: &str) {
        let [dead] = self.dead.as_slice() else { panic!("one dead letter, not {:?}", self.dead) };
        assert_eq!(dead.step, step, "the step that failed");
        assert!(dead.reason.contains(reason), "{:?} does not say {reason:?}", dead.reason);
        self.dead.clear();
        self.has_outcome("dead_lettered").changes_nothing();
    }

    /// Expects a successful command, and returns its reply.
    #[track_caller]
    pub fn reply(self) -> S::Reply {
        let Outcome::Command(CommandOutcome::Done(reply)) = self.has_outcome("done").outcome else {
            panic!("the name belongs to another outcome");
        };
        reply
    }
}
