//! Pure: the latest manual resolution of an order that payment has received. Older requests have no effect.

use std::convert::Infallible;

use saga_core::decider::{Decider, RetentionPolicy};
use serde::{Deserialize, Serialize};

/// Latest manual resolution of one order. The default has revision 0: none was received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManualResolution {
    /// Increases with each request for the order.
    pub revision: u64,
    /// True if the operator resolved the order knowing it was cancelled. A cancellation that arrives later then refunds
    /// nothing.
    pub covers_cancellation: bool,
}

impl Decider for ManualResolution {
    const KIND: &'static str = "manual_resolution";
    const RETENTION: RetentionPolicy = RetentionPolicy::PurgeRowsLast;
    /// A received request, as command and as event.
    type Command = Self;
    type Event = Self;
    type Rejection = Infallible;

    fn decide(&self, received: &Self) -> Result<Vec<Self>, Infallible> {
        Ok(if self.revision < received.revision { vec![*received] } else { vec![] })
    }

    fn evolve(&mut self, received: &Self) {
        if self.revision < received.revision {
            *self = *received;
        }
    }

    fn event_name(_: &Self) -> &'static str {
        "Received"
    }

    fn is_finished(&self) -> bool {
        true
    }
}
