//! The flags of every DOCA program.

use super::Refusal;
use crate::log::Level;

/// A general flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum General {
    Help,
    Version,
    LogLevel,
    SdkLogLevel,
    Json,
}

/// Names, value type and help text of a general flag.
pub(super) struct Description {
    pub(super) flag: General,
    pub(super) short: Option<&'static str>,
    pub(super) long: &'static str,
    pub(super) argument: Option<&'static str>,
    pub(super) text: &'static str,
}

pub(super) const FLAGS: [Description; 5] = [
    Description {
        flag: General::Help,
        short: Some("h"),
        long: "help",
        argument: None,
        text: "Print a help synopsis",
    },
    Description {
        flag: General::Version,
        short: Some("v"),
        long: "version",
        argument: None,
        text: "Print program version information",
    },
    Description {
        flag: General::LogLevel,
        short: Some("l"),
        long: "log-level",
        argument: None,
        text: "Set the (numeric) log level for the program <10=DISABLE, 20=CRITICAL, 30=ERROR, 40=WARNING, 50=INFO, 60=DEBUG, 70=TRACE>",
    },
    Description {
        flag: General::SdkLogLevel,
        short: None,
        long: "sdk-log-level",
        argument: None,
        text: "Set the SDK (numeric) log level for the program <10=DISABLE, 20=CRITICAL, 30=ERROR, 40=WARNING, 50=INFO, 60=DEBUG, 70=TRACE>",
    },
    Description {
        flag: General::Json,
        short: Some("j"),
        long: "json",
        argument: Some("<path>"),
        text: "Parse command line flags from an input json file",
    },
];

pub(super) fn by_short(name: &str) -> Option<General> {
    let known = FLAGS.iter().find(|known| known.short == Some(name));
    known.map(|known| known.flag)
}

pub(super) fn by_long(name: &str) -> Option<General> {
    let known = FLAGS.iter().find(|known| known.long == name);
    known.map(|known| known.flag)
}

pub(super) fn is_long(name: Option<&str>) -> bool {
    name.is_some_and(|name| by_long(name).is_some())
}

impl General {
    pub(super) fn takes_value(self) -> bool {
        !matches!(self, General::Help | General::Version)
    }

    pub(super) fn long(self) -> &'static str {
        let known = FLAGS.iter().find(|known| known.flag == self);
        known.map_or("", |known| known.long)
    }
}

/// Log levels set by the user.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogLevels {
    /// Level of the program's messages.
    pub program: Option<Level>,
    /// Level of the SDK's messages.
    pub sdk: Option<Level>,
}

impl LogLevels {
    pub(super) fn overridden_by(self, other: LogLevels) -> LogLevels {
        LogLevels {
            program: other.program.or(self.program),
            sdk: other.sdk.or(self.sdk),
        }
    }

    pub(super) fn set(&mut self, flag: General, value: i64) -> Result<(), Refusal> {
        let level = u32::try_from(value).ok().and_then(Level::from_value);
        let Some(level) = level else {
            return Err(Refusal::invalid(format_args!(
                "--{}: expected 10, 20, 30, 40, 50, 60 or 70, got {value}",
                flag.long()
            )));
        };
        match flag {
            General::SdkLogLevel => self.sdk = Some(level),
            _ => self.program = Some(level),
        }
        Ok(())
    }
}
