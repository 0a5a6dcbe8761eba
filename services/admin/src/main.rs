//! Shell: the admin service's process.

use std::process::ExitCode;

/// It gives memory back once many connections are gone: the allocator of glibc keeps what lies between others'.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    saga_engine::host::main(admin::program())
}
