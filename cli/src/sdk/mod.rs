//! `doca-storage sdk`: softdoca for programs in C and C++.

mod devices;
mod library;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use library::Library;
use role_common::{errln, out, outln};
use softdoca_sdk::{Directories, Layout, Side, environment, install};

const EXAMPLES: &str = "\
Examples:
  doca-storage sdk install --prefix ~/softdoca
  doca-storage sdk install --layout nvidia --prefix /opt/mellanox/doca
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
    /// Print the devices that programs see: softdoca's own, or those of the file that SOFTDOCA_TOPOLOGY names
    Devices(devices::Devices),
    /// Print which functions there are and what they do in software, as a table in Markdown
    Functions,
}

#[derive(Debug, Args)]
struct Install {
    /// Directory to install to; what an earlier installation left there is replaced
    #[arg(long, value_name = "DIR")]
    prefix: PathBuf,

    /// Where the files lie in it
    #[arg(long, value_enum, default_value = "plain")]
    layout: LayoutName,

    /// With --layout nvidia: headers and pkg-config files are those of the DPU and not those of the host
    #[arg(long)]
    dpu: bool,

    /// The shared library to install [default: the one that was installed with this executable; else built by cargo, from the checkout that the
    /// working directory or this executable is in, or from the sources that the program brings]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LayoutName {
    /// include, lib, lib/pkgconfig for hosts and lib/pkgconfig-dpu for DPUs
    Plain,
    /// That of NVIDIA's packages: lib/x86_64-linux-gnu or lib/aarch64-linux-gnu, and names with versions
    Nvidia,
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
        Command::Devices(options) => options.run(),
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
            Some(library) => Library::named(library.clone()),
            None => library::find()?,
        };
        let prefix = std::path::absolute(&self.prefix)?;
        let layout = match (self.layout, self.dpu) {
            (LayoutName::Plain, false) => Layout::Plain,
            (LayoutName::Plain, true) => {
                return Err("--dpu is for --layout nvidia: the plain layout has both sides, and sdk env --dpu chooses".into());
            }
            (LayoutName::Nvidia, dpu) => Layout::Nvidia(if dpu { Side::Dpu } else { Side::Host }),
        };
        let installed = install(library.path(), &prefix, layout)?;
        outln!(
            "installed {}, {} headers and {} packages",
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
        let Some(directories) = Directories::found_in(&prefix) else {
            // The lines are read by a shell, which would not notice.
            return Err(format!(
                "expected an installation in {}, but there is none; make one with: doca-storage sdk install --prefix {0}",
                prefix.display()
            )
            .into());
        };
        out!("{}", environment(&prefix, directories, side));
        Ok(())
    }
}
