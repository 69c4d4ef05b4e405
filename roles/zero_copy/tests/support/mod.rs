//! A running service between the test as initiator and the test as target.
#![allow(dead_code, reason = "every test file uses a part of this")]

use std::io::Read as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use doca::Device;
use role_common::control::{
    ChannelEvent, ComchClientChannel, ControlChannel, TcpServerChannel, Waiter,
};
use role_common::shutdown::Shutdown;
use rustix::process::{Pid, Signal, kill_process};
use wire::control::{ErrorResponse, Message, Payload};

pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Exit status and output of a process.
#[derive(Debug)]
pub struct Exit {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// A service process that is killed when the test ends.
pub struct Service {
    child: Child,
    pub channel_name: String,
}

pub fn command(args: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_doca_storage_comch_to_rdma_zero_copy"));
    command.args(args.split_whitespace());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A CPU that this process may use.
pub fn cpu() -> usize {
    let cpus = rustix::thread::sched_getaffinity(None).expect("affinity");
    (0..1024).find(|&cpu| cpus.is_set(cpu)).expect("a CPU")
}

/// Starts a service for the target at this port, with one CPU and these additional flags.
pub fn start(port: u16, args: &str) -> Service {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let channel_name = format!("zero-copy-test-{}-{number}", std::process::id());
    let args = format!(
        "-d 03:00.0 -r 3b:00.0 --storage-server 127.0.0.1:{port} --cpu {} --command-channel-name {channel_name} {args}",
        cpu()
    );
    let child = command(&args).spawn().expect("started");
    Service {
        child,
        channel_name,
    }
}

impl Service {
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("signalled");
    }

    /// Waits for the process to exit, which must be soon.
    pub fn wait(mut self) -> Exit {
        let deadline = Instant::now() + TIMEOUT;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("waited") {
                break status;
            }
            assert!(Instant::now() < deadline, "the service does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        let (mut stdout, mut stderr) = (String::new(), String::new());
        let (out, err) = (self.child.stdout.take(), self.child.stderr.take());
        out.expect("piped")
            .read_to_string(&mut stdout)
            .expect("readable");
        err.expect("piped")
            .read_to_string(&mut stderr)
            .expect("readable");
        Exit {
            status,
            stdout,
            stderr,
        }
    }

    /// Waits for it to fail with this text.
    pub fn fails_saying(self, words: &str) {
        let exit = self.wait();
        assert_eq!(exit.status.code(), Some(1), "{exit:?}");
        assert!(
            exit.stderr.contains(words),
            "expected {words:?} in {exit:?}"
        );
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Next event of a channel, which must come soon.
pub fn next(channel: &mut dyn ControlChannel) -> ChannelEvent {
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
        waiter.wait(&[channel], Some(deadline));
    }
}

/// Next message of a channel on which no other event is expected.
pub fn message(channel: &mut dyn ControlChannel) -> Message {
    match next(channel) {
        ChannelEvent::Message(message) => message,
        // For a target, with its first request.
        ChannelEvent::Connected => message(channel),
        event => panic!(
            "expected a message of the {}, got {event:?}",
            channel.peer()
        ),
    }
}

pub fn error(payload: Payload) -> ErrorResponse {
    match payload {
        Payload::ErrorResponse(error) => error,
        other => panic!("expected an error, got {other:?}"),
    }
}

/// A service with both peers connected.
pub struct World {
    pub initiator: ComchClientChannel,
    pub target: TcpServerChannel,
    pub service: Service,
    /// Events of the service's consumers, in the order seen by the initiator.
    pub consumers: Vec<ChannelEvent>,
    next_id: u32,
}

impl World {
    pub fn new(args: &str) -> Self {
        let target = TcpServerChannel::listen(0, |_| true).expect("a free port");
        let service = start(target.port().expect("port"), args);
        let initiator = connect(&service);
        Self {
            initiator,
            target,
            service,
            consumers: Vec::new(),
            next_id: 300,
        }
    }

    pub fn send(&mut self, payload: Payload) {
        self.next_id += 1;
        let request = Message {
            message_id: self.next_id,
            correlation_id: 66,
            payload,
        };
        self.initiator.send(&request).expect("sent");
    }

    /// Response to the last request.
    pub fn answer(&mut self) -> Payload {
        let answer = loop {
            match next(&mut self.initiator) {
                ChannelEvent::Message(message) => break message,
                event @ (ChannelEvent::ConsumerAdded(_) | ChannelEvent::ConsumerExpired(_)) => {
                    self.consumers.push(event);
                }
                event => panic!("expected an answer, got {event:?}"),
            }
        };
        assert_eq!(
            (answer.message_id, answer.correlation_id),
            (self.next_id, 66)
        );
        answer.payload
    }

    /// Takes the next request at the target, responds, and returns the request's payload.
    pub fn target_answers(&mut self, answer: impl FnOnce(&Payload) -> Payload) -> Payload {
        let request = message(&mut self.target);
        assert_eq!(
            request.correlation_id, 66,
            "the initiator's correlation id is kept"
        );
        let payload = answer(&request.payload);
        self.target.send(&request.response(payload)).expect("sent");
        request.payload
    }
}

/// Connects an initiator to a service.
pub fn connect(service: &Service) -> ComchClientChannel {
    let device = Device::open("3b:00.0").expect("device");
    let mut initiator = ComchClientChannel::connect(&device, &service.channel_name, TIMEOUT)
        .expect("progress engine");
    assert_eq!(next(&mut initiator), ChannelEvent::Connected);
    initiator
}
