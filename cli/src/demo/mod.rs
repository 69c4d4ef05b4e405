//! The demo: a deployment of real processes on this machine, driven through all strategies.
//!
//! * [`options`]: the flags; [`plan`]: the resulting sessions, blocks and operations;
//! * [`layout`]: the deployments: a service with one target or three;
//! * [`content`]: the initial data, made from a real file;
//! * [`volume`]: the session without an initiator: NBD;
//! * [`deployment`]: processes of a session and their command lines;
//! * [`report`]: the table and the verdict.

mod content;
mod deployment;
mod layout;
mod options;
mod plan;
mod report;
mod volume;

use std::process::ExitCode;
use std::time::Duration;

use ::deployment::network::Network;
use indicatif::{ProgressBar, ProgressStyle};
use role_common::console::EXIT_USAGE;
use role_common::shutdown::Shutdown;
use role_common::{errln, outln};

use crate::table;

pub use options::Options;

use content::Content;
use deployment::Deployment;
use plan::Plan;
use report::{Report, Row};

/// Error that prevents the demo from running. A failed role is reported in the table instead.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{0}")]
    Options(String),
    #[error("{what}: {error}")]
    Io { what: String, error: std::io::Error },
    #[error("--hosts: {0}")]
    Network(#[from] ::deployment::network::Unavailable),
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
    let shutdown = Shutdown::on_signals().map_err(Error::io("signal handlers"))?;
    let directory = tempfile::Builder::new()
        .prefix("doca-storage-")
        .tempdir()
        .map_err(Error::io("a private runtime directory"))?;
    if options.keep && options.layout == options::LayoutChoice::Volume {
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
    let network = match options.hosts {
        1 => None,
        hosts => Some(Network::new(usize::from(hosts))?),
    };
    let content = Content::prepare(options, directory.path())?;
    let plan = Plan::new(options, &content)?;
    let deployment = Deployment::new(&plan, &content, directory.path(), network, shutdown)?;

    if !options.json {
        table::say!("{}", plan.describe(&content));
        if let Some(machines) = deployment.describe_machines() {
            table::say!("{machines}");
        }
    }
    let mut report = Report::default();
    for run in plan.runs() {
        let progress = progress_line(options, run.title);
        let row = match deployment.run(&run) {
            Ok(session) => Row::of(&run, &plan, session),
            Err(failure) if deployment.interrupted() => {
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
        let result = volume::run(&deployment, image, &content.path, directory.path());
        progress.finish_and_clear();
        match result {
            Err(failure) if deployment.interrupted() => {
                errln!("{failure}");
                return Err(Error::Interrupted);
            }
            result => report.add(Row::volume(image, result.err())),
        }
    }
    report.add_leftovers(deployment.leftovers()?);

    let passed = report.passed();
    if options.json {
        outln!("{}", report.to_json());
    } else {
        table::say!("{report}");
    }
    // A volume only: no session is kept; the options were checked.
    if let (true, Some(first)) = (options.keep && passed, plan.runs().first()) {
        let kept = deployment.keep(first, &directory.keep())?;
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
