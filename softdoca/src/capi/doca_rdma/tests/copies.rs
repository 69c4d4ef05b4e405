//! Several copies at once: when they are done, in which order, and what becomes of them at the end.

use super::super::*;
use super::access::REMOTE;
use super::memory::{Bufs, Memory, Placement, c, import};
use super::side::{Side, pair, submit};
use crate::error::Error;

const BLOCK: usize = 1000;
const BLOCKS: usize = 20;

/// `BLOCKS` writes of a block each, of which block `n` is full of `n + 1`; the task of block `n` has that number.
fn writes(a: &Side, to_b: *mut doca_rdma_connection, theirs: &Memory, bufs: &Bufs) -> Memory {
    let (remote, local) = (import(&theirs.export()), Memory::local(BLOCKS * BLOCK));
    for block in 0..BLOCKS {
        local.write(block * BLOCK, &[block as u8 + 1; BLOCK]);
        let source = c(bufs.data(&local.mmap, block * BLOCK, BLOCK));
        let target = c(bufs.room(&remote, block * BLOCK, BLOCK));
        submit(a.write(to_b, (source, target), block as u64));
    }
    local
}

fn has_block(theirs: &Memory, block: usize) -> bool {
    theirs.read(block * BLOCK, BLOCK) == [block as u8 + 1; BLOCK]
}

#[test]
fn the_first_of_several_copies_is_done_when_it_is_submitted_and_all_in_order() {
    let ((a, to_b), (b, _)) = pair();
    a.wait_until("the connection", |a| a.log.established.get() == 1);
    let theirs = Memory::new(BLOCKS * BLOCK, REMOTE, Placement::Pages);
    let (arrived, bufs) = (Memory::local(8), Bufs::new());
    submit(b.receive(c(bufs.room(&arrived.mmap, 0, 8)), 100));
    let local = writes(&a, to_b, &theirs, &bufs);
    assert!(
        has_block(&theirs, 0),
        "no progress is needed for a lone copy"
    );
    submit(a.send(to_b, c(bufs.data(&local.mmap, 0, 8)), BLOCKS as u64));
    while a.completed().len() <= BLOCKS {
        let before = a.completed().len();
        a.progress();
        let completed = a.completed();
        assert!(
            (before + 1..=before + 8).contains(&completed.len()),
            "some, and not all of them at once: {completed:?}"
        );
        let newly = completed.iter().enumerate().take(BLOCKS).skip(before);
        for (block, &done) in newly {
            assert_eq!(done, (block as u64, 0), "in order");
            assert!(
                has_block(&theirs, block),
                "block {block}, whose task has ended"
            );
        }
    }
    assert_eq!(b.wait(1), [(100, 0)]);
    assert_eq!(arrived.read(0, 8), [1; 8]);
}

#[test]
fn copies_that_wait_for_progress_end_with_their_context() {
    let ((a, to_b), _b) = pair();
    let theirs = Memory::new(BLOCKS * BLOCK, REMOTE, Placement::Pages);
    let bufs = Bufs::new();
    let _local = writes(&a, to_b, &theirs, &bufs);
    a.stop();
    let completed = a.completed();
    assert_eq!(completed.len(), BLOCKS, "{completed:?}");
    assert_eq!(completed[0], (0, 0));
    let aborted = Error::ConnectionAborted.code();
    for (block, &(user, status)) in completed.iter().enumerate().skip(1) {
        assert_eq!((user, status), (block as u64, aborted));
        assert!(!has_block(&theirs, block), "block {block} was not written");
    }
}

#[test]
fn copies_on_a_connection_that_has_ended_fail_however_many_they_are() {
    let ((a, to_b), (b, _)) = pair();
    let theirs = Memory::new(BLOCKS * BLOCK, REMOTE, Placement::Pages);
    let bufs = Bufs::new();
    b.stop();
    a.wait_until("the disconnection", |a| a.log.disconnected.get() == 1);
    // Those after the first find its completion waiting for the program.
    let _local = writes(&a, to_b, &theirs, &bufs);
    let reset = Error::ConnectionReset.code();
    let failed: Vec<_> = (0..BLOCKS as u64).map(|block| (block, reset)).collect();
    assert_eq!(a.wait(BLOCKS), failed);
}
