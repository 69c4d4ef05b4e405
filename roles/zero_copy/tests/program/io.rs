//! The service as a process, with I/O: this test is both initiator and target.

use std::collections::VecDeque;
use std::time::Instant;

use crate::support::{TIMEOUT, World};
use bytes::Bytes;
use doca::{
    Access, Buf, BufInventory, Completion, Consumer, CtxState, Device, ErrorCode, Event,
    MemoryRegion, Mmap, Pe, Producer, Rdma, RdmaConnection, Task,
};
use role_common::control::{ChannelEvent, ControlChannel as _};
use wire::control::{
    InitStorage, Payload, RdmaConnectionDetails, RdmaConnectionRole, StorageDetails,
};
use wire::io_message::{self, IoMessage, IoMessageType, Repr};

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
    // More often than there are buffers.
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
    // More often than there are buffers.
    for _ in 0..TRANSACTIONS * 5 {
        deployment.target.send(&stray.answer(0).to_bytes());
        // While it answers these itself, it handles messages of the target.
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
    service.signal(rustix::process::Signal::INT);
    let exit = service.wait();
    let said = exit
        .stderr
        .matches("a result that nobody waits for")
        .count();
    assert_eq!(said, 1, "{exit:?}");
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

    // And it forwards shutdown once the initiator's consumers have expired.
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
    assert_eq!(exit.status.code(), Some(0), "{exit:?}");
    assert!(exit.stdout.contains("| Operation count: 1\n"), "{exit:?}");
    drop((target, _rdma, _memory));
}

#[test]
fn missing_result_of_the_target_ends_the_service() {
    let mut deployment = Deployment::new();
    deployment.initiator.send(&READ.to_bytes());
    assert_eq!(deployment.target.receive(), READ.to_bytes());
    deployment.target.send(&READ.to_bytes());
    deployment.world.service.fails_saying("no result");
}
