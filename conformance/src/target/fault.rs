//! Faults of a scripted target.

use std::collections::HashSet;
use std::str::FromStr;

use wire::io_message::{Repr, SIZE};

use super::messages::{Io, Messages};

/// A fault. Blocks are numbered from the start of the storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    None,
    /// Writes are answered with success and not executed.
    IgnoreWrites,
    /// Writes to one of two blocks go to the other one.
    SwapBlocks(u64, u64),
    /// Only the first write to a block is executed: later reads return the data of an earlier pass.
    ReplayPreviousPass,
    /// The n-th I/O, counted from 0, is answered with this `doca_error_t` and not executed.
    FailIo {
        /// Number of the I/O.
        nth: u64,
        /// The result, not 0.
        result: u32,
    },
    /// After a read is answered, its memory is overwritten repeatedly with other data.
    ScribbleAfterRead,
    /// Every I/O is answered twice.
    AnswerTwice,
    /// Every I/O is answered a second time when the next one has arrived, before that is executed.
    AnswerLate,
    /// Every I/O is sent back unchanged before it is executed.
    Echo,
    /// Every I/O is answered with a result that lacks its last byte, before it is executed.
    Truncate,
    /// The n-th I/O, counted from 0, is answered with a message that is not a result.
    Nonsense {
        /// Number of the I/O.
        nth: u64,
    },
    /// Results are sent in reverse order, in groups of this size.
    Reverse {
        /// Number of results per group, at least 1.
        together: usize,
    },
    /// The n-th I/O, counted from 0, is never answered.
    SwallowIo {
        /// Number of the I/O.
        nth: u64,
    },
}

/// The text is not the name of a fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected none, ignore-writes, swap-blocks:A:B, replay-previous-pass, fail-io:N:RESULT, scribble-after-read, answer-twice, answer-late, echo, truncate, nonsense:N, reverse:N or swallow-io:N, \
     got {0:?}"
)]
pub struct UnknownFault(String);

impl FromStr for Fault {
    type Err = UnknownFault;

    fn from_str(text: &str) -> Result<Self, UnknownFault> {
        let unknown = || UnknownFault(text.to_owned());
        let number = |word: &str| word.parse::<u64>().map_err(|_| unknown());
        match text.split(':').collect::<Vec<_>>()[..] {
            ["none"] => Ok(Self::None),
            ["ignore-writes"] => Ok(Self::IgnoreWrites),
            ["swap-blocks", a, b] => Ok(Self::SwapBlocks(number(a)?, number(b)?)),
            ["replay-previous-pass"] => Ok(Self::ReplayPreviousPass),
            ["fail-io", nth, result] => {
                let result = u32::try_from(number(result)?)
                    .ok()
                    .filter(|&result| result != 0);
                Ok(Self::FailIo {
                    nth: number(nth)?,
                    result: result.ok_or_else(unknown)?,
                })
            }
            ["answer-twice"] => Ok(Self::AnswerTwice),
            ["answer-late"] => Ok(Self::AnswerLate),
            ["echo"] => Ok(Self::Echo),
            ["truncate"] => Ok(Self::Truncate),
            ["scribble-after-read"] => Ok(Self::ScribbleAfterRead),
            ["nonsense", nth] => Ok(Self::Nonsense { nth: number(nth)? }),
            ["reverse", together] => match usize::try_from(number(together)?) {
                Ok(together @ 1..) => Ok(Self::Reverse { together }),
                _ => Err(unknown()),
            },
            ["swallow-io", nth] => Ok(Self::SwallowIo { nth: number(nth)? }),
            _ => Err(unknown()),
        }
    }
}

/// Handling of one I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Execute it at this storage offset.
    Do(u64),
    /// Answer with this result, without a transfer.
    Answer(u32),
    /// Answer with a message that is not a result.
    Nonsense,
    /// Do not answer.
    Swallow,
}

/// A fault and its state.
#[derive(Debug)]
pub(super) struct Faults {
    fault: Fault,
    block_size: u64,
    ios: u64,
    written: HashSet<u64>,
    /// I/Os so far, if they are recorded.
    received: Option<Vec<Repr>>,
}

impl Faults {
    pub(super) fn new(fault: Fault, block_size: u32) -> Self {
        Self {
            fault,
            block_size: u64::from(block_size).max(1),
            ios: 0,
            written: HashSet::new(),
            received: None,
        }
    }

    /// Starts to record I/Os.
    pub(super) fn watch(&mut self) {
        self.received = Some(Vec::new());
    }

    /// Returns the recorded I/Os since the last call.
    pub(super) fn take_received(&mut self) -> Vec<Repr> {
        self.received
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Records an I/O that has arrived.
    pub(super) fn record(&mut self, io: &Repr) {
        if let Some(received) = &mut self.received {
            received.push(*io);
        }
    }

    /// Number of results that are sent together, in reverse order.
    pub(super) fn together(&self) -> usize {
        match self.fault {
            Fault::Reverse { together } => together,
            _ => 1,
        }
    }

    /// Returns `true` if the memory of reads is overwritten after the answer.
    pub(super) fn scribbles(&self) -> bool {
        self.fault == Fault::ScribbleAfterRead
    }

    /// Returns `true` if every I/O is answered twice.
    pub(super) fn answers_twice(&self) -> bool {
        self.fault == Fault::AnswerTwice
    }

    /// Returns `true` if every I/O is answered a second time when the next one has arrived.
    pub(super) fn answers_late(&self) -> bool {
        self.fault == Fault::AnswerLate
    }

    /// Message to send before an I/O is executed, other than its result.
    pub(super) fn premature(&self, messages: Messages, io: &Io) -> Option<Vec<u8>> {
        match self.fault {
            Fault::Echo => Some(messages.to_bytes(io).to_vec()),
            Fault::Truncate => Some(messages.to_bytes(&io.answer(0))[..SIZE - 1].to_vec()),
            _ => None,
        }
    }

    /// Decides on the next I/O.
    pub(super) fn judge(&mut self, is_write: bool, storage_offset: u64) -> Verdict {
        let nth = self.ios;
        self.ios += 1;
        let (block, within) = (
            storage_offset / self.block_size,
            storage_offset % self.block_size,
        );
        match self.fault {
            Fault::IgnoreWrites if is_write => Verdict::Answer(0),
            Fault::SwapBlocks(a, b) if is_write && block == a => {
                Verdict::Do(b * self.block_size + within)
            }
            Fault::SwapBlocks(a, b) if is_write && block == b => {
                Verdict::Do(a * self.block_size + within)
            }
            Fault::ReplayPreviousPass if is_write && !self.written.insert(block) => {
                Verdict::Answer(0)
            }
            Fault::FailIo { nth: n, result } if n == nth => Verdict::Answer(result),
            Fault::Nonsense { nth: n } if n == nth => Verdict::Nonsense,
            Fault::SwallowIo { nth: n } if n == nth => Verdict::Swallow,
            _ => Verdict::Do(storage_offset),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_have_names() {
        assert_eq!("swap-blocks:3:17".parse(), Ok(Fault::SwapBlocks(3, 17)));
        assert_eq!("scribble-after-read".parse(), Ok(Fault::ScribbleAfterRead));
        assert_eq!("echo".parse(), Ok(Fault::Echo));
        assert_eq!("truncate".parse(), Ok(Fault::Truncate));
        assert_eq!(
            "fail-io:1:17".parse(),
            Ok(Fault::FailIo { nth: 1, result: 17 })
        );
        assert_eq!("reverse:2".parse(), Ok(Fault::Reverse { together: 2 }));
        for wrong in [
            "",
            "swap-blocks:3",
            "fail-io:1:0",
            "fail-io:x:1",
            "none:1",
            "reverse:0",
        ] {
            assert_eq!(wrong.parse::<Fault>(), Err(UnknownFault(wrong.to_owned())));
        }
    }

    #[test]
    fn faults_affect_only_the_named_io() {
        let judge = |fault, ios: &[(bool, u64)]| {
            let mut faults = Faults::new(fault, 512);
            ios.iter()
                .map(|&(is_write, offset)| faults.judge(is_write, offset))
                .collect::<Vec<_>>()
        };
        use Verdict::{Answer, Do, Nonsense, Swallow};
        assert_eq!(
            judge(Fault::Nonsense { nth: 1 }, &[(true, 0), (true, 0)]),
            [Do(0), Nonsense]
        );
        assert_eq!(
            judge(Fault::None, &[(true, 512), (false, 0)]),
            [Do(512), Do(0)]
        );
        assert_eq!(
            judge(Fault::IgnoreWrites, &[(true, 0), (false, 0)]),
            [Answer(0), Do(0)]
        );
        assert_eq!(
            judge(
                Fault::SwapBlocks(1, 3),
                &[(true, 512), (true, 1536), (false, 512)]
            ),
            [Do(1536), Do(512), Do(512)]
        );
        assert_eq!(
            judge(
                Fault::ReplayPreviousPass,
                &[(true, 0), (true, 512), (true, 0)]
            ),
            [Do(0), Do(512), Answer(0)]
        );
        assert_eq!(
            judge(
                Fault::FailIo { nth: 1, result: 17 },
                &[(false, 0), (false, 0)]
            ),
            [Do(0), Answer(17)]
        );
        assert_eq!(
            judge(Fault::SwallowIo { nth: 0 }, &[(true, 0), (true, 0)]),
            [Swallow, Do(0)]
        );
    }
}
