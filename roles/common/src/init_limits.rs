//! Limits of the resources that a session may request in its `init_storage_request`, as flags.

use clap::Args;
use control::Failure;
use control::budget::Quota;
use doca::ErrorCode;
use wire::control::InitStorage;

use crate::flags::{mebibytes, nonzero_u32};

/// Bytes of memory that a worker needs for each transaction: message buffer, bufs, softdoca's tasks and their slots in
/// rings (237 MB for 65,536 transactions of a target).
const BYTES_PER_TRANSACTION: u64 = 4 << 10;

/// Limits of an `init_storage_request`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Args)]
pub struct InitLimits {
    /// Most transactions per core of a session. A service has twice as many as its initiator asks for, and asks its
    /// targets for as many; because of the queues of Comch, its initiator cannot ask for more than 4000
    #[arg(long, value_name = "COUNT", default_value = "8192", value_parser = nonzero_u32)]
    pub max_transactions: u32,

    /// Most memory that a session may take for its transactions: a number of MiB, or a size such as 1G
    #[arg(long, value_name = "MIB", default_value = "2048", value_parser = whole_mebibytes)]
    pub max_session_memory: u32,
}

/// Parses a size and returns it in MiB; fails if it is not a whole number of MiB.
fn whole_mebibytes(text: &str) -> Result<u32, String> {
    let expected = || {
        format!(
            "expected a number of MiB, 1 to {}, or a size such as 1G",
            u32::MAX
        )
    };
    let bytes = mebibytes(text).map_err(|_| expected())?;
    let is_whole = bytes.is_multiple_of(1 << 20);
    u32::try_from(bytes >> 20)
        .ok()
        .filter(|_| is_whole)
        .ok_or_else(expected)
}

impl Default for InitLimits {
    fn default() -> Self {
        Self {
            max_transactions: 8192,
            max_session_memory: 2048,
        }
    }
}

impl InitLimits {
    /// Checks the resources that the workers of a session need, before they are allocated.
    ///
    /// # Errors
    ///
    /// `INVALID_VALUE`: more transactions than permitted, or none; `NO_MEMORY`: more memory than permitted.
    pub fn check(&self, init: &InitStorage) -> Result<(), Failure> {
        let InitStorage {
            transaction_count,
            core_count,
            ..
        } = *init;
        if !(1..=self.max_transactions).contains(&transaction_count) {
            return Err(Failure::invalid(format!(
                "transactions per core: expected 1 to {}, see --max-transactions, got {transaction_count}",
                self.max_transactions
            )));
        }
        self.check_memory(u64::from(core_count) * u64::from(transaction_count), 0)
    }

    /// Checks the memory needed for `transactions`, each with a data buffer of `buffer` bytes.
    ///
    /// # Errors
    ///
    /// `NO_MEMORY`: exceeds the limit.
    pub fn check_memory(&self, transactions: u64, buffer: u64) -> Result<(), Failure> {
        let mut memory = Quota::new(
            "memory of the session in bytes, see --max-session-memory",
            ErrorCode::NO_MEMORY,
            u64::from(self.max_session_memory) << 20,
        );
        memory.charge(transactions.saturating_mul(BYTES_PER_TRANSACTION.saturating_add(buffer)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn init(transaction_count: u32, core_count: u32) -> InitStorage {
        InitStorage {
            transaction_count,
            core_count,
            mmap_export_blob: bytes::Bytes::new(),
        }
    }

    #[test]
    fn init_request_over_a_limit_is_refused() {
        let limits = InitLimits {
            max_transactions: 100,
            max_session_memory: 1,
        };
        limits.check(&init(100, 1)).expect("at the limit");
        limits.check(&init(64, 4)).expect("1 MiB");
        for (transactions, cores, code) in [
            (0, 1, ErrorCode::INVALID_VALUE),
            (101, 1, ErrorCode::INVALID_VALUE),
            (u32::MAX, 1, ErrorCode::INVALID_VALUE),
            (65, 4, ErrorCode::NO_MEMORY),
            (100, u32::MAX, ErrorCode::NO_MEMORY),
        ] {
            let failure = limits.check(&init(transactions, cores));
            assert_eq!(failure.expect_err("too much").code, code);
        }
        let huge = limits.check_memory(u64::MAX, u64::MAX);
        assert_eq!(huge.expect_err("no overflow").code, ErrorCode::NO_MEMORY);
    }
}
