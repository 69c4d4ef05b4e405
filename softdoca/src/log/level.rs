//! Severities.

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

    pub(super) fn from_name(name: &str) -> Option<Level> {
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
