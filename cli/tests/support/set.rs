//! A set of three targets with backing files, and faults that are injected into it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use ::deployment::process::{Process, Signal};
use serde_json::Value;

use super::gga::{TARGETS, compressible, noise};
use super::stored_block::Sizes;
use super::{
    BLOCK_SIZE, Sandbox, TIMEOUT, default_deadline, document, expect_failure, text, wait_for_log,
};

/// Number of blocks of a set.
pub const BLOCKS: usize = 64;
/// Offset of the first block in a backing file in bytes.
const CONTENT_OFFSET: usize = 65536;
/// Number of I/Os of an endless run.
pub const ENDLESS: usize = 2_000_000_000;

/// Three targets with backing files, which serve consecutive sessions.
pub struct Set {
    pub sandbox: Sandbox,
    pub ports: [u16; 3],
    /// Running targets.
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
            let arguments = arguments(&sandbox, sizes.half, number);
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
        let mut writer = self.initiator("read_write_data_validity_test", content, ENDLESS);
        under_way(&mut writer);
        writer
    }

    /// Writes these contents in a session that lasts until a scrub has recorded that all blocks have a checksum.
    pub fn write_and_scrub(&self, content: &Path) {
        self.write(content);
        let service = self.service(&["--scrub", "once"]);
        let reader = self.reader(content);
        wait_for_log(&service, "scrub completed", 1);
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
        let arguments = arguments(&self.sandbox, self.sizes.half, number);
        let arguments = [&arguments[..], flags].concat();
        let target = self.sandbox.target_again(self.ports[number], &arguments);
        self.targets[number] = Some(target);
    }

    /// An initiator that reads and compares endlessly.
    pub fn reader(&self, content: &Path) -> Process {
        let mut reader = self.initiator("read_only_data_validity_test", content, ENDLESS);
        under_way(&mut reader);
        reader
    }

    /// Kills and restarts each of the three targets in turn while `reader` is running.
    pub fn reads_with_any_two(&mut self, service: &Process, mut reader: Process) {
        for (number, name) in TARGETS.iter().enumerate() {
            let whole = format!("storage target {name} is up to date");
            let lost = format!("detached storage target {name}");
            let count = |what: &str| service.stderr().matches(what).count();
            let (before, losses) = (count(&whole), count(&lost));
            self.kill(number);
            wait_for_log(service, &lost, losses + 1);
            under_way(&mut reader);
            self.start(number);
            wait_for_log(service, &whole, before + 1);
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
fn arguments(sandbox: &Sandbox, half: usize, number: usize) -> Vec<&'static str> {
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

/// Kills a process.
pub fn killed(mut process: Process) {
    process.signal(Signal::KILL);
    assert!(process.wait(default_deadline()).is_some(), "killed");
}

/// Interrupts a run that has had no error.
pub fn interrupted(initiator: Process) {
    initiator.signal(Signal::INT);
    let said = expect_failure(initiator);
    assert!(said.contains("interrupted by the user"), "{said}");
}

/// Waits until a run has shown progress twice.
pub fn under_way(initiator: &mut Process) {
    for _ in 0..2 {
        initiator
            .wait_for("shown progress", TIMEOUT, |line| {
                line.contains("per second").then_some(())
            })
            .expect("the run is under way");
    }
}

/// Waits for the service to exit with success; returns its statistics of the redundancy.
pub fn redundancy(service: Process) -> Value {
    document(service)["redundancy"].clone()
}
