//! Build script of the `wire` crate: generates its code from the schema in `proto/`.

use std::{env, error::Error, path::Path, process::ExitCode};

/// Directory of the schema, relative to the wire crate, where build scripts run.
const PROTO_DIR: &str = "../proto";

/// The modules of the wire crate, in the order of its table of offsets.
const FILES: [&str; 4] = [
    "control.proto",
    "io_message.proto",
    "sbc.proto",
    "stored_block.proto",
];

/// What the modules import.
const OPTIONS: &str = "options/layout.proto";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Printed for people: returned from main it would come in Debug form.
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    for file in FILES.into_iter().chain([OPTIONS]) {
        println!("cargo::rerun-if-changed={PROTO_DIR}/{file}");
    }
    println!("cargo::rerun-if-changed=../build.rs");
    let out_dir = env::var_os("OUT_DIR").ok_or("OUT_DIR is not set: run this through cargo")?;
    wire_codegen::generate(Path::new(PROTO_DIR), &FILES, Path::new(&out_dir))?;
    Ok(())
}
