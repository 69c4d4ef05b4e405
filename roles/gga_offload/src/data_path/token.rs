//! Names of tasks in their completions.

use crate::target::Target;

/// What a task does, for its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Receive of a request from the initiator.
    ReceiveRequest,
    /// Send of the result to the initiator.
    Answer,
    /// Send of a request to a target.
    Send(Target),
    /// Receive of a result from a target, for whichever transaction.
    ReceiveResult(Target),
    /// DMA copy of content from the initiator's memory.
    Fetch,
    /// Calculation of the parity.
    CreateParity,
    /// Recovery of the half of `Data1` or `Data2` from the two others.
    Recover(Target),
    /// Decompression into the initiator's memory.
    Decompress,
}

/// Number of the transaction, or of the receive, and the kind of the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token(pub(super) u64);

impl Token {
    #[inline]
    pub(super) fn new(index: usize, kind: Kind) -> Self {
        let kind = match kind {
            Kind::ReceiveRequest => 0,
            Kind::Answer => 1,
            Kind::Fetch => 2,
            Kind::CreateParity => 3,
            Kind::Decompress => 4,
            Kind::Send(target) => 5 + target as u64,
            Kind::ReceiveResult(target) => 8 + target as u64,
            Kind::Recover(target) => 11 + target as u64,
        };
        Self((index as u64) << 4 | kind)
    }

    #[inline]
    pub(super) fn parts(self) -> (usize, Kind) {
        let target = |first: u64| Target::ALL[((self.0 & 15) - first) as usize];
        let kind = match self.0 & 15 {
            0 => Kind::ReceiveRequest,
            1 => Kind::Answer,
            2 => Kind::Fetch,
            3 => Kind::CreateParity,
            4 => Kind::Decompress,
            5..=7 => Kind::Send(target(5)),
            8..=10 => Kind::ReceiveResult(target(8)),
            11..=13 => Kind::Recover(target(11)),
            _ => unreachable!("tokens are made by `new` only"),
        };
        ((self.0 >> 4) as usize, kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_name_transaction_and_kind() {
        let mut kinds = vec![
            Kind::ReceiveRequest,
            Kind::Answer,
            Kind::Fetch,
            Kind::CreateParity,
            Kind::Decompress,
        ];
        for target in Target::ALL {
            kinds.extend([
                Kind::Send(target),
                Kind::ReceiveResult(target),
                Kind::Recover(target),
            ]);
        }
        for index in [0, 1, 65535] {
            for &kind in &kinds {
                assert_eq!(Token::new(index, kind).parts(), (index, kind));
            }
        }
    }
}
