//! Shell: the bank's process.

use std::process::ExitCode;

fn main() -> ExitCode {
    saga_engine::host::main(bank::program())
}
