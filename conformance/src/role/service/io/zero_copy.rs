//! What only the zero_copy service does.

use wire::control::FEATURE_FLUSH;
use wire::io_message::IoMessageType::{Flush, Read, Write, WriteFua};
use wire::io_message::Repr;

use super::super::layout::BLOCK;
use super::volume::{Volume, contents, holding};
use crate::role::{Bench, Check, Wrong};

pub(super) const CHECKS: [Check; 2] = [
    Check {
        name: "requests-are-forwarded",
        meaning: "the target gets the initiator's requests as they are: type, user data, size and offsets, good or bad",
        play: forwarded,
    },
    Check {
        name: "flush-is-forwarded",
        meaning: "flushes and durable writes reach the target when both sides have announced them, and are refused when one has not; the reference does not",
        play: flush_forwarded,
    },
];

fn flush_forwarded(bench: &Bench<'_>) -> Result<(), Wrong> {
    for (initiator, target) in [
        (FEATURE_FLUSH, FEATURE_FLUSH),
        (FEATURE_FLUSH, 0),
        (0, FEATURE_FLUSH),
    ] {
        let mut scripts = holding(bench, &contents(1), true);
        scripts[0].features = target;
        let mut volume = Volume::announcing(bench, &[], &scripts, 1, initiator)?;
        for (message_type, size) in [(Flush, 0), (WriteFua, BLOCK as u32), (Read, BLOCK as u32)] {
            let code = volume.io_at(message_type, size, 0, 0)?;
            let is_known = message_type == Read || initiator & target != 0;
            let seen = volume.targets[0].session.take_ios();
            let what = format!("{message_type:?}, announced {initiator} and {target}");
            Wrong::unless(
                (code == 0) == is_known,
                format!("{what}: success is {is_known}"),
                format!("result {code}"),
            )?;
            let types: Vec<_> = seen.iter().map(|io| io.message_type).collect();
            let expected = if is_known {
                vec![message_type]
            } else {
                Vec::new()
            };
            Wrong::unless(
                types == expected,
                format!("{what}: {expected:?} at the target"),
                format!("{types:?}"),
            )?;
        }
        volume.finish()?;
    }
    Ok(())
}

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
