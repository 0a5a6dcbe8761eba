//! Pure: the audit log. An entry is written with its change; of a change by another service, or to many, before it, and its
//! outcome follows. A change that an operator makes at another service directly is received from that service.

use std::convert::Infallible;

pub use admin_api::audit_log::{ASKED, DONE};
use admin_api::audit_log::{Action, Entry};
use saga_core::decider::{Decider, FieldValue};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The row of an entry; empty until it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry(pub Option<Entry>);

impl AuditEntry {
    /// True if the entry records this change as completed.
    pub fn records_done(&self, action: Action) -> bool {
        self.0.as_ref().is_some_and(|entry| entry.action == action && entry.outcome == DONE)
    }
}

#[derive(Debug, Clone)]
pub enum AuditCommand {
    /// Writes the entry, unless it exists.
    Write(Entry),
    /// Writes an entry that was recorded elsewhere and may come again, with its outcome once that is known.
    Record(Entry),
    /// Adds accepted discrepancies, unless the change has ended.
    Accept(Vec<Value>),
    /// Records the outcome, unless the change has ended.
    End(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
pub enum AuditEvent {
    Written(Entry),
    Accepted {
        /// Appended to the member `accepted` of the entry's detail.
        accepted: Vec<Value>,
    },
    Ended {
        outcome: String,
    },
}

impl Decider for AuditEntry {
    const KIND: &'static str = "audit_entry";
    const FIELDS: &'static [&'static str] = &["operator", "action", "target", "at"];
    const NUMBERS: &'static [&'static str] = &["at"];
    type Command = AuditCommand;
    type Event = AuditEvent;
    type Rejection = Infallible;

    fn decide(&self, command: &AuditCommand) -> Result<Vec<AuditEvent>, Infallible> {
        Ok(match (&self.0, command) {
            (None, AuditCommand::Write(entry) | AuditCommand::Record(entry)) => {
                vec![AuditEvent::Written(entry.clone())]
            }
            (Some(entry), AuditCommand::Record(again))
                if entry.outcome == ASKED
                    && again.outcome != ASKED
                    && (entry.action, &entry.by.operator, &entry.target)
                        == (again.action, &again.by.operator, &again.target) =>
            {
                vec![AuditEvent::Ended { outcome: again.outcome.clone() }]
            }
            (Some(entry), AuditCommand::Accept(accepted))
                if entry.outcome == ASKED && !accepted.is_empty() =>
            {
                vec![AuditEvent::Accepted { accepted: accepted.clone() }]
            }
            (Some(entry), AuditCommand::End(outcome)) if entry.outcome == ASKED => {
                vec![AuditEvent::Ended { outcome: outcome.clone() }]
            }
            // Entries are never rewritten.
            (
                Some(_),
                AuditCommand::Write(_)
                | AuditCommand::Record(_)
                | AuditCommand::Accept(_)
                | AuditCommand::End(_),
            )
            | (None, AuditCommand::Accept(_) | AuditCommand::End(_)) => vec![],
        })
    }

    fn evolve(&mut self, event: &AuditEvent) {
        match (&mut self.0, event) {
            (written, AuditEvent::Written(entry)) => *written = Some(entry.clone()),
            (Some(entry), AuditEvent::Accepted { accepted }) => append_accepted(entry, accepted),
            (Some(entry), AuditEvent::Ended { outcome }) => entry.outcome.clone_from(outcome),
            (None, AuditEvent::Accepted { .. } | AuditEvent::Ended { .. }) => {}
        }
    }

    fn event_name(event: &AuditEvent) -> &'static str {
        event.into()
    }

    fn fields(&self, _: &str) -> Vec<FieldValue> {
        let Some(Entry { at, by, action, target, .. }) = &self.0 else {
            return vec![FieldValue::Null; Self::FIELDS.len()];
        };
        vec![
            by.operator.as_str().into(),
            FieldValue::Text(action.to_string()),
            target.as_str().into(),
            at.as_microsecond().into(),
        ]
    }
}

fn append_accepted(entry: &mut Entry, more: &[Value]) {
    let detail = entry.detail.get_or_insert_with(|| json!({}));
    let known = detail.as_object_mut().map(|detail| detail.entry("accepted").or_insert_with(|| json!([])));
    if let Some(accepted) = known.and_then(Value::as_array_mut) {
        accepted.extend_from_slice(more);
    }
}
