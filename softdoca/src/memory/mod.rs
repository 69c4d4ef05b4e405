//! Memory maps: ranges of memory for devices and, through exports, for other processes.
//!
//! A range of a started map with remote permissions is shared in place: its whole private pages become pages of a
//! memfd that importers map as well; the rest is accessed through the [`agent`](crate::agent). Addresses of an
//! imported map are its exporter's, throughout this API.
//!
//! Other processes write to this memory at any time, so no Rust reference to it is created: bytes are moved by raw
//! copies.

mod access;
mod descriptor;
mod export;
mod imported;
mod mmap;
mod sharing;

pub use access::copy;
pub use descriptor::{ExportKind, Permissions};
pub(crate) use descriptor::{again as descriptor_again, examples as example_descriptors};
pub use mmap::{FreeCallback, FreeFunction, Mmap};

#[cfg(test)]
mod tests {
    //! Tests of memory maps inside one process; those between processes are integration tests.

    use std::os::fd::OwnedFd;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use rustix::fs::{MemfdFlags, SealFlags};

    use super::{ExportKind, Mmap, Permissions, copy};
    use crate::capi::testing::{Answer, ScriptedAgent, segment};
    use crate::device::Device;
    use crate::error::Error;

    /// Backing bytes for a map.
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
    fn setters_of_a_map_must_precede_its_start() {
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
        // It can be used as a source, with the default permission.
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
    fn maps_are_usable_from_several_threads() {
        let mut bytes = Bytes::new(64);
        let (mmap, addr) = (Arc::new(bytes.map()), bytes.addr().next_multiple_of(8));
        mmap.start().unwrap();
        // SAFETY: the array has 8 bytes.
        unsafe { mmap.write_from(addr, [0; 8].as_ptr(), 8) }.unwrap();
        let add = |mmap: Arc<Mmap>| {
            move || (0..1000).try_for_each(|_| mmap.fetch_add(addr, 1).map(|_| ()))
        };
        let threads: Vec<_> = (0..4)
            .map(|_| std::thread::spawn(add(Arc::clone(&mmap))))
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap().unwrap());
        assert_eq!(mmap.compare_swap(addr, 4000, 0), Ok(4000));
    }

    const PAGE: u64 = 4096;
    /// `DOCA_ACCESS_FLAG_RDMA_READ`, `_WRITE`, `_ATOMIC`.
    const RDMA: u32 = 0b1110;

    fn import(descriptor: &[u8]) -> Result<Mmap, Error> {
        Mmap::import(descriptor, &Device::open_by_name("mlx5_0").unwrap())
    }

    fn memfd(flags: MemfdFlags, len: u64) -> rustix::io::Result<Arc<OwnedFd>> {
        let memfd = rustix::fs::memfd_create("test", flags | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&memfd, len)?;
        rustix::fs::fcntl_add_seals(&memfd, SealFlags::SHRINK | SealFlags::GROW)?;
        Ok(Arc::new(memfd))
    }

    fn memfd_of_zeros() -> Arc<OwnedFd> {
        memfd(MemfdFlags::CLOEXEC, PAGE).unwrap()
    }

    /// An agent whose export is one segment in a memfd, from `offset` on.
    fn exporter(memfd: Arc<OwnedFd>, addr: u64, len: u64, offset: u64) -> ScriptedAgent {
        // The validity word: 0 while the export is valid.
        let validity = memfd_of_zeros();
        ScriptedAgent::start(move |asked| match asked.operation {
            1 if asked.addr == 0 => {
                let entry = segment(addr, len, offset, Some(0));
                Some((1, entry, vec![Arc::clone(&memfd)]))
            }
            7 => Some((0, Vec::new(), vec![Arc::clone(&validity)])),
            _ => None,
        })
    }

    #[test]
    fn words_of_imported_memory_are_aligned() {
        // The exporter's addresses are multiples of 8; here they would not be.
        for (offset, accepted) in [(0, true), (PAGE, true), (4, false), (8, false), (64, false)] {
            let memory = memfd(MemfdFlags::CLOEXEC, 4 * PAGE).unwrap();
            let agent = exporter(memory, 0x10_0000, PAGE, offset);
            let mmap = import(&agent.descriptor(2, RDMA, 0x10_0000, PAGE));
            match mmap {
                Ok(mmap) if accepted => assert_eq!(mmap.fetch_add(0x10_0000, 5), Ok(0)),
                Err(error) if !accepted => assert_eq!(error, Error::Unexpected),
                other => panic!("offset {offset}: {other:?}"),
            }
        }
    }

    #[test]
    fn huge_page_memory_is_not_mapped() {
        let Ok(memory) = memfd(MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB, 2 << 20) else {
            eprintln!("not run: this kernel has no huge pages");
            return;
        };
        let agent = exporter(memory, 0x20_0000, 2 << 20, 0);
        let refused = import(&agent.descriptor(2, RDMA, 0x20_0000, 2 << 20));
        assert_eq!(refused.err(), Some(Error::NotSupported));
    }

    #[test]
    fn slow_description_by_an_exporter_times_out() {
        // One segment in each reply, and each reply in time by itself.
        let agent = ScriptedAgent::start(|asked| {
            std::thread::sleep(Duration::from_millis(400));
            let next = 0x10_0000 + asked.addr * PAGE;
            Some((100, segment(next, PAGE, 0, None), vec![]))
        });
        let begin = Instant::now();
        let given_up = import(&agent.descriptor(2, RDMA, 0x10_0000, 100 * PAGE));
        assert_eq!(given_up.err(), Some(Error::TimeOut));
        let took = begin.elapsed();
        assert!(took < Duration::from_secs(6), "{took:?}");
    }

    #[test]
    fn an_import_has_limits() {
        let describe = |count: u64, per_reply: u64| {
            ScriptedAgent::start(move |asked| {
                let entries = (asked.addr..(asked.addr + per_reply).min(count))
                    .flat_map(|index| segment(0x10_0000 + index * PAGE, PAGE, 0, None));
                Some((count, entries.collect(), vec![])) as Answer
            })
        };
        let import_of = |agent: &ScriptedAgent, count: u64| {
            import(&agent.descriptor(2, RDMA, 0x10_0000, count * PAGE)).err()
        };
        assert_eq!(import_of(&describe(1024, 16), 1024), None);
        let many = describe(1025, 16);
        assert_eq!(import_of(&many, 1025), Some(Error::TooBig));
        assert_eq!(many.asked(), 1, "the first reply says how many there are");
        assert_eq!(import_of(&describe(100, 100), 100), Some(Error::Unexpected));
        // More bytes than any machine has are refused without a request.
        let large = describe(1, 1);
        let refused = import(&large.descriptor(2, RDMA, 0x10_0000, 1 << 41));
        assert_eq!((refused.err(), large.asked()), (Some(Error::TooBig), 0));
    }

    #[test]
    fn threads_sharing_an_import_share_its_timeout() {
        let agent = ScriptedAgent::start(|asked| {
            let first = asked.operation == 1;
            first.then(|| (1, segment(0x10_0000, PAGE, 0, None), vec![]))
        });
        let mmap = import(&agent.descriptor(2, RDMA, 0x10_0000, PAGE)).unwrap();
        let begin = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let result = mmap.load(0x10_0000);
                    // Accesses after the first timeout find the connection closed.
                    let given_up = [Err(Error::TimeOut), Err(Error::NotFound)];
                    assert!(given_up.contains(&result), "{result:?}");
                });
            }
        });
        let took = begin.elapsed();
        assert!(took < Duration::from_secs(5), "{took:?}");
        assert_eq!(agent.asked(), 2, "the answer is cached");
    }
}
