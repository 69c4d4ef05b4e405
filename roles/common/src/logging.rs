//! Logs on standard error, with DOCA's numeric levels.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::budget::{LOG_LINES_PER_SECOND, LogBudget};
use crate::console;
use crate::flags::{GeneralFlags, LogFormat};
use crate::metrics::SUPPRESSED_LOG_LINES;

/// Crates whose messages `--sdk-log-level` selects: they take the place of NVIDIA's SDK.
const SDK_TARGETS: [&str; 3] = ["doca", "doca_sys", "softdoca"];

/// Starts logging with the levels of the flags. In a process that already logs (a test with several roles in it), only
/// the SDK's level changes.
pub fn start(flags: &GeneralFlags, format: LogFormat) {
    let sdk = SDK_TARGETS.map(|target| (target, flags.sdk_log_level.filter()));
    let levels = Targets::new()
        .with_default(flags.log_level.filter())
        .with_targets(sdk);
    let lines = tracing_subscriber::fmt::layer().with_ansi(console::is_coloured(&io::stderr()));
    let layer = match format {
        LogFormat::Text => lines
            .with_writer(|| Lines)
            .map_event_format(|format| Limited::new(format, LogFormat::Text))
            .boxed(),
        LogFormat::Json => lines
            .with_writer(io::stderr)
            .json()
            .map_event_format(|format| Limited::new(format, LogFormat::Json))
            .boxed(),
    };
    // Fails if there is a subscriber already, whose levels then remain.
    let _ = tracing_subscriber::registry()
        .with(levels)
        .with(layer)
        .try_init();
    SDK_LEVEL.store(flags.sdk_log_level.number(), Ordering::Relaxed);
    if let Err(error) = doca::set_sdk_log_level(flags.sdk_log_level.number()) {
        tracing::warn!("--sdk-log-level has no effect: {error}");
    }
}

/// Writer to standard error for whole lines, wrapped to the width of a terminal.
struct Lines;

impl io::Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        console::print_error(format_args!("{}", String::from_utf8_lossy(line)));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The numeric level of `--sdk-log-level`; 0 before logging has started.
static SDK_LEVEL: AtomicU32 = AtomicU32::new(0);

/// DOCA's levels "disable" and "debug".
const SDK_DISABLED: u32 = 10;
const SDK_DEBUG: u32 = 60;

/// Runs `call` with the SDK's log messages disabled, unless the user has enabled debug messages: for attempts that are
/// expected to fail and are repeated, each of which would be logged as an error. Messages of other threads are lost
/// meanwhile.
pub(crate) fn without_sdk_messages<R>(call: impl FnOnce() -> R) -> R {
    let level = SDK_LEVEL.load(Ordering::Relaxed);
    if !(SDK_DISABLED + 1..SDK_DEBUG).contains(&level) {
        return call();
    }
    // Best effort: at worst, the messages are logged.
    let _ = doca::set_sdk_log_level(SDK_DISABLED);
    let result = call();
    let _ = doca::set_sdk_log_level(level);
    result
}

/// Formats events of level info and above within a budget of lines per call site, so that a peer that repeatedly
/// causes the same event does not fill the disk. Debug and trace events are not limited: they are off by default.
struct Limited<F> {
    format: F,
    log_format: LogFormat,
    budget: Mutex<LogBudget<Kind>>,
}

/// A call site that logs.
#[derive(Clone)]
struct Kind(&'static Metadata<'static>);

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.0.callsite() == other.0.callsite()
    }
}

impl Eq for Kind {}

impl Hash for Kind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.callsite().hash(state);
    }
}

impl<F> Limited<F> {
    fn new(format: F, log_format: LogFormat) -> Self {
        Self {
            format,
            log_format,
            budget: Mutex::new(LogBudget::new(LOG_LINES_PER_SECOND)),
        }
    }
}

impl<S, N, F> FormatEvent<S, N> for Limited<F>
where
    S: Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        if *metadata.level() > Level::INFO {
            return self.format.format_event(context, writer, event);
        }
        let now = Instant::now();
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        let suppressed = budget.take_suppressed(now);
        let is_written = budget.charge(now, Kind(metadata));
        drop(budget);
        for (Kind(metadata), count) in suppressed {
            let (level, target) = (metadata.level(), metadata.target());
            let (file, line) = (
                metadata.file().unwrap_or_default(),
                metadata.line().unwrap_or_default(),
            );
            match self.log_format {
                LogFormat::Text => writeln!(
                    writer,
                    "{level} {target}: {count} more suppressed ({file}:{line})"
                )?,
                LogFormat::Json => {
                    let document = serde_json::json!({
                        "level": level.as_str(),
                        "target": target,
                        "fields": {
                            "message": format!("{count} more suppressed"),
                            "suppressed": count,
                            "file": file,
                            "line": line,
                        },
                    });
                    writeln!(writer, "{document}")?;
                }
            }
        }
        if !is_written {
            SUPPRESSED_LOG_LINES.increment();
        }
        if is_written {
            return self.format.format_event(context, writer, event);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("not poisoned").extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn events_per_call_site_are_limited_and_counted() {
        let written = Written::default();
        let writer = written.clone();
        let format = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .map_event_format(|format| Limited::new(format, LogFormat::Text));
        let subscriber = tracing_subscriber::registry().with(format);
        let limit = LOG_LINES_PER_SECOND as usize;
        tracing::subscriber::with_default(subscriber, || {
            let begin = Instant::now();
            for number in 0..50 * limit {
                tracing::warn!("event {number}");
                tracing::debug!("detail {number}");
            }
            assert!(begin.elapsed().as_secs() < 1, "too slow to be suppressed");
            tracing::info!("of another kind");
            std::thread::sleep(std::time::Duration::from_millis(1100));
            tracing::info!("later");
        });
        let text = String::from_utf8(written.0.lock().expect("not poisoned").clone());
        let text = text.expect("text");
        assert_eq!(text.matches("event ").count(), limit, "{text}");
        assert_eq!(text.matches("detail ").count(), 50 * limit);
        assert!(text.contains("of another kind") && text.contains("later"));
        let suppressed = format!("{} more suppressed", 49 * limit);
        assert_eq!(text.matches(&suppressed).count(), 1, "{text}");
    }
}
