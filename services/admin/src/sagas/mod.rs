//! Counts of sagas.

pub mod summary;
