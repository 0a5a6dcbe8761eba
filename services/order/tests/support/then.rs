//! Pure: what one input did, and what a test may expect of it.

use shared::contract::{DeadLettered, Fact};
use shared::engine::Outcome;
use shared::service::Service;
use shared::store::Task;

/// What one input did.
pub struct Then<S: Service> {
    /// What became of it.
    pub outcome: Outcome<S>,
    /// Names of the events.
    pub events: Vec<&'static str>,
    /// The facts told; announcements of dead letters not counted.
    pub facts: Vec<Fact>,
    /// The tasks noted.
    pub tasks: Vec<Task>,
    /// The dead letters.
    pub dead: Vec<DeadLettered>,
}

impl<S: Service> Then<S> {
    /// Exactly these facts are told, in this order.
    #[track_caller]
    pub fn tells(self, wanted: impl IntoIterator<Item = Fact>) -> Self {
        assert_eq!(self.facts, wanted.into_iter().collect::<Vec<_>>(), "facts told");
        self
    }

    /// Exactly these kinds of tasks are noted.
    #[track_caller]
    pub fn notes(self, wanted: &[&str]) -> Self {
        assert_eq!(
            self.tasks.iter().map(|task| task.kind.as_str()).collect::<Vec<_>>(),
            wanted,
            "tasks noted"
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

    /// Nothing is recorded, told, noted or parked.
    #[track_caller]
    pub fn changes_nothing(self) -> Self {
        assert_eq!(self.dead, [], "dead letters");
        self.records(&[]).tells([]).notes(&[])
    }

    /// The business says no, and nothing changes. Answers the rejection.
    #[track_caller]
    pub fn rejection(self) -> S::Rejection {
        let Outcome::Rejected(rejection) = self.comes_out("rejected").changes_nothing().outcome else {
            panic!("an outcome has its own name");
        };
        rejection
    }

    /// It is parked under this step or kind of task, for this reason, and nothing else changes.
    #[track_caller]
    pub fn parks(mut self, step: &str, reason: &str) {
        let [letter] = self.dead.as_slice() else { panic!("one dead letter, not {:?}", self.dead) };
        assert_eq!(letter.step, step, "the step that failed");
        assert!(letter.reason.contains(reason), "{:?} does not say {reason:?}", letter.reason);
        self.dead.clear();
        self.comes_out("dead").changes_nothing();
    }

    /// The reply.
    #[track_caller]
    pub fn reply(self) -> S::Reply {
        let Outcome::Done(reply) = self.comes_out("done").outcome else {
            panic!("an outcome has its own name");
        };
        reply
    }
}
