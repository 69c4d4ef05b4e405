//! `doca-storage sdk`: softdoca for programs in C and C++.

mod library;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use doca::{DeviceInfo, FunctionType, RepresentorInfo};
use library::Library;
use role_common::{out, outln};
use serde::Serialize;
use softdoca_sdk::{Directories, Layout, Side, environment, install};
use tabled::builder::Builder;

use crate::failure::{self, Result, usage};
use crate::table;

const EXAMPLES: &str = "\
Examples:
  doca-storage sdk install --prefix ~/softdoca
  doca-storage sdk install --layout nvidia --prefix /opt/mellanox/doca
  eval \"$(doca-storage sdk env --prefix ~/softdoca)\"
  cc program.c $(pkg-config --cflags --libs doca-comch) -o program";

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
    /// Print shell commands that set the environment for compilers and programs
    Env(Env),
    /// Print the devices of programs: softdoca's built-in ones, or those of the file named by SOFTDOCA_TOPOLOGY
    Devices(Devices),
    /// Print the functions and their state in software, as a table in Markdown
    Functions,
}

#[derive(Debug, Args)]
struct Install {
    /// Directory to install to; an earlier installation there is replaced
    #[arg(long, value_name = "DIR")]
    prefix: PathBuf,

    /// Layout of the directory
    #[arg(long, value_enum, default_value = "plain")]
    layout: LayoutName,

    /// With --layout nvidia: headers and pkg-config files of the DPU instead of the host
    #[arg(long)]
    dpu: bool,

    /// Shared library to install [default: the one installed with this executable; otherwise built by cargo, from the
    /// checkout of the working directory or of this executable, or from embedded sources]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LayoutName {
    /// include, lib, lib/pkgconfig for hosts and lib/pkgconfig-dpu for DPUs
    Plain,
    /// As in NVIDIA's packages: lib/x86_64-linux-gnu or lib/aarch64-linux-gnu, and names with versions
    Nvidia,
}

#[derive(Debug, Args)]
struct Env {
    /// Directory of the installation
    #[arg(long, value_name = "DIR")]
    prefix: PathBuf,

    /// For programs of the DPU: the reference's build files then build the services, otherwise the initiator
    #[arg(long)]
    dpu: bool,
}

/// Runs the subcommand.
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
        Err(error) => failure::conclude("sdk", &*error),
    }
}

impl Install {
    fn run(&self) -> Result<()> {
        let prefix = std::path::absolute(&self.prefix)?;
        let layout = match (self.layout, self.dpu) {
            (LayoutName::Plain, false) => Layout::Plain,
            (LayoutName::Plain, true) => {
                return Err(usage(
                    "--dpu is for --layout nvidia: the plain layout has both sides, and sdk env --dpu chooses",
                ));
            }
            (LayoutName::Nvidia, dpu) => Layout::Nvidia(if dpu { Side::Dpu } else { Side::Host }),
        };
        // Last, because it may be built now.
        let library = match &self.library {
            Some(library) => Library::named(library.clone()),
            None => library::find()?,
        };
        let installed = install(library.path(), &prefix, layout)?;
        table::say!(
            "installed {}, {} headers and {} packages",
            installed.library.display(),
            installed.headers,
            installed.packages
        );
        // Not wrapped, because it is a command to copy.
        outln!(
            "to use it:\n  eval \"$(doca-storage sdk env --prefix {})\"",
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
            // The output is evaluated by a shell, which would not detect the error.
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

// `doca-storage sdk devices`.

/// Log level of the SDK, at which it reports on standard error why it cannot list devices.
const ERRORS: u32 = 30;

#[derive(Debug, Args)]
pub struct Devices {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Device {
    pci: String,
    ibdev: Option<String>,
    iface: Option<String>,
    ipv4: Option<Ipv4Addr>,
    ipv6: Option<Ipv6Addr>,
    mac: Option<String>,
    representors: Vec<Representor>,
}

#[derive(Debug, Serialize)]
struct Representor {
    pci: String,
    iface: Option<String>,
    kind: &'static str,
    function: Option<&'static str>,
    vuid: Option<String>,
}

impl Devices {
    pub fn run(&self) -> Result<()> {
        doca::set_sdk_log_level(ERRORS)?;
        let devices: Vec<Device> = DeviceInfo::all()?.into_iter().map(Device::from).collect();
        if self.json {
            outln!("{}", serde_json::to_string_pretty(&devices)?);
        } else {
            outln!("{}", table(&devices));
        }
        Ok(())
    }
}

impl From<DeviceInfo> for Device {
    fn from(device: DeviceInfo) -> Self {
        Self {
            pci: device.pci_address,
            ibdev: device.ibdev,
            iface: device.iface,
            ipv4: device.ipv4,
            ipv6: device.ipv6,
            mac: device
                .mac
                .map(|mac| mac.map(|byte| format!("{byte:02x}")).join(":")),
            representors: device
                .representors
                .into_iter()
                .map(Representor::from)
                .collect(),
        }
    }
}

impl From<RepresentorInfo> for Representor {
    fn from(representor: RepresentorInfo) -> Self {
        Self {
            pci: representor.pci_address,
            iface: representor.iface,
            kind: if representor.emulated {
                "emulated"
            } else {
                "net"
            },
            function: representor.function.map(|function| match function {
                FunctionType::Physical => "pf",
                FunctionType::Virtual => "vf",
                FunctionType::Scalable => "sf",
            }),
            vuid: representor.vuid,
        }
    }
}

/// One line per device, followed by one per representor.
fn table(devices: &[Device]) -> String {
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let mut table = Builder::default();
    table.push_record(["PCI address", "RDMA device", "interface", "IPv4", "MAC"]);
    for device in devices {
        table.push_record([
            device.pci.clone(),
            or_dash(&device.ibdev),
            or_dash(&device.iface),
            or_dash(&device.ipv4.map(|address| address.to_string())),
            or_dash(&device.mac),
        ]);
        for representor in &device.representors {
            table.push_record([
                format!("  {}", representor.pci),
                format!("representor, {}", representor.kind),
                or_dash(&representor.iface),
                "-".to_owned(),
                "-".to_owned(),
            ]);
        }
    }
    let layout = table::Layout {
        right: &[],
        optional: &[4, 3],
        flexible: None,
    };
    table::render(table, layout)
}
