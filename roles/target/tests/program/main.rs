//! The target as a process, with a service implemented by the test: flags, exit codes, control channel, signals.

mod backing;
mod io;
mod reservations;
mod versions;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use control::budget::REFUSED_REQUESTS;
use deployment::log::{LogEvent, error_name, events, listening_port};
use doca::{
    Access, Buf, BufInventory, Completion, Device, ErrorCode, Event, MemoryRegion, Mmap, Pe, Rdma,
    RdmaConnection, Task,
};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use wire::control::{
    FrameDecoder, InitStorage, Message, Payload, RdmaConnectionDetails, RdmaConnectionRole,
    StorageDetails,
};
use wire::io_message::{self, IoMessage, IoMessageType, Repr};
use wire::release::Release;

const TIMEOUT: Duration = Duration::from_secs(30);

/// A target process that is killed when the test ends.
struct Target {
    child: Child,
    stdout: BufReader<ChildStdout>,
    port: u16,
}

/// Exit status and output of a process.
#[derive(Debug)]
struct Exit {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

fn command(args: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_doca_storage_target_rdma"));
    command.args(args.split_whitespace());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A CPU that this process may use.
fn cpu() -> String {
    deployment::allowed_cpus().expect("affinity")[0].to_string()
}

/// Starts a target on a free port, with one CPU and these additional flags.
fn start(args: &str) -> Target {
    start_with(args, &[])
}

/// As [`start`], with these environment variables.
fn start_with(args: &str, variables: &[(&str, &str)]) -> Target {
    let args = format!("-d 03:00.0 --listen-port 0 --cpu {} {args}", cpu());
    let mut command = command(&args);
    command.envs(variables.iter().copied());
    listening(command)
}

/// Starts a target and waits until it listens.
fn listening(mut command: Command) -> Target {
    let mut child = command.spawn().expect("started");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    let mut banner = String::new();
    stdout.read_line(&mut banner).expect("readable");
    assert!(
        banner.starts_with("doca_storage_target_rdma: v"),
        "{banner}"
    );
    let mut line = String::new();
    stdout.read_line(&mut line).expect("readable");
    let Some(port) = listening_port(&line) else {
        let mut stderr = String::new();
        child
            .stderr
            .take()
            .expect("piped")
            .read_to_string(&mut stderr)
            .expect("readable");
        panic!("expected the port, got {line:?}, and {stderr}")
    };
    Target {
        port,
        child,
        stdout,
    }
}

impl Target {
    fn connect(&self) -> Service {
        Service::connect(self.port)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("signalled");
    }

    /// Waits for the process to exit within the time limit.
    fn wait(mut self) -> Exit {
        let deadline = Instant::now() + TIMEOUT;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("waited") {
                break status;
            }
            assert!(Instant::now() < deadline, "the target does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.stdout.read_to_string(&mut stdout).expect("readable");
        self.child
            .stderr
            .take()
            .expect("piped")
            .read_to_string(&mut stderr)
            .expect("readable");
        Exit {
            status,
            stdout,
            stderr,
        }
    }
}

impl Exit {
    /// Checks for exit status 1, and that the last error has this code.
    fn failed_with(&self, code: ErrorCode) {
        assert_eq!(self.status.code(), Some(1), "{self:?}");
        assert_eq!(error_name(&self.stderr), Some(&*code.name()), "{self:?}");
    }

    fn has_logged(&self, event: LogEvent<'_>) -> bool {
        events(&self.stderr).any(|logged| logged == event)
    }

    /// Value of this key in the statistics.
    fn statistic(&self, key: &str) -> Option<&str> {
        let pairs = self.stdout.lines().filter_map(|line| line.split_once(": "));
        let mut values = pairs.filter(|(name, _)| name.strip_prefix("| ") == Some(key));
        values.next().map(|(_, value)| value)
    }
}

/// Runs a target that is expected to exit by itself within the time limit: if it listens instead, it is killed.
fn run_to_exit(mut command: Command) -> Exit {
    // A process group, so that processes started by the shell are included.
    command.process_group(0);
    let mut child = command.spawn().expect("started");
    let deadline = Instant::now() + TIMEOUT;
    while child.try_wait().expect("waited").is_none() {
        if Instant::now() >= deadline {
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().expect("waited");
    Exit {
        status: output.status,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The service's side of the control channel.
struct Service {
    stream: TcpStream,
    decoder: FrameDecoder,
    next_id: u32,
}

impl Service {
    fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        stream.set_read_timeout(Some(TIMEOUT)).expect("timeout");
        Self {
            stream,
            decoder: FrameDecoder::new(),
            next_id: 40,
        }
    }

    fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("written");
    }

    /// Next message; `None` when the target has closed the connection.
    fn receive(&mut self) -> Option<Message> {
        loop {
            if let Some(message) = self.decoder.next().expect("a valid frame") {
                return Some(message);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.decoder.push(&bytes[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no answer: {error}"),
            }
        }
    }

    /// Returns `true` if a message, or the end of the connection, can be received.
    fn has_answer(&self) -> bool {
        self.stream.set_nonblocking(true).expect("non-blocking");
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).expect("blocking");
        peeked.is_ok()
    }

    /// Sends a request and returns the payload of its response.
    fn request(&mut self, payload: Payload) -> Payload {
        self.next_id += 1;
        let request = Message {
            message_id: self.next_id,
            correlation_id: 8,
            payload,
        };
        self.send_bytes(&request.encode_to_vec());
        let answer = self.receive().expect("an answer");
        assert_eq!(
            (answer.message_id, answer.correlation_id),
            (self.next_id, 8)
        );
        answer.payload
    }

    /// Sends a request that is refused, and returns code and text.
    fn refused(&mut self, payload: Payload) -> (u32, String) {
        match self.request(payload) {
            Payload::ErrorResponse(error) => (error.error_code, error.message),
            other => panic!("expected an error, got {other:?}"),
        }
    }
}

/// The bytes of a request.
fn frame(payload: Payload) -> Vec<u8> {
    let request = Message {
        message_id: 1,
        correlation_id: 8,
        payload,
    };
    request.encode_to_vec()
}

const BLOCK: usize = 4096;
/// Tokens of the two tasks.
const SEND: u64 = 1;
const RECEIVE: u64 = 2;

fn access() -> Access {
    Access::LOCAL_READ_WRITE | Access::RDMA_READ | Access::RDMA_WRITE
}

/// Memory that a target may read and write.
fn memory(length: usize) -> (Device, Arc<MemoryRegion>, Mmap) {
    let device = Device::open("03:00.0").expect("device");
    let memory = MemoryRegion::new(length).expect("memory");
    let map = Mmap::register(&device, memory.clone(), access()).expect("map");
    (device, memory, map)
}

/// A service with one worker and one transaction. Fields are in drop order.
struct Client {
    send: Task,
    receive: Task,
    request: Buf,
    result: Buf,
    _control: (Rdma, RdmaConnection),
    _data: (Rdma, RdmaConnection),
    pe: Pe,
    /// The target reads and writes this memory.
    memory: Arc<MemoryRegion>,
    memory_map: Mmap,
    service: Service,
}

impl Client {
    fn new(service: Service) -> Self {
        Self::with(service, BLOCK * 2, Payload::QueryStorageRequest).0
    }

    /// Creates a client with this amount of memory, after this query; returns it with the response.
    fn with(mut service: Service, memory_size: usize, query: Payload) -> (Self, Payload) {
        let (device, memory, memory_map) = memory(memory_size);
        let export = Bytes::from(memory_map.export_rdma(&device).expect("export"));
        let described = service.request(query);
        let client = Self::with_export(service, export, 2, (memory, memory_map));
        (client, described)
    }

    /// Creates a client of another release, after a query.
    fn of_release(mut service: Service, release: Release) -> Self {
        let (device, memory, memory_map) = memory(BLOCK * 2);
        let export = Bytes::from(memory_map.export_rdma(&device).expect("export"));
        service.request(Payload::QueryStorageRequest);
        Self::with_init(service, init(export, 2), release, (memory, memory_map))
    }

    /// Creates a client whose memory is that of this export, after the query.
    fn with_export(
        service: Service,
        mmap_export_blob: Bytes,
        transaction_count: u32,
        memory: (Arc<MemoryRegion>, Mmap),
    ) -> Self {
        let init = init(mmap_export_blob, transaction_count);
        Self::with_init(service, init, Release::V3_2, memory)
    }

    fn with_init(
        mut service: Service,
        init: InitStorage,
        release: Release,
        (memory, memory_map): (Arc<MemoryRegion>, Mmap),
    ) -> Self {
        let device = Device::open("03:00.0").expect("device");
        assert_eq!(
            service.request(Payload::init_storage_of(release, init, 4)),
            Payload::InitStorageResponse
        );

        let pe = Pe::new().expect("progress engine");
        let mut endpoint = |role, tasks| {
            let builder = Rdma::builder(&device).permissions(access());
            let rdma = builder
                .receive_tasks(tasks)
                .send_tasks(tasks)
                .start(&pe)
                .expect("RDMA");
            let (export, connection) = rdma.export().expect("export");
            let details = RdmaConnectionDetails {
                context_index: 0,
                role,
                connection_details: export.into(),
            };
            match service.request(Payload::CreateRdmaConnectionRequest(details)) {
                Payload::CreateRdmaConnectionResponse(far) => {
                    assert_eq!((far.context_index, far.role), (0, role));
                    rdma.connect(&connection, &far.connection_details)
                        .expect("connected");
                }
                other => panic!("expected a connection, got {other:?}"),
            }
            (rdma, connection)
        };
        let data = endpoint(RdmaConnectionRole::IoData, 0);
        let control = endpoint(RdmaConnectionRole::IoControl, 1);
        assert_eq!(
            service.request(Payload::StartStorageRequest),
            Payload::StartStorageResponse
        );

        let messages = MemoryRegion::new(io_message::SIZE * 2).expect("memory");
        let messages = Mmap::register(&device, messages, Access::LOCAL_READ_WRITE).expect("map");
        let inventory = BufInventory::new(2).expect("inventory");
        let request = inventory
            .buf(&messages, 0, io_message::SIZE)
            .expect("buffer");
        let result = inventory
            .buf(&messages, io_message::SIZE as u64, io_message::SIZE)
            .expect("buffer");
        let send = control
            .0
            .send_task(&control.1, &request, SEND)
            .expect("task");
        let receive = control.0.receive_task(&result, RECEIVE).expect("task");
        Self {
            send,
            receive,
            request,
            result,
            _control: control,
            _data: data,
            pe,
            memory,
            memory_map,
            service,
        }
    }

    fn memory_address(&self) -> u64 {
        self.memory_map.base_address()
    }

    /// Sends these bytes as a request and returns the response.
    fn exchange(&mut self, request: &[u8]) -> Repr {
        let bytes = self.exchange_bytes(request);
        assert_eq!(bytes[40..], [0; 24], "zeros where there is no field");
        assert_eq!(bytes[4..8], [0; 4], "zeros where there is no field");
        let answer = Repr::parse(&IoMessage::new_unchecked_len(&bytes)).expect("an answer");
        assert_eq!(answer.message_type, IoMessageType::Result);
        answer
    }

    /// Sends these bytes as a request and returns the bytes of the response.
    fn exchange_bytes(&mut self, request: &[u8]) -> [u8; io_message::SIZE] {
        self.result.reset_data().expect("reset");
        self.receive.submit().expect("receive");
        self.request.write_data(request).expect("request");
        self.send.submit().expect("send");
        let deadline = Instant::now() + TIMEOUT;
        let (mut sent, mut received) = (false, false);
        while !(sent && received) {
            assert!(Instant::now() < deadline, "no answer to {request:?}");
            if let Some(Event::Task(Completion { token, result })) = self.pe.poll() {
                assert_eq!(result, Ok(()), "task {token}");
                sent |= token == SEND;
                received |= token == RECEIVE;
            }
        }
        let mut bytes = [0xee; io_message::SIZE];
        assert_eq!(
            self.result.read_data(&mut bytes),
            Ok(io_message::SIZE),
            "an answer has 64 bytes"
        );
        bytes
    }

    /// Sends this request without waiting for its response.
    fn send(&mut self, request: Repr) {
        self.request
            .write_data(&request.to_bytes())
            .expect("request");
        self.send.submit().expect("send");
        let deadline = Instant::now() + TIMEOUT;
        loop {
            assert!(Instant::now() < deadline, "the request is not received");
            if let Some(Event::Task(Completion { token, .. })) = self.pe.poll() {
                assert_eq!(token, SEND);
                return;
            }
        }
    }

    fn io(&mut self, request: Repr) -> ErrorCode {
        let answer = self.exchange(&request.to_bytes());
        assert_eq!(
            answer,
            request.answer(answer.result),
            "the answer repeats the request"
        );
        ErrorCode(answer.result)
    }

    fn stop(mut self, target: Target) -> Exit {
        assert_eq!(
            self.service.request(Payload::StopStorageRequest),
            Payload::StopStorageResponse
        );
        assert_eq!(
            self.service.request(Payload::ShutdownRequest),
            Payload::ShutdownResponse
        );
        target.wait()
    }
}

fn init(mmap_export_blob: Bytes, transaction_count: u32) -> InitStorage {
    InitStorage {
        transaction_count,
        core_count: 1,
        mmap_export_blob,
    }
}

fn request(
    message_type: IoMessageType,
    requester_offset: usize,
    storage_offset: usize,
    size: usize,
) -> Repr {
    Repr {
        message_type,
        user_data: 0xabcd_ef01_2345_6789,
        result: 0,
        size: u32::try_from(size).expect("small"),
        requester_offset: requester_offset as u64,
        storage_offset: storage_offset as u64,
    }
}

fn run(args: &str) -> Exit {
    run_to_exit(command(args))
}

#[test]
fn help_and_version_succeed_after_the_banner() {
    for flag in ["-h", "--help"] {
        let exit = run(flag);
        assert_eq!(exit.status.code(), Some(0), "{exit:?}");
        assert!(
            exit.stdout.starts_with("doca_storage_target_rdma: v"),
            "{exit:?}"
        );
        assert!(
            exit.stdout.contains("DOCA Flags:") && exit.stdout.contains("--binary-content"),
            "{exit:?}"
        );
    }
    let exit = run("-v");
    assert_eq!(exit.status.code(), Some(0), "{exit:?}");
    assert_eq!(exit.stdout.lines().count(), 1, "{exit:?}");
}

#[test]
fn usage_error_exits_with_failure_and_names_the_flag() {
    let cpu = cpu();
    for (args, code, part) in [
        (String::new(), 2, "--device"),
        (
            format!("-d 03:00.0 --listen-port 0 --cpu {cpu} --nonsense"),
            2,
            "--nonsense",
        ),
        (
            format!("-d 09:00.0 --listen-port 0 --cpu {cpu}"),
            1,
            "09:00.0",
        ),
        (
            format!("-d 03:00.0 --listen-port 0 --cpu {cpu} --block-size 0"),
            1,
            "--block-size",
        ),
        (
            format!("-d 03:00.0 --listen-port 0 --cpu {cpu} --binary-content /no/such/file"),
            1,
            "/no/such/file",
        ),
        (
            format!("-d 03:00.0 --listen-port 0 --cpu {cpu} --json /no/such/flags"),
            2,
            "/no/such/flags",
        ),
    ] {
        let exit = run(&args);
        assert_eq!(exit.status.code(), Some(code), "{args}: {exit:?}");
        assert!(exit.stderr.contains(part), "{args}: {exit:?}");
    }
}

#[test]
fn query_returns_the_geometry() {
    let target = start("--block-size 512 --block-count 9");
    let details = StorageDetails {
        total_size: 9 * 512,
        block_size: 512,
    };
    let answer = target.connect().request(Payload::QueryStorageRequest);
    assert_eq!(answer, Payload::QueryStorageResponse(details));
}

#[test]
fn refused_requests_leave_the_session_state_unchanged() {
    let target = start("");
    let mut service = target.connect();
    let (code, text) = service.refused(Payload::StartStorageRequest);
    assert_eq!(code, doca::ErrorCode::UNEXPECTED.0);
    assert!(
        text.contains("start_storage_request") && text.contains("query_storage_request"),
        "{text}"
    );
    assert!(matches!(
        service.request(Payload::QueryStorageRequest),
        Payload::QueryStorageResponse(_)
    ));

    let init = |core_count, blob: &'static [u8]| {
        let mmap_export_blob = Bytes::from_static(blob);
        Payload::InitStorageRequest(InitStorage {
            transaction_count: 4,
            core_count,
            mmap_export_blob,
        })
    };
    let (code, text) = service.refused(init(2, b""));
    assert_eq!(code, ErrorCode::INVALID_VALUE.0);
    assert!(text.contains("--cpu"), "{text}");
    for blob in [
        &b""[..],
        b"\0",
        b"certainly-no-export",
        &[0xff; 512],
        &[0; 4000],
    ] {
        let (code, text) = service.refused(init(1, blob));
        assert_eq!(code, ErrorCode::INVALID_VALUE.0, "{text}");
        assert!(text.contains("doca_mmap_create_from_export"), "{text}");
    }
}

#[test]
fn number_of_refused_requests_per_session_is_limited() {
    let target = start("--sessions 2");
    let mut service = target.connect();
    service.request(Payload::QueryStorageRequest);
    for _ in 0..=REFUSED_REQUESTS {
        service.refused(Payload::StartStorageRequest);
    }
    assert_eq!(service.receive(), None);
    let details = target.connect().request(Payload::QueryStorageRequest);
    assert!(matches!(details, Payload::QueryStorageResponse(_)));
}

#[test]
fn disconnection_or_malformed_frame_ends_the_session() {
    let target = start("");
    let mut service = target.connect();
    service.request(Payload::QueryStorageRequest);
    drop(service);
    let exit = target.wait();
    assert_eq!(exit.status.code(), Some(1), "{exit:?}");
    assert!(
        exit.stderr.contains("init_storage_request"),
        "it says what was due: {exit:?}"
    );

    let target = start("");
    let mut service = target.connect();
    service.request(Payload::QueryStorageRequest);
    service.send_bytes(&[0xff; 100]);
    assert_eq!(service.receive(), None);
    let exit = target.wait();
    assert_eq!(exit.status.code(), Some(1), "{exit:?}");
    assert!(exit.stderr.contains("127.0.0.1"), "it says who: {exit:?}");
}

/// A port probe, a client whose first message is not a query, and a client that sends nothing neither end a target nor
/// lock out other clients.
#[test]
fn connections_without_a_valid_first_request_do_not_count_as_sessions() {
    let target = start("");
    drop(target.connect());
    let mut malformed = target.connect();
    malformed.send_bytes(&[0xff; 100]);
    let Some(Payload::ErrorResponse(_)) = malformed.receive().map(|message| message.payload) else {
        panic!("expected to be told");
    };
    assert_eq!(malformed.receive(), None);
    let mut early = target.connect();
    let (code, text) = early.refused(Payload::ShutdownRequest);
    assert_eq!(code, doca::ErrorCode::UNEXPECTED.0);
    assert!(text.contains("query_storage_request"), "{text}");
    drop(early);
    let mut idle = target.connect();
    let mut service = target.connect();
    assert!(matches!(
        service.request(Payload::QueryStorageRequest),
        Payload::QueryStorageResponse(_)
    ));
    // Another client was served first.
    let Some(Payload::ErrorResponse(error)) = idle.receive().map(|message| message.payload) else {
        panic!("expected to be told");
    };
    assert_eq!(error.error_code, doca::ErrorCode::IN_USE.0);
    drop(service);
    let exit = target.wait();
    assert!(exit.stderr.contains("init_storage_request"), "{exit:?}");
}

/// With `--sessions forever`, the exit status of a clean stop is 0 even after a port probe.
#[test]
fn target_stops_cleanly_after_port_probes() {
    let target = start("--sessions forever");
    for _ in 0..20 {
        drop(target.connect());
    }
    // Served after the probes.
    let mut early = target.connect();
    early.refused(Payload::StopStorageRequest);
    target.signal(Signal::TERM);
    let exit = target.wait();
    assert_eq!(exit.status.code(), Some(0), "{exit:?}");
}

/// A client that sends requests without reading the responses must not cause unlimited use of memory or log space.
#[test]
fn client_that_does_not_read_answers_is_disconnected() {
    use std::io::Write as _;
    let target = start("--sessions forever");
    let stream = std::net::TcpStream::connect(("127.0.0.1", target.port)).expect("connected");
    stream.set_write_timeout(Some(TIMEOUT)).expect("a timeout");
    let request = |payload| {
        wire::control::Message {
            message_id: 1,
            correlation_id: 1,
            payload,
        }
        .encode_to_vec()
    };
    (&stream)
        .write_all(&request(Payload::QueryStorageRequest))
        .expect("written");
    let refused = request(Payload::StopStorageRequest).repeat(1000);
    let mut written = 0;
    // The target closes the connection long before 64 MiB have been sent.
    while written < 64 << 20 {
        match (&stream).write(&refused) {
            Ok(count) => written += count,
            Err(error) => {
                let kind = error.kind();
                let closed = [
                    std::io::ErrorKind::ConnectionReset,
                    std::io::ErrorKind::BrokenPipe,
                ];
                assert!(closed.contains(&kind), "{error}");
                break;
            }
        }
    }
    assert!(written < 64 << 20, "it takes {written} bytes of requests");
    let mut next = target.connect();
    assert!(matches!(
        next.request(Payload::QueryStorageRequest),
        Payload::QueryStorageResponse(_)
    ));
    drop(next);
    target.signal(Signal::TERM);
    let exit = target.wait();
    assert!(
        exit.stderr.len() < 64 << 10,
        "{} bytes of log",
        exit.stderr.len()
    );
}

/// The memory of an init request is checked before it is allocated.
#[test]
fn init_request_over_the_limits_is_refused() {
    let target = start("--max-transactions 100000 --max-session-memory 64");
    let mut service = target.connect();
    service.request(Payload::QueryStorageRequest);
    for (transaction_count, code) in [
        (65_536, doca::ErrorCode::NO_MEMORY),
        (100_001, doca::ErrorCode::INVALID_VALUE),
    ] {
        let init = InitStorage {
            transaction_count,
            core_count: 1,
            mmap_export_blob: Bytes::new(),
        };
        let (refused, text) = service.refused(Payload::InitStorageRequest(init));
        assert_eq!(refused, code.0, "{text}");
    }
    drop(target);
    let target = start("");
    let mut service = target.connect();
    service.request(Payload::QueryStorageRequest);
    let init = InitStorage {
        transaction_count: 65_536,
        core_count: 1,
        mmap_export_blob: Bytes::new(),
    };
    let (_, text) = service.refused(Payload::InitStorageRequest(init));
    assert!(text.contains("--max-transactions"), "{text}");
}

#[test]
fn signal_stops_the_target_in_any_state() {
    let hangup = if role_common::signals::is_hangup_ignored() {
        Signal::TERM
    } else {
        Signal::HUP
    };
    for (signal, connect) in [
        (Signal::INT, false),
        (Signal::TERM, false),
        (hangup, false),
        (Signal::INT, true),
    ] {
        let target = start("");
        let service = connect.then(|| {
            let mut service = target.connect();
            service.request(Payload::QueryStorageRequest);
            service
        });
        target.signal(signal);
        target.wait().failed_with(ErrorCode::CONNECTION_ABORTED);
        drop(service);
    }
}
