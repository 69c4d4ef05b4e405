//! Sleeping until something happens.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::ControlChannel;
use crate::shutdown::Shutdown;

/// First and longest sleep between two looks at a progress engine, which has no file descriptor to
/// wait for. The longest costs far below 1 % of a core.
const FIRST_SLEEP: Duration = Duration::from_micros(50);
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

/// What a channel waits for.
#[derive(Debug, Default)]
pub struct Interest<'a> {
    descriptors: Vec<(BorrowedFd<'a>, PollFlags)>,
    until: Option<Instant>,
    polled: bool,
}

impl<'a> Interest<'a> {
    /// Wait for this descriptor to be readable.
    pub fn readable(&mut self, descriptor: BorrowedFd<'a>) {
        self.descriptors.push((descriptor, PollFlags::IN));
    }

    /// Wait for this descriptor to be writable.
    pub fn writable(&mut self, descriptor: BorrowedFd<'a>) {
        self.descriptors.push((descriptor, PollFlags::OUT));
    }

    /// Wait for this time at the latest.
    pub fn until(&mut self, time: Instant) {
        self.until = Some(self.until.map_or(time, |earlier| earlier.min(time)));
    }

    /// Look again soon: what happens cannot be waited for.
    pub fn polled(&mut self) {
        self.polled = true;
    }
}

/// Puts the main thread to sleep. Between events the sleeps grow, from an event on they are short.
#[derive(Debug)]
pub struct Waiter {
    shutdown: Shutdown,
    sleep: Duration,
}

impl Waiter {
    /// A waiter that `shutdown` and its waker interrupt.
    #[must_use]
    pub fn new(shutdown: Shutdown) -> Self {
        Self {
            shutdown,
            sleep: FIRST_SLEEP,
        }
    }

    /// Something happened: more may follow soon.
    pub fn active(&mut self) {
        self.sleep = FIRST_SLEEP;
    }

    /// Returns when one of `channels` may have an event, when the waker was used, when the end was
    /// requested, at `deadline`, or for no reason at all.
    pub fn wait(&mut self, channels: &[&dyn ControlChannel], deadline: Option<Instant>) {
        let mut interest = Interest::default();
        for channel in channels {
            channel.interest(&mut interest);
        }
        let now = Instant::now();
        if interest.polled {
            interest.until(now + self.sleep);
            self.sleep = (self.sleep * 2).min(LONGEST_SLEEP);
        }
        if let Some(deadline) = deadline {
            interest.until(deadline);
        }

        let mut descriptors = vec![PollFd::from_borrowed_fd(
            self.shutdown.waker().readable(),
            PollFlags::IN,
        )];
        descriptors.extend(
            interest
                .descriptors
                .iter()
                .map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)),
        );
        let timeout = interest
            .until
            .map(|until| timespec(until.saturating_duration_since(now)));
        if !self.shutdown.is_requested() {
            // A failure (EINTR, for one) is a wake-up without a reason.
            let _ = poll(&mut descriptors, timeout.as_ref());
        }
        self.shutdown.waker().clear();
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_ends_the_wait_and_a_wake_up_counts_once() {
        let shutdown = Shutdown::new().expect("pipe");
        let mut waiter = Waiter::new(shutdown.clone());
        shutdown.waker().wake();
        let start = Instant::now();
        waiter.wait(&[], Some(start + Duration::from_secs(20)));
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "the wake-up came before the wait"
        );

        let start = Instant::now();
        waiter.wait(&[], Some(start + Duration::from_millis(30)));
        assert!(
            start.elapsed() >= Duration::from_millis(30),
            "the wake-up was used up"
        );

        let other = shutdown.clone();
        let thread = std::thread::spawn(move || other.request());
        let start = Instant::now();
        waiter.wait(&[], Some(start + Duration::from_secs(20)));
        assert!(start.elapsed() < Duration::from_secs(10) && shutdown.is_requested());
        thread.join().expect("joined");
    }
}
