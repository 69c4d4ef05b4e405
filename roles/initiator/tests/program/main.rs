//! The whole program as a process, against a scripted storage service in the test's process.
//!
//! The service handles control messages and I/O messages as a real one does, but transfers no data: data is tested
//! with the real service and faulty targets elsewhere.

mod runs;

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use control::{ChannelEvent, ComchServerChannel, ControlChannel as _};
use doca::{
    Access, Buf, BufInventory, Consumer, CtxState, Device, ErrorCode, Event, MemoryRegion, Mmap,
    Pe, Producer, Task,
};
use rustix::process::{Pid, Signal, kill_process};
use wire::control::{ErrorResponse, Message, MessageType, Payload, StorageDetails};
use wire::io_message::{IoMessage, Repr, SIZE};
use wire::release::{IoLayout as _, Release, Release3_0, Release3_1, Release3_2};

// The initiator as a process.

/// Maximum time to wait for a process or a peer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The text of the scripted service's refusals.
const REFUSAL: &str = "unwilling";

struct Initiator {
    child: Child,
    start: Instant,
}

/// Exit status and output of an initiator.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
    after: Duration,
}

/// A CPU that this process may use, as a flag's value.
fn usable_cpu() -> String {
    let usable = |index: &String| role_common::flags::cpu(index).is_ok();
    (0..4096_u32)
        .map(|index| index.to_string())
        .find(usable)
        .expect("a CPU")
}

impl Initiator {
    /// Starts it on the channel, with one worker and a read test of 100 operations unless `args` override that.
    fn start(channel: &str, args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_doca_storage_initiator_comch"));
        command.args(["-d", "3b:00.0", "--command-channel-name", channel]);
        let cpu = usable_cpu();
        for default in [
            ["--cpu", &cpu],
            ["--execution-strategy", "read_throughput_test"],
            ["--run-limit-operation-count", "100"],
        ] {
            if !args.contains(&default[0]) {
                command.args(default);
            }
        }
        let command = command
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Self {
            child: command.spawn().expect("the initiator starts"),
            start: Instant::now(),
        }
    }

    fn interrupt(&self) {
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(Pid::from_raw)
            .expect("a process id");
        kill_process(pid, Signal::INT).expect("the process is there");
    }

    /// Waits for the process to exit.
    fn end(mut self) -> Ended {
        while self.child.try_wait().expect("a child").is_none() {
            if self.start.elapsed() > TIMEOUT {
                self.child.kill().expect("a child");
                let output = self.child.wait_with_output().expect("a child");
                panic!(
                    "the initiator hangs:\n{}",
                    String::from_utf8_lossy(&output.stderr)
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let after = self.start.elapsed();
        let output = self.child.wait_with_output().expect("a child");
        Ended {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            after,
        }
    }
}

impl Ended {
    /// Fails the test, with the initiator's output, unless it succeeded.
    fn passed(self) -> Self {
        assert_eq!(
            self.code,
            Some(0),
            "stdout:\n{}\nstderr:\n{}",
            self.stdout,
            self.stderr
        );
        self
    }

    /// Fails the test unless the initiator exited with 1 and printed all of `parts` on standard error.
    fn failed_with(self, parts: &[&str]) -> Self {
        self.exited_with(1, parts)
    }

    /// As [`failed_with`](Self::failed_with), with 2 for wrong usage.
    fn refused_with(self, parts: &[&str]) -> Self {
        self.exited_with(2, parts)
    }

    /// Keys and values of the statistics.
    fn statistics(&self) -> impl Iterator<Item = (&str, &str)> {
        let lines = self.stdout.lines();
        lines.filter_map(|line| line.strip_prefix("| ")?.split_once(": "))
    }

    fn statistic(&self, key: &str) -> Option<&str> {
        let mut pairs = self.statistics();
        pairs.find_map(|(name, value)| (name == key).then_some(value))
    }

    fn exited_with(self, code: i32, parts: &[&str]) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "stdout:\n{}\nstderr:\n{}",
            self.stdout,
            self.stderr
        );
        for part in parts {
            assert!(
                self.stderr.contains(part),
                "{part} is missing in\n{}",
                self.stderr
            );
        }
        self
    }
}

// The scripted service.

/// Reaction of the service to an I/O.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Io {
    Answer,
    /// Responds with this code, and to other I/Os with success.
    Fail(ErrorCode),
    /// Responds twice.
    Twice,
    /// Responds with the offset of another I/O.
    WrongOffset,
    /// Answers neither this I/O nor later ones.
    Ignore,
    /// Disconnects, with all contexts.
    Leave,
}

/// Behaviour of the service.
#[derive(Clone, Debug)]
struct Script {
    details: StorageDetails,
    /// Reaction to the I/O with this number and, for permanent reactions, to later ones.
    io: (u32, Io),
    refuse: Option<MessageType>,
    /// Request to which the service does not respond.
    ignore: Option<MessageType>,
    release: Release,
}

impl Default for Script {
    fn default() -> Self {
        let details = StorageDetails {
            total_size: 64 * 4096,
            block_size: 4096,
        };
        Self {
            details,
            io: (0, Io::Answer),
            refuse: None,
            ignore: None,
            release: Release::default(),
        }
    }
}

/// Observations of the service.
#[derive(Debug, Default)]
struct Record {
    requests: Vec<Message>,
    /// Number of the initiator's consumers at each request.
    consumers: Vec<usize>,
    /// All I/O requests, with the index of the worker that received each.
    ios: Vec<(usize, Repr)>,
    /// The bytes of the messages.
    messages: Vec<[u8; SIZE]>,
    /// Address of the initiator's memory.
    memory_address: u64,
    /// `true` once the initiator has disconnected.
    left: bool,
}

/// A service on a separate thread, for one session.
struct Service {
    channel: String,
    thread: Option<JoinHandle<Record>>,
    ios: Arc<AtomicU32>,
    end: Arc<AtomicBool>,
    started: Mutex<Receiver<()>>,
}

impl Service {
    /// Starts a service with a unique name.
    fn start(script: Script) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let channel_name = format!(
            "initiator-test-{}-{}",
            std::process::id(),
            NUMBER.fetch_add(1, Ordering::Relaxed)
        );
        let (ios, end) = (
            Arc::new(AtomicU32::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (ready, is_ready) = channel();
        let (running, started) = channel();
        let thread = {
            let (name, ios, end) = (channel_name.clone(), Arc::clone(&ios), Arc::clone(&end));
            std::thread::spawn(move || serve(&name, script, &ready, running, ios, &end))
        };
        is_ready.recv_timeout(TIMEOUT).expect("the service starts");
        Self {
            channel: channel_name,
            thread: Some(thread),
            ios,
            end,
            started: Mutex::new(started),
        }
    }

    /// Waits until the data path has started and `count` I/Os have arrived.
    fn wait_for_ios(&self, count: u32) {
        self.started
            .lock()
            .expect("not poisoned")
            .recv_timeout(TIMEOUT)
            .expect("the data path starts");
        let begin = Instant::now();
        while self.ios.load(Ordering::Relaxed) < count {
            assert!(begin.elapsed() < TIMEOUT, "no I/O came");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Stops the service and returns its observations.
    fn record(mut self) -> Record {
        self.end.store(true, Ordering::Relaxed);
        self.thread
            .take()
            .expect("only taken here")
            .join()
            .expect("the service does not panic")
    }
}

/// A worker of the service: receives requests and sends responses.
struct Worker {
    // Dropped in this order.
    receives: Vec<(Task, Buf)>,
    sends: Vec<(Task, Buf)>,
    free_sends: Vec<usize>,
    consumer: Consumer,
    producer: Producer,
    inventory: BufInventory,
    mmap: Mmap,
    pe: Pe,
    tasks: u32,
    release: Release,
    /// Address of the initiator's memory.
    memory_address: u64,
}

const SEND: u64 = 1 << 32;

impl Worker {
    fn new(
        device: &Device,
        connection: &doca::Connection,
        transactions: u32,
        (release, memory_address): (Release, u64),
    ) -> Self {
        let tasks = transactions * 2;
        let region = MemoryRegion::new(tasks as usize * 2 * SIZE).expect("memory");
        let mmap = Mmap::register(
            device,
            region,
            Access::LOCAL_READ_WRITE | Access::PCI_READ_WRITE,
        )
        .expect("a map");
        let pe = Pe::new().expect("a progress engine");
        let producer = Producer::start(&pe, connection, tasks).expect("a producer");
        let consumer = Consumer::start(&pe, connection, &mmap, tasks).expect("a consumer");
        let inventory = BufInventory::new(tasks as usize * 2).expect("bufs");
        let (receives, sends, free_sends) = (Vec::new(), Vec::new(), Vec::new());
        let worker = Self {
            receives,
            sends,
            free_sends,
            consumer,
            producer,
            inventory,
            mmap,
            pe,
            tasks,
            release,
            memory_address,
        };
        let running = worker.pe.progress_until(TIMEOUT, || {
            worker.consumer.state() == CtxState::Running
                && worker.producer.state() == CtxState::Running
        });
        assert!(running, "the contexts of the service run");
        worker
    }

    fn prepare(&mut self, consumer: u32) {
        for index in 0..u64::from(self.tasks) {
            let buf = self
                .inventory
                .buf(&self.mmap, index * SIZE as u64, SIZE)
                .expect("a buf");
            let task = self.consumer.post_recv_task(&buf, index).expect("a task");
            task.submit().expect("posted");
            self.receives.push((task, buf));
            let buf = self
                .inventory
                .buf(
                    &self.mmap,
                    (u64::from(self.tasks) + index) * SIZE as u64,
                    SIZE,
                )
                .expect("a buf");
            let task = self
                .producer
                .send_task(&buf, consumer, SEND | index)
                .expect("a task");
            self.sends.push((task, buf));
            self.free_sends.push(index as usize);
        }
    }

    /// Next request and its bytes; `None` if there is none.
    fn poll(&mut self) -> Option<(Repr, [u8; SIZE])> {
        loop {
            let Event::Task(completion) = self.pe.poll()? else {
                continue;
            };
            if completion.token & SEND != 0 {
                self.free_sends.push((completion.token & !SEND) as usize);
            } else if completion.result.is_ok() {
                let (task, buf) = &self.receives[completion.token as usize];
                let mut bytes = [0; SIZE];
                assert_eq!(buf.read_data(&mut bytes).expect("data"), SIZE);
                buf.reset_data().expect("not in flight");
                task.submit().expect("posted again");
                return Some((self.parse(&bytes), bytes));
            }
        }
    }

    fn parse(&self, bytes: &[u8; SIZE]) -> Repr {
        let message_type = IoMessage::new_unchecked_len(bytes).message_type();
        let requester_address = self.memory_address;
        let values = match self.release {
            Release::V3_0 => Release3_0 { requester_address }.answer_to(bytes),
            Release::V3_1 => Release3_1.answer_to(bytes),
            Release::V3_2 => Release3_2.answer_to(bytes),
        };
        Repr {
            message_type: message_type.expect("a valid request"),
            ..values
        }
    }

    /// Bytes of a response. In 3.0 and 3.1, the transaction is repeated in the correlation id, and not in the user
    /// data.
    fn bytes_of(&self, answer: &Repr) -> [u8; SIZE] {
        let id = u32::try_from(answer.user_data).expect("the number of a transaction");
        let anonymous = Repr {
            user_data: u64::MAX,
            ..*answer
        };
        let requester_address = self.memory_address;
        match self.release {
            Release::V3_0 => Release3_0 { requester_address }.to_bytes(&anonymous, id),
            Release::V3_1 => Release3_1.to_bytes(&anonymous, id),
            Release::V3_2 => answer.to_bytes(),
        }
    }

    fn answer(&mut self, answer: Repr) {
        let bytes = self.bytes_of(&answer);
        let index = self
            .free_sends
            .pop()
            .expect("twice as many sends as transactions");
        let (task, buf) = &self.sends[index];
        buf.write_data(&bytes).expect("not in flight");
        while let Err(code) = task.submit() {
            assert_eq!(code, ErrorCode::AGAIN);
            std::thread::yield_now();
        }
    }
}

fn serve(
    name: &str,
    script: Script,
    ready: &Sender<()>,
    running: Sender<()>,
    ios: Arc<AtomicU32>,
    end: &AtomicBool,
) -> Record {
    let device = Device::open("03:00.0").expect("the DPU's device");
    let representor = device
        .open_representor("3b:00.0")
        .expect("the host's representor");
    let channel =
        ComchServerChannel::start(&device, &representor, name, |_| true).expect("a server");
    ready.send(()).expect("the test waits");
    let mut server = Server {
        workers: Vec::new(),
        channel,
        device,
        script,
        consumers: Vec::new(),
        record: Record::default(),
        running,
        ios,
        is_over: false,
    };
    let begin = Instant::now();
    while !server.is_over && !end.load(Ordering::Relaxed) {
        assert!(begin.elapsed() < TIMEOUT, "the session does not end");
        let busy = server.control() | server.data();
        if !busy {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    // Remaining messages of the initiator, until it disconnects.
    let grace = Instant::now() + Duration::from_secs(5);
    while !server.record.left && Instant::now() < grace && !matches!(server.script.io.1, Io::Leave)
    {
        server.control();
        std::thread::sleep(Duration::from_millis(1));
    }
    server.record
}

struct Server {
    // Dropped before the channel.
    workers: Vec<Worker>,
    channel: ComchServerChannel,
    device: Device,
    script: Script,
    consumers: Vec<u32>,
    record: Record,
    running: Sender<()>,
    ios: Arc<AtomicU32>,
    is_over: bool,
}

impl Server {
    fn control(&mut self) -> bool {
        if self.record.left {
            return false;
        }
        match self.channel.poll().expect("a channel in order") {
            None => return false,
            Some(ChannelEvent::Connected) => {}
            Some(ChannelEvent::ConsumerAdded(id)) => self.consumers.push(id),
            Some(ChannelEvent::ConsumerExpired(id)) => self.consumers.retain(|known| *known != id),
            Some(ChannelEvent::Message(message)) => self.message(message),
            Some(ChannelEvent::Closed) => {
                self.record.left = true;
                self.is_over = true;
            }
        }
        true
    }

    fn message(&mut self, message: Message) {
        self.record.requests.push(message.clone());
        self.record.consumers.push(self.consumers.len());
        let kind = message.payload.message_type();
        if self.script.ignore == Some(kind) {
            return;
        }
        let answer = if self.script.refuse == Some(kind) {
            Payload::ErrorResponse(ErrorResponse {
                error_code: ErrorCode::NOT_PERMITTED.0,
                message: REFUSAL.into(),
            })
        } else {
            self.obey(&message.payload)
        };
        self.channel.send(&message.response(answer)).expect("sent");
    }

    fn obey(&mut self, request: &Payload) -> Payload {
        match request {
            Payload::QueryStorageRequest => {
                Payload::QueryStorageResponse(self.script.details.clone())
            }
            Payload::InitStorageRequest(_) | Payload::BatchedInitStorageRequest(_) => {
                let (init, _) = request.as_init_storage().expect("an init request");
                let memory = Mmap::import(&self.device, &init.mmap_export_blob);
                self.record.memory_address = memory.expect("a memory map").base_address();
                let messaging = (self.script.release, self.record.memory_address);
                let connection = self.channel.connection().expect("connected");
                for _ in 0..init.core_count {
                    self.workers.push(Worker::new(
                        &self.device,
                        &connection,
                        init.transaction_count,
                        messaging,
                    ));
                }
                Payload::InitStorageResponse
            }
            Payload::StartStorageRequest => {
                assert_eq!(
                    self.consumers.len(),
                    self.workers.len(),
                    "all contexts of the initiator run before it starts"
                );
                for (worker, consumer) in self.workers.iter_mut().zip(&self.consumers) {
                    worker.prepare(*consumer);
                }
                let _ = self.running.send(());
                Payload::StartStorageResponse
            }
            Payload::StopStorageRequest => {
                self.workers.clear();
                Payload::StopStorageResponse
            }
            Payload::ShutdownRequest => Payload::ShutdownResponse,
            other => panic!("no initiator sends {}", other.message_type()),
        }
    }

    fn data(&mut self) -> bool {
        let mut busy = false;
        for index in 0..self.workers.len() {
            while let Some((request, bytes)) = self.workers.get_mut(index).and_then(Worker::poll) {
                busy = true;
                self.record.messages.push(bytes);
                let number = self.ios.fetch_add(1, Ordering::Relaxed);
                self.record.ios.push((index, request));
                self.io(index, number, request);
                if self.is_over {
                    return true;
                }
            }
        }
        busy
    }

    fn io(&mut self, index: usize, number: u32, request: Repr) {
        let (at, what) = self.script.io;
        let worker = &mut self.workers[index];
        let good = request.answer(ErrorCode::SUCCESS.0);
        match what {
            _ if number < at => worker.answer(good),
            Io::Ignore => {}
            _ if number > at => worker.answer(good),
            Io::Answer => worker.answer(good),
            Io::Fail(code) => worker.answer(request.answer(code.0)),
            Io::Twice => {
                worker.answer(good);
                worker.answer(good);
            }
            Io::WrongOffset => worker.answer(Repr {
                storage_offset: good.storage_offset + 4096,
                ..good
            }),
            Io::Leave => {
                self.workers.clear();
                self.is_over = true;
            }
        }
    }
}
