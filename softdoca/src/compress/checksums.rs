//! Checksums of tasks. Those of LZ4 tasks are made when they are asked for.
//!
//! Hardware has them for nothing. Here they take a third of the time of the decompression itself, and few programs ask. So a task
//! keeps its source, the private copy that it decompressed, and is decompressed again by whoever asks: the checksums are those of
//! the data that the task made, whatever has become of its destination.

use std::mem;

use crate::engines::checksum::Lz4Checksums;
use crate::engines::lz4::{Decompressor, StreamFormat};
use crate::error::Result;

/// Sources up to this size are kept, in memory of their task. Checksums of larger ones are made at once.
const KEPT: usize = 64 << 10;

/// Checksums of the uncompressed data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checksums {
    pub(crate) crc32: u32,
    /// Adler-32 of a deflate task; xxHash-32 of an LZ4 task.
    pub(crate) second: u32,
}

/// How the source of an LZ4 task is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lz4Source {
    Stream(StreamFormat),
    Block,
}

impl Lz4Source {
    /// Decompresses a source and hands the data to `sink`, `room` bytes at most; says how many they are.
    pub(super) fn decompress(
        self,
        lz4: &mut Decompressor,
        source: &[u8],
        room: usize,
        sink: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<usize> {
        match self {
            Self::Stream(format) => lz4.stream(source, format, room, sink),
            Self::Block => lz4.single_block(source, room, sink),
        }
    }
}

/// What a task knows of the checksums of its last run. Nothing, so zeros, before the first one and after one that failed.
#[derive(Default)]
pub(super) struct Kept {
    /// The beginning is the source of the last run, when checksums are owed.
    source: Vec<u8>,
    state: State,
}

enum State {
    Known(Checksums),
    /// To be made of the first `source` bytes of the kept source, which decompress to `made` bytes.
    Owed {
        how: Lz4Source,
        source: usize,
        made: usize,
    },
}

impl Default for State {
    fn default() -> Self {
        Self::Known(Checksums::default())
    }
}

impl Kept {
    /// A run begins. Memory for a source of `len` bytes, if it is to be kept.
    pub(super) fn begin(&mut self, len: usize) -> Option<&mut Vec<u8>> {
        self.state = State::default();
        (len <= KEPT).then_some(&mut self.source)
    }

    /// A run has succeeded, and these are its checksums.
    pub(super) fn know(&mut self, checksums: Checksums) {
        self.state = State::Known(checksums);
    }

    /// A run has succeeded with a source that was kept.
    pub(super) fn owe(&mut self, how: Lz4Source, source: usize, made: usize) {
        self.state = State::Owed { how, source, made };
    }

    /// Makes checksums that are owed.
    pub(super) fn checksums(&mut self) -> Checksums {
        let checksums = match mem::take(&mut self.state) {
            State::Known(checksums) => checksums,
            State::Owed { how, source, made } => {
                let mut checksums = Lz4Checksums::default();
                let source = &self.source[..source];
                let again = how.decompress(&mut Decompressor::default(), source, made, |data| {
                    checksums.update(data);
                    Ok(())
                });
                debug_assert_eq!(again, Ok(made), "it was decompressed before");
                Checksums::from(&checksums)
            }
        };
        self.state = State::Known(checksums);
        checksums
    }
}

impl From<&Lz4Checksums> for Checksums {
    fn from(checksums: &Lz4Checksums) -> Self {
        Self {
            crc32: checksums.crc32(),
            // Programs compare it with the word at the end of a frame, whose bytes they have turned round.
            second: checksums.xxh32().swap_bytes(),
        }
    }
}
