//! Attacks on one role.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use ::conformance::hostile::{Attack, ClientEndpoint, Limit, Settings, attacks, run};
use ::deployment::implementation::{self, Implementation};
use clap::{Args, ValueEnum, value_parser};
use indicatif::ProgressBar;
use role_common::flags::duration;
use role_common::shutdown::Shutdown;

use crate::table;

use super::report::{ReportOptions, progress};
use super::{Result, role, usage};

const HELP: &str = "\
Each attack has cost limits: seconds until another client is served after it, seconds by which another client is delayed during it, MiB,
descriptors, and log lines. The note of an attack has its measured cost and, if the role stopped the attack, the error that ended
it. The exit status is 0 if all attacks stayed within their limits, and 1 if not.

With --duration or --sessions, attacks run in random order beside a well-behaved client: its started sessions may not fail,
it must be served within the limit after each attack, and the role's memory, descriptors and threads may not grow.

Examples:
  doca-storage conformance hostile --role target
  doca-storage conformance hostile --role zero-copy --list
  doca-storage conformance hostile --role gga-offload --only ring- --only import-
  doca-storage conformance hostile --role initiator
  doca-storage conformance hostile --role target --duration 10m --junit hostile.xml
  doca-storage conformance hostile --role zero-copy --sessions 5000";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Hostile {
    /// Role under attack; a service gets targets of the same implementation, an initiator is started for each attack
    #[arg(long, value_enum)]
    role: Role,

    /// Directory of the programs [default: this program]
    #[arg(long = "bin", value_name = "DIR")]
    binaries: Option<PathBuf>,

    /// Only attacks whose names contain this text; may be repeated, which selects more
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// List the attacks without running them
    #[arg(long)]
    list: bool,

    /// Run attacks in random order for this time, beside a well-behaved client; not for an initiator [default: each
    /// once]
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "sessions")]
    duration: Option<Duration>,

    /// Run attacks in random order until there were this many sessions, half of them of a well-behaved client; not for
    /// an initiator
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(2..))]
    sessions: Option<u32>,

    /// Seed of the random order [default: any]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Factor for the allowed times, for a loaded machine
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=100))]
    time_scale: u32,

    #[command(flatten)]
    report: ReportOptions,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Role {
    Initiator,
    Target,
    ZeroCopy,
    GgaOffload,
}

impl From<Role> for implementation::Role {
    fn from(role: Role) -> Self {
        match role {
            Role::Initiator => Self::Initiator,
            Role::Target => Self::Target,
            Role::ZeroCopy => Self::ZeroCopy,
            Role::GgaOffload => Self::GgaOffload,
        }
    }
}

impl Hostile {
    /// Runs the attacks, and fails if one exceeded its cost limits.
    pub(super) fn run(&self) -> Result<ExitCode> {
        if matches!(self.role, Role::Initiator)
            && (self.duration.is_some() || self.sessions.is_some())
        {
            return Err(usage(
                "--duration and --sessions are for roles that serve one session after the other, \
                 beside attacks: expected --role target, zero-copy or gga-offload, got initiator, which is started for each attack. Leave them \
                 out to play each attack once",
            ));
        }
        let attacks = self.chosen()?;
        if self.list {
            for Attack {
                name,
                meaning,
                cost,
                ..
            } in &attacks
            {
                let line = format!(
                    "{name}: {meaning} (at most {} s, held up {} s, {} MiB, {} descriptors, {} lines)",
                    cost.service.as_secs(),
                    cost.held_up.as_secs(),
                    cost.memory,
                    cost.descriptors,
                    cost.lines
                );
                table::say!("{line}");
            }
            return Ok(ExitCode::SUCCESS);
        }
        let shutdown = Shutdown::on_signals()?;
        if !role::is_inside() {
            return role::enter(&shutdown);
        }
        let role = self.role.into();
        let implementation = match &self.binaries {
            Some(directory) => Implementation::in_directory("given", directory)?,
            // Not the directory of this program, which may contain other builds.
            None => Implementation::of_binary("own", role, &std::env::current_exe()?),
        };
        let limit = match (self.duration, self.sessions) {
            (Some(time), _) => Some(Limit::Time(time)),
            (None, Some(count)) => Some(Limit::Sessions(count as usize)),
            (None, None) => None,
        };
        let progress = match limit {
            _ if self.report.json => ProgressBar::hidden(),
            Some(Limit::Sessions(count)) => progress(count / 2),
            Some(Limit::Time(_)) => progress(0),
            None => progress(attacks.len()),
        };
        let own = std::env::current_exe()?;
        let settings = Settings {
            client: Box::new(move |endpoint| ClientOptions::command(endpoint, &own)),
            implementation,
            role,
            attacks,
            limit,
            seed: self.seed,
        };
        let done = |name: &str| {
            progress.set_message(name.to_owned());
            progress.inc(1);
        };
        let report = run(&settings, &done, &|| shutdown.is_requested());
        progress.finish_and_clear();
        self.report.finish("conformance hostile", &report)
    }

    fn chosen(&self) -> Result<Vec<Attack>> {
        let role = self.role.into();
        let mut all = attacks();
        all.retain(|attack| attack.is_for(role));
        for attack in &mut all {
            attack.cost = attack.cost.with_times(self.time_scale);
        }
        for name in &self.only {
            if !all.iter().any(|attack| attack.name.contains(name.as_str())) {
                return Err(usage(format!(
                    "--only {name}: expected a part of the name of an attack; --list shows them"
                )));
            }
        }
        all.retain(|attack| {
            self.only.is_empty() || self.only.iter().any(|name| attack.name.contains(name))
        });
        Ok(all)
    }
}

/// Flags of the well-behaved client.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct ClientOptions {
    /// TCP port of a target
    #[arg(long)]
    target: Option<u16>,

    /// Comch server name of a service
    #[arg(long)]
    service: Option<String>,
}

impl ClientOptions {
    fn command(endpoint: &ClientEndpoint, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.args(["conformance", "hostile-client"]);
        match endpoint {
            ClientEndpoint::Target(port) => command.args(["--target", &port.to_string()]),
            ClientEndpoint::Service(name) => command.args(["--service", name]),
        };
        command
    }

    /// Runs sessions on request until standard input is closed.
    pub(super) fn run(&self) -> Result<ExitCode> {
        let endpoint = match (self.target, &self.service) {
            (Some(port), _) => ClientEndpoint::Target(port),
            (None, Some(name)) => ClientEndpoint::Service(name.clone()),
            (None, None) => return Err(usage("expected --target PORT or --service NAME")),
        };
        endpoint.run()?;
        Ok(ExitCode::SUCCESS)
    }
}
