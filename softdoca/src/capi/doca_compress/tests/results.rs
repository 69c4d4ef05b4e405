//! What tasks make.

use super::*;

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
        // Programs load the frame's last word, turn its bytes round, and compare.
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
fn what_a_stream_is_like_can_be_said_later() {
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

/// Programs may ask late, when the source, the destination and the properties serve something else already.
#[test]
fn checksums_are_those_of_the_data_that_was_made() {
    let (compress, memory, bufs) = (start(), Memory::local(1 << 20), Bufs::new());
    // Of the second one, the source is not kept.
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
        let told = || unsafe {
            (
                doca_compress_task_decompress_lz4_stream_get_crc_cs(task),
                doca_compress_task_decompress_lz4_stream_get_xxh_cs(task).swap_bytes(),
            )
        };
        let expected = (
            crc32fast::hash(&content),
            crate::engines::checksum::xxh32(&content),
        );
        assert_eq!(told(), (0, 0), "before it has run");
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
        assert_eq!(told(), expected);
        assert_eq!(told(), expected, "again");
        assert_eq!(compress.run(task), Error::IoFailed.code());
        assert_eq!(told(), (0, 0), "after a failure");
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
        assert_eq!(xxh.swap_bytes(), crate::engines::checksum::xxh32(&content));
    }
}

#[test]
fn deflate_goes_both_ways() {
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
