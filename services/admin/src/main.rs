//! Shell: the admin service's process.

use std::process::ExitCode;

/// It gives memory back once many connections are gone; others keep what is free but lies between what is not.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    saga_engine::host::main(admin::program())
}
