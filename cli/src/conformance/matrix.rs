//! Table of all mixes of implementations.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ::conformance::matrix::{
    Check, Layout, Matrix as Runner, Member, Mix, Settings, Strategy, Tried, mixes,
};
use ::conformance::report::Report;
use ::deployment::implementation::Implementation;
use clap::{Args, value_parser};
use deployment::network::Network;
use role_common::signals;
use serde::Serialize;
use tabled::builder::Builder;

use super::{LayoutChoice, ReportOptions, Result, WEEK, seconds, try_all, usage};
use crate::implementation;

const HELP: &str = "\
The name of a mix lists the implementations of the initiator, the service, and the target (or data_1, data_2 and data_p), separated
by commas: rust,cpp,rust. Besides the four strategies, there are sessions with an I/O that fails (failing_io), with an I/O beyond the
end of the targets (io_past_end), and with a wrong byte in a block (corrupt_block). Known differences of the C++ reference are
expected; an implementation whose usage lacks --output is taken for it. The exit status is 0 if all checks passed, 1 if one did
not, and 2 for wrong usage.

Examples:
  doca-storage conformance matrix
  doca-storage conformance matrix --impl rust=target/release --impl cpp=/opt/mellanox/doca/applications --library-path ~/softdoca/lib
  doca-storage conformance matrix --impl rust=target/release --impl cpp=build --layout gga --only cpp,rust,rust,cpp,rust --only corrupt_block
  doca-storage conformance matrix --impl rust=target/release --impl cpp=build --layout zero-copy --hosts 2
  doca-storage conformance matrix --impl rust=target/release --impl cpp=build-3.1 --protocol 3.1 --layout zero-copy";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Matrix {
    /// An implementation: its name, and the directory of its programs; may be repeated [default: rust, this program]
    #[arg(long = "impl", value_name = "NAME=DIR")]
    implementations: Vec<String>,

    /// Directory of the DOCA libraries to run them with [default: what LD_LIBRARY_PATH and the programs say]
    #[arg(long, value_name = "DIR")]
    library_path: Option<PathBuf>,

    /// Which deployments
    #[arg(long, value_enum, default_value_t = LayoutChoice::All)]
    layout: LayoutChoice,

    /// Only this mix, or this check; may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// Only this strategy of the initiator; may be repeated
    #[arg(long, value_name = "NAME")]
    strategy: Vec<String>,

    /// Operations of each session; those that validate make at least two passes over the storage of 256 blocks
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = value_parser!(u32).range(64..))]
    operations: u32,

    /// Seconds that one session may take
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = seconds(1, WEEK))]
    timeout: u64,

    /// How often a session is repeated in which the C++ reference crashed when its worker thread began, as it sometimes does
    #[arg(long, value_name = "N", default_value_t = 60)]
    retries: u32,

    /// Passed to programs that know the flag, for mixes with programs of that release, and to the scripted target of failing_io.
    /// The gga_offload service of 3.0 and 3.1 does not write: choose strategies that read
    #[arg(long, value_name = "RELEASE", value_parser = ["3.0", "3.1", "3.2"])]
    protocol: Option<String>,

    /// Number of machines per session. With 2 or more, these are network namespaces, with RDMA over TCP between them: service and initiator
    /// run on the first, and the targets are distributed over the others. io_past_end is left out, because its relay is not on these machines
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u16).range(1..=4))]
    hosts: u16,

    /// Sessions that run at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u16).range(1..=64))]
    jobs: u16,

    #[command(flatten)]
    report: ReportOptions,
}

impl Matrix {
    /// Runs the checks, and fails if one did not pass.
    pub(super) fn run(&self) -> Result<ExitCode> {
        let shutdown = signals::shutdown()?;
        let members = self.members()?;
        let all: Vec<Mix<'_>> = self
            .layout
            .layouts()
            .iter()
            .flat_map(|&layout| mixes(layout, &members))
            .collect();
        let (mixes, checks) = self.chosen(all)?;
        if self.hosts > 1 {
            // Network namespaces that cannot be created are reported once, instead of in every session.
            drop(Network::new(usize::from(self.hosts))?);
        }
        let runner = Runner::new(self.settings()?);
        let all: Vec<_> = mixes
            .iter()
            .flat_map(|mix| checks.iter().map(move |&check| (mix, check)))
            .collect();
        let tried = try_all(
            &all,
            self.jobs,
            &shutdown,
            |(mix, check)| format!("{mix}: {}", check.name()),
            |_, &(mix, check), interrupted| runner.run(mix, check, interrupted),
        )?;
        self.show(&members, &tried, &checks)
    }

    fn show(&self, members: &[Member], tried: &[Tried], checks: &[Check]) -> Result<ExitCode> {
        let report = Report {
            cases: tried.iter().map(|tried| tried.case.clone()).collect(),
        };
        let table = Table::new(members, tried, checks);
        self.report
            .finish_with("conformance matrix", &report, &table)
    }

    fn members(&self) -> Result<Vec<Member>> {
        let implementations = if self.implementations.is_empty() {
            let program = std::env::current_exe()?;
            let directory = program.parent().ok_or("this program is in no directory")?;
            vec![Implementation::in_directory("rust", directory)?]
        } else {
            self.implementations
                .iter()
                .map(|text| implementation(text))
                .collect::<Result<_>>()?
        };
        let mut members: Vec<Member> = Vec::new();
        let library_path = self
            .library_path
            .as_ref()
            .map(std::path::absolute)
            .transpose()?;
        for implementation in implementations {
            let implementation = implementation.with_library_path(library_path.clone());
            if members
                .iter()
                .any(|other| other.name() == implementation.name())
            {
                return Err(usage(format!(
                    "--impl: two are called {}",
                    implementation.name()
                )));
            }
            members.push(Member::probe(implementation)?);
        }
        Ok(members)
    }

    /// Mixes and checks selected by `--only` and `--strategy`.
    fn chosen<'a>(&self, mut mixes: Vec<Mix<'a>>) -> Result<(Vec<Mix<'a>>, Vec<Check>)> {
        let mut checks = Vec::new();
        for name in &self.strategy {
            let strategy = Strategy::ALL
                .into_iter()
                .find(|strategy| strategy.name() == name)
                .ok_or_else(|| {
                    let names = Strategy::ALL.map(Strategy::name).join(", ");
                    usage(format!("--strategy {name}: expected one of {names}"))
                })?;
            checks.push(Check::Strategy(strategy));
        }
        let mut names = Vec::new();
        for name in &self.only {
            if let Some(check) = Check::ALL.into_iter().find(|check| check.name() == name) {
                checks.push(check);
            } else if mixes.iter().any(|mix| mix.to_string() == *name) {
                names.push(name.as_str());
            } else {
                let checks = Check::ALL.map(Check::name).join(", ");
                let mixes: Vec<_> = mixes.iter().map(Mix::to_string).collect();
                let mixes = mixes.join(" ");
                return Err(usage(format!(
                    "--only {name}: expected one of the checks {checks}, or of the mixes {mixes}"
                )));
            }
        }
        if !names.is_empty() {
            mixes.retain(|mix| names.contains(&mix.to_string().as_str()));
        }
        if checks.is_empty() {
            checks = Check::ALL.to_vec();
            if self.hosts > 1 {
                checks.retain(|check| *check != Check::IoPastEnd);
            }
        } else if self.hosts > 1 && checks.contains(&Check::IoPastEnd) {
            return Err(usage(
                "--only io_past_end: expected --hosts 1, as its relay runs on this machine",
            ));
        }
        if mixes.is_empty() {
            return Err(
                "the implementations have no initiator, service and target for any mix".into(),
            );
        }
        Ok((mixes, checks))
    }

    fn settings(&self) -> Result<Settings> {
        let program = std::env::current_exe()?;
        Ok(Settings {
            operations: self.operations,
            timeout: Duration::from_secs(self.timeout),
            retries: self.retries,
            protocol: self.protocol.clone(),
            cpus: deployment::allowed_cpus()?,
            hosts: usize::from(self.hosts),
            scripted_target: vec![
                program.into_os_string(),
                "conformance".into(),
                "faulty-target".into(),
            ],
        })
    }
}

// Table with a row per mix.

#[derive(Serialize)]
struct Table<'a> {
    implementations: Vec<&'a str>,
    /// `true` for mixes of different implementations.
    mixed: bool,
    /// Number of sessions repeated because the reference crashed at the start of a worker thread.
    start_races: u32,
    cases: &'a [Tried],
    #[serde(skip)]
    checks: &'a [Check],
}

impl<'a> Table<'a> {
    fn new(members: &'a [Member], cases: &'a [Tried], checks: &'a [Check]) -> Self {
        Self {
            implementations: members.iter().map(Member::name).collect(),
            mixed: members.len() > 1,
            start_races: cases.iter().map(|tried| tried.start_races).sum(),
            cases,
            checks,
        }
    }

    fn write_layout(&self, f: &mut fmt::Formatter<'_>, layout: Layout) -> fmt::Result {
        let cases: Vec<&Tried> = self.of(layout).collect();
        if cases.is_empty() {
            return Ok(());
        }
        let mut table = Builder::new();
        let parts = ["initiator", "service"]
            .iter()
            .chain(layout.targets())
            .copied();
        let checks = self.checks.iter().map(|check| heading(*check));
        table.push_record(parts.chain(checks).chain(["races", "seconds"]));
        // Cases of a mix are contiguous.
        for row in cases.chunk_by(|a, b| a.mix == b.mix) {
            let races: u32 = row.iter().map(|tried| tried.start_races).sum();
            let seconds: f64 = row.iter().map(|tried| tried.case.took.as_secs_f64()).sum();
            let names = row[0].mix.iter().map(String::as_str);
            let cells = row.iter().map(|tried| tried.cell);
            let line: Vec<String> = names
                .chain(cells)
                .map(str::to_owned)
                .chain([races.to_string(), format!("{seconds:.1}")])
                .collect();
            table.push_record(line);
        }
        // The last two columns are races and seconds.
        let columns = table.count_columns();
        let layout = table::Layout {
            right: &[],
            optional: &[columns - 1, columns - 2],
            flexible: None,
        };
        writeln!(f, "{}", table::render(table, layout))
    }

    fn of(&self, layout: Layout) -> impl Iterator<Item = &'a Tried> {
        self.cases
            .iter()
            .filter(move |tried| tried.layout == layout)
    }
}

/// Short name of a check.
fn heading(check: Check) -> &'static str {
    match check {
        Check::Strategy(Strategy::ReadThroughput) => "read throughput",
        Check::Strategy(Strategy::WriteThroughput) => "write throughput",
        Check::Strategy(Strategy::ReadValidation) => "read validity",
        Check::Strategy(Strategy::WriteReadValidation) => "write-read validity",
        Check::FailingIo => "failing io",
        Check::IoPastEnd => "io past end",
        Check::CorruptBlock => "corrupt block",
    }
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for layout in Layout::ALL {
            self.write_layout(f, layout)?;
        }
        if !self.mixed {
            writeln!(
                f,
                "only one implementation ({}): no mixes",
                self.implementations.join(", ")
            )?;
        }
        f.write_str(LEGEND)
    }
}

const LEGEND: &str = "\
throughput: every I/O was answered with success, and all roles counted as many
validity: the initiator compared every block, too
failing io: a scripted target in place of the target, or of data_1, fails one I/O
corrupt block: one byte in the file of the target, or of data_1, is wrong; all roles are the mix's
io past end: the service is configured with one block more than the targets have; all roles are the mix's
noticed: the initiator failed and reported the cause
hidden by ...: the initiator exited with success, because this role of the C++ reference hides the error
races: sessions that were repeated because the C++ reference crashed when a worker thread began";
