//! Pure: commands, events and rejections of a dead letter.

use admin_api::dead_letters::EditedMember;
use jiff::Timestamp;
use saga_core::dead_letter::DeadLetterStatus;
use saga_core::dead_letter::{DeadLetterResolved, DeadLettered, EditedMessage};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use admin_api::actor::Actor;

/// Number of replays without `force`. A message that failed as often will not recover by itself.
pub const MAX_REPLAYS: u32 = 3;

/// Maximum number of notes on one dead letter.
pub const MAX_NOTES: u32 = 100;

/// Status within a redrive of a dead letter that failed again with the same fingerprint.
pub const AGAIN: &str = "AGAIN";

/// Status within a redrive of a dead letter whose replay changed nothing, because its saga had ended.
pub const IN_VAIN: &str = "IN_VAIN";

/// Marks a replay as part of a redrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tag {
    pub redrive: Uuid,
    /// Number of the round, from 1.
    pub round: u32,
}

impl Tag {
    /// Returns the value of the field `redrive` for this round and status: `<redrive>/<round>/<status>`.
    pub fn course(self, status: &str) -> String {
        format!("{}/{}/{status}", self.redrive, self.round)
    }
}

/// A report of the service, or a request of an operator.
#[derive(Debug, Clone)]
pub enum DeadLetterCommand {
    /// Report: it was dead-lettered, or has failed again.
    Announce(Box<DeadLettered>),
    /// Report: it is resolved.
    Resolve(Box<DeadLetterResolved>),
    /// Report: it is gone.
    Forget(Forgotten),
    Replay(Actor, Replay),
    Discard(Actor),
    Restore(Actor),
    Note(Actor, String),
    /// Request: resolve it manually.
    ResolveManually(Actor),
    /// Request: withdraw the manual resolution.
    WithdrawResolution(Actor),
}

/// Report that a dead letter is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forgotten {
    /// Revision of the request that it answers.
    pub revision: u64,
    pub at: Timestamp,
}

/// Options of a replay.
#[derive(Debug, Clone, Default)]
pub struct Replay {
    /// Replays it after too many failed replays, and while a replay may be lost.
    pub force: bool,
    /// Required version.
    pub version: Option<u64>,
    /// Redrive that the replay is part of.
    pub tag: Option<Tag>,
    /// New message, in place of the dead-lettered one.
    pub edited: Option<EditedMessage>,
    /// Changes of the new message, for the audit log.
    pub changes: Vec<EditedMember>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
pub enum DeadLetterEvent {
    Resolved(Box<DeadLetterResolved>),
    Replayed {
        by: Actor,
        /// Number of failed replays at that time.
        at: u32,
        /// Fingerprint before the replay.
        fingerprint: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tag: Option<Tag>,
        /// New message, in place of the dead-lettered one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        edited: Option<EditedMessage>,
        /// Order of requests: the service follows the newest.
        revision: u64,
    },
    Discarded {
        by: Actor,
        /// Number of failed replays at that time.
        at: u32,
        /// Order of requests: the service follows the newest.
        revision: u64,
    },
    Restored {
        by: Actor,
        /// Order of requests: the service follows the newest.
        revision: u64,
    },
    Noted {
        by: Actor,
        text: String,
    },
    /// It was resolved manually.
    ResolvedManually {
        by: Actor,
        /// Number of failed replays at that time.
        at: u32,
        /// Order of requests: the service follows the newest.
        revision: u64,
    },
    /// The manual resolution was withdrawn.
    ResolutionWithdrawn {
        by: Actor,
        /// Order of requests: the service follows the newest.
        revision: u64,
    },
    /// The service reported it gone.
    Forgotten(Forgotten),
    /// It was dead-lettered, for the first time or again.
    #[strum(serialize = "DeadLettered")]
    Announced(Box<DeadLettered>),
}

impl DeadLetterEvent {
    /// Revision of a request to the service; `None` for events that it need not know.
    pub const fn revision(&self) -> Option<u64> {
        match self {
            Self::Replayed { revision, .. }
            | Self::Discarded { revision, .. }
            | Self::Restored { revision, .. }
            | Self::ResolvedManually { revision, .. }
            | Self::ResolutionWithdrawn { revision, .. } => Some(*revision),
            Self::Announced(_) | Self::Resolved(_) | Self::Forgotten(_) | Self::Noted { .. } => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeadLetterRejection {
    #[error("there is no such dead letter")]
    Unknown,
    #[error("the dead letter is {}", .0.as_str())]
    Status(DeadLetterStatus),
    #[error("{0} replays have failed; force it, with a reason")]
    TooOften(u32),
    #[error("the dead letter has changed; it is at version {0}")]
    Changed(u64),
    #[error("a call cannot be edited")]
    NotEditable,
    /// A replay of the old message must not undo an edit.
    #[error("an edit of the dead letter is in flight; edit it again, with force")]
    EditInFlight,
    #[error("this round of the redrive has replayed the dead letter already")]
    SentInThisRound,
    #[error("the dead letter has {MAX_NOTES} notes already")]
    TooManyNotes,
}
