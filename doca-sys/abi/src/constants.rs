//! Sizes and versions.

use crate::{ConstantDecl, c_int, c_void};

macro_rules! constants {
    ($(header $header:literal { $($name:ident: $ty:ty = $value:literal, $doc:literal;)+ })+) => {
        $($(
            #[doc = $doc]
            pub const $name: $ty = $value;
        )+)+

        /// All constants.
        pub const CONSTANTS: &[ConstantDecl] = &[$($(
            ConstantDecl { header: $header, name: stringify!($name), value: $value, doc: $doc },
        )+)+];
    };
}

constants! {
    header "doca_version.h" {
        DOCA_VERSION_MAJOR: u32 = 3, "Version of the API that these declarations follow: major.";
        DOCA_VERSION_MINOR: u32 = 3, "Version of the API that these declarations follow: minor.";
        DOCA_VERSION_PATCH: u32 = 0, "Version of the API that these declarations follow: patch.";
    }

    header "doca_clock.h" {
        DOCA_CLOCK_NIC_FREE_RUNNING: u64 = 0x1, "A clock of the device that nothing sets.";
        DOCA_CLOCK_NIC_REAL_TIME: u64 = 0x2, "A clock of the device for real time.";
        DOCA_CLOCK_NIC_DPA_TIMER: u64 = 0x100, "The timer of the device's DPA.";
        DOCA_CLOCK_HOST_COUNTER_CYCLES: u64 = 0x10000, "The counter of the CPU, in cycles.";
        DOCA_CLOCK_HOST_REAL_TIME: u64 = 0x20000, "Real time of the host.";
        DOCA_CLOCK_HOST_MONOTONIC: u64 = 0x40000, "Time of the host since some moment, adjusted.";
        DOCA_CLOCK_HOST_MONOTONIC_RAW: u64 = 0x80000, "Time of the host since some moment, as the hardware counts it.";
    }

    header "doca_log.h" {
        DOCA_LOGGER_NAME_SIZE: usize = 256, "Bytes of a logger's name with the terminating zero.";
    }

    header "doca_types.h" {
        DOCA_GID_BYTE_LENGTH: usize = 16, "Bytes of a GID.";
    }

    header "doca_dev.h" {
        DOCA_DEVINFO_VUID_SIZE: usize = 128, "Bytes of a device's vendor unique id with the terminating zero.";
        DOCA_DEVINFO_IPV4_ADDR_SIZE: usize = 4, "Bytes of an IPv4 address.";
        DOCA_DEVINFO_IPV6_ADDR_SIZE: usize = 16, "Bytes of an IPv6 address.";
        DOCA_DEVINFO_MAC_ADDR_SIZE: usize = 6, "Bytes of a MAC address.";
        DOCA_DEVINFO_IFACE_NAME_SIZE: usize = 256, "Bytes of a network interface's name with the terminating zero.";
        DOCA_DEVINFO_IBDEV_NAME_SIZE: usize = 64, "Bytes of an InfiniBand device's name with the terminating zero.";
        DOCA_DEVINFO_PCI_ADDR_SIZE: usize = 13, "Bytes of a PCI address with domain (`0000:03:00.0`) and terminating zero.";
        DOCA_DEVINFO_PCI_BDF_SIZE: usize = 8, "Bytes of a PCI address without domain (`03:00.0`) and with terminating zero.";
        DOCA_DEVINFO_REP_VUID_SIZE: usize = 128, "Bytes of a representor's vendor unique id with the terminating zero.";
        DOCA_DEVINFO_REP_PCI_ADDR_SIZE: usize = 13, "Bytes of a represented function's PCI address with domain and terminating zero.";
        DOCA_DEVINFO_REP_PCI_BDF_SIZE: usize = 8, "Bytes of a represented function's PCI address without domain and with terminating zero.";
    }
}

/// A file descriptor that carries events.
pub type doca_event_handle_t = c_int;
/// A file descriptor that carries a progress engine's notifications.
pub type doca_notification_handle_t = doca_event_handle_t;
/// No descriptor.
#[allow(non_upper_case_globals, reason = "the name is that of the C API")]
pub const doca_event_invalid_handle: doca_event_handle_t = -1;

/// A 16-bit integer in network byte order: the bytes are in memory as they are on the wire.
pub type doca_be16_t = u16;
/// A 32-bit integer in network byte order: the bytes are in memory as they are on the wire.
pub type doca_be32_t = u32;
/// A 64-bit integer in network byte order: the bytes are in memory as they are on the wire.
pub type doca_be64_t = u64;

/// A stream of C's standard library, known here only by pointer.
pub type FILE = c_void;
/// An initialized `va_list`. C compilers pass this type as a pointer on all platforms of the API, hence the pointer
/// here.
pub type va_list = *mut c_void;
