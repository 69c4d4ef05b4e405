//! Writes seed inputs for the fuzz targets: `cargo run -p fuzz-properties --example seeds` creates `fuzz/corpus/`.
//!
//! They are the golden vectors of the conformance suite, each after the few bytes that select the kind of input, and
//! the files of flags printed in the guides.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use conformance::layout::{Vector, embedded};

fn main() -> Result<(), Box<dyn Error>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus");
    let vectors = embedded().map_err(|(name, error)| format!("{name}: {error}"))?;
    let mut written = 0;
    let mut write = |target: &str, name: &str, numbers: &[u8], bytes: &[u8]| {
        let folder: PathBuf = corpus.join(target);
        fs::create_dir_all(&folder)?;
        written += 1;
        fs::write(folder.join(name), [numbers, bytes].concat())
    };
    for vector in &vectors {
        let Vector { name, message, .. } = vector;
        let bytes = vector.bytes();
        match message.as_str() {
            "io_message" => write("io_message", name, &[0], &bytes)?,
            // Preceded by flags of a target, which a .sbc file overrides.
            "sbc_header" => write("sbc", name, &[0, 4, 3], &bytes)?,
            "stored_block" => {
                write("stored_block", name, &[0, 0, 0], &bytes)?;
                write(
                    "stored_block",
                    &format!("{name}_repaired"),
                    &[0, 0, 1],
                    &bytes,
                )?;
            }
            // In one piece, and byte by byte.
            _ => {
                write("control_frames", name, &[0, 255], &bytes)?;
                write(
                    "control_frames",
                    &format!("{name}_in_bytes"),
                    &[0, 1],
                    &bytes,
                )?;
            }
        }
    }
    let session: Vec<u8> = vectors
        .iter()
        .filter(|vector| vector.message.ends_with("_request"))
        .flat_map(Vector::bytes)
        .take(4096)
        .collect();
    write("control_frames", "session", &[0, 100], &session)?;
    let file = [&[0, 0, 0, 2, 0, 0, 0, 3][..], b"abcdef"].concat();
    let file = [&wire::sbc::MAGIC.to_be_bytes()[..], &file].concat();
    write("sbc", "two_times_three", &[0, 4, 3], &file)?;
    write("sbc", "plain", &[0, 4, 3], b"0123456789ab")?;
    for (program, text) in FLAGS.iter().enumerate() {
        let program = u8::try_from(program)?;
        write(
            "json_flags",
            &format!("{program}"),
            &[0, program],
            text.as_bytes(),
        )?;
    }
    println!("{written} inputs in {}", corpus.display());
    Ok(())
}

/// Flags for each program, in the order of `json_flags::Program::ALL`.
const FLAGS: [&str; 5] = [
    r#"{ // a target
    "doca_general_flags": { "log-level": 60, "sdk-log-level": 30 },
    "doca_program_flags": { "device": "3b:00.0", "cpu": [0], "listen-port": 12345, "block-count": 64, "block-size": 4096,
        "binary-content": "blocks.sbc" }
}"#,
    r#"{ "doca_program_flags": { "device": "03:00.0", "representor": "3b:00.0", "cpu": 0, /* one */
        "storage-server": "172.17.0.1:12345", "command-channel-name": "x", "control-timeout": 9 } }"#,
    r#"{ "doca_program_flags": { "device": "03:00.0", "representor": "3b:00.0", "cpu": [0], "data-1-storage": "172.17.0.1:1",
        "data-2-storage": "172.17.0.1:2", "data-p-storage": "172.17.0.1:3", "matrix-type": "cauchy", "checksum": "off",
        "trigger-recovery-read-every-n": 3, "logical-block-size": 4096 } }"#,
    r#"{ "doca_program_flags": { "device": "3b:00.0", "cpu": [0], "execution-strategy": "read_throughput_test",
        "run-limit-operation-count": 1000, "transaction-count": 8, "blocks-per-io": 2, "seed": 1, "io-timeout": 3 } }"#,
    r#"{ "doca_program_flags": { "device": "3b:00.0", "original-input-data": "a", "data-1": "b", "data-2": "c", "data-p": "d",
        "block-size": 4096, "output": "json" } }"#,
];
