//! Sessions that go on without a target.

use role_common::service::session::Event;

use super::*;

/// A session that serves I/Os.
fn serving() -> World {
    let mut world = World::new();
    world.request(Payload::QueryStorageRequest);
    world.request(init(1, 1));
    world.client(ChannelEvent::ConsumerAdded(11));
    world.request(Payload::StartStorageRequest);
    world
}

fn lose(world: &mut World, target: usize) {
    assert!(world.service.may_lose(target));
    world.service.handle(Event::Lost { target }, world.now);
    world.run();
    assert!(world.service.is_without(target) && !world.service.may_lose(target));
}

#[test]
fn who_is_lost_is_asked_nothing_and_owes_nothing() {
    for lost in 0..3 {
        let mut world = serving();
        lose(&mut world, lost);
        let before = world.sent.len();
        world.storage_event(lost, ChannelEvent::Closed);
        let stopped = world.request(Payload::StopStorageRequest);
        assert_eq!(stopped, Some(Payload::StopStorageResponse));
        world.client(ChannelEvent::ConsumerExpired(11));
        let shut_down = world.request(Payload::ShutdownRequest);
        assert_eq!(shut_down, Some(Payload::ShutdownResponse));
        assert_eq!(world.end, Some(Ok(())));
        let asked: Vec<usize> = world.sent[before..]
            .iter()
            .map(|(target, _)| *target)
            .collect();
        let others: Vec<usize> = (0..3).filter(|&target| target != lost).collect();
        assert_eq!(asked, [&others[..], &others].concat());
    }
}

#[test]
fn all_may_be_lost_and_the_initiator_is_served_to_the_end() {
    let mut world = serving();
    (0..3).for_each(|target| lose(&mut world, target));
    let stopped = world.request(Payload::StopStorageRequest);
    assert_eq!(stopped, Some(Payload::StopStorageResponse));
}

#[test]
fn who_is_lost_while_it_owes_an_answer_is_waited_for_no_longer() {
    for stage in [Payload::StopStorageRequest, Payload::ShutdownRequest] {
        let mut world = serving();
        if stage == Payload::ShutdownRequest {
            world.request(Payload::StopStorageRequest);
            world.client(ChannelEvent::ConsumerExpired(11));
        }
        world.script = Script::Silent(1);
        assert_eq!(world.request(stage), None);
        lose(&mut world, 1);
        assert!(world.answer().is_some());
    }
}

#[test]
fn before_io_is_served_and_after_the_end_nobody_may_be_lost() {
    let mut world = World::new();
    assert!(!world.service.may_lose(0));
    world.request(Payload::QueryStorageRequest);
    world.request(init(1, 1));
    assert!(!world.service.may_lose(0));
    world.service.handle(Event::Lost { target: 0 }, world.now);
    assert!(!world.service.is_without(0));

    let mut world = World::new();
    world.run_to_stop();
    world.request(Payload::ShutdownRequest);
    assert!(!world.service.may_lose(0));
}

#[test]
fn who_leaves_after_its_shutdown_was_not_lost() {
    let mut world = World::new();
    world.run_to_stop();
    world.script = Script::Silent(0);
    world.request(Payload::ShutdownRequest);
    assert!(world.service.may_lose(0) && !world.service.may_lose(1));
}

#[test]
fn targets_are_asked_who_they_are_where_somebody_wants_to_know() {
    let mut plain = World::new();
    plain.request(Payload::QueryStorageRequest);
    assert!(
        plain
            .sent
            .iter()
            .all(|(_, message)| message.payload == Payload::QueryStorageRequest)
    );

    // These targets have never heard of identities.
    let mut world = World::new();
    world.service.maintain_superblocks();
    let answer = world.request(Payload::QueryStorageRequest);
    assert!(matches!(answer, Some(Payload::QueryStorageResponse(_))));
    let asked = |message: &wire::control::Message| {
        matches!(message.payload, Payload::IdentifyStorageRequest(_))
    };
    assert!(world.sent.len() == 3 && world.sent.iter().all(|(_, message)| asked(message)));
    world.request(init(1, 1));
    world.client(ChannelEvent::ConsumerAdded(11));
    world.request(Payload::StartStorageRequest);
    assert_eq!(world.service.place(1), None, "it is there");
    lose(&mut world, 1);
    let place = world.service.place(1).expect("it may come back");
    assert_eq!(place.target, 1);
    let (init, _) = place.init.as_init_storage().expect("an init request");
    assert_eq!(init.transaction_count, 2);
    let identity = None;
    world.service.handle(
        Event::Rejoined {
            target: 1,
            identity,
        },
        world.now,
    );
    assert!(world.service.may_lose(1));
    lose(&mut world, 1);
    world.request(Payload::StopStorageRequest);
    assert_eq!(world.service.place(1), None, "not while all is stopped");
}
