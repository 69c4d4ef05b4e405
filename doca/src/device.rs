//! Devices and representors.

use std::ffi::{CStr, c_char};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use doca_sys as sys;

use crate::error::{c_string, call, non_null};
use crate::sdk_log::explained;
use crate::{Error, ErrorCode, Result};

/// An open device. Clones share it; dropping the last one closes it.
///
/// ```no_run
/// use doca::Device;
///
/// # fn main() -> doca::Result<()> {
/// let by_address = Device::open("0000:03:00.0")?;
/// let without_domain = Device::open("03:00.0")?;
/// let by_ibdev = Device::open("mlx5_0")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Device {
    inner: Arc<DeviceInner>,
}

#[derive(Debug)]
struct DeviceInner {
    dev: NonNull<sys::doca_dev>,
}

// SAFETY: DOCA allows several threads to use one `doca_dev`; this crate passes it only to functions that create other
// objects or list properties. The thread that drops the last clone closes it, once.
unsafe impl Send for DeviceInner {}
// SAFETY: see above.
unsafe impl Sync for DeviceInner {}

impl DeviceInner {
    /// Takes over a device returned by `doca_dev_open`.
    fn owning(dev: *mut sys::doca_dev) -> Result<Arc<Self>> {
        let dev = non_null("doca_dev_open", dev)?;
        Ok(Arc::new(Self { dev }))
    }
}

impl Drop for DeviceInner {
    fn drop(&mut self) {
        // SAFETY: open since `Device::open`, and every object created from it holds a clone, so none is left.
        if let Err(error) = unsafe { call!(doca_dev_close(self.dev.as_ptr())) } {
            tracing::warn!(%error, "failed to close a device; it stays open");
        }
    }
}

impl Device {
    /// Opens the device with this PCI address (`03:00.0` or `0000:03:00.0`), InfiniBand name or network interface name.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::NOT_FOUND`] with a list of the existing devices; those of `doca_dev_open`.
    pub fn open(identifier: &str) -> Result<Self> {
        let wanted = c_string("doca_devinfo_is_equal_pci_addr", identifier)?;
        let list = DeviceList::new()?;
        let info = list
            .items()
            .find(|&info| device_matches(info, &wanted))
            .ok_or_else(|| {
                let there: Vec<String> = list.items().map(describe_device).collect();
                not_found("doca_dev_open", "device", identifier, &there)
            })?;
        let mut dev = ptr::null_mut();
        // SAFETY: `info` belongs to the list, which lives until the end of this function.
        explained(|| unsafe { call!(doca_dev_open(info, &mut dev)) })?;
        Ok(Self {
            inner: DeviceInner::owning(dev)?,
        })
    }

    /// Lists the devices that can be opened, with their capabilities.
    ///
    /// ```no_run
    /// # fn main() -> doca::Result<()> {
    /// let coder = doca::Device::list()?
    ///     .into_iter()
    ///     .find(|device| device.capabilities.erasure_coding.is_some())
    ///     .expect("a device that does erasure coding");
    /// let device = doca::Device::open(&coder.pci_address)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of `doca_devinfo_create_list`.
    pub fn list() -> Result<Vec<DeviceInfo>> {
        DeviceInfo::all()
    }

    /// The device's names, addresses and capabilities.
    ///
    /// # Errors
    ///
    /// The errors of the functions that list its representors.
    pub fn info(&self) -> Result<DeviceInfo> {
        // SAFETY: the device is open.
        describe(unsafe { sys::doca_dev_as_devinfo(self.as_ptr()) })
    }

    /// PCI addresses of the network functions whose representors can be opened; empty for a device without
    /// representors.
    ///
    /// # Errors
    ///
    /// The errors of `doca_devinfo_rep_create_list`.
    pub fn representors(&self) -> Result<Vec<String>> {
        if !self.has_representors()? {
            return Ok(Vec::new());
        }
        let list = RepresentorList::new(self, sys::DOCA_DEVINFO_REP_FILTER_NET)?;
        Ok(list.items().map(describe_representor).collect())
    }

    fn has_representors(&self) -> Result<bool> {
        let mut supported = 0;
        // SAFETY: the device is open, and with it its information.
        unsafe {
            let info = sys::doca_dev_as_devinfo(self.as_ptr());
            match call!(doca_devinfo_rep_cap_is_filter_net_supported(
                info,
                &mut supported
            )) {
                // The documented answer of devices without representors.
                Err(error) if error.code == ErrorCode::NOT_SUPPORTED => return Ok(false),
                answer => answer?,
            }
        }
        Ok(supported != 0)
    }

    /// Opens the representor of the network function with this PCI address, as seen by the host.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::NOT_SUPPORTED`] if the device has no network representors, like a host's device;
    /// [`ErrorCode::NOT_FOUND`] with a list of the existing representors.
    pub fn open_representor(&self, pci_address: &str) -> Result<Representor> {
        let wanted = c_string("doca_devinfo_rep_is_equal_pci_addr", pci_address)?;
        if !self.has_representors()? {
            return Err(Error::with_detail(
                "doca_devinfo_rep_create_list",
                ErrorCode::NOT_SUPPORTED,
                "the device has no network representors; name a device of the DPU",
            ));
        }
        let list = RepresentorList::new(self, sys::DOCA_DEVINFO_REP_FILTER_NET)?;
        let info = list
            .items()
            .find(|&info| representor_matches(info, &wanted))
            .ok_or_else(|| {
                let there: Vec<String> = list.items().map(describe_representor).collect();
                not_found("doca_dev_rep_open", "representor", pci_address, &there)
            })?;
        let mut rep = ptr::null_mut();
        // SAFETY: `info` belongs to the list, which lives until the end of this function.
        unsafe { call!(doca_dev_rep_open(info, &mut rep)) }?;
        let rep = non_null("doca_dev_rep_open", rep)?;
        Ok(Representor {
            inner: Arc::new(RepresentorInner {
                rep,
                _device: self.clone(),
            }),
        })
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::doca_dev {
        self.inner.dev.as_ptr()
    }
}

/// An open representor: the DPU's handle of a function of the host. Clones share it; dropping the last one closes it.
///
/// ```no_run
/// # fn main() -> doca::Result<()> {
/// let representor = doca::Device::open("03:00.0")?.open_representor("3b:00.0")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Representor {
    inner: Arc<RepresentorInner>,
}

#[derive(Debug)]
struct RepresentorInner {
    rep: NonNull<sys::doca_dev_rep>,
    _device: Device,
}

// SAFETY: as for `DeviceInner`.
unsafe impl Send for RepresentorInner {}
// SAFETY: as for `DeviceInner`.
unsafe impl Sync for RepresentorInner {}

impl Drop for RepresentorInner {
    fn drop(&mut self) {
        // SAFETY: open since `open_representor`; servers created with it hold clones, so none is left.
        if let Err(error) = unsafe { call!(doca_dev_rep_close(self.rep.as_ptr())) } {
            tracing::warn!(%error, "failed to close a representor; it stays open");
        }
    }
}

impl Representor {
    pub(crate) fn as_ptr(&self) -> *mut sys::doca_dev_rep {
        self.inner.rep.as_ptr()
    }
}

/// The devices of this machine, released on drop.
struct DeviceList {
    list: *mut *mut sys::doca_devinfo,
    len: u32,
}

impl DeviceList {
    fn new() -> Result<Self> {
        let (mut list, mut len) = (ptr::null_mut(), 0);
        // SAFETY: both results have a valid place.
        unsafe { call!(doca_devinfo_create_list(&mut list, &mut len)) }?;
        Ok(Self { list, len })
    }

    fn items(&self) -> impl Iterator<Item = *mut sys::doca_devinfo> {
        // SAFETY: the list has `len` elements and lives as long as `self`.
        (0..self.len as usize).map(|index| unsafe { *self.list.add(index) })
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: created by `new`, released once; no element is used after it.
        let _ = unsafe { sys::doca_devinfo_destroy_list(self.list) };
    }
}

/// The representors of a device, released on drop.
struct RepresentorList {
    list: *mut *mut sys::doca_devinfo_rep,
    len: u32,
}

impl RepresentorList {
    fn new(device: &Device, filter: sys::doca_devinfo_rep_filter) -> Result<Self> {
        let (mut list, mut len) = (ptr::null_mut(), 0);
        // The C parameter is an int.
        let filter = filter as sys::c_int;
        // SAFETY: the device is open, and both results have a valid place.
        unsafe {
            call!(doca_devinfo_rep_create_list(
                device.as_ptr(),
                filter,
                &mut list,
                &mut len
            ))
        }?;
        Ok(Self { list, len })
    }

    fn items(&self) -> impl Iterator<Item = *mut sys::doca_devinfo_rep> {
        // SAFETY: the list has `len` elements and lives as long as `self`.
        (0..self.len as usize).map(|index| unsafe { *self.list.add(index) })
    }
}

impl Drop for RepresentorList {
    fn drop(&mut self) {
        // SAFETY: created by `new`, released once; no element is used after it.
        let _ = unsafe { sys::doca_devinfo_rep_destroy_list(self.list) };
    }
}

fn device_matches(info: *mut sys::doca_devinfo, wanted: &CStr) -> bool {
    let mut equal = 0;
    // An identifier that is not a PCI address is an error here, but may be a name. SAFETY: `info` is an element of a
    // live list, and the string is NUL-terminated.
    let code = unsafe { sys::doca_devinfo_is_equal_pci_addr(info, wanted.as_ptr(), &mut equal) };
    if code == sys::DOCA_SUCCESS && equal != 0 {
        return true;
    }
    [ibdev_name(info), iface_name(info)]
        .into_iter()
        .flatten()
        .any(|name| name.as_bytes() == wanted.to_bytes())
}

fn representor_matches(info: *mut sys::doca_devinfo_rep, wanted: &CStr) -> bool {
    let mut equal = 0;
    // SAFETY: `info` is an element of a live list, the string is terminated.
    let code =
        unsafe { sys::doca_devinfo_rep_is_equal_pci_addr(info, wanted.as_ptr(), &mut equal) };
    code == sys::DOCA_SUCCESS && equal != 0
}

fn ibdev_name(info: *mut sys::doca_devinfo) -> Option<String> {
    read_text::<{ sys::DOCA_DEVINFO_IBDEV_NAME_SIZE }>(|text, size| {
        // SAFETY: `info` is an element of a live list, `text` is writable for `size` bytes.
        unsafe { sys::doca_devinfo_get_ibdev_name(info, text, size) }
    })
}

fn iface_name(info: *mut sys::doca_devinfo) -> Option<String> {
    read_text::<{ sys::DOCA_DEVINFO_IFACE_NAME_SIZE }>(|text, size| {
        // SAFETY: `info` is an element of a live list, `text` is writable for `size` bytes.
        unsafe { sys::doca_devinfo_get_iface_name(info, text, size) }
    })
}

fn pci_address(info: *mut sys::doca_devinfo) -> Option<String> {
    read_text::<{ sys::DOCA_DEVINFO_PCI_ADDR_SIZE }>(|text, _| {
        // SAFETY: `info` is an element of a live list, `text` has the room that the function asks for.
        unsafe { sys::doca_devinfo_get_pci_addr_str(info, text) }
    })
}

fn describe_device(info: *mut sys::doca_devinfo) -> String {
    let names = [pci_address(info), ibdev_name(info), iface_name(info)];
    names.into_iter().flatten().collect::<Vec<_>>().join(" = ")
}

fn describe_representor(info: *mut sys::doca_devinfo_rep) -> String {
    read_text::<{ sys::DOCA_DEVINFO_REP_PCI_ADDR_SIZE }>(|text, _| {
        // SAFETY: `info` is an element of a live list, `text` has the room that the function asks for.
        unsafe { sys::doca_devinfo_rep_get_pci_addr_str(info, text) }
    })
    .unwrap_or_default()
}

/// The string that `fill` writes to a buffer of `N` bytes; `None` if it fails or writes nothing.
fn read_text<const N: usize>(
    fill: impl FnOnce(*mut c_char, u32) -> sys::doca_error_t,
) -> Option<String> {
    let mut bytes = [0u8; N];
    let size = u32::try_from(N).ok()?;
    if fill(bytes.as_mut_ptr().cast(), size) != sys::DOCA_SUCCESS {
        return None;
    }
    let text = CStr::from_bytes_until_nul(&bytes)
        .ok()?
        .to_string_lossy()
        .into_owned();
    (!text.is_empty()).then_some(text)
}

fn not_found(operation: &'static str, kind: &str, wanted: &str, there: &[String]) -> Error {
    let detail = match there {
        [] => format!("no {kind} {wanted:?}; there is no {kind} at all"),
        _ => format!("no {kind} {wanted:?}; there are: {}", there.join(", ")),
    };
    Error::with_detail(operation, ErrorCode::NOT_FOUND, detail)
}

/// A device of this machine.
///
/// ```no_run
/// for device in doca::DeviceInfo::all()? {
///     println!("{} {:?}", device.pci_address, device.ibdev);
/// }
/// # doca::Result::Ok(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// PCI address with domain, e.g. `0000:03:00.0`.
    pub pci_address: String,
    /// RDMA device name, e.g. `mlx5_0`.
    pub ibdev: Option<String>,
    /// Network interface name.
    pub iface: Option<String>,
    /// Address of the network interface.
    pub ipv4: Option<Ipv4Addr>,
    /// Address of the network interface.
    pub ipv6: Option<Ipv6Addr>,
    /// Hardware address of the network interface.
    pub mac: Option<[u8; 6]>,
    /// Functions of the host with a representor on this device; empty for a host's device.
    pub representors: Vec<RepresentorInfo>,
    /// Supported libraries and their limits.
    pub capabilities: Capabilities,
}

/// A function of the host, as seen by a DPU's device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepresentorInfo {
    /// PCI address of the function on the host, with domain.
    pub pci_address: String,
    /// Name of the representor's network interface on the DPU.
    pub iface: Option<String>,
    /// Vendor unique identifier of the function.
    pub vuid: Option<String>,
    /// Kind of the function.
    pub function: Option<FunctionType>,
    /// `true` for a function emulated by software on the DPU, `false` for a network function.
    pub emulated: bool,
}

/// Kinds of PCI functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FunctionType {
    /// Physical function.
    Physical,
    /// Virtual function.
    Virtual,
    /// Scalable function.
    Scalable,
}

impl DeviceInfo {
    /// Lists all devices. Properties that a device does not report are `None`.
    ///
    /// # Errors
    ///
    /// The errors of the functions that list devices and representors.
    pub fn all() -> Result<Vec<Self>> {
        let list = DeviceList::new()?;
        list.items().map(describe).collect()
    }
}

fn describe(info: *mut sys::doca_devinfo) -> Result<DeviceInfo> {
    Ok(DeviceInfo {
        // SAFETY: `info` is an element of a live list, or of an open device.
        capabilities: unsafe { Capabilities::of(info) },
        pci_address: pci_address(info).unwrap_or_default(),
        ibdev: ibdev_name(info),
        iface: iface_name(info),
        ipv4: read_bytes(|bytes, size| {
            // SAFETY: `info` is an element of a live list, `bytes` is writable for `size` bytes.
            unsafe { sys::doca_devinfo_get_ipv4_addr(info, bytes, size) }
        })
        .map(<Ipv4Addr as From<[u8; 4]>>::from),
        ipv6: read_bytes(|bytes, size| {
            // SAFETY: as above.
            unsafe { sys::doca_devinfo_get_ipv6_addr(info, bytes, size) }
        })
        .map(<Ipv6Addr as From<[u8; 16]>>::from),
        mac: read_bytes(|bytes, size| {
            // SAFETY: as above.
            unsafe { sys::doca_devinfo_get_mac_addr(info, bytes, size) }
        }),
        representors: representors(info)?,
    })
}

/// The address that `fill` writes; `None` if it fails.
fn read_bytes<const N: usize>(
    fill: impl FnOnce(*mut u8, u32) -> sys::doca_error_t,
) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let size = u32::try_from(N).ok()?;
    (fill(bytes.as_mut_ptr(), size) == sys::DOCA_SUCCESS).then_some(bytes)
}

fn representors(info: *mut sys::doca_devinfo) -> Result<Vec<RepresentorInfo>> {
    let mut all = Vec::new();
    let filters: [(sys::doca_devinfo_rep_filter, bool, Capability); 2] = [
        (
            sys::DOCA_DEVINFO_REP_FILTER_NET,
            false,
            sys::doca_devinfo_rep_cap_is_filter_net_supported,
        ),
        (
            sys::DOCA_DEVINFO_REP_FILTER_EMULATED,
            true,
            sys::doca_devinfo_rep_cap_is_filter_emulated_supported,
        ),
    ];
    for (filter, emulated, is_supported) in filters {
        let mut supported = 0;
        // SAFETY: `info` is an element of a live list, and the out-parameter is valid. A device that cannot tell has
        // none.
        if unsafe { is_supported(info, &mut supported) } != sys::DOCA_SUCCESS || supported == 0 {
            continue;
        }
        let mut dev = std::ptr::null_mut();
        // SAFETY: as above.
        unsafe { call!(doca_dev_open(info, &mut dev)) }?;
        let device = Device {
            inner: DeviceInner::owning(dev)?,
        };
        let list = RepresentorList::new(&device, filter)?;
        all.extend(list.items().map(|info| describe_rep(info, emulated)));
    }
    Ok(all)
}

type Capability = unsafe extern "C" fn(*const sys::doca_devinfo, *mut u8) -> sys::doca_error_t;

fn describe_rep(info: *mut sys::doca_devinfo_rep, emulated: bool) -> RepresentorInfo {
    let mut function = u32::MAX;
    // SAFETY: `info` is an element of a live list, and the out-parameter is valid.
    let code = unsafe { sys::doca_devinfo_rep_get_pci_func_type(info, &mut function) };
    RepresentorInfo {
        pci_address: describe_representor(info),
        iface: read_text::<{ sys::DOCA_DEVINFO_IFACE_NAME_SIZE }>(|text, size| {
            // SAFETY: as above; `text` is writable for `size` bytes.
            unsafe { sys::doca_devinfo_rep_get_iface_name(info, text, size) }
        }),
        vuid: read_text::<{ sys::DOCA_DEVINFO_REP_VUID_SIZE }>(|text, size| {
            // SAFETY: as above.
            unsafe { sys::doca_devinfo_rep_get_vuid(info, text, size) }
        }),
        function: match function {
            _ if code != sys::DOCA_SUCCESS => None,
            sys::DOCA_PCI_FUNC_TYPE_PF => Some(FunctionType::Physical),
            sys::DOCA_PCI_FUNC_TYPE_VF => Some(FunctionType::Virtual),
            sys::DOCA_PCI_FUNC_TYPE_SF => Some(FunctionType::Scalable),
            _ => None,
        },
        emulated,
    }
}

/// Capabilities of a device. `None` or `false`: not supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Capabilities {
    /// A Comch client: the host's end of a control connection.
    pub comch_client: bool,
    /// A Comch server: the DPU's end of a control connection.
    pub comch_server: bool,
    /// Comch control messages, of clients and servers.
    pub comch: Option<ComchLimits>,
    /// Comch consumers: the receiving side of the fast path.
    pub consumer: Option<FastPathLimits>,
    /// Comch producers: the sending side of the fast path.
    pub producer: Option<FastPathLimits>,
    /// RDMA connections, with messages, remote reads and writes, atomics and remote events.
    pub rdma: Option<RdmaLimits>,
    /// DMA copies.
    pub dma: Option<TaskLimits>,
    /// Compression to a raw deflate stream (RFC 1951).
    pub compress_deflate: Option<TaskLimits>,
    /// Decompression of a raw deflate stream (RFC 1951).
    pub decompress_deflate: Option<TaskLimits>,
    /// Decompression of LZ4 blocks with their size fields, as in the body of an LZ4 frame.
    pub decompress_lz4_stream: Option<TaskLimits>,
    /// Decompression of one raw LZ4 block, without header or size field.
    pub decompress_lz4_block: Option<TaskLimits>,
    /// Erasure coding: create, update and recover tasks.
    pub erasure_coding: Option<ErasureCodingLimits>,
}

/// Limits of the bufs of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskLimits {
    /// Maximum source length in bytes.
    pub max_buf_size: u64,
    /// Maximum number of bufs in a list.
    pub max_buf_list_len: u32,
}

/// Limits of the Comch control path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ComchLimits {
    /// Maximum message length in bytes.
    pub max_message_size: u32,
    /// Maximum length of a server's name in bytes, with the terminating NUL.
    pub max_name_len: u32,
    /// Maximum number of queued received messages.
    pub max_recv_queue: u32,
    /// Maximum number of send tasks of a context.
    pub max_send_tasks: u32,
    /// Maximum number of clients of a server.
    pub max_clients: u32,
}

/// Limits of a consumer or a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FastPathLimits {
    /// Maximum number of tasks.
    pub max_tasks: u32,
    /// Maximum message length in bytes.
    pub max_buf_size: u32,
    /// Maximum number of bufs in a list.
    pub max_buf_list_len: u32,
}

/// Limits of an RDMA context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RdmaLimits {
    /// Maximum message length in bytes.
    pub max_message_size: u32,
    /// Maximum number of tasks other than receives.
    pub max_send_queue: u32,
    /// Maximum number of receive tasks.
    pub max_recv_queue: u32,
    /// Maximum number of bufs in a local list.
    pub max_send_buf_list_len: u32,
}

/// Limits of an erasure coding context and its tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErasureCodingLimits {
    /// Maximum block size in bytes.
    pub max_block_size: u64,
    /// Maximum number of bufs in a list.
    pub max_buf_list_len: u32,
}

/// Reads a limit of a device; `None` if the function fails.
///
/// # Safety
///
/// `info` is live, and the function writes one value to the given address.
unsafe fn limit<T: Default>(
    info: *const sys::doca_devinfo,
    get: unsafe fn(*const sys::doca_devinfo, *mut T) -> sys::doca_error_t,
) -> Option<T> {
    let mut value = T::default();
    // SAFETY: guaranteed by the caller.
    (unsafe { get(info, &mut value) } == sys::DOCA_SUCCESS).then_some(value)
}

impl Capabilities {
    /// Capabilities of a device.
    ///
    /// # Safety
    ///
    /// `info` is a live device's information.
    pub(crate) unsafe fn of(info: *const sys::doca_devinfo) -> Self {
        /// `true` if a capability function succeeds.
        macro_rules! can {
            ($is_supported:ident) => {
                // SAFETY: the information is live.
                unsafe { sys::$is_supported(info) } == sys::DOCA_SUCCESS
            };
        }
        /// A value reported by the device.
        macro_rules! get {
            ($get:ident) => {
                // SAFETY: the information is live; the functions write one value.
                unsafe { limit(info, |info, value| sys::$get(info, value)) }?
            };
        }
        /// Limits of a kind of task, if it is supported.
        macro_rules! task {
            ($is_supported:ident, $size:ident, $list:ident) => {
                can!($is_supported)
                    .then(|| {
                        Some(TaskLimits {
                            max_buf_size: get!($size),
                            max_buf_list_len: get!($list),
                        })
                    })
                    .flatten()
            };
        }
        macro_rules! fast_path {
            ($is_supported:ident, $tasks:ident, $size:ident, $list:ident) => {
                can!($is_supported)
                    .then(|| {
                        Some(FastPathLimits {
                            max_tasks: get!($tasks),
                            max_buf_size: get!($size),
                            max_buf_list_len: get!($list),
                        })
                    })
                    .flatten()
            };
        }
        let (comch_client, comch_server) = (
            can!(doca_comch_cap_client_is_supported),
            can!(doca_comch_cap_server_is_supported),
        );
        let comch = || {
            Some(ComchLimits {
                max_message_size: get!(doca_comch_cap_get_max_msg_size),
                max_name_len: get!(doca_comch_cap_get_max_name_len),
                max_recv_queue: get!(doca_comch_cap_get_max_recv_queue_size),
                max_send_tasks: get!(doca_comch_cap_get_max_send_tasks),
                max_clients: get!(doca_comch_cap_get_max_clients),
            })
        };
        let rdma = || {
            Some(RdmaLimits {
                max_message_size: get!(doca_rdma_cap_get_max_message_size),
                max_send_queue: get!(doca_rdma_cap_get_max_send_queue_size),
                max_recv_queue: get!(doca_rdma_cap_get_max_recv_queue_size),
                max_send_buf_list_len: get!(doca_rdma_cap_get_max_send_buf_list_len),
            })
        };
        let erasure_coding = || {
            Some(ErasureCodingLimits {
                max_block_size: get!(doca_ec_cap_get_max_block_size),
                max_buf_list_len: get!(doca_ec_cap_get_max_buf_list_len),
            })
        };
        let can_code = can!(doca_ec_cap_task_create_is_supported)
            && can!(doca_ec_cap_task_update_is_supported)
            && can!(doca_ec_cap_task_recover_is_supported);
        Self {
            comch_client,
            comch_server,
            comch: (comch_client || comch_server).then(comch).flatten(),
            consumer: fast_path!(
                doca_comch_consumer_cap_is_supported,
                doca_comch_consumer_cap_get_max_num_tasks,
                doca_comch_consumer_cap_get_max_buf_size,
                doca_comch_consumer_cap_get_max_buf_list_len
            ),
            producer: fast_path!(
                doca_comch_producer_cap_is_supported,
                doca_comch_producer_cap_get_max_num_tasks,
                doca_comch_producer_cap_get_max_buf_size,
                doca_comch_producer_cap_get_max_buf_list_len
            ),
            rdma: can!(doca_rdma_cap_task_send_is_supported)
                .then(rdma)
                .flatten(),
            dma: task!(
                doca_dma_cap_task_memcpy_is_supported,
                doca_dma_cap_task_memcpy_get_max_buf_size,
                doca_dma_cap_task_memcpy_get_max_buf_list_len
            ),
            compress_deflate: task!(
                doca_compress_cap_task_compress_deflate_is_supported,
                doca_compress_cap_task_compress_deflate_get_max_buf_size,
                doca_compress_cap_task_compress_deflate_get_max_buf_list_len
            ),
            decompress_deflate: task!(
                doca_compress_cap_task_decompress_deflate_is_supported,
                doca_compress_cap_task_decompress_deflate_get_max_buf_size,
                doca_compress_cap_task_decompress_deflate_get_max_buf_list_len
            ),
            decompress_lz4_stream: task!(
                doca_compress_cap_task_decompress_lz4_stream_is_supported,
                doca_compress_cap_task_decompress_lz4_stream_get_max_buf_size,
                doca_compress_cap_task_decompress_lz4_stream_get_max_buf_list_len
            ),
            decompress_lz4_block: task!(
                doca_compress_cap_task_decompress_lz4_block_is_supported,
                doca_compress_cap_task_decompress_lz4_block_get_max_buf_size,
                doca_compress_cap_task_decompress_lz4_block_get_max_buf_list_len
            ),
            erasure_coding: can_code.then(erasure_coding).flatten(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_ends_at_the_first_nul_and_unterminated_text_is_refused() {
        let fill = |source: &'static [u8]| {
            move |text: *mut c_char, size: u32| {
                assert!(source.len() <= size as usize);
                // SAFETY: the buffer has `size` bytes, checked above.
                unsafe { ptr::copy_nonoverlapping(source.as_ptr().cast(), text, source.len()) };
                sys::DOCA_SUCCESS
            }
        };
        assert_eq!(read_text::<8>(fill(b"ab\0cd")), Some("ab".to_owned()));
        assert_eq!(read_text::<4>(fill(b"abcd")), None);
        assert_eq!(read_text::<4>(fill(b"")), None);
        assert_eq!(read_text::<4>(|_, _| sys::DOCA_ERROR_NOT_FOUND), None);
    }

    #[test]
    fn missing_and_available_devices_are_listed_in_the_error() {
        let error = not_found(
            "doca_dev_open",
            "device",
            "mlx5_9",
            &["0000:03:00.0 = mlx5_0".to_owned()],
        );
        assert_eq!(error.code, ErrorCode::NOT_FOUND);
        for name in ["mlx5_9", "0000:03:00.0", "mlx5_0"] {
            assert!(error.to_string().contains(name), "{error}");
        }
        assert!(c_string("f", "a\0b").is_err());
    }

    #[test]
    fn representors_are_those_of_the_dpu() {
        let devices = DeviceInfo::all().expect("a list");
        let dpu = devices
            .iter()
            .find(|device| !device.representors.is_empty())
            .expect("a device of a DPU");
        let represented = &dpu.representors[0];
        assert_eq!(represented.function, Some(FunctionType::Physical));
        assert!(!represented.emulated);
        let host = devices
            .iter()
            .find(|device| device.pci_address == represented.pci_address)
            .expect("the host's device");
        assert_ne!(host.mac, dpu.mac);
        assert!(host.ibdev.is_some() && host.ipv4.is_some() && host.ipv6.is_some());
        assert_eq!(host.representors, []);
    }
}
