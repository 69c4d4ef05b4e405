//! Processes of one session, from the first start to the last exit, and the contents of the storage.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use deployment::Part;
use deployment::implementation::{Layout, Role};
use deployment::process::{Exit, NotReady, Process, Signal};
use deployment::sandbox::{DPU_DEVICE, Sandbox};
use wire::control::Payload;
use wire::sbc::HEADER_SIZE;

use super::check::Strategy;
use super::{IO_TIMEOUT, Interrupted, Member, Mix, PROTOCOL, Settings, Traits};
use crate::transcript::{Action, Event, Interceptor, Piece, Place, Relay, Side};
use crate::violation::{During as _, Violation};

/// Time for a role to become ready for its peers.
pub(super) const READY: Duration = Duration::from_secs(20);
/// Time for an initiator to detect that another role has failed.
const NOTICE: Duration = Duration::from_secs(3);
/// Time for the other roles to exit after a successful initiator, and after a failed one.
const EXIT_TIMEOUT: Duration = Duration::from_secs(15);
const FAREWELL_TO_FAILED: Duration = Duration::from_secs(1);
/// Polling interval of all waits.
const TICK: Duration = Duration::from_millis(2);

/// Parameters of a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) strategy: Strategy,
    pub(super) operations: u32,
    /// `--trigger-recovery-read-every-n` of a gga service.
    pub(super) recover_every: u32,
    /// `true` if the first target is a scripted one that fails an I/O.
    pub(super) failing_io: bool,
    /// `true` if the service is configured with one block more than the targets store.
    pub(super) overstated: bool,
}

/// A role of the session that has exited.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) exit: Exit,
    /// Name of its implementation, or `scripted`.
    pub(super) name: String,
    traits: Traits,
}

impl Ended {
    /// Returns `true` for a crash at the start of a worker thread: before the thread's first log line, which precedes any I/O.
    fn is_start_race(&self) -> bool {
        let worker_began = |text: &str| {
            text.lines()
                .any(|line| line.contains("(core: ") && line.contains("starting"))
        };
        self.traits.start_race
            && self.exit.status.and_then(|status| status.signal()) == Some(Signal::SEGV.as_raw())
            && !worker_began(&self.exit.stdout)
            && !worker_began(&self.exit.stderr)
    }
}

/// A completed session.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// Error that ended the session prematurely.
    pub(super) trouble: Option<Violation>,
    pub(super) initiator: Option<Ended>,
    pub(super) service: Option<Ended>,
    pub(super) targets: Vec<Ended>,
    /// Entries left in the runtime directory.
    pub(super) leftovers: Vec<PathBuf>,
}

impl Session {
    /// All roles that were started.
    pub(super) fn all(&self) -> impl Iterator<Item = &Ended> {
        let main = self.initiator.iter().chain(&self.service);
        main.chain(&self.targets)
    }

    /// Returns `true` if it ended in a crash that is unrelated to the mix.
    pub(super) fn is_start_race(&self) -> bool {
        self.all().any(Ended::is_start_race)
    }
}

/// Runs and observes the processes of one session.
pub(super) struct Deployment<'a> {
    pub(super) settings: &'a Settings,
    pub(super) mix: &'a Mix<'a>,
    pub(super) plan: Plan,
    pub(super) files: &'a Files,
    pub(super) interrupted: Interrupted<'a>,
    pub(super) roles: deployment::Deployment,
}

impl Deployment<'_> {
    pub(super) fn play(mut self) -> Session {
        let played = self.start().and_then(|()| self.watch());
        let initiator = self.roles.process(Part::Initiator);
        let is_well = initiator
            .and_then(Process::exit_status)
            .is_some_and(|status| status.success());
        let time = match (&played, is_well) {
            (Err(_), _) => Duration::ZERO,
            (Ok(()), true) => EXIT_TIMEOUT,
            (Ok(()), false) => FAREWELL_TO_FAILED,
        };
        let deadline = Instant::now() + time;
        for (_, process) in self.others() {
            process.wait_for_end(deadline);
        }
        let targets = (0..self.roles.targets()).map(Part::Target);
        Session {
            trouble: played.err(),
            initiator: self.take(Part::Initiator),
            service: self.take(Part::Service),
            targets: targets.filter_map(|part| self.take(part)).collect(),
            leftovers: self.roles.sandbox.leftovers().unwrap_or_default(),
        }
    }

    /// The started processes besides the initiator.
    fn others(&self) -> impl Iterator<Item = (Part, &Process)> {
        let mut others = self.roles.started();
        others.retain(|part| *part != Part::Initiator);
        let process = |part| Some((part, self.roles.process(part)?));
        others.into_iter().filter_map(process)
    }

    /// Result of a part, if it was started. Terminates a process that is still running.
    fn take(&mut self, part: Part) -> Option<Ended> {
        let exit = self.roles.take(part).ok()?.into_exit();
        let (member, role) = match part {
            Part::Target(0) if self.plan.failing_io => {
                return Some(Ended {
                    exit,
                    name: "scripted".to_owned(),
                    traits: Traits::OURS,
                });
            }
            Part::Target(index) => (self.mix.targets[index], Role::Target),
            Part::Service => (self.mix.service, self.mix.layout.service()),
            Part::Initiator | Part::FrontEnd => (self.mix.initiator, Role::Initiator),
        };
        Some(Ended {
            exit,
            name: member.name().to_owned(),
            traits: member.traits(role),
        })
    }

    /// Starts a part, and returns its process.
    fn spawn(&mut self, part: Part, command: Command) -> Result<&Process, Violation> {
        self.roles.set_command(part, command);
        self.roles.spawn(part)?;
        let process = self.roles.process(part);
        process.ok_or_else(|| Violation::new("the process was not started"))
    }

    /// Starts the targets, the service and the initiator, and waits until each of them is ready. Other implementations
    /// do not report their readiness.
    fn start(&mut self) -> Result<(), Violation> {
        let interrupted = self.interrupted;
        let not_ready =
            |process: &Process, why: NotReady| Violation::new(format!("{} {why}", process.role()));
        let layout = self.mix.layout;
        let mut ports = self.roles.ports().to_vec();
        for (index, port) in ports.iter_mut().enumerate() {
            let command = if self.plan.failing_io && index == 0 {
                self.scripted_target(index)?
            } else {
                self.target(self.mix.targets[index], index)?
            };
            let target = self.spawn(Part::Target(index), command)?;
            let listening = target.wait_until_listening(*port, READY, interrupted);
            listening.map_err(|why| not_ready(target, why))?;
            if self.plan.overstated {
                *port = overstate(*port)?;
            }
        }
        self.roles.reach_targets_at(layout, ports);
        let before = self.roles.sandbox.servers()?;
        let command = self.service()?;
        self.spawn(Part::Service, command)?;
        if let Some(service) = self.roles.process(Part::Service) {
            let sandbox = &self.roles.sandbox;
            let serving = sandbox.wait_until_serving(service, &before, READY, interrupted);
            serving.map_err(|why| not_ready(service, why))?;
        }
        let command = self.initiator()?;
        self.spawn(Part::Initiator, command).map(drop)
    }

    /// Waits for the initiator to exit.
    fn watch(&self) -> Result<(), Violation> {
        let deadline = Instant::now() + self.settings.timeout;
        let mut notice = None;
        let initiator = self.roles.process(Part::Initiator);
        while initiator.is_some_and(|initiator| !initiator.has_ended()) {
            if (self.interrupted)() {
                return Err(Violation::new("interrupted"));
            }
            let failed = self.others().find_map(|(_, other)| {
                let status = other.exit_status().filter(|status| !status.success());
                Some((other.role(), status?))
            });
            if let Some((label, status)) = failed {
                let time = if status.signal().is_some() {
                    Duration::ZERO
                } else {
                    NOTICE
                };
                if Instant::now() >= *notice.get_or_insert_with(|| Instant::now() + time) {
                    return Err(Violation::new(format!(
                        "{label} failed ({status}) in the session"
                    )));
                }
            }
            if Instant::now() >= deadline {
                let seconds = self.settings.timeout.as_secs();
                return Err(Violation::new(format!(
                    "the initiator has not ended in {seconds} s"
                )));
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }
}

// Command lines of the roles.

/// Timeout of control operations in seconds, for programs with such a flag.
const CONTROL_TIMEOUT: &str = "20";
/// Number of I/Os in flight of an initiator.
const TRANSACTIONS: &str = "32";
/// I/O that a scripted target fails, counted from 0, and its result, `DOCA_ERROR_IO_FAILED`.
const FAULT: &str = "fail-io:21:17";

impl Deployment<'_> {
    /// CPU for role number `index`, counted from the service; with two or more CPUs, the initiator has a separate CPU.
    fn cpu(&self, index: usize) -> usize {
        let cpus = &self.settings.cpus;
        cpus[index % cpus.len()]
    }

    fn command(&self, member: &Member, role: Role, cpu: usize) -> Result<Command, Violation> {
        let mut command = member.command(role, cpu)?;
        command.args(["--cpu", &cpu.to_string()]);
        if let Some(protocol) = &self.settings.protocol
            && member.traits(role).protocol
        {
            command.args([PROTOCOL, protocol]);
        }
        Ok(command)
    }

    fn file(&self, name: &str, content: &[u8]) -> Result<PathBuf, Violation> {
        self.roles.sandbox.file(name, content).during(name)
    }

    fn target(&self, member: &Member, index: usize) -> Result<Command, Violation> {
        let label = self.mix.layout.targets()[index];
        let content = self.file(label, &self.files.targets[index])?;
        let mut command = self.command(member, Role::Target, self.cpu(index))?;
        command.arg("--binary-content").arg(content);
        if self.mix.layout == Layout::ZeroCopy {
            command
                .args(["--block-count", &BLOCKS.to_string()])
                .args(["--block-size", &BLOCK_SIZE.to_string()]);
        }
        Ok(command)
    }

    fn scripted_target(&self, index: usize) -> Result<Command, Violation> {
        let layout = self.mix.layout;
        let label = layout.targets()[index];
        let content = self.file(label, self.files.first_content(layout))?;
        let block_size = self.files.block_size;
        let [program, arguments @ ..] = &self.settings.scripted_target[..] else {
            return Err(Violation::new("there is no scripted target"));
        };
        let mut command = Command::new(program);
        command
            .args(arguments)
            .args(["--block-size", &block_size.to_string()])
            .args(["--fault", FAULT])
            .args([
                "--listen-address",
                &self.roles.sandbox.address_of_target(index),
            ])
            .arg("--content")
            .arg(content);
        if let Some(protocol) = &self.settings.protocol {
            command.args([PROTOCOL, protocol]);
        }
        Ok(command)
    }

    fn service(&self) -> Result<Command, Violation> {
        let layout = self.mix.layout;
        let mut command = self.command(self.mix.service, layout.service(), self.cpu(0))?;
        command.args(["--control-timeout", CONTROL_TIMEOUT]);
        if layout == Layout::Gga {
            let every = self.plan.recover_every.to_string();
            command.args(["--trigger-recovery-read-every-n", &every]);
        }
        Ok(command)
    }

    fn initiator(&self) -> Result<Command, Violation> {
        let traits = self.mix.initiator.traits(Role::Initiator);
        let mut command = self.command(self.mix.initiator, Role::Initiator, self.cpu(1))?;
        command
            .args(["--control-timeout", CONTROL_TIMEOUT])
            .args(["--execution-strategy", self.plan.strategy.name()])
            .args([
                "--run-limit-operation-count",
                &self.plan.operations.to_string(),
            ])
            .args([traits.transactions_flag, TRANSACTIONS]);
        if traits.io_timeout {
            // On a busy machine, a response may be late; this is not checked here.
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

// Relay between a service and a target that overstates the capacity of the storage.

/// Starts a relay for one connection of a service to the target on port `target`, and returns the relay's port. It
/// reports one block more than the storage has, so that an initiator requests that block and the target cannot
/// execute the I/O; everything else is forwarded.
///
/// # Errors
///
/// No port is free.
fn overstate(target: u16) -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    let relay = Relay {
        channels: vec![(listener, format!("{}:{target}", Ipv4Addr::LOCALHOST))],
        timeout: Duration::ZERO,
        sessions: Some(1),
    };
    // Ends with the connection, or with this process. A failure closes both connections, and the session reports it.
    thread::spawn(move || relay.run(&Overstating, &|| false));
    Ok(port)
}

struct Overstating;

impl Interceptor for Overstating {
    fn observe(&self, _: Place, _: Option<Side>, _: Event) {}

    fn decides(&self) -> bool {
        true
    }

    fn intercept(&self, _: Place, _: Side, piece: &Piece) -> Action {
        let Piece::Frame(frame) = piece else {
            return Action::Pass;
        };
        let mut message = frame.message.clone();
        match &mut message.payload {
            Payload::QueryStorageResponse(details) => {
                details.total_size += u64::from(details.block_size);
            }
            // The response with the superblock also contains the capacity.
            Payload::IdentifiedStorageResponse(storage) => {
                storage.total_size += u64::from(storage.block_size);
            }
            _ => return Action::Pass,
        }
        Action::Replace(message.encode_to_vec().into())
    }
}

/// Number of blocks of the storage, as presented to the initiator.
pub(super) const BLOCKS: usize = 256;
/// Block size in bytes, as presented to the initiator.
pub(super) const BLOCK_SIZE: usize = 4096;
/// Block size in bytes on each target of a gga deployment.
const HALF_BLOCK_SIZE: usize = BLOCK_SIZE / 2;
/// Number of the corrupt block, in checks that have one.
pub(super) const CORRUPT: usize = 13;

/// Number of bytes at the start of each block that occur nowhere else, so that LZ4 encoders cannot refer to earlier data.
const UNIQUE: usize = 128;
/// Offset of the changed byte in a corrupt block, plain or stored. In a stored block it follows the header (8 bytes),
/// the size of the LZ4 block (4) and the token with the length of its first literals (2), so it is one of these
/// literals: the block decompresses to data with one wrong byte. A block that cannot be decompressed would be a
/// different test.
const PLACE: usize = 60;

/// Contents of the storage: compressible blocks that are all different.
pub(super) fn plain() -> Vec<u8> {
    let mut content = Vec::with_capacity(BLOCKS * BLOCK_SIZE);
    for block in 0..BLOCKS {
        content.extend(contents::noise(block as u64, UNIQUE));
        let line = format!("block {block} of the storage\n");
        content.extend(line.bytes().cycle().take(BLOCK_SIZE - UNIQUE));
    }
    content
}

/// Changes one byte of block [`CORRUPT`] of `stored`, whose blocks have `block_size` bytes.
pub(super) fn corrupt(stored: &mut [u8], block_size: usize) {
    stored[CORRUPT * block_size + PLACE] ^= 0x20;
}

// Initial contents of the targets.

/// Contents of the files of one session.
#[derive(Debug, Clone)]
pub(super) struct Files {
    /// Contents of the storage, as presented to the initiator.
    pub(super) plain: Vec<u8>,
    /// Initial contents of each target: plain bytes, or a `.sbc` file.
    pub(super) targets: Vec<Vec<u8>>,
    /// Size of a target's block in bytes. In gga, half of the initiator's; for generators of versions 3.0 and 3.1 of
    /// the reference, all of it.
    pub(super) block_size: usize,
}

/// The three `.sbc` files of a generator, or its failure.
type Generated = Result<Vec<Vec<u8>>, Violation>;

/// Files that are generated once for all sessions.
#[derive(Debug)]
pub(super) struct Library {
    plain: Vec<u8>,
    /// By name of the generator's implementation.
    generated: Mutex<BTreeMap<String, Generated>>,
    /// Time limit of a generator.
    timeout: Duration,
}

impl Library {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            plain: plain(),
            generated: Mutex::default(),
            timeout,
        }
    }

    /// Returns the files of a mix.
    ///
    /// # Errors
    ///
    /// The files could not be generated.
    pub(super) fn of(&self, mix: &Mix<'_>, cpu: usize) -> Result<Files, Violation> {
        let plain = self.plain.clone();
        let targets = match (mix.layout, mix.generator) {
            (Layout::ZeroCopy, _) => vec![plain.clone()],
            (Layout::Gga, None) => {
                return Err(Violation::new(format!(
                    "no implementation has a {}",
                    Role::SbcGenerator
                )));
            }
            (Layout::Gga, Some(member)) => {
                // Locked while the generator runs, so that no other session generates the same files.
                let mut generated = self
                    .generated
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                generated
                    .entry(member.name().to_owned())
                    .or_insert_with(|| self.generate(member, cpu))
                    .clone()?
            }
        };
        let block_size = match mix.layout {
            Layout::ZeroCopy => BLOCK_SIZE,
            Layout::Gga => (targets[0].len() - HEADER_SIZE) / BLOCKS,
        };
        Ok(Files {
            plain,
            targets,
            block_size,
        })
    }

    fn generate(&self, member: &Member, cpu: usize) -> Generated {
        let generator = format!("{}'s generator", member.name());
        let sandbox = Sandbox::new().during(&generator)?;
        let original = sandbox.file("original", &self.plain).during(&generator)?;
        let mut command = member.command(Role::SbcGenerator, cpu)?;
        command
            .args(["--device", DPU_DEVICE])
            .arg("--original-input-data")
            .arg(original)
            .args(["--block-size", &BLOCK_SIZE.to_string()]);
        let files = Layout::Gga.targets().iter().map(|name| sandbox.path(name));
        let files: Vec<_> = files.collect();
        for (flag, path) in std::iter::zip(["--data-1", "--data-2", "--data-p"], &files) {
            command.arg(flag).arg(path);
        }
        sandbox.place(&mut command);
        Process::spawn(Role::SbcGenerator.name(), command)
            .and_then(|process| process.finish(Instant::now() + self.timeout, || false))
            .map_err(|failure| Violation::new(format!("{}'s {failure}", member.name())))?;
        let read = |path| std::fs::read(path).during(&generator);
        let files: Vec<_> = files.iter().map(read).collect::<Result<_, _>>()?;
        let expected = [HALF_BLOCK_SIZE, BLOCK_SIZE].map(|size| HEADER_SIZE + BLOCKS * size);
        let length = files[0].len();
        let is_wrong = |file: &&Vec<u8>| file.len() != length || !expected.contains(&length);
        match files.iter().find(is_wrong) {
            Some(file) => Err(Violation::new(format!(
                "{generator}: expected files of {} bytes each, or of {}, got one of {}",
                expected[0],
                expected[1],
                file.len()
            ))),
            None => Ok(files),
        }
    }
}

impl Files {
    /// Corrupts a block of the first target.
    pub(super) fn corrupt(&mut self, layout: Layout) {
        let file = &mut self.targets[0];
        match layout {
            Layout::ZeroCopy => corrupt(file, BLOCK_SIZE),
            Layout::Gga => corrupt(&mut file[HEADER_SIZE..], self.block_size),
        }
    }

    /// Rotates the contents by one block, so that the blocks that a session writes differ from the initial ones, and
    /// a missing write is detected.
    pub(super) fn shift(&mut self, layout: Layout) {
        for file in &mut self.targets {
            match layout {
                Layout::ZeroCopy => file.rotate_left(BLOCK_SIZE),
                Layout::Gga => file[HEADER_SIZE..].rotate_left(self.block_size),
            }
        }
    }

    /// Contents of the first target, without the file header.
    fn first_content(&self, layout: Layout) -> &[u8] {
        match layout {
            Layout::ZeroCopy => &self.targets[0],
            Layout::Gga => &self.targets[0][HEADER_SIZE..],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Shutdown, TcpStream};

    use bytes::Bytes;
    use wire::control::{IdentifiedStorage, Message, RecordState, StorageDetails};

    use super::*;

    #[test]
    fn relay_changes_only_the_size() {
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
                format: 0,
                matrix: 0,
                logical_block_size: 0,
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
        // In two segments, the first of which ends within a frame.
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

    #[test]
    fn corruption_hits_a_literal() {
        let content = plain();
        assert_eq!(content.len(), BLOCKS * BLOCK_SIZE);
        let block = &content[CORRUPT * BLOCK_SIZE..][..BLOCK_SIZE];
        let mut stored = vec![0; 12];
        stored.extend(lz4_flex::block::compress(block));
        assert!(stored.len() < BLOCK_SIZE - 4);
        stored[PLACE] ^= 0x20;
        let read = lz4_flex::block::decompress(&stored[12..], BLOCK_SIZE).expect("still LZ4");
        let wrong = std::iter::zip(block, &read).filter(|(a, b)| a != b).count();
        assert_eq!((read.len(), wrong), (BLOCK_SIZE, 1));
    }

    #[test]
    fn corruption_changes_one_byte() {
        let content = plain();
        let mut changed = content.clone();
        corrupt(&mut changed, BLOCK_SIZE);
        let wrong: Vec<_> = (0..content.len())
            .filter(|&i| content[i] != changed[i])
            .collect();
        assert_eq!(wrong, [CORRUPT * BLOCK_SIZE + PLACE]);
    }
}
