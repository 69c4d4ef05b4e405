//! What the generator shows of itself while it works.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use role_common::errln;

use crate::cli::ProgressMode;

/// Time between two lines where lines cannot be overwritten; less is not worth a bar either.
const INTERVAL: Duration = Duration::from_secs(1);

/// The progress line: nothing for what is done within a second.
#[derive(Debug)]
pub(crate) struct Progress {
    total: u32,
    begin: Instant,
    next: Instant,
    display: Display,
}

#[derive(Debug)]
enum Display {
    None,
    Bar(ProgressBar),
    Lines,
}

impl Progress {
    /// Progress towards `total` blocks. Drawn on standard error: over itself on a terminal, otherwise, where asked for
    /// always, as a line each second.
    pub(crate) fn new(mode: ProgressMode, total: u32) -> Self {
        let display = match (mode, std::io::stderr().is_terminal()) {
            (ProgressMode::Never, _) | (ProgressMode::Auto, false) => Display::None,
            (ProgressMode::Always | ProgressMode::Auto, true) => {
                Display::Bar(role_common::progress::bar(total.into(), "blocks"))
            }
            (ProgressMode::Always, false) => Display::Lines,
        };
        let begin = Instant::now();
        Self {
            total,
            begin,
            next: begin + INTERVAL,
            display,
        }
    }

    /// Shows, when it is time, that so many blocks are done.
    pub(crate) fn show(&mut self, done: u32) {
        if matches!(self.display, Display::None) {
            return;
        }
        let now = Instant::now();
        if now < self.next {
            return;
        }
        match &self.display {
            Display::None => {}
            Display::Bar(bar) => {
                self.next = now + INTERVAL / 10;
                bar.set_position(done.into());
            }
            Display::Lines => {
                self.next = now + INTERVAL;
                errln!("{}", line(done, self.total, now - self.begin));
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Display::Bar(bar) = &self.display {
            bar.finish_and_clear();
        }
    }
}

fn line(done: u32, total: u32, elapsed: Duration) -> String {
    let percent = f64::from(done) * 100.0 / f64::from(total.max(1));
    let rate = f64::from(done) / elapsed.as_secs_f64().max(f64::EPSILON);
    format!("{done} of {total} blocks ({percent:.0} %), {rate:.0} per second")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_and_how_fast() {
        assert_eq!(
            line(250, 1000, Duration::from_secs(2)),
            "250 of 1000 blocks (25 %), 125 per second"
        );
        assert_eq!(
            line(0, 0, Duration::ZERO),
            "0 of 0 blocks (0 %), 0 per second"
        );
    }

    #[test]
    fn the_next_line_is_due_a_second_after_the_last() {
        let mut progress = Progress::new(ProgressMode::Never, 10);
        progress.display = Display::Lines;
        let due = progress.next;
        progress.show(1);
        assert_eq!(progress.next, due, "not yet");
        progress.next = progress.begin;
        progress.show(2);
        assert!(progress.next >= due);
    }
}
