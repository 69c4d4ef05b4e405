//! What only the zero_copy service does.

use wire::io_message::IoMessageType::{Read, Write};
use wire::io_message::Repr;

use super::super::layout::BLOCK;
use super::volume::Volume;
use crate::role::{Bench, Check, Wrong};

pub(super) const CHECKS: [Check; 1] = [Check {
    name: "requests-are-forwarded",
    meaning: "the target gets the initiator's requests as they are: type, user data, size and offsets, good or bad",
    play: forwarded,
}];

fn forwarded(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut volume = Volume::open(bench, &[])?;
    for message_type in [Read, Write] {
        for (user_data, size, requester_offset, storage_offset) in [
            (0, BLOCK as u32, 0, 0),
            (u64::MAX, 512, 3, 5),
            (7, u32::MAX, u64::MAX, 1 << 40),
            (8, 0, 1, 2),
        ] {
            let request = Repr {
                message_type,
                user_data,
                result: 0,
                size,
                requester_offset,
                storage_offset,
            };
            volume.exchange(0, &[request.to_bytes().to_vec()])?;
            let seen = volume.targets[0].session.take_ios();
            Wrong::unless(
                seen == [request],
                format!("{request:?} at the target"),
                format!("{seen:?}"),
            )?;
        }
    }
    volume.finish()
}
