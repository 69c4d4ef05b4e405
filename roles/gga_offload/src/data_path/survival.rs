//! I/Os go on without a target.
//!
//! Whoever notices that a target is gone says so to all: another worker, the main thread, or this worker, whose contexts
//! stop, whose tasks fail, or who waits too long. In its next turn, each worker parts from the target: it stops the target's
//! contexts, and lets every transaction go on that waits for it. A read is begun again without the half, a write is done when
//! the two others have stored theirs and the stripe is remembered.
//!
//! A target that only fails to read is not lost: the block is read through the others. One that fails to write is: what it
//! holds is old from then on.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use doca::{ContextId, ErrorCode};
use role_common::Failure;
use role_common::service::endpoints::TargetEnds;
use wire::io_message::IoMessageType;

use super::silence::Silence;
use super::token::{Kind, Token};
use super::transaction::Stage;
use super::{GgaDataPath, SurvivalSetup};
use crate::redundancy::{Shared, View};
use crate::statistics::DegradedCounts;
use crate::target::{Target, Targets};

/// What a worker needs to go on without a target.
pub(super) struct Survival {
    pub(super) shared: Arc<Shared>,
    /// What was last acted on.
    pub(super) view: View,
    /// The worker has parted from them.
    pub(super) detached: Targets,
    /// Transactions that rebuild, and have nothing to do.
    pub(super) idle_rebuilders: Vec<usize>,
    /// Transactions whose write a lost target misses, before the others keep that.
    pub(super) unsealed: Vec<usize>,
    /// Whether nothing comes any more of what was before the view.
    is_settled: bool,
    /// The contexts of these, whose last events may not have been taken yet.
    retired: Vec<ContextId>,
    silence: Silence,
}

impl Survival {
    /// With these transactions to rebuild with.
    pub(super) fn new(setup: &SurvivalSetup, rebuilders: Range<usize>) -> Self {
        Self {
            shared: Arc::clone(&setup.shared),
            view: View::WHOLE,
            detached: Targets::NONE,
            unsealed: Vec::with_capacity(rebuilders.end),
            idle_rebuilders: rebuilders.collect(),
            is_settled: true,
            retired: Vec::new(),
            silence: Silence::new(setup.silence, Instant::now()),
        }
    }

    /// The period in which targets are asked now.
    pub(super) fn period(&self) -> u32 {
        self.silence.period()
    }
}

/// Whether these are the contexts of a target.
fn owns(ends: &TargetEnds, context: ContextId) -> bool {
    [ends.control.rdma().id(), ends.data.rdma().id()].contains(&context)
}

impl GgaDataPath {
    /// What there is to do about targets in every turn.
    #[inline]
    pub(super) fn look_after_targets(&mut self, idle: bool) -> Result<(), Failure> {
        let Some(survival) = &mut self.survival else {
            return Ok(());
        };
        if survival.silence.turn(idle) {
            self.look_for_silence();
        }
        self.end_seals()?;
        let Some(survival) = &mut self.survival else {
            return Ok(());
        };
        if idle && !survival.is_settled {
            // Whatever the contexts of lost targets had to say was taken before there was nothing to do.
            survival.is_settled = true;
            survival.retired.clear();
            let worker = self.setup.worker.index;
            survival.shared.acknowledge(worker, survival.view);
        }
        if survival.shared.has_changed(survival.view) {
            return self.view_changed();
        }
        if survival.shared.errands.has_any(self.setup.worker.index) && survival.is_settled {
            return self.do_errand();
        }
        if survival.view.rebuilding.is_empty() && !survival.shared.verifies() {
            return Ok(());
        }
        self.begin_rebuilds()
    }

    /// Loses the targets that owe an answer for too long.
    #[cold]
    fn look_for_silence(&mut self) {
        let Some(survival) = &self.survival else {
            return;
        };
        for transaction in &self.transactions {
            let owing = transaction.awaited.union(transaction.sending);
            if !owing.is_empty() && survival.silence.is_too_long(transaction.asked_in) {
                for target in owing.iter() {
                    let stripe = transaction.stripe();
                    survival.shared.lose(
                        target,
                        format_args!("it does not answer, asked for block {stripe}"),
                    );
                }
            }
        }
    }

    /// Parts from targets that were lost.
    #[cold]
    fn view_changed(&mut self) -> Result<(), Failure> {
        let Some(survival) = &mut self.survival else {
            return Ok(());
        };
        survival.view = survival.shared.view();
        survival.is_settled = false;
        let parting = survival.view.lost.minus(survival.detached);
        parting.iter().try_for_each(|target| self.detach(target))
    }

    #[cold]
    pub(super) fn detach(&mut self, target: Target) -> Result<(), Failure> {
        let Some(survival) = &mut self.survival else {
            return Ok(());
        };
        survival.detached.insert(target);
        self.deferred.retain(|token| match Token(token).parts().1 {
            Kind::Send(other) | Kind::ReceiveResult(other) => other != target,
            _ => true,
        });
        if let Some(ends) = self.targets[target.number()].take() {
            let ids = [ends.control.rdma().id(), ends.data.rdma().id()];
            survival.retired.extend(ids);
            survival.is_settled = false;
            // Its tasks stay, and answer that their context is gone.
            drop(ends);
        }
        for index in 0..self.transactions.len() {
            let transaction = &mut self.transactions[index];
            let owing = transaction.awaited.union(transaction.sending);
            if !owing.contains(target) {
                continue;
            }
            if transaction.awaited.contains(target) {
                transaction.without.insert(target);
            }
            transaction.awaited.remove(target);
            transaction.sending.remove(target);
            if transaction.is_quiet() {
                self.targets_answered(index)?;
            }
        }
        Ok(())
    }

    /// Whether this worker has parted from a target.
    #[inline]
    pub(super) fn is_detached(&self, target: Target) -> bool {
        (self.survival.as_ref()).is_some_and(|survival| survival.detached.contains(target))
    }

    /// Whether a context is, or was, one of a target that the worker goes on without when it stops.
    #[cold]
    pub(super) fn is_of_target(&self, context: ContextId) -> bool {
        let Some(survival) = &self.survival else {
            return false;
        };
        survival.retired.contains(&context)
            || (self.targets.iter().flatten()).any(|ends| owns(ends, context))
    }

    /// A context of a target stops by itself.
    #[cold]
    pub(super) fn connection_lost(&mut self, context: ContextId) {
        for target in Target::ALL {
            let ends = self.targets[target.number()].as_ref();
            if ends.is_some_and(|ends| owns(ends, context)) {
                self.lose(target, format_args!("an RDMA connection to it has ended"));
            }
        }
    }

    /// A message to or from a target failed: it is lost, and with it everything where nothing goes on without it.
    #[cold]
    pub(super) fn target_failed(
        &mut self,
        target: Target,
        kind: Kind,
        code: ErrorCode,
    ) -> Result<(), Failure> {
        let why = format!(
            "{kind:?} failed: storage target {} or its connection is broken",
            target.name()
        );
        if self.survival.is_none() {
            return Err(Failure::new(code, why));
        }
        if !self.is_detached(target) {
            self.lose(target, Failure::new(code, why));
        }
        Ok(())
    }

    pub(super) fn lose(&self, target: Target, why: impl fmt::Display) {
        if let Some(survival) = &self.survival {
            survival.shared.lose(target, why);
        }
    }

    fn counts(&mut self) -> &mut DegradedCounts {
        self.statistics.degraded.get_or_insert_default()
    }

    /// Targets that the block at hand can be read from.
    fn sources(&self, index: usize) -> Targets {
        let Some(survival) = &self.survival else {
            return Targets::ALL;
        };
        let transaction = &self.transactions[index];
        let missed = survival.shared.missed.contains(transaction.stripe());
        survival.view.sources(missed).minus(transaction.avoided)
    }

    /// Whether the block at hand can be read from this target.
    pub(super) fn is_source(&self, index: usize, target: Target) -> bool {
        self.sources(index).contains(target)
    }

    /// The half that a read of the block at hand does without, if any; `None` when it does without too many.
    pub(super) fn half_to_do_without(&mut self, index: usize) -> Option<Option<Target>> {
        let sources = self.sources(index);
        match View::missing_half(sources)? {
            None if sources.contains(Target::DataP) => Some(self.next_lost()),
            None => Some(None),
            Some(lost) => {
                self.counts().reads += 1;
                Some(Some(lost))
            }
        }
    }

    /// The block at hand cannot be read or written with the targets that are left.
    #[cold]
    pub(super) fn too_few_targets(&mut self, index: usize) -> Result<(), Failure> {
        let stripe = self.transactions[index].stripe();
        let impossible = &mut self.counts().impossible;
        if impossible.count() {
            let count = *impossible;
            tracing::error!("too few storage targets are left for block {stripe} ({count} so far)");
        }
        let code = self.transactions[index].error;
        self.fail(index, code.unwrap_or(ErrorCode::IO_FAILED))
    }

    /// Has the halves of the block at hand stored, on all targets that there are.
    pub(super) fn store_on_the_left(&mut self, index: usize) -> Result<(), Failure> {
        let Some(survival) = &self.survival else {
            return Err(Failure::unexpected("a write without its targets"));
        };
        let Some(sinks) = survival.view.sinks() else {
            return self.too_few_targets(index);
        };
        if sinks != Targets::ALL {
            survival
                .shared
                .missed
                .insert(self.transactions[index].stripe());
            self.counts().writes += 1;
        }
        self.ask_targets(index, sinks, IoMessageType::Write, Stage::Store)
    }

    /// All targets that were asked have answered, or are lost.
    pub(super) fn those_left_answered(&mut self, index: usize) -> Result<(), Failure> {
        let transaction = &self.transactions[index];
        if let Some(work) = transaction.rebuilds {
            return self.rebuild_answered(index, work);
        }
        match (transaction.stage, transaction.without.is_empty()) {
            (Stage::Halves, true) => self.halves_read(index),
            (Stage::Halves, false) => self.read_failed(index),
            (Stage::LastHalf, true) => self.suspect(index, Target::Data1),
            (Stage::LastHalf, false) => self.judge_two_halves(index),
            (Stage::Store, _) => self.stored(index),
            (stage, _) => Err(Failure::unexpected(format!(
                "targets answered a transaction that waits for {stage:?}"
            ))),
        }
    }

    /// A half was not read: the block is read without it.
    #[cold]
    fn read_failed(&mut self, index: usize) -> Result<(), Failure> {
        let transaction = &mut self.transactions[index];
        let (without, code, stripe) =
            (transaction.without, transaction.error, transaction.stripe());
        transaction.avoided = transaction.avoided.union(without);
        for target in without
            .iter()
            .filter(|&target| !self.is_detached(target))
            .collect::<Vec<_>>()
        {
            let failed = &mut self.counts().failed_reads[target.number()];
            if failed.count() {
                let (count, name) = (*failed, target.name());
                let code = code.unwrap_or(ErrorCode::IO_FAILED).name();
                tracing::warn!(
                    "storage target {name} failed to read its half of block {stripe} ({code}, {count} so far); the others \
                     make up for it"
                );
            }
        }
        self.begin_read(index)
    }

    /// Every target has stored its half, or is lost, or has failed to.
    fn stored(&mut self, index: usize) -> Result<(), Failure> {
        let Some(survival) = &self.survival else {
            return Err(Failure::unexpected("a write without its targets"));
        };
        let transaction = &self.transactions[index];
        let (stripe, without) = (transaction.stripe(), transaction.without);
        // Before the stripe is remembered: a target that has missed it already does not count.
        let missed = survival.shared.missed.contains(stripe);
        let holders = survival.view.holders(transaction.asked, without, missed);
        if !without.is_empty() {
            let code = transaction.error.unwrap_or(ErrorCode::IO_FAILED).name();
            for target in without.iter() {
                // Known, unless it has answered with an error.
                let why = format_args!("it failed to write its half of block {stripe}: {code}");
                survival.shared.lose(target, why);
            }
            survival.shared.missed.insert(stripe);
        }
        // A second loss: the write may be on two targets, but nobody would know of it when the stripe is read.
        if holders.len() < 2 || survival.shared.view().has_failed() {
            return self.too_few_targets(index);
        }
        if !without.is_empty() {
            self.counts().writes += 1;
        }
        self.stored_on_enough(index)
    }
}
