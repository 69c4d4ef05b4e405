//! `doca_compress.h`: compression and decompression.

use std::ptr::NonNull;

use doca_abi::{
    doca_buf, doca_compress, doca_compress_task_compress_deflate,
    doca_compress_task_decompress_deflate, doca_compress_task_decompress_lz4_block,
    doca_compress_task_decompress_lz4_stream, doca_data, doca_devinfo,
};

use super::instance::{instance_functions, limit_functions, task_handles};
use super::{
    Handle, borrow, buf, doca_error_t, guard, guard_with, put_limit, put_task, task_functions,
    with_driver,
};
use crate::accelerator::{MAX_BUF_LIST_LEN, MAX_BUF_SIZE, MAX_TASKS, Offload};
use crate::compress::{Checksums, Compress, Operation, Pools, Work};
use crate::error::{Error, Result};
use crate::progress::{TaskOf, TaskPool};

task_handles! {
    Work:
    doca_compress_task_compress_deflate,
    doca_compress_task_decompress_deflate,
    doca_compress_task_decompress_lz4_stream,
    doca_compress_task_decompress_lz4_block
}

instance_functions! {
    doca_compress over Compress;
    doca_compress_create, doca_compress_as_ctx, doca_compress_destroy(Error::InUse)
}

limit_functions! {
    /// Gets the maximum number of tasks of an instance, all kinds together.
    doca_compress_cap_get_max_num_tasks(*mut doca_compress) = MAX_TASKS, u32;
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

/// Defines a kind of task: its limits and checksums here, its other functions with [`task_functions!`].
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

#[cfg(test)]
mod tests {
    //! Compression through the C functions.

    use std::io::Write as _;
    use std::ptr::{null, null_mut};

    use doca_abi::DOCA_CTX_STATE_RUNNING;
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};

    use super::super::doca_pe::*;
    use super::super::testing::*;
    use super::*;
    use crate::buffer::Buf;
    use crate::error::Error;
    use crate::memory::{ExportKind, Permissions};

    const NONE: doca_data = doca_data { u64: 0 };

    fn start() -> Instance<doca_compress> {
        Instance::start(doca_compress_create, doca_compress_destroy, |compress| {
            macro_rules! configure {
            ($($set_conf:ident: $task:ty),*) => { $(
                ok($set_conf(compress, Some(done::<$task>), Some(done::<$task>), 8));
            )* };
        }
            // SAFETY: a live instance.
            unsafe {
                configure!(
                    doca_compress_task_compress_deflate_set_conf: doca_compress_task_compress_deflate,
                    doca_compress_task_decompress_deflate_set_conf: doca_compress_task_decompress_deflate,
                    doca_compress_task_decompress_lz4_stream_set_conf: doca_compress_task_decompress_lz4_stream,
                    doca_compress_task_decompress_lz4_block_set_conf: doca_compress_task_decompress_lz4_block
                );
            }
        })
    }

    macro_rules! allocate {
    ($name:ident, $alloc_init:ident, $task:ty $(, $flag:ident)*) => {
        fn $name(compress: &Instance<doca_compress>, $($flag: u8,)* from: &Buf, to: &Buf) -> *mut $task {
            // SAFETY: live handles and a valid out-parameter.
            compress.task(|task| unsafe { $alloc_init(compress.handle, $($flag,)* c(from), c(to), NONE, task) })
        }
    };
}
    allocate!(
        deflate,
        doca_compress_task_compress_deflate_alloc_init,
        doca_compress_task_compress_deflate
    );
    allocate!(
        inflate,
        doca_compress_task_decompress_deflate_alloc_init,
        doca_compress_task_decompress_deflate
    );
    allocate!(
        lz4_block,
        doca_compress_task_decompress_lz4_block_alloc_init,
        doca_compress_task_decompress_lz4_block
    );
    allocate!(
        lz4_stream,
        doca_compress_task_decompress_lz4_stream_alloc_init,
        doca_compress_task_decompress_lz4_stream,
        checksums,
        independent
    );

    /// Text with repetitions, and incompressible noise.
    fn content(len: usize) -> Vec<u8> {
        let text = (0u32..).flat_map(|line| format!("line {line}\n").into_bytes());
        let noise =
            (0u32..).map(|at| (at.wrapping_mul(2_654_435_761).rotate_left(at % 31) >> 13) as u8);
        text.take(len / 2)
            .chain(noise.take(len - len / 2))
            .collect()
    }

    /// An LZ4 frame with a content checksum, as written by the command `lz4`.
    fn frame(content: &[u8], checksums: bool, independent: bool) -> Vec<u8> {
        let mode = if independent {
            BlockMode::Independent
        } else {
            BlockMode::Linked
        };
        let info = FrameInfo::new()
            .block_mode(mode)
            .block_size(BlockSize::Max64KB)
            .block_checksums(checksums)
            .content_checksum(true);
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(content).expect("memory");
        encoder.finish().expect("memory")
    }

    /// Length of a frame's header and trailer in bytes.
    const FRAME: (usize, usize) = (7, 8);

    #[test]
    fn failed_tasks_change_neither_destination_nor_context() {
        let memory = Memory::new(
            1 << 20,
            Permissions::LOCAL_READ_WRITE | Permissions::RDMA_READ,
            Placement::Pages,
        );
        let (compress, bufs) = (start(), Bufs::new());
        let (read_only, rdma) = (
            Memory::new(4096, Permissions::empty(), Placement::Pages),
            memory.import(ExportKind::Rdma),
        );
        let content = content(100_000);
        let frame = frame(&content, false, true);
        memory.write(0, &frame);
        let len = frame.len() - FRAME.0 - FRAME.1;
        let data = |len| bufs.data(&memory.mmap, FRAME.0, len);
        let room = |len| bufs.room(&memory.mmap, 500_000, len);
        for (from, to, error) in [
            (data(0), room(100_000), Error::InvalidValue),
            (data(len), room(99_999), Error::IoFailed),
            (data(len), room(0), Error::IoFailed),
            (data(len - 1), room(100_000), Error::IoFailed),
            (data(len + 4), room(100_000), Error::IoFailed),
            (
                data(len),
                bufs.room(&read_only.mmap, 0, 4096),
                Error::NotPermitted,
            ),
            (
                bufs.data(&rdma, FRAME.0, len),
                room(100_000),
                Error::NotPermitted,
            ),
        ] {
            memory.write(599_000, &[0x5a; 2000]);
            let task = lz4_stream(&compress, 0, 1, from, to);
            if error != Error::IoFailed {
                // Errors in the content are detected only by the decompression.
                // SAFETY: a live task.
                assert_eq!(unsafe { doca_task_try_submit(task.cast()) }, error.code());
            }
            assert_eq!(compress.run(task), error.code());
            assert_eq!(to.data_len(), 0);
            assert!(memory.read(600_000, 1000) == [0x5a; 1000]);
            compress.free_tasks();
        }
        let task = inflate(&compress, data(len), room(100_000));
        assert_eq!(compress.run(task), Error::IoFailed.code());
        // SAFETY: a live task.
        unsafe { doca_compress_task_decompress_deflate_set_src(task, null()) };
        assert_eq!(compress.run(task), Error::InvalidValue.code());
        let to = room(1000);
        assert_eq!(
            compress.run(deflate(&compress, data(len), to)),
            Error::IoFailed.code()
        );
        assert_eq!(to.data_len(), 0);
        assert_eq!(compress.state(), DOCA_CTX_STATE_RUNNING);
        assert_eq!(
            compress.run(lz4_stream(&compress, 0, 1, data(len), room(100_000))),
            0
        );
    }

    #[test]
    fn task_properties_can_be_read_back() {
        let (compress, memory, bufs) = (start(), Memory::local(8192), Bufs::new());
        let (first, second) = (
            bufs.data(&memory.mmap, 0, 128),
            bufs.room(&memory.mmap, 1024, 128),
        );
        macro_rules! check {
            ($new:expr, $as_task:ident, $set_from:ident, $get_from:ident, $set_to:ident, $get_to:ident) => {
                let task = $new;
                // SAFETY: a live task, and NULL.
                unsafe {
                    assert_eq!($as_task(task).cast(), task);
                    assert_eq!(
                        ($get_from(task).cast_mut(), $get_to(task)),
                        (c(first), c(second))
                    );
                    $set_from(task, c(second));
                    $set_to(task, c(first));
                    assert_eq!(
                        ($get_from(task).cast_mut(), $get_to(task)),
                        (c(second), c(first))
                    );
                    $set_from(null_mut(), null());
                    $set_to(null_mut(), null_mut());
                    assert!($get_from(null()).is_null() && $get_to(null()).is_null());
                }
            };
        }
        check!(
            deflate(&compress, first, second),
            doca_compress_task_compress_deflate_as_task,
            doca_compress_task_compress_deflate_set_src,
            doca_compress_task_compress_deflate_get_src,
            doca_compress_task_compress_deflate_set_dst,
            doca_compress_task_compress_deflate_get_dst
        );
        check!(
            inflate(&compress, first, second),
            doca_compress_task_decompress_deflate_as_task,
            doca_compress_task_decompress_deflate_set_src,
            doca_compress_task_decompress_deflate_get_src,
            doca_compress_task_decompress_deflate_set_dst,
            doca_compress_task_decompress_deflate_get_dst
        );
        check!(
            lz4_block(&compress, first, second),
            doca_compress_task_decompress_lz4_block_as_task,
            doca_compress_task_decompress_lz4_block_set_src,
            doca_compress_task_decompress_lz4_block_get_src,
            doca_compress_task_decompress_lz4_block_set_dst,
            doca_compress_task_decompress_lz4_block_get_dst
        );
        check!(
            lz4_stream(&compress, 0, 1, first, second),
            doca_compress_task_decompress_lz4_stream_as_task,
            doca_compress_task_decompress_lz4_stream_set_src,
            doca_compress_task_decompress_lz4_stream_get_src,
            doca_compress_task_decompress_lz4_stream_set_dst,
            doca_compress_task_decompress_lz4_stream_get_dst
        );
    }

    #[test]
    fn limits_are_reported_and_nulls_refused() {
        let invalid = Error::InvalidValue.code();
        let (mut len, mut size, mut tasks) = (0, 0, 0);
        let compress = start();
        macro_rules! check {
        ($($is_supported:ident, $max_size:ident, $max_len:ident;)*) => { $(
            assert_eq!(($is_supported(any_devinfo()), $is_supported(null())), (0, invalid));
            ok($max_size(any_devinfo(), &mut size));
            ok($max_len(any_devinfo(), &mut len));
            assert!(size >= 2 << 20 && len >= 1, "{size} {len}");
            assert_eq!(($max_size(null(), &mut size), $max_len(any_devinfo(), null_mut())), (invalid, invalid));
        )* };
    }
        // SAFETY: NULL, a live handle, or a valid out-parameter.
        unsafe {
            check! {
                doca_compress_cap_task_compress_deflate_is_supported,
                doca_compress_cap_task_compress_deflate_get_max_buf_size,
                doca_compress_cap_task_compress_deflate_get_max_buf_list_len;
                doca_compress_cap_task_decompress_deflate_is_supported,
                doca_compress_cap_task_decompress_deflate_get_max_buf_size,
                doca_compress_cap_task_decompress_deflate_get_max_buf_list_len;
                doca_compress_cap_task_decompress_lz4_stream_is_supported,
                doca_compress_cap_task_decompress_lz4_stream_get_max_buf_size,
                doca_compress_cap_task_decompress_lz4_stream_get_max_buf_list_len;
                doca_compress_cap_task_decompress_lz4_block_is_supported,
                doca_compress_cap_task_decompress_lz4_block_get_max_buf_size,
                doca_compress_cap_task_decompress_lz4_block_get_max_buf_list_len;
            }
            ok(doca_compress_cap_get_max_num_tasks(
                compress.handle,
                &mut tasks,
            ));
            assert!(tasks >= 1024);
            assert_eq!(
                doca_compress_cap_get_max_num_tasks(null_mut(), &mut tasks),
                invalid
            );
            assert_eq!(doca_compress_create(null_mut(), null_mut()), invalid);
            assert_eq!(doca_compress_destroy(null_mut()), invalid);
            assert_eq!(doca_compress_destroy(compress.handle), Error::InUse.code());
            assert_eq!(doca_compress_as_ctx(compress.handle), compress.ctx());
            assert_eq!(
                doca_compress_task_decompress_lz4_stream_get_xxh_cs(null()),
                0
            );
            assert_eq!(doca_compress_task_compress_deflate_get_crc_cs(null()), 0);
        }
    }

    #[test]
    fn the_blocks_of_a_frame_are_decompressed() {
        let (compress, memory, bufs) = (start(), Memory::local(1 << 20), Bufs::new());
        for (checksums, independent) in [(0, 1), (1, 1), (0, 0), (1, 0)] {
            let content = content(200_000);
            let frame = frame(&content, checksums == 1, independent == 1);
            memory.write(0, &frame);
            let from = bufs.data(&memory.mmap, FRAME.0, frame.len() - FRAME.0 - FRAME.1);
            let to = bufs.room_list(&memory.mmap, 500_000, &[10, 150_000, 100_000]);
            to.set_data_len(2).expect("inside the buf");
            let task = lz4_stream(&compress, checksums, independent, from, to);
            assert_eq!(compress.run(task), 0);
            assert_eq!(to.list_data_len(), 200_002);
            assert!(memory.read(500_002, 200_000) == content);
            // Programs load the frame's last word, swap its bytes, and compare.
            let (_, last_word) = frame.split_last_chunk().expect("a checksum");
            // SAFETY: a live task.
            unsafe {
                let xxh = doca_compress_task_decompress_lz4_stream_get_xxh_cs(task);
                assert_eq!(xxh, u32::from_le_bytes(*last_word).swap_bytes());
                let crc = doca_compress_task_decompress_lz4_stream_get_crc_cs(task);
                assert_eq!(crc, crc32fast::hash(&content));
                assert_eq!(
                    doca_compress_task_decompress_lz4_stream_get_has_block_checksum(task),
                    checksums
                );
                assert_eq!(
                    doca_compress_task_decompress_lz4_stream_get_are_blocks_independent(task),
                    independent
                );
            }
        }
    }

    #[test]
    fn stream_properties_can_be_set_later() {
        let (compress, memory, bufs) = (start(), Memory::local(1 << 20), Bufs::new());
        let content = content(150_000);
        let frame = frame(&content, true, false);
        memory.write(0, &frame);
        let from = bufs.data(&memory.mmap, FRAME.0, frame.len() - FRAME.0 - FRAME.1);
        let to = bufs.room(&memory.mmap, 500_000, 200_000);
        let task = lz4_stream(&compress, 0, 1, from, to);
        assert_eq!(compress.run(task), Error::IoFailed.code());
        assert_eq!(to.data_len(), 0);
        // SAFETY: a live task, and NULL.
        unsafe {
            doca_compress_task_decompress_lz4_stream_set_has_block_checksum(task, 1);
            doca_compress_task_decompress_lz4_stream_set_are_blocks_independent(task, 0);
            doca_compress_task_decompress_lz4_stream_set_has_block_checksum(null_mut(), 1);
            assert_eq!(
                doca_compress_task_decompress_lz4_stream_get_has_block_checksum(null()),
                0
            );
        }
        assert_eq!(compress.run(task), 0);
        assert!(memory.read(500_000, 150_000) == content);
    }

    /// Programs may read checksums late, when source, destination and properties have already been reused.
    #[test]
    fn checksums_are_unaffected_by_later_changes() {
        let (compress, memory, bufs) = (start(), Memory::local(1 << 20), Bufs::new());
        // Only the source of the first run is short enough to be kept.
        for len in [10_000, 300_000] {
            let content = content(len);
            let frame = frame(&content, false, true);
            memory.write(0, &frame);
            let from = bufs.data(&memory.mmap, FRAME.0, frame.len() - FRAME.0 - FRAME.1);
            let task = lz4_stream(
                &compress,
                0,
                1,
                from,
                bufs.room(&memory.mmap, 500_000, 400_000),
            );
            // SAFETY: a live task.
            let checksums = || unsafe {
                (
                    doca_compress_task_decompress_lz4_stream_get_crc_cs(task),
                    doca_compress_task_decompress_lz4_stream_get_xxh_cs(task).swap_bytes(),
                )
            };
            let expected = (
                crc32fast::hash(&content),
                crate::engines::lz4::xxh32(&content),
            );
            assert_eq!(checksums(), (0, 0), "before it has run");
            assert_eq!(compress.run(task), 0);
            let other = lz4_block(
                &compress,
                bufs.data(&memory.mmap, 0, 40),
                bufs.room(&memory.mmap, 950_000, 1000),
            );
            assert_eq!(compress.run(other), Error::IoFailed.code());
            memory.write(0, &[0xff; 1000]);
            memory.write(500_000, &[0xff; 1000]);
            // SAFETY: a live task.
            unsafe { doca_compress_task_decompress_lz4_stream_set_has_block_checksum(task, 1) };
            assert_eq!(checksums(), expected);
            assert_eq!(checksums(), expected, "again");
            assert_eq!(compress.run(task), Error::IoFailed.code());
            assert_eq!(checksums(), (0, 0), "after a failure");
        }
    }

    #[test]
    fn single_lz4_blocks_are_decompressed() {
        let (compress, memory, bufs) = (start(), Memory::local(1 << 20), Bufs::new());
        let content = content(300_000);
        let block = lz4_flex::block::compress(&content);
        memory.write(0, &block);
        let to = bufs.room(&memory.mmap, 500_000, 300_000);
        let task = lz4_block(&compress, bufs.data(&memory.mmap, 0, block.len()), to);
        assert_eq!(compress.run(task), 0);
        assert!(memory.read(500_000, 300_000) == content);
        // SAFETY: a live task.
        unsafe {
            assert_eq!(
                doca_compress_task_decompress_lz4_block_get_crc_cs(task),
                crc32fast::hash(&content)
            );
            let xxh = doca_compress_task_decompress_lz4_block_get_xxh_cs(task);
            assert_eq!(xxh.swap_bytes(), crate::engines::lz4::xxh32(&content));
        }
    }

    #[test]
    fn deflate_compresses_and_decompresses() {
        let (compress, memory, bufs) = (start(), Memory::local(1 << 20), Bufs::new());
        let content = content(100_000);
        memory.write(0, &content);
        let middle = bufs.room_list(&memory.mmap, 200_000, &[1000, 150_000]);
        let task = deflate(
            &compress,
            bufs.data_list(&memory.mmap, 0, &[1, 99_999]),
            middle,
        );
        assert_eq!(compress.run(task), 0);
        let adler = simd_adler32::adler32(&content.as_slice());
        // SAFETY: a live task.
        unsafe {
            assert_eq!(
                doca_compress_task_compress_deflate_get_crc_cs(task),
                crc32fast::hash(&content)
            );
            assert_eq!(
                doca_compress_task_compress_deflate_get_adler_cs(task),
                adler
            );
        }
        let len = middle.list_data_len();
        assert!(len > 50_000 && len < 90_000, "{len}");
        let to = bufs.room(&memory.mmap, 500_000, 100_000);
        let task = inflate(&compress, middle, to);
        assert_eq!(compress.run(task), 0);
        assert!(memory.read(500_000, 100_000) == content);
        // SAFETY: a live task.
        unsafe {
            assert_eq!(
                doca_compress_task_decompress_deflate_get_crc_cs(task),
                crc32fast::hash(&content)
            );
            assert_eq!(
                doca_compress_task_decompress_deflate_get_adler_cs(task),
                adler
            );
        }
    }

    #[test]
    fn memory_of_another_process_is_source_and_destination() {
        let content = content(50_000);
        let frame = frame(&content, false, true);
        let len = frame.len() - FRAME.0 - FRAME.1;
        for placement in PLACEMENTS {
            let (compress, bufs) = (start(), Bufs::new());
            let ((theirs, import), local) =
                (Memory::shared(200_000, placement), Memory::local(200_000));
            theirs.write(0, &frame);
            let to = bufs.room(&local.mmap, 0, 60_000);
            assert_eq!(
                compress.run(lz4_stream(
                    &compress,
                    0,
                    1,
                    bufs.data(&import, FRAME.0, len),
                    to
                )),
                0
            );
            assert!(local.read(0, 50_000) == content, "{placement:?}");
            let to = bufs.room(&import, 100_000, 50_000);
            local.write(60_000, &frame);
            let from = bufs.data(&local.mmap, 60_000 + FRAME.0, len);
            assert_eq!(compress.run(lz4_stream(&compress, 0, 1, from, to)), 0);
            assert!(theirs.read(100_000, 50_000) == content, "{placement:?}");
        }
    }

    /// The program gets the first completions before the last tasks are started, which reduces the wait of other
    /// contexts.
    #[test]
    fn progress_runs_a_part_of_the_pending_slow_tasks() {
        let (compress, memory, bufs) = (start(), Memory::local(1 << 20), Bufs::new());
        let content = content(4096);
        let frame = frame(&content, false, true);
        memory.write(0, &frame);
        let (begin, end) = FRAME;
        let room = |number: usize| 100_000 + number * 10_000;
        let tasks: Vec<_> = (0..8)
            .map(|number| {
                let from = bufs.data(&memory.mmap, begin, frame.len() - begin - end);
                let to = bufs.room(&memory.mmap, room(number), 10_000);
                lz4_stream(&compress, 0, 1, from, to)
            })
            .collect();
        for task in tasks {
            compress.submit(task);
        }
        let done_after_a_call = || {
            assert!(compress.progress());
            compress.log.completions.borrow().len()
        };
        let done: Vec<_> = (0..5).map(|_| done_after_a_call()).collect();
        assert_eq!(done, [3, 5, 6, 7, 8], "a quarter of them, and one");
        assert!(!compress.progress());
        for number in 0..8 {
            assert!(memory.read(room(number), 4096) == content);
        }
    }
}
