//! Dead letters: which are meant, how they are shown, and what is done with them.

// Which are meant.
pub mod filter;

// How they are shown: one, a page of them, groups of them; card tokens never.
pub mod group;
mod secrets;
pub mod view;
pub mod worth;

// What is done with them: replay, discard, restore, note; what came of a replay; edit.
pub mod change;
pub mod edit;
mod outcome;
