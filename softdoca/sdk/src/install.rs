//! Installs softdoca under a prefix: the layout of an installation, its pkg-config files under DOCA's names, the shell
//! environment that finds them, and a C program that checks the layout of types.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::mem::{align_of, size_of};
use std::path::{Path, PathBuf};

use doca_abi::{CONSTANTS, FUNCTION_TYPEDEFS, RELEASE_MARKER, Release};

use crate::declarations::Declarations;
use crate::headers::headers;
use crate::{SONAME, soname};

/// Reason why an installation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The library cannot be read.
    #[error("cannot read the library {path}: {source}")]
    Library {
        /// The path that was searched.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file is not a shared library.
    #[error(
        "{path} is not a shared library (ELF file): expected the library of the package softdoca-shared"
    )]
    NoLibrary { path: PathBuf },
    /// The library is for an architecture that NVIDIA's layout has no directory for.
    #[error(
        "NVIDIA's layout has no directory for the architecture of {path}: expected x86-64 or AArch64"
    )]
    Machine { path: PathBuf },
    /// The library has no place for the release, or several.
    #[error(
        "{path} cannot be installed for release {}: expected the library of this version of softdoca-shared", release.name()
    )]
    Release {
        path: PathBuf,
        /// The release of the installation.
        release: Release,
    },
    /// The prefix contains another installation.
    #[error(
        "{path} is not softdoca's: expected an empty prefix, or an earlier installation of softdoca; choose another --prefix, or \
         remove the other DOCA first"
    )]
    Foreign {
        /// A file of that installation.
        path: PathBuf,
    },
    /// A file or directory of the prefix cannot be created.
    #[error("cannot write {path}: {source}")]
    Write {
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    pub library: PathBuf,
    pub headers: usize,
    /// Number of packages per side.
    pub packages: usize,
}

/// SONAME versions that programs linked against NVIDIA's libraries request.
///
/// NVIDIA's releases 2.6 to 2.10 have the SONAME `libdoca_common.so.2`. The SONAME of 3.x is not known; it is assumed
/// to be the same, or to end in 3.
const fn recorded(release: Release) -> &'static [&'static str] {
    match release {
        Release::V2_5 | Release::V2_6 | Release::V2_9 => &["2"],
        Release::V3_3 => &["2", "3"],
    }
}

/// Installs the shared library with its links, the headers and the pkg-config files of a release under `prefix`.
///
/// An older installation is replaced file by file, each atomically: running programs keep their loaded library. Files
/// that exist only in other releases are removed.
///
/// # Errors
/// If the library is invalid, if the prefix contains another DOCA, or if a file cannot be written; see [`Error`].
pub fn install(
    library: &Path,
    prefix: &Path,
    layout: Layout,
    release: Release,
) -> Result<Installed, Error> {
    let binary = fs::read(library).map_err(|source| Error::Library {
        path: library.to_owned(),
        source,
    })?;
    if !binary.starts_with(b"\x7fELF") {
        return Err(Error::NoLibrary {
            path: library.to_owned(),
        });
    }
    let directories = match layout {
        Layout::Plain => Directories::PLAIN,
        Layout::Nvidia(_) => {
            Directories::of_nvidia(Machine::of(&binary).ok_or_else(|| Error::Machine {
                path: library.to_owned(),
            })?)
        }
    };
    if let Some(path) = foreign(prefix) {
        return Err(Error::Foreign { path });
    }

    let binary = of_release(binary, release).ok_or_else(|| Error::Release {
        path: library.to_owned(),
        release,
    })?;

    let libraries = prefix.join(directories.libraries());
    // A link that remains from an installation of another machine's library.
    if libraries.is_symlink() {
        fs::remove_file(&libraries).map_err(|source| Error::Write {
            path: libraries.clone(),
            source,
        })?;
    }
    remove_other_releases(prefix, directories, release)?;
    let headers = headers(release);
    let soname = soname(release);
    let installed = libraries.join(soname);
    write(&installed, &binary, 0o755)?;
    link(soname, &libraries.join("libsoftdoca.so"))?;
    for module in modules(release) {
        let name = format!("lib{}.so", module.library);
        link(soname, &libraries.join(&name))?;
        if let Layout::Nvidia(_) = layout {
            let version = version(release);
            for suffix in recorded(release).iter().copied().chain([version.as_str()]) {
                link(soname, &libraries.join(format!("{name}.{suffix}")))?;
            }
        }
    }
    for side in Side::ALL {
        let directory = prefix.join(directories.packages(side));
        // In NVIDIA's layout, the common directory is the directory of the only installed side.
        let side = match layout {
            Layout::Nvidia(Side::Dpu) => Side::Dpu,
            _ => side,
        };
        let files = modules(release)
            .map(|module| (module.package, module.file(side, directories, release)))
            .chain([(METAPACKAGE, metapackage(release))]);
        for (package, text) in files {
            let path = directory.join(format!("{package}.pc"));
            write(&path, text.as_bytes(), 0o644)?;
        }
    }
    if let Layout::Nvidia(side) = layout {
        link_other_places(prefix, directories, side)?;
        write_version_of_applications(prefix, release)?;
    }

    for header in &headers {
        let mut text = header.text.clone();
        if (layout, header.name) == (Layout::Nvidia(Side::Dpu), "doca_build_config.h") {
            // Also selects this side for programs that do not use pkg-config.
            let guard = "#define DOCA_BUILD_CONFIG_H_\n";
            let define = "\n#ifndef DOCA_ARCH_DPU\n#define DOCA_ARCH_DPU\n#endif\n";
            text = text.replacen(guard, &format!("{guard}{define}"), 1);
        }
        write(
            &prefix.join("include").join(header.name),
            text.as_bytes(),
            0o644,
        )?;
    }
    Ok(Installed {
        library: installed,
        headers: headers.len(),
        packages: modules(release).count() + 1,
    })
}

/// Writes the release and its SONAME to a library that was built for the current release. `None` unless each is found
/// exactly once.
fn of_release(mut library: Vec<u8>, release: Release) -> Option<Vec<u8>> {
    if release == Release::CURRENT {
        return Some(library);
    }
    let marker = |release: Release| format!("{RELEASE_MARKER}{}", release.name());
    // The SONAME is a string of the dynamic section.
    let string = |soname| format!("\0{soname}\0");
    for (from, to) in [
        (marker(Release::CURRENT), marker(release)),
        (string(SONAME), string(soname(release))),
    ] {
        let mut places = memchr::memmem::find_iter(&library, &from);
        let place = places.next()?;
        if places.next().is_some() || from.len() != to.len() {
            return None;
        }
        library[place..place + to.len()].copy_from_slice(to.as_bytes());
    }
    Some(library)
}

/// Removes the files of an earlier installation for another release that this release does not have.
fn remove_other_releases(
    prefix: &Path,
    directories: Directories,
    release: Release,
) -> Result<(), Error> {
    let own = files(directories, release);
    for other in Release::ALL {
        for name in files(directories, other).difference(&own) {
            let path = prefix.join(name);
            match fs::remove_file(&path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::Write { path, source });
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Names that installations for a release may have, in either layout, relative to the prefix.
fn files(directories: Directories, release: Release) -> BTreeSet<String> {
    let libraries = directories.libraries();
    let mut files = BTreeSet::from([format!("{libraries}/{}", soname(release))]);
    files.extend(
        headers(release)
            .iter()
            .map(|header| format!("include/{}", header.name)),
    );
    for module in modules(release) {
        let name = format!("{libraries}/lib{}.so", module.library);
        let suffixes = recorded(release).iter().copied();
        files.extend(suffixes.map(|suffix| format!("{name}.{suffix}")));
        files.insert(format!("{name}.{}", version(release)));
        files.insert(name);
        for side in Side::ALL {
            files.insert(format!(
                "{}/{}.pc",
                directories.packages(side),
                module.package
            ));
        }
    }
    files
}

/// Creates links for the names of these directories that build files use on other systems: `lib64` on RPM systems,
/// `infrastructure` in releases before 3, and the name of the DPU's machine in the DPU's programs, regardless of the
/// machine that emulates it.
fn link_other_places(prefix: &Path, directories: Directories, side: Side) -> Result<(), Error> {
    let libraries = directories.libraries();
    link(libraries, &prefix.join("lib64"))?;
    let infrastructure = prefix.join("infrastructure");
    let of_dpu = Directories::of_nvidia(Machine::Aarch64).libraries();
    if side == Side::Dpu && libraries != of_dpu {
        for place in [prefix, &infrastructure] {
            let path = place.join(of_dpu);
            // Does not replace the directory of an earlier installation.
            if path.is_symlink() || !path.exists() {
                link(&format!("../{libraries}"), &path)?;
            }
        }
    }
    link("../include", &infrastructure.join("include"))?;
    link(
        &format!("../../{libraries}/pkgconfig"),
        &infrastructure.join("lib/pkgconfig"),
    )?;
    link(
        &format!("../../{libraries}"),
        &infrastructure.join(libraries),
    )
}

/// Writes `applications/VERSION`, from which many build files read the version of DOCA; meson fails without it.
///
/// The directory is unchanged if it contains other files, such as the sources of NVIDIA's applications.
fn write_version_of_applications(prefix: &Path, release: Release) -> Result<(), Error> {
    const NAME: &str = "VERSION";
    let directory = prefix.join("applications");
    let has_sources = fs::read_dir(&directory).is_ok_and(|entries| {
        entries
            .filter_map(Result::ok)
            .any(|entry| entry.file_name() != NAME)
    });
    if has_sources {
        return Ok(());
    }
    let text = format!("{}\n", version(release));
    write(&directory.join(NAME), text.as_bytes(), 0o644)
}

/// Writes a file under a temporary name and renames it, so that an incomplete file is never visible.
fn write(path: &Path, content: &[u8], mode: u32) -> Result<(), Error> {
    let failed = |source| Error::Write {
        path: path.to_owned(),
        source,
    };
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory).map_err(failed)?;
    let mut file = tempfile::NamedTempFile::new_in(directory).map_err(failed)?;
    file.write_all(content).map_err(failed)?;
    rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(mode))
        .map_err(|errno| failed(errno.into()))?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

/// Creates a symbolic link, replacing an existing file.
fn link(target: &str, path: &Path) -> Result<(), Error> {
    let failed = |source| Error::Write {
        path: path.to_owned(),
        source,
    };
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(failed)?;
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    std::os::unix::fs::symlink(target, path).map_err(failed)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// `include`, `lib`, and pkg-config files for both sides in separate directories.
    #[default]
    Plain,
    /// Like NVIDIA's packages in `/opt/mellanox/doca`, for one side: libraries in a directory for the machine, under
    /// the SONAMEs that programs linked against NVIDIA's libraries request.
    Nvidia(Side),
}

/// A machine with NVIDIA packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    X86_64,
    /// AArch64, also the DPU
    Aarch64,
}

impl Machine {
    /// The machine of a shared library, from its ELF header.
    pub(crate) fn of(library: &[u8]) -> Option<Self> {
        match u16::from_le_bytes(library.get(18..20)?.try_into().ok()?) {
            62 => Some(Self::X86_64),
            183 => Some(Self::Aarch64),
            _ => None,
        }
    }
}

/// Directories of an installation, relative to its prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Directories {
    libraries: &'static str,
}

impl Directories {
    /// Directories of [`Layout::Plain`].
    pub const PLAIN: Self = Self { libraries: "lib" };

    /// Directories of [`Layout::Nvidia`] on a machine.
    pub const fn of_nvidia(machine: Machine) -> Self {
        Self {
            libraries: match machine {
                Machine::X86_64 => "lib/x86_64-linux-gnu",
                Machine::Aarch64 => "lib/aarch64-linux-gnu",
            },
        }
    }

    /// Directories of the existing installation in a prefix; `None` without one.
    pub fn found_in(prefix: &Path) -> Option<Self> {
        [
            Self::PLAIN,
            Self::of_nvidia(Machine::X86_64),
            Self::of_nvidia(Machine::Aarch64),
        ]
        .into_iter()
        .find(|directories| {
            let libraries = prefix.join(directories.libraries);
            Release::ALL
                .into_iter()
                .any(|release| libraries.join(soname(release)).exists())
        })
    }

    /// Directory of the library and its links.
    pub const fn libraries(self) -> &'static str {
        self.libraries
    }

    /// Directory of the pkg-config files for one side. With [`Layout::Nvidia`], both directories hold the files of the
    /// installed side.
    pub fn packages(self, side: Side) -> String {
        match side {
            Side::Host => format!("{}/pkgconfig", self.libraries),
            Side::Dpu => format!("{}/pkgconfig-dpu", self.libraries),
        }
    }

    /// Relative path from the directory of the pkg-config files to the prefix.
    pub(crate) fn up_to_prefix(self) -> String {
        let depth = 1 + self.libraries.split('/').count();
        vec![".."; depth].join("/")
    }
}

/// Returns a file in the prefix that belongs to NVIDIA's or another DOCA; an installation there would mix both.
pub(crate) fn foreign(prefix: &Path) -> Option<std::path::PathBuf> {
    let libraries = [
        "lib",
        "lib64",
        "lib/x86_64-linux-gnu",
        "lib/aarch64-linux-gnu",
    ]
    .map(|directory| prefix.join(directory).join("libdoca_common.so"));
    let is_ours = |library: &Path| {
        library.canonicalize().is_ok_and(|file| {
            let mut releases = Release::ALL.into_iter();
            releases.any(|release| file.ends_with(soname(release)))
        })
    };
    let header = prefix.join("include/doca_version.h");
    libraries
        .into_iter()
        .find(|library| library.symlink_metadata().is_ok() && !is_ours(library))
        .or_else(|| {
            let text = fs::read_to_string(&header).ok()?;
            (!text.contains("softdoca")).then_some(header)
        })
}

/// Names that differ between C11 and C++17.
const PREAMBLE: &str = "\
#ifdef __cplusplus
#define ASSERT static_assert
#define ALIGNMENT_OF alignof
#else
#define ASSERT _Static_assert
#define ALIGNMENT_OF _Alignof
#endif
";

/// A C11 and C++17 source that includes every header and asserts that the values of all enums and constants, and the
/// sizes of all types that are passed by value or filled by the library, match the Rust table.
pub fn assertions(release: Release) -> String {
    let mut text = String::from(PREAMBLE);
    let declarations = Declarations::of(release);
    let headers = headers(release);
    for header in &headers {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "#include <{}>", header.name);
    }
    let mut assert = |condition: String| {
        let _ = writeln!(text, "ASSERT({condition}, \"{condition}\");");
    };
    for decl in &declarations.enums {
        assert(format!("sizeof(enum {}) == {}", decl.tag, size_of::<u32>()));
        for value in decl.values {
            assert(format!("{} == {}", value.name, value.value));
        }
    }
    let has = |name: &str| headers.iter().any(|header| header.name == name);
    for constant in CONSTANTS.iter().filter(|constant| has(constant.header)) {
        let value = declarations.value_of(constant);
        assert(format!("{} == {value}", constant.name));
    }
    for callback in &declarations.callbacks {
        // A function type has no size in C, but a pointer to it has.
        let star = if FUNCTION_TYPEDEFS.contains(&callback.name) {
            " *"
        } else {
            ""
        };
        assert(format!(
            "sizeof({}{star}) == {}",
            callback.name,
            size_of::<usize>()
        ));
    }
    macro_rules! types {
        ($($c:literal: $rust:ty),+ $(,)?) => {$(
            assert(format!("sizeof({}) == {}", $c, size_of::<$rust>()));
            assert(format!("ALIGNMENT_OF({}) == {}", $c, align_of::<$rust>()));
        )+};
    }
    if has("doca_clock.h") {
        types! { "union doca_clock_timespec_t": doca_abi::doca_clock_timespec_t }
    }
    if has("doca_rdma.h") {
        types! { "struct doca_rdma_gid": doca_abi::doca_rdma_gid }
    }
    types! {
        "union doca_data": doca_abi::doca_data,
        "struct doca_gather_list": doca_abi::doca_gather_list,
        "struct doca_argp_device_ctx": doca_abi::doca_argp_device_ctx,
        "struct doca_argp_device_rep_ctx": doca_abi::doca_argp_device_rep_ctx,
        "doca_be16_t": doca_abi::doca_be16_t,
        "doca_be32_t": doca_abi::doca_be32_t,
        "doca_be64_t": doca_abi::doca_be64_t,
        "doca_event_handle_t": doca_abi::doca_event_handle_t,
        "doca_notification_handle_t": doca_abi::doca_notification_handle_t,
    }
    if has("doca_comm_channel.h") {
        types! { "doca_event_channel_t": doca_abi::doca_event_channel_t }
    }
    text
}

/// Side of the PCI bus that programs are built for.
///
/// The library is the same, but the reference's build files build the initiator only for a host and the services only
/// for a DPU, and read the side from the headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Side {
    /// The machine that contains the card.
    #[default]
    Host,
    /// The card.
    Dpu,
}

impl Side {
    pub const ALL: [Self; 2] = [Self::Host, Self::Dpu];
}

/// Shell commands that let compilers, pkg-config and the dynamic linker find an installation: for `eval "$(…)"`.
///
/// `prefix` should be absolute, because the commands are used in other directories. Existing values of the variables
/// are kept at the end.
pub fn environment(prefix: &Path, directories: Directories, side: Side) -> String {
    let variables = [
        ("PKG_CONFIG_PATH", directories.packages(side)),
        ("CPATH", "include".to_owned()),
        ("LIBRARY_PATH", directories.libraries().to_owned()),
        ("LD_LIBRARY_PATH", directories.libraries().to_owned()),
    ];
    variables
        .iter()
        .map(|(name, directory)| {
            let path = quoted(&prefix.join(directory));
            format!("export {name}={path}\"${{{name}:+:${name}}}\"\n")
        })
        .collect()
}

/// A path as one quoted shell word.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\\''"))
}

/// A library of DOCA; in softdoca, all of them are links to one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Module {
    /// Name of the package, e.g. `"doca-comch"`.
    pub package: &'static str,
    /// Name of the library, e.g. `"doca_comch"` for `-ldoca_comch`.
    pub library: &'static str,
    /// Description in the pkg-config file.
    pub description: &'static str,
}

/// The packages of a release that softdoca replaces.
///
/// The libraries must be links: copies would be separate libraries with separate states.
pub fn modules(release: Release) -> impl Iterator<Item = &'static Module> {
    // Up to 2.6, Comch is called Comm Channel, and there is its predecessor.
    let absent: &[&str] = match release {
        Release::V2_5 | Release::V2_6 => &["doca-comch"],
        Release::V2_9 | Release::V3_3 => &["doca-cc", "doca-comm-channel"],
    };
    let modules = MODULES.iter();
    modules.filter(move |module| !absent.contains(&module.package))
}

/// The packages of all releases.
const MODULES: &[Module] = &[
    Module {
        package: "doca-common",
        library: "doca_common",
        description: "devices, memory, progress, sync events, graphs, logs",
    },
    Module {
        package: "doca-argp",
        library: "doca_argp",
        description: "command lines",
    },
    Module {
        package: "doca-cc",
        library: "doca_cc",
        description: "communication of host and DPU",
    },
    Module {
        package: "doca-comm-channel",
        library: "doca_comm_channel",
        description: "communication of host and DPU, without contexts",
    },
    Module {
        package: "doca-comch",
        library: "doca_comch",
        description: "communication of host and DPU",
    },
    Module {
        package: "doca-rdma",
        library: "doca_rdma",
        description: "remote memory",
    },
    Module {
        package: "doca-dma",
        library: "doca_dma",
        description: "copies",
    },
    Module {
        package: "doca-compress",
        library: "doca_compress",
        description: "compression",
    },
    Module {
        package: "doca-erasure-coding",
        library: "doca_erasure_coding",
        description: "erasure coding",
    },
    Module {
        package: "doca-aes-gcm",
        library: "doca_aes_gcm",
        description: "encryption",
    },
    Module {
        package: "doca-sha",
        library: "doca_sha",
        description: "digests",
    },
];

/// The package that requires all others.
pub const METAPACKAGE: &str = "doca";

impl Module {
    /// The package's file for one side.
    ///
    /// Paths are relative to the file, so that the prefix can be moved.
    pub(crate) fn file(&self, side: Side, directories: Directories, release: Release) -> String {
        let requires = match self.package {
            "doca-common" => "",
            _ => "Requires: doca-common\n",
        };
        // The reference's build files read the side from the headers, which read this definition.
        let define = match side {
            Side::Host => "",
            Side::Dpu => " -DDOCA_ARCH_DPU",
        };
        let Self {
            package,
            library,
            description,
        } = self;
        format!(
            "prefix=${{pcfiledir}}/{up}\n\
             includedir=${{prefix}}/include\n\
             libdir=${{prefix}}/{libraries}\n\
             \n\
             Name: {package}\n\
             Description: softdoca, DOCA's C API in software: {description}\n\
             Version: {version}\n\
             {requires}\
             Cflags: -I${{includedir}}{define}\n\
             Libs: -L${{libdir}} -l{library}\n",
            up = directories.up_to_prefix(),
            libraries = directories.libraries(),
            version = version(release),
        )
    }
}

/// The file of the [`METAPACKAGE`].
pub(crate) fn metapackage(release: Release) -> String {
    let packages: Vec<&str> = modules(release).map(|module| module.package).collect();
    format!(
        "Name: {METAPACKAGE}\n\
         Description: softdoca, DOCA's C API in software: everything\n\
         Version: {}\n\
         Requires: {}\n",
        version(release),
        packages.join(" "),
    )
}

/// Version of the headers of a release.
pub(crate) fn version(release: Release) -> String {
    let [major, minor, patch] = release.version();
    format!("{major}.{minor}.{patch}")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn second_installation_replaces_the_first() {
        let directory = tempfile::tempdir().unwrap();
        let library = directory.path().join("library.so");
        let prefix = directory.path().join("a prefix");
        fs::write(&library, b"\x7fELF first").unwrap();
        install(&library, &prefix, Layout::Plain, Release::CURRENT).unwrap();
        fs::write(&library, b"\x7fELF second").unwrap();
        let installed = install(&library, &prefix, Layout::Plain, Release::CURRENT).unwrap();

        for name in [
            "libsoftdoca.so",
            "libdoca_common.so",
            "libdoca_erasure_coding.so",
        ] {
            assert_eq!(
                fs::read(prefix.join("lib").join(name)).unwrap(),
                b"\x7fELF second",
                "{name}"
            );
        }
        assert_eq!(installed.library, prefix.join("lib").join(SONAME));
        assert_eq!(
            fs::read_dir(prefix.join("include")).unwrap().count(),
            installed.headers
        );
        assert_eq!(
            fs::read_dir(prefix.join("lib/pkgconfig-dpu"))
                .unwrap()
                .count(),
            installed.packages
        );
    }

    /// In the other direction, the directory also remains.
    fn elf() -> Vec<u8> {
        let mut bytes = b"\x7fELF".to_vec();
        bytes.resize(18, 0);
        bytes.extend([62, 0]);
        bytes
    }

    #[test]
    fn nvidia_layout_has_nvidias_directories_and_names() {
        let directory = tempfile::tempdir().unwrap();
        let library = directory.path().join("library.so");
        fs::write(&library, elf()).unwrap();
        let prefix = directory.path().join("doca");
        // The second side is installed over the first.
        for side in [Side::Host, Side::Dpu] {
            install(&library, &prefix, Layout::Nvidia(side), Release::CURRENT).unwrap();
            for place in [
                "lib/x86_64-linux-gnu",
                "lib64",
                "infrastructure/lib/x86_64-linux-gnu",
            ] {
                for name in [
                    "libdoca_common.so",
                    "libdoca_common.so.2",
                    "libdoca_comch.so.3",
                    "libdoca_rdma.so.3.3.0",
                ] {
                    let file = prefix.join(place).join(name).canonicalize().unwrap();
                    assert_eq!(file.file_name().unwrap(), SONAME, "{place}/{name}");
                }
            }
            for place in ["", "infrastructure"] {
                let of_dpu = prefix.join(place).join("lib/aarch64-linux-gnu");
                let library = of_dpu.join("libdoca_comch.so");
                assert_eq!(library.exists(), side == Side::Dpu, "{place}");
                let package = of_dpu.join("pkgconfig/doca-comch.pc");
                assert_eq!(package.exists(), side == Side::Dpu, "{place}");
            }
            assert!(prefix.join("infrastructure/include/doca_pe.h").exists());
            let version = fs::read_to_string(prefix.join("applications/VERSION")).unwrap();
            assert_eq!(version, "3.3.0\n");
            let packages = prefix.join("infrastructure/lib/pkgconfig");
            let defines = |name: &str| {
                fs::read_to_string(packages.join(name))
                    .unwrap()
                    .contains("DOCA_ARCH_DPU")
            };
            assert_eq!(defines("doca-comch.pc"), side == Side::Dpu);
            assert!(packages.join("doca.pc").exists());
            let config = fs::read_to_string(prefix.join("include/doca_build_config.h")).unwrap();
            assert_eq!(
                config.contains("#define DOCA_ARCH_DPU"),
                side == Side::Dpu,
                "{config}"
            );
            assert_eq!(
                Directories::found_in(&prefix),
                Some(Directories::of_nvidia(Machine::X86_64))
            );
        }
        // The directory is that of the library's machine, here AArch64.
        let mut other = elf();
        other[18] = 183;
        fs::write(&library, other).unwrap();
        let dpu = directory.path().join("dpu");
        let installed =
            install(&library, &dpu, Layout::Nvidia(Side::Dpu), Release::CURRENT).unwrap();
        let expected = dpu.join("lib/aarch64-linux-gnu").join(SONAME);
        assert_eq!(installed.library, expected);
        // Over an installation of an x86 library, where the name is a link.
        let installed = install(
            &library,
            &prefix,
            Layout::Nvidia(Side::Dpu),
            Release::CURRENT,
        )
        .unwrap();
        assert!(!prefix.join("lib/aarch64-linux-gnu").is_symlink());
        let size = |path: &Path| fs::metadata(path).unwrap().len();
        assert_eq!(size(&installed.library), size(&library));
        // In the other direction, the directory also remains.
        fs::write(&library, elf()).unwrap();
        install(
            &library,
            &prefix,
            Layout::Nvidia(Side::Dpu),
            Release::CURRENT,
        )
        .unwrap();
        assert!(!prefix.join("lib/aarch64-linux-gnu").is_symlink());
        fs::write(&library, b"\x7fELF").unwrap();
        assert!(matches!(
            install(
                &library,
                &prefix,
                Layout::Nvidia(Side::Host),
                Release::CURRENT
            ),
            Err(Error::Machine { .. })
        ));
    }

    /// A library with the strings that an installation for another release replaces.
    fn current_library() -> Vec<u8> {
        let mut bytes = elf();
        let text = format!("{RELEASE_MARKER}x {RELEASE_MARKER}3.3\0{SONAME}\0");
        bytes.extend(text.as_bytes());
        bytes
    }

    #[test]
    fn installation_for_2_5_has_its_names_and_replaces_that_of_another_release() {
        let directory = tempfile::tempdir().unwrap();
        let library = directory.path().join("library.so");
        fs::write(&library, current_library()).unwrap();
        for layout in [Layout::Plain, Layout::Nvidia(Side::Host)] {
            let prefix = directory.path().join(format!("{layout:?}"));
            for release in [
                Release::V3_3,
                Release::V2_5,
                Release::V2_9,
                Release::V2_6,
                Release::V3_3,
            ] {
                let installed = install(&library, &prefix, layout, release).unwrap();
                let of_2 = release < Release::V3_3;
                let has_cc = release <= Release::V2_6;
                let directories = Directories::found_in(&prefix).unwrap();
                let libraries = prefix.join(directories.libraries());
                assert_eq!(installed.library, libraries.join(soname(release)));
                for (name, of_release) in [
                    ("include/doca_cc.h", has_cc),
                    ("include/doca_cc_producer.h", has_cc),
                    ("include/doca_comch.h", !has_cc),
                    ("include/doca_rdma.h", true),
                    ("include/doca_buf_array.h", !has_cc),
                    ("include/doca_clock.h", !of_2),
                    ("include/doca_pe.h", true),
                ] {
                    assert_eq!(
                        prefix.join(name).exists(),
                        of_release,
                        "{release:?}: {name}"
                    );
                }
                let nvidia = layout != Layout::Plain;
                for (name, of_release) in [
                    ("libdoca_cc.so", has_cc),
                    ("libdoca_comch.so", !has_cc),
                    ("libsoftdoca.so.2", of_2),
                    ("libsoftdoca.so.3", !of_2),
                    ("libdoca_common.so.2", nvidia),
                    ("libdoca_common.so.3", nvidia && !of_2),
                    (
                        "libdoca_common.so.2.5.0",
                        nvidia && release == Release::V2_5,
                    ),
                    ("pkgconfig/doca-cc.pc", has_cc),
                    ("pkgconfig/doca-comch.pc", !has_cc),
                    ("pkgconfig/doca-common.pc", true),
                ] {
                    assert_eq!(
                        libraries.join(name).exists(),
                        of_release,
                        "{release:?}: {name}"
                    );
                }
                let bytes = fs::read(&installed.library).unwrap();
                let text = String::from_utf8_lossy(&bytes);
                let expected = format!("{RELEASE_MARKER}{}\0{}\0", release.name(), soname(release));
                assert!(text.contains(&expected), "{text}");
                let package = fs::read_to_string(libraries.join("pkgconfig/doca.pc")).unwrap();
                assert!(
                    package.contains(&format!("Version: {}\n", version(release))),
                    "{package}"
                );
                assert_eq!(package.contains("doca-cc"), has_cc);
            }
        }
    }

    #[test]
    fn library_without_place_for_the_release_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let library = directory.path().join("library.so");
        let prefix = directory.path().join("prefix");
        let twice = [current_library(), current_library()].concat();
        for bytes in [elf(), twice] {
            fs::write(&library, bytes).unwrap();
            assert!(matches!(
                install(&library, &prefix, Layout::Plain, Release::V2_5),
                Err(Error::Release {
                    release: Release::V2_5,
                    ..
                })
            ));
            assert!(!prefix.exists());
        }
    }

    #[test]
    fn version_file_of_application_sources_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let library = directory.path().join("library.so");
        fs::write(&library, elf()).unwrap();
        let applications = directory.path().join("doca/applications");
        fs::create_dir_all(&applications).unwrap();
        fs::write(applications.join("VERSION"), "2.10.0\n").unwrap();
        fs::write(applications.join("meson.build"), "").unwrap();
        let prefix = directory.path().join("doca");
        install(
            &library,
            &prefix,
            Layout::Nvidia(Side::Host),
            Release::CURRENT,
        )
        .unwrap();
        let version = fs::read_to_string(applications.join("VERSION")).unwrap();
        assert_eq!(version, "2.10.0\n");
    }

    #[test]
    fn installation_of_another_doca_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let library = directory.path().join("library.so");
        fs::write(&library, elf()).unwrap();
        for (number, (file, content)) in [
            ("lib/x86_64-linux-gnu/libdoca_common.so", "theirs"),
            ("lib64/libdoca_common.so", "theirs"),
            ("include/doca_version.h", "#define DOCA_VERSION_MAJOR 3\n"),
        ]
        .into_iter()
        .enumerate()
        {
            let prefix = directory.path().join(number.to_string());
            let theirs = prefix.join(file);
            fs::create_dir_all(theirs.parent().unwrap()).unwrap();
            fs::write(&theirs, content).unwrap();
            for layout in [Layout::Plain, Layout::Nvidia(Side::Host)] {
                assert!(matches!(
                    install(&library, &prefix, layout, Release::CURRENT),
                    Err(Error::Foreign { path }) if path == theirs
                ));
            }
            assert_eq!(fs::read_to_string(&theirs).unwrap(), content);
            assert!(!prefix.join("include/doca_pe.h").exists());
        }
    }

    #[test]
    fn files_other_than_libraries_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let library = directory.path().join("library.so");
        let prefix = directory.path().join("prefix");
        assert!(matches!(
            install(&library, &prefix, Layout::Plain, Release::CURRENT),
            Err(Error::Library { .. })
        ));
        fs::write(&library, b"!<arch>").unwrap();
        assert!(matches!(
            install(&library, &prefix, Layout::Plain, Release::CURRENT),
            Err(Error::NoLibrary { .. })
        ));
        assert!(!prefix.exists());
        fs::write(&library, b"\x7fELF").unwrap();
        fs::write(&prefix, b"a file").unwrap();
        assert!(matches!(
            install(&library, &prefix, Layout::Plain, Release::CURRENT),
            Err(Error::Write { .. })
        ));
    }

    /// Result of evaluating the commands in a shell.
    fn evaluated(prefix: &str, before: &str, side: Side) -> String {
        let script = format!(
            "unset PKG_CONFIG_PATH CPATH\nPKG_CONFIG_PATH={before}\n{}printf %s \"$PKG_CONFIG_PATH|$CPATH\"",
            environment(Path::new(prefix), Directories::PLAIN, side)
        );
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn paths_are_quoted_for_a_shell() {
        assert_eq!(
            evaluated("/opt/x", "", Side::Host),
            "/opt/x/lib/pkgconfig|/opt/x/include"
        );
        assert_eq!(
            evaluated("/opt/x", "/old", Side::Dpu),
            "/opt/x/lib/pkgconfig-dpu:/old|/opt/x/include"
        );
        assert_eq!(
            evaluated("/it's $HOME", "", Side::Host),
            "/it's $HOME/lib/pkgconfig|/it's $HOME/include"
        );
    }
}
