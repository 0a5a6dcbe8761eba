//! Pure: the audit log: who did what, to what, and why. An entry is written with the change it tells of, or
//! before a service is asked for one, or many are changed; then its outcome follows.

use std::convert::Infallible;
use std::fmt;

use jiff::Timestamp;
use saga_core::decider::{Decider, FieldValue};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::request::By;

/// The outcome of an entry as long as the service has not answered, or not all of many are done.
pub const ASKED: &str = "asked";

/// The outcome of what was done.
pub const DONE: &str = "done";

/// What is done to something, as the log names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[expect(missing_docs, reason = "each variant says it")]
pub enum Action {
    #[serde(rename = "dlq.replay")]
    Replay,
    #[serde(rename = "dlq.edit")]
    Edit,
    #[serde(rename = "dlq.discard")]
    Discard,
    #[serde(rename = "dlq.restore")]
    Restore,
    #[serde(rename = "dlq.note")]
    Note,
    #[serde(rename = "dlq.replay_many")]
    ReplayMany,
    #[serde(rename = "dlq.discard_many")]
    DiscardMany,
    #[serde(rename = "dlq.restore_many")]
    RestoreMany,
    #[serde(rename = "dlq.note_many")]
    NoteMany,
    #[serde(rename = "dlq.settle")]
    Settle,
    #[serde(rename = "dlq.unsettle")]
    Unsettle,
    #[serde(rename = "dlq.settle_many")]
    SettleMany,
    #[serde(rename = "dlq.unsettle_many")]
    UnsettleMany,
    #[serde(rename = "saga.extend")]
    SagaExtend,
    #[serde(rename = "saga.settle")]
    SagaSettle,
    #[serde(rename = "saga.unsettle")]
    SagaUnsettle,
    #[serde(rename = "redrive.start")]
    RedriveStart,
    #[serde(rename = "redrive.pause")]
    RedrivePause,
    #[serde(rename = "redrive.resume")]
    RedriveResume,
    #[serde(rename = "redrive.cancel")]
    RedriveCancel,
    #[serde(rename = "redrive.stop")]
    RedriveStop,
    #[serde(rename = "breaker.open")]
    BreakerOpen,
    #[serde(rename = "breaker.closed")]
    BreakerClosed,
    #[serde(rename = "breaker.reset")]
    BreakerReset,
    #[serde(rename = "fault.inject")]
    FaultInject,
    #[serde(rename = "fault.clear")]
    FaultClear,
    #[serde(rename = "fault.clear_all")]
    FaultClearAll,
    #[serde(rename = "outbox.retry")]
    OutboxRetry,
    #[serde(rename = "outbox.republish")]
    OutboxRepublish,
    #[serde(rename = "audit.baseline")]
    AuditBaseline,
    #[serde(rename = "push.test")]
    PushTest,
}

/// The name in the log: the one in its JSON form.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// An entry of the log. Its row's id is the input's, a UUIDv7: ids sort by time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Entry {
    /// When it was written, which is before a service is asked.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Who did it, and why.
    #[serde(flatten)]
    pub by: By,
    /// What was done, or asked for.
    pub action: Action,
    /// To what: the id of a dead letter, a redrive or an order, a service, a step, a breaker as `service/name`; of many
    /// dead letters their fingerprint, how many they are, or `a filter`.
    pub target: String,
    /// What else is to be known of it, as members of an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub detail: Option<Value>,
    /// `done` (of many with their number: `done: 3 of 5`), `asked` as long as that is not known, or why it was refused.
    pub outcome: String,
}

impl Entry {
    fn accept(&mut self, more: &[Value]) {
        let detail = self.detail.get_or_insert_with(|| json!({}));
        let known =
            detail.as_object_mut().map(|detail| detail.entry("accepted").or_insert_with(|| json!([])));
        if let Some(accepted) = known.and_then(Value::as_array_mut) {
            accepted.extend_from_slice(more);
        }
    }
}

/// The row of an entry: nothing until it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry(pub Option<Entry>);

impl AuditEntry {
    /// Whether it says that this was done.
    #[must_use]
    pub fn says_done(&self, action: Action) -> bool {
        self.0.as_ref().is_some_and(|entry| entry.action == action && entry.outcome == DONE)
    }
}

/// What may be asked of an entry.
#[derive(Debug, Clone)]
pub enum AuditCommand {
    /// Write it, unless it is written already.
    Write(Entry),
    /// Write what was accepted in the course of it, unless it has ended.
    Accept(Vec<Value>),
    /// Write what came of it, unless that is known already.
    End(String),
}

/// What happened to an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
pub enum AuditEvent {
    /// It was written, as it is here.
    Written(Entry),
    /// This was accepted in the course of it.
    Accepted {
        /// What is added to the member `accepted` of the entry's detail.
        accepted: Vec<Value>,
    },
    /// What came of it is known.
    Ended {
        /// What the entry's outcome is from now on.
        outcome: String,
    },
}

impl Decider for AuditEntry {
    const KIND: &'static str = "operation";
    const FIELDS: &'static [&'static str] = &["operator", "action", "target"];
    type Command = AuditCommand;
    type Event = AuditEvent;
    type Rejection = Infallible;

    fn decide(&self, command: &AuditCommand) -> Result<Vec<AuditEvent>, Infallible> {
        Ok(match (&self.0, command) {
            (None, AuditCommand::Write(entry)) => vec![AuditEvent::Written(entry.clone())],
            (Some(entry), AuditCommand::Accept(accepted))
                if entry.outcome == ASKED && !accepted.is_empty() =>
            {
                vec![AuditEvent::Accepted { accepted: accepted.clone() }]
            }
            (Some(entry), AuditCommand::End(outcome)) if entry.outcome == ASKED => {
                vec![AuditEvent::Ended { outcome: outcome.clone() }]
            }
            // Written once, and ended once: the log is not rewritten.
            (Some(_), AuditCommand::Write(_) | AuditCommand::Accept(_) | AuditCommand::End(_))
            | (None, AuditCommand::Accept(_) | AuditCommand::End(_)) => vec![],
        })
    }

    fn evolve(&mut self, event: &AuditEvent) {
        match (&mut self.0, event) {
            (written, AuditEvent::Written(entry)) => *written = Some(entry.clone()),
            (Some(entry), AuditEvent::Accepted { accepted }) => entry.accept(accepted),
            (Some(entry), AuditEvent::Ended { outcome }) => entry.outcome.clone_from(outcome),
            (None, AuditEvent::Accepted { .. } | AuditEvent::Ended { .. }) => {}
        }
    }

    fn event_name(event: &AuditEvent) -> &'static str {
        event.into()
    }

    fn fields(&self, _: &str) -> Vec<FieldValue> {
        let Some(Entry { by, action, target, .. }) = &self.0 else {
            return vec![FieldValue::Null; Self::FIELDS.len()];
        };
        vec![by.operator.as_str().into(), FieldValue::Text(action.to_string()), target.as_str().into()]
    }
}
