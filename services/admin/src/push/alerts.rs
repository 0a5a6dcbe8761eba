//! Pure: what of one look at everything somebody must know of, each under a key that stays the same from look to look;
//! and what this look says nothing about, because it could not be asked.

use std::collections::BTreeMap;

use contract::overview::{Overview, RECEIVER, Reason, ServiceLook, Verdict, counted};

use super::notice::NOTICE;

/// Longest text of an alert, in characters: what is quoted in it may be of any length.
const LONGEST_TEXT: usize = 300;

/// How the key of one cause of dead letters begins.
pub const CAUSE: &str = "dead_letters:";

/// Something that somebody must know of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alert {
    /// What is wrong, in one line.
    pub text: String,
    /// How much of it there is, where it is counted: what grows much is told again.
    pub count: Option<u64>,
    /// It may be over in a moment, as when a service is started anew: it is told only once it has lasted.
    pub may_pass: bool,
    /// It is worse than what there may have been before, and need not wait until the quiet time is over.
    pub is_grave: bool,
}

/// What one look found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Look {
    /// What is wrong, by key, such as `breaker:payment/bank`.
    pub alerts: BTreeMap<String, Alert>,
    /// Beginnings of keys of which this look does not know whether they are over.
    pub unknown: Vec<String>,
    /// Who is told, by a digest of the address; absent for standard output. Another has heard nothing yet.
    pub to: Option<String>,
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
            let text = format!("{} in all", counted(pending, "dead letter", "dead letters"));
            let alert = Alert { text, count: Some(pending), may_pass: false, is_grave: true };
            alerts.insert("many_dead_letters".to_owned(), alert);
        }
        Self { alerts, unknown: unknown(overview), to: None }
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
    let (key, count, may_pass) = match reason {
        Reason::Silent { service, .. } => (format!("silent:{service}"), None, true),
        Reason::NotReady { service, complaint } => {
            (format!("not_ready:{service}/{}", complaint.check), None, true)
        }
        Reason::StandsStill { service, step } => {
            (format!("stands_still:{service}/{}", step.step), None, false)
        }
        Reason::FailedSagas { count } => ("failed_sagas".to_owned(), Some(*count), false),
        Reason::DeadLetters { group } => (format!("{CAUSE}{}", group.fingerprint), Some(group.count), false),
        Reason::MoreDeadLetters { count } => ("more_dead_letters".to_owned(), Some(*count), false),
        Reason::FailedOutbox { service, count } => (format!("failed_outbox:{service}"), Some(*count), false),
        Reason::Breaker { service, breaker } => (format!("breaker:{service}/{}", breaker.name), None, false),
        Reason::OverdueCalls { service, calls } => {
            (format!("overdue_calls:{service}"), Some(calls.open), false)
        }
        Reason::OverdueSagas { count } => ("overdue_sagas".to_owned(), Some(*count), false),
        Reason::Unbalanced { books } => ("unbalanced".to_owned(), Some(books.discrepancies), false),
        Reason::Unknown { not_asked } => (format!("unknown:{}", not_asked.what), None, true),
    };
    let headline = reason.headline(|at| at.strftime("%Y-%m-%d %H:%M:%SZ").to_string());
    // Elsewhere the cause stands below.
    let text = if let Reason::DeadLetters { group } = reason {
        format!("{headline}: {}", group.reason)
    } else {
        headline
    };
    (key, Alert { text: shortened(&text), count, may_pass, is_grave: is_grave(reason) })
}

/// Whether it is more than that some messages or calls wait.
const fn is_grave(reason: &Reason) -> bool {
    match reason {
        Reason::Silent { .. }
        | Reason::StandsStill { .. }
        | Reason::FailedSagas { .. }
        | Reason::OverdueSagas { .. }
        | Reason::Unbalanced { .. } => true,
        Reason::NotReady { .. }
        | Reason::DeadLetters { .. }
        | Reason::MoreDeadLetters { .. }
        | Reason::FailedOutbox { .. }
        | Reason::Breaker { .. }
        | Reason::OverdueCalls { .. }
        | Reason::Unknown { .. } => false,
    }
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
    if overview.books.as_ref().is_none_or(|books| books.verdict != Verdict::Balanced) {
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
