//! Pure: how much payment has heard of what operators settled outside of one order: an older word has no effect,
//! however late it comes.

use std::convert::Infallible;

use saga_core::decider::Decider;
use serde::{Deserialize, Serialize};

/// The newest revision heard; the default is one of which nothing was heard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settlements(u64);

impl Decider for Settlements {
    const KIND: &'static str = "settlement";
    /// A newer revision was heard: both the command and the event.
    type Command = u64;
    type Event = u64;
    type Rejection = Infallible;

    fn decide(&self, revision: &u64) -> Result<Vec<u64>, Infallible> {
        Ok(if self.0 < *revision { vec![*revision] } else { vec![] })
    }

    fn evolve(&mut self, revision: &u64) {
        self.0 = self.0.max(*revision);
    }

    fn event_name(_: &u64) -> &'static str {
        "Heard"
    }
}
