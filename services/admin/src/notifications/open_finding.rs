//! Pure: an open finding, with its notifications by receiver.

use std::collections::BTreeMap;

use admin_api::notifications::Acknowledgement;
use admin_api::overview::Finding;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::content::{Line, size};

/// Growth of the count by which an urgent finding is reported again.
const ESCALATION: u64 = 10;

/// Maximum number of receivers that are remembered for a finding.
const MAX_RECEIVERS: usize = 16;

/// Maximum length of a finding's text, in characters, as it may quote anything.
const MAX_TEXT: usize = 300;

/// An open finding, or one that was gone a moment ago.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// Problem in one line, as it was first seen.
    pub text: String,
    /// Time at which it was first seen.
    pub since: Timestamp,
    /// Time from which it is reported.
    pub report_from: Timestamp,
    /// Last delivered notification of it, by receiver. Admins with different receivers report to each of them.
    reports: BTreeMap<String, Delivery>,
    /// Time since which it is gone.
    pub cleared_at: Option<Timestamp>,
    /// Acknowledgement, which may be over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    acknowledged: Option<Acknowledgement>,
}

/// Last delivered notification of a finding to one receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Delivery {
    pub(super) at: Timestamp,
    /// Count that it named; `None` if the finding was not urgent then.
    pub(super) urgent_count: Option<u64>,
}

impl Open {
    pub(super) fn new(finding: &Finding, since: Timestamp, report_from: Timestamp) -> Self {
        let (text, reports) = (text_of(finding), BTreeMap::new());
        Self { text, since, report_from, reports, cleared_at: None, acknowledged: None }
    }

    /// Acknowledgement that holds at this time.
    pub fn acknowledged(&self, now: Timestamp) -> Option<&Acknowledgement> {
        self.acknowledged.as_ref().filter(|acknowledged| acknowledged.until > now)
    }

    pub(super) fn set_acknowledged(&mut self, acknowledged: Option<Acknowledgement>) {
        self.acknowledged = acknowledged;
    }

    /// Time of the last delivered notification of it.
    pub fn notified_at(&self) -> Option<Timestamp> {
        self.reports.values().map(|delivery| delivery.at).max()
    }

    /// True if any receiver was notified of it.
    pub(super) fn is_reported(&self) -> bool {
        !self.reports.is_empty()
    }

    pub(super) fn report_to(&self, receiver: Option<&String>) -> Option<&Delivery> {
        self.reports.get(name_of(receiver))
    }

    /// Records a delivered notification. Forgets the receiver that was notified longest ago if there are too many.
    pub(super) fn add_report(&mut self, receiver: Option<&String>, delivery: Delivery) {
        self.reports.insert(name_of(receiver).to_owned(), delivery);
        if self.reports.len() > MAX_RECEIVERS {
            let oldest = self.reports.iter().min_by_key(|(_, delivery)| delivery.at);
            let oldest = oldest.map(|(name, _)| name.clone()).unwrap_or_default();
            self.reports.remove(&oldest);
        }
    }

    pub(super) fn remove_report(&mut self, receiver: Option<&String>) {
        self.reports.remove(name_of(receiver));
    }

    /// Describes the finding as it is now, or as it was first seen where it is unknown.
    pub(super) fn line(&self, key: &str, finding: Option<&Finding>) -> Line {
        Line {
            key: key.to_owned(),
            text: finding.map_or_else(|| self.text.clone(), text_of),
            count: finding.and_then(|finding| finding.count),
            impact: finding.map(|finding| finding.impact.clone()).unwrap_or_default(),
            command: finding.and_then(|finding| finding.commands.first().cloned()),
            urgent: finding.is_some_and(|finding| finding.urgent),
            since: self.since,
            until: self.cleared_at,
        }
    }
}

/// True if an urgent finding was not reported as urgent, or has become much worse since.
pub(super) fn is_escalated(reported: Option<u64>, finding: &Finding) -> bool {
    let count = size(finding.count, &finding.impact);
    finding.urgent && reported.is_none_or(|reported| count >= reported.saturating_mul(ESCALATION))
}

/// Name of a receiver: its digest, or nothing for standard output.
fn name_of(receiver: Option<&String>) -> &str {
    receiver.map_or("", String::as_str)
}

/// Describes a finding in one short line without control characters, as it may quote anything.
pub fn text_of(finding: &Finding) -> String {
    let cause = finding.explanation.lines().next().filter(|line| line.starts_with("Cause: "));
    let text = cause.map_or_else(|| finding.text.clone(), |cause| format!("{}. {cause}", finding.text));
    let is_between = |letter: char| letter.is_whitespace() || letter.is_control();
    let words = text.split(is_between).filter(|word| !word.is_empty());
    let line = words.collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
