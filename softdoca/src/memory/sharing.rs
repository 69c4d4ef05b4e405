//! Sharing of malloc'ed memory with other processes, at unchanged addresses.
//!
//! Whole pages of private anonymous memory are copied to a memfd that is then mapped over them. This is done when a map
//! starts, because later, other threads may be writing, and their data would be lost. It is never undone: programs free
//! the range before they stop the map, and the pages may have been reused by then.

use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::agent::{Backing, Segment};
use crate::error::{Error, Result};
use crate::log;

/// Access method of a range of this process for others.
#[derive(Debug)]
pub(super) struct Layout {
    /// The whole range, ascending and contiguous.
    pub segments: Vec<Segment>,
    /// `true` if all pages are writable.
    pub writable: bool,
}

/// A memfd created by [`convert`].
struct Shared {
    device: (u32, u32),
    inode: u64,
    memfd: Arc<OwnedFd>,
}

/// Memfds whose pages may still be mapped here. Locked while pages are converted: two maps may start over one range.
static SHARED: Mutex<Vec<Shared>> = Mutex::new(Vec::new());

/// Examines the `len` bytes at `addr`; with `share`, converts pages that can be shared but are not shared yet.
pub(super) fn lay_out(addr: u64, len: u64, share: bool) -> Result<Layout> {
    let end = addr.checked_add(len).ok_or(Error::InvalidValue)?;
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let text = read_maps()?;
    let areas = parse_maps(&text)?;
    forget_unmapped(&mut shared, &areas);
    let mut layout = Layout {
        segments: Vec::new(),
        writable: true,
    };
    let (mut position, whole) = (addr, whole_pages(addr, end));
    for area in areas
        .iter()
        .filter(|area| area.end > addr && area.start < end)
    {
        if area.start > position || !area.readable {
            break;
        }
        layout.writable &= area.writable;
        let area_end = area.end.min(end);
        let pages = whole.start.clamp(position, area_end)..whole.end.clamp(position, area_end);
        layout.push(position, pages.start, Backing::Private);
        if !pages.is_empty() {
            let backing = match shared.iter().find(|known| is_of(area, known)) {
                Some(known) => {
                    let offset = area.offset + (pages.start - area.start);
                    Backing::Shared {
                        memfd: Arc::clone(&known.memfd),
                        offset,
                    }
                }
                None if share && area.is_private_memory() => {
                    let converted = convert(pages.start, pages.end - pages.start)?;
                    let memfd = Arc::clone(&converted.memfd);
                    shared.push(converted);
                    Backing::Shared { memfd, offset: 0 }
                }
                None => Backing::Private,
            };
            layout.push(pages.start, pages.end, backing);
        }
        layout.push(pages.end.max(position), area_end, Backing::Private);
        position = area_end;
    }
    if position < end {
        return Err(Error::InvalidValue.because(format_args!(
            "the range {addr:#x}..{end:#x} is not readable memory from {position:#x} on"
        )));
    }
    Ok(layout)
}

impl Layout {
    /// Appends a segment, or extends the last one if it is contiguous.
    fn push(&mut self, start: u64, end: u64, backing: Backing) {
        if start == end {
            return;
        }
        let len = end - start;
        if let Some(last) = self.segments.last_mut() {
            let continues = match (&last.backing, &backing) {
                (Backing::Private, Backing::Private) => true,
                (
                    Backing::Shared {
                        memfd: a,
                        offset: from,
                    },
                    Backing::Shared {
                        memfd: b,
                        offset: to,
                    },
                ) => Arc::ptr_eq(a, b) && from + last.len == *to,
                _ => false,
            };
            if continues {
                last.len += len;
                return;
            }
        }
        self.segments.push(Segment {
            addr: start,
            len,
            backing,
        });
    }
}

fn is_of(area: &Area<'_>, shared: &Shared) -> bool {
    area.shared && area.inode == shared.inode && area.device == shared.device
}

/// Drops the memfds that the program has unmapped by freeing the memory, and that no export needs.
fn forget_unmapped(shared: &mut Vec<Shared>, areas: &[Area<'_>]) {
    shared.retain(|known| {
        Arc::strong_count(&known.memfd) > 1 || areas.iter().any(|area| is_of(area, known))
    });
}

/// The whole pages inside a range. Only these are shared: the partial pages at its start and end also contain other
/// data.
fn whole_pages(addr: u64, end: u64) -> Range<u64> {
    let page = rustix::param::page_size() as u64;
    let first = addr.next_multiple_of(page);
    first..(end - end % page).max(first)
}

/// Replaces whole pages of readable, writable, private, anonymous memory by pages of a memfd with the same contents.
fn convert(addr: u64, len: u64) -> Result<Shared> {
    let failed = |what: &str, errno: rustix::io::Errno| {
        let error = match errno {
            rustix::io::Errno::NOSPC => Error::NoMemory,
            errno => errno.into(),
        };
        error.because(format_args!(
            "cannot share {len} bytes at {addr:#x} with other processes: {what}: {errno}"
        ))
    };
    let memfd =
        rustix::fs::memfd_create("softdoca", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(|errno| failed("memfd_create", errno))?;
    rustix::fs::ftruncate(&memfd, len).map_err(|errno| failed("ftruncate", errno))?;
    copy_pages(&memfd, addr, len).map_err(|errno| failed("copy", errno))?;
    // A peer that could shrink the memfd could make this program crash, and vice versa.
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&memfd, seals).map_err(|errno| failed("sealing", errno))?;
    let stat = rustix::fs::fstat(&memfd).map_err(|errno| failed("fstat", errno))?;
    let (start, size) = (
        to_pointer(addr),
        usize::try_from(len).map_err(|_| Error::InvalidValue)?,
    );
    let (protection, flags) = (
        ProtFlags::READ | ProtFlags::WRITE,
        MapFlags::SHARED | MapFlags::FIXED,
    );
    // SAFETY: replaces pages of plain private memory by pages with the same content and protection, so every pointer to them stays
    // good; the program does not write to a range while it starts a map of it.
    unsafe { rustix::mm::mmap(start.cast(), size, protection, flags, &memfd, 0) }
        .map_err(|errno| failed("mmap", errno))?;
    log::debug!("shared {len} bytes at {addr:#x}");
    Ok(Shared {
        device: (
            rustix::fs::major(stat.st_dev),
            rustix::fs::minor(stat.st_dev),
        ),
        inode: stat.st_ino,
        memfd: Arc::new(memfd),
    })
}

/// Copies only pages that have been touched; all others are zero in a new memfd, and reading them would allocate them.
fn copy_pages(memfd: &OwnedFd, addr: u64, len: u64) -> rustix::io::Result<()> {
    let page = rustix::param::page_size() as u64;
    let pagemap = std::fs::File::open("/proc/self/pagemap").ok();
    let mut position = 0;
    while position < len {
        let pages = ((len - position) / page).min(BATCH);
        let touched = pagemap
            .as_ref()
            .and_then(|file| touched(file, addr + position, pages));
        let touched = touched.unwrap_or_else(|| vec![true; pages as usize]);
        for run in touched.chunk_by(|a, b| a == b) {
            let bytes = run.len() as u64 * page;
            if run[0] {
                copy_run(memfd, addr + position, position, bytes)?;
            }
            position += bytes;
        }
    }
    Ok(())
}

/// Pages examined at a time.
const BATCH: u64 = 16_384;

/// Pages that are backed by memory or swap; `None` if the kernel does not report them.
fn touched(pagemap: &std::fs::File, addr: u64, pages: u64) -> Option<Vec<bool>> {
    use std::os::unix::fs::FileExt;
    const ENTRY: u64 = 8;
    const PRESENT_OR_SWAPPED: u64 = 0b11 << 62;
    let mut bytes = vec![0; usize::try_from(pages * ENTRY).ok()?];
    pagemap
        .read_exact_at(&mut bytes, addr / rustix::param::page_size() as u64 * ENTRY)
        .ok()?;
    let entries = bytes.as_chunks::<{ ENTRY as usize }>().0;
    Some(
        entries
            .iter()
            .map(|entry| u64::from_ne_bytes(*entry) & PRESENT_OR_SWAPPED != 0)
            .collect(),
    )
}

fn copy_run(memfd: &OwnedFd, addr: u64, mut offset: u64, len: u64) -> rustix::io::Result<()> {
    let (mut source, end) = (addr, addr + len);
    while source < end {
        let size = usize::try_from(end - source).map_err(|_| rustix::io::Errno::INVAL)?;
        let at = libc::off_t::try_from(offset).map_err(|_| rustix::io::Errno::INVAL)?;
        // SAFETY: the kernel reads the memory, checking each page; no Rust reference to memory that others may write is
        // created.
        let written = unsafe {
            libc::pwrite(
                memfd.as_raw_fd(),
                to_pointer(source).cast_const().cast(),
                size,
                at,
            )
        };
        match u64::try_from(written) {
            Ok(0) => return Err(rustix::io::Errno::NOSPC),
            Ok(written) => {
                source += written;
                offset += written;
            }
            Err(_) => match rustix::io::Errno::from_io_error(&std::io::Error::last_os_error()) {
                Some(rustix::io::Errno::INTR) => {}
                errno => return Err(errno.unwrap_or(rustix::io::Errno::IO)),
            },
        }
    }
    Ok(())
}

fn to_pointer(addr: u64) -> *mut u8 {
    // Addresses fit in pointers, because they originate from pointers.
    std::ptr::with_exposed_provenance_mut(addr as usize)
}

// Parser of `/proc/self/maps`.

/// One line of the file: pages of one mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Area<'a> {
    pub start: u64,
    pub end: u64,
    pub readable: bool,
    pub writable: bool,
    pub executable: bool,
    pub shared: bool,
    /// Offset in the file in bytes.
    pub offset: u64,
    /// Major and minor number of the file's device.
    pub device: (u32, u32),
    /// 0 without a file.
    pub inode: u64,
    /// File name, name in brackets, or empty.
    pub name: &'a str,
}

impl Area<'_> {
    /// Returns `true` for private anonymous memory: pages of malloc and of anonymous mmap. Returns `false` for a stack,
    /// which grows, and would be in use while it is copied.
    pub fn is_private_memory(&self) -> bool {
        let named_as_memory =
            self.name.is_empty() || self.name == "[heap]" || self.name.starts_with("[anon:");
        !self.shared
            && self.inode == 0
            && self.readable
            && self.writable
            && !self.executable
            && named_as_memory
    }
}

/// Contents of the file, for [`parse_maps`].
fn read_maps() -> Result<String> {
    let bytes = std::fs::read("/proc/self/maps").map_err(|error| {
        Error::OperatingSystem.because(format_args!(
            "cannot read /proc/self/maps: {error}; is /proc mounted?"
        ))
    })?;
    // File names can be any bytes.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Parses the areas, in ascending order.
fn parse_maps(text: &str) -> Result<Vec<Area<'_>>> {
    text.lines()
        .map(|line| {
            area(line).ok_or_else(|| {
                Error::OperatingSystem.because(format_args!(
                    "/proc/self/maps has a line of unknown form: {line:?}"
                ))
            })
        })
        .collect()
}

fn area(line: &str) -> Option<Area<'_>> {
    let mut rest = line;
    let mut field = || {
        let (field, tail) = rest
            .trim_start_matches(' ')
            .split_once(' ')
            .unwrap_or((rest, ""));
        rest = tail;
        field
    };
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = field().split_once('-')?;
    let &[read, write, execute, share] = field().as_bytes() else {
        return None;
    };
    let offset = field();
    let (major, minor) = field().split_once(':')?;
    let inode = field().parse().ok()?;
    Some(Area {
        start: hex(start)?,
        end: hex(end)?,
        readable: read == b'r',
        writable: write == b'w',
        executable: execute == b'x',
        shared: share == b's',
        offset: hex(offset)?,
        device: (
            u32::from_str_radix(major, 16).ok()?,
            u32::from_str_radix(minor, 16).ok()?,
        ),
        inode,
        name: rest.trim_start_matches(' '),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Anonymous pages of this process.
    struct Pages {
        start: *mut u8,
        len: usize,
    }

    impl Pages {
        fn new(count: usize) -> Pages {
            let len = count * rustix::param::page_size();
            let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
            // SAFETY: a new mapping, anywhere.
            let start =
                unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, protection, flags) }
                    .unwrap();
            start.expose_provenance();
            Pages {
                start: start.cast(),
                len,
            }
        }

        fn addr(&self) -> u64 {
            self.start.addr() as u64
        }

        fn fill(&self) {
            // SAFETY: inside our mapping.
            (0..self.len).for_each(|index| unsafe {
                self.start.add(index).write_volatile(index as u8 ^ 0x5a)
            });
        }

        fn check(&self) {
            for index in 0..self.len {
                // SAFETY: inside our mapping.
                let byte = unsafe { self.start.add(index).read_volatile() };
                assert_eq!(byte, index as u8 ^ 0x5a);
            }
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            // SAFETY: our mapping, no longer used.
            unsafe { rustix::mm::munmap(self.start.cast(), self.len) }.unwrap();
        }
    }

    fn kinds(layout: &Layout) -> Vec<(bool, u64)> {
        let shared = |segment: &Segment| matches!(segment.backing, Backing::Shared { .. });
        layout
            .segments
            .iter()
            .map(|segment| (shared(segment), segment.len))
            .collect()
    }

    #[test]
    fn whole_pages_are_shared_and_keep_their_content() {
        let (pages, page) = (Pages::new(4), rustix::param::page_size() as u64);
        pages.fill();
        let layout = lay_out(pages.addr() + 16, 3 * page, true).unwrap();
        assert_eq!(
            kinds(&layout),
            [(false, page - 16), (true, 2 * page), (false, 16)]
        );
        assert!(layout.writable);
        pages.check();
    }

    #[test]
    fn shared_pages_are_recognised_again_and_forgotten_when_unmapped() {
        let (pages, page) = (Pages::new(3), rustix::param::page_size() as u64);
        let first = lay_out(pages.addr() + page, page, true).unwrap();
        let Backing::Shared { memfd, .. } = &first.segments[0].backing else {
            panic!("{first:?}")
        };
        let memfd = Arc::downgrade(memfd);
        // Partial pages are not shared, even if the page is shared already.
        let part = lay_out(pages.addr() + page + 100, 200, true).unwrap();
        assert_eq!(kinds(&part), [(false, 200)]);
        let again = lay_out(pages.addr() + page, page, false).unwrap();
        let Backing::Shared {
            memfd: same,
            offset,
        } = &again.segments[0].backing
        else {
            panic!("{again:?}")
        };
        assert!(std::ptr::eq(Arc::as_ptr(same), memfd.as_ptr()));
        assert_eq!(*offset, 0);
        let all = lay_out(pages.addr(), 3 * page, true).unwrap();
        assert_eq!(kinds(&all), [(true, page), (true, page), (true, page)]);
        drop((first, again, all, pages));
        let other = Pages::new(1);
        lay_out(other.addr(), page, true).unwrap();
        assert!(memfd.upgrade().is_none());
    }

    #[test]
    fn untouched_pages_stay_unallocated() {
        let (pages, page) = (Pages::new(1000), rustix::param::page_size());
        // SAFETY: inside our mapping.
        unsafe { pages.start.add(500 * page).write(7) };
        let layout = lay_out(pages.addr(), pages.len as u64, true).unwrap();
        let Backing::Shared { memfd, .. } = &layout.segments[0].backing else {
            panic!("{layout:?}")
        };
        let blocks = rustix::fs::fstat(memfd).unwrap().st_blocks as usize * 512;
        assert!(
            blocks < 100 * page,
            "{blocks} bytes are allocated for one touched page"
        );
        // SAFETY: inside our mapping.
        assert_eq!(unsafe { pages.start.add(500 * page).read() }, 7);
    }

    #[test]
    fn memory_that_is_not_private_is_not_converted() {
        static CONSTANT: [u8; 9000] = [7; 9000];
        let layout = lay_out((&raw const CONSTANT).addr() as u64, 9000, true).unwrap();
        assert_eq!(kinds(&layout), [(false, 9000)]);
        assert!(!layout.writable);
    }

    #[test]
    fn unmapped_ranges_are_refused() {
        let pages = Pages::new(2);
        assert_eq!(lay_out(0x1000, 16, false).unwrap_err(), Error::InvalidValue);
        assert_eq!(
            lay_out(u64::MAX, 16, false).unwrap_err(),
            Error::InvalidValue
        );
        let page = rustix::param::page_size();
        // SAFETY: a mapping of this process, to which no references exist.
        unsafe {
            rustix::mm::mprotect(
                pages.start.add(page).cast(),
                page,
                rustix::mm::MprotectFlags::empty(),
            )
        }
        .unwrap();
        assert_eq!(
            lay_out(pages.addr(), page as u64 + 1, true).unwrap_err(),
            Error::InvalidValue
        );
    }

    const TEXT: &str = "\
55d0c9c00000-55d0c9c21000 r-xp 00002000 fd:01 1234567                    /usr/bin/some name with blanks
55d0ca000000-55d0ca021000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000021000 rw-p 00000000 00:00 0
7f0000021000-7f0004000000 ---p 00000000 00:00 0 
7f0010000000-7f0010002000 rw-s 00003000 00:01 42                         /memfd:softdoca (deleted)
7f0010002000-7f0010004000 rw-p 00000000 00:00 0                          [anon:arena]
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    #[test]
    fn every_kind_of_maps_line_is_parsed() {
        let areas = parse_maps(TEXT).unwrap();
        assert_eq!(areas.len(), 8);
        assert_eq!(areas[0].name, "/usr/bin/some name with blanks");
        assert_eq!(
            (areas[0].offset, areas[0].device, areas[0].inode),
            (0x2000, (0xfd, 1), 1_234_567)
        );
        assert_eq!(
            (areas[4].offset, areas[4].shared, areas[4].inode),
            (0x3000, true, 42)
        );
        assert_eq!(areas[7].end, 0xffff_ffff_ff60_1000);
        let private: Vec<_> = areas.iter().map(Area::is_private_memory).collect();
        assert_eq!(
            private,
            [false, true, true, false, false, true, false, false]
        );
    }

    #[test]
    fn malformed_maps_lines_are_errors() {
        for line in [
            "",
            "x",
            "1-2 rw-p 0 0:0",
            "1-2 rw 0 0:0 0",
            "1-g rw-p 0 0:0 0",
            "1-2 rw-p 0 00 0",
        ] {
            assert_eq!(area(line), None, "{line}");
        }
    }

    #[test]
    fn maps_of_this_process_are_parsed() {
        let local = 0_u8;
        let addr = (&raw const local).addr() as u64;
        let text = read_maps().unwrap();
        let areas = parse_maps(&text).unwrap();
        assert!(
            areas
                .iter()
                .any(|area| (area.start..area.end).contains(&addr))
        );
        assert!(areas.windows(2).all(|pair| pair[0].end <= pair[1].start));
    }
}
