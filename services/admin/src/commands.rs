//! Pure: what operators, and the driver of redrives, may ask of admin, and what they get for an answer.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use shared::contract::EditedMessage;
use shared::row::RowKey;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::letter_view::LetterItem;
use crate::letters::{By, Letter, LetterRejection, Tag};
use crate::operations::{Action, Operation, SYSTEM};
use crate::redrive::{Plan, Redrive, RedriveCommand, RedriveRejection};
use crate::roster::{Roster, RosterRejection, THE_ROSTER};

/// What an operator asks for.
#[derive(Debug, Clone)]
pub struct Command {
    /// Id of the input, a UUIDv7: also of the log's entry, and of a redrive that it starts.
    pub id: Uuid,
    /// Who asks, and why.
    pub by: By,
    /// What for.
    pub wish: Wish,
}

/// What may be asked for.
#[derive(Debug, Clone)]
pub enum Wish {
    /// Hand one letter back.
    Replay {
        /// Which.
        letter: Uuid,
        /// See [`Replay::force`](crate::letters::Replay::force).
        force: bool,
        /// See [`Replay::version`](crate::letters::Replay::version).
        version: Option<u64>,
        /// See [`Replay::edited`](crate::letters::Replay::edited).
        edited: Option<EditedMessage>,
    },
    /// Give one letter up.
    Discard(Uuid),
    /// Take one letter up again.
    Restore(Uuid),
    /// Write something down.
    Note(Uuid, String),
    /// Hand back all of these that can be.
    ReplayMany {
        /// Which.
        letters: Vec<Uuid>,
        /// See [`Replay::force`](crate::letters::Replay::force).
        force: bool,
        /// What the log calls them.
        target: String,
    },
    /// Start a redrive, under the id of the command.
    Start(Box<Plan>),
    /// Change a redrive's course.
    Steer(Uuid, Steer),
    /// The driver has seen something.
    Drive(Uuid, RedriveCommand),
    /// Hand back these letters as part of a redrive that sends in this round.
    Send {
        /// Redrive and round.
        tag: Tag,
        /// Which.
        letters: Vec<Uuid>,
    },
    /// Write down that a service is about to be asked for something.
    Log {
        /// What for.
        action: Action,
        /// What it is about.
        target: String,
        /// More.
        detail: Option<Value>,
    },
    /// Write down what the service answered.
    EndLog {
        /// The entry.
        entry: Uuid,
        /// What came of it.
        outcome: String,
        /// More.
        detail: Option<Value>,
    },
}

/// What an operator may ask of a redrive under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steer {
    /// Send nothing for now.
    Pause,
    /// Go on.
    Resume,
    /// End it.
    Cancel,
}

/// The answer to a command.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Reply {
    /// The letter after it.
    pub letter: Option<LetterItem>,
    /// Letters handed back.
    pub replayed: u64,
    /// Letters that could not be.
    pub refused: Vec<Refused>,
}

/// A letter that could not be handed back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Refused {
    /// Which.
    pub id: Uuid,
    /// Why.
    pub detail: String,
}

/// Why something cannot be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejection {
    /// A letter says no.
    Letter(LetterRejection),
    /// A redrive says no.
    Redrive(RedriveRejection),
    /// The roster says no.
    Roster(RosterRejection),
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Letter(rejection) => rejection.fmt(f),
            Self::Redrive(rejection) => rejection.fmt(f),
            Self::Roster(rejection) => rejection.fmt(f),
        }
    }
}

impl Command {
    /// What the log calls it. What happens by itself is written down too, unless it is daily work.
    #[must_use]
    pub fn action(&self) -> Option<Action> {
        match &self.wish {
            Wish::Replay { edited: None, .. } => Some(Action::Replay),
            Wish::Replay { edited: Some(_), .. } => Some(Action::Edit),
            Wish::Discard(_) => Some(Action::Discard),
            Wish::Restore(_) => Some(Action::Restore),
            Wish::Note(..) => Some(Action::Note),
            Wish::ReplayMany { .. } => Some(Action::ReplayMany),
            Wish::Start(_) => Some(Action::RedriveStart),
            Wish::Steer(_, Steer::Pause) => Some(Action::RedrivePause),
            Wish::Steer(_, Steer::Resume) => Some(Action::RedriveResume),
            Wish::Steer(_, Steer::Cancel) => Some(Action::RedriveCancel),
            Wish::Drive(_, RedriveCommand::Stop(..)) => Some(Action::RedriveStop),
            Wish::Log { action, .. } => Some(*action),
            Wish::Drive(..) | Wish::Send { .. } | Wish::EndLog { .. } => None,
        }
    }

    /// The rows that it concerns.
    #[must_use]
    pub fn reads(&self) -> Vec<RowKey> {
        let letters = |letters: &[Uuid]| letters.iter().map(RowKey::of::<Letter>).collect();
        let redrive = |redrive: Uuid| vec![RowKey::of::<Redrive>(redrive), RowKey::of::<Roster>(THE_ROSTER)];
        let mut keys: Vec<RowKey> = match &self.wish {
            Wish::Replay { letter, .. }
            | Wish::Discard(letter)
            | Wish::Restore(letter)
            | Wish::Note(letter, _) => letters(&[*letter]),
            Wish::ReplayMany { letters: many, .. } => letters(many),
            Wish::Start(_) => redrive(self.id),
            Wish::Steer(id, _) | Wish::Drive(id, _) => redrive(*id),
            Wish::Send { tag, letters: many } => {
                let mut keys: Vec<_> = letters(many);
                keys.push(RowKey::of::<Redrive>(tag.redrive));
                keys
            }
            Wish::Log { .. } => vec![],
            Wish::EndLog { entry, .. } => vec![RowKey::of::<Operation>(entry)],
        };
        keys.extend(self.action().map(|_| RowKey::of::<Operation>(self.id)));
        keys
    }
}

impl By {
    /// What happens by itself.
    #[must_use]
    pub fn system(reason: Option<String>) -> Self {
        Self { operator: SYSTEM.to_owned(), reason }
    }
}
