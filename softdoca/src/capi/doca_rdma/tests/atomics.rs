//! Atomic operations on the peer's memory.

use std::ptr::null_mut;

use doca_abi::{doca_buf, doca_data, doca_rdma_connection, doca_task};

use super::super::*;
use super::memory::{Bufs, Memory, Placement, c, import};
use super::side::{ALL, Side, ok, pair, pair_with, submit};
use crate::error::Error;
use crate::memory::Permissions;

pub(super) const REMOTE: Permissions = Permissions::LOCAL_READ_WRITE
    .union(Permissions::RDMA_READ)
    .union(Permissions::RDMA_WRITE)
    .union(Permissions::RDMA_ATOMIC);

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
        // SAFETY: the pointer is not followed.
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
        // SAFETY: the pointer is not followed.
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
fn atomics_change_memory_and_bring_the_old_value() {
    for placement in [Placement::Pages, Placement::Unaligned] {
        let ((a, to_b), _b) = pair();
        let theirs = Memory::new(4096, REMOTE, placement);
        let at = aligned(&theirs);
        theirs.write(at, &10_u64.to_ne_bytes());
        let remote = import(&theirs.export());
        let (local, bufs) = (Memory::local(4096), Bufs::new());
        // More data than 8 bytes, and none: only the begin of the data counts.
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
    let read_write = REMOTE - Permissions::RDMA_ATOMIC;
    let cases = [
        // Peer's instance, peer's map, this side's map; allowed.
        (ALL, REMOTE, Permissions::LOCAL_READ_WRITE, true),
        (0b0111, REMOTE, Permissions::LOCAL_READ_WRITE, false),
        (ALL, read_write, Permissions::LOCAL_READ_WRITE, false),
        (ALL, REMOTE, Permissions::empty(), false),
        (0b1000, REMOTE, Permissions::LOCAL_READ_WRITE, true),
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
        let code = if allowed {
            0
        } else {
            Error::NotPermitted.code()
        };
        assert_eq!(a.wait(2), [(1, code), (2, code)], "case {number}");
        assert_eq!(word(&theirs, 0), if allowed { 2 } else { 0 });
        assert_eq!(result.data_len(), if allowed { 16 } else { 0 });
    }
}

#[test]
fn atomics_that_cannot_be_done_change_nothing() {
    for placement in [Placement::Pages, Placement::Unaligned] {
        let ((a, to_b), _b) = pair();
        let theirs = Memory::new(4096, REMOTE, placement);
        let at = aligned(&theirs);
        let remote = import(&theirs.export());
        let (local, bufs) = (Memory::local(4096), Bufs::new());
        let result = c(bufs.room(&local.mmap, 0, 64));
        let good = c(bufs.data(&remote, at, 8));
        let (short, crooked) = (bufs.data(&remote, at, 7), bufs.data(&remote, at + 4, 8));
        submit(a.fetch_add(to_b, (c(short), result), 1, 1));
        submit(a.fetch_add(to_b, (c(crooked), result), 1, 2));
        submit(a.fetch_add(to_b, (good, c(bufs.room(&local.mmap, 0, 7))), 1, 3));
        submit(a.fetch_add(to_b, (null_mut(), result), 1, 4));
        submit(a.fetch_add(to_b, (good, null_mut()), 1, 5));
        // Own memory is not remote, another's is not local.
        submit(a.fetch_add(to_b, (c(bufs.data(&local.mmap, 8, 8)), result), 1, 6));
        submit(a.fetch_add(to_b, (good, c(bufs.room(&remote, at, 8))), 1, 7));
        let [invalid, big, refused] =
            [Error::InvalidValue, Error::TooBig, Error::NotPermitted].map(Error::code);
        assert_eq!(
            a.wait(7),
            [
                (1, big),
                (2, invalid),
                (3, big),
                (4, invalid),
                (5, invalid),
                (6, refused),
                (7, refused)
            ],
            "{placement:?}"
        );
        assert_eq!(theirs.read(0, 64), [0; 64]);
        assert_eq!(local.read(0, 64), [0; 64]);
    }
}
