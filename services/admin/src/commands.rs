//! Pure: what operators, and the loops beside, may ask of admin, and what they get for an answer.

use contract::manual_resolution::ResolutionRejection;
use contract::overview::BooksLook;
use contract::saga_view::SagaView;
use jiff::Timestamp;
use saga_core::row::RowKey;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::audit_log::{Action, AuditEntry};
use crate::books::{Books, THE_BOOKS};
use crate::dead_letter::events::{DeadLetterCommand, DeadLetterRejection, Replay, Tag};
use crate::dead_letter::item::DeadLetterItem;
use crate::dead_letter::view::DeadLetterView;
use crate::push::notice::Notice;
use crate::push::told::{THE_TOLD, Told, ToldCommand, ToldRejection};
use crate::reconciliation::closing::{Closing, THE_CLOSING};
use crate::redrive::decider::Redrive;
use crate::redrive::events::{RedriveCommand, RedriveRejection};
use crate::redrive::roster::{Roster, RosterRejection, THE_ROSTER};
use crate::request::By;
use crate::settling::{Case, Named, Settling};

/// What somebody asks for.
#[derive(Debug, Clone)]
pub struct Command {
    /// Id of the input, a UUIDv7; also of its entry in the audit log.
    pub id: Uuid,
    /// Who asks, and why.
    pub by: By,
    /// What it is that they ask for.
    pub kind: CommandKind,
}

/// What may be asked for.
#[derive(Debug, Clone)]
pub enum CommandKind {
    /// Hand this dead letter back.
    Replay(Uuid, Replay),
    /// Give this dead letter up.
    Discard(Uuid),
    /// Take this dead letter up again.
    Restore(Uuid),
    /// Write something down about this dead letter.
    Note(Uuid, String),
    /// Do this to all of these dead letters that it can be done to. One wish may be many of these: whoever asks writes
    /// it down once.
    Many {
        /// Ids of dead letters, each once.
        dead_letters: Vec<Uuid>,
        /// What is done to each.
        wish: Wish,
    },
    /// Settle this outside, or take that back.
    Settle(Settling, Case),
    /// The same of many. Written down like [`CommandKind::Many`], and with it what was accepted.
    SettleMany {
        /// Whether they are settled, or that is taken back.
        settling: Settling,
        /// Each of them.
        cases: Vec<Case>,
        /// The entry that tells of it.
        entry: Uuid,
    },
    /// Let these orders wait longer, those that still wait. Written down like [`CommandKind::Many`].
    Extend {
        /// Their ids, which are their sagas', each once.
        orders: Vec<Uuid>,
        /// When they are to give up.
        until: Timestamp,
    },
    /// Start this redrive, or change its course.
    Redrive(Uuid, RedriveCommand),
    /// Hand back these dead letters as part of a redrive, if it still sends in this round.
    Send {
        /// The redrive and its round.
        tag: Tag,
        /// Ids of dead letters, each once.
        dead_letters: Vec<Uuid>,
    },
    /// Write down that a service is about to be asked for something, or that something is about to be done to many.
    OpenEntry {
        /// What is asked for.
        action: Action,
        /// What that is about, as [`Entry::target`](crate::audit_log::Entry::target) has it.
        target: String,
        /// What else is to be known of it.
        detail: Option<Value>,
    },
    /// Write down what came of what this entry tells of.
    CloseEntry(Uuid, String),
    /// Tell people what they must know, or send a test.
    Push(ToldCommand),
    /// Remember what a look at the books came to.
    Audited {
        /// What it came to.
        look: BooksLook,
        /// [`Books::forgotten`] when it began.
        forgotten: u64,
        /// What it closed, if it did.
        closing: Option<Box<Closing>>,
    },
}

/// What is done to each of many dead letters.
#[derive(Debug, Clone)]
pub enum Wish {
    /// Hand it back.
    Replay(Replay),
    /// Give it up.
    Discard,
    /// Take it up again.
    Restore,
    /// Write this down about it.
    Note(String),
}

impl Wish {
    /// What each of them is asked, by whom.
    #[must_use]
    pub fn command(&self, by: &By) -> DeadLetterCommand {
        let by = by.clone();
        match self {
            Self::Replay(replay) => DeadLetterCommand::Replay(by, replay.clone()),
            Self::Discard => DeadLetterCommand::Discard(by),
            Self::Restore => DeadLetterCommand::Restore(by),
            Self::Note(text) => DeadLetterCommand::Note(by, text.clone()),
        }
    }
}

/// The answer to a command.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Reply {
    /// It is done, and there is no more to say.
    Done,
    /// It is done, and this is what the one dead letter that it was about is now.
    Changed(Option<Box<DeadLetterItem>>),
    /// This became of the many that it was about.
    Many(Many),
    /// Somebody is told this, or nothing.
    Notice(Option<Box<Notice>>),
}

/// What became of many that something was to be done to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Many {
    /// To how many it was done.
    pub done: u64,
    /// Those that it could not be done to, at most 1000.
    pub refused: Vec<Refused>,
    /// How many more there are of these; absent when there are none.
    #[serde(default, skip_serializing_if = "saga_core::row::is_zero")]
    pub more_refused: u64,
    /// How many of those more needed it no more; absent when none did.
    #[serde(default, skip_serializing_if = "saga_core::row::is_zero")]
    pub more_ended: u64,
}

/// One that it could not be done to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Refused {
    /// Id of the dead letter, or of the saga.
    pub id: Uuid,
    /// Why it could not be done.
    pub detail: String,
    /// It needs it no more: its saga had ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_ended: bool,
}

/// Refusals that an answer lists.
const MOST_REFUSED: usize = 1_000;

impl Many {
    /// Counts one more.
    pub fn add<E: ToString>(&mut self, id: Uuid, outcome: Result<(), E>) {
        match outcome {
            Ok(()) => self.done += 1,
            Err(why) => self.refuse(Refused { id, detail: why.to_string(), has_ended: false }),
        }
    }

    /// Counts one more that it could not be done to.
    pub fn refuse(&mut self, refused: Refused) {
        if self.refused.len() >= MOST_REFUSED {
            self.more_refused += 1;
            self.more_ended += u64::from(refused.has_ended);
        } else {
            self.refused.push(refused);
        }
    }

    /// Counts those of another part.
    pub fn add_all(&mut self, part: Self) {
        self.done += part.done;
        self.more_refused += part.more_refused;
        self.more_ended += part.more_ended;
        for refused in part.refused {
            self.refuse(refused);
        }
    }

    /// How many it was asked of.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.done + self.more_refused + self.refused.len() as u64
    }
}

/// Why something cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub enum Rejection {
    /// A dead letter says no.
    DeadLetter(#[from] DeadLetterRejection),
    /// A redrive says no.
    Redrive(#[from] RedriveRejection),
    /// The roster says no.
    Roster(#[from] RosterRejection),
    /// A saga says no.
    Saga(#[from] ResolutionRejection),
    /// What has been told says no.
    Push(#[from] ToldRejection),
}

impl Command {
    /// What the facts and rows that follow are correlated by: the one dead letter, saga or redrive that it is about.
    #[must_use]
    pub const fn correlation_id(&self) -> Uuid {
        match &self.kind {
            CommandKind::Replay(id, _)
            | CommandKind::Discard(id)
            | CommandKind::Restore(id)
            | CommandKind::Note(id, _)
            | CommandKind::Redrive(id, _)
            | CommandKind::Send { tag: Tag { redrive: id, .. }, .. } => *id,
            CommandKind::Settle(_, case) => case.named.id(),
            CommandKind::Many { .. }
            | CommandKind::SettleMany { .. }
            | CommandKind::Extend { .. }
            | CommandKind::OpenEntry { .. }
            | CommandKind::CloseEntry(..)
            | CommandKind::Push(_)
            | CommandKind::Audited { .. } => self.id,
        }
    }

    /// What the audit log calls it. What happens by itself is written down too, unless it is daily work.
    #[must_use]
    pub fn action(&self) -> Option<Action> {
        match &self.kind {
            CommandKind::Replay(_, Replay { edited: None, .. }) => Some(Action::Replay),
            CommandKind::Replay(_, Replay { edited: Some(_), .. }) => Some(Action::Edit),
            CommandKind::Discard(_) => Some(Action::Discard),
            CommandKind::Restore(_) => Some(Action::Restore),
            CommandKind::Note(..) => Some(Action::Note),
            CommandKind::Redrive(_, command) => match command {
                RedriveCommand::Start(_) => Some(Action::RedriveStart),
                RedriveCommand::Pause => Some(Action::RedrivePause),
                RedriveCommand::Resume => Some(Action::RedriveResume),
                RedriveCommand::Cancel => Some(Action::RedriveCancel),
                RedriveCommand::Stop(..) => Some(Action::RedriveStop),
                RedriveCommand::Count(..) | RedriveCommand::PassCanary(..) | RedriveCommand::Finish(..) => {
                    None
                }
            },
            CommandKind::Settle(settling, Case { named, .. }) => Some(match (settling, named) {
                (Settling::Settle, Named::DeadLetter(_)) => Action::Settle,
                (Settling::Settle, Named::Saga(..)) => Action::SagaSettle,
                (Settling::Unsettle, Named::DeadLetter(_)) => Action::Unsettle,
                (Settling::Unsettle, Named::Saga(..)) => Action::SagaUnsettle,
            }),
            CommandKind::OpenEntry { action, .. } => Some(*action),
            CommandKind::Push(command) => match command {
                ToldCommand::Test => Some(Action::PushTest),
                ToldCommand::Look(..) | ToldCommand::Deliver(_) | ToldCommand::GiveUp(..) => None,
            },
            CommandKind::Audited { .. }
            | CommandKind::Many { .. }
            | CommandKind::SettleMany { .. }
            | CommandKind::Extend { .. }
            | CommandKind::Send { .. }
            | CommandKind::CloseEntry(..) => None,
        }
    }

    /// The rows that it concerns.
    #[must_use]
    pub fn reads(&self) -> Vec<RowKey> {
        let all = |dead_letters: &[Uuid]| dead_letters.iter().map(RowKey::of::<DeadLetterView>).collect();
        let mut keys: Vec<RowKey> = match &self.kind {
            CommandKind::Replay(id, _)
            | CommandKind::Discard(id)
            | CommandKind::Restore(id)
            | CommandKind::Note(id, _) => all(&[*id]),
            CommandKind::Many { dead_letters, .. } => all(dead_letters),
            CommandKind::Settle(_, case) => case.rows().chain([the_books()]).collect(),
            CommandKind::SettleMany { cases, entry, .. } => {
                let beside = [the_books(), RowKey::of::<AuditEntry>(entry)];
                cases.iter().flat_map(Case::rows).chain(beside).collect()
            }
            CommandKind::Extend { orders, .. } => orders.iter().map(RowKey::of::<SagaView>).collect(),
            CommandKind::Redrive(id, _) => vec![RowKey::of::<Redrive>(id), RowKey::of::<Roster>(THE_ROSTER)],
            CommandKind::Send { tag, dead_letters } => {
                let mut keys: Vec<_> = all(dead_letters);
                keys.push(RowKey::of::<Redrive>(tag.redrive));
                keys
            }
            CommandKind::OpenEntry { .. } => vec![],
            CommandKind::CloseEntry(entry, _) => vec![RowKey::of::<AuditEntry>(entry), the_books()],
            CommandKind::Push(_) => vec![RowKey::of::<Told>(THE_TOLD)],
            CommandKind::Audited { .. } => vec![the_books(), RowKey::of::<Closing>(THE_CLOSING)],
        };
        keys.extend(self.action().map(|_| RowKey::of::<AuditEntry>(self.id)));
        keys
    }
}

fn the_books() -> RowKey {
    RowKey::of::<Books>(THE_BOOKS)
}
