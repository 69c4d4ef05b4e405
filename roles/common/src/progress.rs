//! Progress bar for long-running work on a terminal.

use std::fmt::Write;

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// Creates a bar on standard error for `total` items called `unit`, with rate and remaining time.
#[must_use]
pub fn bar(total: u64, unit: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template(
        "{wide_bar} {human_pos}/{human_len} {msg}, {rate}, {eta} left",
    )
    .expect("a constant template")
    // indicatif's own rate has four decimals, too many to read while it changes.
    .with_key("rate", |state: &ProgressState, text: &mut dyn Write| {
        // A failure to format the rate has no consequence.
        let _ = write!(text, "{}/s", HumanCount(state.per_sec() as u64));
    });
    ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr())
        .with_style(style)
        .with_message(unit)
}
