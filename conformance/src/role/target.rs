//! Checks of a storage target with a scripted service, which has the memory of its client.
//!
//! * [`service`]: that service, step by step, and one of its workers.
//! * [`sessions`]: whole sessions, repeated ones, and services that disconnect.
//! * [`frames`]: split, merged and malformed frames, and requests that must be refused.
//! * [`io`]: reads and writes that must succeed or fail, flushes; [`content`]: the initial and the expected contents.
//!
//! [`run_session`] is a client for other checks.

mod content;
mod frames;
mod io;
mod service;
mod sessions;

use std::time::Duration;

use bytes::Bytes;
use doca::Device;
use wire::control::{
    ErrorResponse, InitStorage, Message, Payload, RdmaConnectionDetails, RdmaConnectionRole,
    StorageDetails,
};
use wire::io_message::{self, IoMessage, IoMessageType, Repr};

use super::{Check, Violation};
use deployment::sandbox::DPU_DEVICE;
use io::{read, write};
use service::Service;

/// All checks.
pub(super) fn checks() -> Vec<Check> {
    [
        sessions::CHECKS,
        frames::REFUSAL_CHECKS,
        frames::CHECKS,
        sessions::DEPARTURE_CHECKS,
        io::CHECKS,
        io::REFUSAL_CHECKS,
        content::CHECKS,
        io::FLUSH_CHECKS,
    ]
    .concat()
}

// Steps of a session, and its parameters.

/// Next step of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Query,
    Init,
    Connect,
    Start,
    Stop,
    Shutdown,
    End,
}

impl Step {
    /// All steps with a request.
    const ALL: [Self; 6] = [
        Self::Query,
        Self::Init,
        Self::Connect,
        Self::Start,
        Self::Stop,
        Self::Shutdown,
    ];

    /// Next step.
    fn next(self) -> Self {
        match self {
            Self::Query => Self::Init,
            Self::Init => Self::Connect,
            Self::Connect => Self::Start,
            Self::Start => Self::Stop,
            Self::Stop => Self::Shutdown,
            Self::Shutdown | Self::End => Self::End,
        }
    }
}

/// Parameters of a session.
#[derive(Debug, Clone, Copy)]
struct Plan {
    /// Requested number of workers.
    cores: u32,
    /// Requested number of transactions.
    transactions: u32,
    /// Number of requests in flight per worker.
    depth: usize,
    /// Size in bytes of the memory that the target accesses.
    memory: usize,
}

impl Plan {
    /// One worker, four transactions, 8 KiB.
    const SMALL: Self = Self {
        cores: 1,
        transactions: 4,
        depth: 4,
        memory: 8192,
    };
}

// Complete session of a correct service, as a second client of a target under test.

/// Size of an I/O in bytes.
const SIZE: usize = 4096;
/// Size of the written and read part of the storage in bytes.
const AREA: usize = 16 * SIZE;

/// Connects to the target on `port`, writes `rounds` blocks and reads them back, and disconnects cleanly. Sets
/// `begun` when the query was answered: from then on the session is this client's.
///
/// # Errors
///
/// The target refuses the session, which has not begun then, or does not answer correctly.
pub(crate) fn run_session(
    port: u16,
    rounds: usize,
    timeout: Duration,
    begun: &mut bool,
) -> Result<(), Violation> {
    let device = Device::open(DPU_DEVICE)?;
    let mut service = Service::new(device, port, Plan::SMALL, timeout)?;
    service.go_to(Step::Init)?;
    *begun = true;
    service.go_to(Step::Stop)?;
    for round in 0..rounds {
        let content = vec![fastrand::u8(1..); SIZE];
        let place = ((round * SIZE) % AREA) as u64;
        service.memory.write(0, &content)?;
        succeeds(service.io(0, &write(0, place, SIZE))?)?;
        service.memory.fill(0, SIZE, 0)?;
        succeeds(service.io(0, &read(0, place, SIZE))?)?;
        let mut came = vec![0; SIZE];
        service.memory.read(0, &mut came)?;
        Violation::unless(
            came == content,
            "the block that was written",
            "another content",
        )?;
    }
    service.go_to(Step::End)
}

fn succeeds(code: u32) -> Result<(), Violation> {
    Violation::unless(code == 0, "an I/O to succeed", format!("result {code}"))
}

// Messages of every type, for checks that ignore their contents.

/// Parses a result.
fn parse(bytes: &[u8; io_message::SIZE]) -> Result<Repr, Violation> {
    let result = Repr::parse(&IoMessage::new_unchecked_len(bytes))?;
    Violation::unless(
        result.message_type == IoMessageType::Result,
        "a message of type result",
        result.message_type,
    )?;
    Ok(result)
}

/// A message of every type, in the order of their numbers, with meaningless contents.
fn one_of_each() -> Vec<Payload> {
    let connection = RdmaConnectionDetails {
        context_index: 0,
        role: RdmaConnectionRole::IoData,
        connection_details: Bytes::from_static(b"none"),
    };
    vec![
        Payload::ErrorResponse(ErrorResponse {
            error_code: 18,
            message: "the service has a problem".to_owned(),
        }),
        Payload::QueryStorageRequest,
        Payload::QueryStorageResponse(StorageDetails {
            total_size: 1 << 20,
            block_size: 4096,
        }),
        Payload::InitStorageRequest(InitStorage {
            transaction_count: 1,
            core_count: 1,
            mmap_export_blob: Bytes::from_static(b"none"),
        }),
        Payload::InitStorageResponse,
        Payload::CreateRdmaConnectionRequest(connection.clone()),
        Payload::CreateRdmaConnectionResponse(connection),
        Payload::StartStorageRequest,
        Payload::StartStorageResponse,
        Payload::StopStorageRequest,
        Payload::StopStorageResponse,
        Payload::ShutdownRequest,
        Payload::ShutdownResponse,
    ]
}

/// Returns `true` for an error response with an error code.
fn is_error(payload: &Payload) -> bool {
    matches!(payload, Payload::ErrorResponse(error) if error.error_code != 0)
}

/// Returns `true` if it refuses this request.
fn is_refusal(answer: &Message, request: &Message) -> bool {
    let ids = |message: &Message| (message.message_id, message.correlation_id);
    is_error(&answer.payload) && ids(answer) == ids(request)
}

/// Short description of a payload.
fn describe(payload: &Payload) -> String {
    match payload {
        Payload::ErrorResponse(ErrorResponse {
            error_code,
            message,
        }) => format!("error_response {error_code} ({message})"),
        Payload::CreateRdmaConnectionResponse(RdmaConnectionDetails {
            context_index,
            role,
            ..
        }) => format!("create_rdma_connection_response of context {context_index}, {role}"),
        other => other.message_type().to_string(),
    }
}
