//! Pure: what may be asked of a dead letter, what may happen to it, and why it says no.

use std::fmt;

use serde::{Deserialize, Serialize};
use shared::contract::{DeadLetterResolved, DeadLettered, EditedMessage};
use shared::store::LetterStatus;
use uuid::Uuid;

/// Replays without `force`: what fails that often will not get better by itself.
pub const MOST_REPLAYS: u32 = 3;

/// Notes on one letter; they are for people, who read no more.
pub const MOST_NOTES: u32 = 100;

/// Who asks for something, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct By {
    /// Who.
    pub operator: String,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A replay that is part of a redrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tag {
    /// The redrive.
    pub redrive: Uuid,
    /// Its round.
    pub round: u32,
}

impl Tag {
    /// What the field `redrive` of a letter holds that this round sent and that stands like this.
    #[must_use]
    pub fn course(self, standing: &str) -> String {
        format!("{}/{}/{standing}", self.redrive, self.round)
    }
}

/// A wish concerning a letter.
#[derive(Debug, Clone)]
pub enum LetterCommand {
    /// Its service says that it is parked.
    Announce(Box<DeadLettered>),
    /// Its service says that it is handled.
    Resolve(Box<DeadLetterResolved>),
    /// Hand it back to the step that failed.
    Replay(Replay),
    /// Give it up.
    Discard(By),
    /// Take it up again.
    Restore(By),
    /// Write something down.
    Note(By, String),
}

/// How to hand a letter back.
#[derive(Debug, Clone)]
pub struct Replay {
    /// Who wants it.
    pub by: By,
    /// Even if it failed too often, or is being replayed: a replay may have got lost.
    pub force: bool,
    /// The version that whoever asks has seen.
    pub version: Option<u64>,
    /// The redrive it belongs to.
    pub tag: Option<Tag>,
    /// What to handle in place of what was parked.
    pub edited: Option<EditedMessage>,
}

/// What happened to a letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LetterEvent {
    /// It is handled.
    Resolved(Box<DeadLetterResolved>),
    /// It was handed back.
    Replayed {
        /// Who wanted it.
        by: By,
        /// Replays that had failed.
        at: u32,
        /// How it had failed.
        fingerprint: String,
        /// The redrive it belongs to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tag: Option<Tag>,
        /// What is handled in place of what was parked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        edited: Option<EditedMessage>,
    },
    /// It was given up.
    Discarded {
        /// Who wanted it.
        by: By,
        /// Replays that had failed.
        at: u32,
    },
    /// It was taken up again.
    Restored {
        /// Who wanted it.
        by: By,
    },
    /// Somebody wrote something down.
    Noted {
        /// Who.
        by: By,
        /// What.
        text: String,
    },
    /// It is parked, for the first time or again. Stored bare, as builds did that knew no other event.
    #[serde(untagged)]
    Announced(Box<DeadLettered>),
}

/// Why a letter says no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LetterRejection {
    /// Nobody has heard of it.
    Unknown,
    /// Its status does not allow it.
    Status(LetterStatus),
    /// It failed too often.
    TooOften(u32),
    /// It is at another version.
    Changed(u64),
    /// It is a call: it has no message that could be edited.
    NotEditable,
    /// It has all the notes it can hold.
    TooManyNotes,
}

impl fmt::Display for LetterRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("there is no such dead letter"),
            Self::Status(status) => write!(f, "the dead letter is {}", status.as_str()),
            Self::TooOften(replays) => write!(f, "{replays} replays have failed; force it, with a reason"),
            Self::Changed(version) => write!(f, "the dead letter has changed; it is at version {version}"),
            Self::NotEditable => f.write_str("a call cannot be edited"),
            Self::TooManyNotes => write!(f, "the dead letter has {MOST_NOTES} notes already"),
        }
    }
}
