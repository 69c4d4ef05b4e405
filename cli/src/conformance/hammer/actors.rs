//! The hammer's own processes: this program, started as one of them.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use ::conformance::hammer::{Actors, Load, Mischief, Stranger, Task, Witness};
use ::conformance::matrix::Layout;
use clap::{Args, ValueEnum};
use role_common::shutdown::Shutdown;

use crate::conformance::Result;

/// How all of them are started.
pub(super) fn actors() -> Result<Actors> {
    let own = std::env::current_exe()?;
    let program = move |name: &str| {
        let mut command = Command::new(&own);
        command.args(["conformance", name]);
        command
    };
    let (load, witness, stranger) = (program.clone(), program.clone(), program);
    let own = std::env::current_exe()?;
    Ok(Actors {
        load: Box::new(move |told| LoadOptions::from(told).command(load("hammer-load"))),
        witness: Box::new(move |told| WitnessOptions::command(told, witness("hammer-witness"))),
        stranger: Box::new(move |told| StrangerOptions::command(told, stranger("hammer-stranger"))),
        front_end: Box::new(move || {
            let mut command = Command::new(&own);
            command.arg("nbd");
            command
        }),
    })
}

/// Flags of the load.
#[derive(Debug, Args)]
pub(in crate::conformance) struct LoadOptions {
    #[arg(long)]
    channel: String,
    #[arg(long)]
    device: String,
    #[arg(long)]
    witness: PathBuf,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    session: u64,
    #[arg(long, value_enum)]
    service: ServiceChoice,
    #[arg(long, value_enum)]
    task: TaskChoice,
    #[arg(long)]
    cut_off: bool,
    #[arg(long, value_enum)]
    mischief: MischiefChoice,
    #[arg(long)]
    patience: u64,
}

/// A flag for each value of an enumeration.
macro_rules! choice {
    ($name:ident, $of:ty, $($value:ident),*) => {
        #[derive(Debug, Clone, Copy, ValueEnum)]
        enum $name {
            $($value),*
        }

        impl From<$of> for $name {
            fn from(value: $of) -> Self {
                match value {
                    $(<$of>::$value => Self::$value),*
                }
            }
        }

        impl From<$name> for $of {
            fn from(choice: $name) -> Self {
                match choice {
                    $($name::$value => Self::$value),*
                }
            }
        }

        impl $name {
            fn text(self) -> String {
                let value = self.to_possible_value();
                value.map(|value| value.get_name().to_owned()).unwrap_or_default()
            }
        }
    };
}

choice!(ServiceChoice, Layout, ZeroCopy, Gga);
choice!(TaskChoice, Task, Fill, Run, ReadBack);
choice!(MischiefChoice, Mischief, None, Io, Control);

impl From<&Load> for LoadOptions {
    fn from(load: &Load) -> Self {
        Self {
            channel: load.channel.clone(),
            device: load.device.clone(),
            witness: load.witness.clone(),
            seed: load.seed,
            session: load.session,
            service: load.layout.into(),
            task: load.task.into(),
            cut_off: load.cut_off,
            mischief: load.mischief.into(),
            patience: load.patience.as_secs(),
        }
    }
}

impl LoadOptions {
    fn command(&self, mut command: Command) -> Command {
        command
            .args(["--channel", &self.channel])
            .args(["--device", &self.device])
            .arg("--witness")
            .arg(&self.witness)
            .args(["--seed", &self.seed.to_string()])
            .args(["--session", &self.session.to_string()])
            .args(["--service", &self.service.text()])
            .args(["--task", &self.task.text()])
            .args(["--mischief", &self.mischief.text()])
            .args(["--patience", &self.patience.to_string()]);
        if self.cut_off {
            command.arg("--cut-off");
        }
        command
    }

    /// Plays the load.
    pub(in crate::conformance) fn play(&self) -> Result<ExitCode> {
        let shutdown = Shutdown::on_signals()?;
        let load = Load {
            channel: self.channel.clone(),
            device: self.device.clone(),
            witness: self.witness.clone(),
            seed: self.seed,
            session: self.session,
            layout: self.service.into(),
            task: self.task.into(),
            cut_off: self.cut_off,
            mischief: self.mischief.into(),
            patience: Duration::from_secs(self.patience),
        };
        load.play(&|| shutdown.is_requested())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Flags of the witness.
#[derive(Debug, Args)]
pub(in crate::conformance) struct WitnessOptions {
    #[arg(long)]
    socket: PathBuf,
    #[arg(long)]
    blocks: u64,
    #[arg(long)]
    evidence: PathBuf,
}

impl WitnessOptions {
    fn command(witness: &Witness, mut command: Command) -> Command {
        let path = |command: &mut Command, flag: &str, path: &Path| {
            command.arg(flag).arg(path);
        };
        path(&mut command, "--socket", &witness.socket);
        path(&mut command, "--evidence", &witness.evidence);
        command.args(["--blocks", &witness.blocks.to_string()]);
        command
    }

    /// Watches until whoever started it has gone.
    pub(in crate::conformance) fn watch(&self) -> Result<ExitCode> {
        let witness = Witness {
            socket: self.socket.clone(),
            blocks: self.blocks,
            evidence: self.evidence.clone(),
        };
        witness.watch()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Flags of the stranger.
#[derive(Debug, Args)]
pub(in crate::conformance) struct StrangerOptions {
    #[arg(long)]
    channel: String,
    #[arg(long)]
    device: String,
    #[arg(long)]
    seed: u64,
}

impl StrangerOptions {
    fn command(stranger: &Stranger, mut command: Command) -> Command {
        command
            .args(["--channel", &stranger.channel])
            .args(["--device", &stranger.device])
            .args(["--seed", &stranger.seed.to_string()]);
        command
    }

    /// Disturbs a service.
    pub(in crate::conformance) fn intrude(&self) -> Result<ExitCode> {
        let stranger = Stranger {
            channel: self.channel.clone(),
            device: self.device.clone(),
            seed: self.seed,
        };
        stranger.intrude()?;
        Ok(ExitCode::SUCCESS)
    }
}
