//! What a scripted target keeps of the set that it is a member of.

use bytes::Bytes;
use wire::control::{IdentifiedStorage, IdentityQuery, Payload, RecordState, StorageDetails};

/// The last record, and which storage this is.
#[derive(Debug)]
pub(super) struct Records {
    identity: Bytes,
    kept: IdentityQuery,
    /// So many more are kept.
    left: u32,
}

impl Records {
    /// None yet, and so many at most.
    pub(super) fn new(most: u32) -> Self {
        Self {
            identity: Bytes::copy_from_slice(&fastrand::u128(..).to_be_bytes()),
            kept: IdentityQuery {
                set_high: 0,
                set_low: 0,
                epoch: 0,
                member: 0,
                state: RecordState::None,
            },
            left: most,
        }
    }

    /// Whether a request is not answered. One that is will be kept.
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
            member,
            state,
        } = self.kept;
        Payload::IdentifiedStorageResponse(IdentifiedStorage {
            total_size: storage.total_size,
            block_size: storage.block_size,
            set_high,
            set_low,
            epoch,
            member,
            state,
            identity: self.identity.clone(),
        })
    }
}
