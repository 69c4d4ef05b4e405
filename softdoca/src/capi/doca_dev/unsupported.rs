//! What the emulated devices do not have.

use doca_abi::{doca_dev, doca_devinfo};

use super::super::{check_out, doca_error_t, guard, not_null};
use crate::error::Error;

/// `DOCA_ERROR_NOT_SUPPORTED`: ports are Ethernet, and have no local identifiers of InfiniBand.
///
/// # Safety
/// Safe for any pointers: they are not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_get_lid(
    devinfo: *const doca_devinfo,
    lid: *mut u16,
) -> doca_error_t {
    guard(|| {
        not_null(devinfo)?;
        check_out(lid)?;
        Err(Error::NotSupported.because("the link layer of the port is Ethernet"))
    })
}

/// `DOCA_ERROR_NOT_SUPPORTED`: no device keeps resources.
///
/// # Safety
/// Safe for any pointer: it is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_dev_accelerate_resource_reclaim(dev: *mut doca_dev) -> doca_error_t {
    guard(|| {
        not_null(dev)?;
        Err(Error::NotSupported.because("there are no resources whose reclaim takes time"))
    })
}
