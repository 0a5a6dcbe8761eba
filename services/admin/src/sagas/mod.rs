//! Counts and sums of sagas.

pub mod overdue;
pub mod summary;
pub mod sums;
