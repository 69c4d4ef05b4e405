//! A running service between three scripted targets and an initiator that the test plays.
#![allow(dead_code, reason = "every test file uses a part of this")]

mod initiator;

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use conformance::target::{Fault, Script, ScriptedTarget};
use deployment::process::Process;
use doca::ErrorCode;
use role_common::stored_block::{Checksum, Encoder, Geometry, Place};
use role_common::superblock::SetId;
use wire::io_message::IoMessageType;

#[allow(unused_imports, reason = "every test file uses a part of this")]
pub use initiator::{Initiator, TAIL};

pub const TIMEOUT: Duration = Duration::from_secs(60);

/// `--cpu` flags for this many workers, on different CPUs as long as there are some.
fn cpus(workers: u32) -> String {
    let set = rustix::thread::sched_getaffinity(None).expect("affinity");
    let usable: Vec<usize> = (0..1024).filter(|&cpu| set.is_set(cpu)).collect();
    let cpus = usable.iter().cycle().take(workers as usize);
    cpus.map(|cpu| format!(" --cpu {cpu}")).collect()
}

pub fn command(args: &str) -> Command {
    let program = env!("CARGO_BIN_EXE_doca_storage_comch_to_rdma_gga_offload");
    let mut command = Command::new(program);
    command.args(args.split_whitespace());
    command
}

/// A target at this port, or any, with its port.
fn target(
    block_size: usize,
    content: Vec<u8>,
    fault: Fault,
    records: Option<u32>,
    port: u16,
) -> (u16, JoinHandle<Vec<u8>>) {
    let script = Script {
        device: "03:00.0".to_owned(),
        block_size: block_size as u32,
        content,
        fault,
        features: 0,
        records,
        release: wire::release::Release::default(),
    };
    let target = ScriptedTarget::listen(script, port).expect("a free port");
    let port = target.port().expect("port");
    let serve = move || target.serve().expect("a session");
    (port, std::thread::spawn(serve))
}

/// Results of a deployment.
pub struct End {
    /// The statistics of the service.
    pub statistics: serde_json::Value,
    /// Log of the service.
    pub stderr: String,
    /// Chunks on data_1, data_2 and data_p.
    pub halves: [Vec<u8>; 3],
}

/// Fields are in the order in which they are dropped.
pub struct Deployment {
    pub initiator: Initiator,
    service: Process,
    targets: Vec<JoinHandle<Vec<u8>>>,
    ports: Vec<u16>,
}

impl Deployment {
    /// Reads blocks one by one from block 0, and compares them with `content`.
    pub fn expect_content(&mut self, content: &[u8]) {
        let initiator = &mut self.initiator;
        initiator
            .memory
            .fill(0, content.len(), 0xee)
            .expect("inside");
        for (block, expected) in content.chunks(2 * HALF).enumerate() {
            assert_eq!(
                initiator.io(IoMessageType::Read, block as u64, 1),
                ErrorCode::SUCCESS,
                "block {block}"
            );
            assert_eq!(initiator.block(block as u64), expected, "block {block}");
        }
    }

    /// Starts targets with these contents, and a service with these further flags.
    pub fn start(halves: &[Vec<u8>; 3], args: &str) -> Self {
        Self::with(halves, args, [Fault::None; 3], 1)
    }

    /// As [`start`](Self::start), with these faults of the targets, and this many workers.
    pub fn with(halves: &[Vec<u8>; 3], args: &str, faults: [Fault; 3], workers: u32) -> Self {
        Self::keeping(halves, args, faults, [None; 3], workers)
    }

    /// As [`with`](Self::with), with targets that persist this many superblocks.
    pub fn keeping(
        halves: &[Vec<u8>; 3],
        args: &str,
        faults: [Fault; 3],
        records: [Option<u32>; 3],
        workers: u32,
    ) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let channel_name = format!("gga-test-{}-{number}", std::process::id());
        let block_size = match args.contains("whole-blocks") {
            true => 2 * HALF,
            false => HALF,
        };
        let (ports, targets): (Vec<u16>, Vec<_>) = halves
            .iter()
            .zip(faults.into_iter().zip(records))
            .map(|(content, (fault, records))| {
                target(block_size, content.clone(), fault, records, 0)
            })
            .unzip();
        let command = command(&format!(
            "-d 03:00.0 -r 3b:00.0{cpus} --data-1-storage 127.0.0.1:{} --data-2-storage 127.0.0.1:{} \
             --data-p-storage 127.0.0.1:{} --command-channel-name {channel_name} --output json {args}",
            ports[0],
            ports[1],
            ports[2],
            cpus = cpus(workers),
        ));
        let mut service = Process::spawn("service", command).expect("started");
        let waiting = |line: &str| line.contains("waiting for the initiator").then_some(());
        service
            .wait_for("waited for an initiator", TIMEOUT, waiting)
            .expect("ready");
        let initiator = Initiator::connect(&channel_name, workers);
        Self {
            initiator,
            service,
            targets,
            ports,
        }
    }

    /// Waits for the exit of a detached target and returns its content.
    pub fn last_content_of(&mut self, target: usize) -> Vec<u8> {
        let ended = std::mem::replace(&mut self.targets[target], std::thread::spawn(Vec::new));
        ended.join().expect("a target")
    }

    /// Starts a target with this content in the place of one that has ended.
    pub fn replace(&mut self, target: usize, content: Vec<u8>, fault: Fault) {
        self.replace_keeping(target, content, fault, None);
    }

    /// As [`replace`](Self::replace), with a target that persists this many superblocks.
    pub fn replace_keeping(
        &mut self,
        target: usize,
        content: Vec<u8>,
        fault: Fault,
        records: Option<u32>,
    ) {
        let (_, serving) = self::target(HALF, content, fault, records, self.ports[target]);
        self.targets[target] = serving;
    }

    /// Waits until the service has logged this once more.
    pub fn wait_for_log(&mut self, text: &str) {
        self.service
            .wait_for("logged it", TIMEOUT, |line| {
                line.contains(text).then_some(())
            })
            .unwrap_or_else(|failure| panic!("{text:?}: {failure}"));
    }

    /// The initiator leaves in the middle of its session; what the service logged.
    pub fn abandon(self) -> String {
        let Self {
            initiator,
            mut service,
            targets,
            ..
        } = self;
        drop(initiator);
        let status = service.wait(Instant::now() + TIMEOUT).expect("an end");
        assert_eq!(status.code(), Some(1));
        // No line matches, so this waits for the exit.
        let _ = service.wait_for("ended", TIMEOUT, |_| None::<()>);
        for target in targets {
            target.join().expect("a target");
        }
        service.stderr()
    }

    /// Ends the session in good order.
    pub fn end(self) -> End {
        let Self {
            initiator,
            mut service,
            targets,
            ..
        } = self;
        initiator.leave();
        // No line matches, so this waits for the exit.
        let _ = service.wait_for("ended", TIMEOUT, |_| None::<()>);
        let stderr = service.stderr();
        let stdout = service
            .finish(Instant::now() + TIMEOUT, || false)
            .expect("a good end");
        let mut halves = targets
            .into_iter()
            .map(|target| target.join().expect("a target"));
        End {
            statistics: serde_json::from_str(&stdout).expect("statistics"),
            stderr,
            halves: std::array::from_fn(|_| halves.next().expect("three targets")),
        }
    }
}

/// Size of a half block.
pub const HALF: usize = 512;

/// Bytes that compress well, and differ from block to block.
pub fn text(blocks: u64, block_size: usize) -> Vec<u8> {
    let mut content = Vec::new();
    for block in 0..blocks {
        let mut bytes = format!("block {block} ")
            .into_bytes()
            .repeat(block_size / 8);
        bytes.resize(block_size, 0);
        content.extend(bytes);
    }
    content
}

/// Bytes that do not compress.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Chunks on data_1, data_2 and data_p. The parity is the XOR of the data chunks, as for a Vandermonde matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stripes(pub [Vec<u8>; 3]);

impl Stripes {
    /// Encodes content of blocks of twice [`HALF`] bytes.
    pub fn of(content: &[u8], checksum: Checksum) -> Self {
        let stored = 2 * HALF;
        let mut encoder = Encoder::new(Geometry::compatible(stored as u32), checksum);
        let blocks = content.chunks(stored).zip(0..).map(|(block, stripe)| {
            let place = Place {
                set: SetId::NONE,
                stripe,
            };
            let stored = encoder.encode(block, place).expect("it compresses");
            stored.to_vec()
        });
        Self::of_stored(&blocks.collect::<Vec<_>>())
    }

    /// Stripes of stored blocks as they are.
    pub fn of_stored(blocks: &[Vec<u8>]) -> Self {
        let mut halves: [Vec<u8>; 3] = Default::default();
        for block in blocks {
            let (first, second) = block.split_at(HALF);
            halves[0].extend(first);
            halves[1].extend(second);
            halves[2].extend(first.iter().zip(second).map(|(a, b)| a ^ b));
        }
        Self(halves)
    }

    /// The stored block of a stripe.
    pub fn stored(&self, stripe: usize) -> Vec<u8> {
        let range = stripe * HALF..(stripe + 1) * HALF;
        [&self.0[0][range.clone()], &self.0[1][range]].concat()
    }

    /// With zeros for the checksums, which depend on the random identifier of a set, and for their parity.
    pub fn without_checksums(mut self) -> Self {
        for half in self.0[1..].iter_mut().flat_map(|it| it.chunks_mut(HALF)) {
            half[HALF - 4..].fill(0);
        }
        self
    }

    /// Contents of targets with whole blocks, as releases 3.0 and 3.1 place them: each chunk where the stored block has it, parity at
    /// both places, and other bytes in the rest.
    pub fn whole_blocks(&self) -> [Vec<u8>; 3] {
        let whole = |target: usize| {
            let chunks = self.0[target].chunks(HALF);
            let blocks = chunks.map(|chunk| match target {
                0 => [chunk, &[0xaa; HALF]].concat(),
                1 => [&[0x55; HALF], chunk].concat(),
                _ => [chunk, chunk].concat(),
            });
            blocks.collect::<Vec<_>>().concat()
        };
        [0, 1, 2].map(whole)
    }

    /// Flips a bit of a chunk.
    pub fn flip(mut self, target: usize, stripe: usize, byte: usize) -> Self {
        self.0[target][stripe * HALF + byte] ^= 0x10;
        self
    }
}
