//! Buffers and tasks of one worker, allocated before the first request.
//!
//! Each lane has two message buffers: one that requests pass through, and one for results. Lane `n`
//! of requests and lane `n` of results have nothing else to do with each other.

use doca::{Buf, BufInventory, Mmap, Task};
use role_common::Failure;
use wire::io_message;

/// The five tasks of a lane: three on its request buffer, two on its result buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Receive of a request from the initiator.
    ReceiveRequest,
    /// Send of the request to the target.
    ForwardRequest,
    /// Send of an error to the initiator, from the buffer of the request.
    RefuseRequest,
    /// Receive of a result from the target.
    ReceiveResult,
    /// Send of the result to the initiator.
    ForwardResult,
}

const KINDS: [Kind; 5] = [
    Kind::ReceiveRequest,
    Kind::ForwardRequest,
    Kind::RefuseRequest,
    Kind::ReceiveResult,
    Kind::ForwardResult,
];

impl Kind {
    #[inline]
    fn is_request(self) -> bool {
        matches!(
            self,
            Self::ReceiveRequest | Self::ForwardRequest | Self::RefuseRequest
        )
    }

    /// Who is probably to blame when it fails.
    pub(super) fn suspect(self) -> &'static str {
        match self {
            Self::ReceiveRequest | Self::RefuseRequest | Self::ForwardResult => {
                "the initiator or its connection is broken"
            }
            Self::ForwardRequest | Self::ReceiveResult => {
                "the storage target or its connection is broken"
            }
        }
    }
}

/// Names a task in its completion: the lane and the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token(pub(super) u64);

impl Token {
    #[inline]
    pub(super) fn new(lane: usize, kind: Kind) -> Self {
        Self((lane as u64) << 3 | kind as u64)
    }

    #[inline]
    pub(super) fn parts(self) -> (usize, Kind) {
        let kind = match self.0 & 7 {
            0 => Kind::ReceiveRequest,
            1 => Kind::ForwardRequest,
            2 => Kind::RefuseRequest,
            3 => Kind::ReceiveResult,
            _ => Kind::ForwardResult,
        };
        ((self.0 >> 3) as usize, kind)
    }
}

struct Lane {
    /// In the order of [`KINDS`].
    tasks: [Task; 5],
    request: Buf,
    result: Buf,
}

/// All lanes of a worker.
#[derive(Default)]
pub(super) struct Lanes(Vec<Lane>);

impl Lanes {
    /// Allocates `count` lanes; `task` makes the task of a kind, with this token, on this buffer.
    pub(super) fn allocate(
        count: u32,
        inventory: &BufInventory,
        messages: &Mmap,
        task: impl Fn(Kind, u64, &Buf) -> doca::Result<Task>,
    ) -> Result<Self, Failure> {
        let lane = |number: usize| -> doca::Result<Lane> {
            let buf = |kind| inventory.buf(messages, offset(number, kind) as u64, io_message::SIZE);
            let (request, result) = (buf(Kind::ReceiveRequest)?, buf(Kind::ReceiveResult)?);
            let make = |kind: Kind| {
                let message = if kind.is_request() { &request } else { &result };
                task(kind, Token::new(number, kind).0, message)
            };
            let [a, b, c, d, e] = KINDS.map(make);
            Ok(Lane {
                tasks: [a?, b?, c?, d?, e?],
                request,
                result,
            })
        };
        let lanes = (0..count as usize).map(lane).collect::<doca::Result<_>>();
        lanes
            .map(Self)
            .map_err(|error| Failure::from(error).context(format_args!("{count} transactions")))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(super) fn task(&self, lane: usize, kind: Kind) -> &Task {
        &self.0[lane].tasks[kind as usize]
    }

    /// The buffer that tasks of this kind use.
    #[inline]
    pub(super) fn message(&self, lane: usize, kind: Kind) -> &Buf {
        let lane = &self.0[lane];
        if kind.is_request() {
            &lane.request
        } else {
            &lane.result
        }
    }

    /// Where that buffer begins, in the region of messages.
    #[inline]
    pub(super) fn offset(&self, lane: usize, kind: Kind) -> usize {
        offset(lane, kind)
    }
}

#[inline]
fn offset(lane: usize, kind: Kind) -> usize {
    (lane * 2 + usize::from(!kind.is_request())) * io_message::SIZE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_name_lane_and_kind() {
        for lane in [0, 1, 65535] {
            for (index, kind) in KINDS.into_iter().enumerate() {
                assert_eq!(kind as usize, index, "the order of the tasks of a lane");
                assert_eq!(Token::new(lane, kind).parts(), (lane, kind));
            }
        }
    }

    #[test]
    fn buffers_do_not_overlap() {
        let mut offsets: Vec<usize> = (0..4)
            .flat_map(|lane| {
                [
                    offset(lane, Kind::ReceiveRequest),
                    offset(lane, Kind::ReceiveResult),
                ]
            })
            .collect();
        offsets.sort_unstable();
        assert!(
            offsets
                .windows(2)
                .all(|pair| pair[1] - pair[0] == io_message::SIZE)
        );
        assert_eq!(
            offset(1, Kind::RefuseRequest),
            offset(1, Kind::ForwardRequest)
        );
    }
}
