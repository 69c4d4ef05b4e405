//! Release of the reference's wire format that a session uses: chosen by a flag, or detected from the first client
//! request that differs.

use clap::{Args, ValueEnum};
use wire::release::Release;

use crate::failure::Failure;

/// Flag common to all roles.
#[derive(Debug, Clone, Copy, Args)]
pub struct ProtocolFlags {
    /// Wire format of which DOCA release to use; 3.3 is the same as 3.2
    #[arg(long, value_enum, value_name = "RELEASE", default_value = "auto")]
    pub protocol: Protocol,
}

/// Wire format that a role uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// 3.0 if the client's requests are in the format of 3.0, else 3.2; an initiator, which sends first, uses 3.2.
    /// Requests of 3.1 cannot be told from 3.2
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
    /// The release chosen explicitly, if any.
    #[must_use]
    pub const fn chosen(self) -> Option<Release> {
        match self {
            Self::Auto => None,
            Self::V3_0 => Some(Release::V3_0),
            Self::V3_1 => Some(Release::V3_1),
            Self::V3_2 => Some(Release::V3_2),
        }
    }

    /// Release of a client, from the presence of a batch size in its init_storage_request.
    ///
    /// # Errors
    ///
    /// Differs from the chosen release.
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
    fn release_is_detected_from_the_request_unless_chosen() {
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
