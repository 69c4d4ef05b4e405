//! Opening the devices of the topology, and reading their clocks, which are clocks of the host.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use doca_abi::{
    DOCA_CLOCK_HOST_COUNTER_CYCLES, DOCA_CLOCK_HOST_MONOTONIC, DOCA_CLOCK_HOST_MONOTONIC_RAW,
    DOCA_CLOCK_HOST_REAL_TIME, DOCA_CLOCK_NIC_FREE_RUNNING, DOCA_CLOCK_NIC_REAL_TIME,
};
use rustix::time::{ClockId, clock_gettime};

use crate::error::{Error, Result};
use crate::log;
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
    /// [`Error::InvalidValue`] if the text is not a PCI address. This is not logged as an error, because programs try a
    /// name of unknown kind as an address first.
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
    text.parse().map_err(|reason| {
        log::debug!("{reason}");
        Error::InvalidValue
    })
}

/// An open device.
#[derive(Debug)]
pub struct Device {
    info: Arc<DevInfo>,
    key: DeviceKey,
    handles: Handles,
}

/// Identifies a device in the set of devices that were added to a memory map.
///
/// Devices from the 32nd on in a topology share a key: a map to which one of them was added is accessible to all of
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceKey(u32);

impl DeviceKey {
    fn of(model: &DeviceModel) -> DeviceKey {
        let devices = Topology::get().map_or(&[][..], |topology| &topology.devices);
        let index = devices
            .iter()
            .position(|known| std::ptr::eq(known, model))
            .unwrap_or(0);
        DeviceKey(1 << index.min(31))
    }

    /// The key as a set of one device. Sets are combined by `|`.
    #[inline]
    pub fn to_set(self) -> u32 {
        self.0
    }

    /// `true` if the device is in the set.
    #[inline]
    pub fn is_in(self, set: u32) -> bool {
        self.0 & set != 0
    }
}

/// Number of times that the program has opened a device or representor, and of started objects that use it.
#[derive(Debug, Default)]
struct Handles(Mutex<HandleCounts>);

#[derive(Debug, Default)]
struct HandleCounts {
    opened: usize,
    uses: usize,
}

impl Handles {
    fn counts(&self) -> MutexGuard<'_, HandleCounts> {
        // Additions and subtractions cannot panic in between.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) {
        self.counts().opened += 1;
    }

    fn close(&self, what: &PciAddress) -> Result<()> {
        let mut counts = self.counts();
        if counts.opened <= 1 && counts.uses > 0 {
            return Err(Error::InUse.because(format_args!(
                "{what} is used by {} running contexts and started mmaps; stop them before the last close",
                counts.uses
            )));
        }
        counts.opened = counts.opened.saturating_sub(1);
        Ok(())
    }
}

/// Use of a device, or of a representor, by a running context or a started memory map: it cannot be closed while the
/// value exists.
#[derive(Debug)]
pub(crate) struct DeviceUse(Used);

#[derive(Debug)]
enum Used {
    Device(Arc<Device>),
    Representor(Arc<Representor>),
}

impl DeviceUse {
    pub(crate) fn of_device(device: &Arc<Device>) -> DeviceUse {
        DeviceUse::new(Used::Device(Arc::clone(device)))
    }

    pub(crate) fn of_representor(representor: &Arc<Representor>) -> DeviceUse {
        DeviceUse::new(Used::Representor(Arc::clone(representor)))
    }

    fn new(used: Used) -> DeviceUse {
        let this = DeviceUse(used);
        this.handles().counts().uses += 1;
        this
    }

    fn handles(&self) -> &Handles {
        match &self.0 {
            Used::Device(device) => &device.handles,
            Used::Representor(representor) => &representor.handles,
        }
    }
}

impl Drop for DeviceUse {
    fn drop(&mut self) {
        self.handles().counts().uses -= 1;
    }
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
            key: DeviceKey::of(info.model),
            handles: Handles::default(),
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

    /// Counts a handle that is returned to the program.
    pub(crate) fn handle_given(&self) {
        self.handles.open();
    }

    /// Counts a handle that the program closes.
    ///
    /// # Errors
    /// [`Error::InUse`] if it is the last handle and the device is [in use](DeviceUse); the handle remains valid.
    pub(crate) fn handle_returned(&self) -> Result<()> {
        self.handles.close(&self.model().pci)
    }

    /// Identifies the device in memory maps.
    #[inline]
    pub fn key(&self) -> DeviceKey {
        self.key
    }

    /// The list entry from which the device was opened.
    pub fn info(&self) -> &Arc<DevInfo> {
        &self.info
    }

    /// The device's entry in the topology.
    pub fn model(&self) -> &'static DeviceModel {
        self.info.model
    }

    /// Lists the representors of one kind, or all representors.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if the device does not belong to a DPU, and therefore has no representors.
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
    handles: Handles,
}

impl Representor {
    pub fn open(info: &Arc<RepresentorInfo>) -> Arc<Representor> {
        Arc::new(Representor {
            info: Arc::clone(info),
            handles: Handles::default(),
        })
    }

    /// Checks that the program may close the representor; each opening creates a separate object.
    ///
    /// # Errors
    /// [`Error::InUse`] while it is [in use](DeviceUse).
    pub(crate) fn handle_returned(&self) -> Result<()> {
        self.handles.close(&self.model().pci)
    }

    /// The list entry from which the representor was opened.
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

const NANOSECONDS: i128 = 1_000_000_000;

/// A clock of `DOCA_CLOCK_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// A kernel clock; `of_device` if a device exposes it as its own.
    Kernel { id: ClockId, of_device: bool },
    /// The CPU's cycle counter.
    Counter,
}

/// A reading: nanoseconds, or counter cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    Nanoseconds(i128),
    Cycles(u64),
}

/// Reads clocks, and keeps the device open while it exists.
pub(crate) struct Clocks {
    _device: Arc<Device>,
}

impl Clock {
    /// # Errors
    /// [`Error::NotSupported`] if the clock does not exist, or needs a DPA.
    pub(crate) fn from_number(number: u64) -> Result<Self> {
        let kernel = |id, of_device| Ok(Self::Kernel { id, of_device });
        match number {
            // A free-running clock is never adjusted; a real-time clock is.
            DOCA_CLOCK_NIC_FREE_RUNNING => kernel(ClockId::MonotonicRaw, true),
            DOCA_CLOCK_NIC_REAL_TIME => kernel(ClockId::Realtime, true),
            DOCA_CLOCK_HOST_REAL_TIME => kernel(ClockId::Realtime, false),
            DOCA_CLOCK_HOST_MONOTONIC => kernel(ClockId::Monotonic, false),
            DOCA_CLOCK_HOST_MONOTONIC_RAW => kernel(ClockId::MonotonicRaw, false),
            DOCA_CLOCK_HOST_COUNTER_CYCLES => Ok(Self::Counter),
            _ => Err(Error::NotSupported
                .because(format_args!("there is no clock {number:#x} in software"))),
        }
    }

    fn read(self) -> Reading {
        match self {
            Self::Kernel { id, .. } => {
                let time = clock_gettime(id);
                let seconds = i128::from(time.tv_sec) * NANOSECONDS;
                Reading::Nanoseconds(seconds + i128::from(time.tv_nsec))
            }
            Self::Counter => Reading::Cycles(counter()),
        }
    }
}

impl Reading {
    /// Seconds and nanoseconds; `None` for cycles.
    pub(crate) fn timespec(self) -> Option<(i64, i64)> {
        match self {
            Self::Cycles(_) => None,
            Self::Nanoseconds(all) => Some((
                i64::try_from(all.div_euclid(NANOSECONDS)).unwrap_or(i64::MAX),
                all.rem_euclid(NANOSECONDS) as i64,
            )),
        }
    }

    /// The midpoint of two readings of one clock, and its distance from either.
    fn between(self, later: Self) -> (Self, u64) {
        match (self, later) {
            (Self::Nanoseconds(begin), Self::Nanoseconds(end)) => {
                let half = ((end - begin).max(0) + 1) / 2;
                (
                    Self::Nanoseconds(begin + half),
                    u64::try_from(half).unwrap_or(u64::MAX),
                )
            }
            (Self::Cycles(begin), Self::Cycles(end)) => {
                let half = end.saturating_sub(begin).div_ceil(2);
                (Self::Cycles(begin + half), half)
            }
            // Unreachable: both readings are from the same clock.
            _ => (self, 0),
        }
    }
}

impl Clocks {
    pub(crate) fn new(device: Arc<Device>) -> Self {
        Self { _device: device }
    }

    /// # Errors
    /// As [`Clock::from_number`].
    pub(crate) fn read(&self, clock: u64) -> Result<Reading> {
        Ok(Clock::from_number(clock)?.read())
    }

    /// Reads two clocks at the same time. Returns both readings and the error bound of the first: the first clock is
    /// read before and after the second, and half of the difference is the error bound.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] if the second is not a device clock, otherwise as [`Clock::from_number`].
    pub(crate) fn read_both(&self, primary: u64, nic: u64) -> Result<(Reading, Reading, u64)> {
        let (primary, nic) = (Clock::from_number(primary)?, Clock::from_number(nic)?);
        if !matches!(
            nic,
            Clock::Kernel {
                of_device: true,
                ..
            }
        ) {
            return Err(
                Error::InvalidValue.because("the second of two clocks must be one of the device's")
            );
        }
        if primary == nic {
            let reading = nic.read();
            return Ok((reading, reading, 0));
        }
        let begin = primary.read();
        let middle = nic.read();
        let (moment, error) = begin.between(primary.read());
        Ok((moment, middle, error))
    }
}

#[cfg(target_arch = "x86_64")]
fn counter() -> u64 {
    // SAFETY: every x86-64 CPU has the counter, and Linux allows processes to read it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(target_arch = "aarch64")]
fn counter() -> u64 {
    let counter;
    // SAFETY: reads the virtual counter, which Linux allows, and has no side effects.
    unsafe {
        std::arch::asm!("mrs {}, cntvct_el0", out(reg) counter, options(nomem, nostack, preserves_flags));
    }
    counter
}

#[cfg(test)]
mod tests {
    use doca_abi::DOCA_CLOCK_NIC_DPA_TIMER;

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

    fn clocks() -> Clocks {
        Clocks::new(Device::open_by_name("mlx5_0").unwrap())
    }

    #[test]
    fn clocks_go_forward() {
        let clocks = clocks();
        for clock in [
            DOCA_CLOCK_NIC_FREE_RUNNING,
            DOCA_CLOCK_HOST_MONOTONIC,
            DOCA_CLOCK_HOST_MONOTONIC_RAW,
            DOCA_CLOCK_HOST_COUNTER_CYCLES,
        ] {
            let (first, second) = (clocks.read(clock).unwrap(), clocks.read(clock).unwrap());
            match (first, second) {
                (Reading::Nanoseconds(a), Reading::Nanoseconds(b)) => assert!(a <= b && a > 0),
                (Reading::Cycles(a), Reading::Cycles(b)) => assert!(a <= b && a > 0),
                other => panic!("{other:?}"),
            }
        }
        for none in [0, DOCA_CLOCK_NIC_DPA_TIMER, 3, 1 << 40] {
            assert_eq!(clocks.read(none), Err(Error::NotSupported));
        }
    }

    #[test]
    fn the_second_clock_is_read_between() {
        let clocks = clocks();
        let (host, nic, error) = clocks
            .read_both(DOCA_CLOCK_HOST_REAL_TIME, DOCA_CLOCK_NIC_REAL_TIME)
            .unwrap();
        let (Reading::Nanoseconds(host), Reading::Nanoseconds(nic)) = (host, nic) else {
            panic!("expected times");
        };
        // Both names refer to one clock, so the readings differ by at most the error.
        assert!((host - nic).unsigned_abs() <= u128::from(error) + 1);
        let same = clocks.read_both(DOCA_CLOCK_NIC_REAL_TIME, DOCA_CLOCK_NIC_REAL_TIME);
        let (one, other, error) = same.unwrap();
        assert_eq!((one, error), (other, 0));
        assert_eq!(
            clocks.read_both(DOCA_CLOCK_NIC_REAL_TIME, DOCA_CLOCK_HOST_REAL_TIME),
            Err(Error::InvalidValue)
        );
        assert_eq!(
            clocks.read_both(DOCA_CLOCK_HOST_REAL_TIME, DOCA_CLOCK_NIC_DPA_TIMER),
            Err(Error::NotSupported)
        );
    }

    #[test]
    fn readings_split_into_seconds_and_nanoseconds() {
        assert_eq!(Reading::Nanoseconds(3_000_000_007).timespec(), Some((3, 7)));
        assert_eq!(Reading::Cycles(3).timespec(), None);
        let (moment, error) = Reading::Cycles(10).between(Reading::Cycles(15));
        assert_eq!((moment, error), (Reading::Cycles(13), 3));
    }
}
