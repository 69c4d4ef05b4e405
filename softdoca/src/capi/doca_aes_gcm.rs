//! `doca_aes_gcm.h`: encryption with authentication.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use doca_abi::{
    doca_aes_gcm, doca_aes_gcm_key, doca_aes_gcm_key_type, doca_aes_gcm_task_decrypt,
    doca_aes_gcm_task_encrypt, doca_buf, doca_data, doca_devinfo,
};

use super::doca_pe::destroy_ctx;
use super::instance::{instance_functions, limit_functions, task_handles};
use super::{
    Handle, Keeper, buf, bytes, check_out, doca_error_t, get, give, guard, not_null, put,
    put_limit, put_task, reclaim, set, share, supported, task_functions, task_slots, with_driver,
};
use crate::accelerator::{MAX_BUF_LIST_LEN, MAX_BUF_SIZE, MAX_TASKS, Offload};
use crate::aes_gcm::{Crypt, Gcm, IV_LEN, Key, Operation};
use crate::error::{Error, Result};
use crate::progress::{CtxState, TaskOf, TaskPool};

// SAFETY: given out by `give`.
unsafe impl Handle for doca_aes_gcm_key {
    type Engine = Key;

    const KEEPER: Keeper = Keeper::Arc;
}

task_handles! { Crypt: doca_aes_gcm_task_encrypt, doca_aes_gcm_task_decrypt }

instance_functions! {
    doca_aes_gcm over Gcm;
    doca_aes_gcm_create, doca_aes_gcm_as_ctx
}

limit_functions! {
    /// Gets the maximum number of tasks of an instance, encrypt and decrypt tasks together.
    doca_aes_gcm_cap_get_max_num_tasks(*mut doca_aes_gcm) = MAX_TASKS, u32;
}

/// Destroys an idle instance; `DOCA_ERROR_IN_USE` while tasks of it are allocated, or keys exist.
///
/// # Safety
/// `aes_gcm` is NULL or a live instance; on success it is invalid afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_aes_gcm_destroy(aes_gcm: *mut doca_aes_gcm) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe {
        with_driver(aes_gcm, |ctx, driver: &Offload<Gcm>| match ctx.state() {
            CtxState::Idle => driver.accelerator().check_no_keys(),
            // Refused below.
            _ => Ok(()),
        })?;
        destroy_ctx(aes_gcm, Error::BadState)
    })
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
            with_driver(aes_gcm, |_, driver: &Offload<Gcm>| {
                let raw = bytes(raw_key.cast(), Key::len(raw_key_type)?)?;
                put(key, give(Arc::new(Key::new(driver.accelerator(), raw)?)))
            })
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
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { reclaim(key) }?.destroyed();
        Ok(())
    })
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

        /// Sets the task's key; not allowed while the task is in flight.
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

        /// Sets the task's initialization vector, which is copied; not allowed while the task is in flight. A vector
        /// that is too long makes the task fail.
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

#[cfg(test)]
mod tests {
    //! Test cases of the GCM specification (McGrew and Viega), lists, wrong tags, invalid arguments.

    use std::ptr::{null, null_mut};

    use doca_abi::{DOCA_AES_GCM_KEY_128, DOCA_AES_GCM_KEY_256};

    use super::super::doca_pe::doca_task_try_submit;
    use super::super::testing::{
        Bufs, Instance, Memory, PLACEMENTS, Placement, any_devinfo, c, done, ok, pattern,
    };
    use super::*;
    use crate::buffer::Buf;
    use crate::error::Error;
    use crate::memory::{ExportKind, Permissions};

    /// A key, the input and the expected output.
    struct Case {
        key: &'static str,
        iv: &'static str,
        aad: &'static str,
        plain: &'static str,
        cipher: &'static str,
        tag: &'static str,
    }

    const PLAIN: &str = "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
                     1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39";
    const AAD: &str = "feedfacedeadbeeffeedfacedeadbeefabaddad2";
    const IV: &str = "cafebabefacedbaddecaf888";

    /// Test cases 2, 4 and 16.
    const CASES: [Case; 3] = [
        Case {
            key: "00000000000000000000000000000000",
            iv: "000000000000000000000000",
            aad: "",
            plain: "00000000000000000000000000000000",
            cipher: "0388dace60b6a392f328c2b971b2fe78",
            tag: "ab6e47d42cec13bdf53a67b21257bddf",
        },
        Case {
            key: "feffe9928665731c6d6a8f9467308308",
            iv: IV,
            aad: AAD,
            plain: PLAIN,
            cipher: "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e\
                 21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091",
            tag: "5bc94fbc3221a5db94fae95ae7121a47",
        },
        Case {
            key: "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308",
            iv: IV,
            aad: AAD,
            plain: PLAIN,
            cipher: "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa\
                 8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662",
            tag: "76fc6ece0f4e1768cddf8853bb2d551b",
        },
    ];

    fn unhex(text: &str) -> Vec<u8> {
        let digits = |at| &text[at..at + 2];
        (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(digits(at), 16).expect("hexadecimal"))
            .collect()
    }

    fn start() -> Instance<doca_aes_gcm> {
        Instance::start(doca_aes_gcm_create, doca_aes_gcm_destroy, |gcm| {
            let encrypted = Some(done::<doca_aes_gcm_task_encrypt> as _);
            let decrypted = Some(done::<doca_aes_gcm_task_decrypt> as _);
            // SAFETY: a live instance.
            unsafe {
                ok(doca_aes_gcm_task_encrypt_set_conf(
                    gcm, encrypted, encrypted, 16,
                ));
                ok(doca_aes_gcm_task_decrypt_set_conf(
                    gcm, decrypted, decrypted, 16,
                ));
            }
        })
    }

    /// A key that is destroyed on drop.
    struct OwnKey(*mut doca_aes_gcm_key);

    impl OwnKey {
        fn new(gcm: &Instance<doca_aes_gcm>, bytes: &[u8]) -> OwnKey {
            let (mut key, kind) = (null_mut(), (bytes.len() / 16) as u32);
            // SAFETY: a live handle, the bytes of the type, a valid out-parameter.
            ok(unsafe {
                doca_aes_gcm_key_create(gcm.handle, bytes.as_ptr().cast(), kind, &mut key)
            });
            OwnKey(key)
        }
    }

    impl Drop for OwnKey {
        fn drop(&mut self) {
            // SAFETY: a live key, for the last time.
            ok(unsafe { doca_aes_gcm_key_destroy(self.0) });
        }
    }

    /// Arguments of a task's allocation in addition to its bufs.
    #[derive(Clone, Copy)]
    struct With<'a> {
        key: &'a OwnKey,
        iv: &'a [u8],
        tag: usize,
        aad: usize,
    }

    fn encrypt(
        gcm: &Instance<doca_aes_gcm>,
        from: &Buf,
        to: &Buf,
        with: With<'_>,
    ) -> *mut doca_aes_gcm_task_encrypt {
        let user = doca_data { u64: 1 };
        // SAFETY: live handles and a valid out-parameter.
        gcm.task(|task| unsafe {
            doca_aes_gcm_task_encrypt_alloc_init(
                gcm.handle,
                c(from),
                c(to),
                with.key.0,
                with.iv.as_ptr(),
                with.iv.len() as u32,
                with.tag as u32,
                with.aad as u32,
                user,
                task,
            )
        })
    }

    fn decrypt(
        gcm: &Instance<doca_aes_gcm>,
        from: &Buf,
        to: &Buf,
        with: With<'_>,
    ) -> *mut doca_aes_gcm_task_decrypt {
        let user = doca_data { u64: 2 };
        // SAFETY: live handles and a valid out-parameter.
        gcm.task(|task| unsafe {
            doca_aes_gcm_task_decrypt_alloc_init(
                gcm.handle,
                c(from),
                c(to),
                with.key.0,
                with.iv.as_ptr(),
                with.iv.len() as u32,
                with.tag as u32,
                with.aad as u32,
                user,
                task,
            )
        })
    }

    #[test]
    fn ciphertexts_and_tags_are_those_of_the_specification() {
        for case in &CASES {
            let (gcm, memory, bufs) = (start(), Memory::local(8192), Bufs::new());
            let key = OwnKey::new(&gcm, &unhex(case.key));
            let (iv, aad) = (unhex(case.iv), unhex(case.aad));
            let source = [aad.clone(), unhex(case.plain)].concat();
            let encrypted = [aad.clone(), unhex(case.cipher), unhex(case.tag)].concat();
            for tag in [12, 16] {
                let with = With {
                    key: &key,
                    iv: &iv,
                    tag,
                    aad: aad.len(),
                };
                memory.write(0, &source);
                let len = source.len() + tag;
                let from = bufs.data(&memory.mmap, 0, source.len());
                let to = bufs.room(&memory.mmap, 1000, len);
                assert_eq!(gcm.run(encrypt(&gcm, from, to, with)), 0);
                assert_eq!(to.data_len(), len);
                assert_eq!(memory.read(1000, len), encrypted[..len]);

                let back = bufs.room(&memory.mmap, 2000, source.len());
                let task = decrypt(&gcm, bufs.data(&memory.mmap, 1000, len), back, with);
                assert_eq!(gcm.run(task), 0);
                assert_eq!(back.data_len(), source.len());
                assert_eq!(memory.read(2000, source.len()), source);

                // In place, in both directions.
                let place = bufs.room(&memory.mmap, 0, len);
                assert_eq!(gcm.run(encrypt(&gcm, from, place, with)), 0);
                assert_eq!(memory.read(0, len), encrypted[..len]);
                let whole = bufs.data(&memory.mmap, 0, len);
                let place = bufs.room(&memory.mmap, 0, len);
                assert_eq!(gcm.run(decrypt(&gcm, whole, place, with)), 0);
                assert_eq!(memory.read(0, source.len()), source);
                gcm.free_tasks();
            }
        }
    }

    #[test]
    fn modified_messages_are_not_decrypted() {
        let case = &CASES[2];
        let (gcm, memory, bufs) = (start(), Memory::local(8192), Bufs::new());
        let key = OwnKey::new(&gcm, &unhex(case.key));
        let (iv, aad) = (unhex(case.iv), unhex(case.aad));
        let encrypted = [aad.clone(), unhex(case.cipher), unhex(case.tag)].concat();
        let with = With {
            key: &key,
            iv: &iv,
            tag: 16,
            aad: aad.len(),
        };
        let from = bufs.data(&memory.mmap, 0, encrypted.len());
        let to = bufs.room(&memory.mmap, 1000, encrypted.len());
        let task = decrypt(&gcm, from, to, with);
        let last = encrypted.len() - 1;
        for at in [0, aad.len(), last - 16, last] {
            let mut changed = encrypted.clone();
            changed[at] ^= 1;
            memory.write(0, &changed);
            assert_eq!(gcm.run(task), Error::IoFailed.code(), "byte {at}");
            assert_eq!(to.data_len(), 0);
            assert_eq!(
                memory.read(1000, encrypted.len()),
                vec![0; encrypted.len()],
                "nothing leaks"
            );
        }
        // Another vector, another key, another tag length.
        memory.write(0, &encrypted);
        let (other_iv, other_key) = ([7; 12], OwnKey::new(&gcm, &[7; 16]));
        // SAFETY: a live task, and bytes that live longer.
        unsafe {
            doca_aes_gcm_task_decrypt_set_iv(task, other_iv.as_ptr(), 12);
            assert_eq!(gcm.run(task), Error::IoFailed.code());
            doca_aes_gcm_task_decrypt_set_iv(task, iv.as_ptr(), 12);
            doca_aes_gcm_task_decrypt_set_key(task, other_key.0);
            assert_eq!(gcm.run(task), Error::IoFailed.code());
            doca_aes_gcm_task_decrypt_set_key(task, key.0);
            doca_aes_gcm_task_decrypt_set_tag_size(task, 12);
            assert_eq!(gcm.run(task), Error::IoFailed.code());
            doca_aes_gcm_task_decrypt_set_tag_size(task, 16);
        }
        assert_eq!(gcm.run(task), 0);
    }

    #[test]
    fn lists_and_other_hosts_memory_give_the_same_ciphertext() {
        let data = pattern(5, 60_000);
        let (gcm, memory, bufs) = (start(), Memory::local(300_000), Bufs::new());
        let key = OwnKey::new(&gcm, &pattern(1, 32));
        let with = With {
            key: &key,
            iv: &[3; 12],
            tag: 16,
            aad: 100,
        };
        memory.write(0, &data);
        let len = data.len() + 16;
        let whole = bufs.room(&memory.mmap, 70_000, len);
        let source = bufs.data(&memory.mmap, 0, data.len());
        assert_eq!(gcm.run(encrypt(&gcm, source, whole, with)), 0);
        let expected = memory.read(70_000, len);

        let list = bufs.data_list(&memory.mmap, 0, &[1, 99, 15, 59_885]);
        let pieces = bufs.room_list(&memory.mmap, 140_000, &[17, 59_990, 9]);
        assert_eq!(gcm.run(encrypt(&gcm, list, pieces, with)), 0);
        assert_eq!(memory.read(140_000, len), expected);
        for placement in PLACEMENTS {
            let (theirs, import) = Memory::shared(len, placement);
            theirs.write(0, &expected);
            let to = bufs.room(&memory.mmap, 210_000, data.len());
            let from = bufs.data_list(&import, 0, &[50, len - 50]);
            assert_eq!(gcm.run(decrypt(&gcm, from, to, with)), 0, "{placement:?}");
            assert!(memory.read(210_000, data.len()) == data);
        }
    }

    /// The documentation allows vectors of 0 to 12 bytes.
    #[test]
    fn a_short_vector_is_followed_by_zeros() {
        let (gcm, memory, bufs) = (start(), Memory::local(8192), Bufs::new());
        let key = OwnKey::new(&gcm, &[1; 16]);
        let from = bufs.data(&memory.mmap, 0, 64);
        let mut results = Vec::new();
        for iv in [&[9, 8, 7][..], &[9, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]] {
            let with = With {
                key: &key,
                iv,
                tag: 16,
                aad: 0,
            };
            let to = bufs.room(&memory.mmap, 1000, 80);
            let task = encrypt(&gcm, from, to, with);
            let mut len = 99;
            // SAFETY: a live task and a valid out-parameter.
            let kept = unsafe { doca_aes_gcm_task_encrypt_get_iv(task, &mut len) };
            assert_eq!(len as usize, iv.len());
            // SAFETY: as long as the task lives.
            assert_eq!(unsafe { std::slice::from_raw_parts(kept, iv.len()) }, iv);
            assert_eq!(gcm.run(task), 0);
            results.push(memory.read(1000, 80));
        }
        assert_eq!(results[0], results[1]);
        assert_ne!(results[0], results[2]);
    }

    #[test]
    fn a_failure_fails_its_task_with_a_reason() {
        let memory = Memory::new(
            8192,
            Permissions::LOCAL_READ_WRITE | Permissions::RDMA_READ,
            Placement::Pages,
        );
        let read_only = Memory::new(4096, Permissions::empty(), Placement::Pages);
        let (gcm, rdma, bufs) = (start(), memory.import(ExportKind::Rdma), Bufs::new());
        let key = OwnKey::new(&gcm, &[1; 32]);
        let with = With {
            key: &key,
            iv: &[0; 12],
            tag: 16,
            aad: 4,
        };
        let (data, room) = (
            bufs.data(&memory.mmap, 0, 8),
            bufs.room(&memory.mmap, 4096, 64),
        );
        let long = [1; MAX_BUF_LIST_LEN + 1];
        for (from, to, error) in [
            (bufs.room(&memory.mmap, 0, 8), room, Error::InvalidValue),
            (
                bufs.data_list(&memory.mmap, 0, &long),
                room,
                Error::InvalidValue,
            ),
            // A source shorter than the additional authenticated data.
            (bufs.data(&memory.mmap, 0, 3), room, Error::InvalidValue),
            (data, bufs.room(&memory.mmap, 100, 23), Error::TooBig),
            (data, bufs.room(&read_only.mmap, 0, 64), Error::NotPermitted),
            (bufs.data(&rdma, 0, 8), room, Error::NotPermitted),
        ] {
            let task = encrypt(&gcm, from, to, with);
            // SAFETY: a live task.
            let attempt = unsafe { doca_task_try_submit(task.cast()) };
            assert_eq!(attempt, error.code(), "before it begins");
            assert_eq!(gcm.run(task), error.code());
            assert_eq!(to.data_len(), 0);
        }
        // A source without a tag.
        let short = bufs.data(&memory.mmap, 0, 19);
        assert_eq!(
            gcm.run(decrypt(&gcm, short, room, with)),
            Error::InvalidValue.code()
        );
        let task = encrypt(&gcm, data, room, with);
        // SAFETY: a live task; too long a vector, a wrong tag size, no key.
        unsafe {
            doca_aes_gcm_task_encrypt_set_iv(task, [0; 13].as_ptr(), 13);
            assert_eq!(gcm.run(task), Error::InvalidValue.code());
            doca_aes_gcm_task_encrypt_set_iv(task, null(), 0);
            doca_aes_gcm_task_encrypt_set_tag_size(task, 8);
            assert_eq!(gcm.run(task), Error::InvalidValue.code());
            doca_aes_gcm_task_encrypt_set_tag_size(task, 16);
            doca_aes_gcm_task_encrypt_set_key(task, null_mut());
            assert!(doca_aes_gcm_task_encrypt_get_key(task).is_null());
            assert_eq!(gcm.run(task), Error::InvalidValue.code());
            doca_aes_gcm_task_encrypt_set_key(task, key.0);
            assert_eq!(doca_aes_gcm_task_encrypt_get_key(task), key.0);
        }
        // The context keeps running.
        assert_eq!(gcm.run(task), 0);
    }

    #[test]
    fn a_task_keeps_its_key() {
        let (gcm, memory, bufs) = (start(), Memory::local(8192), Bufs::new());
        let key = OwnKey::new(&gcm, &[1; 16]);
        let with = With {
            key: &key,
            iv: &[0; 12],
            tag: 16,
            aad: 0,
        };
        let to = bufs.room(&memory.mmap, 100, 64);
        let task = encrypt(&gcm, bufs.data(&memory.mmap, 0, 8), to, with);
        drop(key);
        assert_eq!(gcm.run(task), 0);
    }

    #[test]
    fn limits_are_reported_and_invalid_arguments_refused() {
        let invalid = Error::InvalidValue.code();
        let gcm = start();
        let (mut iv, mut size, mut list, mut tasks) = (0, 0, 0, 0);
        let (mut key, mut task) = (null_mut(), null_mut());
        let none = doca_data { u64: 0 };
        // SAFETY: NULL, live handles and valid out-parameters.
        unsafe {
            ok(doca_aes_gcm_cap_task_encrypt_get_max_iv_len(
                any_devinfo(),
                &mut iv,
            ));
            ok(doca_aes_gcm_cap_task_decrypt_get_max_buf_size(
                any_devinfo(),
                &mut size,
            ));
            ok(doca_aes_gcm_cap_task_decrypt_get_max_list_buf_num_elem(
                any_devinfo(),
                &mut list,
            ));
            ok(doca_aes_gcm_cap_get_max_num_tasks(gcm.handle, &mut tasks));
            assert!(iv == 12 && size >= 2 << 20 && list >= 32 && tasks >= 1024);
            for kind in [DOCA_AES_GCM_KEY_128, DOCA_AES_GCM_KEY_256] {
                ok(doca_aes_gcm_cap_task_encrypt_is_key_type_supported(
                    any_devinfo(),
                    kind,
                ));
            }
            assert_eq!(
                doca_aes_gcm_cap_task_decrypt_is_key_type_supported(any_devinfo(), 3),
                invalid
            );
            assert_eq!(
                doca_aes_gcm_cap_task_encrypt_is_tag_96_supported(null()),
                invalid
            );
            let raw: [u8; 32] = [0; 32];
            let create = |gcm, raw: *const u8, kind, key| {
                doca_aes_gcm_key_create(gcm, raw.cast(), kind, key)
            };
            for (code, what) in [
                (create(gcm.handle, raw.as_ptr(), 0, &mut key), "type"),
                (create(gcm.handle, null(), 1, &mut key), "bytes"),
                (create(null_mut(), raw.as_ptr(), 1, &mut key), "instance"),
                (create(gcm.handle, raw.as_ptr(), 1, null_mut()), "result"),
            ] {
                assert_eq!(code, invalid, "{what}");
            }
            assert_eq!(doca_aes_gcm_key_destroy(null_mut()), invalid);
            for (iv_length, tag_size) in [(13, 16), (12, 13), (12, 0)] {
                assert_eq!(
                    doca_aes_gcm_task_encrypt_alloc_init(
                        gcm.handle,
                        null(),
                        null_mut(),
                        null_mut(),
                        raw.as_ptr(),
                        iv_length,
                        tag_size,
                        0,
                        none,
                        &mut task
                    ),
                    invalid
                );
            }
            assert!(doca_aes_gcm_task_encrypt_get_iv(null(), &mut iv).is_null());
            assert_eq!(doca_aes_gcm_task_encrypt_get_tag_size(null()), 0);
        }
    }
}
