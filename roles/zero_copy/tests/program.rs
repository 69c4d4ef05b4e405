//! The service as a process, with I/O and without: each test is both its initiator and its target.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use control::shutdown::Shutdown;
use control::{ChannelEvent, ComchClientChannel, ControlChannel, TcpServerChannel, Waiter};
use deployment::log::{LogEvent, error_name, events};
use deployment::process::{Exit, Process, Signal};
use doca::{
    Access, Buf, BufInventory, Completion, Consumer, CtxState, Device, ErrorCode, Event,
    MemoryRegion, Mmap, Pe, Producer, Rdma, RdmaConnection, Task,
};
use wire::control::{
    ErrorResponse, InitStorage, Message, Payload, RdmaConnectionDetails, RdmaConnectionRole,
    StorageDetails,
};
use wire::io_message::{self, IoMessage, IoMessageType, Repr};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Names of the peers in errors.
const TARGET: &str = "storage target";
const INITIATOR: &str = "initiator";

/// A service process that is terminated when the test ends.
struct Service {
    process: Process,
    channel_name: String,
}

fn command(args: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_doca_storage_comch_to_rdma_zero_copy"));
    command.args(args.split_whitespace());
    command
}

/// A CPU that this process may use.
fn cpu() -> usize {
    deployment::allowed_cpus().expect("affinity")[0]
}

/// Starts a service for the target at this port, with one CPU and the given additional flags.
fn start(port: u16, args: &str) -> Service {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let channel_name = format!("zero-copy-test-{}-{number}", std::process::id());
    let args = format!(
        "-d 03:00.0 -r 3b:00.0 --storage-server 127.0.0.1:{port} --cpu {} --command-channel-name {channel_name} {args}",
        cpu()
    );
    Service {
        process: Process::spawn("service", command(&args)).expect("started"),
        channel_name,
    }
}

impl Service {
    /// Waits for the process to exit within the time limit.
    fn wait(self) -> Exit {
        let exit = self.process.expect_exit(TIMEOUT, TIMEOUT);
        exit.unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Waits for the service to fail with this code, and with this value, such as a name, in its last error.
    fn fails_with(self, code: ErrorCode, value: &str) {
        let exit = self.wait();
        assert_eq!(exit.code(), Some(1), "{exit:?}");
        assert_eq!(error_name(&exit.stderr), Some(&*code.name()), "{exit:?}");
        let (_, error) = exit.stderr.rsplit_once("error: ").expect("an error");
        assert!(error.contains(value), "expected {value:?} in {exit:?}");
    }
}

/// Next event of a channel, which must arrive within the time limit.
fn next(channel: &mut dyn ControlChannel) -> ChannelEvent {
    let mut waiter = Waiter::new(Shutdown::new().expect("pipe"));
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(event) = channel.poll().expect("a working channel") {
            return event;
        }
        assert!(
            Instant::now() < deadline,
            "nothing from the {}",
            channel.peer()
        );
        waiter.wait(&[channel], Some(deadline));
    }
}

/// Next message of a channel, on which no other event is expected.
fn message(channel: &mut dyn ControlChannel) -> Message {
    match next(channel) {
        ChannelEvent::Message(message) => message,
        // For a target, connecting includes its first request.
        ChannelEvent::Connected => message(channel),
        event => panic!(
            "expected a message of the {}, got {event:?}",
            channel.peer()
        ),
    }
}

fn error(payload: Payload) -> ErrorResponse {
    match payload {
        Payload::ErrorResponse(error) => error,
        other => panic!("expected an error, got {other:?}"),
    }
}

/// A service with both peers connected.
struct World {
    initiator: ComchClientChannel,
    target: TcpServerChannel,
    service: Service,
    /// Events of the service's consumers, in the order seen by the initiator.
    consumers: Vec<ChannelEvent>,
    next_id: u32,
}

impl World {
    fn new(args: &str) -> Self {
        let target = TcpServerChannel::listen(0, |_| true).expect("a free port");
        let service = start(target.port().expect("port"), args);
        let initiator = connect(&service);
        Self {
            initiator,
            target,
            service,
            consumers: Vec::new(),
            next_id: 300,
        }
    }

    fn send(&mut self, payload: Payload) {
        self.next_id += 1;
        let request = Message {
            message_id: self.next_id,
            correlation_id: 66,
            payload,
        };
        self.initiator.send(&request).expect("sent");
    }

    /// Response to the last request.
    fn answer(&mut self) -> Payload {
        let answer = loop {
            match next(&mut self.initiator) {
                ChannelEvent::Message(message) => break message,
                event @ (ChannelEvent::ConsumerAdded(_) | ChannelEvent::ConsumerExpired(_)) => {
                    self.consumers.push(event);
                }
                event => panic!("expected an answer, got {event:?}"),
            }
        };
        assert_eq!(
            (answer.message_id, answer.correlation_id),
            (self.next_id, 66)
        );
        answer.payload
    }

    /// Takes the next request at the target, responds, and returns the request's payload.
    fn target_answers(&mut self, answer: impl FnOnce(&Payload) -> Payload) -> Payload {
        let request = message(&mut self.target);
        assert_eq!(
            request.correlation_id, 66,
            "the initiator's correlation id is kept"
        );
        let payload = answer(&request.payload);
        self.target.send(&request.response(payload)).expect("sent");
        request.payload
    }
}

/// Connects an initiator to a service.
fn connect(service: &Service) -> ComchClientChannel {
    let device = Device::open("3b:00.0").expect("device");
    let mut initiator = ComchClientChannel::connect(&device, &service.channel_name, TIMEOUT)
        .expect("progress engine");
    assert_eq!(next(&mut initiator), ChannelEvent::Connected);
    initiator
}

const TRANSACTIONS: u32 = 4;

/// A message buffer with a receive task and a send task.
struct Port {
    receive: Task,
    send: Task,
    incoming: Buf,
    outgoing: Buf,
}

const RECEIVED: u64 = 1;
const SENT: u64 = 2;

impl Port {
    /// Posts the receive.
    fn listen(&self) {
        self.incoming.reset_data().expect("reset");
        self.receive.submit().expect("posted");
    }

    fn message(&self) -> Vec<u8> {
        let mut bytes = [0; io_message::SIZE];
        let length = self.incoming.read_data(&mut bytes).expect("readable");
        bytes[..length].to_vec()
    }
}

/// One side of a deployment: the initiator's fast path, or the target's RDMA contexts.
struct Side {
    port: Port,
    arrived: VecDeque<Vec<u8>>,
    pe: Pe,
}

impl Side {
    fn send(&mut self, message: &[u8]) {
        self.port.outgoing.write_data(message).expect("written");
        let deadline = Instant::now() + TIMEOUT;
        while let Err(code) = self.port.send.submit() {
            assert_eq!(code, ErrorCode::AGAIN);
            assert!(Instant::now() < deadline, "no buffer is posted");
            self.poll();
        }
        while self.port.send.is_in_flight() {
            assert!(Instant::now() < deadline, "the message is not sent");
            self.poll();
        }
    }

    fn receive(&mut self) -> Vec<u8> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(message) = self.arrived.pop_front() {
                return message;
            }
            assert!(Instant::now() < deadline, "no message");
            self.poll();
        }
    }

    fn poll(&mut self) {
        match self.pe.poll() {
            Some(Event::Task(Completion {
                token: RECEIVED,
                result: Ok(()),
            })) => {
                self.arrived.push_back(self.port.message());
                self.port.listen();
            }
            Some(Event::Task(Completion { token, result })) => {
                assert_eq!((token, result), (SENT, Ok(())))
            }
            Some(_) | None => {}
        }
    }
}

/// Fields are in drop order.
struct Deployment {
    initiator: Side,
    target: Side,
    _fast_path: (Consumer, Producer),
    _rdma: Vec<(Rdma, RdmaConnection)>,
    _memory: Mmap,
    world: World,
}

fn messages(device: &Device) -> (Buf, Buf, Mmap) {
    let region = MemoryRegion::new(io_message::SIZE * 2).expect("memory");
    let access = Access::LOCAL_READ_WRITE | Access::PCI_READ_WRITE;
    let mmap = Mmap::register(device, region, access).expect("map");
    let inventory = BufInventory::new(2).expect("inventory");
    let buf = |offset: usize| {
        inventory
            .buf(&mmap, offset as u64, io_message::SIZE)
            .expect("buffer")
    };
    (buf(0), buf(io_message::SIZE), mmap)
}

impl Deployment {
    fn new() -> Self {
        let (host, dpu) = (
            Device::open("3b:00.0").expect("host"),
            Device::open("03:00.0").expect("DPU"),
        );
        let mut world = World::new("");
        world.send(Payload::QueryStorageRequest);
        let details = StorageDetails {
            total_size: 8192,
            block_size: 4096,
        };
        world.target_answers(|_| Payload::QueryStorageResponse(details.clone()));
        assert_eq!(world.answer(), Payload::QueryStorageResponse(details));

        let memory = MemoryRegion::new(8192).expect("memory");
        // PCI for the service, RDMA for the target behind it.
        let access = Access::PCI_READ_WRITE | Access::RDMA_READ | Access::RDMA_WRITE;
        let memory = Mmap::register(&host, memory, access).expect("map");
        let mmap_export_blob = Bytes::from(memory.export_pci(&host).expect("export"));
        let init = InitStorage {
            transaction_count: TRANSACTIONS,
            core_count: 1,
            mmap_export_blob,
        };
        world.send(Payload::InitStorageRequest(init));
        let forwarded = world.target_answers(|_| Payload::InitStorageResponse);
        let Payload::InitStorageRequest(forwarded) = forwarded else {
            panic!("expected init, got {forwarded:?}")
        };
        assert_eq!(
            (forwarded.transaction_count, forwarded.core_count),
            (TRANSACTIONS * 2, 1)
        );
        let imported =
            Mmap::import(&dpu, &forwarded.mmap_export_blob).expect("the re-export is an export");
        assert_eq!(imported.len(), 8192);

        let pe = Pe::new().expect("progress engine");
        let mut rdma = Vec::new();
        for expected in [RdmaConnectionRole::IoData, RdmaConnectionRole::IoControl] {
            world.target_answers(|asked| {
                let Payload::CreateRdmaConnectionRequest(asked) = asked else {
                    panic!("got {asked:?}")
                };
                assert_eq!(
                    (asked.context_index, asked.role),
                    (0, expected),
                    "io_data first"
                );
                let access = Access::LOCAL_READ_WRITE | Access::RDMA_READ | Access::RDMA_WRITE;
                let context = Rdma::builder(&dpu)
                    .permissions(access)
                    .receive_tasks(1)
                    .send_tasks(1)
                    .start(&pe);
                let context = context.expect("RDMA");
                let (export, connection) = context.export().expect("export");
                context
                    .connect(&connection, &asked.connection_details)
                    .expect("connected");
                rdma.push((context, connection));
                let details = RdmaConnectionDetails {
                    connection_details: export.into(),
                    ..asked.clone()
                };
                Payload::CreateRdmaConnectionResponse(details)
            });
        }
        assert_eq!(world.answer(), Payload::InitStorageResponse);
        let (control, connection) = &rdma[1];
        let (incoming, outgoing, _) = messages(&dpu);
        let port = Port {
            receive: control.receive_task(&incoming, RECEIVED).expect("task"),
            send: control
                .send_task(connection, &outgoing, SENT)
                .expect("task"),
            incoming,
            outgoing,
        };
        port.listen();
        let target = Side {
            port,
            arrived: VecDeque::new(),
            pe,
        };

        // The service's consumer appeared during init, and start waits for the initiator's.
        let [ChannelEvent::ConsumerAdded(service_consumer)] = world.consumers[..] else {
            panic!("expected the service's consumer, got {:?}", world.consumers);
        };
        world.send(Payload::StartStorageRequest);
        world.target_answers(|_| Payload::StartStorageResponse);
        let pe = Pe::new().expect("progress engine");
        let client = world.initiator.connection().expect("connected");
        let (incoming, outgoing, mmap) = messages(&host);
        let consumer = Consumer::start(&pe, &client, &mmap, 1).expect("consumer");
        let producer = Producer::start(&pe, &client, 1).expect("producer");
        let running =
            || consumer.state() == CtxState::Running && producer.state() == CtxState::Running;
        assert!(
            pe.progress_until(TIMEOUT, running),
            "the fast path does not start"
        );
        let port = Port {
            receive: consumer.post_recv_task(&incoming, RECEIVED).expect("task"),
            send: producer
                .send_task(&outgoing, service_consumer, SENT)
                .expect("task"),
            incoming,
            outgoing,
        };
        port.listen();
        let initiator = Side {
            port,
            arrived: VecDeque::new(),
            pe,
        };
        assert_eq!(world.answer(), Payload::StartStorageResponse);
        Self {
            initiator,
            target,
            _fast_path: (consumer, producer),
            _rdma: rdma,
            _memory: memory,
            world,
        }
    }
}

const READ: Repr = Repr {
    message_type: IoMessageType::Read,
    user_data: 0x0102_0304_0506_0708,
    result: 0,
    size: 4096,
    requester_offset: 4096,
    storage_offset: 0,
};

#[test]
fn requests_and_results_pass_unchanged() {
    let mut deployment = Deployment::new();
    // More messages than transactions, so that buffers are reused.
    for number in 0..u64::from(TRANSACTIONS) * 5 {
        let mut request = Repr {
            user_data: number,
            ..READ
        }
        .to_bytes();
        // Bytes outside of fields, which other implementations do not clear.
        request[50] = 0xaa;
        deployment.initiator.send(&request);
        assert_eq!(deployment.target.receive(), request, "verbatim");

        let code = if number % 2 == 0 {
            ErrorCode::SUCCESS
        } else {
            ErrorCode::IO_FAILED
        };
        let mut result = Repr {
            user_data: number,
            ..READ
        }
        .answer(code.0)
        .to_bytes();
        result[60] = 0xbb;
        deployment.target.send(&result);
        assert_eq!(
            deployment.initiator.receive(),
            result,
            "verbatim, errors too"
        );
    }
}

#[test]
fn invalid_requests_are_answered_by_the_service() {
    let mut deployment = Deployment::new();
    let mut unknown = READ.to_bytes();
    unknown[3] = 7;
    let result = READ.answer(0).to_bytes();
    // More messages than there are buffers.
    for _ in 0..TRANSACTIONS * 5 {
        for bad in [&unknown[..], &result[..], &READ.to_bytes()[..40]] {
            deployment.initiator.send(bad);
            let answer = deployment.initiator.receive();
            let answer =
                Repr::parse(&IoMessage::new_checked(answer).expect("64 bytes")).expect("a result");
            assert_eq!(
                answer,
                READ.answer(ErrorCode::INVALID_VALUE.0),
                "it names the I/O that failed"
            );
        }
    }
    assert!(deployment.target.arrived.is_empty());
    deployment.initiator.send(&READ.to_bytes());
    assert_eq!(
        deployment.target.receive(),
        READ.to_bytes(),
        "good requests still pass"
    );
}

#[test]
fn unsolicited_result_is_not_forwarded() {
    let mut deployment = Deployment::new();
    let stray = Repr {
        user_data: 7,
        ..READ
    };
    // More messages than there are buffers.
    for _ in 0..TRANSACTIONS * 5 {
        deployment.target.send(&stray.answer(0).to_bytes());
        // While the service answers these itself, it handles messages of the target.
        for _ in 0..3 {
            deployment.initiator.send(&READ.to_bytes()[..40]);
            let answer = deployment.initiator.receive();
            assert_eq!(answer[8..16], READ.to_bytes()[8..16], "not the stray one");
        }
    }
    deployment.initiator.send(&READ.to_bytes());
    assert_eq!(deployment.target.receive(), READ.to_bytes());
    deployment.target.send(&READ.answer(0).to_bytes());
    assert_eq!(deployment.initiator.receive(), READ.answer(0).to_bytes());
    assert!(deployment.initiator.arrived.is_empty());
    let service = deployment.world.service;
    service.process.signal(Signal::INT);
    let exit = service.wait();
    let expected = LogEvent::UnexpectedResult {
        user_data: stray.user_data,
    };
    let logged = events(&exit.stderr).filter(|event| *event == expected);
    assert_eq!(logged.count(), 1, "{exit:?}");
}

#[test]
fn complete_session_prints_statistics() {
    let mut deployment = Deployment::new();
    deployment.initiator.send(&READ.to_bytes());
    assert_eq!(deployment.target.receive(), READ.to_bytes());
    deployment.target.send(&READ.answer(0).to_bytes());
    assert_eq!(deployment.initiator.receive(), READ.answer(0).to_bytes());

    deployment.world.send(Payload::StopStorageRequest);
    deployment
        .world
        .target_answers(|_| Payload::StopStorageResponse);
    assert_eq!(deployment.world.answer(), Payload::StopStorageResponse);
    assert!(
        matches!(
            deployment.world.consumers[..],
            [_, ChannelEvent::ConsumerExpired(_)]
        ),
        "the service leaves the fast path before it answers: {:?}",
        deployment.world.consumers
    );

    // The service also forwards shutdown once the initiator's consumers have expired.
    deployment.world.send(Payload::ShutdownRequest);
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert_eq!(deployment.world.target.poll(), Ok(None));
    let Deployment {
        initiator,
        target,
        _fast_path,
        _rdma,
        _memory,
        mut world,
    } = deployment;
    drop(initiator);
    drop(_fast_path);
    world.target_answers(|_| Payload::ShutdownResponse);
    assert_eq!(world.answer(), Payload::ShutdownResponse);
    let exit = world.service.wait();
    assert_eq!(exit.code(), Some(0), "{exit:?}");
    assert!(exit.stdout.contains(" count: 1\n"), "{exit:?}");
    drop((target, _rdma, _memory));
}

#[test]
fn missing_result_of_the_target_ends_the_service() {
    let mut deployment = Deployment::new();
    deployment.initiator.send(&READ.to_bytes());
    assert_eq!(deployment.target.receive(), READ.to_bytes());
    deployment.target.send(&READ.to_bytes());
    let user_data = format!("{:#x}", READ.user_data);
    let service = deployment.world.service;
    service.fails_with(ErrorCode::UNEXPECTED, &user_data);
}

fn details() -> StorageDetails {
    StorageDetails {
        total_size: 1 << 20,
        block_size: 4096,
    }
}

/// A port without a listener: tcpmux, which is below the ports used by tests.
const UNUSED_PORT: u16 = 1;

#[test]
fn exit_code_reflects_usage_errors() {
    let cpu = cpu();
    let valid = format!("-d 03:00.0 -r 3b:00.0 --storage-server 127.0.0.1:1 --cpu {cpu}");
    for (args, code, part) in [
        ("--help".to_owned(), 0, "--storage-server"),
        (
            "-v".to_owned(),
            0,
            "doca_storage_comch_to_rdma_zero_copy: v",
        ),
        (format!("-d 03:00.0 --cpu {cpu}"), 2, "--representor"),
        (
            format!("{valid} --control-timeout 0"),
            2,
            "--control-timeout",
        ),
        (valid.replace("03:00.0", "07:00.0"), 1, "07:00.0"),
        (valid.replace("3b:00.0", "07:00.1"), 1, "07:00.1"),
    ] {
        let output = command(&args).output().expect("ran");
        assert_eq!(output.status.code(), Some(code), "{args}: {output:?}");
        let text = if code == 0 {
            output.stdout
        } else {
            output.stderr
        };
        assert!(
            String::from_utf8_lossy(&text).contains(part),
            "{args}: expected {part}"
        );
    }
}

#[test]
fn signal_stops_a_service_that_waits_for_its_peers() {
    let service = start(UNUSED_PORT, "");
    std::thread::sleep(Duration::from_millis(300));
    service.process.signal(Signal::INT);
    service.fails_with(ErrorCode::CONNECTION_ABORTED, TARGET);

    let target = TcpListener::bind("127.0.0.1:0").expect("bound");
    let service = start(target.local_addr().expect("address").port(), "");
    let (mut target, _) = target.accept().expect("connected");
    // Connected to its target, it starts to wait for an initiator.
    drop(connect(&service));
    service.process.signal(Signal::TERM);
    service.fails_with(ErrorCode::CONNECTION_ABORTED, "query_storage_request");
    let end = target.read(&mut [0]);
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
}

/// A target that refuses connections is reported once; the service gives up after the control timeout.
#[test]
fn refused_connection_is_retried_until_the_control_timeout() {
    let begin = Instant::now();
    let service = start(UNUSED_PORT, "--control-timeout 1");
    let exit = service.wait();
    assert!(begin.elapsed() >= Duration::from_secs(1));
    assert_eq!(exit.code(), Some(1), "{exit:?}");
    let announced = exit.stderr.matches("--control-timeout").count();
    assert_eq!(announced, 1, "{exit:?}");
    assert_eq!(exit.stderr.matches("error: ").count(), 1, "{exit:?}");
    assert_eq!(
        error_name(&exit.stderr),
        Some(&*ErrorCode::TIME_OUT.name()),
        "{exit:?}"
    );
}

/// Without `--control-timeout`, a service waits for a target that is started later, for longer than the default timeout
/// of a control operation.
#[test]
fn service_waits_for_its_target_without_a_limit() {
    let target = TcpListener::bind("127.0.0.1:0").expect("free port");
    let address = target.local_addr().expect("address");
    drop(target);
    let mut service = start(address.port(), "");
    service
        .process
        .wait_for("warned", TIMEOUT, |log| {
            log.contains("nothing listens").then_some(())
        })
        .expect("a warning");
    std::thread::sleep(Duration::from_secs(6));
    assert!(!service.process.has_ended(), "it waits");
    let target = TcpListener::bind(address).expect("the same port");
    let (_stream, _) = target.accept().expect("connected");
    drop(connect(&service));
}

#[test]
fn requests_are_forwarded_and_answered() {
    let mut world = World::new("");
    world.send(Payload::QueryStorageRequest);
    let asked = world.target_answers(|_| Payload::QueryStorageResponse(details()));
    assert_eq!(asked, Payload::QueryStorageRequest);
    assert_eq!(world.answer(), Payload::QueryStorageResponse(details()));

    // Refused by the service, without a request to the target.
    world.send(Payload::StartStorageRequest);
    assert!(
        error(world.answer())
            .message
            .contains("init_storage_request")
    );
    for blob in [&b""[..], b"garbage", &[0xff; 512]] {
        let mmap_export_blob = Bytes::from_static(blob);
        let init = InitStorage {
            transaction_count: 4,
            core_count: 1,
            mmap_export_blob,
        };
        world.send(Payload::InitStorageRequest(init));
        let refusal = error(world.answer());
        assert_eq!(refusal.error_code, ErrorCode::INVALID_VALUE.0);
        assert!(
            refusal.message.contains("doca_mmap_create_from_export"),
            "{refusal:?}"
        );
    }
    assert_eq!(world.target.poll(), Ok(None));
}

#[test]
fn error_text_of_the_target_reaches_the_initiator() {
    let mut world = World::new("");
    world.send(Payload::QueryStorageRequest);
    let refusal = ErrorResponse {
        error_code: ErrorCode::NO_MEMORY.0,
        message: "exhausted".to_owned(),
    };
    world.target_answers(|_| Payload::ErrorResponse(refusal));
    let error_response = error(world.answer());
    assert_eq!(error_response.error_code, ErrorCode::NO_MEMORY.0);
    assert!(
        error_response.message.contains("exhausted"),
        "{error_response:?}"
    );
    let service = world.service;
    service.fails_with(ErrorCode::NO_MEMORY, "exhausted");
}

#[test]
fn unresponsive_target_times_out() {
    let mut world = World::new("--control-timeout 1");
    let start = Instant::now();
    world.send(Payload::QueryStorageRequest);
    assert_eq!(
        message(&mut world.target).payload,
        Payload::QueryStorageRequest
    );
    let error_response = error(world.answer());
    assert_eq!(error_response.error_code, ErrorCode::TIME_OUT.0);
    assert!(
        error_response.message.contains("query_storage_response"),
        "{error_response:?}"
    );
    assert!(start.elapsed() >= Duration::from_secs(1));
    let service = world.service;
    service.fails_with(ErrorCode::TIME_OUT, "query_storage_response");
}

/// Messages that arrive while the service itself is stopped are read before timeouts are handled.
#[test]
fn service_that_was_stopped_reads_pending_answers_before_timing_out() {
    let mut world = World::new("--control-timeout 1");
    world.send(Payload::QueryStorageRequest);
    let request = message(&mut world.target);
    world.service.process.signal(Signal::STOP);
    let answer = request.response(Payload::QueryStorageResponse(details()));
    world.target.send(&answer).expect("sent");
    std::thread::sleep(Duration::from_millis(1500));
    world.service.process.signal(Signal::CONT);
    assert_eq!(world.answer(), Payload::QueryStorageResponse(details()));
}

#[test]
fn disconnection_of_a_peer_ends_the_service() {
    // A client that disconnects before it was polled is ignored.
    let mut world = World::new("");
    world.send(Payload::QueryStorageRequest);
    assert_eq!(
        message(&mut world.target).payload,
        Payload::QueryStorageRequest
    );
    let World {
        initiator,
        mut target,
        service,
        ..
    } = world;
    drop(initiator);
    service.fails_with(ErrorCode::CONNECTION_RESET, INITIATOR);
    assert_eq!(next(&mut target), ChannelEvent::Closed);

    let World {
        mut initiator,
        target,
        service,
        ..
    } = World::new("");
    drop(target);
    service.fails_with(ErrorCode::CONNECTION_RESET, TARGET);
    assert_eq!(next(&mut initiator), ChannelEvent::Closed);

    // During a request.
    let mut world = World::new("");
    world.send(Payload::QueryStorageRequest);
    assert_eq!(
        message(&mut world.target).payload,
        Payload::QueryStorageRequest
    );
    let World {
        mut initiator,
        target,
        service,
        ..
    } = world;
    drop(target);
    let error_response = error(message(&mut initiator).payload);
    assert_eq!(error_response.error_code, ErrorCode::CONNECTION_RESET.0);
    assert!(
        error_response.message.contains(TARGET),
        "{error_response:?}"
    );
    service.fails_with(ErrorCode::CONNECTION_RESET, TARGET);
}

#[test]
fn malformed_message_of_the_target_ends_the_service_and_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let service = start(listener.local_addr().expect("address").port(), "");
    let (mut target, _): (TcpStream, _) = listener.accept().expect("connected");
    let mut initiator = connect(&service);
    let request = wire::control::Message {
        message_id: 1,
        correlation_id: 1,
        payload: Payload::QueryStorageRequest,
    };
    initiator.send(&request).expect("sent");
    // Once the request has arrived, the initiator waits for a response.
    target.read_exact(&mut [0; 16]).expect("a request");
    target.write_all(&[0xff; 64]).expect("written");
    let error_response = error(message(&mut initiator).payload);
    assert_eq!(error_response.error_code, ErrorCode::INVALID_VALUE.0);
    assert!(
        error_response.message.contains(TARGET),
        "{error_response:?}"
    );
    service.fails_with(ErrorCode::INVALID_VALUE, TARGET);
}

#[test]
fn second_initiator_is_refused_while_the_first_is_served() {
    let mut world = World::new("");
    world.send(Payload::QueryStorageRequest);
    let request = message(&mut world.target);
    let mut second = connect(&world.service);
    let error_response = error(message(&mut second).payload);
    assert_eq!(error_response.error_code, ErrorCode::IN_USE.0);
    drop(second);
    let details_of = Payload::QueryStorageResponse(details());
    world
        .target
        .send(&request.response(details_of.clone()))
        .expect("sent");
    assert_eq!(world.answer(), details_of);
    world.send(Payload::StopStorageRequest);
    error(world.answer());
}
