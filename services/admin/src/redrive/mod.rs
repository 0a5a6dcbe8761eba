//! Redrives: replays of many dead letters with a canary, a rate and an automatic stop. In reading order:
//!
//! - [`events`]: commands, events and rejections
//! - [`rate`]: the rate limit
//! - [`decider`]: the row of a redrive, and its next step
//! - [`active`]: the only row with all active redrives
//! - [`progress`]: counts of replayed dead letters

pub mod active;
pub mod decider;
pub mod events;
pub mod progress;
pub mod rate;
