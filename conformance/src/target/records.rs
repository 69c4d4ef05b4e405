//! The superblock of a scripted target.

use bytes::Bytes;
use wire::control::{IdentifiedStorage, IdentityQuery, Payload, RecordState, StorageDetails};

/// The last superblock, and the storage's identity.
#[derive(Debug)]
pub(super) struct Records {
    identity: Bytes,
    kept: IdentityQuery,
    /// Number of superblocks that it still persists.
    left: u32,
}

impl Records {
    /// No superblock yet, and `most` of them, one after the other.
    pub(super) fn new(most: u32) -> Self {
        Self {
            identity: Bytes::copy_from_slice(&fastrand::u128(..).to_be_bytes()),
            kept: IdentityQuery {
                set_high: 0,
                set_low: 0,
                epoch: 0,
                epoch_id: 0,
                next_epoch: 0,
                next_epoch_id: 0,
                member: 0,
                state: RecordState::None,
                flags: 0,
            },
            left: most,
        }
    }

    /// `true` if a request is to stay unanswered: the superblock in any other is persisted by [`answer`](Self::answer).
    pub(super) fn withholds(&mut self, request: &Payload) -> bool {
        match request {
            Payload::IdentifyStorageRequest(query) if query.state != RecordState::None => {
                let withholds = self.left == 0;
                self.left = self.left.saturating_sub(1);
                withholds
            }
            _ => false,
        }
    }

    /// The answer of a storage of this size.
    pub(super) fn answer(&mut self, query: &IdentityQuery, storage: &StorageDetails) -> Payload {
        if query.state != RecordState::None {
            self.kept = query.clone();
        }
        let IdentityQuery {
            set_high,
            set_low,
            epoch,
            epoch_id,
            next_epoch,
            next_epoch_id,
            member,
            state,
            flags,
        } = self.kept;
        Payload::IdentifiedStorageResponse(IdentifiedStorage {
            total_size: storage.total_size,
            block_size: storage.block_size,
            set_high,
            set_low,
            epoch,
            epoch_id,
            next_epoch,
            next_epoch_id,
            member,
            state,
            flags,
            identity: self.identity.clone(),
        })
    }
}
