//! Pure: the content of a notification, for people and for programs.

use admin_api::notifications::NotificationKind;
use admin_api::overview::Impact;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

/// Kind of task that delivers a notification.
pub const NOTIFICATION_TASK: &str = "notification";

/// Findings that the body lists under each heading. The rest is counted.
const MAX_LISTED: usize = 50;

/// Findings that the one line of text lists.
const MAX_IN_TEXT: usize = 5;

/// A finding in a notification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Key of the finding.
    pub key: String,
    /// Problem in one line.
    pub text: String,
    /// Number of affected sagas, dead letters, entries, calls or discrepancies, where they are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Orders and money that it affects.
    #[serde(flatten)]
    pub impact: Impact,
    /// Command to go on with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// True if orders or money are at risk now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub urgent: bool,
    /// Time at which it was first seen.
    pub since: Timestamp,
    /// Time at which it was gone; `None` while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// Count by which a finding escalates. One that counts nothing is one problem.
pub(super) fn size(count: Option<u64>, impact: &Impact) -> u64 {
    count.max(impact.orders).unwrap_or(1).max(1)
}

impl Line {
    /// Count that it names; `None` if the finding is not urgent.
    pub(super) fn urgent_count(&self) -> Option<u64> {
        self.urgent.then(|| size(self.count, &self.impact))
    }

    /// Describes the finding with its money, first deadline and command.
    fn with_impact(&self) -> String {
        let mut text = self.text.clone();
        let impact = self.impact.text(|deadline| format!("{deadline:.0}"));
        if !impact.is_empty() {
            text.push_str(&format!(", {impact}"));
        }
        if let Some(command) = &self.command {
            text.push_str(&format!(" (sagactl {command})"));
        }
        text
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notification {
    /// Id, the same for every attempt to deliver it.
    pub id: Uuid,
    /// Name of the system that sends it.
    #[serde(default)]
    pub system: String,
    pub kind: NotificationKind,
    /// Time of the decision to send it.
    pub at: Timestamp,
    /// Findings that were not reported before.
    pub new: Vec<Line>,
    /// Reported findings that are still open.
    pub still: Vec<Line>,
    /// Findings that are gone.
    pub cleared: Vec<Line>,
    /// Digest of the receiver's address; `None` for standard output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

impl Notification {
    pub const fn test(id: Uuid, system: String, at: Timestamp) -> Self {
        let kind = NotificationKind::Test;
        Self { id, system, kind, at, new: vec![], still: vec![], cleared: vec![], to: None }
    }

    /// Describes the notification in one line.
    pub fn text(&self) -> String {
        format!("{}: {}", self.system, self.content())
    }

    fn content(&self) -> String {
        match self.kind {
            NotificationKind::Test => "test notification".to_owned(),
            NotificationKind::Recovered => format!("all findings are resolved: {}", joined(&self.cleared)),
            NotificationKind::Reminder => format!("a human is still needed: {}", joined(&self.still)),
            NotificationKind::NeedsHuman => {
                let also = |lines: &[Line], what: &str| match lines.len() {
                    0 => String::new(),
                    count => format!("; {count} {what}"),
                };
                format!(
                    "a human is needed: {}{}{}",
                    joined(&self.new),
                    also(&self.still, "reported before"),
                    also(&self.cleared, "resolved"),
                )
            }
        }
    }

    /// Builds the request body: `type`, `timestamp` and `data`, as Standard Webhooks recommends.
    pub fn body(&self) -> String {
        let cut = |lines: &[Line]| lines.iter().take(MAX_LISTED).cloned().collect::<Vec<_>>();
        let rest = |lines: &[Line]| lines.len().saturating_sub(MAX_LISTED);
        let data = json!({
            "text": self.text(),
            "system": self.system,
            "new": cut(&self.new), "still": cut(&self.still), "cleared": cut(&self.cleared),
            "not_listed": rest(&self.new) + rest(&self.still) + rest(&self.cleared),
        });
        let kind = format!("saga.{}", self.kind);
        json!({ "type": kind, "timestamp": self.at, "data": data }).to_string()
    }
}

fn joined(lines: &[Line]) -> String {
    let mut text = lines.iter().take(MAX_IN_TEXT).map(Line::with_impact).collect::<Vec<_>>().join("; ");
    if let more @ 1.. = lines.len().saturating_sub(MAX_IN_TEXT) {
        text.push_str(&format!("; and {more} more"));
    }
    text
}
