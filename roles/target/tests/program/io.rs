//! The target as a process, with I/O: this test acts as the service and as the service's client.

use std::io::{BufRead as _, BufReader, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use deployment::log::listening_port;
use doca::{Device, ErrorCode, MemoryRegion, Mmap};
use role_target::backing::{BackingFile, BackingIo, Options};
use role_target::content::{Content, Geometry};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketType,
};
use rustix::process::{Pid, Signal, kill_process};
use wire::control::{InitStorage, Payload};
use wire::io_message::{self, IoMessageType, Repr};
use wire::release::Release;

use crate::{BLOCK, Client, Service, TIMEOUT, Target, access, memory, request, start, start_with};

const BLOCKS: usize = 4;

fn content() -> Vec<u8> {
    (0..BLOCK * BLOCKS)
        .map(|index| (index / 7 % 253) as u8)
        .collect()
}

fn target_with_content() -> (Target, tempfile::NamedTempFile) {
    let mut file = tempfile::NamedTempFile::new().expect("temporary file");
    file.write_all(&content()).expect("written");
    let flags = format!(
        "--block-count {BLOCKS} --output text --binary-content {}",
        file.path().display()
    );
    (start(&flags), file)
}

#[test]
fn reads_and_writes_move_the_right_bytes() {
    let (target, _file) = target_with_content();
    let mut client = Client::new(target.connect());
    let content = content();

    // Block 2, to the second half of the test's memory.
    assert_eq!(
        client.io(request(IoMessageType::Read, BLOCK, 2 * BLOCK, BLOCK)),
        ErrorCode::SUCCESS
    );
    let mut bytes = vec![0; BLOCK * 2];
    client.memory.read(0, &mut bytes).expect("read");
    assert_eq!(bytes[..BLOCK], [0; BLOCK]);
    assert_eq!(bytes[BLOCK..], content[2 * BLOCK..3 * BLOCK]);

    // Some bytes within block 1, and the blocks before and after it.
    client.memory.fill(0, BLOCK * 2, 0x5a).expect("filled");
    assert_eq!(
        client.io(request(IoMessageType::Write, 100, BLOCK + 10, 50)),
        ErrorCode::SUCCESS
    );
    assert_eq!(
        client.io(request(IoMessageType::Read, 0, 0, BLOCK * 2)),
        ErrorCode::SUCCESS
    );
    client.memory.read(0, &mut bytes).expect("read");
    let mut expected = content[..BLOCK * 2].to_vec();
    expected[BLOCK + 10..BLOCK + 60].fill(0x5a);
    assert_eq!(bytes, expected);

    let exit = client.stop(target);
    assert_eq!(exit.status.code(), Some(0), "{exit:?}");
    assert_eq!(exit.statistic("Operation count"), Some("3"), "{exit:?}");
    assert!(exit.statistic("PE hit rate").is_some(), "{exit:?}");
}

#[test]
fn invalid_requests_get_errors_and_valid_ones_still_succeed() {
    let (target, _file) = target_with_content();
    let mut client = Client::new(target.connect());
    let good = request(IoMessageType::Read, 0, 0, BLOCK);
    let storage = (BLOCK * BLOCKS) as u64;
    let bad = [
        Repr {
            storage_offset: storage - BLOCK as u64 + 1,
            ..good
        },
        Repr {
            storage_offset: u64::MAX - 100,
            ..good
        },
        Repr {
            requester_offset: BLOCK as u64 + 1,
            ..good
        },
        Repr {
            requester_offset: u64::MAX,
            message_type: IoMessageType::Write,
            ..good
        },
        Repr {
            size: u32::MAX,
            ..good
        },
        Repr { size: 0, ..good },
        Repr {
            message_type: IoMessageType::Result,
            ..good
        },
    ];
    for request in bad {
        assert_eq!(client.io(request), ErrorCode::INVALID_VALUE, "{request:?}");
        assert_eq!(client.io(good), ErrorCode::SUCCESS, "after {request:?}");
    }
    let mut unknown = good.to_bytes();
    unknown[3] = 9;
    assert_eq!(client.exchange(&unknown).result, ErrorCode::INVALID_VALUE.0);
    let short = client.exchange(&good.to_bytes()[..16]);
    assert_eq!(
        (short.result, short.user_data),
        (ErrorCode::INVALID_VALUE.0, good.user_data)
    );
    assert_eq!(client.io(good), ErrorCode::SUCCESS);

    let exit = client.stop(target);
    assert_eq!(exit.status.code(), Some(0), "{exit:?}");
    let code = format!("{:?}", ErrorCode::INVALID_VALUE);
    assert_eq!(
        exit.stderr.matches(&code).count(),
        1,
        "not a line per bad I/O: {exit:?}"
    );
}

#[test]
fn target_exits_when_its_service_dies_during_io() {
    let (target, _file) = target_with_content();
    let client = Client::new(target.connect());
    let start = Instant::now();
    drop(client);
    let exit = target.wait();
    assert_eq!(exit.status.code(), Some(1), "{exit:?}");
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn signal_during_io_stops_the_target() {
    let (target, _file) = target_with_content();
    let client = Client::new(target.connect());
    target.signal(rustix::process::Signal::INT);
    let exit = target.wait();
    assert_eq!(exit.status.code(), Some(1), "{exit:?}");
    assert!(exit.stderr.contains("stop_storage_request"), "{exit:?}");
    drop(client);
}

#[test]
fn statistics_are_json_on_request() {
    let target = {
        use std::io::{BufRead as _, BufReader};
        // With JSON, all output except the document goes to standard error.
        let args = format!(
            "-d 03:00.0 --listen-port 0 --cpu {} --output json",
            crate::cpu()
        );
        let mut child = crate::command(&args).spawn().expect("started");
        let mut lines = BufReader::new(child.stderr.take().expect("piped"))
            .lines()
            .map_while(Result::ok);
        let port = lines
            .find_map(|line| listening_port(&line))
            .expect("a port");
        // Keeps reading, because otherwise the target blocks on its logs.
        std::thread::spawn(move || lines.for_each(drop));
        (child, port)
    };
    let (child, port) = target;
    let mut client = Client::new(Service::connect(port));
    assert_eq!(
        client.io(request(IoMessageType::Read, 0, 0, BLOCK)),
        ErrorCode::SUCCESS
    );
    assert_eq!(
        client.service.request(Payload::StopStorageRequest),
        Payload::StopStorageResponse
    );
    assert_eq!(
        client.service.request(Payload::ShutdownRequest),
        Payload::ShutdownResponse
    );
    let output = child.wait_with_output().expect("ended");
    let document: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert_eq!(document["application"], "doca_storage_target_rdma");
    assert_eq!(document["operation_count"], 1);
    assert_eq!(document["cores"][0]["operation_count"], 1);
}

/// Size of the exporter's memory. It is mapped from a file, so its agent copies it, in messages of at most 64 KiB.
const EXPORTED: usize = 512 << 10;

/// A process whose memory targets import, and which can be stopped, so that its agent does not respond.
struct Exporter {
    child: Child,
    export: Bytes,
}

impl Exporter {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "io::exporter", "--nocapture"])
            .env("EXPORTER", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let export = lines.find_map(|line| {
            let line = line.expect("text");
            let (_, digits) = line.split_once("export ")?;
            let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("digits");
            Some((0..digits.len()).step_by(2).map(byte).collect::<Vec<u8>>())
        });
        Self {
            child,
            export: export.expect("an export").into(),
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("signalled");
    }

    /// Stops all threads and waits until they have stopped: immediately after the signal, they may still respond.
    fn stop(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.child.id());
        let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = task.and_then(|task| std::fs::read_to_string(task.path().join("stat")));
            // The state follows the name, which is in parentheses.
            stat.is_ok_and(|stat| {
                stat.rsplit(") ")
                    .next()
                    .is_some_and(|rest| rest.starts_with('T'))
            })
        };
        while !std::fs::read_dir(&tasks)
            .expect("the threads")
            .all(is_stopped)
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test: the process of [`Exporter`].
#[test]
fn exporter() {
    if std::env::var_os("EXPORTER").is_none() {
        return;
    }
    let device = Device::open("03:00.0").expect("device");
    let file = tempfile::tempfile().expect("a file");
    file.set_len(EXPORTED as u64).expect("room");
    let memory = MemoryRegion::map_file(&file, 0, EXPORTED).expect("memory");
    let map = Mmap::register(&device, memory, access()).expect("map");
    let export = map.export_rdma(&device).expect("export");
    let digits: String = export.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("export {digits}");
    // Until the test ends.
    let _ = std::io::stdin().read(&mut [0]);
}

/// Sends the query, and an init request whose memory map is that of a stopped exporter.
fn begin_slow_import(target: &Target, exporter: &Exporter) -> Service {
    let mut service = target.connect();
    service.request(Payload::QueryStorageRequest);
    exporter.stop();
    let init = InitStorage {
        transaction_count: 2,
        core_count: 1,
        mmap_export_blob: exporter.export.clone(),
    };
    let request = wire::control::Message {
        message_id: 1,
        correlation_id: 1,
        payload: Payload::InitStorageRequest(init),
    };
    service.send_bytes(&request.encode_to_vec());
    service
}

/// An import waits for the exporter's agent on a separate thread: in the meantime, further clients are informed that
/// the target is busy, and a signal ends the target.
#[test]
fn import_blocked_by_a_peer_does_not_block_other_clients() {
    let target = start("");
    let exporter = Exporter::start();
    let mut service = begin_slow_import(&target, &exporter);
    let mut further = target.connect();
    let Some(Payload::ErrorResponse(error)) = further.receive().map(|message| message.payload)
    else {
        panic!("expected to be refused");
    };
    assert_eq!(error.error_code, ErrorCode::IN_USE.0);
    assert!(!service.has_answer(), "the import was waited for");
    target.signal(Signal::TERM);
    assert!(service.receive().is_none(), "the import was waited for");
    target.wait().failed_with(ErrorCode::CONNECTION_ABORTED);
}

/// The import has a deadline, after which its client gets an error, and the next session is served.
#[test]
fn failed_import_ends_only_its_session() {
    let target = start("--sessions forever");
    let exporter = Exporter::start();
    let mut service = begin_slow_import(&target, &exporter);
    let Some(Payload::ErrorResponse(error)) = service.receive().map(|message| message.payload)
    else {
        panic!("expected an error, {:?}", service.receive());
    };
    assert_eq!(error.error_code, ErrorCode::TIME_OUT.0, "{error:?}");
    drop(service);
    let mut client = Client::new(target.connect());
    let read = request(IoMessageType::Read, 0, 0, BLOCK);
    assert_eq!(client.io(read), ErrorCode::SUCCESS);
}

/// A worker blocked by its peer is abandoned with its session. The target continues, and refuses I/Os that overlap the
/// abandoned worker's writes until it returns.
#[test]
fn worker_blocked_by_a_peer_is_abandoned() {
    // By default, softdoca's timeout of a copy is shorter than the time after which a target abandons its workers.
    let environment = [("SOFTDOCA_COPY_TIMEOUT_MS", "60000")];
    let target = start_with("--sessions forever --block-count 256", &environment);
    let exporter = Exporter::start();
    let agent = SlowAgent::before(&exporter.export);
    hold_worker(
        &target,
        &exporter,
        &agent,
        request(IoMessageType::Write, 0, 0, EXPORTED),
    );

    let mut client = Client::new(connect_when_free(&target));
    let free = request(IoMessageType::Write, 0, EXPORTED, BLOCK);
    assert_eq!(client.io(free), ErrorCode::SUCCESS);
    let overlapping = request(IoMessageType::Write, 0, 50, 10);
    assert_eq!(client.io(overlapping), ErrorCode::IN_USE);
    agent.slow_down(false);
    end_after_return(client, target, overlapping);
}

/// The abandoned worker has read the sectors for a partial write, and keeps their locks. The locks belong to its
/// session, so the next session can immediately write adjacent sectors. A write that shares a sector is refused,
/// because the worker would undo it.
#[test]
fn abandoned_worker_does_not_block_writes_to_the_same_file() {
    let environment = [("SOFTDOCA_COPY_TIMEOUT_MS", "60000")];
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let path = directory.path().join("blocks");
    let flags = format!(
        "--sessions forever --block-size {EXPORTED} --block-count 2 --backing-file {}",
        path.display()
    );
    let target = start_with(&flags, &environment);
    let exporter = Exporter::start();
    let agent = SlowAgent::before(&exporter.export);
    // Ends in the first sector of the last 64 KiB of a block, which is the granule of the locks.
    let end = EXPORTED - (64 << 10) + 20;
    let held = request(IoMessageType::Write, 0, 10, end - 10);
    hold_worker(&target, &exporter, &agent, held);

    let mut client = Client::new(connect_when_free(&target));
    let beside = request(IoMessageType::Write, 0, end + BLOCK, BLOCK);
    assert_eq!(client.io(beside), ErrorCode::SUCCESS);
    let whole_sectors = request(IoMessageType::Write, 0, EXPORTED - BLOCK, BLOCK);
    assert_eq!(client.io(whole_sectors), ErrorCode::SUCCESS);
    let overlapping = request(IoMessageType::Write, 0, end - 1, 1);
    assert_eq!(client.io(overlapping), ErrorCode::IN_USE);
    let same_sector = client.io(request(IoMessageType::Write, 0, end + 100, 10));
    agent.slow_down(false);
    end_after_return(client, target, overlapping);
    let geometry = Geometry {
        block_size: EXPORTED as u32,
        block_count: 2,
    };
    let options = Options {
        io: BackingIo::Direct,
        ..Options::default()
    };
    let content = Content::open(None, geometry).expect("content");
    let expected = if BackingFile::open(&path, content, options).is_ok() {
        ErrorCode::IN_USE
    } else {
        eprintln!("no direct I/O in {directory:?}: sectors are of one byte, and have no locks");
        ErrorCode::SUCCESS
    };
    assert_eq!(same_sector, expected);
}

/// Starts this write in a separate session, and disconnects while the worker waits for the exporter's agent.
fn hold_worker(target: &Target, exporter: &Exporter, agent: &SlowAgent, write: Repr) {
    let (_, region, map) = memory(BLOCK);
    let mut service = target.connect();
    service.request(Payload::QueryStorageRequest);
    let mut held = Client::with_export(service, exporter.export.clone(), 16, (region, map));
    agent.slow_down(true);
    held.send(write);
    // Until the worker is executing the write.
    while !agent.was_asked() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until the abandoned worker has returned and this write is possible, and ends the target.
fn end_after_return(mut client: Client, target: Target, overlapping: Repr) {
    let deadline = Instant::now() + TIMEOUT;
    while client.io(overlapping) != ErrorCode::SUCCESS {
        assert!(Instant::now() < deadline, "the worker does not return");
        std::thread::sleep(Duration::from_millis(10));
    }
    target.signal(Signal::TERM);
    let exit = target.wait();
    exit.failed_with(ErrorCode::CONNECTION_ABORTED);
    let code = ErrorCode::TIME_OUT.name();
    let mut lines = exit.stderr.lines();
    let is_abandoned = lines.any(|line| line.contains("worker 0") && line.contains(&*code));
    assert!(is_abandoned, "{exit:?}");
}

/// A proxy between importers and an exporter's agent that delays replies.
struct SlowAgent {
    is_slow: Arc<AtomicBool>,
    /// `true` once a request has arrived while the agent was slow.
    was_asked: Arc<AtomicBool>,
}

impl SlowAgent {
    /// Delay of each reply. Importers time out after 3 s.
    const DELAY: Duration = Duration::from_secs(2);

    /// Replaces the agent named in this export.
    fn before(export: &[u8]) -> Self {
        let digits: String = export.iter().map(|byte| format!("{byte:02x}")).collect();
        let directory = runtime_directory();
        let is_named = |name: &str| {
            let key = name.strip_prefix("a-")?.strip_suffix(".sock")?;
            digits.contains(key).then(|| directory.join(name))
        };
        let path = std::fs::read_dir(&directory)
            .expect("the runtime directory")
            .find_map(|entry| is_named(entry.expect("an entry").file_name().to_str()?))
            .expect("the exporter's agent");
        let moved = path.with_extension("moved");
        std::fs::rename(&path, &moved).expect("moved");
        let listener = seqpacket();
        let address = SocketAddrUnix::new(&path).expect("an address");
        rustix::net::bind(&listener, &address).expect("bound");
        rustix::net::listen(&listener, 8).expect("listening");
        let is_slow = Arc::new(AtomicBool::new(false));
        let was_asked = Arc::new(AtomicBool::new(false));
        let (slow, asked) = (Arc::clone(&is_slow), Arc::clone(&was_asked));
        std::thread::spawn(move || {
            while let Ok(importer) = rustix::net::accept(&listener) {
                let agent = seqpacket();
                let address = SocketAddrUnix::new(&moved).expect("an address");
                if rustix::net::connect(&agent, &address).is_err() {
                    continue;
                }
                let (slow, asked) = (Arc::clone(&slow), Arc::clone(&asked));
                std::thread::spawn(move || {
                    while pass(&importer, &agent) && {
                        if slow.load(Ordering::Relaxed) {
                            asked.store(true, Ordering::Relaxed);
                            std::thread::sleep(Self::DELAY);
                        }
                        pass(&agent, &importer)
                    } {}
                });
            }
        });
        Self { is_slow, was_asked }
    }

    fn was_asked(&self) -> bool {
        self.was_asked.load(Ordering::Relaxed)
    }

    fn slow_down(&self, is_slow: bool) {
        self.is_slow.store(is_slow, Ordering::Relaxed);
    }
}

fn seqpacket() -> OwnedFd {
    rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket")
}

/// Forwards a message with its descriptors. Returns `false` at the end of the connection.
fn pass(from: &OwnedFd, to: &OwnedFd) -> bool {
    let mut bytes = vec![0; 64 << 10];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(
        from,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut control,
        RecvFlags::empty(),
    );
    let Ok(length @ 1..) = received.map(|message| message.bytes) else {
        return false;
    };
    let descriptors: Vec<OwnedFd> = control
        .drain()
        .flat_map(|part| match part {
            RecvAncillaryMessage::ScmRights(rights) => rights.collect(),
            _ => Vec::new(),
        })
        .collect();
    let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !borrowed.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&borrowed));
    }
    let message = [IoSlice::new(&bytes[..length])];
    rustix::net::sendmsg(to, &message, &mut control, SendFlags::NOSIGNAL).is_ok()
}

/// Connects, with retries while the target serves another client.
fn connect_when_free(target: &Target) -> Service {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        assert!(Instant::now() < deadline, "the target stays busy");
        let mut service = target.connect();
        std::thread::sleep(Duration::from_millis(50));
        if !service.has_answer() {
            return service;
        }
        service.receive();
    }
}

/// softdoca's runtime directory of this process and its children.
fn runtime_directory() -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    match (
        variable("SOFTDOCA_RUNTIME_DIR"),
        variable("XDG_RUNTIME_DIR"),
    ) {
        (Some(path), _) => path.into(),
        (None, Some(path)) => PathBuf::from(path).join("softdoca"),
        (None, None) => format!("/tmp/softdoca-{}", rustix::process::geteuid().as_raw()).into(),
    }
}

/// Builds a message; `fill` sets its bytes.
fn message(fill: impl FnOnce(&mut [u8; io_message::SIZE])) -> [u8; io_message::SIZE] {
    let mut bytes = [0; io_message::SIZE];
    fill(&mut bytes);
    bytes
}

/// The bytes are built by hand from the documented layout.
#[test]
fn service_of_3_0_gets_answers_of_3_0() {
    let (target, _file) = target_with_content();
    let mut client = Client::of_release(target.connect(), Release::V3_0);
    let begin = client.memory_address();
    // Reads a block at offset 0 to memory offset 4096, with correlation id 0x01020304 and nonzero bytes outside the
    // fields.
    let request = |address: u64| {
        message(|bytes| {
            bytes.fill(0xee);
            bytes[..8].copy_from_slice(&[0, 0, 0, 1, 1, 2, 3, 4]);
            bytes[8..16].copy_from_slice(&7u64.to_be_bytes());
            bytes[16..20].fill(0);
            bytes[20..24].copy_from_slice(&4096u32.to_be_bytes());
            bytes[24..32].copy_from_slice(&address.to_be_bytes());
            bytes[32..36].copy_from_slice(&4096u32.to_be_bytes());
        })
    };
    let answer = |address: u64, result: ErrorCode| {
        message(|bytes| {
            bytes.copy_from_slice(&request(address));
            bytes[3] = 0;
            bytes[16..20].copy_from_slice(&result.0.to_be_bytes());
            bytes[36..].fill(0);
        })
    };
    assert_eq!(
        client.exchange_bytes(&request(begin)),
        answer(begin, ErrorCode::SUCCESS)
    );
    let mut bytes = vec![0; BLOCK * 2];
    client.memory.read(0, &mut bytes).expect("read");
    assert_eq!(bytes[..BLOCK], [0; BLOCK]);
    assert_eq!(bytes[BLOCK..], content()[..BLOCK]);
    for address in [begin - 1, begin + 1, 0] {
        assert_eq!(
            client.exchange_bytes(&request(address)),
            answer(address, ErrorCode::INVALID_VALUE)
        );
    }
    assert_eq!(client.stop(target).status.code(), Some(0));
}

#[test]
fn service_of_3_1_gets_its_correlation_id() {
    let mut file = tempfile::NamedTempFile::new().expect("temporary file");
    file.write_all(&content()).expect("written");
    let target = start(&format!(
        "--block-count {BLOCKS} --protocol 3.1 --binary-content {}",
        file.path().display()
    ));
    let mut client = Client::of_release(target.connect(), Release::V3_1);
    let mut bytes = request(IoMessageType::Read, BLOCK, 2 * BLOCK, BLOCK).to_bytes();
    bytes[4..8].copy_from_slice(&[1, 2, 3, 4]);
    let mut expected = bytes;
    expected[3] = 0;
    assert_eq!(client.exchange_bytes(&bytes), expected);
    let mut read = vec![0; BLOCK];
    client.memory.read(BLOCK, &mut read).expect("read");
    assert_eq!(read, content()[2 * BLOCK..3 * BLOCK]);
    assert_eq!(client.stop(target).status.code(), Some(0));
}
