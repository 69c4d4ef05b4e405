//! Giving an event to others.

use std::sync::Arc;

use super::blob::{self, Audience};
use super::event::SyncEvent;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::ExportKind;

impl SyncEvent {
    /// What network peers make a remote event of. It stays where it is until the event is destroyed.
    ///
    /// # Errors
    /// [`Error::BadState`] when the event is not started, [`Error::NotPermitted`] when no network peer is a publisher.
    pub(crate) fn export_to_network(&self) -> Result<(*const u8, usize)> {
        if !self.setup().remote_net {
            return Err(Error::NotPermitted.because(
                "network peers need doca_sync_event_add_publisher_location_remote_net before the start",
            ));
        }
        self.export(Audience::Network)
    }

    /// What the other side of PCIe makes an event of. It stays where it is until the event is destroyed.
    ///
    /// # Errors
    /// As [`SyncEvent::export_to_network`]; [`Error::InvalidValue`] for a device that the event does not know.
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
        // A map of the program has devices of its own.
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
        let blob = blob::encode(audience, value.addr(), &descriptor);
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
