//! The service as a process, between three scripted targets and an initiator that the test plays, message by message.

mod corruption;
mod degraded;
mod io;
mod versions;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use conformance::target::{Fault, Kept, Recorder, Script, ScriptedTarget};
use contents::noise;
use control::shutdown::Shutdown;
use control::{ChannelEvent, ComchClientChannel, ControlChannel as _, Waiter};
use deployment::log::{LogEvent, events};
use deployment::port::Port;
use deployment::process::Process;
use doca::{
    Access, Buf, BufInventory, Completion, Connection, Consumer, CtxState, Device, ErrorCode,
    Event, MemoryRegion, Mmap, Pe, Producer, Task,
};
use role_formats::checksum::crc32c;
use role_formats::stored_block::{Encoder, Geometry};
use rustix::mm::{MprotectFlags, mprotect};
use wire::control::{
    ErrorResponse, FEATURE_FLUSH, FEATURE_VERSIONS, FeatureQuery, InitStorage, Message, Payload,
    StorageDetails,
};
use wire::io_message::{self, IoMessage, IoMessageType, Repr};
use wire::stored_block::ChunkRecord;

const TIMEOUT: Duration = Duration::from_secs(60);

/// `--cpu` flags for this number of workers, on different CPUs if possible.
fn cpus(workers: u32) -> String {
    let usable = deployment::allowed_cpus().expect("affinity");
    let cpus = usable.iter().cycle().take(workers as usize);
    cpus.map(|cpu| format!(" --cpu {cpu}")).collect()
}

fn command(args: &str) -> Command {
    let program = env!("CARGO_BIN_EXE_doca_storage_comch_to_rdma_gga_offload");
    let mut command = Command::new(program);
    command.args(args.split_whitespace());
    command
}

/// Configuration of a deployment.
struct Plan {
    /// Storages of data_1, data_2 and data_p.
    kept: [Kept; 3],
    /// Further flags of the service.
    args: String,
    faults: [Fault; 3],
    /// Number of superblocks that each target persists before it stops answering these requests; `None` for none at all.
    superblocks: [Option<u32>; 3],
    /// Extensions of the data path that targets and initiator announce.
    features: u32,
    workers: u32,
}

impl Plan {
    /// Blocks in the reference's form, on targets with these contents.
    fn reference(contents: &[Vec<u8>; 3], args: &str) -> Self {
        Self {
            kept: contents.clone().map(Kept::new),
            args: args.to_owned(),
            faults: [Fault::None; 3],
            superblocks: [None; 3],
            features: 0,
            workers: 1,
        }
    }

    /// A set of these targets, with blocks of [`LOGICAL`] bytes. It is not scrubbed.
    fn set(kept: &[Kept; 3], args: &str) -> Self {
        Self {
            kept: kept.clone(),
            args: format!("--scrub off --logical-block-size {LOGICAL} {args}"),
            faults: [Fault::None; 3],
            superblocks: [Some(u32::MAX); 3],
            features: FEATURE_FLUSH | FEATURE_VERSIONS,
            workers: 1,
        }
    }

    fn fault(mut self, target: usize, fault: Fault) -> Self {
        self.faults[target] = fault;
        self
    }

    fn faults(mut self, faults: &[(usize, Fault)]) -> Self {
        for &(target, fault) in faults {
            self.faults[target] = fault;
        }
        self
    }

    fn workers(mut self, workers: u32) -> Self {
        self.workers = workers;
        self
    }

    fn start(self) -> Deployment {
        Deployment::start(self).unwrap_or_else(|(error, _)| panic!("{error:?}"))
    }
}

/// Results of a deployment.
struct End {
    /// The statistics of the service.
    statistics: serde_json::Value,
    /// Log of the service.
    stderr: String,
    /// Storages of data_1, data_2 and data_p.
    kept: [Kept; 3],
    /// I/O messages of the targets.
    recorder: Recorder,
}

impl End {
    /// Contents of data_1, data_2 and data_p.
    fn contents(&self) -> [Vec<u8>; 3] {
        [0, 1, 2].map(|target| self.kept[target].content.clone())
    }

    /// Requires that the service has logged this event.
    fn expect_event(&self, event: LogEvent<'_>) {
        let is_logged = events(&self.stderr).any(|logged| logged == event);
        assert!(is_logged, "{event:?}: {}", self.stderr);
    }

    /// Requires that a line of the service's log has all these values.
    fn expect_line(&self, values: &[&str]) {
        let has_all = |line: &str| values.iter().all(|value| line.contains(value));
        let is_logged = self.stderr.lines().any(has_all);
        assert!(is_logged, "{values:?}: {}", self.stderr);
    }
}

/// Fields are in the order in which they are dropped.
struct Deployment {
    initiator: Initiator,
    service: Process,
    targets: Vec<JoinHandle<Kept>>,
    recorder: Recorder,
    features: u32,
    /// Reserved, so that no other program takes a port between a target and its replacement.
    ports: [Port; 3],
}

impl Deployment {
    /// Reads blocks individually, from block 0 on, and compares them with `content`.
    fn expect_content(&mut self, content: &[u8]) {
        let initiator = &mut self.initiator;
        let size = initiator.details.block_size as usize;
        initiator
            .memory
            .fill(0, content.len(), 0xee)
            .expect("inside");
        for (block, expected) in content.chunks(size).enumerate() {
            assert_eq!(
                initiator.io(IoMessageType::Read, block as u64, 1),
                ErrorCode::SUCCESS,
                "block {block}"
            );
            assert_eq!(initiator.block(block as u64), expected, "block {block}");
        }
    }

    /// Writes `content` block by block from block 0.
    fn write_content(&mut self, content: &[u8]) {
        let initiator = &mut self.initiator;
        let blocks = content.len() / initiator.details.block_size as usize;
        initiator.memory.write(0, content).expect("inside");
        for block in 0..blocks as u64 {
            assert_eq!(
                initiator.io(IoMessageType::Write, block, 1),
                ErrorCode::SUCCESS,
                "block {block}"
            );
        }
    }

    /// Starts the targets and the service of a plan; if the response to the start request is an error, returns that and the targets' ports.
    fn start(plan: Plan) -> Result<Self, (ErrorResponse, [Port; 3])> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let channel_name = format!("gga-test-{}-{number}", std::process::id());
        let Plan {
            kept,
            args,
            faults,
            superblocks,
            features,
            workers,
        } = plan;
        let block_size = match args.contains("whole-blocks") {
            true => 2 * HALF,
            false => HALF,
        };
        let ports = [(); 3].map(|()| Port::reserve().expect("a free port"));
        let recorder = Recorder::default();
        let targets = kept
            .into_iter()
            .enumerate()
            .map(|(target, kept)| {
                let script = script(block_size, faults[target], superblocks[target], features);
                serve(script, target, kept, &ports, &recorder)
            })
            .collect();
        let command = command(&format!(
            "-d 03:00.0 -r 3b:00.0{cpus} --data-1-storage 127.0.0.1:{} --data-2-storage 127.0.0.1:{} \
             --data-p-storage 127.0.0.1:{} --command-channel-name {channel_name} --output json {args}",
            ports[0].number(),
            ports[1].number(),
            ports[2].number(),
            cpus = cpus(workers),
        ));
        let service = Process::spawn("service", command).expect("started");
        wait_for_log(&service, LogEvent::WaitingForInitiator);
        match Initiator::connect(&channel_name, workers, features) {
            Ok(initiator) => Ok(Self {
                initiator,
                service,
                targets,
                recorder,
                features,
                ports,
            }),
            Err(error) => Err((error, ports)),
        }
    }

    /// Waits for the exit of a detached target and returns its storage.
    fn detached(&mut self, target: usize) -> Kept {
        let nothing = std::thread::spawn(|| Kept::new(Vec::new()));
        let ended = std::mem::replace(&mut self.targets[target], nothing);
        ended.join().expect("a target")
    }

    /// Starts a target with this storage in place of one that has exited.
    fn replace(&mut self, target: usize, kept: Kept, fault: Fault) {
        let script = script(HALF, fault, Some(u32::MAX), self.features);
        self.targets[target] = serve(script, target, kept, &self.ports, &self.recorder);
    }

    /// Waits until the service has logged this event.
    fn wait_for_log(&self, event: LogEvent<'_>) {
        wait_for_log(&self.service, event);
    }

    /// Disconnects the initiator during its session; returns the service's log.
    fn abandon(self) -> String {
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

    /// Ends the session cleanly.
    fn end(self) -> End {
        let Self {
            initiator,
            mut service,
            targets,
            recorder,
            ..
        } = self;
        initiator.leave();
        // No line matches, so this waits for the exit.
        let _ = service.wait_for("ended", TIMEOUT, |_| None::<()>);
        let stderr = service.stderr();
        let stdout = service
            .finish(Instant::now() + TIMEOUT, || false)
            .expect("a clean shutdown");
        let mut kept = targets
            .into_iter()
            .map(|target| target.join().expect("a target"));
        End {
            statistics: serde_json::from_str(&stdout).expect("statistics"),
            stderr,
            kept: std::array::from_fn(|_| kept.next().expect("three targets")),
            recorder,
        }
    }
}

fn script(block_size: usize, fault: Fault, superblocks: Option<u32>, features: u32) -> Script {
    Script {
        device: "03:00.0".to_owned(),
        block_size: block_size as u32,
        content: Vec::new(),
        fault,
        features,
        records: superblocks,
        release: wire::release::Release::default(),
    }
}

/// Serves a session of a target with this storage.
fn serve(
    script: Script,
    target: usize,
    kept: Kept,
    ports: &[Port; 3],
    recorder: &Recorder,
) -> JoinHandle<Kept> {
    let listening = ScriptedTarget::listen(script, ports[target].number());
    let listening = listening.expect("a free port").with_kept(kept);
    let scripted = listening.with_recorder(target, recorder);
    std::thread::spawn(move || scripted.serve_and_keep().expect("a session"))
}

fn wait_for_log(service: &Process, event: LogEvent<'_>) {
    service
        .wait_for_event(event, 1, Instant::now() + TIMEOUT)
        .unwrap_or_else(|failure| panic!("{failure}"));
}

/// Size of a half block.
const HALF: usize = 512;

/// Bytes that compress well, and differ from block to block.
fn text(blocks: u64, block_size: usize) -> Vec<u8> {
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

/// Stored blocks on data_1, data_2 and data_p. The parity is the XOR of the halves, as for a Vandermonde matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stripes(pub [Vec<u8>; 3]);

impl Stripes {
    /// Encodes content of blocks of twice [`HALF`] bytes.
    fn of(content: &[u8]) -> Self {
        let stored = 2 * HALF;
        let mut encoder = Encoder::new(Geometry::compatible(stored as u32));
        let blocks = content
            .chunks(stored)
            .map(|block| encoder.encode(block).expect("it compresses").to_vec());
        Self::of_stored(&blocks.collect::<Vec<_>>())
    }

    /// Stripes with these stored blocks.
    fn of_stored(blocks: &[Vec<u8>]) -> Self {
        let mut halves: [Vec<u8>; 3] = Default::default();
        for block in blocks {
            let (first, second) = block.split_at(HALF);
            halves[0].extend(first);
            halves[1].extend(second);
            halves[2].extend(xor(first, second));
        }
        Self(halves)
    }

    /// The stored block of a stripe.
    fn stored(&self, stripe: usize) -> Vec<u8> {
        let range = stripe * HALF..(stripe + 1) * HALF;
        [&self.0[0][range.clone()], &self.0[1][range]].concat()
    }

    /// Contents of targets with whole blocks, as releases 3.0 and 3.1 place them: each chunk at its offset in the
    /// stored block, parity at both offsets, and other bytes elsewhere.
    fn whole_blocks(&self) -> [Vec<u8>; 3] {
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
}

fn xor(first: &[u8], second: &[u8]) -> Vec<u8> {
    first.iter().zip(second).map(|(a, b)| a ^ b).collect()
}

// Sets: three targets with stored chunks.

/// Size of a set's blocks in bytes: two chunks of [`HALF`] bytes without their records.
const LOGICAL: usize = 2 * (HALF - ChunkRecord::SIZE);

const NAMES: [&str; 3] = ["data_1", "data_2", "data_p"];

/// Storages of this many blocks that were never written.
fn blank(blocks: u64) -> [Kept; 3] {
    [0; 3].map(|_| Kept::new(vec![0; blocks as usize * HALF]))
}

/// Storages of a set that was closed cleanly, with this content.
fn written(content: &[u8]) -> [Kept; 3] {
    overwritten(&blank((content.len() / LOGICAL) as u64), content)
}

/// State of a set after a session that has written this content, and was closed cleanly.
fn overwritten(kept: &[Kept; 3], content: &[u8]) -> [Kept; 3] {
    let mut deployment = Plan::set(kept, "").start();
    deployment.write_content(content);
    deployment.end().kept
}

/// The bytes of a stripe's chunk on one target.
fn chunk(kept: &Kept, stripe: usize) -> &[u8] {
    &kept.content[stripe * HALF..][..HALF]
}

fn chunk_mut(kept: &mut Kept, stripe: usize) -> &mut [u8] {
    &mut kept.content[stripe * HALF..][..HALF]
}

/// Splits a chunk of a target into payload and record.
fn split(target: usize, chunk: &[u8]) -> (&[u8], &[u8]) {
    if target == 0 {
        let (record, payload) = chunk.split_at(ChunkRecord::SIZE);
        (payload, record)
    } else {
        chunk.split_at(chunk.len() - ChunkRecord::SIZE)
    }
}

/// Epoch and number of a chunk, which must be valid, and its payload; (0, 0) for a chunk that was never written.
fn stamped(kept: &Kept, target: usize, stripe: usize) -> ((u64, u64), &[u8]) {
    let chunk = chunk(kept, stripe);
    let (payload, bytes) = split(target, chunk);
    if chunk.iter().all(|&byte| byte == 0) {
        return ((0, 0), payload);
    }
    let record = ChunkRecord::parse(bytes).expect("a chunk");
    let superblock = &kept.superblock;
    assert_eq!(
        (
            record.set_high,
            record.set_low,
            record.stripe,
            record.member,
            record.compressed_size
        ),
        (
            superblock.set_high,
            superblock.set_low,
            stripe as u64,
            target as u32,
            0
        ),
        "the record of {} {stripe}",
        NAMES[target]
    );
    let before = &bytes[..ChunkRecord::SIZE - size_of::<u32>()];
    assert_eq!(record.checksum, crc32c(payload, before));
    ((record.epoch, record.number), payload)
}

/// Checks that these targets have valid chunks of all blocks, with equal stamps per block, and this content. For a
/// Vandermonde matrix.
fn expect_chunks(kept: &[Kept; 3], targets: &[usize], content: &[u8]) {
    for (stripe, block) in content.chunks(LOGICAL).enumerate() {
        let (first, second) = block.split_at(LOGICAL / 2);
        let payloads = [first.to_vec(), second.to_vec(), xor(first, second)];
        let stamp = stamped(&kept[targets[0]], targets[0], stripe).0;
        for &target in targets {
            let found = stamped(&kept[target], target, stripe);
            assert_eq!(
                found,
                (stamp, &payloads[target][..]),
                "block {stripe} on {}",
                NAMES[target]
            );
        }
    }
}

/// Maximum number of I/Os in flight.
pub(crate) const TRANSACTIONS: u32 = 8;

const RECEIVED: u64 = 1 << 32;

/// One message in each direction, over one of the fast paths.
struct Lane {
    receive: Task,
    send: Task,
    incoming: Buf,
    outgoing: Buf,
}

impl Lane {
    /// Returns the answer that has arrived, and makes the lane wait for the next one.
    fn take_answer(&self) -> Repr {
        let mut bytes = [0; io_message::SIZE];
        let length = self.incoming.read_data(&mut bytes).expect("readable");
        assert_eq!(length, io_message::SIZE);
        let message = IoMessage::new_unchecked_len(&bytes);
        let answer = Repr::parse(&message).expect("a result");
        self.incoming.reset_data().expect("reset");
        self.receive.submit().expect("posted");
        answer
    }
}

/// Fields are in the order in which they are dropped.
struct Initiator {
    lanes: Vec<Lane>,
    fast_paths: Vec<(Consumer, Producer)>,
    pe: Pe,
    /// Kept, because its export gives the service access to the memory.
    _mmap: Mmap,
    messages: Mmap,
    /// The memory that the service reads and writes.
    memory: Arc<MemoryRegion>,
    details: StorageDetails,
    channel: ComchClientChannel,
    waiter: Waiter,
    service_consumers: Vec<u32>,
    next_id: u32,
}

/// Size of the memory in bytes. The tail is not a whole page, so softdoca does not share it but copies it on request.
pub(crate) const MEMORY: usize = TAIL as usize + 1024;

/// Offset of the last, partial page.
const TAIL: u64 = 300 * 1024;
const PAGE: usize = 4096;

impl Initiator {
    /// Starts a session of this many workers; returns the response to the start request if that is an error.
    pub(crate) fn connect(
        channel_name: &str,
        workers: u32,
        features: u32,
    ) -> Result<Self, ErrorResponse> {
        let host = Device::open("3b:00.0").expect("host");
        let memory = MemoryRegion::new(MEMORY).expect("memory");
        let mmap = Mmap::register(&host, memory.clone(), Access::PCI_READ_WRITE).expect("map");
        let mut initiator = Self {
            lanes: Vec::new(),
            fast_paths: Vec::new(),
            pe: Pe::new().expect("progress engine"),
            memory,
            details: StorageDetails {
                total_size: 0,
                block_size: 0,
            },
            channel: ComchClientChannel::connect(&host, channel_name, TIMEOUT).expect("channel"),
            waiter: Waiter::new(Shutdown::new().expect("pipe")),
            service_consumers: Vec::new(),
            next_id: 0,
            _mmap: mmap.clone(),
            messages: messages(&host),
        };
        while initiator.channel.poll().expect("channel") != Some(ChannelEvent::Connected) {
            initiator.waiter.wait(&[&initiator.channel], None);
        }
        let query = match features {
            0 => Payload::QueryStorageRequest,
            features => Payload::AnnounceStorageRequest(FeatureQuery { features }),
        };
        initiator.details = match initiator.request(query) {
            Payload::QueryStorageResponse(details) => details,
            Payload::AnnouncedStorageResponse(announced) => StorageDetails {
                total_size: announced.total_size,
                block_size: announced.block_size,
            },
            answer => panic!("got {answer:?}"),
        };
        let init = InitStorage {
            transaction_count: TRANSACTIONS,
            core_count: workers,
            mmap_export_blob: Bytes::from(mmap.export_pci(&host).expect("export")),
        };
        let answer = initiator.request(Payload::InitStorageRequest(init));
        assert_eq!(answer, Payload::InitStorageResponse);
        (0..workers).for_each(|_| initiator.open_fast_path());
        match initiator.request(Payload::StartStorageRequest) {
            Payload::StartStorageResponse => {}
            Payload::ErrorResponse(error) => return Err(error),
            answer => panic!("got {answer:?}"),
        }
        initiator.make_lanes();
        Ok(initiator)
    }

    fn connection(&self) -> Connection {
        self.channel.connection().expect("connected")
    }

    fn open_fast_path(&mut self) {
        let connection = self.connection();
        let consumer = Consumer::start(&self.pe, &connection, &self.messages, TRANSACTIONS);
        let producer = Producer::start(&self.pe, &connection, TRANSACTIONS);
        let (consumer, producer) = (consumer.expect("consumer"), producer.expect("producer"));
        // The connection moves on while the channel is polled, which start does.
        self.fast_paths.push((consumer, producer));
    }

    /// Adjacent lanes belong to different workers.
    fn make_lanes(&mut self) {
        let running = || {
            let mut paths = self.fast_paths.iter();
            paths.all(|(consumer, producer)| {
                [consumer.state(), producer.state()] == [CtxState::Running; 2]
            })
        };
        assert!(self.pe.progress_until(TIMEOUT, running), "no fast path");
        let inventory = BufInventory::new(2 * TRANSACTIONS as usize).expect("inventory");
        let buf = |lane: usize, half: usize| {
            let offset = (2 * lane + half) * io_message::SIZE;
            inventory
                .buf(&self.messages, offset as u64, io_message::SIZE)
                .expect("buf")
        };
        for lane in 0..TRANSACTIONS as usize {
            let path = lane % self.fast_paths.len();
            let (consumer, producer) = &self.fast_paths[path];
            let (incoming, outgoing) = (buf(lane, 0), buf(lane, 1));
            let receive = consumer.post_recv_task(&incoming, RECEIVED | lane as u64);
            let send = producer.send_task(&outgoing, self.service_consumers[path], lane as u64);
            let lane = Lane {
                receive: receive.expect("task"),
                send: send.expect("task"),
                incoming,
                outgoing,
            };
            lane.receive.submit().expect("posted");
            self.lanes.push(lane);
        }
    }

    fn request(&mut self, payload: Payload) -> Payload {
        self.next_id += 1;
        let request = Message {
            message_id: self.next_id,
            correlation_id: 66,
            payload,
        };
        self.channel.send(&request).expect("sent");
        let deadline = Instant::now() + TIMEOUT;
        loop {
            // The fast path starts with the help of this.
            while self.pe.poll().is_some() {}
            match self.channel.poll().expect("a working channel") {
                Some(ChannelEvent::Message(answer)) => {
                    assert_eq!(answer.message_id, self.next_id);
                    return answer.payload;
                }
                Some(ChannelEvent::ConsumerAdded(id)) => self.service_consumers.push(id),
                Some(ChannelEvent::Closed) => panic!("the service is gone"),
                Some(_) => {}
                None => {
                    assert!(Instant::now() < deadline, "no answer");
                    let deadline = Instant::now() + Duration::from_millis(5);
                    self.waiter.wait(&[&self.channel], Some(deadline));
                }
            }
        }
    }

    /// Sends these messages together, at most as many as there are lanes, and returns the answers in the order of their
    /// user data.
    fn exchange(&mut self, messages: &[[u8; io_message::SIZE]]) -> Vec<Repr> {
        let whole: Vec<_> = messages
            .iter()
            .map(|message| (message, io_message::SIZE))
            .collect();
        self.exchange_lengths(&whole)
    }

    /// As [`exchange`](Self::exchange), with this many bytes of each message.
    fn exchange_lengths(&mut self, messages: &[(&[u8; io_message::SIZE], usize)]) -> Vec<Repr> {
        let count = messages.len();
        for (lane, &(message, length)) in self.lanes.iter().zip(messages) {
            lane.outgoing
                .write_data(&message[..length])
                .expect("written");
        }
        let deadline = Instant::now() + TIMEOUT;
        let mut unsent: Vec<usize> = (0..count).rev().collect();
        let (mut sent, mut answers) = (0, Vec::new());
        while sent < count || answers.len() < count {
            assert!(
                Instant::now() < deadline,
                "{} of {count} answers",
                answers.len()
            );
            while let Some(&lane) = unsent.last() {
                match self.lanes[lane].send.submit() {
                    Ok(()) => unsent.pop(),
                    Err(ErrorCode::AGAIN) => break,
                    Err(code) => panic!("{code:?}"),
                };
            }
            let Some(Event::Task(Completion { token, result })) = self.pe.poll() else {
                continue;
            };
            assert_eq!(result, Ok(()));
            if token & RECEIVED == 0 {
                sent += 1;
                continue;
            }
            let lane = &self.lanes[(token & !RECEIVED) as usize];
            answers.push(lane.take_answer());
        }
        answers.sort_by_key(|answer| answer.user_data);
        for answer in &answers {
            assert_eq!(answer.message_type, IoMessageType::Result);
        }
        answers
    }

    /// Submits an I/O of one block without waiting for its answer. No other I/O is possible before [`answer`](Self::answer) has returned it.
    fn begin(&mut self, message_type: IoMessageType, block: u64) {
        let size = self.details.block_size;
        let offset = block * u64::from(size);
        let request = Repr {
            message_type,
            user_data: 0,
            result: 0,
            size,
            requester_offset: offset,
            storage_offset: offset,
        };
        let lane = &self.lanes[0];
        lane.outgoing
            .write_data(&request.to_bytes())
            .expect("written");
        lane.send.submit().expect("room for a message");
    }

    /// Returns `true` if the answer to the I/O that was begun arrives within this time.
    fn is_answered(&mut self, within: Duration) -> bool {
        self.result(within).is_some()
    }

    /// Waits for the answer to the I/O that was begun.
    fn answer(&mut self) -> ErrorCode {
        self.result(TIMEOUT).expect("an answer")
    }

    fn result(&mut self, within: Duration) -> Option<ErrorCode> {
        let deadline = Instant::now() + within;
        while Instant::now() < deadline {
            match self.pe.poll() {
                Some(Event::Task(Completion { token, .. })) if token & RECEIVED != 0 => {
                    let lane = &self.lanes[(token & !RECEIVED) as usize];
                    return Some(ErrorCode(lane.take_answer().result));
                }
                Some(_) => {}
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        None
    }

    /// One I/O, with equal offsets in memory and storage.
    fn io(&mut self, message_type: IoMessageType, block: u64, blocks: u32) -> ErrorCode {
        let size = self.details.block_size * blocks;
        let offset = block * u64::from(self.details.block_size);
        self.io_at(message_type, size, offset, offset)
    }

    fn io_at(
        &mut self,
        message_type: IoMessageType,
        size: u32,
        requester_offset: u64,
        storage_offset: u64,
    ) -> ErrorCode {
        let request = Repr {
            message_type,
            user_data: 0x0102_0304_0506_0708,
            result: 0,
            size,
            requester_offset,
            storage_offset,
        };
        let answers = self.exchange(&[request.to_bytes()]);
        let expected = Repr {
            message_type: IoMessageType::Result,
            result: answers[0].result,
            ..request
        };
        assert_eq!(answers[0], expected, "an answer repeats its request");
        ErrorCode(answers[0].result)
    }

    fn flush(&mut self) -> ErrorCode {
        self.io_at(IoMessageType::Flush, 0, 0, 0)
    }

    /// Removes access to the last page: the bytes from [`TAIL`] on can no longer be copied.
    fn withdraw_memory(&mut self) {
        let tail = self.memory.as_ptr().wrapping_add(TAIL as usize);
        // SAFETY: a page of the region, of which this test has no reference, and which it does not use any more.
        unsafe { mprotect(tail.cast(), PAGE, MprotectFlags::empty()) }.expect("a page");
    }

    /// The memory of this block.
    fn block(&self, block: u64) -> Vec<u8> {
        let size = self.details.block_size as usize;
        self.bytes(block as usize * size, size)
    }

    fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory.read(offset, &mut bytes).expect("inside");
        bytes
    }

    /// Stops and shuts down.
    pub(crate) fn leave(mut self) {
        let answer = self.request(Payload::StopStorageRequest);
        assert_eq!(answer, Payload::StopStorageResponse);
        self.lanes.clear();
        for (consumer, producer) in self.fast_paths.drain(..) {
            consumer.stop().expect("stopped");
            producer.stop().expect("stopped");
        }
        let answer = self.request(Payload::ShutdownRequest);
        assert_eq!(answer, Payload::ShutdownResponse);
    }
}

fn messages(host: &Device) -> Mmap {
    let length = 2 * TRANSACTIONS as usize * io_message::SIZE;
    let region = MemoryRegion::new(length).expect("memory");
    let access = Access::LOCAL_READ_WRITE | Access::PCI_READ_WRITE;
    Mmap::register(host, region, access).expect("map")
}
