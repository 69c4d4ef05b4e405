//! `doca-storage top`: live display of roles.

use std::io::{self, IsTerminal as _};
use std::iter;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use control::shutdown::Shutdown;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use ratatui::{DefaultTerminal, Frame};
use role_common::{console, errln, signals};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use table::broken;

use super::samples::Role;
use super::{Endpoint, Observed, bytes, count, endpoint, observe, time};

const EXAMPLES: &str = "\
Examples:
  doca-storage top 9101 9102 9103 9104
  doca-storage top dpu.example:9104 --interval 500ms";

/// Maximum time between two drawings, so that a new size of the terminal takes effect.
const REDRAW: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Metrics endpoints of roles, as given to their --metrics: ports of this machine, or hosts with ports
    #[arg(required = true, value_name = "[HOST:]PORT", value_parser = endpoint)]
    roles: Vec<Endpoint>,

    /// Refresh interval, for example 2s or 500ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
}

fn interval(text: &str) -> Result<Duration, String> {
    const EXPECTED: &str = "expected seconds, or a time of 100ms to 1h, for example 2s";
    let time = match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => humantime::parse_duration(text).ok(),
    };
    match time {
        Some(time) if (Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&time) => {
            Ok(time)
        }
        _ => Err(EXPECTED.to_owned()),
    }
}

/// Shows the roles until the user quits.
pub fn run(options: &Options) -> ExitCode {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        errln!(
            "doca-storage top: error: expected a terminal as standard input and output; for scripts, use: doca-storage status --json"
        );
        return ExitCode::FAILURE;
    }
    let result = signals::shutdown().and_then(|shutdown| {
        let mut terminal = ratatui::try_init()?;
        let result = show(&mut terminal, options, &shutdown);
        let restored = terminal.show_cursor().and(ratatui::try_restore());
        if restored.is_err() {
            // Dropping it would print that the cursor cannot be shown, and panic if the terminal was closed.
            std::mem::forget(terminal);
        }
        result.and(restored)
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            errln!("doca-storage top: error: terminal: {error}");
            ExitCode::FAILURE
        }
    }
}

fn show(terminal: &mut DefaultTerminal, options: &Options, shutdown: &Shutdown) -> io::Result<()> {
    let mut view = View::new(&options.roles);
    let mut next = Instant::now();
    let is_coloured = console::is_coloured(&io::stdout());
    while !shutdown.is_requested() {
        if Instant::now() >= next {
            next = Instant::now() + options.interval;
            view.update(observe(&options.roles), Instant::now());
        }
        terminal.draw(|frame| view.draw(frame, is_coloured))?;
        let left = next.saturating_duration_since(Instant::now());
        if wait_for_quit(shutdown, left.min(REDRAW))? {
            break;
        }
    }
    Ok(())
}

/// Waits at most `limit` for a key or a signal; returns `true` for a key that exits.
///
/// The bytes of the terminal are read here, because crossterm's reader does not return when the terminal is closed, but
/// repeats a read that returns 0 bytes.
///
/// # Errors
/// The terminal was closed.
fn wait_for_quit(shutdown: &Shutdown, limit: Duration) -> io::Result<bool> {
    let stdin = io::stdin();
    let mut ready = [
        PollFd::new(&stdin, PollFlags::IN),
        PollFd::from_borrowed_fd(shutdown.waker().readable(), PollFlags::IN),
    ];
    let limit = Timespec {
        tv_sec: limit.as_secs() as _,
        tv_nsec: limit.subsec_nanos().into(),
    };
    match poll(&mut ready, Some(&limit)) {
        Ok(_) => {}
        Err(Errno::INTR) => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    if ready[0].revents().is_empty() {
        return Ok(false);
    }
    let mut keys = [0; 64];
    match rustix::io::read(&stdin, &mut keys) {
        Ok(0) => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "it was closed",
        )),
        Ok(count) => Ok(quits(&keys[..count])),
        Err(Errno::INTR | Errno::AGAIN) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns `true` if one of these keys is `q` or Ctrl-C, or if Escape is the only key. Other keys that begin with the
/// escape character, such as arrows, are ignored.
fn quits(keys: &[u8]) -> bool {
    const ESCAPE: u8 = 0x1b;
    const CONTROL_C: u8 = 3;
    match keys {
        [ESCAPE] => true,
        [ESCAPE, ..] => false,
        keys => keys.iter().any(|key| matches!(key, b'q' | &CONTROL_C)),
    }
}

struct View {
    roles: Vec<Shown>,
}

/// A role: its last metrics, and the difference to the previous ones.
struct Shown {
    endpoint: String,
    role: Result<Role, String>,
    observed: Instant,
    rates: Rates,
}

/// Rates of a role per second, between two scrapes.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Rates {
    operations: f64,
    bytes: f64,
    cpu: f64,
    p50: f64,
    p99: f64,
}

const NO_RATES: Rates = Rates {
    operations: f64::NAN,
    bytes: f64::NAN,
    cpu: f64::NAN,
    p50: f64::NAN,
    p99: f64::NAN,
};

impl Rates {
    fn between(before: &Role, after: &Role, elapsed: Duration) -> Self {
        let seconds = elapsed.as_secs_f64();
        // The counters of a restarted role start at zero.
        let rate = |of: fn(&Role) -> u64| of(after).saturating_sub(of(before)) as f64 / seconds;
        let latency = match (&before.latency, &after.latency) {
            (Some(before), Some(after)) => Some(after.since(before)),
            _ => after.latency.clone(),
        };
        Self {
            operations: rate(Role::operations),
            bytes: rate(Role::bytes),
            cpu: (after.cpu_seconds - before.cpu_seconds).max(0.0) / seconds,
            p50: latency.as_ref().map_or(f64::NAN, |latency| latency.p50),
            p99: latency.as_ref().map_or(f64::NAN, |latency| latency.p99),
        }
    }
}

impl View {
    fn new(endpoints: &[Endpoint]) -> Self {
        let now = Instant::now();
        let roles = endpoints.iter().map(|endpoint| Shown {
            endpoint: endpoint.text.clone(),
            role: Err("not asked yet".to_owned()),
            observed: now,
            rates: NO_RATES,
        });
        Self {
            roles: roles.collect(),
        }
    }

    fn update(&mut self, observed: Vec<Observed>, now: Instant) {
        for (shown, observed) in self.roles.iter_mut().zip(observed) {
            shown.rates = match (&shown.role, &observed.role) {
                (Ok(before), Ok(after)) => {
                    let elapsed = now.saturating_duration_since(shown.observed);
                    Rates::between(before, after, elapsed.max(Duration::from_millis(1)))
                }
                _ => NO_RATES,
            };
            shown.role = observed.role;
            shown.observed = now;
        }
    }

    fn draw(&self, frame: &mut Frame<'_>, is_coloured: bool) {
        let [title, body, help] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Min(3),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        let answering = self.roles.iter().filter(|shown| shown.role.is_ok()).count();
        let text = format!(
            "doca-storage: {answering} of {} roles answer",
            self.roles.len()
        );
        frame.render_widget(Line::from(text).bold(), title);
        let endpoints = self.roles.iter().map(|shown| shown.endpoint.len()).max();
        let endpoint = endpoints.map_or(0, |longest| longest.clamp(8, LONGEST_ENDPOINT));
        let (columns, widths) = columns(body.width, endpoint as u16);
        let header = Row::new(columns.iter().map(|column| column.name)).bold();
        let rows = self.roles.iter().map(|shown| {
            // Numbers fit in one line; an endpoint or a state may need several.
            let cells: Vec<String> = iter::zip(&columns, &widths)
                .map(|(column, width)| broken(&(column.text)(shown), usize::from(*width)))
                .collect();
            let lines = cells.iter().map(|cell| cell.lines().count()).max();
            let row = Row::new(cells.into_iter().map(Cell::from)).height(lines.unwrap_or(1) as u16);
            match shown.urgency() {
                Urgency::None => row,
                Urgency::Warning if is_coloured => row.style(Style::new().fg(Color::Yellow)),
                Urgency::Error if is_coloured => row.style(Style::new().fg(Color::Red)),
                Urgency::Warning | Urgency::Error => row.bold(),
            }
        });
        let widths = widths.iter().map(|width| Constraint::Length(*width));
        frame.render_widget(
            Table::new(rows, widths).header(header).column_spacing(1),
            body,
        );
        frame.render_widget(Paragraph::new("q: quit"), help);
    }
}

enum Urgency {
    None,
    Warning,
    Error,
}

impl Shown {
    fn urgency(&self) -> Urgency {
        match &self.role {
            Err(_) => Urgency::Error,
            Ok(role) => match role.redundancy.as_ref().map(|it| it.state.as_str()) {
                None | Some("healthy") => Urgency::None,
                Some("failed") => Urgency::Error,
                Some(_) => Urgency::Warning,
            },
        }
    }

    fn of(&self, text: impl FnOnce(&Role) -> String) -> String {
        self.role.as_ref().map_or_else(|_| String::new(), text)
    }

    fn rate(&self, of: fn(&Rates) -> f64, text: fn(f64) -> String) -> String {
        match of(&self.rates) {
            value if value.is_nan() => "-".to_owned(),
            value => text(value),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Width {
    /// Length of the longest endpoint.
    Endpoint,
    /// Width in columns of the terminal.
    Fixed(u16),
    /// The remaining width, at least [`STATE_WIDTH`].
    Rest,
}

/// A column of the display.
struct Column {
    name: &'static str,
    width: Width,
    /// Priority: columns with lower numbers are shown first.
    rank: u8,
    text: fn(&Shown) -> String,
}

const COLUMNS: [Column; 10] = [
    Column {
        name: "endpoint",
        width: Width::Endpoint,
        rank: 0,
        text: |shown| shown.endpoint.clone(),
    },
    Column {
        name: "role",
        width: Width::Fixed(14),
        rank: 0,
        text: |shown| shown.of(|role| role.short_name().to_owned()),
    },
    Column {
        name: "I/O/s",
        width: Width::Fixed(8),
        rank: 0,
        text: |shown| shown.rate(|rates| rates.operations, count),
    },
    Column {
        name: "bytes/s",
        width: Width::Fixed(9),
        rank: 0,
        text: |shown| shown.rate(|rates| rates.bytes, bytes),
    },
    Column {
        name: "flight",
        width: Width::Fixed(6),
        rank: 2,
        text: |shown| shown.of(|role| role.in_flight.to_string()),
    },
    Column {
        name: "p50",
        width: Width::Fixed(7),
        rank: 3,
        text: |shown| shown.rate(|rates| rates.p50, time),
    },
    Column {
        name: "p99",
        width: Width::Fixed(7),
        rank: 3,
        text: |shown| shown.rate(|rates| rates.p99, time),
    },
    Column {
        name: "CPU",
        width: Width::Fixed(5),
        rank: 1,
        text: |shown| shown.rate(|rates| rates.cpu, |cpu| format!("{:.0} %", cpu * 100.0)),
    },
    Column {
        name: "memory",
        width: Width::Fixed(8),
        rank: 4,
        text: |shown| shown.of(|role| bytes(role.resident_bytes as f64)),
    },
    Column {
        name: "state",
        width: Width::Rest,
        rank: 0,
        text: |shown| match &shown.role {
            Err(error) => error.clone(),
            Ok(role) => {
                let errors = match role.error_count() {
                    0 => String::new(),
                    errors => format!("{errors} errors "),
                };
                let workers = match role.workers {
                    0 => "idle",
                    _ => "serving",
                };
                match role.redundancy_text() {
                    text if text.is_empty() => errors + workers,
                    text => errors + &text,
                }
            }
        },
    },
];

/// Minimum width of the last column.
const STATE_WIDTH: u16 = 22;

/// Longest endpoint that is shown in one line.
const LONGEST_ENDPOINT: usize = 24;

/// Columns that fit in this width, and their widths, with endpoints of this length.
fn columns(width: u16, endpoint: u16) -> (Vec<&'static Column>, Vec<u16>) {
    let of_rank = |rank| COLUMNS.iter().filter(move |column| column.rank <= rank);
    // Including the space after each column except the last.
    let fixed = |columns: &[&Column]| -> u16 {
        let widths = columns.iter().map(|column| match column.width {
            Width::Endpoint => endpoint + 1,
            Width::Fixed(width) => width + 1,
            Width::Rest => 0,
        });
        widths.sum()
    };
    let mut columns: Vec<_> = of_rank(0).collect();
    for rank in 1..=4 {
        let more: Vec<_> = of_rank(rank).collect();
        if fixed(&more) + STATE_WIDTH > width {
            break;
        }
        columns = more;
    }
    let rest = width.saturating_sub(fixed(&columns)).max(1);
    let widths = columns
        .iter()
        .map(|column| match column.width {
            Width::Endpoint => endpoint,
            Width::Fixed(width) => width,
            Width::Rest => rest,
        })
        .collect();
    (columns, widths)
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn endpoints() -> Vec<Endpoint> {
        vec![
            endpoint("9101").expect("a port"),
            endpoint("9102").expect("a port"),
        ]
    }

    fn role(reads: u64) -> Role {
        let page = format!(
            "doca_storage_build_info{{role=\"doca_storage_comch_to_rdma_gga_offload\"}} 1\n\
             doca_storage_operations_total{{kind=\"read\"}} {reads}\n\
             doca_storage_redundancy_state{{state=\"degraded\"}} 1\n\
             doca_storage_target_online{{target=\"data_2\"}} 0\n"
        );
        Role::parse(&page).expect("metrics")
    }

    fn observed(reads: u64) -> Vec<Observed> {
        vec![
            Observed {
                endpoint: "9101".to_owned(),
                role: Ok(role(reads)),
            },
            Observed {
                endpoint: "9102".to_owned(),
                role: Err("out-of-reach".to_owned()),
            },
        ]
    }

    fn drawn(view: &View, width: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, 8)).expect("a terminal");
        terminal
            .draw(|frame| view.draw(frame, true))
            .expect("drawn");
        terminal.backend().to_string()
    }

    #[test]
    fn rates_are_differences_between_two_samples() {
        let mut view = View::new(&endpoints());
        let begin = Instant::now();
        view.update(observed(1000), begin);
        assert!(view.roles[0].rates.operations.is_nan());
        view.update(observed(4000), begin + Duration::from_secs(2));
        assert_eq!(view.roles[0].rates.operations, 1500.0);
        view.update(observed(10), begin + Duration::from_secs(3));
        assert_eq!(view.roles[0].rates.operations, 0.0, "it was started again");
    }

    #[test]
    fn every_width_shows_rates_states_and_unreachable_roles() {
        let mut view = View::new(&endpoints());
        let begin = Instant::now();
        view.update(observed(0), begin);
        view.update(observed(1500), begin + Duration::from_secs(1));
        for width in [80, 100, 120, 200] {
            let screen = drawn(&view, width);
            for part in [
                "1 of 2 roles",
                "gga-offload",
                "1500",
                "degraded, without",
                "out-of-reach",
            ] {
                assert!(screen.contains(part), "{part} at {width}:\n{screen}");
            }
        }
        assert!(!drawn(&view, 80).contains("memory") && drawn(&view, 120).contains("memory"));
    }

    #[test]
    fn long_states_and_endpoints_take_several_lines() {
        let place = "storage-service-1.rack-3.example:9104";
        let endpoints = [endpoint(place).expect("a host and a port")];
        let page = "doca_storage_build_info{role=\"doca_storage_comch_to_rdma_gga_offload\"} 1\n\
                    doca_storage_errors_total{kind=\"failed\"} 123456\n\
                    doca_storage_redundancy_state{state=\"rebuilding\"} 1\n\
                    doca_storage_target_online{target=\"data_2\"} 0\n\
                    doca_storage_missed_stripes 1234567\n\
                    doca_storage_work_progress_ratio{work=\"rebuild\"} 0.25\n";
        let mut view = View::new(&endpoints);
        let role = Role::parse(page);
        let endpoint = place.to_owned();
        view.update(vec![Observed { endpoint, role }], Instant::now());
        for width in [80, 100, 120] {
            let mut terminal = Terminal::new(TestBackend::new(width, 12)).expect("a terminal");
            terminal
                .draw(|frame| view.draw(frame, false))
                .expect("drawn");
            let buffer = terminal.backend().buffer();
            // Text of each column, joined over its lines.
            let (columns, widths) = columns(width, LONGEST_ENDPOINT as u16);
            let text = |index: usize| -> String {
                let left: u16 = widths[..index].iter().map(|width| width + 1).sum();
                let rows = 2..11;
                rows.flat_map(|row| (left..left + widths[index]).map(move |column| (column, row)))
                    .map(|position| buffer[position].symbol().to_owned())
                    .collect::<String>()
                    .split_whitespace()
                    .collect()
            };
            assert_eq!(text(0), place, "at {width}");
            assert_eq!(
                text(columns.len() - 1),
                "123456errorsrebuilding,withoutdata_2,1234567missed,rebuild25%",
                "at {width}"
            );
        }
    }

    #[test]
    fn q_escape_and_interrupt_quit() {
        for keys in [&b"q"[..], b"xq", b"\x1b", b"\x03"] {
            assert!(quits(keys), "{keys:?}");
        }
        for keys in [&b"x"[..], b"\x1b[A", b"\x1bOq", b"Q"] {
            assert!(!quits(keys), "{keys:?}");
        }
    }

    #[test]
    fn intervals_have_units_and_bounds() {
        assert_eq!(interval("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(interval("2"), Ok(Duration::from_secs(2)));
        for wrong in ["0", "2h", "3601", "soon"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
