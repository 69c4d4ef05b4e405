//! The simulated deployment: an initiator, a service, three targets and the links between them, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use fastrand::Rng;
use role_common::stored_block::{Checksum, Encoder, Place, Verdict, decodes, inspect};
use role_common::superblock::{Epoch, SetId, Superblock};
use wire::control::RecordState;
use wire::stored_block::Trailer;

use super::oracle::BlockHistory;
use super::processes::{
    ANSWER_TIME, BLOCKS, CHUNK, GEOMETRY, LOGICAL, Phase, REQUESTS, SECTORS, STALL_TIMEOUT,
    Service, SimulatedTarget, content_of, request, version_of, xor,
};
use super::{Script, Step, Timed, Totals};
use crate::engine::assembly::{Assembly, Found, Instructions, assemble};
use crate::engine::membership::{EpochIds, State};
use crate::engine::request::Operation;
use crate::engine::set::ScrubPlan;
use crate::engine::{Action, Decompression, Event, Status};
use crate::{Target, Targets};

/// Interval of the engines' ticks without other events.
const TICK: Duration = Duration::from_millis(20);
/// Maximum time between two ticks that an engine counts: a longer pause of the service is not a target's fault.
const TICK_GAP: Duration = Duration::from_millis(100);
/// Time after which a connection without traffic is broken.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(3);
/// Time for which a starting service waits for the third target.
const GRACE: Duration = Duration::from_secs(2);
/// Time after which the initiator abandons an I/O.
const IO_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for rewriting a chunk that a read has found to be corrupt.
const REPAIR_TIME: Duration = Duration::from_millis(500);
/// Time limit for answering an I/O, as experienced by the service, while the same two current targets answer.
const SERVICE_TIME: Duration = Duration::from_millis(3500);
/// Virtual time after which a run that has not quiesced is ended.
const LIMIT: Duration = Duration::from_secs(3600);

#[derive(Debug)]
enum Scheduled {
    Step(usize),
    StartService {
        session: u64,
        since: Duration,
    },
    Tick {
        session: u64,
        worker: u32,
    },
    /// An operation for an engine has completed.
    Complete {
        session: u64,
        worker: u32,
        event: Event,
    },
    /// A request reaches a target.
    Chunk(Chunk),
    /// A target writes a sector of a chunk.
    Sector {
        chunk: Chunk,
        to: u64,
        sector: usize,
        bytes: Box<[u8; CHUNK]>,
    },
    /// A target's result reaches the service.
    Result {
        chunk: Chunk,
        status: Status,
    },
    /// A worker's request was sent.
    Sent {
        chunk: Chunk,
    },
    /// A worker notices that a connection is broken.
    Broken {
        session: u64,
        target: usize,
        connection: u64,
    },
    /// A superblock reaches a target.
    Persist {
        session: u64,
        target: usize,
        connection: u64,
        superblock: Superblock,
    },
    /// A target's confirmation of a superblock reaches the service.
    Persisted {
        session: u64,
        target: usize,
        connection: u64,
        superblock: Superblock,
    },
    Rejoin {
        session: u64,
        target: usize,
    },
    Answer {
        session: u64,
        io: u64,
        worker: u32,
        slot: u32,
        status: Status,
    },
    StartTarget {
        target: usize,
        disk: DiskChange,
    },
}

/// Change of a target's disk before it is started.
#[derive(Debug, Clone, Copy)]
enum DiskChange {
    None,
    Copy,
    Empty,
}

/// A request to a target about a chunk.
#[derive(Debug, Clone, Copy)]
struct Chunk {
    session: u64,
    worker: u32,
    slot: u32,
    target: usize,
    connection: u64,
    stripe: u64,
    kind: ChunkRequest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkRequest {
    Read,
    Write,
    WriteDurably,
    Flush,
}

/// An I/O of the initiator.
#[derive(Debug)]
struct Io {
    id: u64,
    session: u64,
    worker: u32,
    operation: Operation,
    is_durable: bool,
    block: u64,
    versions: Vec<u64>,
    invoked: Duration,
    /// Time of its invocation, as experienced by the service.
    invoked_in_session: Duration,
    /// Targets that were not current at its invocation or at some time since.
    not_current: Targets,
    /// Number of faults injected before its invocation.
    faults: u64,
}

/// A write of a block that is stored in the location of another one.
#[derive(Debug, Clone, Copy)]
struct Misdirection {
    to: u64,
    /// The target that stores its chunk in the right location.
    except: Option<usize>,
    /// The write, once it has started.
    write: Option<MisdirectedWrite>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MisdirectedWrite {
    io: u64,
    session: u64,
    worker: u32,
    slot: u32,
    stripe: u64,
}

/// Targets that are offline, or whose chunks may be stale.
fn not_current(state: State) -> Targets {
    match state {
        State::Healthy => Targets::NONE,
        State::Degraded(target) | State::Rebuilding(target) => Targets::only(target),
        State::Failed { .. } => Targets::ALL,
    }
}

pub(super) struct World<'a> {
    script: &'a Script,
    rng: Rng,
    now: Duration,
    order: u64,
    queue: BinaryHeap<Reverse<(Duration, u64, usize)>>,
    schedule: Vec<Option<Scheduled>>,
    free: Vec<usize>,
    targets: [SimulatedTarget; 3],
    service: Option<Service>,
    next_session: u64,
    next_connection: u64,
    next_identity: u32,
    blocks: Vec<BlockHistory>,
    /// Bitmap of the blocks without a version 0.
    unwritten: u64,
    ios: Vec<Io>,
    next_io: u64,
    scrub: ScrubPlan,
    /// Target whose disk may have stale or corrupt chunks that look valid: until it is scrubbed or rebuilt, no other target may fail.
    victim: Option<usize>,
    /// Number of completed scrubs of the session when the victim was damaged.
    victim_scrubs: u64,
    misdirection: Option<Misdirection>,
    totals: Totals,
    /// Time at which a target last failed to read or write a chunk.
    failed_at: Duration,
    /// Bitmap of the blocks whose chunk a target has failed to read.
    unread: u64,
    /// Time of the last change of the set's state.
    state_since: Duration,
    /// All events so far, if they are recorded.
    trace: Option<Vec<String>>,
    violation: Option<String>,
    /// `true` once the script has no further faults and I/Os.
    is_ending: bool,
}

/// Returns `true` if exactly two targets are reachable and their superblocks agree. Then neither can have missed a write of the other.
fn two_are_current(found: &[Found; 3]) -> bool {
    let superblocks = || {
        found.iter().filter_map(|found| match found {
            Found::Superblock(superblock) => Some(superblock),
            _ => None,
        })
    };
    let Some(first) = superblocks().next() else {
        return false;
    };
    first.epoch != Epoch::NONE
        && superblocks().count() == 2
        && superblocks().all(|it| {
            (it.set, it.epoch, it.next, it.state)
                == (first.set, first.epoch, first.next, first.state)
        })
}

macro_rules! trace {
    ($world:expr, $($text:tt)*) => {
        if let Some(trace) = &mut $world.trace {
            trace.push(format!("{:>12.6} s  {}", $world.now.as_secs_f64(), format_args!($($text)*)));
        }
    };
}

impl<'a> World<'a> {
    pub(super) fn new(script: &'a Script, traces: bool) -> Self {
        let mut world = Self {
            script,
            rng: Rng::with_seed(script.seed ^ 0x5eed),
            now: Duration::ZERO,
            order: 0,
            queue: BinaryHeap::new(),
            schedule: Vec::new(),
            free: Vec::new(),
            targets: [0, 1, 2].map(SimulatedTarget::new),
            service: None,
            next_session: 1,
            next_connection: 1,
            next_identity: 3,
            blocks: (0..BLOCKS).map(|_| BlockHistory::new()).collect(),
            unwritten: 0,
            ios: Vec::new(),
            next_io: 1,
            scrub: ScrubPlan {
                next: None,
                every: None,
                interval: Duration::ZERO,
                cursor: 0,
                converts: script.checksums,
            },
            victim: None,
            victim_scrubs: 0,
            misdirection: None,
            totals: Totals::default(),
            failed_at: Duration::ZERO,
            unread: 0,
            state_since: Duration::ZERO,
            trace: traces.then(Vec::new),
            violation: None,
            is_ending: false,
        };
        world.store_initial_blocks();
        if world.rng.bool() {
            // As if a scrub were due after a week of uptime.
            world.scrub.next = Some(Duration::ZERO);
            world.scrub.every = Some(Duration::from_secs(2));
        }
        for (number, timed) in script.steps.iter().enumerate() {
            world.at(timed.at, Scheduled::Step(number));
        }
        world.start_service_at(Duration::ZERO);
        world
    }

    /// Stores blocks that predate superblocks: with checksums of earlier formats, without checksums, or no blocks.
    fn store_initial_blocks(&mut self) {
        let mut content = [0; LOGICAL];
        for block in 0..BLOCKS {
            let checksum = match self.rng.u8(0..4) {
                0 => {
                    self.unwritten |= 1 << block;
                    continue;
                }
                1 => Checksum::Off,
                _ => Checksum::Crc32c,
            };
            content_of(block, 0, !self.script.checksums, &mut content);
            let place = Place {
                set: SetId::NONE,
                stripe: block,
            };
            let mut encoder = Encoder::new(GEOMETRY, checksum);
            let Ok(stored) = encoder.encode(&content, place) else {
                self.unwritten |= 1 << block;
                continue;
            };
            let (first, second) = stored.split_at(CHUNK);
            let mut parity = [0; CHUNK];
            parity.copy_from_slice(first);
            xor(&mut parity, second);
            for (target, chunk) in self.targets.iter_mut().zip([first, second, &parity]) {
                target.disk.chunk_mut(block).copy_from_slice(chunk);
            }
        }
    }

    pub(super) fn run(mut self) -> (Totals, Option<String>, Vec<String>) {
        let end = self
            .script
            .steps
            .last()
            .map_or(Duration::ZERO, |last| last.at);
        while self.violation.is_none() {
            if self.queue.peek().is_none_or(|Reverse((at, ..))| *at > end) {
                break;
            }
            self.step();
        }
        self.finish();
        (self.totals, self.violation, self.trace.unwrap_or_default())
    }

    fn step(&mut self) {
        let Some(Reverse((at, _, place))) = self.queue.pop() else {
            return;
        };
        self.now = self.now.max(at);
        self.free.push(place);
        if let Some(scheduled) = self.schedule[place].take() {
            self.happen(scheduled);
        }
    }

    fn at(&mut self, at: Duration, scheduled: Scheduled) {
        let place = match self.free.pop() {
            Some(place) => {
                self.schedule[place] = Some(scheduled);
                place
            }
            None => {
                self.schedule.push(Some(scheduled));
                self.schedule.len() - 1
            }
        };
        self.order += 1;
        self.queue.push(Reverse((at, self.order, place)));
    }

    fn after(&mut self, micros: std::ops::Range<u64>, scheduled: Scheduled) {
        let delay = Duration::from_micros(self.rng.u64(micros));
        self.at(self.now + delay, scheduled);
    }

    fn violate(&mut self, what: String) {
        trace!(self, "VIOLATION: {what}");
        self.violation.get_or_insert(what);
    }

    // Events.

    fn happen(&mut self, scheduled: Scheduled) {
        // A paused process handles its events later; results are already in its memory by then.
        let until = match &scheduled {
            Scheduled::Tick { session, .. }
            | Scheduled::Complete { session, .. }
            | Scheduled::Sent {
                chunk: Chunk { session, .. },
            }
            | Scheduled::Broken { session, .. }
            | Scheduled::Persisted { session, .. }
            | Scheduled::Rejoin { session, .. } => match &self.service {
                Some(service) if service.session == *session => service.paused_until,
                _ => return,
            },
            Scheduled::Chunk(chunk) | Scheduled::Sector { chunk, .. } => {
                self.targets[chunk.target].paused_until
            }
            Scheduled::Persist { target, .. } => self.targets[*target].paused_until,
            _ => Duration::ZERO,
        };
        if until > self.now {
            return self.at(until, scheduled);
        }
        // No message passes a cut link.
        let cut = match &scheduled {
            Scheduled::Chunk(chunk) | Scheduled::Result { chunk, .. } => Some(chunk.target),
            Scheduled::Persist { target, .. } | Scheduled::Persisted { target, .. } => {
                Some(*target)
            }
            _ => None,
        };
        if let Some(target) = cut
            && self.targets[target].cut_until > self.now
        {
            return self.at(self.targets[target].cut_until, scheduled);
        }
        match scheduled {
            Scheduled::Step(number) => self.take_step(self.script.steps[number]),
            Scheduled::StartService { session, since } => self.start_service(session, since),
            Scheduled::Tick { worker, .. } => self.tick(worker),
            Scheduled::Complete { worker, event, .. } => {
                if let (Event::ChunkDone { .. }, Some(service)) = (event, &mut self.service) {
                    service.workers[worker as usize].unreaped -= 1;
                }
                self.handle(worker, event);
            }
            Scheduled::Chunk(chunk) => self.chunk_arrived(chunk),
            Scheduled::Sector {
                chunk,
                to,
                sector,
                bytes,
            } => self.write_sector(chunk, to, sector, bytes),
            Scheduled::Result { chunk, status } => self.result_arrived(chunk, status),
            Scheduled::Sent { chunk } => {
                if self.is_current(&chunk) {
                    self.handle(
                        chunk.worker,
                        Event::ChunkRequestSent {
                            slot: chunk.slot,
                            target: Target::ALL[chunk.target],
                        },
                    );
                }
            }
            Scheduled::Broken {
                target, connection, ..
            } => self.connection_broken(target, connection),
            Scheduled::Persist {
                session,
                target,
                connection,
                superblock,
            } => {
                let it = &mut self.targets[target];
                if it.is_up && it.connection == connection {
                    it.persist(superblock);
                    trace!(self, "target {target} persists {superblock:?}");
                    let persisted = Scheduled::Persisted {
                        session,
                        target,
                        connection,
                        superblock,
                    };
                    self.after(5..200, persisted);
                }
            }
            Scheduled::Persisted {
                target,
                connection,
                superblock,
                ..
            } => self.persisted(target, connection, superblock),
            Scheduled::Rejoin { target, .. } => self.rejoin(target),
            Scheduled::Answer {
                session,
                io,
                worker,
                slot,
                status,
            } => self.answered(session, io, worker, slot, status),
            Scheduled::StartTarget { target, disk } => self.start_target(target, disk),
        }
        self.control();
    }

    /// Returns `true` if the worker's connection is the one of the request.
    fn is_current(&self, chunk: &Chunk) -> bool {
        self.service.as_ref().is_some_and(|service| {
            service.session == chunk.session
                && service.workers[chunk.worker as usize].connections[chunk.target]
                    == chunk.connection
        })
    }

    // The service.

    fn start_service_at(&mut self, at: Duration) {
        let session = self.next_session;
        self.next_session += 1;
        let since = at.max(self.now);
        self.at(since, Scheduled::StartService { session, since });
    }

    /// Starts a session with the reachable targets.
    fn start_service(&mut self, session: u64, since: Duration) {
        if session + 1 != self.next_session {
            return;
        }
        if let Some(service) = &self.service {
            if service.phase != Phase::Serving {
                // The previous session is still closing.
                let again = self.now + Duration::from_millis(1);
                self.at(again, Scheduled::StartService { session, since });
            }
            return;
        }
        let is_there = |target: &SimulatedTarget| {
            target.is_up && target.cut_until <= self.now && target.paused_until <= self.now
        };
        let there = self
            .targets
            .iter()
            .filter(|target| is_there(target))
            .count();
        if there < 2 || there == 2 && self.now < since + GRACE {
            let again = self.now + Duration::from_millis(50);
            return self.at(again, Scheduled::StartService { session, since });
        }
        let found: [Found; 3] = std::array::from_fn(|target| {
            let target = &self.targets[target];
            if is_there(target) {
                target.found()
            } else {
                Found::Missing
            }
        });
        trace!(self, "session {session} finds {found:?}");
        let instructions = self.instructions();
        let assembly = match assemble(found, instructions) {
            Ok(assembly) => assembly,
            Err(refusal) => {
                trace!(self, "refused: {refusal}");
                // With all three reachable, and none exchanged, two are current.
                if there == 3 {
                    self.violate(format!("a set of three targets was refused: {refusal}"));
                } else if two_are_current(&found) {
                    self.violate(format!("two current targets were refused: {refusal}"));
                }
                let again = self.now + Duration::from_millis(50);
                return self.at(again, Scheduled::StartService { session, since });
            }
        };
        if assembly.membership.is_none() {
            self.violate("targets with superblocks do not form a set".to_owned());
            return;
        }
        self.totals.sessions += 1;
        let mut connections = [0; 3];
        for (number, target) in self.targets.iter_mut().enumerate() {
            if found[number] == Found::Missing {
                target.has_failed = true;
            } else {
                connections[number] = self.next_connection;
                target.join(self.next_connection);
                self.next_connection += 1;
            }
        }
        self.check_current(assembly.stale);
        let mut plan = self.scrub;
        plan.converts = self.script.checksums;
        if plan.next.is_none() {
            // Without any scrub, blocks would never be converted.
            plan.next = Some(Duration::MAX);
        }
        let mut service = Service::new(session, self.script, assembly, plan, connections);
        service.identities = [0, 1, 2].map(|target: usize| self.targets[target].identity());
        trace!(self, "session {session} begins: {:?}", service.set.state());
        self.service = Some(service);
        self.victim_scrubs = 0;
        self.state_since = self.now;
        for worker in 0..self.script.workers {
            self.after(0..200, Scheduled::Tick { session, worker });
        }
    }

    /// Checks that the current targets at the start of a session have every block whose last write was acknowledged.
    fn check_current(&mut self, stale: Option<Target>) {
        // Without checksums, inconsistent chunks are not proof of an error.
        if !self.script.checksums || self.victim.is_some() {
            return;
        }
        let current = stale.map_or(Targets::ALL, Targets::without);
        let lost = (0..BLOCKS).find(|&block| {
            self.blocks[block as usize].is_certain() && self.readable(block, current).is_none()
        });
        if let Some(block) = lost {
            self.violate(format!(
                "a session begins without {stale:?}, and the other targets do not have block {block}, whose last write was acknowledged"
            ));
        }
    }

    fn instructions(&mut self) -> Instructions {
        Instructions {
            rebuild: None,
            stale: None,
            writes_checksums: self.script.checksums,
            new_set: SetId(u128::from(self.rng.u64(1..)) << 64),
            ids: EpochIds::new(self.rng.u64(..)),
        }
    }

    fn end_service(&mut self, why: &str) {
        let Some(service) = self.service.take() else {
            return;
        };
        trace!(self, "session {} ends: {why}", service.session);
        let plan = service.set.scrub_plan();
        self.scrub.cursor = plan.cursor;
        for io in std::mem::take(&mut self.ios) {
            self.forget_io(io);
        }
    }

    /// Records that the outcome of an I/O is permanently unknown.
    fn forget_io(&mut self, io: Io) {
        if io.operation == Operation::Write {
            for (block, version) in (io.block..).zip(io.versions) {
                self.blocks[block as usize].written(version, self.now, false);
            }
        }
    }

    fn tick(&mut self, worker: u32) {
        let Some(service) = &mut self.service else {
            return;
        };
        let gap = self.now.saturating_sub(service.last_tick);
        service.own_time += gap.min(2 * TICK);
        service.last_tick = self.now;
        let session = service.session;
        // A worker that has reaped all completions may detect that only in its next poll iteration.
        let is_idle = service.workers[worker as usize].unreaped == 0 && self.rng.u8(0..8) != 0;
        self.handle(worker, Event::Tick { is_idle });
        self.check_service_time();
        let given_up = self
            .ios
            .first()
            .is_some_and(|io| self.now > io.invoked + IO_TIMEOUT);
        if given_up {
            trace!(self, "the initiator gives up");
            let restart = self.now + Duration::from_millis(100);
            self.end_service("an I/O was not answered");
            self.start_service_at(restart);
            return;
        }
        let is_busy =
            !self.ios.is_empty() || !(self.service.as_ref()).is_some_and(|it| it.set.is_quiet());
        let pause = if is_busy {
            Duration::from_micros(self.rng.u64(50..350))
        } else {
            TICK
        };
        self.at(self.now + pause, Scheduled::Tick { session, worker });
    }

    /// Checks that an I/O is answered in time if the same two targets were current and reachable since its invocation.
    fn check_service_time(&mut self) {
        let (Some(service), Some(io)) = (&self.service, self.ios.first()) else {
            return;
        };
        if service.own_time < io.invoked_in_session + SERVICE_TIME {
            return;
        }
        let mut absent = io.not_current;
        for (number, target) in self.targets.iter().enumerate() {
            if target.was_away(io.invoked) {
                absent.insert(Target::ALL[number]);
            }
        }
        if absent.len() < 2 {
            let what = format!(
                "I/O {} is not answered, though two current targets answer",
                io.id
            );
            self.violate(what);
        }
    }

    /// Reports an event to an engine, and carries out its actions.
    fn handle(&mut self, worker: u32, event: Event) {
        let Some(service) = &mut self.service else {
            return;
        };
        service.workers[worker as usize]
            .engine
            .handle(event, self.now);
        loop {
            let Some(service) = &mut self.service else {
                return;
            };
            let Some(action) = service.workers[worker as usize].engine.poll_action() else {
                return;
            };
            self.carry_out(worker, action);
        }
    }

    fn complete(&mut self, worker: u32, event: Event) {
        let Some(service) = &self.service else { return };
        let session = service.session;
        let complete = Scheduled::Complete {
            session,
            worker,
            event,
        };
        self.after(0..12, complete);
    }

    fn carry_out(&mut self, worker: u32, action: Action) {
        let Some(service) = &mut self.service else {
            return;
        };
        let now = self.now;
        let status = Status::SUCCESS;
        match action {
            Action::ReadChunks {
                slot,
                targets,
                stripe,
            } => self.ask_targets(worker, slot, targets, stripe, ChunkRequest::Read),
            Action::Flush { slot, targets } => {
                self.ask_targets(worker, slot, targets, 0, ChunkRequest::Flush);
            }
            Action::WriteChunks {
                slot,
                targets,
                stripe,
                is_recovered,
                is_durable,
            } => {
                if is_recovered {
                    for target in targets.iter() {
                        service.place_recovered(worker, slot, target.number());
                    }
                }
                let kind = if is_durable {
                    ChunkRequest::WriteDurably
                } else {
                    ChunkRequest::Write
                };
                self.ask_targets(worker, slot, targets, stripe, kind);
            }
            Action::Fetch { slot, block } => {
                service.fetch(worker, slot, block);
                self.complete(worker, Event::Fetched { slot, status });
            }
            Action::Encode { slot, stripe } => {
                let fits = service.encode(worker, slot, stripe);
                let engine = &mut service.workers[worker as usize].engine;
                engine.handle(Event::Encoded { slot, fits }, now);
            }
            Action::CreateParity { slot, were_read } => {
                service.create_parity(worker, slot, were_read);
                self.complete(worker, Event::ParityCreated { slot, status });
            }
            Action::Recover { slot, target } => {
                service.recover(worker, slot, target);
                self.complete(worker, Event::Recovered { slot, status });
            }
            Action::Verify {
                slot,
                stripe,
                recovered,
            } => {
                let quality = service.verify(worker, slot, stripe, recovered);
                let engine = &mut service.workers[worker as usize].engine;
                engine.handle(Event::Verified { slot, quality }, now);
            }
            Action::Compare {
                slot,
                stripe,
                recovered,
            } => {
                let comparison = service.compare(worker, slot, stripe, recovered);
                trace!(
                    self,
                    "block {stripe}, {recovered:?} suspected: {comparison:?}"
                );
                let before = self.corrected();
                let Some(service) = &mut self.service else {
                    return;
                };
                let engine = &mut service.workers[worker as usize].engine;
                let io = engine.request(slot).user_data;
                // Workers that have not yet processed the detachment of a target may still read from it.
                let since = self.state_since;
                let is_late = self.ios.iter().any(|it| it.id == io && it.invoked > since);
                // A resync that could not read a chunk leaves its stripe to the next scrub.
                let is_sure = is_late
                    && !self.blocks[stripe as usize].is_damaged()
                    && self.failed_at < since
                    && service.set.unverified_stripes() == 0
                    && service.set.view().offline.is_empty();
                engine.handle(Event::Compared { slot, comparison }, now);
                if self.corrected() > before && self.victim.is_none() && is_sure {
                    self.violate(format!(
                        "a read of block {stripe} has taken a chunk that is not current"
                    ));
                }
            }
            Action::Reseal { slot, stripe } => {
                service.reseal(worker, slot, stripe);
                let engine = &mut service.workers[worker as usize].engine;
                engine.handle(Event::Resealed { slot }, now);
            }
            Action::EncodeZeros { slot, stripe } => {
                let fits = service.encode_zeros(worker, slot, stripe);
                let engine = &mut service.workers[worker as usize].engine;
                engine.handle(Event::Encoded { slot, fits }, now);
            }
            Action::DecompressZeros { slot, block, .. } => {
                let memory = &mut service.workers[worker as usize].slots[slot as usize];
                memory.blocks[usize::from(block)] = [0; LOGICAL];
                let outcome = Decompression::Done;
                self.complete(worker, Event::Decompressed { slot, outcome });
            }
            Action::Decompress { slot, block } => {
                let outcome = if service.decompress(worker, slot, block) {
                    Decompression::Done
                } else {
                    Decompression::Corrupt
                };
                self.complete(worker, Event::Decompressed { slot, outcome });
            }
            Action::Answer { slot, status } => {
                let session = service.session;
                let io = service.workers[worker as usize]
                    .engine
                    .request(slot)
                    .user_data;
                // The initiator checks its memory before it reuses the slot, so both are done here.
                let answer = Scheduled::Answer {
                    session,
                    io,
                    worker,
                    slot,
                    status,
                };
                self.happen_answer(answer);
                self.complete(worker, Event::Answered { slot });
            }
            Action::Receive { lane } => {
                service.workers[worker as usize].free_lanes.push(lane);
            }
            Action::Detach { target } => {
                service.workers[worker as usize].connections[target.number()] = 0;
            }
            Action::GiveUp { .. } => self.violate("an engine in degraded mode gives up".to_owned()),
        }
    }

    fn happen_answer(&mut self, answer: Scheduled) {
        if let Scheduled::Answer {
            session,
            io,
            worker,
            slot,
            status,
        } = answer
        {
            self.answered(session, io, worker, slot, status);
        }
    }

    fn ask_targets(
        &mut self,
        worker: u32,
        slot: u32,
        targets: Targets,
        stripe: u64,
        kind: ChunkRequest,
    ) {
        if matches!(kind, ChunkRequest::Write | ChunkRequest::WriteDurably) {
            self.misdirect(worker, slot, stripe);
        }
        let Some(service) = &self.service else { return };
        let (session, connections) = (
            service.session,
            service.workers[worker as usize].connections,
        );
        for target in targets.iter() {
            let connection = connections[target.number()];
            let chunk = Chunk {
                session,
                worker,
                slot,
                target: target.number(),
                connection,
                stripe,
                kind,
            };
            if connection == 0 {
                let status = Status::IO_FAILED;
                self.complete(worker, Event::TargetLost { target, status });
                continue;
            }
            self.after(0..10, Scheduled::Sent { chunk });
            self.after(3..40, Scheduled::Chunk(chunk));
        }
    }

    // The targets.

    /// Misdirects a write that starts, if one is to be misdirected.
    fn misdirect(&mut self, worker: u32, slot: u32, stripe: u64) {
        let (Some(service), Some(it)) = (&self.service, self.misdirection) else {
            return;
        };
        // The slots after those of the requests are for background work.
        if it.write.is_some() || it.to == stripe || slot >= REQUESTS {
            return;
        }
        let is_possible = !self.blocks[it.to as usize].is_being_written()
            && (self.may_damage() || it.except.is_none() && self.may_lose_block());
        if !is_possible {
            return;
        }
        let write = MisdirectedWrite {
            io: service.workers[worker as usize]
                .engine
                .request(slot)
                .user_data,
            session: service.session,
            worker,
            slot,
            stripe,
        };
        trace!(self, "{write:?} is misdirected to {}", it.to);
        self.misdirection = Some(Misdirection {
            write: Some(write),
            ..it
        });
        if let Some(target) = it.except {
            // Its chunk belongs to the new block, the chunks of the others to the previous one.
            self.make_victim(target);
        }
    }

    /// Block in whose location this chunk is stored, if its write is misdirected together with those of the other targets.
    fn misdirected_to(&self, chunk: &Chunk) -> Option<u64> {
        let it = self.misdirection?;
        let service = self.service.as_ref()?;
        let worker = &service.workers[chunk.worker as usize];
        let write = MisdirectedWrite {
            io: worker.engine.request(chunk.slot).user_data,
            session: chunk.session,
            worker: chunk.worker,
            slot: chunk.slot,
            stripe: chunk.stripe,
        };
        (it.write == Some(write) && it.except != Some(chunk.target)).then_some(it.to)
    }

    fn chunk_arrived(&mut self, chunk: Chunk) {
        let misdirected_to = self.misdirected_to(&chunk);
        let target = &mut self.targets[chunk.target];
        if !target.is_up || target.connection != chunk.connection {
            return;
        }
        let service = self
            .service
            .as_mut()
            .filter(|service| service.session == chunk.session);
        let Some(service) = service else { return };
        let memory = &mut service.workers[chunk.worker as usize].slots[chunk.slot as usize];
        if chunk.kind != ChunkRequest::Read {
            if std::mem::take(&mut target.fails_write) {
                target.has_failed = true;
                self.totals.faults += 1;
                self.failed_at = self.now;
                return self.send_result(chunk, Status::IO_FAILED);
            }
            if chunk.kind == ChunkRequest::Flush {
                target.disk.sync();
                return self.send_result(chunk, Status::SUCCESS);
            }
            let mut bytes = Box::new([0; CHUNK]);
            bytes.copy_from_slice(memory.chunk(chunk.target));
            if std::mem::take(&mut target.loses_write) {
                trace!(
                    self,
                    "target {} loses a write of stripe {}", chunk.target, chunk.stripe
                );
                return self.send_result(chunk, Status::SUCCESS);
            }
            let to = misdirected_to
                .or_else(|| target.misdirects_write_to.take())
                .unwrap_or(chunk.stripe);
            if misdirected_to.is_some() {
                self.blocks[to as usize].damage(self.now);
            }
            if to != chunk.stripe {
                trace!(
                    self,
                    "target {} misdirects a write of stripe {} to {to}", chunk.target, chunk.stripe
                );
            }
            let sector = Scheduled::Sector {
                chunk,
                to,
                sector: 0,
                bytes,
            };
            self.after(0..6, sector);
        } else {
            if target.fails_reads != 0 {
                target.fails_reads -= 1;
                self.totals.faults += 1;
                self.failed_at = self.now;
                self.unread |= 1 << chunk.stripe;
                return self.send_result(chunk, Status::IO_FAILED);
            }
            memory
                .chunk(chunk.target)
                .copy_from_slice(target.disk.chunk(chunk.stripe));
            self.send_result(chunk, Status::SUCCESS);
        }
    }

    fn write_sector(&mut self, chunk: Chunk, to: u64, sector: usize, bytes: Box<[u8; CHUNK]>) {
        if sector == 0 {
            trace!(
                self,
                "target {} writes its chunk of block {to}", chunk.target
            );
        }
        let target = &mut self.targets[chunk.target];
        if !target.is_up || target.connection != chunk.connection {
            return;
        }
        target.disk.write_sector(to, sector, &*bytes);
        if chunk.slot >= REQUESTS {
            self.blocks[to as usize].rewrite(self.now);
        }
        let is_misdirected = |it: Misdirection| it.to == to && it.write.is_some();
        if to != chunk.stripe && self.misdirection.is_some_and(is_misdirected) {
            self.blocks[to as usize].damage(self.now);
        }
        if sector + 1 < SECTORS {
            let next = Scheduled::Sector {
                chunk,
                to,
                sector: sector + 1,
                bytes,
            };
            self.after(0..4, next);
        } else {
            if chunk.kind == ChunkRequest::WriteDurably {
                self.targets[chunk.target].disk.sync_chunk(to);
            }
            self.send_result(chunk, Status::SUCCESS);
        }
    }

    fn send_result(&mut self, chunk: Chunk, status: Status) {
        self.after(3..40, Scheduled::Result { chunk, status });
    }

    fn result_arrived(&mut self, chunk: Chunk, status: Status) {
        if !self.is_current(&chunk) {
            return;
        }
        let (session, worker) = (chunk.session, chunk.worker);
        let event = Event::ChunkDone {
            slot: chunk.slot.into(),
            stripe: chunk.stripe,
            target: Target::ALL[chunk.target],
            status,
        };
        // Most completions are reaped immediately, a few only after others, or after the worker has detached the target.
        let delay = match self.rng.u8(..) {
            0 => 0..20_000,
            1..16 => 0..300,
            _ => return self.handle(worker, event),
        };
        if let Some(service) = &mut self.service {
            service.workers[worker as usize].unreaped += 1;
        }
        let reaped = Scheduled::Complete {
            session,
            worker,
            event,
        };
        self.after(delay, reaped);
    }

    fn connection_broken(&mut self, target: usize, connection: u64) {
        if self.targets[target].connection == connection {
            self.targets[target].has_failed = true;
        }
        let Some(service) = &self.service else { return };
        for worker in 0..service.workers.len() as u32 {
            let Some(service) = &self.service else { return };
            if service.workers[worker as usize].connections[target] == connection {
                let event = Event::TargetLost {
                    target: Target::ALL[target],
                    status: Status::IO_FAILED,
                };
                self.handle(worker, event);
            }
        }
    }

    /// Breaks a target's connections, which the service notices after a delay.
    fn break_connections(&mut self, target: usize, micros: std::ops::Range<u64>) {
        let connection = self.targets[target].connection;
        let Some(service) = &self.service else { return };
        let session = service.session;
        let broken = Scheduled::Broken {
            session,
            target,
            connection,
        };
        self.after(micros, broken);
    }

    fn kill_target(&mut self, target: usize, disk: DiskChange, restart: Duration) {
        self.break_connections(target, 5..300);
        self.targets[target].kill();
        let start = Scheduled::StartTarget { target, disk };
        self.at(self.now + restart, start);
    }

    fn start_target(&mut self, number: usize, disk: DiskChange) {
        let target = &mut self.targets[number];
        match disk {
            DiskChange::None => {}
            DiskChange::Copy => {
                if let Some(copy) = target.copy.clone() {
                    target.replace_disk(copy);
                }
            }
            DiskChange::Empty => {
                target.replace_disk(super::processes::Disk::empty(self.next_identity));
                self.next_identity += 1;
            }
        }
        self.targets[number].start(self.now);
        trace!(self, "target {number} is up ({disk:?})");
    }

    // The control thread of the service.

    fn control(&mut self) {
        let Some(service) = &mut self.service else {
            return;
        };
        let state = service.set.state();
        let before = std::mem::replace(&mut service.state, state);
        if before != state {
            trace!(self, "the set is {state:?}");
            self.state_since = self.now;
            for io in &mut self.ios {
                io.not_current = io.not_current.union(not_current(state));
            }
            self.check_detached(before, state);
        }
        let Some(service) = &mut self.service else {
            return;
        };
        if service.paused_until > self.now {
            return;
        }
        let (session, now) = (service.session, self.now);
        for (number, target) in Target::ALL.into_iter().enumerate() {
            let is_offline = service.set.view().offline.contains(target);
            if is_offline && service.is_connected[number] {
                service.is_connected[number] = false;
                service.asked[number] = None;
                service.confirmed[number] = None;
            }
            if !service.is_connected[number] {
                continue;
            }
            if let Some((_, asked)) = service.asked[number]
                && service.own_time > asked + STALL_TIMEOUT
            {
                if service.set.stalled(target, "its superblock is late") {
                    continue;
                }
                service.asked[number] = service.asked[number].map(|(it, _)| (it, service.own_time));
            }
            let wanted = service.set.superblock_of(target);
            if let Some(superblock) = wanted
                && service.asked[number].is_none()
                && service.confirmed[number] != Some(superblock)
            {
                service.asked[number] = Some((superblock, service.own_time));
                let connection = self.targets[number].connection;
                let persist = Scheduled::Persist {
                    session,
                    target: number,
                    connection,
                    superblock,
                };
                let delay = Duration::from_micros(self.rng.u64(5..300));
                self.order += 1;
                let place = self.schedule.len();
                self.schedule.push(Some(persist));
                self.queue.push(Reverse((now + delay, self.order, place)));
            }
        }
        if service.phase == Phase::Opening && service.set.is_open() {
            service.phase = Phase::Serving;
            trace!(self, "session {session} serves");
        }
        let Some(service) = &mut self.service else {
            return;
        };
        let rejoin_candidate = service.set.rejoin_candidate().map(Target::number);
        if let Some(target) = rejoin_candidate
            && service.phase == Phase::Serving
            && !service.is_rejoining
            && self.targets[target].is_up
        {
            service.is_rejoining = true;
            self.after(100..20_000, Scheduled::Rejoin { session, target });
        }
        self.settle_victim();
        self.go_on_closing();
    }

    /// Checks that a target was detached only because of an event since it joined. A second target must not be detached for being
    /// unresponsive: with a single target left no I/O can be served, and I/Os in flight would fail instead of completing once it answers.
    fn check_detached(&mut self, before: State, state: State) {
        let offline = |state| match state {
            State::Healthy | State::Rebuilding(_) => Targets::NONE,
            State::Degraded(target) => Targets::only(target),
            State::Failed { offline, .. } => offline,
        };
        let others = not_current(before);
        let detached = offline(state).minus(offline(before));
        for target in detached.iter() {
            let it = &self.targets[target.number()];
            if it.has_failed {
                continue;
            }
            let number = target.number();
            // A request's timestamp is that of the engine's last tick, after which a pause of the service counts for a short time. Also, the
            // service may have been paused and ticked before the silence without reaping the answer.
            if it.silence(self.now) + 2 * TICK_GAP + ANSWER_TIME < STALL_TIMEOUT {
                self.violate(format!(
                    "target {number} was detached, and nothing had happened to it"
                ));
            } else if !others.minus(Targets::only(target)).is_empty() {
                self.violate(format!(
                    "target {number} was detached for its silence, with another one not current"
                ));
            }
        }
    }

    fn persisted(&mut self, target: usize, connection: u64, superblock: Superblock) {
        let Some(service) = &mut self.service else {
            return;
        };
        if self.targets[target].connection != connection || !service.is_connected[target] {
            return;
        }
        if service.asked[target]
            .take_if(|(asked, _)| *asked == superblock)
            .is_some()
        {
            service.confirmed[target] = Some(superblock);
            service.set.persisted(Target::ALL[target], superblock);
        }
    }

    fn rejoin(&mut self, number: usize) {
        let Some(service) = &mut self.service else {
            return;
        };
        service.is_rejoining = false;
        let target = &mut self.targets[number];
        let is_reachable =
            target.is_up && target.cut_until <= self.now && target.paused_until <= self.now;
        let is_expected = service.set.rejoin_candidate() == Some(Target::ALL[number]);
        if !is_reachable || !is_expected || service.phase != Phase::Serving {
            return;
        }
        let is_same = service.identities[number] == target.identity();
        let has_kept = match service
            .set
            .admit(Target::ALL[number], target.found(), is_same)
        {
            Ok(has_kept) => has_kept,
            Err(why) => return self.violate(format!("target {number} was not admitted: {why}")),
        };
        if has_kept && target.has_other_disk {
            return self.violate(format!(
                "target {number} has not the disk that it was detached with, and is taken to have kept its chunks"
            ));
        }
        service.identities[number] = target.identity();
        target.join(self.next_connection);
        self.next_connection += 1;
        let connection = target.connection;
        service.is_connected[number] = true;
        service.asked[number] = None;
        service.confirmed[number] = None;
        for worker in &mut service.workers {
            worker.connections[number] = connection;
            let event = Event::TargetAttached {
                target: Target::ALL[number],
            };
            worker.engine.handle(event, self.now);
        }
        service.set.rejoin(Target::ALL[number], has_kept, true);
        trace!(
            self,
            "target {number} rejoins, has kept what it had: {has_kept}"
        );
    }

    /// Ends the session cleanly.
    fn end_session(&mut self) {
        if let Some(service) = &mut self.service
            && service.phase == Phase::Serving
        {
            service.phase = Phase::Quiescing;
            service.set.quiesce();
        }
    }

    fn go_on_closing(&mut self) {
        let Some(service) = &mut self.service else {
            return;
        };
        match service.phase {
            Phase::Quiescing if self.ios.is_empty() && service.set.is_quiet() => {
                service.set.conclude();
                service.phase = Phase::Closing;
                trace!(self, "the session is closed");
            }
            Phase::Closing if service.set.is_concluded() => {
                for (number, target) in self.targets.iter_mut().enumerate() {
                    if service.is_connected[number] && target.is_up {
                        target.sync();
                    }
                }
                self.end_service("closed");
            }
            _ => {}
        }
    }

    // The initiator.

    fn begin_io(&mut self, operation: Operation, block: u64, count: u8) {
        let Some(service) = &mut self.service else {
            return;
        };
        if service.phase != Phase::Serving
            || self.ios.len() >= (REQUESTS * self.script.workers) as usize
        {
            return;
        }
        let worker = self.rng.usize(0..service.workers.len());
        let Some(lane) = service.workers[worker].free_lanes.pop() else {
            return;
        };
        let id = self.next_io;
        self.next_io += 1;
        self.totals.ios += 1;
        let versions: Vec<u64> = (block..block + u64::from(count))
            .map(|block| {
                if operation == Operation::Write {
                    self.blocks[block as usize].write(self.now)
                } else {
                    0
                }
            })
            .collect();
        trace!(
            self,
            "io {id}: {operation:?} of blocks {block}..{}, {versions:?}",
            block + u64::from(count)
        );
        let is_durable = operation == Operation::Write && self.rng.u8(0..8) == 0;
        self.ios.push(Io {
            id,
            session: service.session,
            worker: worker as u32,
            operation,
            is_durable,
            block,
            versions,
            invoked: self.now,
            invoked_in_session: service.own_time,
            not_current: not_current(service.set.state()),
            faults: self.totals.faults,
        });
        let request = request(operation, is_durable, block, count, id);
        // The content has to be in the memory of the slot that the engine takes.
        let before: Vec<u64> = self.slot_ios(worker);
        let Some(service) = &mut self.service else {
            return;
        };
        let it = &mut service.workers[worker];
        it.engine.handle(Event::Request { lane, request }, self.now);
        let slot = (0..REQUESTS)
            .find(|&slot| it.engine.request(slot).user_data == id && before[slot as usize] != id);
        if let (Some(slot), Operation::Write) = (slot, operation) {
            let versions = &self
                .ios
                .last()
                .map(|io| io.versions.clone())
                .unwrap_or_default();
            for (index, version) in versions.iter().enumerate() {
                let into = &mut it.slots[slot as usize].blocks[index];
                content_of(block + index as u64, *version, !self.script.checksums, into);
            }
        }
        self.handle(worker as u32, Event::Tick { is_idle: false });
    }

    fn slot_ios(&self, worker: usize) -> Vec<u64> {
        let Some(service) = &self.service else {
            return Vec::new();
        };
        let engine = &service.workers[worker].engine;
        (0..REQUESTS)
            .map(|slot| engine.request(slot).user_data)
            .collect()
    }

    fn answered(&mut self, session: u64, id: u64, worker: u32, slot: u32, status: Status) {
        let Some(place) = self
            .ios
            .iter()
            .position(|io| io.id == id && io.session == session)
        else {
            return self.violate(format!("an answer to I/O {id}, which is not in flight"));
        };
        let io = self.ios.remove(place);
        if io.worker != worker {
            return self.violate(format!("I/O {id} was answered by another worker"));
        }
        trace!(self, "io {id}: {status}");
        if io.operation == Operation::Flush {
            if status.is_success() {
                (self.blocks.iter_mut()).for_each(|block| block.flushed(io.invoked));
            } else {
                self.check_failed_write(&io);
            }
            return;
        }
        if io.operation == Operation::Write {
            let write = self.misdirection.and_then(|it| it.write);
            for (block, &version) in (io.block..).zip(&io.versions) {
                // No target can detect that its chunks are in another location: the block keeps its previous content.
                let is_misdirected = write.is_some_and(|it| it.io == id && it.stripe == block);
                let is_stored = status.is_success() && !is_misdirected;
                self.blocks[block as usize].written(version, self.now, is_stored);
                if is_stored && io.is_durable {
                    self.blocks[block as usize].made_durable(version);
                }
            }
            if !status.is_success() {
                self.check_failed_write(&io);
            }
            return;
        }
        if !status.is_success() {
            return self.check_failed_read(&io);
        }
        for index in 0..io.versions.len() {
            let block = io.block + index as u64;
            let Some(service) = &self.service else { return };
            let content = &service.workers[worker as usize].slots[slot as usize].blocks[index];
            match self.version_of(block, content) {
                None => {
                    return self.violate(format!(
                        "a read of block {block} returned other bytes: wrong data"
                    ));
                }
                Some(version) => {
                    trace!(self, "io {id}: block {block} is of version {version}");
                    if let Some(objection) =
                        self.blocks[block as usize].objection(version, io.invoked)
                    {
                        return self.violate(format!("a read of block {block}: {objection}"));
                    }
                    // Without checksums, two of three chunks may form the block of either write: with one target offline, the next read may
                    // return the other one, which is allowed.
                    let history = &mut self.blocks[block as usize];
                    if self.script.checksums || !history.is_torn() {
                        history.read(version, io.invoked, self.now);
                    }
                }
            }
        }
    }

    /// Checks that a write has not failed while there were two current targets.
    fn check_failed_write(&mut self, io: &Io) {
        let Some(service) = &self.service else { return };
        let state = service.set.state();
        if !matches!(state, State::Failed { .. }) {
            self.violate(format!(
                "a {:?} of blocks {}..{} failed, and the set is {state:?}",
                io.operation,
                io.block,
                io.block + io.versions.len() as u64
            ));
        }
    }

    /// Checks that a read has failed only because of damage, or because it was concurrent with other work.
    fn check_failed_read(&mut self, io: &Io) {
        let Some(service) = &self.service else { return };
        let sources = match service.set.state() {
            State::Healthy => Targets::ALL,
            State::Degraded(target) => Targets::without(target),
            State::Rebuilding(_) | State::Failed { .. } => return,
        };
        if io.faults != self.totals.faults || self.victim.is_some() {
            return;
        }
        let all = (io.block..).take(io.versions.len());
        let could_all = all.clone().all(|block| {
            let block = &self.blocks[block as usize];
            !block.is_being_written()
        });
        // Without a checksum, two chunks do not prove that they are consistent with the third one.
        let needs_all = |block| {
            !self.has_checksum(block) && service.set.is_unverified(block) && sources.len() < 3
        };
        let could = could_all
            && all
                .clone()
                .all(|block| self.readable(block, sources).is_some() && !needs_all(block));
        if could {
            self.violate(format!(
                "a read of blocks {} to {} failed, though their chunks are there",
                io.block,
                io.block + io.versions.len() as u64 - 1
            ));
        }
    }

    /// Returns the version that a block's content belongs to. Zeros are version 0 of a block that had no content when the set was created.
    fn version_of(&self, block: u64, content: &[u8]) -> Option<u64> {
        if self.unwritten >> block & 1 != 0 && content.iter().all(|&byte| byte == 0) {
            return Some(0);
        }
        version_of(block, !self.script.checksums, content)
    }

    /// Returns `true` if a block was never written, and all of its chunks are zeros.
    fn reads_as_zeros(&self, block: u64) -> bool {
        let is_zero =
            |target: &SimulatedTarget| target.disk.chunk(block).iter().all(|&byte| byte == 0);
        self.script.zeroes_unwritten()
            && (self.service.as_ref()).is_some_and(|service| !service.set.has_checksums())
            && self.targets.iter().all(is_zero)
    }

    /// Returns a version that two chunks of these targets form and that a read may return.
    fn readable(&self, block: u64, sources: Targets) -> Option<u64> {
        if sources == Targets::ALL && self.reads_as_zeros(block) {
            let objection = self.blocks[block as usize].objection(0, self.now);
            return objection.is_none().then_some(0);
        }
        let superblocks = || {
            self.targets
                .iter()
                .filter_map(|target| match target.found() {
                    Found::Superblock(superblock) => Some(superblock),
                    _ => None,
                })
        };
        let place = Place {
            set: superblocks().next().map_or(SetId::NONE, |it| it.set),
            stripe: block,
        };
        let has_checksums = self.script.checksums && superblocks().any(|it| it.checksums);
        let chunk = |target: usize| self.targets[target].disk.chunk(block);
        let combinations = [[0, 1], [0, 2], [1, 2]];
        combinations
            .into_iter()
            .find_map(|[one, other]: [usize; 2]| {
                if !(sources.contains(Target::ALL[one]) && sources.contains(Target::ALL[other])) {
                    return None;
                }
                let mut stored = [0; 2 * CHUNK];
                stored[..CHUNK].copy_from_slice(chunk(0));
                stored[CHUNK..].copy_from_slice(chunk(1));
                match (one, other) {
                    (0, 1) => {}
                    (0, _) => {
                        stored[CHUNK..].copy_from_slice(chunk(0));
                        xor(&mut stored[CHUNK..], chunk(2));
                    }
                    _ => {
                        stored[..CHUNK].copy_from_slice(chunk(1));
                        xor(&mut stored[..CHUNK], chunk(2));
                    }
                }
                let (_, verdict) = inspect(&stored, GEOMETRY, place).ok()?;
                // Without a checksum, only three consistent chunks prove to belong to one write.
                let is_plausible = match verdict {
                    Verdict::Bound => true,
                    Verdict::Unbound => !has_checksums,
                    Verdict::Absent => !has_checksums && self.chunks_fit(block),
                    Verdict::Differs { .. } => false,
                };
                if !is_plausible {
                    return None;
                }
                let mut content = [0; LOGICAL];
                if !decodes(&stored, GEOMETRY, &mut content) {
                    return None;
                }
                let version = self.version_of(block, &content)?;
                let objection = self.blocks[block as usize].objection(version, self.now);
                objection.is_none().then_some(version)
            })
    }

    // Faults.

    /// Returns `true` if this target may be damaged or stopped: while a target may have stale chunks that look valid, no other target may
    /// fail.
    fn may_fail(&self, target: usize) -> bool {
        self.victim.is_none_or(|victim| victim == target)
    }

    /// Returns `true` if the set has full redundancy, so that a target may be corrupted silently.
    fn is_redundant(&self) -> bool {
        self.victim.is_none()
            && self.service.as_ref().is_some_and(|service| {
                let summary = service.set.summary();
                service.phase == Phase::Serving
                    && service.set.is_healthy()
                    && service.set.unverified_stripes() == 0
                    && summary.missed_stripes == 0
                    && (service.set.has_checksums() || !self.script.checksums)
                    && service.paused_until <= self.now
                    // The service has handled every failure of a chunk.
                    && self.now > self.failed_at + 10 * TICK
                    && (self.targets.iter()).all(|it| {
                        let is_away = it.paused_until.max(it.cut_until) > self.now;
                        // After a restart, it is no longer a member, even if the service has not noticed yet.
                        it.is_up && !it.has_failed && !is_away && !it.fails_write && it.fails_reads == 0
                    })
            })
    }

    /// Returns `true` if a disk may be damaged silently: without checksums, such damage is indistinguishable from data.
    fn may_damage(&self) -> bool {
        self.script.checksums && self.is_redundant()
    }

    /// Returns `true` if a block may be damaged on a second target while one is offline: until it is written again, a read of it may fail,
    /// but must not return wrong data.
    fn may_lose_block(&self) -> bool {
        self.script.checksums
            && self.victim.is_none()
            && self.service.as_ref().is_some_and(|service| {
                matches!(service.set.state(), State::Degraded(_))
                    && service.set.has_checksums()
                    && service.set.unverified_stripes() == 0
            })
    }

    /// Returns `true` if a chunk may be damaged now, and records the damage.
    fn damages(&mut self, target: usize, block: u64) -> bool {
        if self.may_damage() {
            self.make_victim(target);
            return true;
        }
        let is_lost = self.may_lose_block();
        if is_lost {
            self.blocks[block as usize].damage(self.now);
        }
        is_lost
    }

    fn make_victim(&mut self, target: usize) {
        self.victim = Some(target);
        self.victim_scrubs = self.scrubs();
        trace!(self, "target {target} is the victim");
    }

    fn scrubs(&self) -> u64 {
        (self.service.as_ref()).map_or(0, |service| service.set.summary().scrubbed.completed)
    }

    /// Clears the victim once it has been scrubbed or rebuilt, so that other targets may fail again.
    fn settle_victim(&mut self) {
        let (Some(victim), Some(service)) = (self.victim, &self.service) else {
            return;
        };
        let has_no_order = {
            let target = &self.targets[victim];
            target.is_up && !target.loses_write && target.misdirects_write_to.is_none()
        };
        let is_whole = service.set.is_healthy() && service.set.unverified_stripes() == 0;
        let agrees = has_no_order && is_whole && self.ios.is_empty() && service.set.is_quiet();
        let is_settled = |block| self.blocks[block as usize].is_damaged() || self.chunks_fit(block);
        if agrees && (0..BLOCKS).all(is_settled) {
            self.victim = None;
            trace!(self, "target {victim} is no victim any more");
        }
    }

    /// Returns `true` if the trailer of a stored block is not 0.
    fn has_checksum(&self, block: u64) -> bool {
        let data_2 = self.targets[1].disk.chunk(block);
        data_2[data_2.len() - Trailer::SIZE..]
            .iter()
            .any(|&byte| byte != 0)
    }

    fn chunks_fit(&self, block: u64) -> bool {
        let [first, second, parity] =
            [0, 1, 2].map(|target: usize| self.targets[target].disk.chunk(block));
        first
            .iter()
            .zip(second)
            .zip(parity)
            .all(|((first, second), parity)| first ^ second == *parity)
    }

    fn take_step(&mut self, timed: Timed) {
        if self.is_ending {
            return;
        }
        let step = timed.step;
        if !step.is_io() {
            trace!(self, "step: {step:?}");
        }
        if !step.is_io() && step != Step::Copy && step != Step::Scrub {
            self.totals.faults += 1;
        }
        match step {
            Step::Read { block, count } => self.begin_io(Operation::Read, block, count),
            Step::Write { block, count } => self.begin_io(Operation::Write, block, count),
            Step::Flush => self.begin_io(Operation::Flush, 0, 0),
            Step::Outage { restart } => self.outage(restart),
            Step::KillService { restart } => {
                if self.service.is_some() {
                    self.end_service("killed");
                    self.start_service_at(self.now + restart);
                }
            }
            Step::EndSession { restart } => {
                if self
                    .service
                    .as_ref()
                    .is_some_and(|it| it.phase == Phase::Serving)
                {
                    self.end_session();
                    self.start_service_at(self.now + restart + Duration::from_millis(1));
                }
            }
            Step::PauseService { time } => {
                if let Some(service) = &mut self.service {
                    // Events at the end of a longer pause must not be overtaken by later ones.
                    service.paused_until = service.paused_until.max(self.now + time);
                }
            }
            Step::KillTarget { target, restart } => {
                if self.targets[target].is_up && self.may_fail(target) {
                    self.kill_target(target, DiskChange::None, restart);
                }
            }
            Step::PowerFailure { target, restart } => {
                // Writes that it had acknowledged but not synced may be lost.
                if self.targets[target].is_up && self.is_redundant() {
                    self.make_victim(target);
                    let mut rng = self.rng.fork();
                    self.targets[target].lose_power(&mut rng);
                    self.kill_target(target, DiskChange::None, restart);
                }
            }
            Step::PauseTarget { target, time } => {
                if self.may_fail(target) {
                    let it = &mut self.targets[target];
                    it.paused_until = it.paused_until.max(self.now + time);
                    it.fall_silent(self.now, self.now + time);
                }
            }
            Step::Partition { target, time } => {
                if self.may_fail(target) {
                    let it = &mut self.targets[target];
                    it.cut_until = it.cut_until.max(self.now + time);
                    it.fall_silent(self.now, self.now + time);
                    if time > CONNECTION_TIMEOUT {
                        let timeout = CONNECTION_TIMEOUT.as_micros() as u64;
                        self.break_connections(target, timeout..timeout + 1000);
                    }
                }
            }
            Step::FlipBit { target, block, bit } => {
                if self.damages(target, block) {
                    let bit = usize::from(bit) % (CHUNK * 8);
                    self.targets[target].disk.chunk_mut(block)[bit / 8] ^= 1 << (bit % 8);
                }
            }
            Step::ZeroSector {
                target,
                block,
                sector,
            } => {
                if self.damages(target, block) {
                    self.targets[target].disk.zero_sector(block, sector.into());
                }
            }
            Step::LoseWrite { target } => {
                if self.may_damage() {
                    self.make_victim(target);
                    self.targets[target].loses_write = true;
                }
            }
            Step::MisdirectWrite { target, block } => {
                if self.may_damage() {
                    self.make_victim(target);
                    self.targets[target].misdirects_write_to = Some(block);
                }
            }
            Step::MisdirectBlock { block, except } => {
                let is_going_on = self.misdirection.is_some_and(|it| {
                    let io = it.write.map(|write| write.io);
                    self.ios.iter().any(|other| Some(other.id) == io)
                });
                if self.script.checksums && !is_going_on {
                    let to = block;
                    let write = None;
                    self.misdirection = Some(Misdirection { to, except, write });
                }
            }
            Step::FailReads { target, count } => self.targets[target].fails_reads = count,
            Step::FailWrite { target } => {
                if self.may_fail(target) {
                    self.targets[target].fails_write = true;
                }
            }
            Step::Copy => {
                for target in &mut self.targets {
                    target.copy = Some(target.disk.clone());
                }
            }
            Step::RestoreCopy { target, restart } => {
                if self.may_damage() && self.targets[target].copy.is_some() {
                    self.make_victim(target);
                    self.kill_target(target, DiskChange::Copy, restart);
                }
            }
            Step::ReplaceDisk { target, restart } => {
                if self.is_redundant() {
                    self.make_victim(target);
                    self.kill_target(target, DiskChange::Empty, restart);
                }
            }
            Step::RestoreTwoCopies { except } => self.restore_two_copies(except),
            Step::RestoreOneCopy { target } => self.restore_one_copy(target),
            Step::ExchangeDisks { first } => self.exchange_disks(first),
            Step::ForeignSuperblock { target, is_of_set } => {
                self.make_foreign(target, is_of_set);
            }
            Step::Scrub => {
                if let Some(service) = &self.service {
                    service.set.scrub_now();
                }
            }
        }
    }

    /// Simulates a power failure of all machines at once.
    fn outage(&mut self, restart: Duration) {
        if !self.may_damage() && !self.may_lose_block() {
            return;
        }
        self.end_service("lost power");
        for target in 0..3 {
            let mut rng = self.rng.fork();
            self.targets[target].lose_power(&mut rng);
            if self.targets[target].is_up {
                let restart = restart + Duration::from_micros(self.rng.u64(0..3_000_000));
                self.kill_target(target, DiskChange::None, restart);
            }
        }
        let now = self.now;
        (self.blocks.iter_mut()).for_each(|block| block.lose_power(now));
        self.start_service_at(self.now + restart);
    }

    fn judge_disks(&mut self) -> bool {
        self.assembly().is_some()
    }

    fn assembly(&mut self) -> Option<Assembly> {
        let found = [0, 1, 2].map(|target: usize| self.targets[target].found());
        let instructions = self.instructions();
        let judged = assemble(found, instructions);
        trace!(self, "judged: {judged:?}");
        judged.ok()
    }

    /// Checks that a copy whose superblock differs from those of the two other targets is not considered current, unless it may be as current
    /// as they are: made after all I/Os of the session had completed, or while the set was being opened.
    fn restore_one_copy(&mut self, target: usize) {
        let superblock = |target: &SimulatedTarget| match target.found() {
            Found::Superblock(superblock) => Some(superblock),
            _ => None,
        };
        let Some(copy) = self.targets[target].copy.clone() else {
            return;
        };
        let mut with_copy = SimulatedTarget::new(9);
        with_copy.disk = copy.clone();
        let others = [(target + 1) % 3, (target + 2) % 3];
        let [first, second] = others.map(|other: usize| superblock(&self.targets[other]));
        let (Some(old), Some(first), Some(second)) = (superblock(&with_copy), first, second) else {
            return;
        };
        let is_before = old.epoch.number < first.epoch.number && old.next != first.epoch
            || old.epoch == first.epoch
                && old.state == RecordState::InUse
                && first.state == RecordState::Clean;
        if self.service.is_some()
            || (first.epoch, first.state) != (second.epoch, second.state)
            || old.set != first.set
            || !is_before
        {
            return;
        }
        let disk = std::mem::replace(&mut self.targets[target].disk, copy);
        if let Some(assembly) = self.assembly()
            && assembly.stale != Some(Target::ALL[target])
        {
            self.violate("a copy from before was taken for a current target".to_owned());
        }
        self.targets[target].disk = disk;
    }

    fn make_foreign(&mut self, target: usize, is_of_set: bool) {
        let is_current = |superblock: &Superblock| superblock.epoch != Epoch::NONE;
        let superblocks = self.targets.iter().filter_map(|it| match it.found() {
            Found::Superblock(superblock) => Some(superblock).filter(is_current),
            _ => None,
        });
        let epochs: Vec<Epoch> = superblocks.map(|superblock| superblock.epoch).collect();
        // With a foreign epoch, the target would just not be current.
        if self.service.is_some() || epochs != [epochs.first().copied().unwrap_or(Epoch::NONE); 3] {
            return;
        }
        let disk = self.targets[target].disk.clone();
        self.targets[target].make_foreign(is_of_set);
        if self.judge_disks() {
            self.violate("a set with a foreign target was put to use".to_owned());
        }
        self.targets[target].disk = disk;
    }

    /// Checks that two copies from before the last session are refused together with a current disk.
    fn restore_two_copies(&mut self, except: usize) {
        let is_between = self.service.is_none() && self.targets.iter().all(|target| target.is_up);
        let epochs = |found: Found| match found {
            Found::Superblock(superblock) => Some((superblock.set, superblock.epoch)),
            _ => None,
        };
        let current = epochs(self.targets[except].found());
        let are_old = (0..3).filter(|&target| target != except).all(|target| {
            let copy = &self.targets[target].copy;
            copy.as_ref().is_some_and(|copy| {
                let mut with_copy = SimulatedTarget::new(9);
                with_copy.disk = copy.clone();
                match (epochs(with_copy.found()), current) {
                    (Some((set, epoch)), Some((current_set, current_epoch))) => {
                        set == current_set
                            && epoch.number < current_epoch.number
                            && with_copy.next_epoch() != Some(current_epoch)
                    }
                    _ => false,
                }
            })
        });
        if !is_between || !are_old || self.victim.is_some() {
            return;
        }
        let before = [0, 1, 2].map(|target: usize| self.targets[target].disk.clone());
        for target in (0..3).filter(|&target| target != except) {
            if let Some(copy) = self.targets[target].copy.clone() {
                self.targets[target].disk = copy;
            }
        }
        if self.judge_disks() {
            self.violate("two copies from before the last use were taken for the set".to_owned());
        }
        for (target, disk) in self.targets.iter_mut().zip(before) {
            target.disk = disk;
        }
    }

    fn exchange_disks(&mut self, first: usize) {
        let second = (first + 1) % 3;
        let has = |target: usize| matches!(self.targets[target].found(), Found::Superblock(_));
        if self.service.is_some() || !has(first) || !has(second) {
            return;
        }
        let disk = self.targets[first].disk.clone();
        self.targets[first].disk = std::mem::replace(&mut self.targets[second].disk, disk);
        if self.judge_disks() {
            self.violate("a set with exchanged targets was put to use".to_owned());
        }
        let disk = self.targets[first].disk.clone();
        self.targets[first].disk = std::mem::replace(&mut self.targets[second].disk, disk);
    }

    // The end of a run.

    /// Ends the run: restarts all targets after the last fault, and checks that a scrub restores full redundancy.
    fn finish(&mut self) {
        if self.violation.is_some() {
            return;
        }
        self.is_ending = true;
        trace!(self, "the end: no more faults");
        if self.misdirection.is_some_and(|it| it.write.is_none()) {
            self.misdirection = None;
        }
        for target in &mut self.targets {
            // Pauses and partitions end without intervention.
            target.loses_write = false;
            target.misdirects_write_to = None;
            target.fails_reads = 0;
            target.fails_write = false;
        }
        self.trace_blocks();
        // Wait until all targets are running and all I/Os have been answered.
        let mut readable: Option<Vec<bool>> = None;
        let mut scrubs_before: Option<(u64, u64)> = None;
        let mut is_repair_checked = false;
        let limit = self.now + LIMIT;
        loop {
            if self.violation.is_some() {
                return;
            }
            if self.now > limit || self.queue.is_empty() {
                let is_undecided = |it: &Service| it.set.undecided() != 0;
                if self.service.as_ref().is_some_and(is_undecided) {
                    // The service cannot decide, and asks the user to accept the blocks as they are.
                    self.totals.lost += BLOCKS;
                    return;
                }
                let state = self
                    .service
                    .as_ref()
                    .map(|it| (it.phase, it.set.state(), it.set.summary()));
                return self.violate(format!(
                    "the deployment does not quiesce: {state:?}, {} I/Os in flight",
                    self.ios.len()
                ));
            }
            self.step();
            if self.targets.iter().any(|target| !target.is_up) || !self.ios.is_empty() {
                continue;
            }
            let writes = |scheduled: &Scheduled| matches!(scheduled, Scheduled::Sector { .. });
            if readable.is_none() && self.schedule.iter().flatten().any(writes) {
                continue;
            }
            if readable.is_none() {
                let all = (0..BLOCKS).map(|block| {
                    // A rebuild overwrites a chunk that its target cannot read. If a write with unknown outcome was lost with a missing
                    // target, the block may be recoverable only with that chunk.
                    let history = &self.blocks[block as usize];
                    let needs_all = self.unread >> block & 1 != 0 && !history.is_certain();
                    !needs_all
                        && !history.is_damaged()
                        && self.readable(block, Targets::ALL).is_some()
                });
                let all: Vec<bool> = all.collect();
                let lost = (0..BLOCKS).zip(&all).find(|&(block, is_readable)| {
                    // Without checksums, inconsistent chunks are not proof of an error, although two of them may be valid.
                    let is_certain = self.blocks[block as usize].is_certain();
                    self.script.checksums && is_certain && !is_readable
                });
                if let Some((block, _)) = lost {
                    return self.violate(format!(
                        "block {block} is lost, though its last write was acknowledged"
                    ));
                }
                readable = Some(all);
            }
            let failed = self.service.as_ref().is_some_and(|service| {
                service.phase == Phase::Serving
                    && matches!(service.set.state(), State::Failed { .. })
            });
            if failed {
                self.end_service("too few targets");
                self.start_service_at(self.now);
                continue;
            }
            let Some(service) = &self.service else {
                if self.next_start().is_none() {
                    self.start_service_at(self.now);
                }
                continue;
            };
            let is_whole = service.phase == Phase::Serving
                && service.set.is_healthy()
                && service.set.unverified_stripes() == 0
                && service.set.is_quiet();
            if !is_whole {
                continue;
            }
            let (session, scrubs) = (service.session, self.scrubs());
            match scrubs_before {
                Some((of_session, before)) if of_session == session => {
                    if scrubs > before {
                        break;
                    }
                }
                _ => {
                    if !is_repair_checked {
                        is_repair_checked = true;
                        self.check_repairs(readable.as_deref().unwrap_or_default());
                        continue;
                    }
                    if let Some(service) = &self.service {
                        service.set.scrub_now();
                        scrubs_before = Some((session, scrubs));
                    }
                }
            }
        }
        self.read_everything(&readable.unwrap_or_default());
    }

    /// Checks, before the scrub, that a chunk that a read has found to be corrupt is rewritten in time.
    fn check_repairs(&mut self, readable: &[bool]) {
        let session = self.service.as_ref().map(|service| service.session);
        let is_same = |world: &Self| {
            let healthy = |service: &Service| service.set.is_healthy().then_some(service.session);
            world.violation.is_none() && world.service.as_ref().and_then(healthy) == session
        };
        let blocks: Vec<u64> = (0..BLOCKS)
            .filter(|&block| readable.get(block as usize).copied().unwrap_or(false))
            .collect();
        let mut corrected = Vec::new();
        for block in blocks {
            let before = self.corrected();
            self.begin_io(Operation::Read, block, 1);
            while is_same(self) && !self.ios.is_empty() {
                self.step();
            }
            if !is_same(self) {
                return;
            }
            if self.corrected() > before {
                corrected.push(block);
            }
        }
        if corrected.is_empty() {
            return;
        }
        let until = self.now + REPAIR_TIME;
        while is_same(self) && self.now < until {
            self.step();
        }
        if !is_same(self) {
            return;
        }
        if let Some(block) = corrected.into_iter().find(|&block| !self.chunks_fit(block)) {
            self.violate(format!(
                "a read has found a wrong chunk of block {block}, which was not rewritten"
            ));
        }
    }

    /// Number of chunks that reads of the session have found to be corrupt.
    fn corrected(&self) -> u64 {
        let workers = self.service.iter().flat_map(|service| &service.workers);
        workers
            .flat_map(|worker| worker.engine.statistics().corruption.corrected)
            .map(|count| count.0)
            .sum()
    }

    /// Traces the version that each pair of chunks forms.
    fn trace_blocks(&mut self) {
        if self.trace.is_none() {
            return;
        }
        for block in 0..BLOCKS {
            let pair = |targets| match self.readable(block, targets) {
                Some(version) => format!("{version}"),
                None => "-".to_owned(),
            };
            let [with_both, with_1, with_2] = [
                Targets::DATA,
                Targets::without(Target::Data2),
                Targets::without(Target::Data1),
            ]
            .map(pair);
            let fit = if self.chunks_fit(block) {
                "fit"
            } else {
                "do not fit"
            };
            trace!(
                self,
                "block {block}: chunks {fit}; of data_1 and data_2: {with_both}, data_1 and data_p: {with_1}, data_2 and data_p: {with_2}"
            );
        }
    }

    fn next_start(&self) -> Option<()> {
        let mut all = self.schedule.iter().flatten();
        all.any(|scheduled| matches!(scheduled, Scheduled::StartService { .. }))
            .then_some(())
    }

    fn read_everything(&mut self, readable: &[bool]) {
        trace!(self, "everything is read");
        for block in 0..BLOCKS {
            let fits = self.chunks_fit(block);
            let could = readable.get(block as usize).copied().unwrap_or(false);
            let version = self.readable(block, Targets::ALL);
            if could && version.is_none() {
                return self.violate(format!("block {block} could be read before the targets came back, and cannot after a scrub"));
            }
            if could && !fits {
                return self.violate(format!(
                    "the chunks of block {block} do not fit each other after a scrub"
                ));
            }
            if !could {
                self.totals.lost += u64::from(version.is_none());
                continue;
            }
            let has_sums = self
                .service
                .as_ref()
                .is_some_and(|it| it.set.has_checksums());
            if self.script.checksums && !has_sums && self.totals.lost == 0 {
                return self
                    .violate("a scrubbed set does not say that it has checksums".to_owned());
            }
            self.begin_io(Operation::Read, block, 1);
            let begun = self.ios.last().map(|io| io.id);
            let Some(id) = begun else {
                return self.violate(format!("block {block} cannot be read: no I/O is accepted"));
            };
            let limit = self.now + IO_TIMEOUT;
            let failures = self.read_failures();
            while self.violation.is_none() && self.ios.iter().any(|io| io.id == id) {
                if self.now > limit {
                    return self.violate(format!("a read of block {block} is not answered"));
                }
                self.step();
            }
            if self.violation.is_some() {
                return;
            }
            if self.read_failures() != failures {
                return self.violate(format!(
                    "block {block} cannot be read, though its chunks are there"
                ));
            }
        }
    }

    fn read_failures(&self) -> u64 {
        let Some(service) = &self.service else {
            return 0;
        };
        let workers = service.workers.iter();
        workers
            .map(|worker| worker.engine.statistics().failed_count)
            .sum()
    }
}
