//! Layout of an installation: its directories, the pkg-config files under DOCA's names, the shell environment that finds
//! them, and a C program that checks the layout of types.

use std::fmt::Write as _;
use std::fs;
use std::mem::{align_of, size_of};
use std::path::Path;

use doca_abi::{CALLBACKS, CONSTANTS, ENUMS, FUNCTION_TYPEDEFS};

use crate::SONAME;
use crate::headers::headers;

/// Layout of an installation.
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
    /// x86-64
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
        .find(|directories| prefix.join(directories.libraries).join(SONAME).exists())
    }

    /// Directory of the library and its links.
    pub const fn libraries(self) -> &'static str {
        self.libraries
    }

    /// Directory of the pkg-config files for one side. In NVIDIA's layout for a DPU, both are for the DPU.
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

/// Returns a file of NVIDIA's or another DOCA in a prefix; installing there would mix the two.
pub(crate) fn foreign(prefix: &Path) -> Option<std::path::PathBuf> {
    let libraries = [
        "lib",
        "lib64",
        "lib/x86_64-linux-gnu",
        "lib/aarch64-linux-gnu",
    ]
    .map(|directory| prefix.join(directory).join("libdoca_common.so"));
    let is_ours = |library: &Path| {
        library
            .canonicalize()
            .is_ok_and(|file| file.file_name().is_some_and(|name| name == SONAME))
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
pub fn assertions() -> String {
    let mut text = String::from(PREAMBLE);
    for header in headers() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "#include <{}>", header.name);
    }
    let mut assert = |condition: String| {
        let _ = writeln!(text, "ASSERT({condition}, \"{condition}\");");
    };
    for decl in ENUMS {
        assert(format!("sizeof(enum {}) == {}", decl.tag, size_of::<u32>()));
        for value in decl.values {
            assert(format!("{} == {}", value.name, value.value));
        }
    }
    for constant in CONSTANTS {
        assert(format!("{} == {}", constant.name, constant.value));
    }
    for callback in CALLBACKS {
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
    types! {
        "union doca_data": doca_abi::doca_data,
        "struct doca_gather_list": doca_abi::doca_gather_list,
        "union doca_clock_timespec_t": doca_abi::doca_clock_timespec_t,
        "struct doca_argp_device_ctx": doca_abi::doca_argp_device_ctx,
        "struct doca_argp_device_rep_ctx": doca_abi::doca_argp_device_rep_ctx,
        "struct doca_rdma_gid": doca_abi::doca_rdma_gid,
        "doca_be16_t": doca_abi::doca_be16_t,
        "doca_be32_t": doca_abi::doca_be32_t,
        "doca_be64_t": doca_abi::doca_be64_t,
        "doca_event_handle_t": doca_abi::doca_event_handle_t,
        "doca_notification_handle_t": doca_abi::doca_notification_handle_t,
    }
    text
}

/// Side of the PCI bus that programs are built for.
///
/// The library is the same; but the reference's build files build the initiator only for a host and the services only
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
    /// Both sides.
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

/// All packages that softdoca replaces.
///
/// The libraries must be links: copies would be several libraries with separate states.
pub const MODULES: &[Module] = &[
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
    pub(crate) fn file(&self, side: Side, directories: Directories) -> String {
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
            version = version(),
        )
    }
}

/// The file of the [`METAPACKAGE`].
pub(crate) fn metapackage() -> String {
    let packages: Vec<&str> = MODULES.iter().map(|module| module.package).collect();
    format!(
        "Name: {METAPACKAGE}\n\
         Description: softdoca, DOCA's C API in software: everything\n\
         Version: {}\n\
         Requires: {}\n",
        version(),
        packages.join(" "),
    )
}

/// Version of the headers.
pub(crate) fn version() -> String {
    format!(
        "{}.{}.{}",
        doca_abi::DOCA_VERSION_MAJOR,
        doca_abi::DOCA_VERSION_MINOR,
        doca_abi::DOCA_VERSION_PATCH
    )
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

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
