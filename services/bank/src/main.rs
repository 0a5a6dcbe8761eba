//! Shell: starts the bank.

use std::process::ExitCode;

/// Returns memory to the system after many connections have closed; other allocators keep fragmented pages.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    saga_engine::host::main(bank::program())
}
