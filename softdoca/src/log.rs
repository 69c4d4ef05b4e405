//! Logging: softdoca's own messages (DOCA's SDK log), and messages that programs log through `doca_log`.
//!
//! As with the real SDK, a process without a registered back end gets no messages; `SOFTDOCA_LOG=<level>` in the
//! environment writes softdoca's own messages to standard error in addition. Errors and warnings are limited in rate.

pub mod sources;

use std::collections::HashMap;
use std::fmt;
use std::io::Write as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};

/// A message with its origin.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// Origin, which selects the back ends.
    pub origin: Origin,
    pub level: Level,
    /// Source file of the message.
    pub file: &'a str,
    pub line: u32,
    pub function: Option<&'a str>,
    /// The text, without a newline.
    pub text: &'a str,
}

/// Environment variable with the least severe level that is written to standard error.
pub const VARIABLE: &str = "SOFTDOCA_LOG";

/// Reads [`VARIABLE`], the first time. An unknown level is reported on standard error, and no messages are written.
///
/// Also called by a function that nearly every program calls first, because a program without log messages would
/// otherwise never report an invalid variable. The process is not terminated because of it.
pub fn read_environment() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let Some(value) = std::env::var_os(VARIABLE) else {
            return;
        };
        match value.to_str().and_then(Level::from_name) {
            Some(level) => add_independent(level, Box::new(StandardError)),
            None => {
                // Ignored: a closed standard error cannot be reported.
                let _ = writeln!(
                    std::io::stderr(),
                    "softdoca: {VARIABLE}: expected critical, error, warning, info, debug or trace, got {:?}; \
                     going on without messages",
                    value.display().to_string()
                );
            }
        }
    });
}

/// `true` if a back end accepts softdoca's messages of this level.
pub fn enabled(level: Level) -> bool {
    read_environment();
    may_reach(Origin::Sdk, level)
}

/// Passes one of softdoca's messages to every back end that accepts its level. Use the macros of this module.
///
/// Errors and warnings, which peers can cause, are limited to 10 per second for each source line.
pub fn write(level: Level, file: &str, line: u32, message: fmt::Arguments<'_>) {
    if !enabled(level) {
        return;
    }
    let suppressed = match level {
        Level::Error | Level::Warning => match admit_site(file, line) {
            Some(suppressed) => suppressed,
            None => return,
        },
        _ => Suppressed::default(),
    };
    deliver(&Record {
        origin: Origin::Sdk,
        level,
        file,
        line,
        function: None,
        text: &format!("{message}{suppressed}"),
    });
}

/// Passes a message of the program's to every back end that accepts its level.
pub fn write_record(record: &Record<'_>) {
    if may_reach(record.origin, record.level) {
        deliver(record);
    }
}

/// Standard error, bypassing the C library's stream.
pub(crate) struct StandardError;

impl Sink for StandardError {
    fn accept(&self, record: &Record<'_>) {
        let line = Line(record).to_string();
        // Ignored: a closed standard error cannot be reported.
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }
}

#[allow(unused_macros, reason = "used through the macros below")]
macro_rules! at_level {
    ($level:ident, $($arg:tt)+) => {
        if $crate::log::enabled($crate::log::Level::$level) {
            $crate::log::write($crate::log::Level::$level, file!(), line!(), format_args!($($arg)+));
        }
    };
}
#[allow(unused_macros, reason = "part of the set")]
macro_rules! error { ($($arg:tt)+) => { $crate::log::at_level!(Error, $($arg)+) }; }
#[allow(unused_macros, reason = "part of the set")]
macro_rules! warn_ { ($($arg:tt)+) => { $crate::log::at_level!(Warning, $($arg)+) }; }
#[allow(unused_macros, reason = "part of the set")]
macro_rules! info { ($($arg:tt)+) => { $crate::log::at_level!(Info, $($arg)+) }; }
#[allow(unused_macros, reason = "part of the set")]
macro_rules! debug { ($($arg:tt)+) => { $crate::log::at_level!(Debug, $($arg)+) }; }

#[allow(unused_imports, reason = "a full set for every module of the engine")]
pub(crate) use {at_level, debug, error, info, warn_ as warn};

/// Levels with the values of `enum doca_log_level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Level {
    Disable = 10,
    /// The process cannot continue.
    Critical = 20,
    /// A call failed.
    Error = 30,
    /// An unexpected condition that was handled.
    Warning = 40,
    /// Milestones.
    Info = 50,
    /// Information for developers.
    Debug = 60,
    /// Data-path detail.
    Trace = 70,
}

impl Level {
    /// Every level, most severe first.
    pub const ALL: [Level; 7] = [
        Level::Disable,
        Level::Critical,
        Level::Error,
        Level::Warning,
        Level::Info,
        Level::Debug,
        Level::Trace,
    ];

    /// The level of a value of `enum doca_log_level`.
    pub fn from_value(value: u32) -> Option<Level> {
        Level::ALL.into_iter().find(|level| *level as u32 == value)
    }

    /// DOCA's three-letter tag for this level.
    pub const fn tag(self) -> &'static str {
        match self {
            Level::Disable => "   ",
            Level::Critical => "CRT",
            Level::Error => "ERR",
            Level::Warning => "WRN",
            Level::Info => "INF",
            Level::Debug => "DBG",
            Level::Trace => "TRC",
        }
    }

    fn from_name(name: &str) -> Option<Level> {
        Some(match name {
            "critical" => Level::Critical,
            "error" => Level::Error,
            "warning" | "warn" => Level::Warning,
            "info" => Level::Info,
            "debug" => Level::Debug,
            "trace" => Level::Trace,
            _ => return None,
        })
    }
}

/// A range of levels whose limits can be changed, and can be locked so that the range cannot become wider.
///
/// DOCA's terms: the *lower* limit is the least severe level (the larger number), the *upper* one the most severe.
#[derive(Debug)]
struct Limits {
    lower: AtomicU32,
    upper: AtomicU32,
    /// The lower limit cannot exceed this value.
    lower_bound: AtomicU32,
    /// Minimum of the upper limit.
    upper_bound: AtomicU32,
}

impl Limits {
    fn new(lower: Level, upper: Level) -> Self {
        Self {
            lower: AtomicU32::new(lower as u32),
            upper: AtomicU32::new(upper as u32),
            lower_bound: AtomicU32::new(u32::MAX),
            upper_bound: AtomicU32::new(0),
        }
    }

    fn set_lower(&self, level: Level) {
        let bound = self.lower_bound.load(Ordering::Relaxed);
        self.lower
            .store((level as u32).min(bound), Ordering::Relaxed);
    }

    fn set_upper(&self, level: Level) {
        let bound = self.upper_bound.load(Ordering::Relaxed);
        self.upper
            .store((level as u32).max(bound), Ordering::Relaxed);
    }

    fn fix_lower(&self) {
        self.lower_bound
            .store(self.lower.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    fn fix_upper(&self) {
        self.upper_bound
            .store(self.upper.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    fn take(&self, level: Level) -> bool {
        let level = level as u32;
        level <= self.lower.load(Ordering::Relaxed) && level >= self.upper.load(Ordering::Relaxed)
    }

    /// Value of the least severe accepted level.
    fn lower(&self) -> u32 {
        self.lower.load(Ordering::Relaxed)
    }
}

const PERIOD: Duration = Duration::from_secs(1);
/// Messages per second of one source line.
const PER_SITE: u32 = 10;

/// Rate limit for one kind of message, so that peers cannot fill a disk with log messages. The first message after a
/// suppressed one reports the number suppressed.
#[derive(Debug)]
pub struct Limited {
    most: u32,
    /// Start of the current second.
    since: Option<Instant>,
    written: u32,
    suppressed: u64,
}

/// Number of suppressed messages; its text is empty for 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Suppressed(u64);

impl fmt::Display for Suppressed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            count => write!(f, " ({count} similar messages suppressed)"),
        }
    }
}

impl Limited {
    /// Allows `most` messages per second.
    pub const fn new(most: u32) -> Limited {
        Limited {
            most,
            since: None,
            written: 0,
            suppressed: 0,
        }
    }

    /// Counts a message at `now`; `None` if it is to be suppressed.
    pub fn admit(&mut self, now: Instant) -> Option<Suppressed> {
        if self
            .since
            .is_none_or(|since| now.saturating_duration_since(since) >= PERIOD)
        {
            self.since = Some(now);
            self.written = 0;
        }
        if self.written >= self.most {
            self.suppressed += 1;
            return None;
        }
        self.written += 1;
        Some(Suppressed(std::mem::take(&mut self.suppressed)))
    }
}

/// [`Limited::admit`] for a message of a source line.
fn admit_site(file: &str, line: u32) -> Option<Suppressed> {
    static SITES: Mutex<Option<HashMap<(String, u32), Limited>>> = Mutex::new(None);
    let mut sites = SITES.lock().unwrap_or_else(PoisonError::into_inner);
    sites
        .get_or_insert_default()
        .entry((file.to_owned(), line))
        .or_insert_with(|| Limited::new(PER_SITE))
        .admit(Instant::now())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// softdoca itself.
    Sdk,
    /// The program, through `doca_log`.
    Program,
}

/// Destination of messages. Called without a lock held: an implementation may be a C callback that logs itself.
pub trait Sink: Send + Sync {
    fn accept(&self, record: &Record<'_>);
}

/// A registered sink with its own limits.
pub struct Backend {
    origin: Origin,
    limits: Limits,
    /// `true` if the back end is not subject to the global limits, because the user has set its level from outside the
    /// program.
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

/// The back ends for messages of one origin, and the limits of new back ends.
#[derive(Debug)]
struct Registry {
    backends: Mutex<Vec<Arc<Backend>>>,
    lower: AtomicU32,
    upper: AtomicU32,
    /// Least severe level that any back end accepts, so that a disabled call site costs one load.
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
fn add_independent(level: Level, sink: Box<dyn Sink>) {
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
fn may_reach(origin: Origin, level: Level) -> bool {
    level as u32 <= registry(origin).threshold.load(Ordering::Relaxed)
}

/// Passes a message to every back end that accepts its level.
fn deliver(record: &Record<'_>) {
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
/// It does not use the C library's `syslog`, which has one identity per process: each back end has its own name.
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

impl Error {
    /// Logs the reason to the SDK log (level error) and returns the error.
    ///
    /// Not for the data path, and not for [`Error::Again`], which is not a failure.
    #[must_use = "the error still has to be returned"]
    #[cold]
    #[track_caller]
    pub fn because(self, reason: impl fmt::Display) -> Error {
        let location = std::panic::Location::caller();
        write(
            Level::Error,
            location.file(),
            location.line(),
            format_args!("{}: {reason}", self.name()),
        );
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Collect(Arc<Mutex<Vec<String>>>);
    impl Sink for Collect {
        fn accept(&self, record: &Record<'_>) {
            self.0
                .lock()
                .unwrap()
                .push(format!("{} {}", record.level.tag(), record.text));
        }
    }

    #[test]
    fn a_backend_takes_only_its_levels() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let backend = add_backend(Origin::Sdk, Box::new(Collect(Arc::clone(&seen))));
        let set = |level| backend.set_lower(Origin::Sdk, level);
        assert_eq!(set(Level::Warning), Ok(()));
        warn!("log-test {}", 1);
        info!("log-test {}", 2);
        assert_eq!(set(Level::Info), Ok(()));
        info!("log-test {}", 3);
        assert_eq!(set(Level::Disable), Ok(()));
        error!("log-test {}", 4);
        assert_eq!(
            backend.set_lower(Origin::Program, Level::Info),
            Err(crate::error::Error::InvalidValue)
        );
        let seen: Vec<String> = seen
            .lock()
            .unwrap()
            .iter()
            .filter(|line| line.contains("log-test"))
            .cloned()
            .collect();
        assert_eq!(seen, ["WRN log-test 1", "INF log-test 3"]);
    }

    fn taken(limits: &Limits) -> Vec<Level> {
        Level::ALL
            .into_iter()
            .filter(|level| limits.take(*level))
            .collect()
    }

    #[test]
    fn limits_can_be_moved_and_strict_ones_only_narrowed() {
        use Level::*;
        let limits = Limits::new(Info, Critical);
        assert_eq!(taken(&limits), [Critical, Error, Warning, Info]);
        limits.set_upper(Warning);
        limits.set_lower(Debug);
        assert_eq!(taken(&limits), [Warning, Info, Debug]);
        limits.fix_lower();
        limits.fix_upper();
        limits.set_lower(Trace);
        limits.set_upper(Critical);
        assert_eq!(taken(&limits), [Warning, Info, Debug]);
        limits.set_lower(Info);
        limits.set_upper(Info);
        assert_eq!(taken(&limits), [Info]);
        limits.set_lower(Disable);
        assert_eq!(taken(&limits), []);
    }

    #[test]
    fn messages_beyond_the_limit_are_counted() {
        let (begin, mut messages) = (Instant::now(), Limited::new(2));
        let mut at = |milliseconds| messages.admit(begin + Duration::from_millis(milliseconds));
        assert_eq!([at(0), at(1)], [Some(Suppressed(0)); 2]);
        assert_eq!([at(2), at(998), at(999)], [None; 3]);
        assert_eq!(
            [at(1000), at(1999)],
            [Some(Suppressed(3)), Some(Suppressed(0))]
        );
        assert_eq!(at(1999), None);
        assert_eq!(at(9000), Some(Suppressed(1)));
        assert_eq!(Suppressed(0).to_string(), "");
        assert!(Suppressed(3).to_string().contains('3'));
    }

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
