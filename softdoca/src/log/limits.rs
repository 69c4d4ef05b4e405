//! Which levels a back end takes.

use std::sync::atomic::{AtomicU32, Ordering};

use super::Level;

/// A range of levels whose ends can move, and can be kept from moving outwards.
///
/// As DOCA calls them: the *lower* limit is the least severe level (the larger number), the *upper* one the most severe.
#[derive(Debug)]
pub(super) struct Limits {
    lower: AtomicU32,
    upper: AtomicU32,
    /// The lower limit goes no further than this.
    lower_bound: AtomicU32,
    /// The upper limit goes no further than this.
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

    /// The value of the least severe level that is taken.
    pub(super) fn lower(&self) -> u32 {
        self.lower.load(Ordering::Relaxed)
    }
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
    fn both_ends_move_and_strict_ones_only_inwards() {
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
}
