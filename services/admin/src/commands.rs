//! Pure: commands of operators and of admin's own loops, and their replies.

use admin_api::actor::Actor;
use admin_api::audit_log::{Action, Entry};
use admin_api::bulk::BulkOutcome;
use admin_api::dead_letters::DeadLetterItem;
use admin_api::reconciliation::{ReconciliationSummary, Unanswered};
use contract::manual_resolution::ResolutionRejection;
use contract::saga_view::SagaView;
use jiff::Timestamp;
use saga_core::row::RowKey;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::audit_log::AuditEntry;
use crate::dead_letters::events::{DeadLetterCommand, DeadLetterRejection, Replay, Tag};
use crate::dead_letters::view::DeadLetterView;
use crate::ledgers::checkpoint::{CHECKPOINT, Checkpoint};
use crate::ledgers::state::{RECONCILIATION_STATE, ReconciliationState};
use crate::notifications::content::Notification;
use crate::notifications::state::{
    NOTIFICATION_STATE, NotificationCommand, NotificationRejection, NotificationState,
};
use crate::redrive::active::{ACTIVE_REDRIVES, ActiveRedrives, ActiveRejection};
use crate::redrive::decider::Redrive;
use crate::redrive::events::{RedriveCommand, RedriveRejection};
use crate::resolution::{Direction, Resolution, Target};

#[derive(Debug, Clone)]
pub struct Command {
    /// Id of the input, a UUIDv7, and of its entry in the audit log.
    pub id: Uuid,
    pub by: Actor,
    pub kind: CommandKind,
}

#[derive(Debug, Clone)]
pub enum CommandKind {
    Replay(Uuid, Replay),
    Discard(Uuid),
    Restore(Uuid),
    Note(Uuid, String),
    /// Changes many dead letters. One request may need several of these: its audit entry is written apart.
    Many {
        /// Ids, each once.
        dead_letters: Vec<Uuid>,
        change: BulkChange,
    },
    Resolve(Direction, Resolution),
    /// Resolves many dead letters, as [`CommandKind::Many`]. Accepted discrepancies are added to the audit entry.
    ResolveMany {
        direction: Direction,
        resolutions: Vec<Resolution>,
        /// Id of the audit entry.
        entry: Uuid,
    },
    /// Extends the deadlines of waiting orders, as [`CommandKind::Many`].
    Extend {
        /// Ids of orders, each once.
        orders: Vec<Uuid>,
        until: Timestamp,
    },
    Redrive(Uuid, RedriveCommand),
    /// Replays dead letters as part of a redrive, if it still replays in this round.
    Send {
        tag: Tag,
        /// Ids, each once.
        dead_letters: Vec<Uuid>,
    },
    /// Writes the audit entry of a change by another service, or to many, before it is made.
    OpenEntry {
        action: Action,
        target: String,
        detail: Option<Value>,
    },
    /// Writes the outcome of an audit entry.
    CloseEntry(Uuid, String),
    /// Writes an entry that was recorded elsewhere.
    RecordEntry(Entry),
    Notify(NotificationCommand),
    /// Records the result of a reconciliation.
    Reconciled {
        result: ReconciliationSummary,
        /// [`ReconciliationState::invalidated`] when it started.
        invalidated: u64,
        /// Questions that a periodic reconciliation left unanswered; `None` for one on request.
        unanswered: Option<Vec<Unanswered>>,
        /// New checkpoint, if everything agreed.
        checkpoint: Option<Box<Checkpoint>>,
    },
}

/// A change to each of many dead letters.
#[derive(Debug, Clone)]
pub enum BulkChange {
    Replay(Replay),
    Discard,
    Restore,
    Note(String),
}

impl BulkChange {
    /// Returns the command for each dead letter.
    pub fn command(&self, by: &Actor) -> DeadLetterCommand {
        let by = by.clone();
        match self {
            Self::Replay(replay) => DeadLetterCommand::Replay(by, replay.clone()),
            Self::Discard => DeadLetterCommand::Discard(by),
            Self::Restore => DeadLetterCommand::Restore(by),
            Self::Note(text) => DeadLetterCommand::Note(by, text.clone()),
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Reply {
    Done,
    /// The changed dead letter.
    Changed(Option<Box<DeadLetterItem>>),
    /// The outcome of a change to many.
    Many(BulkOutcome),
    /// The notification that was sent, if any.
    Notification(Option<Box<Notification>>),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub enum Rejection {
    DeadLetter(#[from] DeadLetterRejection),
    Redrive(#[from] RedriveRejection),
    ActiveRedrives(#[from] ActiveRejection),
    Saga(#[from] ResolutionRejection),
    Notification(#[from] NotificationRejection),
}

impl Command {
    /// Correlation id of the resulting facts and rows: the dead letter, saga or redrive of the command.
    pub const fn correlation_id(&self) -> Uuid {
        match &self.kind {
            CommandKind::Replay(id, _)
            | CommandKind::Discard(id)
            | CommandKind::Restore(id)
            | CommandKind::Note(id, _)
            | CommandKind::Redrive(id, _)
            | CommandKind::Send { tag: Tag { redrive: id, .. }, .. } => *id,
            CommandKind::Resolve(_, resolution) => resolution.target.id(),
            CommandKind::Many { .. }
            | CommandKind::ResolveMany { .. }
            | CommandKind::Extend { .. }
            | CommandKind::OpenEntry { .. }
            | CommandKind::CloseEntry(..)
            | CommandKind::RecordEntry(_)
            | CommandKind::Notify(_)
            | CommandKind::Reconciled { .. } => self.id,
        }
    }

    /// Kind of change in the audit log; `None` for routine commands, and for those whose entry is written apart.
    pub fn action(&self) -> Option<Action> {
        match &self.kind {
            CommandKind::Replay(_, Replay { edited: None, .. }) => Some(Action::Replay),
            CommandKind::Replay(_, Replay { edited: Some(_), .. }) => Some(Action::Edit),
            CommandKind::Discard(_) => Some(Action::Discard),
            CommandKind::Restore(_) => Some(Action::Restore),
            CommandKind::Note(..) => Some(Action::Note),
            CommandKind::Redrive(_, command) => action_of_redrive(command),
            CommandKind::Resolve(direction, Resolution { target, .. }) => Some(match (direction, target) {
                (Direction::Resolve, Target::DeadLetter(_)) => Action::Resolve,
                (Direction::Resolve, Target::Saga(..)) => Action::SagaResolve,
                (Direction::Withdraw, Target::DeadLetter(_)) => Action::WithdrawResolution,
                (Direction::Withdraw, Target::Saga(..)) => Action::SagaWithdrawResolution,
            }),
            CommandKind::OpenEntry { action, .. } => Some(*action),
            CommandKind::RecordEntry(entry) => Some(entry.action),
            CommandKind::Notify(command) => match command {
                NotificationCommand::Test(_) => Some(Action::NotificationTest),
                NotificationCommand::Acknowledge { .. } => Some(Action::FindingAcknowledge),
                NotificationCommand::Observe(..)
                | NotificationCommand::Deliver(_)
                | NotificationCommand::GiveUp(..) => None,
            },
            CommandKind::Reconciled { .. }
            | CommandKind::Many { .. }
            | CommandKind::ResolveMany { .. }
            | CommandKind::Extend { .. }
            | CommandKind::Send { .. }
            | CommandKind::CloseEntry(..) => None,
        }
    }

    /// Keys of the rows that the command reads or changes.
    pub fn rows(&self) -> Vec<RowKey> {
        let all = |dead_letters: &[Uuid]| dead_letters.iter().map(RowKey::of::<DeadLetterView>).collect();
        let mut keys: Vec<RowKey> = match &self.kind {
            CommandKind::Replay(id, _)
            | CommandKind::Discard(id)
            | CommandKind::Restore(id)
            | CommandKind::Note(id, _) => all(&[*id]),
            CommandKind::Many { dead_letters, .. } => all(dead_letters),
            CommandKind::Resolve(_, resolution) => {
                resolution.rows().chain([reconciliation_state_key()]).collect()
            }
            CommandKind::ResolveMany { resolutions, entry, .. } => {
                let beside = [reconciliation_state_key(), RowKey::of::<AuditEntry>(entry)];
                resolutions.iter().flat_map(Resolution::rows).chain(beside).collect()
            }
            CommandKind::Extend { orders, .. } => orders.iter().map(RowKey::of::<SagaView>).collect(),
            CommandKind::Redrive(id, _) => {
                vec![RowKey::of::<Redrive>(id), RowKey::of::<ActiveRedrives>(ACTIVE_REDRIVES)]
            }
            CommandKind::Send { tag, dead_letters } => {
                let mut keys: Vec<_> = all(dead_letters);
                keys.push(RowKey::of::<Redrive>(tag.redrive));
                keys
            }
            CommandKind::OpenEntry { .. } | CommandKind::RecordEntry(_) => vec![],
            CommandKind::CloseEntry(entry, _) => {
                vec![RowKey::of::<AuditEntry>(entry), reconciliation_state_key()]
            }
            CommandKind::Notify(_) => vec![RowKey::of::<NotificationState>(NOTIFICATION_STATE)],
            CommandKind::Reconciled { .. } => {
                vec![reconciliation_state_key(), RowKey::of::<Checkpoint>(CHECKPOINT)]
            }
        };
        keys.extend(self.action().map(|_| RowKey::of::<AuditEntry>(self.id)));
        keys
    }
}

const fn action_of_redrive(command: &RedriveCommand) -> Option<Action> {
    match command {
        RedriveCommand::Start(_) => Some(Action::RedriveStart),
        RedriveCommand::Pause => Some(Action::RedrivePause),
        RedriveCommand::Resume => Some(Action::RedriveResume),
        RedriveCommand::Cancel => Some(Action::RedriveCancel),
        RedriveCommand::Stop(..) => Some(Action::RedriveStop),
        RedriveCommand::Count(..) | RedriveCommand::PassCanary(..) | RedriveCommand::Finish(..) => None,
    }
}

fn reconciliation_state_key() -> RowKey {
    RowKey::of::<ReconciliationState>(RECONCILIATION_STATE)
}
