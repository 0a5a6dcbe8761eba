//! Pure: what of one look at everything somebody must know of, each under a key that stays the same from look to look;
//! and what this look says nothing about, because it could not be asked.

use std::collections::BTreeMap;
use std::fmt::Display;

use contract::overview::{BooksLook, GroupLook, Overview, Reason, ServiceLook};
use jiff::Timestamp;

use super::notice::NOTICE;

/// What calls the receiver of notices, and its breaker.
pub const RECEIVER: &str = "webhook";

/// Longest text of an alert, in characters: what is quoted in it may be of any length.
const LONGEST_TEXT: usize = 300;

/// How the key of one cause of dead letters begins.
pub const CAUSE: &str = "dead_letters:";

/// Something that somebody must know of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alert {
    /// What is wrong, in one line.
    pub text: String,
    /// It may be over in a moment, as when a service is started anew: it is told only once it has lasted.
    pub may_pass: bool,
}

/// What one look found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Look {
    /// What is wrong, by key, such as `breaker:payment/bank`.
    pub alerts: BTreeMap<String, Alert>,
    /// Beginnings of keys of which this look does not know whether they are over.
    pub unknown: Vec<String>,
}

impl Look {
    /// What is to be known of an overview. Notices are not told of notices: their own breaker, calls and dead letters
    /// are in the overview, and only there. So many dead letters are one more alert.
    #[must_use]
    pub fn of(overview: &Overview, dead_letters: u64) -> Self {
        let others = overview.reasons.iter().filter(|reason| !is_about_notices(reason));
        let mut alerts: BTreeMap<_, _> = others.map(alert).collect();
        let pending = overview.dead_letters.as_ref().map_or(0, |parked| parked.pending);
        if pending >= dead_letters {
            let text = format!("{pending} dead letters wait, {dead_letters} or more");
            alerts.insert("many_dead_letters".to_owned(), Alert { text, may_pass: false });
        }
        Self { alerts, unknown: unknown(overview) }
    }

    /// Whether this look would have found what has this key, if it were still so.
    #[must_use]
    pub fn knows(&self, key: &str) -> bool {
        !self.unknown.iter().any(|unknown| key.starts_with(unknown))
    }
}

fn is_about_notices(reason: &Reason) -> bool {
    match reason {
        Reason::Breaker { service, breaker } => service == crate::NAME && breaker.name == RECEIVER,
        // Admin calls nobody else.
        Reason::OverdueCalls { service, .. } => service == crate::NAME,
        Reason::DeadLetters { group } => group.service == crate::NAME && group.step == NOTICE,
        Reason::Silent { .. }
        | Reason::NotReady { .. }
        | Reason::StandsStill { .. }
        | Reason::FailedSagas { .. }
        | Reason::MoreDeadLetters { .. }
        | Reason::FailedOutbox { .. }
        | Reason::OverdueSagas { .. }
        | Reason::Unbalanced { .. }
        | Reason::Unknown { .. } => false,
    }
}

/// What an alert is known by, and what it says.
fn alert(reason: &Reason) -> (String, Alert) {
    let (key, text, may_pass) = match reason {
        Reason::Silent { service, problem } => (format!("silent:{service}"), problem.clone(), true),
        Reason::NotReady { service, complaint } => {
            let (check, why, since) = (&complaint.check, &complaint.text, second(complaint.since));
            let text = format!("{service} is not ready ({check}) since {since}: {why}");
            (format!("not_ready:{service}/{check}"), text, true)
        }
        Reason::StandsStill { service, step } => {
            let (name, waiting) =
                (&step.step, step.waiting.map(|waiting| format!(": {waiting} messages wait")));
            let text = format!("{name} of {service} stands still{}", waiting.unwrap_or_default());
            (format!("stands_still:{service}/{name}"), text, false)
        }
        Reason::FailedSagas { count } => {
            let text = format!("{} FAILED: a compensation is parked", counted(*count, "saga"));
            ("failed_sagas".to_owned(), text, false)
        }
        Reason::DeadLetters { group } => {
            let GroupLook { fingerprint, count, service, step, reason, .. } = group;
            let count = counted(*count, "dead letter");
            let text = format!("{count} at {step} of {service}, fingerprint {fingerprint}: {reason}");
            (format!("{CAUSE}{fingerprint}"), text, false)
        }
        Reason::MoreDeadLetters { count } => (
            "more_dead_letters".to_owned(),
            format!("{} of other causes", counted(*count, "dead letter")),
            false,
        ),
        Reason::FailedOutbox { service, count } => {
            let text = format!("the broker refused what {service} promised: {}", counted(*count, "message"));
            (format!("failed_outbox:{service}"), text, false)
        }
        Reason::Breaker { service, breaker } => {
            let since = breaker.since.map(|since| format!(" since {}", second(since))).unwrap_or_default();
            let text = format!("breaker {service}/{} is {}{since}", breaker.name, breaker.state);
            (format!("breaker:{service}/{}", breaker.name), text, false)
        }
        Reason::OverdueCalls { service, calls } => {
            let text = format!("{} of {service} not answered for long", counted(calls.open, "call"));
            (format!("overdue_calls:{service}"), text, false)
        }
        Reason::OverdueSagas { count } => {
            let text = format!("{} past the deadline, and not ended", counted(*count, "saga"));
            ("overdue_sagas".to_owned(), text, false)
        }
        Reason::Unbalanced { books: BooksLook { at, discrepancies, .. } } => {
            let text = format!("the books do not balance: {discrepancies} discrepancies at {}", second(*at));
            ("unbalanced".to_owned(), text, false)
        }
        Reason::Unknown { not_asked } => {
            let text = format!("{} are not known: {}", not_asked.what, not_asked.problem);
            (format!("unknown:{}", not_asked.what), text, true)
        }
    };
    (key, Alert { text: shortened(&text), may_pass })
}

/// What a look that could not ask something says nothing about.
fn unknown(overview: &Overview) -> Vec<String> {
    let mut unknown: Vec<String> = overview.services.iter().flat_map(unknown_of).collect();
    let mut also = |keys: &[&str]| unknown.extend(keys.iter().map(|key| (*key).to_owned()));
    match &overview.dead_letters {
        None => also(&[CAUSE, "more_dead_letters", "many_dead_letters"]),
        // Which causes are shown depends on how large the others are.
        Some(_) if overview.reasons.iter().any(|reason| matches!(reason, Reason::MoreDeadLetters { .. })) => {
            also(&[CAUSE]);
        }
        Some(_) => {}
    }
    if overview.sagas.is_none() {
        also(&["failed_sagas", "overdue_sagas"]);
    }
    // What was wrong stays so until a look at the books says otherwise.
    if overview.books.as_ref().is_none_or(|books| books.verdict != "BALANCED") {
        also(&["unbalanced"]);
    }
    unknown
}

fn unknown_of(service: &ServiceLook) -> Vec<String> {
    let name = &service.service;
    let of_stats = ["failed_outbox", "overdue_calls"].map(|kind| format!("{kind}:{name}"));
    let of_itself = ["not_ready", "stands_still", "breaker"].map(|kind| format!("{kind}:{name}/"));
    match (&service.problem, &service.outbox) {
        (Some(_), _) => of_stats.into_iter().chain(of_itself).collect(),
        (None, None) => of_stats.into(),
        (None, Some(_)) => vec![],
    }
}

fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// A time as people read it.
fn second(at: Timestamp) -> impl Display {
    at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// One line that is not too long, and moves no terminal's cursor: what is quoted in it may come from anywhere.
fn shortened(text: &str) -> String {
    let is_between = |letter: char| letter.is_whitespace() || letter.is_control();
    let words = text.split(is_between).filter(|word| !word.is_empty());
    let line = words.collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LONGEST_TEXT) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
