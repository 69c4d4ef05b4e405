//! Logging: softdoca's own messages (DOCA's SDK log), and messages that programs log through `doca_log`.
//!
//! As with the real SDK, a process without a registered back end gets no messages; `SOFTDOCA_LOG=<level>` in the
//! environment writes softdoca's own messages to standard error in addition.

mod backend;
mod limits;
pub mod sources;

use std::fmt;
use std::io::Write as _;
use std::sync::Once;

pub use backend::{
    Backend, Line, Origin, Sink, Syslog, add_backend, global_lower, global_upper, set_global_lower,
    set_global_upper,
};
pub use limits::{Limited, Suppressed};

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
        Level::Error | Level::Warning => match limits::admit_site(file, line) {
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

#[allow(unused_imports, reason = "a full set for every module of the engine")]
pub(crate) use {at_level, debug, error, info, warn_ as warn};

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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

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
}
