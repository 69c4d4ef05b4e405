use doca::ErrorCode;
use role_common::service::session::Event;

use super::*;

mod layout;
mod loss;
mod world;

use std::time::Duration;

use bytes::Bytes;
use role_common::control::ChannelEvent;
use wire::control::{InitStorage, MessageType, Payload};
use world::{Script, World};

fn init(core_count: u32, transaction_count: u32) -> Payload {
    let mmap_export_blob = Bytes::from_static(b"host memory");
    Payload::InitStorageRequest(InitStorage {
        transaction_count,
        core_count,
        mmap_export_blob,
    })
}

#[test]
fn a_session_with_three_targets_from_query_to_shutdown() {
    let mut world = World::new();
    let doubled = StorageDetails {
        total_size: 8192,
        block_size: 1024,
    };
    assert_eq!(
        world.request(Payload::QueryStorageRequest),
        Some(Payload::QueryStorageResponse(doubled))
    );
    assert_eq!(
        world.request(init(1, 64)),
        Some(Payload::InitStorageResponse)
    );
    // Each target is given memory of the service, not the initiator's, and has both connections.
    for target in 0..3 {
        let jobs = world.target_jobs(target);
        assert!(jobs[0].contains("transaction_count: 128"), "{jobs:?}");
        assert!(jobs[0].contains("b\"service memory\""), "{jobs:?}");
        assert!(
            jobs[1].contains("IoData") && jobs[2].contains("IoControl"),
            "{jobs:?}"
        );
        assert!(
            jobs[1].contains(&format!("b\"service end for {target}\"")),
            "{jobs:?}"
        );
    }
    let own: Vec<&str> = world
        .jobs
        .iter()
        .map(|job| job.split([' ', '(']).next().expect("name"))
        .collect();
    let connection = [
        "Export", "Export", "Export", "Connect", "Connect", "Connect",
    ];
    let expected = [
        &["PrepareMemory", "CreateWorker"][..],
        &connection,
        &connection,
    ]
    .concat();
    assert_eq!(own, expected, "all exports before the first connect");

    world.client(ChannelEvent::ConsumerAdded(11));
    assert_eq!(
        world.request(Payload::StartStorageRequest),
        Some(Payload::StartStorageResponse)
    );
    assert_eq!(
        world.request(Payload::StopStorageRequest),
        Some(Payload::StopStorageResponse)
    );
    world.client(ChannelEvent::ConsumerExpired(11));
    assert_eq!(
        world.request(Payload::ShutdownRequest),
        Some(Payload::ShutdownResponse)
    );
    assert_eq!(world.end, Some(Ok(())));
    assert!(
        world
            .sent
            .iter()
            .all(|(_, message)| message.correlation_id == 77)
    );
    let mut ids: Vec<u32> = world
        .sent
        .iter()
        .map(|(_, message)| message.message_id)
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(
        ids.len(),
        3 * 7,
        "own message ids for all requests to all targets"
    );
}

#[test]
fn targets_that_do_not_fit_are_named_in_the_answer() {
    let mut world = World::new();
    world.storage[2].total_size = 2048;
    let error = world.error(Payload::QueryStorageRequest);
    assert_eq!(error.error_code, ErrorCode::BAD_STATE.0);
    let expected = "Mismatch in capacity: 4096 vs 2048";
    assert!(error.message.starts_with(expected), "{}", error.message);
    assert!(error.message.contains("data_p"), "{}", error.message);

    let mut world = World::new();
    world.storage[1].block_size = 256;
    let error = world.error(Payload::QueryStorageRequest);
    let expected = "Mismatch in block_size: 512 vs 256";
    assert!(error.message.starts_with(expected), "{}", error.message);
    assert!(error.message.contains("data_2"), "{}", error.message);
    assert_eq!(world.ended_with().code, ErrorCode::BAD_STATE);
}

#[test]
fn one_target_that_is_silent_is_named_by_the_timeout() {
    let mut world = World::new();
    world.script = Script::Silent(1);
    assert_eq!(world.request(Payload::QueryStorageRequest), None);
    assert_eq!(
        world.service.waiting_for(),
        "the query_storage_response of the storage target data_2"
    );
    world
        .service
        .handle(Event::Timeout, world.now + Duration::from_secs(5));
    world.run();
    let Some(Payload::ErrorResponse(error)) = world.answer() else {
        panic!("expected an error")
    };
    assert_eq!(error.error_code, ErrorCode::TIME_OUT.0);
    assert!(error.message.contains("data_2"), "{}", error.message);
}

#[test]
fn what_one_target_refuses_is_told_with_its_name() {
    for (target, name) in Striped::TARGETS.iter().enumerate() {
        let mut world = World::new();
        world.request(Payload::QueryStorageRequest);
        world.script = Script::Refuses(target);
        let error = world.error(init(1, 1));
        assert_eq!(error.error_code, ErrorCode::NOT_PERMITTED.0);
        assert!(error.message.contains("not today"), "{}", error.message);
        assert!(world.ended_with().message.contains(name), "{:?}", world.end);
    }
}

#[test]
fn a_target_may_leave_after_its_shutdown_and_not_before() {
    let mut world = World::new();
    world.run_to_stop();
    world.script = Script::Silent(0);
    assert_eq!(world.request(Payload::ShutdownRequest), None);
    world.storage_event(2, ChannelEvent::Closed);
    assert_eq!(world.end, None, "data_p had answered");
    world.storage_event(0, ChannelEvent::Closed);
    assert!(
        world.ended_with().message.contains("data_1 left"),
        "{:?}",
        world.end
    );

    // The last answer makes the service destroy its workers; events of the same moment come before that.
    let mut world = World::new();
    world.run_to_stop();
    world.script = Script::LeavesAtOnce(2);
    assert_eq!(
        world.request(Payload::ShutdownRequest),
        Some(Payload::ShutdownResponse)
    );
    assert_eq!(world.end, Some(Ok(())));

    let mut world = World::new();
    world.request(Payload::QueryStorageRequest);
    world.storage_event(1, ChannelEvent::Closed);
    assert!(
        world.ended_with().message.contains("data_2 left"),
        "{:?}",
        world.end
    );
}

#[test]
fn an_answer_with_another_targets_id_is_refused() {
    let mut world = World::new();
    world.script = Script::Silent(0);
    world.request(Payload::QueryStorageRequest);
    let (_, asked) = &world.sent[2];
    let answer = asked.response(Payload::QueryStorageResponse(world.storage[2].clone()));
    world.storage_event(0, ChannelEvent::Message(answer));
    let failure = world.ended_with();
    assert_eq!(failure.code, ErrorCode::UNEXPECTED);
    assert!(failure.message.contains("data_1"), "{failure}");
    assert!(
        failure
            .message
            .contains(&MessageType::QueryStorageResponse.to_string())
    );
}
