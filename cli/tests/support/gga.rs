//! gga deployments of real processes and contents for them; a set of three targets with backing files, and faults that
//! are injected into it; stored blocks and stored chunks, read and written by code that is independent of the roles:
//! LZ4 by the C library, CRC by another crate, parity by tables of logarithms.

use std::fs;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use deployment::log::{LogEvent, events};
use deployment::process::{Process, Signal};
use serde_json::Value;

use super::{
    BLOCK_SIZE, Sandbox, default_deadline, document, expect_failure, killed, long_timeouts, text,
    wait_for_io, wait_for_log, waiting,
};

/// Names of the three targets, in the order used everywhere here.
pub const TARGETS: [&str; 3] = ["data_1", "data_2", "data_p"];

impl Sandbox {
    /// Generates the `.sbc` files of `content`, whose names begin with `name`.
    pub fn generate(&self, name: &str, content: &[u8], arguments: &[&str]) -> [PathBuf; 3] {
        let original = self.file(name, content);
        let files = TARGETS.map(|target| self.path(&format!("{name}.{target}.sbc")));
        let [data_1, data_2, data_p] = files.each_ref().map(|path| text(path));
        let base = [
            "sbc-generator",
            "-d",
            "03:00.0",
            "--original-input-data",
            text(&original),
            "--data-1",
            data_1,
            "--data-2",
            data_2,
            "--data-p",
            data_p,
        ];
        let output = self
            .command(&[&base[..], arguments].concat())
            .output()
            .expect("the program runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr}");
        files
    }

    /// Starts three targets with these `.sbc` files, and returns them with their ports.
    pub fn gga_targets(&self, files: &[PathBuf; 3], workers: usize) -> ([Process; 3], [u16; 3]) {
        let cpus = cpus(workers);
        let started = files
            .each_ref()
            .map(|file| self.target(&[&["--binary-content", text(file)], &cpus[2..]].concat()));
        let ports = started.each_ref().map(|(_, port)| *port);
        (started.map(|(target, _)| target), ports)
    }

    /// Starts a service, and waits until it is ready for an initiator.
    pub fn gga_service(&self, ports: [u16; 3], workers: usize, arguments: &[&str]) -> Process {
        waiting(self.start_gga_service(ports, workers, arguments))
    }

    /// Starts a service without waiting until it is ready.
    pub fn start_gga_service(
        &self,
        ports: [u16; 3],
        workers: usize,
        arguments: &[&str],
    ) -> Process {
        let [data_1, data_2, data_p] = ports.map(|port| format!("127.0.0.1:{port}"));
        let base = [
            "gga-offload",
            "-d",
            "03:00.0",
            "-r",
            "3b:00.0",
            "--data-1-storage",
            &data_1,
            "--data-2-storage",
            &data_2,
            "--data-p-storage",
            &data_p,
            "--output",
            "json",
        ];
        // A degraded service detaches a stopped target after half of its control timeout.
        let mut timeouts = long_timeouts(arguments);
        if arguments.contains(&"--logical-block-size") && !timeouts.is_empty() {
            timeouts = &["--control-timeout", "20"];
        }
        let arguments = [&base[..], &cpus(workers), arguments, timeouts].concat();
        self.spawn("service", &arguments)
    }

    /// An initiator that compares the blocks with the bytes in `content`, or writes them.
    pub fn gga_initiator(
        &self,
        strategy: &str,
        content: &Path,
        operations: usize,
        workers: usize,
        arguments: &[&str],
    ) -> Process {
        let operations = operations.to_string();
        let base = [
            "--storage-plain-content",
            text(content),
            "--run-limit-operation-count",
            &operations,
        ];
        // The bench's own flags include the first worker's CPU.
        let cpus = cpus(workers);
        self.initiator(strategy, &[&base[..], &cpus[2..], arguments].concat())
    }

    /// Starts a validated run over `content` that would take hours, and waits until it performs I/Os.
    pub fn busy_gga_initiator(&self, content: &str, workers: usize, arguments: &[&str]) -> Process {
        let initiator = self.gga_initiator(
            "read_write_data_validity_test",
            &self.path(content),
            ENDLESS,
            workers,
            &[&["--progress", "always"], arguments].concat(),
        );
        wait_for_io(&initiator);
        initiator
    }
}

/// `--cpu` flags for this many workers; they may share a CPU.
fn cpus(workers: usize) -> Vec<&'static str> {
    ["--cpu", "0"].repeat(workers)
}

/// Number of blocks of a set.
pub const BLOCKS: usize = 64;

/// Byte offset of the first block in a backing file.
const CONTENT_OFFSET: usize = 65536;

/// Number of I/Os of an endless run.
pub const ENDLESS: usize = 2_000_000_000;

/// Size of the chunks of a set's blocks in bytes: half a block, and a record.
pub const CHUNK: usize = BLOCK_SIZE / 2 + RECORD;

/// Flags of a service that stores blocks of [`BLOCK_SIZE`] bytes as chunks of a set.
pub const OF_SETS: [&str; 2] = ["--logical-block-size", "4096"];

/// A set of three targets with backing files, which serve consecutive sessions.
pub struct Set {
    pub sandbox: Sandbox,
    pub ports: [u16; 3],
    /// `None` for a target that is not running.
    pub targets: [Option<Process>; 3],
    /// Flags of the service.
    flags: Vec<&'static str>,
    /// Further flags of the targets.
    target_flags: Vec<&'static str>,
}

impl Set {
    /// Starts three empty targets.
    pub fn new() -> Self {
        Self::with_flags(Sandbox::new(), &[], &[])
    }

    /// Starts three empty targets. The service and the targets have these further flags.
    pub fn with_flags(
        sandbox: Sandbox,
        flags: &[&'static str],
        target_flags: &[&'static str],
    ) -> Self {
        let started = [0, 1, 2].map(|number| {
            let arguments = flags_of_target(&sandbox, number);
            sandbox.target(&[&arguments[..], target_flags].concat())
        });
        let ports = started.each_ref().map(|(_, port)| *port);
        Self {
            ports,
            targets: started.map(|(target, _)| Some(target)),
            sandbox,
            flags: [&OF_SETS, flags].concat(),
            target_flags: target_flags.to_vec(),
        }
    }

    /// File with incompressible contents, which differ for each number.
    pub fn content(&self, number: usize) -> PathBuf {
        let name = format!("content {number}");
        let content = contents::noise(number as u64, BLOCKS * BLOCK_SIZE);
        self.sandbox.file(&name, &content)
    }

    /// Starts a service with these further flags, and waits until it is ready for an initiator.
    pub fn service(&self, arguments: &[&str]) -> Process {
        self.sandbox
            .gga_service(self.ports, 2, &[&self.flags[..], arguments].concat())
    }

    /// Starts a service without waiting until it is ready.
    pub fn start_service(&self, arguments: &[&str]) -> Process {
        self.sandbox
            .start_gga_service(self.ports, 2, &[&self.flags[..], arguments].concat())
    }

    /// An initiator with two workers.
    pub fn initiator(&self, strategy: &str, content: &Path, operations: usize) -> Process {
        self.initiator_with(strategy, content, operations, "30")
    }

    /// An initiator with two workers and this I/O timeout.
    pub fn initiator_with(
        &self,
        strategy: &str,
        content: &Path,
        operations: usize,
        io_timeout: &str,
    ) -> Process {
        self.sandbox.gga_initiator(
            strategy,
            content,
            operations,
            2,
            &["--progress", "always", "--io-timeout", io_timeout],
        )
    }

    /// A client that has a session without I/O until it is terminated.
    pub fn idle_client(&self) -> Process {
        let socket = self.sandbox.path("socket");
        let arguments = ["nbd", "-d", "3b:00.0", "--cpu", "0", "--socket"];
        self.sandbox
            .spawn("nbd", &[&arguments[..], &[text(&socket)]].concat())
    }

    /// Writes these contents in a separate session.
    pub fn write(&self, content: &Path) -> Value {
        let service = self.service(&[]);
        document(self.initiator("read_write_data_validity_test", content, BLOCKS));
        document(service)
    }

    /// An initiator that writes these contents repeatedly; all of them have been written once when it is returned.
    pub fn writer(&self, content: &Path) -> Process {
        let writer = self.initiator("read_write_data_validity_test", content, ENDLESS);
        wait_for_io(&writer);
        writer
    }

    /// An initiator that reads this many blocks in order, from the first one on, and compares.
    pub fn read_in_order(&self, content: &Path, blocks: usize) -> Process {
        self.sandbox.gga_initiator(
            "read_only_data_validity_test",
            content,
            blocks,
            1,
            &["--transaction-count", "1", "--io-timeout", "30"],
        )
    }

    /// Kills a target with SIGKILL.
    pub fn kill(&mut self, number: usize) {
        killed(self.targets[number].take().expect("it runs"));
    }

    /// Stops a target with a clean shutdown, after which all blocks are at their places in the backing file. It exits with 1 if that
    /// ends a session.
    pub fn stop(&mut self, number: usize) {
        let mut target = self.targets[number].take().expect("it runs");
        target.signal(Signal::TERM);
        let status = target.wait(default_deadline()).expect("it ends");
        assert!(matches!(status.code(), Some(0 | 1)), "{status}");
    }

    /// Restarts a target with its backing file.
    pub fn start(&mut self, number: usize) {
        self.start_with(number, &self.target_flags.clone());
    }

    /// As [`start`](Self::start), with these flags instead of the previous ones.
    pub fn start_with(&mut self, number: usize, flags: &[&str]) {
        let arguments = flags_of_target(&self.sandbox, number);
        let arguments = [&arguments[..], flags].concat();
        let target = self.sandbox.target_again(self.ports[number], &arguments);
        self.targets[number] = Some(target);
    }

    /// An initiator that reads and compares endlessly.
    pub fn reader(&self, content: &Path) -> Process {
        let reader = self.initiator("read_only_data_validity_test", content, ENDLESS);
        wait_for_io(&reader);
        reader
    }

    /// Kills and restarts each of the three targets in turn while `reader` is running.
    pub fn reads_with_any_two(&mut self, service: &Process, reader: Process) {
        for (number, name) in TARGETS.iter().enumerate() {
            let (whole, lost) = (
                LogEvent::TargetUpToDate(name),
                LogEvent::TargetDetached(name),
            );
            let count = |event| service.count_events(|logged| logged == event);
            let (before, losses) = (count(whole), count(lost));
            self.kill(number);
            wait_for_log(service, lost, losses + 1);
            wait_for_io(&reader);
            self.start(number);
            wait_for_log(service, whole, before + 1);
        }
        interrupted(reader);
    }

    /// The backing file of a target.
    pub fn path(&self, number: usize) -> PathBuf {
        self.sandbox.path(TARGETS[number])
    }

    /// Overwrites bytes of a target's chunk of a block. The target must be [stopped](Self::stop).
    pub fn put(&self, number: usize, block: usize, at: usize, bytes: &[u8]) {
        assert!(self.targets[number].is_none() && at + bytes.len() <= CHUNK);
        let offset = CONTENT_OFFSET + block * CHUNK + at;
        let file = File::options().write(true).open(self.path(number));
        file.and_then(|file| file.write_all_at(bytes, offset as u64))
            .expect("written");
    }

    /// All chunks of a [stopped](Self::stop) target, in order.
    pub fn stored(&self, number: usize) -> Vec<u8> {
        assert!(self.targets[number].is_none());
        stored_in(&self.path(number))
    }

    /// A stopped target's chunk of a block.
    pub fn chunk(&self, number: usize, block: usize) -> Vec<u8> {
        self.stored(number)[block * CHUNK..][..CHUNK].to_vec()
    }
}

/// All chunks in the backing file of a target that was shut down cleanly.
pub fn stored_in(path: &Path) -> Vec<u8> {
    fs::read(path).expect("there")[CONTENT_OFFSET..][..BLOCKS * CHUNK].to_vec()
}

/// Flags of a target with a backing file.
fn flags_of_target(sandbox: &Sandbox, number: usize) -> Vec<&'static str> {
    let words = [
        "--cpu".to_owned(),
        "0".to_owned(),
        "--sessions".to_owned(),
        "forever".to_owned(),
        "--block-count".to_owned(),
        BLOCKS.to_string(),
        "--block-size".to_owned(),
        CHUNK.to_string(),
        "--backing-file".to_owned(),
        text(&sandbox.path(TARGETS[number])).to_owned(),
    ];
    words.map(|word| &*word.leak()).to_vec()
}

/// Interrupts a run that has had no error.
pub fn interrupted(initiator: Process) {
    initiator.signal(Signal::INT);
    was_interrupted(&expect_failure(initiator));
}

/// Checks that a run has reported, on this standard error, that the user has interrupted it.
pub fn was_interrupted(stderr: &str) {
    let was_interrupted = events(stderr).any(|event| event == LogEvent::Interrupted);
    assert!(was_interrupted, "{stderr}");
}

/// Waits for the service to exit with success; returns its statistics of the redundancy.
pub fn redundancy(service: Process) -> Value {
    document(service)["redundancy"].clone()
}

// Stored blocks, the reference's form.

/// Reads and checks the half blocks of three targets: parity, sizes, trailer. Returns the decoded contents.
pub fn read_blocks(targets: [&[u8]; 3], block_size: usize, matrix: &str) -> Vec<u8> {
    let [d1, d2, dp] = targets.map(|target| target.chunks(block_size / 2));
    let mut content = Vec::new();
    for (block, ((d1, d2), dp)) in d1.zip(d2).zip(dp).enumerate() {
        assert!(parity(matrix, d1, d2) == dp, "parity of block {block}");
        let stored = [d1, d2].concat();
        assert_eq!(number(&stored, 0) as usize, block_size, "original size");
        assert_eq!(number(&stored, block_size - 4), 0, "trailer");
        let compressed = number(&stored, 4) as usize;
        let (data, padding) = stored[8..block_size - 4].split_at(compressed);
        assert!(padding.iter().all(|&byte| byte == 0), "padding");
        content.extend(decompress(data, block_size));
    }
    content
}

/// Decompresses LZ4 data blocks, each preceded by its size.
fn decompress(mut data: &[u8], size: usize) -> Vec<u8> {
    let mut content = Vec::new();
    while let Some((prefix, rest)) = data.split_first_chunk() {
        let prefix = u32::from_le_bytes(*prefix);
        let (block, rest) = rest.split_at((prefix & 0x7FFF_FFFF) as usize);
        let expected = (size - content.len()).min(65536);
        if prefix >> 31 == 1 {
            assert_eq!(block.len(), expected, "a raw data block");
            content.extend(block);
        } else {
            let size = i32::try_from(expected).expect("64 KiB");
            let block = lz4::block::decompress(block, Some(size)).expect("LZ4");
            assert_eq!(block.len(), expected, "an LZ4 data block");
            content.extend(block);
        }
        data = rest;
    }
    assert!(data.is_empty() && content.len() == size);
    content
}

// Stored chunks, as in proto/stored_block.proto.

/// Size of the record of a chunk in bytes.
const RECORD: usize = 64;

/// Size of the chunks of blocks of this size: half a block, as a multiple of 64, and a record.
pub fn chunk_size(block_size: usize) -> usize {
    block_size.div_ceil(2).next_multiple_of(64) + RECORD
}

/// A chunk of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    pub set: u128,
    /// Number of the target in the set.
    pub member: usize,
    /// Number of the block.
    pub stripe: u64,
    /// Epoch of the write, and its number in that epoch.
    pub stamp: (u64, u64),
    /// 0 for uncompressed content.
    compressed_size: u32,
    pub payload: Vec<u8>,
}

impl Chunk {
    /// Decodes a chunk of this member; `None` for a chunk that was never written. Magic number, reserved bytes and
    /// checksum must be correct.
    pub fn parse(stored: &[u8], member: usize) -> Option<Self> {
        if stored.iter().all(|&byte| byte == 0) {
            return None;
        }
        let (record, payload) = match member {
            0 => stored.split_at(RECORD),
            _ => {
                let (payload, record) = stored.split_at(stored.len() - RECORD);
                (record, payload)
            }
        };
        let wide = |at: usize| u64::from_be_bytes(record[at..at + 8].try_into().expect("8 bytes"));
        assert_eq!(&record[..4], b"CHK2");
        assert_eq!(record[52..60], [0; 8], "reserved");
        assert_eq!(number(record, 60), crc(payload, record), "checksum");
        Some(Self {
            set: u128::from(wide(8)) << 64 | u128::from(wide(16)),
            member: number(record, 4) as usize,
            stripe: wide(24),
            stamp: (wide(32), wide(40)),
            compressed_size: number(record, 48),
            payload: payload.to_vec(),
        })
    }

    /// Encodes the chunk, with a valid checksum.
    pub fn emit(&self) -> Vec<u8> {
        let mut record = b"CHK2".to_vec();
        record.extend((self.member as u32).to_be_bytes());
        record.extend(self.set.to_be_bytes());
        for number in [self.stripe, self.stamp.0, self.stamp.1] {
            record.extend(number.to_be_bytes());
        }
        record.extend(self.compressed_size.to_be_bytes());
        record.extend([0; 12]);
        let checksum = crc(&self.payload, &record);
        record[60..].copy_from_slice(&checksum.to_be_bytes());
        match self.member {
            0 => [&record[..], &self.payload].concat(),
            _ => [&self.payload[..], &record].concat(),
        }
    }
}

/// CRC-32C of a payload, followed by a record without its checksum.
fn crc(payload: &[u8], record: &[u8]) -> u32 {
    let algorithm = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI);
    let mut digest = algorithm.digest();
    digest.update(payload);
    digest.update(&record[..RECORD - 4]);
    digest.finalize()
}

/// Reads and checks the chunks of three targets: places, stamps, parity. Returns the contents of all blocks, which were written.
pub fn read_chunks(targets: [&[u8]; 3], block_size: usize, matrix: &str) -> Vec<u8> {
    let targets = targets.map(|target| target.chunks(chunk_size(block_size)));
    let [d1, d2, dp] = targets;
    let mut content = Vec::new();
    let mut set = None;
    for (block, ((d1, d2), dp)) in d1.zip(d2).zip(dp).enumerate() {
        let mut members = 0..;
        let chunks = [d1, d2, dp].map(|stored| {
            let member = members.next().expect("endless");
            let chunk = Chunk::parse(stored, member);
            let chunk = chunk.unwrap_or_else(|| panic!("block {block} of {member} is unwritten"));
            assert_eq!((chunk.member, chunk.stripe), (member, block as u64));
            chunk
        });
        for chunk in &chunks {
            assert_eq!(chunk.stamp, chunks[0].stamp, "stamps of block {block}");
            assert!(chunk.stamp.0 > 0 && chunk.stamp.1 > 0, "{:?}", chunk.stamp);
            assert_eq!(chunk.set, *set.get_or_insert(chunk.set), "block {block}");
            assert_eq!(chunk.compressed_size, chunks[0].compressed_size);
        }
        let [d1, d2, dp] = &chunks;
        let expected = parity(matrix, &d1.payload, &d2.payload);
        assert!(expected == dp.payload, "parity of block {block}");
        let payload = [&d1.payload[..], &d2.payload].concat();
        let (data, padding) = match d1.compressed_size as usize {
            0 => payload.split_at(block_size),
            size => payload.split_at(size),
        };
        assert!(padding.iter().all(|&byte| byte == 0), "padding");
        match d1.compressed_size {
            0 => content.extend(data),
            _ => content.extend(decompress(data, block_size)),
        }
    }
    content
}

pub fn parity(matrix: &str, d1: &[u8], d2: &[u8]) -> Vec<u8> {
    let [first, second] = match matrix {
        // 1 / (i + (j + k)) for two data blocks and redundancy block 0.
        "cauchy" => [FIELD.inverse(2), FIELD.inverse(3)],
        // (i + 1)^0
        "vandermonde" => [1, 1],
        other => panic!("matrix {other}"),
    };
    std::iter::zip(d1, d2)
        .map(|(&a, &b)| FIELD.multiply(first, a) ^ FIELD.multiply(second, b))
        .collect()
}

fn number(stored: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(stored[at..at + 4].try_into().expect("4 bytes"))
}

static FIELD: LazyLock<Field> = LazyLock::new(Field::new);

/// Arithmetic in GF(2^8) with the polynomial 0x11D.
struct Field {
    exponentials: [u8; 255],
    logarithms: [usize; 256],
}

impl Field {
    fn new() -> Self {
        let mut field = Self {
            exponentials: [0; 255],
            logarithms: [0; 256],
        };
        let mut power = 1u16;
        for exponent in 0..255 {
            field.exponentials[exponent] = power as u8;
            field.logarithms[power as usize] = exponent;
            power <<= 1;
            if power >= 256 {
                power ^= 0x11D;
            }
        }
        field
    }

    fn multiply(&self, a: u8, b: u8) -> u8 {
        if a == 0 || b == 0 {
            return 0;
        }
        self.exponentials[(self.logarithms[a as usize] + self.logarithms[b as usize]) % 255]
    }

    fn inverse(&self, a: u8) -> u8 {
        self.exponentials[(255 - self.logarithms[a as usize]) % 255]
    }
}
