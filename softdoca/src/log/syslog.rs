//! The system's log, through its socket.
//!
//! Not through the C library's `syslog`, which has one identity per process: each back end has a name of its own here.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use super::{Level, Record, Sink};
use crate::error::{Error, Result};

/// Where syslog daemons listen.
const SOCKET: &str = "/dev/log";
/// Messages of programs (`LOG_USER`).
const FACILITY: u32 = 1 << 3;

/// A sink that hands messages to syslog.
#[derive(Debug)]
pub struct Syslog {
    name: String,
    path: PathBuf,
    socket: UnixDatagram,
}

impl Syslog {
    /// A sink that names `name` as the origin.
    ///
    /// # Errors
    /// [`Error::OperatingSystem`] when there can be no socket. That no daemon listens is no error: one may come.
    pub fn new(name: &str) -> Result<Syslog> {
        Syslog::at(Path::new(SOCKET), name)
    }

    fn at(path: &Path, name: &str) -> Result<Syslog> {
        let no_socket =
            |error| Error::OperatingSystem.because(format_args!("no socket for syslog: {error}"));
        let socket = UnixDatagram::unbound().map_err(no_socket)?;
        // A daemon that hangs must not hang the program.
        socket.set_nonblocking(true).map_err(no_socket)?;
        Ok(Syslog {
            name: name.to_owned(),
            path: path.to_owned(),
            socket,
        })
    }
}

impl Sink for Syslog {
    fn accept(&self, record: &Record<'_>) {
        let priority = FACILITY | severity(record.level);
        let (name, pid, text) = (&self.name, std::process::id(), record.text);
        let message = format!("<{priority}>{name}[{pid}]: {text}");
        // Nowhere to report a failure to.
        let _ = self.socket.send_to(message.as_bytes(), &self.path);
    }
}

/// Syslog's number of a level.
fn severity(level: Level) -> u32 {
    match level {
        Level::Disable | Level::Critical => 2,
        Level::Error => 3,
        Level::Warning => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Origin;
    use super::*;

    #[test]
    fn a_daemon_gets_priority_name_and_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let sink = Syslog::at(&path, "storage").unwrap();
        let mut record = Record {
            origin: Origin::Program,
            level: Level::Warning,
            file: "a.c",
            line: 1,
            function: None,
            text: "lost: nobody listens",
        };
        sink.accept(&record);
        let daemon = UnixDatagram::bind(&path).unwrap();
        record.text = "disk is full";
        sink.accept(&record);
        let mut buffer = [0; 100];
        let len = daemon.recv(&mut buffer).unwrap();
        let expected = format!("<12>storage[{}]: disk is full", std::process::id());
        assert_eq!(std::str::from_utf8(&buffer[..len]), Ok(&*expected));
    }
}
