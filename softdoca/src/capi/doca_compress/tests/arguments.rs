//! What tasks are given, and what is refused.

use super::*;

#[test]
fn failures_leave_the_destination_and_the_context_alone() {
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
            // What is wrong with the content shows only when it is decompressed.
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
fn tasks_know_what_they_were_given() {
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
fn limits_are_told_and_nulls_refused() {
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
        assert_eq!(
            doca_compress_destroy(compress.handle),
            Error::BadState.code()
        );
        assert_eq!(doca_compress_as_ctx(compress.handle), compress.ctx());
        assert_eq!(
            doca_compress_task_decompress_lz4_stream_get_xxh_cs(null()),
            0
        );
        assert_eq!(doca_compress_task_compress_deflate_get_crc_cs(null()), 0);
    }
}
