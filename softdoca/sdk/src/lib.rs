//! What C and C++ programs need of softdoca beside its library: headers, pkg-config files, and where they lie.
//!
//! The headers are written from the table of [`doca_abi`], when they are installed, and are not kept in the repository: so they
//! cannot disagree with the library that they are installed with. What no table can say (macros, the variadic log function, the few
//! plain types) is in `parts/`, and is put into the header of the same name.

#![forbid(unsafe_code)]

mod environment;
mod headers;
mod install;
mod layout;
mod pkg_config;
mod state;

pub use environment::{Side, environment};
pub use headers::{Header, headers};
pub use install::{Error, Installed, install};
pub use layout::{Directories, Layout, Machine, assertions};
pub use pkg_config::{METAPACKAGE, MODULES, Module};
pub use state::{State, state, table};

/// Name that programs record for the library, and of the file that is installed.
///
/// The number is that of DOCA's API: a program that was linked to another one is not started with this.
pub const SONAME: &str = "libsoftdoca.so.3";

/// Functions that the library exports beside those of the table, because no table can declare them: they are variadic.
pub const VARIADIC_FUNCTIONS: &[&str] = &["doca_log"];
