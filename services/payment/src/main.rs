//! Shell: starts the payment service.

use std::process::ExitCode;

/// Returns memory to the system after many connections have closed; other allocators keep fragmented pages.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    saga_engine::host::main(payment::program())
}
