//! Random faults against a live deployment under a validating load.

mod actors;
mod table;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ::conformance::hammer::{self, LoadKind, Settings, Tally};
use ::conformance::implementation::{Implementation, Role};
use clap::{Args, ValueEnum, value_parser};
use indicatif::{ProgressBar, ProgressStyle};
use role_common::flags::duration;
use role_common::shutdown::Shutdown;
use role_common::{errln, outln};

use super::layout_choice::LayoutChoice;
use super::report::ReportOptions;
use super::{Result, exit_code, seconds};

pub(super) use actors::{LoadOptions, StrangerOptions, WitnessOptions};

const HELP: &str = "\
Real processes: a service, its targets with backing files, a load in the place of the initiator, and a witness that is never hurt. Each
round is a session of the load in which one of the others, or the load itself, is killed, stopped, delayed, cut off, or told nonsense, in
a phase of the session; then all blocks are read back. A block must hold what was acknowledged last, or what was issued after that.
The same seed gives the same rounds and the same I/Os; in the middle of which I/O a fault hits is up to the machine.
With --load nbd, clients of an NBD server in front of the service read and write; the server is killed and restarted, too, and no I/O may fail.
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
    /// What reads and writes: an initiator, or clients of an NBD server (doca-storage nbd) that reconnect
    #[arg(long, value_enum, default_value_t = LoadChoice::Initiator)]
    load: LoadChoice,

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
    #[arg(long, value_name = "SECONDS", default_value_t = 40, value_parser = seconds(10, 600))]
    limit: u64,

    #[command(flatten)]
    report: ReportOptions,
}

/// What reads and writes.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum LoadChoice {
    Initiator,
    Nbd,
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
        Ok(exit_code(report.is_success()))
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
            load: match self.load {
                LoadChoice::Initiator => LoadKind::Initiator,
                LoadChoice::Nbd => LoadKind::Nbd,
            },
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
