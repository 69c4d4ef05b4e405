//! Counts of inputs per decoder, by verdict.
//!
//! A property opens a [`Judging`] for each decoder that it runs, and closes it after all checks with the verdict on the
//! input. One that is dropped by a panic is counted as a panic. The counts are per process.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Counts of one decoder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Refused with an error.
    pub refused: u64,
    /// Accepted, and all checks of the property passed.
    pub accepted: u64,
    /// A panic of the decoder or of a check.
    pub panics: u64,
}

impl Counts {
    /// Total number of inputs.
    #[must_use]
    pub fn inputs(&self) -> u64 {
        self.refused + self.accepted + self.panics
    }
}

static COUNTS: Mutex<BTreeMap<&'static str, Counts>> = Mutex::new(BTreeMap::new());

fn counts() -> MutexGuard<'static, BTreeMap<&'static str, Counts>> {
    // A panic between two additions leaves consistent counts.
    COUNTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Verdict on one input of a decoder, until it is known.
#[derive(Debug)]
#[must_use = "an input without a verdict is not counted"]
pub struct Judging(&'static str);

impl Judging {
    /// Starts counting an input of the decoder `decoder`.
    pub fn by(decoder: &'static str) -> Self {
        Self(decoder)
    }

    /// Counts the input as accepted or refused.
    pub fn done(self, accepted: bool) {
        count(self.0, accepted);
    }
}

impl Drop for Judging {
    fn drop(&mut self) {
        if std::thread::panicking() {
            counts().entry(self.0).or_default().panics += 1;
        }
    }
}

/// Counts an input of a decoder that reads parts of a larger input.
pub fn count(decoder: &'static str, accepted: bool) {
    let mut counts = counts();
    let counts = counts.entry(decoder).or_default();
    if accepted {
        counts.accepted += 1;
    } else {
        counts.refused += 1;
    }
}

/// The counts so far.
#[must_use]
pub fn snapshot() -> BTreeMap<&'static str, Counts> {
    counts().clone()
}

/// A printable table of all decoders.
#[derive(Debug)]
pub struct Table(pub BTreeMap<&'static str, Counts>);

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| decoder | inputs | refused | accepted and as expected | panics |"
        )?;
        writeln!(f, "| --- | ---: | ---: | ---: | ---: |")?;
        for (decoder, counts) in &self.0 {
            let Counts {
                refused,
                accepted,
                panics,
            } = counts;
            let inputs = counts.inputs();
            writeln!(
                f,
                "| {decoder} | {inputs} | {refused} | {accepted} | {panics} |"
            )?;
        }
        let total = |of: fn(&Counts) -> u64| self.0.values().map(of).sum::<u64>();
        write!(
            f,
            "| all | {} | {} | {} | {} |",
            total(Counts::inputs),
            total(|counts| counts.refused),
            total(|counts| counts.accepted),
            total(|counts| counts.panics)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_and_panics_are_counted() {
        const NAME: &str = "a decoder of this test";
        Judging::by(NAME).done(true);
        Judging::by(NAME).done(false);
        let panic = std::panic::catch_unwind(|| {
            let _judging = Judging::by(NAME);
            panic!("as a decoder that has met its bytes");
        });
        assert!(panic.is_err());
        let counts = snapshot()[NAME];
        let expected = Counts {
            refused: 1,
            accepted: 1,
            panics: 1,
        };
        assert_eq!((counts, counts.inputs()), (expected, 3));
        let table = Table([(NAME, counts)].into()).to_string();
        assert!(table.contains("this test | 3 | 1 | 1 | 1 |"), "{table}");
    }
}
