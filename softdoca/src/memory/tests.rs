//! Tests of memory maps inside one process; those between processes are integration tests.

use std::sync::Arc;

use super::{ExportKind, Mmap, Permissions, copy};
use crate::device::Device;
use crate::error::Error;

/// Bytes that a map may be made over.
struct Bytes(Box<[u8]>);

impl Bytes {
    fn new(len: usize) -> Bytes {
        Bytes((0..len).map(|index| index as u8).collect())
    }

    fn addr(&mut self) -> u64 {
        self.0.as_mut_ptr().expose_provenance() as u64
    }

    fn map(&mut self) -> Mmap {
        let mmap = Mmap::new();
        mmap.set_memrange(self.addr(), self.0.len() as u64).unwrap();
        mmap
    }
}

#[test]
fn a_map_is_set_up_in_order() {
    let (mut bytes, mmap) = (Bytes::new(100), Mmap::new());
    let device = Device::open_by_name("mlx5_0").unwrap();
    assert_eq!(mmap.memrange(), Err(Error::BadState));
    assert_eq!(mmap.start(), Err(Error::InvalidValue));
    for (addr, len) in [
        (0, 1),
        (bytes.addr(), 0),
        (bytes.addr(), u64::MAX),
        (u64::MAX, 2),
    ] {
        assert_eq!(mmap.set_memrange(addr, len), Err(Error::InvalidValue));
    }
    mmap.set_memrange(bytes.addr(), 100).unwrap();
    assert_eq!(
        mmap.set_memrange(bytes.addr(), 100),
        Err(Error::NotPermitted)
    );
    assert_eq!(mmap.memrange(), Ok((bytes.addr(), 100)));
    assert_eq!(mmap.permissions(), Permissions::LOCAL_READ_WRITE);
    mmap.add_device(&device).unwrap();
    assert_eq!(mmap.add_device(&device), Err(Error::AlreadyExist));
    mmap.enable_thread_safety().unwrap();
    assert_eq!(
        mmap.export(ExportKind::Pci, &device).unwrap_err(),
        Error::NotPermitted
    );
    assert_eq!(
        (mmap.local_ptr(bytes.addr(), 1), mmap.is_writable()),
        (None, false),
        "not started"
    );
    mmap.start().unwrap();
    assert_eq!(mmap.start(), Err(Error::BadState));
    assert_eq!(
        mmap.set_permissions(Permissions::PCI_READ_ONLY),
        Err(Error::BadState)
    );
    assert_eq!(mmap.add_device(&device), Err(Error::NotPermitted));
    assert_eq!(mmap.enable_thread_safety(), Err(Error::NotPermitted));
    assert!(mmap.is_writable() && !mmap.is_imported() && !mmap.is_exported());
    mmap.stop().unwrap();
    mmap.stop().unwrap();
    mmap.set_permissions(Permissions::empty()).unwrap();
    mmap.start().unwrap();
    assert!(!mmap.is_writable());
}

#[test]
fn the_range_bounds_every_access() {
    let mut bytes = Bytes::new(100);
    let mmap = bytes.map();
    mmap.start().unwrap();
    let addr = bytes.addr();
    for (offset, len) in [(0, 100), (100, 0), (99, 1), (0, 0)] {
        assert!(mmap.contains(addr + offset, len));
        assert_eq!(
            mmap.local_ptr(addr + offset, len).unwrap().addr() as u64,
            addr + offset
        );
    }
    let outside = [
        (addr - 1, 1),
        (addr, 101),
        (addr + 100, 1),
        (addr + 1, u64::MAX),
        (0, 1),
        (u64::MAX, u64::MAX),
    ];
    for (at, len) in outside {
        assert!(!mmap.contains(at, len), "{at:#x} {len:#x}");
        assert_eq!(mmap.local_ptr(at, len), None);
        let len = usize::try_from(len).unwrap();
        assert_eq!(copy(&mmap, addr, &mmap, at, len), Err(Error::InvalidValue));
        assert_eq!(copy(&mmap, at, &mmap, addr, len), Err(Error::InvalidValue));
    }
}

#[test]
fn bytes_are_copied_as_by_memmove() {
    let mut bytes = Bytes::new(32);
    let (mmap, addr) = (bytes.map(), bytes.addr());
    mmap.start().unwrap();
    copy(&mmap, addr + 4, &mmap, addr, 16).unwrap();
    let (mut read, expected): (_, Vec<u8>) = ([0; 20], (0..4).chain(0..16).collect());
    // SAFETY: the arrays have these sizes.
    unsafe {
        mmap.read_into(addr, read.as_mut_ptr(), 20).unwrap();
        assert_eq!(read[..], expected);
        mmap.write_from(addr + 31, [7].as_ptr(), 1).unwrap();
        mmap.read_into(addr + 30, read.as_mut_ptr(), 2).unwrap();
        assert_eq!(read[..2], [30, 7]);
        assert_eq!(
            mmap.write_from(addr + 31, read.as_ptr(), 2),
            Err(Error::InvalidValue)
        );
    }
    mmap.stop().unwrap();
    assert_eq!(copy(&mmap, addr, &mmap, addr, 1), Err(Error::BadState));
}

#[test]
fn read_only_memory_cannot_be_offered_for_writing() {
    static CONSTANT: [u8; 64] = [7; 64];
    let addr = (&raw const CONSTANT).expose_provenance() as u64;
    let mmap = Mmap::new();
    mmap.set_memrange(addr, 64).unwrap();
    mmap.set_permissions(Permissions::RDMA_WRITE).unwrap();
    assert_eq!(mmap.start(), Err(Error::InvalidValue));
    // As a source it is good, with the default permission.
    mmap.set_permissions(Permissions::default()).unwrap();
    mmap.start().unwrap();
    assert!(!mmap.is_writable());
    assert_eq!(
        copy(&mmap, addr, &mmap, addr + 8, 8),
        Err(Error::NotPermitted)
    );
    assert_eq!(
        mmap.fetch_add(addr.next_multiple_of(8), 1),
        Err(Error::NotPermitted)
    );
}

#[test]
fn maps_are_used_by_several_threads() {
    let mut bytes = Bytes::new(64);
    let (mmap, addr) = (Arc::new(bytes.map()), bytes.addr().next_multiple_of(8));
    mmap.start().unwrap();
    // SAFETY: the array has 8 bytes.
    unsafe { mmap.write_from(addr, [0; 8].as_ptr(), 8) }.unwrap();
    let add =
        |mmap: Arc<Mmap>| move || (0..1000).try_for_each(|_| mmap.fetch_add(addr, 1).map(|_| ()));
    let threads: Vec<_> = (0..4)
        .map(|_| std::thread::spawn(add(Arc::clone(&mmap))))
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap().unwrap());
    assert_eq!(mmap.compare_swap(addr, 4000, 0), Ok(4000));
}
