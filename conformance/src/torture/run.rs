//! One run of an attack: its deployment, its oracle, and steps common to all attacks.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use deployment::process::{Process, Signal};
use deployment::sandbox::Sandbox;
use deployment::{Deployment, Form, Part};
use fastrand::Rng;

use super::client::{Client, Load, Mix, Reply, Storage};
use super::disks::{self, Chunk};
use super::oracle::Oracle;
use super::setup::{Setup, clear_runtime_directories, socket};
use super::{Attack, Pause, Settings};
use crate::matrix::Layout;
use crate::stall::StallWatch;
use crate::violation::{During as _, Violation};

/// Time limit for responses of the front end: longer than its wait for a service.
const REPLY_LIMIT: Duration = Duration::from_secs(90);

/// Time limit for reading all blocks, or getting I/O errors for them.
const READ_LIMIT: Duration = Duration::from_secs(60);

/// Result of a run.
pub(super) struct Outcome {
    pub(super) verified: u64,
    pub(super) excuses: BTreeMap<&'static str, u64>,
    /// Numbers of failed I/Os and closed connections under load.
    pub(super) failures: (u64, u64),
    pub(super) takeovers: Vec<Pause>,
    /// `true` if a stall of the machine has ended the run.
    pub(super) is_stalled: bool,
    /// The violation, and the directory that was kept.
    pub(super) broken: Option<(Violation, PathBuf)>,
}

pub(super) struct Run<'a> {
    pub(super) deployment: Deployment,
    pub(super) setup: Setup<'a>,
    pub(super) storage: Storage,
    pub(super) rng: Rng,
    excuses: BTreeMap<&'static str, u64>,
    /// Pauses of the takeovers so far.
    pub(super) takeovers: Vec<Pause>,
    /// Durable content of each backing file, as of the last flush that determined it.
    durable: Vec<Vec<u8>>,
    /// Clients to be stopped with the run.
    seed: u64,
}

impl<'a> Run<'a> {
    /// Runs an attack.
    pub(super) fn of(
        settings: &'a Settings,
        stalls: &StallWatch,
        attack: &Attack,
        index: usize,
        seed: u64,
    ) -> Outcome {
        let began = Instant::now();
        let mut rng = Rng::with_seed(seed ^ (index as u64 + 1) << 48);
        let layout = attack.layouts[rng.usize(..attack.layouts.len())];
        let form = match rng.u8(..6) {
            0 => Form {
                layout,
                block_size: 65536,
                blocks: 16,
            },
            _ => Form {
                layout,
                block_size: 4096,
                blocks: rng.u64(24..64),
            },
        };
        let mut run = match Run::new(settings, attack, form, rng, seed) {
            Ok(run) => run,
            Err(violation) => {
                return Outcome {
                    verified: 0,
                    excuses: BTreeMap::new(),
                    failures: (0, 0),
                    takeovers: Vec::new(),
                    is_stalled: false,
                    broken: Some((violation, PathBuf::new())),
                };
            }
        };
        let result = (attack.run)(&mut run);
        let verified = run.storage.oracle().verified();
        let failures = run.storage.failures();
        let wrong = run.storage.wrong();
        let Run {
            deployment,
            excuses,
            takeovers,
            ..
        } = run;
        // A stall is a reason for an error or a timeout, but not for wrong content.
        let is_stalled = result.is_err() && wrong.is_none() && stalls.stall_since(began).is_some();
        let broken = result.err().filter(|_| !is_stalled).map(|violation| {
            // A timeout of an attack may be a consequence of the wrong content.
            let violation = match wrong {
                Some(wrong) if wrong != violation => {
                    Violation::new(format!("{wrong}; then: {violation}"))
                }
                _ => violation,
            };
            (violation, deployment.keep())
        });
        Outcome {
            verified,
            excuses,
            failures,
            takeovers,
            is_stalled,
            broken,
        }
    }

    fn new(
        settings: &'a Settings,
        attack: &Attack,
        form: Form,
        rng: Rng,
        seed: u64,
    ) -> Result<Self, Violation> {
        let deployment = Deployment::new(Sandbox::new()?, form.layout, settings.limit)?;
        let mut setup = Setup::new(settings, form, attack.needs_machines);
        let is_set = form.layout == Layout::Gga;
        if is_set && settings.degraded {
            setup.service_flags = ["--degraded", "on"].map(str::to_owned).to_vec();
        }
        let oracle = Oracle::new(form.block_size, form.blocks, is_set);
        Ok(Self {
            storage: Storage::new(socket(&deployment), oracle, REPLY_LIMIT),
            deployment,
            setup,
            rng,
            excuses: BTreeMap::new(),
            takeovers: Vec::new(),
            durable: Vec::new(),
            seed,
        })
    }

    pub(super) fn form(&self) -> Form {
        self.setup.form
    }

    pub(super) fn is_set(&self) -> bool {
        self.form().layout == Layout::Gga
    }

    /// A random target.
    pub(super) fn any_target(&mut self) -> usize {
        self.rng.usize(..self.form().targets())
    }

    /// Counts blocks that are I/O errors, as the promise with this id allows.
    pub(super) fn excuse(&mut self, id: &'static str, count: u64) {
        if count != 0 {
            *self.excuses.entry(id).or_default() += count;
        }
    }

    pub(super) fn sleep(&mut self, milliseconds: std::ops::Range<u64>) {
        let time = self.rng.u64(milliseconds);
        std::thread::sleep(Duration::from_millis(time));
    }

    pub(super) fn chunk(&self, number: u64) -> Chunk {
        Chunk {
            size: self.form().chunk_size(),
            number,
        }
    }

    // I/O

    pub(super) fn load(&mut self, mix: Mix) -> Load {
        Load::start(&self.storage, mix, self.seed ^ self.rng.u64(..))
    }

    /// Writes every block, in whole or in two parts, and flushes. Then waits until a set has full redundancy: on a busy
    /// machine, it may have detached a slow target.
    pub(super) fn fill(&mut self) -> Result<(), Violation> {
        let mut client = self.storage.connect()?;
        for block in 0..self.form().blocks {
            self.write_block(&mut client, block)?;
        }
        expect_done(&client.flush()?, "flush").during("first writes")?;
        self.wait_until_whole().during("first writes")
    }

    /// Writes a block, as a whole or a part of it.
    pub(super) fn write_block(&mut self, client: &mut Client, block: u64) -> Result<(), Violation> {
        let size = self.form().block_size;
        let (at, length) = match self.rng.u8(..4) {
            0 => (0, size / 2),
            1 => (size / 2, size / 2),
            2 => {
                let sector = self.rng.usize(..size / 512);
                (sector * 512, 512)
            }
            _ => (0, size),
        };
        let offset = block * size as u64 + at as u64;
        let data = self.storage.content(&mut self.rng, offset, length);
        expect_done(&client.write(offset, &data)?, "write")
    }

    /// Writes blocks chosen at random, and returns their numbers.
    pub(super) fn write_some(
        &mut self,
        client: &mut Client,
        count: usize,
    ) -> Result<Vec<u64>, Violation> {
        let mut written = Vec::new();
        for _ in 0..count {
            let block = self.rng.u64(..self.form().blocks);
            self.write_block(client, block)?;
            written.push(block);
        }
        Ok(written)
    }

    /// Reads every block with a new client. Every read must succeed.
    pub(super) fn read_all(&self, when: &str) -> Result<(), Violation> {
        self.read_all_of(&self.storage, when)
    }

    /// As [`Self::read_all`], at another front end.
    pub(super) fn read_all_of(&self, storage: &Storage, when: &str) -> Result<(), Violation> {
        let failed = self.failed_reads_of(storage).during(when)?;
        Violation::unless(
            failed.is_empty(),
            format!("every block to be read {when}"),
            format!("I/O errors of the blocks {failed:?}"),
        )
    }

    /// Reads every block with a new client, and returns the numbers of those whose reads fail.
    pub(super) fn failed_reads(&self) -> Result<Vec<u64>, Violation> {
        self.failed_reads_of(&self.storage)
    }

    fn failed_reads_of(&self, storage: &Storage) -> Result<Vec<u64>, Violation> {
        let size = self.form().block_size;
        let mut client = storage.connect()?;
        let mut failed = Vec::new();
        let began = Instant::now();
        for block in 0..self.form().blocks {
            if began.elapsed() > READ_LIMIT {
                return Err(Violation::expected(
                    format!("all blocks to be read within {READ_LIMIT:?}"),
                    format!("I/O errors of the blocks {failed:?}, block {block} next"),
                ));
            }
            match client.read(block * size as u64, size)? {
                Reply::Done => {}
                Reply::Failed(_) => failed.push(block),
                Reply::Lost => return Err(Violation::new("the front end closed a connection")),
            }
        }
        Ok(failed)
    }

    // Processes

    /// Starts all processes that are not running: targets, the service, the front end.
    pub(super) fn start_processes(&mut self) -> Result<(), Violation> {
        self.setup.apply_to(&mut self.deployment)?;
        self.deployment.start_targets()?;
        self.deployment.start(Part::Service)?;
        Ok(self.deployment.start(Part::FrontEnd)?)
    }

    /// Starts a process, unless it is running.
    pub(super) fn start_part(&mut self, part: Part) -> Result<(), Violation> {
        self.setup.apply_to(&mut self.deployment)?;
        Ok(self.deployment.start(part)?)
    }

    /// Starts a process without waiting until it is ready, such as one that is expected to refuse its peers or its backing file.
    pub(super) fn spawn(&mut self, part: Part) -> Result<(), Violation> {
        self.setup.apply_to(&mut self.deployment)?;
        Ok(self.deployment.spawn(part)?)
    }

    /// Sends SIGTERM, and waits for the exit, which must not be a crash.
    pub(super) fn terminate(&mut self, part: Part) -> Result<ExitStatus, Violation> {
        self.deployment.signal(part, Signal::TERM);
        self.exit_of(part)
    }

    /// Waits for the exit of a process, which must not be a crash.
    pub(super) fn exit_of(&mut self, part: Part) -> Result<ExitStatus, Violation> {
        let status = self.deployment.wait(part)?.status;
        status.ok_or_else(|| Violation::new(format!("{part:?} has no exit status")))
    }

    /// Process identifier of a process that was started.
    pub(super) fn id(&self, part: Part) -> Result<u32, Violation> {
        let process = self.deployment.process(part);
        let id = process.map(Process::id);
        id.ok_or_else(|| Violation::new(format!("{part:?} was not started")))
    }

    // Faults

    /// All processes, as parts of the deployment.
    pub(super) fn parts(&self) -> Vec<Part> {
        let targets = (0..self.form().targets()).map(Part::Target);
        targets.chain([Part::Service, Part::FrontEnd]).collect()
    }

    /// Kills all processes in random order, within some milliseconds.
    pub(super) fn kill_all(&mut self) -> Result<(), Violation> {
        let mut parts = self.deployment.started();
        self.rng.shuffle(&mut parts);
        for &part in &parts {
            self.deployment.signal(part, Signal::KILL);
            if self.rng.bool() {
                let time = Duration::from_micros(self.rng.u64(..1500));
                std::thread::sleep(time);
            }
        }
        Ok(self.deployment.kill(&parts)?)
    }

    /// Kills all processes, the service first: it does not continue without one of the targets, which would then not be
    /// current. For attacks that lose a target in addition.
    pub(super) fn kill_all_at_once(&mut self) -> Result<(), Violation> {
        self.deployment.kill(&[Part::Service])?;
        self.kill_all()
    }

    /// Stops all processes in order; for a set, once it has full redundancy.
    pub(super) fn stop(&mut self) -> Result<(), Violation> {
        self.wait_until_whole()?;
        self.stop_processes()
    }

    /// Stops all processes in order; a target's exit status also reflects its earlier sessions.
    pub(super) fn stop_processes(&mut self) -> Result<(), Violation> {
        for (part, exit) in self.deployment.stop()? {
            Violation::unless(
                exit.succeeded() || matches!(part, Part::Target(_)),
                format!("{part:?} to exit with status 0 after SIGTERM"),
                format!("{:?}", exit.status),
            )?;
        }
        Ok(())
    }

    /// Kills all processes that are running, if some are.
    pub(super) fn kill_somehow(&mut self) -> Result<(), Violation> {
        let parts = self.deployment.started();
        self.deployment.kill(&parts)?;
        clear_runtime_directories(&self.deployment)
    }

    /// Writes some blocks of a new storage.
    pub(super) fn write_some_new(&mut self) -> Result<(), Violation> {
        let mut client = self.storage.connect()?;
        self.write_some(&mut client, 6).map(drop)
    }

    /// Starts with a new storage: without backing files.
    pub(super) fn renew(&mut self) {
        let form = self.form();
        let oracle = Oracle::new(form.block_size, form.blocks, self.is_set());
        *self.storage.oracle() = oracle;
    }

    /// Starts all processes that are not running, and waits until a set has full redundancy.
    pub(super) fn start(&mut self) -> Result<(), Violation> {
        self.start_processes()?;
        self.wait_until_whole()
    }

    pub(super) fn wait_until_whole(&mut self) -> Result<(), Violation> {
        if self.is_set() {
            self.deployment.wait_until_complete()?;
        }
        Ok(())
    }

    /// Kills a target of a set with an active session, and waits until the service continues without it.
    pub(super) fn lose(&mut self, target: usize) -> Result<(), Violation> {
        self.deployment.kill(&[Part::Target(target)])?;
        self.read_all("while a target is being lost")?;
        Ok(self.deployment.wait_until_offline(target)?)
    }

    /// Reads all blocks without each of the targets in turn, which rejoin.
    pub(super) fn read_without_each(&mut self, when: &str) -> Result<(), Violation> {
        let mut targets: Vec<usize> = (0..self.form().targets()).collect();
        self.rng.shuffle(&mut targets);
        for target in targets {
            let name = self.form().layout.targets()[target];
            self.lose(target)
                .during(format!("{when}, without {name}"))?;
            self.read_all(&format!("{when}, without {name}"))?;
            self.start_part(Part::Target(target))?;
            self.deployment
                .wait_until_complete()
                .during(format!("{when}, with {name} again"))?;
        }
        self.read_all(when)
    }

    /// Flushes, and remembers the backing files as durable. No I/O may be in flight.
    pub(super) fn flush_and_remember(&mut self, client: &mut Client) -> Result<(), Violation> {
        expect_done(&client.flush()?, "flush")?;
        self.remember()
    }

    pub(super) fn remember(&mut self) -> Result<(), Violation> {
        let files =
            (0..self.form().targets()).map(|it| disks::copy_of(&self.deployment.backing_file(it)));
        self.durable = files.collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Fails the power of all machines: kills all processes, and loses changes since the last flush that was remembered.
    pub(super) fn fail_power(&mut self) -> Result<(), Violation> {
        self.kill_all()?;
        self.lose_unflushed()
    }

    /// Loses unflushed changes of all disks, whose targets are stopped, and restarts the machines.
    pub(super) fn lose_unflushed(&mut self) -> Result<(), Violation> {
        let all: Vec<usize> = (0..self.form().targets()).collect();
        self.lose_unflushed_of(&all)?;
        clear_runtime_directories(&self.deployment)
    }

    /// Loses unflushed changes of some disks, whose targets are stopped, and restarts their machines.
    pub(super) fn lose_unflushed_of(&mut self, targets: &[usize]) -> Result<(), Violation> {
        for &target in targets {
            let disk = self.deployment.backing_file(target);
            disks::lose_power(&disk, &self.durable[target], &mut self.rng)?;
            self.setup.restart_machine(target);
        }
        self.storage.oracle().lose_power();
        Ok(())
    }

    /// Remembers bytes of a backing file as durable.
    pub(super) fn keep(&mut self, target: usize, range: std::ops::Range<usize>, now: &[u8]) {
        self.durable[target][range.clone()].copy_from_slice(&now[range]);
    }

    /// Copies of all backing files.
    pub(super) fn copies(&self) -> Result<Vec<Vec<u8>>, Violation> {
        let targets = 0..self.form().targets();
        let files = targets.map(|it| disks::copy_of(&self.deployment.backing_file(it)));
        Ok(files.collect::<Result<_, _>>()?)
    }
}

pub(super) fn expect_done(reply: &Reply, what: &str) -> Result<(), Violation> {
    Violation::unless(
        *reply == Reply::Done,
        format!("the {what} to succeed"),
        format!("{reply:?}"),
    )
}
