//! The progress bar that long work shows on a terminal.

use std::fmt::Write;

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// A bar on standard error for `total` things called `unit`, with their rate and the time that is left.
#[must_use]
pub fn bar(total: u64, unit: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template(
        "{wide_bar} {human_pos}/{human_len} {msg}, {rate}, {eta} left",
    )
    .expect("a constant template")
    // indicatif's own rate has four decimals, which nobody can read while it runs.
    .with_key("rate", |state: &ProgressState, text: &mut dyn Write| {
        // Nothing depends on a text that cannot be written.
        let _ = write!(text, "{}/s", HumanCount(state.per_sec() as u64));
    });
    ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr())
        .with_style(style)
        .with_message(unit)
}
