//! Pure: how much payment has heard of what operators settled outside of one order: an older word has no effect,
//! however late it comes.

use std::convert::Infallible;

use saga_core::decider::Decider;
use serde::{Deserialize, Serialize};

/// The newest word heard; the default is one of which nothing was heard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settlements(Word);

/// A word about what is settled of an order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Word {
    /// Grows with each of them.
    pub revision: u64,
    /// Whether it is settled, and the order was known to be cancelled: then the cancellation asks for nothing, whenever
    /// it is heard.
    pub outlasts_cancellation: bool,
}

/// Earlier builds kept the revision alone.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Stored {
    Revision(u64),
    Outlasting { outlasts_cancellation_since: u64 },
}

impl From<Stored> for Word {
    fn from(stored: Stored) -> Self {
        match stored {
            Stored::Revision(revision) => Self { revision, outlasts_cancellation: false },
            Stored::Outlasting { outlasts_cancellation_since: revision } => {
                Self { revision, outlasts_cancellation: true }
            }
        }
    }
}

impl From<Word> for Stored {
    fn from(Word { revision, outlasts_cancellation }: Word) -> Self {
        match outlasts_cancellation {
            false => Self::Revision(revision),
            true => Self::Outlasting { outlasts_cancellation_since: revision },
        }
    }
}

impl Settlements {
    /// Whether a cancellation that is heard now asks for nothing.
    #[must_use]
    pub const fn outlasts_cancellation(&self) -> bool {
        self.0.outlasts_cancellation
    }
}

impl Decider for Settlements {
    const KIND: &'static str = "settlement";
    /// A newer word was heard: both the command and the event.
    type Command = Word;
    type Event = Word;
    type Rejection = Infallible;

    fn decide(&self, word: &Word) -> Result<Vec<Word>, Infallible> {
        Ok(if self.0.revision < word.revision { vec![*word] } else { vec![] })
    }

    fn evolve(&mut self, word: &Word) {
        if self.0.revision < word.revision {
            self.0 = *word;
        }
    }

    fn event_name(_: &Word) -> &'static str {
        "Heard"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of earlier builds are read, and written as they were: an audit compares them with their history.
    #[test]
    fn a_word_is_kept_as_earlier_builds_did_unless_it_says_more() {
        let plain = Word { revision: 7, outlasts_cancellation: false };
        let outlasting = Word { outlasts_cancellation: true, ..plain };
        for (word, text) in [(plain, "7"), (outlasting, r#"{"outlasts_cancellation_since":7}"#)] {
            assert_eq!(serde_json::to_string(&Settlements(word)).expect("JSON"), text);
            assert_eq!(serde_json::from_str::<Word>(text).expect("a word"), word);
        }
    }
}
