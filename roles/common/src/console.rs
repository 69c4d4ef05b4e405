//! Output of a program: text for people, or one JSON document for programs.
//!
//! `println!` and `eprintln!` panic when the stream is closed or full. The functions here, and the macros
//! [`outln!`](crate::outln), [`out!`](crate::out) and [`errln!`](crate::errln), do not: the first failure of standard
//! output is stored and decides the exit status in [`conclude`]; failures of standard error are ignored, because they
//! cannot be reported.
//!
//! Logs go to standard error, with DOCA's numeric levels.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::hash::{Hash, Hasher};
use std::io::{self, IsTerminal, Write as _};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use control::budget::{LOG_LINES_PER_SECOND, LogBudget};
use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use metrics::SUPPRESSED_LOG_LINES;
use serde::Serialize;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, reload};

use crate::flags::{GeneralFlags, LogFormat, LogLevel, OutputFormat};

/// Exit status of a program whose output went to a pipe that was closed, as shells report SIGPIPE.
const EXIT_CLOSED_PIPE: u8 = 141;

/// Exit code for wrong usage: flags that are unknown, missing, wrong, or do not fit together.
pub const EXIT_USAGE: u8 = 2;

/// First failure to write to standard output.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

/// Prints to standard output. Prefer [`out!`](crate::out).
pub fn print(text: fmt::Arguments<'_>) {
    let mut out = io::stdout().lock();
    let result = out.write_fmt(text).and_then(|()| out.flush());
    printed(result);
}

/// Prints to standard error, on a terminal wrapped to its width. Prefer [`errln!`](crate::errln).
pub fn print_error(text: fmt::Arguments<'_>) {
    let mut err = io::stderr().lock();
    let _ = match terminal_width(&err) {
        None => err.write_fmt(text),
        Some(width) => {
            // The output replaces a progress bar, which is redrawn below it.
            let clear = if HAS_BAR.load(Ordering::Relaxed) {
                "\r\u{1b}[K"
            } else {
                ""
            };
            let text = text.to_string();
            err.write_all(format!("{clear}{}", wrapped(&text, width)).as_bytes())
        }
    };
}

/// Stores the first failure to write to standard output for [`conclude`].
pub fn printed(result: io::Result<()>) {
    if let Err(error) = result {
        let mut failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner);
        failed.get_or_insert(error);
    }
}

/// Prints a line to standard output, and never panics.
#[macro_export]
macro_rules! outln {
    ($($argument:tt)*) => {
        $crate::console::print(::std::format_args!("{}\n", ::std::format_args!($($argument)*)))
    };
}

/// Prints to standard output, and never panics.
#[macro_export]
macro_rules! out {
    ($($argument:tt)*) => {
        $crate::console::print(::std::format_args!($($argument)*))
    };
}

/// Prints a line to standard error, and never panics.
#[macro_export]
macro_rules! errln {
    ($($argument:tt)*) => {
        $crate::console::print_error(::std::format_args!("{}\n", ::std::format_args!($($argument)*)))
    };
}

/// Returns the exit status of the program called `name`, given the `code` with which it would exit. If its output is
/// incomplete, reports that, and returns a failure. A pipe closed by its reader (`| head -1`) is not reported: a
/// program that only prints exits without a message, as after SIGPIPE.
#[must_use]
pub fn conclude(name: &str, code: ExitCode) -> ExitCode {
    match failure() {
        None => code,
        Some(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            if code == ExitCode::SUCCESS {
                ExitCode::from(EXIT_CLOSED_PIPE)
            } else {
                code
            }
        }
        Some(error) => incomplete(name, &error),
    }
}

/// As [`conclude`], for a program whose main purpose is not its output: a closed pipe does not change its exit status.
#[must_use]
pub(crate) fn conclude_role(name: &str, code: ExitCode) -> ExitCode {
    match failure() {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => incomplete(name, &error),
        _ => code,
    }
}

fn failure() -> Option<io::Error> {
    FAILED.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn incomplete(name: &str, error: &io::Error) -> ExitCode {
    errln!("{name}: error: standard output: {error}; what was printed is incomplete");
    ExitCode::FAILURE
}

/// Output of a role. A failure to print does not end a storage session; [`conclude`] reports it at exit.
#[derive(Debug, Clone, Copy, Default)]
pub struct Console {
    format: OutputFormat,
}

impl Console {
    /// Creates a console for the given format.
    #[must_use]
    pub fn new(format: OutputFormat) -> Self {
        Self { format }
    }

    #[must_use]
    pub fn format(&self) -> OutputFormat {
        self.format
    }

    /// Prints a line for people while the program runs: on standard output, or, if that is reserved for a JSON
    /// document, on standard error.
    pub fn announce(&self, line: impl fmt::Display) {
        match self.format {
            OutputFormat::Text => outln!("{line}"),
            OutputFormat::Json => errln!("{line}"),
        }
    }

    /// Prints the program's result, as text or as JSON.
    pub fn report<R: Serialize + fmt::Display>(&self, report: &R) {
        match self.format {
            OutputFormat::Text => out!("{report}"),
            OutputFormat::Json => {
                let mut out = io::stdout().lock();
                let result = serde_json::to_writer(&mut out, report)
                    .map_err(io::Error::from)
                    .and_then(|()| writeln!(out))
                    .and_then(|()| out.flush());
                printed(result);
            }
        }
    }
}

// Lines that fit the terminal.

/// Minimum width that text is wrapped to: in a narrower terminal, its lines are broken by the terminal.
pub const LEAST_WIDTH: usize = 40;

/// Width in columns of the terminal to which `stream` is connected, at least [`LEAST_WIDTH`]; `None` if it is not a
/// terminal. `COLUMNS` overrides the width.
pub fn terminal_width(stream: impl AsFd) -> Option<usize> {
    let size = rustix::termios::isatty(&stream)
        .then(|| rustix::termios::tcgetwinsize(&stream).ok())
        .flatten()?;
    let width = columns().unwrap_or_else(|| usize::from(size.ws_col));
    (width != 0).then(|| width.max(LEAST_WIDTH))
}

/// Returns `true` if text on `stream` has colours: on a terminal, unless `NO_COLOR` is set and not empty (<https://no-color.org>).
pub fn is_coloured(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty())
}

/// Value of `COLUMNS`; `None` if it is not set to a number.
#[must_use]
pub fn columns() -> Option<usize> {
    std::env::var("COLUMNS").ok()?.parse().ok()
}

/// A number with its unit in singular or plural, such as `1 worker` and `2 workers`.
#[must_use]
pub fn counted(count: u64, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// Wraps lines that are longer than `width` between words; continuation lines are indented by two more columns. A word that is longer than a line
/// is not broken, so that paths and commands can be copied.
#[must_use]
pub fn wrapped(text: &str, width: usize) -> Cow<'_, str> {
    if text.lines().all(|line| visible(line) <= width) {
        return Cow::Borrowed(text);
    }
    let lines: Vec<Cow<'_, str>> = text
        .split('\n')
        .map(|line| match visible(line) <= width {
            true => Cow::Borrowed(line),
            false => Cow::Owned(wrapped_line(line, width)),
        })
        .collect();
    Cow::Owned(lines.join("\n"))
}

fn wrapped_line(line: &str, width: usize) -> String {
    let indent = line.len() - line.trim_start_matches(' ').len();
    let mut text = " ".repeat(indent);
    let mut used = indent;
    for (number, word) in line.split_whitespace().enumerate() {
        let length = visible(word);
        if number > 0 && used + 1 + length > width {
            text.push('\n');
            text.push_str(&" ".repeat(indent + 2));
            used = indent + 2;
        } else if number > 0 {
            text.push(' ');
            used += 1;
        }
        text.push_str(word);
        used += length;
    }
    text
}

/// Width of a text in columns, without escape sequences for colours. Assumes that all characters have the same width.
fn visible(text: &str) -> usize {
    let mut columns = 0;
    let mut is_escape = false;
    for character in text.chars() {
        match character {
            '\u{1b}' => is_escape = true,
            'm' if is_escape => is_escape = false,
            _ if is_escape => {}
            _ => columns += 1,
        }
    }
    columns
}

// Progress bar for long operations on a terminal.

/// `true` while a progress bar may be on the last line of the terminal.
static HAS_BAR: AtomicBool = AtomicBool::new(false);

/// Creates a bar on standard error for `total` items called `unit`, with rate and remaining time.
#[must_use]
pub fn progress_bar(total: u64, unit: &'static str) -> ProgressBar {
    HAS_BAR.store(true, Ordering::Relaxed);
    let style = ProgressStyle::with_template(
        "{wide_bar} {human_pos}/{human_len} {msg}, {rate}, {eta} left",
    )
    .expect("a constant template")
    // indicatif's own rate has four decimal places, which are unreadable while it changes.
    .with_key("rate", |state: &ProgressState, text: &mut dyn Write| {
        // A failure to format the rate has no consequence.
        let _ = write!(text, "{}/s", HumanCount(state.per_sec() as u64));
    });
    ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr())
        .with_style(style)
        .with_message(unit)
}

/// Crates whose messages `--sdk-log-level` selects: they correspond to NVIDIA's SDK.
const SDK_TARGETS: [&str; 3] = ["doca", "doca_sys", "softdoca"];

/// Levels of the installed subscriber.
static LEVELS: OnceLock<Levels> = OnceLock::new();

struct Levels {
    handle: reload::Handle<Targets, Registry>,
    /// The SDK's levels.
    sdk: [(&'static str, LevelFilter); SDK_TARGETS.len()],
}

/// Changes the level of the program's own lines. Without effect before [`start_logs`].
pub(crate) fn set_log_level(level: LogLevel) {
    if let Some(levels) = LEVELS.get() {
        let changed = Targets::new()
            .with_default(level.filter())
            .with_targets(levels.sdk);
        // Fails only if the subscriber is gone.
        let _ = levels.handle.reload(changed);
    }
}

/// Starts logging with the levels of the flags. In a process that already logs (a test with several roles in it), only
/// the SDK's level changes.
pub(crate) fn start_logs(flags: &GeneralFlags, format: LogFormat) {
    let sdk = SDK_TARGETS.map(|target| (target, flags.sdk_log_level.filter()));
    let levels = Targets::new()
        .with_default(flags.log_level.filter())
        .with_targets(sdk);
    let lines = tracing_subscriber::fmt::layer().with_ansi(is_coloured(&io::stderr()));
    // The journal adds timestamps.
    let layer = match (format, is_journal()) {
        (LogFormat::Text, false) => lines
            .with_writer(|| Lines)
            .map_event_format(|format| Limited::new(format, LogFormat::Text))
            .boxed(),
        (LogFormat::Text, true) => lines
            .without_time()
            .with_writer(|| Lines)
            .map_event_format(|format| Limited::new(format, LogFormat::Text))
            .boxed(),
        (LogFormat::Json, _) => lines
            .with_writer(io::stderr)
            .json()
            .map_event_format(|format| Limited::new(format, LogFormat::Json))
            .boxed(),
    };
    let (levels, handle) = reload::Layer::new(levels);
    // Fails if a subscriber is already installed; its levels then remain in effect.
    let started = tracing_subscriber::registry()
        .with(levels)
        .with(layer)
        .try_init();
    if started.is_ok() {
        let _ = LEVELS.set(Levels { handle, sdk });
    }
    if let Err(error) = doca::set_sdk_log_level(flags.sdk_log_level.number()) {
        tracing::warn!("--sdk-log-level has no effect: {error}");
    }
}

/// Returns `true` if standard error is the stream to systemd's journal that `JOURNAL_STREAM` names, by device and inode.
fn is_journal() -> bool {
    static IS_JOURNAL: OnceLock<bool> = OnceLock::new();
    *IS_JOURNAL.get_or_init(|| {
        let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
        let stat = rustix::fs::fstat(io::stderr());
        stat.is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
    })
}

/// Prefix of a line of this level: the priority for systemd's journal (`sd-daemon(3)`), if lines are written to it.
pub(crate) fn priority(level: Level) -> &'static str {
    if !is_journal() {
        return "";
    }
    match level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        Level::DEBUG | Level::TRACE => "<7>",
    }
}

/// Writer to standard error for whole lines, wrapped to the width of a terminal.
struct Lines;

impl io::Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        print_error(format_args!("{}", String::from_utf8_lossy(line)));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Formats events of level info and above within a budget of lines per call site, so that a peer that repeatedly causes
/// the same event does not fill the disk. Debug and trace events are not limited: they are disabled by default.
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
            writer.write_str(priority(*metadata.level()))?;
            return self.format.format_event(context, writer, event);
        }
        let now = Instant::now();
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        let suppressed = budget.take_suppressed(now);
        let is_written = budget.charge(now, Kind(metadata));
        drop(budget);
        for (Kind(metadata), count) in suppressed {
            let (level, target) = (metadata.level(), metadata.target());
            writer.write_str(priority(*level))?;
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
            writer.write_str(priority(*metadata.level()))?;
            return self.format.format_event(context, writer, event);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn long_lines_are_wrapped_between_words_and_continued_with_an_indent() {
        assert_eq!(
            wrapped("  a: one two three\nshort\n\nfour five six", 12),
            "  a: one two\n    three\nshort\n\nfour five\n  six"
        );
        assert_eq!(wrapped("fits\n", 4), "fits\n");
        assert_eq!(
            wrapped("a /long/path/of/a/file", 10),
            "a\n  /long/path/of/a/file"
        );
    }

    #[test]
    fn colours_take_no_columns() {
        let red = "\u{1b}[1m\u{1b}[31merror:\u{1b}[0m";
        assert_eq!(
            wrapped(&format!("{red} twelve"), 13),
            format!("{red} twelve")
        );
        assert_eq!(
            wrapped(&format!("{red} twelve"), 12),
            format!("{red}\n  twelve")
        );
    }

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
            tracing::info!("unrelated");
            std::thread::sleep(std::time::Duration::from_millis(1100));
            tracing::info!("later");
        });
        let text = String::from_utf8(written.0.lock().expect("not poisoned").clone());
        let text = text.expect("text");
        assert_eq!(text.matches("event ").count(), limit, "{text}");
        assert_eq!(text.matches("detail ").count(), 50 * limit);
        assert!(text.contains("unrelated") && text.contains("later"));
        // One of the remaining lines reports the number of suppressed ones.
        let suppressed = format!("{} more suppressed", 49 * limit);
        let lines = text.lines().filter(|line| line.contains(&suppressed));
        assert_eq!(
            lines.filter(|line| !line.contains("detail ")).count(),
            1,
            "{text}"
        );
    }
}
