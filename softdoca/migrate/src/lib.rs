//! Finds the changes that a C or C++ program needs for another release of DOCA: names that the release does not have,
//! and calls with arguments of an earlier release. Without I/O: the input is source text, the output is findings.
//!
//! Names are found in the syntax tree, not in the text. A comment, a string, a member, a local variable or a definition
//! of the program is not a use of DOCA; the body of a macro is.
//!
//! ```
//! use softdoca_migrate::{Language, Names, Releases, examine};
//!
//! let releases = Releases::new("2.6".parse()?, "3.3".parse()?)?;
//! let source = "void stop(struct doca_cc_client *client) { doca_cc_client_destroy(client); }";
//! let examined = examine(source, Language::C, releases, &Names::default());
//! let found: Vec<_> = examined.findings.iter().map(|it| (&*it.name, it.replacement)).collect();
//! assert_eq!(
//!     found,
//!     [
//!         ("doca_cc_client", Some("doca_comch_client")),
//!         ("doca_cc_client_destroy", Some("doca_comch_client_destroy")),
//!     ]
//! );
//! # Ok::<(), softdoca_migrate::ReleaseError>(())
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod includes;
mod releases;
mod syntax;
mod table;

use std::collections::{BTreeMap, BTreeSet};

pub use doca_abi::SymbolKind;
pub use includes::add_missing_includes;
pub use releases::{ReleaseError, ReleaseNumber, Releases};
pub use syntax::Language;
use syntax::{Name, Place, Syntax};
use table::{Verdict, declaration, is_changed_header, verdict};

/// Comment which asserts that calls already have the arguments of the new release: those on its line, or on the next
/// line if the comment is alone.
pub const CHECKED: &str = "sdk migrate: checked";

/// A place in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Line, from 1.
    pub line: usize,
    /// Column of the first character, from 1, in characters.
    pub column: usize,
    /// Column behind the last character.
    pub end_column: usize,
}

/// Difference of a name in the new release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The name has been replaced by another name with the same arguments and meaning.
    Renamed,
    /// The name is replaced by another name, with other arguments or another meaning.
    Replaced,
    /// The name has no direct replacement.
    Removed,
    /// The name has different arguments.
    Arguments,
    /// The name is declared in a header that is no longer included by the headers that the program includes.
    Include,
}

/// A use of a name that has to be changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Position of the name.
    pub position: Position,
    /// The name; of a header, its file.
    pub name: String,
    /// Kind of symbol that the name is of.
    pub symbol: SymbolKind,
    /// Kind of the change.
    pub kind: Kind,
    /// Name in the new release, if there is one.
    pub replacement: Option<&'static str>,
    /// Further changes that the use needs; may be empty.
    pub note: String,
}

impl Finding {
    /// `true` if replacing the name by the replacement is sufficient.
    pub fn is_fixed_by_replacement(&self) -> bool {
        self.kind == Kind::Renamed && self.note.is_empty()
    }
}

/// Names that a release has.
#[derive(Debug, Clone, Default)]
pub struct Names(BTreeSet<String>);

impl Names {
    /// Adds the names in the text of a header, and of the header itself.
    pub fn add_header(&mut self, file: &str, text: &str) {
        self.0.insert(file.to_owned());
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        self.0
            .extend(words.filter(|word| is_doca(word)).map(str::to_owned));
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}

/// Result of the examination of one file.
#[derive(Debug, Clone, Default)]
pub struct Examined {
    /// Uses to change, by position.
    pub findings: Vec<Finding>,
    /// Names that resemble those of DOCA, but are neither in the tables nor in the given [`Names`], with their
    /// positions.
    pub unknown: BTreeMap<String, Vec<Position>>,
    /// Names that the file defines itself, which therefore are not names of DOCA in other files of the program.
    pub defined: BTreeSet<String>,
    /// Files of `#include "…"` directives that are not headers of DOCA.
    pub includes: Vec<String>,
    /// Headers of DOCA that the file includes.
    headers: BTreeSet<String>,
    /// `true` if one of the headers is not in the tables, so that the headers it includes are unknown.
    has_other_headers: bool,
    /// Headers of DOCA that declare names which the file uses, each with the first use.
    declared_in: BTreeMap<&'static str, (Position, String, SymbolKind)>,
}

impl Examined {
    /// Removes findings about names that the program defines in another file.
    pub fn remove_defined(&mut self, defined: &BTreeSet<String>) {
        self.findings.retain(|it| !defined.contains(&it.name));
        self.unknown.retain(|name, _| !defined.contains(name));
        self.declared_in
            .retain(|_, (_, name, _)| !defined.contains(name));
    }
}

/// Finds the changes of a source text that the new release requires. `known` are the names of the current release.
pub fn examine(source: &str, language: Language, releases: Releases, known: &Names) -> Examined {
    let syntax = Syntax::parse(source, language);
    let mut examined = Examined::default();
    for used in syntax.names {
        let is_defined = syntax.defined.contains(&used.text);
        if is_defined {
            continue;
        }
        if used.place == Place::Include && is_doca(&used.text) && !is_own_header(&used, known) {
            examined.has_other_headers |= !known.has(&used.text) && !is_changed_header(&used.text);
            examined.headers.insert(used.text.clone());
        } else if let Some((header, symbol)) = declaration(&used.text) {
            examined
                .declared_in
                .entry(header)
                .or_insert_with(|| (used.position, used.text.clone(), symbol));
        }
        match verdict(&used, language, releases) {
            Verdict::Change(change) => {
                let is_checked = change.kind == Kind::Arguments
                    && syntax.checked_lines.contains(&used.position.line);
                if !is_checked {
                    examined.findings.push(Finding {
                        position: used.position,
                        name: used.text,
                        symbol: change.symbol,
                        kind: change.kind,
                        replacement: change.replacement,
                        note: change.note,
                    });
                }
            }
            Verdict::Unchanged => {}
            Verdict::NotInTable => {
                if is_unknown(&used, known) {
                    let positions = examined.unknown.entry(used.text).or_default();
                    positions.push(used.position);
                }
            }
        }
    }
    examined.findings.sort();
    examined.defined = syntax.defined;
    examined.includes = syntax.includes;
    let headers = &examined.headers;
    examined
        .includes
        .retain(|file| !headers.contains(file.rsplit('/').next().unwrap_or(file)));
    examined
}

fn is_unknown(used: &Name, known: &Names) -> bool {
    is_doca(&used.text) && !is_own_header(used, known) && !known.has(&used.text)
}

/// A header in quotes that is not in any release is assumed to be the program's own.
fn is_own_header(used: &Name, known: &Names) -> bool {
    used.is_quoted && !known.has(&used.text) && !is_changed_header(&used.text)
}

fn is_doca(name: &str) -> bool {
    name.starts_with("doca_") || name.starts_with("DOCA_")
}

#[cfg(test)]
mod tests;
