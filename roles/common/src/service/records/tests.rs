use bytes::Bytes;
use wire::control::{IdentifiedStorage, RecordState};

use super::*;
use crate::superblock::{Epoch, SetId};

const PATIENCE: Duration = Duration::from_secs(5);

fn record(number: u64) -> Option<Superblock> {
    Some(Superblock {
        set: SetId(1),
        member: 0,
        epoch: Epoch { number, id: 3 },
        next: Epoch::NONE,
        state: RecordState::InUse,
        checksums: false,
    })
}

/// The answer of a target that does as it is asked.
fn obeys(request: &Message) -> Message {
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
fn what_is_wanted_is_asked_for_once_and_again_when_it_changes() {
    let now = Instant::now();
    let mut records = Records::new(2, PATIENCE);
    assert_eq!(records.request(now, 0, None), None);
    assert!(records.is_kept(0, None) && !records.is_kept(0, record(1)));
    let first = records.request(now, 0, record(1)).expect("a request");
    assert_eq!(records.request(now, 0, record(1)), None);
    assert_eq!(records.request(now, 0, record(2)), None, "one at a time");
    assert!(
        records.answer(1, &obeys(&first)).is_none(),
        "another target"
    );
    assert_eq!(records.answer(0, &obeys(&first)), record(1).map(Ok));
    assert!(records.answer(0, &obeys(&first)).is_none(), "twice");
    assert!(records.is_kept(0, record(1)) && !records.is_kept(0, record(2)));
    let second = records.request(now, 0, record(2)).expect("a request");
    assert_ne!(first.message_id, second.message_id);
    records.answer(0, &obeys(&second));
    assert_eq!(records.request(now, 0, record(2)), None);
    records.forget(0);
    assert!(records.request(now, 0, record(2)).is_some());
}

#[test]
fn answers_of_the_session_are_none_of_these() {
    let mut records = Records::new(1, PATIENCE);
    let mut ids = MessageIds::default();
    let request = records.request(Instant::now(), 0, record(1));
    let of_session = ids.request(0, Payload::StopStorageRequest);
    let response = of_session.response(Payload::StopStorageResponse);
    assert!(records.answer(0, &response).is_none());
    assert_ne!(
        request.expect("a request").message_id,
        of_session.message_id
    );
}

#[test]
fn who_keeps_another_one_or_says_nothing_is_told_of() {
    let now = Instant::now();
    let mut records = Records::new(1, PATIENCE);
    let request = records.request(now, 0, record(1)).expect("a request");
    let mut answer = obeys(&request);
    if let Payload::IdentifiedStorageResponse(storage) = &mut answer.payload {
        storage.epoch += 1;
    }
    let kept = records.answer(0, &answer).expect("an answer");
    assert!(kept.is_err() && !records.is_kept(0, record(1)));
    records.request(now, 0, record(1)).expect("a request");
    assert_eq!(records.deadline(), Some(now + PATIENCE));
    assert_eq!(records.late(now), None);
    let (target, failure) = records.late(now + PATIENCE).expect("it is late");
    assert!(
        target == 0 && failure.message.contains("record"),
        "{failure}"
    );
}
