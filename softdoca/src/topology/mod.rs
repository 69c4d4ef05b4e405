//! The emulated devices that every process sees: a built-in pair of a DPU and its host, or those of a file.

mod file;
mod model;

use std::path::Path;
use std::sync::{Mutex, PoisonError};

pub use model::{DeviceModel, FunctionType, PciAddress, RepresentorKind, RepresentorModel};

use crate::error::{Error, Result};

/// Environment variable that names a topology file.
pub const VARIABLE: &str = "SOFTDOCA_TOPOLOGY";

/// All devices of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// In the order of device lists.
    pub devices: Vec<DeviceModel>,
}

impl Topology {
    /// The topology of this process: that of the file named by [`VARIABLE`], or the built-in one. Read once.
    ///
    /// # Errors
    /// [`Error::BadConfig`] if the file cannot be read or is invalid; the log says where.
    pub fn get() -> Result<&'static Topology> {
        static CURRENT: Mutex<Option<&'static Topology>> = Mutex::new(None);
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(topology) = *current {
            return Ok(topology);
        }
        let topology = match std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
            Some(path) => Topology::load(Path::new(&path))?,
            None => Topology::built_in(),
        };
        // Leaked once per process, because devices refer to it.
        Ok(*current.insert(Box::leak(Box::new(topology))))
    }

    /// A DPU at `0000:03:00.0` with one network representor, and the represented host device at `0000:3b:00.0`: the
    /// addresses in NVIDIA's storage guides.
    pub fn built_in() -> Topology {
        let (dpu, host) = (
            PciAddress::new(0, 0x03, 0, 0),
            PciAddress::new(0, 0x3b, 0, 0),
        );
        let mut representor = RepresentorModel::new(host);
        representor.iface = "pf0hpf".to_owned();
        let mut on_dpu = DeviceModel::new(dpu, "mlx5_0", "p0");
        on_dpu.representors.push(representor);
        Topology {
            devices: vec![on_dpu, DeviceModel::new(host, "mlx5_1", "enp59s0f0np0")],
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// As [`Topology::get`].
    pub fn load(path: &Path) -> Result<Topology> {
        let refused = |reason: &dyn std::fmt::Display| {
            Error::BadConfig.because(format_args!("topology file {}: {reason}", path.display()))
        };
        let text = std::fs::read_to_string(path).map_err(|error| refused(&error))?;
        file::parse(&text).map_err(|reason| refused(&reason))
    }
}
