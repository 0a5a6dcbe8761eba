//! Shell: the admin service's process.

use std::process::ExitCode;

fn main() -> ExitCode {
    shared::app::main(admin::program())
}
