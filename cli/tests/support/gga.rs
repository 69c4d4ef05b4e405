//! Gga deployments of real processes, and contents for them.

use std::path::{Path, PathBuf};

use ::deployment::process::Process;

use super::{Sandbox, long_timeouts, text, waiting};

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
        let mut patient = long_timeouts(arguments);
        if arguments.contains(&"--degraded") && !patient.is_empty() {
            patient = &["--control-timeout", "20"];
        }
        let arguments = [&base[..], &cpus(workers), arguments, patient].concat();
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
