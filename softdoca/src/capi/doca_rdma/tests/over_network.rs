//! The tests of this module once more, with all connections over TCP although the processes are on one machine.

use std::process::Command;

/// What knows how connections are made on one machine, or is about things that are not there over the network.
const NOT_OVER_THE_NETWORK: [&str; 2] = [
    "capi::doca_rdma::tests::hostile",
    "capi::doca_rdma::tests::over_network",
];

#[test]
fn all_tests_of_rdma_pass_over_the_network() {
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command.arg("capi::doca_rdma::tests");
    for name in NOT_OVER_THE_NETWORK {
        command.args(["--skip", name]);
    }
    let output = command
        .env("SOFTDOCA_ADDRESS", "127.0.0.1")
        .env("SOFTDOCA_TRANSPORT", "tcp")
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
