//! A simulated process of the service: the real engines and set of one session, with a driver that executes their actions on bytes, and the
//! real exchange of superblocks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use role_formats::superblock::SetId;
use role_formats::superblocks::Superblocks;

use super::Script;
use super::oracle::{CHUNK, Code, LOGICAL, PAYLOAD};
use super::target::Bytes;
use crate::assembly::Assembly;
use crate::chunk::{self, Place, Stamp};
use crate::engine::{self, Judged, StripeEngine};
use crate::membership::State;
use crate::request::{Operation, Request};
use crate::rests::RejoinRests;
use crate::set::{Candidate, ScrubPlan, Set, Unfinished};
use crate::stripes::{StripeBitmap, StripeLocks};
use crate::{Target, Targets};

/// Maximum number of requests in flight per worker.
pub(super) const REQUESTS: u32 = 6;
/// Time without an answer after which a target is unresponsive.
pub(super) const STALL_TIMEOUT: Duration = Duration::from_millis(1500);
/// Time that I/Os wait for two current targets.
pub(super) const PARKING_TIMEOUT: Duration = Duration::from_secs(4);

/// Memory of a slot.
#[derive(Clone)]
pub(super) struct SlotMemory {
    /// The stripe buffer, which targets can access.
    pub(super) chunks: [Bytes; 3],
    /// Payloads, which targets cannot access.
    payloads: [[u8; PAYLOAD]; 3],
}

/// A worker: a real engine, and its memory.
pub(super) struct Worker {
    pub(super) engine: StripeEngine,
    pub(super) slots: Vec<SlotMemory>,
    /// Number of the connection to each target; 0 for none.
    pub(super) connections: [u64; 3],
    /// Posted receives without a message.
    pub(super) free_lanes: Vec<u32>,
    /// Number of completions that have not been reaped yet.
    pub(super) unreaped: u32,
    /// Time of the last event other than a tick.
    pub(super) last_event: Duration,
}

/// Condition that the control thread of a session waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The targets persist superblocks that mark the set as in use.
    Opening,
    Serving,
    /// Background work on stripes is being completed, and no more is started.
    Quiescing,
    /// The targets persist superblocks that mark the set as clean.
    Closing,
}

/// An attempt of a target to rejoin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    pub(super) number: u64,
    pub(super) candidate: Candidate,
    pub(super) connection: u64,
    pub(super) has_kept: bool,
    /// Number of workers that have not attached the target yet.
    pub(super) left: u32,
    /// Identity of the target's storage when the connection was made.
    pub(super) identity: (u32, u32),
}

impl Attempt {
    /// Number of the target.
    pub(super) fn target(&self) -> usize {
        self.candidate.target.number()
    }
}

pub(super) struct Service {
    pub(super) session: u64,
    pub(super) workers: Vec<Worker>,
    pub(super) set: Arc<Set>,
    set_id: SetId,
    pub(super) phase: Phase,
    /// Time of the service's own clock at which its workers are stopped, if they have not become idle by then.
    pub(super) stops_at: Duration,
    /// `true` once its workers were stopped.
    pub(super) is_stopped: bool,
    /// Logical time at which the workers were stopped.
    pub(super) stopped_at: u64,
    /// The service's own time at the beginning of the phase.
    pub(super) phase_since: Duration,
    pub(super) superblocks: Superblocks,
    /// Control connection of each target; 0 for none.
    pub(super) connections: [u64; 3],
    /// Identities of the targets' storages.
    pub(super) identities: [(u32, u32); 3],
    pub(super) state: State,
    pub(super) attempt: Option<Attempt>,
    /// Earliest time of the next attempt.
    pub(super) rejoins_at: Duration,
    pub(super) rests: RejoinRests,
    /// The process is not scheduled until then.
    pub(super) paused_until: Duration,
    /// Until this time, no messages pass between the service and the targets.
    pub(super) cut_until: Duration,
    /// Time for which the process was scheduled.
    pub(super) own_time: Duration,
    pub(super) last_tick: Duration,
    /// Start time, for the timeouts of superblocks.
    began: Instant,
    code: Code,
}

impl Service {
    pub(super) fn new(
        session: u64,
        script: &Script,
        assembly: Assembly,
        unfinished: Option<Unfinished>,
        plan: ScrubPlan,
        connections: [u64; 3],
        began: Instant,
    ) -> Self {
        let set_id = assembly
            .membership
            .as_ref()
            .map_or(SetId::NONE, |it| it.set());
        let set = Set::new(
            StripeBitmap::with_bits(script.blocks, script.bits()),
            script.workers,
            assembly,
            unfinished,
            plan,
            script.slots,
            || (),
        );
        let set = Arc::new(set);
        let locks = Arc::new(StripeLocks::with_locks(script.workers, script.locks()));
        let worker = |worker| {
            let setup = engine::Setup {
                worker,
                requests: REQUESTS,
                recover_every: script.recover_every,
                stores_chunks: true,
                stall_timeout: STALL_TIMEOUT,
                parking_timeout: PARKING_TIMEOUT,
                set: Arc::clone(&set),
                locks: Arc::clone(&locks),
            };
            let engine = StripeEngine::new(setup);
            let memory = SlotMemory {
                chunks: [[0xEE; CHUNK]; 3],
                payloads: [[0xEE; PAYLOAD]; 3],
            };
            Worker {
                slots: vec![memory; engine.slots()],
                engine,
                connections,
                free_lanes: (0..REQUESTS).collect(),
                unreaped: 0,
                last_event: Duration::ZERO,
            }
        };
        let workers = (0..script.workers).map(worker).collect();
        Self {
            session,
            workers,
            state: set.state(),
            set,
            set_id,
            phase: Phase::Opening,
            stops_at: Duration::ZERO,
            is_stopped: false,
            stopped_at: 0,
            phase_since: Duration::ZERO,
            superblocks: Superblocks::new(3, STALL_TIMEOUT),
            connections,
            identities: [(0, 0); 3],
            attempt: None,
            rejoins_at: Duration::ZERO,
            rests: RejoinRests::default(),
            paused_until: Duration::ZERO,
            cut_until: Duration::ZERO,
            own_time: Duration::ZERO,
            last_tick: Duration::ZERO,
            began,
            code: Code::new(script.is_cauchy),
        }
    }

    /// The current time of the process, for timeouts.
    pub(super) fn instant(&self) -> Instant {
        self.began + self.own_time
    }

    fn memory(&mut self, worker: u32, slot: u32) -> &mut SlotMemory {
        &mut self.workers[worker as usize].slots[slot as usize]
    }

    pub(super) fn fetch(&mut self, worker: u32, slot: u32, block: &[u8; LOGICAL]) {
        let memory = self.memory(worker, slot);
        let (first, second) = block.split_at(PAYLOAD);
        memory.payloads[0].copy_from_slice(first);
        memory.payloads[1].copy_from_slice(second);
    }

    pub(super) fn create_parity(&mut self, worker: u32, slot: u32) {
        let Self { workers, code, .. } = self;
        let memory = &mut workers[worker as usize].slots[slot as usize];
        let [first, second, parity] = &mut memory.payloads;
        code.parity([first, second], parity);
    }

    pub(super) fn recover(&mut self, worker: u32, slot: u32, target: Target) {
        let Self { workers, code, .. } = self;
        let memory = &mut workers[worker as usize].slots[slot as usize];
        let [first, second, parity] = &mut memory.payloads;
        match target {
            Target::Data1 => code.recover(0, second, parity, first),
            _ => code.recover(1, first, parity, second),
        }
    }

    pub(super) fn judge(
        &mut self,
        worker: u32,
        slot: u32,
        stripe: u64,
        targets: Targets,
    ) -> Judged {
        let set = self.set_id;
        let memory = self.memory(worker, slot);
        let mut judged = [None; 3];
        for member in targets.iter() {
            let number = member.number();
            let bytes = memory.chunks[number];
            let judgement = chunk::judge(
                &bytes,
                Place {
                    set,
                    stripe,
                    member,
                },
            );
            if judgement.is_ok() {
                let range = chunk::payload_range(member, CHUNK);
                memory.payloads[number].copy_from_slice(&bytes[range]);
            }
            judged[number] = Some(judgement);
        }
        judged
    }

    pub(super) fn seal(
        &mut self,
        worker: u32,
        slot: u32,
        stripe: u64,
        targets: Targets,
        stamp: Stamp,
    ) {
        let set = self.set_id;
        let memory = self.memory(worker, slot);
        for member in targets.iter() {
            let number = member.number();
            let chunk = &mut memory.chunks[number];
            if stamp == Stamp::UNWRITTEN {
                chunk.fill(0);
                continue;
            }
            chunk[chunk::payload_range(member, CHUNK)].copy_from_slice(&memory.payloads[number]);
            chunk::seal(
                chunk,
                Place {
                    set,
                    stripe,
                    member,
                },
                stamp,
            );
        }
    }

    pub(super) fn deliver(&mut self, worker: u32, slot: u32, into: &mut [u8; LOGICAL]) {
        let memory = self.memory(worker, slot);
        into[..PAYLOAD].copy_from_slice(&memory.payloads[0]);
        into[PAYLOAD..].copy_from_slice(&memory.payloads[1]);
    }

    /// Ends the runs of the workers, which closes their connections. I/Os in flight are not answered.
    pub(super) fn stop(&mut self, moment: u64) {
        self.is_stopped = true;
        self.stopped_at = moment;
        for worker in &mut self.workers {
            worker.engine.abandon_stores();
            worker.connections = [0; 3];
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.workers.iter().all(|it| it.engine.in_flight() == 0)
    }

    pub(super) fn impossible_events(&self) -> u64 {
        let counts = self
            .workers
            .iter()
            .map(|it| it.engine.statistics().impossible_events.0);
        counts.sum()
    }
}

/// Creates the request of an I/O.
pub(super) fn request(
    operation: Operation,
    is_durable: bool,
    block: u64,
    count: u8,
    io: u64,
) -> Request {
    Request {
        correlation_id: 0,
        is_durable,
        operation,
        first_stripe: block,
        blocks: count,
        requester_offset: 0,
        user_data: io,
        size: u32::from(count) * LOGICAL as u32,
        storage_offset: block * LOGICAL as u64,
    }
}
