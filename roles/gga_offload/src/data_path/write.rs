//! Writes: content from the initiator's memory, compressed, with parity, to three targets.

use doca::ErrorCode;
use role_common::Failure;
use wire::io_message::IoMessageType;

use super::GgaDataPath;
use super::tasks::refused;
use super::token::Kind;
use super::transaction::Stage;
use crate::target::Targets;

impl GgaDataPath {
    /// Fetches the content.
    pub(super) fn begin_write(&mut self, index: usize) -> Result<(), Failure> {
        self.transactions[index].stage = Stage::Content;
        if !self.fetcher.is_usable() {
            self.fetcher.postpone(index);
            return Ok(());
        }
        let logical = self.setup.volume.geometry.logical_block_size;
        let from = self.transactions[index].requester_offset(logical);
        let aimed = self.fetcher.aim(index, from, logical as usize);
        self.begin_step(index, Kind::Fetch, aimed)
    }

    /// The content was not fetched.
    #[cold]
    pub(super) fn fetch_failed(&mut self, index: usize, code: ErrorCode) -> Result<(), Failure> {
        self.fetcher.failed();
        if code == ErrorCode::SHUTDOWN {
            // Another task failed, and took this one down with the context.
            self.fetcher.postpone(index);
        } else {
            self.fail(index, code)?;
        }
        self.restart_fetcher()
    }

    /// Starts a new context when the old one is done for, and fetches again what that did not.
    #[cold]
    pub(super) fn restart_fetcher(&mut self) -> Result<(), Failure> {
        for index in self.fetcher.restart(&self.pe)? {
            self.begin_write(index)?;
        }
        Ok(())
    }

    /// Makes the stored block of the content, and has the parity calculated.
    pub(super) fn content_fetched(&mut self, index: usize) -> Result<(), Failure> {
        if self.fetcher.is_broken() {
            // It may have been the last one of the context that failed.
            self.restart_fetcher()?;
        }
        self.private.read(index, &mut self.content)?;
        let place = self.place(index);
        let stored = match self.encoder.encode(&self.content, place) {
            Ok(stored) => stored,
            Err(incompressible) => {
                if self.statistics.incompressible.count() {
                    let stripe = self.transactions[index].stripe();
                    let count = self.statistics.incompressible;
                    tracing::error!("block {stripe} ({count} so far) {incompressible}");
                }
                return self.fail(index, ErrorCode::IO_FAILED);
            }
        };
        let chunk = self.tasks.of(index).chunk;
        let region = &self.setup.local.region;
        region.write(chunk.stored() as usize, stored)?;
        if self.survival.is_some() {
            // What the parity is made of: a target that was lost, and wakes up, may still write to its half of the chunk.
            self.private.write(index, stored)?;
        }
        self.transactions[index].stage = Stage::Parity;
        let aimed = self.tasks.of(index).parity.reset_data().map_err(refused);
        self.begin_step(index, Kind::CreateParity, aimed)
    }

    /// Has all three halves stored.
    pub(super) fn parity_created(&mut self, index: usize) -> Result<(), Failure> {
        if self.survival.is_some() {
            return self.store_on_the_left(index);
        }
        self.ask_targets(index, Targets::ALL, IoMessageType::Write, Stage::Store)
    }
}
