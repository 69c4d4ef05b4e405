//! Level limits of back ends, and rate limits of messages.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Level;

/// A range of levels whose limits can be changed, and can be protected against widening.
///
/// DOCA's terms: the *lower* limit is the least severe level (the larger number), the *upper* one the most severe.
#[derive(Debug)]
pub(super) struct Limits {
    lower: AtomicU32,
    upper: AtomicU32,
    /// The lower limit cannot exceed this value.
    lower_bound: AtomicU32,
    /// The upper limit cannot go below this value.
    upper_bound: AtomicU32,
}

impl Limits {
    pub(super) fn new(lower: Level, upper: Level) -> Self {
        Self {
            lower: AtomicU32::new(lower as u32),
            upper: AtomicU32::new(upper as u32),
            lower_bound: AtomicU32::new(u32::MAX),
            upper_bound: AtomicU32::new(0),
        }
    }

    pub(super) fn set_lower(&self, level: Level) {
        let bound = self.lower_bound.load(Ordering::Relaxed);
        self.lower
            .store((level as u32).min(bound), Ordering::Relaxed);
    }

    pub(super) fn set_upper(&self, level: Level) {
        let bound = self.upper_bound.load(Ordering::Relaxed);
        self.upper
            .store((level as u32).max(bound), Ordering::Relaxed);
    }

    pub(super) fn fix_lower(&self) {
        self.lower_bound
            .store(self.lower.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    pub(super) fn fix_upper(&self) {
        self.upper_bound
            .store(self.upper.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    pub(super) fn take(&self, level: Level) -> bool {
        let level = level as u32;
        level <= self.lower.load(Ordering::Relaxed) && level >= self.upper.load(Ordering::Relaxed)
    }

    /// Value of the least severe accepted level.
    pub(super) fn lower(&self) -> u32 {
        self.lower.load(Ordering::Relaxed)
    }
}

const PERIOD: Duration = Duration::from_secs(1);
/// Messages per second of one source line.
const PER_SITE: u32 = 10;

/// Rate limit for one kind of message, so that peers cannot fill a disk with log messages. The first message after a
/// suppressed one reports the number suppressed.
#[derive(Debug)]
pub struct Limited {
    most: u32,
    /// Start of the current second.
    since: Option<Instant>,
    written: u32,
    suppressed: u64,
}

/// Number of suppressed messages; displays as nothing for 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Suppressed(u64);

impl fmt::Display for Suppressed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            count => write!(f, " ({count} similar messages suppressed)"),
        }
    }
}

impl Limited {
    /// Allows `most` messages per second.
    pub const fn new(most: u32) -> Limited {
        Limited {
            most,
            since: None,
            written: 0,
            suppressed: 0,
        }
    }

    /// Counts a message at `now`; `None` if it is to be suppressed.
    pub fn admit(&mut self, now: Instant) -> Option<Suppressed> {
        if self
            .since
            .is_none_or(|since| now.saturating_duration_since(since) >= PERIOD)
        {
            self.since = Some(now);
            self.written = 0;
        }
        if self.written >= self.most {
            self.suppressed += 1;
            return None;
        }
        self.written += 1;
        Some(Suppressed(std::mem::take(&mut self.suppressed)))
    }
}

/// [`Limited::admit`] for a message of a source line.
pub(super) fn admit_site(file: &str, line: u32) -> Option<Suppressed> {
    static SITES: Mutex<Option<HashMap<(String, u32), Limited>>> = Mutex::new(None);
    let mut sites = SITES.lock().unwrap_or_else(PoisonError::into_inner);
    sites
        .get_or_insert_default()
        .entry((file.to_owned(), line))
        .or_insert_with(|| Limited::new(PER_SITE))
        .admit(Instant::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(limits: &Limits) -> Vec<Level> {
        Level::ALL
            .into_iter()
            .filter(|level| limits.take(*level))
            .collect()
    }

    #[test]
    fn limits_can_be_moved_and_strict_ones_only_narrowed() {
        use Level::*;
        let limits = Limits::new(Info, Critical);
        assert_eq!(taken(&limits), [Critical, Error, Warning, Info]);
        limits.set_upper(Warning);
        limits.set_lower(Debug);
        assert_eq!(taken(&limits), [Warning, Info, Debug]);
        limits.fix_lower();
        limits.fix_upper();
        limits.set_lower(Trace);
        limits.set_upper(Critical);
        assert_eq!(taken(&limits), [Warning, Info, Debug]);
        limits.set_lower(Info);
        limits.set_upper(Info);
        assert_eq!(taken(&limits), [Info]);
        limits.set_lower(Disable);
        assert_eq!(taken(&limits), []);
    }

    #[test]
    fn messages_beyond_the_limit_are_counted() {
        let (begin, mut messages) = (Instant::now(), Limited::new(2));
        let mut at = |milliseconds| messages.admit(begin + Duration::from_millis(milliseconds));
        assert_eq!([at(0), at(1)], [Some(Suppressed(0)); 2]);
        assert_eq!([at(2), at(998), at(999)], [None; 3]);
        assert_eq!(
            [at(1000), at(1999)],
            [Some(Suppressed(3)), Some(Suppressed(0))]
        );
        assert_eq!(at(1999), None);
        assert_eq!(at(9000), Some(Suppressed(1)));
        assert_eq!(Suppressed(0).to_string(), "");
        assert!(Suppressed(3).to_string().contains('3'));
    }
}
