//! Shell: the bank's process.

use std::process::ExitCode;

fn main() -> ExitCode {
    shared::app::main(bank::program())
}
