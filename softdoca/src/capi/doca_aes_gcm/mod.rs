//! `doca_aes_gcm.h`: encryption with authentication.

mod tasks;
#[cfg(test)]
mod tests;

use std::ffi::c_void;
use std::sync::Arc;

use doca_abi::{
    doca_aes_gcm, doca_aes_gcm_key, doca_aes_gcm_key_type, doca_aes_gcm_task_decrypt,
    doca_aes_gcm_task_encrypt, doca_ctx, doca_dev,
};

use super::doca_ctx::{destroy_ctx, give_ctx};
use super::task::put_limit;
use super::{Handle, borrow, bytes, check_out, doca_error_t, give, guard, put, reclaim, share};
use crate::accelerator::MAX_TASKS;
use crate::aes_gcm::{Crypt, Gcm, Key};
use crate::progress::{Ctx, TaskOf};

pub use tasks::*;

// SAFETY: instances are given out as pointers from `Rc::into_raw(Rc<Ctx>)`, as all contexts are.
unsafe impl Handle for doca_aes_gcm {
    type Engine = Ctx;
}

// SAFETY: given out by `give`.
unsafe impl Handle for doca_aes_gcm_key {
    type Engine = Key;
}

// SAFETY: tasks are given out as pointers to what `TaskPool::allocate` made of this body.
unsafe impl Handle for doca_aes_gcm_task_encrypt {
    type Engine = TaskOf<Crypt>;
}

// SAFETY: as above.
unsafe impl Handle for doca_aes_gcm_task_decrypt {
    type Engine = TaskOf<Crypt>;
}

/// Creates an AES-GCM instance on a device.
///
/// # Safety
/// `dev` is NULL or an open device; `aes_gcm` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_aes_gcm_create(
    dev: *mut doca_dev,
    aes_gcm: *mut *mut doca_aes_gcm,
) -> doca_error_t {
    guard(|| {
        check_out(aes_gcm)?;
        // SAFETY: the caller's promise.
        unsafe { put(aes_gcm, give_ctx(Gcm::context(share(dev)?))) }
    })
}

/// Destroys an idle instance; `DOCA_ERROR_IN_USE` while tasks of it are allocated.
///
/// # Safety
/// `aes_gcm` is NULL or a live instance; on success it is dead.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_aes_gcm_destroy(aes_gcm: *mut doca_aes_gcm) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { destroy_ctx(aes_gcm) })
}

/// The instance's context.
///
/// # Safety
/// Safe for any pointer: it is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_aes_gcm_as_ctx(aes_gcm: *mut doca_aes_gcm) -> *mut doca_ctx {
    aes_gcm.cast()
}

/// Tells how many tasks of both kinds an instance can have.
///
/// # Safety
/// The out-parameter is NULL or writable; `aes_gcm` is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_aes_gcm_cap_get_max_num_tasks(
    aes_gcm: *mut doca_aes_gcm,
    max_num_tasks: *mut u32,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    unsafe { put_limit(aes_gcm, max_num_tasks, MAX_TASKS) }
}

/// Makes a key of the bytes.
///
/// # Safety
/// `aes_gcm` is NULL or live; `raw_key` is NULL or has the bytes of the type; `key` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_aes_gcm_key_create(
    aes_gcm: *mut doca_aes_gcm,
    raw_key: *const c_void,
    raw_key_type: doca_aes_gcm_key_type,
    key: *mut *mut doca_aes_gcm_key,
) -> doca_error_t {
    guard(|| {
        check_out(key)?;
        // SAFETY: the caller's promise.
        unsafe {
            borrow(aes_gcm)?;
            let raw = bytes(raw_key.cast(), Key::len(raw_key_type)?)?;
            put(key, give(Arc::new(Key::new(raw)?)))
        }
    })
}

/// Destroys a key. Tasks that have it keep it until they are given another or freed.
///
/// # Safety
/// `key` is NULL or live, and dead afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_aes_gcm_key_destroy(key: *mut doca_aes_gcm_key) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { reclaim(key) }.map(drop))
}

doca_abi::check_definitions!(doca_aes_gcm_functions, crate::capi::doca_aes_gcm);
