//! The simulated deployment: a client, services, three targets and the links between them, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use bytes::Bytes as Blob;
use fastrand::Rng;
use role_formats::stored_block::MatrixType;
use role_formats::superblock::{Epoch, Form, Format, SetId, Superblock};
use wire::control::{ErrorResponse, Message, Payload, StorageDetails};

use super::oracle::{
    CHUNK, Code, Content, Decoded, Excuse, Expected, LOGICAL, PARTS, Promise, Reading, Register,
    bytes_of, decode, payload,
};
use super::service::{Attempt, PARKING_TIMEOUT, Phase, REQUESTS, STALL_TIMEOUT, Service, request};
use super::target::{Bytes, Copied, Disk, SimulatedTarget};
use super::{Broken, Change, Script, Step, Totals};
use crate::assembly::{Assembly, Found, Instructions, Log, Refusal, assemble};
use crate::chunk::{self, Place, Stamp};
use crate::engine::{Action, Delivery, Event, Status};
use crate::membership::{EpochIds, State};
use crate::request::Operation;
use crate::rests::NextRejoin;
use crate::set::{Needed, ScrubPlan, Set, Unfinished};
use crate::{Target, Targets};

/// Interval of the engines' ticks without other events.
const TICK: Duration = Duration::from_millis(20);
/// Time without other events after which a busy worker ticks less often.
const LULL: Duration = Duration::from_millis(5);
/// Time that a session that ends waits for I/Os in flight.
const DRAIN_TIME: Duration = Duration::from_secs(1);
/// Time after which a connection without traffic is broken.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(3);
/// Time for which a starting service waits for the third target.
const GRACE: Duration = Duration::from_secs(2);
/// Time after which a starting service that finds too few targets is restarted.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Time limit for answering an I/O while at most one member is not well.
const SERVICE_TIME: Duration = Duration::from_millis(4_500);
/// Time between two attempts of a target to rejoin.
const REJOIN_PAUSE: Duration = Duration::from_millis(100);
/// Time in which a session has to be opened, quiesced or closed.
const PHASE_TIMEOUT: Duration = Duration::from_secs(15);
/// Time after which the client abandons an I/O.
const IO_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_EVENTS: u64 = 10_000_000;
const MAX_ACTIONS: u32 = 100_000;
/// Time limit for the set to become healthy again after the last fault.
const HEALING_TIME: Duration = Duration::from_secs(60);
/// Time of a target's silence after which it may be detached later, when it answers again.
const LATE: Duration = Duration::from_secs(4);

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
    /// A target's result reaches the service.
    Result {
        chunk: Chunk,
        status: Status,
    },
    /// A worker's request was sent.
    Sent(Chunk),
    /// The operator lets a target rejoin.
    Release {
        session: u64,
        target: usize,
    },
    /// A service notices that a connection is broken.
    Broken {
        session: u64,
        target: usize,
        connection: u64,
    },
    /// A target notices that a connection is broken.
    Dropped {
        target: usize,
        connection: u64,
    },
    /// A control message reaches a target.
    Request {
        session: u64,
        target: usize,
        connection: u64,
        message: Message,
    },
    /// A target's answer reaches the service.
    Answer {
        session: u64,
        target: usize,
        connection: u64,
        message: Message,
    },
    /// A service tries to let a target rejoin.
    Rejoin {
        session: u64,
        number: u64,
    },
    /// A worker attaches a target that rejoins.
    Attach {
        session: u64,
        number: u64,
        worker: u32,
    },
    /// A target copies versions to their places.
    Apply {
        target: usize,
        process: u64,
    },
    StartTarget {
        target: usize,
        change: Change,
    },
    /// A service whose client has disconnected ends.
    EndService {
        session: u64,
    },
    /// The original disk of a target with a foreign disk is restored.
    ReturnDisk {
        target: usize,
    },
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
    ReadBefore(Stamp),
    Write {
        stamp: Stamp,
        is_durable: bool,
        retired: Stamp,
    },
    Flush {
        retired: Stamp,
    },
}

/// An I/O of the client.
struct Io {
    id: u64,
    session: u64,
    worker: u32,
    operation: Operation,
    is_durable: bool,
    block: u64,
    /// Memory of the client.
    blocks: Vec<[u8; LOGICAL]>,
    /// Numbers of the versions of a write.
    versions: Vec<u64>,
    readings: Vec<Reading>,
    /// Logical time of its invocation.
    began: u64,
    /// Start of the time within which the I/O has to be answered.
    since: Duration,
    /// Time of its invocation.
    asked: Duration,
    /// `true` if the I/O may fail: two members of one of its stripes were wrong at the same time.
    may_fail: bool,
    /// `true` if the I/O may fail after the time for which I/Os wait for targets: two members were not well at the same
    /// time.
    may_time_out: bool,
    /// `true` if a device has failed during the I/O.
    has_device_error: bool,
    /// Members whose chunk of each block was unreadable at some time since the I/O's invocation.
    unread: Vec<Targets>,
}

impl Io {
    fn count(&self) -> u64 {
        self.blocks.len() as u64
    }
}

pub(super) struct World<'a> {
    script: &'a Script,
    rng: Rng,
    now: Duration,
    order: u64,
    /// Number of events.
    steps: u64,
    queue: BinaryHeap<Reverse<(Duration, u64, usize)>>,
    schedule: Vec<Option<Scheduled>>,
    free: Vec<usize>,
    code: Code,
    pub(super) targets: [SimulatedTarget; 3],
    services: Vec<Service>,
    /// The session that the client uses.
    client: u64,
    next_session: u64,
    next_connection: u64,
    next_attempt: u64,
    next_identity: u32,
    registers: Vec<Register>,
    /// The client's number of the next write's content.
    next_content: u32,
    ios: Vec<Io>,
    next_io: u64,
    scrub: ScrubPlan,
    /// Members of each block with silent damage that was not repaired.
    silent: Vec<Targets>,
    /// Members of each block with silent damage at any time: a power failure may undo the repair.
    damaged: Vec<Targets>,
    /// Blocks of which several members were wrong at the same time, until the blocks are intact again.
    exposed: Vec<bool>,
    /// Blocks that were damaged while a member was lost, and may be lost until they are rewritten.
    lost: Vec<bool>,
    /// Offline target of the last session, for the next one of its process, and the identity of the target's storage.
    unfinished: Option<(Unfinished, (u32, u32))>,
    /// `true` if two targets have rejoined without their data in this session.
    needs_restart: bool,
    set_id: Option<SetId>,
    /// `true` once a write was acknowledged.
    has_acknowledged: bool,
    /// `true` once all superblocks of the set were persisted.
    is_created: bool,
    /// Target for which the next service gets `--rebuild`.
    rebuild: Option<usize>,
    /// The bytes of that target are already lost.
    is_poisoned: bool,
    totals: Totals,
    began: Instant,
    /// All events so far, if they are recorded.
    trace: Option<Vec<String>>,
    violation: Option<Broken>,
    /// A target that had no free slot, but continued.
    overflow: Option<String>,
    is_ending: bool,
    /// `true` if the last session ended cleanly, with all targets current.
    was_clean: bool,
    /// Logical time at which the workers of the last session were stopped, if it was closed cleanly.
    closed_at: Option<u64>,
}

macro_rules! trace {
    ($world:expr, $($text:tt)*) => {
        if let Some(trace) = &mut $world.trace {
            trace.push(format!("{:>12.6} s  {}", $world.now.as_secs_f64(), format_args!($($text)*)));
        }
    };
}

impl<'a> World<'a> {
    pub(super) fn new(script: &'a Script, traces: bool, began: Instant) -> Self {
        let blocks = script.blocks;
        let mut world = Self {
            script,
            rng: Rng::with_seed(script.seed ^ 0x5eed),
            now: Duration::ZERO,
            order: 0,
            steps: 0,
            queue: BinaryHeap::new(),
            schedule: Vec::new(),
            free: Vec::new(),
            code: Code::new(script.is_cauchy),
            targets: [0, 1, 2].map(|number| SimulatedTarget::new(number, blocks)),
            services: Vec::new(),
            client: 0,
            next_session: 1,
            next_connection: 1,
            next_attempt: 1,
            next_identity: 3,
            registers: (0..blocks).map(Register::new).collect(),
            next_content: 1,
            ios: Vec::new(),
            next_io: 1,
            scrub: ScrubPlan {
                next: script.scrub_interval.map(|_| Duration::ZERO),
                every: script.scrub_interval.map(|_| Duration::from_secs(2)),
                interval: script.scrub_interval.unwrap_or_default(),
                cursor: 0,
            },
            silent: vec![Targets::NONE; blocks as usize],
            damaged: vec![Targets::NONE; blocks as usize],
            exposed: vec![false; blocks as usize],
            lost: vec![false; blocks as usize],
            unfinished: None,
            needs_restart: false,
            set_id: None,
            has_acknowledged: false,
            is_created: false,
            rebuild: None,
            is_poisoned: false,
            totals: Totals::default(),
            began,
            trace: traces.then(Vec::new),
            violation: None,
            overflow: None,
            is_ending: false,
            was_clean: false,
            closed_at: None,
        };
        for (number, timed) in script.steps.iter().enumerate() {
            world.at(timed.at, Scheduled::Step(number));
        }
        world.start_service_at(Duration::ZERO);
        world
    }

    pub(super) fn run(mut self) -> (Totals, Option<Broken>, Vec<String>) {
        let end = self
            .script
            .steps
            .last()
            .map_or(Duration::ZERO, |last| last.at);
        self.run_until(end);
        self.finish();
        if let Some(what) = self.overflow.take() {
            self.violate(Promise::Consistent, what);
        }
        (self.totals, self.violation, self.trace.unwrap_or_default())
    }

    fn run_until(&mut self, end: Duration) {
        while self.violation.is_none() {
            if self.queue.peek().is_none_or(|Reverse((at, ..))| *at > end) {
                self.now = self.now.max(end);
                break;
            }
            self.step();
        }
    }

    /// Runs until a condition is `true`. Returns `false` after this time.
    fn run_while(&mut self, time: Duration, mut is_waiting: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + time;
        while self.violation.is_none() && is_waiting(self) {
            if self.now > end || self.queue.is_empty() {
                return false;
            }
            self.step();
        }
        true
    }

    fn step(&mut self) {
        let Some(Reverse((at, _, place))) = self.queue.pop() else {
            return;
        };
        self.steps += 1;
        if self.steps > MAX_EVENTS {
            return self.violate(Promise::Consistent, "the run does not end".to_owned());
        }
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

    /// Returns a new logical time, later than all earlier ones.
    fn moment(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    fn violate(&mut self, promise: Promise, what: String) {
        trace!(self, "VIOLATION of {}: {what}", promise.id());
        self.violation.get_or_insert(Broken { promise, what });
    }

    fn excuse(&mut self, excuse: Excuse) {
        self.totals.excuse(excuse);
    }

    fn reach(&mut self, what: &'static str) {
        self.totals.reach(what);
    }

    fn service(&mut self, session: u64) -> Option<&mut Service> {
        self.services.iter_mut().find(|it| it.session == session)
    }

    fn service_ref(&self, session: u64) -> Option<&Service> {
        self.services.iter().find(|it| it.session == session)
    }

    // Events.

    fn happen(&mut self, scheduled: Scheduled) {
        // A paused process handles its events later; results are already in its memory by then.
        let session = match &scheduled {
            Scheduled::Tick { session, .. }
            | Scheduled::Complete { session, .. }
            | Scheduled::Broken { session, .. }
            | Scheduled::Answer { session, .. }
            | Scheduled::Rejoin { session, .. }
            | Scheduled::Attach { session, .. }
            | Scheduled::Sent(Chunk { session, .. }) => Some(*session),
            _ => None,
        };
        let mut until = Duration::ZERO;
        if let Some(session) = session {
            match self.service_ref(session) {
                Some(service) => until = service.paused_until,
                None => return,
            }
        }
        match &scheduled {
            Scheduled::Chunk(chunk) => until = self.targets[chunk.target].paused_until,
            Scheduled::Request { target, .. }
            | Scheduled::Dropped { target, .. }
            | Scheduled::Apply { target, .. } => until = self.targets[*target].paused_until,
            _ => {}
        }
        // Messages on a cut link are dropped.
        let link = match &scheduled {
            Scheduled::Chunk(chunk) | Scheduled::Result { chunk, .. } => {
                Some((chunk.session, chunk.target))
            }
            Scheduled::Request {
                session, target, ..
            }
            | Scheduled::Answer {
                session, target, ..
            } => Some((*session, *target)),
            _ => None,
        };
        if let Some((session, target)) = link {
            until = until.max(self.targets[target].cut_until);
            if let Some(service) = self.service_ref(session) {
                until = until.max(service.cut_until);
            }
        }
        if until > self.now {
            return self.at(until, scheduled);
        }
        let is_of_target = matches!(
            scheduled,
            Scheduled::Chunk(_)
                | Scheduled::Result { .. }
                | Scheduled::Request { .. }
                | Scheduled::Dropped { .. }
                | Scheduled::Apply { .. }
                | Scheduled::StartTarget { .. }
                | Scheduled::ReturnDisk { .. }
        );
        match scheduled {
            Scheduled::Step(number) => self.take_step(self.script.steps[number].step),
            Scheduled::StartService { session, since } => self.start_service(session, since),
            Scheduled::Tick { session, worker } => self.tick(session, worker),
            Scheduled::Complete {
                session,
                worker,
                event,
            } => {
                if let (Event::ChunkDone { .. }, Some(service)) = (event, self.service(session)) {
                    service.workers[worker as usize].unreaped -= 1;
                }
                self.handle(session, worker, event);
            }
            Scheduled::Chunk(chunk) => self.chunk_arrived(chunk),
            Scheduled::Result { chunk, status } => self.result_arrived(chunk, status),
            Scheduled::Sent(chunk) => {
                if self.is_current(&chunk) {
                    let event = Event::ChunkRequestSent {
                        slot: chunk.slot,
                        target: Target::ALL[chunk.target],
                    };
                    self.handle(chunk.session, chunk.worker, event);
                }
            }
            Scheduled::Release { session, target } => {
                if let Some(service) = self.service_ref(session) {
                    service.set.release(Target::ALL[target]);
                }
            }
            Scheduled::Broken {
                session,
                target,
                connection,
            } => self.connection_broken(session, target, connection),
            Scheduled::Dropped { target, connection } => {
                let it = &mut self.targets[target];
                if it.connection == connection {
                    it.connection = 0;
                    it.has_failed = true;
                }
            }
            Scheduled::Request {
                session,
                target,
                connection,
                message,
            } => self.request_arrived(session, target, connection, &message),
            Scheduled::Answer {
                session,
                target,
                connection,
                message,
            } => self.answer_arrived(session, target, connection, &message),
            Scheduled::Rejoin { session, number } => self.rejoin(session, number),
            Scheduled::Attach {
                session,
                number,
                worker,
            } => self.attach(session, number, worker),
            Scheduled::Apply { target, process } => self.apply(target, process),
            Scheduled::StartTarget { target, change } => self.start_target(target, change),
            Scheduled::EndService { session } => self.end_service(session, "its client is gone"),
            Scheduled::ReturnDisk { target } => self.return_disk(target),
        }
        // The control threads of the services that the event may concern.
        if let Some(session) = session {
            self.control(session);
        } else if !is_of_target {
            for place in 0..self.services.len() {
                if let Some(session) = self.services.get(place).map(|it| it.session) {
                    self.control(session);
                }
            }
        }
        self.update_wellness();
    }

    /// Returns `true` if the worker's connection is the one of the request.
    fn is_current(&self, chunk: &Chunk) -> bool {
        self.service_ref(chunk.session).is_some_and(|service| {
            service.workers[chunk.worker as usize].connections[chunk.target] == chunk.connection
        })
    }

    // The services.

    fn start_service_at(&mut self, at: Duration) {
        let session = self.next_session;
        self.next_session += 1;
        let since = at.max(self.now);
        self.at(since, Scheduled::StartService { session, since });
    }

    /// Returns `true` if a target accepts a connection.
    fn is_free(&self, target: usize) -> bool {
        let it = &self.targets[target];
        it.is_reachable(self.now) && it.connection == 0
    }

    /// Starts a session with the reachable targets.
    fn start_service(&mut self, session: u64, since: Duration) {
        if session + 1 != self.next_session {
            return;
        }
        let again = Scheduled::StartService { session, since };
        if (self.services.iter()).any(|it| matches!(it.phase, Phase::Quiescing | Phase::Closing)) {
            // The previous session is still closing.
            return self.at(self.now + Duration::from_millis(1), again);
        }
        let there: Vec<usize> = (0..3).filter(|&target| self.is_free(target)).collect();
        if there.len() < 2 || there.len() == 2 && self.now < since + GRACE {
            if self.services.iter().any(|it| it.session == self.client) {
                self.reach("second service refused");
                if self.now > since + START_TIMEOUT {
                    return;
                }
            }
            return self.at(self.now + Duration::from_millis(50), again);
        }
        let mut found = [Found::Missing; 3];
        let mut logs: [Log; 3] = Default::default();
        for &target in &there {
            found[target] = self.targets[target].found();
            logs[target] = self.targets[target].disk.log();
        }
        if self.trace.is_some() {
            let shown = found.map(|it| match it {
                Found::Superblock(it) => format!("{} next {} {:?}", it.epoch, it.next, it.state),
                other => format!("{other:?}"),
            });
            trace!(self, "session {session} finds {shown:?}, {logs:?}");
        }
        self.probe(&found, &logs);
        let instructions = self.instructions(self.rebuild.map(|target| Target::ALL[target]));
        let assembly = match assemble(found, &logs, instructions) {
            Ok(assembly) => assembly,
            Err(refusal) => {
                trace!(self, "refused: {refusal}");
                self.check_refusal(&refusal, &found);
                if !self.is_poisoned {
                    self.rebuild = None;
                }
                return self.at(self.now + Duration::from_millis(50), again);
            }
        };
        let Some(membership) = &assembly.membership else {
            return self.violate(
                Promise::Available,
                "targets with superblocks do not form a set".to_owned(),
            );
        };
        let set_id = membership.set();
        if let Some(target) = self.rebuild.filter(|target| there.contains(target)) {
            // Its bytes must never be read; chunks of later writes make an incorrect read detectable.
            self.is_poisoned = true;
            self.poison(target);
            self.unwell(target, self.now);
        }
        if self.set_id.is_some_and(|before| before != set_id) && self.has_acknowledged {
            return self.violate(
                Promise::Acknowledged,
                format!("the set was created anew, {found:?}"),
            );
        }
        self.set_id = Some(set_id);
        self.totals.sessions += 1;
        let was_clean = std::mem::take(&mut self.was_clean)
            && there.len() == 3
            && self.rebuild.is_none()
            && self.targets.iter().all(|it| it.is_well);
        if was_clean && (assembly.stale.is_some() || !assembly.unsettled.is_empty()) {
            let what = format!(
                "after a clean stop, {:?} is rebuilt and {} stripes are settled",
                assembly.stale,
                assembly.unsettled.len()
            );
            return self.violate(Promise::Available, what);
        }
        self.check_assembly(&assembly, &there);
        // A second service, which the first one's targets no longer serve.
        let mut connections = [0; 3];
        for &target in &there {
            connections[target] = self.next_connection;
            self.targets[target].join(self.next_connection, session);
            self.next_connection += 1;
        }
        let unfinished = self.unfinished.take().filter(|(it, identity)| {
            let target = it.target().number();
            let last = self.targets[target].disk.last();
            let is_same = self.targets[target].identity() == *identity;
            it.applies(&assembly, found[target], is_same, last)
        });
        if let Some((unfinished, _)) = &unfinished {
            let target = unfinished.target().number();
            self.reach(match found[target] {
                Found::Missing => "session without a target whose missed stripes are known",
                _ => "session that rebuilds only missed stripes",
            });
        }
        let missing = unfinished
            .as_ref()
            .map(|(it, identity)| (it.target().number(), *identity));
        let mut service = Service::new(
            session,
            self.script,
            assembly,
            unfinished.map(|(it, _)| it),
            self.scrub,
            connections,
            self.began,
        );
        service.identities = [0, 1, 2].map(|target: usize| self.targets[target].identity());
        if let Some((target, identity)) = missing {
            service.identities[target] = identity;
        }
        service.last_tick = self.now;
        trace!(self, "session {session} begins: {:?}", service.set.state());
        self.needs_restart = false;
        if !self.services.is_empty() && service.set.unsettled_stripes() != 0 {
            self.unclean_end();
        }
        self.services.push(service);
        for worker in 0..self.script.workers {
            self.after(0..200, Scheduled::Tick { session, worker });
        }
    }

    fn form(&self) -> Form {
        Form {
            format: Format::StoredChunks,
            matrix: if self.script.is_cauchy {
                MatrixType::Cauchy
            } else {
                MatrixType::Vandermonde
            },
            logical_block_size: LOGICAL as u32,
        }
    }

    fn instructions(&mut self, rebuild: Option<Target>) -> Instructions {
        Instructions {
            rebuild,
            form: self.form(),
            new_set: SetId(u128::from(self.rng.u64(1..)) << 64 | u128::from(self.rng.u64(..))),
            ids: EpochIds::new(self.rng.u64(..)),
        }
    }

    /// Checks that flags and targets that do not fit are refused, without starting a session.
    fn probe(&mut self, found: &[Found; 3], logs: &[Log; 3]) {
        let superblocks = found
            .iter()
            .filter(|it| matches!(it, Found::Superblock(_)))
            .count();
        let is_committed =
            |it: &Found| matches!(it, Found::Superblock(it) if it.epoch != Epoch::NONE);
        if superblocks < 3 || !found.iter().all(is_committed) {
            return;
        }
        let number = self.rng.usize(0..3);
        let other = (number + 1) % 3;
        let kind = self.rng.u8(0..5);
        let mut instructions = self.instructions(None);
        let mut changed = *found;
        match kind {
            0 => {
                instructions.form.matrix = match instructions.form.matrix {
                    MatrixType::Cauchy => MatrixType::Vandermonde,
                    MatrixType::Vandermonde => MatrixType::Cauchy,
                };
            }
            1 => instructions.form.logical_block_size *= 2,
            2 => changed.swap(number, other),
            3 => {
                if let Found::Superblock(it) = &mut changed[number] {
                    it.set.0 ^= 1;
                }
            }
            _ => {
                // A set that has diverged; only between current members.
                if !self.targets.iter().all(|it| it.is_well) {
                    return;
                }
                if let Found::Superblock(it) = &mut changed[number] {
                    it.epoch.id ^= 1;
                    it.next = Epoch::NONE;
                }
            }
        }
        self.reach(match kind {
            0 => "other matrix refused",
            1 => "other block size refused",
            2 => "exchanged targets refused",
            3 => "foreign target refused",
            _ => "diverged set refused",
        });
        if kind == 4 {
            let state = |found: &Found| match found {
                Found::Superblock(it) => (it.epoch, it.next),
                _ => (Epoch::NONE, Epoch::NONE),
            };
            if found.iter().any(|it| state(it) != state(&found[0])) {
                return;
            }
        }
        if let Ok(assembly) = assemble(changed, logs, instructions) {
            self.violate(
                Promise::Refused,
                format!("a set was assembled (probe {kind}): {assembly:?} from {changed:?}"),
            );
        }
    }

    fn check_refusal(&mut self, refusal: &Refusal, found: &[Found; 3]) {
        if !self.is_created {
            // The set is being created, which requires all three targets.
            return;
        }
        // If several members lost power together, or one of them has an older copy, too few current members may be
        // left.
        let is_well =
            |number: &usize| self.targets[*number].is_well && self.rebuild != Some(*number);
        let is_there = |number: usize| !matches!(found[number], Found::Missing);
        let well = (0..3).filter(is_well).count();
        let current = (0..3)
            .filter(|number| is_there(*number) && is_well(number))
            .count();
        let is_foreign = (0..3).any(|it| self.targets[it].disk.identity == FOREIGN && is_there(it));
        if current >= 2 && well >= 2 && !is_foreign {
            self.violate(
                Promise::Available,
                format!("two current targets were refused: {refusal}"),
            );
        } else if found.iter().all(|it| !matches!(it, Found::Missing))
            && self.rebuild.is_none()
            && !self.script.is_wild
            && !is_foreign
        {
            self.violate(
                Promise::Available,
                format!("three targets were refused: {refusal}"),
            );
        }
    }

    /// Checks that a target without some acknowledged writes is not considered current: here, a copy of its disk from
    /// before the clean end of the last session.
    fn check_assembly(&mut self, assembly: &Assembly, there: &[usize]) {
        let closed_at = self.closed_at.take();
        for &target in there {
            let copy = self.targets[target].in_use.as_ref();
            if let (Some(copy), Some(closed_at)) = (copy, closed_at)
                && copy.at <= closed_at
            {
                self.reach("copy from before a clean end");
                if assembly.stale != Some(Target::ALL[target]) {
                    let what = format!("an old copy of the disk of target {target} is current");
                    return self.violate(Promise::Refused, what);
                }
            }
        }
        self.reach(match (assembly.stale, assembly.is_degraded) {
            (None, _) => "session with three current targets",
            (Some(_), true) => "session without a target",
            (Some(_), false) => "session with a stale target",
        });
        if !assembly.unsettled.is_empty() {
            self.reach("session with unsettled blocks");
        }
    }

    fn end_service(&mut self, session: u64, why: &str) {
        let Some(place) = self.services.iter().position(|it| it.session == session) else {
            return;
        };
        let service = self.services.swap_remove(place);
        let has_failed = matches!(service.set.state(), State::Failed { .. });
        let has_unsettled = service.set.unsettled_stripes() != 0;
        if why != CLOSED || has_failed || has_unsettled {
            self.unclean_end();
        }
        trace!(self, "session {session} ends: {why}");
        self.targets.iter_mut().for_each(|it| it.lost_write = None);
        self.note_service(&service);
        self.unfinished = service
            .set
            .unfinished()
            .filter(|_| why != KILLED && why != POWER_FAILURE)
            .map(|it| {
                let identity = service.identities[it.target().number()];
                (it, identity)
            });
        if self.client == session {
            self.scrub.cursor = service.set.scrub_plan().cursor;
            self.client = 0;
        }
        for target in 0..3 {
            if self.targets[target].session == session && self.targets[target].connection != 0 {
                let connection = self.targets[target].connection;
                self.after(5..300, Scheduled::Dropped { target, connection });
            }
        }
        self.forget_ios(session);
    }

    /// Counts the states that a session has reached, and checks that its engines never detected an invalid state.
    fn note_service(&mut self, service: &Service) {
        let count = service.impossible_events();
        if count != 0 {
            self.violate(
                Promise::Consistent,
                format!("{count} impossible events in the engines"),
            );
        }
        for worker in &service.workers {
            let statistics = worker.engine.statistics();
            self.totals.reached_of_statistics(statistics);
        }
        self.totals.reached_of_summary(&service.set.summary());
    }

    /// The outcome of a session's I/Os in flight remains unknown.
    fn forget_ios(&mut self, session: u64) {
        let now = self.moment();
        let (forgotten, kept) = std::mem::take(&mut self.ios)
            .into_iter()
            .partition(|it: &Io| it.session == session);
        self.ios = kept;
        let forgotten: Vec<Io> = forgotten;
        for io in forgotten {
            for (block, version) in (io.block..).zip(&io.versions) {
                self.registers[block as usize].end_write(*version, now, false, false);
            }
        }
    }

    fn tick(&mut self, session: u64, worker: u32) {
        let is_late = self.rng.u8(0..8) == 0;
        let now = self.now;
        let Some(service) = self.service(session) else {
            return;
        };
        let gap = now.saturating_sub(service.last_tick);
        service.own_time += gap.min(2 * TICK);
        service.last_tick = now;
        // A worker that has reaped all completions may detect that only in its next poll iteration.
        let is_idle = service.workers[worker as usize].unreaped == 0 && !is_late;
        self.handle(session, worker, Event::Tick { is_idle });
        self.check_times();
        let Some(service) = self.service_ref(session) else {
            return;
        };
        let is_busy = self.ios.iter().any(|it| it.session == session)
            || !service.set.is_quiet()
            || service.set.unsettled_stripes() != 0
            || !service.is_idle();
        let last_event = service.workers[worker as usize].last_event;
        let pause = if !is_busy {
            TICK
        } else if self.now < last_event + LULL {
            Duration::from_micros(self.rng.u64(50..350))
        } else {
            Duration::from_micros(self.rng.u64(1_000..5_000))
        };
        self.at(self.now + pause, Scheduled::Tick { session, worker });
    }

    /// Checks that I/Os are answered in time.
    fn check_times(&mut self) {
        let unwell = self.targets.iter().filter(|it| !it.is_well).count();
        let now = self.now;
        let paused = self
            .service_ref(self.client)
            .map_or(Duration::ZERO, |it| it.paused_until.max(it.cut_until));
        let mut late = None;
        // A stripe that could not be processed is retried after a pause.
        let limit = if self.script.device_errors == 0 {
            SERVICE_TIME
        } else {
            2 * SERVICE_TIME + IO_TIMEOUT / 4
        };
        let is_shaky = unwell > 1 || paused + Duration::from_millis(200) > now;
        for io in &mut self.ios {
            if is_shaky {
                io.since = now;
            }
            io.may_time_out |= unwell > 1;
            if now > io.since + limit && late.is_none() {
                late = Some(io.id);
            }
        }
        if let Some(id) = late {
            self.violate(
                Promise::InTime,
                format!("I/O {id} is not answered, though two members are current"),
            );
        }
        if (self.ios.first()).is_some_and(|io| now > io.since + IO_TIMEOUT) {
            let session = self.client;
            self.end_service(session, "an I/O was not answered");
            self.start_service_at(now + Duration::from_millis(100));
        }
    }

    /// Reports an event to an engine, and carries out its actions.
    fn handle(&mut self, session: u64, worker: u32, event: Event) {
        let now = self.now;
        let Some(service) = self.service(session) else {
            return;
        };
        if service.is_stopped {
            return;
        }
        let it = &mut service.workers[worker as usize];
        if !matches!(event, Event::Tick { .. }) {
            it.last_event = now;
        }
        it.engine.handle(event, now);
        for _ in 0..MAX_ACTIONS {
            let Some(service) = self.service(session) else {
                return;
            };
            let Some(action) = service.workers[worker as usize].engine.poll_action() else {
                return;
            };
            self.carry_out(session, worker, action);
        }
        self.violate(Promise::Consistent, "an engine acts without end".to_owned());
    }

    fn complete(&mut self, session: u64, worker: u32, event: Event) {
        self.after(
            0..12,
            Scheduled::Complete {
                session,
                worker,
                event,
            },
        );
    }

    /// Returns the status of an accelerator's or a copy's next task.
    fn device(&mut self, io: u64, is_request: bool) -> Status {
        if self.is_ending
            || self.script.device_errors == 0
            || self.rng.u32(0..self.script.device_errors) != 0
        {
            return Status::SUCCESS;
        }
        if is_request && let Some(io) = self.ios.iter_mut().find(|it| it.id == io) {
            io.has_device_error = true;
        }
        trace!(self, "a device fails");
        self.reach("device error");
        Status::IO_FAILED
    }

    fn carry_out(&mut self, session: u64, worker: u32, action: Action) {
        let now = self.now;
        let Some(service) = self.service(session) else {
            return;
        };
        let user_data = |service: &Service, slot: u32| {
            (
                service.workers[worker as usize]
                    .engine
                    .request(slot)
                    .user_data,
                slot < REQUESTS,
            )
        };
        match action {
            Action::ReadChunks {
                slot,
                targets,
                stripe,
            } => self.ask_targets(session, worker, slot, targets, stripe, ChunkRequest::Read),
            Action::ReadBefore {
                slot,
                target,
                stripe,
                stamp,
            } => {
                self.reach("older version read");
                let kind = ChunkRequest::ReadBefore(stamp);
                self.ask_targets(session, worker, slot, Targets::only(target), stripe, kind);
            }
            Action::Flush { slot, targets } => {
                let epoch = service.set.versions().map_or(0, |it| it.epoch());
                let retired = retired(service, epoch);
                self.ask_targets(
                    session,
                    worker,
                    slot,
                    targets,
                    0,
                    ChunkRequest::Flush { retired },
                );
            }
            Action::WriteChunks {
                slot,
                targets,
                stripe,
                stamp,
                is_durable,
            } => {
                let Some(stamp) = stamp else {
                    return self.violate(Promise::Consistent, "a chunk without a stamp".to_owned());
                };
                let retired = retired(service, stamp.epoch);
                let kind = ChunkRequest::Write {
                    stamp,
                    is_durable,
                    retired,
                };
                self.ask_targets(session, worker, slot, targets, stripe, kind);
            }
            Action::Fetch { slot, block } => {
                let (id, _) = user_data(service, slot);
                let status = self.device(id, true);
                let io = self
                    .ios
                    .iter()
                    .find(|it| it.id == id && it.session == session);
                let content = io.and_then(|io| io.blocks.get(usize::from(block)).copied());
                let Some(service) = self.service(session) else {
                    return;
                };
                let status = match content {
                    Some(content) => {
                        service.fetch(worker, slot, &content);
                        status
                    }
                    None => Status::IO_FAILED,
                };
                self.complete(session, worker, Event::Fetched { slot, status });
            }
            Action::CreateParity { slot } => {
                let (id, is_request) = user_data(service, slot);
                service.create_parity(worker, slot);
                let status = self.device(id, is_request);
                self.complete(session, worker, Event::ParityCreated { slot, status });
            }
            Action::Recover { slot, target } => {
                let (id, is_request) = user_data(service, slot);
                service.recover(worker, slot, target);
                let status = self.device(id, is_request);
                self.complete(session, worker, Event::Recovered { slot, status });
            }
            Action::Judge {
                slot,
                stripe,
                targets,
            } => {
                let judged = service.judge(worker, slot, stripe, targets);
                if let Some(trace) = &mut self.trace
                    && (slot >= REQUESTS || judged.iter().flatten().any(Result::is_err))
                {
                    let judged = judged
                        .map(|it| it.map(|it| it.map_err(|_| "flaw").map(|it| it.to_string())));
                    trace.push(format!(
                        "{:>12.6} s  block {stripe}: {judged:?}",
                        now.as_secs_f64()
                    ));
                }
                let Some(service) = self.service(session) else {
                    return;
                };
                let engine = &mut service.workers[worker as usize].engine;
                engine.handle(Event::Judged { slot, judged }, now);
            }
            Action::Seal {
                slot,
                stripe,
                targets,
                stamp,
            } => {
                service.seal(worker, slot, stripe, targets, stamp);
                let engine = &mut service.workers[worker as usize].engine;
                engine.handle(Event::Sealed { slot }, now);
            }
            Action::Deliver { slot, block } => {
                let (id, _) = user_data(service, slot);
                let mut content = [0; LOGICAL];
                service.deliver(worker, slot, &mut content);
                let status = self.device(id, true);
                let io = self
                    .ios
                    .iter_mut()
                    .find(|it| it.id == id && it.session == session);
                let delivery = match io.and_then(|io| io.blocks.get_mut(usize::from(block))) {
                    Some(into) if status.is_success() => {
                        *into = content;
                        Delivery::Done
                    }
                    _ => Delivery::Failed(Status::IO_FAILED),
                };
                self.complete(session, worker, Event::Delivered { slot, delivery });
            }
            Action::Answer { slot, status } => {
                let (id, _) = user_data(service, slot);
                self.answered(session, id, worker, status);
                self.complete(session, worker, Event::Answered { slot });
            }
            Action::Receive { lane } => {
                service.workers[worker as usize].free_lanes.push(lane);
            }
            Action::Detach { target } => {
                service.workers[worker as usize].connections[target.number()] = 0;
            }
            Action::GiveUp { .. } | Action::Encode { .. } | Action::Examine { .. } => {
                self.violate(
                    Promise::Consistent,
                    "an action of the reference's form".to_owned(),
                );
            }
        }
    }

    fn ask_targets(
        &mut self,
        session: u64,
        worker: u32,
        slot: u32,
        targets: Targets,
        stripe: u64,
        kind: ChunkRequest,
    ) {
        let Some(service) = self.service_ref(session) else {
            return;
        };
        let connections = service.workers[worker as usize].connections;
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
                self.complete(session, worker, Event::TargetLost { target, status });
                continue;
            }
            self.after(0..10, Scheduled::Sent(chunk));
            self.after(3..40, Scheduled::Chunk(chunk));
        }
    }

    // The targets.

    fn chunk_arrived(&mut self, chunk: Chunk) {
        let now = self.now;
        // Memory of a connection that the worker has closed is not accessible.
        let is_current = self.is_current(&chunk);
        let number = chunk.target;
        let slots = self.script.slots as usize;
        let target = &mut self.targets[number];
        if !target.is_up || target.connection != chunk.connection || !is_current {
            return;
        }
        let (worker, slot) = (chunk.worker as usize, chunk.slot as usize);
        match chunk.kind {
            ChunkRequest::Flush { retired } => {
                target.retire(retired);
                if std::mem::take(&mut target.fails_write) || target.full_until > now {
                    return self.fail_chunk(chunk);
                }
                target.disk.sync();
                self.synced();
                if self.rng.u32(0..self.script.apply_every) == 0 {
                    self.begin_applying(number);
                }
                self.send_result(chunk, Status::SUCCESS);
            }
            ChunkRequest::Read | ChunkRequest::ReadBefore(_) => {
                let is_failing = target.fails_reads != 0;
                target.fails_reads = target.fails_reads.saturating_sub(1);
                if is_failing || target.disk.is_unreadable(chunk.stripe) {
                    self.totals.faults += 1;
                    self.reach("read error");
                    self.note_unread(chunk.stripe, number);
                    return self.send_result(chunk, Status::IO_FAILED);
                }
                let mut bytes: Bytes = [0; CHUNK];
                bytes.copy_from_slice(match chunk.kind {
                    ChunkRequest::ReadBefore(stamp) => {
                        target.disk.newest_before(chunk.stripe, stamp)
                    }
                    _ => target.disk.newest(chunk.stripe),
                });
                if let Some(service) = self.service(chunk.session) {
                    service.workers[worker].slots[slot].chunks[number] = bytes;
                }
                self.send_result(chunk, Status::SUCCESS);
            }
            ChunkRequest::Write {
                stamp,
                is_durable,
                retired,
            } => {
                target.retire(retired);
                if std::mem::take(&mut target.fails_write) || target.full_until > now {
                    return self.fail_chunk(chunk);
                }
                if target.disk.used_slots() >= slots {
                    if !target.may_apply() && !target.is_applying() {
                        let what = format!(
                            "target {number} has no free slot for version {stamp} of block {}: all {slots} versions are not retired",
                            chunk.stripe
                        );
                        self.overflow.get_or_insert(what);
                    } else {
                        self.reach("target waits for a slot");
                        self.begin_applying(number);
                        return self.after(20..200, Scheduled::Chunk(chunk));
                    }
                }
                let Some(service) = self.services.iter().find(|it| it.session == chunk.session)
                else {
                    return;
                };
                let bytes = service.workers[worker].slots[slot].chunks[number];
                let target = &mut self.targets[number];
                if std::mem::take(&mut target.loses_write) {
                    trace!(
                        self,
                        "target {number} loses version {stamp} of block {}", chunk.stripe
                    );
                    target.lost_write = target.lost_write.max(Some(stamp));
                    self.damage(chunk.stripe as usize, number);
                    self.reach("lost write");
                } else if let Some(to) = target.misdirects_write_to.take() {
                    trace!(
                        self,
                        "target {number} writes version {stamp} of block {} to {to}", chunk.stripe
                    );
                    target.disk.write_version(to, stamp, &bytes);
                    self.damage(chunk.stripe as usize, number);
                    self.damage(to as usize, number);
                    self.reach("misdirected write");
                } else {
                    trace!(
                        self,
                        "target {number} stores version {stamp} of block {}", chunk.stripe
                    );
                    // Damage to the previous version is relevant until the write is complete, because the write may
                    // have to be undone.
                    target.disk.write_version(chunk.stripe, stamp, &bytes);
                    target.lost_write = target.lost_write.filter(|&lost| lost > stamp);
                }
                let target = &mut self.targets[number];
                if is_durable {
                    target.disk.sync();
                }
                let is_due = target.disk.used_slots() > slots / 2
                    || self.rng.u32(0..self.script.apply_every) == 0;
                if is_due && target.may_apply() {
                    self.begin_applying(number);
                }
                self.send_result(chunk, Status::SUCCESS);
            }
        }
    }

    /// Records that a member's chunk could not be read for the I/Os in progress.
    fn note_unread(&mut self, block: u64, number: usize) {
        for io in &mut self.ios {
            let index = block.checked_sub(io.block).map(|index| index as usize);
            if let Some(unread) = index.and_then(|index| io.unread.get_mut(index)) {
                unread.insert(Target::ALL[number]);
            }
        }
    }

    fn fail_chunk(&mut self, chunk: Chunk) {
        self.totals.faults += 1;
        self.targets[chunk.target].has_failed = true;
        self.reach("write error");
        self.unwell(chunk.target, Duration::ZERO);
        self.send_result(chunk, Status::IO_FAILED);
    }

    fn begin_applying(&mut self, number: usize) {
        let target = &mut self.targets[number];
        if target.is_applying() || !target.may_apply() {
            return;
        }
        target.begin_applying();
        let process = target.process;
        self.reach("versions copied to their places");
        self.after(
            5..100,
            Scheduled::Apply {
                target: number,
                process,
            },
        );
    }

    fn apply(&mut self, number: usize, process: u64) {
        let target = &mut self.targets[number];
        if target.is_up && target.process == process && target.go_on_applying() {
            self.after(
                1..30,
                Scheduled::Apply {
                    target: number,
                    process,
                },
            );
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
            _ => 0..1,
        };
        if let Some(service) = self.service(session) {
            let it = &mut service.workers[worker as usize];
            it.unreaped += 1;
        }
        self.after(
            delay,
            Scheduled::Complete {
                session,
                worker,
                event,
            },
        );
    }

    fn connection_broken(&mut self, session: u64, target: usize, connection: u64) {
        let Some(service) = self.service(session) else {
            return;
        };
        if service
            .attempt
            .is_some_and(|it| it.connection == connection)
        {
            service.attempt = None;
            self.reach("target lost while it rejoins");
        }
        let Some(service) = self.service(session) else {
            return;
        };
        if service.connections[target] == connection {
            service.connections[target] = 0;
            service.superblocks.forget(target);
            service
                .set
                .detach(Target::ALL[target], "its control connection is broken");
        }
        for worker in 0..self.script.workers {
            let Some(service) = self.service(session) else {
                return;
            };
            if service.workers[worker as usize].connections[target] == connection {
                let event = Event::TargetLost {
                    target: Target::ALL[target],
                    status: Status::IO_FAILED,
                };
                self.handle(session, worker, event);
            }
        }
    }

    /// Breaks a target's connection, which its service notices after a delay.
    fn break_connection(&mut self, target: usize, micros: std::ops::Range<u64>) {
        let (session, connection) = (
            self.targets[target].session,
            self.targets[target].connection,
        );
        if connection != 0 {
            let broken = Scheduled::Broken {
                session,
                target,
                connection,
            };
            self.after(micros, broken);
        }
    }

    /// A target has synced its disk: repairs are permanent once no power failure can restore the previous version on
    /// any member.
    fn synced(&mut self) {
        for block in 0..self.script.blocks {
            let index = block as usize;
            let repaired = self.damaged[index].minus(self.silent[index]);
            let is_durable = || self.targets.iter().all(|it| it.disk.is_durable(block));
            if !repaired.is_empty() && is_durable() && self.objection(block).is_none() {
                self.damaged[index] = self.silent[index];
            }
        }
    }

    /// Records silent damage.
    fn damage(&mut self, block: usize, target: usize) {
        self.silent[block].insert(Target::ALL[target]);
        self.damaged[block].insert(Target::ALL[target]);
    }

    /// A session has ended uncleanly, or another service has opened the set although it has not ended: the next one does not
    /// know which writes were complete.
    fn unclean_end(&mut self) {
        for target in 0..3 {
            if self.targets[target].lost_write.take().is_some() {
                self.unwell(target, self.now);
            }
        }
        // The service that has noticed the exchange of a disk may not have recorded it.
        for target in 0..3 {
            let member = Target::ALL[target];
            if self.targets[target].in_use.is_some() {
                for (silent, damaged) in self.silent.iter_mut().zip(&self.damaged) {
                    if damaged.contains(member) {
                        silent.insert(member);
                    }
                }
            }
        }
        self.check_exposure();
        // A lost write may now be mistaken for an interrupted one, if another target is lost.
        for block in 0..self.lost.len() {
            if self.lost[block] {
                self.lose_two(block);
            }
        }
    }

    /// Records that a target may be unreachable or stale.
    fn unwell(&mut self, target: usize, until: Duration) {
        let it = &mut self.targets[target];
        it.is_well = false;
        it.trouble_until = it.trouble_until.max(until);
        self.check_exposure();
    }

    /// Several members may be wrong: I/Os may fail from now on, until the blocks are intact again.
    fn check_exposure(&mut self) {
        let is_settled = self
            .service_ref(self.client)
            .is_some_and(|it| it.set.unsettled_stripes() == 0);
        let unwell = self.targets.iter().filter(|it| !it.is_well);
        if unwell.clone().count() > 1 && unwell.clone().any(|it| it.has_lost_power) {
            self.lose_unflushed();
        }
        let unwell: Vec<usize> = (0..3).filter(|&it| !self.targets[it].is_well).collect();
        let mut all = Targets::NONE;
        unwell.iter().for_each(|&it| all.insert(Target::ALL[it]));
        for block in 0..self.damaged.len() {
            let silent = self.damaged[block];
            if all.union(silent).len() > 1 {
                self.exposed[block] = true;
                if !silent.is_empty() {
                    self.lost[block] = true;
                    if !is_settled {
                        // A lost write may be mistaken for an interrupted one, if another target is lost.
                        self.lose_two(block);
                    }
                }
            }
        }
        for io in &mut self.ios {
            io.may_time_out |= unwell.len() > 1;
            io.may_fail |=
                (io.block..io.block + io.count()).any(|block| self.exposed[block as usize]);
        }
    }

    /// Two members of a block are wrong at the same time, one of them with a lost write, or an old copy.
    fn lose_two(&mut self, block: usize) {
        let damaged = || {
            self.damaged[block]
                .iter()
                .map(|it| &self.targets[it.number()])
        };
        let copies = damaged().filter_map(|it| it.in_use.as_ref());
        let since = copies.map(|it| it.since(block as u64));
        // Zeros in place of a chunk indicate a block that was never written.
        let is_blank = |disk: &Disk| disk.newest(block as u64).iter().all(|&byte| byte == 0);
        let blank = damaged().any(|it| is_blank(&it.disk)).then_some(0);
        let since = since.chain(blank).min();
        self.registers[block].lost_two(since);
        for io in &mut self.ios {
            for (reading, read) in io.readings.iter_mut().zip(io.block..) {
                if read as usize == block {
                    self.registers[block].extend(reading);
                }
            }
        }
    }

    /// Allows all unflushed writes to be lost.
    fn lose_unflushed(&mut self) {
        for io in &mut self.ios {
            for (reading, block) in io.readings.iter_mut().zip(io.block..) {
                self.registers[block as usize].extend(reading);
            }
        }
        for register in &mut self.registers {
            register.lost_power();
        }
    }

    fn kill_target(&mut self, target: usize, change: Change, restart: Duration) {
        self.unwell(target, self.now + restart);
        self.break_connection(target, 5..300);
        self.targets[target].kill();
        self.at(
            self.now + restart,
            Scheduled::StartTarget { target, change },
        );
    }

    fn start_target(&mut self, number: usize, change: Change) {
        let blocks = self.script.blocks;
        if self.targets[number].is_up {
            return;
        }
        match change {
            Change::None => {}
            Change::Copy => {
                if let Some(mut copy) = self.targets[number].copy.clone() {
                    // The file was written as a whole.
                    copy.disk.sync();
                    self.targets[number].in_use = Some(copy.clone());
                    // Including damage that was repaired after the copy had been made, which are zeros in place of a
                    // chunk.
                    for &block in &copy.damaged {
                        self.damage(block as usize, number);
                    }
                    self.replace_disk(number, copy.disk);
                }
            }
            Change::Empty => {
                let disk = Disk::empty(self.next_identity, blocks);
                self.next_identity += 1;
                self.replace_disk(number, disk);
            }
            Change::Foreign => {
                let mut disk = Disk::empty(FOREIGN, blocks);
                let is_exchanged = self.rng.bool();
                disk.superblock = self.targets[number].disk.superblock.map(|it| {
                    if is_exchanged {
                        // The chunk of another member of the set.
                        let member = (it.member + 1) % 3;
                        return Superblock { member, ..it };
                    }
                    let set = SetId(it.set.0 ^ 2);
                    Superblock { set, ..it }
                });
                let own = std::mem::replace(&mut self.targets[number].disk, disk);
                self.targets[number].own = Some(own);
                let after = Duration::from_micros(self.rng.u64(50_000..3_000_000));
                self.unwell(number, self.now + after + RETURN_TIME);
                self.at(self.now + after, Scheduled::ReturnDisk { target: number });
            }
        }
        self.targets[number].start();
        trace!(self, "target {number} is up ({change:?})");
    }

    fn return_disk(&mut self, number: usize) {
        let Some(own) = self.targets[number].own.take() else {
            return;
        };
        let target = &self.targets[number];
        let is_rebuilt = target.disk.identity != FOREIGN || target.is_member(self.set_id, number);
        if is_rebuilt && !self.may_lose(number) {
            // An old disk in place of a current one, in addition to another failure, exceeds the limits of SECURITY.md.
            return;
        }
        self.break_connection(number, 5..300);
        self.targets[number].kill();
        self.targets[number].disk = own;
        let start = Scheduled::StartTarget {
            target: number,
            change: Change::None,
        };
        self.at(self.now + RETURN_TIME, start);
    }

    /// Replaces a disk: unless a service detects the replacement, blocks whose newest chunk differs are silently stale.
    fn replace_disk(&mut self, number: usize, disk: Disk) {
        // Without a session, an older copy with the same superblock is indistinguishable; a session knows the data that
        // it has stored.
        let session = self.targets[number].session;
        // A copy from the creation of the set also names its first epoch.
        let names_last_epoch = |it: &Superblock| {
            let epoch = (self.targets[number].disk.superblock).map_or(Epoch::NONE, |own| own.epoch);
            epoch != Epoch::NONE && (it.epoch == epoch || it.next == epoch)
        };
        let is_from_session =
            disk.superblock.as_ref().is_some_and(names_last_epoch) && disk.identity != FOREIGN;
        let is_hidden = !self.services.iter().any(|it| it.session == session);
        let own = &self.targets[number].disk;
        let differing: Vec<u64> = (0..self.script.blocks)
            .filter(|&block| is_from_session && own.newest(block) != disk.newest(block))
            .collect();
        for block in differing {
            if is_hidden {
                self.damage(block as usize, number);
            } else {
                // While another target is lost, it may be mistaken for a member whose last write was interrupted.
                self.damaged[block as usize].insert(Target::ALL[number]);
            }
        }
        let target = &mut self.targets[number];
        if target.disk.identity != disk.identity {
            target.in_use = None;
        }
        target.disk = disk;
        // The disk that was replaced by a disk of another set is not restored.
        self.targets[number].own = None;
        // The copy may have been made of a damaged disk.
        for block in 0..self.script.blocks {
            if self.decoded(block)[number] == Decoded::Invalid {
                self.damage(block as usize, number);
            }
        }
        self.check_exposure();
    }

    // Control connections: superblocks.

    fn request_arrived(&mut self, session: u64, number: usize, connection: u64, message: &Message) {
        let target = &mut self.targets[number];
        if !target.is_up || target.connection != connection {
            return;
        }
        let Payload::IdentifyStorageRequest(query) = &message.payload else {
            return self.violate(
                Promise::Consistent,
                "an unexpected control message".to_owned(),
            );
        };
        let payload = match Superblock::of_request(query) {
            Ok(Some(superblock)) if target.full_until <= self.now => {
                target.persist(superblock);
                self.synced();
                let target = &self.targets[number];
                let identity = Blob::copy_from_slice(&target.identity().0.to_be_bytes());
                trace!(
                    self,
                    "target {number} persists epoch {} next {} {:?}",
                    superblock.epoch,
                    superblock.next,
                    superblock.state
                );
                let storage = StorageDetails {
                    total_size: self.script.blocks * CHUNK as u64,
                    block_size: CHUNK as u32,
                };
                Payload::IdentifiedStorageResponse(superblock.request().answer(&storage, identity))
            }
            _ => {
                target.has_failed = true;
                self.unwell(number, Duration::ZERO);
                Payload::ErrorResponse(ErrorResponse {
                    error_code: Status::IO_FAILED.0,
                    message: "the disk is full".to_owned(),
                })
            }
        };
        let message = message.response(payload);
        let answer = Scheduled::Answer {
            session,
            target: number,
            connection,
            message,
        };
        self.after(self.script.persist_time(), answer);
    }

    fn answer_arrived(&mut self, session: u64, number: usize, connection: u64, message: &Message) {
        let Some(service) = self.service(session) else {
            return;
        };
        if service.connections[number] != connection {
            return;
        }
        let target = Target::ALL[number];
        match service
            .superblocks
            .answer(service.instant(), number, message)
        {
            Some(Ok(superblock)) => service.set.persisted(target, superblock),
            Some(Err(failure)) => service.set.detach(target, failure),
            None => self.violate(
                Promise::Consistent,
                "an answer that was not asked for".to_owned(),
            ),
        }
    }

    /// The control thread of a service.
    fn control(&mut self, session: u64) {
        let now = self.now;
        let Some(service) = self.service(session) else {
            return;
        };
        let state = service.set.state();
        let before = std::mem::replace(&mut service.state, state);
        if let (State::Healthy, State::Degraded(target)) = (before, state) {
            let last = service.cut_until;
            let it = &self.targets[target.number()];
            let last = last.max(it.paused_until).max(it.cut_until);
            // A service that was replaced detects later what has happened in the meantime.
            if it.is_well && last + LATE < now && session == self.client {
                let what = format!("{} was detached, and it was well", target.name());
                self.violate(Promise::Available, what);
                return;
            }
        }
        if before != state {
            trace!(self, "the set of session {session} is {state:?}");
            self.reach(match state {
                State::Healthy => "healthy",
                State::Degraded(_) => "degraded",
                State::Rebuilding(_) => "rebuilding",
                State::Failed { .. } => "failed",
            });
        }
        let Some(service) = self.service(session) else {
            return;
        };
        if service.paused_until > now {
            return;
        }
        let mut requests = Vec::new();
        for (number, target) in Target::ALL.into_iter().enumerate() {
            if service.set.view().offline.contains(target) && service.connections[number] != 0 {
                service.connections[number] = 0;
                service.superblocks.forget(number);
            }
            if service.connections[number] == 0 {
                continue;
            }
            let wanted = service.set.superblock_of(target);
            if let Some(message) = service
                .superblocks
                .request(service.instant(), number, wanted)
            {
                requests.push((number, service.connections[number], message));
            }
        }
        if let Some(number) = service.superblocks.late(service.instant())
            && !service
                .set
                .stalled(Target::ALL[number], "it does not persist its superblock")
        {
            let instant = service.instant();
            service.superblocks.renew(instant, number);
        }
        let is_late = service.phase != Phase::Serving
            && service.own_time > service.phase_since + PHASE_TIMEOUT;
        if is_late {
            trace!(self, "session {session} cannot be opened or closed");
            self.reach("session that cannot be opened or closed");
            let is_opening = self
                .service_ref(session)
                .is_some_and(|it| it.phase == Phase::Opening);
            self.end_service(session, "timeout");
            if is_opening {
                self.start_service_at(now + Duration::from_millis(100));
            }
            return;
        }
        if service.phase == Phase::Opening && service.set.is_open() {
            service.phase = Phase::Serving;
            let is_created = !matches!(service.set.state(), State::Failed { .. });
            self.is_created |= is_created;
            trace!(self, "session {session} serves");
            // The flag is passed until the superblocks record that the target is rebuilt.
            if is_created {
                self.is_poisoned = false;
                if self.rebuild.take().is_some() {
                    self.reach("rebuild flag");
                }
            }
            // The client connects to the newest service.
            if session > self.client {
                let before = std::mem::replace(&mut self.client, session);
                self.forget_ios(before);
                if before != 0 {
                    self.after(10..3_000_000, Scheduled::EndService { session: before });
                    self.reach("second service");
                }
            }
        }
        for (target, connection, message) in requests {
            let request = Scheduled::Request {
                session,
                target,
                connection,
                message,
            };
            self.after(self.script.persist_time(), request);
        }
        self.begin_rejoining(session);
        self.go_on_closing(session);
    }

    fn begin_rejoining(&mut self, session: u64) {
        let (now, number) = (self.now, self.next_attempt);
        let Some(service) = self.service(session) else {
            return;
        };
        if service.phase != Phase::Serving || service.attempt.is_some() {
            return;
        }
        let instant = service.instant();
        let NextRejoin::Candidate(candidate) = service.rests.next(&service.set, instant) else {
            return;
        };
        service.attempt = Some(Attempt {
            number,
            candidate,
            connection: 0,
            has_kept: false,
            left: 0,
            identity: (0, 0),
        });
        let earliest = service.rejoins_at.saturating_sub(now);
        self.next_attempt += 1;
        let delay = earliest + Duration::from_micros(self.rng.u64(100..20_000));
        self.at(now + delay, Scheduled::Rejoin { session, number });
    }

    /// Connects to a target that is to rejoin, and determines whether it has kept its data.
    fn rejoin(&mut self, session: u64, number: u64) {
        let (now, next) = (self.now, self.next_connection);
        let Some(service) = self.services.iter_mut().find(|it| it.session == session) else {
            return;
        };
        let Some(attempt) = service.attempt.filter(|it| it.number == number) else {
            return;
        };
        service.attempt = None;
        service.rejoins_at = now + REJOIN_PAUSE;
        let target = &mut self.targets[attempt.target()];
        let is_foreign =
            target.disk.identity == FOREIGN && !target.is_member(self.set_id, attempt.target());
        let is_own = target.session == session;
        let is_free = target.connection == 0 || is_own;
        let is_possible = target.is_reachable(now) && service.cut_until <= now && is_free;
        if !is_possible || service.phase != Phase::Serving {
            return;
        }
        let member = attempt.candidate.target;
        let is_same = service.identities[attempt.target()] == target.identity();
        let is_expected = service.set.rejoin_candidate() == Some(attempt.candidate);
        if !is_expected {
            return;
        }
        let has_kept = match service
            .set
            .admit(member, target.found(), is_same, target.disk.last())
        {
            Ok(has_kept) => has_kept,
            Err(why) => {
                let may_continue = service.set.may_continue();
                if !self.needs_restart {
                    trace!(self, "target {} is not admitted: {why}", attempt.target());
                }
                self.refused(session, attempt.target(), is_same, &why);
                if !may_continue {
                    self.reach("session that cannot continue");
                    self.end_service(session, "a target is back without its data");
                    self.start_service_at(now + Duration::from_millis(100));
                }
                return;
            }
        };
        // With `--rebuild`, the target may have become a member of this set, without contents.
        if is_foreign {
            let what = format!(
                "target {} of another set or place is admitted",
                attempt.target()
            );
            return self.violate(Promise::Refused, what);
        }
        if has_kept && !is_same {
            let what = format!(
                "target {} with another storage is taken to have its data",
                attempt.target()
            );
            return self.violate(Promise::Refused, what);
        }
        target.join(next, session);
        self.next_connection += 1;
        let workers = self.script.workers;
        service.attempt = Some(Attempt {
            connection: next,
            has_kept,
            left: workers,
            identity: target.identity(),
            ..attempt
        });
        for worker in 0..workers {
            let attach = Scheduled::Attach {
                session,
                number,
                worker,
            };
            self.after(50..3_000, attach);
        }
    }

    /// A target was refused, and the session continues: it must not be a target that has its data.
    fn refused(&mut self, session: u64, target: usize, is_same: bool, why: &str) {
        self.reach("target not admitted");
        let it = &self.targets[target];
        if it.disk.identity == FOREIGN {
            return;
        }
        if !self.is_created {
            // The set is being created, which requires all three targets.
            self.needs_restart = true;
            return;
        }
        self.needs_restart = true;
        if !is_same || it.session != session || it.in_use.is_some() {
            return;
        }
        // The chunk of a lost write may have been rewritten, so that no damage is left.
        let member = Target::ALL[target];
        if it.lost_write > Some(it.disk.last()) || self.damaged.iter().any(|it| it.contains(member))
        {
            return self.excuse(Excuse::WithoutContents);
        }
        let what = format!("target {target} was not admitted, and it has its data: {why}");
        self.violate(Promise::Available, what);
    }

    fn attach(&mut self, session: u64, number: u64, worker: u32) {
        let Some(service) = self.service(session) else {
            return;
        };
        let Some(mut attempt) = service.attempt.filter(|it| it.number == number) else {
            return;
        };
        let target = attempt.candidate.target;
        service.workers[worker as usize].connections[target.number()] = attempt.connection;
        attempt.left -= 1;
        service.attempt = (attempt.left != 0).then_some(attempt);
        self.handle(session, worker, Event::TargetAttached { target });
        let Some(service) = self.service(session) else {
            return;
        };
        if attempt.left == 0 {
            if !service.set.rejoin(attempt.candidate, attempt.has_kept) {
                return self.reach("target lost while another one rejoins");
            }
            let instant = service.instant();
            service.rests.rejoined(target.number(), instant);
            service.connections[target.number()] = attempt.connection;
            service.superblocks.forget(target.number());
            service.identities[target.number()] = attempt.identity;
            trace!(
                self,
                "target {} rejoins, has kept its data: {}",
                target.number(),
                attempt.has_kept
            );
            self.reach(if attempt.has_kept {
                "rejoined with its data"
            } else {
                "rejoined without its data"
            });
        }
    }

    /// Ends a session cleanly, after this time at most with I/Os in flight.
    fn end_session(&mut self, session: u64, patience: Duration) {
        if let Some(service) = self.service(session)
            && service.phase == Phase::Serving
        {
            service.phase = Phase::Quiescing;
            service.phase_since = service.own_time;
            service.stops_at = service.own_time + patience;
            service.attempt = None;
            service.set.quiesce();
        }
    }

    fn go_on_closing(&mut self, session: u64) {
        let has_ios = self.ios.iter().any(|it| it.session == session);
        let moment = self.order;
        let Some(service) = self.service(session) else {
            return;
        };
        match service.phase {
            Phase::Quiescing
                if !has_ios && service.is_idle() && service.set.is_quiet()
                    || service.own_time >= service.stops_at =>
            {
                let is_interrupted = !service.is_idle();
                service.stop(moment);
                service.set.conclude();
                service.phase = Phase::Closing;
                service.phase_since = service.own_time;
                trace!(self, "session {session} is closed");
                if is_interrupted {
                    self.reach("end with I/Os in flight");
                    self.forget_ios(session);
                }
            }
            Phase::Closing if service.set.is_concluded() => {
                let stopped_at = service.stopped_at;
                let connections = service.connections;
                let service_is_healthy = service.set.is_healthy();
                let has_unsettled = service.set.unsettled_stripes() != 0;
                for (target, connection) in self.targets.iter_mut().zip(connections) {
                    if connection != 0 && target.connection == connection && target.is_up {
                        target.sync();
                    }
                }
                self.was_clean = service_is_healthy && self.targets.iter().all(|it| it.is_well);
                if self.was_clean && has_unsettled {
                    self.was_clean = false;
                    self.excuse(Excuse::Unsettled);
                }
                self.closed_at = self.was_clean.then_some(stopped_at);
                self.reach("clean end of a session");
                self.end_service(session, CLOSED);
            }
            _ => {}
        }
    }

    // The client.

    fn content(&mut self, block: u64, kind: u8) -> Content {
        let [last, first] = self.registers[block as usize].contents();
        let number = self.next_content;
        self.next_content += 1;
        let mut content = last;
        match kind {
            // All of the block.
            0..6 => content = [number; PARTS],
            // Half of the block.
            6..8 => content[..PARTS / 2].fill(number),
            8..11 => content[PARTS / 2..].fill(number),
            // A single part.
            11..13 => content[self.rng.usize(0..PARTS)] = number,
            // Unchanged content.
            13 => {}
            14 => content = [0; PARTS],
            // The second half of another version.
            _ => {
                content[PARTS / 2..].copy_from_slice(&first[PARTS / 2..]);
                content[..PARTS / 2].fill(number);
            }
        }
        content
    }

    fn begin_io(
        &mut self,
        operation: Operation,
        block: u64,
        count: u8,
        kind: u8,
        is_durable: bool,
    ) -> Option<u64> {
        let session = self.client;
        let service = self.service(session)?;
        if service.phase != Phase::Serving || service.paused_until > Duration::MAX - TICK {
            return None;
        }
        let workers = service.workers.len();
        let worker = self.rng.usize(0..workers);
        let lane = self.service(session)?.workers[worker].free_lanes.pop()?;
        let began = self.moment();
        let id = self.next_io;
        self.next_io += 1;
        self.totals.ios += 1;
        let range = block..block + u64::from(count);
        let mut io = Io {
            id,
            session,
            worker: worker as u32,
            operation,
            is_durable,
            block,
            blocks: vec![[0xDD; LOGICAL]; usize::from(count)],
            versions: Vec::new(),
            readings: Vec::new(),
            began,
            since: self.now,
            asked: self.now,
            may_fail: range.clone().any(|block| self.exposed[block as usize]),
            may_time_out: self.targets.iter().filter(|it| !it.is_well).count() > 1,
            has_device_error: false,
            unread: vec![Targets::NONE; usize::from(count)],
        };
        for (index, block) in range.enumerate() {
            match operation {
                Operation::Write => {
                    let content = self.content(block, kind);
                    io.blocks[index] = bytes_of(block, content);
                    io.versions
                        .push(self.registers[block as usize].begin_write(content, began));
                }
                _ => io
                    .readings
                    .push(self.registers[block as usize].begin_read(began)),
            }
        }
        trace!(
            self,
            "io {id}: {operation:?} of {count} blocks from {block}, versions {:?}", io.versions
        );
        self.ios.push(io);
        let request = request(operation, is_durable, block, count, id);
        self.handle(session, worker as u32, Event::Request { lane, request });
        Some(id)
    }

    fn answered(&mut self, session: u64, id: u64, worker: u32, status: Status) {
        let place = self
            .ios
            .iter()
            .position(|io| io.id == id && io.session == session);
        let Some(place) = place else {
            // The client has disconnected.
            return;
        };
        let io = self.ios.remove(place);
        let now = self.moment();
        trace!(self, "io {id}: {status}");
        if io.worker != worker {
            return self.violate(
                Promise::Consistent,
                format!("I/O {id} was answered by another worker"),
            );
        }
        for (block, version) in (io.block..).zip(&io.versions) {
            let register = &mut self.registers[block as usize];
            register.end_write(*version, now, status.is_success(), io.is_durable);
        }
        if !status.is_success() {
            return self.check_failure(&io);
        }
        match io.operation {
            Operation::Flush => {
                for register in &mut self.registers {
                    register.flushed(io.began);
                }
            }
            Operation::Write => self.has_acknowledged = true,
            Operation::Read => {
                for (index, reading) in io.readings.iter().enumerate() {
                    let block = io.block + index as u64;
                    let register = &mut self.registers[block as usize];
                    match register.end_read(reading, &io.blocks[index], now) {
                        Ok(None) => {}
                        Ok(Some(excuse)) => self.excuse(excuse),
                        Err((promise, what)) => return self.violate(promise, what),
                    }
                    if self.trace.is_some() {
                        let shown = self.registers[block as usize].show(&io.blocks[index]);
                        trace!(self, "io {id}: block {block} is {shown}");
                    }
                }
            }
        }
    }

    fn check_failure(&mut self, io: &Io) {
        if io.has_device_error {
            return self.excuse(Excuse::Device);
        }
        let is_exposed =
            (io.block..io.block + io.count()).any(|block| self.exposed[block as usize]);
        // R5 is about one member of a stripe. The other member may have become readable again before the I/O
        // encountered the failure of the first.
        let is_unreadable = (io.block..).zip(&io.unread).any(|(block, unread)| {
            let wrong = unread.union(self.damaged[block as usize]);
            !unread.is_empty() && wrong.len() > 1
        });
        if io.may_fail || is_exposed || is_unreadable {
            return self.excuse(Excuse::TwoMembers);
        }
        let unwell = self.targets.iter().filter(|it| !it.is_well).count();
        if (io.may_time_out || unwell > 1) && self.now >= io.asked + PARKING_TIMEOUT {
            return self.excuse(Excuse::Unreachable);
        }
        let what = format!(
            "a {:?} of {} blocks from {} failed after {:?}, and at most one member of each stripe was wrong at a time",
            io.operation,
            io.count(),
            io.block,
            self.now - io.asked
        );
        self.violate(Promise::NoError, what);
    }

    // Ground truth, by the oracle's decoder.

    /// Each member's bytes of a block, decoded.
    fn decoded(&self, block: u64) -> [Decoded; 3] {
        std::array::from_fn(|member| {
            let expected = Expected {
                set: self.set_id.map_or(0, |it| it.0),
                stripe: block,
                member,
            };
            let disk = &self.targets[member].disk;
            if disk.is_unreadable(block) {
                return Decoded::Invalid;
            }
            decode(disk.newest(block), expected)
        })
    }

    /// The content that two members have of a block.
    fn content_of(&self, block: u64, members: [usize; 2]) -> [u8; LOGICAL] {
        let payloads =
            members.map(|member| payload(self.targets[member].disk.newest(block), member));
        self.code.block(members, payloads)
    }

    /// Returns a description unless three members have the same version of a block, and every two of them encode one of
    /// its values.
    fn objection(&self, block: u64) -> Option<String> {
        let decoded = self.decoded(block);
        if decoded[0] == Decoded::Invalid || decoded.iter().any(|it| *it != decoded[0]) {
            return Some(format!("the chunks of block {block} are {decoded:?}"));
        }
        for members in [[0, 1], [0, 2], [1, 2]] {
            let content = self.content_of(block, members);
            if !self.registers[block as usize].may_be(&content) {
                let shown = self.registers[block as usize].show(&content);
                return Some(format!("members {members:?} have {shown} of block {block}"));
            }
        }
        None
    }

    /// Returns `true` if the set is shown as healthy, and it serves.
    fn is_shown_as_healthy(&self) -> bool {
        self.service_ref(self.client).is_some_and(|service| {
            service.phase == Phase::Serving
                && service.set.summary().state == "healthy"
                && service.set.unsettled_stripes() == 0
                && service.paused_until <= self.now
        })
    }

    /// Clears the recorded faults of targets once the set is shown as healthy with them.
    fn update_wellness(&mut self) {
        let is_exposed = self.exposed.contains(&true);
        if !is_exposed && self.targets.iter().all(|it| it.is_well) || !self.is_shown_as_healthy() {
            return;
        }
        // The rebuilt target is a member: the next service is started without the flag.
        (self.rebuild, self.is_poisoned) = (None, false);
        let now = self.now;
        let Some(service) = self.service_ref(self.client) else {
            return;
        };
        let is_served = |number: usize| {
            let target = &self.targets[number];
            let mut connections = service.workers.iter().map(|it| it.connections[number]);
            target.connection != 0
                && !target.has_failed
                && connections.all(|it| it == target.connection)
                && target.is_reachable(now)
                && now >= target.trouble_until
                && target.fails_reads == 0
                && !target.fails_write
                && target.full_until <= now
        };
        let served: Vec<usize> = (0..3).filter(|&it| is_served(it)).collect();
        let is_new = served.iter().any(|&it| !self.targets[it].is_well);
        for &number in &served {
            self.targets[number].is_well = true;
            self.targets[number].has_lost_power = false;
            self.targets[number].in_use = None;
        }
        if is_new {
            self.check_redundancy(false);
        }
        if self.targets.iter().all(|it| it.is_well) {
            for block in 0..self.script.blocks {
                let index = block as usize;
                if self.exposed[index] && self.objection(block).is_none() {
                    self.silent[index] = Targets::NONE;
                    self.lost[index] = false;
                }
                // Without damage, members that have rejoined have the block again.
                self.exposed[index] &= self.lost[index];
            }
        }
    }

    /// Checks that all blocks that are not being written are intact.
    fn check_redundancy(&mut self, is_after_scrub: bool) {
        if !self.targets.iter().all(|it| it.is_well) {
            return;
        }
        for block in 0..self.script.blocks {
            let index = block as usize;
            if self.registers[index].is_being_written() {
                continue;
            }
            let Some(objection) = self.objection(block) else {
                self.silent[index] = Targets::NONE;
                continue;
            };
            if !self.silent[index].is_empty() && !is_after_scrub || self.lost[index] {
                continue;
            }
            return self.violate(
                Promise::Redundant,
                format!("the set is shown as healthy, and {objection}"),
            );
        }
        self.reach("redundancy verified");
    }

    // Faults.

    /// Returns `true` if this target may fail as a whole: all other targets must be well, and must not have damaged
    /// blocks.
    fn may_fail(&self, target: usize) -> bool {
        let is_pending = (0..3).any(|other| other != target && self.targets[other].is_damaging());
        if self.script.is_wild {
            return !is_pending;
        }
        self.may_lose(target)
    }

    fn may_lose(&self, target: usize) -> bool {
        let member = Targets::only(Target::ALL[target]);
        let is_pending = (0..3).any(|other| other != target && self.targets[other].is_damaging());
        !is_pending
            && (0..3).all(|other| other == target || self.targets[other].is_well)
            && self
                .damaged
                .iter()
                .all(|damaged| damaged.minus(member).is_empty())
            && !self.exposed.contains(&true)
    }

    /// Returns `true` if a block may be damaged silently on this target.
    fn may_damage(&self, target: usize, block: u64) -> bool {
        let member = Targets::only(Target::ALL[target]);
        self.have_their_disks()
            && self.targets[target].is_up
            && (0..3).all(|other| other == target || self.targets[other].is_well)
            && self.damaged[block as usize].minus(member).is_empty()
            && !self.exposed[block as usize]
            && self.has_pair_without(target, block)
            && self.pending_damage() == 0
    }

    /// Number of targets whose next write will cause damage.
    fn pending_damage(&self) -> usize {
        self.targets.iter().filter(|it| it.is_damaging()).count()
    }

    /// Returns `true` if the other two members have equal chunks, and the block is not being written.
    fn has_pair_without(&self, target: usize, block: u64) -> bool {
        let decoded = self.decoded(block);
        let others: Vec<Decoded> = (0..3)
            .filter(|&it| it != target)
            .map(|it| decoded[it])
            .collect();
        others[0] == others[1]
            && others[0] != Decoded::Invalid
            && !self.registers[block as usize].is_being_written()
    }

    /// Returns `true` if no target has a disk of another set.
    fn have_their_disks(&self) -> bool {
        self.targets.iter().all(|it| it.own.is_none())
    }

    /// Clears repaired damage: the service has rewritten the chunk.
    fn forget_repaired(&mut self) {
        if !self.have_their_disks() {
            return;
        }
        for block in 0..self.script.blocks {
            if !self.silent[block as usize].is_empty()
                && !self.registers[block as usize].is_being_written()
                && self.objection(block).is_none()
            {
                self.silent[block as usize] = Targets::NONE;
            }
        }
    }

    fn take_step(&mut self, step: Step) {
        if !step.is_io() {
            self.forget_repaired();
        }
        trace!(self, "step {step:?}");
        let before = self.totals.faults;
        self.totals.faults += u64::from(!step.is_io());
        let is_taken = self.try_step(step);
        if !is_taken {
            self.totals.faults = before;
        } else if !step.is_io() {
            self.totals.count_step(step);
        }
    }

    fn try_step(&mut self, step: Step) -> bool {
        let now = self.now;
        match step {
            Step::Read { block, count } => {
                self.begin_io(Operation::Read, block, count, 0, false);
            }
            Step::Write {
                block,
                count,
                kind,
                is_durable,
            } => {
                self.begin_io(Operation::Write, block, count, kind, is_durable);
            }
            Step::Flush => {
                self.begin_io(Operation::Flush, 0, 0, 0, false);
            }
            Step::KillService { restart } => {
                let sessions: Vec<u64> = self.services.iter().map(|it| it.session).collect();
                sessions.iter().for_each(|&it| self.end_service(it, KILLED));
                self.start_service_at(now + restart);
            }
            Step::EndSession { restart } => {
                if self.service_ref(self.client).is_none() {
                    return false;
                }
                self.end_session(self.client, DRAIN_TIME);
                self.start_service_at(now + restart);
            }
            Step::EndClient { restart, is_clean } => {
                let session = self.client;
                if session == 0 {
                    return false;
                }
                self.forget_ios(session);
                if is_clean {
                    // The service may detect only later that the client has disconnected.
                    let patience = if self.rng.bool() {
                        Duration::from_micros(self.rng.u64(0..300))
                    } else {
                        DRAIN_TIME
                    };
                    self.end_session(session, patience);
                } else {
                    self.end_service(session, "its client is gone");
                }
                self.start_service_at(now + restart);
            }
            Step::SecondService => {
                if self.services.len() != 1 {
                    return false;
                }
                self.start_service_at(now);
            }
            Step::PauseService { time } => {
                let session = self.client;
                let Some(service) = self.service(session) else {
                    return false;
                };
                service.paused_until = service.paused_until.max(now + time);
            }
            Step::IsolateService { time } => {
                let session = self.client;
                let is_silent = self.silent.iter().any(|it| !it.is_empty());
                if session == 0
                    || self.services.len() != 1
                    || is_silent
                    || self.pending_damage() != 0
                {
                    return false;
                }
                let Some(service) = self.service(session) else {
                    return false;
                };
                service.cut_until = service.cut_until.max(now + time);
                if time > CONNECTION_TIMEOUT {
                    for target in 0..3 {
                        let connection = self.targets[target].connection;
                        if connection != 0 && self.targets[target].session == session {
                            self.at(
                                now + CONNECTION_TIMEOUT,
                                Scheduled::Dropped { target, connection },
                            );
                            self.break_connection(target, 3_000_000..3_100_000);
                        }
                    }
                }
                // A session that is lost with all of its targets is not restarted automatically.
                for target in 0..3 {
                    let it = &mut self.targets[target];
                    it.is_well &= time < STALL_TIMEOUT / 2;
                    it.trouble_until = it.trouble_until.max(now + time);
                }
                self.check_exposure();
            }
            Step::RebuildTarget { target, restart } => {
                let session = self.client;
                if session == 0
                    || !self.may_lose(target)
                    || self.pending_damage() != 0
                    || !self.have_their_disks()
                {
                    return false;
                }
                self.end_session(session, DRAIN_TIME);
                self.unwell(target, now);
                self.rebuild = Some(target);
                self.start_service_at(now + restart);
            }
            Step::KillTarget { target, restart } => {
                if !self.targets[target].is_up || !self.may_fail(target) {
                    return false;
                }
                self.kill_target(target, Change::None, restart);
            }
            Step::KillTargets { restart } => {
                let is_silent = self.silent.iter().any(|it| !it.is_empty());
                if !self.script.is_wild || is_silent || self.pending_damage() != 0 {
                    return false;
                }
                for target in 0..3 {
                    if self.targets[target].is_up && self.rng.bool() {
                        self.kill_target(target, Change::None, restart);
                    }
                }
            }
            Step::PowerFailure { machine, restart } => return self.fail_power(machine, restart),
            Step::PauseTarget { target, time } => {
                if !self.targets[target].is_up || time > STALL_TIMEOUT / 2 && !self.may_fail(target)
                {
                    return false;
                }
                let until = now + time;
                let paused_until = &mut self.targets[target].paused_until;
                *paused_until = until.max(*paused_until);
                if time > STALL_TIMEOUT / 2 {
                    self.unwell(target, now + time + LATE);
                }
            }
            Step::Partition { target, time } => {
                if !self.targets[target].is_up || !self.may_fail(target) {
                    return false;
                }
                let until = now + time;
                let cut_until = &mut self.targets[target].cut_until;
                *cut_until = until.max(*cut_until);
                if time > CONNECTION_TIMEOUT {
                    let connection = self.targets[target].connection;
                    self.break_connection(target, 3_000_000..3_100_000);
                    self.at(
                        now + CONNECTION_TIMEOUT,
                        Scheduled::Dropped { target, connection },
                    );
                }
                self.unwell(
                    target,
                    now + time
                        + if time > STALL_TIMEOUT / 2 {
                            LATE
                        } else {
                            Duration::ZERO
                        },
                );
            }
            Step::Corrupt {
                target,
                block,
                at,
                is_zeros,
            } => {
                if !self.may_damage(target, block) {
                    return false;
                }
                self.damage(block as usize, target);
                self.targets[target].disk.corrupt(block, |bytes| {
                    let at = usize::from(at) % CHUNK;
                    if is_zeros {
                        let sector = at / 64 * 64;
                        bytes[sector..sector + 64].fill(0);
                    } else {
                        bytes[at] ^= 1 << (at % 8);
                    }
                });
            }
            Step::Swap {
                target,
                block,
                other,
            } => {
                // A chunk of another block in place of this one.
                if block == other || !self.may_damage(target, block) {
                    return false;
                }
                self.damage(block as usize, target);
                let bytes = self.targets[target].disk.newest(other).to_vec();
                self.targets[target]
                    .disk
                    .corrupt(block, |into| into.copy_from_slice(&bytes));
            }
            Step::LoseWrite { target } => {
                if !self.may_damage_any(target) {
                    return false;
                }
                self.targets[target].loses_write = true;
            }
            Step::MisdirectWrite { target, block } => {
                if !self.may_damage_any(target) || !self.may_damage(target, block) {
                    return false;
                }
                self.targets[target].misdirects_write_to = Some(block);
            }
            Step::FailReads { target, count } => {
                if !self.may_fail(target) {
                    return false;
                }
                self.targets[target].fails_reads = count;
                self.unwell(target, now);
            }
            Step::Unreadable { target, block } => {
                if !self.may_damage(target, block) {
                    return false;
                }
                self.damage(block as usize, target);
                self.targets[target].disk.unreadable.insert(block);
            }
            Step::FailWrite { target } => {
                if !self.may_fail(target) {
                    return false;
                }
                self.targets[target].fails_write = true;
                self.unwell(target, now);
            }
            Step::FillDisk { target, time } => {
                if !self.may_fail(target) {
                    return false;
                }
                self.targets[target].full_until = now + time;
                self.unwell(target, now + time);
            }
            Step::Copy => {
                let at = self.moment();
                for (member, target) in Target::ALL.iter().zip(&mut self.targets) {
                    if target.disk.identity != FOREIGN {
                        let damaged = (0u64..).zip(&self.damaged);
                        let damaged = damaged.filter(|(_, it)| it.contains(*member));
                        target.copy = Some(Copied {
                            at,
                            damaged: damaged.map(|(block, _)| block).collect(),
                            disk: target.disk.clone(),
                        });
                    }
                }
            }
            Step::RestoreCopy { target, restart } => {
                let it = &self.targets[target];
                if it
                    .copy
                    .as_ref()
                    .is_none_or(|it| it.disk.superblock.map(|it| it.set) != self.set_id)
                    || !it.is_up
                    || it.disk.identity == FOREIGN
                    || !self.may_lose(target)
                    || self.pending_damage() != 0
                {
                    return false;
                }
                self.kill_target(target, Change::Copy, restart);
            }
            Step::ReplaceDisk { target, restart } => {
                if !self.targets[target].is_up
                    || !self.may_lose(target)
                    // The target would be started with its own disk in the meantime, and lose it when the replacement
                    // is due.
                    || self.targets[target].own.is_some()
                    || self.targets[target].disk.superblock.is_none()
                {
                    return false;
                }
                self.kill_target(target, Change::Empty, restart);
            }
            Step::ForeignDisk { target, restart } => {
                if !self.targets[target].is_up
                    || !self.may_lose(target)
                    || self.targets[target].own.is_some()
                    || self.rebuild.is_some()
                    || self.targets[target]
                        .disk
                        .superblock
                        .is_none_or(|it| it.epoch == Epoch::NONE)
                {
                    return false;
                }
                self.kill_target(target, Change::Foreign, restart);
            }
            Step::Scrub => {
                let Some(service) = self.service_ref(self.client) else {
                    return false;
                };
                service.set.scrub_now();
            }
            Step::Hold { target, time } => {
                let session = self.client;
                if !self.operate(target, Set::hold) {
                    return false;
                }
                self.at(now + time, Scheduled::Release { session, target });
            }
            Step::Rebuild { target } => return self.operate(target, Set::rebuild),
        }
        true
    }

    /// Executes an operator's command, which makes the target stale. Returns `false` if the service refuses it, or if the
    /// limits on faults exclude it.
    fn operate(
        &mut self,
        target: usize,
        command: impl FnOnce(&Set, Target) -> Result<(), Needed>,
    ) -> bool {
        if !self.may_lose(target) || self.pending_damage() != 0 || !self.have_their_disks() {
            return false;
        }
        let Some(service) = self.service_ref(self.client) else {
            return false;
        };
        if command(&service.set, Target::ALL[target]).is_err() {
            return false;
        }
        self.unwell(target, self.now);
        true
    }

    /// Returns `true` if any block may be damaged on this target by its next write.
    fn may_damage_any(&self, target: usize) -> bool {
        let member = Targets::only(Target::ALL[target]);
        (0..3).all(|other| self.targets[other].is_well && self.targets[other].is_up)
            && self
                .damaged
                .iter()
                .all(|silent| silent.minus(member).is_empty())
            && self.pending_damage() == 0
            && !self.exposed.contains(&true)
            && self.is_shown_as_healthy()
            && self.targets[target].connection != 0
    }

    /// Replaces a target's chunks by ones of later writes, with other contents.
    fn poison(&mut self, number: usize) {
        let Some(set) = self.set_id else { return };
        let Some(superblock) = self.targets[number].disk.superblock else {
            return;
        };
        let stamp = Stamp {
            epoch: superblock.epoch.number + 1,
            number: 1_000,
        };
        for stripe in 0..self.script.blocks {
            let member = Target::ALL[number];
            self.targets[number].disk.corrupt(stripe, |bytes| {
                bytes.fill(0xBB);
                chunk::seal(
                    bytes,
                    Place {
                        set,
                        stripe,
                        member,
                    },
                    stamp,
                );
            });
        }
    }

    fn fail_power(&mut self, machine: u8, restart: Duration) -> bool {
        let machines = self.script.machines;
        let hit: Vec<usize> = (0..3).filter(|&it| machines[it] == machine).collect();
        let has_service = machines[3] == machine;
        let others_are_well = (0..3).all(|it| hit.contains(&it) || self.targets[it].is_well);
        let is_silent = self.damaged.iter().any(|silent| {
            hit.iter()
                .any(|&it| !silent.minus(Targets::only(Target::ALL[it])).is_empty())
        });
        if hit.len() == 1 && !self.may_fail(hit[0]) {
            return false;
        }
        if !self.script.is_wild && hit.len() > 1 && (is_silent || self.pending_damage() != 0) {
            return false;
        }
        if self.script.is_wild && (is_silent || self.pending_damage() != 0) {
            return false;
        }
        // A copy or an empty disk in addition to a power failure exceeds the limits of SECURITY.md.
        let loses = hit.len() > 1 || !others_are_well;
        if loses && self.targets.iter().any(|it| it.disk.identity == FOREIGN) {
            return false;
        }
        if loses && hit.len() != 3 && !self.script.is_wild {
            return false;
        }
        for &target in &hit {
            self.unwell(target, self.now + restart);
            self.break_connection(target, 5..300);
            let mut rng = Rng::with_seed(self.rng.u64(..));
            let was_up = self.targets[target].is_up;
            self.targets[target].lose_power(&mut rng);
            for block in 0..self.damaged.len() {
                if self.damaged[block].contains(Target::ALL[target]) {
                    self.damage(block, target);
                }
            }
            self.check_exposure();
            if was_up {
                let delay = Duration::from_micros(self.rng.u64(0..100_000));
                let start = Scheduled::StartTarget {
                    target,
                    change: Change::None,
                };
                self.at(self.now + restart + delay, start);
            }
        }
        if loses {
            self.reach("two members lose power");
            self.lose_unflushed();
        }
        if has_service {
            let sessions: Vec<u64> = self.services.iter().map(|it| it.session).collect();
            sessions
                .iter()
                .for_each(|&it| self.end_service(it, POWER_FAILURE));
            self.start_service_at(self.now + restart);
        }
        true
    }

    // The end of a run.

    /// Ends all faults, and checks that all promises hold again.
    fn finish(&mut self) {
        if self.violation.is_some() {
            return;
        }
        self.is_ending = true;
        trace!(self, "the script ends");
        for number in 0..3 {
            let target = &mut self.targets[number];
            target.full_until = Duration::ZERO;
            (target.fails_reads, target.fails_write) = (0, false);
            (target.loses_write, target.misdirects_write_to) = (false, None);
        }
        if !self.heal() {
            return;
        }
        self.check_redundancy(false);
        self.read_all("at the end");
        // Blocks of which two members were wrong may be lost until they are rewritten.
        let lost: Vec<u64> = (0..self.script.blocks)
            .filter(|&it| self.exposed[it as usize])
            .collect();
        for block in lost {
            self.io_alone(Operation::Write, block);
        }
        self.scrub_all();
        if self.violation.is_some() {
            return;
        }
        self.update_wellness();
        self.check_redundancy(true);
        let without = self.rng.usize(0..3);
        trace!(self, "all blocks are read without target {without}");
        self.kill_target(without, Change::None, Duration::from_secs(5));
        self.run_while(Duration::from_millis(100), |_| true);
        self.read_all("without a target");
        self.targets[without].trouble_until = self.now;
        if !self.heal() {
            return;
        }
        self.check_redundancy(true);
        let session = self.client;
        self.end_session(session, DRAIN_TIME);
        let is_closed = self.run_while(HEALING_TIME, |it| !it.services.is_empty());
        if !is_closed {
            self.violate(
                Promise::Available,
                "a session without I/Os does not end".to_owned(),
            );
        }
    }

    /// Waits until the set is healthy with all targets.
    fn heal(&mut self) -> bool {
        for attempt in 0..2 {
            let is_unwell = |it: &mut Self| {
                !it.ios.is_empty()
                    || !it.is_shown_as_healthy()
                    || !it.targets.iter().all(|it| it.is_well && it.is_up)
            };
            if self.run_while(HEALING_TIME, is_unwell) {
                // Services without a client end.
                let sessions: Vec<u64> = self.services.iter().map(|it| it.session).collect();
                for session in sessions {
                    if session != self.client {
                        self.end_service(session, "it has no client");
                    }
                }
                return self.violation.is_none();
            }
            if attempt == 0 && self.needs_restart {
                self.excuse(Excuse::Restarted);
            } else {
                break;
            }
            let sessions: Vec<u64> = self.services.iter().map(|it| it.session).collect();
            sessions
                .iter()
                .for_each(|&it| self.end_service(it, "it does not heal"));
            self.start_service_at(self.now);
        }
        let state = self
            .service_ref(self.client)
            .map(|it| it.set.summary().state);
        let well: Vec<bool> = self.targets.iter().map(|it| it.is_well).collect();
        self.violate(
            Promise::Available,
            format!(
                "the set does not heal: {state:?}, targets well: {well:?}, {} I/Os",
                self.ios.len()
            ),
        );
        false
    }

    /// Executes one I/O, and waits for its result.
    fn io_alone(&mut self, operation: Operation, block: u64) {
        if self.violation.is_some() {
            return;
        }
        let count = u8::from(operation != Operation::Flush);
        let is_waiting = |it: &mut Self| it.begin_io(operation, block, count, 0, false).is_none();
        if !self.run_while(HEALING_TIME, is_waiting) {
            return self.violate(Promise::Available, "no service serves".to_owned());
        }
        self.run_while(HEALING_TIME, |it| !it.ios.is_empty());
    }

    fn read_all(&mut self, when: &str) {
        trace!(self, "all blocks are read, {when}");
        for block in 0..self.script.blocks {
            self.io_alone(Operation::Read, block);
        }
    }

    fn scrub_all(&mut self) {
        let Some(service) = self.service_ref(self.client) else {
            return;
        };
        service.set.scrub_now();
        let before = service.set.summary().scrubbed.completed;
        let is_scrubbing = |it: &mut Self| {
            it.service_ref(it.client)
                .is_none_or(|it| it.set.summary().scrubbed.completed == before)
        };
        if !self.run_while(HEALING_TIME, is_scrubbing) {
            self.violate(Promise::Available, "a scrub does not complete".to_owned());
        }
    }
}

/// Reasons for the end of a session with its process.
const KILLED: &str = "killed";
const POWER_FAILURE: &str = "power failure";
/// Reason for the end of a session that was closed cleanly.
const CLOSED: &str = "closed";
/// Identity of a disk of another set.
const FOREIGN: u32 = u32::MAX;
/// Time after which the original disk of a target is restored.
const RETURN_TIME: Duration = Duration::from_millis(10);

/// The bound of retired versions in messages of a service with this epoch.
fn retired(service: &Service, epoch: u64) -> Stamp {
    let number = service.set.versions().map_or(0, |it| it.retired_for(epoch));
    Stamp { epoch, number }
}
