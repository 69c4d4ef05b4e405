//! The roles of a deployment on several machines, whose cables inject faults.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Instant;

use deployment::implementation::{Layout, Role};
use deployment::log::waits_for_initiator;
use deployment::network::Network;
use deployment::process::{Exit, Process, Signal, is_orderly};
use deployment::sandbox::Sandbox;

use super::cable::Flow;
use super::{Cable, Condition, Settings};
use crate::hammer::{Redundancy, of_log};
use crate::violation::Violation;

/// Size of the initiator's blocks in bytes.
const BLOCK_SIZE: usize = 4096;
/// Seconds without a response after which a service gives up on a peer, and without a request after which a target gives up on a service.
const CONTROL_TIMEOUT: &str = "4";
const IO_TIMEOUT: &str = "4";
const TARGET_IDLE_TIMEOUT: &str = "8";
/// Timeout of the initiator in seconds, longer than a service needs to detach a target.
const INITIATOR_TIMEOUT: &str = "30";
/// Interval of recovery reads of a gga service, in reads.
const RECOVER_EVERY: &str = "5";

/// A target and the cable to its machine.
struct Target {
    name: &'static str,
    port: u16,
    process: Option<Process>,
    cable: Cable,
    /// Current and earlier addresses of its machine.
    addresses: Vec<String>,
}

/// A deployment with the service on machine 0 and each target on a machine of its own.
pub(super) struct Deployment<'a> {
    pub(super) layout: Layout,
    settings: &'a Settings,
    targets: Vec<Target>,
    service: Option<Process>,
    service_log: PathBuf,
    starts: u32,
    // Dropped last, because dropping it removes the machines.
    pub(super) sandbox: Sandbox,
}

impl<'a> Deployment<'a> {
    /// Creates the machines and cables, and starts the targets and the service.
    pub(super) fn start(layout: Layout, settings: &'a Settings) -> Result<Self, Violation> {
        let names = layout.targets();
        let network = Network::without_cables(1 + names.len())
            .map_err(|error| Violation::new(error.to_string()))?;
        let mut cables = Vec::new();
        for machine in 1..=names.len() {
            cables.push(Cable::connect(&network, machine, &settings.cable)?);
        }
        let sandbox = Sandbox::over(network)?;
        let mut targets = Vec::new();
        for (index, (&name, cable)) in std::iter::zip(names, cables).enumerate() {
            targets.push(Target {
                name,
                port: sandbox.port()?,
                process: None,
                cable,
                addresses: vec![sandbox.address_of_target(index)],
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

    pub(super) fn targets(&self) -> usize {
        self.targets.len()
    }

    fn network(&self) -> Result<&Network, Violation> {
        let network = self.sandbox.network();
        network.ok_or_else(|| Violation::new("there is no network"))
    }

    /// Starts a target at its machine's address, with its previous blocks.
    pub(super) fn start_target(&mut self, index: usize) -> Result<(), Violation> {
        let Target { name, port, .. } = self.targets[index];
        let block_size = self.layout.chunk_size(BLOCK_SIZE);
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

    /// Starts the service, and waits until it is ready for an initiator.
    pub(super) fn start_service(&mut self) -> Result<(), Violation> {
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
                .args(["--logical-block-size", &BLOCK_SIZE.to_string()])
                .args(["--trigger-recovery-read-every-n", RECOVER_EVERY]);
        }
        let name = format!("service-{}", self.starts);
        self.service_log = self.sandbox.path(&format!("{name}.log"));
        let mut process = Process::spawn_logged("service", command, self.sandbox.log(&name)?)?;
        process.wait_for(
            "waited for the initiator",
            self.settings.limit,
            waits_for_initiator,
        )?;
        self.service = Some(process);
        Ok(())
    }

    /// Starts an initiator that validates all reads.
    pub(super) fn initiator(&self) -> Result<Process, Violation> {
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
    pub(super) fn set(
        &mut self,
        target: usize,
        conditions: [Condition; 2],
    ) -> Result<(), Violation> {
        self.targets[target].cable.set(conditions[0], conditions[1])
    }

    /// Replaces the address of a target's machine.
    pub(super) fn change_address(&mut self, target: usize) -> Result<(), Violation> {
        let changed = self
            .sandbox
            .network_mut()
            .map(|network| network.change_address(target + 1));
        changed
            .unwrap_or(Ok(()))
            .map_err(|error| Violation::new(error.to_string()))?;
        let address = self.sandbox.address_of_target(target);
        self.targets[target].addresses.push(address);
        Ok(())
    }

    /// Fails if a process listens on, or a frame was sent to or from, an address that does not belong to the deployment's machines. Returns
    /// the number of kinds of frames.
    pub(super) fn check_addresses(&mut self) -> Result<usize, Violation> {
        for machine in 0..=self.targets.len() {
            let network = self.network()?;
            let own = network.addresses(machine);
            let listening = network.listeners(machine)?;
            let is_own = |listener: &String| {
                let address = listener.parse::<SocketAddr>();
                address.is_ok_and(|address| own.contains(&address.ip().to_string()))
            };
            Violation::unless(
                !listening.is_empty() && listening.iter().all(is_own),
                format!("sockets of machine {machine} that listen at {own:?} alone"),
                format!("{listening:?}"),
            )?;
        }
        let mut seen = 0;
        for index in 0..self.targets.len() {
            let near = self.network()?.addresses(0)[index].clone();
            let Target {
                cable, addresses, ..
            } = &mut self.targets[index];
            let flows = cable.flows()?;
            let is_expected = |flow: &Flow| is_of_deployment(*flow, &near, addresses);
            let has_data = flows.iter().any(|flow| matches!(flow, Flow::Ip(TCP, ..)));
            Violation::unless(
                has_data && flows.iter().all(is_expected),
                format!("TCP between {near} and {addresses:?} alone"),
                format!("{flows:?}"),
            )?;
            seen += flows.len();
        }
        Ok(seen)
    }

    /// Kills a target, if it is running.
    pub(super) fn kill_target(&mut self, target: usize) -> Result<(), Violation> {
        let process = self.targets[target].process.take();
        process.map_or(Ok(()), |process| {
            self.ended(process, Signal::KILL).map(drop)
        })
    }

    /// Stops the service with SIGKILL, or with SIGTERM, after which it must not crash.
    pub(super) fn end_service(&mut self, signal: Signal) -> Result<(), Violation> {
        let Some(service) = self.service.take() else {
            return Ok(());
        };
        let exit = self.ended(service, signal)?;
        match signal {
            Signal::KILL => Ok(()),
            _ => self.check(&exit),
        }
    }

    /// Fails if a role that received SIGTERM has crashed. Exit status 1 is correct after a failed session, which is allowed in a zero-copy
    /// deployment, and for a target that was cut off.
    fn check(&self, exit: &Exit) -> Result<(), Violation> {
        let has_failed = exit.role == "service" && self.layout == Layout::Gga && !exit.succeeded();
        Violation::unless(
            !has_failed && exit.status.is_some_and(is_orderly),
            format!("the {} to end cleanly", exit.role),
            format!(
                "{:?}: {}",
                exit.status,
                exit.stderr.lines().last().unwrap_or_default()
            ),
        )
    }

    fn ended(&self, mut process: Process, signal: Signal) -> Result<Exit, Violation> {
        process.signal(signal);
        if process.wait(Instant::now() + self.settings.limit).is_none() {
            return Err(process.failed("has not ended in time").into());
        }
        Ok(process.into_exit())
    }

    /// Fails if a role that should serve the next session has exited.
    pub(super) fn inspect(&mut self) -> Result<(), Violation> {
        let targets = self.targets.iter_mut().map(|target| &mut target.process);
        for process in targets.chain([&mut self.service]) {
            if let Some(ended) = process.take_if(|process| process.has_ended()) {
                let what = "has exited, but has to serve the next session";
                return Err(ended.failed(what).into());
            }
        }
        Ok(())
    }

    /// The last lines of the service's log.
    pub(super) fn service_log(&self) -> String {
        const LINES: usize = 20;
        let log = fs::read_to_string(&self.service_log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }

    /// The redundancy according to the service's log.
    pub(super) fn redundancy(&self) -> Redundancy {
        let log = fs::read_to_string(&self.service_log).unwrap_or_default();
        of_log(&log, self.layout.targets())
    }

    /// Number of times that the service has detached a target or started a session without it.
    pub(super) fn losses(&self, target: usize) -> usize {
        let log = fs::read_to_string(&self.service_log).unwrap_or_default();
        losses_of(&log, self.targets[target].name)
    }

    /// Terminates all roles, which have to exit cleanly.
    pub(super) fn end(&mut self) -> Result<(), Violation> {
        self.end_service(Signal::TERM)?;
        for index in 0..self.targets.len() {
            if let Some(process) = self.targets[index].process.take() {
                let exit = self.ended(process, Signal::TERM)?;
                self.check(&exit)?;
            }
        }
        let mut left = self.sandbox.processes()?;
        // The cables run on machine 0, and end with this value.
        let cables = self.targets.iter().map(|target| target.cable.process());
        let cables: Vec<_> = cables
            .map(|id| PathBuf::from(format!("/proc/{id}")))
            .collect();
        left.retain(|path| !cables.contains(path));
        Violation::unless(left.is_empty(), "no role to be left", format!("{left:?}"))
    }
}

/// IP protocol numbers.
const TCP: u8 = 6;
const ICMPV6: u8 = 58;
const HOP_BY_HOP: u8 = 0;

/// Returns `true` for frames of the roles between the machines at the ends of a cable, and for the kernel's ARP and neighbour discovery.
fn is_of_deployment(flow: Flow, near: &str, far: &[String]) -> bool {
    let is_far = |address: IpAddr| far.contains(&address.to_string());
    let is_near = |address: IpAddr| near == address.to_string();
    match flow {
        Flow::Arp => true,
        Flow::Ip(TCP, from, to) => is_near(from) && is_far(to) || is_far(from) && is_near(to),
        Flow::Ip(ICMPV6 | HOP_BY_HOP, IpAddr::V6(from), _) => {
            from.is_unspecified() || from.is_unicast_link_local()
        }
        Flow::Ip(..) | Flow::Other(_) => false,
    }
}

/// Number of detachments of a target in a service's log, plus the number of sessions started without it.
fn losses_of(log: &str, target: &str) -> usize {
    let detached = format!("detached storage target {target}, going on without it");
    let missing = format!("storage target {target} is missing: starting without it");
    log.matches(&detached).count() + log.matches(&missing).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_between_other_addresses_are_not_of_the_deployment() {
        let far = ["10.91.1.2".to_owned(), "10.91.1.3".to_owned()];
        let is_expected = |text: &str| {
            let flow = text.parse().expect("a kind of frame");
            is_of_deployment(flow, "10.91.1.1", &far)
        };
        for text in [
            "arp",
            "ip 6 10.91.1.1 10.91.1.2",
            "ip 6 10.91.1.3 10.91.1.1",
            "ip 58 fe80::1 ff02::2",
            "ip 0 :: ff02::16",
        ] {
            assert!(is_expected(text), "{text}");
        }
        for text in [
            "ip 6 10.91.1.1 10.91.2.2",
            "ip 6 10.91.1.2 10.91.1.3",
            "ip 17 10.91.1.1 10.91.1.2",
            "ip 1 10.91.1.1 10.91.1.2",
            "ip 58 2001:db8::1 ff02::2",
            "other 35020",
        ] {
            assert!(!is_expected(text), "{text}");
        }
    }

    #[test]
    fn losses_are_of_one_target_each() {
        let log = "WARN detached storage target data_1, going on without it: reset\n\
                   ERROR detached storage target data_2, with which too few are left: I/Os wait until it is back: reset\n\
                   WARN storage target data_1 is missing: starting without it\n\
                   WARN detached storage target data_p, going on without it: reset\n";
        let counts = ["data_1", "data_2", "data_p"].map(|target| losses_of(log, target));
        assert_eq!(counts, [2, 0, 1]);
    }
}
