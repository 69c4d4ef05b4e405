//! The state of a set, shared by the control thread and all workers of a session: current targets, stripes to process, superblocks to
//! persist.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use role_common::superblock::{Epoch, Superblock};
use serde::Serialize;

use super::assembly::{Assembly, Found};
use super::membership::{Membership, Redundancy, State, View};
use super::stripes::{Next, Pass, StripeBitmap};
use crate::Target;

/// Time before stripes that could not be rebuilt or verified are retried.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Maximum number of stripes queued for repair; others are found again by the next read or scrub.
const MAX_REPAIRS: usize = 1024;

/// Number of rewritten chunks at which a target is reported as failing; reported again whenever the number has doubled.
const FAILING: u64 = 8;

/// Maximum time that a scrub may catch up on at once if no worker has asked for work meanwhile.
const SCRUB_BURST: Duration = Duration::from_millis(20);

/// Schedule and rate of scrubs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubPlan {
    /// Time of the next scrub; `None` for never.
    pub next: Option<Duration>,
    /// Time between two scrubs; `None` for no further one.
    pub every: Option<Duration>,
    /// Minimum time between two stripes, over all workers.
    pub interval: Duration,
    /// First stripe of the next scrub, so that it continues an interrupted one.
    pub cursor: u64,
    /// `true` if blocks are given checksums that are bound to their location.
    pub converts: bool,
}

/// Reason for work on a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// This target has missed its chunk.
    Rebuild(Target),
    /// The chunks may belong to two different writes, after an unclean shutdown.
    Resync,
    /// A read has found a corrupt chunk.
    Repair,
    /// Periodic verification.
    Scrub,
}

/// A stripe to process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    pub purpose: Purpose,
    pub stripe: u64,
    /// Generation of the view that the work belongs to: an outcome under a later view is ignored.
    generation: u32,
}

/// Outcome of work on a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// No result: the stripe has to be processed again.
    Retry,
    /// The chunks are consistent.
    Fits,
    /// The chunk of this target was rewritten.
    Rewritten(Target),
    /// As `Rewritten`, but the checksum of the block is not bound to its location yet.
    Unconverted(Target),
    /// As `Rewritten`, although the chunks do not form a valid block, or the block could not be verified.
    Unverified(Target),
    /// The block was given a checksum that is bound to its location.
    Converted,
    /// No two chunks form a valid block.
    Unreadable,
    /// The block has no checksum, and two chunks alone do not prove that they belong to the same write. The stripe is left unchanged, and
    /// retried later.
    Undecided,
}

/// The shared state of a set.
pub struct Set {
    /// Stripes that a target has missed.
    pub(super) missed: StripeBitmap,
    /// Stripes whose chunks may be inconsistent.
    pub(super) unverified: StripeBitmap,
    /// `true` if every block has a checksum: a trailer of 0 is corruption.
    has_checksums: AtomicBool,
    /// `true` if the superblocks record which targets are current: degraded writes may be acknowledged.
    is_committed: AtomicBool,
    /// [`View`], encoded as a word.
    view: AtomicU32,
    /// `true` if there may be work on stripes now.
    has_work: AtomicBool,
    /// Time in microseconds from which there may be work on stripes although `has_work` is `false`.
    work_at: AtomicU64,
    /// Generation of the last view applied by each worker.
    acted_on: Box<[AtomicU32]>,
    inner: Mutex<Inner>,
    stripes: u64,
    converts: bool,
    /// Wakes the control thread.
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug)]
struct Inner {
    redundancy: Redundancy,
    membership: Option<Membership>,
    is_concluding: bool,
    /// `true` if no more background work is started.
    is_quiesced: bool,
    /// Number of stripes being processed.
    at_work: u64,
    /// The target that misses acknowledged writes, from its detachment to the end of its rebuild.
    stale: Option<Target>,
    /// The epoch on the disk of the target that was detached last.
    departed: Option<Epoch>,
    running: Option<Running>,
    repairs: VecDeque<u64>,
    scrub: Option<Scrub>,
    plan: ScrubPlan,
    counts: Counts,
}

/// A rebuild or resync.
#[derive(Debug)]
struct Running {
    pass: Pass,
    /// `true` if the target is rebuilt completely.
    is_of_all: bool,
    began: Option<Duration>,
    /// Earliest start of the next pass.
    pause: Option<Duration>,
    /// Progress that was reported last, in tenths.
    reported: u64,
}

#[derive(Debug)]
struct Scrub {
    cursor: u64,
    /// Stripes being scrubbed.
    in_flight: Vec<u64>,
    done: u64,
    failed: u64,
    unreadable: u64,
    is_paced: bool,
    began: Option<Duration>,
    reported: u64,
}

/// Redundancy counts of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
struct Counts {
    lost: [u64; 3],
    stalled: u64,
    rebuilt: u64,
    /// Number of failed attempts to rebuild a stripe because its block has no checksum.
    undecided: u64,
    verified: Verified,
    repaired: [u64; 3],
    scrub: Scrubbed,
}

/// Numbers of stripes verified after an unclean shutdown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// The three chunks were consistent.
    pub fitting: u64,
    /// One chunk was rewritten.
    pub repaired: u64,
    /// No two chunks form a valid block.
    pub unreadable: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Scrubbed {
    pub completed: u64,
    /// Number of stripes that were read and verified.
    pub stripes: u64,
    /// Number of stripes that were given a checksum bound to their location.
    pub converted: u64,
    /// Number of stripes without two chunks that form a valid block.
    pub unreadable: u64,
}

/// Redundancy summary of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The state at the end of the session.
    pub state: &'static str,
    /// Number of detachments of data_1, data_2 and data_p.
    pub lost: [u64; 3],
    /// Number of stripes that a target has missed and that were not rebuilt.
    pub missed_stripes: u64,
    pub rebuilt_stripes: u64,
    /// Numbers of stripes verified after an unclean shutdown.
    pub verified_stripes: Verified,
    /// Numbers of corrupt chunks of data_1, data_2 and data_p that were rewritten.
    pub repaired_chunks: [u64; 3],
    pub scrubbed: Scrubbed,
}

/// Snapshot of a set, for metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub summary: Summary,
    /// `true` for each of data_1, data_2 and data_p that is online.
    pub online: [bool; 3],
    /// Number of stripes of the set.
    pub stripes: u64,
    /// Number of stripes whose chunks may be inconsistent and that were not verified.
    pub unverified_stripes: u64,
    /// Number of stripes queued for repair.
    pub repairs: u64,
    /// The running rebuild or resync.
    pub pass: Option<PassProgress>,
    /// Number of stripes that the running scrub has started.
    pub scrub: Option<u64>,
    /// Number of times that the service waited for an unresponsive target because another one was not current.
    pub stalled: u64,
}

/// Progress of a rebuild or resync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassProgress {
    /// `true` for a rebuild of a target, `false` for a resync.
    pub is_rebuild: bool,
    /// Number of completed stripes.
    pub done: u64,
    /// Total number of stripes of the pass.
    pub total: u64,
}

impl Running {
    fn new(stripes: &StripeBitmap, is_of_all: bool) -> Self {
        Self {
            pass: Pass::new(stripes),
            is_of_all,
            began: None,
            pause: None,
            reported: 0,
        }
    }
}

impl Scrub {
    fn new(cursor: u64, is_paced: bool) -> Self {
        Self {
            cursor,
            in_flight: Vec::new(),
            done: 0,
            failed: 0,
            unreadable: 0,
            is_paced,
            began: None,
            reported: 0,
        }
    }

    /// Makes the next scrub start with the first stripe that was being processed.
    fn interrupt(&mut self) {
        let first = self.in_flight.drain(..).min();
        self.cursor = first.map_or(self.cursor, |first| first.min(self.cursor));
    }
}

impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Set")
            .field("view", &self.view())
            .finish_non_exhaustive()
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Set {
    /// Creates the state of a set of `stripes` stripes, used by `workers` workers. `wake` is called to wake the control thread.
    #[must_use]
    pub fn new(
        stripes: u64,
        workers: u32,
        assembly: Assembly,
        plan: ScrubPlan,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let membership = assembly.membership;
        let has_checksums = membership.as_ref().is_some_and(Membership::has_checksums);
        // Without superblocks, nothing can record that all blocks have checksums, so a scrub does not convert them.
        let converts = plan.converts && membership.is_some();
        let mut plan = ScrubPlan { converts, ..plan };
        if converts && !has_checksums && plan.next.is_some() {
            plan.next = Some(Duration::ZERO);
            plan.cursor = 0;
        }
        let set = Self {
            missed: StripeBitmap::new(stripes),
            unverified: StripeBitmap::new(stripes),
            has_checksums: AtomicBool::new(has_checksums),
            is_committed: AtomicBool::new(membership.is_none()),
            view: AtomicU32::new(View::HEALTHY.to_word()),
            has_work: AtomicBool::new(false),
            work_at: AtomicU64::new(u64::MAX),
            acted_on: (0..workers).map(|_| AtomicU32::new(0)).collect(),
            inner: Mutex::new(Inner {
                redundancy: Redundancy::new(),
                membership,
                is_concluding: false,
                is_quiesced: false,
                at_work: 0,
                stale: assembly.stale,
                departed: None,
                running: None,
                repairs: VecDeque::with_capacity(MAX_REPAIRS),
                scrub: None,
                plan,
                counts: Counts::default(),
            }),
            stripes,
            converts,
            wake: Box::new(wake),
        };
        if assembly.is_unclean {
            set.unverified.insert_all();
        }
        let mut inner = set.inner();
        match assembly.stale {
            Some(target) => {
                inner.redundancy.detach(target);
                if assembly.is_degraded {
                    tracing::warn!(
                        "storage target {} is missing: starting without it",
                        target.name()
                    );
                    set.publish(&inner);
                } else {
                    set.begin_rebuild(&mut inner, target, false);
                }
            }
            None => {
                set.begin_resync(&mut inner);
                if inner.membership.is_some() && inner.running.is_none() {
                    tracing::info!("all storage targets are up to date");
                }
            }
        }
        set.schedule(&inner);
        drop(inner);
        set
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // A panic under the lock leaves consistent data.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, inner: &Inner) {
        let committed = inner
            .membership
            .as_ref()
            .is_none_or(Membership::is_committed);
        // Must precede the workers' view of the offline target.
        self.is_committed.store(committed, Ordering::Release);
        self.view
            .store(inner.redundancy.view().to_word(), Ordering::Release);
        (self.wake)();
    }

    /// Updates the time from which workers ask for work.
    fn schedule(&self, inner: &Inner) {
        let is_running = inner.running.is_some();
        let (now, at) = match inner.redundancy.state() {
            _ if inner.is_quiesced => (false, None),
            State::Rebuilding(_) => (is_running, None),
            State::Healthy => {
                let scrub = inner.scrub.as_ref();
                // All stripes are in progress.
                let is_exhausted = scrub.is_some_and(|scrub| scrub.cursor >= self.stripes);
                let is_unpaced = scrub.is_some_and(|scrub| !scrub.is_paced);
                let next = inner.plan.next.filter(|_| !is_exhausted && !is_running);
                let now = is_running || !inner.repairs.is_empty() || is_unpaced && !is_exhausted;
                (now, next)
            }
            State::Degraded(_) | State::Failed { .. } => (false, None),
        };
        self.has_work.store(now, Ordering::Release);
        self.work_at
            .store(at.map_or(u64::MAX, micros), Ordering::Release);
    }

    /// The current view of the targets.
    #[inline]
    #[must_use]
    pub fn view(&self) -> View {
        View::from_word(self.view.load(Ordering::Acquire))
    }

    /// Returns `true` if the view differs from `seen`.
    #[inline]
    pub(super) fn has_changed(&self, seen: View) -> bool {
        self.view.load(Ordering::Acquire) != seen.to_word()
    }

    /// Returns `true` if a degraded write may be acknowledged.
    #[inline]
    pub(super) fn is_committed(&self) -> bool {
        self.is_committed.load(Ordering::Acquire)
    }

    /// Returns `true` if every block has a checksum.
    #[must_use]
    pub fn has_checksums(&self) -> bool {
        self.has_checksums.load(Ordering::Acquire)
    }

    /// Returns `true` if blocks have to be given checksums that are bound to their location.
    pub(super) fn is_to_convert(&self) -> bool {
        self.converts && !self.has_checksums()
    }

    #[must_use]
    pub fn state(&self) -> State {
        self.inner().redundancy.state()
    }

    /// Detaches a target, and logs the reason.
    #[cold]
    pub fn detach(&self, target: Target, why: impl fmt::Display) {
        self.detach_locked(&mut self.inner(), target, &why);
    }

    /// Handles an unresponsive target. A second target is not detached only because it is unresponsive: on an overloaded machine, that
    /// would take the set offline. A target that is being rebuilt is detached again, because the other two can continue without it. Returns
    /// `true` if the target is offline now.
    #[cold]
    pub fn stalled(&self, target: Target, why: impl fmt::Display) -> bool {
        let mut inner = self.inner();
        if inner.redundancy.view().offline.contains(target) {
            return true;
        }
        let others_are_current = match inner.redundancy.state() {
            State::Healthy => true,
            State::Rebuilding(incomplete) => incomplete == target,
            State::Degraded(_) | State::Failed { .. } => false,
        };
        if !others_are_current {
            inner.counts.stalled += 1;
            if inner.counts.stalled.is_power_of_two() {
                tracing::warn!(
                    "storage target {} is unresponsive, and another one is not current: waiting for it: {why}",
                    target.name()
                );
            }
            return false;
        }
        self.detach_locked(&mut inner, target, &why);
        true
    }

    fn detach_locked(&self, inner: &mut Inner, target: Target, why: &dyn fmt::Display) {
        if !inner.redundancy.detach(target) {
            return;
        }
        inner.counts.lost[target.number()] += 1;
        inner.running = None;
        if let Some(scrub) = &mut inner.scrub {
            scrub.interrupt();
        }
        let name = target.name();
        if let State::Degraded(_) = inner.redundancy.state() {
            inner.stale = Some(target);
            if let Some(membership) = &mut inner.membership {
                let had = membership.superblock_of(target);
                inner.departed = had.map(|superblock| superblock.epoch);
                membership.exclude(target);
            }
            tracing::warn!("detached storage target {name}, going on without it: {why}");
        } else {
            tracing::error!(
                "detached storage target {name}, with which too few are left: writes fail: {why}"
            );
        }
        self.schedule(inner);
        self.publish(inner);
    }

    /// Records that a worker has applied this view: none of its requests from earlier views are outstanding.
    pub(super) fn acknowledge(&self, worker: u32, view: View) {
        if let Some(acted_on) = self.acted_on.get(worker as usize) {
            acted_on.store(view.generation, Ordering::Release);
            (self.wake)();
        }
    }

    fn all_have_acted(&self, inner: &Inner) -> bool {
        let generation = inner.redundancy.view().generation;
        let mut workers = self.acted_on.iter();
        workers.all(|acted_on| acted_on.load(Ordering::Acquire) == generation)
    }

    /// Returns a detached target that may rejoin: all workers have closed their connections to it, and the others have committed an epoch
    /// without it. Before that, the superblocks would not show which of the three targets is stale.
    #[must_use]
    pub fn rejoin_candidate(&self) -> Option<Target> {
        let inner = self.inner();
        match inner.redundancy.state() {
            State::Degraded(target) if self.is_committed() && self.all_have_acted(&inner) => {
                Some(target)
            }
            _ => None,
        }
    }

    /// Checks a target that is about to rejoin. `is_same_storage`: it has the identity of the detached target. Returns `true` if it still
    /// has the data that the detached target had.
    ///
    /// # Errors
    ///
    /// Description of the mismatch: it is a member of another set, or has another number in this one.
    pub fn admit(
        &self,
        target: Target,
        found: Found,
        is_same_storage: bool,
    ) -> Result<bool, String> {
        let inner = self.inner();
        let Some(membership) = &inner.membership else {
            return Ok(is_same_storage);
        };
        let Found::Superblock(superblock) = found else {
            return Ok(false);
        };
        if superblock.set != membership.set() {
            return Err(format!(
                "expected a target of set {} or an empty one, got one of set {}",
                membership.set(),
                superblock.set
            ));
        }
        if superblock.member != target as u32 {
            let place = Target::ALL.get(superblock.member as usize);
            return Err(format!(
                "expected {} of its set, got {}",
                target.name(),
                place.map_or("another target", |place| place.name())
            ));
        }
        // A copy from before the session is of an earlier epoch. Targets that have not committed any epoch are indistinguishable.
        let had = inner.departed.filter(|&epoch| epoch != Epoch::NONE);
        Ok(is_same_storage && had == Some(superblock.epoch))
    }

    /// Makes a target that is attached to all workers rejoin. Unless it `has_kept` its data, it is rebuilt completely. `keeps`: it has a
    /// superblock.
    pub fn rejoin(&self, target: Target, has_kept: bool, keeps: bool) {
        let mut inner = self.inner();
        if let Some(membership) = &mut inner.membership {
            membership.replace(target, keeps);
        }
        self.begin_rebuild(&mut inner, target, has_kept);
        self.schedule(&inner);
    }

    /// The superblock that a target has to persist, unless it is offline.
    #[must_use]
    pub fn superblock_of(&self, target: Target) -> Option<Superblock> {
        let inner = self.inner();
        let is_online = !inner.redundancy.view().offline.contains(target);
        let membership = inner.membership.as_ref().filter(|_| is_online)?;
        membership.superblock_of(target)
    }

    /// Records that a target has persisted this superblock.
    pub fn persisted(&self, target: Target, superblock: Superblock) {
        let mut inner = self.inner();
        if let Some(membership) = &mut inner.membership {
            membership.persisted(target, superblock);
            let committed = membership.is_committed();
            self.is_committed.store(committed, Ordering::Release);
        }
        // A rebuilt target may have become a member.
        self.schedule(&inner);
    }

    /// Returns `true` if I/Os may be served: the superblocks record that the set is in use.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_committed() || matches!(self.state(), State::Failed { .. })
    }

    /// Starts closing the set after all I/Os have completed; as clean, if it is consistent.
    pub fn conclude(&self) {
        let mut inner = self.inner();
        let has_failed = matches!(inner.redundancy.state(), State::Failed { .. });
        if let Some(membership) = &mut inner.membership
            && !has_failed
            && self.unverified.len() == 0
        {
            membership.close();
            inner.is_concluding = true;
        }
    }

    /// Returns `true` if the targets have persisted the superblocks of [`conclude`](Self::conclude).
    #[must_use]
    pub fn is_concluded(&self) -> bool {
        let inner = self.inner();
        let has_failed = matches!(inner.redundancy.state(), State::Failed { .. });
        !inner.is_concluding
            || has_failed
            || inner.membership.as_ref().is_none_or(Membership::is_clean)
    }

    /// The target that misses acknowledged writes, if any.
    #[must_use]
    pub fn stale(&self) -> Option<Target> {
        self.inner().stale
    }

    /// Returns `true` if all targets are current.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.state() == State::Healthy
    }

    /// Number of stripes whose chunks may be inconsistent.
    #[must_use]
    pub fn unverified_stripes(&self) -> u64 {
        self.unverified.len()
    }

    /// Returns `true` if the chunks of a stripe may be inconsistent.
    #[must_use]
    pub fn is_unverified(&self, stripe: u64) -> bool {
        self.unverified.contains(stripe)
    }

    /// Number of failed attempts to rebuild a stripe because its block has no checksum, and two chunks alone do not prove that they
    /// belong to the same write.
    #[must_use]
    pub fn undecided(&self) -> u64 {
        self.inner().counts.undecided
    }

    /// Starts a scrub of all stripes now, at full speed.
    pub fn scrub_now(&self) {
        let mut inner = self.inner();
        inner.scrub = Some(Scrub::new(0, false));
        self.schedule(&inner);
    }

    /// Time and first stripe of the next scrub, for the next session.
    #[must_use]
    pub fn scrub_plan(&self) -> ScrubPlan {
        let inner = self.inner();
        let mut plan = inner.plan;
        if let Some(scrub) = &inner.scrub {
            let first = scrub.in_flight.iter().copied().min();
            plan.cursor = first.map_or(scrub.cursor, |first| first.min(scrub.cursor));
        }
        plan
    }

    fn begin_rebuild(&self, inner: &mut Inner, target: Target, has_kept: bool) {
        if !inner.redundancy.rejoin(target) {
            return;
        }
        if !has_kept {
            self.missed.insert_all();
        }
        let running = Running::new(&self.missed, !has_kept);
        let (count, name) = (running.pass.progress().1, target.name());
        let which = if has_kept {
            "those that it has missed"
        } else {
            "all of them"
        };
        tracing::info!("storage target {name} is online: rebuilding {count} stripes, {which}");
        inner.running = Some(running);
        self.publish(inner);
    }

    /// Starts the verification of stripes whose chunks may be inconsistent, if there are any.
    fn begin_resync(&self, inner: &mut Inner) {
        let count = self.unverified.len();
        if count != 0 {
            tracing::info!("the set was not shut down cleanly: verifying {count} stripes (resync)");
            inner.running = Some(Running::new(&self.unverified, false));
        }
    }

    /// Returns `true` if there may be [work](Self::next_work).
    #[inline]
    pub(super) fn may_have_work(&self, now: Duration) -> bool {
        self.has_work.load(Ordering::Acquire) || self.work_at.load(Ordering::Acquire) <= micros(now)
    }

    /// Queues the repair of this stripe, of which a read has found a corrupt chunk.
    #[cold]
    pub(super) fn request_repair(&self, stripe: u64) {
        let mut inner = self.inner();
        if inner.repairs.len() < MAX_REPAIRS && !inner.repairs.contains(&stripe) {
            inner.repairs.push_back(stripe);
            self.schedule(&inner);
        }
    }

    /// Returns the next stripe to process, if there is one now.
    #[cold]
    pub(super) fn next_work(&self, now: Duration) -> Option<Work> {
        let mut inner = self.inner();
        // Until all workers have applied the view, one of them might still write a stripe without the target that is rebuilt. And until the
        // superblocks record that the set is in use, nothing may be stored.
        if inner.is_quiesced || !self.is_committed() || !self.all_have_acted(&inner) {
            return None;
        }
        let generation = inner.redundancy.view().generation;
        let work = |purpose, stripe| Work {
            purpose,
            stripe,
            generation,
        };
        let next = match inner.redundancy.state() {
            State::Rebuilding(target) => {
                let stripe = self.next_of_pass(&mut inner, Some(target), now);
                stripe.map(|stripe| work(Purpose::Rebuild(target), stripe))
            }
            State::Healthy => {
                if let Some(stripe) = inner.repairs.pop_front() {
                    Some(work(Purpose::Repair, stripe))
                } else if inner.running.is_some() {
                    let stripe = self.next_of_pass(&mut inner, None, now);
                    stripe.map(|stripe| work(Purpose::Resync, stripe))
                } else {
                    let stripe = self.next_of_scrub(&mut inner, now);
                    stripe.map(|stripe| work(Purpose::Scrub, stripe))
                }
            }
            State::Degraded(_) | State::Failed { .. } => None,
        };
        inner.at_work += u64::from(next.is_some());
        self.schedule(&inner);
        next
    }

    /// Stops background work on stripes before the session ends: from now on, targets store only an initiator's writes.
    pub fn quiesce(&self) {
        let mut inner = self.inner();
        inner.is_quiesced = true;
        self.schedule(&inner);
    }

    /// Returns `true` if no stripe is being processed.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.inner().at_work == 0
    }

    fn next_of_pass(&self, inner: &mut Inner, stale: Option<Target>, now: Duration) -> Option<u64> {
        let running = inner.running.as_mut()?;
        running.began.get_or_insert(now);
        if running.pause.is_some_and(|until| now < until) {
            return None;
        }
        running.pause = None;
        let stripes = match stale {
            Some(_) => &self.missed,
            None => &self.unverified,
        };
        match running.pass.next(stripes) {
            Next::Stripe(stripe) => Some(stripe),
            Next::Wait => None,
            Next::EndOfPass { failed } => {
                if failed != 0 {
                    let what = if stale.is_some() {
                        "rebuilt"
                    } else {
                        "verified"
                    };
                    tracing::warn!("{failed} stripes could not be {what}, trying again");
                    running.pause = Some(now + RETRY_PAUSE);
                }
                None
            }
            Next::Complete => {
                self.pass_completed(inner, stale, now);
                None
            }
        }
    }

    fn pass_completed(&self, inner: &mut Inner, stale: Option<Target>, now: Duration) {
        if let (Some(target), Some(membership)) = (stale, &mut inner.membership) {
            if membership.include(target) {
                (self.wake)();
            }
            if !membership.is_confirmed_member(target) || !membership.is_committed() {
                // It is a member only after its superblock says so: otherwise, the next service would not know.
                return;
            }
        }
        let Some(running) = inner.running.take() else {
            return;
        };
        let (done, _) = running.pass.progress();
        let took = running
            .began
            .map_or(Duration::ZERO, |began| now.saturating_sub(began));
        let Some(target) = stale else {
            let Verified {
                repaired,
                unreadable,
                ..
            } = inner.counts.verified;
            tracing::info!(
                "resync completed: {done} stripes verified in {took:.1?}, {repaired} repaired, {unreadable} unreadable"
            );
            return;
        };
        tracing::info!(
            "storage target {} is up to date: {done} stripes rebuilt in {took:.1?}",
            target.name()
        );
        if running.is_of_all {
            // One chunk of each stripe was recomputed from the others.
            self.unverified.clear();
        } else {
            // The target has reported the other stripes as current, but so would an older copy of its disk from the same epoch.
            inner.scrub = Some(Scrub::new(0, false));
        }
        inner.redundancy.rebuilt();
        inner.stale = None;
        self.begin_resync(inner);
        self.publish(inner);
    }

    fn next_of_scrub(&self, inner: &mut Inner, now: Duration) -> Option<u64> {
        let plan = &mut inner.plan;
        let is_due = plan.next.is_some_and(|next| next <= now);
        let scrub = match &mut inner.scrub {
            Some(scrub) => scrub,
            None if is_due => {
                tracing::info!(
                    "scrub started at stripe {} of {}",
                    plan.cursor,
                    self.stripes
                );
                inner.scrub.insert(Scrub::new(plan.cursor, true))
            }
            None => return None,
        };
        if scrub.is_paced && !is_due || scrub.cursor >= self.stripes {
            return None;
        }
        scrub.began.get_or_insert(now);
        if scrub.is_paced {
            let earliest = now.saturating_sub(SCRUB_BURST);
            plan.next = plan.next.map(|next| next.max(earliest) + plan.interval);
        }
        let stripe = scrub.cursor;
        scrub.cursor += 1;
        scrub.in_flight.push(stripe);
        Some(stripe)
    }

    /// Reports the outcome of work on a stripe. The stripe's lock is still held.
    pub(super) fn finish_work(&self, work: Work, outcome: Outcome, now: Duration) {
        let mut inner = self.inner();
        inner.at_work -= 1;
        if inner.is_quiesced && inner.at_work == 0 {
            (self.wake)();
        }
        if inner.redundancy.view().generation != work.generation {
            return;
        }
        if let (Outcome::Rewritten(target) | Outcome::Unconverted(target), false) =
            (outcome, matches!(work.purpose, Purpose::Rebuild(_)))
        {
            let repaired = &mut inner.counts.repaired[target.number()];
            *repaired += 1;
            if *repaired >= FAILING && repaired.is_power_of_two() {
                tracing::error!(
                    "storage target {} may be failing: {repaired} of its chunks were corrupt, and had to be rewritten",
                    target.name()
                );
            }
        }
        match work.purpose {
            Purpose::Rebuild(_) => {
                let is_rebuilt = !matches!(outcome, Outcome::Retry | Outcome::Undecided);
                inner.counts.rebuilt += u64::from(is_rebuilt);
                if outcome == Outcome::Undecided {
                    inner.counts.undecided += 1;
                    if inner.counts.undecided.is_power_of_two() {
                        tracing::error!(
                            "block {} cannot be rebuilt ({} so far): it has no checksum and was perhaps being written when the service was \
                             interrupted; write it again, or start the service with --checksum off to have such blocks rebuilt as they are",
                            work.stripe,
                            inner.counts.undecided
                        );
                    }
                }
                Self::finish_of_pass(&mut inner, &self.missed, work, outcome);
            }
            Purpose::Resync => {
                let verified = &mut inner.counts.verified;
                match outcome {
                    Outcome::Retry | Outcome::Undecided => {}
                    Outcome::Fits | Outcome::Converted => verified.fitting += 1,
                    Outcome::Rewritten(_) | Outcome::Unconverted(_) | Outcome::Unverified(_) => {
                        verified.repaired += 1;
                    }
                    Outcome::Unreadable => verified.unreadable += 1,
                }
                Self::finish_of_pass(&mut inner, &self.unverified, work, outcome);
            }
            Purpose::Repair => {}
            Purpose::Scrub => self.finish_of_scrub(&mut inner, work.stripe, outcome, now),
        }
        self.schedule(&inner);
    }

    fn finish_of_pass(inner: &mut Inner, stripes: &StripeBitmap, work: Work, outcome: Outcome) {
        let Some(running) = inner.running.as_mut() else {
            return;
        };
        running.pass.finish(
            stripes,
            work.stripe,
            !matches!(outcome, Outcome::Retry | Outcome::Undecided),
        );
        let (done, total) = running.pass.progress();
        let tenths = (done * 10).checked_div(total).unwrap_or(10);
        if tenths > running.reported {
            running.reported = tenths;
            match work.purpose {
                Purpose::Rebuild(target) => {
                    let name = target.name();
                    tracing::info!("rebuilding storage target {name}: {done} of {total} stripes");
                }
                _ => tracing::info!("resync: {done} of {total} stripes"),
            }
        }
    }

    fn finish_of_scrub(&self, inner: &mut Inner, stripe: u64, outcome: Outcome, now: Duration) {
        let Some(scrub) = &mut inner.scrub else {
            return;
        };
        scrub.in_flight.retain(|&other| other != stripe);
        let counts = &mut inner.counts.scrub;
        match outcome {
            // The set is converted only when all blocks are.
            Outcome::Retry | Outcome::Unconverted(_) | Outcome::Undecided => scrub.failed += 1,
            _ => scrub.done += 1,
        }
        counts.stripes += u64::from(outcome != Outcome::Retry);
        counts.converted += u64::from(outcome == Outcome::Converted);
        if outcome == Outcome::Unreadable {
            scrub.unreadable += 1;
            counts.unreadable += 1;
        }
        let tenths = (scrub.cursor * 10).checked_div(self.stripes).unwrap_or(10);
        if tenths > scrub.reported && tenths < 10 {
            scrub.reported = tenths;
            tracing::info!("scrub: {} of {} stripes", scrub.cursor, self.stripes);
        }
        if scrub.cursor < self.stripes || !scrub.in_flight.is_empty() {
            return;
        }
        let (done, failed, unreadable) = (scrub.done, scrub.failed, scrub.unreadable);
        let took = scrub
            .began
            .map_or(Duration::ZERO, |began| now.saturating_sub(began));
        let was_paced = scrub.is_paced;
        tracing::info!(
            "scrub completed: {done} stripes in {took:.1?}, {unreadable} unreadable, {failed} not read"
        );
        counts.completed += 1;
        inner.scrub = None;
        inner.plan.cursor = 0;
        if failed != 0 {
            // These stripes are retried soon, and only then is the set converted.
            inner.plan.next = inner.plan.next.map(|_| now + RETRY_PAUSE);
            return;
        }
        if was_paced {
            inner.plan.next = inner.plan.every.map(|every| now + every);
        }
        if inner.plan.converts
            && let Some(membership) = &mut inner.membership
            && !membership.has_checksums()
        {
            membership.set_checksums();
            self.has_checksums.store(true, Ordering::Release);
            (self.wake)();
        }
    }

    /// Returns a snapshot for metrics.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let inner = self.inner();
        let offline = inner.redundancy.view().offline;
        let is_rebuild = matches!(inner.redundancy.state(), State::Rebuilding(_));
        Snapshot {
            summary: self.summary_of(&inner),
            online: Target::ALL.map(|target| !offline.contains(target)),
            stripes: self.stripes,
            unverified_stripes: self.unverified.len(),
            repairs: inner.repairs.len() as u64,
            pass: inner.running.as_ref().map(|running| {
                let (done, total) = running.pass.progress();
                PassProgress {
                    is_rebuild,
                    done,
                    total,
                }
            }),
            scrub: inner.scrub.as_ref().map(|scrub| scrub.cursor),
            stalled: inner.counts.stalled,
        }
    }

    /// Returns the summary of the session.
    #[must_use]
    pub fn summary(&self) -> Summary {
        self.summary_of(&self.inner())
    }

    fn summary_of(&self, inner: &Inner) -> Summary {
        Summary {
            state: match inner.redundancy.state() {
                State::Healthy => "healthy",
                State::Degraded(_) => "degraded",
                State::Rebuilding(_) => "rebuilding",
                State::Failed { .. } => "failed",
            },
            lost: inner.counts.lost,
            missed_stripes: self.missed.len(),
            rebuilt_stripes: inner.counts.rebuilt,
            verified_stripes: inner.counts.verified,
            repaired_chunks: inner.counts.repaired,
            scrubbed: inner.counts.scrub,
        }
    }

    /// Logs a warning if the next session has to rebuild a target completely: the bitmap of missed stripes is not persisted.
    pub fn warn_of_missed_stripes(&self) {
        let inner = self.inner();
        let (State::Degraded(target) | State::Rebuilding(target)) = inner.redundancy.state() else {
            return;
        };
        let next = match inner.membership {
            Some(_) => "the next session rebuilds all of it",
            None => "have the next service rebuild all of it, with --rebuild",
        };
        tracing::warn!(
            "the session has ended, and storage target {} has missed {} stripes that were not rebuilt: {next}",
            target.name(),
            self.missed.len()
        );
    }
}

impl Summary {
    /// Returns `true` if anything was repaired or scrubbed.
    #[must_use]
    pub fn is_worth_reporting(&self) -> bool {
        self.repaired_chunks != [0; 3] || self.scrubbed != Scrubbed::default()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| Redundancy: {}", self.state)?;
        for target in Target::ALL {
            let count = self.lost[target.number()];
            writeln!(f, "| Losses of {}: {count}", target.name())?;
        }
        writeln!(f, "| Missed stripes: {}", self.missed_stripes)?;
        writeln!(f, "| Rebuilt stripes: {}", self.rebuilt_stripes)?;
        let Verified {
            fitting,
            repaired,
            unreadable,
        } = self.verified_stripes;
        writeln!(
            f,
            "| Verified stripes: {fitting} fitting, {repaired} repaired, {unreadable} unreadable"
        )?;
        for target in Target::ALL {
            let count = self.repaired_chunks[target.number()];
            writeln!(f, "| Repaired chunks of {}: {count}", target.name())?;
        }
        let Scrubbed {
            completed,
            stripes,
            converted,
            unreadable,
        } = self.scrubbed;
        writeln!(
            f,
            "| Scrubs: {completed}, {stripes} stripes, {converted} converted, {unreadable} unreadable"
        )
    }
}

#[cfg(test)]
mod tests {
    use role_common::superblock::SetId;
    use wire::control::RecordState;

    use super::super::assembly::{Instructions, assemble};
    use super::super::membership::EpochIds;
    use super::*;

    /// A set whose targets have committed `epoch` and have to commit another one.
    fn set_of(epoch: Epoch) -> Set {
        let found = Target::ALL.map(|target| Found::Superblock(found(target, epoch)));
        let instructions = Instructions {
            rebuild: None,
            stale: None,
            writes_checksums: true,
            new_set: SetId(99),
            ids: EpochIds::new(5),
        };
        let assembly = assemble(found, instructions).expect("a set");
        let plan = ScrubPlan {
            next: None,
            every: None,
            interval: Duration::ZERO,
            cursor: 0,
            converts: false,
        };
        Set::new(8, 1, assembly, plan, || ())
    }

    fn found(target: Target, epoch: Epoch) -> Superblock {
        Superblock {
            set: SetId(7),
            member: target as u32,
            epoch,
            next: Epoch::NONE,
            state: RecordState::Clean,
            checksums: false,
        }
    }

    #[test]
    fn target_has_what_it_had_only_if_it_has_the_epoch_that_it_departed_with() {
        let (target, epoch) = (Target::ALL[1], Epoch { number: 3, id: 30 });
        let set = set_of(epoch);
        set.detach(target, "test");
        let admit =
            |epoch, is_same| set.admit(target, Found::Superblock(found(target, epoch)), is_same);
        assert_eq!(admit(epoch, true), Ok(true));
        assert_eq!(admit(epoch, false), Ok(false));
        assert_eq!(admit(Epoch { number: 2, id: 20 }, true), Ok(false));
    }

    #[test]
    fn target_that_has_committed_no_epoch_is_rebuilt_whole() {
        let target = Target::ALL[1];
        let set = set_of(Epoch { number: 3, id: 30 });
        set.detach(target, "test");
        // The target is not a member until it is rebuilt: its superblock has no epoch.
        set.rejoin(target, false, true);
        set.detach(target, "test");
        let again = Found::Superblock(found(target, Epoch::NONE));
        assert_eq!(set.admit(target, again, true), Ok(false));
    }
}
