//! Pure: the time that an order was given beyond its first deadline, as payment has heard of it: perhaps before it
//! was asked to charge.

use std::convert::Infallible;

use jiff::Timestamp;
use saga_core::decider::Decider;
use serde::{Deserialize, Serialize};

/// Until when an order waits by what operators gave it; the default is one that was given nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extension(Option<Timestamp>);

impl Extension {
    /// The later of this and what another fact says.
    #[must_use]
    pub fn of(self, deadline: Timestamp) -> Timestamp {
        self.0.map_or(deadline, |extended| extended.max(deadline))
    }
}

impl Decider for Extension {
    const KIND: &'static str = "extension";
    /// The order waits until then: both the command and the event.
    type Command = Timestamp;
    type Event = Timestamp;
    type Rejection = Infallible;

    fn decide(&self, until: &Timestamp) -> Result<Vec<Timestamp>, Infallible> {
        Ok(if self.0 < Some(*until) { vec![*until] } else { vec![] })
    }

    fn evolve(&mut self, until: &Timestamp) {
        self.0 = self.0.max(Some(*until));
    }

    fn event_name(_: &Timestamp) -> &'static str {
        "Extended"
    }
}
