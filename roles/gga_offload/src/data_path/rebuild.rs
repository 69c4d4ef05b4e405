//! Rebuilding what a target has missed, stripe by stripe.
//!
//! It is done by transactions of the worker's own, beside those of the initiator. A stripe is taken as a write takes it, so
//! that nobody writes it meanwhile; two halves are read, the third is made of them and stored; then the stripe is missed no
//! more.
//!
//! A stripe that was being written when a service died may be of two writes. All three halves of it are read, and the one that does
//! not fit the others is found as for a read that is [in doubt](super::heal), and made anew.

use std::time::Instant;

use role_common::Failure;
use wire::io_message::IoMessageType;

use super::GgaDataPath;
use super::request::{Operation, Request};
use super::tasks::refused;
use super::token::Kind;
use super::transaction::{Stage, Transaction};
use crate::redundancy::{Made, ToRebuild};
use crate::target::{Target, Targets};

/// Stripes that a worker rebuilds at once.
pub(super) const AT_ONCE: u32 = 4;

impl GgaDataPath {
    /// Begins with the next stripe, if there is one and a transaction for it.
    #[cold]
    pub(super) fn begin_rebuilds(&mut self) -> Result<(), Failure> {
        let Some(survival) = &mut self.survival else {
            return Ok(());
        };
        let Some(&index) = survival.idle_rebuilders.last() else {
            return Ok(());
        };
        let Some(work) = survival.shared.next_to_rebuild(Instant::now()) else {
            return Ok(());
        };
        survival.idle_rebuilders.pop();
        self.transactions[index] = Transaction {
            rebuilds: Some(work),
            request: Request {
                operation: Operation::Write,
                first_stripe: work.stripe,
                blocks: 1,
                ..Request::default()
            },
            ..Transaction::new()
        };
        self.begin_block(index)
    }

    /// It is the turn of a stripe that is to be rebuilt.
    pub(super) fn read_survivors(&mut self, index: usize, work: ToRebuild) -> Result<(), Failure> {
        let view = self.survival.as_ref().map(|survival| survival.view);
        let stale = work.stale.map_or(Targets::NONE, Targets::only);
        let goes_on = view.is_some_and(|view| view.rebuilding == stale && view.lost.is_empty());
        if !goes_on {
            return self.end_rebuild(index, Made::Nothing);
        }
        let sources = if work.is_doubtful {
            Targets::ALL
        } else {
            Targets::ALL.minus(stale)
        };
        self.ask_targets(index, sources, IoMessageType::Read, Stage::Survivors)
    }

    /// The halves of the survivors are there: makes the third.
    pub(super) fn make_missed_half(
        &mut self,
        index: usize,
        work: ToRebuild,
    ) -> Result<(), Failure> {
        if work.target != Target::DataP {
            return self.recover(index, work.target, Stage::MissedHalf);
        }
        self.read_stored(index)?;
        self.private.write(index, &self.stored)?;
        self.transactions[index].stage = Stage::MissedHalf;
        let aimed = self.tasks.of(index).parity.reset_data().map_err(refused);
        self.begin_step(index, Kind::CreateParity, aimed)
    }

    /// The third half is made: the target is asked to store it.
    pub(super) fn store_missed_half(
        &mut self,
        index: usize,
        work: ToRebuild,
    ) -> Result<(), Failure> {
        if work.target != Target::DataP {
            // Recovered halves go to private memory. The parity is in its place already.
            self.private.read(index, &mut self.recovered)?;
            let place = self.tasks.of(index).chunk.half(work.target);
            let region = &self.setup.local.region;
            region.write(place as usize, &self.recovered)?;
        }
        let target = Targets::only(work.target);
        self.ask_targets(index, target, IoMessageType::Write, Stage::StoreMissed)
    }

    /// The targets of a rebuild have answered, or are lost.
    pub(super) fn rebuild_answered(
        &mut self,
        index: usize,
        work: ToRebuild,
    ) -> Result<(), Failure> {
        let transaction = &self.transactions[index];
        let (stage, without) = (transaction.stage, transaction.without);
        match stage {
            Stage::Survivors if without.is_empty() && work.is_doubtful => {
                self.recover(index, Target::Data1, Stage::Suspicion(Target::Data1))
            }
            Stage::Survivors
                if without.is_empty()
                    || work
                        .stale
                        .is_some_and(|stale| without == Targets::only(stale)) =>
            {
                self.make_missed_half(index, work)
            }
            Stage::StoreMissed if without.is_empty() => self.end_rebuild(index, Made::Half),
            Stage::StoreMissed => {
                let code = transaction.error.unwrap_or(doca::ErrorCode::IO_FAILED);
                let why =
                    format_args!("it failed to write a half that is rebuilt: {}", code.name());
                self.lose(work.target, why);
                self.end_rebuild(index, Made::Nothing)
            }
            _ => self.end_rebuild(index, Made::Nothing),
        }
    }

    /// The half of this target does not fit the others, or is the one that is missed: it is made of them.
    pub(super) fn make_anew(&mut self, index: usize, odd: Target) -> Result<(), Failure> {
        let Some(work) = &mut self.transactions[index].rebuilds else {
            return Err(Failure::unexpected(
                "a half to make, and nothing to rebuild",
            ));
        };
        work.target = odd;
        let work = *work;
        self.make_missed_half(index, work)
    }

    /// Ends a rebuild; without success, the stripe is missed as before.
    #[cold]
    pub(super) fn end_rebuild(&mut self, index: usize, made: Made) -> Result<(), Failure> {
        let Some(work) = self.transactions[index].rebuilds.take() else {
            return Ok(());
        };
        if let Some(survival) = &mut self.survival {
            // Before the turn ends: who takes the stripe next marks it again if it has to.
            survival.shared.finish_rebuild(work, made);
            survival.idle_rebuilders.push(index);
        }
        self.finish_turn(index);
        self.transactions[index].stage = Stage::Idle;
        Ok(())
    }
}
