//! Shell: the inventory service's process.

use std::process::ExitCode;

fn main() -> ExitCode {
    shared::app::main(inventory::program())
}
