//! Shell: the whole system end to end: real processes, a real broker, real crashes.

mod bad_input;
mod crashes;
mod dead_letters;
mod layers;
mod operator;
mod orders;
mod readme;
mod redrives;
mod startup;
mod system;
