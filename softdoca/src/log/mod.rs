//! What softdoca itself has to say: the SDK log of DOCA.
//!
//! A process that registered no SDK back end hears nothing, as with the real SDK; `SOFTDOCA_LOG=<level>` in the environment
//! writes to standard error without the program's help.

use std::fmt;
use std::io::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Levels with DOCA's values (`enum doca_log_level`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Level {
    /// Nothing is written.
    Disable = 10,
    /// The process cannot go on.
    Critical = 20,
    /// A call failed.
    Error = 30,
    /// Something that deserves a look.
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

    /// The level with DOCA's value `value`.
    pub fn from_value(value: u32) -> Option<Level> {
        Level::ALL.into_iter().find(|level| *level as u32 == value)
    }

    /// DOCA's three-letter tag of a line at this level.
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

/// One message on its way to the back ends.
#[derive(Debug)]
pub struct Record<'a> {
    /// Severity.
    pub level: Level,
    /// Source file of the message.
    pub file: &'a str,
    /// Line in that file.
    pub line: u32,
    /// The text, without a line end.
    pub text: &'a str,
}

/// Where messages go. Called under a lock: an implementation must not log.
pub trait Sink: Send + Sync {
    /// Takes one message.
    fn accept(&self, record: &Record<'_>);
}

/// A registered sink with its own level.
pub struct Backend {
    level: AtomicU32,
    sink: Box<dyn Sink>,
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend")
            .field("level", &self.level)
            .finish_non_exhaustive()
    }
}

impl Backend {
    /// Sets the highest level that this back end takes.
    pub fn set_level(&self, level: Level) {
        self.level.store(level as u32, Ordering::Relaxed);
        refresh_threshold();
    }
}

static BACKENDS: Mutex<Vec<Arc<Backend>>> = Mutex::new(Vec::new());
/// The highest level that any back end takes: lets a silent call site cost one load.
static THRESHOLD: AtomicU32 = AtomicU32::new(Level::Disable as u32);
static ENVIRONMENT: OnceLock<()> = OnceLock::new();

fn refresh_threshold() {
    let backends = BACKENDS.lock().unwrap_or_else(PoisonError::into_inner);
    let highest = backends
        .iter()
        .map(|backend| backend.level.load(Ordering::Relaxed))
        .max();
    THRESHOLD.store(highest.unwrap_or(Level::Disable as u32), Ordering::Relaxed);
}

/// Registers a sink for the messages of softdoca itself. It stays for the life of the process, as DOCA's do.
pub fn add_backend(level: Level, sink: Box<dyn Sink>) -> Arc<Backend> {
    let backend = Arc::new(Backend {
        level: AtomicU32::new(level as u32),
        sink,
    });
    BACKENDS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(Arc::clone(&backend));
    refresh_threshold();
    backend
}

/// Whether a message at this level would reach anyone.
pub fn enabled(level: Level) -> bool {
    ENVIRONMENT.get_or_init(|| {
        if let Ok(name) = std::env::var("SOFTDOCA_LOG") {
            match Level::from_name(&name) {
                Some(level) => drop(add_backend(level, Box::new(StandardError))),
                None => eprintln!(
                    "softdoca: SOFTDOCA_LOG={name:?} is not a level; use critical, error, warning, info, debug or trace"
                ),
            }
        }
    });
    level as u32 <= THRESHOLD.load(Ordering::Relaxed)
}

/// Hands a message to every back end that takes its level. Use the macros of this module.
pub fn write(level: Level, file: &str, line: u32, message: fmt::Arguments<'_>) {
    if !enabled(level) {
        return;
    }
    let text = message.to_string();
    let record = Record {
        level,
        file,
        line,
        text: &text,
    };
    // Cloned out of the lock: a sink may be a C callback, which may call back into DOCA.
    let backends = BACKENDS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    for backend in backends {
        if level as u32 <= backend.level.load(Ordering::Relaxed) {
            backend.sink.accept(&record);
        }
    }
}

struct StandardError;

impl Sink for StandardError {
    fn accept(&self, record: &Record<'_>) {
        let line = format!(
            "[softdoca {}:{}][{}] {}\n",
            record.file,
            record.line,
            record.level.tag(),
            record.text
        );
        // Nowhere to report that standard error is closed.
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
        let backend = add_backend(Level::Warning, Box::new(Collect(Arc::clone(&seen))));
        warn!("log-test {}", 1);
        info!("log-test {}", 2);
        backend.set_level(Level::Info);
        info!("log-test {}", 3);
        backend.set_level(Level::Disable);
        error!("log-test {}", 4);
        let seen: Vec<String> = seen
            .lock()
            .unwrap()
            .iter()
            .filter(|line| line.contains("log-test"))
            .cloned()
            .collect();
        assert_eq!(seen, ["WRN log-test 1", "INF log-test 3"]);
    }
}
