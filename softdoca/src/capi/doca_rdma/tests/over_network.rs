//! Runs the tests of this module again with all connections over TCP, although the processes are on one machine.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Tests of behaviour that differs over the network (SEMANTICS.md), or of rings and agents.
const NOT_OVER_THE_NETWORK: [&str; 10] = [
    "capi::doca_rdma::tests::hostile",
    "capi::doca_rdma::tests::over_network",
    // A copy is complete when its submission returns.
    "pending_copies_are_flushed_with_their_context",
    "the_first_copy_completes_on_submission_and_all_in_order",
    // A message takes a receive that several connections share without progress of the receiver.
    "receives_are_shared_by_senders_and_report_the_connection",
    "closing_one_connection_leaves_the_others",
    "several_clients_connect_to_one_port",
    "a_client_requests_and_the_server_accepts",
    "a_send_reaches_a_target_that_has_not_connected",
    // The exit of a process is reported as CONNECTION_RESET.
    "an_event_is_shared_across_pcie_and_its_destruction_ends_waits",
];

/// Tests that do not hold by verbs, or not where they are run.
const NOT_BY_VERBS: [&str; 3] = [
    // Only one of the built-in devices is there.
    "each_device_has_ports_of_its_own",
    // The guest is emulated: 30 messages that ask for a receive each take longer than 100 ms, and 20,000 longer than a minute.
    "as_many_messages_as_receives_are_taken",
    "both_directions_at_once_keep_their_order_between_threads",
];

#[test]
fn all_tests_of_rdma_pass_over_the_network() {
    run(&[], &[]);
}

#[cfg(feature = "tls")]
#[test]
fn all_tests_of_rdma_pass_over_tls() {
    let authority = crate::agent::Authority::new();
    let [certificate, key] = authority.sign("127.0.0.1", |_| {});
    let tls = [
        ("SOFTDOCA_TLS_CERTIFICATE", certificate),
        ("SOFTDOCA_TLS_KEY", key),
        ("SOFTDOCA_TLS_CA", authority.path()),
    ];
    run(&tls, &[]);
}

/// Runs only where a topology file names an RDMA device with the name that the tests use, as in the guest of .ci/verbs.
#[test]
fn all_tests_of_rdma_pass_over_verbs() {
    let has_topology = std::env::var_os(crate::topology::VARIABLE).is_some();
    if !has_topology || !Path::new("/sys/class/infiniband/mlx5_0").exists() {
        eprintln!(
            "NOT RUN: tests of RDMA over verbs: no topology file names an RDMA device mlx5_0"
        );
        return;
    }
    run(&[("SOFTDOCA_TRANSPORT", "verbs".into())], &NOT_BY_VERBS);
}

fn run(environment: &[(&str, PathBuf)], skipped: &[&str]) {
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command.arg("capi::doca_rdma::tests");
    for name in NOT_OVER_THE_NETWORK.iter().chain(skipped) {
        command.args(["--skip", name]);
    }
    let output = command
        .env("SOFTDOCA_ADDRESS", "127.0.0.1")
        .env("SOFTDOCA_TRANSPORT", "tcp")
        .envs(environment.iter().map(|(name, path)| (name, path)))
        .output()
        .expect("this executable again");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    // A filter that finds nothing passes as well.
    let passed = text
        .split("test result: ok. ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .and_then(|count| count.parse::<u32>().ok());
    assert!(passed > Some(50), "{text}");
}
