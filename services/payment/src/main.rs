//! Shell: the payment service's process.

use std::process::ExitCode;

fn main() -> ExitCode {
    shared::app::main(payment::program())
}
