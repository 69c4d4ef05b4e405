//! Files of the generator, as loaded by targets.

use crate::support::{Sandbox, content, text};

/// Compressible content: each byte eight times.
fn compressible(blocks: usize) -> Vec<u8> {
    let bytes = content(blocks);
    bytes.chunks(8).flat_map(|chunk| [chunk[0]; 8]).collect()
}

#[test]
fn targets_load_what_the_generator_makes() {
    let sandbox = Sandbox::new();
    let original = sandbox.file("original", &compressible(5));
    let files = ["data_1", "data_2", "data_p"].map(|name| original.with_file_name(name));
    let output = sandbox
        .command(&["sbc-generator", "-d", "03:00.0", "--original-input-data"])
        .arg(&original)
        .args(["--matrix-type", "cauchy"])
        .arg("--data-1")
        .arg(&files[0])
        .arg("--data-2")
        .arg(&files[1])
        .arg("--data-p")
        .arg(&files[2])
        .output()
        .expect("the program runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    for file in &files {
        let size = std::fs::metadata(file).expect("a file").len();
        assert_eq!(size, 16 + 5 * 2048, "{}", file.display());
        let (target, port) = sandbox.target(&["--binary-content", text(file)]);
        assert_ne!(port, 0);
        // The target prints its blocks before its port.
        let said = target.stderr();
        assert!(said.contains("5 blocks of 2048 bytes"), "{said}");
    }
}
