//! What tasks make.

use super::*;

#[test]
fn what_is_lost_is_recovered() {
    const BLOCK: usize = 192;
    let (ec, memory, bufs) = (start(), Memory::local(64 * BLOCK), Bufs::new());
    for matrix_type in TYPES {
        for (data, parity) in [(1usize, 1usize), (2, 1), (3, 2), (10, 4)] {
            let content = pattern(data as u8, data * BLOCK);
            memory.write(0, &content);
            let coding = coding(&ec, matrix_type, data, parity).expect("a matrix");
            let from = bufs.data(&memory.mmap, 0, data * BLOCK);
            let to = bufs.room(&memory.mmap, data * BLOCK, parity * BLOCK);
            assert_eq!(ec.run(create(&ec, &coding, from, to)), 0);
            assert_eq!(to.data_len(), parity * BLOCK);
            let code = memory.read(0, (data + parity) * BLOCK);
            assert!(code[data * BLOCK..] == redundancy(matrix_type, &content, BLOCK, parity));

            // The first data block and the last redundancy block are lost.
            let mut missing = vec![0, (data + parity - 1) as u32];
            missing.truncate(parity);
            let recovery = recovery(&ec, &coding, &mut missing).expect("not singular");
            let from = bufs.data(&memory.mmap, BLOCK, data * BLOCK);
            let to = bufs.room(&memory.mmap, 32 * BLOCK, missing.len() * BLOCK);
            assert_eq!(ec.run(recover(&ec, &recovery, from, to)), 0);
            for (at, block) in missing.iter().enumerate() {
                let expected = &code[*block as usize * BLOCK..][..BLOCK];
                assert!(
                    memory.read((32 + at) * BLOCK, BLOCK) == expected,
                    "{data}+{parity}, block {block}"
                );
            }
            ec.free_tasks();
        }
    }
}

#[test]
fn lists_and_memory_of_another_process_are_sources_and_destinations() {
    const BLOCK: usize = 4096;
    for placement in PLACEMENTS {
        let (ec, bufs) = (start(), Bufs::new());
        let ((theirs, import), local) = (
            Memory::shared(4 * BLOCK, placement),
            Memory::local(4 * BLOCK),
        );
        let content = pattern(5, 2 * BLOCK);
        theirs.write(64, &content);
        let coding = coding(&ec, DOCA_EC_MATRIX_TYPE_CAUCHY, 2, 2).expect("a matrix");
        let expected = redundancy(DOCA_EC_MATRIX_TYPE_CAUCHY, &content, BLOCK, 2);

        let from = bufs.data_list(&import, 64, &[1000, BLOCK, 2 * BLOCK - 1000 - BLOCK]);
        let to = bufs.room_list(&local.mmap, 0, &[BLOCK + 7, 1, BLOCK]);
        assert_eq!(ec.run(create(&ec, &coding, from, to)), 0, "{placement:?}");
        assert_eq!(to.list_data_len(), 2 * BLOCK);
        assert!(local.read(0, 2 * BLOCK) == expected);
        assert_eq!(local.read(2 * BLOCK, 8), [0; 8], "no more than two blocks");

        local.write(2 * BLOCK, &content);
        let from = bufs.data(&local.mmap, 2 * BLOCK, 2 * BLOCK);
        let to = bufs.room_list(&import, BLOCK, &[100, 3 * BLOCK - 100]);
        to.set_data_len(10).expect("inside the buf");
        assert_eq!(ec.run(create(&ec, &coding, from, to)), 0, "{placement:?}");
        assert_eq!(to.list_data_len(), 10 + 2 * BLOCK);
        assert!(theirs.read(BLOCK + 10, 2 * BLOCK) == expected);
    }
}

#[test]
fn redundancy_is_updated_as_if_created_anew() {
    const BLOCK: usize = 128;
    let (ec, memory, bufs) = (start(), Memory::local(64 * BLOCK), Bufs::new());
    for matrix_type in TYPES {
        let coding = coding(&ec, matrix_type, 4, 2).expect("a matrix");
        let (old, new) = (pattern(1, 4 * BLOCK), pattern(2, 4 * BLOCK));
        let mut data = old.clone();
        let mut source = Vec::new();
        for block in [1, 3] {
            let range = block * BLOCK..(block + 1) * BLOCK;
            data[range.clone()].copy_from_slice(&new[range.clone()]);
            source.extend_from_slice(&old[range.clone()]);
            source.extend_from_slice(&new[range]);
        }
        source.extend(redundancy(matrix_type, &old, BLOCK, 2));
        memory.write(0, &source);
        let updating = updating(&ec, &coding, &mut [1, 3]).expect("a matrix");
        let from = bufs.data(&memory.mmap, 0, source.len());
        let to = bufs.room(&memory.mmap, 20 * BLOCK, 2 * BLOCK);
        assert_eq!(ec.run(update(&ec, &updating, from, to)), 0);
        assert!(memory.read(20 * BLOCK, 2 * BLOCK) == redundancy(matrix_type, &data, BLOCK, 2));
    }
}

#[test]
fn a_task_applies_whatever_matrix_it_has() {
    const BLOCK: usize = 64;
    let (ec, memory, bufs) = (start(), Memory::local(64 * BLOCK), Bufs::new());
    let content = pattern(3, 2 * BLOCK);
    for matrix_type in TYPES {
        let parity = redundancy(matrix_type, &content, BLOCK, 1);
        // The second data block is lost; the encode matrix takes the other two.
        memory.write(0, &[&content[..BLOCK], &parity].concat());
        let coding = coding(&ec, matrix_type, 2, 1).expect("a matrix");
        let to = bufs.room(&memory.mmap, 10 * BLOCK, BLOCK);
        assert_eq!(
            ec.run(recover(
                &ec,
                &coding,
                bufs.data(&memory.mmap, 0, 2 * BLOCK),
                to
            )),
            0
        );
        let recovered = memory.read(10 * BLOCK, BLOCK) == content[BLOCK..];
        assert_eq!(recovered, matrix_type == DOCA_EC_MATRIX_TYPE_VANDERMONDE);
    }
    // Two sums of two blocks: the first block itself, and twice the second.
    let mut factors = [1, 0, 0, 2];
    // SAFETY: live handles, 4 bytes, and a valid out-parameter.
    let raw = matrix(|out| unsafe {
        doca_ec_matrix_create_from_raw(ec.handle, factors.as_mut_ptr(), 2, 2, out)
    });
    memory.write(0, &content);
    let (from, to) = (
        bufs.data(&memory.mmap, 0, 2 * BLOCK),
        bufs.room(&memory.mmap, 20 * BLOCK, 2 * BLOCK),
    );
    assert_eq!(
        ec.run(galois_mul(&ec, &raw.expect("a matrix"), from, to)),
        0
    );
    let twice = content[BLOCK..].iter().map(|byte| multiply(*byte, 2));
    let expected: Vec<u8> = content[..BLOCK].iter().copied().chain(twice).collect();
    assert!(memory.read(20 * BLOCK, 2 * BLOCK) == expected);
}

#[test]
fn a_matrix_may_go_before_its_tasks() {
    const BLOCK: usize = 64;
    let (ec, memory, bufs) = (start(), Memory::local(64 * BLOCK), Bufs::new());
    let (content, vandermonde) = (pattern(4, 2 * BLOCK), DOCA_EC_MATRIX_TYPE_VANDERMONDE);
    memory.write(0, &content);
    let coding = coding(&ec, vandermonde, 2, 1).expect("a matrix");
    let recovery = recovery(&ec, &coding, &mut [1]).expect("a matrix");
    let (from, to) = (
        bufs.data(&memory.mmap, 0, 2 * BLOCK),
        bufs.room(&memory.mmap, 2 * BLOCK, BLOCK),
    );
    let task = create(&ec, &coding, from, to);
    ec.submit(task);
    drop(coding);
    assert_eq!(ec.wait(1), [(0, 0)]);
    assert!(memory.read(2 * BLOCK, BLOCK) == redundancy(vandermonde, &content, BLOCK, 1));
    memory.write(BLOCK, &memory.read(2 * BLOCK, BLOCK));
    let task = recover(
        &ec,
        &recovery,
        from,
        bufs.room(&memory.mmap, 4 * BLOCK, BLOCK),
    );
    drop(recovery);
    assert_eq!(ec.run(task), 0);
    assert!(memory.read(4 * BLOCK, BLOCK) == content[BLOCK..]);
}
