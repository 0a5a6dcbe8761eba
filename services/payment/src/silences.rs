//! Pure: how far a look for payments that came to nothing without a word has come.
//!
//! Builds before `PaymentVoided` answered no cancellation of an order that nothing was captured for, and whoever
//! waits for that answer would wait for ever. A database is looked through once, and the look goes on where it was
//! when the service stopped.

use std::convert::Infallible;

use saga_core::decider::Decider;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The id of the one row.
pub const THE_LOOK: &str = "look";

/// The look, as it is remembered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silences {
    /// The last payment that was looked at.
    pub after: Option<Uuid>,
    /// There is no other.
    pub is_over: bool,
}

/// How far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
pub enum Looked {
    /// To the payment of this order.
    To(Uuid),
    /// To the end.
    ToTheEnd,
}

impl Decider for Silences {
    const KIND: &'static str = "silence";
    type Command = Looked;
    type Event = Looked;
    type Rejection = Infallible;

    fn decide(&self, looked: &Looked) -> Result<Vec<Looked>, Infallible> {
        let is_known = self.is_over || matches!(looked, Looked::To(order) if Some(*order) <= self.after);
        Ok(if is_known { vec![] } else { vec![*looked] })
    }

    fn evolve(&mut self, event: &Looked) {
        match event {
            Looked::To(order) => self.after = Some(*order),
            Looked::ToTheEnd => self.is_over = true,
        }
    }

    fn event_name(event: &Looked) -> &'static str {
        event.into()
    }
}
