//! Shell: the whole system end to end: real processes, a real broker, real crashes.

mod bad_input;
mod clocks;
mod commands;
mod crashes;
mod dead_letters;
mod dependencies;
mod full_disk;
mod held;
mod hostile;
mod layers;
mod load;
mod logs;
mod operator;
mod orders;
mod overload;
mod paging;
mod product;
mod readme;
mod redrives;
mod rescue;
mod secrets;
mod startup;
mod strangers;
mod system;
mod users;
mod wiring;
