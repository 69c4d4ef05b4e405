//! Checks that are run with every mix.

use serde::Serialize;

use super::content::CORRUPT;
use super::mix::{Mix, Traits};
use deployment::implementation::Layout;
use deployment::implementation::Role;

/// An initiator's execution strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Read without validation.
    ReadThroughput,
    /// Write without validation.
    WriteThroughput,
    /// Read the initial contents of the targets, and compare.
    ReadValidation,
    /// Write, read back, and compare.
    WriteReadValidation,
}

impl Strategy {
    /// All strategies.
    pub const ALL: [Self; 4] = [
        Self::ReadThroughput,
        Self::WriteThroughput,
        Self::ReadValidation,
        Self::WriteReadValidation,
    ];

    /// Value of the initiator's `--execution-strategy`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadThroughput => "read_throughput_test",
            Self::WriteThroughput => "write_throughput_test",
            Self::ReadValidation => "read_only_data_validity_test",
            Self::WriteReadValidation => "read_write_data_validity_test",
        }
    }

    /// Number of reads per operation.
    pub(super) fn reads(self) -> u64 {
        u64::from(self != Self::WriteThroughput)
    }

    /// Number of writes per operation.
    pub(super) fn writes(self) -> u64 {
        u64::from(matches!(
            self,
            Self::WriteThroughput | Self::WriteReadValidation
        ))
    }

    /// Returns `true` if the initiator compares data, and so needs the expected contents.
    pub(super) fn validates(self) -> bool {
        matches!(self, Self::ReadValidation | Self::WriteReadValidation)
    }
}

/// A check: one session with a mix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// A session without a fault, with this strategy.
    Strategy(Strategy),
    /// A target fails one valid I/O.
    FailingIo,
    /// The initiator requests a block beyond the end of the targets, which must fail.
    IoPastEnd,
    /// A target stores a block with one wrong byte.
    CorruptBlock,
}

impl Check {
    /// All checks.
    pub const ALL: [Self; 7] = [
        Self::Strategy(Strategy::ReadThroughput),
        Self::Strategy(Strategy::WriteThroughput),
        Self::Strategy(Strategy::ReadValidation),
        Self::Strategy(Strategy::WriteReadValidation),
        Self::FailingIo,
        Self::IoPastEnd,
        Self::CorruptBlock,
    ];

    /// The strategy's name, `failing_io`, `io_past_end` or `corrupt_block`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Strategy(strategy) => strategy.name(),
            Self::FailingIo => "failing_io",
            Self::IoPastEnd => "io_past_end",
            Self::CorruptBlock => "corrupt_block",
        }
    }

    /// Verified property.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Strategy(Strategy::ReadThroughput | Strategy::WriteThroughput) => {
                "every I/O is answered with success, all roles count the same number of I/Os, end well and leave nothing behind; \
                 the bytes are not compared"
            }
            Self::Strategy(Strategy::ReadValidation) => {
                "as with throughput, and every block read is what the target's file (of the generator, in gga) says"
            }
            Self::Strategy(Strategy::WriteReadValidation) => {
                "as with throughput, and every block read back is what was written before"
            }
            Self::FailingIo => {
                "a scripted target in place of the mix's only, or first, one answers one I/O with DOCA_ERROR_IO_FAILED: the \
                 initiator fails and says so, unless a role of the mix is known to hide it"
            }
            Self::IoPastEnd => {
                "relays between service and targets tell of one block more than there is, so that the mix's own targets get an I/O \
                 that they cannot do: the initiator fails and says so, unless a role of the mix is known to hide it"
            }
            Self::CorruptBlock => {
                "a byte of one block in the target's (in gga, data_1's) file is wrong: the initiator's comparison finds it, or \
                 the gga service makes the block anew from its parity"
            }
        }
    }
}

// Expected result of a check with a mix.

/// Expected result of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expectation {
    /// All roles exit with success, report equal counts, and leave nothing behind.
    Good,
    /// The initiator fails, and its output contains these texts.
    Found(Vec<String>),
    /// The initiator exits with success: this role is known not to report the error.
    Hidden(Role),
    /// All roles exit with success, and the service reports corrected blocks.
    Healed,
}

impl Expectation {
    /// Expectation for this mix; `protocol` is the release of its programs, if given. It is exact: a mix that does better than
    /// expected fails, too.
    pub fn of(mix: &Mix<'_>, check: Check, protocol: Option<&str>) -> Self {
        let initiator = mix.initiator.traits(Role::Initiator);
        let service = mix.service.traits(mix.layout.service());
        match check {
            Check::Strategy(_) => Self::Good,
            // A target of 3.0 that refuses a read counts it as in flight, and so never answers stop_storage_request.
            Check::IoPastEnd
                if mix.layout == Layout::ZeroCopy
                    && protocol == Some("3.0")
                    && !mix.targets[0].traits(Role::Target).checks_read_offsets =>
            {
                Self::Found(vec![
                    if initiator.looks_at_results && service.forwards_errors {
                        "DOCA_ERROR_INVALID_VALUE"
                    } else {
                        "stop_storage_re"
                    }
                    .to_owned(),
                ])
            }
            // All gga targets refuse the write.
            Check::IoPastEnd
                if mix.layout == Layout::ZeroCopy
                    && !mix.targets[0].traits(Role::Target).checks_read_offsets =>
            {
                Self::Hidden(Role::Target)
            }
            Check::FailingIo | Check::IoPastEnd
                if mix.layout == Layout::ZeroCopy && !service.forwards_errors =>
            {
                Self::Hidden(Role::ZeroCopy)
            }
            Check::FailingIo | Check::IoPastEnd if !initiator.looks_at_results => {
                Self::Hidden(Role::Initiator)
            }
            Check::FailingIo => Self::Found(vec!["DOCA_ERROR_IO_FAILED".to_owned()]),
            Check::IoPastEnd => Self::Found(vec!["DOCA_ERROR_".to_owned()]),
            Check::CorruptBlock if mix.layout == Layout::Gga && service.checksums => {
                let generated = mix
                    .generator
                    .is_some_and(|member| member.traits(Role::SbcGenerator).checksums);
                match (generated, initiator.looks_at_results) {
                    (true, _) => Self::Healed,
                    // Three inconsistent chunks, and no checksum to identify the wrong one: an I/O error.
                    (false, true) => Self::Found(vec!["DOCA_ERROR_IO_FAILED".to_owned()]),
                    // Memory that the I/O did not fill differs from the expected contents, too.
                    (false, false) => Self::mismatch(initiator),
                }
            }
            Check::CorruptBlock => Self::mismatch(initiator),
        }
    }

    fn mismatch(initiator: Traits) -> Self {
        Self::Found(if initiator.looks_at_results {
            vec!["mismatch".to_owned(), format!("block {CORRUPT}")]
        } else if initiator.one_pass {
            vec!["Data mismatch".to_owned()]
        } else {
            vec!["does not match expected value".to_owned()]
        })
    }
}

impl Check {
    /// Strategy of the initiator for this check.
    pub(super) fn strategy(self, layout: Layout) -> Strategy {
        match (self, layout) {
            (Self::Strategy(strategy), _) => strategy,
            (Self::FailingIo | Self::IoPastEnd, Layout::ZeroCopy) => Strategy::ReadThroughput,
            // A failed chunk read in gga is not an error if the service recovers the block from the other targets.
            (Self::FailingIo | Self::IoPastEnd, Layout::Gga) => Strategy::WriteThroughput,
            (Self::CorruptBlock, _) => Strategy::ReadValidation,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::matrix::Member;
    use deployment::implementation::Implementation;

    fn member(name: &str, traits: Traits) -> Member {
        let path = Path::new("/nonexistent/doca-storage");
        let implementation = Implementation::of_binary(name, Role::Target, path);
        Member::with_traits(implementation, traits)
    }

    #[test]
    fn target_of_3_0_that_refuses_a_read_does_not_stop() {
        let (ours, reference) = (
            member("ours", Traits::OURS),
            member("reference", Traits::REFERENCE),
        );
        let of = |initiator, service, target, protocol| {
            let mix = Mix {
                layout: Layout::ZeroCopy,
                initiator,
                service,
                targets: vec![target],
                generator: None,
            };
            Expectation::of(&mix, Check::IoPastEnd, protocol)
        };
        let found = |word: &str| Expectation::Found(vec![word.to_owned()]);
        let noticed = found("DOCA_ERROR_INVALID_VALUE");
        let stuck = found("stop_storage_re");
        assert_eq!(of(&ours, &ours, &reference, Some("3.0")), noticed);
        assert_eq!(of(&ours, &reference, &reference, Some("3.0")), stuck);
        assert_eq!(of(&reference, &ours, &reference, Some("3.0")), stuck);
        assert_eq!(of(&reference, &reference, &reference, Some("3.0")), stuck);
        for protocol in [None, Some("3.1")] {
            let hidden = Expectation::Hidden(Role::Target);
            assert_eq!(of(&ours, &ours, &reference, protocol), hidden);
        }
        assert_eq!(of(&ours, &ours, &ours, Some("3.0")), found("DOCA_ERROR_"));
    }
}
