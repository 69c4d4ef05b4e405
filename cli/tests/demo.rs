//! The demo with all combinations of options, the commands that `demo --keep` prints, and files of the generator, as
//! loaded by targets.

use std::path::Path;
use std::process::{Command, Output};

use deployment::log::LogEvent;
use serde_json::Value;

use crate::support::{Sandbox, text};

/// Runs the demo of the zero-copy deployment with few throughput operations; the validation runs visit every block nevertheless.
fn demo(arguments: &[&str]) {
    run(&[&["--layout", "zero-copy"], arguments].concat(), 5);
}

/// Runs the demo of the gga deployment with these numbers of workers and blocks per I/O.
fn gga(block_size: &str, matrix: &str, shapes: [(&str, &str); 2]) {
    for (workers, blocks_per_io) in shapes {
        run(
            &[
                "--layout",
                "gga",
                "--block-size",
                block_size,
                "--matrix-type",
                matrix,
                "--workers",
                workers,
                "--blocks-per-io",
                blocks_per_io,
                "--transactions",
                "16",
            ],
            6,
        );
    }
}

/// Shapes (workers, blocks per I/O) of gga deployments: each block size is tested with all four, and each matrix with all sizes.
const ONE_EACH_AND_MANY: [(&str, &str); 2] = [("1", "1"), ("2", "8")];

const MANY_OF_ONE: [(&str, &str); 2] = [("1", "8"), ("2", "1")];

/// Runs the demo, which must pass with this number of sessions.
fn run(arguments: &[&str], sessions: usize) {
    let base = ["demo", "--json"];
    let output = Sandbox::new()
        .command(&[&base[..], arguments].concat())
        .output()
        .expect("the program starts");
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{stdout}\n{stderr}");
    let report: Value = serde_json::from_str(&stdout).expect("a JSON document");
    assert_eq!(report["verdict"], "PASS", "{report}");
    assert_eq!(
        report["sessions"].as_array().map(Vec::len),
        Some(sessions),
        "{report}"
    );
}

#[test]
fn zero_copy_with_defaults() {
    demo(&["--operations", "2000"]);
}

#[test]
fn zero_copy_with_two_workers_and_four_blocks_per_io() {
    demo(&[
        "--workers",
        "2",
        "--blocks-per-io",
        "4",
        "--operations",
        "2000",
    ]);
}

#[test]
fn zero_copy_with_a_local_region_smaller_than_the_storage() {
    demo(&[
        "--local-io-region-size",
        "65536",
        "--workers",
        "2",
        "--operations",
        "2000",
    ]);
}

#[test]
fn zero_copy_with_blocks_of_512_bytes() {
    demo(&["--block-size", "512", "--operations", "2000"]);
}

#[test]
fn zero_copy_with_blocks_of_1_mib() {
    demo(&[
        "--block-size",
        "1048576",
        "--transactions",
        "8",
        "--operations",
        "100",
    ]);
}

#[test]
fn zero_copy_with_one_transaction() {
    demo(&["--transactions", "1", "--operations", "500"]);
}

#[test]
fn gga_with_blocks_of_4_kib_and_vandermonde() {
    gga("4096", "vandermonde", ONE_EACH_AND_MANY);
}

#[test]
fn gga_with_blocks_of_4_kib_and_cauchy() {
    gga("4096", "cauchy", MANY_OF_ONE);
}

#[test]
fn gga_with_blocks_of_64_kib_and_vandermonde() {
    gga("65536", "vandermonde", ONE_EACH_AND_MANY);
}

#[test]
fn gga_with_blocks_of_64_kib_and_cauchy() {
    gga("65536", "cauchy", MANY_OF_ONE);
}

#[test]
fn gga_with_blocks_of_1_mib_and_vandermonde() {
    gga("1048576", "vandermonde", ONE_EACH_AND_MANY);
}

#[test]
fn gga_with_blocks_of_1_mib_and_cauchy() {
    gga("1048576", "cauchy", MANY_OF_ONE);
}

#[test]
fn gga_with_content_that_does_not_compress() {
    let sandbox = Sandbox::new();
    let noise = sandbox.file("noise", &contents::noise(1, 100_000));
    run(
        &["--layout", "gga", "--content", crate::support::text(&noise)],
        6,
    );
}

#[test]
fn volume_can_hold_a_file_system() {
    run(&["--layout", "volume"], 1);
}

#[test]
fn default_demo_runs_both_layouts() {
    run(&["--operations", "2000"], 12);
}

#[test]
fn unusable_option_is_explained() {
    let output = Sandbox::new()
        .command(&["demo", "--local-io-region-size", "100", "--workers", "3"])
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("--local-io-region-size") && stderr.contains("12288"),
        "{stderr}"
    );
}

// Commands printed by `demo --keep` work when pasted into a shell, even if paths need quotes.

fn shell(line: &str) -> Output {
    Command::new("sh")
        .args(["-c", line])
        .output()
        .expect("a shell")
}

#[test]
fn printed_commands_use_and_remove_a_zero_copy_deployment() {
    the_printed_lines_drive_and_remove("zero-copy", 2);
}

#[test]
fn printed_commands_use_and_remove_a_gga_deployment() {
    the_printed_lines_drive_and_remove("gga", 4);
}

fn the_printed_lines_drive_and_remove(layout: &str, processes: usize) {
    let parent = tempfile::tempdir().expect("a directory");
    let temporary = parent.path().join("it's here");
    std::fs::create_dir(&temporary).expect("a directory");
    let output = Sandbox::new()
        .command(&["demo", "--layout", layout, "--keep", "--operations", "100"])
        .env("TMPDIR", &temporary)
        .output()
        .expect("the program starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let after = |mark: &str| {
        let (_, rest) = text
            .split_once(mark)
            .unwrap_or_else(|| panic!("{mark} in {text}"));
        rest.lines().next().expect("a line").to_owned()
    };

    let initiator = shell(&after("Start the initiator with:\n"));
    let said = String::from_utf8_lossy(&initiator.stderr);
    assert!(initiator.status.success(), "{said}");
    // The session was served completely, so the roles exit without being killed.
    let roles = after("without one: kill ");
    let (roles, _) = roles.split_once(';').expect("processes");
    assert_eq!(roles.split(' ').count(), processes, "{roles}");
    for role in roles.split(' ') {
        let gone = || {
            let status = std::fs::read_to_string(Path::new("/proc").join(role).join("stat"));
            // An orphan may remain a zombie, because there may be no process that reaps it.
            status.map_or(true, |line| line.contains(") Z "))
        };
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !gone() {
            assert!(std::time::Instant::now() < deadline, "{role} still runs");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
    let removed = shell(&after("afterwards: "));
    assert!(removed.status.success(), "{removed:?}");
    let left = std::fs::read_dir(&temporary).expect("readable").count();
    assert_eq!(left, 0, "files are left in {}", temporary.display());
}

#[test]
fn targets_load_what_the_generator_makes() {
    let sandbox = Sandbox::new();
    let original = sandbox.file("original", &contents::text(1, 5 * 4096));
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
        let storage = LogEvent::Storage {
            blocks: 5,
            block_size: 2048,
        };
        assert!(target.has_logged(storage), "{}", target.stderr());
    }
}
