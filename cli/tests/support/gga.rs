//! Gga deployments of real processes and contents for them; a set of three targets with backing files, and faults that
//! are injected into it; stored blocks, read by code that is independent of the roles: LZ4 by the C library, CRC by
//! another crate, parity by tables of logarithms.

use std::fs;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use deployment::log::{LogEvent, events};
use deployment::process::{Process, Signal};
use serde_json::Value;

use super::{
    BLOCK_SIZE, Sandbox, document, expect_failure, killed, long_timeouts, text, wait_for_io,
    wait_for_log, waiting,
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
        if arguments.contains(&"--degraded") && !timeouts.is_empty() {
            timeouts = &["--control-timeout", "20"];
        }
        let arguments = [&base[..], &cpus(workers), arguments, timeouts].concat();
        self.spawn("service", &arguments)
    }

    /// An initiator that compares with, or writes, the bytes in `content`.
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

    /// Starts a validated run over `content` that would take hours, and waits until it does I/Os.
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

/// Distinct lines, about half of which are random digits: moderately compressible.
pub fn compressible(length: usize) -> Vec<u8> {
    let mut lines = Vec::with_capacity(length + 64);
    let mut word = 1u64;
    while lines.len() < length {
        word = mix(word);
        lines.extend(format!("line {} says {word:x} twice: {word:x}\n", lines.len()).into_bytes());
    }
    lines.truncate(length);
    lines
}

/// Incompressible bytes.
pub fn noise(length: usize) -> Vec<u8> {
    let mut word = 1u64;
    let mut bytes: Vec<u8> = std::iter::repeat_with(|| {
        word = mix(word);
        (word >> 11).to_le_bytes()
    })
    .take(length.div_ceil(6))
    .flat_map(|word| word[..6].to_owned())
    .collect();
    bytes.truncate(length);
    bytes
}

fn mix(word: u64) -> u64 {
    word.wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407)
}

/// Number of blocks of a set.
pub const BLOCKS: usize = 64;

/// Byte offset of the first block in a backing file.
const CONTENT_OFFSET: usize = 65536;

/// Number of I/Os of an endless run.
pub const ENDLESS: usize = 2_000_000_000;

/// Three targets with backing files, which serve consecutive sessions.
pub struct Set {
    pub sandbox: Sandbox,
    pub ports: [u16; 3],
    /// `None` for a target that is not running.
    pub targets: [Option<Process>; 3],
    sizes: Sizes,
    /// Flags of the service.
    flags: Vec<&'static str>,
    /// Further flags of the targets.
    target_flags: Vec<&'static str>,
}

impl Set {
    /// Creates a set whose logical blocks have the size of stored blocks, with this checksum mode: `crc32c` or `off`.
    pub fn new(checksum: &'static str) -> Self {
        let mut set = Self::of(Sizes::compatible(BLOCK_SIZE), Vec::new());
        set.write_checksums(checksum);
        set
    }

    /// Creates a set whose blocks hold incompressible data.
    pub fn logical() -> Self {
        let flags = vec!["--degraded", "on", "--logical-block-size", "4096"];
        Self::of(Sizes::logical(BLOCK_SIZE), flags)
    }

    /// Makes further services use this checksum mode.
    pub fn write_checksums(&mut self, checksum: &'static str) {
        self.flags = vec!["--degraded", "on", "--checksum", checksum];
    }

    /// Creates a set of compressible blocks, with these flags of the service and of the targets.
    pub fn with_flags(
        sandbox: Sandbox,
        flags: &[&'static str],
        target_flags: &[&'static str],
    ) -> Self {
        let sizes = Sizes::compatible(BLOCK_SIZE);
        Self::on(sandbox, sizes, flags.to_vec(), target_flags.to_vec())
    }

    fn of(sizes: Sizes, flags: Vec<&'static str>) -> Self {
        Self::on(Sandbox::new(), sizes, flags, Vec::new())
    }

    fn on(
        sandbox: Sandbox,
        sizes: Sizes,
        flags: Vec<&'static str>,
        target_flags: Vec<&'static str>,
    ) -> Self {
        let started = [0, 1, 2].map(|number| {
            let arguments = flags_of_target(&sandbox, sizes.half, number);
            sandbox.target(&[&arguments[..], &target_flags].concat())
        });
        let ports = started.each_ref().map(|(_, port)| *port);
        Self {
            ports,
            targets: started.map(|(target, _)| Some(target)),
            sandbox,
            sizes,
            flags,
            target_flags,
        }
    }

    /// Size of a chunk in bytes.
    pub fn chunk_size(&self) -> usize {
        self.sizes.half
    }

    /// File with contents that are different for each number. For a [logical](Self::logical) set, they are incompressible.
    pub fn content(&self, number: usize) -> PathBuf {
        let length = (number + 1) * BLOCKS * BLOCK_SIZE;
        let all = if self.sizes == Sizes::compatible(BLOCK_SIZE) {
            compressible(length)
        } else {
            noise(length)
        };
        let name = format!("content {number}");
        self.sandbox
            .file(&name, &all[number * BLOCKS * BLOCK_SIZE..])
    }

    /// Starts a service with degraded mode and these further flags, and waits until it is ready for an initiator.
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
        self.sandbox.gga_initiator(
            strategy,
            content,
            operations,
            2,
            &["--progress", "always", "--io-timeout", "30"],
        )
    }

    /// Writes these contents in a session of their own.
    pub fn write(&self, content: &Path) -> Value {
        let service = self.service(&[]);
        document(self.initiator("read_write_data_validity_test", content, BLOCKS));
        document(service)
    }

    /// An initiator that writes these contents repeatedly, and has written all of them once.
    pub fn writer(&self, content: &Path) -> Process {
        let writer = self.initiator("read_write_data_validity_test", content, ENDLESS);
        wait_for_io(&writer);
        writer
    }

    /// Writes these contents in a session that lasts until a scrub has recorded that all blocks have a checksum.
    pub fn write_and_scrub(&self, content: &Path) {
        self.write(content);
        let service = self.service(&["--scrub", "once"]);
        let reader = self.reader(content);
        wait_for_log(&service, LogEvent::ScrubCompleted, 1);
        interrupted(reader);
        document(service);
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

    /// Restarts a target with its backing file.
    pub fn start(&mut self, number: usize) {
        self.start_with(number, &self.target_flags.clone());
    }

    /// As [`start`](Self::start), with these flags instead of the previous ones.
    pub fn start_with(&mut self, number: usize, flags: &[&str]) {
        let arguments = flags_of_target(&self.sandbox, self.sizes.half, number);
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

    /// Overwrites bytes of a target's chunk of a block.
    pub fn put(&self, number: usize, block: usize, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.sizes.half);
        let offset = CONTENT_OFFSET + block * self.sizes.half + at;
        let file = File::options().write(true).open(self.path(number));
        file.and_then(|file| file.write_all_at(bytes, offset as u64))
            .expect("written");
    }

    /// Contents of all chunks of a target, in order.
    pub fn stored(&self, number: usize) -> Vec<u8> {
        self.stored_in(&self.path(number))
    }

    /// Contents of all chunks in a backing file.
    pub fn stored_in(&self, path: &Path) -> Vec<u8> {
        fs::read(path).expect("there")[CONTENT_OFFSET..].to_vec()
    }

    /// A target's chunk of a block.
    pub fn chunk(&self, number: usize, block: usize) -> Vec<u8> {
        self.stored(number)[block * self.sizes.half..][..self.sizes.half].to_vec()
    }
}

/// Flags of a target with a backing file.
fn flags_of_target(sandbox: &Sandbox, half: usize, number: usize) -> Vec<&'static str> {
    let words = [
        "--cpu".to_owned(),
        "0".to_owned(),
        "--sessions".to_owned(),
        "forever".to_owned(),
        "--block-count".to_owned(),
        BLOCKS.to_string(),
        "--block-size".to_owned(),
        half.to_string(),
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

/// Reads and checks the contents of three targets: parity, layout, checksum (or its absence). Returns the decoded
/// contents.
pub fn read_targets(
    targets: [&[u8]; 3],
    sizes: Sizes,
    matrix: &str,
    has_checksum: bool,
) -> Vec<u8> {
    let [d1, d2, dp] = targets.map(|target| target.chunks(sizes.half));
    let mut content = Vec::new();
    for (block, ((d1, d2), dp)) in d1.zip(d2).zip(dp).enumerate() {
        assert!(parity(matrix, d1, d2) == dp, "parity of block {block}");
        let stored = [d1, d2].concat();
        let expected = if has_checksum {
            checksum(&stored, block)
        } else {
            0
        };
        assert_eq!(
            number(&stored, stored.len() - 4),
            expected,
            "checksum of block {block}"
        );
        content.extend(decode(&stored, sizes.logical));
    }
    content
}

/// Sizes of a half block and of a logical block in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    pub half: usize,
    pub logical: usize,
}

impl Sizes {
    /// Sizes for the reference's geometry.
    pub fn compatible(block_size: usize) -> Self {
        Self {
            half: block_size / 2,
            logical: block_size,
        }
    }

    /// Sizes for incompressible content: a header of 8 bytes, a length of 4 for each piece of 64 KiB, a
    /// checksum of 4; each half is a multiple of 64.
    pub fn logical(block_size: usize) -> Self {
        let stored = 12 + block_size + 4 * block_size.div_ceil(65536);
        Self {
            half: stored.div_ceil(128) * 64,
            logical: block_size,
        }
    }
}

pub fn decode(stored: &[u8], logical: usize) -> Vec<u8> {
    assert_eq!(number(stored, 0) as usize, logical, "original size");
    let compressed = number(stored, 4) as usize;
    let (mut data, padding) = stored[8..stored.len() - 4].split_at(compressed);
    assert!(padding.iter().all(|&byte| byte == 0), "padding");
    let mut content = Vec::new();
    while let Some((prefix, rest)) = data.split_first_chunk() {
        let prefix = u32::from_le_bytes(*prefix);
        let (block, rest) = rest.split_at((prefix & 0x7FFF_FFFF) as usize);
        let expected = (logical - content.len()).min(65536);
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
    assert!(data.is_empty() && content.len() == logical);
    content
}

/// Expected trailer of a stored block with this number: its CRC-32C bound to the number, and never 0.
pub fn checksum(stored: &[u8], block: usize) -> u32 {
    let crc = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI).checksum(&stored[..stored.len() - 4]);
    let mut mask = !u32::try_from(block).expect("few blocks");
    mask = (mask ^ mask >> 16).wrapping_mul(0x85EB_CA6B);
    mask = (mask ^ mask >> 13).wrapping_mul(0xC2B2_AE35);
    mask ^= mask >> 16;
    if crc == mask { 1 } else { crc ^ mask }
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
