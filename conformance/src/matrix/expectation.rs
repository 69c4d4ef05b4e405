//! What a mix is expected to make of a check.

use super::check::{Check, Strategy};
use super::content::CORRUPT;
use super::member::Traits;
use super::mix::{Layout, Mix};
use crate::implementation::Role;

/// How a session should end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expectation {
    /// All roles end well, count the same, and leave nothing behind.
    Good,
    /// The initiator fails, and its output has these words.
    Found(Vec<String>),
    /// The initiator ends well: this role is known to hide what has happened.
    Hidden(Role),
    /// All end well, and the service says that it has corrected blocks.
    Healed,
}

impl Expectation {
    /// For this mix, of programs of release `protocol` where that is given. The knowledge must stay true: a mix that does better than expected
    /// fails, too.
    pub fn of(mix: &Mix<'_>, check: Check, protocol: Option<&str>) -> Self {
        let initiator = mix.initiator.traits(Role::Initiator);
        let service = mix.service.traits(mix.layout.service());
        match check {
            Check::Strategy(_) => Self::Good,
            // A target of 3.0 refuses the read, and takes it for one that is still in flight: it never answers stop_storage_request.
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
            // Writes, in gga, all targets refuse.
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
                    // Three halves that do not agree, and no checksum that says which is right: an I/O error.
                    (false, true) => Self::Found(vec!["DOCA_ERROR_IO_FAILED".to_owned()]),
                    // The memory that the I/O did not fill is not what was expected either.
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
    /// What the initiator does in it.
    pub(super) fn strategy(self, layout: Layout) -> Strategy {
        match (self, layout) {
            (Self::Strategy(strategy), _) => strategy,
            (Self::FailingIo | Self::IoPastEnd, Layout::ZeroCopy) => Strategy::ReadThroughput,
            // A read that fails in gga is no error: the block is made anew from the other targets, by a service that does so.
            (Self::FailingIo | Self::IoPastEnd, Layout::Gga) => Strategy::WriteThroughput,
            (Self::CorruptBlock, _) => Strategy::ReadValidation,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::implementation::Implementation;
    use crate::matrix::Member;

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
