//! Choice of the service of the next session, without connections or a clock.

use std::time::Duration;

/// First and longest interval between the end of a session and the next attempt.
const RETRY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// Interval between attempts after an attempt that has found another storage, because this requires an operator's
/// action.
const RETRY_CHANGED: Duration = Duration::from_secs(2);

/// Time limit for the connection to each of several services, in the first round. A service that is running accepts
/// a connection within milliseconds.
const CONNECT: Duration = Duration::from_secs(1);

/// Result of an attempt to run a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A session was running, and has ended.
    Ended,
    /// No session was established.
    Failed,
    /// No session was established, and a service had another storage.
    OtherStorage,
}

/// Position in the list of services.
///
/// After each attempt, it moves to the next service, from the last one to the first one: the service of a session that
/// has ended is tried again after all others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failover {
    services: usize,
    current: usize,
    /// Number of attempts since the last session.
    attempts: usize,
    retry: Duration,
}

impl Failover {
    /// Starts with the first of this number of services, at least one.
    pub(crate) fn new(services: usize) -> Self {
        Self {
            services,
            current: 0,
            attempts: 0,
            retry: RETRY.0,
        }
    }

    /// Index of the service to connect to.
    pub(crate) fn current(&self) -> usize {
        self.current
    }

    /// `true` if there are others to connect to instead of waiting for a service.
    pub(crate) fn has_alternatives(&self) -> bool {
        self.services > 1
    }

    /// Time limit for the connection to the current service: short if there are alternatives, because a stopped process
    /// cannot be distinguished from a slow one, and doubled in each round, because on an overloaded machine all services
    /// are slow.
    pub(crate) fn connect_timeout(&self, control_timeout: Duration) -> Duration {
        if !self.has_alternatives() {
            return control_timeout;
        }
        let round = u32::try_from(self.attempts / self.services).unwrap_or(u32::MAX);
        let factor = 2_u32.saturating_pow(round);
        CONNECT.saturating_mul(factor).min(control_timeout)
    }

    /// Moves to the next service after an attempt. Returns the time to wait before connecting to it.
    pub(crate) fn next(&mut self, outcome: Outcome) -> Duration {
        self.current = (self.current + 1) % self.services;
        match outcome {
            Outcome::Ended => {
                self.attempts = 0;
                self.retry = RETRY.0;
            }
            Outcome::Failed => {
                self.attempts += 1;
                self.retry = (self.retry * 2).min(RETRY.1);
            }
            Outcome::OtherStorage => {
                self.attempts += 1;
                self.retry = RETRY_CHANGED;
            }
        }
        self.retry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTROL_TIMEOUT: Duration = Duration::from_secs(5);

    fn millis(time: u64) -> Duration {
        Duration::from_millis(time)
    }

    /// The services that are tried after the outcomes, and the intervals in milliseconds.
    fn tries(failover: &mut Failover, outcomes: &[Outcome]) -> Vec<(usize, u128)> {
        let next = |outcome: &Outcome| {
            let interval = failover.next(*outcome);
            (failover.current(), interval.as_millis())
        };
        outcomes.iter().map(next).collect()
    }

    #[test]
    fn next_service_is_tried_after_each_attempt_around_and_around() {
        use Outcome::{Ended, Failed};
        let mut failover = Failover::new(3);
        assert_eq!(failover.current(), 0);
        assert_eq!(
            tries(&mut failover, &[Failed, Ended, Failed, Failed, Failed]),
            [(1, 40), (2, 20), (0, 40), (1, 80), (2, 160)]
        );
        assert_eq!(
            tries(&mut failover, &[Failed, Failed, Failed, Ended]),
            [(0, 320), (1, 500), (2, 500), (0, 20)]
        );
    }

    #[test]
    fn service_of_a_failed_session_is_tried_last() {
        let mut failover = Failover::new(2);
        assert_eq!(tries(&mut failover, &[Outcome::Ended]), [(1, 20)]);
        assert_eq!(tries(&mut failover, &[Outcome::Failed]), [(0, 40)]);
        assert_eq!(tries(&mut failover, &[Outcome::Failed]), [(1, 80)]);
    }

    #[test]
    fn another_storage_is_tried_again_at_longer_intervals() {
        use Outcome::{Ended, Failed, OtherStorage};
        let mut failover = Failover::new(1);
        assert_eq!(
            tries(&mut failover, &[OtherStorage, Failed, Ended, Failed]),
            [(0, 2000), (0, 500), (0, 20), (0, 40)]
        );
    }

    #[test]
    fn one_service_has_the_whole_control_timeout() {
        let mut failover = Failover::new(1);
        for _ in 0..100 {
            assert_eq!(failover.connect_timeout(CONTROL_TIMEOUT), CONTROL_TIMEOUT);
            assert!(!failover.has_alternatives());
            failover.next(Outcome::Failed);
        }
    }

    #[test]
    fn each_of_several_services_has_a_second_in_the_first_round_and_more_in_later_ones() {
        let mut failover = Failover::new(2);
        let mut limits = Vec::new();
        for _ in 0..8 {
            limits.push(failover.connect_timeout(CONTROL_TIMEOUT).as_secs());
            failover.next(Outcome::Failed);
        }
        assert_eq!(limits, [1, 1, 2, 2, 4, 4, 5, 5]);
        for _ in 0..1000 {
            failover.next(Outcome::Failed);
        }
        assert_eq!(failover.connect_timeout(CONTROL_TIMEOUT), CONTROL_TIMEOUT);
        assert_eq!(failover.connect_timeout(millis(300)), millis(300));
        failover.next(Outcome::Ended);
        assert_eq!(failover.connect_timeout(CONTROL_TIMEOUT), CONNECT);
    }
}
