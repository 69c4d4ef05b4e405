//! `doca_aes_gcm.h`: encryption with authentication.

#[cfg(test)]
mod tests;

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use doca_abi::{
    doca_aes_gcm, doca_aes_gcm_key, doca_aes_gcm_key_type, doca_aes_gcm_task_decrypt,
    doca_aes_gcm_task_encrypt, doca_buf, doca_ctx, doca_data, doca_dev, doca_devinfo,
};

use super::doca_pe::{destroy_ctx, give_ctx};
use super::task::{
    buf, get, put_limit, put_task, set, supported, task_functions, task_slots, with_driver,
};
use super::{
    Handle, borrow, bytes, check_out, doca_error_t, give, guard, not_null, put, reclaim, share,
};
use crate::accelerator::{MAX_BUF_LIST_LEN, MAX_BUF_SIZE, MAX_TASKS, Offload};
use crate::aes_gcm::{Crypt, Gcm, IV_LEN, Key, Operation};
use crate::error::Result;
use crate::progress::{Ctx, TaskOf, TaskPool};

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
        // SAFETY: guaranteed by the caller.
        unsafe { put(aes_gcm, give_ctx(Gcm::context(share(dev)?))) }
    })
}

/// Destroys an idle instance; `DOCA_ERROR_IN_USE` while tasks of it are allocated.
///
/// # Safety
/// `aes_gcm` is NULL or a live instance; on success it is invalid afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_aes_gcm_destroy(aes_gcm: *mut doca_aes_gcm) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { destroy_ctx(aes_gcm) })
}

/// The instance's context.
///
/// # Safety
/// Safe for any pointer: it is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_aes_gcm_as_ctx(aes_gcm: *mut doca_aes_gcm) -> *mut doca_ctx {
    aes_gcm.cast()
}

/// Gets the maximum number of tasks of an instance, encrypt and decrypt tasks together.
///
/// # Safety
/// The out-parameter is NULL or writable; `aes_gcm` is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_aes_gcm_cap_get_max_num_tasks(
    aes_gcm: *mut doca_aes_gcm,
    max_num_tasks: *mut u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { put_limit(aes_gcm, max_num_tasks, MAX_TASKS) }
}

/// Creates a key from the bytes.
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
        // SAFETY: guaranteed by the caller.
        unsafe {
            borrow(aes_gcm)?;
            let raw = bytes(raw_key.cast(), Key::len(raw_key_type)?)?;
            put(key, give(Arc::new(Key::new(raw)?)))
        }
    })
}

/// Destroys a key. Tasks keep it until they get another key or are freed.
///
/// # Safety
/// `key` is NULL or live, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_aes_gcm_key_destroy(key: *mut doca_aes_gcm_key) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { reclaim(key) }.map(drop))
}

fn encryptions(driver: &Offload<Gcm>) -> &TaskPool {
    &driver.accelerator().encryptions
}

fn decryptions(driver: &Offload<Gcm>) -> &TaskPool {
    &driver.accelerator().decryptions
}

/// Lengths that a task is allocated with.
struct Numbers {
    iv_length: u32,
    tag_size: u32,
    aad_size: u32,
}

/// Allocates a task from its pool.
///
/// # Safety
/// The instance is NULL or live, and not used by another thread during the call; the key is NULL or live; `iv` is NULL
/// or has the bytes.
unsafe fn allocate(
    aes_gcm: *const doca_aes_gcm,
    pool: fn(&Offload<Gcm>) -> &TaskPool,
    body: Crypt,
    (key, iv): (*const doca_aes_gcm_key, *const u8),
    numbers: Numbers,
    user_data: doca_data,
) -> Result<NonNull<TaskOf<Crypt>>> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        body.set_iv(bytes(iv, numbers.iv_length as usize)?);
        body.tag_size.set(numbers.tag_size);
        body.aad_size.set(numbers.aad_size);
        body.check_numbers()?;
        body.set_key((!key.is_null()).then(|| share(key)).transpose()?);
        with_driver(aes_gcm, |ctx, driver| {
            pool(driver).allocate(ctx, body, user_data)
        })
    }
}

/// Defines the functions of a kind of task that are not in [`task_functions!`].
macro_rules! crypt_task {
    (
        $task:ident, pool $pool:ident, $operation:ident;
        $alloc_init:ident, $get_max_iv_len:ident, $is_tag_96_supported:ident, $is_tag_128_supported:ident,
        $is_key_type_supported:ident, $get_max_buf_size:ident, $get_max_list:ident,
        $set_key:ident, $get_key:ident, $set_iv:ident, $get_iv:ident,
        $set_tag_size:ident, $get_tag_size:ident, $set_aad_size:ident, $get_aad_size:ident;
        $($functions:tt)*
    ) => {
        task_functions! { $task of doca_aes_gcm, pool $pool; $($functions)* }

        task_slots! {
            $task:
            $set_tag_size, $get_tag_size => "length of the tag in bytes": tag_size as u32;
            $set_aad_size, $get_aad_size => "number of bytes that are authenticated only": aad_size as u32;
        }

        /// Allocates a task.
        ///
        /// # Safety
        /// The instance is NULL or live, and not used by another thread during the call; the bufs are NULL or stay
        /// valid while the task is in flight; the key is NULL or live; `iv` is NULL or has `iv_length` bytes; `task` is
        /// NULL or writable.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $alloc_init(
            aes_gcm: *mut doca_aes_gcm,
            src_buff: *const doca_buf,
            dst_buff: *mut doca_buf,
            key: *mut doca_aes_gcm_key,
            iv: *const u8,
            iv_length: u32,
            tag_size: u32,
            aad_size: u32,
            user_data: doca_data,
            task: *mut *mut $task,
        ) -> doca_error_t {
            let numbers = Numbers { iv_length, tag_size, aad_size };
            // SAFETY: guaranteed by the caller.
            guard(|| unsafe {
                put_task(task, || {
                    let body = Crypt::new(Operation::$operation, buf(src_buff), buf(dst_buff));
                    allocate(aes_gcm, $pool, body, (key, iv), numbers, user_data)
                })
            })
        }

        /// Gets the maximum length of an initialization vector in bytes.
        ///
        /// # Safety
        /// The out-parameter is NULL or writable; `devinfo` is not dereferenced.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get_max_iv_len(
            devinfo: *const doca_devinfo,
            max_iv_len: *mut u32,
        ) -> doca_error_t {
            // SAFETY: guaranteed by the caller.
            unsafe { put_limit(devinfo, max_iv_len, IV_LEN as u32) }
        }

        /// `DOCA_SUCCESS` for every device.
        ///
        /// # Safety
        /// Safe for any pointer: it is not dereferenced.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $is_tag_96_supported(devinfo: *const doca_devinfo) -> doca_error_t {
            supported(devinfo)
        }

        /// `DOCA_SUCCESS` for every device.
        ///
        /// # Safety
        /// Safe for any pointer: it is not dereferenced.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $is_tag_128_supported(devinfo: *const doca_devinfo) -> doca_error_t {
            supported(devinfo)
        }

        /// `DOCA_SUCCESS` for every device and type.
        ///
        /// # Safety
        /// Safe for any pointer: it is not dereferenced.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $is_key_type_supported(
            devinfo: *const doca_devinfo,
            key_type: doca_aes_gcm_key_type,
        ) -> doca_error_t {
            guard(|| {
                not_null(devinfo)?;
                Key::len(key_type).map(drop)
            })
        }

        /// Gets the maximum source length of a task in bytes.
        ///
        /// # Safety
        /// The out-parameter is NULL or writable; `devinfo` is not dereferenced.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get_max_buf_size(
            devinfo: *const doca_devinfo,
            max_buffer_size: *mut u64,
        ) -> doca_error_t {
            // SAFETY: guaranteed by the caller.
            unsafe { put_limit(devinfo, max_buffer_size, MAX_BUF_SIZE as u64) }
        }

        /// Gets the maximum number of bufs in a list.
        ///
        /// # Safety
        /// The out-parameter is NULL or writable; `devinfo` is not dereferenced.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get_max_list(
            devinfo: *const doca_devinfo,
            max_list_num_elem: *mut u32,
        ) -> doca_error_t {
            // SAFETY: guaranteed by the caller.
            unsafe { put_limit(devinfo, max_list_num_elem, MAX_BUF_LIST_LEN as u32) }
        }

        /// Sets the task's key; not while it is in flight.
        ///
        /// # Safety
        /// The task is NULL or live, and not used by another thread during the call; the key is NULL or live.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set_key(task: *mut $task, key: *mut doca_aes_gcm_key) {
            // SAFETY: guaranteed by the caller.
            unsafe {
                set(task, |body| {
                    body.set_key((!key.is_null()).then(|| share(key)).transpose()?);
                    Ok(())
                });
            }
        }

        /// The task's key; NULL for a NULL task.
        ///
        /// # Safety
        /// The task is NULL or live, and not used by another thread during the call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get_key(task: *const $task) -> *mut doca_aes_gcm_key {
            // SAFETY: guaranteed by the caller.
            unsafe { get(task, |body| body.key_ptr().cast_mut().cast()) }
        }

        /// Sets the task's initialization vector, which is copied; not while it is in flight. A vector that is too long
        /// makes the task fail.
        ///
        /// # Safety
        /// The task is NULL or live, and not used by another thread during the call; `iv` is NULL or has `iv_length`
        /// bytes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set_iv(task: *mut $task, iv: *const u8, iv_length: u32) {
            // SAFETY: guaranteed by the caller.
            unsafe {
                set(task, |body| {
                    body.set_iv(bytes(iv, iv_length as usize)?);
                    Ok(())
                });
            }
        }

        /// The initialization vector, valid until it is set again or the task is freed; NULL for a NULL task.
        ///
        /// # Safety
        /// The task is NULL or live, and not used by another thread during the call; `iv_length` is NULL or writable.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get_iv(task: *const $task, iv_length: *mut u32) -> *const u8 {
            // SAFETY: guaranteed by the caller.
            unsafe {
                get(task, |body| {
                    let (iv, len) = body.iv();
                    match put(iv_length, len) {
                        Ok(()) => iv,
                        Err(_) => std::ptr::null(),
                    }
                })
            }
        }
    };
}

crypt_task! {
    doca_aes_gcm_task_encrypt, pool encryptions, Encrypt;
    doca_aes_gcm_task_encrypt_alloc_init, doca_aes_gcm_cap_task_encrypt_get_max_iv_len,
    doca_aes_gcm_cap_task_encrypt_is_tag_96_supported, doca_aes_gcm_cap_task_encrypt_is_tag_128_supported,
    doca_aes_gcm_cap_task_encrypt_is_key_type_supported, doca_aes_gcm_cap_task_encrypt_get_max_buf_size,
    doca_aes_gcm_cap_task_encrypt_get_max_list_buf_num_elem,
    doca_aes_gcm_task_encrypt_set_key, doca_aes_gcm_task_encrypt_get_key,
    doca_aes_gcm_task_encrypt_set_iv, doca_aes_gcm_task_encrypt_get_iv,
    doca_aes_gcm_task_encrypt_set_tag_size, doca_aes_gcm_task_encrypt_get_tag_size,
    doca_aes_gcm_task_encrypt_set_aad_size, doca_aes_gcm_task_encrypt_get_aad_size;
    doca_aes_gcm_cap_task_encrypt_is_supported,
    doca_aes_gcm_task_encrypt_set_conf(doca_aes_gcm_task_encrypt_completion_cb_t),
    doca_aes_gcm_task_encrypt_as_task,
    doca_aes_gcm_task_encrypt_set_src, doca_aes_gcm_task_encrypt_get_src,
    doca_aes_gcm_task_encrypt_set_dst, doca_aes_gcm_task_encrypt_get_dst
}

crypt_task! {
    doca_aes_gcm_task_decrypt, pool decryptions, Decrypt;
    doca_aes_gcm_task_decrypt_alloc_init, doca_aes_gcm_cap_task_decrypt_get_max_iv_len,
    doca_aes_gcm_cap_task_decrypt_is_tag_96_supported, doca_aes_gcm_cap_task_decrypt_is_tag_128_supported,
    doca_aes_gcm_cap_task_decrypt_is_key_type_supported, doca_aes_gcm_cap_task_decrypt_get_max_buf_size,
    doca_aes_gcm_cap_task_decrypt_get_max_list_buf_num_elem,
    doca_aes_gcm_task_decrypt_set_key, doca_aes_gcm_task_decrypt_get_key,
    doca_aes_gcm_task_decrypt_set_iv, doca_aes_gcm_task_decrypt_get_iv,
    doca_aes_gcm_task_decrypt_set_tag_size, doca_aes_gcm_task_decrypt_get_tag_size,
    doca_aes_gcm_task_decrypt_set_aad_size, doca_aes_gcm_task_decrypt_get_aad_size;
    doca_aes_gcm_cap_task_decrypt_is_supported,
    doca_aes_gcm_task_decrypt_set_conf(doca_aes_gcm_task_decrypt_completion_cb_t),
    doca_aes_gcm_task_decrypt_as_task,
    doca_aes_gcm_task_decrypt_set_src, doca_aes_gcm_task_decrypt_get_src,
    doca_aes_gcm_task_decrypt_set_dst, doca_aes_gcm_task_decrypt_get_dst
}

doca_abi::check_definitions!(doca_aes_gcm_functions, crate::capi::doca_aes_gcm);
