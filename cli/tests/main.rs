//! Tests of the `doca-storage` command with real roles as processes. One test binary, to link it once and to run
//! tests that wait for processes in parallel.

mod support;

mod bench;
mod blocks;
mod completions;
mod degraded;
mod demo;
mod documents;
mod exit_codes;
mod failover;
mod faults;
mod gga_integrity;
mod hammer;
mod matrix;
mod metrics;
mod migrate;
mod nbd;
#[path = "../../frontends/nbd/tests/support/client.rs"]
mod nbd_client;
mod operator;
mod printed;
mod protocol_page;
mod record_replay;
mod role;
mod sdk;
mod sessions;
mod set;
mod takeover;
mod terminal;
mod tls;
mod torture;
mod up;
mod verifiers;
mod vhost_user_blk;

/// Cargo does not discover test files here, so a file that is not declared above would never run.
#[test]
fn every_test_file_is_a_module() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
    let modules = include_str!("main.rs");
    for entry in std::fs::read_dir(directory).expect("the tests") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().expect("a name").to_string_lossy();
        let is_module = modules.contains(&format!("\nmod {name};\n"));
        let is_root = [
            "main",
            "client_programs",
            "given_binaries",
            "several_machines",
        ]
        .contains(&&*name);
        assert!(is_module || is_root, "{name} is not in main.rs");
    }
}
