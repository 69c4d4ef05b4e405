//! Writes that a lost target misses wait for their end until the others keep that it is lost: a service that begins anew must not take
//! it for one that has them.

use role_common::Failure;

use super::GgaDataPath;
use super::transaction::Stage;
use crate::target::Targets;

impl GgaDataPath {
    /// The block at hand is stored on two targets that count.
    pub(super) fn stored_on_enough(&mut self, index: usize) -> Result<(), Failure> {
        let Some(survival) = &mut self.survival else {
            return Err(Failure::unexpected("a write without its targets"));
        };
        let transaction = &mut self.transactions[index];
        let by_all = transaction.asked == Targets::ALL && transaction.without.is_empty();
        if by_all || survival.shared.is_sealed() {
            return self.block_done(index);
        }
        transaction.stage = Stage::Seal;
        survival.unsealed.push(index);
        Ok(())
    }

    /// Goes on with what waited, when it need not any more.
    #[inline]
    pub(super) fn end_seals(&mut self) -> Result<(), Failure> {
        match &self.survival {
            Some(survival) if !survival.unsealed.is_empty() => self.end_those_sealed(),
            _ => Ok(()),
        }
    }

    #[cold]
    fn end_those_sealed(&mut self) -> Result<(), Failure> {
        while let Some(survival) = &mut self.survival {
            let has_failed = survival.shared.view().has_failed();
            if !has_failed && !survival.shared.is_sealed() {
                break;
            }
            let Some(index) = survival.unsealed.pop() else {
                break;
            };
            if has_failed {
                self.too_few_targets(index)?;
            } else {
                self.block_done(index)?;
            }
        }
        Ok(())
    }
}
