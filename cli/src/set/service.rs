//! Commands to a running service, through its control socket.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use gga_engine::Target;
use role_common::control_socket::Command;
use role_common::flags::mebibytes;
use role_common::{errln, outln};
use serde_json::Value;
use tabled::builder::Builder;

use crate::{Result, exit_code};

/// Socket of the service in the packages' configuration.
const SOCKET: &str = "/run/doca-storage/gga-offload.control";

/// Time for the service to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) const EXAMPLES: &str = "\
The service is started with --control-socket PATH. The exit status is 1 if it cannot be reached or refuses the command.

Examples:
  doca-storage set status
  doca-storage set status --socket /tmp/gga.control --json
  doca-storage set scrub rate 200
  doca-storage set detach data_2";

/// A command to a service.
#[derive(Debug, Subcommand)]
pub(super) enum Request {
    /// Show the state of a running service and its set
    #[command(after_help = EXAMPLES)]
    Status(Connection),
    /// Start, stop or pace the scrub of a running service
    #[command(after_help = EXAMPLES)]
    Scrub(Scrub),
    /// Keep a target offline, for maintenance of its machine, until attach or the end of the session
    #[command(after_help = EXAMPLES)]
    Detach(OfTarget),
    /// Let a target rejoin that detach keeps offline
    #[command(after_help = EXAMPLES)]
    Attach(OfTarget),
    /// Rebuild all blocks of a target from the other two, whatever it contains
    #[command(after_help = EXAMPLES)]
    Rebuild(OfTarget),
    /// Take the targets over again from the service that has taken over from this one
    #[command(after_help = EXAMPLES)]
    Takeover(Connection),
    /// End a running service as SIGTERM does: I/Os in flight complete, and the set is closed cleanly
    #[command(after_help = EXAMPLES)]
    Drain(Connection),
    /// Change the level of a running service's log
    #[command(after_help = EXAMPLES)]
    LogLevel(LogLevel),
}

#[derive(Debug, Args)]
pub(super) struct Connection {
    /// Control socket of the service
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,

    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Scrub {
    #[command(subcommand)]
    action: ScrubAction,
}

#[derive(Debug, Subcommand)]
enum ScrubAction {
    /// Start a scrub of all blocks, unless one is running
    Start(Connection),
    /// Stop the running scrub; the next one continues where it stopped
    Stop(Connection),
    /// Change the maximum rate of scrubs until the service ends
    Rate {
        /// MiB of blocks per second, or a size such as 512k
        #[arg(value_name = "MIB", value_parser = mebibytes)]
        rate: u64,

        #[command(flatten)]
        connection: Connection,
    },
}

#[derive(Debug, Args)]
pub(super) struct OfTarget {
    #[arg(value_enum, value_name = "TARGET")]
    target: Target,

    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, Args)]
pub(super) struct LogLevel {
    /// 10 (disable), 20 (critical), 30 (error), 40 (warning), 50 (info), 60 (debug) or 70 (trace)
    #[arg(value_name = "LEVEL")]
    level: u32,

    #[command(flatten)]
    connection: Connection,
}

impl Request {
    fn parts(&self) -> (Command, &Connection) {
        let target = |of: &OfTarget| of.target.name().to_owned();
        match self {
            Self::Status(connection) => (Command::Status {}, connection),
            Self::Scrub(Scrub { action }) => match action {
                ScrubAction::Start(connection) => (Command::ScrubStart {}, connection),
                ScrubAction::Stop(connection) => (Command::ScrubStop {}, connection),
                ScrubAction::Rate { rate, connection } => {
                    (Command::ScrubRate { rate: *rate }, connection)
                }
            },
            Self::Detach(of) => (Command::Detach { target: target(of) }, &of.connection),
            Self::Attach(of) => (Command::Attach { target: target(of) }, &of.connection),
            Self::Rebuild(of) => (Command::Rebuild { target: target(of) }, &of.connection),
            Self::Takeover(connection) => (Command::Takeover {}, connection),
            Self::Drain(connection) => (Command::Drain {}, connection),
            Self::LogLevel(of) => (Command::LogLevel { level: of.level }, &of.connection),
        }
    }

    pub(super) fn run(&self) -> Result<ExitCode> {
        let (command, connection) = self.parts();
        let answer = connection.ask(&command)?;
        if let Some(error) = answer.get("error") {
            let text = |field: &str| error[field].as_str().unwrap_or("unknown");
            errln!(
                "the service refuses: {} ({})",
                text("message"),
                text("code")
            );
            return Ok(exit_code(false));
        }
        let result = &answer["ok"];
        if connection.json {
            outln!("{}", serde_json::to_string_pretty(result)?);
        } else if command == (Command::Status {}) {
            print(result);
        }
        Ok(exit_code(true))
    }
}

impl Connection {
    fn ask(&self, command: &Command) -> Result<Value> {
        let path = self.socket.display();
        let failed = |error: std::io::Error| {
            format!(
                "cannot reach a service at {path}: {error}; expected one that was started with --control-socket {path} by this user"
            )
        };
        let mut stream = UnixStream::connect(&self.socket).map_err(failed)?;
        stream
            .set_read_timeout(Some(ANSWER_TIMEOUT))
            .map_err(failed)?;
        let mut line = serde_json::to_string(command)?;
        line.push('\n');
        stream.write_all(line.as_bytes()).map_err(failed)?;
        let mut answer = String::new();
        BufReader::new(stream)
            .read_line(&mut answer)
            .map_err(failed)?;
        serde_json::from_str(&answer)
            .map_err(|error| format!("{path}: expected an answer in JSON: {error}").into())
    }
}

fn print(status: &Value) {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let text = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
    let uptime = Duration::from_secs(number(&status["uptime_seconds"]));
    outln!(
        "service  {} {}, process {}, up {}",
        text(&status["role"]),
        text(&status["version"]),
        number(&status["process"]),
        humantime::format_duration(uptime)
    );
    if let Some(has_session) = status["session"].as_bool() {
        let session = match (has_session, status["targets_in_use"].as_bool()) {
            (true, _) => "an initiator is connected",
            (false, Some(true)) => "no initiator is connected; the service maintains the set",
            (false, _) => "no initiator is connected; what follows is of the last session",
        };
        outln!("session  {session}");
    }
    let reservation = &status["reservation"];
    if reservation.is_object() {
        match (reservation["fenced"].as_str(), &reservation["generation"]) {
            (Some(fenced), _) => outln!("targets  {fenced}"),
            (None, generation) => outln!("targets  reserved, generation {}", number(generation)),
        }
    }
    let set = &status["set"];
    if !set.is_object() {
        return;
    }
    outln!(
        "set      {}, epoch {}, {}",
        text(&set["set"]).get(..8).unwrap_or("none"),
        number(&set["epoch"]),
        text(&set["state"])
    );
    outln!(
        "blocks   {}, of which a target has missed {}, and {} are to be settled",
        number(&set["stripes"]),
        number(&set["missed_stripes"]),
        number(&set["unsettled_stripes"])
    );
    let work = &set["work"];
    if work.is_object() {
        let name = text(&work["work"]);
        let (done, total) = (number(&work["done"]), number(&work["total"]));
        outln!("work     {name}: {done} of {total} blocks");
    }
    let rate = number(&status["scrub_rate"]);
    let scrub = match set["scrub"]["stripe"].as_u64() {
        Some(stripe) => format!("at block {stripe} of {}", number(&set["stripes"])),
        None => "none is running".to_owned(),
    };
    outln!(
        "scrub    {scrub}, at most {} MiB/s",
        rate as f64 / 1048576.0
    );
    let mut rows = Builder::new();
    rows.push_record(["target", "state", "detachments", "repaired chunks"]);
    for target in set["targets"].as_array().into_iter().flatten() {
        let is = |field: &str| target[field].as_bool().unwrap_or(false);
        let state = match (is("is_online"), is("is_kept_offline")) {
            (true, _) => "online",
            (false, true) => "kept offline",
            (false, false) => "offline",
        };
        rows.push_record([
            text(&target["target"]),
            state.to_owned(),
            number(&target["detachments"]).to_string(),
            number(&target["repaired_chunks"]).to_string(),
        ]);
    }
    let layout = table::Layout {
        right: &[2, 3],
        optional: &[3, 2],
        flexible: None,
    };
    table::say!("{}", table::render(rows, layout));
}
