//! Shell: the inventory service's process.

use std::process::ExitCode;

fn main() -> ExitCode {
    saga_engine::host::main(inventory::program())
}
