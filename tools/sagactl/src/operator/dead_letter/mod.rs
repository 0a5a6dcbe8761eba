//! Dead letters: selection, output and changes.

// Options that select dead letters.
pub mod selection;

// Output of one, of a page, of groups, and of what a replay is worth.
pub mod group;
pub mod replay_value;
pub mod view;

// Changes: discard, restore, resolve, note; replay; edit.
pub mod change;
pub mod edit;
pub mod replay;
