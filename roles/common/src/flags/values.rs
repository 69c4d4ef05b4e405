//! Value parsers of flags.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use role_formats::stored_block::Geometry;
use tracing::level_filters::LevelFilter;

use control::network::HostPort;

/// A numeric DOCA log level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLevel(u32);

impl LogLevel {
    /// Parses one of DOCA's seven levels.
    ///
    /// # Errors
    ///
    /// The text is not 10, 20, ... or 70; the error lists the levels.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(level @ (10 | 20 | 30 | 40 | 50 | 60 | 70)) => Ok(Self(level)),
            _ => Err("expected 10 (disable), 20 (critical), 30 (error), 40 (warning), 50 (info), 60 (debug) or 70 (trace)"
                .to_owned()),
        }
    }

    /// DOCA's number for this level.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }

    /// The `tracing` level. "critical" logs nothing, because `tracing` has no level above errors; the failure that ends
    /// a program is always printed.
    #[must_use]
    pub fn filter(self) -> LevelFilter {
        match self.0 {
            30 => LevelFilter::ERROR,
            40 => LevelFilter::WARN,
            50 => LevelFilter::INFO,
            60 => LevelFilter::DEBUG,
            70 => LevelFilter::TRACE,
            _ => LevelFilter::OFF,
        }
    }
}

/// Parses the index of a CPU that this process may run on.
///
/// # Errors
///
/// The text is not a number, or names a CPU that does not exist or is excluded by this process's affinity mask (a
/// container's CPU set, for example).
pub fn cpu(text: &str) -> Result<u32, String> {
    let allowed = allowed_cpus()?;
    match text.parse() {
        Ok(index) if allowed.contains(&index) => Ok(index),
        _ => Err(format!(
            "expected a CPU that this process may use: {}",
            ranges(&allowed)
        )),
    }
}

fn allowed_cpus() -> Result<Vec<u32>, String> {
    let set = rustix::thread::sched_getaffinity(None)
        .map_err(|error| format!("sched_getaffinity: {error}"))?;
    let last = u32::try_from(rustix::thread::CpuSet::MAX_CPU).unwrap_or(u32::MAX);
    Ok((0..last)
        .filter(|&index| set.is_set(index as usize))
        .collect())
}

/// Formats `[0, 1, 2, 5]` as `0-2, 5`.
fn ranges(indices: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &index in indices {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == index => *last = index,
            _ => runs.push((index, index)),
        }
    }
    let texts: Vec<String> = runs
        .into_iter()
        .map(|(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        })
        .collect();
    texts.join(", ")
}

/// Parses the address of a server: a host and a port, as `172.17.0.1:12345`.
///
/// # Errors
///
/// The text is not an address, or the port is 0, on which no server can listen.
pub fn server_address(text: &str) -> Result<HostPort, String> {
    match text.parse::<HostPort>() {
        Ok(address) if address.port() == 0 => Err("expected a port, 1 to 65535, got 0".to_owned()),
        result => result,
    }
}

/// A timeout; `None` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeout(pub Option<Duration>);

/// Parses a time: whole seconds, or a number with units such as `90s` or `2m`.
///
/// # Errors
///
/// The time is less than a second or more than a week, or the unit is unknown.
pub fn duration(text: &str) -> Result<Duration, String> {
    const WEEK: u64 = 7 * 24 * 3600;
    let time = match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => humantime::parse_duration(text).ok(),
    };
    let limits = Duration::from_secs(1)..=Duration::from_secs(WEEK);
    time.filter(|time| limits.contains(time))
        .ok_or_else(|| format!("expected seconds, 1 to {WEEK}, or a time such as 90s or 2m"))
}

/// Parses a time, as [`duration`]; 0 is unlimited.
///
/// # Errors
///
/// As [`duration`].
pub fn timeout(text: &str) -> Result<Timeout, String> {
    match text {
        "0" => Ok(Timeout(None)),
        _ => duration(text)
            .map(|limit| Timeout(Some(limit)))
            .map_err(|error| format!("{error}, or 0 for any time")),
    }
}

/// Parses a size: bytes, or a number with a binary unit such as `4k`, `64MiB` or `1G`.
///
/// # Errors
///
/// The text is not a size, or overflows.
pub fn size(text: &str) -> Result<u64, String> {
    size_in(1, text).ok_or_else(|| "expected bytes, or a size such as 4k or 64MiB".to_owned())
}

/// Parses the value of `--logical-block-size`: bytes, up to [`Geometry::LARGEST_LOGICAL`].
///
/// # Errors
///
/// The text is not a number, 0, or too large.
pub fn logical_block_size(text: &str) -> Result<u32, String> {
    match size(text).map(u32::try_from) {
        Ok(Ok(size @ 1..=Geometry::LARGEST_LOGICAL)) => Ok(size),
        _ => Err(format!(
            "expected bytes, or a size such as 4k, 1 to {}",
            Geometry::LARGEST_LOGICAL
        )),
    }
}

/// Parses a size, as [`size`], of 32 bits.
///
/// # Errors
///
/// As [`size`], and 4 GiB or more.
pub fn size_u32(text: &str) -> Result<u32, String> {
    size_in(1, text)
        .and_then(|size| size.try_into().ok())
        .ok_or_else(|| format!("expected bytes, 0 to {}, or a size such as 4k", u32::MAX))
}

/// Parses a size; a plain number is in MiB. Returns bytes.
///
/// # Errors
///
/// The text is not a size, is zero, or overflows.
pub fn mebibytes(text: &str) -> Result<u64, String> {
    size_in(1 << 20, text)
        .filter(|&bytes| bytes != 0)
        .ok_or_else(|| {
            "expected a number of MiB, at least 1, or a size such as 512k or 1G".to_owned()
        })
}

/// `None` if invalid. Plain numbers are multiples of `unit` bytes.
fn size_in(unit: u64, text: &str) -> Option<u64> {
    // The crate accepts more than is allowed here: fractions, exponents, underscores and spaces.
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let has_exponent = text
        .trim_end_matches(|it: char| !it.is_ascii_digit())
        .contains(['e', 'E']);
    if !is_plain || has_exponent || !text.starts_with(|it: char| it.is_ascii_digit()) {
        return None;
    }
    parse_size::Config::new()
        .with_binary()
        .with_default_factor(unit)
        .parse_size(text)
        .ok()
}

/// Number of sessions to serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionLimit {
    /// This number of sessions, successful or failed. With one session, its result is that of the program, as in the
    /// reference.
    Count(u32),
    /// Until shutdown is requested.
    Forever,
}

impl SessionLimit {
    /// Returns `true` if the program exits after its first session, regardless of the result.
    #[must_use]
    pub fn is_single(self) -> bool {
        self == Self::Count(1)
    }

    /// Returns `true` if `sessions` reaches the limit.
    pub(crate) fn is_reached_by(self, sessions: u64) -> bool {
        match self {
            Self::Count(count) => sessions >= u64::from(count),
            Self::Forever => false,
        }
    }
}

impl FromStr for SessionLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "forever" {
            return Ok(Self::Forever);
        }
        match text.parse() {
            Ok(count @ 1..) => Ok(Self::Count(count)),
            _ => Err(format!(
                "expected a number of sessions, 1 to {}, or forever",
                u32::MAX
            )),
        }
    }
}

impl fmt::Display for SessionLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => count.fmt(f),
            Self::Forever => f.write_str("forever"),
        }
    }
}

/// Parses a count that must not be zero.
///
/// # Errors
///
/// The text is not a number, is zero, or exceeds 32 bits.
pub fn nonzero_u32(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(count @ 1..) => Ok(count),
        _ => Err(format!("expected a number, 1 to {}", u32::MAX)),
    }
}

/// Parses a 32-bit number.
///
/// # Errors
///
/// Not a number, or more than 32 bits.
pub fn number_u32(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| format!("expected a number, 0 to {}", u32::MAX))
}

/// Parses a TCP port to listen on; 0 selects a free one.
///
/// # Errors
///
/// The text is not a 16-bit number.
pub fn listen_port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| {
        format!(
            "expected a port, 1 to {}, or 0 for one that is free",
            u16::MAX
        )
    })
}

/// Maximum length of a Comch server name in bytes: DOCA's capability less the NUL.
const LONGEST_CHANNEL_NAME: usize = 119;

/// Name of a service's Comch channel if no other is given.
pub const DEFAULT_CHANNEL: &str = "doca_storage_comch";

/// Parses the name of a Comch server.
///
/// # Errors
///
/// The name is empty, or longer than DOCA permits.
pub fn channel_name(text: &str) -> Result<String, String> {
    match text.len() {
        1..=LONGEST_CHANNEL_NAME => Ok(text.to_owned()),
        length => Err(format!(
            "expected a name of 1 to {LONGEST_CHANNEL_NAME} bytes, it has {length}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_cpus_are_shown_as_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
        assert_eq!(ranges(&[3]), "3");
    }

    #[test]
    fn cpu_outside_the_affinity_mask_is_refused() {
        let usable = allowed_cpus().expect("affinity is readable")[0];
        assert_eq!(cpu(&usable.to_string()), Ok(usable));
        for wrong in ["1000000", "-1", "", "0x1", "one"] {
            let message = cpu(wrong).expect_err(wrong);
            assert!(message.contains(&usable.to_string()), "{message}");
        }
    }

    #[test]
    fn servers_have_a_port() {
        assert_eq!(server_address("127.0.0.1:80").map(|a| a.port()), Ok(80));
        assert_eq!(server_address("[::1]:80").map(|a| a.port()), Ok(80));
        assert_eq!(server_address("localhost:80").map(|a| a.port()), Ok(80));
        for wrong in ["127.0.0.1", "127.0.0.1:0", "localhost:0", "127.0.0:1", ""] {
            let message = server_address(wrong).expect_err(wrong);
            assert!(message.contains("port"), "{message}");
        }
    }

    #[test]
    fn zero_counts_and_seconds_are_refused() {
        assert_eq!(nonzero_u32("4294967295"), Ok(u32::MAX));
        assert!(nonzero_u32("0").is_err());
        assert!(nonzero_u32("4294967296").is_err());
        assert_eq!(timeout("0"), Ok(Timeout(None)));
        assert_eq!(timeout("7"), Ok(Timeout(Some(Duration::from_secs(7)))));
        assert!(timeout("-1").expect_err("negative").contains(" 0 "));
    }

    #[test]
    fn times_and_sizes_accept_units() {
        assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(
            timeout("1500ms"),
            Ok(Timeout(Some(Duration::from_millis(1500))))
        );
        for wrong in ["0", "1.5", "1ms", "8d", "604801", "-1", "1x", ""] {
            let message = duration(wrong).expect_err(wrong);
            assert!(message.contains("604800"), "{message}");
        }
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4k", 4096),
            ("4K", 4096),
            ("4KiB", 4096),
            ("3MiB", 3 << 20),
            ("1G", 1 << 30),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
            assert_eq!(size_u32(text), Ok(bytes as u32), "{text}");
        }
        assert_eq!(mebibytes("64"), Ok(64 << 20));
        assert_eq!(mebibytes("512k"), Ok(512 << 10));
        for wrong in [
            "",
            "k",
            "-1",
            "1.5k",
            "1e3",
            "1 k",
            "4q",
            "99999999999G",
            "1_0",
        ] {
            assert!(size(wrong).is_err(), "{wrong}");
            assert!(mebibytes(wrong).is_err(), "{wrong}");
        }
        assert!(mebibytes("0").is_err());
        for wrong in ["4G", "4294967296", "-1"] {
            let message = size_u32(wrong).expect_err(wrong);
            assert!(message.contains("4294967295"), "{message}");
        }
    }

    #[test]
    fn errors_for_numbers_and_ports_give_the_range() {
        assert_eq!(number_u32("0"), Ok(0));
        assert_eq!(listen_port("65535"), Ok(u16::MAX));
        for wrong in ["", "x", "-1", "1.5", "0x10", "4294967296"] {
            let message = number_u32(wrong).expect_err(wrong);
            assert!(message.contains("4294967295"), "{message}");
            let message = listen_port(wrong).expect_err(wrong);
            assert!(message.contains("65535"), "{message}");
        }
    }

    #[test]
    fn channel_name_length_is_limited() {
        assert_eq!(channel_name("x"), Ok("x".to_owned()));
        assert!(channel_name(&"x".repeat(119)).is_ok());
        for wrong in [String::new(), "x".repeat(120)] {
            let message = channel_name(&wrong).expect_err("length");
            assert!(message.contains("119"), "{message}");
        }
    }

    #[test]
    fn sizes_whose_stored_blocks_are_too_large_are_refused() {
        assert_eq!(Geometry::for_logical(u32::MAX), None);
        let text = logical_block_size("0").expect_err("zero");
        let largest: u32 = text
            .rsplit(' ')
            .next()
            .and_then(|number| number.parse().ok())
            .expect("a number");
        assert!(Geometry::for_logical(largest).is_some());
        assert!(Geometry::for_logical(largest + 1).is_none());
        assert_eq!(logical_block_size(&largest.to_string()), Ok(largest));
        assert_eq!(logical_block_size("4096"), Ok(4096));
        assert_eq!(logical_block_size("4k"), Ok(4096));
        for wrong in ["", "-1", "4q", "4294967295", "4294967296"] {
            assert_eq!(logical_block_size(wrong), Err(text.clone()), "{wrong}");
        }
    }

    #[test]
    fn levels_map_to_tracing() {
        assert_eq!(
            LogLevel::parse("50").map(LogLevel::filter),
            Ok(LevelFilter::INFO)
        );
        assert_eq!(
            LogLevel::parse("10").map(LogLevel::filter),
            Ok(LevelFilter::OFF)
        );
        assert!(
            LogLevel::parse("55")
                .expect_err("55")
                .contains("60 (debug)")
        );
    }
}
