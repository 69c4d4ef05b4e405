//! Where the files of an installation lie.

use std::fmt::Write as _;
use std::fs;
use std::mem::{align_of, size_of};
use std::path::Path;

use doca_abi::{CALLBACKS, CONSTANTS, ENUMS, FUNCTION_TYPEDEFS};

use crate::headers::headers;
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

/// What C11 and C++17 name differently.
const PREAMBLE: &str = "\
#ifdef __cplusplus
#define ASSERT static_assert
#define ALIGNMENT_OF alignof
#else
#define ASSERT _Static_assert
#define ALIGNMENT_OF _Alignof
#endif
";

/// A C11 and C++17 source that includes every header and asserts that the values of all enums and constants, and the sizes of
/// what is passed by value or filled in by the library, are those of the Rust table.
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
        // The size of a function is none of C's; that of a pointer to one is.
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
