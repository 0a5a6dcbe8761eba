//! Pure: manual resolution of sagas and dead letters, and its withdrawal. A saga takes its dead letters along, and the last
//! dead letter that blocks a saga takes the saga along.

use std::collections::BTreeSet;

use contract::manual_resolution::Accepted;
use contract::saga_view::SagaView;
use saga_core::row::RowKey;
use uuid::Uuid;

use crate::dead_letters::view::DeadLetterView;

/// What is resolved or withdrawn together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// Subject of the request. When it is rejected, nothing changes.
    pub target: Target,
    /// Taken along where possible.
    pub along: Vec<Target>,
    /// Dead letters that block the saga of a dead letter. The saga is resolved with the last one, and not while there is
    /// another one.
    pub blocking: BTreeSet<Uuid>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    DeadLetter(Uuid),
    /// A saga, with the discrepancies that its resolution accepts.
    Saga(Uuid, Vec<Accepted>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Resolve,
    Withdraw,
}

impl Target {
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

impl Resolution {
    /// Keys of all rows that it reads or changes.
    pub fn rows(&self) -> impl Iterator<Item = RowKey> {
        let targets = std::iter::once(&self.target).chain(&self.along).map(Target::row);
        targets.chain(self.blocking.iter().map(RowKey::of::<DeadLetterView>))
    }
}
