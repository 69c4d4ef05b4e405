//! The C headers, as text.

mod declaration;
mod parts;
mod source;

use std::collections::{BTreeMap, BTreeSet};

use declaration::Names;

/// A header file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// File name, e.g. `"doca_buf.h"`.
    pub name: &'static str,
    /// What is in it.
    pub text: String,
}

/// All headers, in the order of their names.
///
/// The same table gives the same text.
pub fn headers() -> Vec<Header> {
    let names = Names::of_the_table();
    let files: BTreeSet<&str> = doca_abi::headers()
        .iter()
        .map(|header| header.name)
        .chain(doca_abi::ENUMS.iter().map(|decl| decl.header))
        .chain(doca_abi::CONSTANTS.iter().map(|decl| decl.header))
        .chain(doca_abi::CALLBACKS.iter().map(|decl| decl.header))
        .chain(parts::names())
        .collect();
    files
        .into_iter()
        .map(|name| Header {
            name,
            text: source::text(name, &names),
        })
        .collect()
}

/// Which header defines what; opaque types are not in it, they are declared wherever they are used.
type Definitions = BTreeMap<&'static str, &'static str>;

#[cfg(test)]
mod tests;
