//! `doca-storage sdk`: softdoca for programs in C and C++.

mod migrate;

use std::env;
use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode, Stdio};

use clap::{Args, Subcommand, ValueEnum};
use doca::{DeviceInfo, FunctionType, RepresentorInfo};
use flate2::read::GzDecoder;
use role_common::{errln, out, outln};
use serde::Serialize;
use softdoca_sdk::{Directories, Layout, Release, Side, environment, install};
use tabled::builder::Builder;
use tempfile::TempDir;

use crate::{Result, usage};

const EXAMPLES: &str = "\
Examples:
  doca-storage sdk install --prefix ~/softdoca
  doca-storage sdk install --layout nvidia --prefix /opt/mellanox/doca
  doca-storage sdk install --api 2.5 --prefix ~/softdoca-2.5
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
    /// Report what C and C++ programs have to change for another release of DOCA: exit status 1 if anything
    Migrate(migrate::Migrate),
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

    /// Release of DOCA that programs are written for: its headers, packages and library names. 2.5 and 2.6 have doca_cc_*
    /// instead of doca_comch_*, and one connection per RDMA context
    #[arg(long, value_enum, default_value = "3.3")]
    api: Api,

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

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Api {
    /// LTS of 2023
    #[value(name = "2.5")]
    V2_5,
    #[value(name = "2.6")]
    V2_6,
    /// LTS of 2024
    #[value(name = "2.9")]
    V2_9,
    /// For programs of 3.x
    #[value(name = "3.3")]
    V3_3,
}

impl From<Api> for Release {
    fn from(api: Api) -> Self {
        match api {
            Api::V2_5 => Self::V2_5,
            Api::V2_6 => Self::V2_6,
            Api::V2_9 => Self::V2_9,
            Api::V3_3 => Self::V3_3,
        }
    }
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

pub fn run(options: &Options) -> ExitCode {
    let done = |()| ExitCode::SUCCESS;
    let result = match &options.command {
        Command::Install(options) => options.run().map(done),
        Command::Env(options) => options.run().map(done),
        Command::Migrate(options) => options.run(),
        Command::Devices(options) => options.run().map(done),
        Command::Functions => {
            out!("{}", softdoca_sdk::table());
            Ok(ExitCode::SUCCESS)
        }
    };
    match result {
        Ok(code) => code,
        Err(error) => crate::conclude("sdk", &*error),
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
        // The library is determined last, because this may build it.
        let library = match &self.library {
            Some(library) => Library::named(library.clone()),
            None => find()?,
        };
        let installed = install(library.path(), &prefix, layout, self.api.into())?;
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

// Default shared library for installation.

const PACKAGE: &str = "softdoca-shared";

/// Sources of the library and its dependencies in this workspace, as a compressed archive.
const SOURCES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/softdoca.tar.gz"));

/// A shared library to install.
struct Library {
    path: PathBuf,
    /// Temporary build directory, if it is not needed afterwards.
    _directory: Option<TempDir>,
}

impl Library {
    fn named(path: PathBuf) -> Self {
        Self {
            path,
            _directory: None,
        }
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// Returns the library of a release, next to the executable or in the `lib` directory beside it. Otherwise cargo
/// builds it, in a checkout or from the embedded sources.
fn find() -> Result<Library> {
    let executable = env::current_exe()?;
    let released = ["", "../lib"].map(|directory| {
        executable
            .with_file_name(directory)
            .join(softdoca_sdk::SONAME)
    });
    if let Some(released) = released.into_iter().find(|path| path.is_file()) {
        return Ok(Library::named(released));
    }
    let directory = env::current_dir()?;
    if let Some(checkout) = checkout(&directory).or_else(|| checkout(&executable)) {
        return build(checkout).map(Library::named);
    }
    let directory = tempfile::tempdir()?;
    unpack(directory.path())?;
    Ok(Library {
        path: build(directory.path())?,
        _directory: Some(directory),
    })
}

fn unpack(directory: &Path) -> std::io::Result<()> {
    tar::Archive::new(GzDecoder::new(SOURCES)).unpack(directory)
}

/// Checkout that contains a path.
fn checkout(path: &Path) -> Option<&Path> {
    path.ancestors()
        .find(|directory| directory.join("softdoca/shared/Cargo.toml").is_file())
}

/// Builds the library, and gets its path from cargo.
fn build(checkout: &Path) -> Result<PathBuf> {
    errln!("building {PACKAGE} in {}", checkout.display());
    let output = process::Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "--package", PACKAGE])
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(checkout)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| {
            format!(
                "expected {0} beside this program or in ../lib, found none, and cannot start cargo to build it: {error}; \
                 install the package libsoftdoca3, or give the library with --library",
                softdoca_sdk::SONAME
            )
        })?;
    if !output.status.success() {
        return Err(format!("cargo could not build {PACKAGE}: {}", output.status).into());
    }
    artifact(&output.stdout)
        .ok_or_else(|| format!("cargo built {PACKAGE}, but names no shared library").into())
}

/// Shared library named in cargo's messages.
fn artifact(messages: &[u8]) -> Option<PathBuf> {
    let wanted = format!("{DLL_PREFIX}{}{DLL_SUFFIX}", PACKAGE.replace('-', "_"));
    serde_json::Deserializer::from_slice(messages)
        .into_iter::<serde_json::Value>()
        .map_while(std::result::Result::ok)
        .filter(|message| message["reason"] == "compiler-artifact")
        .flat_map(|message| {
            message["filenames"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|name| name.as_str().map(PathBuf::from))
                .collect::<Vec<_>>()
        })
        .find(|path| path.file_name().is_some_and(|name| *name == *wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_path_is_read_from_cargo_messages() {
        let messages = br#"{"reason":"compiler-artifact","filenames":["/t/libsoftdoca.rlib"]}
            {"reason":"build-script-executed","filenames":["/other/libsoftdoca_shared.so"]}
            {"reason":"compiler-artifact","filenames":["/t/x.d","/t/libsoftdoca_shared.so"]}
            {"reason":"build-finished","success":true}"#;
        assert_eq!(
            artifact(messages),
            Some(PathBuf::from("/t/libsoftdoca_shared.so"))
        );
        assert_eq!(artifact(b"{}"), None);
        assert_eq!(artifact(b"no json"), None);
    }

    #[test]
    fn bundled_sources_are_a_workspace_of_the_library_only() {
        let directory = tempfile::tempdir().expect("a directory");
        unpack(directory.path()).expect("unpacked");
        assert_eq!(checkout(directory.path()), Some(directory.path()));
        let metadata = process::Command::new(env!("CARGO"))
            .args([
                "metadata",
                "--no-deps",
                "--offline",
                "--format-version",
                "1",
            ])
            .current_dir(directory.path())
            .output()
            .expect("cargo runs");
        let said = String::from_utf8_lossy(&metadata.stderr);
        assert!(metadata.status.success(), "{said}");
        let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout).expect("JSON");
        let mut names: Vec<_> = metadata["packages"]
            .as_array()
            .expect("packages")
            .iter()
            .map(|package| package["name"].as_str().expect("a name"))
            .collect();
        names.sort_unstable();
        assert_eq!(names, ["doca-abi", "softdoca", "softdoca-net", PACKAGE]);
    }

    #[test]
    fn checkout_is_detected() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sdk");
        assert_eq!(
            checkout(&here),
            Path::new(env!("CARGO_MANIFEST_DIR")).parent()
        );
        assert_eq!(checkout(Path::new("/")), None);
    }
}
