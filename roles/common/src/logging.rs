//! Logs on standard error, with DOCA's numeric levels.

use std::io::IsTerminal as _;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::flags::GeneralFlags;

/// Crates whose messages `--sdk-log-level` selects: they stand where NVIDIA's SDK would.
const SDK_TARGETS: [&str; 3] = ["doca", "doca_sys", "softdoca"];

/// Starts logging with the levels of the flags. In a process that logs already (a test with several
/// roles in it), only the level of the SDK changes.
pub fn start(flags: &GeneralFlags) {
    let sdk = SDK_TARGETS.map(|target| (target, flags.sdk_log_level.filter()));
    let levels = Targets::new()
        .with_default(flags.log_level.filter())
        .with_targets(sdk);
    let format = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    // Fails when there is a subscriber already, whose levels then stay.
    let _ = tracing_subscriber::registry()
        .with(levels)
        .with(format)
        .try_init();
    if let Err(error) = doca::set_sdk_log_level(flags.sdk_log_level.number()) {
        tracing::warn!("--sdk-log-level has no effect: {error}");
    }
}
