//! Opening the devices of the topology.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::error::{Error, Result};
use crate::topology::{DeviceModel, PciAddress, RepresentorKind, RepresentorModel, Topology};

/// An entry of the device list.
#[derive(Debug, PartialEq, Eq)]
pub struct DevInfo {
    model: &'static DeviceModel,
}

impl DevInfo {
    /// Lists all devices of the topology.
    ///
    /// # Errors
    /// If the topology cannot be read.
    pub fn list() -> Result<Vec<Arc<DevInfo>>> {
        Ok(Topology::get()?
            .devices
            .iter()
            .map(|model| Arc::new(DevInfo { model }))
            .collect())
    }

    /// The device's entry in the topology.
    pub fn model(&self) -> &'static DeviceModel {
        self.model
    }

    /// `true` if the device has this PCI address.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] if the text is not a PCI address.
    pub fn has_pci_address(&self, text: &str) -> Result<bool> {
        Ok(self.model.pci == pci(text)?)
    }

    /// `true` if the device has this name: PCI address with or without domain, RDMA device name, or interface name.
    pub fn is_called(&self, identifier: &str) -> bool {
        identifier
            .parse()
            .is_ok_and(|pci: PciAddress| pci == self.model.pci)
            || identifier == self.model.ibdev
            || identifier == self.model.iface
    }
}

fn pci(text: &str) -> Result<PciAddress> {
    text.parse()
        .map_err(|reason| Error::InvalidValue.because(reason))
}

/// An open device.
#[derive(Debug)]
pub struct Device {
    info: Arc<DevInfo>,
}

impl Device {
    /// Opens a device. A device that is already open is shared, as in DOCA.
    pub fn open(info: &DevInfo) -> Arc<Device> {
        static OPEN: Mutex<Vec<Weak<Device>>> = Mutex::new(Vec::new());
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = open
            .iter()
            .filter_map(Weak::upgrade)
            .find(|device| *device.info == *info)
        {
            return device;
        }
        let device = Arc::new(Device {
            info: Arc::new(DevInfo { model: info.model }),
        });
        open.retain(|device| device.strong_count() != 0);
        open.push(Arc::downgrade(&device));
        device
    }

    /// Opens the device with this name (see [`DevInfo::is_called`]).
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn open_by_name(identifier: &str) -> Result<Arc<Device>> {
        let infos = DevInfo::list()?;
        infos
            .iter()
            .find(|info| info.is_called(identifier))
            .map(|info| Device::open(info))
            .ok_or_else(|| {
                let known: Vec<_> = infos
                    .iter()
                    .map(|info| format!("{} ({})", info.model.pci, info.model.ibdev))
                    .collect();
                Error::NotFound.because(format_args!(
                    "no device {identifier:?}; available are {}",
                    known.join(", ")
                ))
            })
    }

    /// The list entry that the device was opened from.
    pub fn info(&self) -> &Arc<DevInfo> {
        &self.info
    }

    /// The device's entry in the topology.
    pub fn model(&self) -> &'static DeviceModel {
        self.info.model
    }

    /// Lists the representors of one kind, or all.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if the device is not a DPU's and so has no representors.
    pub fn representors(
        self: &Arc<Device>,
        kind: Option<RepresentorKind>,
    ) -> Result<Vec<Arc<RepresentorInfo>>> {
        let models = &self.model().representors;
        if models.is_empty() {
            return Err(Error::NotSupported.because(format_args!(
                "device {} has no representors; is it the DPU's?",
                self.model().pci
            )));
        }
        let chosen = models
            .iter()
            .filter(|model| kind.is_none_or(|kind| kind == model.kind));
        Ok(chosen
            .map(|model| {
                Arc::new(RepresentorInfo {
                    model,
                    device: Arc::clone(self),
                })
            })
            .collect())
    }
}

/// An entry of a representor list.
#[derive(Debug)]
pub struct RepresentorInfo {
    model: &'static RepresentorModel,
    device: Arc<Device>,
}

impl RepresentorInfo {
    /// The represented function's entry in the topology.
    pub fn model(&self) -> &'static RepresentorModel {
        self.model
    }

    /// `true` if the represented function has this PCI address.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] if the text is not a PCI address.
    pub fn has_pci_address(&self, text: &str) -> Result<bool> {
        Ok(self.model.pci == pci(text)?)
    }
}

/// An open representor.
#[derive(Debug)]
pub struct Representor {
    info: Arc<RepresentorInfo>,
}

impl Representor {
    /// Opens a representor.
    pub fn open(info: &Arc<RepresentorInfo>) -> Arc<Representor> {
        Arc::new(Representor {
            info: Arc::clone(info),
        })
    }

    /// The list entry that the representor was opened from.
    pub fn info(&self) -> &Arc<RepresentorInfo> {
        &self.info
    }

    /// The represented function's entry in the topology.
    pub fn model(&self) -> &'static RepresentorModel {
        self.info.model
    }

    /// The DPU device that the representor belongs to.
    pub fn device(&self) -> &Arc<Device> {
        &self.info.device
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_found_by_every_name() {
        for name in ["0000:03:00.0", "03:00.0", "mlx5_0", "p0"] {
            assert_eq!(
                Device::open_by_name(name).unwrap().model().pci.to_string(),
                "0000:03:00.0"
            );
        }
        assert_eq!(
            Device::open_by_name("3b:00.0").unwrap().model().ibdev,
            "mlx5_1"
        );
        assert_eq!(Device::open_by_name("mlx5_7").unwrap_err(), Error::NotFound);
        assert_eq!(
            DevInfo::list().unwrap()[0].has_pci_address("mlx5_0"),
            Err(Error::InvalidValue)
        );
    }

    #[test]
    fn a_device_is_opened_once() {
        let a = Device::open_by_name("mlx5_0").unwrap();
        assert!(Arc::ptr_eq(&a, &Device::open_by_name("p0").unwrap()));
        assert!(!Arc::ptr_eq(&a, &Device::open_by_name("mlx5_1").unwrap()));
    }

    #[test]
    fn the_dpu_represents_the_host() {
        let dpu = Device::open_by_name("mlx5_0").unwrap();
        let infos = dpu.representors(Some(RepresentorKind::Net)).unwrap();
        assert_eq!(infos[0].has_pci_address("3b:00.0"), Ok(true));
        let representor = Representor::open(&infos[0]);
        let host = Device::open_by_name("3b:00.0").unwrap();
        assert_eq!(representor.model().pci, host.model().pci);
        assert_eq!(representor.model().vuid(), host.model().vuid());
        assert_eq!(
            dpu.representors(Some(RepresentorKind::Emulated))
                .unwrap()
                .len(),
            0
        );
        assert_eq!(host.representors(None).unwrap_err(), Error::NotSupported);
    }
}
