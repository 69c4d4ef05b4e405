//! Many cases that are tried beside each other.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use role_common::shutdown::Shutdown;

use super::Result;
use super::report::progress;

/// Tries all cases, so many at a time, with a line that tells which; the results are in their order. `run` gets the number of
/// a case, the case, and what says whether it is not wanted any more.
///
/// # Errors
///
/// The user wants no more.
pub(super) fn try_all<C: Sync, T: Send + Sync>(
    cases: &[C],
    jobs: u16,
    shutdown: &Shutdown,
    name: impl Fn(&C) -> String + Sync,
    run: impl Fn(usize, &C, &(dyn Fn() -> bool + Sync)) -> T + Sync,
) -> Result<Vec<T>> {
    let progress = progress(cases.len());
    let next = AtomicUsize::new(0);
    let tried: Vec<OnceLock<T>> = cases.iter().map(|_| OnceLock::new()).collect();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while !shutdown.is_requested() {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(index) else { break };
                    progress.set_message(name(case));
                    // Nobody else has taken this one.
                    let _ = tried[index].set(run(index, case, &|| shutdown.is_requested()));
                    progress.inc(1);
                }
            });
        }
    });
    progress.finish_and_clear();
    if shutdown.is_requested() {
        return Err("interrupted".into());
    }
    Ok(tried.into_iter().filter_map(OnceLock::into_inner).collect())
}
