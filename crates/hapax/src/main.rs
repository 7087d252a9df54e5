//! The `hapax` binary: a node, a local cluster, and the verbs of clients and operators.
//! Exit codes: 0 done, 1 refused (the reason code on standard error), 2 usage, 3 unavailable, 4 outcome unknown.

mod args;
mod bench;
mod calls;
mod dev;
mod doctor;
mod exit;
mod node;
mod output;
mod verbs;

use std::process::ExitCode;

use clap::Parser;

/// RocksDB's memory comes from it too: see `cpp/new_delete.cpp`. (docs/adr/0007-dependencies.md)
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args = args::Args::parse();
    match args::run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure:#}");
            exit::code(&failure)
        }
    }
}
