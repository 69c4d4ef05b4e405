//! Logging: softdoca's own messages (DOCA's SDK log), and messages that programs log through `doca_log`.
//!
//! As with the real SDK, a process without a registered back end gets no messages; `SOFTDOCA_LOG=<level>` in the
//! environment writes softdoca's own messages to standard error in addition. Errors and warnings are limited in rate.

mod backend;
pub mod sources;

pub use backend::{
    Backend, Line, Origin, Sink, Syslog, add_backend, global_lower, global_upper, set_global_lower,
    set_global_upper,
};

use std::collections::HashMap;
use std::fmt;
use std::io::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

/// A message with its origin.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// Origin, which selects the back ends.
    pub origin: Origin,
    /// Severity.
    pub level: Level,
    /// Source file of the message.
    pub file: &'a str,
    /// Line in that file.
    pub line: u32,
    /// Function that logs.
    pub function: Option<&'a str>,
    /// The text, without a newline.
    pub text: &'a str,
}

/// Environment variable with the least severe level that is written to standard error.
pub const VARIABLE: &str = "SOFTDOCA_LOG";

/// Reads [`VARIABLE`], the first time. An unknown level is reported on standard error, and no messages are written.
///
/// Also called by the function that nearly every program calls first: a program without log messages would never report
/// that its variable has no effect. The process is not terminated for that.
pub fn read_environment() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let Some(value) = std::env::var_os(VARIABLE) else {
            return;
        };
        match value.to_str().and_then(Level::from_name) {
            Some(level) => backend::add_independent(level, Box::new(StandardError)),
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
    backend::may_reach(Origin::Sdk, level)
}

/// Passes a message of softdoca's to every back end that accepts its level. Use the macros of this module.
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
    backend::deliver(&Record {
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
    if backend::may_reach(record.origin, record.level) {
        backend::deliver(record);
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
    /// No messages.
    Disable = 10,
    /// The process cannot continue.
    Critical = 20,
    /// A call failed.
    Error = 30,
    /// Something unexpected that was handled.
    Warning = 40,
    /// Milestones.
    Info = 50,
    /// For developers.
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

/// A range of levels whose limits can be changed, and can be protected against widening.
///
/// DOCA's terms: the *lower* limit is the least severe level (the larger number), the *upper* one the most severe.
#[derive(Debug)]
struct Limits {
    lower: AtomicU32,
    upper: AtomicU32,
    /// The lower limit cannot exceed this value.
    lower_bound: AtomicU32,
    /// The upper limit cannot go below this value.
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

/// Number of suppressed messages; displays as nothing for 0.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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
}
