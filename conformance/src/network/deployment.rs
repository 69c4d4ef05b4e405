//! The roles of a deployment over machines with cables that can be hurt.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use deployment::implementation::{Layout, Role};
use deployment::network::Network;
use deployment::process::{Exit, Process, Signal, is_orderly};
use deployment::sandbox::Sandbox;

use super::{Cable, Condition, Settings};
use crate::hammer::{Redundancy, of_log};
use crate::role::Wrong;

/// Bytes of the initiator's blocks.
const BLOCK_SIZE: usize = 4096;
/// Seconds without a response after which a service gives up a peer, and without a request after which a target gives up a service.
const CONTROL_TIMEOUT: &str = "4";
const IO_TIMEOUT: &str = "4";
const TARGET_IDLE_TIMEOUT: &str = "8";
/// Seconds that the initiator waits: a service goes on without a target sooner.
const INITIATOR_TIMEOUT: &str = "30";
/// Interval of recovery reads of a gga service, in reads.
const RECOVER_EVERY: &str = "5";

/// A target and the cable to its machine.
struct Target {
    name: &'static str,
    port: u16,
    process: Option<Process>,
    cable: Cable,
}

/// The service on machine 0, its targets on machines of their own.
pub(super) struct Deployment<'a> {
    pub(super) layout: Layout,
    settings: &'a Settings,
    targets: Vec<Target>,
    service: Option<Process>,
    service_log: PathBuf,
    starts: u32,
    // Dropped last: the machines end with it.
    pub(super) sandbox: Sandbox,
}

impl<'a> Deployment<'a> {
    /// Makes the machines and cables, and starts targets and service.
    pub(super) fn start(layout: Layout, settings: &'a Settings) -> Result<Self, Wrong> {
        let names = layout.targets();
        let network = Network::without_cables(1 + names.len())
            .map_err(|error| Wrong::new(error.to_string()))?;
        let mut cables = Vec::new();
        for machine in 1..=names.len() {
            cables.push(Cable::connect(&network, machine, &settings.cable)?);
        }
        let sandbox = Sandbox::over(network)?;
        let mut targets = Vec::new();
        for (&name, cable) in std::iter::zip(names, cables) {
            targets.push(Target {
                name,
                port: sandbox.port()?,
                process: None,
                cable,
            });
        }
        let mut deployment = Self {
            layout,
            settings,
            targets,
            service: None,
            service_log: PathBuf::new(),
            starts: 0,
            sandbox,
        };
        for index in 0..names.len() {
            deployment.start_target(index)?;
        }
        deployment.start_service()?;
        Ok(deployment)
    }

    /// Number of targets.
    pub(super) fn targets(&self) -> usize {
        self.targets.len()
    }

    fn network(&self) -> Result<&Network, Wrong> {
        let network = self.sandbox.network();
        network.ok_or_else(|| Wrong::new("there is no network"))
    }

    /// Starts a target at its machine's address, with the blocks that it had.
    pub(super) fn start_target(&mut self, index: usize) -> Result<(), Wrong> {
        let Target { name, port, .. } = self.targets[index];
        let block_size = self.layout.target_block_size(BLOCK_SIZE);
        let command = self.settings.implementation.command(Role::Target)?;
        let mut command = self.sandbox.target(command, port);
        command
            .args(["--cpu", &self.settings.cpu(index + 1)])
            .args(["--listen-address", &self.network()?.address(index + 1)])
            .arg("--backing-file")
            .arg(self.sandbox.path(&format!("{name}.blocks")))
            .args(["--block-count", &self.settings.blocks.to_string()])
            .args(["--block-size", &block_size.to_string()])
            .args(["--idle-timeout", TARGET_IDLE_TIMEOUT])
            .args(["--sessions", "forever"]);
        let command = self.sandbox.on_machine_of_target(index, command);
        let process = Process::spawn_logged(name, command, self.sandbox.log(name)?)?;
        if let Err(why) = process.wait_until_listening(port, self.settings.limit, || false) {
            return Err(process.failed(&why.to_string()).into());
        }
        self.targets[index].process = Some(process);
        Ok(())
    }

    /// Starts the service; it waits for an initiator.
    pub(super) fn start_service(&mut self) -> Result<(), Wrong> {
        self.starts += 1;
        let role = self.layout.service();
        let command = self.settings.implementation.command(role)?;
        let ports: Vec<u16> = self.targets.iter().map(|target| target.port).collect();
        let channel = self.sandbox.channel();
        let mut command = self.sandbox.service(command, self.layout, &ports, channel);
        command
            .args(["--cpu", &self.settings.cpu(0)])
            .args(["--control-timeout", CONTROL_TIMEOUT])
            .args(["--io-timeout", IO_TIMEOUT])
            .args(["--sessions", "forever"])
            // So that its messages for users go to standard error too.
            .args(["--output", "json"]);
        if self.layout == Layout::Gga {
            command
                .args(["--degraded", "on"])
                .args(["--trigger-recovery-read-every-n", RECOVER_EVERY]);
        }
        let name = format!("service-{}", self.starts);
        self.service_log = self.sandbox.path(&format!("{name}.log"));
        let mut process = Process::spawn_logged("service", command, self.sandbox.log(&name)?)?;
        process.wait_for("waited for the initiator", self.settings.limit, |line| {
            line.contains("waiting for the initiator").then_some(())
        })?;
        self.service = Some(process);
        Ok(())
    }

    /// An initiator that validates all it reads.
    pub(super) fn initiator(&self) -> Result<Process, Wrong> {
        let command = self.settings.implementation.command(Role::Initiator)?;
        let channel = self.sandbox.channel();
        let mut command = self.sandbox.initiator(command, channel);
        command
            .args(["--cpu", &self.settings.cpu(1)])
            .args(["--execution-strategy", "read_write_data_validity_test"])
            .args(["--access-order", "scattered"])
            .args([
                "--run-limit-operation-count",
                &self.settings.operations.to_string(),
            ])
            .args(["--transaction-count", "32"])
            .args(["--control-timeout", INITIATOR_TIMEOUT])
            .args(["--io-timeout", INITIATOR_TIMEOUT])
            .args(["--output", "json"]);
        Ok(Process::spawn("initiator", command)?)
    }

    /// Changes the cable of a target's machine, towards the target and back.
    pub(super) fn set(&mut self, target: usize, conditions: [Condition; 2]) -> Result<(), Wrong> {
        self.targets[target].cable.set(conditions[0], conditions[1])
    }

    /// Gives a target's machine another address. Its end of the cable has no other one.
    pub(super) fn change_address(&mut self, target: usize) -> Result<(), Wrong> {
        let changed = self
            .sandbox
            .network_mut()
            .map(|network| network.change_address(target + 1));
        changed
            .unwrap_or(Ok(()))
            .map_err(|error| Wrong::new(error.to_string()))
    }

    /// Kills a target, if it runs.
    pub(super) fn kill_target(&mut self, target: usize) -> Result<(), Wrong> {
        let process = self.targets[target].process.take();
        process.map_or(Ok(()), |process| {
            self.ended(process, Signal::KILL).map(drop)
        })
    }

    /// Ends the service with a signal: SIGKILL, or SIGTERM, after which it must not crash.
    pub(super) fn end_service(&mut self, signal: Signal) -> Result<(), Wrong> {
        let Some(service) = self.service.take() else {
            return Ok(());
        };
        let exit = self.ended(service, signal)?;
        match signal {
            Signal::KILL => Ok(()),
            _ => self.check(&exit),
        }
    }

    /// Fails if a role that was told to end has crashed. Its exit status is 1 if a session has failed, which those of a zero-copy
    /// deployment may, and a target's whenever it was cut off.
    fn check(&self, exit: &Exit) -> Result<(), Wrong> {
        let has_failed = exit.role == "service" && self.layout == Layout::Gga && !exit.succeeded();
        Wrong::unless(
            !has_failed && exit.status.is_some_and(is_orderly),
            format!("the {} to end cleanly", exit.role),
            format!(
                "{:?}: {}",
                exit.status,
                exit.stderr.lines().last().unwrap_or_default()
            ),
        )
    }

    fn ended(&self, mut process: Process, signal: Signal) -> Result<Exit, Wrong> {
        process.signal(signal);
        if process.wait(Instant::now() + self.settings.limit).is_none() {
            return Err(process.failed("has not ended in time").into());
        }
        Ok(process.into_exit())
    }

    /// Fails if a role has exited that should have served the next session.
    pub(super) fn inspect(&mut self) -> Result<(), Wrong> {
        let targets = self.targets.iter_mut().map(|target| &mut target.process);
        for process in targets.chain([&mut self.service]) {
            if let Some(ended) = process.take_if(|process| process.has_ended()) {
                let what = "has ended, and was to serve the next session";
                return Err(ended.failed(what).into());
            }
        }
        Ok(())
    }

    /// The redundancy, according to the service's log.
    pub(super) fn redundancy(&self) -> Redundancy {
        let log = fs::read_to_string(&self.service_log).unwrap_or_default();
        of_log(&log, self.layout.targets())
    }

    /// Number of times that the service has detached a target.
    pub(super) fn detachments(&self) -> usize {
        let log = fs::read_to_string(&self.service_log).unwrap_or_default();
        log.matches("going on without it").count()
    }

    /// Terminates all roles, which have to exit cleanly.
    pub(super) fn end(&mut self) -> Result<(), Wrong> {
        self.end_service(Signal::TERM)?;
        for index in 0..self.targets.len() {
            if let Some(process) = self.targets[index].process.take() {
                let exit = self.ended(process, Signal::TERM)?;
                self.check(&exit)?;
            }
        }
        let left = self.sandbox.processes()?;
        // The cables run on machine 0, and end with this value.
        let is_role = |path: &PathBuf| {
            let line = fs::read(path.join("cmdline")).unwrap_or_default();
            !String::from_utf8_lossy(&line).contains("cable")
        };
        Wrong::unless(
            !left.iter().any(is_role),
            "no role to be left",
            format!("{left:?}"),
        )
    }
}
