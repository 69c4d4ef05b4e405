//! The pkg-config files, under DOCA's names.

use crate::{Directories, Side};

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
