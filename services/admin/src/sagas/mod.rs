//! Counts of sagas.

pub mod overdue;
pub mod summary;
