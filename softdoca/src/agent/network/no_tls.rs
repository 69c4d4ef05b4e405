//! Replaces `tls` in a softdoca that was built without the feature of this name.

use std::ffi::OsString;
use std::fmt;
use std::net::IpAddr;

use super::super::Deadline;
use super::settings::{TLS_CA, TLS_CERTIFICATE, TLS_KEY};
use super::stream::Stream;
use crate::error::{Error, Result};

/// Uninhabited: built without the feature `tls`.
#[derive(Clone, Debug)]
pub(super) enum Tls {}

impl Tls {
    /// # Errors
    /// [`Error::NotSupported`] if the environment requests TLS, so that no data is sent unencrypted.
    pub(super) fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<Option<Tls>> {
        for name in [TLS_CERTIFICATE, TLS_KEY, TLS_CA] {
            if variable(name).is_some() {
                return Err(Error::NotSupported.because(format_args!(
                    "the environment variable {name} is set, and this softdoca was built without the feature `tls`"
                )));
            }
        }
        Ok(None)
    }

    pub(super) fn connect(
        &self,
        _: Stream,
        _: IpAddr,
        _: Deadline,
    ) -> std::result::Result<Stream, Refused> {
        match *self {}
    }

    pub(super) fn accept(&self, _: Stream, _: Deadline) -> std::result::Result<Stream, Refused> {
        match *self {}
    }
}

pub(super) fn not_configured() -> String {
    "the peer uses TLS, and this softdoca was built without the feature `tls`".to_owned()
}

#[derive(Debug)]
pub(super) struct Refused {
    pub(super) error: Error,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Refused {
    pub(super) fn explained(&self) -> Error {
        self.error
    }
}
