//! `doca_storage_initiator_comch`: the storage client of the reference, in Rust.

use std::process::ExitCode;

fn main() -> ExitCode {
    role_initiator::run(std::env::args_os())
}
