//! Which I/Os a load does: all blocks once, or what a seed says.

use std::collections::VecDeque;

use fastrand::Rng;

use super::Load;
use super::mischief::{Improper, Mischief};
use crate::matrix::Layout;

/// Most blocks of one I/O.
pub(super) const MOST_BLOCKS: usize = 4;
/// How often another place is tried when others are at work where an I/O was to be.
const ATTEMPTS: usize = 8;

/// Reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
}

/// What is done next.
#[derive(Debug, Clone)]
pub(super) enum Next {
    /// An I/O of so many blocks from this one on.
    Io { kind: Kind, first: u64, count: u64 },
    /// What is no I/O.
    Improper(Improper),
    /// Something on the control channel.
    Control(Vec<u8>),
    /// Nothing at the moment.
    Wait,
    /// Nothing any more.
    End,
}

/// I/Os under way on each block.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Busy {
    pub(super) readers: u32,
    pub(super) writers: u32,
}

/// A sequence of I/Os.
pub(super) struct Source<'a> {
    choice: Choice<'a>,
    blocks: u64,
}

enum Choice<'a> {
    /// These blocks, each by itself.
    These { kind: Kind, left: VecDeque<u64> },
    Random {
        rng: Rng,
        layout: Layout,
        mischief: Mischief,
        /// I/Os until something is said on the control channel.
        until_control: u64,
        stop: &'a dyn Fn() -> bool,
    },
    /// None.
    Idle(&'a dyn Fn() -> bool),
}

impl<'a> Source<'a> {
    /// Reads every block once, each by itself: one that cannot be read says nothing of its neighbours.
    pub(super) fn read_all(blocks: u64) -> Self {
        let (kind, left) = (Kind::Read, (0..blocks).collect());
        Self {
            choice: Choice::These { kind, left },
            blocks,
        }
    }

    /// Writes these blocks once.
    pub(super) fn write_these(blocks: Vec<u64>) -> Self {
        let (kind, left) = (Kind::Write, VecDeque::from(blocks));
        Self {
            choice: Choice::These { kind, left },
            blocks: 0,
        }
    }

    /// Does nothing, until `stop` says so.
    pub(super) fn idle(stop: &'a dyn Fn() -> bool) -> Self {
        Self {
            choice: Choice::Idle(stop),
            blocks: 0,
        }
    }

    /// What the seed and the number of the session say, until `stop` does.
    pub(super) fn random(load: &Load, blocks: u64, stop: &'a dyn Fn() -> bool) -> Self {
        let mut rng = Rng::with_seed(load.seed ^ load.session.rotate_left(32));
        Self {
            choice: Choice::Random {
                until_control: rng.u64(200..2000),
                rng,
                layout: load.layout,
                mischief: load.mischief,
                stop,
            },
            blocks,
        }
    }

    /// What is next, with this under way.
    pub(super) fn next(&mut self, busy: &[Busy], block_size: u32, memory: u64) -> Next {
        let blocks = self.blocks;
        match &mut self.choice {
            Choice::These { kind, left } => match left.pop_front() {
                Some(first) => Next::Io {
                    kind: *kind,
                    first,
                    count: 1,
                },
                None => Next::End,
            },
            Choice::Idle(stop) if stop() => Next::End,
            Choice::Idle(_) => Next::Wait,
            Choice::Random { stop, .. } if stop() => Next::End,
            Choice::Random {
                rng,
                layout,
                mischief,
                until_control,
                ..
            } => {
                *until_control = until_control.saturating_sub(1);
                match mischief {
                    Mischief::Io if rng.u8(..) < 32 => {
                        let storage = blocks * u64::from(block_size);
                        return Next::Improper(Improper::new(rng, block_size, storage, memory));
                    }
                    Mischief::Control if *until_control == 0 => {
                        *mischief = Mischief::None;
                        return Next::Control(super::mischief::control(rng));
                    }
                    _ => {}
                }
                random(rng, *layout, blocks, busy)
            }
        }
    }
}

fn random(rng: &mut Rng, layout: Layout, blocks: u64, busy: &[Busy]) -> Next {
    for _ in 0..ATTEMPTS {
        let kind = if rng.bool() { Kind::Read } else { Kind::Write };
        let most = blocks.min(MOST_BLOCKS as u64);
        // Half of all are of one block.
        let count = if rng.bool() { 1 } else { rng.u64(1..=most) };
        let first = rng.u64(..=blocks - count);
        let place = first as usize..(first + count) as usize;
        let is_free = |busy: &Busy| match kind {
            // A service that orders the I/Os on a block gives a read the block before a write, or after it.
            Kind::Read => busy.writers == 0 || layout == Layout::Gga,
            Kind::Write => busy.writers == 0 && (busy.readers == 0 || layout == Layout::Gga),
        };
        if busy[place].iter().all(is_free) {
            return Next::Io { kind, first, count };
        }
    }
    Next::Wait
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Task;
    use super::*;

    fn load(seed: u64, session: u64) -> Load {
        Load {
            channel: String::new(),
            device: String::new(),
            witness: Default::default(),
            seed,
            session,
            layout: Layout::ZeroCopy,
            task: Task::Run,
            cut_off: false,
            mischief: Mischief::Io,
            patience: Duration::ZERO,
        }
    }

    fn sequence(load: &Load) -> String {
        let mut source = Source::random(load, 64, &|| false);
        let next = |_| source.next(&[Busy::default(); 64], 4096, 1 << 20);
        format!("{:?}", (0..200).map(next).collect::<Vec<_>>())
    }

    #[test]
    fn a_seed_and_a_session_are_a_sequence() {
        assert_eq!(sequence(&load(1, 2)), sequence(&load(1, 2)));
        assert_ne!(sequence(&load(1, 2)), sequence(&load(1, 3)));
        assert_ne!(sequence(&load(1, 2)), sequence(&load(2, 2)));
    }

    #[test]
    fn nothing_is_read_while_it_is_written() {
        let mut source = Source::random(&load(1, 1), 8, &|| false);
        let mut busy = [Busy::default(); 8];
        busy[..7].fill(Busy {
            readers: 0,
            writers: 1,
        });
        for _ in 0..500 {
            if let Next::Io { first, count, .. } = source.next(&busy, 4096, 1 << 20) {
                assert_eq!((first, count), (7, 1));
            }
        }
    }

    #[test]
    fn all_is_every_block_once() {
        let mut source = Source::read_all(10);
        let mut read = Vec::new();
        while let Next::Io { first, count, .. } = source.next(&[], 4096, 0) {
            read.extend(first..first + count);
        }
        assert_eq!(read, (0..10).collect::<Vec<_>>());
    }
}
