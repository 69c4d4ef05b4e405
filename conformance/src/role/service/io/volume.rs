//! A running session, its blocks, and I/Os on them.

use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use wire::io_message::{IoMessage, IoMessageType, Repr, SIZE};

use super::super::cast::Cast;
use super::super::heard::Heard;
use super::super::layout::{BLOCK, BLOCKS, scripts};
use super::super::stored;
use crate::role::step::Step;
use crate::role::{Bench, During as _, Wrong};
use crate::target::{Fault, Script};

/// Content of a block: another for each block and each `version`. It compresses to three quarters, so that both halves of a
/// stored block have something of it.
pub(super) fn content(block: usize, version: u8) -> Vec<u8> {
    let mut noise = (block as u64) << 8 | u64::from(version);
    (0..BLOCK)
        .map(|at| {
            noise = noise
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let of_line = at % 64;
            match of_line {
                0 => block as u8,
                1 => version,
                2..44 => (noise >> 56) as u8,
                _ => 0x20,
            }
        })
        .collect()
}

/// All blocks of a version.
pub(super) fn contents(version: u8) -> Vec<Vec<u8>> {
    (0..BLOCKS).map(|block| content(block, version)).collect()
}

/// Targets that hold these blocks, in the way of the service: with a checksum, where it may have one.
pub(super) fn holding(bench: &Bench<'_>, blocks: &[Vec<u8>], checksum: bool) -> Vec<Script> {
    let mut scripts = scripts(bench);
    if scripts.len() == 3 {
        let stored: Vec<_> = blocks
            .iter()
            .enumerate()
            .map(|(block, content)| stored::encode(content, block, checksum))
            .collect();
        for (script, half) in scripts.iter_mut().zip(stored::halves(&stored)) {
            script.content = half;
        }
    } else {
        scripts[0].content = blocks.concat();
    }
    scripts
}

/// A session in which I/O is possible. It behaves like its [`Cast`].
pub(super) struct Volume<'a> {
    cast: Cast<'a>,
}

impl<'a> Deref for Volume<'a> {
    type Target = Cast<'a>;

    fn deref(&self) -> &Cast<'a> {
        &self.cast
    }
}

impl DerefMut for Volume<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.cast
    }
}

impl<'a> Volume<'a> {
    /// Targets that hold version 1 of every block, and one worker.
    pub(super) fn open(bench: &'a Bench<'a>, flags: &[&str]) -> Result<Self, Wrong> {
        Self::with(bench, flags, &holding(bench, &contents(1), true), 1)
    }

    /// The same, but for this fault of this target; of the only one, if there is no such.
    pub(super) fn faulty(
        bench: &'a Bench<'a>,
        flags: &[&str],
        target: usize,
        fault: Fault,
    ) -> Result<Self, Wrong> {
        let mut scripts = holding(bench, &contents(1), true);
        let count = scripts.len();
        scripts[target % count].fault = fault;
        Self::with(bench, flags, &scripts, 1)
    }

    /// These targets, and so many workers, for which the flags have a CPU each but the first.
    pub(super) fn with(
        bench: &'a Bench<'a>,
        flags: &[&str],
        scripts: &[Script],
        workers: u32,
    ) -> Result<Self, Wrong> {
        Self::announcing(bench, flags, scripts, workers, 0)
    }

    /// The same, with an initiator that announces these extensions of the data path.
    pub(super) fn announcing(
        bench: &'a Bench<'a>,
        flags: &[&str],
        scripts: &[Script],
        workers: u32,
        features: u32,
    ) -> Result<Self, Wrong> {
        let mut cast = Cast::with(bench, flags, scripts)?;
        (cast.workers, cast.features) = (workers, features);
        cast.take_until(Step::Stop).during("start of the session")?;
        cast.targets
            .iter_mut()
            .for_each(|target| target.session.watch_ios());
        Ok(Self { cast })
    }

    /// Sends messages on a worker's fast path, at most as many as it has transactions, and waits for as many answers, in
    /// the order in which they come.
    pub(super) fn exchange(
        &mut self,
        worker: usize,
        messages: &[Vec<u8>],
    ) -> Result<Vec<[u8; SIZE]>, Wrong> {
        let patience = self.patience();
        for message in messages {
            self.io[worker].send_bytes(message, patience)?;
        }
        (0..messages.len()).map(|_| self.result(worker)).collect()
    }

    /// Waits for an answer on a worker's fast path.
    pub(super) fn result(&mut self, worker: usize) -> Result<[u8; SIZE], Wrong> {
        self.poll_result(worker, self.patience())?
            .ok_or_else(|| Wrong::expected("the result of an I/O", "none in time"))
    }

    /// Looks for an answer for some time.
    pub(super) fn poll_result(
        &mut self,
        worker: usize,
        time: Duration,
    ) -> Result<Option<[u8; SIZE]>, Wrong> {
        let deadline = Instant::now() + time;
        loop {
            if let Some(bytes) = self.io[worker].poll()? {
                let length = bytes.len();
                return <[u8; SIZE]>::try_from(bytes).map(Some).map_err(|_| {
                    Wrong::expected(
                        format!("a result of {SIZE} bytes"),
                        format!("{length} bytes"),
                    )
                });
            }
            match self.look()? {
                Heard::Nothing => {}
                heard => {
                    return Err(Wrong::expected(
                        "the result of an I/O",
                        format!(
                            "{}; the service: {}",
                            heard.describe(),
                            self.service.state()
                        ),
                    ));
                }
            }
            if Instant::now() > deadline {
                return Ok(None);
            }
        }
    }

    /// Does one I/O, and returns its result's code. The other fields must be those of the request.
    pub(super) fn io_at(
        &mut self,
        message_type: IoMessageType,
        size: u32,
        requester_offset: u64,
        storage_offset: u64,
    ) -> Result<u32, Wrong> {
        let request = Repr {
            message_type,
            user_data: 0x0123_4567_89ab_cdef ^ storage_offset,
            result: 0,
            size,
            requester_offset,
            storage_offset,
        };
        let answers = self.exchange(0, &[request.to_bytes().to_vec()])?;
        answered(request, &answers[0])
    }

    /// Does one I/O of a block, or several; block `n` lies at place `n` of the memory.
    pub(super) fn io(
        &mut self,
        message_type: IoMessageType,
        block: usize,
        count: usize,
    ) -> Result<u32, Wrong> {
        let offset = (block * BLOCK) as u64;
        self.io_at(message_type, (count * BLOCK) as u32, offset, offset)
    }

    /// As [`Volume::io`], with success.
    pub(super) fn done(
        &mut self,
        message_type: IoMessageType,
        block: usize,
        count: usize,
    ) -> Result<(), Wrong> {
        let what = format!("{message_type:?} of block {block}");
        let code = self.io(message_type, block, count).during(&what)?;
        Wrong::unless(
            code == 0,
            format!("{what} to succeed"),
            format!("result {code}"),
        )
    }

    /// Reads this block; it must have this content, and nothing around it may change.
    pub(super) fn expect_block(&mut self, block: usize, content: &[u8]) -> Result<(), Wrong> {
        self.memory.fill(0, self.memory.len(), 0xa5)?;
        self.done(IoMessageType::Read, block, 1)?;
        let mut memory = vec![0; self.memory.len()];
        self.memory.read(0, &mut memory)?;
        let place = block * BLOCK..(block + 1) * BLOCK;
        let wrong = memory[place.clone()]
            .iter()
            .zip(content)
            .position(|(a, b)| a != b);
        if let Some(at) = wrong {
            return Err(Wrong::expected(
                format!("block {block} as it was written"),
                format!("another byte at {at}"),
            ));
        }
        memory[place].fill(0xa5);
        Wrong::unless(
            memory.iter().all(|byte| *byte == 0xa5),
            "the read of a block to change its memory only",
            "other bytes changed",
        )
    }

    /// What was read into the memory at the place of this block must be this content.
    pub(super) fn expect_read(&self, block: usize, content: &[u8]) -> Result<(), Wrong> {
        let mut read = vec![0; BLOCK];
        self.memory.read(block * BLOCK, &mut read)?;
        Wrong::unless(
            read == content,
            format!("block {block} as it was written"),
            "something else",
        )
    }

    /// Writes this content to a block.
    pub(super) fn write(&mut self, block: usize, content: &[u8]) -> Result<(), Wrong> {
        self.memory.write(block * BLOCK, content)?;
        self.done(IoMessageType::Write, block, 1)
    }

    /// What the targets hold of all blocks, as the initiator wrote it.
    pub(super) fn held(&self) -> Result<Vec<Vec<u8>>, Wrong> {
        let held = self
            .targets
            .iter()
            .map(|target| target.session.content())
            .collect::<Result<Vec<_>, _>>()?;
        if let [one] = &held[..] {
            return Ok(one.chunks(BLOCK).map(<[u8]>::to_vec).collect());
        }
        stored::stored_blocks(&held)?
            .iter()
            .enumerate()
            .map(|(block, stored)| {
                stored::decode(stored, block).during(format_args!("stored block {block}"))
            })
            .collect()
    }

    /// Stops, shuts down, and sees the service end well.
    pub(super) fn finish(mut self) -> Result<(), Wrong> {
        self.finish_from(Step::Stop)
    }
}

/// The code of an answer, which must repeat its request.
pub(super) fn answered(request: Repr, answer: &[u8; SIZE]) -> Result<u32, Wrong> {
    let answer = Repr::parse(&IoMessage::new_unchecked_len(answer))?;
    let code = answer.result;
    let expected = request.answer(code);
    Wrong::unless(
        answer == expected,
        format!("{expected:?}"),
        format!("{answer:?}"),
    )?;
    Ok(code)
}
