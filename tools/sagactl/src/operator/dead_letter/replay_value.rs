//! Pure: what replays are worth, and what they did, for people.

use jiff::Timestamp;
use serde::Deserialize;

use cli::text::NONE;
use cli::time;

/// Whose a dead letter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// It belongs to a saga.
    Saga,
    /// It is of this system, and belongs to none.
    NoSaga,
    /// Nobody of this system sent it.
    Nobody,
}

impl Of {
    /// Whose one is that came from there, and names this saga.
    pub fn one(origin: &str, saga: Option<&String>) -> Self {
        match saga {
            _ if origin == "foreign" => Self::Nobody,
            Some(_) => Self::Saga,
            None => Self::NoSaga,
        }
    }
}

/// What handling a dead letter would be worth.
#[derive(Debug, Clone, Deserialize)]
pub struct Worth {
    awaited: bool,
    saga_status: Option<String>,
    until: Option<Timestamp>,
}

impl Worth {
    /// In a sentence.
    pub fn told(&self, of: Of) -> String {
        match of {
            Of::Nobody => {
                return "nobody of this system sent it, nobody waits for it, and a replay changes nothing: discard it \
                        (`dlq discard`)"
                    .to_owned();
            }
            Of::NoSaga => return "it belongs to no saga, and is missed until it is handled".to_owned(),
            Of::Saga => {}
        }
        let saga =
            self.saga_status.as_ref().map(|status| format!(", which is {status},")).unwrap_or_default();
        match (self.awaited, self.until) {
            (true, Some(until)) => format!("its saga{saga} waits for it until {}", time::clock(until)),
            (true, None) => format!("its saga{saga} waits for it"),
            (false, _) => format!("its saga{saga} does not wait for it any more: a replay changes nothing"),
        }
    }

    /// In a word.
    pub fn word(&self) -> &'static str {
        if self.awaited { "yes" } else { "no" }
    }
}

/// What handling many would be worth.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct WorthOfMany {
    pub awaited: u64,
    pub ended: u64,
    pub first_until: Option<Timestamp>,
    pub last_until: Option<Timestamp>,
}

impl WorthOfMany {
    /// In a sentence.
    pub fn told(&self) -> String {
        let waits = match (self.first_until, self.last_until) {
            (Some(first), Some(last)) => {
                format!(", the first until {}, the last until {}", time::clock(first), time::clock(last))
            }
            _ => String::new(),
        };
        let ended = match self.ended {
            0 => String::new(),
            ended => format!("; {ended} are over, and a replay of them changes nothing"),
        };
        format!("{} are still waited for{waits}{ended}", self.awaited)
    }
}

/// What handling it did.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Effect {
    #[serde(rename = "took_effect")]
    Done,
    ChangedNothing,
    Rejected {
        reason: String,
    },
}

impl Effect {
    /// In a sentence.
    pub fn told(&self) -> String {
        match self {
            Self::Done => "it took effect".to_owned(),
            Self::ChangedNothing => {
                "it changed nothing: its saga had ended, or somebody had done it".to_owned()
            }
            Self::Rejected { reason } => format!("it changed nothing: {reason}"),
        }
    }

    /// In a few words.
    pub fn told_in_short(&self) -> &'static str {
        match self {
            Self::Done => "it took effect",
            Self::ChangedNothing | Self::Rejected { .. } => "it changed nothing",
        }
    }
}

/// Whether it is still waited for, in a word.
pub fn waited_for(worth: Option<&Worth>) -> String {
    worth.map_or(NONE, Worth::word).to_owned()
}
