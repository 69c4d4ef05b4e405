//! Tests of an engine in which each test determines when a target responds, when a worker applies a new view, and when
//! superblocks are persisted. The simulation chooses these times at random; cases for which it would need several rare
//! events are tested here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use role_formats::superblock::Superblock;

use super::{Action, Delivery, Event, Judged, Setup, Status, StripeEngine};
use crate::assembly::Found;
use crate::chunk::{Flaw, Stamp};
use crate::membership::State;
use crate::request::{Operation, Request};
use crate::set::tests::{EPOCH, first_of, found, open_set, open_set_since, persist};
use crate::set::{Candidate, Set};
use crate::stripes::StripeLocks;
use crate::{Target, Targets};

const PARKING_TIMEOUT: Duration = Duration::from_secs(4);
/// Stripe of the tests' I/Os.
const STRIPE: u64 = 5;

const A: Target = Target::Data1;
const B: Target = Target::Data2;
const C: Target = Target::DataP;

/// Stamps of the session before.
const OLD: Stamp = stamp(7);
const NEW: Stamp = stamp(8);
/// Represents a corrupt chunk.
const CORRUPT: Stamp = stamp(u64::MAX);

const fn stamp(number: u64) -> Stamp {
    Stamp {
        epoch: EPOCH.number,
        number,
    }
}

/// A request to a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asked {
    worker: usize,
    slot: u32,
    target: Target,
    stripe: u64,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    ReadBefore(Stamp),
    Write { version: Stamp, chunk: Stamp },
    Flush,
}

#[derive(Debug, Default)]
struct Memory {
    /// Chunks in the stripe buffer.
    chunks: [Option<Stamp>; 3],
    /// Stamp of the chunks to store.
    sealed: Option<Stamp>,
}

struct Bench {
    set: Arc<Set>,
    engines: Vec<StripeEngine>,
    memory: BTreeMap<(usize, u32), Memory>,
    /// Versions of each target's chunks and the stamps that they contain, in the order in which they were stored.
    stored: [BTreeMap<u64, Vec<(Stamp, Stamp)>>; 3],
    /// Requests that were not answered.
    asked: Vec<Asked>,
    /// Results of I/Os, by their lanes.
    answers: BTreeMap<u32, Status>,
    /// `true` if computations of parity are held until they are released.
    holds_parity: bool,
    held: Vec<(usize, u32)>,
    now: Duration,
}

impl Bench {
    /// A set in use, with these numbers of workers and stripes to settle.
    fn new(workers: u32, unsettled: &[u64]) -> Self {
        Self::of(workers, open_set(workers, unsettled))
    }

    fn of(workers: u32, set: Set) -> Self {
        let set = Arc::new(set);
        let locks = Arc::new(StripeLocks::with_locks(workers, 1024));
        let engine = |worker| {
            StripeEngine::new(Setup {
                worker,
                requests: 4,
                recover_every: 0,
                stores_chunks: true,
                stall_timeout: Duration::from_secs(60),
                parking_timeout: PARKING_TIMEOUT,
                set: Arc::clone(&set),
                locks: Arc::clone(&locks),
            })
        };
        Self {
            engines: (0..workers).map(engine).collect(),
            set,
            memory: BTreeMap::new(),
            stored: Default::default(),
            asked: Vec::new(),
            answers: BTreeMap::new(),
            holds_parity: false,
            held: Vec::new(),
            now: Duration::ZERO,
        }
    }

    /// As [`new`](Self::new), with these chunks of the only stripe, which has to be settled.
    fn unsettled(chunks: [Stamp; 3]) -> Self {
        Self::new(1, &[STRIPE]).with(chunks)
    }

    /// As [`unsettled`](Self::unsettled), after a session that has only settled stripes.
    fn unsettled_again(chunks: [Stamp; 3]) -> Self {
        Self::unsettled_since(first_of(EPOCH.number - 1), chunks)
    }

    /// As [`unsettled`](Self::unsettled), after a session in which writes with lower stamps were retired.
    fn unsettled_since(retired: Stamp, chunks: [Stamp; 3]) -> Self {
        Self::of(1, open_set_since(1, &[STRIPE], retired)).with(chunks)
    }

    fn with(self, chunks: [Stamp; 3]) -> Self {
        let mut bench = self;
        for (stored, chunk) in bench.stored.iter_mut().zip(chunks) {
            let versions = stored.entry(STRIPE).or_default();
            versions.push((OLD, OLD));
            if chunk != OLD {
                versions.push((chunk, chunk));
            }
        }
        bench
    }

    /// A set in use, with one worker and no stripes to settle.
    fn healthy() -> Self {
        let mut bench = Self::new(1, &[]);
        bench.finish();
        bench
    }

    /// A set that continues without [`C`].
    fn degraded() -> Self {
        let mut bench = Self::healthy();
        bench.set.detach(C, "test");
        bench.finish();
        assert_eq!(bench.set.state(), State::Degraded(C));
        bench
    }

    fn handle(&mut self, worker: usize, event: Event) {
        self.engines[worker].handle(event, self.now);
        while let Some(action) = self.engines[worker].poll_action() {
            self.execute(worker, action);
        }
    }

    fn execute(&mut self, worker: usize, action: Action) {
        let mut ask = |slot, targets: Targets, stripe, kind| {
            self.asked.extend(targets.iter().map(|target| Asked {
                worker,
                slot,
                target,
                stripe,
                kind,
            }));
            Some(slot)
        };
        let asked = match action {
            Action::ReadChunks {
                slot,
                targets,
                stripe,
            } => ask(slot, targets, stripe, Kind::Read),
            Action::ReadBefore {
                slot,
                target,
                stripe,
                stamp,
            } => ask(slot, Targets::only(target), stripe, Kind::ReadBefore(stamp)),
            Action::WriteChunks {
                slot,
                targets,
                stripe,
                stamp,
                ..
            } => {
                let memory = &self.memory[&(worker, slot)];
                let kind = Kind::Write {
                    version: stamp.expect("stored chunks"),
                    chunk: memory.sealed.expect("sealed chunks"),
                };
                ask(slot, targets, stripe, kind)
            }
            Action::Flush { slot, targets } => ask(slot, targets, 0, Kind::Flush),
            _ => None,
        };
        if let Some(slot) = asked {
            for target in Target::ALL {
                self.handle(worker, Event::ChunkRequestSent { slot, target });
            }
            return;
        }
        let status = Status::SUCCESS;
        match action {
            Action::Fetch { slot, .. } => self.handle(worker, Event::Fetched { slot, status }),
            Action::CreateParity { slot } if self.holds_parity => self.held.push((worker, slot)),
            Action::CreateParity { slot } => {
                self.handle(worker, Event::ParityCreated { slot, status });
            }
            Action::Recover { slot, .. } => self.handle(worker, Event::Recovered { slot, status }),
            Action::Judge { slot, targets, .. } => {
                let chunks = self.memory.entry((worker, slot)).or_default().chunks;
                let judged: Judged = Target::ALL.map(|target| {
                    let chunk = chunks[target.number()].filter(|_| targets.contains(target));
                    chunk.map(|stamp| match stamp {
                        CORRUPT => Err(Flaw::NoRecord),
                        stamp => Ok(stamp),
                    })
                });
                self.handle(worker, Event::Judged { slot, judged });
            }
            Action::Seal { slot, stamp, .. } => {
                self.memory.entry((worker, slot)).or_default().sealed = Some(stamp);
                self.handle(worker, Event::Sealed { slot });
            }
            Action::Deliver { slot, .. } => {
                let delivery = Delivery::Done;
                self.handle(worker, Event::Delivered { slot, delivery });
            }
            Action::Answer { slot, status } => {
                let lane = self.engines[worker].lane(slot);
                self.answers.insert(lane, status);
                self.handle(worker, Event::Answered { slot });
            }
            Action::Detach { target } => self
                .asked
                .retain(|it| it.worker != worker || it.target != target),
            _ => {}
        }
    }

    fn request(&mut self, worker: usize, lane: u32, operation: Operation, stripe: u64) {
        let request = Request {
            operation,
            first_stripe: stripe,
            blocks: u8::from(operation != Operation::Flush),
            ..Request::default()
        };
        self.handle(worker, Event::Request { lane, request });
    }

    fn read(&mut self, lane: u32) {
        self.request(0, lane, Operation::Read, STRIPE);
    }

    fn write(&mut self, lane: u32) {
        self.request(0, lane, Operation::Write, STRIPE);
    }

    fn flush(&mut self, lane: u32) {
        self.request(0, lane, Operation::Flush, 0);
    }

    /// Executes the requests for which `wanted` returns `true`, and reports success, until there are no more.
    fn answer(&mut self, wanted: impl Fn(&Asked) -> bool) {
        while let Some(place) = self.asked.iter().position(&wanted) {
            let asked = self.asked.remove(place);
            self.complete(asked, Status::SUCCESS);
        }
    }

    /// Responses of this target to all pending requests.
    fn answer_of(&mut self, target: Target) {
        self.answer(|it| it.target == target);
    }

    fn complete(&mut self, asked: Asked, status: Status) {
        let Asked {
            worker,
            slot,
            target,
            stripe,
            kind,
        } = asked;
        let versions = self.stored[target.number()].entry(stripe).or_default();
        let read = |version: Option<&(Stamp, Stamp)>| {
            Some(version.map_or(Stamp::UNWRITTEN, |(_, chunk)| *chunk))
        };
        let chunk = match kind {
            _ if !status.is_success() => None,
            Kind::Read => read(versions.last()),
            Kind::ReadBefore(stamp) => read(versions.iter().rfind(|(version, _)| *version < stamp)),
            Kind::Write { version, chunk } => {
                versions.push((version, chunk));
                None
            }
            Kind::Flush => None,
        };
        if let Some(chunk) = chunk {
            let memory = self.memory.entry((worker, slot)).or_default();
            memory.chunks[target.number()] = Some(chunk);
        }
        self.handle(
            worker,
            Event::ChunkDone {
                slot: slot.into(),
                stripe,
                target,
                status,
            },
        );
    }

    /// Stores the chunk that this target was asked to store, without reporting a result.
    fn execute_without_result(&mut self, target: Target) {
        for asked in self.asked.iter().filter(|it| it.target == target) {
            if let Kind::Write { version, chunk } = asked.kind {
                let versions = self.stored[target.number()].entry(asked.stripe);
                versions.or_default().push((version, chunk));
            }
        }
    }

    fn tick(&mut self, worker: usize, is_idle: bool) {
        self.now += Duration::from_millis(1);
        self.handle(worker, Event::Tick { is_idle });
    }

    fn tick_all(&mut self) {
        (0..self.engines.len()).for_each(|worker| self.tick(worker, true));
    }

    /// Executes all pending events, except for requests for which `is_held` returns `true`.
    fn finish_but(&mut self, is_held: impl Fn(&Asked) -> bool) {
        for _ in 0..20 {
            self.tick_all();
            self.answer(|it| !is_held(it));
            persist(&self.set);
        }
    }

    fn finish(&mut self) {
        self.finish_but(|_| false);
    }

    fn candidate(&self, target: Target) -> Candidate {
        let candidate = self.set.rejoin_candidate();
        candidate
            .filter(|it| it.target == target)
            .expect("it may rejoin")
    }

    fn rejoin(&mut self, target: Target, has_kept: bool) {
        let candidate = self.candidate(target);
        for worker in 0..self.engines.len() {
            self.handle(worker, Event::TargetAttached { target });
        }
        assert!(self.set.rejoin(candidate, has_kept));
    }

    /// Completes the held computation of parity, and stops holding further ones.
    fn release_parity(&mut self) {
        self.holds_parity = false;
        let (worker, slot) = self.held[0];
        let status = Status::SUCCESS;
        self.handle(worker, Event::ParityCreated { slot, status });
    }

    /// The I/O of lane 0 is answered when the epoch is committed, and not before.
    #[track_caller]
    fn assert_answered_once_committed(&mut self) {
        (0..3).for_each(|_| self.tick_all());
        assert_eq!(self.result(0), None);
        persist(&self.set);
        self.tick_all();
        assert_eq!(self.result(0), SUCCESS);
    }

    fn result(&self, lane: u32) -> Option<Status> {
        self.answers.get(&lane).copied()
    }

    /// Stamp of a target's chunk of the tests' stripe.
    fn chunk_of(&self, target: Target) -> Stamp {
        let versions = self.stored[target.number()].get(&STRIPE);
        let newest = versions.and_then(|it| it.last());
        newest.map_or(Stamp::UNWRITTEN, |(_, chunk)| *chunk)
    }

    fn chunks(&self) -> [Stamp; 3] {
        Target::ALL.map(|target| self.chunk_of(target))
    }

    fn retired(&self) -> u64 {
        self.set.versions().expect("stored chunks").retired()
    }

    fn impossible_events(&self) -> u64 {
        let counts = self.engines.iter();
        counts.map(|it| it.statistics().impossible_events.0).sum()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.impossible_events(), 0);
        }
    }
}

const SUCCESS: Option<Status> = Some(Status::SUCCESS);

// A target is lost, and an epoch without it has not been committed: the next session could consider the target current.

#[test]
fn write_that_a_target_failed_is_acknowledged_after_the_epoch_is_committed() {
    let mut bench = Bench::healthy();
    bench.write(0);
    bench.answer(|it| it.target != C);
    let asked = bench.asked.remove(0);
    bench.complete(asked, Status::IO_FAILED);
    bench.assert_answered_once_committed();
}

#[test]
fn write_in_flight_on_a_detached_target_is_acknowledged_after_the_epoch_is_committed() {
    let mut bench = Bench::healthy();
    bench.write(0);
    bench.answer(|it| it.target != C);
    bench.set.detach(C, "test");
    bench.assert_answered_once_committed();
}

#[test]
fn flush_without_a_target_is_acknowledged_after_the_epoch_is_committed() {
    let mut bench = Bench::healthy();
    bench.set.detach(C, "test");
    bench.tick_all();
    bench.flush(0);
    bench.answer(|_| true);
    bench.assert_answered_once_committed();
}

/// The targets' logs of the writes show which writes the detached target lacks if its machine lost power.
#[test]
fn flush_without_a_target_retires_writes_after_the_epoch_is_committed() {
    let mut bench = Bench::healthy();
    bench.write(0);
    bench.answer(|_| true);
    assert_eq!(bench.result(0), SUCCESS);
    let written = bench.chunk_of(A).number;
    bench.set.detach(C, "test");
    bench.tick_all();
    bench.flush(1);
    for _ in 0..3 {
        bench.answer(|_| true);
        bench.tick_all();
    }
    assert!(bench.retired() <= written);
    bench.finish();
    assert_eq!(bench.result(1), SUCCESS);
    assert!(bench.retired() > written);
}

/// Otherwise, a later session with the detached target and without one of the other two could return the previous
/// content of the block.
#[test]
fn block_that_is_settled_without_a_target_is_returned_after_the_epoch_is_committed() {
    let mut bench = Bench::unsettled([OLD, OLD, NEW]);
    bench.holds_parity = true;
    bench.read(0);
    bench.answer(|_| true);
    // After the decision to rewrite the block on all three targets.
    bench.set.detach(C, "test");
    bench.tick_all();
    bench.release_parity();
    for _ in 0..5 {
        bench.answer(|_| true);
        bench.tick_all();
    }
    assert!(bench.chunk_of(A) > NEW && bench.chunk_of(A) == bench.chunk_of(B));
    assert_eq!(bench.result(0), None);
    bench.finish();
    assert_eq!(bench.result(0), SUCCESS);
}

// Two targets are lost.

#[test]
fn flush_is_not_acknowledged_if_a_second_target_is_lost_before_the_epoch_is_committed() {
    let mut bench = Bench::healthy();
    bench.set.detach(C, "test");
    bench.tick_all();
    bench.flush(0);
    bench.answer(|_| true);
    bench.set.detach(B, "test");
    bench.finish();
    assert_eq!(bench.result(0), None);
    bench.rejoin(B, true);
    bench.finish();
    assert_eq!(bench.result(0), SUCCESS);
}

#[test]
fn write_that_one_target_has_stored_is_settled_before_it_is_acknowledged() {
    let mut bench = Bench::degraded();
    bench.write(0);
    bench.answer_of(A);
    bench.set.detach(B, "test");
    bench.finish();
    assert_eq!((bench.result(0), bench.set.unsettled_stripes()), (None, 1));
    let interrupted = bench.chunk_of(A);
    bench.rejoin(B, true);
    bench.read(1);
    bench.finish();
    assert_eq!([bench.result(0), bench.result(1)], [SUCCESS; 2]);
    assert_eq!(bench.set.unsettled_stripes(), 0);
    assert!(bench.chunk_of(A) > interrupted && bench.chunk_of(A) == bench.chunk_of(B));
}

/// The third target stores writes, but has missed a write of the block.
#[test]
fn write_beside_a_rebuilding_target_is_not_acknowledged_if_another_one_is_lost() {
    for is_failing in [false, true] {
        let mut bench = Bench::degraded();
        bench.rejoin(C, false);
        let is_of_client = |it: &Asked| it.slot < 4;
        // The target's rebuild does not reach the block.
        bench.finish_but(|it| !is_of_client(it));
        assert!(bench.set.missed.contains(STRIPE));
        bench.write(1);
        bench.answer(|it| is_of_client(it) && it.target != B);
        if is_failing {
            let place = bench.asked.iter().position(is_of_client);
            let asked = bench.asked.remove(place.expect("data_2 was asked"));
            bench.complete(asked, Status::IO_FAILED);
        } else {
            bench.set.detach(B, "test");
        }
        bench.finish();
        assert_eq!((bench.result(1), bench.set.unsettled_stripes()), (None, 1));
    }
}

/// The second target has rejoined before the first one has responded.
#[test]
fn write_that_a_target_has_missed_while_it_was_away_is_settled() {
    let mut bench = Bench::degraded();
    bench.write(0);
    let is_first = |it: &Asked| it.target == A && it.slot < 4;
    bench.set.detach(B, "test");
    bench.finish_but(is_first);
    bench.rejoin(B, true);
    bench.finish_but(is_first);
    assert_eq!(bench.set.state(), State::Degraded(C));
    let place = bench.asked.iter().position(is_first);
    let asked = bench.asked.remove(place.expect("data_1 has not answered"));
    bench.complete(asked, Status::SUCCESS);
    assert_eq!((bench.result(0), bench.set.unsettled_stripes()), (None, 1));
    bench.finish();
    assert_eq!(bench.result(0), SUCCESS);
    assert_eq!(bench.chunk_of(A), bench.chunk_of(B));
}

#[test]
fn write_is_not_acknowledged_if_a_second_target_is_lost_before_the_epoch_is_committed() {
    let mut bench = Bench::healthy();
    bench.write(0);
    bench.answer(|it| it.target != C);
    bench.set.detach(C, "test");
    bench.tick_all();
    bench.set.detach(B, "test");
    bench.finish();
    assert_eq!((bench.result(0), bench.set.unsettled_stripes()), (None, 1));
    bench.rejoin(B, true);
    bench.finish();
    assert_eq!(bench.result(0), SUCCESS);
}

#[test]
fn flush_that_has_waited_for_a_second_target_flushes_it() {
    let mut bench = Bench::degraded();
    bench.set.detach(B, "test");
    bench.tick_all();
    bench.flush(0);
    bench.finish();
    bench.rejoin(B, true);
    let is_flush = |it: &Asked| it.kind == Kind::Flush && it.slot < 4;
    bench.finish_but(is_flush);
    assert_eq!(bench.result(0), None);
    let asked = bench.asked.iter().filter(|it| is_flush(it));
    assert_eq!(asked.map(|it| it.target).collect::<Vec<_>>(), [A, B]);
    bench.finish();
    assert_eq!(bench.result(0), SUCCESS);
}

#[test]
fn read_of_an_unsettled_block_waits_for_a_second_target() {
    let mut bench = Bench::unsettled([OLD, OLD, OLD]);
    bench.set.detach(C, "test");
    bench.tick_all();
    persist(&bench.set);
    bench.set.detach(B, "test");
    bench.read(0);
    bench.finish();
    assert_eq!((bench.result(0), bench.set.unsettled_stripes()), (None, 1));
    bench.rejoin(B, true);
    bench.finish();
    assert_eq!(bench.result(0), SUCCESS);
}

#[test]
fn read_that_waits_for_two_targets_fails_after_the_timeout() {
    let mut bench = Bench::degraded();
    bench.set.detach(B, "test");
    bench.tick_all();
    bench.read(0);
    bench.now += PARKING_TIMEOUT;
    assert_eq!(bench.result(0), None);
    bench.tick_all();
    assert_eq!(bench.result(0), Some(Status::IO_FAILED));
}

// Detection of whether a detached target has kept its data.

/// Only a new session can determine the remaining data of the set.
#[test]
fn session_does_not_go_on_with_a_needed_target_that_has_lost_its_data() {
    let mut bench = Bench::degraded();
    bench.write(0);
    bench.finish();
    let (last, superblock) = (bench.chunk_of(B), bench.set.superblock_of(B));
    let found = Found::Superblock(superblock.expect("a superblock"));
    bench.set.detach(B, "test");
    bench.finish();
    assert_eq!(bench.set.admit(B, found, true, last), Ok(true));
    assert!(bench.set.may_continue());
    let stale = bench.set.admit(B, found, true, Stamp::UNWRITTEN);
    assert!(stale.is_err() && !bench.set.may_continue());
}

#[test]
fn target_with_a_copy_from_within_the_session_has_not_kept_its_data() {
    let mut bench = Bench::healthy();
    bench.write(0);
    bench.finish();
    let last = bench.chunk_of(C);
    let superblock = bench.set.superblock_of(C).expect("a superblock");
    bench.set.detach(C, "test");
    bench.finish();
    let admit = |superblock: Superblock, last| {
        let found = Found::Superblock(superblock);
        bench.set.admit(C, found, true, last)
    };
    assert_eq!(admit(superblock, last), Ok(true));
    assert_eq!(admit(superblock, Stamp::UNWRITTEN), Ok(false));
    assert_eq!(admit(found(C, EPOCH), last), Ok(false));
}

/// They could be mistaken for results of later requests to the same target.
#[test]
fn target_rejoins_after_all_results_from_before_were_reported() {
    let mut bench = Bench::healthy();
    bench.set.detach(C, "test");
    persist(&bench.set);
    (0..3).for_each(|_| bench.tick(0, false));
    assert_eq!(bench.set.rejoin_candidate(), None);
    bench.tick(0, true);
    let _ = bench.candidate(C);
}

/// A worker that had attached the target has detached it again, together with the other target.
#[test]
fn target_does_not_rejoin_if_another_one_is_detached_while_workers_attach_it() {
    let mut bench = Bench::new(2, &[]);
    bench.finish();
    bench.set.detach(C, "test");
    bench.finish();
    bench.set.detach(B, "test");
    bench.finish();
    let candidate = bench.candidate(B);
    bench.handle(0, Event::TargetAttached { target: B });
    bench.set.detach(A, "test");
    bench.tick_all();
    bench.handle(1, Event::TargetAttached { target: B });
    assert!(!bench.set.rejoin(candidate, true));
    assert!(bench.engines[0].is_detached(B));
    bench.finish();
    bench.rejoin(A, true);
    bench.finish();
    bench.rejoin(B, true);
    bench.request(0, 0, Operation::Write, STRIPE);
    bench.request(1, 1, Operation::Write, STRIPE);
    bench.finish();
    assert_eq!((bench.result(0), bench.result(1)), (SUCCESS, SUCCESS));
}

// Settling.

#[test]
fn unsettled_chunks_are_stored_again_though_they_are_equal() {
    let mut bench = Bench::unsettled([OLD; 3]);
    bench.read(0);
    bench.finish();
    assert_eq!(bench.result(0), SUCCESS);
    let chunks = bench.chunks();
    assert!(chunks[0] > NEW, "{chunks:?}");
    assert_eq!(chunks, [chunks[0]; 3]);
}

/// A service that is killed repeatedly while it settles the same stripes would use up the slots for versions.
#[test]
fn chunks_that_an_interrupted_session_settled_are_not_stored_again() {
    let mut bench = Bench::unsettled_again([OLD; 3]);
    bench.read(0);
    bench.finish();
    assert_eq!(bench.result(0), SUCCESS);
    assert_eq!(bench.chunks(), [OLD; 3]);
    assert!(bench.set.unsettled.is_empty());
    // Also without one target, which is then rebuilt.
    let mut bench = Bench::unsettled_again([OLD, OLD, NEW]);
    bench.set.detach(C, "test");
    bench.finish();
    assert_eq!(bench.chunks(), [OLD, OLD, NEW]);
    assert!(bench.set.unsettled.is_empty() && bench.set.missed.contains(STRIPE));
    bench.rejoin(C, true);
    bench.finish();
    assert_eq!(bench.chunks(), [OLD; 3]);
    // Unless one of the chunks was not stored.
    let mut bench = Bench::unsettled_again([OLD, NEW, OLD]);
    bench.read(0);
    bench.finish();
    assert_eq!(bench.result(0), SUCCESS);
    assert!(bench.chunk_of(C) > NEW);
}

#[test]
fn interrupted_write_is_older_than_the_chunks_that_undo_it() {
    for chunks in [[NEW, OLD, OLD], [OLD, NEW, OLD], [OLD, OLD, NEW]] {
        let mut bench = Bench::unsettled(chunks);
        bench.read(0);
        bench.finish();
        assert_eq!(bench.result(0), SUCCESS);
        let chunks = bench.chunks();
        assert!(chunks[0] > NEW, "{chunks:?}");
        assert_eq!(chunks, [chunks[0]; 3]);
    }
}

/// Otherwise, the block could not be read after the target has rejoined: its chunk would be newer than those of the
/// others, and the stripe is settled.
#[test]
fn block_that_is_settled_without_a_target_is_rebuilt_when_it_is_back() {
    let mut bench = Bench::unsettled([OLD, OLD, NEW]);
    bench.set.detach(C, "test");
    bench.read(0);
    bench.finish();
    assert_eq!(bench.result(0), SUCCESS);
    assert!(bench.set.missed.contains(STRIPE));
    assert_eq!(bench.chunk_of(C), NEW);
    bench.rejoin(C, true);
    bench.finish();
    assert_eq!(bench.set.state(), State::Healthy);
    let chunks = bench.chunks();
    assert_eq!(chunks, [chunks[0]; 3]);
    bench.read(1);
    bench.finish();
    assert_eq!(bench.result(1), SUCCESS);
}

/// A target that missed a write has the chunks of the previous write, like a member that lost the write: they must not
/// be combined.
#[test]
fn chunk_that_a_rebuilt_target_missed_never_counts() {
    let mut bench = Bench::degraded();
    bench.write(0);
    bench.finish();
    let new = bench.chunk_of(B);
    for member in [A, C] {
        let versions = bench.stored[member.number()].entry(STRIPE).or_default();
        *versions = vec![(OLD, OLD)];
    }
    bench.rejoin(C, true);
    bench.finish();
    assert_eq!(bench.set.state(), State::Healthy);
    assert_eq!(bench.chunks(), [OLD, new, Stamp::lost(C)]);
    bench.read(1);
    bench.finish();
    assert_eq!(bench.result(1), Some(Status::IO_FAILED));
}

/// A target that has no older version may respond with its current one.
#[test]
fn search_for_an_older_version_ends() {
    let mut bench = Bench::unsettled([OLD, NEW, stamp(9)]);
    bench.read(0);
    for _ in 0..100 {
        let Some(asked) = bench.asked.pop() else {
            break;
        };
        let kind = match asked.kind {
            Kind::ReadBefore(_) => Kind::Read,
            other => other,
        };
        bench.complete(Asked { kind, ..asked }, Status::SUCCESS);
    }
    assert_eq!(bench.result(0), Some(Status::IO_FAILED));
}

/// Two chunks are temporarily unreadable, and their contents may undo the write.
#[test]
fn stripe_with_unreadable_chunks_stays_unsettled() {
    let mut bench = Bench::unsettled([NEW, OLD, OLD]);
    bench.tick_all();
    for _ in 0..20 {
        let Some(asked) = bench.asked.pop() else {
            break;
        };
        let status = if asked.target == A {
            Status::SUCCESS
        } else {
            Status::IO_FAILED
        };
        bench.complete(asked, status);
    }
    assert_eq!(bench.set.unsettled_stripes(), 1);
    bench.read(0);
    (0..10).for_each(|_| bench.finish());
    assert_eq!(
        (bench.result(0), bench.set.unsettled_stripes()),
        (SUCCESS, 0)
    );
    let chunks = bench.chunks();
    assert_eq!(chunks, [chunks[0]; 3]);
}

/// Two members have lost a flushed write: the read must fail, and must not return the previous content.
#[test]
fn write_that_was_retired_is_not_undone_after_an_unclean_shutdown() {
    for (retired, expected) in [(stamp(9), Some(Status::IO_FAILED)), (NEW, SUCCESS)] {
        let mut bench = Bench::unsettled_since(retired, [OLD, NEW, OLD]);
        bench.read(0);
        bench.finish();
        assert_eq!(bench.result(0), expected);
        // With one target offline, the target that has the write also has the previous version.
        let mut bench = Bench::unsettled_since(retired, [OLD, NEW, OLD]);
        bench.set.detach(C, "test");
        bench.finish();
        bench.read(0);
        bench.finish();
        assert_eq!(bench.result(0), expected);
    }
}

/// One member has lost the previous write, another one is offline, and only the last one stores the next write.
#[test]
fn write_before_an_interrupted_one_of_the_session_is_not_undone() {
    let mut bench = Bench::healthy();
    bench.write(0);
    bench.answer(|_| true);
    assert_eq!(bench.result(0), SUCCESS);
    let before = bench.chunk_of(A);
    bench.stored[A.number()].clear();
    bench.set.detach(C, "test");
    bench.finish();
    bench.write(1);
    bench.answer(|it| it.target == B);
    bench.set.detach(A, "test");
    bench.finish();
    bench.rejoin(A, true);
    bench.read(2);
    bench.finish();
    assert_eq!(bench.result(2), Some(Status::IO_FAILED));
    assert!(bench.chunk_of(B) > before);
}

/// A target that was missing only at the start of a session has the last write, which another target has lost.
#[test]
fn rebuilt_target_with_the_last_write_repairs_the_one_that_lost_it() {
    let mut bench = Bench::degraded();
    bench.set.missed.insert(STRIPE);
    for (member, versions) in [
        (A, vec![(OLD, OLD)]),
        (B, vec![(OLD, OLD), (NEW, NEW)]),
        (C, vec![(OLD, OLD), (NEW, NEW)]),
    ] {
        bench.stored[member.number()].insert(STRIPE, versions);
    }
    bench.rejoin(C, true);
    bench.finish();
    assert_eq!(bench.set.state(), State::Healthy);
    assert_eq!(bench.chunks(), [NEW; 3]);
    bench.read(1);
    bench.finish();
    assert_eq!(bench.result(1), SUCCESS);
}

/// Before an unclean shutdown, reading this block failed; after it, the content from before the lost write must not be
/// returned.
#[test]
fn lost_block_is_not_undone_after_an_unclean_shutdown() {
    let mut bench = Bench::unsettled([OLD, NEW, OLD]);
    let versions = bench.stored[C.number()].entry(STRIPE).or_default();
    versions.push((NEW, Stamp::lost(C)));
    bench.read(0);
    bench.finish();
    assert_eq!(bench.result(0), Some(Status::IO_FAILED));
    assert_eq!(bench.chunks(), [OLD, NEW, Stamp::lost(C)]);
}

/// Placeholders for lost chunks are never combined, regardless of which targets are rebuilt.
#[test]
fn lost_block_stays_lost_when_all_targets_are_rebuilt() {
    let mut bench = Bench::healthy();
    for (member, stamp) in [(A, OLD), (B, NEW), (C, Stamp::lost(C))] {
        bench.stored[member.number()].insert(STRIPE, vec![(stamp, stamp)]);
    }
    for (lane, target) in [A, B].into_iter().enumerate() {
        bench.set.detach(target, "test");
        bench.finish();
        bench.rejoin(target, false);
        bench.finish();
        assert_eq!(bench.set.state(), State::Healthy);
        assert_eq!(bench.chunk_of(target), Stamp::lost(target));
        bench.read(lane as u32);
        bench.finish();
        assert_eq!(bench.result(lane as u32), Some(Status::IO_FAILED));
    }
    assert_eq!(bench.chunks(), Target::ALL.map(Stamp::lost));
}

/// A target that was missing only at the start of a session has the chunk that is needed in addition to a corrupt one.
#[test]
fn chunk_of_a_rebuilt_target_counts_beside_a_corrupt_one() {
    let mut bench = Bench::degraded();
    bench.set.missed.insert(STRIPE);
    for member in [A, C] {
        bench.stored[member.number()].insert(STRIPE, vec![(OLD, OLD)]);
    }
    bench.stored[B.number()].insert(STRIPE, vec![(OLD, CORRUPT)]);
    bench.rejoin(C, true);
    bench.finish();
    assert_eq!(bench.set.state(), State::Healthy);
    bench.read(1);
    bench.finish();
    assert_eq!(bench.result(1), SUCCESS);
    assert_eq!(bench.chunks(), [OLD; 3]);
}

/// Two workers that settle the same stripe would store chunks with different stamps, in any order.
#[test]
fn stripe_is_settled_by_one_read_at_a_time() {
    let mut bench = Bench::unsettled([OLD; 3]);
    bench.read(0);
    bench.read(1);
    let slots: Vec<u32> = bench.asked.iter().map(|it| it.slot).collect();
    assert_eq!(slots, [slots[0]; 3]);
    bench.finish();
    assert_eq!([bench.result(0), bench.result(1)], [SUCCESS; 2]);
}

#[test]
fn read_that_waited_for_a_write_that_was_interrupted_settles_the_stripe() {
    let mut bench = Bench::new(2, &[]);
    bench.finish();
    bench.set.detach(C, "test");
    bench.finish();
    bench.write(0);
    bench.request(1, 1, Operation::Read, STRIPE);
    bench.answer_of(A);
    // The result of the write is lost.
    bench.execute_without_result(B);
    bench.set.detach(B, "test");
    // Worker 1 continues when the write has unlocked the stripe and data_2 has rejoined.
    (0..2).for_each(|_| bench.tick(1, true));
    (0..2).for_each(|_| bench.tick(0, true));
    assert_eq!(bench.set.unsettled_stripes(), 1);
    let interrupted = bench.chunk_of(A);
    assert_eq!(bench.chunk_of(B), interrupted);
    bench.rejoin(B, true);
    bench.tick(1, true);
    bench.answer(|it| it.worker == 1);
    assert_eq!(bench.result(1), SUCCESS);
    assert!(bench.chunk_of(A) > interrupted && bench.chunk_of(A) == bench.chunk_of(B));
    bench.finish();
    assert_eq!(bench.result(0), SUCCESS);
}

/// The previous version is available, but the write was acknowledged.
#[test]
fn write_that_a_target_lost_is_an_error_beside_an_offline_target() {
    let mut bench = Bench::new(1, &[]);
    for lane in 0..2 {
        bench.finish();
        bench.write(lane);
    }
    bench.finish();
    let versions = bench.stored[B.number()].get_mut(&STRIPE);
    versions.expect("data_2 has stored two versions").pop();
    bench.set.detach(C, "test");
    bench.finish();
    bench.read(2);
    bench.finish();
    assert_eq!(bench.result(2), Some(Status::IO_FAILED));
}

#[test]
fn each_block_of_a_read_is_settled() {
    let mut bench = Bench::new(1, &[]);
    let blocks = [STRIPE, STRIPE + 1];
    for lane in 0..2 {
        for stripe in blocks {
            bench.finish();
            bench.request(0, lane, Operation::Write, stripe);
        }
    }
    bench.finish();
    for stripe in blocks {
        let versions = bench.stored[B.number()].get_mut(&stripe);
        versions.expect("data_2 has stored two versions").pop();
    }
    let request = Request {
        operation: Operation::Read,
        first_stripe: STRIPE,
        blocks: 2,
        ..Request::default()
    };
    bench.handle(0, Event::Request { lane: 2, request });
    bench.finish();
    assert_eq!(bench.result(2), SUCCESS);
    for stripe in blocks {
        let newest = bench.stored.each_ref().map(|it| it[&stripe].last());
        assert_eq!(newest[0].map(|it| it.1), newest[1].map(|it| it.1));
    }
}

// Numbers of writes, and their retirement.

#[test]
fn nothing_is_retired_while_a_stripe_is_unsettled() {
    let mut bench = Bench::unsettled([OLD, OLD, NEW]);
    bench.flush(0);
    bench.answer(|_| true);
    assert_eq!((bench.result(0), bench.retired()), (SUCCESS, 0));
    bench.finish();
    assert_eq!(bench.set.unsettled_stripes(), 0);
    bench.flush(1);
    bench.finish();
    assert!(bench.retired() > 0);
}

#[test]
fn write_that_completes_during_a_flush_is_not_retired_by_it() {
    let mut bench = Bench::healthy();
    bench.flush(0);
    bench.write(1);
    bench.answer(|it| it.kind != Kind::Flush);
    assert_eq!(bench.result(1), SUCCESS);
    bench.answer(|_| true);
    assert_eq!(bench.result(0), SUCCESS);
    assert!(bench.retired() <= bench.chunk_of(A).number);
}

#[test]
fn write_takes_no_number_while_a_stripe_is_unsettled() {
    let mut bench = Bench::healthy();
    bench.holds_parity = true;
    bench.write(0);
    bench.set.unsettle(STRIPE + 1, None);
    bench.release_parity();
    assert!(bench.asked.is_empty(), "{:?}", bench.asked);
    bench.finish();
    assert_eq!(bench.result(0), SUCCESS);
    assert!(
        bench.chunk_of(A)
            > Stamp {
                epoch: EPOCH.number + 1,
                number: 2
            }
    );
}

#[test]
fn flush_covers_a_target_that_was_rebuilt_meanwhile() {
    let mut bench = Bench::degraded();
    bench.write(0);
    bench.finish();
    bench.flush(1);
    let flush: Vec<Asked> = bench.asked.clone();
    let is_held = |it: &Asked| flush.contains(it);
    bench.finish_but(is_held);
    bench.rejoin(C, true);
    bench.finish_but(is_held);
    assert_eq!(bench.set.state(), State::Healthy);
    bench.answer(is_held);
    assert_eq!(bench.result(1), None);
    assert!(bench.asked.iter().any(|it| it.target == C));
    bench.finish();
    assert_eq!(bench.result(1), SUCCESS);
}

#[test]
fn scrub_that_a_lost_target_has_interrupted_completes_when_it_is_back() {
    let mut bench = Bench::healthy();
    bench.set.scrub_now();
    bench.tick_all();
    assert!(!bench.asked.is_empty());
    bench.set.detach(C, "test");
    bench.finish();
    assert_eq!(bench.set.summary().scrubbed.completed, 0);
    bench.rejoin(C, true);
    bench.finish();
    assert_eq!(bench.set.summary().scrubbed.completed, 1);
}

// The end of a session.

#[test]
fn stores_in_flight_at_the_end_leave_their_stripes_unsettled() {
    let mut bench = Bench::healthy();
    bench.write(0);
    bench.answer_of(A);
    bench.read(1);
    bench.engines[0].abandon_stores();
    assert_eq!(bench.set.unsettled_stripes(), 1);
    assert!(bench.set.unsettled.contains(STRIPE));
}
