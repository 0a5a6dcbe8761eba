//! Pure: the audit log: who did what, to what, and why. An entry is written with the change it tells of, or
//! before a service is asked for one; then its outcome follows.

use std::convert::Infallible;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use shared::decider::{Decider, FieldValue};
use utoipa::ToSchema;

use crate::letters::By;

/// Who did what is done by nobody.
pub const SYSTEM: &str = "system";

/// The outcome of an entry as long as the service has not answered.
pub const ASKED: &str = "asked";

/// The outcome of what was done.
pub const DONE: &str = "done";

/// What was done, as the log names it.
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
}

impl Action {
    /// The name in the log.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Replay => "dlq.replay",
            Self::Edit => "dlq.edit",
            Self::Discard => "dlq.discard",
            Self::Restore => "dlq.restore",
            Self::Note => "dlq.note",
            Self::ReplayMany => "dlq.replay_many",
            Self::RedriveStart => "redrive.start",
            Self::RedrivePause => "redrive.pause",
            Self::RedriveResume => "redrive.resume",
            Self::RedriveCancel => "redrive.cancel",
            Self::RedriveStop => "redrive.stop",
            Self::BreakerOpen => "breaker.open",
            Self::BreakerClosed => "breaker.closed",
            Self::BreakerReset => "breaker.reset",
            Self::FaultInject => "fault.inject",
            Self::FaultClear => "fault.clear",
            Self::FaultClearAll => "fault.clear_all",
            Self::OutboxRetry => "outbox.retry",
        }
    }
}

/// An entry of the log. Its row's id is the input's, a UUIDv7: ids sort by time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When.
    pub at: Timestamp,
    /// Who, and why.
    #[serde(flatten)]
    pub by: By,
    /// What was done.
    pub action: Action,
    /// To what: a letter, a redrive, a service, a breaker as `service/name`.
    pub target: String,
    /// More.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Value>,
    /// What came of it.
    pub outcome: String,
}

/// An operation: the entry, once it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation(pub Option<Entry>);

/// A wish concerning an entry.
#[derive(Debug, Clone)]
pub enum OperationCommand {
    /// Write it.
    Write(Entry),
    /// Write what came of it.
    End(String, Option<Value>),
}

/// What happened to an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperationEvent {
    /// It was written.
    Written(Entry),
    /// It has an outcome.
    Ended {
        /// The outcome.
        outcome: String,
        /// More, in place of what was there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<Value>,
    },
}

impl Decider for Operation {
    const KIND: &'static str = "operation";
    const FIELDS: &'static [&'static str] = &["operator", "action", "target"];
    type Command = OperationCommand;
    type Event = OperationEvent;
    type Rejection = Infallible;

    fn decide(&self, command: &OperationCommand) -> Result<Vec<OperationEvent>, Infallible> {
        Ok(match (&self.0, command) {
            (None, OperationCommand::Write(entry)) => vec![OperationEvent::Written(entry.clone())],
            (Some(entry), OperationCommand::End(outcome, detail)) if entry.outcome == ASKED => {
                vec![OperationEvent::Ended { outcome: outcome.clone(), detail: detail.clone() }]
            }
            // Written once, and ended once: the log is not rewritten.
            (Some(_), OperationCommand::Write(_) | OperationCommand::End(..))
            | (None, OperationCommand::End(..)) => vec![],
        })
    }

    fn evolve(&mut self, event: &OperationEvent) {
        match (&mut self.0, event) {
            (written, OperationEvent::Written(entry)) => *written = Some(entry.clone()),
            (Some(entry), OperationEvent::Ended { outcome, detail }) => {
                entry.outcome.clone_from(outcome);
                entry.detail = detail.clone().or(entry.detail.take());
            }
            (None, OperationEvent::Ended { .. }) => {}
        }
    }

    fn event_name(event: &OperationEvent) -> &'static str {
        match event {
            OperationEvent::Written(_) => "Written",
            OperationEvent::Ended { .. } => "Ended",
        }
    }

    fn fields(&self, _: &str) -> Vec<FieldValue> {
        let of = |part: fn(&Entry) -> &str| match &self.0 {
            Some(entry) => part(entry).into(),
            None => FieldValue::Null,
        };
        vec![of(|entry| &entry.by.operator), of(|entry| entry.action.as_str()), of(|entry| &entry.target)]
    }
}

impl Entry {
    /// The entry of something that is done as it is written.
    #[must_use]
    pub fn done(at: Timestamp, by: &By, action: Action, target: impl ToString) -> Self {
        Self {
            at,
            by: by.clone(),
            action,
            target: target.to_string(),
            detail: None,
            outcome: DONE.to_owned(),
        }
    }
}
