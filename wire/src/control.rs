//! Control messages, which the roles exchange over TCP and over Comch.
//!
//! A frame is a header and a payload; their layout is in [`crate::layout::TABLE`]. Frames are written with
//! [`Message::encode`] and read with [`FrameDecoder`], which accepts partial frames and several frames at a time.
//!
//! Decoding never panics, never reads past the input, and allocates memory only in proportion to the input (blobs share
//! the frame's memory). Unknown types and values, lengths over their limits, and bytes after the last field are
//! refused. Invalid UTF-8 is not refused but replaced by U+FFFD, because texts are for users only: explanations of
//! errors, which must not be lost, and names.

use bytes::{Bytes, BytesMut};

use crate::DecodeError;
use crate::release::Release;

include!(concat!(env!("OUT_DIR"), "/control.rs"));

/// Bit of [`FeatureQuery::features`] and [`AnnouncedStorage::features`] for flush and write_fua messages.
pub const FEATURE_FLUSH: u32 = 1;

/// Bit of [`FeatureQuery::features`] and [`AnnouncedStorage::features`] for write_version, write_version_fua and
/// read_before messages.
pub const FEATURE_VERSIONS: u32 = 2;

/// Bit of [`FeatureQuery::features`] and [`AnnouncedStorage::features`] for verified_init_storage_response.
pub const FEATURE_VERIFIER: u32 = 4;

/// Longest name of the holder of a [`Reservation`], in bytes.
pub const MAX_HOLDER_NAME: usize = 64;

/// Allocates message ids for the requests of one program.
#[derive(Debug, Default)]
pub struct MessageIds {
    next: u32,
}

impl MessageIds {
    /// Ids of superblock requests, disjoint from those that begin with 0 for 2^31 requests.
    #[must_use]
    pub fn for_superblocks() -> Self {
        Self { next: 1 << 31 }
    }

    /// Creates a request with a new id. Ids are not reused within 2^32 requests.
    pub fn request(&mut self, correlation_id: u32, payload: Payload) -> Message {
        let message_id = self.next;
        self.next = self.next.wrapping_add(1);
        Message {
            message_id,
            correlation_id,
            payload,
        }
    }
}

impl IdentityQuery {
    /// Query for a storage's identity and superblock. It contains no superblock to persist.
    pub const WITHOUT_SUPERBLOCK: Self = Self {
        set_high: 0,
        set_low: 0,
        epoch: 0,
        epoch_id: 0,
        next_epoch: 0,
        next_epoch_id: 0,
        member: 0,
        state: RecordState::None,
        format: 0,
        matrix: 0,
        logical_block_size: 0,
    };

    /// The response of a storage that has the superblock of this query.
    #[must_use]
    pub fn answer(&self, storage: &StorageDetails, identity: Bytes) -> IdentifiedStorage {
        IdentifiedStorage {
            total_size: storage.total_size,
            block_size: storage.block_size,
            set_high: self.set_high,
            set_low: self.set_low,
            epoch: self.epoch,
            epoch_id: self.epoch_id,
            next_epoch: self.next_epoch,
            next_epoch_id: self.next_epoch_id,
            member: self.member,
            state: self.state,
            format: self.format,
            matrix: self.matrix,
            logical_block_size: self.logical_block_size,
            identity,
        }
    }
}

impl IdentifiedStorage {
    /// The superblock, as in the query that asks for it to be persisted.
    #[must_use]
    pub fn superblock(&self) -> IdentityQuery {
        IdentityQuery {
            set_high: self.set_high,
            set_low: self.set_low,
            epoch: self.epoch,
            epoch_id: self.epoch_id,
            next_epoch: self.next_epoch,
            next_epoch_id: self.next_epoch_id,
            member: self.member,
            state: self.state,
            format: self.format,
            matrix: self.matrix,
            logical_block_size: self.logical_block_size,
        }
    }
}

impl Payload {
    /// The init_storage_request of a release. Only 3.0 has a batch size.
    #[must_use]
    pub fn init_storage_of(release: Release, init: InitStorage, batch_size: u32) -> Self {
        if release != Release::V3_0 {
            return Self::InitStorageRequest(init);
        }
        let InitStorage {
            transaction_count,
            core_count,
            mmap_export_blob,
        } = init;
        Self::BatchedInitStorageRequest(BatchedInitStorage {
            transaction_count,
            batch_size,
            core_count,
            mmap_export_blob,
        })
    }

    /// The init_storage_request of any release, with its batch size, which only 3.0 has.
    #[must_use]
    pub fn as_init_storage(&self) -> Option<(InitStorage, Option<u32>)> {
        match self {
            Self::InitStorageRequest(init) => Some((init.clone(), None)),
            Self::BatchedInitStorageRequest(init) => {
                let same = InitStorage {
                    transaction_count: init.transaction_count,
                    core_count: init.core_count,
                    mmap_export_blob: init.mmap_export_blob.clone(),
                };
                Some((same, Some(init.batch_size)))
            }
            _ => None,
        }
    }
}

impl Message {
    /// The response to this request: its message id and correlation id with another payload.
    #[must_use]
    pub fn response(&self, payload: Payload) -> Message {
        Message {
            message_id: self.message_id,
            correlation_id: self.correlation_id,
            payload,
        }
    }

    /// The bytes of this message's frame; see [`encode`](Self::encode).
    #[must_use]
    pub fn encode_to_vec(&self) -> Vec<u8> {
        let mut frame = bytes::BytesMut::new();
        self.encode(&mut frame);
        frame.into()
    }
}

/// Collects received bytes, in pieces of any size, and returns the messages in them.
///
/// After each [`push`](Self::push), call [`next`](Self::next) until it returns `None`: then fewer than
/// [`Message::MAX_FRAME_SIZE`] bytes are buffered for any input, because a frame whose length is out of bounds is
/// refused as soon as its length was received.
///
/// Errors are final, because the start of the next frame is unknown: every later call returns the same error, and
/// pushed bytes are dropped.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    buffer: BytesMut,
    failure: Option<DecodeError>,
}

impl FrameDecoder {
    /// A decoder at the start of a frame.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.failure.is_none() {
            self.buffer.extend_from_slice(bytes);
        }
    }

    /// The next complete message, or `None` if more bytes are needed.
    ///
    /// # Errors
    ///
    /// The frame is not valid. No further messages can be read from the channel.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator is over when it returns None; this one continues after the next push"
    )]
    pub fn next(&mut self) -> Result<Option<Message>, DecodeError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let result = self.decode_next();
        if let Err(failure) = &result {
            self.failure = Some(failure.clone());
            self.buffer = BytesMut::new();
        }
        result
    }

    /// Number of buffered bytes of an incomplete frame. If it is not zero when a channel closes, the frame was
    /// truncated.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    fn decode_next(&mut self) -> Result<Option<Message>, DecodeError> {
        match Message::frame_size(&self.buffer)? {
            Some(size) if size <= self.buffer.len() => {
                let frame = self.buffer.split_to(size).freeze();
                Message::decode_frame(&frame).map(Some)
            }
            _ => Ok(None),
        }
    }
}
