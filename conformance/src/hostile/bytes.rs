//! Bytes that attackers send.

use bytes::Bytes as Blob;
use wire::control::{
    ErrorResponse, InitStorage, Message, Payload, RdmaConnectionDetails, RdmaConnectionRole,
};

/// Bytes, as data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Bytes {
    /// None.
    Nothing,
    /// These.
    Raw(&'static [u8]),
    /// So many of this value.
    Repeated(u8, usize),
    /// So many, which are the same in every run.
    Random(usize),
    /// A frame header with any length and type, and nothing behind it.
    Header {
        len: u32,
        kind: u32,
    },
    /// A frame of this type with so many bytes of payload.
    Frame {
        kind: u32,
        payload: usize,
    },
    Query,
    /// An init with these counts and a blob of so many zeros.
    Init {
        transactions: u32,
        cores: u32,
        blob: usize,
    },
    /// A create of an RDMA connection for this worker, with a blob of so many zeros.
    Create {
        index: u32,
        blob: usize,
    },
    Start,
    Stop,
    Shutdown,
    /// An error response without a request.
    Error,
    /// One after the other.
    All(&'static [Bytes]),
}

impl Bytes {
    pub(super) fn make(&self) -> Vec<u8> {
        let message = |payload| {
            let (message_id, correlation_id) = (1, 1);
            Message {
                message_id,
                correlation_id,
                payload,
            }
            .encode_to_vec()
        };
        let zeros = |len: usize| Blob::from(vec![0; len]);
        match self {
            Self::Nothing => Vec::new(),
            Self::Raw(bytes) => bytes.to_vec(),
            Self::Repeated(value, count) => vec![*value; *count],
            Self::Random(count) => {
                let mut rng = fastrand::Rng::with_seed(*count as u64);
                std::iter::repeat_with(|| rng.u8(..)).take(*count).collect()
            }
            Self::Header { len, kind } => header(*len, *kind),
            Self::Frame { kind, payload } => {
                let mut bytes = header(*payload as u32 + 12, *kind);
                bytes.extend([1_u32.to_be_bytes(); 2].concat());
                bytes.resize(bytes.len() + payload, 0);
                bytes
            }
            Self::Query => message(Payload::QueryStorageRequest),
            Self::Init {
                transactions,
                cores,
                blob,
            } => message(Payload::InitStorageRequest(InitStorage {
                transaction_count: *transactions,
                core_count: *cores,
                mmap_export_blob: zeros(*blob),
            })),
            Self::Create { index, blob } => {
                let details = RdmaConnectionDetails {
                    context_index: *index,
                    role: RdmaConnectionRole::IoData,
                    connection_details: zeros(*blob),
                };
                message(Payload::CreateRdmaConnectionRequest(details))
            }
            Self::Start => message(Payload::StartStorageRequest),
            Self::Stop => message(Payload::StopStorageRequest),
            Self::Shutdown => message(Payload::ShutdownRequest),
            Self::Error => message(Payload::ErrorResponse(ErrorResponse {
                error_code: 17,
                message: "no reason".to_owned(),
            })),
            Self::All(parts) => parts.iter().flat_map(Self::make).collect(),
        }
    }
}

/// Length and type of a control frame.
fn header(len: u32, kind: u32) -> Vec<u8> {
    [len.to_be_bytes(), kind.to_be_bytes()].concat()
}
