//! The exit of any role of a gga deployment during I/O ends all roles.

use std::path::PathBuf;

use crate::support::Sandbox;
use crate::support::gga::{TARGETS, compressible};
use crate::support::{BLOCK_SIZE, TIMEOUT, default_deadline};
use ::deployment::process::{Process, Signal};

/// A deployment with two workers during a run that would take hours.
struct Load {
    sandbox: Sandbox,
    initiator: Process,
    service: Process,
    targets: [Process; 3],
}

impl Load {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        let files = sandbox.generate("content", &compressible(64 * BLOCK_SIZE), &[]);
        let (targets, ports) = sandbox.gga_targets(&files, 2);
        let recover = ["--trigger-recovery-read-every-n", "4"];
        let service = sandbox.gga_service(ports, 2, &recover);
        let mut initiator = sandbox.gga_initiator(
            "read_write_data_validity_test",
            &sandbox.path("content"),
            2_000_000_000,
            2,
            &["--progress", "always"],
        );
        initiator
            .wait_for("shown progress", TIMEOUT, |line| {
                line.contains("per second").then_some(())
            })
            .expect("the run is under way");
        Self {
            sandbox,
            initiator,
            service,
            targets,
        }
    }

    /// Checks that all roles exit by themselves, the initiator with a failure, and leave nothing behind.
    fn ends(self) {
        let role = |process| code(process).expect("not by a signal");
        assert_eq!(role(self.initiator), 1, "the initiator");
        role(self.service);
        for target in self.targets {
            role(target);
        }
        assert_eq!(self.sandbox.leftovers(), Vec::<PathBuf>::new());
    }
}

/// Exit code of a role; `None` if it was killed by a signal.
fn code(mut process: Process) -> Option<i32> {
    let status = process
        .wait(default_deadline())
        .unwrap_or_else(|| panic!("a role has not ended: {}", process.stderr()));
    status.code()
}

#[test]
fn interrupted_initiator_ends_the_deployment() {
    let load = Load::new();
    load.initiator.signal(Signal::INT);
    load.ends();
}

#[test]
fn interrupted_service_ends_the_deployment() {
    let load = Load::new();
    load.service.signal(Signal::TERM);
    load.ends();
}

#[test]
fn interrupted_target_ends_the_deployment() {
    for target in 0..3 {
        let load = Load::new();
        load.targets[target].signal(Signal::INT);
        load.ends();
    }
}

#[test]
fn killed_target_ends_the_deployment() {
    for (killed, name) in TARGETS.iter().enumerate() {
        let load = Load::new();
        load.targets[killed].signal(Signal::KILL);
        assert_eq!(code(load.initiator), Some(1), "without {name}");
        let mut service = load.service;
        let status = service.wait(default_deadline()).expect("the service ends");
        assert_eq!(status.code(), Some(1), "without {name}");
        let said = service.stderr();
        assert!(said.contains(name), "{name}: {said}");
        for (target, process) in load.targets.into_iter().enumerate() {
            assert_eq!(code(process).is_none(), target == killed, "{name}");
        }
    }
}
