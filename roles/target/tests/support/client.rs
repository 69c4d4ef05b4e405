//! A service with one worker and one transaction, and the memory of its client.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use doca::{
    Access, Buf, BufInventory, Completion, Device, ErrorCode, Event, MemoryRegion, Mmap, Pe, Rdma,
    RdmaConnection, Task,
};
use wire::control::{InitStorage, Payload, RdmaConnectionDetails, RdmaConnectionRole};
use wire::io_message::{self, IoMessage, IoMessageType, Repr};
use wire::release::Release;

use super::{Exit, Service, TIMEOUT, Target};

/// Size of a block.
pub const BLOCK: usize = 4096;
/// Tokens of the two tasks.
const SEND: u64 = 1;
const RECEIVE: u64 = 2;

pub fn access() -> Access {
    Access::LOCAL_READ_WRITE | Access::RDMA_READ | Access::RDMA_WRITE
}

/// Memory that a target may read and write.
pub fn memory(length: usize) -> (Device, Arc<MemoryRegion>, Mmap) {
    let device = Device::open("03:00.0").expect("device");
    let memory = MemoryRegion::new(length).expect("memory");
    let map = Mmap::register(&device, memory.clone(), access()).expect("map");
    (device, memory, map)
}

/// A service with one worker and one transaction. Fields are in drop order.
pub struct Client {
    send: Task,
    receive: Task,
    request: Buf,
    result: Buf,
    _control: (Rdma, RdmaConnection),
    _data: (Rdma, RdmaConnection),
    pe: Pe,
    /// The target reads and writes this memory.
    pub memory: Arc<MemoryRegion>,
    memory_map: Mmap,
    pub service: Service,
}

impl Client {
    pub fn new(service: Service) -> Self {
        Self::with(service, BLOCK * 2, Payload::QueryStorageRequest).0
    }

    /// Creates a client with this much memory, after this query; returns it with the response.
    pub fn with(mut service: Service, memory_size: usize, query: Payload) -> (Self, Payload) {
        let (device, memory, memory_map) = memory(memory_size);
        let export = Bytes::from(memory_map.export_rdma(&device).expect("export"));
        let described = service.request(query);
        let client = Self::with_export(service, export, 2, (memory, memory_map));
        (client, described)
    }

    /// Creates a client of another release, after a query.
    pub fn of_release(mut service: Service, release: Release) -> Self {
        let (device, memory, memory_map) = memory(BLOCK * 2);
        let export = Bytes::from(memory_map.export_rdma(&device).expect("export"));
        service.request(Payload::QueryStorageRequest);
        Self::with_init(service, init(export, 2), release, (memory, memory_map))
    }

    /// Creates a client whose memory is that of this export, after the query.
    pub fn with_export(
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

    /// Address of the memory.
    pub fn memory_address(&self) -> u64 {
        self.memory_map.base_address()
    }

    /// Sends these bytes as a request and returns the response.
    pub fn exchange(&mut self, request: &[u8]) -> Repr {
        let bytes = self.exchange_bytes(request);
        assert_eq!(bytes[40..], [0; 24], "zeros where there is no field");
        assert_eq!(bytes[4..8], [0; 4], "zeros where there is no field");
        let answer = Repr::parse(&IoMessage::new_unchecked_len(&bytes)).expect("an answer");
        assert_eq!(answer.message_type, IoMessageType::Result);
        answer
    }

    /// Sends these bytes as a request and returns the bytes of the response.
    pub fn exchange_bytes(&mut self, request: &[u8]) -> [u8; io_message::SIZE] {
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

    /// Sends this request and does not wait for its response.
    pub fn send(&mut self, request: Repr) {
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

    pub fn io(&mut self, request: Repr) -> ErrorCode {
        let answer = self.exchange(&request.to_bytes());
        assert_eq!(
            answer,
            request.answer(answer.result),
            "the answer repeats the request"
        );
        ErrorCode(answer.result)
    }

    pub fn stop(mut self, target: Target) -> Exit {
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

pub fn request(
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
