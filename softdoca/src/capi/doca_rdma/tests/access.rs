//! Reads, writes and atomic operations on the peer's memory; several copies in flight; tasks on sync events of the peer.

use std::ptr::{null, null_mut};
use std::sync::Arc;

use doca_abi::{
    DOCA_CTX_STATE_STOPPING, DOCA_RDMA_OPCODE_RECV_WRITE_WITH_IMM, doca_buf, doca_data, doca_dev,
    doca_rdma_connection, doca_rdma_task_read, doca_rdma_task_receive, doca_sync_event,
    doca_sync_event_remote_net, doca_task,
};

use super::super::*;
use super::{ALL, Bufs, Memory, Placement, Side, c, device, import, ok, pair, pair_with, submit};
use crate::capi::doca_sync_event::*;
use crate::capi::give;
use crate::device::Device;
use crate::error::Error;
use crate::memory::Permissions;

pub(super) const REMOTE: Permissions = Permissions::LOCAL_READ_WRITE
    .union(Permissions::RDMA_READ)
    .union(Permissions::RDMA_WRITE);

#[test]
fn chained_bufs_are_written_and_read_back_without_progress_by_the_peer() {
    for placement in [Placement::Pages, Placement::Unaligned] {
        const LEN: usize = 300_000;
        let ((a, to_b), _b) = pair();
        let theirs = Memory::new(LEN, REMOTE, placement);
        let remote = import(&theirs.export());
        let (local, bufs) = (Memory::local(2 * LEN), Bufs::new());
        let pattern: Vec<u8> = (0..LEN).map(|i| (i ^ (i >> 8)) as u8).collect();
        local.write(0, &pattern);

        let source = bufs.data(&local.mmap, 0, 5000);
        source
            .chain(bufs.data(&local.mmap, 5000, LEN - 5100))
            .expect("a list");
        let target = bufs.room(&remote, 0, LEN);
        target.set_data_len(100).expect("inside the buf");
        submit(a.write(to_b, (c(source), c(target)), 1));
        assert_eq!(a.wait(1), [(1, 0)], "{placement:?}");
        assert_eq!(target.data_len(), LEN, "written data is appended");
        assert_eq!(theirs.read(0, 100), [0; 100]);
        assert!(theirs.read(100, LEN - 100) == pattern[..LEN - 100]);

        let destination = bufs.room(&local.mmap, LEN, 10);
        destination
            .chain(bufs.room(&local.mmap, LEN + 10, 1))
            .expect("a list");
        destination
            .chain(bufs.room(&local.mmap, LEN + 11, LEN - 11))
            .expect("a list");
        let from = bufs.data(&remote, 100, LEN - 100);
        let read = a.read(to_b, (c(from), c(destination)), 2);
        submit(read);
        assert_eq!(a.wait(2), [(1, 0), (2, 0)]);
        let task: *const doca_rdma_task_read = read.cast();
        // SAFETY: a live read task.
        let len = unsafe { doca_rdma_task_read_get_result_len(task) };
        assert_eq!(len, LEN as u32 - 100);
        assert_eq!(destination.list_data_len(), LEN - 100);
        assert!(local.read(LEN, LEN - 100) == pattern[..LEN - 100]);
    }
}

#[test]
fn permissions_are_those_of_the_table() {
    let local_only = Permissions::LOCAL_READ_WRITE;
    let (read, write) = (Permissions::RDMA_READ, Permissions::RDMA_WRITE);
    let cases = [
        // Peer's instance, peer's map, this side's map; may read, may write.
        (ALL, REMOTE, local_only, true, true),
        (0b011, REMOTE, local_only, true, false),
        (0b101, REMOTE, local_only, false, true),
        (0b001, REMOTE, local_only, false, false),
        (ALL, local_only | read, local_only, true, false),
        (ALL, local_only | write, local_only, false, true),
        (ALL, REMOTE, read, false, false),
        (ALL, REMOTE, Permissions::empty(), false, false),
    ];
    for (number, (instance, theirs, ours, may_read, may_write)) in cases.into_iter().enumerate() {
        // The permissions of this side's instance do not limit its own operations.
        let ((a, to_b), _b) = pair_with(0, instance);
        let theirs = Memory::new(4096, theirs, Placement::Pages);
        theirs.write(0, b"theirs");
        let remote = import(&theirs.export());
        let (local, bufs) = (Memory::new(4096, ours, Placement::Pages), Bufs::new());
        local.write(0, b"ours");

        let (from, to) = (bufs.data(&remote, 0, 6), bufs.room(&local.mmap, 100, 6));
        submit(a.read(to_b, (c(from), c(to)), 1));
        let (from, target) = (bufs.data(&local.mmap, 0, 4), bufs.room(&remote, 100, 4));
        submit(a.write(to_b, (c(from), c(target)), 2));
        let code = |allowed| {
            if allowed {
                0
            } else {
                Error::NotPermitted.code()
            }
        };
        assert_eq!(
            a.wait(2),
            [(1, code(may_read)), (2, code(may_write))],
            "case {number}"
        );
        let expected: &[u8] = if may_read { b"theirs" } else { &[0; 6] };
        assert_eq!(
            (local.read(100, 6).as_slice(), to.data_len() == 6),
            (expected, may_read)
        );
        let expected: &[u8] = if may_write { b"ours" } else { &[0; 4] };
        assert_eq!(
            (theirs.read(100, 4).as_slice(), target.data_len() == 4),
            (expected, may_write)
        );
        // A refused task does not affect the connection.
        let empty = a.read(to_b, (std::ptr::null_mut(), std::ptr::null_mut()), 3);
        submit(empty);
        assert_eq!(a.wait(3)[2], (3, 0), "case {number}");
    }
}

#[test]
fn only_imported_memory_is_remote_and_only_own_memory_is_local() {
    let ((a, to_b), _b) = pair();
    let (theirs, bufs) = (Memory::new(4096, REMOTE, Placement::Pages), Bufs::new());
    let (remote, local) = (
        import(&theirs.export()),
        Memory::new(4096, REMOTE, Placement::Pages),
    );
    let refused = Error::NotPermitted.code();
    let own = |offset| c(bufs.data(&local.mmap, offset, 8));
    let own_room = |offset| c(bufs.room(&local.mmap, offset, 8));
    submit(a.write(to_b, (own(0), own_room(8)), 1));
    submit(a.read(to_b, (own(0), own_room(8)), 2));
    let (foreign, foreign_room) = (c(bufs.data(&remote, 0, 8)), c(bufs.room(&remote, 8, 8)));
    submit(a.write(to_b, (foreign, foreign_room), 3));
    submit(a.read(to_b, (foreign, foreign_room), 4));
    assert_eq!(
        a.wait(4),
        [(1, refused), (2, refused), (3, refused), (4, refused)]
    );
}

#[test]
fn nothing_outside_of_the_bufs_is_touched() {
    for placement in [Placement::Pages, Placement::Unaligned] {
        let ((a, to_b), _b) = pair();
        let theirs = Memory::new(8192, REMOTE, placement);
        theirs.write(0, &[9; 8192]);
        let remote = import(&theirs.export());
        let (local, bufs) = (Memory::local(8192), Bufs::new());
        local.write(0, &[5; 8192]);
        let too_big = Error::TooBig.code();
        let long = c(bufs.data(&local.mmap, 0, 101));
        submit(a.write(to_b, (long, c(bufs.room(&remote, 100, 100))), 1));
        let long = c(bufs.data(&remote, 0, 101));
        submit(a.read(to_b, (long, c(bufs.room(&local.mmap, 100, 100))), 2));
        assert_eq!(a.wait(2), [(1, too_big), (2, too_big)]);
        assert!(theirs.read(0, 8192) == [9; 8192] && local.read(0, 8192) == [5; 8192]);
        // The last bytes of the range, and one more.
        submit(a.write(
            to_b,
            (
                c(bufs.data(&local.mmap, 0, 3)),
                c(bufs.room(&remote, 8189, 3)),
            ),
            3,
        ));
        assert_eq!(a.wait(3)[2], (3, 0));
        assert_eq!(theirs.read(8188, 4), [9, 5, 5, 5]);
    }
}

#[test]
fn a_task_without_a_destination_fails() {
    let ((a, to_b), _b) = pair();
    let (memory, bufs) = (Memory::local(64), Bufs::new());
    let data = c(bufs.data(&memory.mmap, 0, 8));
    submit(a.write(to_b, (data, std::ptr::null_mut()), 1));
    submit(a.read(to_b, (data, std::ptr::null_mut()), 2));
    let invalid = Error::InvalidValue.code();
    assert_eq!(a.wait(2), [(1, invalid), (2, invalid)]);
}

#[test]
fn writes_with_immediate_wait_for_a_receive() {
    let ((a, to_b), (b, _)) = pair();
    let theirs = Memory::new(4096, REMOTE, Placement::Pages);
    let remote = import(&theirs.export());
    let (local, bufs) = (Memory::local(4096), Bufs::new());
    local.write(0, b"before after ");
    let target = bufs.room(&remote, 10, 20);
    submit(a.write_imm(
        to_b,
        (c(bufs.data(&local.mmap, 0, 6)), c(target)),
        0xABCD,
        1,
    ));
    // In submission order: the write waits, although it needs no receive.
    submit(a.write(
        to_b,
        (
            c(bufs.data(&local.mmap, 7, 6)),
            c(bufs.room(&remote, 50, 6)),
        ),
        2,
    ));
    a.rest(&b);
    assert_eq!(a.completed(), []);
    assert_eq!(theirs.read(0, 100), [0; 100]);
    let receive = b.receive(std::ptr::null_mut(), 7);
    submit(receive);
    assert_eq!(a.wait(2), [(1, 0), (2, 0)]);
    assert_eq!(target.data_len(), 6);
    assert_eq!(theirs.read(9, 8), b"\0before\0");
    assert_eq!(theirs.read(50, 6), b"after ");
    assert_eq!(b.wait(1), [(7, 0)]);
    let receive: *const doca_rdma_task_receive = receive.cast();
    // SAFETY: a live receive task.
    unsafe {
        assert_eq!(
            doca_rdma_task_receive_get_result_opcode(receive),
            DOCA_RDMA_OPCODE_RECV_WRITE_WITH_IMM
        );
        assert_eq!(doca_rdma_task_receive_get_result_len(receive), 6);
        assert_eq!(
            doca_rdma_task_receive_get_result_immediate_data(receive),
            0xABCD
        );
        assert!(!doca_rdma_task_receive_get_result_rdma_connection(receive).is_null());
    }
}

#[test]
fn memory_that_was_withdrawn_fails_the_task() {
    for placement in [Placement::Pages, Placement::Unaligned] {
        let ((a, to_b), _b) = pair();
        let theirs = Memory::new(4096, REMOTE, placement);
        let remote = import(&theirs.export());
        let (local, bufs) = (Memory::local(64), Bufs::new());
        local.write(0, &[7; 8]);
        let (source, target) = (bufs.data(&local.mmap, 0, 8), bufs.room(&remote, 0, 8));
        let write = a.write(to_b, (c(source), c(target)), 1);
        submit(write);
        assert_eq!(a.wait(1), [(1, 0)], "{placement:?}");
        theirs.mmap.stop().expect("it has no bufs");
        // The owner reuses the memory.
        theirs.mmap.start().expect("the range is mapped");
        theirs.write(0, &[9; 16]);
        target.reset_data_len();
        submit(write);
        let not_found = Error::NotFound.code();
        assert_eq!(a.wait(2)[1], (1, not_found), "{placement:?}");
        assert_eq!(theirs.read(0, 16), [9; 16]);
        let (source, target) = (bufs.data(&remote, 0, 8), bufs.room(&local.mmap, 8, 8));
        if super::by_verbs() {
            // As on hardware, the connection and the instance end when the task fails.
            assert_eq!(a.state(), DOCA_CTX_STATE_STOPPING, "{placement:?}");
            continue;
        }
        submit(a.read(to_b, (c(source), c(target)), 2));
        assert_eq!(a.wait(3)[2], (2, not_found), "{placement:?}");
        assert_eq!(local.read(8, 8), [0; 8]);
    }
}

pub(super) const REMOTE_ATOMIC: Permissions = REMOTE.union(Permissions::RDMA_ATOMIC);

impl Side {
    pub(super) fn compare_swap(
        &self,
        connection: *mut doca_rdma_connection,
        (on, result): (*mut doca_buf, *mut doca_buf),
        (compare, swap): (u64, u64),
        user: u64,
    ) -> *mut doca_task {
        let mut task = null_mut();
        let user = doca_data { u64: user };
        // SAFETY: live handles and a valid out-parameter.
        ok(unsafe {
            doca_rdma_task_atomic_cmp_swp_allocate_init(
                self.rdma, connection, on, result, compare, swap, user, &mut task,
            )
        });
        // SAFETY: the pointer is not dereferenced.
        self.keep(unsafe { doca_rdma_task_atomic_cmp_swp_as_task(task) })
    }

    pub(super) fn fetch_add(
        &self,
        connection: *mut doca_rdma_connection,
        (on, result): (*mut doca_buf, *mut doca_buf),
        add: u64,
        user: u64,
    ) -> *mut doca_task {
        let mut task = null_mut();
        let user = doca_data { u64: user };
        // SAFETY: as in `compare_swap`.
        ok(unsafe {
            doca_rdma_task_atomic_fetch_add_allocate_init(
                self.rdma, connection, on, result, add, user, &mut task,
            )
        });
        // SAFETY: the pointer is not dereferenced.
        self.keep(unsafe { doca_rdma_task_atomic_fetch_add_as_task(task) })
    }
}

pub(super) fn word(memory: &Memory, offset: usize) -> u64 {
    let bytes = memory.read(offset, 8);
    u64::from_ne_bytes(bytes.try_into().expect("8 bytes"))
}

/// The first offset whose address is a multiple of 8.
pub(super) fn aligned(memory: &Memory) -> usize {
    (memory.addr().next_multiple_of(8) - memory.addr()) as usize
}

#[test]
fn atomics_change_memory_and_return_the_old_value() {
    for placement in [Placement::Pages, Placement::Unaligned] {
        let ((a, to_b), _b) = pair();
        let theirs = Memory::new(4096, REMOTE_ATOMIC, placement);
        let at = aligned(&theirs);
        theirs.write(at, &10_u64.to_ne_bytes());
        let remote = import(&theirs.export());
        let (local, bufs) = (Memory::local(4096), Bufs::new());
        // More than 8 bytes of data, and none: only the start of the data matters.
        let (on, none) = (bufs.data(&remote, at, 24), bufs.room(&remote, at, 8));
        let results = bufs.room(&local.mmap, 0, 32);

        submit(a.fetch_add(to_b, (c(on), c(results)), 5, 1));
        submit(a.compare_swap(to_b, (c(none), c(results)), (15, 99), 2));
        submit(a.compare_swap(to_b, (c(on), c(results)), (15, 7), 3));
        submit(a.fetch_add(to_b, (c(on), c(results)), u64::MAX, 4));
        assert_eq!(a.wait(4), [(1, 0), (2, 0), (3, 0), (4, 0)], "{placement:?}");
        assert_eq!(word(&theirs, at), 98, "adding wraps around");
        assert_eq!(
            [0, 8, 16, 24].map(|offset| word(&local, offset)),
            [10, 15, 99, 99],
            "the old values, each after the one before"
        );
        assert_eq!(results.data_len(), 32);
        assert_eq!((on.data_len(), none.data_len()), (24, 0));
        assert_eq!(theirs.read(at + 8, 8), [0; 8]);
    }
}

#[test]
fn atomics_need_permission_on_both_sides_of_the_table() {
    let read_write = REMOTE_ATOMIC - Permissions::RDMA_ATOMIC;
    let cases = [
        // Peer's instance, peer's map, this side's map; allowed.
        (ALL, REMOTE_ATOMIC, Permissions::LOCAL_READ_WRITE, true),
        (0b0111, REMOTE_ATOMIC, Permissions::LOCAL_READ_WRITE, false),
        (ALL, read_write, Permissions::LOCAL_READ_WRITE, false),
        (ALL, REMOTE_ATOMIC, Permissions::empty(), false),
        (0b1000, REMOTE_ATOMIC, Permissions::LOCAL_READ_WRITE, true),
    ];
    for (number, (instance, theirs, ours, allowed)) in cases.into_iter().enumerate() {
        let ((a, to_b), _b) = pair_with(0, instance);
        let theirs = Memory::new(4096, theirs, Placement::Pages);
        let remote = import(&theirs.export());
        let (local, bufs) = (Memory::new(4096, ours, Placement::Pages), Bufs::new());
        let result = bufs.room(&local.mmap, 0, 16);
        let on = c(bufs.data(&remote, 0, 8));
        submit(a.fetch_add(to_b, (on, c(result)), 1, 1));
        submit(a.compare_swap(to_b, (on, c(result)), (1, 2), 2));
        // The context stops after the first failure, which flushes the second task.
        let codes = match allowed {
            true => [0, 0],
            false => [Error::NotPermitted, Error::ConnectionAborted].map(Error::code),
        };
        assert_eq!(a.wait(2), [(1, codes[0]), (2, codes[1])], "case {number}");
        assert_eq!(word(&theirs, 0), if allowed { 2 } else { 0 });
        assert_eq!(result.data_len(), if allowed { 16 } else { 0 });
    }
}

#[test]
fn failed_atomic_changes_nothing_and_stops_the_context() {
    let (big, refused) = (Error::TooBig, Error::NotPermitted);
    let expected = [
        big,
        Error::InvalidValue,
        big,
        Error::InvalidValue,
        Error::InvalidValue,
        refused,
        refused,
    ];
    for placement in [Placement::Pages, Placement::Unaligned] {
        for (case, error) in expected.into_iter().enumerate() {
            let ((a, to_b), (b, _)) = pair();
            let theirs = Memory::new(4096, REMOTE_ATOMIC, placement);
            let at = aligned(&theirs);
            let remote = import(&theirs.export());
            let (local, bufs) = (Memory::local(4096), Bufs::new());
            let result = c(bufs.room(&local.mmap, 0, 64));
            let good = c(bufs.data(&remote, at, 8));
            let (on, result) = match case {
                0 => (c(bufs.data(&remote, at, 7)), result),
                1 => (c(bufs.data(&remote, at + 4, 8)), result),
                2 => (good, c(bufs.room(&local.mmap, 0, 7))),
                3 => (null_mut(), result),
                4 => (good, null_mut()),
                // Local memory is not remote, and a peer's is not local.
                5 => (c(bufs.data(&local.mmap, 8, 8)), result),
                _ => (good, c(bufs.room(&remote, at, 8))),
            };
            submit(a.fetch_add(to_b, (on, result), 1, 1));
            submit(a.send(to_b, null_mut(), 2));
            let codes = [error, Error::ConnectionAborted].map(Error::code);
            assert_eq!(
                a.wait(2),
                [(1, codes[0]), (2, codes[1])],
                "{placement:?}, case {case}"
            );
            assert_eq!(a.state(), DOCA_CTX_STATE_STOPPING);
            b.wait_until("the end", |b| b.log.disconnected.get() == 1);
            assert_eq!(theirs.read(0, 64), [0; 64]);
            assert_eq!(local.read(0, 64), [0; 64]);
        }
    }
}

#[test]
fn failed_atomic_stops_a_context_with_other_connections() {
    let (a, others) = (Side::start(ALL, 2), [ALL, 0].map(|it| Side::start(it, 1)));
    let connections = [0, 1].map(|index| {
        let ((details, connection), (theirs, to_a)) = (a.export(), others[index].export());
        ok(a.connect(connection, &theirs));
        ok(others[index].connect(to_a, &details));
        connection
    });
    let theirs = Memory::new(4096, REMOTE_ATOMIC, Placement::Pages);
    let remote = import(&theirs.export());
    let (local, bufs) = (Memory::local(4096), Bufs::new());
    let bufs = (
        c(bufs.data(&remote, 0, 8)),
        c(bufs.room(&local.mmap, 0, 64)),
    );
    submit(a.send(connections[0], null_mut(), 1));
    submit(a.fetch_add(connections[1], bufs, 1, 2));
    let codes = [Error::NotPermitted, Error::ConnectionAborted].map(Error::code);
    assert_eq!(a.wait(2), [(2, codes[0]), (1, codes[1])]);
    assert_eq!(a.state(), DOCA_CTX_STATE_STOPPING);
    for other in &others {
        other.wait_until("the end", |it| it.log.disconnected.get() == 1);
    }
}

const BLOCK: usize = 1000;
const BLOCKS: usize = 20;

/// `BLOCKS` writes of one block each. Block `n` is filled with `n + 1`, and its task has the user data `n`.
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
fn the_first_copy_completes_on_submission_and_all_in_order() {
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
fn pending_copies_are_flushed_with_their_context() {
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
fn copies_on_a_closed_connection_fail() {
    let ((a, to_b), (b, _)) = pair();
    let theirs = Memory::new(BLOCKS * BLOCK, REMOTE, Placement::Pages);
    let bufs = Bufs::new();
    b.stop();
    a.wait_until("the disconnection", |a| a.log.disconnected.get() == 1);
    // Tasks after the first find its completion still pending.
    let _local = writes(&a, to_b, &theirs, &bufs);
    let reset = Error::ConnectionReset.code();
    let failed: Vec<_> = (0..BLOCKS as u64).map(|block| (block, reset)).collect();
    assert_eq!(a.wait(BLOCKS), failed);
}

/// A started event that network peers may signal, and an open device.
pub(super) struct Exported {
    pub(super) event: *mut doca_sync_event,
    dev: *mut doca_dev,
}

impl Exported {
    pub(super) fn new() -> Exported {
        let mut event = null_mut();
        let dev = give::<doca_dev>(device());
        // SAFETY: live handles and a valid out-parameter.
        unsafe {
            ok(doca_sync_event_create(&mut event));
            ok(doca_sync_event_add_publisher_location_remote_net(event));
            ok(doca_sync_event_add_subscriber_location_cpu(event, dev));
            ok(doca_sync_event_start(event));
        }
        Exported { event, dev }
    }

    pub(super) fn blob(&self) -> Vec<u8> {
        let (mut data, mut size) = (null(), 0);
        // SAFETY: a live handle and valid out-parameters; the blob is readable for its size.
        unsafe {
            ok(doca_sync_event_export_to_remote_net(
                self.event, &mut data, &mut size,
            ));
            std::slice::from_raw_parts(data, size).to_vec()
        }
    }

    pub(super) fn value(&self) -> u64 {
        let mut value = 0;
        // SAFETY: a live handle and a valid out-parameter.
        ok(unsafe { doca_sync_event_get(self.event, &mut value) });
        value
    }

    pub(super) fn set(&self, value: u64) {
        // SAFETY: a live handle.
        ok(unsafe { doca_sync_event_update_set(self.event, value) });
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: live handles, not used afterwards.
            unsafe {
                ok(doca_sync_event_stop(self.event));
                ok(doca_sync_event_destroy(self.event));
                drop(Arc::from_raw(self.dev.cast::<Device>()));
            }
        }
    }
}

/// An event imported from an export.
pub(super) struct Remote(pub(super) *mut doca_sync_event_remote_net);

impl Remote {
    pub(super) fn new(blob: &[u8]) -> Remote {
        let mut event = null_mut();
        let dev = give::<doca_dev>(device());
        // SAFETY: a live handle, readable bytes and a valid out-parameter.
        unsafe {
            let make = doca_sync_event_remote_net_create_from_export;
            ok(make(dev, blob.as_ptr(), blob.len(), &mut event));
            drop(Arc::from_raw(dev.cast::<Device>()));
        }
        Remote(event)
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // SAFETY: a live handle, not used afterwards.
        ok(unsafe { doca_sync_event_remote_net_destroy(self.0) });
    }
}

impl Side {
    pub(super) fn event_get(
        &self,
        connection: *mut doca_rdma_connection,
        (event, to): (*mut doca_sync_event_remote_net, *mut doca_buf),
        user: u64,
    ) -> *mut doca_task {
        let (mut task, user) = (null_mut(), doca_data { u64: user });
        // SAFETY: live handles and a valid out-parameter.
        unsafe {
            ok(doca_rdma_task_remote_net_sync_event_get_allocate_init(
                self.rdma, connection, event, to, user, &mut task,
            ));
            self.keep(doca_rdma_task_remote_net_sync_event_get_as_task(task))
        }
    }

    pub(super) fn event_set(
        &self,
        connection: *mut doca_rdma_connection,
        (event, from): (*mut doca_sync_event_remote_net, *mut doca_buf),
        user: u64,
    ) -> *mut doca_task {
        let (mut task, user) = (null_mut(), doca_data { u64: user });
        // SAFETY: as in `event_get`.
        unsafe {
            ok(
                doca_rdma_task_remote_net_sync_event_notify_set_allocate_init(
                    self.rdma, connection, event, from, user, &mut task,
                ),
            );
            self.keep(doca_rdma_task_remote_net_sync_event_notify_set_as_task(
                task,
            ))
        }
    }

    pub(super) fn event_add(
        &self,
        connection: *mut doca_rdma_connection,
        (event, result): (*mut doca_sync_event_remote_net, *mut doca_buf),
        add: u64,
        user: u64,
    ) -> *mut doca_task {
        let (mut task, user) = (null_mut(), doca_data { u64: user });
        // SAFETY: as in `event_get`.
        unsafe {
            ok(
                doca_rdma_task_remote_net_sync_event_notify_add_allocate_init(
                    self.rdma, connection, event, result, add, user, &mut task,
                ),
            );
            self.keep(doca_rdma_task_remote_net_sync_event_notify_add_as_task(
                task,
            ))
        }
    }
}

#[test]
fn remote_events_are_read_set_and_added_to() {
    let ((a, to_b), _b) = pair();
    let theirs = Exported::new();
    assert!(theirs.blob().len() <= 512, "programs have buffers for it");
    let event = Remote::new(&theirs.blob());
    let (local, bufs) = (Memory::local(64), Bufs::new());
    local.write(0, &0xD0CA_u64.to_ne_bytes());
    // A list is equivalent to a single buf.
    let from = bufs.data(&local.mmap, 0, 3);
    from.chain(bufs.data(&local.mmap, 3, 5)).expect("a list");
    let to = bufs.room(&local.mmap, 32, 4);
    to.chain(bufs.room(&local.mmap, 36, 4)).expect("a list");
    let old = bufs.room(&local.mmap, 48, 8);
    submit(a.event_set(to_b, (event.0, c(from)), 1));
    submit(a.event_add(to_b, (event.0, c(old)), 5, 2));
    let get = a.event_get(to_b, (event.0, c(to)), 3);
    submit(get);
    assert_eq!(a.wait(3), [(1, 0), (2, 0), (3, 0)]);
    assert_eq!(theirs.value(), 0xD0CA + 5);
    assert_eq!(word(&local, 48), 0xD0CA);
    assert_eq!((word(&local, 32), to.list_data_len()), (0xD0CA + 5, 8));
    // SAFETY: a live task.
    let len = unsafe { doca_rdma_task_remote_net_sync_event_get_get_result_len(get.cast()) };
    assert_eq!(len, 8);
    // Changes by the exporter are visible.
    theirs.set(u64::MAX);
    to.reset_data_len();
    let back = bufs.room(&local.mmap, 56, 8);
    submit(a.event_get(to_b, (event.0, c(back)), 4));
    a.wait(4);
    assert_eq!(word(&local, 56), u64::MAX);
}

#[test]
fn events_need_the_permissions_of_the_table() {
    let (local_only, none) = (Permissions::LOCAL_READ_WRITE, Permissions::empty());
    let cases = [
        // Peer's instance, this side's map; may get, set, add.
        (ALL, local_only, [true, true, true]),
        (0b0010, local_only, [true, false, false]),
        (0b0100, local_only, [false, true, false]),
        (0b1000, local_only, [false, false, true]),
        (ALL, none, [false, false, false]),
    ];
    for (number, (instance, ours, allowed)) in cases.into_iter().enumerate() {
        let ((a, to_b), _b) = pair_with(0, instance);
        let theirs = Exported::new();
        let event = Remote::new(&theirs.blob());
        let local = Memory::new(64, ours, super::Placement::Pages);
        let bufs = Bufs::new();
        let room = |at| c(bufs.room(&local.mmap, at, 8));
        submit(a.event_get(to_b, (event.0, room(0)), 0));
        submit(a.event_set(to_b, (event.0, c(bufs.data(&local.mmap, 8, 8))), 1));
        submit(a.event_add(to_b, (event.0, room(16)), 3, 2));
        let codes = allowed.map(|allowed| match allowed {
            true => 0,
            false => Error::NotPermitted.code(),
        });
        let expected = [(0, codes[0]), (1, codes[1]), (2, codes[2])];
        assert_eq!(a.wait(3), expected, "case {number}");
        assert_eq!(theirs.value(), if allowed[2] { 3 } else { 0 });
    }
}

#[test]
fn incomplete_tasks_fail_and_leave_the_event_unchanged() {
    let ((a, to_b), _b) = pair();
    let theirs = Exported::new();
    theirs.set(7);
    let event = Remote::new(&theirs.blob());
    let (local, bufs) = (Memory::local(64), Bufs::new());
    let (none, no_buf) = (null_mut(), null_mut());
    let small = c(bufs.room(&local.mmap, 0, 7));
    let room = c(bufs.room(&local.mmap, 8, 8));
    let (invalid, big) = (Error::InvalidValue.code(), Error::TooBig.code());
    let tasks = [
        (a.event_get(to_b, (none, room), 0), invalid),
        (a.event_get(to_b, (event.0, no_buf), 1), invalid),
        (a.event_get(to_b, (event.0, small), 2), big),
        (
            a.event_set(to_b, (none, c(bufs.data(&local.mmap, 16, 8))), 3),
            invalid,
        ),
        (a.event_set(to_b, (event.0, no_buf), 4), invalid),
        (
            a.event_set(to_b, (event.0, c(bufs.data(&local.mmap, 16, 9))), 5),
            invalid,
        ),
        (
            a.event_set(to_b, (event.0, c(bufs.data(&local.mmap, 16, 4))), 6),
            invalid,
        ),
    ];
    for (task, _) in tasks {
        submit(task);
    }
    let expected: Vec<_> = (0..).zip(tasks.map(|(_, code)| code)).collect();
    assert_eq!(a.wait(tasks.len()), expected);
    for case in 0..3 {
        let ((a, to_b), _b) = pair();
        let (task, error) = match case {
            0 => (a.event_add(to_b, (none, room), 1, 7), invalid),
            1 => (a.event_add(to_b, (event.0, no_buf), 1, 7), invalid),
            _ => (a.event_add(to_b, (event.0, small), 1, 7), big),
        };
        submit(task);
        assert_eq!(a.wait(1), [(7, error)]);
        assert_eq!(a.state(), DOCA_CTX_STATE_STOPPING, "case {case}");
    }
    assert_eq!(theirs.value(), 7);
}

#[test]
fn event_task_fields_can_be_set_and_read() {
    let side = Side::start(ALL, 2);
    let ((_, one), (_, two)) = (side.export(), side.export());
    let theirs = Exported::new();
    let (event, other) = (Remote::new(&theirs.blob()), Remote::new(&theirs.blob()));
    let (memory, bufs) = (Memory::local(64), Bufs::new());
    let buf = c(bufs.room(&memory.mmap, 0, 8));
    macro_rules! check {
        ($task:expr; $($set:ident, $get:ident: $before:expr, $after:expr;)+) => { $(
            assert!(std::ptr::eq($get($task), $before), stringify!($get));
            $set($task, $after);
            assert!(std::ptr::eq($get($task), $after), stringify!($set));
            $set(null_mut(), $before);
            assert!($get(null()).is_null());
        )+ };
    }
    // SAFETY: live tasks of their kinds, or NULL.
    unsafe {
        let get = side.event_get(one, (event.0, null_mut()), 1).cast();
        check!(get;
            doca_rdma_task_remote_net_sync_event_get_set_dst_buf, doca_rdma_task_remote_net_sync_event_get_get_dst_buf: null_mut::<doca_buf>(), buf;
            doca_rdma_task_remote_net_sync_event_get_set_sync_event, doca_rdma_task_remote_net_sync_event_get_get_sync_event: event.0, other.0;
            doca_rdma_task_remote_net_sync_event_get_set_rdma_connection, doca_rdma_task_remote_net_sync_event_get_get_rdma_connection: one, two;);
        let set = side.event_set(one, (event.0, null_mut()), 1).cast();
        check!(set;
            doca_rdma_task_remote_net_sync_event_notify_set_set_src_buf, doca_rdma_task_remote_net_sync_event_notify_set_get_src_buf: null::<doca_buf>(), buf;
            doca_rdma_task_remote_net_sync_event_notify_set_set_sync_event, doca_rdma_task_remote_net_sync_event_notify_set_get_sync_event: event.0, other.0;
            doca_rdma_task_remote_net_sync_event_notify_set_set_rdma_connection, doca_rdma_task_remote_net_sync_event_notify_set_get_rdma_connection: one, two;);
        let add = side.event_add(one, (event.0, null_mut()), 5, 1).cast();
        check!(add;
            doca_rdma_task_remote_net_sync_event_notify_add_set_result_buf, doca_rdma_task_remote_net_sync_event_notify_add_get_result_buf: null_mut::<doca_buf>(), buf;
            doca_rdma_task_remote_net_sync_event_notify_add_set_sync_event, doca_rdma_task_remote_net_sync_event_notify_add_get_sync_event: event.0, other.0;
            doca_rdma_task_remote_net_sync_event_notify_add_set_rdma_connection, doca_rdma_task_remote_net_sync_event_notify_add_get_rdma_connection: one, two;);
        assert_eq!(
            doca_rdma_task_remote_net_sync_event_notify_add_get_add_data(add),
            5
        );
        doca_rdma_task_remote_net_sync_event_notify_add_set_add_data(add, 6);
        assert_eq!(
            doca_rdma_task_remote_net_sync_event_notify_add_get_add_data(add),
            6
        );
        doca_rdma_task_remote_net_sync_event_notify_add_set_add_data(null_mut(), 6);
        assert_eq!(
            doca_rdma_task_remote_net_sync_event_notify_add_get_add_data(null()),
            0
        );
        assert_eq!(
            doca_rdma_task_remote_net_sync_event_get_get_result_len(null()),
            0
        );

        let device = device();
        let info = Arc::as_ptr(device.info()).cast();
        for is_supported in [
            doca_rdma_cap_task_remote_net_sync_event_get_is_supported,
            doca_rdma_cap_task_remote_net_sync_event_notify_set_is_supported,
            doca_rdma_cap_task_remote_net_sync_event_notify_add_is_supported,
        ] {
            assert_eq!(is_supported(info), 0);
            assert_eq!(is_supported(null()), Error::InvalidValue.code());
        }
        let unsupported = Error::NotSupported.code();
        let mut handle = 0;
        assert_eq!(
            doca_rdma_get_dpa_handle(side.rdma, &mut handle),
            unsupported
        );
        assert_eq!(doca_rdma_get_gpu_handle(side.rdma, null_mut()), unsupported);
        assert_eq!(
            doca_rdma_dpa_completion_attach(side.rdma, null_mut()),
            unsupported
        );
        let invalid = Error::InvalidValue.code();
        assert_eq!(doca_rdma_get_dpa_handle(null_mut(), &mut handle), invalid);
        assert_eq!(doca_rdma_get_gpu_handle(null_mut(), null_mut()), invalid);
        assert_eq!(
            doca_rdma_dpa_completion_attach(null_mut(), null_mut()),
            invalid
        );
    }
}
