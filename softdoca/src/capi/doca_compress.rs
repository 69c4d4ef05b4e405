//! `doca_compress.h`: compression and decompression.

#[cfg(test)]
mod tests;

use std::ptr::NonNull;

use doca_abi::{
    doca_buf, doca_compress, doca_compress_task_compress_deflate,
    doca_compress_task_decompress_deflate, doca_compress_task_decompress_lz4_block,
    doca_compress_task_decompress_lz4_stream, doca_ctx, doca_data, doca_dev, doca_devinfo,
};

use super::doca_pe::{destroy_ctx, give_ctx};
use super::task::{buf, put_limit, put_task, task_functions, with_driver};
use super::{Handle, Keeper, borrow, check_out, doca_error_t, guard, guard_with, put, share};
use crate::accelerator::{MAX_BUF_LIST_LEN, MAX_BUF_SIZE, MAX_TASKS, Offload};
use crate::compress::{Checksums, Compress, Operation, Pools, Work};
use crate::error::Result;
use crate::progress::{Ctx, TaskOf, TaskPool};

// SAFETY: instances are given out as pointers from `Rc::into_raw(Rc<Ctx>)`, as all contexts are.
unsafe impl Handle for doca_compress {
    type Engine = Ctx;

    const KEEPER: Keeper = Keeper::Rc;
}

macro_rules! task_handles {
    ($($task:ty),*) => {
        $(
            // SAFETY: tasks of this kind are given out as pointers to what `TaskPool::allocate` made of this body.
            unsafe impl Handle for $task {
                type Engine = TaskOf<Work>;
            }
        )*
    };
}

task_handles!(
    doca_compress_task_compress_deflate,
    doca_compress_task_decompress_deflate,
    doca_compress_task_decompress_lz4_stream,
    doca_compress_task_decompress_lz4_block
);

/// Creates a compress instance on a device.
///
/// # Safety
/// `dev` is NULL or an open device; `compress` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_compress_create(
    dev: *mut doca_dev,
    compress: *mut *mut doca_compress,
) -> doca_error_t {
    guard(|| {
        check_out(compress)?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(compress, give_ctx(Compress::context(share(dev)?))) }
    })
}

/// Destroys an idle instance; `DOCA_ERROR_IN_USE` while tasks of it are allocated.
///
/// # Safety
/// `compress` is NULL or a live instance; on success it is invalid afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_compress_destroy(compress: *mut doca_compress) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { destroy_ctx(compress) })
}

/// The instance's context.
///
/// # Safety
/// Safe for any pointer: it is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_compress_as_ctx(compress: *mut doca_compress) -> *mut doca_ctx {
    compress.cast()
}

/// Gets the maximum number of tasks of an instance, all kinds together.
///
/// # Safety
/// `max_num_tasks` is NULL or writable; `compress` is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_compress_cap_get_max_num_tasks(
    compress: *mut doca_compress,
    max_num_tasks: *mut u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { put_limit(compress, max_num_tasks, MAX_TASKS) }
}

fn pools(driver: &Offload<Compress>) -> &Pools {
    &driver.accelerator().pools
}

/// Allocates a task of one kind from its pool.
///
/// # Safety
/// `compress` is NULL or a live instance, not used by another thread during the call.
unsafe fn allocate(
    compress: *const doca_compress,
    pool: fn(&Pools) -> &TaskPool,
    work: Work,
    user_data: doca_data,
) -> Result<NonNull<TaskOf<Work>>> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        with_driver(compress, |ctx, driver| {
            pool(pools(driver)).allocate(ctx, work, user_data)
        })
    }
}

/// Checksums of a task; zero for NULL.
///
/// # Safety
/// `task` is NULL or a live task, not used by another thread during the call.
unsafe fn checksums<H: Handle<Engine = TaskOf<Work>>>(task: *const H) -> Checksums {
    guard_with(Checksums::default(), || {
        // SAFETY: guaranteed by the caller.
        unsafe { borrow(task) }.map_or_else(|_| Checksums::default(), |task| task.body.checksums())
    })
}

/// Defines a kind of task: its limits and checksums here, the rest through [`task_functions!`].
macro_rules! compress_task {
    (
        $task:ident, pool $pool:ident: $get_max_buf_size:ident, $get_max_buf_list_len:ident, $get_crc:ident;
        $(#[$second_doc:meta])* $get_second:ident;
        $($functions:tt)*
    ) => {
        /// Gets the maximum size of a task's buf in bytes.
        ///
        /// # Safety
        /// `max_buffer_size` is NULL or writable; `devinfo` is not dereferenced.
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
        /// `max_buf_list_len` is NULL or writable; `devinfo` is not dereferenced.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get_max_buf_list_len(
            devinfo: *const doca_devinfo,
            max_buf_list_len: *mut u32,
        ) -> doca_error_t {
            // SAFETY: guaranteed by the caller.
            unsafe { put_limit(devinfo, max_buf_list_len, MAX_BUF_LIST_LEN as u32) }
        }

        /// CRC-32 of the uncompressed data of a successful task.
        ///
        /// # Safety
        /// The task is NULL or live, and not used by another thread during the call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get_crc(task: *const $task) -> u32 {
            // SAFETY: guaranteed by the caller.
            unsafe { checksums(task) }.crc32
        }

        $(#[$second_doc])*
        ///
        /// # Safety
        /// The task is NULL or live, and not used by another thread during the call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get_second(task: *const $task) -> u32 {
            // SAFETY: guaranteed by the caller.
            unsafe { checksums(task) }.second
        }

        task_functions! {
            $task of doca_compress, pool |driver| &pools(driver).$pool;
            $($functions)*
        }
    };
}

/// Defines the allocation of a kind of task without further arguments.
macro_rules! alloc_init {
    ($name:ident, $task:ident, $pool:ident, $operation:ident) => {
        /// Allocates a task that appends its result to the destination's data.
        ///
        /// # Safety
        /// The instance is NULL or live, and not used by another thread during the call; the bufs are NULL or stay
        /// valid while the task is in flight; `task` is NULL or writable.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            compress: *mut doca_compress,
            src_buff: *const doca_buf,
            dst_buff: *mut doca_buf,
            user_data: doca_data,
            task: *mut *mut $task,
        ) -> doca_error_t {
            // SAFETY: guaranteed by the caller.
            guard(|| unsafe {
                let work = Work::new(Operation::$operation, buf(src_buff), buf(dst_buff));
                put_task(task, || {
                    allocate(compress, |pools| &pools.$pool, work, user_data)
                })
            })
        }
    };
}

alloc_init!(
    doca_compress_task_compress_deflate_alloc_init,
    doca_compress_task_compress_deflate,
    compress_deflate,
    CompressDeflate
);
alloc_init!(
    doca_compress_task_decompress_deflate_alloc_init,
    doca_compress_task_decompress_deflate,
    decompress_deflate,
    DecompressDeflate
);
alloc_init!(
    doca_compress_task_decompress_lz4_block_alloc_init,
    doca_compress_task_decompress_lz4_block,
    decompress_lz4_block,
    DecompressLz4Block
);

/// Allocates a task that decompresses the blocks of an LZ4 frame and appends the data to the destination's.
///
/// # Safety
/// `compress` is NULL or a live instance, not used by another thread during the call; the bufs are NULL or stay valid
/// while the task is in flight; `task` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_compress_task_decompress_lz4_stream_alloc_init(
    compress: *mut doca_compress,
    has_block_checksum: u8,
    are_blocks_independent: u8,
    src_buff: *const doca_buf,
    dst_buff: *mut doca_buf,
    user_data: doca_data,
    task: *mut *mut doca_compress_task_decompress_lz4_stream,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe {
        let work = Work::new(Operation::DecompressLz4Stream, buf(src_buff), buf(dst_buff));
        work.has_block_checksum.set(has_block_checksum);
        work.are_blocks_independent.set(are_blocks_independent);
        put_task(task, || {
            allocate(
                compress,
                |pools| &pools.decompress_lz4_stream,
                work,
                user_data,
            )
        })
    })
}

/// Defines the setter and getter of a property of an LZ4 stream.
macro_rules! stream_property {
    ($property:ident, $set:ident, $get:ident) => {
        /// Sets the property; not while the task is in flight.
        ///
        /// # Safety
        /// `task` is NULL or a live task, not used by another thread during the call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set(
            task: *mut doca_compress_task_decompress_lz4_stream,
            $property: u8,
        ) {
            // SAFETY: guaranteed by the caller.
            let _ = guard(|| unsafe {
                borrow(task)?.body.$property.set($property);
                Ok(())
            });
        }

        /// The property's value, unchecked; 0 for NULL.
        ///
        /// # Safety
        /// `task` is NULL or a live task, not used by another thread during the call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(task: *const doca_compress_task_decompress_lz4_stream) -> u8 {
            guard_with(0, || {
                // SAFETY: guaranteed by the caller.
                unsafe { borrow(task) }.map_or(0, |task| task.body.$property.get())
            })
        }
    };
}

stream_property!(
    has_block_checksum,
    doca_compress_task_decompress_lz4_stream_set_has_block_checksum,
    doca_compress_task_decompress_lz4_stream_get_has_block_checksum
);
stream_property!(
    are_blocks_independent,
    doca_compress_task_decompress_lz4_stream_set_are_blocks_independent,
    doca_compress_task_decompress_lz4_stream_get_are_blocks_independent
);

compress_task! {
    doca_compress_task_compress_deflate, pool compress_deflate:
    doca_compress_cap_task_compress_deflate_get_max_buf_size,
    doca_compress_cap_task_compress_deflate_get_max_buf_list_len,
    doca_compress_task_compress_deflate_get_crc_cs;
    /// Adler-32 of the uncompressed data of a successful task.
    doca_compress_task_compress_deflate_get_adler_cs;
    doca_compress_cap_task_compress_deflate_is_supported,
    doca_compress_task_compress_deflate_set_conf(doca_compress_task_compress_deflate_completion_cb_t),
    doca_compress_task_compress_deflate_as_task,
    doca_compress_task_compress_deflate_set_src, doca_compress_task_compress_deflate_get_src,
    doca_compress_task_compress_deflate_set_dst, doca_compress_task_compress_deflate_get_dst
}

compress_task! {
    doca_compress_task_decompress_deflate, pool decompress_deflate:
    doca_compress_cap_task_decompress_deflate_get_max_buf_size,
    doca_compress_cap_task_decompress_deflate_get_max_buf_list_len,
    doca_compress_task_decompress_deflate_get_crc_cs;
    /// Adler-32 of the uncompressed data of a successful task.
    doca_compress_task_decompress_deflate_get_adler_cs;
    doca_compress_cap_task_decompress_deflate_is_supported,
    doca_compress_task_decompress_deflate_set_conf(doca_compress_task_decompress_deflate_completion_cb_t),
    doca_compress_task_decompress_deflate_as_task,
    doca_compress_task_decompress_deflate_set_src, doca_compress_task_decompress_deflate_get_src,
    doca_compress_task_decompress_deflate_set_dst, doca_compress_task_decompress_deflate_get_dst
}

compress_task! {
    doca_compress_task_decompress_lz4_stream, pool decompress_lz4_stream:
    doca_compress_cap_task_decompress_lz4_stream_get_max_buf_size,
    doca_compress_cap_task_decompress_lz4_stream_get_max_buf_list_len,
    doca_compress_task_decompress_lz4_stream_get_crc_cs;
    /// xxHash-32 of the uncompressed data of a successful task, byte-swapped: the bytes are in the order of the hash's
    /// canonical form.
    doca_compress_task_decompress_lz4_stream_get_xxh_cs;
    doca_compress_cap_task_decompress_lz4_stream_is_supported,
    doca_compress_task_decompress_lz4_stream_set_conf(doca_compress_task_decompress_lz4_stream_completion_cb_t),
    doca_compress_task_decompress_lz4_stream_as_task,
    doca_compress_task_decompress_lz4_stream_set_src, doca_compress_task_decompress_lz4_stream_get_src,
    doca_compress_task_decompress_lz4_stream_set_dst, doca_compress_task_decompress_lz4_stream_get_dst
}

compress_task! {
    doca_compress_task_decompress_lz4_block, pool decompress_lz4_block:
    doca_compress_cap_task_decompress_lz4_block_get_max_buf_size,
    doca_compress_cap_task_decompress_lz4_block_get_max_buf_list_len,
    doca_compress_task_decompress_lz4_block_get_crc_cs;
    /// xxHash-32 of the uncompressed data of a successful task, byte-swapped as for a stream.
    doca_compress_task_decompress_lz4_block_get_xxh_cs;
    doca_compress_cap_task_decompress_lz4_block_is_supported,
    doca_compress_task_decompress_lz4_block_set_conf(doca_compress_task_decompress_lz4_block_completion_cb_t),
    doca_compress_task_decompress_lz4_block_as_task,
    doca_compress_task_decompress_lz4_block_set_src, doca_compress_task_decompress_lz4_block_get_src,
    doca_compress_task_decompress_lz4_block_set_dst, doca_compress_task_decompress_lz4_block_get_dst
}

doca_abi::check_definitions!(doca_compress_functions, crate::capi::doca_compress);
