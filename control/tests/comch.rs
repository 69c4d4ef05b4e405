//! Comch control channels, server and client in one process.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use control::budget::{EARLY_EVENTS, WAITING_CONNECTIONS};
use control::shutdown::Shutdown;
use control::{ChannelEvent, ComchClientChannel, ComchServerChannel, ControlChannel, Waiter};
use doca::{Access, Consumer, Device, ErrorCode, MemoryRegion, Mmap, Pe};
use wire::control::{Message, Payload};

const TIMEOUT: Duration = Duration::from_secs(20);

/// A server name that is unique to this test: tests run in parallel, as may several runs of this program.
fn name(test: &str) -> String {
    static NAMES: AtomicU32 = AtomicU32::new(0);
    let number = NAMES.fetch_add(1, Ordering::Relaxed);
    format!("control-{test}-{}-{number}", std::process::id())
}

fn opens(payload: &Payload) -> bool {
    *payload == Payload::QueryStorageRequest
}

fn server(name: &str) -> ComchServerChannel {
    let device = Device::open("03:00.0").expect("DPU");
    let representor = device.open_representor("3b:00.0").expect("representor");
    ComchServerChannel::start(&device, &representor, name, opens).expect("server")
}

fn client(name: &str, within: Duration) -> ComchClientChannel {
    let device = Device::open("3b:00.0").expect("host");
    ComchClientChannel::connect(&device, name, within).expect("progress engine")
}

/// Returns the next event of `channel`, polling the other side in the meantime.
fn next(channel: &mut dyn ControlChannel, other: &mut dyn ControlChannel) -> ChannelEvent {
    let mut waiter = Waiter::new(Shutdown::new().expect("pipe"));
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(event) = channel.poll().expect("a working channel") {
            return event;
        }
        assert!(
            Instant::now() < deadline,
            "nothing from the {}",
            channel.peer()
        );
        // The other side has no event to report; polling it makes progress.
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
fn messages_pass_both_ways_and_arrive_before_the_disconnection() {
    let name = name("messages");
    let mut client = client(&name, TIMEOUT);
    let request = message(Payload::QueryStorageRequest);
    assert_eq!(
        client.send(&request).expect_err("not connected").code,
        ErrorCode::NOT_CONNECTED
    );
    // The client starts first, and retries until there is a server.
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(250) {
        assert_eq!(client.poll(), Ok(None));
    }
    let mut server = server(&name);
    begin(&mut client, &mut server);
    assert!(client.connection().is_some() && server.connection().is_some());

    assert_eq!(
        next(&mut server, &mut client),
        ChannelEvent::Message(request.clone())
    );
    let answer = request.response(Payload::ShutdownResponse);
    server.send(&answer).expect("sent");
    drop(server);
    let mut other = self::client("nobody", TIMEOUT);
    assert_eq!(next(&mut client, &mut other), ChannelEvent::Message(answer));
    assert_eq!(next(&mut client, &mut other), ChannelEvent::Closed);
    client
        .send(&request)
        .expect("no error, but the event again");
    assert_eq!(client.poll(), Ok(Some(ChannelEvent::Closed)));
}

/// Polls a client that cannot connect until it fails; returns its error.
fn given_up(mut client: ComchClientChannel) -> String {
    let start = Instant::now();
    loop {
        match client.poll() {
            Ok(event) => assert_eq!(event, None),
            Err(failure) => {
                assert_eq!(failure.code, ErrorCode::TIME_OUT);
                return failure.message;
            }
        }
        assert!(start.elapsed() < TIMEOUT);
    }
}

#[test]
fn client_without_a_server_times_out() {
    let within = Duration::from_millis(300);
    let start = Instant::now();
    let text = given_up(client(&name("absent"), within));
    assert!(start.elapsed() >= within);
    assert!(text.contains("control-absent"), "{text}");
}

/// A service runs on the DPU's device, so the advice to start it there would be wrong.
#[test]
fn client_on_the_device_of_the_dpu_is_told_to_choose_another() {
    let name = name("dpu");
    let _server = server(&name);
    let device = Device::open("03:00.0").expect("DPU");
    let within = Duration::from_millis(300);
    let client = ComchClientChannel::connect(&device, &name, within).expect("progress engine");
    let text = given_up(client);
    assert!(
        text.contains("0000:03:00.0") && text.contains("--device"),
        "{text}"
    );
}

#[test]
fn error_of_a_missing_server_says_where_it_was_looked_for_and_where_one_is() {
    // The SDK logs the reason of 10 attempts per second, including those of other tests.
    let within = Duration::from_millis(2500);
    let text = given_up(client(&name("nowhere"), within));
    let directory = std::env::var("SOFTDOCA_RUNTIME_DIR").unwrap_or("softdoca".to_owned());
    assert!(
        text.contains(&directory) && text.contains("3b:00.0"),
        "{text}"
    );

    let name = name("elsewhere");
    let _server = server(&name);
    let dpu = Device::open("03:00.0").expect("DPU");
    let wrong = ComchClientChannel::connect(&dpu, &name, within).expect("progress engine");
    let text = given_up(wrong);
    assert!(text.contains("one runs for 0000:3b:00.0"), "{text}");
}

#[test]
fn server_that_does_not_answer_is_told_from_one_that_does_not_exist() {
    let name = name("silent");
    // The server is not polled, so it accepts no client.
    let _server = server(&name);
    let text = given_up(client(&name, Duration::from_millis(300)));
    assert!(text.contains("does not answer"), "{text}");
}

#[test]
fn invalid_server_name_is_a_permanent_error() {
    let mut client = client("", TIMEOUT);
    let failure = client.poll().expect_err("no name");
    assert_eq!(failure.code, ErrorCode::INVALID_VALUE);
    assert!(failure.message.contains("\"\""), "{failure}");
}

#[test]
fn second_server_of_the_same_name_is_refused() {
    let name = name("taken");
    let _first = server(&name);
    let device = Device::open("03:00.0").expect("DPU");
    let representor = device.open_representor("3b:00.0").expect("representor");
    let second = ComchServerChannel::start(&device, &representor, &name, opens);
    let failure = second.err().expect("the name is taken");
    assert!(failure.message.contains(&name), "{failure}");
}

/// Connects a client to an idle server, and begins a session.
fn connect(name: &str, server: &mut ComchServerChannel) -> ComchClientChannel {
    let mut client = client(name, TIMEOUT);
    begin(&mut client, server);
    let query = ChannelEvent::Message(message(Payload::QueryStorageRequest));
    assert_eq!(server.poll(), Ok(Some(query)));
    client
}

/// A client begins a session with a query, which is the server's next event.
fn begin(client: &mut ComchClientChannel, server: &mut ComchServerChannel) {
    assert_eq!(next(client, server), ChannelEvent::Connected);
    client
        .send(&message(Payload::QueryStorageRequest))
        .expect("sent");
    assert_eq!(next(server, client), ChannelEvent::Connected);
}

#[test]
fn clients_are_served_one_after_the_other() {
    let name = name("next");
    let mut server = server(&name);
    let mut nobody = client("nobody", TIMEOUT);
    // A client that disconnects by itself.
    let first = connect(&name, &mut server);
    server.next_client(true);
    drop(first);
    // The disconnection of a client is detected late, when the next client has already connected.
    let second = connect(&name, &mut server);
    drop(second);
    let mut third = client(&name, TIMEOUT);
    assert_eq!(next(&mut server, &mut third), ChannelEvent::Closed);
    server.next_client(false);
    begin(&mut third, &mut server);
    assert_eq!(
        next(&mut server, &mut nobody),
        ChannelEvent::Message(message(Payload::QueryStorageRequest))
    );
    // A client that does not disconnect by itself is disconnected.
    server.next_client(false);
    assert_eq!(next(&mut third, &mut server), ChannelEvent::Closed);
    connect(&name, &mut server);
}

/// Returns the next event of `channel`; fails if there is none. The other sides are polled in the meantime, and their
/// events collected.
fn next_of(
    channel: &mut dyn ControlChannel,
    others: &mut [&mut dyn ControlChannel],
    heard: &mut Vec<ChannelEvent>,
) -> ChannelEvent {
    let deadline = Instant::now() + TIMEOUT;
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
fn further_client_is_refused_and_its_events_do_not_reach_the_session() {
    let name = name("further");
    let mut server = server(&name);
    let mut first = connect(&name, &mut server);
    let mut further = client(&name, TIMEOUT);
    assert_eq!(next(&mut further, &mut server), ChannelEvent::Connected);
    let ChannelEvent::Message(refusal) = next(&mut further, &mut server) else {
        panic!("expected to be told");
    };
    let Payload::ErrorResponse(error) = refusal.payload else {
        panic!("{refusal:?}");
    };
    assert_eq!(error.error_code, ErrorCode::IN_USE.0);

    // The client stays connected, sends requests and starts a consumer until it is disconnected. The session has only
    // the events of the first client.
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
            .send(&message(Payload::QueryStorageRequest))
            .expect("sent");
        let until = Instant::now() + Duration::from_millis(20);
        while Instant::now() < until {
            pe.poll();
            heard.extend(further.poll().expect("a working channel"));
        }
        first
            .send(&message(Payload::QueryStorageRequest))
            .expect("sent");
        assert_eq!(
            next_of(&mut server, &mut [&mut first, &mut further], &mut heard),
            ChannelEvent::Message(message(Payload::QueryStorageRequest))
        );
    }
    let deadline = Instant::now() + TIMEOUT;
    while !heard.contains(&ChannelEvent::Closed) {
        assert!(Instant::now() < deadline, "it is not disconnected");
        heard.extend(further.poll().expect("a working channel"));
        assert_eq!(server.poll(), Ok(None));
    }
    drop((consumer, further, first));
    let mut nobody = client("nobody", TIMEOUT);
    assert_eq!(next(&mut server, &mut nobody), ChannelEvent::Closed);
    heard.retain(|event| *event != ChannelEvent::Closed);
    assert_eq!(heard, []);
}

#[test]
fn idle_clients_neither_begin_a_session_nor_block_others() {
    let name = name("silent");
    let mut server = server(&name);
    let mut silent = client(&name, TIMEOUT);
    assert_eq!(next(&mut silent, &mut server), ChannelEvent::Connected);
    let mut gone = client(&name, TIMEOUT);
    assert_eq!(next(&mut gone, &mut server), ChannelEvent::Connected);
    drop(gone);
    let mut early = client(&name, TIMEOUT);
    assert_eq!(next(&mut early, &mut server), ChannelEvent::Connected);
    early
        .send(&message(Payload::StopStorageRequest))
        .expect("sent");
    for (client, code) in [
        (&mut early, ErrorCode::UNEXPECTED),
        (&mut silent, ErrorCode::IN_USE),
    ] {
        if code == ErrorCode::IN_USE {
            // Another client connects first.
            connect(&name, &mut server);
        }
        let ChannelEvent::Message(answer) = next(client, &mut server) else {
            panic!("expected an error response");
        };
        let Payload::ErrorResponse(error) = answer.payload else {
            panic!("{answer:?}");
        };
        assert_eq!(error.error_code, code.0);
    }
}

/// An initiator that connects immediately after another one was killed must not be disconnected with it.
#[test]
fn disconnection_of_one_client_leaves_others_connected() {
    let name = name("successor");
    let mut server = server(&name);
    let mut first = connect(&name, &mut server);
    let mut second = client(&name, TIMEOUT);
    second.poll().expect("on its way");
    // The service ends the session before it has detected the disconnection of the first client, and before it has
    // detected the second client.
    server.next_client(false);
    begin(&mut second, &mut server);
    let mut nobody = client("nobody", TIMEOUT);
    assert_eq!(next(&mut first, &mut nobody), ChannelEvent::Closed);
    assert_eq!(second.poll(), Ok(None));
}

#[test]
fn client_connecting_while_another_disconnects_is_not_refused() {
    let name = name("change");
    let mut server = server(&name);
    let first = connect(&name, &mut server);
    let mut second = client(&name, TIMEOUT);
    // The second client connects, and the server, which is not polled in the meantime, finds both events together.
    second.poll().expect("on its way");
    drop(first);
    let mut heard = Vec::new();
    assert_eq!(
        next_of(&mut server, &mut [&mut second], &mut heard),
        ChannelEvent::Closed
    );
    server.next_client(true);
    begin(&mut second, &mut server);
    assert_eq!(heard, []);
}

/// Number of voluntary context switches of this thread.
fn sleeps() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("a thread");
    let mut lines = status.lines();
    let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count
        .and_then(|text| text.trim().parse().ok())
        .expect("a count")
}

/// A thread that polls a channel also waits for other events: it must sleep only in its waiter.
#[test]
fn polling_an_idle_peer_does_not_sleep() {
    let name = name("silent");
    let mut client = client(&name, TIMEOUT);
    let mut server = server(&name);
    begin(&mut client, &mut server);
    let request = message(Payload::QueryStorageRequest);
    assert_eq!(
        next(&mut server, &mut client),
        ChannelEvent::Message(request.clone())
    );
    let mut waiter = Waiter::new(Shutdown::new().expect("pipe"));
    let mut slept = 0;
    for _ in 0..1000 {
        waiter.wait(&[&client, &server], Some(Instant::now()));
        let before = sleeps();
        assert_eq!(client.poll(), Ok(None));
        assert_eq!(server.poll(), Ok(None));
        slept += sleeps() - before;
    }
    // Not 0: another thread may hold a lock of the C library, and pages of a newly linked program are read from disk.
    assert!(slept < 100, "{slept} sleeps in 1000 polls of each end");
    let answer = request.response(Payload::ShutdownResponse);
    server.send(&answer).expect("sent");
    assert_eq!(
        next(&mut client, &mut server),
        ChannelEvent::Message(answer)
    );
}

/// Activity of a peer wakes the waiter immediately, before the end of a sleep.
#[test]
fn message_ends_a_wait_without_a_deadline() {
    let name = name("waking");
    let mut client = client(&name, TIMEOUT);
    let mut server = server(&name);
    begin(&mut client, &mut server);
    let request = message(Payload::QueryStorageRequest);
    assert_eq!(
        next(&mut server, &mut client),
        ChannelEvent::Message(request.clone())
    );
    let mut waiter = Waiter::new(Shutdown::new().expect("pipe"));
    for _ in 0..20 {
        // Waits once for both, and does not poll them again before an event.
        waiter.wait(&[&client, &server], Some(Instant::now()));
        while client.poll() != Ok(None) || server.poll() != Ok(None) {}
        waiter.wait(&[&client], Some(Instant::now()));
        let answer = request.response(Payload::QueryStorageRequest);
        server.send(&answer).expect("sent");
        let begin = Instant::now();
        waiter.wait(&[&client], Some(begin + TIMEOUT));
        assert!(begin.elapsed() < TIMEOUT, "the message woke nothing");
        assert_eq!(client.poll(), Ok(Some(ChannelEvent::Message(answer))));
    }
}

/// Initiators send a request as soon as they are connected: idle connections must not lock them out.
#[test]
fn oldest_idle_connection_is_displaced_by_a_client() {
    let name = name("crowd");
    let mut server = server(&name);
    let mut silent: Vec<_> = (0..WAITING_CONNECTIONS)
        .map(|_| {
            let mut client = client(&name, TIMEOUT);
            assert_eq!(next(&mut client, &mut server), ChannelEvent::Connected);
            client
        })
        .collect();
    let mut asking = client(&name, TIMEOUT);
    assert_eq!(next(&mut asking, &mut server), ChannelEvent::Connected);
    let ChannelEvent::Message(answer) = next(&mut silent[0], &mut server) else {
        panic!("expected an error response");
    };
    let Payload::ErrorResponse(error) = answer.payload else {
        panic!("{answer:?}");
    };
    assert_eq!(error.error_code, ErrorCode::FULL.0);
    assert_eq!(silent[1].poll(), Ok(None), "the others stay");
    asking
        .send(&message(Payload::QueryStorageRequest))
        .expect("sent");
    assert_eq!(next(&mut server, &mut asking), ChannelEvent::Connected);
}

/// Events of a client before its session are stored until it starts, within limits.
#[test]
fn too_many_consumers_before_the_first_request_end_the_connection() {
    let name = name("early");
    let mut server = server(&name);
    let mut client = client(&name, TIMEOUT);
    assert_eq!(next(&mut client, &mut server), ChannelEvent::Connected);
    let device = Device::open("3b:00.0").expect("host");
    let pe = Pe::new().expect("progress engine");
    let access = Access::LOCAL_READ_WRITE | Access::PCI_READ_WRITE;
    let memory = MemoryRegion::new(4096).expect("memory");
    let memory = Mmap::register(&device, memory, access).expect("map");
    let connection = client.connection().expect("connected");
    let refusal = (0..EARLY_EVENTS).find_map(|_| {
        let consumer = Consumer::start(&pe, &connection, &memory, 1).ok()?;
        // Creation, destruction and expiry of a consumer are two events at the server.
        pe.progress_until(TIMEOUT, || consumer.state() == doca::CtxState::Running);
        drop(consumer);
        assert_eq!(server.poll(), Ok(None));
        client.poll().expect("a working channel")
    });
    let Some(ChannelEvent::Message(answer)) = refusal else {
        panic!("expected an error response, got {refusal:?}");
    };
    let Payload::ErrorResponse(error) = answer.payload else {
        panic!("{answer:?}");
    };
    assert_eq!(error.error_code, ErrorCode::TOO_BIG.0);
}
