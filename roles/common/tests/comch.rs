//! Comch control channels, both ends in one process.

use std::time::{Duration, Instant};

use doca::{Access, Consumer, Device, ErrorCode, MemoryRegion, Mmap, Pe};
use role_common::control::{
    ChannelEvent, ComchClientChannel, ComchServerChannel, ControlChannel, Waiter,
};
use role_common::shutdown::Shutdown;
use wire::control::{Message, Payload};

const PATIENCE: Duration = Duration::from_secs(20);

fn name(test: &str) -> String {
    format!("role-common-{test}-{}", std::process::id())
}

fn server(name: &str) -> ComchServerChannel {
    let device = Device::open("03:00.0").expect("DPU");
    let representor = device.open_representor("3b:00.0").expect("representor");
    ComchServerChannel::start(&device, &representor, name).expect("server")
}

fn client(name: &str, within: Duration) -> ComchClientChannel {
    let device = Device::open("3b:00.0").expect("host");
    ComchClientChannel::connect(&device, name, within).expect("progress engine")
}

/// The next event of `channel`; the other end goes on meanwhile.
fn next(channel: &mut dyn ControlChannel, other: &mut dyn ControlChannel) -> ChannelEvent {
    let mut waiter = Waiter::new(Shutdown::new().expect("pipe"));
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(event) = channel.poll().expect("a working channel") {
            return event;
        }
        assert!(
            Instant::now() < deadline,
            "nothing from the {}",
            channel.peer()
        );
        // Nothing is due at the other end; polling it makes it do its part.
        assert_eq!(other.poll(), Ok(None));
        waiter.wait(&[channel, other], Some(deadline));
    }
}

fn message(payload: Payload) -> Message {
    Message {
        message_id: 3,
        correlation_id: 4,
        payload,
    }
}

#[test]
fn messages_go_both_ways_and_what_was_sent_last_arrives_before_the_end() {
    let name = name("messages");
    let mut client = client(&name, PATIENCE);
    let request = message(Payload::QueryStorageRequest);
    assert_eq!(
        client.send(&request).expect_err("not connected").code,
        ErrorCode::NOT_CONNECTED
    );
    // The client is first, and tries again until there is a server.
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(250) {
        assert_eq!(client.poll(), Ok(None));
    }
    let mut server = server(&name);
    let mut connected = [false; 2];
    let deadline = Instant::now() + PATIENCE;
    while connected != [true; 2] {
        assert!(Instant::now() < deadline, "not connected: {connected:?}");
        connected[0] |= client.poll().expect("client") == Some(ChannelEvent::Connected);
        connected[1] |= server.poll().expect("server") == Some(ChannelEvent::Connected);
    }
    assert!(client.connection().is_some() && server.connection().is_some());

    client.send(&request).expect("sent");
    assert_eq!(
        next(&mut server, &mut client),
        ChannelEvent::Message(request.clone())
    );
    let answer = request.response(Payload::ShutdownResponse);
    server.send(&answer).expect("sent");
    drop(server);
    let mut other = self::client("nobody", PATIENCE);
    assert_eq!(next(&mut client, &mut other), ChannelEvent::Message(answer));
    assert_eq!(next(&mut client, &mut other), ChannelEvent::Closed);
    client
        .send(&request)
        .expect("no error, but the event again");
    assert_eq!(client.poll(), Ok(Some(ChannelEvent::Closed)));
}

#[test]
fn a_client_does_not_wait_for_its_server_forever() {
    let within = Duration::from_millis(300);
    let mut client = client(&name("absent"), within);
    let start = Instant::now();
    let failure = loop {
        match client.poll() {
            Ok(event) => assert_eq!(event, None),
            Err(failure) => break failure,
        }
        assert!(start.elapsed() < PATIENCE);
    };
    assert!(start.elapsed() >= within);
    assert_eq!(failure.code, ErrorCode::TIME_OUT);
    assert!(failure.message.contains("role-common-absent"), "{failure}");
    assert!(
        failure.message.contains("--command-channel-name"),
        "{failure}"
    );
}

#[test]
fn a_name_that_no_server_can_have_is_not_tried_again() {
    let mut client = client("", PATIENCE);
    let failure = client.poll().expect_err("no name");
    assert_eq!(failure.code, ErrorCode::INVALID_VALUE);
    assert!(failure.message.contains("Comch client \"\""), "{failure}");
}

#[test]
fn a_name_is_taken_once() {
    let name = name("taken");
    let _first = server(&name);
    let device = Device::open("03:00.0").expect("DPU");
    let representor = device.open_representor("3b:00.0").expect("representor");
    let second = ComchServerChannel::start(&device, &representor, &name);
    let failure = second.err().expect("the name is taken");
    assert!(failure.message.contains(&name), "{failure}");
}

/// Connects a client to a server that is free.
fn connect(name: &str, server: &mut ComchServerChannel) -> ComchClientChannel {
    let mut client = client(name, PATIENCE);
    let mut connected = [false; 2];
    let deadline = Instant::now() + PATIENCE;
    while connected != [true; 2] {
        assert!(Instant::now() < deadline, "not connected: {connected:?}");
        connected[0] |= client.poll().expect("client") == Some(ChannelEvent::Connected);
        connected[1] |= server.poll().expect("server") == Some(ChannelEvent::Connected);
    }
    client
}

#[test]
fn one_client_after_the_other_is_served() {
    let name = name("next");
    let mut server = server(&name);
    let mut nobody = client("nobody", PATIENCE);
    // One that leaves by itself.
    let first = connect(&name, &mut server);
    server.next_client(true).expect("free");
    drop(first);
    // One whose end is seen late, when the next is there already.
    let second = connect(&name, &mut server);
    drop(second);
    let mut third = client(&name, PATIENCE);
    assert_eq!(next(&mut server, &mut third), ChannelEvent::Closed);
    server.next_client(false).expect("free");
    let deadline = Instant::now() + PATIENCE;
    let mut is_connected = false;
    while !is_connected || third.connection().is_none() {
        assert!(Instant::now() < deadline, "the third is not connected");
        is_connected |= server.poll().expect("server") == Some(ChannelEvent::Connected);
        if third.connection().is_none() {
            third.poll().expect("client");
        }
    }
    third
        .send(&message(Payload::QueryStorageRequest))
        .expect("sent");
    assert_eq!(
        next(&mut server, &mut nobody),
        ChannelEvent::Message(message(Payload::QueryStorageRequest))
    );
    // One that stays is parted with.
    server.next_client(false).expect("free");
    assert_eq!(next(&mut third, &mut server), ChannelEvent::Closed);
    connect(&name, &mut server);
}

/// The next event of `channel`, of which there must be one. The other ends go on meanwhile; what they hear is told.
fn next_of(
    channel: &mut dyn ControlChannel,
    others: &mut [&mut dyn ControlChannel],
    heard: &mut Vec<ChannelEvent>,
) -> ChannelEvent {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(event) = channel.poll().expect("a working channel") {
            return event;
        }
        let what = channel.peer().to_owned();
        assert!(Instant::now() < deadline, "nothing from the {what}");
        for other in &mut *others {
            heard.extend(other.poll().expect("a working channel"));
        }
    }
}

#[test]
fn a_further_client_is_told_so_and_is_no_part_of_the_session() {
    let name = name("further");
    let mut server = server(&name);
    let mut first = connect(&name, &mut server);
    let mut further = client(&name, PATIENCE);
    assert_eq!(next(&mut further, &mut server), ChannelEvent::Connected);
    let ChannelEvent::Message(refusal) = next(&mut further, &mut server) else {
        panic!("expected to be told");
    };
    let Payload::ErrorResponse(error) = refusal.payload else {
        panic!("{refusal:?}");
    };
    assert_eq!(error.error_code, ErrorCode::IN_USE.0);

    // It stays, talks and starts a consumer. The session hears the first client, and nobody else.
    let (pe, device) = (
        Pe::new().expect("engine"),
        Device::open("3b:00.0").expect("host"),
    );
    let region = MemoryRegion::new(4096).expect("memory");
    let mmap = Mmap::register(&device, region, Access::PCI_READ_WRITE).expect("registered");
    let connection = further.connection().expect("connected");
    let consumer = Consumer::start(&pe, &connection, &mmap, 1).expect("a consumer");
    let mut heard = Vec::new();
    for _ in 0..3 {
        further
            .send(&message(Payload::ShutdownRequest))
            .expect("sent");
        let until = Instant::now() + Duration::from_millis(20);
        while Instant::now() < until {
            pe.poll();
            further.poll().expect("a working channel");
        }
        first
            .send(&message(Payload::QueryStorageRequest))
            .expect("sent");
        assert_eq!(
            next_of(&mut server, &mut [&mut first, &mut further], &mut heard),
            ChannelEvent::Message(message(Payload::QueryStorageRequest))
        );
    }
    drop(consumer);
    drop(further);
    drop(first);
    let mut nobody = client("nobody", PATIENCE);
    assert_eq!(next(&mut server, &mut nobody), ChannelEvent::Closed);
    assert_eq!(heard, []);
}

#[test]
fn who_comes_as_the_other_leaves_is_not_refused() {
    let name = name("change");
    let mut server = server(&name);
    let first = connect(&name, &mut server);
    let mut second = client(&name, PATIENCE);
    // It knocks, and the server, which looks at neither meanwhile, finds both at once.
    second.poll().expect("on its way");
    drop(first);
    let mut heard = Vec::new();
    assert_eq!(
        next_of(&mut server, &mut [&mut second], &mut heard),
        ChannelEvent::Closed
    );
    server.next_client(true).expect("free");
    assert_eq!(
        next_of(&mut server, &mut [&mut second], &mut heard),
        ChannelEvent::Connected
    );
    while second.connection().is_none() {
        heard.extend(second.poll().expect("a working channel"));
        assert_eq!(server.poll(), Ok(None));
    }
    assert_eq!(heard, [ChannelEvent::Connected]);
}
