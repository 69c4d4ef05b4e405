//! Back ends: destinations of messages, their text format, and syslog.

use std::fmt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Level, Limits, Record};
use crate::error::{Error, Result};

/// Origin of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// softdoca itself.
    Sdk,
    /// The program, through `doca_log`.
    Program,
}

/// Destination of messages. Called without a lock held: an implementation may be a C callback that logs itself.
pub trait Sink: Send + Sync {
    /// Takes one message.
    fn accept(&self, record: &Record<'_>);
}

/// A registered sink with its own limits.
pub struct Backend {
    origin: Origin,
    limits: Limits,
    /// Not subject to the global limits, because the user asked for this level from outside of the program.
    independent: bool,
    sink: Box<dyn Sink>,
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend")
            .field("origin", &self.origin)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl Backend {
    /// Sets the least severe accepted level.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] if the back end is for messages of the other origin.
    pub fn set_lower(&self, origin: Origin, level: Level) -> Result<()> {
        self.expect(origin)?.set_lower(level);
        refresh_threshold();
        Ok(())
    }

    /// Sets the most severe accepted level.
    ///
    /// # Errors
    /// As [`set_lower`](Self::set_lower).
    pub fn set_upper(&self, origin: Origin, level: Level) -> Result<()> {
        self.expect(origin)?.set_upper(level);
        Ok(())
    }

    /// Prevents the lower limit from being widened.
    ///
    /// # Errors
    /// As [`set_lower`](Self::set_lower).
    pub fn fix_lower(&self, origin: Origin) -> Result<()> {
        self.expect(origin)?.fix_lower();
        Ok(())
    }

    /// Prevents the upper limit from being widened.
    ///
    /// # Errors
    /// As [`set_lower`](Self::set_lower).
    pub fn fix_upper(&self, origin: Origin) -> Result<()> {
        self.expect(origin)?.fix_upper();
        Ok(())
    }

    fn expect(&self, origin: Origin) -> Result<&Limits> {
        if self.origin == origin {
            return Ok(&self.limits);
        }
        Err(Error::InvalidValue.because(format_args!(
            "expected a log back end for messages of origin {origin:?}, this one is for {:?}",
            self.origin
        )))
    }
}

/// The back ends for messages of one origin, and the limits of new ones.
#[derive(Debug)]
struct Registry {
    backends: Mutex<Vec<Arc<Backend>>>,
    lower: AtomicU32,
    upper: AtomicU32,
    /// Least severe level that any back end accepts: a disabled call site costs one load.
    threshold: AtomicU32,
}

impl Registry {
    const fn new() -> Self {
        Self {
            backends: Mutex::new(Vec::new()),
            lower: AtomicU32::new(Level::Info as u32),
            upper: AtomicU32::new(Level::Critical as u32),
            threshold: AtomicU32::new(Level::Disable as u32),
        }
    }

    fn snapshot(&self) -> Vec<Arc<Backend>> {
        self.backends
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

static SDK: Registry = Registry::new();
static PROGRAM: Registry = Registry::new();

fn registry(origin: Origin) -> &'static Registry {
    match origin {
        Origin::Sdk => &SDK,
        Origin::Program => &PROGRAM,
    }
}

fn refresh_threshold() {
    for registry in [&SDK, &PROGRAM] {
        let lowest = registry
            .snapshot()
            .iter()
            .map(|backend| backend.limits.lower())
            .max();
        registry
            .threshold
            .store(lowest.unwrap_or(Level::Disable as u32), Ordering::Relaxed);
    }
}

fn add(origin: Origin, limits: Limits, independent: bool, sink: Box<dyn Sink>) -> Arc<Backend> {
    let backend = Arc::new(Backend {
        origin,
        limits,
        independent,
        sink,
    });
    registry(origin)
        .backends
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(Arc::clone(&backend));
    refresh_threshold();
    backend
}

/// Registers a sink with the global limits. As in DOCA, it lives as long as the process.
pub fn add_backend(origin: Origin, sink: Box<dyn Sink>) -> Arc<Backend> {
    let limits = Limits::new(global_lower(origin), global_upper(origin));
    add(origin, limits, false, sink)
}

/// Registers a sink for softdoca's own messages that is not subject to the global limits.
pub(super) fn add_independent(level: Level, sink: Box<dyn Sink>) {
    add(Origin::Sdk, Limits::new(level, Level::Critical), true, sink);
}

/// Lower limit of new back ends; [`Level::Info`] by default.
pub fn global_lower(origin: Origin) -> Level {
    Level::from_value(registry(origin).lower.load(Ordering::Relaxed)).unwrap_or(Level::Info)
}

/// Upper limit of new back ends; [`Level::Critical`] by default.
pub fn global_upper(origin: Origin) -> Level {
    Level::from_value(registry(origin).upper.load(Ordering::Relaxed)).unwrap_or(Level::Critical)
}

/// Sets the lower limit of all present and future back ends for messages of this origin.
pub fn set_global_lower(origin: Origin, level: Level) {
    let registry = registry(origin);
    registry.lower.store(level as u32, Ordering::Relaxed);
    for backend in registry.snapshot() {
        if !backend.independent {
            backend.limits.set_lower(level);
        }
    }
    refresh_threshold();
}

/// Sets the upper limit of all present and future back ends for messages of this origin.
pub fn set_global_upper(origin: Origin, level: Level) {
    let registry = registry(origin);
    registry.upper.store(level as u32, Ordering::Relaxed);
    for backend in registry.snapshot() {
        if !backend.independent {
            backend.limits.set_upper(level);
        }
    }
}

/// `true` if a back end may accept a message of this level.
pub(super) fn may_reach(origin: Origin, level: Level) -> bool {
    level as u32 <= registry(origin).threshold.load(Ordering::Relaxed)
}

/// Passes a message to every back end that accepts its level.
pub(super) fn deliver(record: &Record<'_>) {
    // Iterate over a copy, without the lock: a sink may be a C callback that calls DOCA.
    for backend in registry(record.origin).snapshot() {
        if backend.limits.take(record.level) {
            backend.sink.accept(record);
        }
    }
}

/// A message as a line of text in DOCA's layout, including the newline.
#[derive(Debug)]
pub struct Line<'a>(pub &'a Record<'a>);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Record {
            origin,
            level,
            file,
            line,
            function,
            text,
        } = self.0;
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let Clock {
            hours,
            minutes,
            seconds,
        } = Clock::local(now);
        let owner = match origin {
            Origin::Sdk => "SOFTDOCA",
            Origin::Program => "DOCA",
        };
        write!(
            f,
            "[{hours:02}:{minutes:02}:{seconds:02}:{micros:06}][{pid}][{owner}][{tag}][{file}:{line}]",
            micros = now.subsec_micros(),
            pid = std::process::id(),
            tag = level.tag(),
            // DOCA prints the file's name without its directory.
            file = file.rsplit('/').next().unwrap_or(file),
        )?;
        if let Some(function) = function {
            write!(f, "[{function}]")?;
        }
        writeln!(f, " {text}")
    }
}

/// Time of day.
struct Clock {
    hours: u64,
    minutes: u64,
    seconds: u64,
}

impl Clock {
    /// Time of day in the local time zone.
    fn local(since_epoch: Duration) -> Clock {
        let utc = since_epoch.as_secs();
        let seconds = utc.saturating_add_signed(offset_from_utc(utc)) % 86_400;
        Clock {
            hours: seconds / 3600,
            minutes: seconds / 60 % 60,
            seconds: seconds % 60,
        }
    }
}

/// Offset of the local time zone from UTC in seconds, positive to the east; 0 if unknown.
fn offset_from_utc(seconds: u64) -> i64 {
    let Ok(seconds) = libc::time_t::try_from(seconds) else {
        return 0;
    };
    let mut broken_down = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both point to objects of the right type; zero is a valid value of every field, so the result is
    // initialised even on failure.
    unsafe {
        libc::localtime_r(&seconds, broken_down.as_mut_ptr());
        broken_down.assume_init().tm_gmtoff
    }
}

/// Socket of the syslog daemon.
const SOCKET: &str = "/dev/log";
/// Facility of user programs (`LOG_USER`).
const FACILITY: u32 = 1 << 3;

/// A sink that sends messages to the syslog socket.
///
/// It does not use the C library's `syslog`, which has one identity per process: each back end has a name of its own.
#[derive(Debug)]
pub struct Syslog {
    name: String,
    path: PathBuf,
    socket: UnixDatagram,
}

impl Syslog {
    /// Creates a sink that logs under `name`.
    ///
    /// # Errors
    /// [`Error::OperatingSystem`] if no socket can be created. A missing daemon is not an error: it may start later.
    pub fn new(name: &str) -> Result<Syslog> {
        Syslog::at(Path::new(SOCKET), name)
    }

    fn at(path: &Path, name: &str) -> Result<Syslog> {
        let no_socket =
            |error| Error::OperatingSystem.because(format_args!("no socket for syslog: {error}"));
        let socket = UnixDatagram::unbound().map_err(no_socket)?;
        // A hanging daemon must not block the program.
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
        // Ignored: the failure cannot be reported.
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
    use super::super::{Level, Origin};
    use super::*;

    #[test]
    fn a_line_has_the_layout_of_doca() {
        let record = Record {
            origin: Origin::Program,
            level: Level::Info,
            file: "../samples/dma_copy.c",
            line: 195,
            function: Some("main"),
            text: "Starting",
        };
        let line = Line(&record).to_string();
        let (time, rest) = line.split_at("[09:22:54:165778]".len());
        let shape: String = time
            .chars()
            .map(|c| if c.is_ascii_digit() { '0' } else { c })
            .collect();
        assert_eq!(shape, "[00:00:00:000000]");
        let pid = std::process::id();
        assert_eq!(
            rest,
            format!("[{pid}][DOCA][INF][dma_copy.c:195][main] Starting\n")
        );
        let record = Record {
            origin: Origin::Sdk,
            function: None,
            ..record
        };
        assert!(
            Line(&record)
                .to_string()
                .contains("][SOFTDOCA][INF][dma_copy.c:195] Starting")
        );
    }

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
            text: "not logged: no back end",
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
