//! Control session of the zero copy service: one target, whose storage is presented unchanged.

use role_common::Failure;
use role_common::service::session::{self, Layout};
use wire::control::{FEATURE_FLUSH, StorageDetails};

/// The session of a service with one target.
pub type Session = session::Session<Passthrough>;

/// Presents the target's storage unchanged.
#[derive(Debug, Clone, Copy)]
pub struct Passthrough;

impl Layout for Passthrough {
    const TARGETS: &'static [&'static str] = &["storage target"];

    fn present(&self, targets: &[StorageDetails]) -> Result<StorageDetails, Failure> {
        match targets {
            [details] => Ok(details.clone()),
            other => Err(Failure::unexpected(format!(
                "expected one target, {} answered",
                other.len()
            ))),
        }
    }

    const FEATURES: u32 = FEATURE_FLUSH;

    /// Requests are forwarded unchanged, so the target's extensions are the service's.
    fn features(&self, targets: &[u32]) -> u32 {
        targets.first().copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
