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
pub struct Word {
    /// Grows with each of them.
    pub revision: u64,
    /// Whether it is settled, and the order was known to be cancelled: then the cancellation asks for nothing, whenever
    /// it is heard.
    pub outlasts_cancellation: bool,
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
