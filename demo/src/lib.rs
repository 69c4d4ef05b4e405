//! The demo: a deployment of real processes on this machine, driven through all strategies.
//!
//! * [`Options`]: the flags; `plan`: the resulting sessions, blocks and operations, the deployments (a service with one target or
//!   three), and the initial data, made from a real file;
//! * `volume`: the session without an initiator: NBD;
//! * `sessions`: processes of the sessions and their command lines;
//! * `report`: the table and the result.

#![forbid(unsafe_code)]
// `print!` and `eprint!` panic if the stream is closed or full: see role_common::console.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod plan;
mod report;
mod sessions;
mod volume;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum, value_parser};
use deployment::network::Network;
use deployment::process::Failure;
use deployment::sandbox::Sandbox;
use indicatif::{ProgressBar, ProgressStyle};
use role_common::console::EXIT_USAGE;
use role_common::{errln, flags, outln, signals};
use role_formats::stored_block::MatrixType;

use plan::{Content, Plan};
use report::{Report, Row};
use sessions::Sessions;

/// Error that prevents the demo from running. A failed role is reported in the table instead.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{0}")]
    Options(String),
    #[error("{what}: {error}")]
    Io { what: String, error: std::io::Error },
    #[error("--hosts: {0}")]
    Network(#[from] deployment::network::Unavailable),
    #[error(transparent)]
    Failure(#[from] Failure),
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |error| Self::Io { what, error }
    }
}

/// Runs the demo. Exit status 0 for PASS, 1 for FAIL and errors, 2 for wrong usage.
pub fn run(options: &Options) -> ExitCode {
    match try_run(options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            errln!("doca-storage demo: error: {error}");
            match error {
                Error::Options(_) => ExitCode::from(EXIT_USAGE),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

fn try_run(options: &Options) -> Result<bool, Error> {
    let shutdown = signals::shutdown().map_err(Error::io("signal handlers"))?;
    if options.keep && options.layout == LayoutChoice::Volume {
        return Err(Error::Options(
            "--keep: expected --layout zero-copy, gga or all: of the volume nothing is kept"
                .to_owned(),
        ));
    }
    if options.keep && options.hosts > 1 {
        return Err(Error::Options(
            "--keep: expected --hosts 1: the network namespaces of others end with this program"
                .to_owned(),
        ));
    }
    let sandbox = match options.hosts {
        1 => Sandbox::new(),
        hosts => Sandbox::over(Network::new(usize::from(hosts))?),
    };
    let sandbox = sandbox.map_err(Error::io("a private runtime directory"))?;
    let content = Content::prepare(options, sandbox.path("content.bin"))?;
    let plan = Plan::new(options, &content)?;
    let mut sessions = Sessions::new(&plan, &content, sandbox, shutdown)?;

    if !options.json {
        table::say!("{}", plan.describe(&content));
        if let Some(machines) = sessions.describe_machines() {
            table::say!("{machines}");
        }
    }
    let mut report = Report::default();
    for run in plan.runs() {
        let progress = progress_line(options, run.title);
        let row = match sessions.run(&run) {
            Ok(session) => Row::of(&run, &plan, session),
            Err(failure) if sessions.interrupted() => {
                errln!("{failure}");
                return Err(Error::Interrupted);
            }
            Err(failure) => Row::failed(&run, failure.to_string()),
        };
        progress.finish_and_clear();
        report.add(row);
    }
    if options.layout.has_volume() {
        let image = volume::Image::available();
        let progress = progress_line(options, image.title());
        let result = volume::run(&mut sessions, image, &content.path);
        progress.finish_and_clear();
        match result {
            Err(failure) if sessions.interrupted() => {
                errln!("{failure}");
                return Err(Error::Interrupted);
            }
            result => report.add(Row::volume(image, result.err())),
        }
    }
    report.add_leftovers(sessions.leftovers()?);

    let passed = report.passed();
    if options.json {
        outln!("{}", report.to_json());
    } else {
        table::say!("{report}");
    }
    // With only a volume, no session is kept; the options have been checked.
    if let (true, Some(first)) = (options.keep && passed, plan.runs().first()) {
        let kept = sessions.keep(first)?;
        errln!("{kept}");
    }
    Ok(passed)
}

fn progress_line(options: &Options, title: &str) -> ProgressBar {
    if options.json {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}")
        .expect("the template is valid");
    let bar = ProgressBar::new_spinner()
        .with_style(style)
        .with_message(title.to_owned());
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

// The demo's flags.

const EXAMPLES: &str = "\
Examples:
  doca-storage demo
  doca-storage demo --content photo.raw --workers 2 --blocks-per-io 4
  doca-storage demo --layout gga --matrix-type cauchy --block-size 65536
  doca-storage demo --layout zero-copy --block-size 512 --local-io-region-size 65536
  doca-storage demo --layout gga --hosts 4
  doca-storage demo --keep";

#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Deployment to run: zero-copy (one target), gga (compression and erasure coding over three), volume (an NBD
    /// server in front of zero-copy), or all of them
    #[arg(long, value_enum, value_name = "LAYOUT", default_value_t)]
    pub layout: LayoutChoice,

    /// File to store; an embedded text by default
    #[arg(long, value_name = "FILE")]
    pub content: Option<PathBuf>,

    /// Size of a storage block in bytes, or with a unit such as 64k; gga needs a multiple of 128
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = block_size)]
    pub block_size: u32,

    /// Worker threads of each role
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=64))]
    pub workers: u32,

    /// Transactions in flight of each worker
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = value_parser!(u32).range(1..=4096))]
    pub transactions: u32,

    /// Blocks of each I/O
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u16).range(1..=255))]
    pub blocks_per_io: u16,

    /// Size of the initiator's memory in bytes, or with a unit such as 1M; 0 for the size of the storage
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = flags::size)]
    pub local_io_region_size: u64,

    /// Matrix of the gga deployment's parity
    #[arg(long, value_enum, value_name = "TYPE", default_value_t)]
    pub matrix_type: MatrixType,

    /// Number of I/Os per worker in the zero-copy deployment's throughput tests; by default as many as take a few
    /// seconds
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub operations: Option<u32>,

    /// Number of machines. With 2 to 4, these are network namespaces, with RDMA over TCP between them: initiator and service run on the
    /// first, and the targets are distributed over the others
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u16).range(1..=4))]
    pub hosts: u16,

    /// Afterwards start targets and a service once more (zero-copy ones, with all layouts), print the command lines, and
    /// leave them running
    #[arg(long)]
    pub keep: bool,

    /// Print one JSON document instead of the table
    #[arg(long)]
    pub json: bool,
}

fn block_size(text: &str) -> Result<u32, String> {
    const LIMITS: std::ops::RangeInclusive<u64> = 64..=64 << 20;
    match flags::size(text).map(|size| (LIMITS.contains(&size), size as u32)) {
        Ok((true, size)) => Ok(size),
        _ => Err(format!(
            "expected bytes, {} to {}, or a size such as 64k",
            LIMITS.start(),
            LIMITS.end()
        )),
    }
}

/// Selectable deployments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LayoutChoice {
    /// The zero-copy service and its target
    ZeroCopy,
    /// The gga_offload service and its three targets
    Gga,
    /// A file system image through an NBD server in front of the zero-copy service
    Volume,
    /// All of them, one after the other
    #[default]
    All,
}

impl LayoutChoice {
    pub fn has_zero_copy(self) -> bool {
        matches!(self, Self::ZeroCopy | Self::All)
    }

    pub fn has_gga(self) -> bool {
        matches!(self, Self::Gga | Self::All)
    }

    pub fn has_volume(self) -> bool {
        matches!(self, Self::Volume | Self::All)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            layout: LayoutChoice::default(),
            content: None,
            block_size: 4096,
            workers: 1,
            transactions: 64,
            blocks_per_io: 1,
            local_io_region_size: 0,
            matrix_type: MatrixType::default(),
            operations: None,
            hosts: 1,
            keep: false,
            json: false,
        }
    }
}
