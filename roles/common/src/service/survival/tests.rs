use bytes::Bytes;
use wire::control::{IdentifiedStorage, RecordState};

use super::*;
use crate::superblock::{Epoch, SetId};

const TIMEOUT: Duration = Duration::from_secs(5);

fn superblock(number: u64) -> Option<Superblock> {
    Some(Superblock {
        set: SetId(1),
        member: 0,
        epoch: Epoch { number, id: 3 },
        next: Epoch::NONE,
        state: RecordState::InUse,
        checksums: false,
    })
}

/// The response of a target that persists the superblock in the request.
fn persists(request: &Message) -> Message {
    let Payload::IdentifyStorageRequest(query) = &request.payload else {
        panic!("{request:?}")
    };
    request.response(Payload::IdentifiedStorageResponse(IdentifiedStorage {
        total_size: 1,
        block_size: 1,
        set_high: query.set_high,
        set_low: query.set_low,
        epoch: query.epoch,
        epoch_id: query.epoch_id,
        next_epoch: query.next_epoch,
        next_epoch_id: query.next_epoch_id,
        member: query.member,
        state: query.state,
        flags: query.flags,
        identity: Bytes::from_static(b"it"),
    }))
}

#[test]
fn superblock_is_sent_once_per_change() {
    let now = Instant::now();
    let mut superblocks = Superblocks::new(2, TIMEOUT);
    assert_eq!(superblocks.request(now, 0, None), None);
    assert!(superblocks.is_persisted(0, None) && !superblocks.is_persisted(0, superblock(1)));
    let first = superblocks
        .request(now, 0, superblock(1))
        .expect("a request");
    assert_eq!(superblocks.request(now, 0, superblock(1)), None);
    assert_eq!(
        superblocks.request(now, 0, superblock(2)),
        None,
        "one at a time"
    );
    assert!(
        superblocks.answer(now, 1, &persists(&first)).is_none(),
        "another target"
    );
    assert_eq!(
        superblocks.answer(now, 0, &persists(&first)),
        superblock(1).map(Ok)
    );
    assert!(
        superblocks.answer(now, 0, &persists(&first)).is_none(),
        "twice"
    );
    assert!(
        superblocks.is_persisted(0, superblock(1)) && !superblocks.is_persisted(0, superblock(2))
    );
    let second = superblocks
        .request(now, 0, superblock(2))
        .expect("a request");
    assert_ne!(first.message_id, second.message_id);
    superblocks.answer(now, 0, &persists(&second));
    assert_eq!(superblocks.request(now, 0, superblock(2)), None);
    superblocks.forget(0);
    assert!(superblocks.request(now, 0, superblock(2)).is_some());
}

#[test]
fn answers_to_the_session_are_not_consumed() {
    let now = Instant::now();
    let mut superblocks = Superblocks::new(1, TIMEOUT);
    let mut ids = MessageIds::default();
    let request = superblocks.request(now, 0, superblock(1));
    let of_session = ids.request(0, Payload::StopStorageRequest);
    let response = of_session.response(Payload::StopStorageResponse);
    assert!(superblocks.answer(now, 0, &response).is_none());
    assert_ne!(
        request.expect("a request").message_id,
        of_session.message_id
    );
}

#[test]
fn wrong_and_late_answers_are_reported() {
    let now = Instant::now();
    let mut superblocks = Superblocks::new(1, TIMEOUT);
    let request = superblocks
        .request(now, 0, superblock(1))
        .expect("a request");
    let mut answer = persists(&request);
    if let Payload::IdentifiedStorageResponse(storage) = &mut answer.payload {
        storage.epoch += 1;
    }
    let answered = superblocks.answer(now, 0, &answer).expect("an answer");
    assert!(answered.is_err() && !superblocks.is_persisted(0, superblock(1)));
    superblocks
        .request(now, 0, superblock(1))
        .expect("a request");
    assert_eq!(superblocks.deadline(), Some(now + TIMEOUT));
    assert_eq!(superblocks.late(now), None);
    let (target, failure) = superblocks.late(now + TIMEOUT).expect("it is late");
    assert!(
        target == 0 && failure.message.contains("superblock"),
        "{failure}"
    );
}

#[test]
fn wait_for_a_state_times_out_after_the_last_progress() {
    let now = Instant::now();
    let mut superblocks = Superblocks::new(1, TIMEOUT);
    assert_eq!(superblocks.deadline(), None);
    superblocks.await_state(now);
    let request = superblocks
        .request(now, 0, superblock(1))
        .expect("a request");
    let later = now + TIMEOUT;
    assert_eq!(superblocks.deadline(), Some(later));
    // Kept although it is late.
    superblocks.renew(later, 0);
    assert_eq!(superblocks.late(later), None);
    superblocks.answer(later, 0, &persists(&request));
    assert_eq!(superblocks.deadline(), Some(later + 2 * TIMEOUT));
    assert_eq!(superblocks.gives_up(later + TIMEOUT), None);
    assert!(superblocks.gives_up(later + 2 * TIMEOUT).is_some());
    superblocks.reached();
    assert_eq!(superblocks.deadline(), None);
}
