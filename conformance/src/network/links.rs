//! The links of a deployment on several machines: a cable between the service's machine and that of each target.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use deployment::network::Network;
use deployment::sandbox::Sandbox;

use super::cable::Flow;
use super::{Cable, Condition};
use crate::violation::Violation;

/// Link to the machine of a target.
#[derive(Debug)]
struct Link {
    cable: Cable,
    /// Current and earlier addresses of the machine.
    addresses: Vec<String>,
}

/// Links between machine 0, on which the service runs, and the machine of each target; empty for a deployment on one
/// machine.
#[derive(Debug, Default)]
pub(crate) struct Links(Vec<Link>);

impl Links {
    /// Creates the machines for a service and a number of targets, and their links. `program` is that of a [`Cable`].
    pub(crate) fn connect(
        targets: usize,
        program: &[OsString],
    ) -> Result<(Sandbox, Self), Violation> {
        let network = Network::without_cables(1 + targets)?;
        let cables = (1..=targets).map(|machine| Cable::connect(&network, machine, program));
        let cables = cables.collect::<Result<Vec<_>, _>>()?;
        let sandbox = Sandbox::over(network)?;
        let links = cables.into_iter().enumerate().map(|(target, cable)| Link {
            cable,
            addresses: vec![sandbox.address_of_target(target)],
        });
        let links = Self(links.collect());
        Ok((sandbox, links))
    }

    /// Returns `true` if the deployment runs on one machine.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Changes the conditions of the link to a target, towards the target and back. Has no effect on one machine.
    pub(crate) fn set(
        &mut self,
        target: usize,
        [there, back]: [Condition; 2],
    ) -> Result<(), Violation> {
        let link = self.0.get_mut(target);
        link.map_or(Ok(()), |link| link.cable.set(there, back))
    }

    /// Fails if a process of the deployment is still running, except for those that simulate the links.
    pub(crate) fn expect_no_processes(&self, sandbox: &Sandbox) -> Result<(), Violation> {
        let mut left = sandbox.processes()?;
        left.retain(|path| {
            let mut cables = self.0.iter().map(|link| link.cable.process());
            !cables.any(|id| path == Path::new(&format!("/proc/{id}")))
        });
        Violation::unless(
            left.is_empty(),
            "no process to be left",
            format!("{left:?}"),
        )
    }

    /// Replaces the address of a target's machine.
    pub(super) fn change_address(
        &mut self,
        target: usize,
        sandbox: &mut Sandbox,
    ) -> Result<(), Violation> {
        if let Some(network) = sandbox.network_mut() {
            network.change_address(target + 1)?;
        }
        self.0[target]
            .addresses
            .push(sandbox.address_of_target(target));
        Ok(())
    }

    /// Fails if a process listens on, or a frame was sent to or from, an address that does not belong to the deployment's machines. Returns
    /// the number of kinds of frames.
    pub(super) fn check_addresses(&mut self, sandbox: &Sandbox) -> Result<usize, Violation> {
        let network = sandbox.network();
        let network = network.ok_or_else(|| Violation::new("there is no network"))?;
        for machine in 0..network.machines() {
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
        for (near, Link { cable, addresses }) in std::iter::zip(network.addresses(0), &mut self.0) {
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
}
