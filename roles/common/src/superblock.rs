//! Errors of superblocks, as failures that answer a peer.

use control::Failure;
use doca::ErrorCode;
use role_formats::superblock::{FormError, NoRandomNumber};
use role_formats::superblocks::NotPersisted;

pub fn malformed(error: FormError) -> Failure {
    Failure::invalid(format!("superblock: {error}"))
}

pub fn no_random_number(error: NoRandomNumber) -> Failure {
    Failure::new(ErrorCode::OPERATING_SYSTEM, error.to_string())
}

pub(crate) fn not_persisted(error: NotPersisted) -> Failure {
    match error {
        NotPersisted::Form(error) => malformed(error),
        NotPersisted::Refused(error) => error.into(),
        NotPersisted::Other => Failure::unexpected(error.to_string()),
    }
}
