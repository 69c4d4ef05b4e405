//! Development files for C and C++ programs: headers, pkg-config files, and their installation.
//!
//! The headers are generated from the table of [`doca_abi`] at installation and are not kept in the repository, so they
//! always match the installed library. Content that the table cannot express (macros, the variadic log function, a few
//! plain types) is in `parts/`, and is included in the header of the same name.

#![forbid(unsafe_code)]

mod headers;
mod install;
mod layout;
mod state;

pub use headers::{Header, headers};
pub use install::{Error, Installed, install};
pub use layout::{
    Directories, Layout, METAPACKAGE, MODULES, Machine, Module, Side, assertions, environment,
};
pub use state::{State, state, table};

/// SONAME of the library, and name of the installed file.
///
/// The number is that of DOCA's API: a program linked to another one cannot be started with it.
pub const SONAME: &str = "libsoftdoca.so.3";

/// Exported functions that are not in the table because they are variadic.
pub const VARIADIC_FUNCTIONS: &[&str] = &["doca_log"];
