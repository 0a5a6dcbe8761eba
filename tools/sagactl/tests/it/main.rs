//! Shell: the whole system end to end: real processes, a real broker, real crashes.

mod bad_input;
mod crashes;
mod operator;
mod orders;
mod readme;
mod startup;
mod system;
