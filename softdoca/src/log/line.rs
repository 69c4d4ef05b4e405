//! A message as a line of text, in DOCA's layout.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Origin, Record};

/// A record as a line of text, with its end.
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
            // As DOCA: without its folder.
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
    /// In the user's time zone.
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

/// Seconds that the user's time zone is east of Greenwich; 0 when that cannot be told.
fn offset_from_utc(seconds: u64) -> i64 {
    let Ok(seconds) = libc::time_t::try_from(seconds) else {
        return 0;
    };
    let mut broken_down = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both point to objects of the right type; zero is a valid value of every field, so it is initialised in any case.
    unsafe {
        libc::localtime_r(&seconds, broken_down.as_mut_ptr());
        broken_down.assume_init().tm_gmtoff
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
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
}
