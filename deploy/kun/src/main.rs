//! `kun`: starts the part of KUN that its first argument names.
//!
//! `launch`, `agent` and `install-agent` are what pods run: they are told apart before anything else is set up, so that a pod starts fast.

use std::process::ExitCode;

/// With many live objects the system's allocator makes JSON several times slower (docs/operations.md, "Memory").
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(word) if word == kun::launch::SUBCOMMAND => kun::launch::run(args),
        Some(word) if word == kun::agent::SUBCOMMAND => kun::agent::run(args),
        Some(word) if word == kun::install::SUBCOMMAND => kun::install::run(args),
        Some(_) | None => kun::cli::run(),
    }
}
