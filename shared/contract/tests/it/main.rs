//! Tests of the contract from outside: its JSON, what an edit may not change, and what is seen of a saga.

mod edits;
mod participants;
mod view;
mod wire;
