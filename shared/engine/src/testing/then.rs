//! Pure: what one input did, and what a test may expect of it.

use saga_core::dead_letter::DeadLettered;
use saga_core::input::{CommandOutcome, DueOutcome, MessageOutcome, Outcome};
use saga_core::service::Service;
use saga_core::waiting::Task;

/// What one input did.
pub struct Then<S: Service> {
    /// What became of it.
    pub outcome: Outcome<S>,
    /// Names of the events.
    pub events: Vec<&'static str>,
    /// The facts told; announcements of dead letters not counted.
    pub facts: Vec<S::Fact>,
    /// The calls that are to be made.
    pub tasks: Vec<Task>,
    /// The dead letters.
    pub dead: Vec<DeadLettered>,
}

impl<S: Service> Then<S> {
    /// Exactly these facts are told, in this order.
    #[track_caller]
    pub fn tells(self, wanted: impl IntoIterator<Item = S::Fact>) -> Self {
        assert_eq!(self.facts, wanted.into_iter().collect::<Vec<_>>(), "facts told");
        self
    }

    /// Exactly these kinds of calls are to be made.
    #[track_caller]
    pub fn calls(self, wanted: &[&str]) -> Self {
        assert_eq!(
            self.tasks.iter().map(|task| task.kind.as_str()).collect::<Vec<_>>(),
            wanted,
            "calls to be made"
        );
        self
    }

    /// Exactly these events are recorded.
    #[track_caller]
    pub fn records(self, wanted: &[&str]) -> Self {
        assert_eq!(self.events, wanted, "events recorded");
        self
    }

    /// The outcome has this name.
    #[track_caller]
    pub fn comes_out(self, wanted: &str) -> Self {
        assert_eq!(self.outcome.name(), wanted, "outcome");
        self
    }

    /// Nothing is recorded, told, called or parked.
    #[track_caller]
    pub fn changes_nothing(self) -> Self {
        assert_eq!(self.dead, [], "dead letters");
        self.records(&[]).tells([]).calls(&[])
    }

    /// The business says no, and nothing changes. Answers the rejection.
    #[track_caller]
    pub fn rejection(self) -> S::Rejection {
        match self.comes_out("rejected").changes_nothing().outcome {
            Outcome::Command(CommandOutcome::Rejected(rejection))
            | Outcome::Message(MessageOutcome::Rejected(rejection))
            | Outcome::Due(DueOutcome::Rejected(rejection)) => rejection,
            Outcome::Command(_) | Outcome::Message(_) | Outcome::Due(_) => {
                panic!("an outcome has its own name")
            }
        }
    }

    /// It is parked under this step or kind of task, for this reason, and nothing else changes.
    #[track_caller]
    pub fn parks(mut self, step: &str, reason: &str) {
        let [dead] = self.dead.as_slice() else { panic!("one dead letter, not {:?}", self.dead) };
        assert_eq!(dead.step, step, "the step that failed");
        assert!(dead.reason.contains(reason), "{:?} does not say {reason:?}", dead.reason);
        self.dead.clear();
        self.comes_out("dead").changes_nothing();
    }

    /// The command is done. Answers the reply.
    #[track_caller]
    pub fn reply(self) -> S::Reply {
        let Outcome::Command(CommandOutcome::Done(reply)) = self.comes_out("done").outcome else {
            panic!("an outcome has its own name");
        };
        reply
    }
}
