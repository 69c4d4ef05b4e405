//! Export blobs, with which another process gets access to an event.
//!
//! ```text
//!    0  8 bytes magic
//!    8  u16 version, u8 kind (1 network, 2 PCIe), 0
//!   12  u32 zero
//!   16  u64 address of the value, in the exporting process
//!   24  export descriptor of the memory of the value
//! ```
//!
//! Integers are big endian.

use std::sync::Arc;

use super::event::SyncEvent;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::ExportKind;

const MAGIC: [u8; 8] = *b"SDSYNCEV";
const VERSION: u16 = 1;
const HEAD: usize = 24;

/// Intended user of a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Audience {
    /// Peers, with RDMA tasks: `doca_sync_event_export_to_remote_net`.
    Network = 1,
    /// The other side of PCIe: `doca_sync_event_export_to_remote_pci`.
    Pci = 2,
}

pub(super) fn encode(audience: Audience, addr: u64, descriptor: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD + descriptor.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_be_bytes());
    bytes.extend_from_slice(&[audience as u8, 0, 0, 0, 0, 0]);
    bytes.extend_from_slice(&addr.to_be_bytes());
    bytes.extend_from_slice(descriptor);
    bytes
}

/// Decodes a blob: the value's address and the export descriptor of its memory, both unchecked.
///
/// # Errors
/// [`Error::InvalidValue`] for malformed bytes and for a blob of another audience; [`Error::UnsupportedVersion`].
pub(super) fn decode(audience: Audience, bytes: &[u8]) -> Result<(u64, &[u8])> {
    let Some((head, descriptor)) = bytes
        .split_first_chunk::<HEAD>()
        .filter(|(head, _)| head[..8] == MAGIC)
    else {
        return Err(Error::InvalidValue.because(format_args!(
            "expected an exported sync event, got {} other bytes",
            bytes.len()
        )));
    };
    let version = u16::from_be_bytes([head[8], head[9]]);
    if version != VERSION {
        return Err(Error::UnsupportedVersion.because(format_args!(
            "the exported sync event has version {version}, expected {VERSION}: run the same softdoca on both sides"
        )));
    }
    let (kind, addr) = head[10..].split_at(6);
    if kind != [audience as u8, 0, 0, 0, 0, 0] {
        return Err(Error::InvalidValue.because(format_args!(
            "expected a sync event that was exported for {audience:?}, this one was not"
        )));
    }
    let addr = addr.try_into().map_or(0, u64::from_be_bytes);
    Ok((addr, descriptor))
}

/// Decodes a blob of either audience and encodes it again.
pub(crate) fn again(bytes: &[u8]) -> Result<Vec<u8>> {
    let of = |audience| {
        decode(audience, bytes).map(|(addr, descriptor)| encode(audience, addr, descriptor))
    };
    of(Audience::Network).or_else(|_| of(Audience::Pci))
}

/// Example blobs for both audiences, of nonexistent memory.
pub(crate) fn examples() -> Vec<Vec<u8>> {
    [Audience::Network, Audience::Pci]
        .map(|audience| encode(audience, 0x1008, b"a descriptor"))
        .into()
}

impl SyncEvent {
    /// Blob from which network peers create a remote event. Valid until the event is destroyed.
    ///
    /// # Errors
    /// [`Error::BadState`] if the event is not started, [`Error::NotPermitted`] if no network peer is a publisher.
    pub(crate) fn export_to_network(&self) -> Result<(*const u8, usize)> {
        if !self.setup().remote_net {
            return Err(Error::NotPermitted.because(
                "network peers need doca_sync_event_add_publisher_location_remote_net before the start",
            ));
        }
        self.export(Audience::Network)
    }

    /// Blob from which the other side of PCIe creates an event. Valid until the event is destroyed.
    ///
    /// # Errors
    /// As [`SyncEvent::export_to_network`]; [`Error::InvalidValue`] for a device that is not a location of the event.
    pub(crate) fn export_to_pci(&self, device: &Arc<Device>) -> Result<(*const u8, usize)> {
        {
            let setup = self.setup();
            if !setup.remote_pci {
                return Err(Error::NotPermitted.because(
                    "the other side of PCIe needs doca_sync_event_add_publisher_location_remote_pci or \
                     doca_sync_event_add_subscriber_location_remote_pci before the start",
                ));
            }
            if !setup.devices.iter().any(|known| Arc::ptr_eq(known, device)) {
                return Err(Error::InvalidValue.because(format_args!(
                    "device {} is no CPU location of the sync event",
                    device.model().pci
                )));
            }
        }
        self.export(Audience::Pci)
    }

    fn export(&self, audience: Audience) -> Result<(*const u8, usize)> {
        let value = self.value()?;
        let mut setup = self.setup();
        // A map of the program has its own devices.
        let descriptor = setup
            .devices
            .iter()
            .map(|device| value.mmap().export(ExportKind::Rdma, device))
            .find(|exported| exported != &Err(Error::NotFound))
            .unwrap_or_else(|| {
                Err(Error::NotPermitted.because(
                    "the sync event has no CPU location through a device that its memory was registered for",
                ))
            })?;
        let blob = encode(audience, value.addr(), &descriptor);
        let exports = &mut setup.exports;
        let place = exports.iter().position(|known| **known == *blob);
        let place = place.unwrap_or_else(|| {
            exports.push(blob.into());
            exports.len() - 1
        });
        let kept = &exports[place];
        Ok((kept.as_ptr(), kept.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blobs_are_for_their_audience() {
        let blob = encode(Audience::Network, 0x1008, b"descriptor");
        let decoded = decode(Audience::Network, &blob);
        assert_eq!(decoded, Ok((0x1008, &b"descriptor"[..])));
        assert_eq!(decode(Audience::Pci, &blob), Err(Error::InvalidValue));
        for len in 0..HEAD {
            let cut = decode(Audience::Network, &blob[..len]);
            assert_eq!(cut, Err(Error::InvalidValue), "{len} bytes");
        }
        let changed = |at: usize| {
            let mut blob = blob.clone();
            blob[at] ^= 1;
            decode(Audience::Network, &blob).map(|(addr, _)| addr)
        };
        assert_eq!(changed(0), Err(Error::InvalidValue));
        assert_eq!(changed(9), Err(Error::UnsupportedVersion));
        assert_eq!(changed(10), Err(Error::InvalidValue));
        assert_eq!(changed(13), Err(Error::InvalidValue));
    }
}
