//! Where the files of an installation lie.

use std::fs;
use std::path::Path;

use crate::{SONAME, Side};

/// How an installation is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// `include`, `lib`, and pkg-config files for both sides in directories of their own.
    #[default]
    Plain,
    /// As NVIDIA's packages lay out `/opt/mellanox/doca`, for one side: libraries in a directory of the machine's, under the names that
    /// programs record which were linked to NVIDIA's.
    Nvidia(Side),
}

/// A machine that NVIDIA's packages are made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    /// x86-64
    X86_64,
    /// AArch64, which the DPU is as well
    Aarch64,
}

impl Machine {
    /// The machine of a shared library, from the header of its ELF file.
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
    /// Those of [`Layout::Plain`].
    pub const PLAIN: Self = Self { libraries: "lib" };

    /// Those of [`Layout::Nvidia`] on a machine.
    pub const fn of_nvidia(machine: Machine) -> Self {
        Self {
            libraries: match machine {
                Machine::X86_64 => "lib/x86_64-linux-gnu",
                Machine::Aarch64 => "lib/aarch64-linux-gnu",
            },
        }
    }

    /// Those of the installation in a prefix; `None` when there is none.
    pub fn found_in(prefix: &Path) -> Option<Self> {
        [
            Self::PLAIN,
            Self::of_nvidia(Machine::X86_64),
            Self::of_nvidia(Machine::Aarch64),
        ]
        .into_iter()
        .find(|directories| prefix.join(directories.libraries).join(SONAME).exists())
    }

    /// That of the library and its names.
    pub const fn libraries(self) -> &'static str {
        self.libraries
    }

    /// That of the pkg-config files for one side. Where NVIDIA's layout was installed for a DPU, both are for the DPU.
    pub fn packages(self, side: Side) -> String {
        match side {
            Side::Host => format!("{}/pkgconfig", self.libraries),
            Side::Dpu => format!("{}/pkgconfig-dpu", self.libraries),
        }
    }

    /// The prefix, as seen from the directory of the pkg-config files.
    pub(crate) fn up_to_prefix(self) -> String {
        let depth = 1 + self.libraries.split('/').count();
        vec![".."; depth].join("/")
    }
}

/// What in a prefix is NVIDIA's DOCA, or another's: an installation would make a mixture of both.
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
