//! Limits on the allocations of a decoder.
//!
//! Linking this crate makes `allocation_counter` the global allocator: it counts each thread separately, so tests may
//! run in parallel.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Calls `work`, which must never hold more than `limit` bytes of its own allocations at a time.
///
/// A buffer that grows counts twice while it is moved.
///
/// # Panics
///
/// If it exceeds the limit, or if `work` panics.
pub fn within<T>(limit: usize, what: &str, work: impl FnOnce() -> T) -> T {
    let mut result = None;
    // A panic must not leave the counter of this thread nested.
    let counted = allocation_counter::measure(|| {
        result = Some(catch_unwind(AssertUnwindSafe(work)));
    });
    match result.expect("it was called") {
        Ok(value) => {
            assert!(
                counted.bytes_max <= limit as u64,
                "{what}: expected at most {limit} bytes of memory at a time, {} were allocated ({counted:?})",
                counted.bytes_max
            );
            value
        }
        Err(panic) => resume_unwind(panic),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_allocations_count_too() {
        assert_eq!(within(100, "a vector", || vec![1_u8; 100].len()), 100);
        let more = catch_unwind(|| within(99, "a vector", || drop(vec![1_u8; 100])));
        more.expect_err("100 bytes are more than 99");
    }
}
