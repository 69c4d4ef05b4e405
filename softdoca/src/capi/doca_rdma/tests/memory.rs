//! Memory of the tests: maps of it, and bufs in them.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::Arc;

use doca_abi::doca_buf;

use crate::buffer::{Buf, BufInventory};
use crate::device::Device;
use crate::memory::{ExportKind, Mmap, Permissions};

/// How peers reach the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Placement {
    /// Whole pages: mapped by importers.
    Pages,
    /// Not at the begin of a page: copied by the exporter's agent.
    Unaligned,
}

/// A started map over memory of its own.
pub(super) struct Memory {
    pub(super) mmap: Arc<Mmap>,
    base: NonNull<u8>,
    layout: Layout,
}

const PAGE: usize = 4096;

impl Memory {
    pub(super) fn new(len: usize, permissions: Permissions, placement: Placement) -> Memory {
        let layout =
            Layout::from_size_align((len + 1).next_multiple_of(PAGE), PAGE).expect("a layout");
        // SAFETY: not of size 0.
        let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).expect("memory");
        let skip = usize::from(placement == Placement::Unaligned);
        let mmap = Mmap::new();
        let addr = base.as_ptr().expose_provenance() + skip;
        mmap.set_memrange(addr as u64, len as u64).expect("a range");
        mmap.set_permissions(permissions).expect("not started");
        mmap.add_device(&device()).expect("a first device");
        mmap.start().expect("the range is mapped");
        Memory {
            mmap: Arc::new(mmap),
            base,
            layout,
        }
    }

    /// Memory that only this process uses.
    pub(super) fn local(len: usize) -> Memory {
        Memory::new(len, Permissions::LOCAL_READ_WRITE, Placement::Pages)
    }

    pub(super) fn addr(&self) -> u64 {
        self.mmap.memrange().expect("a range").0
    }

    pub(super) fn export(&self) -> Vec<u8> {
        self.export_for(ExportKind::Rdma)
    }

    pub(super) fn export_for(&self, kind: ExportKind) -> Vec<u8> {
        let exported = self.mmap.export(kind, &device());
        exported.expect("permissions for it").to_vec()
    }

    pub(super) fn write(&self, offset: usize, bytes: &[u8]) {
        let pointer = self
            .mmap
            .local_ptr(self.addr() + offset as u64, bytes.len() as u64)
            .expect("inside the range");
        // SAFETY: inside the range, which the test owns.
        unsafe { std::ptr::copy(bytes.as_ptr(), pointer, bytes.len()) };
    }

    pub(super) fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        // SAFETY: the vector has that many bytes.
        unsafe {
            self.mmap
                .read_into(self.addr() + offset as u64, bytes.as_mut_ptr(), len)
        }
        .expect("inside the range");
        bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // The pages stay shared after the map has gone: they are still ours to give back, as programs do.
        // SAFETY: allocated with this layout.
        unsafe { std::alloc::dealloc(self.base.as_ptr(), self.layout) };
    }
}

pub(super) fn device() -> Arc<Device> {
    Device::open_by_name("mlx5_0").expect("the built-in topology has it")
}

pub(super) fn import(descriptor: &[u8]) -> Arc<Mmap> {
    Arc::new(Mmap::import(descriptor, &device()).expect("a descriptor"))
}

/// Bufs of a test; they are given back with it.
pub(super) struct Bufs(BufInventory);

impl Bufs {
    pub(super) fn new() -> Bufs {
        let inventory = BufInventory::new(512).expect("memory");
        inventory.start();
        Bufs(inventory)
    }

    /// Room for `len` bytes, without data.
    pub(super) fn room(&self, mmap: &Arc<Mmap>, offset: usize, len: usize) -> &Buf {
        let addr = mmap.memrange().expect("a range").0 + offset as u64;
        self.0.get_by_addr(mmap, addr, len).expect("a buf")
    }

    /// `len` bytes of data.
    pub(super) fn data(&self, mmap: &Arc<Mmap>, offset: usize, len: usize) -> &Buf {
        let addr = mmap.memrange().expect("a range").0 + offset as u64;
        self.0.get_by_data(mmap, addr, len).expect("a buf")
    }
}

/// The C handle of a buf.
pub(super) fn c(buf: &Buf) -> *mut doca_buf {
    std::ptr::from_ref(buf).cast_mut().cast()
}
