//! `doca_sha.h`: digests.

use doca_abi::{
    doca_buf, doca_data, doca_devinfo, doca_sha, doca_sha_algorithm, doca_sha_task_hash,
    doca_sha_task_hash_completion_cb_t, doca_sha_task_partial_hash,
    doca_sha_task_partial_hash_completion_cb_t, doca_task,
};

use super::instance::{instance_functions, limit_functions, task_handles};
use super::{
    as_task, borrow, buf, buf_handle, doca_error_t, generic, get, guard, not_null, put, put_task,
    with_driver,
};
use crate::accelerator::{MAX_BUF_LIST_LEN, MAX_BUF_SIZE, MAX_TASKS, Offload};
use crate::error::{Error, Result};
use crate::progress::TaskPool;
use crate::sha::{Algorithm, Hash, PartialHash, Sha};

task_handles! { Hash: doca_sha_task_hash }
task_handles! { PartialHash: doca_sha_task_partial_hash }

instance_functions! {
    doca_sha over Sha;
    doca_sha_create, doca_sha_as_ctx, doca_sha_destroy(Error::InUse)
}

limit_functions! {
    /// Gets the maximum number of bufs in a list.
    doca_sha_cap_get_max_list_buf_num_elem(*const doca_devinfo) = MAX_BUF_LIST_LEN, u32;
    /// Gets the maximum number of bytes that a task can hash.
    doca_sha_cap_get_max_src_buf_size(*const doca_devinfo) = MAX_BUF_SIZE, u64;
    /// Gets the maximum number of tasks of an instance, both kinds together.
    doca_sha_cap_get_max_num_tasks(*mut doca_sha) = MAX_TASKS, u32;
}

fn supports(devinfo: *const doca_devinfo, algorithm: doca_sha_algorithm) -> doca_error_t {
    guard(|| {
        not_null(devinfo)?;
        Algorithm::from_number(algorithm).map(drop)
    })
}

/// `DOCA_SUCCESS` for every device and algorithm.
///
/// # Safety
/// Safe for any pointer: it is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sha_cap_task_hash_get_supported(
    devinfo: *const doca_devinfo,
    algorithm: doca_sha_algorithm,
) -> doca_error_t {
    supports(devinfo, algorithm)
}

/// `DOCA_SUCCESS` for every device and algorithm.
///
/// # Safety
/// Safe for any pointer: it is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sha_cap_task_partial_hash_get_supported(
    devinfo: *const doca_devinfo,
    algorithm: doca_sha_algorithm,
) -> doca_error_t {
    supports(devinfo, algorithm)
}

/// Writes a length of an algorithm.
///
/// # Safety
/// `out` is NULL or writable; `devinfo` is not dereferenced.
unsafe fn put_len(
    devinfo: *const doca_devinfo,
    algorithm: doca_sha_algorithm,
    len: fn(Algorithm) -> usize,
    out: *mut u32,
) -> doca_error_t {
    guard(|| {
        not_null(devinfo)?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(out, len(Algorithm::from_number(algorithm)?) as u32) }
    })
}

/// Gets the length of a digest in bytes.
///
/// # Safety
/// The out-parameter is NULL or writable; `devinfo` is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sha_cap_get_min_dst_buf_size(
    devinfo: *const doca_devinfo,
    algorithm: doca_sha_algorithm,
    min_dst_buf_size: *mut u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { put_len(devinfo, algorithm, Algorithm::digest_len, min_dst_buf_size) }
}

/// Gets the block length of an algorithm in bytes.
///
/// # Safety
/// The out-parameter is NULL or writable; `devinfo` is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sha_cap_get_partial_hash_block_size(
    devinfo: *const doca_devinfo,
    algorithm: doca_sha_algorithm,
    partial_block_size: *mut u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { put_len(devinfo, algorithm, Algorithm::block_len, partial_block_size) }
}

/// Number of tasks for its binary logarithm.
fn count(log_num_tasks: u8) -> Result<u32> {
    1_u32.checked_shl(log_num_tasks.into()).ok_or_else(|| {
        Error::InvalidValue.because(format_args!(
            "expected the binary logarithm of a number of tasks, got {log_num_tasks}"
        ))
    })
}

/// Defines the functions of both kinds of tasks. `$whole` maps a body to its hash, `$changeable` checks that it may be
/// changed.
macro_rules! hash_task {
    (
        $task:ident($body:ty), pool $pool:ident, $make:expr, $whole:expr, $changeable:expr;
        $set_conf:ident($callback:ident), $alloc_init:ident, $as_task:ident,
        $set_src:ident, $get_src:ident, $set_dst:ident, $get_dst:ident, $set_algorithm:ident, $get_algorithm:ident
    ) => {
        /// Sets the callbacks and the binary logarithm of the number of tasks; only before the start.
        ///
        /// # Safety
        /// `sha` is NULL or live, and not used by another thread during the call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set_conf(
            sha: *mut doca_sha,
            task_completion_cb: $callback,
            task_error_cb: $callback,
            log_num_tasks: u8,
        ) -> doca_error_t {
            let (success, failure) = (generic(task_completion_cb), generic(task_error_cb));
            // SAFETY: guaranteed by the caller.
            guard(|| unsafe {
                with_driver(sha, |ctx, driver: &Offload<Sha>| {
                    let pool: &TaskPool = &driver.accelerator().$pool;
                    pool.configure(ctx, success, failure, count(log_num_tasks)?)
                })
            })
        }

        /// Allocates a task.
        ///
        /// # Safety
        /// `sha` is NULL or live, and not used by another thread during the call; the bufs are NULL or stay valid while
        /// the task is in flight; `task` is NULL or writable.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $alloc_init(
            sha: *mut doca_sha,
            algorithm: doca_sha_algorithm,
            src_buf: *const doca_buf,
            dst_buf: *mut doca_buf,
            user_data: doca_data,
            task: *mut *mut $task,
        ) -> doca_error_t {
            // SAFETY: guaranteed by the caller.
            guard(|| unsafe {
                put_task(task, || {
                    with_driver(sha, |ctx, driver: &Offload<Sha>| {
                        Algorithm::from_number(algorithm)?;
                        let body: $body = $make(Hash::new(algorithm, buf(src_buf), buf(dst_buf)));
                        driver.accelerator().$pool.allocate(ctx, body, user_data)
                    })
                })
            })
        }

        /// The generic task.
        ///
        /// # Safety
        /// Safe for any pointer: it is not dereferenced.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $as_task(task: *mut $task) -> *mut doca_task {
            as_task(task)
        }

        /// Sets the task's source; not allowed while the task is in flight.
        ///
        /// # Safety
        /// The task is NULL or live, and not used by another thread during the call; the buf is NULL or stays valid
        /// while the task is in flight.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set_src(
            task: *mut $task,
            src_buf: *const doca_buf,
        ) -> doca_error_t {
            guard(|| {
                // SAFETY: guaranteed by the caller.
                let (task, source) = unsafe { (borrow(task)?, buf(src_buf)) };
                $whole(&task.body)
                    .source
                    .set(Some(source.ok_or(Error::InvalidValue)?));
                Ok(())
            })
        }

        /// The source; NULL for a NULL task.
        ///
        /// # Safety
        /// The task is NULL or live, and not used by another thread during the call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get_src(task: *const $task) -> *const doca_buf {
            // SAFETY: guaranteed by the caller.
            unsafe {
                get(task, |body| {
                    buf_handle($whole(body).source.get()).cast_const()
                })
            }
        }

        /// Sets the task's destination; not while it is in flight.
        ///
        /// # Safety
        #[doc = concat!("As [`", stringify!($set_src), "`].")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set_dst(
            task: *mut $task,
            dst_buf: *mut doca_buf,
        ) -> doca_error_t {
            guard(|| {
                // SAFETY: guaranteed by the caller.
                let (task, destination) = unsafe { (borrow(task)?, buf(dst_buf)) };
                $changeable(&task.body)?;
                $whole(&task.body)
                    .destination
                    .set(Some(destination.ok_or(Error::InvalidValue)?));
                Ok(())
            })
        }

        /// The destination; NULL for a NULL task.
        ///
        /// # Safety
        /// The task is NULL or live, and not used by another thread during the call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get_dst(task: *const $task) -> *const doca_buf {
            // SAFETY: guaranteed by the caller.
            unsafe {
                get(task, |body| {
                    buf_handle($whole(body).destination.get()).cast_const()
                })
            }
        }

        /// Sets the algorithm; not while the task is in flight.
        ///
        /// # Safety
        /// The task is NULL or live, and not used by another thread during the call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set_algorithm(
            task: *mut $task,
            algorithm: doca_sha_algorithm,
        ) -> doca_error_t {
            guard(|| {
                // SAFETY: guaranteed by the caller.
                let task = unsafe { borrow(task) }?;
                Algorithm::from_number(algorithm)?;
                $changeable(&task.body)?;
                $whole(&task.body).algorithm.set(algorithm);
                Ok(())
            })
        }

        /// The algorithm; 0 for a NULL task.
        ///
        /// # Safety
        /// The task is NULL or live, and not used by another thread during the call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get_algorithm(task: *const $task) -> doca_sha_algorithm {
            // SAFETY: guaranteed by the caller.
            unsafe { get(task, |body| $whole(body).algorithm.get()) }
        }
    };
}

fn itself(hash: &Hash) -> &Hash {
    hash
}

fn always(_: &Hash) -> Result<()> {
    Ok(())
}

fn whole(partial: &PartialHash) -> &Hash {
    &partial.whole
}

hash_task! {
    doca_sha_task_hash(Hash), pool hashes, std::convert::identity, itself, always;
    doca_sha_task_hash_set_conf(doca_sha_task_hash_completion_cb_t), doca_sha_task_hash_alloc_init,
    doca_sha_task_hash_as_task, doca_sha_task_hash_set_src, doca_sha_task_hash_get_src,
    doca_sha_task_hash_set_dst, doca_sha_task_hash_get_dst,
    doca_sha_task_hash_set_algorithm, doca_sha_task_hash_get_algorithm
}

hash_task! {
    doca_sha_task_partial_hash(PartialHash), pool partial_hashes, PartialHash::new, whole,
        PartialHash::expect_fresh;
    doca_sha_task_partial_hash_set_conf(doca_sha_task_partial_hash_completion_cb_t),
    doca_sha_task_partial_hash_alloc_init, doca_sha_task_partial_hash_as_task,
    doca_sha_task_partial_hash_set_src, doca_sha_task_partial_hash_get_src,
    doca_sha_task_partial_hash_set_dst, doca_sha_task_partial_hash_get_dst,
    doca_sha_task_partial_hash_set_algorithm, doca_sha_task_partial_hash_get_algorithm
}

/// Resets the task for another message; not while it is in flight.
///
/// # Safety
/// The task is NULL or live, and not used by another thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sha_task_partial_hash_reset(
    task: *mut doca_sha_task_partial_hash,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { borrow(task) }?.body.reset();
        Ok(())
    })
}

/// Marks the source as the last part of the message.
///
/// # Safety
/// The task is NULL or live, and not used by another thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sha_task_partial_hash_set_is_final_buf(
    task: *mut doca_sha_task_partial_hash,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let task = unsafe { borrow(task) }?;
        if task.is_in_flight() {
            return Err(Error::BadState.because("the partial hash is in progress"));
        }
        task.body.is_final.set(true);
        Ok(())
    })
}

/// 1 if the source is the last part of the message, otherwise 0; 0 for a NULL task.
///
/// # Safety
/// The task is NULL or live, and not used by another thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sha_task_partial_hash_get_is_final(
    task: *const doca_sha_task_partial_hash,
) -> u8 {
    // SAFETY: guaranteed by the caller.
    unsafe { get(task, |body| u8::from(body.is_final.get())) }
}

/// 1 if the digest was appended to the destination, otherwise 0; 0 for a NULL task.
///
/// # Safety
/// The task is NULL or live, and not used by another thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sha_task_partial_hash_get_has_result(
    task: *const doca_sha_task_partial_hash,
) -> u8 {
    // SAFETY: guaranteed by the caller.
    unsafe { get(task, |body: &PartialHash| u8::from(body.has_result())) }
}

doca_abi::check_definitions!(doca_sha_functions, crate::capi::doca_sha);

#[cfg(test)]
mod tests {
    //! Digests of the examples in FIPS 180, of lists and of parts; invalid arguments.

    use std::ptr::{null, null_mut};

    use doca_abi::{DOCA_SHA_ALGORITHM_SHA1, DOCA_SHA_ALGORITHM_SHA256, DOCA_SHA_ALGORITHM_SHA512};

    use super::super::doca_pe::{doca_ctx_stop, doca_task_try_submit};
    use super::super::testing::{
        Bufs, Instance, Memory, PLACEMENTS, Placement, any_devinfo, c, done, ok, pattern,
    };
    use super::*;
    use crate::buffer::Buf;
    use crate::memory::{ExportKind, Permissions};

    const ALGORITHMS: [u32; 3] = [
        DOCA_SHA_ALGORITHM_SHA1,
        DOCA_SHA_ALGORITHM_SHA256,
        DOCA_SHA_ALGORITHM_SHA512,
    ];

    /// Digests of "abc" and of the 448-bit message in the examples of FIPS 180-4.
    const ABC: [&str; 3] = [
        "a9993e364706816aba3e25717850c26c9cd0d89d",
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
     2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
    ];
    const LONGER: &[u8] = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    const OF_LONGER: [&str; 2] = [
        "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
    ];

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn digest_len(algorithm: u32) -> usize {
        let mut len = 0;
        // SAFETY: the out-parameter is valid.
        ok(unsafe { doca_sha_cap_get_min_dst_buf_size(any_devinfo(), algorithm, &mut len) });
        len as usize
    }

    fn start() -> Instance<doca_sha> {
        Instance::start(doca_sha_create, doca_sha_destroy, |sha| {
            let whole = Some(done::<doca_sha_task_hash> as _);
            let part = Some(done::<doca_sha_task_partial_hash> as _);
            // SAFETY: a live instance.
            unsafe {
                ok(doca_sha_task_hash_set_conf(sha, whole, whole, 4));
                ok(doca_sha_task_partial_hash_set_conf(sha, part, part, 0));
            }
        })
    }

    fn hash(
        sha: &Instance<doca_sha>,
        algorithm: u32,
        from: &Buf,
        to: &Buf,
    ) -> *mut doca_sha_task_hash {
        let user = doca_data { u64: 1 };
        // SAFETY: live handles and a valid out-parameter.
        sha.task(|task| unsafe {
            doca_sha_task_hash_alloc_init(sha.handle, algorithm, c(from), c(to), user, task)
        })
    }

    fn partial(
        sha: &Instance<doca_sha>,
        algorithm: u32,
        from: &Buf,
        to: &Buf,
    ) -> *mut doca_sha_task_partial_hash {
        let user = doca_data { u64: 2 };
        // SAFETY: live handles and a valid out-parameter.
        sha.task(|task| unsafe {
            doca_sha_task_partial_hash_alloc_init(sha.handle, algorithm, c(from), c(to), user, task)
        })
    }

    #[test]
    fn digests_are_those_of_the_standard() {
        let (sha, memory, bufs) = (start(), Memory::local(8192), Bufs::new());
        memory.write(0, b"abc");
        memory.write(100, LONGER);
        for (index, algorithm) in ALGORITHMS.into_iter().enumerate() {
            let len = digest_len(algorithm);
            let to = bufs.room(&memory.mmap, 1000, len);
            let task = hash(&sha, algorithm, bufs.data(&memory.mmap, 0, 3), to);
            assert_eq!(sha.run(task), 0);
            assert_eq!(to.data_len(), len);
            assert_eq!(hex(&memory.read(1000, len)), ABC[index]);
            // The same task with another source; existing data is kept before the digest.
            let Some(expected) = OF_LONGER.get(index) else {
                continue;
            };
            let after = bufs.room(&memory.mmap, 2000, len + 5);
            after.set_data_len(5).expect("inside the buf");
            let source = bufs.data(&memory.mmap, 100, LONGER.len());
            // SAFETY: live handles.
            unsafe {
                ok(doca_sha_task_hash_set_src(task, c(source)));
                ok(doca_sha_task_hash_set_dst(task, c(after)));
                assert_eq!(doca_sha_task_hash_get_src(task).cast_mut(), c(source));
                assert_eq!(doca_sha_task_hash_get_dst(task).cast_mut(), c(after));
            }
            assert_eq!(sha.run(task), 0);
            assert_eq!(after.data_len(), len + 5);
            assert_eq!(hex(&memory.read(2005, len)), *expected);
        }
    }

    #[test]
    fn lists_and_other_hosts_memory_give_the_same_digest() {
        let data = pattern(3, 100_000);
        for algorithm in ALGORITHMS {
            let (sha, memory, bufs) = (start(), Memory::local(200_000), Bufs::new());
            memory.write(0, &data);
            let len = digest_len(algorithm);
            let whole = bufs.room(&memory.mmap, 150_000, len);
            let source = bufs.data(&memory.mmap, 0, data.len());
            assert_eq!(sha.run(hash(&sha, algorithm, source, whole)), 0);
            let expected = memory.read(150_000, len);

            let list = bufs.data_list(&memory.mmap, 0, &[1, 63, 40_000, 59_936]);
            let halves = bufs.room_list(&memory.mmap, 160_000, &[len - 1, 1]);
            assert_eq!(sha.run(hash(&sha, algorithm, list, halves)), 0);
            assert_eq!(memory.read(160_000, len), expected);
            for placement in PLACEMENTS {
                let (theirs, import) = Memory::shared(data.len(), placement);
                theirs.write(0, &data);
                let to = bufs.room(&memory.mmap, 170_000, len);
                let source = bufs.data(&import, 0, data.len());
                assert_eq!(sha.run(hash(&sha, algorithm, source, to)), 0);
                assert_eq!(memory.read(170_000, len), expected, "{placement:?}");
            }
            // The destination overlaps the source: the digest overwrites the first bytes.
            let over = bufs.room(&memory.mmap, 0, len);
            assert_eq!(sha.run(hash(&sha, algorithm, source, over)), 0);
            assert_eq!(memory.read(0, len), expected);
        }
    }

    #[test]
    fn parts_make_the_digest_of_the_whole() {
        for algorithm in ALGORITHMS {
            let (sha, memory, bufs) = (start(), Memory::local(100_000), Bufs::new());
            memory.write(0, &pattern(9, 50_000));
            let (len, mut block) = (digest_len(algorithm), 0);
            // SAFETY: a valid out-parameter.
            ok(unsafe {
                doca_sha_cap_get_partial_hash_block_size(any_devinfo(), algorithm, &mut block)
            });
            let block = block as usize;
            let whole = bufs.room(&memory.mmap, 60_000, len);
            let source = bufs.data(&memory.mmap, 0, 50_000);
            assert_eq!(sha.run(hash(&sha, algorithm, source, whole)), 0);

            let to = bufs.room(&memory.mmap, 70_000, 2 * len);
            let first = bufs.data(&memory.mmap, 0, 3 * block);
            let task = partial(&sha, algorithm, first, to);
            let step = |offset, len| {
                let part = bufs.data(&memory.mmap, offset, len);
                // SAFETY: live handles.
                ok(unsafe { doca_sha_task_partial_hash_set_src(task, c(part)) });
                sha.run(task)
            };
            // SAFETY: live handles.
            unsafe {
                assert_eq!(sha.run(task), 0);
                assert_eq!(doca_sha_task_partial_hash_get_has_result(task), 0);
                let bad_state = Error::BadState.code();
                assert_eq!(
                    doca_sha_task_partial_hash_set_dst(task, c(whole)),
                    bad_state
                );
                assert_eq!(
                    doca_sha_task_partial_hash_set_algorithm(task, algorithm),
                    bad_state
                );
                // A part of another length is refused and has no effect.
                assert_eq!(step(3 * block, block + 1), Error::InvalidValue.code());
                assert_eq!(step(3 * block, 20 * block), 0);
                ok(doca_sha_task_partial_hash_set_is_final_buf(task));
                assert_eq!(doca_sha_task_partial_hash_get_is_final(task), 1);
                assert_eq!(step(23 * block, 50_000 - 23 * block), 0);
                assert_eq!(doca_sha_task_partial_hash_get_has_result(task), 1);
                assert_eq!(to.data_len(), len);
                assert_eq!(memory.read(70_000, len), memory.read(60_000, len));
                // The message is complete; after a reset, another one can be hashed.
                assert_eq!(step(0, block), bad_state);
                ok(doca_sha_task_partial_hash_reset(task));
                assert_eq!(doca_sha_task_partial_hash_get_is_final(task), 0);
                assert_eq!(doca_sha_task_partial_hash_get_has_result(task), 0);
                ok(doca_sha_task_partial_hash_set_algorithm(task, algorithm));
                ok(doca_sha_task_partial_hash_set_dst(task, c(to)));
                assert_eq!(step(0, 23 * block), 0);
                ok(doca_sha_task_partial_hash_set_is_final_buf(task));
                assert_eq!(step(23 * block, 50_000 - 23 * block), 0);
            }
            assert_eq!(memory.read(70_000 + len, len), memory.read(60_000, len));
        }
    }

    #[test]
    fn a_failure_fails_its_task_with_a_reason() {
        let memory = Memory::new(
            8192,
            Permissions::LOCAL_READ_WRITE | Permissions::RDMA_READ,
            Placement::Pages,
        );
        let read_only = Memory::new(4096, Permissions::empty(), Placement::Pages);
        let (sha, rdma, bufs) = (start(), memory.import(ExportKind::Rdma), Bufs::new());
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
            (data, bufs.room(&memory.mmap, 100, 31), Error::TooBig),
            (data, bufs.room(&read_only.mmap, 0, 32), Error::NotPermitted),
            (bufs.data(&rdma, 0, 8), room, Error::NotPermitted),
        ] {
            let task = hash(&sha, DOCA_SHA_ALGORITHM_SHA256, from, to);
            // SAFETY: a live task.
            let attempt = unsafe { doca_task_try_submit(task.cast()) };
            assert_eq!(attempt, error.code(), "before it begins");
            assert_eq!(sha.run(task), error.code());
            assert_eq!(to.data_len(), 0);
        }
        // The context keeps running.
        assert_eq!(
            sha.run(hash(&sha, DOCA_SHA_ALGORITHM_SHA256, data, room)),
            0
        );
    }

    #[test]
    fn tasks_in_flight_are_flushed_when_the_context_stops() {
        let (sha, memory, bufs) = (start(), Memory::local(4096), Bufs::new());
        let (from, to) = (
            bufs.data(&memory.mmap, 0, 64),
            bufs.room(&memory.mmap, 100, 64),
        );
        let task = hash(&sha, DOCA_SHA_ALGORITHM_SHA512, from, to);
        sha.submit(task);
        // SAFETY: a live handle.
        let stopped = unsafe { doca_ctx_stop(sha.ctx()) };
        assert_eq!(stopped, Error::InProgress.code());
        assert_eq!(sha.wait(1), [(1, Error::Shutdown.code())]);
        assert_eq!(to.data_len(), 0);
    }

    #[test]
    fn limits_are_reported_and_invalid_arguments_refused() {
        let invalid = Error::InvalidValue.code();
        let (mut list, mut size, mut len, mut tasks) = (0, 0, 0, 0);
        let (sha, memory, bufs) = (start(), Memory::local(4096), Bufs::new());
        let buf = c(bufs.data(&memory.mmap, 0, 64));
        let none = doca_data { u64: 0 };
        // SAFETY: NULL, live handles and valid out-parameters.
        unsafe {
            ok(doca_sha_cap_get_max_list_buf_num_elem(
                any_devinfo(),
                &mut list,
            ));
            ok(doca_sha_cap_get_max_src_buf_size(any_devinfo(), &mut size));
            ok(doca_sha_cap_get_max_num_tasks(sha.handle, &mut tasks));
            assert!(list >= 32 && size >= 2 << 20 && tasks >= 1024);
            for (algorithm, digest, block) in [(0, 20, 64), (1, 32, 64), (2, 64, 128)] {
                ok(doca_sha_cap_task_hash_get_supported(
                    any_devinfo(),
                    algorithm,
                ));
                ok(doca_sha_cap_task_partial_hash_get_supported(
                    any_devinfo(),
                    algorithm,
                ));
                assert_eq!(digest_len(algorithm), digest);
                ok(doca_sha_cap_get_partial_hash_block_size(
                    any_devinfo(),
                    algorithm,
                    &mut len,
                ));
                assert_eq!(len, block);
            }
            assert_eq!(
                doca_sha_cap_task_hash_get_supported(any_devinfo(), 3),
                invalid
            );
            assert_eq!(doca_sha_cap_task_hash_get_supported(null(), 0), invalid);
            assert_eq!(
                doca_sha_cap_get_min_dst_buf_size(any_devinfo(), 3, &mut len),
                invalid
            );
            let done = Some(done::<doca_sha_task_hash> as _);
            assert_eq!(
                doca_sha_task_hash_set_conf(sha.handle, done, done, 1),
                Error::BadState.code(),
                "it is running"
            );
            let mut task = null_mut();
            assert_eq!(
                doca_sha_task_hash_alloc_init(sha.handle, 3, buf, buf, none, &mut task),
                invalid
            );
            assert_eq!(
                doca_sha_task_hash_alloc_init(null_mut(), 0, buf, buf, none, &mut task),
                invalid
            );
            let task = hash(
                &sha,
                0,
                bufs.data(&memory.mmap, 0, 1),
                bufs.room(&memory.mmap, 99, 20),
            );
            assert_eq!(doca_sha_task_hash_set_algorithm(task, 3), invalid);
            assert_eq!(doca_sha_task_hash_get_algorithm(task), 0);
            assert_eq!(doca_sha_task_hash_set_src(task, null()), invalid);
            assert_eq!(doca_sha_task_hash_set_dst(null_mut(), buf), invalid);
            assert!(doca_sha_task_hash_get_dst(null()).is_null());
            assert_eq!(doca_sha_task_partial_hash_reset(null_mut()), invalid);
            assert_eq!(doca_sha_task_partial_hash_get_has_result(null()), 0);
        }
    }

    #[test]
    fn the_number_of_tasks_is_given_by_its_logarithm() {
        let (sha, memory, bufs) = (start(), Memory::local(4096), Bufs::new());
        let (from, to) = (
            bufs.data(&memory.mmap, 0, 64),
            bufs.room(&memory.mmap, 100, 64),
        );
        for _ in 0..16 {
            hash(&sha, 0, from, to);
        }
        let (mut task, none) = (null_mut(), doca_data { u64: 0 });
        // SAFETY: live handles and a valid out-parameter.
        let more = unsafe {
            doca_sha_task_hash_alloc_init(sha.handle, 0, c(from), c(to), none, &mut task)
        };
        assert_eq!(more, Error::NoMemory.code());
    }
}
