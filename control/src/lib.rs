//! Control channels: the same messages over TCP and over Comch, behind one small interface.
//!
//! Channels never block. The main thread polls each for its [`ChannelEvent`]s, and when there are none, sleeps in
//! [`Waiter::wait`] until a channel, a signal or a worker thread needs it.
//!
//! Roles and the client (`volume`) share the channels and what these need: their common error type ([`Failure`]),
//! limits on the resources that a peer may use ([`budget`]), addresses and TLS ([`network`]), the shutdown of the
//! program ([`shutdown`]), the reservations of targets for one of several services ([`reservation`]), and the identity of a storage ([`verifier`]).
#![forbid(unsafe_code)]
// These macros panic if the stream is closed or full.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod budget;
mod comch;
pub mod counts;
mod failure;
pub mod network;
pub mod reservation;
pub mod shutdown;
mod tcp;
pub mod verifier;

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use doca::ErrorCode;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wire::control::{Message, MessageType, Payload};

use crate::budget::Quota;
use crate::counts::REFUSED_REQUESTS;
use crate::shutdown::Shutdown;

pub use comch::{ComchClientChannel, ComchServerChannel};
pub use failure::{Failure, FirstFailure, text_of_peer, unexpected};
pub use tcp::{TcpClientChannel, TcpServerChannel};

/// Returns `true` for a request that begins a session.
pub type Opens = fn(&Payload) -> bool;

/// Charges a request of a client without a session that does not begin a session, and returns the error with which to
/// answer it.
///
/// # Errors
/// The client has sent too many such requests.
fn refusal(request: &Message, refused: &mut Quota, peer: &str) -> Result<Message, Failure> {
    REFUSED_REQUESTS.increment();
    refused.charge(1)?;
    let failure = unexpected(&request.payload, MessageType::QueryStorageRequest);
    tracing::warn!("{peer}: refused: {failure}");
    Ok(failure.response_to(request))
}

/// An event of a control channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelEvent {
    /// The channel's peer is connected: for a server, the first client that has sent a request which begins a session.
    Connected,
    /// The peer sent a message.
    Message(Message),
    /// The peer of a Comch channel created a consumer with this id.
    ConsumerAdded(u32),
    /// A consumer of the peer was destroyed.
    ConsumerExpired(u32),
    /// The peer has disconnected. No event follows.
    Closed,
}

/// A control channel with one peer.
pub trait ControlChannel {
    /// Description of the peer, for log messages.
    fn peer(&self) -> &str;

    /// Sends a message. A peer that has disconnected is not an error but reported by a later [`ChannelEvent::Closed`],
    /// so that its last messages can still be read.
    ///
    /// # Errors
    ///
    /// No peer is connected yet, or the channel has failed.
    fn send(&mut self, message: &Message) -> Result<(), Failure>;

    /// Returns the next event, if there is one.
    ///
    /// # Errors
    ///
    /// The peer violated the protocol, or the channel has failed. The channel cannot be used afterwards.
    fn poll(&mut self) -> Result<Option<ChannelEvent>, Failure>;

    /// Registers the descriptors or times to wait for.
    fn interest<'a>(&'a self, interest: &mut Interest<'a>);

    /// Waits, at most `within`, until sent messages have left this process.
    fn flush(&mut self, within: Duration);
}

fn not_connected(peer: &str) -> Failure {
    Failure::new(
        ErrorCode::NOT_CONNECTED,
        format!("no {peer} is connected yet"),
    )
}

// Sleeping until an event of any source.

/// First and longest sleep between two polls of a progress engine without a file descriptor. With the longest sleep,
/// polling takes far less than 1 % of a core.
const FIRST_SLEEP: Duration = Duration::from_micros(50);
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

/// Descriptors and times that a channel waits for.
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

    /// Poll again soon: the event has no descriptor.
    pub fn polled(&mut self) {
        self.polled = true;
    }
}

/// Blocks the main thread until there may be an event. The sleeps between polls become longer without events, and are
/// short again after an event.
#[derive(Debug)]
pub struct Waiter {
    shutdown: Shutdown,
    sleep: Duration,
}

impl Waiter {
    /// Creates a waiter that `shutdown` and its waker interrupt.
    #[must_use]
    pub fn new(shutdown: Shutdown) -> Self {
        Self {
            shutdown,
            sleep: FIRST_SLEEP,
        }
    }

    /// Records an event: further events may follow soon.
    pub fn active(&mut self) {
        self.sleep = FIRST_SLEEP;
    }

    /// Returns when one of `channels` may have an event, when the waker was used, when shutdown was requested, at
    /// `deadline`, or spuriously.
    pub fn wait(&mut self, channels: &[&dyn ControlChannel], deadline: Option<Instant>) {
        let is_requested = self.shutdown.is_requested();
        self.wait_unless(is_requested, channels, deadline);
    }

    /// As [`wait`](Self::wait), for work that a shutdown request has started: does not return because of that request.
    pub fn wait_during_shutdown(
        &mut self,
        channels: &[&dyn ControlChannel],
        deadline: Option<Instant>,
    ) {
        self.wait_unless(false, channels, deadline);
    }

    fn wait_unless(
        &mut self,
        is_interrupted: bool,
        channels: &[&dyn ControlChannel],
        deadline: Option<Instant>,
    ) {
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
        // A shutdown request from now on is a wake-up.
        if !is_interrupted {
            // A failure (EINTR, for example) is a spurious wake-up.
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
mod wait_tests {
    use super::*;

    #[test]
    fn shutdown_ends_the_wait_and_a_wake_up_is_consumed_once() {
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

        shutdown.waker().clear();
        let start = Instant::now();
        waiter.wait(&[], Some(start + Duration::from_secs(20)));
        assert!(start.elapsed() < Duration::from_secs(10), "it is requested");
        waiter.wait_during_shutdown(&[], Some(start + Duration::from_millis(30)));
        assert!(start.elapsed() >= Duration::from_millis(30));
    }
}
