//! The release of the reference that a session speaks: chosen by a flag, or found out from the client's first request that differs.

use clap::{Args, ValueEnum};
use wire::release::Release;

use crate::failure::Failure;

/// The flag of all roles.
#[derive(Debug, Clone, Copy, Args)]
pub struct ProtocolFlags {
    /// Release of the reference whose messages are spoken; those of 3.3 are those of 3.2
    #[arg(long, value_enum, value_name = "RELEASE", default_value = "auto")]
    pub protocol: Protocol,
}

/// Release whose wire format a role uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// 3.0 with a client that asks as 3.0 does, else 3.2; an initiator, which asks first, speaks 3.2. The requests of a client of 3.1 do
    /// not tell it from one of 3.2
    #[default]
    Auto,
    /// DOCA 3.0
    #[value(name = "3.0")]
    V3_0,
    /// DOCA 3.1
    #[value(name = "3.1")]
    V3_1,
    /// DOCA 3.2 and 3.3
    #[value(name = "3.2")]
    V3_2,
}

impl Protocol {
    /// The one release that was chosen.
    #[must_use]
    pub const fn chosen(self) -> Option<Release> {
        match self {
            Self::Auto => None,
            Self::V3_0 => Some(Release::V3_0),
            Self::V3_1 => Some(Release::V3_1),
            Self::V3_2 => Some(Release::V3_2),
        }
    }

    /// The release of a client whose init_storage_request has a batch size, or has not.
    ///
    /// # Errors
    ///
    /// It is not one of the release that was chosen.
    pub fn of_client(self, has_batch_size: bool) -> Result<Release, Failure> {
        match (self.chosen(), has_batch_size) {
            (None, true) => Ok(Release::V3_0),
            (None, false) => Ok(Release::default()),
            (Some(release), _) if (release == Release::V3_0) == has_batch_size => Ok(release),
            (Some(release), true) => Err(Failure::invalid(format!(
                "init_storage_request: expected that of {release}, see --protocol, got that of 3.0, which has a batch size"
            ))),
            (Some(release), false) => Err(Failure::invalid(format!(
                "init_storage_request: expected that of {release}, see --protocol, got one without a batch size, of 3.1 or later"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use doca::ErrorCode;

    use super::*;

    #[test]
    fn release_is_that_of_the_request_or_the_chosen_one() {
        for (protocol, batched, plain) in [
            (Protocol::Auto, Some(Release::V3_0), Some(Release::V3_2)),
            (Protocol::V3_0, Some(Release::V3_0), None),
            (Protocol::V3_1, None, Some(Release::V3_1)),
            (Protocol::V3_2, None, Some(Release::V3_2)),
        ] {
            for (has_batch_size, expected) in [(true, batched), (false, plain)] {
                match (protocol.of_client(has_batch_size), expected) {
                    (Ok(release), Some(expected)) => assert_eq!(release, expected),
                    (Err(failure), None) => assert_eq!(failure.code, ErrorCode::INVALID_VALUE),
                    (other, _) => panic!("{protocol:?}, {has_batch_size}: {other:?}"),
                }
            }
        }
    }
}
