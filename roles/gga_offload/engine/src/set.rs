//! The state of a set, shared by the control thread and all workers of a session: current targets, stripes to process, superblocks to
//! persist.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use role_formats::superblock::{Epoch, SetId, Superblock};
use serde::Serialize;

use super::assembly::{Assembly, Found};
use super::chunk::Stamp;
use super::membership::{Membership, Redundancy, State, View};
use super::stripes::{Next, Pass, Runs, StripeBitmap, StripeSet};
use super::versions::Versions;
use crate::Target;

/// Time before stripes that could not be rebuilt or scrubbed are retried.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Time before stripes that could not be settled are retried: writes wait for them.
const SETTLE_PAUSE: Duration = Duration::from_millis(100);

/// Number of passes of a rebuild in which stripes with unreadable chunks are retried, before the rebuild is completed
/// without them.
const PATIENT_PASSES: u64 = 3;

/// As [`PATIENT_PASSES`], for the resync: the pauses are shorter.
const PATIENT_RESYNC_PASSES: u64 = 20;

/// Number of rewritten chunks at which a target is reported as failing; reported again whenever the number has doubled.
const FAILING: u64 = 8;

/// Maximum time for which a scrub may catch up if no worker has requested work in the meantime.
const SCRUB_BURST: Duration = Duration::from_millis(20);

/// Schedule and rate of scrubs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubPlan {
    /// Time of the next scrub; `None` if none is scheduled.
    pub next: Option<Duration>,
    /// Time between two scrubs; `None` if scrubs are not repeated.
    pub every: Option<Duration>,
    /// Minimum time between two stripes, over all workers.
    pub interval: Duration,
    /// Stripe with which the next scrub starts, so that an interrupted scrub is continued.
    pub cursor: u64,
}

/// Reason why a target cannot be detached or rebuilt at an operator's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Needed {
    /// Another target is offline, or being rebuilt.
    #[error("expected two other current targets, but {} is not current: wait until it is rebuilt", .0.name())]
    NotCurrent(Target),
    /// Fewer than two targets are current.
    #[error(
        "expected two other current targets, but the set has fewer than two: its targets have to come back first"
    )]
    Failed,
    /// The blocks are stored in the reference's form.
    #[error(
        "expected a set, but the blocks are stored without redundancy: --logical-block-size creates a set"
    )]
    NoRedundancy,
}

/// Reason for work on a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// This target has missed a write of its chunk.
    Rebuild(Target),
    /// The chunks may belong to two different writes: a write was interrupted.
    Resync,
    /// Periodic verification.
    Scrub,
    /// A flush of all targets, so that they can discard earlier versions. It has no stripe.
    Retire,
}

/// A stripe to process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    pub purpose: Purpose,
    pub stripe: u64,
    /// Generation of the view that the work belongs to: an outcome under a later view is ignored.
    generation: u32,
}

/// A detached target that may rejoin, as long as no other target is detached or rejoins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    pub target: Target,
    /// Generation of the view that all workers have applied.
    generation: u32,
}

/// Outcome of work on a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// No result: the stripe must be processed again.
    Retry,
    /// The chunks have equal stamps.
    Consistent,
    /// The chunk of this target was rewritten.
    Rewritten(Target),
    /// An interrupted write was undone.
    StoredAgain,
    /// No two chunks belong to the same write.
    Lost,
    /// No two readable chunks belong to the same write; further chunks may become readable later.
    Unread,
}

/// State of a target that was offline when a session ended, for the next session of the same process: only the stripes
/// that the target has missed are rebuilt, and not all.
#[derive(Debug)]
pub struct Unfinished {
    set: SetId,
    /// The epoch in which the session ended.
    epoch: Epoch,
    target: Target,
    /// The epoch on the target's disk.
    departed: Epoch,
    /// The newest chunk that the target is known to have stored.
    stored: Stamp,
    missed: StripeBitmap,
}

impl Unfinished {
    /// The target that was offline.
    #[must_use]
    pub fn target(&self) -> Target {
        self.target
    }

    /// Returns `true` if it applies to a session with this assembly: the set was not used since, and the target is still
    /// missing, or has the data that it had, as in [`Set::admit`].
    #[must_use]
    pub fn applies(
        &self,
        assembly: &Assembly,
        found: Found,
        is_same_storage: bool,
        last: Stamp,
    ) -> bool {
        let membership = assembly.membership.as_ref();
        let follows = membership.is_some_and(|it| it.follows(self.set, self.epoch));
        let has_kept = match found {
            Found::Missing => true,
            Found::Blank => false,
            Found::Superblock(superblock) => {
                is_same_storage && last >= self.stored && superblock.epoch == self.departed
            }
        };
        follows && has_kept && assembly.stale == Some(self.target) && !assembly.is_discarded
    }
}

/// The shared state of a set.
pub struct Set {
    /// Stripes that a target has missed.
    pub(super) missed: StripeBitmap,
    /// Stripes whose last write was interrupted and that have not been settled since.
    pub(super) unsettled: StripeSet,
    /// `None` for blocks in the reference's form.
    versions: Option<Versions>,
    /// `true` if the superblocks record which targets are current: degraded writes may be acknowledged.
    is_committed: AtomicBool,
    /// [`View`], encoded as a word.
    view: AtomicU32,
    /// `true` if workers may have to process stripes now.
    has_work: AtomicBool,
    /// Time in microseconds from which workers may have to process stripes although `has_work` is `false`.
    work_at: AtomicU64,
    /// Generation of the last view applied by each worker.
    acted_on: Box<[AtomicU32]>,
    inner: Mutex<Inner>,
    stripes: u64,
    /// Writes with lower stamps were retired when the session began.
    retired: Stamp,
    /// The last epoch in which writes were retired when the session began.
    retired_epoch: u64,
    /// Wakes the control thread.
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug)]
struct Inner {
    redundancy: Redundancy,
    membership: Option<Membership>,
    is_concluding: bool,
    may_continue: bool,
    /// `true` if no more background work is started.
    is_quiesced: bool,
    /// Number of stripes being processed.
    at_work: u64,
    /// The target that misses acknowledged writes, from its detachment to the end of its rebuild.
    stale: Option<Target>,
    /// The epoch on the disk of the target that was detached last.
    departed: Option<Epoch>,
    /// A target that an operator keeps offline.
    held: Option<Target>,
    /// A target whose data an operator has discarded, until it rejoins.
    discarded: Option<Target>,
    /// The newest chunk that each target is known to have stored.
    stored: [Stamp; 3],
    rebuild: Option<Running>,
    resync: Option<Running>,
    scrub: Option<Scrub>,
    plan: ScrubPlan,
    counts: Counts,
}

/// A rebuild or resync.
#[derive(Debug)]
struct Running {
    pass: Pass,
    began: Option<Duration>,
    /// Earliest start of the next pass.
    pause: Option<Duration>,
    /// Progress that was reported last, in tenths.
    reported: u64,
    /// Number of completed passes.
    passes: u64,
    flush: RebuildFlush,
}

/// The flush of all targets between the last rebuilt stripe and the change of the membership. A rebuilt target has no
/// older versions: until the versions from which it was rebuilt are durable on the other targets, a power failure of
/// all machines could leave it with versions that no other target has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RebuildFlush {
    NotNeededYet,
    Needed,
    InFlight,
    Done,
}

#[derive(Debug)]
struct Scrub {
    cursor: u64,
    /// Stripes being scrubbed.
    in_flight: Vec<u64>,
    done: u64,
    failed: u64,
    lost: u64,
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
    settled: Settled,
    repaired: [u64; 3],
    scrub: Scrubbed,
}

/// Numbers of stripes settled after interrupted writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Settled {
    /// The chunks had equal stamps.
    pub consistent: u64,
    /// Chunks were rewritten.
    pub rewritten: u64,
    /// No two chunks belong to the same write.
    pub lost: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Scrubbed {
    pub completed: u64,
    /// Number of stripes that were read and verified.
    pub stripes: u64,
    /// Number of stripes without two chunks of the same write.
    pub lost: u64,
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
    /// Numbers of stripes settled after interrupted writes.
    pub settled_stripes: Settled,
    /// Numbers of chunks of data_1, data_2 and data_p that were corrupt or lacked a write, and were rewritten.
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
    /// Number of stripes whose last write was interrupted and that have not been settled.
    pub unsettled_stripes: u64,
    /// The running rebuild or resync.
    pub pass: Option<PassProgress>,
    /// Number of stripes that the running scrub has started.
    pub scrub: Option<u64>,
    /// Number of times that the service waited for an unresponsive target because another one was not current.
    pub stalled: u64,
    /// A target that an operator keeps offline.
    pub held: Option<Target>,
    /// The set and the epoch of its members; `None` without superblocks.
    pub epoch: Option<(SetId, Epoch)>,
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
    fn new(stripes: &dyn Runs) -> Self {
        Self {
            pass: Pass::new(stripes),
            began: None,
            pause: None,
            reported: 0,
            passes: 0,
            flush: RebuildFlush::NotNeededYet,
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
            lost: 0,
            is_paced,
            began: None,
            reported: 0,
        }
    }

    /// Makes the next scrub start with the first stripe that was in progress.
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
    /// Creates the state of a set for `workers` workers. `missed`, which must be empty, determines the stripes.
    /// `unfinished`, from the previous session, must [apply](Unfinished::applies). `wake`
    /// is called to wake the control thread. Targets can store `version_slots` versions in addition to one version of
    /// each chunk.
    #[must_use]
    pub fn new(
        missed: StripeBitmap,
        workers: u32,
        assembly: Assembly,
        unfinished: Option<Unfinished>,
        plan: ScrubPlan,
        version_slots: u32,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let stripes = missed.stripes();
        let unfinished = unfinished.filter(|it| it.missed.stripes() == stripes);
        let departed = unfinished.as_ref().map(|it| it.departed);
        let mut stored = assembly.stored;
        if let Some(unfinished) = &unfinished {
            stored[unfinished.target.number()] = unfinished.stored;
        }
        let missed = unfinished.map_or(missed, |it| it.missed);
        let mut plan = plan;
        if assembly.is_new && plan.next.is_some() {
            // Blank targets may have any contents: the scrub finds chunks that are neither zeros nor chunks of the set.
            plan.next = Some(Duration::ZERO);
            plan.cursor = 0;
        }
        let membership = assembly.membership;
        let epoch = membership.as_ref().map(Membership::epoch);
        let set = Self {
            missed,
            unsettled: StripeSet::default(),
            versions: epoch.map(|epoch| Versions::new(epoch.number, workers, version_slots)),
            is_committed: AtomicBool::new(membership.is_none()),
            view: AtomicU32::new(View::HEALTHY.to_word()),
            has_work: AtomicBool::new(false),
            work_at: AtomicU64::new(u64::MAX),
            acted_on: (0..workers).map(|_| AtomicU32::new(0)).collect(),
            inner: Mutex::new(Inner {
                redundancy: Redundancy::new(),
                membership,
                is_concluding: false,
                may_continue: true,
                is_quiesced: false,
                at_work: 0,
                stale: assembly.stale,
                departed,
                held: None,
                discarded: None,
                stored,
                rebuild: None,
                resync: None,
                scrub: None,
                plan,
                counts: Counts::default(),
            }),
            stripes,
            retired: assembly.retired,
            retired_epoch: assembly.retired_epoch,
            wake: Box::new(wake),
        };
        for stripe in assembly.unsettled {
            if stripe < stripes {
                set.unsettled.insert(stripe, None);
            }
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
                    set.begin_rebuild(&mut inner, target, departed.is_some());
                }
            }
            None => {
                if inner.membership.is_some() && set.unsettled.is_empty() {
                    tracing::info!("all storage targets are up to date");
                }
            }
        }
        let interrupted = set.unsettled.len();
        if interrupted != 0 {
            tracing::info!(
                "the set was not shut down cleanly: settling {interrupted} blocks that were written last"
            );
        }
        set.schedule(&inner);
        drop(inner);
        set
    }

    /// State of a target that is offline now, for the next session of this process; `None` if there is no such
    /// target, or if it has to be rebuilt completely. Must be called after the last I/O.
    #[must_use]
    pub fn unfinished(&self) -> Option<Unfinished> {
        let inner = self.inner();
        let membership = inner.membership.as_ref().filter(|it| it.is_committed())?;
        let State::Degraded(target) = inner.redundancy.state() else {
            return None;
        };
        let departed = inner.departed.filter(|&epoch| epoch != Epoch::NONE)?;
        // A worker reports what the target has stored when it detaches it, which it no longer does when it has stopped.
        let is_usable = inner.stale == Some(target)
            && inner.discarded != Some(target)
            && self.all_have_acted(&inner);
        is_usable.then(|| Unfinished {
            set: membership.set(),
            epoch: membership.epoch(),
            target,
            departed,
            stored: inner.stored[target.number()],
            missed: self.missed.copy(),
        })
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

    /// Updates the time from which workers request work.
    fn schedule(&self, inner: &Inner) {
        let is_unsettled = !self.unsettled.is_empty() || inner.resync.is_some();
        let (now, at) = match inner.redundancy.state() {
            State::Failed { .. } => (false, None),
            // Writes in flight wait for the result.
            _ if is_unsettled => (true, None),
            _ if inner.is_quiesced => (false, None),
            State::Rebuilding(_) => (inner.rebuild.is_some(), None),
            State::Healthy => {
                let scrub = inner.scrub.as_ref();
                // All stripes are in progress.
                let is_exhausted = scrub.is_some_and(|scrub| scrub.cursor >= self.stripes);
                let is_unpaced = scrub.is_some_and(|scrub| !scrub.is_paced);
                let next = inner.plan.next.filter(|_| !is_exhausted);
                (is_unpaced && !is_exhausted, next)
            }
            State::Degraded(_) => (false, None),
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

    /// Numbers of writes. `None` for blocks in the reference's form.
    #[inline]
    #[must_use]
    pub fn versions(&self) -> Option<&Versions> {
        self.versions.as_ref()
    }

    /// Returns `true` if there are stripes to settle.
    #[inline]
    pub(super) fn has_unsettled(&self) -> bool {
        !self.unsettled.is_empty()
    }

    /// Records that the last write of a stripe, which has this stamp, was interrupted.
    #[cold]
    pub(super) fn unsettle(&self, stripe: u64, write: Option<Stamp>) {
        let inner = self.inner();
        self.unsettled.insert(stripe, write);
        self.schedule(&inner);
    }

    /// Records that a stripe was settled by an I/O, which still holds its lock.
    #[cold]
    pub(super) fn settle(&self, stripe: u64) {
        self.unsettled.remove(stripe);
    }

    /// Records that a chunk that was corrupt, or lacked a write, was rewritten.
    #[cold]
    pub(super) fn rewrote(&self, target: Target) {
        let mut inner = self.inner();
        let repaired = &mut inner.counts.repaired[target.number()];
        *repaired += 1;
        if *repaired >= FAILING && repaired.is_power_of_two() {
            tracing::error!(
                "storage target {} may be failing: {repaired} of its chunks were corrupt or had lost a write, and had to be rewritten",
                target.name()
            );
        }
    }

    /// Records that a target has stored a chunk with this stamp, and that a worker has detached it since.
    #[cold]
    pub(super) fn has_stored(&self, target: Target, stamp: Stamp) {
        let stored = &mut self.inner().stored[target.number()];
        *stored = stamp.max(*stored);
    }

    /// Returns `true` if chunks with this stamp were stored by an earlier session in which no write was retired: a
    /// session that only settled stripes.
    pub(super) fn is_settled_before(&self, stamp: Stamp) -> bool {
        let epoch = self.versions.as_ref().map_or(0, Versions::epoch);
        (self.retired_epoch.saturating_add(1)..epoch).contains(&stamp.epoch)
    }

    /// Returns `true` if a write of this stripe is known to have been complete on all members, so that older versions
    /// must not be returned.
    pub(super) fn was_complete(&self, stripe: u64, stamp: Stamp) -> bool {
        let versions = self.versions.as_ref();
        let retired = versions
            .map(Versions::retired_stamp)
            .filter(|it| it.number != 0);
        let known = retired.unwrap_or(self.retired);
        stamp < known.max(self.unsettled.interrupted(stripe).unwrap_or(known))
    }

    /// Returns `true` if work was handed out under the current view.
    pub(super) fn is_current(&self, work: Work) -> bool {
        self.view().generation == work.generation
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

    /// Handles an unresponsive target. A second target is not detached merely because it is unresponsive, which would
    /// take the set offline on an overloaded machine. A target that is being rebuilt is detached again, because the
    /// other two can continue without it. Returns `true` if the target is offline now.
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
        inner.rebuild = None;
        inner.resync = None;
        if let Some(scrub) = &mut inner.scrub {
            scrub.interrupt();
        }
        let name = target.name();
        let is_degraded = matches!(inner.redundancy.state(), State::Degraded(_));
        // A target that has just been rebuilt may have become a member, and is not current if the set continues without
        // it.
        if is_degraded || inner.stale == Some(target) {
            inner.stale = Some(target);
            if let Some(membership) = &mut inner.membership {
                let had = membership.superblock_of(target);
                inner.departed = Some(had.epoch);
                membership.exclude(target);
            }
        } else if let Some(membership) = &mut inner.membership {
            membership.disconnected(target);
        }
        if is_degraded {
            tracing::warn!("detached storage target {name}, going on without it: {why}");
        } else {
            tracing::error!(
                "detached storage target {name}, with which too few are left: I/Os wait until it is back: {why}"
            );
        }
        self.schedule(inner);
        self.publish(inner);
        if inner.stale == Some(target) {
            // Unflushed chunks may be missing when the target rejoins, for example with a copy of its disk that was
            // made between two of these writes. Writes that begin from now on are sent without it.
            fence(Ordering::SeqCst);
            let recent = self.versions.iter().flat_map(Versions::recent_stripes);
            recent.for_each(|stripe| self.missed.insert(stripe));
        }
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

    /// Returns a detached target that may rejoin, once all workers have closed their connections to it.
    ///
    /// If two targets are current, this is the third one, once the others have committed an epoch without it: before
    /// that, the superblocks would not show which of the three is stale. If fewer are current, it is a target that has
    /// missed no acknowledged write.
    #[must_use]
    pub fn rejoin_candidate(&self) -> Option<Candidate> {
        let inner = self.inner();
        if !self.all_have_acted(&inner) {
            return None;
        }
        let target = match inner.redundancy.state() {
            State::Degraded(target) if self.is_committed() && inner.held != Some(target) => {
                Some(target)
            }
            State::Failed { offline, .. } => {
                let mut current = offline.iter().filter(|&it| Some(it) != inner.stale);
                current.next()
            }
            _ => None,
        };
        target.map(|target| Candidate {
            target,
            generation: inner.redundancy.view().generation,
        })
    }

    /// Checks a target that is about to rejoin. `is_same_storage` is `true` if it has the identity of the detached
    /// target; `last` is the last version that was written to it. Returns `true` if it still has the data that the
    /// detached target had.
    ///
    /// # Errors
    ///
    /// Description of the mismatch: the target is a member of another set, has another number in this set, or is needed
    /// but does not have the data.
    pub fn admit(
        &self,
        target: Target,
        found: Found,
        is_same_storage: bool,
        last: Stamp,
    ) -> Result<bool, String> {
        let mut inner = self.inner();
        let inner = &mut *inner;
        let Some(membership) = &inner.membership else {
            return Err("targets of blocks in the reference's form do not rejoin".to_owned());
        };
        let is_needed = Some(target) != inner.stale;
        let needed = |what: &str| {
            format!(
                "expected {} with the data that it had, got {what}: until it is back, too few targets are current",
                target.name()
            )
        };
        let superblock = match found {
            Found::Superblock(superblock) => superblock,
            Found::Missing | Found::Blank if is_needed => {
                // The same storage cannot regain a superblock: it was lost while the set was being created.
                inner.may_continue &= !is_same_storage;
                return Err(needed("an empty one"));
            }
            Found::Missing | Found::Blank => return Ok(false),
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
        // A copy from before the session belongs to an earlier epoch, and a copy from within the session lacks the last
        // chunks. Targets that have not committed any epoch are indistinguishable.
        let has_all = is_same_storage && last >= inner.stored[target.number()];
        if is_needed {
            return if membership.is_prepared_by_another(target, superblock) {
                Err(needed("one that another service has begun to use"))
            } else if has_all && membership.has_epoch(superblock) {
                Ok(true)
            } else if has_all {
                Err(needed("one of an earlier epoch"))
            } else {
                inner.may_continue = false;
                Err(needed("one that may have lost acknowledged writes"))
            };
        }
        let had = inner.departed.filter(|&epoch| epoch != Epoch::NONE);
        let is_discarded = inner.discarded == Some(target);
        Ok(has_all && had == Some(superblock.epoch) && !is_discarded)
    }

    /// Returns `false` if a target that is needed has rejoined without its data: only another session can determine the
    /// remaining data of the set.
    #[must_use]
    pub fn may_continue(&self) -> bool {
        self.inner().may_continue
    }

    /// Makes a target that is attached to all workers rejoin. Unless it `has_kept` its data, it is rebuilt completely.
    ///
    /// Returns `false` if the view has changed since it became a candidate: a worker may have detached it again after
    /// attaching it.
    #[must_use]
    pub fn rejoin(&self, candidate: Candidate, has_kept: bool) -> bool {
        let mut inner = self.inner();
        let Candidate { target, generation } = candidate;
        if inner.redundancy.view().generation != generation {
            return false;
        }
        let is_discarded = inner.discarded.take_if(|it| *it == target).is_some();
        let has_kept = has_kept && !is_discarded;
        if !has_kept {
            // The target is rebuilt completely.
            inner.stored[target.number()] = Stamp::UNWRITTEN;
        }
        if inner.stale == Some(target) {
            self.begin_rebuild(&mut inner, target, has_kept);
        } else if let Some(stale) = inner.stale
            && has_kept
            && inner.redundancy.restore(target, stale)
        {
            tracing::info!(
                "storage target {} is online again, with its data",
                target.name()
            );
            if matches!(inner.redundancy.state(), State::Rebuilding(_)) {
                inner.rebuild = Some(Running::new(&self.missed));
            }
            self.publish(&inner);
        }
        self.schedule(&inner);
        true
    }

    /// Detaches a target, and keeps it offline until it is [released](Self::release) or the session ends, so that its
    /// machine can be maintained.
    ///
    /// # Errors
    ///
    /// The set cannot do without the target.
    pub fn hold(&self, target: Target) -> Result<(), Needed> {
        let mut inner = self.inner();
        self.let_go(&mut inner, target)?;
        inner.held = Some(target);
        Ok(())
    }

    /// Lets a target rejoin that was kept offline. Returns `false` if it was not.
    pub fn release(&self, target: Target) -> bool {
        let mut inner = self.inner();
        let was_held = inner.held.take_if(|it| *it == target).is_some();
        (self.wake)();
        was_held
    }

    /// Has a target rebuilt completely from the other two: its chunks are not read.
    ///
    /// # Errors
    ///
    /// The set cannot do without the target.
    pub fn rebuild(&self, target: Target) -> Result<(), Needed> {
        let mut inner = self.inner();
        self.let_go(&mut inner, target)?;
        inner.discarded = Some(target);
        inner.held = None;
        Ok(())
    }

    /// Detaches a target at an operator's request, unless it is offline.
    fn let_go(&self, inner: &mut Inner, target: Target) -> Result<(), Needed> {
        let another = match inner.redundancy.state() {
            _ if inner.membership.is_none() => return Err(Needed::NoRedundancy),
            State::Healthy => None,
            State::Degraded(stale) | State::Rebuilding(stale) => (stale != target).then_some(stale),
            State::Failed { .. } => return Err(Needed::Failed),
        };
        if let Some(another) = another {
            return Err(Needed::NotCurrent(another));
        }
        if !inner.redundancy.view().offline.contains(target) {
            self.detach_locked(inner, target, &"requested by the operator");
        }
        Ok(())
    }

    /// The superblock that a target has to persist, unless it is offline.
    #[must_use]
    pub fn superblock_of(&self, target: Target) -> Option<Superblock> {
        let inner = self.inner();
        let is_online = !inner.redundancy.view().offline.contains(target);
        let membership = inner.membership.as_ref().filter(|_| is_online)?;
        Some(membership.superblock_of(target))
    }

    /// Records that a target has persisted this superblock.
    pub fn persisted(&self, target: Target, superblock: Superblock) {
        let mut inner = self.inner();
        let is_online = !inner.redundancy.view().offline.contains(target);
        if let Some(membership) = inner.membership.as_mut().filter(|_| is_online) {
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

    /// Starts closing the set after all I/Os have completed; as clean, if no stripe has to be settled.
    pub fn conclude(&self) {
        let mut inner = self.inner();
        let has_failed = matches!(inner.redundancy.state(), State::Failed { .. });
        if let Some(membership) = &mut inner.membership
            && !has_failed
            && self.unsettled.is_empty()
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

    /// Returns `true` if all targets are current.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.state() == State::Healthy
    }

    /// Number of stripes whose last write was interrupted and that have not been settled.
    #[must_use]
    pub fn unsettled_stripes(&self) -> u64 {
        self.unsettled.len()
    }

    /// Starts a scrub of all stripes now, at full speed.
    pub fn scrub_now(&self) {
        let mut inner = self.inner();
        inner.scrub = Some(Scrub::new(0, false));
        self.schedule(&inner);
    }

    /// Starts a scrub of all stripes, at the rate of the plan, unless one is running.
    pub fn start_scrub(&self, now: Duration) {
        let mut inner = self.inner();
        if inner.scrub.is_none() {
            inner.plan.next = Some(now);
            inner.plan.cursor = 0;
        }
        self.schedule(&inner);
    }

    /// Stops the running scrub. The next one begins where it stopped, at the time of the plan. Returns `false` if none
    /// is running.
    pub fn stop_scrub(&self, now: Duration) -> bool {
        let mut inner = self.inner();
        let is_due = inner.plan.next.is_some_and(|next| next <= now);
        let mut scrub = inner.scrub.take();
        if let Some(scrub) = &mut scrub {
            scrub.interrupt();
            inner.plan.cursor = scrub.cursor;
        }
        if scrub.is_some() || is_due {
            inner.plan.next = inner.plan.every.map(|every| now + every);
        }
        self.schedule(&inner);
        scrub.is_some() || is_due
    }

    /// Changes the minimum time between two stripes of a scrub.
    pub fn pace_scrub(&self, interval: Duration) {
        let mut inner = self.inner();
        inner.plan.interval = interval;
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
        // The outcomes of its stripes in progress belong to the view before.
        inner.resync = None;
        if !has_kept {
            self.missed.insert_all();
        }
        let running = Running::new(&self.missed);
        let (count, name) = (running.pass.progress().1, target.name());
        let which = if has_kept {
            "those that it has missed"
        } else {
            "all of them"
        };
        tracing::info!("storage target {name} is online: rebuilding {count} stripes, {which}");
        inner.rebuild = Some(running);
        self.publish(inner);
    }

    /// Returns `true` if there may be [work](Self::next_work).
    #[inline]
    pub(super) fn may_have_work(&self, now: Duration) -> bool {
        self.has_work.load(Ordering::Acquire)
            || self.versions.as_ref().is_some_and(Versions::should_retire)
            || self.work_at.load(Ordering::Acquire) <= micros(now)
    }

    /// Returns `true` if a flush that retires writes is due.
    #[inline]
    pub(super) fn is_retiring_due(&self) -> bool {
        let versions = self.versions.as_ref();
        versions.is_some_and(Versions::should_retire) && self.unsettled.is_empty()
    }

    /// Returns the next stripe to process, if there is one. With `only_retire`, returns only the flush that retires
    /// writes: other work may wait for stripes whose writes wait for numbers, which are available only after the flush
    /// has completed.
    #[cold]
    pub(super) fn next_work(&self, now: Duration, only_retire: bool) -> Option<Work> {
        let mut inner = self.inner();
        // Until all workers have applied the view, a worker might still write a stripe without the target that is being
        // rebuilt. And until the superblocks record that the set is in use, chunks must not be stored.
        if !self.is_committed() || !self.all_have_acted(&inner) {
            return None;
        }
        let generation = inner.redundancy.view().generation;
        let work = |purpose, stripe| Work {
            purpose,
            stripe,
            generation,
        };
        let state = inner.redundancy.state();
        let next = if matches!(state, State::Failed { .. }) {
            None
        } else if let Some(versions) = &self.versions
            && self.is_retiring_due()
            && versions.begin_retiring()
        {
            Some(work(Purpose::Retire, 0))
        } else if only_retire {
            None
        } else if !self.unsettled.is_empty() || inner.resync.is_some() {
            let stripe = self.next_of_pass(&mut inner, None, now);
            stripe.map(|stripe| work(Purpose::Resync, stripe))
        } else if inner.is_quiesced
            || self
                .versions
                .as_ref()
                .is_some_and(Versions::has_many_repairs)
        {
            None
        } else {
            match state {
                State::Rebuilding(target) => {
                    let stripe = self.next_of_pass(&mut inner, Some(target), now);
                    if let (None, Some(rebuild), Some(versions)) =
                        (stripe, &mut inner.rebuild, &self.versions)
                        && rebuild.flush == RebuildFlush::Needed
                        && versions.begin_retiring()
                    {
                        rebuild.flush = RebuildFlush::InFlight;
                        Some(work(Purpose::Retire, 0))
                    } else {
                        stripe.map(|stripe| work(Purpose::Rebuild(target), stripe))
                    }
                }
                State::Healthy => {
                    let stripe = self.next_of_scrub(&mut inner, now);
                    stripe.map(|stripe| work(Purpose::Scrub, stripe))
                }
                State::Degraded(_) | State::Failed { .. } => None,
            }
        };
        inner.at_work += u64::from(next.is_some());
        self.schedule(&inner);
        next
    }

    /// Stops rebuild and scrub before the session ends: from now on, targets store only data that an initiator's writes
    /// need.
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

    /// The next stripe of the rebuild of this target, or of the resync.
    fn next_of_pass(&self, inner: &mut Inner, stale: Option<Target>, now: Duration) -> Option<u64> {
        let (running, stripes): (_, &dyn Runs) = match stale {
            Some(_) => (inner.rebuild.as_mut()?, &self.missed),
            None => {
                let running = inner.resync.take();
                let running = running.unwrap_or_else(|| Running::new(&self.unsettled));
                (inner.resync.insert(running), &self.unsettled)
            }
        };
        running.began.get_or_insert(now);
        if running.pause.is_some_and(|until| now < until) {
            return None;
        }
        running.pause = None;
        match running.pass.next(stripes) {
            Next::Stripe(stripe) => Some(stripe),
            Next::Wait => None,
            Next::EndOfPass { failed } => {
                running.passes += 1;
                if failed != 0 {
                    let (what, pause) = if stale.is_some() {
                        ("rebuilt", RETRY_PAUSE)
                    } else {
                        ("settled", SETTLE_PAUSE)
                    };
                    if running.passes.is_power_of_two() {
                        tracing::warn!("{failed} stripes could not be {what}, trying again");
                    }
                    running.pause = Some(now + pause);
                }
                None
            }
            Next::Complete => {
                let is_versioned = stale.is_some() && self.versions.is_some();
                match running.flush {
                    RebuildFlush::NotNeededYet if is_versioned => {
                        running.flush = RebuildFlush::Needed;
                    }
                    RebuildFlush::Needed | RebuildFlush::InFlight => {}
                    _ => self.pass_completed(inner, stale, now),
                }
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
                // The target is a member only after its superblock records that; otherwise, the next service would not
                // know it.
                return;
            }
        }
        let running = match stale {
            Some(_) => inner.rebuild.take(),
            None => inner.resync.take(),
        };
        let Some(running) = running else {
            return;
        };
        let (done, _) = running.pass.progress();
        let took = running
            .began
            .map_or(Duration::ZERO, |began| now.saturating_sub(began));
        let Some(target) = stale else {
            let Settled {
                rewritten, lost, ..
            } = inner.counts.settled;
            tracing::info!(
                "resync completed: {done} stripes settled in {took:.1?}, {rewritten} rewritten, {lost} lost"
            );
            return;
        };
        tracing::info!(
            "storage target {} is up to date: {done} stripes rebuilt in {took:.1?}",
            target.name()
        );
        inner.redundancy.rebuilt();
        inner.stale = None;
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
        if let (Purpose::Retire, Some(versions)) = (work.purpose, &self.versions) {
            versions.end_retiring();
            let is_current = inner.redundancy.view().generation == work.generation;
            if let Some(rebuild) = &mut inner.rebuild
                && rebuild.flush == RebuildFlush::InFlight
            {
                rebuild.flush = if is_current && outcome == Outcome::Consistent {
                    RebuildFlush::Done
                } else {
                    RebuildFlush::Needed
                };
            }
        }
        if inner.is_quiesced && inner.at_work == 0 {
            (self.wake)();
        }
        if inner.redundancy.view().generation != work.generation {
            return;
        }
        match work.purpose {
            Purpose::Rebuild(_) => {
                let is_rebuilt = matches!(
                    outcome,
                    Outcome::Consistent | Outcome::Rewritten(_) | Outcome::StoredAgain
                );
                inner.counts.rebuilt += u64::from(is_rebuilt);
                Self::finish_of_pass(&mut inner.rebuild, &self.missed, work, outcome);
            }
            Purpose::Resync => {
                let settled = &mut inner.counts.settled;
                match outcome {
                    Outcome::Retry => {}
                    Outcome::Consistent => settled.consistent += 1,
                    Outcome::Rewritten(_) | Outcome::StoredAgain => settled.rewritten += 1,
                    Outcome::Lost => settled.lost += 1,
                    Outcome::Unread => {}
                }
                Self::finish_of_pass(&mut inner.resync, &self.unsettled, work, outcome);
            }
            Purpose::Scrub => self.finish_of_scrub(&mut inner, work.stripe, outcome, now),
            Purpose::Retire => {}
        }
        self.schedule(&inner);
    }

    fn finish_of_pass(
        running: &mut Option<Running>,
        stripes: &dyn Runs,
        work: Work,
        outcome: Outcome,
    ) {
        let Some(running) = running.as_mut() else {
            return;
        };
        let is_done = match outcome {
            Outcome::Retry => false,
            Outcome::Unread if work.purpose == Purpose::Resync => {
                running.passes >= PATIENT_RESYNC_PASSES
            }
            Outcome::Unread => running.passes >= PATIENT_PASSES,
            Outcome::Lost | Outcome::Consistent | Outcome::Rewritten(_) | Outcome::StoredAgain => {
                true
            }
        };
        running.pass.finish(stripes, work.stripe, is_done);
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
            Outcome::Retry => scrub.failed += 1,
            _ => scrub.done += 1,
        }
        counts.stripes += u64::from(outcome != Outcome::Retry);
        if matches!(outcome, Outcome::Lost | Outcome::Unread) {
            scrub.lost += 1;
            counts.lost += 1;
        }
        let tenths = (scrub.cursor * 10).checked_div(self.stripes).unwrap_or(10);
        if tenths > scrub.reported && tenths < 10 {
            scrub.reported = tenths;
            tracing::info!("scrub: {} of {} stripes", scrub.cursor, self.stripes);
        }
        if scrub.cursor < self.stripes || !scrub.in_flight.is_empty() {
            return;
        }
        let (done, failed, lost) = (scrub.done, scrub.failed, scrub.lost);
        let took = scrub
            .began
            .map_or(Duration::ZERO, |began| now.saturating_sub(began));
        let was_paced = scrub.is_paced;
        tracing::info!(
            "scrub completed: {done} stripes in {took:.1?}, {lost} lost, {failed} not read"
        );
        counts.completed += 1;
        inner.scrub = None;
        inner.plan.cursor = 0;
        if failed != 0 {
            // These stripes are retried soon.
            inner.plan.next = inner.plan.next.map(|_| now + RETRY_PAUSE);
            return;
        }
        if was_paced {
            inner.plan.next = inner.plan.every.map(|every| now + every);
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
            unsettled_stripes: self.unsettled.len(),
            pass: inner
                .rebuild
                .as_ref()
                .or(inner.resync.as_ref())
                .map(|running| {
                    let (done, total) = running.pass.progress();
                    PassProgress {
                        is_rebuild,
                        done,
                        total,
                    }
                }),
            scrub: inner.scrub.as_ref().map(|scrub| scrub.cursor),
            stalled: inner.counts.stalled,
            held: inner.held,
            epoch: (inner.membership.as_ref()).map(|it| (it.set(), it.epoch())),
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
            settled_stripes: inner.counts.settled,
            repaired_chunks: inner.counts.repaired,
            scrubbed: inner.counts.scrub,
        }
    }

    /// Logs a warning if the next session has to rebuild a target completely: the bitmap of missed stripes is not persisted.
    pub fn warn_of_missed_stripes(&self) {
        let inner = self.inner();
        let (target, next) = match inner.redundancy.state() {
            State::Degraded(target) => (
                target,
                "these when it is back, or all of it if this process is restarted",
            ),
            State::Rebuilding(target) => (target, "all of it"),
            _ => return,
        };
        tracing::warn!(
            "the session has ended, and storage target {} has missed {} stripes that were not rebuilt: the next session rebuilds {next}",
            target.name(),
            self.missed.len()
        );
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
        let Settled {
            consistent,
            rewritten,
            lost,
        } = self.settled_stripes;
        writeln!(
            f,
            "| Settled stripes: {consistent} consistent, {rewritten} rewritten, {lost} lost"
        )?;
        for target in Target::ALL {
            let count = self.repaired_chunks[target.number()];
            writeln!(f, "| Repaired chunks of {}: {count}", target.name())?;
        }
        let Scrubbed {
            completed,
            stripes,
            lost,
        } = self.scrubbed;
        writeln!(f, "| Scrubs: {completed}, {stripes} stripes, {lost} lost")
    }
}

#[cfg(test)]
pub(super) mod tests {
    use role_formats::stored_block::MatrixType;
    use role_formats::superblock::{Form, Format, SetId};
    use wire::control::RecordState;

    use super::*;
    use crate::assembly::{Instructions, Log, assemble};
    use crate::membership::EpochIds;
    use crate::versions::{FIRST, InFlight};

    const FORM: Form = Form {
        format: Format::StoredChunks,
        matrix: MatrixType::Vandermonde,
        logical_block_size: 4096,
    };

    /// Number of stripes of the tests' sets.
    pub(crate) const STRIPES: u64 = 8;

    /// The epoch that the targets of the tests' sets have committed.
    pub(crate) const EPOCH: Epoch = Epoch { number: 3, id: 30 };

    /// Makes a target that all workers have attached rejoin.
    #[track_caller]
    fn rejoin(set: &Set, target: Target, has_kept: bool) {
        let generation = set.view().generation;
        assert!(set.rejoin(Candidate { target, generation }, has_kept));
    }

    fn candidate(set: &Set) -> Option<Target> {
        set.rejoin_candidate().map(|it| it.target)
    }

    /// A set whose targets have committed [`EPOCH`] and have to commit another epoch. With `unsettled` stripes, it was
    /// not shut down cleanly.
    ///
    /// Writes with lower stamps than `retired` are retired.
    fn new_set(workers: u32, unsettled: &[u64], retired: Stamp) -> Set {
        let state = if unsettled.is_empty() {
            RecordState::Clean
        } else {
            RecordState::InUse
        };
        let found = Target::ALL.map(|target| {
            Found::Superblock(Superblock {
                state,
                ..found(target, EPOCH)
            })
        });
        let logs: [Log; 3] = std::array::from_fn(|_| Log {
            unretired: unsettled.to_vec(),
            retired: Some(retired),
            ..Log::default()
        });
        let instructions = Instructions {
            rebuild: None,
            form: FORM,
            new_set: SetId(99),
            ids: EpochIds::new(5),
        };
        let assembly = assemble(found, &logs, instructions).expect("a set");
        let plan = ScrubPlan {
            next: None,
            every: None,
            interval: Duration::ZERO,
            cursor: 0,
        };
        Set::new(
            StripeBitmap::new(STRIPES),
            workers,
            assembly,
            None,
            plan,
            256,
            || (),
        )
    }

    /// As [`new_set`], with superblocks that record that the set is in use.
    pub(crate) fn open_set(workers: u32, unsettled: &[u64]) -> Set {
        open_set_since(workers, unsettled, first_of(EPOCH.number))
    }

    /// Stamp of the first write of an epoch.
    pub(crate) fn first_of(epoch: u64) -> Stamp {
        let number = FIRST;
        Stamp { epoch, number }
    }

    pub(crate) fn open_set_since(workers: u32, unsettled: &[u64], retired: Stamp) -> Set {
        let set = new_set(workers, unsettled, retired);
        persist(&set);
        assert!(set.is_committed());
        set
    }

    /// All online targets persist their superblocks, in two rounds.
    pub(crate) fn persist(set: &Set) {
        for target in Target::ALL.into_iter().chain(Target::ALL) {
            if let Some(superblock) = set.superblock_of(target) {
                set.persisted(target, superblock);
            }
        }
    }

    pub(crate) fn found(target: Target, epoch: Epoch) -> Superblock {
        Superblock {
            set: SetId(7),
            member: target as u32,
            epoch,
            next: Epoch::NONE,
            state: RecordState::Clean,
            form: FORM,
        }
    }

    fn acknowledge(set: &Set) {
        for worker in 0..set.acted_on.len() as u32 {
            set.acknowledge(worker, set.view());
        }
    }

    /// Hands out all pending work, and reports this outcome for the stripes.
    fn work_through(set: &Set, now: Duration, outcome: Outcome) -> Vec<Work> {
        acknowledge(set);
        let mut works = Vec::new();
        while let Some(work) = set.next_work(now, false) {
            let outcome = match work.purpose {
                Purpose::Retire => {
                    let versions = set.versions().expect("stored chunks");
                    versions.retire(versions.retirable());
                    Outcome::Consistent
                }
                _ => outcome,
            };
            set.finish_work(work, outcome, now);
            works.push(work);
        }
        works
    }

    const STALE: Target = Target::Data2;

    /// A set that rebuilds [`STALE`], which may have kept its data.
    fn rebuilding_set(workers: u32, has_kept: bool) -> Set {
        let set = open_set(workers, &[]);
        work_through(&set, Duration::ZERO, Outcome::Consistent);
        set.detach(STALE, "test");
        persist(&set);
        rejoin(&set, STALE, has_kept);
        assert_eq!(set.state(), State::Rebuilding(STALE));
        set
    }

    #[test]
    fn target_has_what_it_had_only_if_it_has_the_epoch_that_it_departed_with() {
        let set = new_set(1, &[], first_of(EPOCH.number));
        set.detach(STALE, "test");
        let admit = |epoch, is_same| {
            let found = Found::Superblock(found(STALE, epoch));
            set.admit(STALE, found, is_same, Stamp::UNWRITTEN)
        };
        assert_eq!(admit(EPOCH, true), Ok(true));
        assert_eq!(admit(EPOCH, false), Ok(false));
        assert_eq!(admit(Epoch { number: 2, id: 20 }, true), Ok(false));
    }

    #[test]
    fn target_that_has_committed_no_epoch_is_rebuilt_whole() {
        let set = new_set(1, &[], first_of(EPOCH.number));
        set.detach(STALE, "test");
        // The target is not a member until it is rebuilt: its superblock has no epoch.
        rejoin(&set, STALE, false);
        set.detach(STALE, "test");
        let again = Found::Superblock(found(STALE, Epoch::NONE));
        assert_eq!(set.admit(STALE, again, true, Stamp::UNWRITTEN), Ok(false));
    }

    /// An older copy of a disk has the same identity, and may contain all data that was stored in this session.
    #[test]
    fn needed_target_that_missed_an_epoch_is_not_admitted() {
        let set = open_set(1, &[]);
        let before = set.superblock_of(Target::Data1).expect("a superblock");
        set.detach(STALE, "test");
        persist(&set);
        let now = set.superblock_of(Target::Data1).expect("a superblock");
        assert_ne!(now.epoch, before.epoch);
        set.detach(Target::Data1, "test");
        let admit = |superblock| {
            let found = Found::Superblock(superblock);
            set.admit(Target::Data1, found, true, Stamp::UNWRITTEN)
        };
        assert!(admit(before).is_err());
        assert_eq!(admit(now), Ok(true));
    }

    /// The other service may commit its epoch on the other targets.
    #[test]
    fn needed_target_that_another_service_has_prepared_is_not_admitted() {
        let set = open_set(1, &[]);
        let before = set.superblock_of(Target::Data1).expect("a superblock");
        set.detach(STALE, "test");
        set.detach(Target::Data1, "test");
        let own = set.superblock_of(Target::DataP).expect("a superblock").next;
        assert_ne!(own, Epoch::NONE);
        let id = own.id + 1;
        let admit = |next| {
            let found = Found::Superblock(Superblock { next, ..before });
            set.admit(Target::Data1, found, true, Stamp::UNWRITTEN)
        };
        assert!(admit(Epoch { id, ..own }).is_err());
        assert_eq!(admit(own), Ok(true));
        assert_eq!(admit(Epoch::NONE), Ok(true));
    }

    /// While a target is disconnected, another service may use it, and overwrite what it had confirmed to this one.
    #[test]
    fn epoch_is_committed_only_while_all_members_are_connected() {
        let set = open_set(1, &[]);
        set.detach(STALE, "test");
        let persist = |target| {
            let superblock = set.superblock_of(target).expect("it is online");
            set.persisted(target, superblock);
            superblock
        };
        let prepared = persist(Target::DataP);
        set.detach(Target::Data1, "test");
        set.detach(Target::DataP, "test");
        set.persisted(Target::DataP, prepared);
        acknowledge(&set);
        rejoin(&set, Target::Data1, true);
        persist(Target::Data1);
        let now = set.superblock_of(Target::Data1).expect("it is online");
        assert_ne!(
            now.epoch, prepared.next,
            "data_p has not confirmed it again"
        );
        acknowledge(&set);
        rejoin(&set, Target::DataP, true);
        persist(Target::DataP);
        let now = set.superblock_of(Target::Data1).expect("it is online");
        assert_eq!(now.epoch, prepared.next);
    }

    #[test]
    fn target_is_kept_offline_until_it_is_released() {
        let set = open_set(1, &[]);
        assert_eq!(set.hold(STALE), Ok(()));
        assert_eq!(set.state(), State::Degraded(STALE));
        persist(&set);
        acknowledge(&set);
        assert_eq!(set.rejoin_candidate(), None);
        assert_eq!(set.hold(Target::Data1), Err(Needed::NotCurrent(STALE)));
        assert!(!set.release(Target::Data1) && set.release(STALE) && !set.release(STALE));
        assert_eq!(set.rejoin_candidate().map(|it| it.target), Some(STALE));
        set.detach(Target::Data1, "test");
        assert_eq!(set.hold(STALE), Err(Needed::Failed));
    }

    #[test]
    fn target_whose_data_was_discarded_is_rebuilt_whole() {
        let set = open_set(1, &[]);
        let before = set.superblock_of(STALE).expect("it is online");
        assert_eq!(set.rebuild(STALE), Ok(()));
        persist(&set);
        let admit = || {
            let found = Found::Superblock(before);
            set.admit(STALE, found, true, Stamp::UNWRITTEN)
        };
        assert_eq!(admit(), Ok(false));
        rejoin(&set, STALE, true);
        assert_eq!(set.state(), State::Rebuilding(STALE));
        assert_eq!(set.snapshot().summary.missed_stripes, set.stripes);
        assert_eq!(set.rebuild(Target::DataP), Err(Needed::NotCurrent(STALE)));
        set.detach(STALE, "test");
        assert_eq!(set.rebuild(STALE), Ok(()), "again, from the start");
    }

    #[test]
    fn scrub_is_started_and_stopped_by_the_operator() {
        let set = open_set(1, &[]);
        let now = Duration::from_secs(7);
        assert!(!set.stop_scrub(now));
        work_through(&set, now, Outcome::Consistent);
        set.start_scrub(now);
        let next = |stripe| {
            let work = set.next_work(now, false).expect("a stripe");
            assert_eq!((work.purpose, work.stripe), (Purpose::Scrub, stripe));
            work
        };
        set.finish_work(next(0), Outcome::Consistent, now);
        let work = next(1);
        assert!(set.stop_scrub(now));
        set.finish_work(work, Outcome::Consistent, now);
        assert_eq!(set.next_work(now, false), None);
        assert_eq!(
            set.scrub_plan().cursor,
            1,
            "the stripe in progress is repeated"
        );
    }

    /// A set of unwritten blocks is rebuilt without writes to its targets.
    #[test]
    fn target_that_was_rebuilt_has_what_it_had_without_the_chunks_of_its_disk_before() {
        let set = rebuilding_set(1, false);
        set.has_stored(STALE, Stamp::lost(STALE));
        set.detach(STALE, "test");
        persist(&set);
        rejoin(&set, STALE, false);
        persist(&set);
        work_through(&set, Duration::ZERO, Outcome::Consistent);
        persist(&set);
        work_through(&set, Duration::ZERO, Outcome::Consistent);
        assert_eq!(set.state(), State::Healthy);
        set.detach(Target::Data1, "test");
        persist(&set);
        let rebuilt = set.superblock_of(STALE).expect("a superblock");
        set.detach(STALE, "test");
        let found = Found::Superblock(rebuilt);
        assert_eq!(set.admit(STALE, found, true, Stamp::UNWRITTEN), Ok(true));
    }

    /// The target's superblock records that it is a member, and the other two continue without it.
    #[test]
    fn rebuilt_target_that_is_lost_together_with_another_one_is_no_member() {
        let set = rebuilding_set(1, true);
        persist(&set);
        work_through(&set, Duration::ZERO, Outcome::Consistent);
        let rebuilt = set.superblock_of(STALE).expect("a superblock");
        assert_eq!(
            Some(rebuilt.epoch),
            set.superblock_of(Target::Data1).map(|it| it.epoch)
        );
        set.detach(Target::Data1, "test");
        set.detach(STALE, "test");
        acknowledge(&set);
        rejoin(&set, Target::Data1, true);
        assert_eq!(set.state(), State::Degraded(STALE));
        assert!(!set.is_committed(), "no write is acknowledged yet");
        persist(&set);
        let now = set.superblock_of(Target::Data1).expect("a superblock");
        assert!(now.epoch.number > rebuilt.epoch.number);
    }

    /// A copy of the target's disk may contain the last write, but not the previous ones.
    #[test]
    fn detached_target_has_missed_recent_writes() {
        let set = open_set(1, &[]);
        let versions = set.versions().expect("stored chunks");
        versions.retire(versions.retirable());
        let mut in_flight = InFlight::new(0, 2);
        let mut write = |stripe| {
            let stamp = versions.begin(&mut in_flight, stripe, false);
            versions.end(&mut in_flight, stamp.expect("a number"));
        };
        write(2);
        versions.retire(versions.retirable());
        write(5);
        set.detach(STALE, "test");
        let missed = (0..STRIPES).filter(|&stripe| set.missed.contains(stripe));
        assert_eq!(Vec::from_iter(missed), [2, 5], "the first one is retired");
    }

    #[test]
    fn stamps_of_sessions_that_only_settled_are_known() {
        let set = open_set_since(1, &[], first_of(EPOCH.number - 1));
        let of = |epoch| set.is_settled_before(Stamp { epoch, number: 5 });
        assert!(of(EPOCH.number));
        assert!(!of(EPOCH.number - 1), "there were writes");
        let epoch = set.versions().expect("stored chunks").epoch();
        assert!(!of(epoch), "a write of this session may have failed");
    }

    /// The targets after a session of `set`, in which data_2 was detached, has ended.
    fn found_after(set: &Set) -> [Found; 3] {
        let membership = set.inner().membership.clone().expect("a set");
        let mut superblocks = Target::ALL.map(|target| membership.superblock_of(target));
        superblocks[1] = found(Target::Data2, EPOCH);
        superblocks[1].epoch = first_epoch();
        superblocks.map(Found::Superblock)
    }

    /// The epoch of a set that was just opened.
    fn first_epoch() -> Epoch {
        let set = open_set(1, &[]);
        let membership = set.inner().membership.clone().expect("a set");
        membership.epoch()
    }

    #[test]
    fn next_session_rebuilds_what_a_target_that_was_offline_has_missed() {
        let set = open_set(1, &[]);
        assert!(set.unfinished().is_none(), "all are online");
        set.has_stored(Target::Data2, first_of(4));
        set.detach(Target::Data2, "gone");
        persist(&set);
        assert!(set.unfinished().is_none(), "the worker has not detached it");
        set.acknowledge(0, set.view());
        set.missed.insert(5);
        set.conclude();
        persist(&set);
        persist(&set);
        assert!(set.is_concluded());
        let found = found_after(&set);
        let again = |found: [Found; 3], rebuild| {
            let instructions = Instructions {
                rebuild,
                form: FORM,
                new_set: SetId(99),
                ids: EpochIds::new(6),
            };
            assemble(found, &<[Log; 3]>::default(), instructions).expect("a set")
        };
        let unfinished = set.unfinished().expect("data_2 is offline");
        assert_eq!(unfinished.target(), Target::Data2);
        let is = |assembly: &Assembly, found: [Found; 3], is_same, last| {
            unfinished.applies(assembly, found[1], is_same, last)
        };
        let assembly = again(found, None);
        assert!(is(&assembly, found, true, first_of(4)));
        assert!(!is(&assembly, found, false, first_of(4)), "another storage");
        assert!(!is(&assembly, found, true, first_of(3)), "an older copy");
        let mut missing = found;
        missing[1] = Found::Missing;
        assert!(is(&again(missing, None), missing, false, Stamp::UNWRITTEN));
        let mut blank = found;
        blank[1] = Found::Blank;
        assert!(!is(&again(blank, None), blank, true, first_of(4)));
        let discarded = again(found, Some(Target::Data2));
        assert!(!is(&discarded, found, true, first_of(4)), "--rebuild");
        // Another service has begun to use the set.
        let mut used = found;
        if let Found::Superblock(superblock) = &mut used[0] {
            superblock.next = Epoch {
                number: superblock.epoch.number + 1,
                id: 7,
            };
        }
        assert!(!is(&again(used, None), used, true, first_of(4)));

        let plan = set.scrub_plan();
        let missed = StripeBitmap::new(STRIPES);
        let next = Set::new(missed, 1, assembly, Some(unfinished), plan, 256, || ());
        assert_eq!(next.state(), State::Rebuilding(Target::Data2));
        assert!(next.missed.contains(5) && !next.missed.contains(4));
    }

    #[test]
    fn target_rejoins_after_the_epoch_without_it_is_committed_and_all_workers_have_detached_it() {
        let set = open_set(2, &[]);
        set.detach(STALE, "test");
        acknowledge(&set);
        assert_eq!(candidate(&set), None, "not committed");
        persist(&set);
        assert_eq!(candidate(&set), Some(STALE));
        rejoin(&set, STALE, true);
        set.detach(STALE, "test");
        persist(&set);
        set.acknowledge(0, set.view());
        assert_eq!(candidate(&set), None, "worker 1 has not detached it");
        set.acknowledge(1, set.view());
        assert_eq!(candidate(&set), Some(STALE));
    }

    /// The superblocks do not record that the set is in use, so the next session may begin with the targets unchanged.
    #[test]
    fn no_work_begins_before_the_epoch_is_committed() {
        let set = new_set(1, &[5], first_of(EPOCH.number));
        acknowledge(&set);
        assert_eq!(set.next_work(Duration::ZERO, false), None);
        persist(&set);
        let work = set.next_work(Duration::ZERO, false);
        let expected = Some((Purpose::Resync, 5));
        assert_eq!(work.map(|it| (it.purpose, it.stripe)), expected);
    }

    /// A worker that has not applied the view with the rejoined target stores writes without it.
    #[test]
    fn rebuild_starts_after_all_workers_have_the_view() {
        let set = rebuilding_set(2, false);
        set.acknowledge(0, set.view());
        assert_eq!(set.next_work(Duration::ZERO, false), None);
        set.acknowledge(1, set.view());
        let work = set.next_work(Duration::ZERO, false).expect("work");
        assert_eq!(work.purpose, Purpose::Rebuild(STALE));
    }

    #[test]
    fn rebuilt_target_is_current_after_its_superblock_says_so() {
        let set = rebuilding_set(1, false);
        // The target persists its empty superblock.
        persist(&set);
        let works = work_through(&set, Duration::ZERO, Outcome::Rewritten(STALE));
        assert_eq!(works.len() as u64, STRIPES + 1, "{works:?}");
        assert_eq!(set.state(), State::Rebuilding(STALE));
        persist(&set);
        assert!(work_through(&set, Duration::ZERO, Outcome::Retry).is_empty());
        assert_eq!(set.state(), State::Healthy);
    }

    /// The other two targets may become readable later. Finally, the rebuild is completed without the stripe.
    #[test]
    fn stripe_that_cannot_be_read_is_tried_again_before_the_rebuild_is_completed() {
        let set = rebuilding_set(1, true);
        set.missed.insert(5);
        persist(&set);
        let mut now = Duration::ZERO;
        for pass in 0..PATIENT_PASSES {
            let works = work_through(&set, now, Outcome::Unread);
            assert_eq!(works.len(), 1, "pass {pass}: {works:?}");
            assert!(set.missed.contains(5));
            now += RETRY_PAUSE;
        }
        work_through(&set, now, Outcome::Unread);
        assert!(!set.missed.contains(5));
        persist(&set);
        work_through(&set, now, Outcome::Unread);
        assert_eq!(set.state(), State::Healthy);
    }

    /// The target may have missed the stripe again.
    #[test]
    fn outcome_of_work_from_before_a_detachment_does_not_count() {
        let set = rebuilding_set(1, true);
        set.missed.insert(5);
        let next = || {
            acknowledge(&set);
            set.next_work(Duration::ZERO, false).expect("work")
        };
        let before = next();
        set.detach(STALE, "test");
        persist(&set);
        rejoin(&set, STALE, true);
        let again = next();
        assert_eq!((before.stripe, again.stripe), (5, 5));
        set.finish_work(before, Outcome::Consistent, Duration::ZERO);
        assert!(set.missed.contains(5));
        set.finish_work(again, Outcome::Rewritten(STALE), Duration::ZERO);
        assert!(!set.missed.contains(5));
    }

    #[test]
    fn set_with_unsettled_stripes_is_not_closed_as_clean() {
        let state = |set: &Set| {
            let superblock = set.superblock_of(Target::Data1);
            superblock.expect("a superblock").state
        };
        for is_settled in [false, true] {
            let set = open_set(1, &[5]);
            if is_settled {
                set.settle(5);
            }
            set.conclude();
            persist(&set);
            assert!(set.is_concluded());
            let expected = if is_settled {
                RecordState::Clean
            } else {
                RecordState::InUse
            };
            assert_eq!(state(&set), expected);
        }
    }
}
