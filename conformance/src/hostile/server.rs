//! The role under attack with its targets, and its measurements: service to another client, and resources from the operating system.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use doca::Device;
use wire::control::Payload;

use super::channel::ControlEndpoint;
use super::client::ClientEndpoint;
use super::endurance::SessionLock;
use super::network::KEY;
use crate::faults::relay::FaultyLine;
use crate::hammer::Resources;
use crate::role::{ComchPeer, ControlPeer as _, TcpPeer, Violation};
use deployment::implementation::{Implementation, Role};
use deployment::port::{listeners_of, wait_for_listener};
use deployment::process::Process;
use deployment::sandbox::{DPU_DEVICE, HOST_DEVICE, Sandbox};

/// Seconds after which the role gives up a peer that owes an answer, an I/O, or anything.
const TIMEOUT: &str = "2";
/// Time in which programs start.
const START: Duration = Duration::from_secs(20);
/// Time after which another client gives up waiting for service.
const SERVICE: Duration = Duration::from_secs(30);

/// The role under attack.
pub(super) struct Server<'a> {
    role: Role,
    implementation: &'a Implementation,
    sandbox: Sandbox,
    device: Device,
    /// Of the targets; the first one is attacked where a target is.
    ports: Vec<u16>,
    targets: Vec<Process>,
    service: Option<Process>,
    /// Between a service and its targets.
    line: Option<FaultyLine>,
    session_lock: SessionLock,
}

impl<'a> Server<'a> {
    /// Starts it, in the runtime directory of this process.
    pub(super) fn start(role: Role, implementation: &'a Implementation) -> Result<Self, Violation> {
        let sandbox = Sandbox::shared()?;
        let count = if role == Role::GgaOffload { 3 } else { 1 };
        let key = sandbox.file("key", KEY)?;
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600))?;
        let ports = (0..count).map(|_| sandbox.port());
        let mut server = Self {
            role,
            implementation,
            device: Device::open(HOST_DEVICE)?,
            ports: ports.collect::<Result<_, _>>()?,
            targets: Vec::new(),
            service: None,
            line: None,
            session_lock: SessionLock::default(),
            sandbox,
        };
        server.start_all()?;
        Ok(server)
    }

    /// Has a role use the network, too: its peers here still reach it in this machine.
    fn place<'b>(&self, command: &'b mut Command) -> &'b mut Command {
        self.sandbox
            .place(command)
            .env("SOFTDOCA_ADDRESS", "127.0.0.1")
            .env("SOFTDOCA_KEY_FILE", self.sandbox.path("key"))
    }

    fn start_all(&mut self) -> Result<(), Violation> {
        for port in &self.ports {
            let mut command = self.implementation.command(Role::Target)?;
            self.place(&mut command)
                .args(["-d", HOST_DEVICE, "--cpu", "0"])
                .args(["--listen-address", "127.0.0.1"])
                .args(["--listen-port", &port.to_string()])
                .args(["--block-count", "64", "--block-size", "4096"])
                .args(["--idle-timeout", TIMEOUT, "--sessions", "forever"]);
            let process = Process::spawn("target", command)?;
            if !wait_for_listener(*port, Instant::now() + START, || process.is_over())? {
                return Err(process.failed("does not listen").into());
            }
            self.targets.push(process);
        }
        if self.role == Role::Target {
            return Ok(());
        }
        let mut command = self.implementation.command(self.role)?;
        self.place(&mut command)
            .args(["-d", DPU_DEVICE, "-r", HOST_DEVICE, "--cpu", "0"])
            .args(["--command-channel-name", self.sandbox.channel()])
            .args(["--control-timeout", TIMEOUT, "--io-timeout", TIMEOUT])
            .args(["--idle-timeout", TIMEOUT, "--sessions", "forever"])
            .args(["--output", "json"]);
        let flags: &[&str] = match self.role {
            Role::GgaOffload => &["--data-1-storage", "--data-2-storage", "--data-p-storage"],
            _ => &["--storage-server"],
        };
        let line = FaultyLine::start(&self.ports)?;
        for (flag, port) in flags.iter().zip(line.ports()) {
            command.args([*flag, &format!("127.0.0.1:{port}")]);
        }
        self.line = Some(line);
        let mut process = Process::spawn("service", command)?;
        process.wait_for("waited for the initiator", START, |line| {
            line.contains("waiting for the initiator").then_some(())
        })?;
        self.service = Some(process);
        Ok(())
    }

    pub(super) fn runtime(&self) -> &Path {
        self.sandbox.runtime()
    }

    /// The connections between a service and its targets.
    pub(super) fn line(&self) -> io::Result<&FaultyLine> {
        let none = || io::Error::other("only a service has targets");
        self.line.as_ref().ok_or_else(none)
    }

    /// Serialises sessions.
    pub(super) fn session_lock(&self) -> &SessionLock {
        &self.session_lock
    }

    /// The endpoint on which it accepts clients.
    pub(super) fn endpoint(&self) -> ControlEndpoint<'_> {
        match self.role {
            Role::Target => ControlEndpoint::Tcp(self.ports[0]),
            _ => ControlEndpoint::Comch {
                runtime: self.sandbox.runtime(),
                channel: self.sandbox.channel(),
            },
        }
    }

    /// The same for the client's process.
    pub(super) fn client_endpoint(&self) -> ClientEndpoint {
        match self.role {
            Role::Target => ClientEndpoint::Target(self.ports[0]),
            _ => ClientEndpoint::Service(self.sandbox.channel().to_owned()),
        }
    }

    pub(super) fn is_service(&self) -> bool {
        self.role != Role::Target
    }

    fn process(&self) -> &Process {
        self.service.as_ref().unwrap_or(&self.targets[0])
    }

    /// Address on which it listens for peers on other machines, if it does.
    pub(super) fn listens(&self) -> io::Result<Option<SocketAddr>> {
        let mut listeners = listeners_of(self.process().id())?;
        listeners.retain(|address| !self.ports.contains(&address.port()));
        Ok(listeners.first().copied())
    }

    pub(super) fn resources(&self) -> Result<Resources, Violation> {
        Ok(Resources::of(self.process())?)
    }

    pub(super) fn lines(&self) -> usize {
        self.process().line_count()
    }

    /// Name of the first program that has ended, which none should.
    pub(super) fn ended(&self) -> Option<&'static str> {
        let targets = self.targets.iter().map(|process| ("target", process));
        let mut all = targets.chain(self.service.iter().map(|process| ("service", process)));
        all.find(|(_, process)| process.is_over())
            .map(|(name, _)| name)
    }

    /// The last lines that the attacked program has written.
    pub(super) fn log(&self) -> String {
        self.process().stderr()
    }

    /// Time until another client has its query answered.
    pub(super) fn serve_another(&self) -> Result<Duration, Violation> {
        let begin = Instant::now();
        loop {
            match self.query() {
                Ok(()) => return Ok(begin.elapsed()),
                Err(violation) if begin.elapsed() > SERVICE || self.ended().is_some() => {
                    return Err(Violation::new(format!(
                        "another client is not served within {:.1} s: {violation}",
                        begin.elapsed().as_secs_f64()
                    )));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn query(&self) -> Result<(), Violation> {
        const ANSWER: Duration = Duration::from_secs(5);
        let query = wire::control::Message {
            message_id: 3,
            correlation_id: 3,
            payload: Payload::QueryStorageRequest,
        };
        let answer = match self.endpoint() {
            ControlEndpoint::Tcp(port) => TcpPeer::connect(port)?.ask(&query, ANSWER)?,
            ControlEndpoint::Comch { channel, .. } => {
                ComchPeer::connect(&self.device, channel, ANSWER)?.ask(&query, ANSWER)?
            }
        };
        match answer {
            Payload::QueryStorageResponse(_) => Ok(()),
            other => Err(Violation::expected(
                "query_storage_response",
                other.message_type(),
            )),
        }
    }
}
