//! Media errors: each failed disk operation is the error of its own I/O only, is counted, and is logged once.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use doca::{ErrorCode, MemoryRegion};
use rustix::io::Errno;
use tempfile::TempDir;
use tracing_subscriber::fmt::MakeWriter;
use wire::backing::CONTENT_OFFSET;

use super::{
    Completed, Disk, DiskOperation, FileDisk, FileStore, Io, Layout, Operation, Step, Store as _,
};
use crate::backing::{BackingFile, Options, WrittenBlocks};
use crate::content::{Content, Geometry};

const BLOCK: usize = 520;
const SECTOR: u64 = 512;

/// A queue to a file, with injected media errors.
struct Faulty {
    disk: FileDisk,
    fails: fn(DiskOperation) -> bool,
    pushed: Vec<u64>,
    /// Number of reads so far.
    reads: usize,
    failed: VecDeque<Completed>,
}

impl Faulty {
    fn fail_pushed(&mut self) {
        let failed = |token| Completed {
            token,
            result: Err(Errno::IO),
        };
        self.failed.extend(self.pushed.drain(..).map(failed));
    }
}

impl Disk for Faulty {
    fn push(&mut self, token: u64, operation: DiskOperation) {
        self.reads += usize::from(is_read(operation));
        if (self.fails)(operation) {
            self.pushed.push(token);
        } else {
            self.disk.push(token, operation);
        }
    }

    fn has_pending(&self) -> bool {
        !self.pushed.is_empty() || self.disk.has_pending()
    }

    fn submit(&mut self) {
        self.fail_pushed();
        self.disk.submit();
    }

    fn fail_pending(&mut self) {
        self.fail_pushed();
        self.disk.fail_pending();
    }

    fn reap(&mut self) -> bool {
        self.disk.reap() || !self.failed.is_empty()
    }

    fn next(&mut self) -> Option<Completed> {
        self.failed.pop_front().or_else(|| self.disk.next())
    }

    fn in_flight(&self) -> usize {
        self.disk.in_flight()
    }

    fn drain(&mut self) {
        self.disk.drain();
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.disk.readiness()
    }

    fn verify(&mut self) -> io::Result<()> {
        self.disk.verify()
    }
}

/// A store on a file.
struct Medium {
    store: FileStore<Faulty>,
    memory: Arc<MemoryRegion>,
    file: Arc<BackingFile>,
    _directory: TempDir,
}

impl Medium {
    /// A file on a file system with blocks of this size.
    fn new(fs_block: u64) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let geometry = Geometry {
            block_size: BLOCK as u32,
            block_count: 16,
        };
        let content = Content::open(None, geometry).expect("content");
        let path = directory.path().join("blocks");
        let file = BackingFile::open(&path, content, Options::default()).expect("made");
        let file = Arc::new(file);
        let sector = file.sector().max(SECTOR);
        let fs_block = fs_block.max(sector);
        let layout = Layout::new(CONTENT_OFFSET, sector, fs_block, BLOCK as u32, 1);
        let length = CONTENT_OFFSET + geometry.capacity();
        let written = Arc::new(WrittenBlocks::new(length, sector, fs_block));
        let memory = MemoryRegion::new(layout.buffer).expect("memory");
        let disk = Faulty {
            disk: FileDisk::new(Arc::clone(&file), &memory, 1),
            fails: |_| false,
            pushed: Vec::new(),
            reads: 0,
            failed: VecDeque::new(),
        };
        let health = Arc::clone(file.health());
        Self {
            store: FileStore::new(disk, layout, 1, Arc::default(), written, health),
            memory,
            file,
            _directory: directory,
        }
    }

    /// Executes a client's I/O while these disk operations fail; a read fills `bytes`.
    fn io(
        &mut self,
        fails: fn(DiskOperation) -> bool,
        operation: Operation,
        storage_offset: usize,
        bytes: &mut [u8],
    ) -> ErrorCode {
        self.store.disk().fails = fails;
        let io = Io {
            operation,
            storage_offset: storage_offset as u64,
            requester_offset: 0,
            size: bytes.len() as u32,
        };
        let mut step = self.store.begin(0, io);
        loop {
            step = match step {
                Step::Complete(code) => return code,
                Step::Transfer(extent) => {
                    let at = extent.local_offset as usize;
                    let moved = if extent.to_requester {
                        self.memory.read(at, bytes)
                    } else {
                        self.memory.write(at, bytes)
                    };
                    moved.expect("inside the memory");
                    self.store.transferred(0)
                }
                Step::Pending => {
                    self.store.poll();
                    self.store.next().map_or(Step::Pending, |(_, step)| step)
                }
            };
        }
    }

    fn read(&mut self, storage_offset: usize, size: usize) -> Vec<u8> {
        let mut bytes = vec![0xee; size];
        let code = self.io(|_| false, Operation::Read, storage_offset, &mut bytes);
        assert_eq!(code, ErrorCode::SUCCESS);
        bytes
    }
}

/// Captured log.
#[derive(Debug, Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("not poisoned").extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Errors logged while `run` is executed.
fn errors_logged(run: impl FnOnce()) -> Vec<String> {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(lines.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, run);
    let text = String::from_utf8(lines.0.lock().expect("not poisoned").clone()).expect("text");
    let errors = text.lines().filter(|line| line.contains("ERROR"));
    errors.map(str::to_owned).collect()
}

fn is_read(operation: DiskOperation) -> bool {
    matches!(operation, DiskOperation::Read(_))
}

fn is_write(operation: DiskOperation) -> bool {
    matches!(operation, DiskOperation::Write { .. })
}

#[test]
fn failed_disk_operation_fails_only_its_own_io() {
    type Fails = fn(DiskOperation) -> bool;
    let write = |durable| Operation::Write { durable };
    // A block is a sector and a part of one: writing it reads, modifies and writes both.
    let cases: [(&str, Operation, usize, Fails); 6] = [
        ("read", Operation::Read, BLOCK, is_read),
        ("merge", write(false), BLOCK, is_read),
        ("write of parts", write(false), BLOCK, is_write),
        ("durable write of parts", write(true), BLOCK, is_write),
        ("write of sectors", write(false), 4096, is_write),
        ("durable write of sectors", write(true), 4096, is_write),
    ];
    for ((name, operation, size, fails), fs_block) in cases
        .into_iter()
        .flat_map(|case| [(case, SECTOR), (case, 4096)])
    {
        let mut medium = Medium::new(fs_block);
        let before: Vec<u8> = (0..BLOCK * 16).map(|at| (at % 251) as u8).collect();
        let (first, second) = before.split_at(4096);
        for (offset, part) in [(0, first), (4096, second)] {
            let code = medium.io(|_| false, write(false), offset, &mut part.to_vec());
            assert_eq!(code, ErrorCode::SUCCESS);
        }
        // Aligned for cases with whole sectors.
        let offset = if size == 4096 { 0 } else { 3 * BLOCK };
        let lines = errors_logged(|| {
            for count in 1..=3 {
                let mut bytes = vec![0x77; size];
                let code = medium.io(fails, operation, offset, &mut bytes);
                assert_eq!(code, ErrorCode::IO_FAILED, "{name}");
                assert_eq!(medium.store.media_errors(), count, "{name}");
            }
        });
        assert_eq!(lines.len(), 1, "{name}: {lines:?}");
        assert_eq!(medium.file.health().errors(), 3, "{name}");
        // The failed operations had no effect, and the sectors are not locked.
        assert!(medium.read(0, before.len()) == before, "{name}");
        let code = medium.io(|_| false, write(true), offset, &mut vec![0x78; size]);
        assert_eq!(code, ErrorCode::SUCCESS, "{name}");
        assert_eq!(medium.read(offset, size), vec![0x78; size], "{name}");
        let flushed = medium.io(|_| false, Operation::Flush, 0, &mut []);
        assert_eq!(flushed, ErrorCode::SUCCESS, "{name}");
        // A clean shutdown is not recorded: acknowledged data may be missing.
        assert!(medium.file.sync().is_err(), "{name}");
    }
}

/// The kernel reports a failed sync once, and treats the unwritten data as written.
#[test]
fn all_ios_fail_after_a_failed_sync() {
    let mut medium = Medium::new(SECTOR);
    let is_sync = |operation| operation == DiskOperation::Sync;
    let lines = errors_logged(|| {
        let flushed = medium.io(is_sync, Operation::Flush, 0, &mut []);
        assert_eq!(flushed, ErrorCode::IO_FAILED);
        for operation in [
            Operation::Flush,
            Operation::Read,
            Operation::Write { durable: true },
        ] {
            let code = medium.io(|_| false, operation, 0, &mut [0; BLOCK]);
            assert_eq!(code, ErrorCode::IO_FAILED, "{operation:?}");
        }
    });
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(medium.store.media_errors(), 4);
    assert!(medium.file.sync().is_err());
    assert!(medium.file.check_health().is_err());
}

#[test]
fn part_of_a_block_is_written_with_the_rest_of_it_once() {
    let mut medium = Medium::new(4096);
    let write = |medium: &mut Medium, offset, size, byte| {
        let before = medium.store.disk().reads;
        let write = Operation::Write { durable: false };
        let code = medium.io(|_| false, write, offset, &mut vec![byte; size]);
        assert_eq!(code, ErrorCode::SUCCESS);
        medium.store.disk().reads - before
    };
    let is_sectored = medium.file.sector() <= SECTOR;
    assert_eq!(write(&mut medium, 512, 1024, 1), usize::from(is_sectored));
    assert_eq!(write(&mut medium, 0, 512, 2), usize::from(!is_sectored));
    assert_eq!(write(&mut medium, 3072, 1024, 3), usize::from(!is_sectored));
    let mut expected = vec![0; 4096];
    expected[..512].fill(2);
    expected[512..1536].fill(1);
    expected[3072..].fill(3);
    assert!(medium.read(0, 4096) == expected);
}

/// A disk replaces a sector that it cannot read when the sector is written.
#[test]
fn sectors_are_written_where_the_rest_of_their_block_cannot_be_read() {
    let mut medium = Medium::new(4096);
    if medium.file.sector() > SECTOR {
        eprintln!("NOT RUN: a write of 512 bytes needs sectors of 512 bytes");
        return;
    }
    let write = Operation::Write { durable: true };
    let code = medium.io(is_read, write, 512, &mut [1; 1024]);
    assert_eq!(code, ErrorCode::SUCCESS);
    assert_eq!(medium.store.media_errors(), 0);
    assert!(medium.file.check_health().is_ok());
    let mut expected = vec![0; 4096];
    expected[512..1536].fill(1);
    assert!(medium.read(0, 4096) == expected);
    // Not by halves: these bytes are no whole sectors.
    let code = medium.io(is_read, write, 512, &mut [1; 1000]);
    assert_eq!(code, ErrorCode::IO_FAILED);
}
