//! Pure: how the whole system is, in one look, as the operators' service tells it: what is there to see, and whether
//! somebody must do something.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// What is past its time for so long is overdue: nothing under way needs longer to notice.
pub const GRACE: SignedDuration = SignedDuration::from_secs(30);

/// A breaker that does not close for so long does not mend itself.
pub const BREAKER_PATIENCE: SignedDuration = SignedDuration::from_mins(1);

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
    /// The last look at the books; absent when nobody has audited since admin started, which remembers no longer.
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
    /// A service, or what of it.
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
    /// Its checks that found something wrong.
    #[serde(default)]
    pub complaints: Vec<Complaint>,
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
    pub stands_still_since: Option<Timestamp>,
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

/// What the last look at the books said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BooksLook {
    /// `BALANCED`, `IN_FLIGHT` or `UNBALANCED`.
    pub verdict: String,
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
        self.verdict == "UNBALANCED"
    }
}

/// Why somebody must do something: it does not mend itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    /// A service does not answer.
    Silent {
        /// Its name.
        service: String,
        /// How that shows.
        problem: String,
    },
    /// A service does not take what it promises to take.
    NotReady {
        /// Its name.
        service: String,
        /// The check that failed.
        complaint: Complaint,
    },
    /// Messages wait for a step, nothing holds it back, and it settles none.
    StandsStill {
        /// The service whose step it is.
        service: String,
        /// The step.
        step: StepLook,
    },
    /// Compensations are parked: stock or money is not where it belongs.
    FailedSagas {
        /// How many.
        count: u64,
    },
    /// Dead letters of one cause wait.
    DeadLetters {
        /// What they have in common.
        group: GroupLook,
    },
    /// More dead letters wait than the groups shown hold.
    MoreDeadLetters {
        /// How many more.
        count: u64,
    },
    /// The broker refused messages for good.
    FailedOutbox {
        /// The service that promised them.
        service: String,
        /// How many, with those held behind them.
        count: u64,
    },
    /// A breaker has not closed for [`BREAKER_PATIENCE`], or somebody holds it.
    Breaker {
        /// The service that has it.
        service: String,
        /// The breaker.
        breaker: BreakerLook,
    },
    /// A call to the outside has been open for [`CALL_PATIENCE`].
    OverdueCalls {
        /// The service that calls.
        service: String,
        /// Its open calls.
        calls: CallsLook,
    },
    /// Sagas should have ended [`GRACE`] ago and have not.
    OverdueSagas {
        /// How many.
        count: u64,
    },
    /// At the last look something did not add up that nothing under way could mend.
    Unbalanced {
        /// That look.
        books: BooksLook,
    },
    /// Nobody knows: it could not be asked.
    Unknown {
        /// What could not be.
        not_asked: NotAsked,
    },
}

impl Overview {
    /// The same with what follows from it: why somebody must do something.
    #[must_use]
    pub fn judged(self) -> Self {
        let reasons = self.reasons_now();
        Self { needs_human: !reasons.is_empty(), reasons, ..self }
    }

    fn reasons_now(&self) -> Vec<Reason> {
        let mut reasons: Vec<_> = self.services.iter().flat_map(readiness_of).collect();
        let sagas = self.sagas.clone().unwrap_or_default();
        let failed = sagas.by_status.get("FAILED").copied().unwrap_or(0);
        reasons.extend((failed > 0).then_some(Reason::FailedSagas { count: failed }));
        if let Some(parked) = &self.dead_letters {
            let shown: u64 = parked.groups.iter().map(|group| group.count).sum();
            let more = parked.pending.saturating_sub(shown);
            reasons.extend(parked.groups.iter().cloned().map(|group| Reason::DeadLetters { group }));
            reasons.extend((more > 0).then_some(Reason::MoreDeadLetters { count: more }));
        }
        reasons.extend(self.services.iter().flat_map(|service| self.backlog_of(service)));
        let overdue = (sagas.overdue > 0).then_some(Reason::OverdueSagas { count: sagas.overdue });
        reasons.extend(overdue);
        let unbalanced = self.books.clone().filter(BooksLook::is_unbalanced);
        reasons.extend(unbalanced.map(|books| Reason::Unbalanced { books }));
        reasons.extend(self.not_asked.iter().cloned().map(|not_asked| Reason::Unknown { not_asked }));
        reasons
    }

    fn backlog_of(&self, service: &ServiceLook) -> Vec<Reason> {
        let name = || service.service.clone();
        let failed = service.outbox.as_ref().map_or(0, |outbox| outbox.failed);
        let mut reasons = Vec::new();
        reasons.extend((failed > 0).then(|| Reason::FailedOutbox { service: name(), count: failed }));
        let is_long = |since: Option<Timestamp>, patience| {
            since.is_some_and(|since| self.at.duration_since(since) > patience)
        };
        let held = service
            .breakers
            .iter()
            .filter(|breaker| breaker.forced || is_long(breaker.since, BREAKER_PATIENCE));
        reasons.extend(held.map(|breaker| Reason::Breaker { service: name(), breaker: breaker.clone() }));
        let late = service.calls.as_ref().filter(|calls| is_long(calls.oldest, CALL_PATIENCE));
        reasons.extend(late.map(|calls| Reason::OverdueCalls { service: name(), calls: calls.clone() }));
        reasons
    }
}

/// What is wrong with a service as a whole. A step that stands still is named instead of the check that tells it.
fn readiness_of(service: &ServiceLook) -> Vec<Reason> {
    let name = || service.service.clone();
    if let Some(problem) = &service.problem {
        return vec![Reason::Silent { service: name(), problem: problem.clone() }];
    }
    let still = service.steps.iter().filter(|step| step.stands_still_since.is_some());
    let mut reasons: Vec<_> =
        still.map(|step| Reason::StandsStill { service: name(), step: step.clone() }).collect();
    let is_told = !reasons.is_empty();
    let failed = service.complaints.iter().filter(|complaint| complaint.failed);
    let other = failed.filter(|complaint| complaint.check != "steps" || !is_told);
    reasons.extend(other.map(|complaint| Reason::NotReady { service: name(), complaint: complaint.clone() }));
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
    }

    fn service() -> ServiceLook {
        ServiceLook { service: "payment".to_owned(), ready: true, ..ServiceLook::default() }
    }

    fn overview(services: Vec<ServiceLook>) -> Overview {
        Overview {
            at: at(1_000),
            needs_human: false,
            reasons: vec![],
            services,
            sagas: Some(SagasLook::default()),
            dead_letters: Some(DeadLettersLook::default()),
            books: None,
            behind: Some(0),
            not_asked: vec![],
        }
    }

    fn names(overview: Overview) -> Vec<String> {
        let judged = overview.judged();
        assert_eq!(judged.needs_human, !judged.reasons.is_empty());
        let name = |reason: &Reason| serde_json::to_value(reason).expect("JSON")["reason"].clone();
        judged.reasons.iter().map(|reason| name(reason).as_str().expect("a name").to_owned()).collect()
    }

    fn of_one(change: impl FnOnce(&mut ServiceLook)) -> Vec<String> {
        let mut one = service();
        change(&mut one);
        names(overview(vec![one]))
    }

    fn complaint(check: &str, failed: bool) -> Complaint {
        Complaint { check: check.to_owned(), failed, text: "is odd".to_owned(), since: at(0) }
    }

    fn breaker(since: i64, forced: bool) -> BreakerLook {
        BreakerLook {
            name: "bank".to_owned(),
            state: "OPEN".to_owned(),
            forced,
            since: Some(at(since)),
            why: None,
        }
    }

    #[test]
    fn nobody_is_needed_while_all_is_well_or_something_is_merely_late() {
        assert_eq!(names(overview(vec![service()])), [""; 0]);
        let degraded = of_one(|one| {
            (one.degraded, one.complaints) = (true, vec![complaint("broker", false)]);
            one.outbox = Some(OutboxLook { pending: 9, oldest: Some(at(0)), failed: 0 });
            one.breakers = vec![breaker(940, false)];
            one.calls = Some(CallsLook { open: 3, oldest: Some(at(910)) });
        });
        assert_eq!(degraded, [""; 0]);
    }

    #[test]
    fn whatever_does_not_mend_itself_needs_somebody() {
        assert_eq!(of_one(|one| one.problem = Some("does not answer".to_owned())), ["silent"]);
        assert_eq!(of_one(|one| one.complaints = vec![complaint("store", true)]), ["not_ready"]);
        let failed = Some(OutboxLook { pending: 0, oldest: None, failed: 2 });
        assert_eq!(of_one(|one| one.outbox = failed), ["failed_outbox"]);
        assert_eq!(of_one(|one| one.breakers = vec![breaker(939, false)]), ["breaker"]);
        assert_eq!(of_one(|one| one.breakers = vec![breaker(1_000, true)]), ["breaker"]);
        let calls = Some(CallsLook { open: 1, oldest: Some(at(909)) });
        assert_eq!(of_one(|one| one.calls = calls), ["overdue_calls"]);
    }

    #[test]
    fn a_step_that_stands_still_is_named_and_not_told_twice() {
        let still = StepLook {
            step: "payment-processing".to_owned(),
            waiting: Some(3),
            stands_still_since: Some(at(900)),
        };
        let told = of_one(|one| {
            one.steps = vec![still];
            one.complaints = vec![complaint("steps", true), complaint("store", true)];
        });
        assert_eq!(told, ["stands_still", "not_ready"]);
        assert_eq!(of_one(|one| one.complaints = vec![complaint("steps", true)]), ["not_ready"]);
    }

    #[test]
    fn sagas_dead_letters_and_books_need_somebody_too_and_so_does_what_nobody_knows() {
        let group = GroupLook {
            fingerprint: "f".to_owned(),
            count: 2,
            service: "payment".to_owned(),
            step: "payment-processing".to_owned(),
            reason: "no".to_owned(),
            newest: Uuid::nil(),
            newest_at: at(1),
            awaited: 1,
            ended: 1,
            first_until: None,
            last_until: None,
        };
        let mut all = overview(vec![]);
        let by_status = BTreeMap::from([("FAILED".to_owned(), 1), ("PARKED".to_owned(), 2)]);
        all.sagas = Some(SagasLook { by_status, ended_counted: true, overdue: 4, oldest: None });
        all.dead_letters = Some(DeadLettersLook { pending: 5, replaying: 1, groups: vec![group] });
        all.books = Some(BooksLook { verdict: "UNBALANCED".to_owned(), at: at(2), discrepancies: 1 });
        all.not_asked =
            vec![NotAsked { what: "dead letters".to_owned(), problem: "took too long".to_owned() }];
        let wanted =
            ["failed_sagas", "dead_letters", "more_dead_letters", "overdue_sagas", "unbalanced", "unknown"];
        assert_eq!(names(all), wanted);
        let mut replaying = overview(vec![]);
        replaying.dead_letters = Some(DeadLettersLook { pending: 0, replaying: 3, groups: vec![] });
        assert_eq!(names(replaying), [""; 0], "a replay is under way");
    }
}
