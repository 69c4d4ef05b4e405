use std::io::{Read as _, Write as _};

use wire::control::FrameDecoder;

use super::*;
use crate::control::Waiter;
use crate::shutdown::Shutdown;

const PATIENCE: Duration = Duration::from_secs(20);

fn server() -> (TcpServerChannel, SocketAddrV4) {
    let server = TcpServerChannel::listen(0).expect("a free port");
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, server.port().expect("port"));
    assert_ne!(address.port(), 0);
    (server, address)
}

fn next(channel: &mut dyn ControlChannel) -> Result<ChannelEvent, Failure> {
    let mut waiter = Waiter::new(Shutdown::new().expect("pipe"));
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(event) = channel.poll()? {
            return Ok(event);
        }
        assert!(Instant::now() < deadline, "nothing happened on the channel");
        waiter.wait(&[channel], Some(deadline));
    }
}

fn request(message_id: u32) -> Message {
    Message {
        message_id,
        correlation_id: 7,
        payload: Payload::QueryStorageRequest,
    }
}

#[test]
fn messages_go_both_ways_and_a_closed_peer_is_seen() {
    let (mut server, address) = server();
    let mut client = TcpClientChannel::connect(address);
    assert!(client.send(&request(0)).is_err(), "not connected yet");
    assert_eq!(next(&mut client), Ok(ChannelEvent::Connected));
    assert_eq!(next(&mut server), Ok(ChannelEvent::Connected));
    for id in [1, 2] {
        client.send(&request(id)).expect("sent");
    }
    for id in [1, 2] {
        assert_eq!(next(&mut server), Ok(ChannelEvent::Message(request(id))));
    }
    let answer = request(2).response(Payload::ShutdownResponse);
    server.send(&answer).expect("sent");
    drop(server);
    assert_eq!(
        next(&mut client),
        Ok(ChannelEvent::Message(answer)),
        "what was sent before the end arrives"
    );
    assert_eq!(next(&mut client), Ok(ChannelEvent::Closed));
    client
        .send(&request(3))
        .expect("no error, but the event again");
    assert_eq!(next(&mut client), Ok(ChannelEvent::Closed));
}

#[test]
fn a_client_waits_for_its_server() {
    let (server, address) = server();
    drop(server);
    let mut client = TcpClientChannel::connect(address);
    let start = Instant::now();
    let mut waiter = Waiter::new(Shutdown::new().expect("pipe"));
    while start.elapsed() < RETRY * 2 {
        assert_eq!(client.poll(), Ok(None));
        waiter.wait(&[&client], None);
    }
    let mut server = TcpServerChannel::listen(address.port()).expect("the port is free again");
    assert_eq!(next(&mut client), Ok(ChannelEvent::Connected));
    assert_eq!(next(&mut server), Ok(ChannelEvent::Connected));
}

#[test]
fn a_second_client_is_told_why_it_is_refused() {
    let (mut server, address) = server();
    let _first = TcpStream::connect(address).expect("connected");
    assert_eq!(next(&mut server), Ok(ChannelEvent::Connected));
    let mut second = TcpStream::connect(address).expect("connected");
    let deadline = Instant::now() + PATIENCE;
    second.set_nonblocking(true).expect("non-blocking");
    let (mut decoder, mut bytes) = (FrameDecoder::new(), [0; 1024]);
    let message = loop {
        assert!(Instant::now() < deadline, "no answer");
        assert_eq!(server.poll(), Ok(None), "the first client is not disturbed");
        if let Ok(count) = second.read(&mut bytes) {
            decoder.push(&bytes[..count]);
        }
        if let Some(message) = decoder.next().expect("a frame") {
            break message;
        }
    };
    let Payload::ErrorResponse(error) = message.payload else {
        panic!("{message:?}")
    };
    assert_eq!(error.error_code, ErrorCode::IN_USE.0);
    assert!(error.message.contains("only one"), "{}", error.message);
}

#[test]
fn pieces_are_put_together_and_garbage_is_an_error() {
    let (mut server, address) = server();
    let mut client = TcpStream::connect(address).expect("connected");
    client.set_nodelay(true).expect("nodelay");
    assert_eq!(next(&mut server), Ok(ChannelEvent::Connected));
    let frame = request(9).encode_to_vec();
    client.write_all(&frame[..5]).expect("written");
    assert_eq!(server.poll(), Ok(None));
    client.write_all(&frame[5..]).expect("written");
    assert_eq!(next(&mut server), Ok(ChannelEvent::Message(request(9))));
    client.write_all(&[0xff; 64]).expect("written");
    let failure = next(&mut server).expect_err("garbage");
    assert!(
        failure.message.contains("127.0.0.1"),
        "the message names the peer: {failure}"
    );
}

#[test]
fn a_busy_port_is_an_error_that_names_the_flag() {
    let (_server, address) = server();
    let failure = TcpServerChannel::listen(address.port()).expect_err("in use");
    assert!(failure.message.contains("--listen-port"), "{failure}");
}

#[test]
fn one_client_after_the_other_is_served() {
    let (mut server, address) = server();
    let mut first = TcpClientChannel::connect(address);
    assert_eq!(next(&mut first), Ok(ChannelEvent::Connected));
    assert_eq!(next(&mut server), Ok(ChannelEvent::Connected));
    drop(first);
    // It is there before the server has seen that the first has left.
    let mut second = TcpClientChannel::connect(address);
    assert_eq!(next(&mut second), Ok(ChannelEvent::Connected));
    assert_eq!(next(&mut server), Ok(ChannelEvent::Closed));
    server.next_client(PATIENCE);
    assert_eq!(next(&mut server), Ok(ChannelEvent::Connected));
    second.send(&request(5)).expect("sent");
    assert_eq!(next(&mut server), Ok(ChannelEvent::Message(request(5))));
    // One that does not leave is parted with.
    server.next_client(PATIENCE);
    assert_eq!(next(&mut second), Ok(ChannelEvent::Closed));
}

#[test]
fn one_address_is_listened_on_and_no_other() {
    let here = Ipv4Addr::new(127, 0, 0, 2);
    let server = TcpServerChannel::listen_at(SocketAddrV4::new(here, 0)).expect("a free port");
    let port = server.port().expect("port");
    assert!(TcpStream::connect((here, port)).is_ok());
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
    // 192.0.2.0/24 is for documentation: nobody's.
    let nobodys = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 0);
    let failure = TcpServerChannel::listen_at(nobodys).expect_err("another machine's");
    assert!(
        failure.message.contains("--listen-address 192.0.2.1"),
        "{failure}"
    );
}

#[test]
fn a_peer_is_asked_for_signs_of_life() {
    use rustix::net::sockopt;
    let (mut server, address) = server();
    let mut client = TcpClientChannel::connect(address);
    assert_eq!(next(&mut client), Ok(ChannelEvent::Connected));
    assert_eq!(next(&mut server), Ok(ChannelEvent::Connected));
    let stream = server.client.as_ref().expect("a client").stream();
    assert_eq!(sockopt::socket_keepalive(stream), Ok(true));
    let longest = sockopt::tcp_keepidle(stream).expect("supported")
        + sockopt::tcp_keepintvl(stream).expect("supported")
            * sockopt::tcp_keepcnt(stream).expect("supported");
    assert!(longest < Duration::from_secs(15), "{longest:?}");
}
