//! The processes of one session, from the first that starts to the last that ends.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};
use std::{io, thread};

use wire::control::{FrameDecoder, Payload};

use super::check::Strategy;
use super::content::{BLOCK_SIZE, BLOCKS, Files};
use super::mix::{IO_TIMEOUT, Interrupted, Layout, Member, Mix, PROTOCOL, Settings, Traits};
use crate::implementation::Role;
use crate::port::wait_for_listener;
use crate::process::{Process, Signal};
use crate::scene::{DPU_DEVICE, HOST_DEVICE, Scene};

/// Time that a role gets to be ready for its peers.
const READY: Duration = Duration::from_secs(20);
/// Time that an initiator gets to notice that another role has failed.
const NOTICE: Duration = Duration::from_secs(3);
/// Time that the others get to end after an initiator that has ended well, and after one that has failed.
const FAREWELL: Duration = Duration::from_secs(15);
const FAREWELL_TO_FAILED: Duration = Duration::from_secs(1);
/// How often waiting looks around.
const TICK: Duration = Duration::from_millis(2);

/// What happens in a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) strategy: Strategy,
    /// Operations of the initiator.
    pub(super) operations: u32,
    /// `--trigger-recovery-read-every-n` of a gga service.
    pub(super) recover_every: u32,
    /// The first target is a scripted one that fails an I/O.
    pub(super) failing_io: bool,
    /// The service is told of one block more than the targets have.
    pub(super) overstated: bool,
}

/// A role that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// `initiator`, `service`, `data_1`, ...
    pub(super) label: &'static str,
    /// Whose program, or `scripted`.
    pub(super) name: String,
    /// What is known of it.
    traits: Traits,
    /// How it ended; `None` when it had to be killed.
    pub(super) status: Option<ExitStatus>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Ended {
    /// It ended by itself, with exit status 0.
    pub(super) fn well(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Whether it crashed when its worker thread began: before the thread's first line, which is before any I/O.
    fn is_start_race(&self) -> bool {
        let worker_began = |text: &str| {
            text.lines()
                .any(|line| line.contains("(core: ") && line.contains("starting"))
        };
        self.traits.start_race
            && self.status.and_then(|status| status.signal()) == Some(Signal::SEGV.as_raw())
            && !worker_began(&self.stdout)
            && !worker_began(&self.stderr)
    }
}

/// A session that is over.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// What kept it from going its way.
    pub(super) trouble: Option<String>,
    pub(super) initiator: Option<Ended>,
    pub(super) service: Option<Ended>,
    pub(super) targets: Vec<Ended>,
    /// What was left in the runtime directory.
    pub(super) leftovers: Vec<PathBuf>,
}

impl Session {
    /// All that were started.
    pub(super) fn all(&self) -> impl Iterator<Item = &Ended> {
        let main = self.initiator.iter().chain(&self.service);
        main.chain(&self.targets)
    }

    /// Whether a crash of a kind that has nothing to do with the mix ended it.
    pub(super) fn is_start_race(&self) -> bool {
        self.all().any(Ended::is_start_race)
    }
}

/// A role that runs, or ran.
struct Running {
    label: &'static str,
    name: String,
    traits: Traits,
    process: Process,
    status: Option<ExitStatus>,
}

impl Running {
    fn start(
        label: &'static str,
        member: &Member,
        role: Role,
        command: Command,
    ) -> Result<Self, String> {
        Ok(Self {
            label,
            name: member.name().to_owned(),
            traits: member.traits(role),
            process: Process::spawn(label, command).map_err(|failure| failure.to_string())?,
            status: None,
        })
    }

    fn ended_before(&mut self, deadline: Instant) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.process.wait(deadline);
        }
        self.status
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.ended_before(Instant::now())
    }

    fn failed(&mut self) -> Option<ExitStatus> {
        self.ended().filter(|status| !status.success())
    }

    fn into_ended(mut self) -> Ended {
        let status = self.ended();
        let (stdout, stderr) = self.process.into_output();
        Ended {
            label: self.label,
            name: self.name,
            traits: self.traits,
            status,
            stdout,
            stderr,
        }
    }
}

/// Starts and watches the processes of one session.
pub(super) struct Stage<'a> {
    pub(super) settings: &'a Settings,
    pub(super) mix: &'a Mix<'a>,
    pub(super) plan: Plan,
    pub(super) files: &'a Files,
    pub(super) interrupted: Interrupted<'a>,
    pub(super) scene: Scene,
}

impl Stage<'_> {
    /// Plays the session.
    pub(super) fn play(&self) -> Session {
        let mut cast = Vec::new();
        let mut service_at = None;
        let mut trouble = self.start(&mut cast, &mut service_at).err();
        let mut initiator = None;
        if trouble.is_none() {
            match self.start_initiator() {
                Ok(mut running) => {
                    trouble = self.watch(&mut running, &mut cast).err();
                    initiator = Some(running);
                }
                Err(error) => trouble = Some(error),
            }
        }
        let well = trouble.is_none()
            && initiator
                .as_mut()
                .and_then(Running::ended)
                .is_some_and(|status| status.success());
        let time = match (&trouble, well) {
            (Some(_), _) => Duration::ZERO,
            (None, true) => FAREWELL,
            (None, false) => FAREWELL_TO_FAILED,
        };
        let deadline = Instant::now() + time;
        for running in &mut cast {
            running.ended_before(deadline);
        }
        let mut session = Session {
            trouble,
            initiator: initiator.map(Running::into_ended),
            ..Session::default()
        };
        for (index, running) in cast.into_iter().enumerate() {
            let ended = running.into_ended();
            if service_at == Some(index) {
                session.service = Some(ended);
            } else {
                session.targets.push(ended);
            }
        }
        session.leftovers = self.scene.leftovers().unwrap_or_default();
        session
    }

    /// Targets, then the service, each until it is ready.
    fn start(&self, cast: &mut Vec<Running>, service_at: &mut Option<usize>) -> Result<(), String> {
        let io = |error: io::Error| error.to_string();
        let mut ports = Vec::new();
        for (index, (label, member)) in
            std::iter::zip(self.mix.layout.targets(), &self.mix.targets).enumerate()
        {
            let port = self.scene.port().map_err(io)?;
            let mut target = if self.plan.failing_io && index == 0 {
                self.start_scripted(label, port)?
            } else {
                let command = self.target(member, index, port)?;
                Running::start(label, member, Role::Target, command)?
            };
            let deadline = Instant::now() + READY;
            let listens = wait_for_listener(port, deadline, || {
                target.ended().is_some() || (self.interrupted)()
            })
            .map_err(io)?;
            let status = target.ended();
            cast.push(target);
            if !listens {
                return Err(not_ready(label, "listened on its port", status));
            }
            ports.push(if self.plan.overstated {
                overstate(port).map_err(io)?
            } else {
                port
            });
        }
        let before = self.scene.leftovers().map_err(io)?;
        let role = self.mix.layout.service();
        let command = self.service(&ports)?;
        let mut service = Running::start("service", self.mix.service, role, command)?;
        // Where initiators find it: a server of softdoca is a socket.
        let deadline = Instant::now() + READY;
        let served = loop {
            let servers = self.scene.servers().map_err(io)?;
            if servers.iter().any(|path| !before.contains(path)) {
                break true;
            }
            if Instant::now() >= deadline || service.ended().is_some() || (self.interrupted)() {
                break false;
            }
            std::thread::sleep(TICK);
        };
        let status = service.ended();
        *service_at = Some(cast.len());
        cast.push(service);
        if served {
            Ok(())
        } else {
            Err(not_ready("service", "waited for an initiator", status))
        }
    }

    /// Waits for the initiator to end.
    fn watch(&self, initiator: &mut Running, others: &mut [Running]) -> Result<(), String> {
        let deadline = Instant::now() + self.settings.timeout;
        let mut notice = None;
        while initiator.ended().is_none() {
            if (self.interrupted)() {
                return Err("interrupted".to_owned());
            }
            let failed = others
                .iter_mut()
                .find_map(|other| Some((other.label, other.failed()?)));
            if let Some((label, status)) = failed {
                let time = if status.signal().is_some() {
                    Duration::ZERO
                } else {
                    NOTICE
                };
                if Instant::now() >= *notice.get_or_insert_with(|| Instant::now() + time) {
                    return Err(format!("{label} failed ({status}) in the session"));
                }
            }
            if Instant::now() >= deadline {
                let seconds = self.settings.timeout.as_secs();
                return Err(format!("the initiator has not ended in {seconds} s"));
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    fn start_initiator(&self) -> Result<Running, String> {
        let member = self.mix.initiator;
        let command = self.initiator()?;
        Running::start("initiator", member, Role::Initiator, command)
    }
}

fn not_ready(label: &str, what: &str, status: Option<ExitStatus>) -> String {
    match status {
        Some(status) => format!("{label} ended ({status}) before it {what}"),
        None => format!("{label} has not {what} in {} s", READY.as_secs()),
    }
}

// The command lines of the roles.

/// Seconds that control operations may take, where a program can be told.
const CONTROL_TIMEOUT: &str = "20";
/// I/Os that an initiator has in flight.
const TRANSACTIONS: &str = "32";
/// The I/O that a scripted target fails, counted from 0, and its result, `DOCA_ERROR_IO_FAILED`.
const FAULT: &str = "fail-io:21:17";

impl Stage<'_> {
    /// A CPU for role number `index`, counted from the service; the initiator has one of its own where there are two.
    fn cpu(&self, index: usize) -> usize {
        let cpus = &self.settings.cpus;
        cpus[index % cpus.len()]
    }

    fn command(&self, member: &Member, role: Role, cpu: usize) -> Result<Command, String> {
        let mut command = member
            .command(role, cpu)
            .map_err(|error| error.to_string())?;
        command.args(["--cpu", &cpu.to_string()]);
        if let Some(protocol) = &self.settings.protocol
            && member.traits(role).protocol
        {
            command.args([PROTOCOL, protocol]);
        }
        self.scene.place(&mut command);
        Ok(command)
    }

    fn file(&self, name: &str, content: &[u8]) -> Result<PathBuf, String> {
        self.scene
            .file(name, content)
            .map_err(|error| format!("{name}: {error}"))
    }

    fn target(&self, member: &Member, index: usize, port: u16) -> Result<Command, String> {
        let label = self.mix.layout.targets()[index];
        let content = self.file(label, &self.files.targets[index])?;
        let mut command = self.command(member, Role::Target, self.cpu(index))?;
        command
            .args(["--device", HOST_DEVICE])
            .args(["--listen-port", &port.to_string()])
            .arg("--binary-content")
            .arg(content);
        if self.mix.layout == Layout::ZeroCopy {
            command
                .args(["--block-count", &BLOCKS.to_string()])
                .args(["--block-size", &BLOCK_SIZE.to_string()]);
        }
        Ok(command)
    }

    fn start_scripted(&self, label: &'static str, port: u16) -> Result<Running, String> {
        let layout = self.mix.layout;
        let content = self.file(label, self.files.first_content(layout))?;
        let block_size = self.files.block_size;
        let [program, arguments @ ..] = &self.settings.scripted_target[..] else {
            return Err("there is no scripted target".to_owned());
        };
        let mut command = Command::new(program);
        command
            .args(arguments)
            .args(["--device", HOST_DEVICE])
            .args(["--listen-port", &port.to_string()])
            .args(["--block-size", &block_size.to_string()])
            .args(["--fault", FAULT])
            .arg("--content")
            .arg(content);
        self.scene.place(&mut command);
        Ok(Running {
            label,
            name: "scripted".to_owned(),
            traits: Traits::OURS,
            process: Process::spawn(label, command).map_err(|failure| failure.to_string())?,
            status: None,
        })
    }

    fn service(&self, ports: &[u16]) -> Result<Command, String> {
        let layout = self.mix.layout;
        let mut command = self.command(self.mix.service, layout.service(), self.cpu(0))?;
        command
            .args(["--device", DPU_DEVICE])
            .args(["--representor", HOST_DEVICE])
            .args(["--command-channel-name", self.scene.channel()])
            .args(["--control-timeout", CONTROL_TIMEOUT]);
        for (flag, port) in std::iter::zip(layout.storage_flags(), ports) {
            command.args([flag, format!("127.0.0.1:{port}").as_str()]);
        }
        if layout == Layout::Gga {
            let every = self.plan.recover_every.to_string();
            command.args(["--trigger-recovery-read-every-n", &every]);
        }
        Ok(command)
    }

    fn initiator(&self) -> Result<Command, String> {
        let traits = self.mix.initiator.traits(Role::Initiator);
        let mut command = self.command(self.mix.initiator, Role::Initiator, self.cpu(1))?;
        command
            .args(["--device", HOST_DEVICE])
            .args(["--command-channel-name", self.scene.channel()])
            .args(["--control-timeout", CONTROL_TIMEOUT])
            .args(["--execution-strategy", self.plan.strategy.name()])
            .args([
                "--run-limit-operation-count",
                &self.plan.operations.to_string(),
            ])
            .args([traits.transactions_flag, TRANSACTIONS]);
        if traits.io_timeout {
            // On a busy machine an answer may take its time: that is not what is checked.
            let seconds = self.settings.timeout.as_secs().to_string();
            command.args([IO_TIMEOUT, &seconds]);
        }
        if self.plan.strategy.validates() {
            let plain = self.file("plain", &self.files.plain)?;
            command.arg("--storage-plain-content").arg(plain);
        }
        Ok(command)
    }
}

// A relay between a service and a target that overstates the storage.

/// Bytes that are passed on at a time.
const PIECE: usize = 4096;

/// Listens for a service, and passes everything on between it and the target at `target`, but for the storage's size: the service is
/// told of one block more than there is. So an initiator will ask for that block, and the target cannot do this I/O. Answers
/// the relay's port. It ends with the connection; without one, with this process.
///
/// # Errors
///
/// There is no port.
pub(super) fn overstate(target: u16) -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        // Whatever fails here, both ends see a closed connection, and the session says so.
        if let Ok((service, _)) = listener.accept() {
            drop(listener);
            let _ = relay(&service, target);
            let _ = service.shutdown(Shutdown::Both);
        }
    });
    Ok(port)
}

fn relay(service: &TcpStream, target: u16) -> io::Result<()> {
    let target = TcpStream::connect((Ipv4Addr::LOCALHOST, target))?;
    let (from_service, to_target) = (service.try_clone()?, target.try_clone()?);
    let requests = thread::spawn(move || {
        let _ = io::copy(&mut &from_service, &mut &to_target);
        let _ = to_target.shutdown(Shutdown::Write);
    });
    let responses = pass_responses(&target, service);
    let _ = service.shutdown(Shutdown::Write);
    let _ = requests.join();
    responses
}

fn pass_responses(mut target: &TcpStream, mut service: &TcpStream) -> io::Result<()> {
    let mut decoder = FrameDecoder::new();
    let mut piece = [0; PIECE];
    loop {
        let read = target.read(&mut piece)?;
        if read == 0 {
            return Ok(());
        }
        decoder.push(&piece[..read]);
        while let Some(mut message) = decoder.next().map_err(io::Error::other)? {
            match &mut message.payload {
                Payload::QueryStorageResponse(details) => {
                    details.total_size += u64::from(details.block_size);
                }
                // A service that asks for superblocks is told of the storage with them.
                Payload::IdentifiedStorageResponse(storage) => {
                    storage.total_size += u64::from(storage.block_size);
                }
                _ => {}
            }
            service.write_all(&message.encode_to_vec())?;
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use wire::control::{IdentifiedStorage, Message, RecordState, StorageDetails};

    use super::*;

    #[test]
    fn only_the_size_is_changed() {
        let identified = |total_size| Message {
            message_id: 9,
            correlation_id: 9,
            payload: Payload::IdentifiedStorageResponse(IdentifiedStorage {
                total_size,
                block_size: 512,
                set_high: 1,
                set_low: 2,
                epoch: 3,
                epoch_id: 4,
                next_epoch: 0,
                next_epoch_id: 0,
                member: 0,
                state: RecordState::Clean,
                flags: 0,
                identity: Bytes::from_static(b"the one"),
            }),
        };
        let details = |total_size| Message {
            message_id: 7,
            correlation_id: 9,
            payload: Payload::QueryStorageResponse(StorageDetails {
                total_size,
                block_size: 512,
            }),
        };
        let other = Message {
            message_id: 8,
            correlation_id: 9,
            payload: Payload::StartStorageResponse,
        };
        let target = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = overstate(target.local_addr().expect("an address").port()).expect("a port");
        let mut service = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the relay");
        let (mut target, _) = target.accept().expect("the relay");

        service.write_all(b"a request").expect("sent");
        service.shutdown(Shutdown::Write).expect("closed");
        let mut request = Vec::new();
        target.read_to_end(&mut request).expect("passed on");
        assert_eq!(request, b"a request");

        let sent = [details(4096), other.clone(), identified(4096)];
        let sent = sent.map(|message| message.encode_to_vec());
        // In two pieces, the first of which ends within a frame.
        let bytes = sent.concat();
        target.write_all(&bytes[..30]).expect("sent");
        target.write_all(&bytes[30..]).expect("sent");
        drop(target);
        let mut response = Vec::new();
        service.read_to_end(&mut response).expect("passed on");
        let expected = [details(4096 + 512), other, identified(4096 + 512)];
        let expected = expected.map(|message| message.encode_to_vec());
        assert_eq!(response, expected.concat());
    }
}
