//! Build script of the `wire` crate: generates its code from the schema in `proto/`.

use std::{env, error::Error, fs, path::Path, process::ExitCode};

/// Directory of the schema in the wire crate, where build scripts run: a link, so that a package of the crate has it.
const PROTO_DIR: &str = "proto";

/// The modules of the wire crate, in the order of its table of offsets.
const FILES: [&str; 7] = [
    "control.proto",
    "io_message.proto",
    "io_message_3_1.proto",
    "io_message_3_0.proto",
    "sbc.proto",
    "stored_block.proto",
    "backing.proto",
];

/// Schemas of recordings, which are not sent over a network.
const RECORDED: [&str; 1] = ["transcript.proto"];

/// The schema of options that all others import.
const OPTIONS: &str = "options/layout.proto";

/// Directory of a schema with features of the generator that the protocol does not use, for the wire crate's own tests.
/// A build script does not know whether it builds a test.
const ODD_DIR: &str = "src/odd";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Printed here, because main would print its Debug form.
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    for file in FILES.into_iter().chain(RECORDED).chain([OPTIONS]) {
        println!("cargo::rerun-if-changed={PROTO_DIR}/{file}");
    }
    println!("cargo::rerun-if-changed={ODD_DIR}/odd.proto");
    println!("cargo::rerun-if-changed=build.rs");
    let out_dir = env::var_os("OUT_DIR").ok_or("OUT_DIR is not set: run this through cargo")?;
    let out_dir = Path::new(&out_dir);
    let proto_dir = Path::new(PROTO_DIR);
    wire_codegen::generate(&[proto_dir], &FILES, &RECORDED, out_dir)?;

    let odd_out_dir = out_dir.join("odd");
    fs::create_dir_all(&odd_out_dir)?;
    wire_codegen::generate(
        &[Path::new(ODD_DIR), proto_dir],
        &["odd.proto"],
        &[],
        &odd_out_dir,
    )?;
    Ok(())
}
