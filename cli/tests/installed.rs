//! The program outside of a checkout, and under the names of the reference's programs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

fn run(program: &Path, runtime: &Path, arguments: &[&str]) -> Output {
    Command::new(program)
        .args(arguments)
        .env("SOFTDOCA_RUNTIME_DIR", runtime)
        .current_dir("/")
        .output()
        .expect("it runs")
}

#[test]
fn demo_works_without_a_checkout() {
    let sandbox = crate::support::Sandbox::new();
    let program = sandbox.path("program");
    fs::copy(env!("CARGO_BIN_EXE_doca-storage"), &program).expect("copied");
    let arguments = ["demo", "--layout", "zero-copy", "--operations", "64"];
    let output = run(&program, &sandbox.runtime(), &arguments);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(
        text.contains("the bundled text") && text.contains("PASS"),
        "{text}"
    );
}

#[test]
fn link_named_like_a_role_runs_that_role() {
    let sandbox = crate::support::Sandbox::new();
    let help = |program: &Path, arguments: &[&str]| {
        let output = run(program, &sandbox.runtime(), arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let program = Path::new(env!("CARGO_BIN_EXE_doca-storage"));
    for (subcommand, name, flag) in [
        ("target", "doca_storage_target_rdma", "--backing-file"),
        (
            "zero-copy",
            "doca_storage_comch_to_rdma_zero_copy",
            "--storage-server",
        ),
        (
            "gga-offload",
            "doca_storage_comch_to_rdma_gga_offload",
            "--scrub-rate",
        ),
        ("initiator", "doca_storage_initiator_comch", "--flush-every"),
        (
            "sbc-generator",
            "doca_storage_gga_offload_sbc_generator",
            "--data-p",
        ),
        ("nbd", "doca_storage_nbd", "--max-connections"),
        ("vhost-user-blk", "doca_storage_vhost_user_blk", "--queues"),
    ] {
        let link = sandbox.path(name);
        symlink(program, &link).expect("a link");
        let text = help(&link, &["--help"]);
        assert!(text.contains(name) && text.contains(flag), "{name}: {text}");
        assert_eq!(help(program, &["help", subcommand]), text);
        assert_eq!(help(program, &[subcommand, "--help"]), text);
    }
    assert!(help(program, &["help", "demo"]).contains("--layout"));
}

#[test]
fn output_fits_the_terminal() {
    let sandbox = crate::support::Sandbox::new();
    let matrix = [
        "conformance",
        "matrix",
        "--layout",
        "zero-copy",
        "--strategy",
        "read_throughput_test",
        "--operations",
        "64",
    ];
    for (arguments, widths) in [
        (&["conformance", "layout"][..], &[80, 100, 120][..]),
        (&["conformance", "layout", "--print"], &[80, 100, 120]),
        (
            &["conformance", "role", "target", "--list"],
            &[80, 100, 120],
        ),
        (
            &["conformance", "role", "target", "--only", "ids"],
            &[80, 120],
        ),
        (
            &["conformance", "hostile", "--role", "target", "--list"],
            &[80, 100, 120],
        ),
        (&["conformance", "faults", "--list"], &[80]),
        (&["conformance", "simulate", "--duration", "1s"], &[80]),
        (&matrix, &[80]),
        (&["sdk", "devices"], &[80, 100, 120]),
        (&["status", "1", "2"], &[80, 100, 120]),
        (&["demo", "--layout", "gga", "--operations", "64"], &[80]),
        (&["demo", "--layout", "all", "--operations", "64"], &[100]),
    ] {
        for &width in widths {
            let output = sandbox
                .command(arguments)
                .env("COLUMNS", width.to_string())
                .output()
                .expect("it runs");
            let text = String::from_utf8(output.stdout).expect("text");
            for line in text.lines() {
                assert!(
                    line.chars().count() <= width,
                    "{arguments:?} at {width}: {line}"
                );
            }
            assert!(!text.is_empty(), "{arguments:?}");
        }
    }
}
