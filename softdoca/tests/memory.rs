//! Memory maps between processes.

mod process;

use std::sync::Arc;

use process::{Peer, from_hex, hear, say, to_hex};
use rustix::mm::{MapFlags, ProtFlags};
use softdoca::device::Device;
use softdoca::error::Error;
use softdoca::memory::{ExportKind, Mmap, Permissions};

const PAGE: usize = 4096;
const READ_WRITE: Permissions = Permissions::PCI_READ_WRITE
    .union(Permissions::RDMA)
    .union(Permissions::LOCAL_READ_WRITE);

fn device() -> Arc<Device> {
    Device::open_by_name("mlx5_0").unwrap()
}

/// Memory of this process with a map over a part of it. Accessed by raw copies only, as peers write to it.
struct Exported {
    base: *mut u8,
    len: usize,
    mmap: Mmap,
    addr: u64,
}

impl Exported {
    /// `len` bytes at offset `skip` of new pages; private ones (as from malloc) or shared ones (accessible only through
    /// the agent).
    fn new(flags: MapFlags, skip: usize, len: usize, permissions: Permissions) -> Exported {
        let size = (skip + len).next_multiple_of(PAGE);
        // SAFETY: a new mapping.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                size,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )
        };
        let base = base.unwrap().cast::<u8>();
        (0..size).for_each(|index| put(base.wrapping_add(index), pattern(index)));
        let addr = base.wrapping_add(skip).expose_provenance() as u64;
        let mmap = Mmap::new();
        mmap.set_memrange(addr, len as u64).unwrap();
        mmap.set_permissions(permissions).unwrap();
        mmap.add_device(&device()).unwrap();
        mmap.start().unwrap();
        Exported {
            base,
            len: size,
            mmap,
            addr,
        }
    }

    fn get(&self, offset: usize) -> u8 {
        let addr = self.addr + offset as u64;
        read(&self.mmap, addr, 1)[0]
    }

    fn unmap(&self) {
        // SAFETY: our mapping; the test no longer touches it.
        unsafe { rustix::mm::munmap(self.base.cast(), self.len) }.unwrap();
    }
}

fn pattern(index: usize) -> u8 {
    (index % 251) as u8
}

fn put(at: *mut u8, value: u8) {
    // SAFETY: called with addresses of mapped memory only.
    unsafe { at.write_volatile(value) }
}

fn read(mmap: &Mmap, addr: u64, len: usize) -> Vec<u8> {
    try_read(mmap, addr, len).unwrap()
}

fn try_read(mmap: &Mmap, addr: u64, len: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; len];
    // SAFETY: the vector has that many bytes.
    unsafe { mmap.read_into(addr, bytes.as_mut_ptr(), len) }.map(|()| bytes)
}

fn write(mmap: &Mmap, addr: u64, bytes: &[u8]) -> Result<(), Error> {
    // SAFETY: the slice has that many bytes.
    unsafe { mmap.write_from(addr, bytes.as_ptr(), bytes.len()) }
}

fn export(exported: &Exported, kind: ExportKind) -> String {
    to_hex(&exported.mmap.export(kind, &device()).unwrap())
}

fn import(text: &str) -> Result<Mmap, Error> {
    Mmap::import(&from_hex(text), &device())
}

/// Waits for a line from `main`, like a program that is blocked in getchar.
fn until_told() {
    assert_eq!(hear(), "end");
}

#[test]
fn whole_pages_are_used_in_place() {
    const NAME: &str = "whole_pages_are_used_in_place";
    fn main() {
        let memory = Exported::new(MapFlags::PRIVATE, 0, 4 * PAGE, READ_WRITE);
        let mut peer = Peer::start(NAME, "importer");
        peer.tell(&export(&memory, ExportKind::Pci));
        assert_eq!(peer.answer(), "written");
        assert_eq!(
            (memory.get(2 * PAGE - 1), memory.get(2 * PAGE)),
            (0xaa, 0xbb)
        );
        // The program writes through its own pointer, and the peer sees it.
        put(memory.base.wrapping_add(5), 0xcc);
        peer.tell("look");
        assert_eq!(peer.answer(), "204");
        peer.finish();
    }
    fn importer() {
        let mmap = import(&hear()).unwrap();
        let (addr, len) = mmap.memrange().unwrap();
        assert_eq!(
            (len as usize, mmap.is_imported(), mmap.permissions()),
            (4 * PAGE, true, READ_WRITE)
        );
        let pointer = mmap
            .local_ptr(addr, len)
            .expect("everything is mapped in one run");
        assert_ne!(pointer.addr() as u64, 0);
        assert_eq!(mmap.local_ptr(addr + 1, len), None);
        assert_eq!(
            read(&mmap, addr, 4 * PAGE),
            (0..4 * PAGE).map(pattern).collect::<Vec<_>>()
        );
        write(&mmap, addr + 2 * PAGE as u64 - 1, &[0xaa, 0xbb]).unwrap();
        say("written");
        assert_eq!(hear(), "look");
        say(&read(&mmap, addr + 5, 1)[0].to_string());
    }
    process::run(NAME, main, &[("importer", importer)]);
}

#[test]
fn unaligned_ranges_are_accessible_completely() {
    const NAME: &str = "unaligned_ranges_are_accessible_completely";
    const SKIP: usize = 16;
    fn main() {
        let memory = Exported::new(MapFlags::PRIVATE, SKIP, 3 * PAGE, READ_WRITE);
        let mut peer = Peer::start(NAME, "importer");
        peer.tell(&export(&memory, ExportKind::Rdma));
        assert_eq!(peer.answer(), "done");
        let bytes = read(&memory.mmap, memory.addr, 3 * PAGE);
        assert!(
            bytes
                .iter()
                .enumerate()
                .all(|(index, byte)| *byte == index as u8 ^ 0x55)
        );
        // Bytes outside of the range are unchanged.
        for index in (0..SKIP).chain(SKIP + 3 * PAGE..4 * PAGE) {
            // SAFETY: inside our mapping.
            let byte = unsafe { memory.base.add(index).read_volatile() };
            assert_eq!(byte, pattern(index));
        }
        peer.finish();
    }
    fn importer() {
        let mmap = import(&hear()).unwrap();
        let (addr, len) = mmap.memrange().unwrap();
        assert!(
            mmap.local_ptr(addr, 1).is_none(),
            "the head shares its page with other data"
        );
        assert!(
            mmap.local_ptr(addr + (PAGE - SKIP) as u64, 2 * PAGE as u64)
                .is_some()
        );
        assert!(
            mmap.local_ptr(addr + len - 1, 1).is_none(),
            "so does the tail"
        );
        assert_eq!(
            read(&mmap, addr, 3 * PAGE),
            (SKIP..SKIP + 3 * PAGE).map(pattern).collect::<Vec<_>>()
        );
        let bytes: Vec<u8> = (0..3 * PAGE).map(|index| index as u8 ^ 0x55).collect();
        write(&mmap, addr, &bytes).unwrap();
        assert_eq!(read(&mmap, addr, 3 * PAGE), bytes);
        for (addr, len) in [
            (addr - 1, 2),
            (addr, 3 * PAGE + 1),
            (addr + len, 1),
            (u64::MAX, 2),
        ] {
            assert_eq!(try_read(&mmap, addr, len), Err(Error::InvalidValue));
            assert_eq!(
                write(&mmap, addr, &[0; 3 * PAGE + 1][..len]),
                Err(Error::InvalidValue)
            );
        }
        say("done");
    }
    process::run(NAME, main, &[("importer", importer)]);
}

#[test]
fn memory_that_cannot_be_shared_is_copied_by_the_agent() {
    const NAME: &str = "memory_that_cannot_be_shared_is_copied_by_the_agent";
    const LEN: usize = 300 * 1024 + 7;
    fn main() {
        let memory = Exported::new(MapFlags::SHARED, 0, LEN, READ_WRITE);
        let mut peer = Peer::start(NAME, "importer");
        peer.tell(&export(&memory, ExportKind::Rdma));
        assert_eq!(peer.answer(), "written");
        assert!((0..LEN).all(|index| memory.get(index) == pattern(index + 1)));
        peer.tell("unmapped");
        memory.unmap();
        assert_eq!(peer.answer(), "survived");
        peer.finish();
    }
    fn importer() {
        let mmap = import(&hear()).unwrap();
        let addr = mmap.memrange().unwrap().0;
        assert!(mmap.local_ptr(addr, 1).is_none());
        assert_eq!(
            read(&mmap, addr, LEN),
            (0..LEN).map(pattern).collect::<Vec<_>>()
        );
        let bytes: Vec<u8> = (0..LEN).map(|index| pattern(index + 1)).collect();
        write(&mmap, addr, &bytes).unwrap();
        // A copy between two ranges that are not mapped.
        softdoca::memory::copy(&mmap, addr, &mmap, addr + 100_000, 100_000).unwrap();
        assert_eq!(read(&mmap, addr, 100_000), bytes[100_000..200_000]);
        write(&mmap, addr, &bytes[..100_000]).unwrap();
        say("written");
        assert_eq!(hear(), "unmapped");
        // The exporter has freed exported memory, which is a programming error; both processes survive.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while try_read(&mmap, addr, 100).is_ok() {
            assert!(std::time::Instant::now() < deadline);
        }
        assert_eq!(try_read(&mmap, addr, 100), Err(Error::InvalidValue));
        assert_eq!(write(&mmap, addr, &bytes[..100]), Err(Error::InvalidValue));
        assert_eq!(mmap.fetch_add(addr, 1), Err(Error::InvalidValue));
        assert_eq!(try_read(&mmap, addr, 100), Err(Error::InvalidValue));
        say("survived");
    }
    process::run(NAME, main, &[("importer", importer)]);
}

#[test]
fn atomics_work_in_place_and_by_the_agent() {
    const NAME: &str = "atomics_work_in_place_and_by_the_agent";
    fn main() {
        for flags in [MapFlags::PRIVATE, MapFlags::SHARED] {
            let memory = Exported::new(flags, 0, PAGE, READ_WRITE);
            let word = memory.addr + 64;
            write(&memory.mmap, word, &0_u64.to_ne_bytes()).unwrap();
            let mut peer = Peer::start(NAME, "importer");
            peer.tell(&export(&memory, ExportKind::Rdma));
            for _ in 0..1000 {
                memory.mmap.fetch_add(word, 1).unwrap();
            }
            assert_eq!(peer.answer(), "added");
            let sum = u64::from_ne_bytes(read(&memory.mmap, word, 8).try_into().unwrap());
            assert_eq!(sum, 1000 + 3 * 1000);
            peer.tell("swap");
            assert_eq!(peer.answer(), "4000 4000");
            assert_eq!(memory.mmap.compare_swap(word, 7, 8), Ok(7));
            peer.finish();
        }
    }
    fn importer() {
        let mmap = import(&hear()).unwrap();
        let word = mmap.memrange().unwrap().0 + 64;
        for _ in 0..1000 {
            mmap.fetch_add(word, 3).unwrap();
        }
        say("added");
        assert_eq!(hear(), "swap");
        let lost = mmap.compare_swap(word, 1, 2).unwrap();
        let won = mmap.compare_swap(word, 4000, 7).unwrap();
        assert_eq!(mmap.fetch_add(word + 4, 1), Err(Error::InvalidValue));
        say(&format!("{lost} {won}"));
    }
    process::run(NAME, main, &[("importer", importer)]);
}

#[test]
fn one_range_can_be_mapped_and_exported_twice() {
    const NAME: &str = "one_range_can_be_mapped_and_exported_twice";
    fn main() {
        let first = Exported::new(MapFlags::PRIVATE, 0, 4 * PAGE, READ_WRITE);
        let second = Mmap::new();
        second
            .set_memrange(first.addr + 100, 2 * PAGE as u64)
            .unwrap();
        second
            .set_permissions(Permissions::RDMA_READ | Permissions::RDMA_WRITE)
            .unwrap();
        second.add_device(&device()).unwrap();
        second.start().unwrap();
        let mut peer = Peer::start(NAME, "importer");
        peer.tell(&export(&first, ExportKind::Pci));
        peer.tell(&to_hex(
            &second.export(ExportKind::Rdma, &device()).unwrap(),
        ));
        assert_eq!(peer.answer(), "same");
        assert_eq!(
            export(&first, ExportKind::Pci),
            export(&first, ExportKind::Pci),
            "kept until it is stopped"
        );
        peer.finish();
    }
    fn importer() {
        let (first, second) = (import(&hear()).unwrap(), import(&hear()).unwrap());
        let addr = second.memrange().unwrap().0;
        let page = addr.next_multiple_of(PAGE as u64);
        assert!(
            second.local_ptr(page, PAGE as u64).is_some(),
            "the shared pages were recognised"
        );
        write(&first, page - 8, b"through the first").unwrap();
        assert_eq!(read(&second, page - 8, 17), b"through the first");
        say("same");
    }
    process::run(NAME, main, &[("importer", importer)]);
}

#[test]
fn permissions_hold_in_the_importer() {
    const NAME: &str = "permissions_hold_in_the_importer";
    fn main() {
        for flags in [MapFlags::PRIVATE, MapFlags::SHARED] {
            let memory = Exported::new(
                flags,
                0,
                PAGE,
                Permissions::PCI_READ_ONLY | Permissions::RDMA_WRITE,
            );
            let mut peer = Peer::start(NAME, "importer");
            peer.tell(&export(&memory, ExportKind::Pci));
            peer.tell(&export(&memory, ExportKind::Rdma));
            assert_eq!(peer.answer(), "done");
            assert_eq!((memory.get(0), memory.get(8)), (pattern(0), b'x'));
            peer.finish();
        }
        let local = Exported::new(MapFlags::PRIVATE, 0, PAGE, Permissions::default());
        assert_eq!(
            local.mmap.export(ExportKind::Pci, &device()).unwrap_err(),
            Error::NotPermitted
        );
        let pci = Exported::new(MapFlags::PRIVATE, 0, PAGE, Permissions::PCI_READ_WRITE);
        assert_eq!(
            pci.mmap.export(ExportKind::Rdma, &device()).unwrap_err(),
            Error::NotPermitted
        );
        let other = Device::open_by_name("mlx5_1").unwrap();
        assert_eq!(
            pci.mmap.export(ExportKind::Pci, &other).unwrap_err(),
            Error::NotFound
        );
    }
    fn importer() {
        let (pci, rdma) = (import(&hear()).unwrap(), import(&hear()).unwrap());
        let addr = pci.memrange().unwrap().0;
        assert!(!pci.is_writable() && rdma.is_writable());
        assert_eq!(write(&pci, addr, b"x"), Err(Error::NotPermitted));
        assert_eq!(
            softdoca::memory::copy(&pci, addr, &pci, addr + 8, 8),
            Err(Error::NotPermitted)
        );
        assert_eq!(pci.fetch_add(addr, 1), Err(Error::NotPermitted));
        assert_eq!(read(&pci, addr, 2), [pattern(0), pattern(1)]);
        write(&rdma, addr + 8, b"x").unwrap();
        assert_eq!(rdma.fetch_add(addr, 1), Err(Error::NotPermitted));
        say("done");
    }
    process::run(NAME, main, &[("importer", importer)]);
}

#[test]
fn an_import_over_pci_can_be_exported_for_rdma() {
    const NAME: &str = "an_import_over_pci_can_be_exported_for_rdma";
    fn main() {
        let host = Exported::new(MapFlags::PRIVATE, 16, 2 * PAGE, READ_WRITE);
        let mut service = Peer::start(NAME, "service");
        let mut target = Peer::start(NAME, "target");
        service.tell(&export(&host, ExportKind::Pci));
        target.tell(&service.answer());
        assert_eq!(target.answer(), "written");
        assert_eq!(
            (host.get(0), host.get(PAGE), host.get(2 * PAGE - 1)),
            (7, 7, 7)
        );
        target.finish();
        service.tell("end");
        service.finish();
    }
    fn service() {
        let mmap = import(&hear()).unwrap();
        mmap.enable_thread_safety().unwrap();
        assert_eq!(
            mmap.export(ExportKind::Pci, &device()).unwrap_err(),
            Error::NotPermitted
        );
        let descriptor = mmap.export(ExportKind::Rdma, &device()).unwrap();
        assert!(descriptor.len() <= 512);
        say(&to_hex(&descriptor));
        until_told();
        mmap.stop().unwrap();
    }
    fn target() {
        let mmap = import(&hear()).unwrap();
        assert_eq!(mmap.import_kind(), Some(ExportKind::Rdma));
        assert_eq!(
            mmap.export(ExportKind::Rdma, &device()).unwrap_err(),
            Error::NotPermitted
        );
        write(&mmap, mmap.memrange().unwrap().0, &[7; 2 * PAGE]).unwrap();
        say("written");
    }
    process::run(NAME, main, &[("service", service), ("target", target)]);
}

#[test]
fn an_exporter_that_dies_is_detected_and_reaped() {
    const NAME: &str = "an_exporter_that_dies_is_detected_and_reaped";
    fn main() {
        let mut exporter = Peer::start(NAME, "exporter");
        let descriptor = exporter.answer();
        let mmap = import(&descriptor).unwrap();
        let (addr, len) = mmap.memrange().unwrap();
        assert_eq!(
            read(&mmap, addr, 3),
            [pattern(16), pattern(17), pattern(18)]
        );
        exporter.kill();
        assert_eq!(try_read(&mmap, addr, 3), Err(Error::NotFound));
        assert_eq!(write(&mmap, addr + len - 2, b"x"), Err(Error::NotFound));
        // A mapping remains readable: its content is undefined, but accesses do not crash.
        read(&mmap, addr + PAGE as u64, PAGE);
        assert_eq!(import(&descriptor).unwrap_err(), Error::NotFound);
        // The socket still exists; the next process removes it, which the harness checks.
        let own = Exported::new(MapFlags::PRIVATE, 0, PAGE, READ_WRITE);
        export(&own, ExportKind::Pci);
    }
    fn exporter() {
        let memory = Exported::new(MapFlags::PRIVATE, 16, 3 * PAGE, READ_WRITE);
        say(&export(&memory, ExportKind::Pci));
        until_told();
    }
    process::run(NAME, main, &[("exporter", exporter)]);
}

#[test]
fn stop_withdraws_and_exit_cleans_up() {
    const NAME: &str = "stop_withdraws_and_exit_cleans_up";
    fn main() {
        let memory = Exported::new(MapFlags::SHARED, 0, PAGE, READ_WRITE);
        let descriptor = export(&memory, ExportKind::Pci);
        // A process can import its own memory.
        let mmap = import(&descriptor).unwrap();
        assert_eq!(read(&mmap, memory.addr, 1), [pattern(0)]);
        // Mapped, not through the agent.
        let pages = Exported::new(MapFlags::PRIVATE, 0, PAGE, READ_WRITE);
        let mapped = import(&export(&pages, ExportKind::Pci)).unwrap();
        assert_eq!(read(&mapped, pages.addr, 1), [pattern(0)]);
        assert!(mapped.local_ptr(pages.addr, 1).is_some());
        pages.mmap.stop().unwrap();
        assert_eq!(mapped.local_ptr(pages.addr, 1), None);
        assert_eq!(try_read(&mapped, pages.addr, 1), Err(Error::NotFound));
        let other = Exported::new(MapFlags::SHARED, 0, PAGE, READ_WRITE);
        export(&other, ExportKind::Rdma);
        memory.mmap.stop().unwrap();
        assert_eq!(try_read(&mmap, memory.addr, 1), Err(Error::NotFound));
        assert_eq!(import(&descriptor).unwrap_err(), Error::NotFound);
        other.mmap.stop().unwrap();
        let directory = std::env::var("SOFTDOCA_RUNTIME_DIR").unwrap();
        assert_eq!(
            std::fs::read_dir(&directory).unwrap().count(),
            0,
            "the agent went with the last export"
        );
        // A restart creates another key.
        memory.mmap.start().unwrap();
        assert_ne!(export(&memory, ExportKind::Pci), descriptor);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
        // Not stopped, because exit removes the socket.
        std::process::exit(0);
    }
    process::run(NAME, main, &[]);
}

#[test]
fn descriptors_of_other_machines_and_garbage_are_refused() {
    const NAME: &str = "descriptors_of_other_machines_and_garbage_are_refused";
    fn main() {
        let memory = Exported::new(MapFlags::PRIVATE, 0, PAGE, READ_WRITE);
        let good = from_hex(&export(&memory, ExportKind::Pci));
        let changed = |index: usize| {
            let mut bytes = good.clone();
            bytes[index] ^= 1;
            Mmap::import(&bytes, &device()).unwrap_err()
        };
        assert_eq!(changed(35), Error::NotSupported, "boot id");
        assert_eq!(changed(50), Error::NotFound, "agent");
        assert_eq!(changed(70), Error::NotFound, "key");
        assert_eq!(changed(17), Error::Unexpected, "range");
        assert_eq!(changed(0), Error::InvalidValue, "magic");
        assert_eq!(
            Mmap::import(&[], &device()).unwrap_err(),
            Error::InvalidValue
        );
    }
    process::run(NAME, main, &[]);
}

/// Exports for RDMA, of the process's own maps and of imported ones, are accessed over TCP.
#[test]
fn all_memory_tests_pass_over_the_network() {
    const SKIPPED: [&str; 3] = [
        "all_memory_tests_pass_over_the_network",
        // Tests which pages are mapped.
        "unaligned_ranges_are_accessible_completely",
        "one_range_can_be_mapped_and_exported_twice",
    ];
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(SKIPPED.map(|name| ["--skip", name]).as_flattened())
        .env("SOFTDOCA_ADDRESS", "127.0.0.1")
        .env("SOFTDOCA_TRANSPORT", "tcp")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(!text.contains(" 0 passed"), "{text}");
}
