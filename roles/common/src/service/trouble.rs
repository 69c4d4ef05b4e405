//! Which failed attempts to connect to a target are logged.

use std::time::{Duration, Instant};

use control::Failure;

/// Time after which a failure that has not changed is logged again.
const REPETITION: Duration = Duration::from_secs(60);

/// The last logged failure of attempts to connect to one target.
#[derive(Debug, Clone, Default)]
pub(super) struct Trouble {
    logged: Option<(Failure, Instant)>,
}

impl Trouble {
    /// Returns `true` if the failure is to be logged: attempts usually fail in the same way, so it is logged when it
    /// changes, and once a minute.
    pub(super) fn is_news(&mut self, failure: &Failure, now: Instant) -> bool {
        if let Some((logged, at)) = &self.logged
            && logged == failure
            && now < *at + REPETITION
        {
            return false;
        }
        self.logged = Some((failure.clone(), now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_is_logged_when_it_changes_and_once_a_minute() {
        let refused = Failure::new(
            doca::ErrorCode::CONNECTION_ABORTED,
            "it refuses connections",
        );
        let unreachable = Failure::new(doca::ErrorCode::CONNECTION_ABORTED, "there is no route");
        let begin = Instant::now();
        let mut trouble = Trouble::default();
        let times: Vec<u64> = (0..200)
            .filter(|&second| trouble.is_news(&refused, begin + Duration::from_secs(second)))
            .collect();
        assert_eq!(times, [0, 60, 120, 180]);
        let now = begin + Duration::from_secs(200);
        assert!(trouble.is_news(&unreachable, now) && trouble.is_news(&refused, now));
        assert!(!trouble.is_news(&refused, now));
    }
}
