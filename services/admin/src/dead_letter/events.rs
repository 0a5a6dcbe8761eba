//! Pure: what may be asked of a dead letter, what may happen to it, and why it says no.

use jiff::Timestamp;
use saga_core::dead_letter::DeadLetterStatus;
use saga_core::dead_letter::{DeadLetterResolved, DeadLettered, EditedMessage};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::difference::EditedMember;
use crate::request::By;

/// Replays without `force`: what fails that often will not get better by itself.
pub const MOST_REPLAYS: u32 = 3;

/// Notes on one dead letter; they are for people, who read no more.
pub const MOST_NOTES: u32 = 100;

/// How a dead letter stands in a redrive when it failed again in the way it had failed before.
pub const AGAIN: &str = "AGAIN";

/// How a dead letter stands in a redrive when it is resolved and that changed nothing: its saga had ended.
pub const IN_VAIN: &str = "IN_VAIN";

/// What marks a replay as part of a redrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tag {
    /// Id of the redrive.
    pub redrive: Uuid,
    /// The round of it that sent the dead letter, from 1.
    pub round: u32,
}

impl Tag {
    /// What the field `redrive` of a dead letter holds that this round sent and that stands like this:
    /// `<redrive>/<round>/<standing>`.
    #[must_use]
    pub fn course(self, standing: &str) -> String {
        format!("{}/{}/{standing}", self.redrive, self.round)
    }
}

/// What its service says of a dead letter, or an operator asks of it.
#[derive(Debug, Clone)]
pub enum DeadLetterCommand {
    /// Its service says that it is parked.
    Announce(Box<DeadLettered>),
    /// Its service says that it is handled.
    Resolve(Box<DeadLetterResolved>),
    /// Its service says that it has it no more.
    Forget(Forgotten),
    /// Hand it back to the step that failed.
    Replay(By, Replay),
    /// Give it up: what was parked is not handled after all.
    Discard(By),
    /// Take it up again.
    Restore(By),
    /// Write something down about it.
    Note(By, String),
    /// What it stands for was settled outside.
    Settle(By),
    /// It was not, after all.
    Unsettle(By),
}

/// That its service has a dead letter no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forgotten {
    /// The revision of what it was asked for.
    pub revision: u64,
    /// When it said so.
    pub at: Timestamp,
}

/// How to hand a dead letter back.
#[derive(Debug, Clone, Default)]
pub struct Replay {
    /// Even if it failed too often, or is being replayed: a replay may have got lost.
    pub force: bool,
    /// Only if it is still at this version, which is the one that whoever asks has seen.
    pub version: Option<u64>,
    /// The redrive it is part of.
    pub tag: Option<Tag>,
    /// What to handle in place of what was parked.
    pub edited: Option<EditedMessage>,
    /// How that differs, for the log.
    pub changes: Vec<EditedMember>,
}

/// What happened to a dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
pub enum DeadLetterEvent {
    /// It is handled.
    Resolved(Box<DeadLetterResolved>),
    /// It was handed back.
    Replayed {
        /// The operator who wanted it.
        by: By,
        /// Replays that had failed.
        at: u32,
        /// How it had failed.
        fingerprint: String,
        /// The redrive it is part of.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tag: Option<Tag>,
        /// What is handled in place of what was parked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        edited: Option<EditedMessage>,
        /// What its service goes by: which of what was asked is the newest. 0 in what earlier builds wrote.
        #[serde(default, skip_serializing_if = "saga_core::row::is_zero")]
        revision: u64,
    },
    /// It was given up.
    Discarded {
        /// The operator who wanted it.
        by: By,
        /// Replays that had failed.
        at: u32,
        /// What its service goes by: which of what was asked is the newest. 0 in what earlier builds wrote.
        #[serde(default, skip_serializing_if = "saga_core::row::is_zero")]
        revision: u64,
    },
    /// It was taken up again.
    Restored {
        /// The operator who wanted it.
        by: By,
        /// What its service goes by: which of what was asked is the newest. 0 in what earlier builds wrote.
        #[serde(default, skip_serializing_if = "saga_core::row::is_zero")]
        revision: u64,
    },
    /// Somebody wrote something down about it.
    Noted {
        /// The operator who did.
        by: By,
        /// The note, for people.
        text: String,
    },
    /// What it stands for was settled outside.
    Settled {
        /// The operator who did.
        by: By,
        /// Replays that had failed.
        at: u32,
        /// What its service goes by: which of what was asked is the newest. 0 in what earlier builds wrote.
        #[serde(default, skip_serializing_if = "saga_core::row::is_zero")]
        revision: u64,
    },
    /// It was not, after all.
    Unsettled {
        /// The operator who took it back.
        by: By,
        /// What its service goes by: which of what was asked is the newest. 0 in what earlier builds wrote.
        #[serde(default, skip_serializing_if = "saga_core::row::is_zero")]
        revision: u64,
    },
    /// Its service has it no more: nothing can be done to it.
    Forgotten(Forgotten),
    /// It is parked, for the first time or again. Stored bare, as builds did that knew no other event.
    #[serde(untagged)]
    #[strum(serialize = "DeadLettered")]
    Announced(Box<DeadLettered>),
}

impl DeadLetterEvent {
    /// The revision of what its service is asked, if it is asked anything.
    #[must_use]
    pub const fn revision(&self) -> Option<u64> {
        match self {
            Self::Replayed { revision, .. }
            | Self::Discarded { revision, .. }
            | Self::Restored { revision, .. }
            | Self::Settled { revision, .. }
            | Self::Unsettled { revision, .. } => Some(*revision),
            Self::Announced(_) | Self::Resolved(_) | Self::Forgotten(_) | Self::Noted { .. } => None,
        }
    }
}

/// Why a dead letter says no.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeadLetterRejection {
    /// Nobody has heard of it.
    #[error("there is no such dead letter")]
    Unknown,
    /// Its status does not allow it.
    #[error("the dead letter is {}", .0.as_str())]
    Status(DeadLetterStatus),
    /// This many of its replays have failed.
    #[error("{0} replays have failed; force it, with a reason")]
    TooOften(u32),
    /// It is at this version, not at the one that was seen.
    #[error("the dead letter has changed; it is at version {0}")]
    Changed(u64),
    /// It is a call: it has no message that could be edited.
    #[error("a call cannot be edited")]
    NotEditable,
    /// An edit of it is under way, which a replay of what it was before must not undo.
    #[error("an edit of the dead letter is under way; edit it again, with force")]
    EditUnderWay,
    /// The round of the redrive that wants to send it has done so.
    #[error("this round of the redrive has sent the dead letter already")]
    SentInThisRound,
    /// It has all the notes it can hold.
    #[error("the dead letter has {MOST_NOTES} notes already")]
    TooManyNotes,
}
