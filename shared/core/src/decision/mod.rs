//! Pure: a batch of inputs, decided in memory as one transaction: its reads, its decisions, its writes.

mod batch;
mod data;
mod dead_letters;
mod decide;
mod input_error;
mod messages;
mod reads;
mod task_results;

pub use self::batch::DecisionConfig;
pub use self::data::{
    Decide, EventWrite, InboxState, KeyedAnswer, Loaded, OutboxWrite, Reads, ReplayTrace, RowWrite,
    TaskRetry, Writes,
};
pub use self::decide::decide;
pub use self::reads::reads;
