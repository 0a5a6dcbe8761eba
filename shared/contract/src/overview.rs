//! Pure: how the whole system is, in one look, as the operators' service tells it: what is there to see, and whether
//! somebody must do something.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

mod headline;
mod reasons;

pub use headline::{counted, grouped};
pub use reasons::Reason;

/// What is past its time for so long is overdue: nothing under way needs longer to notice.
pub const GRACE: SignedDuration = SignedDuration::from_secs(30);

/// A breaker that does not close for so long does not mend itself.
pub const BREAKER_PATIENCE: SignedDuration = SignedDuration::from_mins(1);

/// What calls the receiver of notices, and its breaker.
pub const RECEIVER: &str = "webhook";

/// A call that is open for so long is overdue: as long as an order waits unless told otherwise, and [`GRACE`].
pub const CALL_PATIENCE: SignedDuration = SignedDuration::from_secs(90);

/// How the whole system is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Overview {
    /// When it was looked at.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Whether there is something that does not mend itself: a reason is named.
    pub needs_human: bool,
    /// Why somebody must do something, the gravest first; empty when nobody must.
    pub reasons: Vec<Reason>,
    /// Every service.
    pub services: Vec<ServiceLook>,
    /// Where the sagas stand; absent when admin's own database did not answer in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sagas: Option<SagasLook>,
    /// What is parked; absent when admin's own database did not answer in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_letters: Option<DeadLettersLook>,
    /// The last look at the books, or one before that found them wrong, if it could not tell; absent when nobody has
    /// audited yet, or something was settled outside or accepted since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub books: Option<BooksLook>,
    /// Messages that admin has still to hear: so far is what it says of sagas and dead letters behind. Absent when the
    /// broker does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
    /// What could not be asked within the time that there is for a look, and is missing here.
    pub not_asked: Vec<NotAsked>,
}

/// Something that could not be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NotAsked {
    /// What is not known: `sagas`, `dead letters` or `books`.
    pub what: String,
    /// Why.
    pub problem: String,
}

/// How one service is. Of one that does not answer nothing is known but that.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceLook {
    /// Its name, such as `order`.
    pub service: String,
    /// It takes what it promises to take.
    pub ready: bool,
    /// Something is wrong, and it does what it promises all the same.
    pub degraded: bool,
    /// Why it does not answer; absent when it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Which build runs there; absent when it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Every check by its name, and what it found.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub checks: BTreeMap<String, CheckLook>,
    /// Its checks that found something wrong.
    #[serde(default)]
    pub complaints: Vec<Complaint>,
    /// What it says of how it was set up, and nothing to be done about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// What waits to be published; absent when it cannot be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outbox: Option<OutboxLook>,
    /// Its calls to the outside; absent when they cannot be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<CallsLook>,
    /// Messages that wait for another try; absent when they cannot be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u64>,
    /// What its steps have waiting.
    #[serde(default)]
    pub steps: Vec<StepLook>,
    /// Its breakers that are not closed, or are held closed by somebody.
    #[serde(default)]
    pub breakers: Vec<BreakerLook>,
    /// What is broken in it on purpose.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<FaultLook>,
}

impl ServiceLook {
    /// The faults that are injected here in one line, as far as it goes; `None` when none is.
    #[must_use]
    pub fn faults_in_words(&self) -> Option<String> {
        let (first, more) = self.faults.split_at(self.faults.len().min(MOST_FAULTS_NAMED));
        let named = first.iter().map(|fault| match &fault.step {
            Some(step) => format!("{} of {step}", fault.kind),
            None => fault.kind.clone(),
        });
        let more = (!more.is_empty()).then(|| format!("{} more", more.len()));
        let named = named.chain(more).collect::<Vec<_>>().join(", ");
        let count = counted(self.faults.len() as u64, "fault is injected", "faults are injected");
        (!self.faults.is_empty()).then(|| format!("{count} at {}: {named}", self.service))
    }
}

/// Faults of one service that are named in a line.
const MOST_FAULTS_NAMED: usize = 3;

/// A fault that was injected, and is active.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FaultLook {
    /// What goes wrong, such as `pause`.
    pub kind: String,
    /// In which step; absent when in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckLook {
    /// `ok`, `degraded`, or `failed`, which ends the service's readiness.
    pub state: String,
    /// What is wrong, in a sentence; `ok` when nothing is.
    pub text: String,
    /// Since when it stands so.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
}

/// A check that found something wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Complaint {
    /// Name of the check, such as `broker`.
    pub check: String,
    /// It ends the service's readiness; otherwise it degrades it.
    pub failed: bool,
    /// What is wrong, in a sentence.
    pub text: String,
    /// Since when.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
}

/// What a service has still to publish.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutboxLook {
    /// Entries that wait.
    pub pending: u64,
    /// When the oldest of them was written; absent when none waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub oldest: Option<Timestamp>,
    /// Entries that the broker refused for good, and those held behind them.
    pub failed: u64,
}

/// Calls to the outside that are not answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallsLook {
    /// How many there are.
    pub open: u64,
    /// When the oldest of them was written; absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub oldest: Option<Timestamp>,
}

/// What a step has waiting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StepLook {
    /// Its name, unique in the whole system.
    pub step: String,
    /// Messages that the broker has for it; absent when the broker does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<u64>,
    /// Since when messages wait and it settles none; absent when it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub stalled_since: Option<Timestamp>,
    /// An injected fault holds it back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

/// A breaker that is not closed, or is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BreakerLook {
    /// The step or dependency that it stands before.
    pub name: String,
    /// `OPEN`, `HALF_OPEN`, `FORCED_OPEN` or `FORCED_CLOSED`.
    pub state: String,
    /// Somebody holds it, until somebody resets it.
    pub forced: bool,
    /// Since when it has not been closed, probes that failed included; since it was forced, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
    /// What caused its last change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Where the sagas stand.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SagasLook {
    /// How many there are in each status.
    pub by_status: BTreeMap<String, u64>,
    /// Whether those that have ended are counted too: not when that would take long.
    pub ended_counted: bool,
    /// Those that should have ended [`GRACE`] ago and have not, but for those that failed.
    pub overdue: u64,
    /// The oldest that has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<OldestSaga>,
}

/// The oldest saga that has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OldestSaga {
    /// Its id, which is the order's.
    pub id: String,
    /// Where it stands.
    pub status: String,
    /// The step that it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// Since when: its last fact was said then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub waits_since: Option<Timestamp>,
    /// Until when its order waits; absent when nothing ends the waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub waits_until: Option<Timestamp>,
}

/// What is parked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadLettersLook {
    /// Those that wait for a human.
    pub pending: u64,
    /// Those that are being replayed.
    pub replaying: u64,
    /// Those that wait for a human, by cause, the largest groups.
    pub groups: Vec<GroupLook>,
}

/// Dead letters of one cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupLook {
    /// What they have in common.
    pub fingerprint: String,
    /// How many wait for a human.
    pub count: u64,
    /// The service that parked them.
    pub service: String,
    /// The step that failed, or the kind of task.
    pub step: String,
    /// Why the newest of them failed.
    pub reason: String,
    /// Nobody of this system sent them: nobody waits for them, and a replay of them changes nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub foreign: bool,
    /// Id of the newest.
    pub newest: Uuid,
    /// When the newest failed.
    #[schema(value_type = String, format = DateTime)]
    pub newest_at: Timestamp,
    /// Those that a saga still waits for.
    pub awaited: u64,
    /// Those whose saga has ended without them: a replay of them changes nothing.
    pub ended: u64,
    /// When the first of the orders that wait gives up; absent when nothing ends the waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub first_until: Option<Timestamp>,
    /// When the last of them does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_until: Option<Timestamp>,
}

/// Whether everything adds up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, strum::Display)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum Verdict {
    /// Nothing is under way, and everything adds up.
    Balanced,
    /// It cannot be told yet: something is under way, or somebody does not answer. What does not add up may yet.
    InFlight,
    /// Something does not add up, and nothing that is under way can mend it.
    Unbalanced,
}

impl Verdict {
    /// The same in words.
    #[must_use]
    pub const fn headline(self) -> &'static str {
        match self {
            Self::Balanced => "the books balance",
            Self::InFlight => "it cannot be told yet whether the books balance",
            Self::Unbalanced => "THE BOOKS DO NOT BALANCE",
        }
    }
}

/// What the last look at the books said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BooksLook {
    /// `BALANCED`, `IN_FLIGHT` or `UNBALANCED`.
    pub verdict: Verdict,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// How much did not add up.
    pub discrepancies: u64,
}

impl BooksLook {
    /// Whether something does not add up that nothing under way could mend.
    #[must_use]
    pub fn is_unbalanced(&self) -> bool {
        self.verdict == Verdict::Unbalanced
    }
}
