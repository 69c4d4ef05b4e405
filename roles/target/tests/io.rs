//! The target as a process, with I/O: this test is the service and the service's client.

mod support;

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use doca::{
    Access, Buf, BufInventory, Completion, Device, ErrorCode, Event, MemoryRegion, Mmap, Pe, Rdma,
    RdmaConnection, Task,
};
use support::{PATIENCE, Service, Target, start};
use wire::control::{InitStorage, Payload, RdmaConnectionDetails, RdmaConnectionRole};
use wire::io_message::{self, IoMessage, IoMessageType, Repr};

const BLOCK: usize = 4096;
const BLOCKS: usize = 4;

/// Tokens of the two tasks.
const SEND: u64 = 1;
const RECEIVE: u64 = 2;

/// A service with one worker and one transaction. Fields are in the order in which they are dropped.
struct Client {
    send: Task,
    receive: Task,
    request: Buf,
    result: Buf,
    _control: (Rdma, RdmaConnection),
    _data: (Rdma, RdmaConnection),
    pe: Pe,
    /// What the target reads and writes.
    memory: Arc<MemoryRegion>,
    _memory_map: Mmap,
    service: Service,
}

impl Client {
    fn new(mut service: Service) -> Self {
        let device = Device::open("03:00.0").expect("device");
        let access = Access::LOCAL_READ_WRITE | Access::RDMA_READ | Access::RDMA_WRITE;
        let memory = MemoryRegion::new(BLOCK * 2).expect("memory");
        let memory_map = Mmap::register(&device, memory.clone(), access).expect("map");
        let mmap_export_blob = Bytes::from(memory_map.export_rdma(&device).expect("export"));
        assert!(matches!(
            service.request(Payload::QueryStorageRequest),
            Payload::QueryStorageResponse(_)
        ));
        let init = InitStorage {
            transaction_count: 2,
            core_count: 1,
            mmap_export_blob,
        };
        assert_eq!(
            service.request(Payload::InitStorageRequest(init)),
            Payload::InitStorageResponse
        );

        let pe = Pe::new().expect("progress engine");
        let mut endpoint = |role, tasks| {
            let builder = Rdma::builder(&device).permissions(access);
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
            _memory_map: memory_map,
            service,
        }
    }

    /// Sends these bytes as a request and returns the answer.
    fn exchange(&mut self, request: &[u8]) -> Repr {
        self.result.reset_data().expect("reset");
        self.receive.submit().expect("receive");
        self.request.write_data(request).expect("request");
        self.send.submit().expect("send");
        let deadline = Instant::now() + PATIENCE;
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
        assert_eq!(bytes[40..], [0; 24], "zeros where there is no field");
        let answer = Repr::parse(&IoMessage::new_unchecked_len(&bytes)).expect("an answer");
        assert_eq!(answer.message_type, IoMessageType::Result);
        answer
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

    fn stop(mut self, target: Target) -> support::Exit {
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

    // Block 2 to the second half of our memory.
    assert_eq!(
        client.io(request(IoMessageType::Read, BLOCK, 2 * BLOCK, BLOCK)),
        ErrorCode::SUCCESS
    );
    let mut bytes = vec![0; BLOCK * 2];
    client.memory.read(0, &mut bytes).expect("read");
    assert_eq!(bytes[..BLOCK], [0; BLOCK]);
    assert_eq!(bytes[BLOCK..], content[2 * BLOCK..3 * BLOCK]);

    // Some bytes in the middle of block 1, and the blocks around them.
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
    assert!(exit.stdout.contains("| Operation count: 3\n"), "{exit:?}");
    assert!(exit.stdout.contains("| PE hit rate: "), "{exit:?}");
}

#[test]
fn bad_requests_get_errors_and_good_ones_still_work() {
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
    assert_eq!(
        exit.stderr.matches("refused an I/O").count(),
        1,
        "not a line per bad I/O: {exit:?}"
    );
}

#[test]
fn a_service_that_dies_during_io_ends_the_target() {
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
fn a_signal_during_io_ends_the_target() {
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
        // With JSON, everything but the document goes to standard error.
        let args = format!(
            "-d 03:00.0 --listen-port 0 --cpu {} --output json",
            support::cpu()
        );
        let mut child = support::command(&args).spawn().expect("started");
        let mut lines = BufReader::new(child.stderr.take().expect("piped"))
            .lines()
            .map_while(Result::ok);
        let port =
            lines.find_map(|line| line.strip_prefix("listening on port ").map(str::to_owned));
        let port: u16 = port.expect("a port").parse().expect("a number");
        // Keep reading, or the target blocks on its logs.
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
