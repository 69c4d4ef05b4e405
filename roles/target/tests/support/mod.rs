//! A running target, and the control channel of a service to it.
#![allow(dead_code, reason = "every test file uses a part of this")]

pub mod client;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use wire::control::{FrameDecoder, Message, Payload};

pub const TIMEOUT: Duration = Duration::from_secs(30);

/// A target process that is killed when the test ends.
pub struct Target {
    child: Child,
    stdout: BufReader<ChildStdout>,
    pub port: u16,
}

/// Exit status and output of a process.
#[derive(Debug)]
pub struct Exit {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

pub fn command(args: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_doca_storage_target_rdma"));
    command.args(args.split_whitespace());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A CPU that this process may use.
pub fn cpu() -> String {
    let cpus = rustix::thread::sched_getaffinity(None).expect("affinity");
    (0..1024)
        .find(|&cpu| cpus.is_set(cpu))
        .expect("a CPU")
        .to_string()
}

/// Starts a target on a free port, with one CPU and these additional flags.
pub fn start(args: &str) -> Target {
    start_with(args, &[])
}

/// As [`start`], with these environment variables.
pub fn start_with(args: &str, variables: &[(&str, &str)]) -> Target {
    let args = format!("-d 03:00.0 --listen-port 0 --cpu {} {args}", cpu());
    let mut command = command(&args);
    command.envs(variables.iter().copied());
    listening(command)
}

/// Starts a target and waits until it listens.
pub fn listening(mut command: Command) -> Target {
    let mut child = command.spawn().expect("started");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    let mut banner = String::new();
    stdout.read_line(&mut banner).expect("readable");
    assert!(
        banner.starts_with("doca_storage_target_rdma: v"),
        "{banner}"
    );
    let mut line = String::new();
    stdout.read_line(&mut line).expect("readable");
    let port = line
        .trim_end()
        .strip_prefix("listening on port ")
        .unwrap_or_else(|| {
            let mut stderr = String::new();
            child
                .stderr
                .take()
                .expect("piped")
                .read_to_string(&mut stderr)
                .expect("readable");
            panic!("expected the port, got {line:?}, and {stderr}")
        });
    Target {
        port: port.parse().expect("a port"),
        child,
        stdout,
    }
}

impl Target {
    pub fn connect(&self) -> Service {
        Service::connect(self.port)
    }

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
            assert!(Instant::now() < deadline, "the target does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.stdout.read_to_string(&mut stdout).expect("readable");
        self.child
            .stderr
            .take()
            .expect("piped")
            .read_to_string(&mut stderr)
            .expect("readable");
        Exit {
            status,
            stdout,
            stderr,
        }
    }
}

/// Runs a target that is expected to exit soon by itself: if it listens instead, it is killed.
pub fn run_to_exit(mut command: Command) -> Exit {
    // A process group, to include processes started by the shell.
    command.process_group(0);
    let mut child = command.spawn().expect("started");
    let deadline = Instant::now() + TIMEOUT;
    while child.try_wait().expect("waited").is_none() {
        if Instant::now() >= deadline {
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().expect("waited");
    Exit {
        status: output.status,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The service's side of the control channel.
pub struct Service {
    stream: TcpStream,
    decoder: FrameDecoder,
    next_id: u32,
}

impl Service {
    pub fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        stream.set_read_timeout(Some(TIMEOUT)).expect("timeout");
        Self {
            stream,
            decoder: FrameDecoder::new(),
            next_id: 40,
        }
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("written");
    }

    /// Next message; `None` when the target has closed the connection.
    pub fn receive(&mut self) -> Option<Message> {
        loop {
            if let Some(message) = self.decoder.next().expect("a valid frame") {
                return Some(message);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.decoder.push(&bytes[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no answer: {error}"),
            }
        }
    }

    /// Returns `true` if there is something to receive: a message, or the end of the connection.
    pub fn has_answer(&self) -> bool {
        self.stream.set_nonblocking(true).expect("non-blocking");
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).expect("blocking");
        peeked.is_ok()
    }

    /// Sends a request and returns the payload of its response.
    pub fn request(&mut self, payload: Payload) -> Payload {
        self.next_id += 1;
        let request = Message {
            message_id: self.next_id,
            correlation_id: 8,
            payload,
        };
        self.send_bytes(&request.encode_to_vec());
        let answer = self.receive().expect("an answer");
        assert_eq!(
            (answer.message_id, answer.correlation_id),
            (self.next_id, 8)
        );
        answer.payload
    }

    /// Sends a request that is refused, and returns code and text.
    pub fn refused(&mut self, payload: Payload) -> (u32, String) {
        match self.request(payload) {
            Payload::ErrorResponse(error) => (error.error_code, error.message),
            other => panic!("expected an error, got {other:?}"),
        }
    }
}
