//! The processes of one deployment: targets, service, front end and initiator.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::implementation::{self, Implementation, Layout, Role};
use crate::log::{self, LogEvent, waits_for_initiator};
use crate::process::{Exit, Failure, Process, Signal};
use crate::redundancy::Redundancy;
use crate::sandbox::Sandbox;

/// Time limit for the last output of a process that has exited: its children may keep the pipes open longer.
const DRAIN: Duration = Duration::from_secs(2);
/// Polling interval of all waits.
const TICK: Duration = Duration::from_millis(5);

/// A process of a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    Initiator,
    /// A server of a block device, such as NBD's, as a client of the service.
    FrontEnd,
    Service,
    /// Target number, from 0 on, in the order of [`Layout::targets`].
    Target(usize),
}

impl Part {
    /// The parts that are roles: all but the front end.
    pub fn roles(layout: Layout) -> impl Iterator<Item = Self> {
        let targets = (0..layout.targets().len()).map(Self::Target);
        [Self::Initiator, Self::Service].into_iter().chain(targets)
    }

    /// Name in errors.
    ///
    /// # Panics
    ///
    /// The layout has no such target.
    pub fn name(self, layout: Layout) -> &'static str {
        match self {
            Self::Initiator => "initiator",
            Self::FrontEnd => "front end",
            Self::Service => "service",
            Self::Target(target) => layout.targets()[target],
        }
    }
}

/// Layout and sizes of a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    pub layout: Layout,
    /// Block size of the clients in bytes.
    pub block_size: usize,
    /// Number of blocks.
    pub blocks: u64,
}

impl Form {
    /// Number of targets.
    pub fn targets(self) -> usize {
        self.layout.targets().len()
    }

    /// Block size of the targets in bytes, for sets, which store blocks of any content.
    pub fn chunk_size(self) -> usize {
        self.layout.chunk_size(self.block_size)
    }
}

/// Returns the CPUs of a process, one for each of its workers.
pub type Placement<'a> = &'a dyn Fn(Part) -> Vec<usize>;

#[derive(Debug)]
struct Slot {
    /// Program and flags, without those of the sandbox.
    command: Command,
    process: Option<Process>,
    starts: u32,
}

/// A deployment: its processes, with the command line and the logs of each. Each process is started, restarted,
/// inspected and stopped by its [`Part`]. Dropping a deployment terminates its processes.
///
/// A command line consists of the program, the caller's flags, and the flags for the connections between the processes,
/// which are added here: devices, ports, addresses and the channel's name.
#[derive(Debug)]
pub struct Deployment {
    layout: Layout,
    /// Time limit for a process to start, to exit, or to log an awaited event.
    limit: Duration,
    ports: Vec<u16>,
    /// Layout of the service, and the ports at which it reaches the targets; `None` for the deployment's own.
    reached: Option<(Layout, Vec<u16>)>,
    channel: String,
    /// `true` if targets have the flag for the address that they listen on, which targets of the reference lack.
    binds: bool,
    parts: BTreeMap<Part, Slot>,
    // Dropped last, because dropping it removes the machines and the files.
    pub sandbox: Sandbox,
}

impl Deployment {
    /// Reserves a port for each target. Parts are added with [`set_command`](Self::set_command).
    ///
    /// # Errors
    ///
    /// No port is free.
    pub fn new(sandbox: Sandbox, layout: Layout, limit: Duration) -> Result<Self, Failure> {
        Ok(Self {
            layout,
            limit,
            reached: None,
            ports: reserve_ports(&sandbox, layout)?,
            channel: sandbox.channel().to_owned(),
            binds: false,
            parts: BTreeMap::new(),
            sandbox,
        })
    }

    /// Terminates all processes and removes their command lines, to start another layout in the same sandbox.
    ///
    /// # Errors
    ///
    /// No port is free.
    pub fn reset(&mut self, layout: Layout) -> Result<(), Failure> {
        self.parts.clear();
        self.ports = reserve_ports(&self.sandbox, layout)?;
        self.layout = layout;
        self.reached = None;
        Ok(())
    }

    /// A deployment of this project's roles with full redundancy, which serves consecutive sessions: each target stores
    /// its blocks in a [backing file](Self::backing_file) and listens only on its own address, and three targets are a
    /// set. `limit` is the time limit for a process to start, to exit, or to log an awaited event.
    ///
    /// # Errors
    ///
    /// No port is free, or no program for a role.
    pub fn serving(
        sandbox: Sandbox,
        implementation: &Implementation,
        form: Form,
        placement: Placement<'_>,
        limit: Duration,
    ) -> Result<Self, Failure> {
        let mut deployment = Self::new(sandbox, form.layout, limit)?;
        deployment.binds = true;
        let command = |role, part| -> Result<Command, implementation::Error> {
            let mut command = implementation.command(role)?;
            for cpu in placement(part) {
                command.args(["--cpu", &cpu.to_string()]);
            }
            // With this format, messages for users are also written to standard error.
            command.args(["--sessions", "forever", "--output", "json"]);
            Ok(command)
        };
        let chunk_size = form.chunk_size();
        for target in 0..deployment.ports.len() {
            let mut command = command(Role::Target, Part::Target(target))?;
            command
                .args(["--block-count", &form.blocks.to_string()])
                .args(["--block-size", &chunk_size.to_string()])
                .arg("--backing-file")
                .arg(deployment.backing_file(target));
            deployment.set_command(Part::Target(target), command);
        }
        let mut command = command(form.layout.service(), Part::Service)?;
        if form.layout == Layout::Gga {
            command.args(["--logical-block-size", &form.block_size.to_string()]);
        }
        deployment.set_command(Part::Service, command);
        Ok(deployment)
    }

    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Number of targets.
    pub fn targets(&self) -> usize {
        self.ports.len()
    }

    /// Ports that the targets listen on.
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// Backing file of a target in a [serving](Self::serving) deployment.
    pub fn backing_file(&self, target: usize) -> PathBuf {
        let name = self.layout.targets()[target];
        self.sandbox.path(&format!("{name}.blocks"))
    }

    /// Program and flags of a part from its next start on, without the flags for the connections between the processes.
    pub fn set_command(&mut self, part: Part, command: Command) {
        let empty = || Slot {
            command: Command::new(""),
            process: None,
            starts: 0,
        };
        self.parts.entry(part).or_insert_with(empty).command = command;
    }

    /// Adds flags to a part's command line, from its next start on. Has no effect on a part without a command.
    pub fn add_flags<'a>(&mut self, part: Part, flags: impl IntoIterator<Item = &'a str>) {
        if let Some(slot) = self.parts.get_mut(&part) {
            slot.command.args(flags);
        }
    }

    /// Layout of the service from its next start on, and the ports, in the order of [`Layout::targets`], at which the
    /// service connects to the targets, such as those of a relay. By default, these are the deployment's own.
    pub fn reach_targets_at(&mut self, layout: Layout, ports: Vec<u16>) {
        self.reached = Some((layout, ports));
    }

    /// Name of the service's channel, for service and clients from their next start on. By default, it is the sandbox's.
    pub fn set_channel(&mut self, name: String) {
        self.channel = name;
    }

    /// Reserves another port for a target, from its next start on, and returns it.
    ///
    /// # Errors
    ///
    /// No port is free.
    ///
    /// # Panics
    ///
    /// The layout has no such target.
    pub fn move_target(&mut self, target: usize) -> Result<u16, Failure> {
        let port = self.sandbox.port()?;
        self.ports[target] = port;
        Ok(port)
    }

    /// Starts all parts that have a command and are not running, targets first, and waits until each is ready.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_all(&mut self) -> Result<(), Failure> {
        let parts: Vec<Part> = self.parts.keys().rev().copied().collect();
        // In ascending order of the targets.
        let targets = (0..self.targets()).map(Part::Target);
        let others = parts.iter().filter(|part| !matches!(part, Part::Target(_)));
        targets
            .chain(others.copied())
            .try_for_each(|part| self.start(part))
    }

    /// Starts the targets that are not running, and waits until each listens.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_targets(&mut self) -> Result<(), Failure> {
        (0..self.targets()).try_for_each(|target| self.start(Part::Target(target)))
    }

    /// Starts a part, unless it is running, and waits until it is ready: until a target listens, a service waits for an
    /// initiator, a front end serves. A restarted target has its former port.
    ///
    /// # Errors
    ///
    /// The part has no command, the program cannot be started, or it is not ready in time; it is then terminated.
    pub fn start(&mut self, part: Part) -> Result<(), Failure> {
        if self.process(part).is_some() {
            return Ok(());
        }
        self.spawn(part)?;
        self.wait_until_ready(part)
    }

    /// Starts a part without waiting until it is ready. A running process of the part is terminated.
    ///
    /// # Errors
    ///
    /// The part has no command, or the program cannot be started.
    pub fn spawn(&mut self, part: Part) -> Result<(), Failure> {
        let name = part.name(self.layout);
        let command = self.command_line(part)?;
        let slot = self.slot(part)?;
        slot.process = None;
        slot.starts += 1;
        let log = log_name(name, slot.starts);
        let log = self.sandbox.log(&log)?;
        let process = Process::spawn_logged(name, command, log)?;
        self.slot(part)?.process = Some(process);
        Ok(())
    }

    /// Waits until a part that was [spawned](Self::spawn) is ready.
    ///
    /// # Errors
    ///
    /// The part has exited, or is not ready in time; it is then terminated.
    pub fn wait_until_ready(&mut self, part: Part) -> Result<(), Failure> {
        let limit = self.limit;
        let port = match part {
            Part::Target(target) => self.ports[target],
            Part::Initiator | Part::FrontEnd | Part::Service => 0,
        };
        let mut process = self.take(part)?;
        match part {
            Part::Initiator => {}
            Part::Target(_) => {
                if let Err(why) = process.wait_until_listening(port, limit, || false) {
                    return Err(process.failed(&why.to_string()));
                }
            }
            Part::Service => {
                process.wait_for("waited for the initiator", limit, waits_for_initiator)?
            }
            Part::FrontEnd => process.wait_for("was serving", limit, |line| {
                line.contains("Serving ").then_some(())
            })?,
        }
        self.slot(part)?.process = Some(process);
        Ok(())
    }

    /// The complete command line of a part, including the flags for the connections between the processes.
    ///
    /// # Errors
    ///
    /// The part has no command.
    pub fn command_line(&self, part: Part) -> Result<Command, Failure> {
        let slot = self.parts.get(&part).ok_or_else(|| self.no_part(part))?;
        let own = crate::copy(&slot.command);
        let environment: Vec<_> = own
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
            .collect();
        let (sandbox, channel) = (&self.sandbox, &self.channel);
        let mut command = match part {
            Part::Target(target) => sandbox.target(own, self.ports[target]),
            Part::Service => {
                let reached = self.reached.as_ref();
                let (layout, ports) = reached
                    .map_or((self.layout, &self.ports), |(layout, ports)| {
                        (*layout, ports)
                    });
                sandbox.service(own, layout, ports, channel)
            }
            Part::Initiator | Part::FrontEnd => sandbox.initiator(own, channel),
        };
        if self.binds
            && let Part::Target(target) = part
        {
            command.args(["--listen-address", &sandbox.address_of_target(target)]);
        }
        // The caller may place a part elsewhere, for example in a separate runtime directory.
        command.envs(environment);
        Ok(match part {
            Part::Target(target) => sandbox.on_machine_of_target(target, command),
            Part::Service | Part::Initiator | Part::FrontEnd => command,
        })
    }

    fn slot(&mut self, part: Part) -> Result<&mut Slot, Failure> {
        let missing = self.no_part(part);
        self.parts.get_mut(&part).ok_or(missing)
    }

    fn no_part(&self, part: Part) -> Failure {
        Failure::new(part.name(self.layout), "is not a part of the deployment")
    }

    /// The process of a part that was started. It may have exited.
    pub fn process(&self, part: Part) -> Option<&Process> {
        self.parts.get(&part)?.process.as_ref()
    }

    /// Takes the process of a part out of the deployment, which can then start another one.
    ///
    /// # Errors
    ///
    /// The part was not started.
    pub fn take(&mut self, part: Part) -> Result<Process, Failure> {
        let process = self.slot(part)?.process.take();
        process.ok_or_else(|| Failure::new(part.name(self.layout), "was not started"))
    }

    /// Started parts, in the order in which they are stopped: clients before their servers.
    pub fn started(&self) -> Vec<Part> {
        let slots = self.parts.iter();
        let started = slots.filter(|(_, slot)| slot.process.is_some());
        started.map(|(part, _)| *part).collect()
    }

    /// Fails if a target, the service or the front end was started and has exited.
    ///
    /// # Errors
    ///
    /// A process has exited: the error contains its output, and the process is removed from the deployment.
    pub fn expect_servers_to_run(&mut self) -> Result<(), Failure> {
        let servers = self.parts.range_mut(Part::FrontEnd..);
        for slot in servers.map(|(_, slot)| slot) {
            if let Some(process) = slot.process.take_if(|process| process.has_ended()) {
                return Err(process.failed("has exited, but has to serve the next session"));
            }
        }
        Ok(())
    }

    /// Sends a signal to a part, if it was started.
    pub fn signal(&self, part: Part, signal: Signal) {
        if let Some(process) = self.process(part) {
            process.signal(signal);
        }
    }

    /// Waits for the exit of a part, and takes it out of the deployment.
    ///
    /// # Errors
    ///
    /// The part was not started, is still running after the limit, or has [crashed](Exit::crash).
    pub fn wait(&mut self, part: Part) -> Result<Exit, Failure> {
        let process = self.take(part)?;
        process.expect_exit(self.limit, DRAIN)
    }

    /// Sends a signal to a part, and waits for its exit.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    pub fn end(&mut self, part: Part, signal: Signal) -> Result<Exit, Failure> {
        self.signal(part, signal);
        self.wait(part)
    }

    /// Kills all of these parts that were started, without waiting in between, and then waits until they have exited.
    ///
    /// # Errors
    ///
    /// A part is still running after the limit, or had crashed before.
    pub fn kill(&mut self, parts: &[Part]) -> Result<(), Failure> {
        for &part in parts {
            self.signal(part, Signal::KILL);
        }
        for &part in parts {
            if self.process(part).is_some() {
                self.wait(part)?;
            }
        }
        Ok(())
    }

    /// Sends SIGTERM to one started part after the other, clients before their servers, and returns their exits.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    pub fn stop(&mut self) -> Result<Vec<(Part, Exit)>, Failure> {
        let parts = self.started().into_iter();
        parts
            .map(|part| Ok((part, self.end(part, Signal::TERM)?)))
            .collect()
    }

    /// Terminates all processes, and keeps the directory with their files. Returns its path.
    pub fn keep(self) -> PathBuf {
        drop(self.parts);
        self.sandbox.keep()
    }

    /// The log of a part since its last start; empty if it was never started.
    pub fn log(&self, part: Part) -> String {
        let starts = self.parts.get(&part).map_or(0, |slot| slot.starts);
        self.log_of_start(part, starts)
    }

    /// The log of all starts of a part.
    pub fn log_of_all_starts(&self, part: Part) -> String {
        let starts = self.parts.get(&part).map_or(0, |slot| slot.starts);
        (1..=starts)
            .map(|start| self.log_of_start(part, start))
            .collect()
    }

    fn log_of_start(&self, part: Part, start: u32) -> String {
        let name = log_name(part.name(self.layout), start);
        fs::read_to_string(self.sandbox.path(&format!("{name}.log"))).unwrap_or_default()
    }

    /// Number of lines of a part's [log](Self::log) that report an event for which `is_counted` returns `true`.
    pub fn count_events(&self, part: Part, is_counted: impl Fn(LogEvent<'_>) -> bool) -> usize {
        let log = self.log(part);
        log::events(&log).filter(|event| is_counted(*event)).count()
    }

    /// Redundancy in the current session, according to the service's log.
    pub fn redundancy(&self) -> Redundancy {
        Redundancy::of_log(&self.log(Part::Service), self.layout.targets())
    }

    /// Waits until the service's log satisfies a condition. `what` completes "has not logged that ..." in the error.
    ///
    /// # Errors
    ///
    /// The service has exited or was not started, or `limit` has passed.
    pub fn wait_for_log(
        &self,
        what: &str,
        limit: Duration,
        is_fulfilled: impl Fn(&Self) -> bool,
    ) -> Result<(), Failure> {
        let deadline = Instant::now() + limit;
        loop {
            let service = self.process(Part::Service);
            let has_ended = service.is_none_or(Process::has_ended);
            if has_ended && let Some(service) = service {
                service.drain(DRAIN);
            }
            if is_fulfilled(self) {
                return Ok(());
            }
            if has_ended || Instant::now() > deadline {
                let when = if has_ended {
                    "before its exit"
                } else {
                    "in time"
                };
                return Err(Failure {
                    stderr: service.map(Process::stderr).unwrap_or_default(),
                    ..Failure::new("service", format!("has not logged {when} that {what}"))
                });
            }
            std::thread::sleep(TICK);
        }
    }

    /// Waits until the service has reported that all targets are up to date.
    ///
    /// # Errors
    ///
    /// As [`wait_for_log`](Self::wait_for_log).
    pub fn wait_until_complete(&self) -> Result<(), Failure> {
        self.wait_for_log("all targets are up to date", self.limit, |it| {
            it.redundancy().is_complete()
        })
    }

    /// Waits until the service has detached a target, or has started a session without it.
    ///
    /// # Errors
    ///
    /// As [`wait_for_log`](Self::wait_for_log).
    pub fn wait_until_offline(&self, target: usize) -> Result<(), Failure> {
        self.wait_for_log("a target is offline", self.limit, |it| {
            it.redundancy().is_offline(target)
        })
    }

    /// Waits until the service is rebuilding a target that was offline, or has rebuilt it.
    ///
    /// # Errors
    ///
    /// As [`wait_for_log`](Self::wait_for_log).
    pub fn wait_until_online(&self, target: usize) -> Result<(), Failure> {
        self.wait_for_log("a target is online", self.limit, |it| {
            !it.redundancy().is_offline(target)
        })
    }
}

fn reserve_ports(sandbox: &Sandbox, layout: Layout) -> Result<Vec<u16>, Failure> {
    let ports = layout.targets().iter().map(|_| sandbox.port());
    Ok(ports.collect::<Result<_, _>>()?)
}

/// Name of the log of a start, without its suffix.
fn log_name(part: &str, start: u32) -> String {
    format!("{}-{start}", part.replace(' ', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A deployment whose parts are shell scripts; their flags are ignored.
    fn deployment(service: &str) -> Deployment {
        let sandbox = Sandbox::new().expect("a directory");
        let limit = Duration::from_secs(10);
        let mut deployment = Deployment::new(sandbox, Layout::Gga, limit).expect("free ports");
        deployment.set_command(Part::Service, shell(service));
        deployment
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script, "sh"]);
        command
    }

    const READY: &str = "echo waiting for the initiator >&2; exec sleep 1000";

    #[test]
    fn part_is_started_again_with_its_command_and_a_log_of_its_own() {
        let mut deployment = deployment(&format!("echo \"$@\" >&2; {READY}"));
        deployment.add_flags(Part::Service, ["--io-timeout", "4"]);
        deployment.reach_targets_at(Layout::Gga, vec![1, 2, 3]);
        deployment.start(Part::Service).expect("ready");
        let id = deployment.process(Part::Service).map(Process::id);
        deployment.start(Part::Service).expect("no second start");
        assert_eq!(deployment.process(Part::Service).map(Process::id), id);
        deployment.kill(&[Part::Service]).expect("killed");
        deployment.kill(&[Part::Service]).expect("no effect");
        deployment.start(Part::Service).expect("ready");
        let channel = deployment.sandbox.channel();
        let line = format!(
            "--io-timeout 4 -d 03:00.0 -r 3b:00.0 --command-channel-name {channel} --data-1-storage 127.0.0.1:1 \
             --data-2-storage 127.0.0.1:2 --data-p-storage 127.0.0.1:3\nwaiting for the initiator\n"
        );
        assert_eq!(deployment.log(Part::Service), line);
        assert_eq!(deployment.log_of_all_starts(Part::Service), line.repeat(2));
        let ready = deployment.count_events(Part::Service, |event| {
            event == LogEvent::WaitingForInitiator
        });
        assert_eq!(ready, 1);
    }

    #[test]
    fn exit_of_a_part_that_has_to_run_is_an_error() {
        let mut deployment = deployment(READY);
        deployment.start(Part::Service).expect("ready");
        deployment.expect_servers_to_run().expect("it runs");
        deployment.signal(Part::Service, Signal::KILL);
        let service = deployment.process(Part::Service).expect("started");
        service.wait_for_end(Instant::now() + Duration::from_secs(10));
        assert!(deployment.expect_servers_to_run().is_err());
        assert!(deployment.started().is_empty());
        let missing = deployment.wait(Part::Service).expect_err("it was taken");
        assert_eq!(
            (missing.role, &*missing.what),
            ("service", "was not started")
        );
        let unknown = deployment.start(Part::FrontEnd).expect_err("no command");
        assert_eq!(unknown.role, "front end");
    }

    #[test]
    fn crash_is_distinguished_from_an_orderly_exit() {
        let is_orderly = |script: &str| {
            let mut deployment = deployment(script);
            deployment.spawn(Part::Service).expect("a shell");
            deployment.wait(Part::Service).is_ok()
        };
        assert!(is_orderly("exit 0") && is_orderly("exit 1") && is_orderly("kill -KILL $$"));
        assert!(!is_orderly("kill -SEGV $$"));
        assert!(!is_orderly("exit 101"));
        assert!(!is_orderly("echo thread panicked at x >&2; exit 1"));
    }

    #[test]
    fn service_reaches_a_moved_target_until_the_deployment_is_reset() {
        let mut deployment = deployment(READY);
        let before = deployment.ports().to_vec();
        let port = deployment.move_target(1).expect("a free port");
        assert_eq!(deployment.ports(), [before[0], port, before[2]]);
        deployment.set_channel("next".to_owned());
        let command = deployment.command_line(Part::Service).expect("a command");
        let words = command.get_args().map(|word| word.to_string_lossy());
        let words: Vec<_> = words.collect();
        let of = |flag| {
            let at = words.iter().position(|word| word == flag);
            &*words[at.expect("the flag") + 1]
        };
        assert_eq!(of("--command-channel-name"), "next");
        assert_eq!(of("--data-2-storage"), format!("127.0.0.1:{port}"));
        deployment.start(Part::Service).expect("ready");
        deployment.reset(Layout::ZeroCopy).expect("a free port");
        assert_eq!((deployment.started(), deployment.targets()), (vec![], 1));
        deployment
            .command_line(Part::Service)
            .expect_err("no command");
    }

    #[test]
    fn explicit_environment_replaces_that_of_the_sandbox() {
        let mut deployment = deployment("");
        let mut command = shell(&format!("echo dir=$SOFTDOCA_RUNTIME_DIR >&2; {READY}"));
        command.env("SOFTDOCA_RUNTIME_DIR", "/elsewhere");
        deployment.set_command(Part::Service, command);
        deployment.start(Part::Service).expect("ready");
        assert!(
            deployment
                .log(Part::Service)
                .starts_with("dir=/elsewhere\n")
        );
    }

    #[test]
    fn wait_for_the_log_ends_with_the_service() {
        let mut deployment = deployment("echo all storage targets are up to date >&2; exit 3");
        deployment.spawn(Part::Service).expect("a shell");
        deployment.wait_until_complete().expect("it is logged");
        let begin = Instant::now();
        let failure = deployment.wait_until_offline(1).expect_err("an exit");
        assert!(failure.to_string().contains("up to date"), "{failure}");
        assert!(begin.elapsed() < Duration::from_secs(5));
    }
}
