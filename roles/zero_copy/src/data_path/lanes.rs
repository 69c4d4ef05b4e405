//! Buffers and tasks of one worker, allocated before the first request.
//!
//! A lane is a message buffer with its tasks, of one of three kinds: requests pass through request
//! lanes, results through result lanes, and a few refusal lanes send the worker's own answers to
//! what is no request.

use std::array;

use doca::{Buf, BufInventory, Mmap, Task};
use role_common::Failure;
use role_common::messages::Messages;
use wire::io_message;

/// Number of refusals that can be on their way. There are few: each takes one of the producer's
/// tasks, of which devices have a limited number.
const REFUSALS: u32 = 16;

/// What a task does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Receive of a request from the initiator.
    ReceiveRequest,
    /// Send of the request to the target.
    ForwardRequest,
    /// Receive of a result from the target.
    ReceiveResult,
    /// Send of the result to the initiator.
    ForwardResult,
    /// Send of an error to the initiator.
    Refuse,
}

impl Kind {
    /// Who is probably to blame when it fails.
    pub(super) fn suspect(self) -> &'static str {
        match self {
            Self::ReceiveRequest | Self::ForwardResult | Self::Refuse => {
                "the initiator or its connection is broken"
            }
            Self::ForwardRequest | Self::ReceiveResult => {
                "the storage target or its connection is broken"
            }
        }
    }
}

/// Names a task in its completion: the number of its lane, among those of its kind, and the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token(pub(super) u64);

impl Token {
    #[inline]
    pub(super) fn new(lane: usize, kind: Kind) -> Self {
        Self((lane as u64) << 3 | kind as u64)
    }

    #[inline(always)]
    pub(super) fn parts(self) -> (usize, Kind) {
        let kind = match self.0 & 7 {
            0 => Kind::ReceiveRequest,
            1 => Kind::ForwardRequest,
            2 => Kind::ReceiveResult,
            3 => Kind::ForwardResult,
            _ => Kind::Refuse,
        };
        ((self.0 >> 3) as usize, kind)
    }
}

/// A message buffer with `TASKS` tasks.
pub(super) struct Lane<const TASKS: usize> {
    tasks: [Task; TASKS],
    pub(super) message: Buf,
    /// The buffer's place among the messages of the worker.
    pub(super) place: usize,
}

/// Numbers of things that a worker needs for its lanes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    transactions: u32,
}

impl Counts {
    pub(super) fn new(transactions: u32) -> Self {
        Self { transactions }
    }

    fn refusals(self) -> u32 {
        REFUSALS.min(self.transactions)
    }

    /// Tasks of the producer: results and refusals.
    pub(super) fn producer_tasks(self) -> u32 {
        self.transactions + self.refusals()
    }

    /// Lanes of all kinds, each with one buffer.
    pub(super) fn lanes(self) -> usize {
        self.transactions as usize * 2 + self.refusals() as usize
    }
}

/// All lanes of a worker.
#[derive(Default)]
pub(super) struct Lanes {
    requests: Vec<Lane<2>>,
    results: Vec<Lane<2>>,
    refusals: Vec<Lane<1>>,
}

impl Lanes {
    /// Allocates the lanes; `task` makes the task of a kind, with this token, on this buffer.
    pub(super) fn allocate(
        counts: Counts,
        inventory: &BufInventory,
        message_map: &Mmap,
        task: impl Fn(Kind, u64, &Buf) -> doca::Result<Task>,
    ) -> Result<Self, Failure> {
        let mut maker = Maker {
            inventory,
            message_map,
            task,
            next_place: 0,
        };
        let Counts { transactions } = counts;
        let mut allocate = || -> doca::Result<Self> {
            Ok(Self {
                requests: maker
                    .lanes(transactions, [Kind::ReceiveRequest, Kind::ForwardRequest])?,
                results: maker.lanes(transactions, [Kind::ReceiveResult, Kind::ForwardResult])?,
                refusals: maker.lanes(counts.refusals(), [Kind::Refuse])?,
            })
        };
        allocate().map_err(|error| {
            Failure::from(error).context(format_args!("{transactions} transactions"))
        })
    }

    /// Number of request lanes, which is that of result lanes.
    pub(super) fn transactions(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn refusals(&self) -> usize {
        self.refusals.len()
    }

    /// The request lane of this number.
    #[inline(always)]
    pub(super) fn request(&self, lane: usize) -> &Lane<2> {
        &self.requests[lane]
    }

    /// The result lane of this number.
    #[inline(always)]
    pub(super) fn result(&self, lane: usize) -> &Lane<2> {
        &self.results[lane]
    }

    #[inline]
    pub(super) fn task(&self, lane: usize, kind: Kind) -> &Task {
        match kind {
            Kind::ReceiveRequest => &self.requests[lane].tasks[0],
            Kind::ForwardRequest => &self.requests[lane].tasks[1],
            Kind::ReceiveResult => &self.results[lane].tasks[0],
            Kind::ForwardResult => &self.results[lane].tasks[1],
            Kind::Refuse => &self.refusals[lane].tasks[0],
        }
    }

    /// The buffer that a task uses, and its place among the messages of the worker.
    #[inline]
    pub(super) fn message(&self, lane: usize, kind: Kind) -> (&Buf, usize) {
        match kind {
            Kind::ReceiveRequest | Kind::ForwardRequest => self.requests[lane].message(),
            Kind::ReceiveResult | Kind::ForwardResult => self.results[lane].message(),
            Kind::Refuse => self.refusals[lane].message(),
        }
    }
}

impl Lane<2> {
    /// The task that receives into the buffer.
    #[inline(always)]
    pub(super) fn receive(&self) -> &Task {
        &self.tasks[0]
    }

    /// The task that sends what was received.
    #[inline(always)]
    pub(super) fn forward(&self) -> &Task {
        &self.tasks[1]
    }
}

impl<const TASKS: usize> Lane<TASKS> {
    #[inline]
    fn message(&self) -> (&Buf, usize) {
        (&self.message, self.place)
    }
}

/// Makes lanes, with one message after the other.
struct Maker<'a, F> {
    inventory: &'a BufInventory,
    message_map: &'a Mmap,
    task: F,
    next_place: usize,
}

impl<F: Fn(Kind, u64, &Buf) -> doca::Result<Task>> Maker<'_, F> {
    fn lanes<const TASKS: usize>(
        &mut self,
        count: u32,
        kinds: [Kind; TASKS],
    ) -> doca::Result<Vec<Lane<TASKS>>> {
        (0..count as usize)
            .map(|lane| {
                let place = self.next_place;
                self.next_place += 1;
                let offset = Messages::offset(place) as u64;
                let message = self
                    .inventory
                    .buf(self.message_map, offset, io_message::SIZE)?;
                let make = |kind| (self.task)(kind, Token::new(lane, kind).0, &message);
                let mut tasks = kinds
                    .iter()
                    .map(|&kind| make(kind))
                    .collect::<doca::Result<Vec<_>>>()?
                    .into_iter();
                // As many as there are kinds, or it would have failed.
                let tasks = array::from_fn(|_| tasks.next().expect("one task per kind"));
                Ok(Lane {
                    tasks,
                    message,
                    place,
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_name_lane_and_kind() {
        let kinds = [
            Kind::ReceiveRequest,
            Kind::ForwardRequest,
            Kind::ReceiveResult,
            Kind::ForwardResult,
            Kind::Refuse,
        ];
        for lane in [0, 1, 65535] {
            for kind in kinds {
                assert_eq!(Token::new(lane, kind).parts(), (lane, kind));
            }
        }
    }

    #[test]
    fn a_small_worker_has_fewer_refusals() {
        assert_eq!(Counts::new(2).lanes(), 6);
        assert_eq!(Counts::new(2).producer_tasks(), 4);
        assert_eq!(Counts::new(128).producer_tasks(), 128 + REFUSALS);
    }
}
