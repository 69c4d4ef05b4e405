//! `doca-storage sdk`: softdoca for programs in C and C++.

mod library;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use role_common::{errln, out, outln};
use softdoca_sdk::{Side, environment, install};

const EXAMPLES: &str = "\
Examples:
  doca-storage sdk install --prefix ~/softdoca
  eval \"$(doca-storage sdk env --prefix ~/softdoca)\"
  cc program.c $(pkg-config --cflags --libs doca-comch) -o program";

/// What to do.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Install the library, the headers and the pkg-config files
    Install(Install),
    /// Print what a shell has to export so that compilers and programs find them
    Env(Env),
    /// Print which functions there are and what they do in software, as a table in Markdown
    Functions,
}

#[derive(Debug, Args)]
struct Install {
    /// Directory to install to; what an earlier installation left there is replaced
    #[arg(long, value_name = "DIR")]
    prefix: PathBuf,

    /// The shared library to install [default: the one beside this executable, else built by cargo from the checkout that
    /// the working directory or this executable is in]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Env {
    /// Directory of the installation
    #[arg(long, value_name = "DIR")]
    prefix: PathBuf,

    /// For programs of the DPU: the reference's build files then make the services, and else the initiator
    #[arg(long)]
    dpu: bool,
}

/// Does it: 0 when it is done.
pub fn run(options: &Options) -> ExitCode {
    let result = match &options.command {
        Command::Install(options) => options.run(),
        Command::Env(options) => options.run(),
        Command::Functions => {
            out!("{}", softdoca_sdk::table());
            Ok(())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            errln!("doca-storage sdk: error: {error}");
            ExitCode::FAILURE
        }
    }
}

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

impl Install {
    fn run(&self) -> Result<()> {
        let library = match &self.library {
            Some(library) => library.clone(),
            None => library::find()?,
        };
        let prefix = std::path::absolute(&self.prefix)?;
        let installed = install(&library, &prefix)?;
        outln!(
            "installed {}, {} headers, and {} packages each for host and DPU",
            installed.library.display(),
            installed.headers,
            installed.packages
        );
        outln!(
            "to use it: eval \"$(doca-storage sdk env --prefix {})\"",
            prefix.display()
        );
        Ok(())
    }
}

impl Env {
    fn run(&self) -> Result<()> {
        let prefix = std::path::absolute(&self.prefix)?;
        let side = if self.dpu { Side::Dpu } else { Side::Host };
        check(&prefix, side)?;
        out!("{}", environment(&prefix, side));
        Ok(())
    }
}

/// Whether there is an installation: the lines are read by a shell, which would not notice.
fn check(prefix: &Path, side: Side) -> Result<()> {
    let packages = prefix.join(side.package_directory());
    if packages.is_dir() {
        return Ok(());
    }
    Err(format!(
        "expected an installation in {}, but there is no {}; make one with: doca-storage sdk install --prefix {0}",
        prefix.display(),
        packages.display()
    )
    .into())
}
