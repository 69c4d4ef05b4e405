//! Events of network peers.

use std::sync::Arc;

use super::blob::{self, Audience};
use super::value::Value;
use crate::device::Device;
use crate::error::Result;

/// An event that a peer has exported. Only RDMA tasks reach it.
#[derive(Debug)]
pub(crate) struct RemoteEvent {
    value: Value,
}

impl RemoteEvent {
    /// Makes one of an export blob.
    ///
    /// # Errors
    /// [`InvalidValue`](crate::error::Error::InvalidValue) for any other bytes, [`NotFound`](crate::error::Error::NotFound) when
    /// the peer has gone.
    pub(crate) fn import(bytes: &[u8], device: &Arc<Device>) -> Result<RemoteEvent> {
        let descriptor = blob::decode(Audience::Network, bytes)?;
        Ok(RemoteEvent {
            value: Value::import(descriptor, device)?,
        })
    }

    pub(crate) fn get(&self) -> Result<u64> {
        self.value.get()
    }

    pub(crate) fn set(&self, value: u64) -> Result<()> {
        self.value.set(value)
    }

    /// Answers the old value.
    pub(crate) fn add(&self, value: u64) -> Result<u64> {
        self.value.add(value)
    }
}
