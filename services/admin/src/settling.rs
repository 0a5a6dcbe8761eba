//! Pure: what an operator settles outside, and what goes with it: a saga takes the dead letters in its way along, and the
//! last dead letter in a saga's way takes the saga along.

use std::collections::BTreeSet;

use contract::manual_resolution::Accepted;
use contract::saga_view::SagaView;
use saga_core::row::RowKey;
use uuid::Uuid;

use crate::dead_letter::view::DeadLetterView;

/// What is settled, or taken back, as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// What the operator named: when it says no, nothing is done.
    pub named: Named,
    /// What goes with it, as far as it can.
    pub with: Vec<Named>,
    /// The dead letters in the way of the saga that goes with a dead letter: it goes with the last that waits, and not
    /// while there is one that is not among these.
    pub in_the_way: BTreeSet<Uuid>,
}

/// Something that can be settled outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// This dead letter.
    DeadLetter(Uuid),
    /// This saga, and what of it does not add up: no more than that is accepted.
    Saga(Uuid, Vec<Accepted>),
}

/// What is done to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settling {
    /// It is settled: nobody waits for it any more.
    Settle,
    /// That is taken back.
    Unsettle,
}

impl Named {
    /// Its id.
    #[must_use]
    pub const fn id(&self) -> Uuid {
        match self {
            Self::DeadLetter(id) | Self::Saga(id, _) => *id,
        }
    }

    fn row(&self) -> RowKey {
        match self {
            Self::DeadLetter(id) => RowKey::of::<DeadLetterView>(id),
            Self::Saga(id, _) => RowKey::of::<SagaView>(id),
        }
    }
}

impl Case {
    /// The rows that it concerns.
    pub fn rows(&self) -> impl Iterator<Item = RowKey> {
        let named = std::iter::once(&self.named).chain(&self.with).map(Named::row);
        named.chain(self.in_the_way.iter().map(RowKey::of::<DeadLetterView>))
    }
}
