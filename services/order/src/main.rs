//! Shell: the order service's process.

use std::process::ExitCode;

fn main() -> ExitCode {
    shared::app::main(order::program())
}
