//! Tests that combine bufs, lists and inventories.

use std::sync::Arc;

use super::{Buf, BufInventory, copy_list};
use crate::error::Error;
use crate::memory::{Mmap, Permissions};

/// A started map over its own memory.
struct Memory {
    mmap: Arc<Mmap>,
    bytes: Box<[u8]>,
}

impl Memory {
    fn new(len: usize) -> Memory {
        let mut bytes: Box<[u8]> = (0..len).map(|index| index as u8).collect();
        let mmap = Mmap::new();
        mmap.set_memrange(bytes.as_mut_ptr().expose_provenance() as u64, len as u64)
            .unwrap();
        mmap.start().unwrap();
        Memory {
            mmap: Arc::new(mmap),
            bytes,
        }
    }

    fn addr(&self, offset: usize) -> u64 {
        self.mmap.memrange().unwrap().0 + offset as u64
    }

    fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut read = vec![0; len];
        // SAFETY: the vector has that many bytes.
        unsafe {
            self.mmap
                .read_into(self.addr(offset), read.as_mut_ptr(), len)
        }
        .unwrap();
        read
    }
}

fn inventory(count: usize) -> BufInventory {
    let inventory = BufInventory::new(count).unwrap();
    inventory.start();
    inventory
}

fn view(buf: &Buf) -> (u64, usize, u64, usize) {
    (buf.head(), buf.capacity(), buf.data(), buf.data_len())
}

#[test]
fn bufs_are_bounded_by_their_map() {
    let (memory, inventory) = (Memory::new(100), inventory(4));
    let at = |offset| memory.addr(offset);
    assert_eq!(
        view(inventory.get_by_addr(&memory.mmap, at(10), 90).unwrap()),
        (at(10), 90, at(10), 0)
    );
    assert_eq!(
        view(inventory.get_by_data(&memory.mmap, at(100), 0).unwrap()),
        (at(100), 0, at(100), 0)
    );
    for (addr, len) in [
        (at(10), 91),
        (at(0) - 1, 2),
        (at(1), usize::MAX),
        (u64::MAX, 2),
        (at(101), 0),
    ] {
        assert_eq!(
            inventory.get_by_addr(&memory.mmap, addr, len).unwrap_err(),
            Error::InvalidValue
        );
    }
    assert_eq!(
        inventory
            .get_by_args(&memory.mmap, at(0), 10, at(5), 6)
            .unwrap_err(),
        Error::InvalidValue
    );
    let buf = inventory
        .get_by_args(&memory.mmap, at(0), 10, at(5), 5)
        .unwrap();
    assert_eq!(buf.tail_len(), 0);
    assert_eq!(buf.set_data(at(0), 101), Err(Error::InvalidValue));
    assert_eq!(buf.set_data(at(101), 0), Err(Error::InvalidValue));
    assert_eq!(buf.set_data(at(0) - 1, 1), Err(Error::InvalidValue));
    assert_eq!(buf.set_data(at(5), usize::MAX), Err(Error::InvalidValue));
    assert_eq!(view(buf), (at(0), 10, at(5), 5));
    // Outside of the buf, but inside the map.
    for (data, len) in [(9, 2), (11, 0), (40, 60)] {
        assert_eq!(buf.set_data(at(data), len), Ok(()));
        assert_eq!(view(buf), (at(0), 10, at(data), len));
        assert_eq!(buf.tail_len(), 0);
    }
    buf.reuse_by_addr(at(50), 10).unwrap();
    buf.set_data(at(20), 4).unwrap();
    assert_eq!(buf.tail_len(), 36, "up to the end of the buf");
    buf.reuse_by_addr(at(0), 10).unwrap();
    buf.set_data(at(2), 3).unwrap();
    assert_eq!((buf.data_len(), buf.tail_len()), (3, 5));
    buf.reset_data_len();
    assert_eq!((buf.data(), buf.data_len(), buf.tail_len()), (at(2), 0, 8));
    // Bounded by the map, not by the buf's first length.
    buf.reuse_by_data(at(20), 80).unwrap();
    assert_eq!(view(buf), (at(20), 80, at(20), 80));
    buf.reuse_by_addr(at(1), 99).unwrap();
    assert_eq!(view(buf), (at(1), 99, at(1), 0));
    assert_eq!(buf.reuse_by_addr(at(1), 100), Err(Error::InvalidValue));
    assert_eq!(
        buf.reuse_by_data(at(1), usize::MAX),
        Err(Error::InvalidValue)
    );
    assert_eq!(view(buf), (at(1), 99, at(1), 0));
}

#[test]
fn an_inventory_counts_and_can_grow() {
    let memory = Memory::new(8);
    let stopped = BufInventory::new(2).unwrap();
    assert_eq!(
        stopped
            .get_by_addr(&memory.mmap, memory.addr(0), 8)
            .unwrap_err(),
        Error::BadState
    );
    assert_eq!(stopped.expand(1), Err(Error::BadState));
    assert_eq!(BufInventory::new(0).unwrap_err(), Error::InvalidValue);
    assert_eq!(BufInventory::new(usize::MAX).unwrap_err(), Error::NoMemory);
    let inventory = inventory(2);
    let get = || inventory.get_by_addr(&memory.mmap, memory.addr(0), 8);
    let (a, b) = (get().unwrap(), get().unwrap());
    assert_eq!(get().unwrap_err(), Error::NoMemory);
    inventory.expand(1).unwrap();
    let c = get().unwrap();
    assert!(!std::ptr::eq(a, b) && !std::ptr::eq(b, c));
    assert_eq!(
        (
            inventory.count(),
            inventory.free_count(),
            memory.mmap.buf_count()
        ),
        (3, 0, 3)
    );
    assert_eq!(inventory.check_unused(), Err(Error::InUse));
    assert_eq!(memory.mmap.stop(), Err(Error::NotPermitted));
    assert_eq!(a.inc_refcount(), Ok(1));
    assert_eq!((a.dec_refcount(), a.refcount()), (Ok(2), 1));
    for buf in [a, b, c] {
        assert_eq!(buf.dec_refcount(), Ok(1));
        assert_eq!(buf.dec_refcount(), Err(Error::BadState));
    }
    assert_eq!((inventory.free_count(), memory.mmap.buf_count()), (3, 0));
    assert_eq!(inventory.check_unused(), Ok(()));
    assert_eq!(memory.mmap.stop(), Ok(()));
    assert_eq!(get().unwrap_err(), Error::BadState);
}

#[test]
fn a_map_in_use_by_threads_does_not_count_bufs() {
    let (memory, inventory) = (Memory::new(8), inventory(1));
    memory.mmap.stop().unwrap();
    memory.mmap.enable_thread_safety().unwrap();
    memory.mmap.start().unwrap();
    assert_eq!(memory.mmap.enable_thread_safety(), Err(Error::NotPermitted));
    let buf = inventory
        .get_by_data(&memory.mmap, memory.addr(0), 8)
        .unwrap();
    memory.mmap.stop().unwrap();
    // The program may have freed the memory of a stopped map.
    let mut read = [0; 8];
    // SAFETY: the array has 8 bytes.
    let result = unsafe { buf.read_data(read.as_mut_ptr(), 8) };
    assert_eq!(result, Err(Error::BadState));
}

#[test]
fn lists_are_chained_and_returned_whole() {
    let (memory, inventory) = (Memory::new(100), inventory(5));
    let get = |offset, len| {
        inventory
            .get_by_data(&memory.mmap, memory.addr(offset), len)
            .unwrap()
    };
    let (a, b, c, d) = (get(0, 10), get(10, 20), get(30, 30), get(60, 1));
    a.chain(b).unwrap();
    c.chain(d).unwrap();
    assert_eq!(b.chain(c), Err(Error::InvalidValue), "not the first");
    assert_eq!(a.chain(b), Err(Error::InvalidValue), "in a list already");
    assert_eq!(a.chain(a), Err(Error::InvalidValue));
    c.inc_refcount().unwrap();
    assert_eq!(a.chain(c), Err(Error::NotPermitted));
    c.dec_refcount().unwrap();
    a.chain(c).unwrap();
    assert!(a.list().map(Buf::data_len).eq([10, 20, 30, 1]));
    assert_eq!((a.list_data_len(), a.list_tail_len()), (61, 0));
    assert!(std::ptr::eq(a.last_in_list(), d));
    assert!(a.is_first_in_list() && !d.is_first_in_list() && d.is_in_list());
    assert_eq!(b.dec_refcount(), Err(Error::NotPermitted));
    // Links outlive reuse.
    b.reuse_by_addr(memory.addr(50), 50).unwrap();
    assert!(a.list().map(Buf::capacity).eq([10, 50, 30, 1]));
    a.unchain(c).unwrap();
    assert_eq!(a.unchain(c), Err(Error::InvalidValue));
    assert_eq!(
        (a.list().count(), c.list().count(), c.refcount()),
        (2, 2, 1)
    );
    a.chain(c).unwrap();
    assert_eq!((a.dec_refcount(), inventory.free_count()), (Ok(1), 5));
    assert!(a.next_in_list().is_none(), "a free buf is in no list");
}

#[test]
fn duplicates_are_independent_bufs() {
    let (memory, few, many) = (Memory::new(100), inventory(2), inventory(2));
    let get = |offset| {
        few.get_by_data(&memory.mmap, memory.addr(offset), 10)
            .unwrap()
    };
    let (a, b) = (get(0), get(20));
    a.chain(b).unwrap();
    let copy = many.duplicate(a).unwrap();
    assert!(copy.list().map(view).eq(a.list().map(view)));
    assert_eq!(many.duplicate(b).unwrap_err(), Error::NotPermitted);
    copy.dec_refcount().unwrap();
    let one_more = inventory(1);
    many.duplicate(
        one_more
            .get_by_addr(&memory.mmap, memory.addr(0), 1)
            .unwrap(),
    )
    .unwrap();
    assert_eq!(many.duplicate(a).unwrap_err(), Error::NoMemory);
    assert_eq!(many.free_count(), 1, "the half-made copy was given back");
}

#[test]
fn results_are_appended_after_the_data() {
    let (source, target, inventory) = (Memory::new(64), Memory::new(64), inventory(8));
    let from = |offset, len| {
        inventory
            .get_by_data(&source.mmap, source.addr(offset), len)
            .unwrap()
    };
    let list = from(1, 5);
    list.chain(from(20, 0)).unwrap();
    list.chain(from(40, 7)).unwrap();
    let first = inventory
        .get_by_args(&target.mmap, target.addr(0), 8, target.addr(2), 2)
        .unwrap();
    let second = inventory
        .get_by_addr(&target.mmap, target.addr(32), 9)
        .unwrap();
    first.chain(second).unwrap();
    assert_eq!(first.list_tail_len(), 13);
    assert_eq!(copy_list(first, list), Ok(12));
    assert_eq!(
        (first.data_len(), second.data_len(), first.list_tail_len()),
        (6, 8, 1)
    );
    assert_eq!(target.read(0, 9), [0, 1, 2, 3, 1, 2, 3, 4, 8]);
    assert_eq!(target.read(32, 9), [5, 40, 41, 42, 43, 44, 45, 46, 40]);
    assert_eq!(copy_list(first, list), Err(Error::TooBig));
    let mut all = [0; 14];
    // SAFETY: the array has this size.
    unsafe {
        assert_eq!(first.read_data(all.as_mut_ptr(), 14), Ok(14));
        assert_eq!(first.read_data(all.as_mut_ptr(), 13), Err(Error::TooBig));
    }
    assert_eq!(all, [2, 3, 1, 2, 3, 4, 5, 40, 41, 42, 43, 44, 45, 46]);
    assert_eq!(source.bytes.len(), 64);
}

#[test]
fn read_only_memory_is_not_written() {
    let (source, target, inventory) = (Memory::new(8), Memory::new(8), inventory(2));
    target.mmap.stop().unwrap();
    target.mmap.set_permissions(Permissions::empty()).unwrap();
    target.mmap.start().unwrap();
    let from = inventory
        .get_by_data(&source.mmap, source.addr(0), 8)
        .unwrap();
    let to = inventory
        .get_by_addr(&target.mmap, target.addr(0), 8)
        .unwrap();
    assert_eq!(copy_list(to, from), Err(Error::NotPermitted));
    assert_eq!(to.data_len(), 0);
}
