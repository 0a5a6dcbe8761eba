//! Pure: a reason in one line, the same wherever it is told.

use jiff::Timestamp;

use super::{BooksLook, BreakerLook, CallsLook, Complaint, GroupLook, NotAsked, Reason, StepLook};

impl Reason {
    /// What is wrong, in one line: numbers and names, and what others quote. `moment` puts a time into words, for who
    /// reads it now or later.
    #[must_use]
    pub fn headline(&self, moment: impl Fn(Timestamp) -> String) -> String {
        let since = |before: &str, at: &Option<Timestamp>| {
            at.map(|at| format!("{before} since {}", moment(at))).unwrap_or_default()
        };
        match self {
            Self::Silent { problem, .. } => problem.clone(),
            Self::NotReady { service, complaint: Complaint { check, text, since, .. } } => {
                format!("{service} is not ready ({check}) since {}: {text}", moment(*since))
            }
            Self::StandsStill { service, step: StepLook { step, waiting, stalled_since, paused } } => {
                let waiting = waiting.map(|waiting| counted(waiting, "message waits", "messages wait"));
                let waiting = waiting.unwrap_or_else(|| "messages wait".to_owned());
                let held = if *paused { ", held back by an injected fault" } else { "" };
                format!("{step} of {service} stands still{}: {waiting}{held}", since("", stalled_since))
            }
            Self::FailedSagas { count } => {
                let failed = counted(*count, "saga", "sagas");
                format!("{failed} FAILED: a compensation is parked, or was given up")
            }
            Self::DeadLetters { group: GroupLook { step, service, fingerprint, count, .. } } => {
                format!("{} at {step} of {service}, fingerprint {fingerprint}", dead_letters(*count))
            }
            Self::MoreDeadLetters { count } => format!("{} of other causes", dead_letters(*count)),
            Self::FailedOutbox { service, count } => format!(
                "the broker refused what {service} promised: {} FAILED or held behind it",
                counted(*count, "entry", "entries")
            ),
            Self::Breaker { service, breaker: BreakerLook { name, state, since: at, .. } } => {
                format!("breaker {service}/{name} is {state}{}", since("", at))
            }
            Self::OverdueCalls { service, calls: CallsLook { open, oldest } } => format!(
                "{} of {service} unanswered for long{}",
                counted(*open, "call", "calls"),
                since(", the oldest", oldest)
            ),
            Self::OverdueSagas { count } => {
                format!("{} OVERDUE: past the deadline, and not ended", counted(*count, "saga", "sagas"))
            }
            Self::Unbalanced { books: BooksLook { at, discrepancies, .. } } => {
                let count = counted(*discrepancies, "discrepancy", "discrepancies");
                format!("the books were UNBALANCED {}: {count}", moment(*at))
            }
            Self::Unknown { not_asked: NotAsked { what, problem } } => {
                format!("{what} are not known: {problem}")
            }
        }
    }
}

fn dead_letters(count: u64) -> String {
    counted(count, "dead letter", "dead letters")
}

/// How many of what there are, in words.
#[must_use]
pub fn counted(count: u64, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{} {many}", grouped(count)) }
}

/// A number with its thousands apart: `1,234`.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overview::Verdict;

    fn headline(reason: &Reason) -> String {
        reason.headline(|_| "noon".to_owned())
    }

    #[test]
    fn thousands_are_told_apart() {
        let shown = [0, 999, 1_000, 1_234_567].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn one_is_one_and_many_are_many() {
        for (count, told) in [(1, "1 saga FAILED"), (2, "2 sagas FAILED"), (1_234, "1,234 sagas FAILED")] {
            assert_eq!(
                headline(&Reason::FailedSagas { count }),
                format!("{told}: a compensation is parked, or was given up")
            );
        }
        let books = BooksLook { verdict: Verdict::Unbalanced, at: Timestamp::UNIX_EPOCH, discrepancies: 1 };
        assert_eq!(headline(&Reason::Unbalanced { books }), "the books were UNBALANCED noon: 1 discrepancy");
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let calls = |oldest| Reason::OverdueCalls {
            service: "payment".to_owned(),
            calls: CallsLook { open: 1, oldest },
        };
        assert_eq!(headline(&calls(None)), "1 call of payment unanswered for long");
        let told = "1 call of payment unanswered for long, the oldest since noon";
        assert_eq!(headline(&calls(Some(Timestamp::UNIX_EPOCH))), told);
        let step = |waiting| StepLook {
            step: "s".to_owned(),
            waiting,
            stalled_since: None,
            paused: waiting == Some(2),
        };
        let still =
            |waiting| headline(&Reason::StandsStill { service: "order".to_owned(), step: step(waiting) });
        assert_eq!(still(None), "s of order stands still: messages wait");
        assert_eq!(still(Some(1)), "s of order stands still: 1 message waits");
        let held = "s of order stands still: 2 messages wait, held back by an injected fault";
        assert_eq!(still(Some(2)), held);
    }
}
