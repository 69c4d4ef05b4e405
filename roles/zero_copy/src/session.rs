//! The control session of the zero copy service: one target, whose storage is the service's.

use role_common::Failure;
use role_common::service::session::{self, Layout};
use wire::control::StorageDetails;

/// The session of a service with one target.
pub type Session = session::Session<Passthrough>;

/// The storage of the target as it is.
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
}

#[cfg(test)]
mod tests;
