//! Pure: a deadline extension as payment knows it. The fact may arrive before or after the request to charge.

use std::convert::Infallible;

use jiff::Timestamp;
use saga_core::decider::{Decider, RetentionPolicy};
use serde::{Deserialize, Serialize};

/// Latest deadline that operators gave an order; none by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extension(Option<Timestamp>);

impl Extension {
    /// Returns the later of this extension and the deadline in a fact.
    #[must_use]
    pub fn latest(self, deadline: Timestamp) -> Timestamp {
        self.0.map_or(deadline, |extended| extended.max(deadline))
    }
}

impl Decider for Extension {
    const KIND: &'static str = "extension";
    const RETENTION: RetentionPolicy = RetentionPolicy::PurgeRowsLast;
    /// The new deadline, as command and as event.
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

    fn is_finished(&self) -> bool {
        true
    }
}
