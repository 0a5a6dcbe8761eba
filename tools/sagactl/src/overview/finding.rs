//! Pure: what is wrong, what it means, and the commands that go on from there.

use contract::overview::{BreakerLook, Complaint, GroupLook, RECEIVER, Reason, StepLook, counted, grouped};
use contract::saga;
use contract::topology::OPERATOR;
use serde::Serialize;

use super::seen::Seen;
use crate::output::View;

/// What people end by hand: a command before it shows which orders there are.
const SETTLE_SAGA: &str = "saga settle ORDER --reason \"put right by hand\"";
const RESTORE: &str = "dlq restore --saga ORDER --reason \"it is done after all\"";
const SETTLE_PAYMENT: &str = "payment settle ORDER --reason \"put right by hand\"";

/// Something that somebody must look after.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What is wrong, in one line.
    pub what: String,
    /// What that means, and what may be behind it.
    pub means: String,
    /// Commands that go on from there, in this order, as a shell takes them; `ORDER` in one is an order's id.
    pub commands: Vec<String>,
}

/// Where commands are given.
struct Place<'a> {
    /// How they begin: the program, and which system is meant.
    call: &'a str,
    seen: &'a Seen,
}

impl Place<'_> {
    fn command(&self, words: &str) -> String {
        format!("{} {words}", self.call)
    }

    fn finding(&self, what: String, means: impl Into<String>, commands: &[&str]) -> Finding {
        let commands = commands.iter().map(|words| self.command(words)).collect();
        Finding { what, means: means.into(), commands }
    }

    /// How what is broken on purpose in a service is ended, when something is.
    fn clear(&self, service: &str) -> Option<String> {
        let look = self.seen.of(service).filter(|look| !look.faults.is_empty());
        look.map(|_| format!("faults clear {service}"))
    }

    /// How a service is started anew; of a system elsewhere that is another program's work.
    fn anew(&self, service: &str) -> Vec<String> {
        match &self.seen.down {
            None => vec![],
            Some(_) if self.seen.is_down(service) => vec![format!("start {service}")],
            Some(_) => vec![format!("stop {service}"), format!("start {service}")],
        }
    }
}

/// Everything that is wrong, the gravest first: processes that do not run, then what admin says, or that it does not.
/// `call` is how commands begin.
pub fn findings(seen: &Seen, call: &str, view: &View) -> Vec<Finding> {
    let place = &Place { call, seen };
    let down = seen.down.iter().flatten();
    let mut findings: Vec<_> = down.map(|name| not_running(name, place)).collect();
    if let Some(problem) = seen.problem.as_ref().filter(|_| !seen.is_down("admin")) {
        findings.push(admin_is_silent(problem, place));
    }
    findings.extend(seen.reasons().map(|reason| finding(reason, place, view)));
    findings
}

fn finding(reason: &Reason, place: &Place<'_>, view: &View) -> Finding {
    let what = reason.headline(|at| view.moment(at));
    match reason {
        Reason::Silent { service, .. } => silent(what, service, place),
        Reason::NotReady { service, complaint } => not_ready(what, service, complaint, place),
        Reason::StandsStill { service, step } => stands_still(what, service, step, place),
        Reason::FailedSagas { .. } => place.finding(
            what,
            "Stock or money is not where it belongs until what is parked has been handled. No deadline ends the waiting. \
             What was given up is taken up again. What can never go through is done by hand, and then settled.",
            &["saga list --status FAILED", "dlq groups", "dlq list --status DISCARDED", RESTORE, SETTLE_SAGA],
        ),
        Reason::DeadLetters { group } => dead_letter_group(what, group, place, view),
        Reason::MoreDeadLetters { .. } => {
            place.finding(what, "There are more causes than are shown here.", &["dlq groups --limit 200"])
        }
        Reason::FailedOutbox { service, .. } => place.finding(
            what,
            "Sagas wait for messages that the broker will not take: too large, no such stream, no permission. Mend that, \
             then have them published after all.",
            &["outbox list", &format!("outbox retry {service} --reason \"the cause is mended\"")],
        ),
        Reason::Breaker { service, breaker } if service == OPERATOR && breaker.name == RECEIVER => {
            unheard(what, place)
        }
        Reason::Breaker { service, breaker } => held(what, service, breaker, place),
        Reason::OverdueCalls { service, .. } if service == OPERATOR => unheard(what, place),
        Reason::OverdueCalls { .. } => place.finding(
            what,
            "What is called does not answer, or its breaker lets nothing through. The calls are repeated under the same \
             key until it does. What is never answered is done by hand, and then settled.",
            &["breakers", "faults", "saga list --status COMPENSATING", SETTLE_PAYMENT],
        ),
        Reason::OverdueSagas { .. } => place.finding(
            what,
            "Whoever owes the next step has not done it, and nothing that is parked explains it. See which step it is. \
             What nobody does is done by hand, and then settled.",
            &["saga list --overdue", "audit --wait 5s", SETTLE_SAGA],
        ),
        Reason::Unbalanced { .. } => place.finding(
            what,
            "Orders, stock, money or messages disagree, and nothing under way mends that. The next audit says whether \
             they still do, in what, and what mends it. What nothing mends is put right by hand, and then settled.",
            &["audit --wait 5s", SETTLE_SAGA],
        ),
        Reason::Unknown { .. } => {
            place.finding(what, "It was not answered in time. Look again.", &["status", "dlq count"])
        }
    }
}

fn not_running(name: &str, place: &Place<'_>) -> Finding {
    let means = match name {
        "nats" => "Without the broker orders are taken and wait in the outboxes. Nothing is lost.",
        _ => while_away(name),
    };
    let why = place.seen.why_down.get(name).map(|why| format!("\nWhy: {why}")).unwrap_or_default();
    place.finding(format!("{name} does not run"), format!("{means}{why}"), &[&format!("start {name}")])
}

fn while_away(service: &str) -> &'static str {
    if service == OPERATOR {
        "The view of sagas, the dead letters and the notices stand still until it is back. Orders go on without it."
    } else {
        "What is told to it waits, and is handled when it is back. Orders that need it wait until their deadline."
    }
}

fn admin_is_silent(problem: &str, place: &Place<'_>) -> Finding {
    let anew = place.anew("admin");
    let commands: Vec<_> = anew.iter().map(String::as_str).collect();
    let means = "Nobody can tell how sagas, dead letters and services are until it answers again. They go on without it.";
    place.finding(format!("admin cannot be asked: {problem}"), means, &commands)
}

fn silent(what: String, service: &str, place: &Place<'_>) -> Finding {
    let anew = place.anew(service);
    let commands: Vec<_> = anew.iter().map(String::as_str).collect();
    let means = format!("{} Its log says why it is silent.", while_away(service));
    place.finding(what, means, &commands)
}

fn not_ready(what: String, service: &str, complaint: &Complaint, place: &Place<'_>) -> Finding {
    let anew = place.anew(service);
    let again: Vec<_> = anew.iter().map(String::as_str).collect();
    match complaint.check.as_str() {
        "store" => place.finding(
            what,
            "Its database cannot be asked: commands get 503, messages wait at the broker. Its log says what the \
             database said.",
            &again,
        ),
        "startup" => place.finding(
            what,
            "Since its start it has not reached the broker, and begins nothing before. See that the broker runs.",
            &["status"],
        ),
        "overload" => place.finding(
            what,
            "It refuses what it is there for, so that it does not promise more than it can publish.",
            &["outbox list"],
        ),
        "consumer_stall" => place.finding(what, "What is told to it lies at the broker.", &["breakers", "faults"]),
        _ => place.finding(what, "It does not take what it promises to take.", &again),
    }
}

fn stands_still(what: String, service: &str, step: &StepLook, place: &Place<'_>) -> Finding {
    let clear = place.clear(service).filter(|_| step.paused);
    let is_held = clear.is_some();
    let mut words = vec![clear.unwrap_or_else(|| "faults".to_owned())];
    if saga::steps().any(|known| known == step.step) {
        words.push(format!("saga list --stuck-at {}", step.step));
    }
    let means = if is_held {
        "Somebody paused it on purpose, and it stays so until that is cleared. It goes on where it was then. Orders that \
         need it wait until their deadline."
    } else {
        words.extend(place.anew(service));
        "No breaker holds it back, and it settles nothing. Started anew it goes on where it was."
    };
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    place.finding(what, means, &words)
}

fn held(what: String, service: &str, breaker: &BreakerLook, place: &Place<'_>) -> Finding {
    let reset = format!("breakers reset {service}/{}", breaker.name);
    if breaker.forced {
        let means = "Somebody holds it, and it stays so until somebody resets it. The log says who, and why.";
        return place.finding(what, means, &["log", &reset]);
    }
    let why = breaker.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
    let means = format!(
        "What it stands before keeps failing{why}. Nothing is pulled meanwhile, and no attempt is consumed. Mend what \
         fails; it closes by itself then, sooner when it is reset."
    );
    place.finding(what, means, &["breakers", "faults", &reset])
}

/// Admin calls nobody but the receiver of notices.
fn unheard(what: String, place: &Place<'_>) -> Finding {
    let means = "The receiver of notices does not take them: nobody is told anything by itself. What is to be told is \
                 kept, and sent once it does.";
    place.finding(what, means, &["push", "push test"])
}

fn dead_letter_group(what: String, group: &GroupLook, place: &Place<'_>, view: &View) -> Finding {
    let GroupLook { fingerprint, newest, .. } = group;
    // What was planted fails again after any replay.
    let planted = place.clear(&group.service).filter(|_| group.reason.contains("injected: "));
    let mut words: Vec<_> = planted.into_iter().collect();
    words.push(format!("dlq show {newest}"));
    if group.first_until.is_some() {
        words.push(format!(
            "saga extend --fingerprint {fingerprint} --for 10m --reason \"time to mend the cause\""
        ));
    }
    if group.awaited == 0 {
        let because = if group.foreign { "nobody of ours sent it" } else { "nobody waits for it" };
        words.push(format!("dlq discard --fingerprint {fingerprint} --reason \"{because}\""));
    } else {
        words.push(format!("dlq redrive --fingerprint {fingerprint} --preview"));
        words.push(format!("dlq redrive --fingerprint {fingerprint} --reason \"the cause is mended\""));
        if group.last_until.is_none() {
            words.push(format!("dlq settle --fingerprint {fingerprint} --reason \"put right by hand\""));
        }
    }
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let means = format!("Cause: {}\n{}", group.reason, awaited(group, view));
    place.finding(what, means, &words)
}

/// How many still wait for the dead letters of a group, and how long.
fn awaited(group: &GroupLook, view: &View) -> String {
    let ended = match group.ended {
        0 => String::new(),
        count => format!(" {} ended without them: a replay of those changes nothing.", sagas(count)),
    };
    let newest = view.moment(group.newest_at);
    let until = match (group.first_until, group.last_until) {
        (Some(first), Some(last)) if first != last => {
            format!("; the first gives up {}, the last {}", view.moment(first), view.moment(last))
        }
        (Some(until), _) | (None, Some(until)) => format!("; it gives up {}", view.moment(until)),
        (None, None) if group.awaited > 0 => {
            ", and nothing ends the waiting: what can never go through is done by hand, and then settled"
                .to_owned()
        }
        (None, None) => String::new(),
    };
    let waiting = match group.awaited {
        0 if group.foreign => {
            return format!(
                "Nobody of this system sent them: nobody waits for them, and a replay changes nothing. See who else can \
                 publish at the broker. The newest came {newest}."
            );
        }
        0 => "No saga waits for them any more.".to_owned(),
        1 => format!("1 is still waited for{until}."),
        count => format!("{} are still waited for{until}.", grouped(count)),
    };
    format!("{waiting}{ended} The newest failed {newest}.")
}

fn sagas(count: u64) -> String {
    counted(count, "saga", "sagas")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use contract::overview::{BooksLook, CallsLook, FaultLook, NotAsked, Overview, ServiceLook, Verdict};
    use jiff::{SignedDuration, Timestamp};
    use uuid::Uuid;

    use super::super::shown;
    use super::*;
    use crate::command::Arguments;

    const CALL: &str = "sagactl --data /data";

    fn at(second: i64) -> Timestamp {
        "2026-11-20T14:18:00Z".parse::<Timestamp>().expect("a time") + SignedDuration::from_secs(second)
    }

    fn complaint(check: &str) -> Complaint {
        Complaint { check: check.to_owned(), failed: true, text: "is odd".to_owned(), since: at(0) }
    }

    fn group(awaited: u64, until: Option<(i64, i64)>) -> GroupLook {
        GroupLook {
            fingerprint: "3f2a".to_owned(),
            count: 1_234,
            service: "payment".to_owned(),
            step: "payment-processing".to_owned(),
            reason: "injected: fail_permanently".to_owned(),
            foreign: false,
            newest: Uuid::from_u128(7),
            newest_at: at(30),
            awaited,
            ended: 1_234 - awaited,
            first_until: until.map(|(first, _)| at(first)),
            last_until: until.map(|(_, last)| at(last)),
        }
    }

    /// What is no message of anybody here.
    fn foreign() -> GroupLook {
        let reason = "not an envelope: expected value at line 1".to_owned();
        GroupLook { foreign: true, reason, ..group(0, None) }
    }

    fn breaker(forced: bool) -> BreakerLook {
        let state = if forced { "FORCED_OPEN" } else { "OPEN" }.to_owned();
        let why = Some("6 of 10 calls failed".to_owned());
        BreakerLook { name: "bank".to_owned(), state, forced, since: Some(at(0)), why }
    }

    /// One of every kind, some in more than one shape.
    fn every_reason() -> Vec<Reason> {
        let payment = || "payment".to_owned();
        let not_ready = |check: &str| Reason::NotReady { service: payment(), complaint: complaint(check) };
        let step = StepLook {
            step: "payment-processing".to_owned(),
            waiting: Some(3),
            stalled_since: Some(at(0)),
            paused: false,
        };
        let books = BooksLook { verdict: Verdict::Unbalanced, at: at(0), discrepancies: 2 };
        let not_asked = NotAsked {
            what: "dead letters".to_owned(),
            problem: "admin's database does not answer within 1.5 s".to_owned(),
        };
        let mut reasons: Vec<_> =
            ["store", "startup", "overload", "consumer_stall", "other"].into_iter().map(not_ready).collect();
        reasons.extend([
            Reason::Silent { service: payment(), problem: "payment does not answer: refused".to_owned() },
            Reason::Silent { service: "bank".to_owned(), problem: "told by its process".to_owned() },
            Reason::StandsStill { service: payment(), step: step.clone() },
            Reason::StandsStill { service: payment(), step: StepLook { paused: true, ..step } },
            Reason::FailedSagas { count: 1 },
            Reason::DeadLetters { group: group(1_000, Some((60, 90))) },
            Reason::DeadLetters { group: group(1, Some((60, 60))) },
            Reason::DeadLetters { group: group(1_234, None) },
            Reason::DeadLetters { group: group(0, None) },
            Reason::DeadLetters { group: foreign() },
            Reason::MoreDeadLetters { count: 2 },
            Reason::FailedOutbox { service: payment(), count: 1 },
            Reason::Breaker { service: payment(), breaker: breaker(false) },
            Reason::Breaker { service: payment(), breaker: breaker(true) },
            Reason::OverdueCalls { service: payment(), calls: CallsLook { open: 2, oldest: Some(at(0)) } },
            Reason::Breaker {
                service: "admin".to_owned(),
                breaker: BreakerLook { name: RECEIVER.to_owned(), ..breaker(false) },
            },
            Reason::OverdueCalls {
                service: "admin".to_owned(),
                calls: CallsLook { open: 1, oldest: Some(at(0)) },
            },
            Reason::OverdueSagas { count: 2 },
            Reason::Unbalanced { books },
            Reason::Unknown { not_asked },
        ]);
        reasons
    }

    fn seen() -> Seen {
        let fault = FaultLook { kind: "pause".to_owned(), step: Some("payment-processing".to_owned()) };
        let payment = ServiceLook {
            service: "payment".to_owned(),
            faults: vec![fault.clone(), fault],
            ..ServiceLook::default()
        };
        let overview = Overview {
            at: at(40),
            needs_human: true,
            reasons: every_reason(),
            services: vec![payment],
            sagas: None,
            dead_letters: None,
            books: None,
            behind: None,
            not_asked: vec![],
        };
        let down = Some(vec!["nats".to_owned(), "bank".to_owned()]);
        Seen { down, overview: Some(overview), ..Seen::default() }
    }

    /// Words as a shell would hand them over: quotes hold them together.
    fn words(command: &str) -> Vec<String> {
        let in_quotes = command.split('"').enumerate();
        let words = in_quotes.flat_map(|(index, part)| match index % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect::<Vec<_>>(),
            _ => vec![part.to_owned()],
        });
        words.collect()
    }

    #[test]
    fn every_kind_of_finding_says_what_it_means_and_how_to_go_on() {
        let found = findings(&seen(), CALL, &View::FILE);
        assert_eq!(found.len(), every_reason().len() + 1, "the bank is told once, and nats beside");
        assert!(found.iter().all(|finding| !finding.means.is_empty() && !finding.commands.is_empty()));
        insta::assert_snapshot!("doctor", shown::doctor(&found, &seen().faults(CALL)));
    }

    #[test]
    fn what_is_told_can_be_typed() {
        for Finding { what, commands, .. } in findings(&seen(), CALL, &View::FILE) {
            for command in commands {
                let named = command.replace("ORDER", &Uuid::nil().to_string());
                let parsed = Arguments::try_parse_from(words(&named));
                assert!(parsed.is_ok(), "{what}: {command}: {}", parsed.expect_err("refused"));
            }
        }
    }

    /// A refund that is refused for good, a call that is never answered, books that nothing mends: people end those.
    #[test]
    fn where_nothing_may_come_by_itself_an_ending_by_hand_is_named() {
        let overview = |reasons| Some(Overview { reasons, ..seen().overview.expect("an overview") });
        let settled = |reason: Reason| {
            let seen = Seen { overview: overview(vec![reason]), ..Seen::default() };
            let found = findings(&seen, "sagactl", &View::FILE);
            let commands = found.into_iter().flat_map(|finding| finding.commands);
            commands.filter(|command| command.contains(" settle ")).collect::<Vec<_>>().join("; ")
        };
        let saga = "sagactl saga settle ORDER --reason \"put right by hand\"";
        let books = BooksLook { verdict: Verdict::Unbalanced, at: at(0), discrepancies: 2 };
        assert_eq!(settled(Reason::Unbalanced { books }), saga);
        assert_eq!(settled(Reason::FailedSagas { count: 1 }), saga);
        assert_eq!(settled(Reason::OverdueSagas { count: 1 }), saga);
        let calls = CallsLook { open: 2, oldest: Some(at(0)) };
        let calls_of =
            |service: &str| Reason::OverdueCalls { service: service.to_owned(), calls: calls.clone() };
        assert_eq!(settled(calls_of("payment")), saga.replace("saga settle", "payment settle"));
        assert_eq!(settled(calls_of("admin")), "", "nobody waits for a notice");
        let parked = |awaited, until| Reason::DeadLetters { group: group(awaited, until) };
        assert_eq!(
            settled(parked(1, None)),
            "sagactl dlq settle --fingerprint 3f2a --reason \"put right by hand\""
        );
        assert_eq!(settled(parked(1, Some((60, 90)))), "", "their deadline ends it");
        assert_eq!(settled(parked(0, None)), "", "nobody waits");
        assert_eq!(settled(Reason::DeadLetters { group: foreign() }), "", "nobody sent it");
    }

    #[test]
    fn what_failed_on_purpose_is_first_made_to_fail_no_more() {
        let first = |reason: &str, faults: bool| {
            let mut overview = seen().overview.expect("an overview");
            let group = GroupLook { reason: reason.to_owned(), ..group(1, None) };
            overview.reasons = vec![Reason::DeadLetters { group }];
            overview.services.retain(|_| faults);
            let seen = Seen { overview: Some(overview), ..Seen::default() };
            findings(&seen, "sagactl", &View::FILE)[0].commands[0].clone()
        };
        let injected = "injected: fail_permanently";
        assert_eq!(first(injected, true), "sagactl faults clear payment");
        assert!(first(injected, false).contains(" dlq show "), "it is used up, or was cleared");
        assert!(first("no such order", true).contains(" dlq show "));
    }

    #[test]
    fn of_a_system_elsewhere_no_process_is_started() {
        let elsewhere = Seen { down: None, ..seen() };
        let found = findings(&elsewhere, "sagactl --admin http://host:1/", &View::FILE);
        let commands: Vec<_> = found.iter().flat_map(|finding| &finding.commands).collect();
        assert!(commands.iter().all(|command| !command.contains(" start ") && !command.contains(" stop ")));
        assert_eq!(found.len(), every_reason().len());
    }

    #[test]
    fn an_admin_that_does_not_answer_is_a_finding_and_then_nothing_else_is_known() {
        let problem = Some("nobody answers".to_owned());
        let silent = Seen { down: Some(vec![]), problem, ..Seen::default() };
        let found = findings(&silent, CALL, &View::FILE);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].what, "admin cannot be asked: nobody answers");
        assert_eq!(
            found[0].commands,
            ["sagactl --data /data stop admin", "sagactl --data /data start admin"]
        );
        let stopped = Seen { down: Some(vec!["admin".to_owned()]), ..silent };
        let found = findings(&stopped, CALL, &View::FILE);
        assert_eq!(found.len(), 1, "that it does not run says it all");
        assert!(found[0].means.ends_with("Orders go on without it."), "{}", found[0].means);
        assert!(stopped.needs_human());
    }

    #[test]
    fn of_what_does_not_run_it_is_said_why_as_far_as_that_is_known() {
        let said = "payment: the database has schema 9, this build knows 7";
        let why_down = [("payment".to_owned(), said.to_owned())].into();
        let down = Some(vec!["bank".to_owned(), "payment".to_owned()]);
        let found = findings(&Seen { down, why_down, ..seen() }, CALL, &View::FILE);
        assert!(
            !found[0].means.contains("Why:") && found[1].means.ends_with(&format!("Why: {said}")),
            "{found:#?}"
        );
    }

    #[test]
    fn nothing_wrong_is_said_too() {
        assert!(shown::doctor(&[], &[]).starts_with("nobody is needed"));
        let told = shown::doctor(&[], &["1 fault is injected".to_owned()]);
        assert!(told.starts_with("nobody is needed") && told.ends_with("\n1 fault is injected\n"), "{told}");
    }
}
