//! Random faults against a live deployment under a validating load.

mod actors;
mod table;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ::conformance::hammer::{self, Settings, Tally};
use ::conformance::implementation::{Implementation, Role};
use clap::{Args, value_parser};
use indicatif::{ProgressBar, ProgressStyle};
use role_common::shutdown::Shutdown;
use role_common::{errln, outln};

use super::Result;
use super::layout_choice::LayoutChoice;
use super::report::ReportOptions;

pub(super) use actors::{LoadOptions, StrangerOptions, WitnessOptions};

const HELP: &str = "\
Real processes: a service, its targets with backing files, a load in the place of the initiator, and a witness that is never hurt. Each
round is a session of the load in which one of the others, or the load itself, is killed, stopped, delayed, cut off, or told nonsense, in
a phase of the session; then all blocks are read back. A block must hold what was acknowledged last, or what was issued after that.
The same seed gives the same rounds and the same I/Os; in the middle of which I/O a fault hits is up to the machine.
The exit status is 0 when everybody did as they should. Otherwise the run stops, and leaves logs, blocks and evidence.

Examples:
  doca-storage conformance hammer                                        a minute, both deployments
  doca-storage conformance hammer --layout gga --duration 1h
  doca-storage conformance hammer --seed 7 --only 'kill, target' --json
  doca-storage conformance hammer --bin build --junit hammer.xml         programs of a directory";

/// Its flags.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(in crate::conformance) struct Hammer {
    /// Which deployments; each gets its share of the time
    #[arg(long, value_enum, default_value_t = LayoutChoice::All)]
    layout: LayoutChoice,

    /// Time after which no further round begins: a number with s, m or h
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    duration: Duration,

    /// What rounds and I/Os are made from [default: random, and printed]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Only faults whose description (as in the table: fault, victim, phase) contains this; may be repeated
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,

    /// Directory of the roles' programs, or of a doca-storage [default: this program]
    #[arg(long = "bin", value_name = "DIR")]
    binaries: Option<PathBuf>,

    /// Directory of the DOCA libraries to run them with [default: what LD_LIBRARY_PATH and the programs say]
    #[arg(long, value_name = "DIR")]
    library_path: Option<PathBuf>,

    /// Blocks of the storage
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = value_parser!(u64).range(8..=65536))]
    blocks: u64,

    /// Seconds after which everybody must have noticed what was done, and serve again or have ended
    #[arg(long, value_name = "SECONDS", default_value_t = 40, value_parser = value_parser!(u64).range(10..=600))]
    limit: u64,

    #[command(flatten)]
    report: ReportOptions,
}

/// Time that the load waits for an answer: longer than the timeouts of services.
const PATIENCE: Duration = Duration::from_secs(8);

impl Hammer {
    /// Hammers, and shows what came of it.
    pub(in crate::conformance) fn run(&self) -> Result<ExitCode> {
        let shutdown = Shutdown::on_signals()?;
        let seed = match self.seed {
            Some(seed) => seed,
            None => random_seed()?,
        };
        let hammer = hammer::Hammer {
            settings: self.settings(seed)?,
            actors: actors::actors()?,
        };
        errln!("seed {seed}");
        let progress = self.progress();
        let show = |now: &str, tally: &Tally| {
            progress.set_message(format!("{} faults, {now}", tally.injected()));
        };
        let tally = hammer.run(&show, &|| shutdown.is_requested());
        progress.finish_and_clear();
        let report = tally.report();
        self.report.write_junit("conformance hammer", &report)?;
        if self.report.json {
            outln!("{}", serde_json::to_string_pretty(&tally)?);
        } else {
            table::print(&tally, &self.command_line(seed));
        }
        Ok(ExitCode::from(report.exit_status()))
    }

    fn settings(&self, seed: u64) -> Result<Settings> {
        let libraries = match &self.library_path {
            Some(path) => Some(
                std::fs::canonicalize(path)
                    .map_err(|error| format!("--library-path {}: {error}", path.display()))?,
            ),
            None => None,
        };
        let own = std::env::current_exe()?;
        let implementation = match &self.binaries {
            Some(directory) => Implementation::in_directory("given", directory)?,
            None => Implementation::of_binary("own", Role::Target, &own),
        };
        Ok(Settings {
            implementation: implementation.with_library_path(libraries),
            layouts: self.layout.layouts().to_vec(),
            seed,
            duration: self.duration,
            only: self.only.clone(),
            blocks: self.blocks,
            cpus: deployment::allowed_cpus()?,
            patience: PATIENCE,
            limit: Duration::from_secs(self.limit),
        })
    }

    fn progress(&self) -> ProgressBar {
        if self.report.json || !std::io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("{spinner} {elapsed} {msg}")
            .expect("a template of known keys");
        let progress = ProgressBar::new_spinner().with_style(style);
        progress.enable_steady_tick(Duration::from_millis(200));
        progress
    }

    /// What does the same again.
    fn command_line(&self, seed: u64) -> String {
        let own = std::env::args().next().unwrap_or_default();
        let mut words = vec![format!("{own} conformance hammer --seed {seed}")];
        let mut skip = false;
        for word in std::env::args().skip(3) {
            if skip || word == "--seed" || word.starts_with("--seed=") {
                skip = word == "--seed";
                continue;
            }
            words.push(if word.contains([' ', ',']) {
                format!("'{word}'")
            } else {
                word
            });
        }
        words.join(" ")
    }
}

pub(super) fn random_seed() -> Result<u64> {
    let mut bytes = [0; 4];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u32::from_be_bytes(bytes).into())
}

/// `90s`, `5m`, `1h`.
pub(super) fn duration(text: &str) -> std::result::Result<Duration, String> {
    let wrong = || format!("expected a number with s, m or h, as in 90s or 1h, {text:?} came");
    let unit = text.chars().next_back().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        _ => return Err(wrong()),
    };
    let count: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    let total = count.checked_mul(seconds).filter(|&total| total > 0);
    total.map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(duration("1h"), Ok(Duration::from_secs(3600)));
        for text in ["", "s", "60", "0s", "1d", "-1s", "1ü", "99999999999999999h"] {
            let error = duration(text).expect_err(text);
            assert!(error.contains("s, m or h"), "{error}");
        }
    }
}
