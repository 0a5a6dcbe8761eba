//! A batch of inputs, decided in memory as one transaction: what must be read, what is decided, what is written.

mod batch;
mod calls;
mod data;
mod decide;
mod failure;
mod messages;
mod parking;
mod reads;

pub use self::batch::Rules;
pub use self::data::{
    Decide, EventWrite, InboxState, KeyedAnswer, Loaded, OutboxWrite, Reads, RowWrite, TaskRetry, Writes,
};
pub use self::decide::decide;
pub use self::reads::reads;
