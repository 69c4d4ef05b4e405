//! Limits on the resources that a peer may use: bytes, connections, refused requests, time and log lines.
//!
//! All input from peers is charged to one of these types before it takes effect. A charge over the limit is a
//! [`Failure`] that names the limit and ends the session or connection of the peer that caused it; the server
//! continues. A request over a limit is refused with that failure. None of these types does I/O or reads a clock:
//! callers pass the time.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use doca::ErrorCode;

use crate::failure::Failure;

/// Bytes of control messages that may be queued for a peer that does not read them. A correct peer
/// has one message outstanding, of at most a few KiB.
pub const UNSENT_BYTES: u64 = 256 << 10;

/// Maximum number of refused requests per session. A correct peer's requests are never refused.
pub const REFUSED_REQUESTS: u64 = 256;

/// TCP connections that may wait to send their first request, in total. They have no deadline, because a service is
/// connected and sends nothing until it has an initiator; further connections displace the oldest, see
/// [`Connections`].
pub const WAITING_CONNECTIONS: usize = 16;
/// TCP connections from one address that may wait to send their first request.
pub const WAITING_CONNECTIONS_PER_ADDRESS: usize = 8;

/// Consumers that a Comch client may create and destroy before its first request. An initiator creates its consumers
/// after that request.
pub const EARLY_EVENTS: u64 = 1024;

/// Log lines of one kind per second.
pub const LOG_LINES_PER_SECOND: u32 = 20;

/// An amount with a limit.
#[derive(Debug, Clone)]
pub struct Quota {
    what: &'static str,
    code: ErrorCode,
    limit: u64,
    used: u64,
}

impl Quota {
    /// Creates an unused quota. `code` is the error code when it is exceeded.
    #[must_use]
    pub fn new(what: &'static str, code: ErrorCode, limit: u64) -> Self {
        Self {
            what,
            code,
            limit,
            used: 0,
        }
    }

    /// Quota for bytes queued for a peer.
    #[must_use]
    pub fn unsent_bytes() -> Self {
        let what = "bytes of answers that the peer does not read";
        Self::new(what, ErrorCode::FULL, UNSENT_BYTES)
    }

    /// Quota for a Comch client's events before its first request.
    #[must_use]
    pub fn early_events() -> Self {
        let what = "consumers that were started and stopped before the first request";
        Self::new(what, ErrorCode::TOO_BIG, EARLY_EVENTS)
    }

    /// Quota for a session's refused requests.
    #[must_use]
    pub fn refused_requests() -> Self {
        let what = "refused requests in one session";
        Self::new(what, ErrorCode::TOO_BIG, REFUSED_REQUESTS)
    }

    /// Charges `amount`.
    ///
    /// # Errors
    ///
    /// The limit would be exceeded; in this case, nothing is charged.
    pub fn charge(&mut self, amount: u64) -> Result<(), Failure> {
        let used = self.used.saturating_add(amount);
        if used > self.limit {
            return Err(Failure::new(
                self.code,
                format!("{}: expected at most {}, got {used}", self.what, self.limit),
            ));
        }
        self.used = used;
        Ok(())
    }

    /// Returns `amount` to the quota.
    pub fn release(&mut self, amount: u64) {
        self.used = self.used.saturating_sub(amount);
    }
}

/// Limits the connections that wait for their first request, in total and per address. A further connection displaces a
/// waiting one, so that idle connections do not lock out a client that sends its request. The displaced connection is
/// from the same address if that address has reached its limit, otherwise from the address with the most connections:
/// an address cannot displace the connections of addresses that have fewer.
#[derive(Debug)]
pub struct Connections {
    total: usize,
    per_address: usize,
    open: HashMap<IpAddr, usize>,
}

impl Connections {
    /// Creates the limits; `total` must be at least `per_address`, which must be at least 1.
    #[must_use]
    pub fn new(total: usize, per_address: usize) -> Self {
        Self {
            total,
            per_address,
            open: HashMap::new(),
        }
    }

    /// Counts a new connection from `address`. Returns the address of which a connection must be closed and
    /// [released](Self::release) to stay within the limits.
    #[must_use]
    pub fn admit(&mut self, address: IpAddr) -> Option<IpAddr> {
        let is_full = self.open.values().sum::<usize>() >= self.total;
        let most = self.open.iter().max_by_key(|(_, count)| **count);
        let most = most.map(|(address, _)| *address).filter(|_| is_full);
        let count = self.open.entry(address).or_default();
        *count += 1;
        if *count > self.per_address {
            Some(address)
        } else {
            most
        }
    }

    /// Records that an admitted connection from this address was closed.
    pub fn release(&mut self, address: IpAddr) {
        if let Some(count) = self.open.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.open.remove(&address);
            }
        }
    }
}

/// Deadline of a step of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deadline {
    at: Instant,
    within: Duration,
}

impl Deadline {
    /// Creates a deadline `within` from `now`.
    #[must_use]
    pub fn new(now: Instant, within: Duration) -> Self {
        Self {
            at: now + within,
            within,
        }
    }

    #[must_use]
    pub fn at(&self) -> Instant {
        self.at
    }

    pub fn extend(&mut self, by: Duration) {
        self.at += by;
        self.within += by;
    }

    /// Checks that the deadline has not passed.
    ///
    /// # Errors
    ///
    /// `TIME_OUT`: it has passed; `what` was not received in time.
    pub fn check(&self, now: Instant, what: impl std::fmt::Display) -> Result<(), Failure> {
        if now < self.at {
            Ok(())
        } else {
            Err(Failure::timed_out(what, self.within))
        }
    }
}

/// Limits the log lines of each kind per second, and counts those that are suppressed.
#[derive(Debug)]
pub struct LogBudget<K> {
    per_second: u32,
    kinds: HashMap<K, Window>,
    /// Kinds with suppressed lines.
    suppressed: usize,
}

#[derive(Debug)]
struct Window {
    began: Instant,
    lines: u32,
    suppressed: u64,
}

impl<K: Hash + Eq + Clone> LogBudget<K> {
    /// Creates a budget of `per_second` lines of each kind.
    #[must_use]
    pub fn new(per_second: u32) -> Self {
        Self {
            per_second,
            kinds: HashMap::new(),
            suppressed: 0,
        }
    }

    /// Returns `true` if another line of this kind may be written.
    pub fn charge(&mut self, now: Instant, kind: K) -> bool {
        let window = self.kinds.entry(kind).or_insert(Window {
            began: now,
            lines: 0,
            suppressed: 0,
        });
        // A window with suppressed lines is renewed by `take_suppressed` only, so that their number is reported.
        if window.suppressed == 0 && is_over(window.began, now) {
            (window.began, window.lines) = (now, 0);
        }
        if window.lines < self.per_second {
            window.lines += 1;
            return true;
        }
        self.suppressed += usize::from(window.suppressed == 0);
        window.suppressed += 1;
        false
    }

    /// Kinds with suppressed lines in a second that has passed, and the number of these lines. Each is returned once.
    pub fn take_suppressed(&mut self, now: Instant) -> Vec<(K, u64)> {
        if self.suppressed == 0 {
            return Vec::new();
        }
        let mut taken = Vec::new();
        for (kind, window) in &mut self.kinds {
            if window.suppressed != 0 && is_over(window.began, now) {
                taken.push((kind.clone(), window.suppressed));
                *window = Window {
                    began: now,
                    lines: 0,
                    suppressed: 0,
                };
            }
        }
        self.suppressed -= taken.len();
        taken
    }
}

fn is_over(began: Instant, now: Instant) -> bool {
    now.saturating_duration_since(began) >= Duration::from_secs(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_is_charged_and_released() {
        let mut quota = Quota::new("bytes", ErrorCode::FULL, 10);
        quota.charge(10).expect("all of it");
        assert_eq!(quota.charge(1).expect_err("over").code, ErrorCode::FULL);
        quota.release(4);
        quota.charge(4).expect("what was given back");
        assert!(quota.charge(u64::MAX).is_err(), "no overflow");
    }

    #[test]
    fn new_connection_displaces_one_of_its_own_or_of_the_busiest_address() {
        let address = |last| IpAddr::from([10, 0, 0, last]);
        let mut connections = Connections::new(4, 3);
        for _ in 0..3 {
            assert_eq!(connections.admit(address(1)), None);
        }
        assert_eq!(connections.admit(address(1)), Some(address(1)), "its share");
        connections.release(address(1));
        assert_eq!(connections.admit(address(2)), None);
        let displaced = connections.admit(address(3));
        assert_eq!(displaced, Some(address(1)), "the one with most");
        connections.release(address(1));
        assert_eq!(connections.open[&address(2)], 1);
        // A connection that is not counted releases nothing.
        connections.release(address(9));
        assert!(connections.admit(address(4)).is_some());
        connections.release(address(1));
        connections.release(address(1));
        assert_eq!(connections.admit(address(5)), None, "one was closed");
    }

    #[test]
    fn expired_deadline_times_out() {
        let start = Instant::now();
        let deadline = Deadline::new(start, Duration::from_secs(2));
        let at = |seconds| start + Duration::from_secs(seconds);
        deadline.check(at(1), "it").expect("there is time");
        let failure = deadline.check(at(2), "it").expect_err("there is none");
        assert_eq!(failure.code, ErrorCode::TIME_OUT);
        assert_eq!(deadline.at(), at(2));
    }

    #[test]
    fn suppressed_lines_are_counted_and_reported_once() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut budget = LogBudget::new(2);
        let written = |budget: &mut LogBudget<&str>, kind, at| {
            (0..5)
                .map(|_| budget.charge(at, kind))
                .filter(|&written| written)
                .count()
        };
        assert_eq!(written(&mut budget, "a", at(0)), 2);
        assert_eq!(written(&mut budget, "b", at(0)), 2);
        assert_eq!(written(&mut budget, "a", at(999)), 0);
        assert_eq!(
            budget.take_suppressed(at(999)),
            [],
            "the second is not over"
        );
        let mut taken = budget.take_suppressed(at(1000));
        taken.sort_unstable();
        assert_eq!(taken, [("a", 8), ("b", 3)]);
        assert_eq!(budget.take_suppressed(at(5000)), []);
        assert_eq!(written(&mut budget, "a", at(1000)), 2);
        assert_eq!(budget.take_suppressed(at(2000)), [("a", 3)]);
        assert!(budget.charge(at(2000), "c"));
        assert!(
            budget.charge(at(9000), "c") && budget.charge(at(9000), "c"),
            "each second has its own"
        );
    }
}
