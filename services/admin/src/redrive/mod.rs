//! Redrives: many dead letters handed back one after another, a few first, never faster than told, and no more
//! once the error comes back.
//!
//! - [`events`]: what may be asked of one, what may happen to it, why it says no
//! - [`decider`]: the row of one, and what follows from what is seen of it
//! - [`roster`]: the one row that knows which are under way
//! - [`pace`]: how many may be sent now
//! - `progress`: how far one is, counted from the dead letters

pub mod decider;
pub mod events;
pub mod pace;
pub mod progress;
pub mod roster;
