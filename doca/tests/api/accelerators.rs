//! DMA, compression and erasure coding within one process.

use crate::support::{completions, devices, isolated, memory, wait_on};
use doca::{
    Access, Buf, Completion, Compress, CtxState, Device, Dma, EcMatrixType, ErasureCoding,
    ErrorCode, Event, Lz4Checksums, Lz4Stream, MemoryRegion, Mmap, Pe, Task,
};

const LOCAL: Access = Access::LOCAL_READ_WRITE;

/// Runs a task to completion.
fn run(pe: &Pe, task: &Task) -> Result<(), ErrorCode> {
    task.submit().unwrap();
    let done = completions(1, &[pe]);
    assert_eq!(done[0].token, task.token());
    done[0].result
}

fn write(mmap: &Mmap, offset: usize, bytes: &[u8]) {
    mmap.region().unwrap().write(offset, bytes).unwrap();
}

fn read(mmap: &Mmap, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    mmap.region().unwrap().read(offset, &mut bytes).unwrap();
    bytes
}

fn host_memory(device: &Device, len: usize) -> (Mmap, Mmap) {
    let access = LOCAL | Access::PCI_READ_WRITE;
    let mmap = Mmap::register(device, MemoryRegion::new(len).unwrap(), access).unwrap();
    let import = Mmap::import(device, &mmap.export_pci(device).unwrap()).unwrap();
    (mmap, import)
}

#[test]
fn memory_is_copied_across_pcie_and_back() {
    isolated("memory_is_copied_across_pcie_and_back", || {
        let device = devices().dpu;
        let (pe, (host, import)) = (Pe::new().unwrap(), host_memory(&device, 65_536));
        let (local, inventory) = memory(&device, 65_536, LOCAL);
        let dma = Dma::start(&pe, &device, 2).unwrap();
        assert_eq!(dma.state(), CtxState::Running);
        let content = contents::noise(1, 30_000);
        write(&host, 100, &content);
        let there = inventory.buf_with_data(&import, 100, 30_000).unwrap();
        let here = inventory.buf(&local, 0, 30_000).unwrap();
        let fetch = dma.copy_task(&there, &here, 1).unwrap();
        assert_eq!(run(&pe, &fetch), Ok(()));
        assert_eq!(here.data_len(), Ok(30_000));
        assert_eq!(read(&local, 0, 30_000), content);
        let room = inventory.buf(&import, 35_000, 30_000).unwrap();
        let back = dma.copy_task(&here, &room, 2).unwrap();
        assert_eq!(run(&pe, &back), Ok(()));
        assert_eq!(read(&host, 35_000, 30_000), content);
        assert_eq!(
            dma.copy_task(&here, &room, 3).unwrap_err().code,
            ErrorCode::NO_MEMORY
        );
        drop((fetch, back));
        dma.stop().unwrap();
    });
}

/// The completions of the instance are queued while instance and tasks are dropped and their memory is reused.
#[test]
fn completions_outlive_their_tasks_and_the_instance() {
    const COUNT: u64 = 16;
    isolated("completions_outlive_their_tasks_and_the_instance", || {
        let device = devices().dpu;
        let pe = Pe::new().unwrap();
        let (mmap, inventory) = memory(&device, 65_536, LOCAL);
        let start = || {
            let dma = Dma::start(&pe, &device, COUNT as u32).unwrap();
            let tasks: Vec<Task> = (0..COUNT)
                .map(|number| {
                    let source = inventory.buf_with_data(&mmap, number * 64, 64).unwrap();
                    let room = inventory.buf(&mmap, 32_768 + number * 64, 64).unwrap();
                    dma.copy_task(&source, &room, 1000 + number).unwrap()
                })
                .collect();
            (dma, tasks)
        };
        let (dma, tasks) = start();
        tasks.iter().for_each(|task| task.submit().unwrap());
        // Makes progress, so that the copies complete, without taking events.
        assert!(pe.progress_until(std::time::Duration::from_secs(5), || dma.in_flight() == 0));
        // Some tasks are dropped before the instance, the others by it.
        let later = tasks
            .into_iter()
            .skip(COUNT as usize / 2)
            .collect::<Vec<_>>();
        dma.stop().unwrap();
        drop(later);
        let (_others, _their_tasks) = start();
        let mut tokens = Vec::new();
        while let Some(event) = pe.poll() {
            if let Event::Task(Completion { token, result }) = event {
                assert_eq!(result, Ok(()));
                tokens.push(token);
            }
        }
        assert_eq!(tokens, (1000..1000 + COUNT).collect::<Vec<_>>());
    });
}

#[test]
fn a_failed_copy_stops_only_its_own_instance() {
    isolated("a_failed_copy_stops_only_its_own_instance", || {
        let device = devices().dpu;
        let pe = Pe::new().unwrap();
        let (mmap, inventory) = memory(&device, 4096, LOCAL);
        let (source, small, large) = (
            inventory.buf_with_data(&mmap, 0, 100).unwrap(),
            inventory.buf(&mmap, 1000, 99).unwrap(),
            inventory.buf(&mmap, 2000, 100).unwrap(),
        );
        let dma = Dma::start(&pe, &device, 2).unwrap();
        let (bad, good) = (
            dma.copy_task(&source, &small, 1).unwrap(),
            dma.copy_task(&source, &large, 2).unwrap(),
        );
        bad.submit().unwrap();
        good.submit().unwrap();
        let id = dma.id();
        wait_on("the stop", &[&pe], |_, event| match event {
            Event::State {
                context,
                next: CtxState::Stopping,
                ..
            } if *context == id => Some(()),
            _ => None,
        });
        let done = completions(2, &[&pe]);
        assert!(done.iter().all(|done| done.result.is_err()), "{done:?}");
        assert_eq!(good.submit(), Err(ErrorCode::BAD_STATE));
        dma.stop().unwrap();
        let dma = Dma::start(&pe, &device, 1).unwrap();
        assert_eq!(
            run(&pe, &dma.copy_task(&source, &large, 3).unwrap()),
            Ok(())
        );
    });
}

#[test]
fn lost_blocks_are_recovered_from_scattered_ones() {
    isolated("lost_blocks_are_recovered_from_scattered_ones", || {
        const BLOCK: usize = 2112;
        let device = devices().dpu;
        let pe = Pe::new().unwrap();
        let (mmap, inventory) = memory(&device, 8 * BLOCK, LOCAL);
        let ec = ErasureCoding::builder(&device)
            .create_tasks(1)
            .update_tasks(1)
            .recover_tasks(2)
            .start(&pe)
            .unwrap();
        let at = |block: usize| (block * BLOCK) as u64;
        for matrix_type in [EcMatrixType::Cauchy, EcMatrixType::Vandermonde] {
            let content = contents::noise(2, 2 * BLOCK);
            write(&mmap, 0, &content);
            let coding = ec.matrix(matrix_type, 2, 1).unwrap();
            let data = inventory.buf_with_data(&mmap, 0, 2 * BLOCK).unwrap();
            let parity = inventory.buf(&mmap, at(2), BLOCK).unwrap();
            let create = ec.create_task(&coding, &data, &parity, 1).unwrap();
            assert_eq!(run(&pe, &create), Ok(()));
            for lost in 0..2 {
                // The other data block, then the parity, which is not contiguous with it.
                let available = inventory.buf_with_data(&mmap, at(1 - lost), BLOCK).unwrap();
                available
                    .append(&inventory.buf_with_data(&mmap, at(2), BLOCK).unwrap())
                    .unwrap();
                let room = inventory.buf(&mmap, at(4), BLOCK).unwrap();
                let matrix = ec.recover_matrix(&coding, &[lost as u32]).unwrap();
                let recover = ec.recover_task(&matrix, &available, &room, 2).unwrap();
                drop(matrix);
                assert_eq!(run(&pe, &recover), Ok(()));
                assert_eq!(
                    read(&mmap, 4 * BLOCK, BLOCK),
                    content[lost * BLOCK..][..BLOCK]
                );
            }
            // The second block changes: the new parity is computed from the old and new block and the old parity.
            let new = contents::noise(3, BLOCK);
            write(&mmap, 3 * BLOCK, &new);
            let source = inventory.buf_with_data(&mmap, at(1), BLOCK).unwrap();
            source
                .append(&inventory.buf_with_data(&mmap, at(3), BLOCK).unwrap())
                .unwrap();
            source
                .append(&inventory.buf_with_data(&mmap, at(2), BLOCK).unwrap())
                .unwrap();
            let room = inventory.buf(&mmap, at(5), BLOCK).unwrap();
            let matrix = ec.update_matrix(&coding, &[1]).unwrap();
            assert_eq!(
                run(&pe, &ec.update_task(&matrix, &source, &room, 3).unwrap()),
                Ok(())
            );
            write(&mmap, BLOCK, &new);
            parity.reset_data().unwrap();
            assert_eq!(run(&pe, &create), Ok(()));
            assert_eq!(read(&mmap, 5 * BLOCK, BLOCK), read(&mmap, 2 * BLOCK, BLOCK));
            assert_eq!(
                ec.recover_matrix(&coding, &[0, 1]).unwrap_err().code,
                ErrorCode::INVALID_VALUE
            );
        }
        ec.stop().unwrap();
    });
}

/// A task uses the list from its buf on: this part must not change, and cannot be appended to.
#[test]
fn a_list_with_a_part_in_flight_is_not_changed() {
    isolated("a_list_with_a_part_in_flight_is_not_changed", || {
        let device = devices().dpu;
        let pe = Pe::new().unwrap();
        let (mmap, inventory) = memory(&device, 4096, LOCAL);
        write(&mmap, 0, b"one two three four ");
        let dma = Dma::start(&pe, &device, 2).unwrap();
        let buf = |offset, len| inventory.buf_with_data(&mmap, offset, len).unwrap();
        let (one, two, three, four) = (buf(0, 4), buf(4, 4), buf(8, 6), buf(14, 5));
        one.append(&two).unwrap();
        one.append(&three).unwrap();
        let room = inventory.buf(&mmap, 100, 100).unwrap();
        let task = dma.copy_task(&two, &room, 1).unwrap();
        task.submit().unwrap();
        let in_use = |result: doca::Result<()>| result.unwrap_err().code == ErrorCode::IN_USE;
        assert!(in_use(one.append(&four)), "the task would copy it, too");
        assert!(in_use(three.append(&four)));
        assert!(in_use(four.append(&one)));
        assert!(in_use(three.set_data(0, 4)), "the task works on it");
        assert!(in_use(two.reset_data()));
        // Bufs before the task's buf are not in use.
        one.set_data(4, 4).unwrap();
        assert_eq!(completions(1, &[&pe])[0].result, Ok(()));
        assert_eq!(read(&mmap, 100, 11), b"two three \0");
        one.append(&four).unwrap();
        room.set_range(100, 100).unwrap();
        assert_eq!(run(&pe, &task), Ok(()));
        assert_eq!(read(&mmap, 100, 16), b"two three four \0");
    });
}

#[test]
fn lists_of_bufs_hold_together() {
    isolated("lists_of_bufs_hold_together", || {
        let device = devices().dpu;
        let pe = Pe::new().unwrap();
        let (mmap, inventory) = memory(&device, 4096, LOCAL);
        write(&mmap, 0, b"one two three ");
        let dma = Dma::start(&pe, &device, 4).unwrap();
        let buf = |offset, len| inventory.buf_with_data(&mmap, offset, len).unwrap();
        let (one, two, three) = (buf(0, 4), buf(4, 4), buf(8, 6));
        two.append(&three).unwrap();
        one.append(&two).unwrap();
        assert_eq!(one.append(&two).unwrap_err().code, ErrorCode::INVALID_VALUE);
        assert_eq!(one.append(&one).unwrap_err().code, ErrorCode::INVALID_VALUE);
        assert_eq!(
            three.append(&one).unwrap_err().code,
            ErrorCode::INVALID_VALUE
        );
        let room = inventory.buf(&mmap, 100, 100).unwrap();
        let task = dma.copy_task(&one, &room, 1).unwrap();
        task.submit().unwrap();
        assert_eq!(three.set_data(4, 4).unwrap_err().code, ErrorCode::IN_USE);
        assert_eq!(completions(1, &[&pe])[0].result, Ok(()));
        // Changing the range of a buf keeps its position in the list.
        three.set_data(0, 4).unwrap();
        assert_eq!(run(&pe, &task), Ok(()));
        assert_eq!(read(&mmap, 100, 26), b"one two three one two one ");
        // The memory of a buf lives as long as the list.
        let (other, _) = memory(&device, 64, LOCAL);
        write(&other, 0, b"four");
        one.append(&inventory.buf_with_data(&other, 0, 4).unwrap())
            .unwrap();
        drop((other, two, three));
        assert_eq!(run(&pe, &task), Ok(()));
        assert_eq!(read(&mmap, 126, 16), b"one two one four");
        // All bufs are returned.
        drop((task, one, room));
        let all: Vec<Buf> = (0..64).map(|_| buf(0, 1)).collect();
        assert_eq!(
            inventory.buf(&mmap, 0, 1).unwrap_err().code,
            ErrorCode::NO_MEMORY
        );
        drop(all);
        drop((buf(0, 1), dma));
    });
}

#[test]
fn deflate_goes_both_ways_with_its_checksums() {
    isolated("deflate_goes_both_ways_with_its_checksums", || {
        let device = devices().dpu;
        let pe = Pe::new().unwrap();
        let (mmap, inventory) = memory(&device, 65_536, LOCAL);
        let compress = Compress::builder(&device)
            .compress_deflate_tasks(1)
            .decompress_deflate_tasks(1)
            .start(&pe)
            .unwrap();
        let content = b"123456789".repeat(1000);
        write(&mmap, 0, &content);
        let source = inventory.buf_with_data(&mmap, 0, 9000).unwrap();
        let middle = inventory.buf(&mmap, 10_000, 9000).unwrap();
        let room = inventory.buf(&mmap, 20_000, 9000).unwrap();
        let deflate = compress.compress_deflate_task(&source, &middle, 1).unwrap();
        assert_eq!(deflate.checksums(), None);
        assert_eq!(run(&pe, &deflate), Ok(()));
        assert!(middle.data_len().unwrap() < 500);
        let inflate = compress.decompress_deflate_task(&middle, &room, 2).unwrap();
        assert_eq!(run(&pe, &inflate), Ok(()));
        assert_eq!(read(&mmap, 20_000, 9000), content);
        assert_eq!(inflate.checksums(), deflate.checksums());
        let checksums = deflate.checksums().unwrap();
        // Values of zlib's crc32() and adler32().
        assert_eq!((checksums.crc32, checksums.adler32), (CRC32, ADLER32));
        // The task fails with a full destination, and then has no checksums.
        assert_eq!(run(&pe, &inflate), Err(ErrorCode::IO_FAILED));
        assert_eq!(inflate.checksums(), None);
        compress.stop().unwrap();
        assert_eq!(deflate.checksums(), None);
    });
}

const CRC32: u32 = 0x4075_89cf;
const ADLER32: u32 = 0x59c1_47b2;

#[test]
fn lz4_streams_are_decompressed_straight_into_the_host() {
    isolated(
        "lz4_streams_are_decompressed_straight_into_the_host",
        || {
            let device = devices().dpu;
            let (pe, (host, import)) = (Pe::new().unwrap(), host_memory(&device, 4096));
            let (mmap, inventory) = memory(&device, 4096, LOCAL);
            let compress = Compress::builder(&device)
                .decompress_lz4_stream_tasks(2)
                .start(&pe)
                .unwrap();
            // A handwritten block: three literals, a match of 15 + 4 + 1 bytes at distance 3, and the last literals.
            let block = [
                0x3f, b'a', b'b', b'c', 3, 0, 1, 0x50, b'f', b'i', b'n', b'i', b's',
            ];
            // Followed by a stored block.
            let stream = [
                &[block.len() as u8, 0, 0, 0][..],
                &block,
                &[2, 0, 0, 0x80],
                b"!\n",
            ]
            .concat();
            let content = b"abcabcabcabcabcabcabcabfinis!\n";
            write(&mmap, 0, &stream);
            let source = inventory.buf_with_data(&mmap, 0, stream.len()).unwrap();
            let room = inventory.buf(&import, 64, content.len()).unwrap();
            let task = compress
                .decompress_lz4_stream_task(&source, &room, Lz4Stream::default(), 1)
                .unwrap();
            assert_eq!(run(&pe, &task), Ok(()));
            assert_eq!(
                read(&host, 64, content.len() + 1),
                [&content[..], &[0]].concat()
            );
            assert_eq!(
                task.checksums(),
                Some(Lz4Checksums {
                    crc32: LZ4_CRC32,
                    xxh32: LZ4_XXH32
                })
            );
            let short = inventory.buf(&import, 1000, content.len() - 1).unwrap();
            let task = compress
                .decompress_lz4_stream_task(&source, &short, Lz4Stream::default(), 2)
                .unwrap();
            assert_eq!(run(&pe, &task), Err(ErrorCode::IO_FAILED));
            assert_eq!(
                (short.data_len(), compress.state()),
                (Ok(0), CtxState::Running)
            );
        },
    );
}

#[test]
fn single_lz4_blocks_are_decompressed() {
    isolated("single_lz4_blocks_are_decompressed", || {
        let device = devices().dpu;
        let pe = Pe::new().unwrap();
        let (mmap, inventory) = memory(&device, 4096, LOCAL);
        let builder = Compress::builder(&device).decompress_lz4_block_tasks(1);
        let compress = builder.start(&pe).unwrap();
        // Same as the first block of the stream above.
        let block = [
            0x3f, b'a', b'b', b'c', 3, 0, 1, 0x50, b'f', b'i', b'n', b'i', b's',
        ];
        let content = b"abcabcabcabcabcabcabcabfinis";
        write(&mmap, 0, &block);
        let source = inventory.buf_with_data(&mmap, 0, block.len()).unwrap();
        let room = inventory.buf(&mmap, 100, content.len()).unwrap();
        let task = compress
            .decompress_lz4_block_task(&source, &room, 1)
            .unwrap();
        assert_eq!(task.checksums(), None);
        assert_eq!(run(&pe, &task), Ok(()));
        assert_eq!(read(&mmap, 100, content.len()), content);
        let checksums = Lz4Checksums {
            crc32: BLOCK_CRC32,
            xxh32: BLOCK_XXH32,
        };
        assert_eq!(task.checksums(), Some(checksums));
        let full = compress
            .decompress_lz4_block_task(&source, &room, 2)
            .unwrap_err();
        assert_eq!(full.code, ErrorCode::NO_MEMORY);
        assert_eq!(run(&pe, &task), Err(ErrorCode::IO_FAILED), "no room");
    });
}

const BLOCK_CRC32: u32 = 0x14d3_6db6;
const BLOCK_XXH32: u32 = 0x060b_8d59;
const LZ4_CRC32: u32 = 0xac0f_ee0a;
const LZ4_XXH32: u32 = 0x61cb_0f5a;

#[test]
fn many_tasks_of_all_kinds_share_an_engine() {
    isolated("many_tasks_of_all_kinds_share_an_engine", || {
        let device = devices().dpu;
        let pe = Pe::new().unwrap();
        let (mmap, inventory) = memory(&device, 1 << 20, LOCAL);
        write(&mmap, 0, &contents::noise(9, 65_536));
        let dma = Dma::start(&pe, &device, 8).unwrap();
        let ec = ErasureCoding::builder(&device)
            .create_tasks(8)
            .start(&pe)
            .unwrap();
        let matrix = ec.matrix(EcMatrixType::Cauchy, 4, 2).unwrap();
        let source = inventory.buf_with_data(&mmap, 0, 65_536).unwrap();
        let mut bufs = Vec::new();
        let tasks: Vec<Task> = (0..8)
            .flat_map(|index| {
                let copy = inventory.buf(&mmap, 65_536, 65_536).unwrap();
                let parity = inventory.buf(&mmap, 262_144, 32_768).unwrap();
                let tasks = [
                    dma.copy_task(&source, &copy, index).unwrap(),
                    ec.create_task(&matrix, &source, &parity, 100 + index)
                        .unwrap(),
                ];
                bufs.extend([copy, parity]);
                tasks
            })
            .collect();
        for _ in 0..20 {
            bufs.iter().for_each(|buf| buf.reset_data().unwrap());
            tasks.iter().for_each(|task| task.submit().unwrap());
            let done: Vec<Completion> = completions(16, &[&pe]);
            assert!(done.iter().all(|done| done.result.is_ok()), "{done:?}");
            for start in [0, 100] {
                let of_one: Vec<u64> = done
                    .iter()
                    .map(|done| done.token)
                    .filter(|token| token / 100 == start / 100)
                    .collect();
                assert_eq!(
                    of_one,
                    (start..start + 8).collect::<Vec<_>>(),
                    "each in its order"
                );
            }
        }
    });
}
