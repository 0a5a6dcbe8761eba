//! Pure: why somebody must do something, folded from one look at everything: what mends itself is no reason.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    BREAKER_PATIENCE, BooksLook, BreakerLook, CALL_PATIENCE, CallsLook, Complaint, GroupLook, NotAsked,
    Overview, ServiceLook, StepLook,
};

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
    /// Messages wait for a step, nothing but an injected fault holds it back, and it settles none.
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
    /// Sagas should have ended [`GRACE`](super::GRACE) ago and have not.
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
    let still = service.steps.iter().filter(|step| step.stalled_since.is_some());
    let mut reasons: Vec<_> =
        still.map(|step| Reason::StandsStill { service: name(), step: step.clone() }).collect();
    let is_told = !reasons.is_empty();
    let failed = service.complaints.iter().filter(|complaint| complaint.failed);
    let other = failed.filter(|complaint| complaint.check != "consumer_stall" || !is_told);
    reasons.extend(other.map(|complaint| Reason::NotReady { service: name(), complaint: complaint.clone() }));
    reasons
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::SignedDuration;
    use uuid::Uuid;

    use super::*;
    use crate::overview::{DeadLettersLook, FaultLook, OutboxLook, SagasLook, Verdict};

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
            one.faults = vec![FaultLook { kind: "pause".to_owned(), step: None }];
        });
        assert_eq!(degraded, [""; 0]);
    }

    #[test]
    fn injected_faults_are_told_in_one_line_however_many_they_are() {
        let named = |faults: &[(&str, Option<&str>)]| {
            let fault = |(kind, step): &(&str, Option<&str>)| FaultLook {
                kind: (*kind).to_owned(),
                step: step.map(str::to_owned),
            };
            ServiceLook { faults: faults.iter().map(fault).collect(), ..service() }.faults_in_words()
        };
        assert_eq!(named(&[]), None);
        let pause = ("pause", Some("payment-processing"));
        let one = "1 fault is injected at payment: pause of payment-processing";
        assert_eq!(named(&[pause]).as_deref(), Some(one));
        let many = "5 faults are injected at payment: pause of payment-processing, delay, delay, 2 more";
        assert_eq!(named(&[pause, ("delay", None), ("delay", None), pause, pause]).as_deref(), Some(many));
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
            stalled_since: Some(at(900)),
            paused: false,
        };
        let told = of_one(|one| {
            one.steps = vec![still];
            one.complaints = vec![complaint("consumer_stall", true), complaint("store", true)];
        });
        assert_eq!(told, ["stands_still", "not_ready"]);
        assert_eq!(of_one(|one| one.complaints = vec![complaint("consumer_stall", true)]), ["not_ready"]);
    }

    #[test]
    fn sagas_dead_letters_and_books_need_somebody_too_and_so_does_what_nobody_knows() {
        let group = GroupLook {
            fingerprint: "f".to_owned(),
            count: 2,
            service: "payment".to_owned(),
            step: "payment-processing".to_owned(),
            reason: "no".to_owned(),
            foreign: false,
            newest: Uuid::nil(),
            newest_at: at(1),
            awaited: 1,
            ended: 1,
            first_until: None,
            last_until: None,
        };
        let mut all = overview(vec![]);
        let by_status = BTreeMap::from([("FAILED".to_owned(), 1), ("DEAD_LETTERED".to_owned(), 2)]);
        all.sagas = Some(SagasLook { by_status, ended_counted: true, overdue: 4, oldest: None });
        all.dead_letters = Some(DeadLettersLook { pending: 5, replaying: 1, groups: vec![group] });
        all.books = Some(BooksLook { verdict: Verdict::Unbalanced, at: at(2), discrepancies: 1 });
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
