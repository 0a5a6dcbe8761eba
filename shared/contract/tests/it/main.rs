//! Tests of the contract through its public interface: JSON, edits, and the view of a saga.

mod edits;
mod participants;
mod repository;
mod view;
mod wire;
