//! The control socket of a service: commands of an operator, as JSON lines over a Unix socket.
//!
//! A request is a [`Command`] on a line of its own. The answer is a line with `{"ok": ...}` or
//! `{"error": {"code": "DOCA_ERROR_...", "message": "..."}}`. The connection stays open for further requests.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use control::Failure;
use control::network::{ListenError, UnixServer};
use control::reservation::Holder;
use doca::ErrorCode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::application::Environment;
use crate::console;
use crate::flags::LogLevel;

/// Connections that are served at a time. Further ones are refused.
const CONNECTIONS: usize = 8;

/// Longest request in bytes, with its newline.
const LONGEST_REQUEST: u64 = 4096;

/// Pause after `accept` has failed, for example because no descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Time for a client to take an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A command of an operator. In JSON, `{"command": "scrub-rate", "rate": 67108864}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Command {
    /// The state of the service and, if it has one, of its set.
    Status {},
    /// Starts a scrub of all blocks, unless one is running.
    ScrubStart {},
    /// Stops the running scrub.
    ScrubStop {},
    /// Changes the maximum rate of scrubs.
    ScrubRate {
        /// Bytes of blocks per second, at least 1.
        rate: u64,
    },
    /// Detaches a target, and keeps it offline.
    Detach {
        /// `data_1`, `data_2` or `data_p`.
        target: String,
    },
    /// Lets a target rejoin that was kept offline.
    Attach {
        /// `data_1`, `data_2` or `data_p`.
        target: String,
    },
    /// Rebuilds all blocks of a target from the other two.
    Rebuild {
        /// `data_1`, `data_2` or `data_p`.
        target: String,
    },
    /// Takes the targets over again from the service that has taken over from this one.
    Takeover {},
    /// Ends the service as SIGTERM does: I/Os in flight complete, and the set is closed cleanly.
    Drain {},
    /// Changes the level of the service's log.
    LogLevel {
        /// DOCA's number: 10, 20 and so on to 70.
        level: u32,
    },
}

/// Status and commands of one kind of service.
pub trait Operator: Send {
    /// Fields of this service in the result of [`Command::Status`].
    fn status(&self) -> Map<String, Value>;

    /// Executes a command other than [`Command::Status`], [`Command::Takeover`], [`Command::Drain`] and
    /// [`Command::LogLevel`], and returns its result.
    ///
    /// # Errors
    ///
    /// `NOT_SUPPORTED`: the service does not have the command. Others: it is impossible in the current state.
    fn execute(&self, command: &Command) -> Result<Value, Failure>;
}

/// A control socket. Dropping it removes the socket's file; further requests are refused.
pub struct ControlSocket {
    _server: UnixServer,
    service: Arc<Service>,
}

struct Service {
    role: &'static str,
    began: Instant,
    environment: Environment,
    /// The holder of the targets' reservations, if they are reserved.
    holder: Option<Arc<Holder>>,
    /// `None` when the service has ended.
    operator: Mutex<Option<Box<dyn Operator>>>,
    connections: AtomicUsize,
}

impl ControlSocket {
    /// Listens at `path`, with mode 0600, and executes commands on threads of its own.
    ///
    /// # Errors
    ///
    /// `INVALID_VALUE`: the path is in use, or no socket can be created there.
    pub fn start(
        path: &Path,
        role: &'static str,
        environment: &Environment,
        holder: Option<Arc<Holder>>,
        operator: Box<dyn Operator>,
    ) -> Result<Self, Failure> {
        let refused =
            |error: ListenError| Failure::invalid(error.to_string()).context("--control-socket");
        let system = |error: io::Error| {
            let code = ErrorCode::OPERATING_SYSTEM;
            Failure::new(code, error.to_string()).context("--control-socket")
        };
        let backlog = i32::try_from(CONNECTIONS).unwrap_or(i32::MAX);
        let server = UnixServer::bind(path, backlog).map_err(refused)?;
        let listener = server.listener().try_clone().map_err(system)?;
        listener.set_nonblocking(false).map_err(system)?;
        let service = Arc::new(Service {
            role,
            began: Instant::now(),
            environment: environment.clone(),
            holder,
            operator: Mutex::new(Some(operator)),
            connections: AtomicUsize::new(0),
        });
        let accepting = Arc::clone(&service);
        let accept = move || {
            loop {
                match listener.accept() {
                    Ok((stream, _)) => accepting.accepted(stream),
                    Err(error) => {
                        tracing::warn!("control socket: accept: {error}");
                        thread::sleep(ACCEPT_PAUSE);
                    }
                }
            }
        };
        thread::Builder::new()
            .name("operator".to_owned())
            .spawn(accept)
            .map_err(system)?;
        Ok(Self {
            _server: server,
            service,
        })
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        *self.service.operator() = None;
    }
}

impl Service {
    fn operator(&self) -> MutexGuard<'_, Option<Box<dyn Operator>>> {
        // An operator that has panicked is refused like any other failure.
        self.operator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accepted(self: &Arc<Self>, stream: UnixStream) {
        if self.connections.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS {
            self.connections.fetch_sub(1, Ordering::Relaxed);
            let failure = Failure::new(
                ErrorCode::AGAIN,
                format!("expected at most {CONNECTIONS} connections to the control socket"),
            );
            let _ = answer(&stream, &Err(failure));
            return;
        }
        let service = Arc::clone(self);
        let serve = move || {
            if let Err(error) = service.serve(&stream) {
                tracing::debug!("control socket: {error}");
            }
            service.connections.fetch_sub(1, Ordering::Relaxed);
        };
        // If no thread can be created, the connection is closed.
        let thread = thread::Builder::new().name("operator".to_owned());
        if thread.spawn(serve).is_err() {
            self.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Answers the requests of a connection until its end.
    fn serve(&self, stream: &UnixStream) -> io::Result<()> {
        let mut reader = BufReader::new(stream);
        loop {
            let mut line = Vec::new();
            (&mut reader)
                .take(LONGEST_REQUEST)
                .read_until(b'\n', &mut line)?;
            if line.is_empty() {
                return Ok(());
            }
            let is_whole = line.ends_with(b"\n") || (line.len() as u64) < LONGEST_REQUEST;
            if !is_whole {
                let text = format!("a request: expected at most {LONGEST_REQUEST} bytes");
                return answer(stream, &Err(Failure::invalid(text)));
            }
            let result = serde_json::from_slice(&line)
                .map_err(|error| Failure::invalid(format!("a request: {error}")))
                .and_then(|command| self.execute(&command));
            answer(stream, &result)?;
        }
    }

    fn execute(&self, command: &Command) -> Result<Value, Failure> {
        let operator = self.operator();
        let Some(operator) = &*operator else {
            return Err(Failure::aborted("the service is ending"));
        };
        match command {
            Command::Status {} => {
                let mut status = Map::new();
                status.insert("role".to_owned(), json!(self.role));
                status.insert("version".to_owned(), json!(env!("CARGO_PKG_VERSION")));
                status.insert("process".to_owned(), json!(std::process::id()));
                let seconds = self.began.elapsed().as_secs();
                status.insert("uptime_seconds".to_owned(), json!(seconds));
                if let Some(holder) = &self.holder {
                    let fenced = holder.fenced().map(|failure| failure.message);
                    let reservation =
                        json!({ "generation": holder.generation(), "fenced": fenced });
                    status.insert("reservation".to_owned(), reservation);
                }
                status.extend(operator.status());
                return Ok(Value::Object(status));
            }
            Command::Takeover {} => {
                let Some(holder) = &self.holder else {
                    return Err(Failure::new(
                        ErrorCode::NOT_SUPPORTED,
                        "expected a service that was started with --takeover",
                    ));
                };
                if !holder.take_over() {
                    return Err(Failure::new(
                        ErrorCode::BAD_STATE,
                        "expected a service that another one has taken over from",
                    ));
                }
                tracing::info!("the operator lets the service take over");
            }
            Command::Drain {} => {
                tracing::info!("the operator ends the service");
                self.environment.shutdown.request();
            }
            Command::LogLevel { level } => {
                let level = LogLevel::parse(&level.to_string()).map_err(Failure::invalid)?;
                console::set_log_level(level);
                tracing::info!("the operator has set the log level to {}", level.number());
            }
            _ => return operator.execute(command),
        }
        Ok(json!({}))
    }
}

fn answer(mut stream: &UnixStream, result: &Result<Value, Failure>) -> io::Result<()> {
    let answer = match result {
        Ok(value) => json!({ "ok": value }),
        Err(Failure { code, message, .. }) => {
            json!({ "error": { "code": code.name(), "message": message } })
        }
    };
    let mut line = answer.to_string();
    line.push('\n');
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    stream.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Recorder;

    impl Operator for Recorder {
        fn status(&self) -> Map<String, Value> {
            Map::from_iter([("state".to_owned(), json!("healthy"))])
        }

        fn execute(&self, command: &Command) -> Result<Value, Failure> {
            match command {
                Command::Detach { target } => Ok(json!({ "detached": target })),
                _ => Err(Failure::new(ErrorCode::NOT_SUPPORTED, "not here")),
            }
        }
    }

    struct Client(BufReader<UnixStream>);

    impl Client {
        fn connect(path: &Path) -> Self {
            Self(BufReader::new(
                UnixStream::connect(path).expect("it listens"),
            ))
        }

        fn answer(&mut self) -> Value {
            let mut line = String::new();
            self.0.read_line(&mut line).expect("an answer");
            serde_json::from_str(&line).expect("a JSON line")
        }

        fn ask(&mut self, request: &str) -> Value {
            // In one piece: the service may have refused a long line, and disconnected, before it has the end of it.
            let line = format!("{request}\n");
            self.0.get_ref().write_all(line.as_bytes()).expect("sent");
            self.answer()
        }

        fn refused(&mut self, request: &str) -> String {
            let answer = self.ask(request);
            answer["error"]["code"].as_str().expect("a code").to_owned()
        }
    }

    fn environment() -> Environment {
        Environment {
            console: console::Console::default(),
            shutdown: control::shutdown::Shutdown::new().expect("pipe"),
            metrics: metrics::Metrics::default(),
        }
    }

    fn start(path: &Path, environment: &Environment) -> Result<ControlSocket, Failure> {
        ControlSocket::start(path, "a role", environment, None, Box::new(Recorder))
    }

    #[test]
    fn commands_are_answered_in_lines() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("socket");
        let environment = environment();
        let socket = start(&path, &environment).expect("listens");
        let mut client = Client::connect(&path);
        let status = client.ask(r#"{"command":"status"}"#);
        assert_eq!(status["ok"]["role"], "a role");
        assert_eq!(status["ok"]["state"], "healthy");
        let detached = client.ask(r#"{"command":"detach","target":"data_1"}"#);
        assert_eq!(detached["ok"]["detached"], "data_1");
        for (wrong, code) in [
            (
                r#"{"command":"attach","target":"data_1"}"#,
                "DOCA_ERROR_NOT_SUPPORTED",
            ),
            (r#"{"command":"detach"}"#, "DOCA_ERROR_INVALID_VALUE"),
            (
                r#"{"command":"status","more":1}"#,
                "DOCA_ERROR_INVALID_VALUE",
            ),
            (
                r#"{"command":"log-level","level":55}"#,
                "DOCA_ERROR_INVALID_VALUE",
            ),
            ("reboot", "DOCA_ERROR_INVALID_VALUE"),
            ("", "DOCA_ERROR_INVALID_VALUE"),
        ] {
            assert_eq!(client.refused(wrong), code, "{wrong}");
        }
        assert!(!environment.shutdown.is_requested());
        assert!(client.ask(r#"{"command":"drain"}"#)["ok"].is_object());
        assert!(environment.shutdown.is_requested());
        drop(socket);
        assert!(!path.exists());
        assert_eq!(
            client.refused(r#"{"command":"status"}"#),
            "DOCA_ERROR_CONNECTION_ABORTED"
        );
    }

    #[test]
    fn resources_of_clients_are_bounded() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("socket");
        let _socket = start(&path, &environment()).expect("listens");
        let mut clients: Vec<_> = (0..CONNECTIONS).map(|_| Client::connect(&path)).collect();
        for client in &mut clients {
            client.ask(r#"{"command":"status"}"#);
        }
        let further = Client::connect(&path).answer();
        assert_eq!(further["error"]["code"], "DOCA_ERROR_AGAIN");
        let long = "x".repeat(usize::try_from(LONGEST_REQUEST).expect("small"));
        assert_eq!(clients[0].refused(&long), "DOCA_ERROR_INVALID_VALUE");
        assert_eq!(clients[0].0.read(&mut [0]).unwrap_or(0), 0, "disconnected");
    }

    #[test]
    fn socket_in_use_is_refused() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("socket");
        let environment = environment();
        let _socket = start(&path, &environment).expect("listens");
        let Err(failure) = start(&path, &environment) else {
            panic!("two listen at one path");
        };
        assert_eq!(failure.code, ErrorCode::INVALID_VALUE);
    }
}
