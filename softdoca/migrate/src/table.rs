//! Changes of a name according to the tables of `doca-abi`.

use std::collections::HashMap;
use std::sync::LazyLock;

use doca_abi::{
    Arguments, CALLBACKS, CHANGES, CONSTANTS, Change, EARLIER_FUNCTIONS, ENUMS, Earlier,
    EarlierFunction, Effect, SymbolKind, Version, headers,
};

use crate::syntax::{Language, Name, Place};
use crate::{Kind, Releases};

/// A change that a use needs.
#[derive(Debug)]
pub struct Needed {
    pub symbol: SymbolKind,
    pub kind: Kind,
    pub replacement: Option<&'static str>,
    pub note: String,
}

#[derive(Debug)]
pub enum Verdict {
    Change(Needed),
    /// In the table, but unchanged in the new release, as it is used here.
    Unchanged,
    NotInTable,
}

/// A step from a release to the next.
struct Step {
    symbol: SymbolKind,
    until: Version,
    effect: Effect,
    note: &'static str,
}

impl From<&Change> for Step {
    fn from(change: &Change) -> Self {
        Self {
            symbol: change.kind,
            until: change.until,
            effect: change.effect,
            note: change.note,
        }
    }
}

/// Determines whether a name has to be changed.
pub fn verdict(used: &Name, language: Language, releases: Releases) -> Verdict {
    let to = releases.to().version();
    let from = releases.from().version();
    let mut name: &str = &used.text;
    let mut after = None;
    let mut replacement = None;
    let mut symbol = None;
    let mut kind = None;
    let mut notes: Vec<String> = Vec::new();
    let mut arguments = Vec::new();
    let mut is_in_table = false;
    while let Some(step) = next_step(name, after) {
        if !is_place_of(used.place, step.symbol, language) {
            break;
        }
        is_in_table = true;
        after = Some(step.until);
        if step.until >= to {
            break;
        }
        symbol = symbol.or(Some(step.symbol));
        let mut note = step.note.to_owned();
        match step.effect {
            Effect::Renamed(next) => {
                kind = kind.max(Some(Kind::Renamed));
                (name, replacement) = (next, Some(next));
            }
            Effect::Replaced(next) => {
                kind = kind.max(Some(Kind::Replaced));
                (name, replacement) = (next, Some(next));
            }
            Effect::Removed => {
                kind = Some(Kind::Removed);
                replacement = None;
            }
            // The program has the arguments of its own release, or of a later one.
            Effect::Arguments(_) if step.until < from => continue,
            Effect::Arguments(argument) => {
                if note.is_empty() {
                    note = description(argument);
                }
                arguments.push(argument);
            }
        }
        if !note.is_empty() && !notes.contains(&note) {
            notes.push(note);
        }
        if kind == Some(Kind::Removed) {
            break;
        }
    }
    let kind = match (kind, &arguments[..]) {
        (None, []) => None,
        (None, changed) => changed
            .iter()
            .any(|it| !has_new_arguments(used, *it))
            .then_some(Kind::Arguments),
        (Some(Kind::Renamed), [_, ..]) => Some(Kind::Replaced),
        (Some(kind), _) => Some(kind),
    };
    match (kind, symbol) {
        (Some(kind), Some(symbol)) => Verdict::Change(Needed {
            symbol,
            kind,
            replacement,
            note: notes.join("; "),
        }),
        _ if is_in_table => Verdict::Unchanged,
        _ => Verdict::NotInTable,
    }
}

/// First change of a name after a release.
fn next_step(name: &str, after: Option<Version>) -> Option<Step> {
    let is_later = |until: Version| after.is_none_or(|after| until > after);
    let change = CHANGES
        .iter()
        .filter(|change| change.name == name && is_later(change.until))
        .min_by_key(|change| change.until);
    let renamed = EARLIER_FUNCTIONS
        .iter()
        .filter(|it| it.decl.function.name == name && is_later(it.until.into()))
        .filter_map(renamed_function)
        .min_by_key(|step| step.until);
    match (change, renamed) {
        // The entry in the list of changes for the same release is more precise.
        (Some(change), Some(renamed)) if renamed.until < change.until => Some(renamed),
        (Some(change), _) => Some(change.into()),
        (None, renamed) => renamed,
    }
}

/// The step of a function to its name in the next release, or in the current one.
fn renamed_function(earlier: &Earlier<EarlierFunction>) -> Option<Step> {
    let current = earlier.decl.current?;
    let name = earlier.decl.function.name;
    let next = EARLIER_FUNCTIONS
        .iter()
        .filter(|it| it.decl.current == Some(current) && it.since > earlier.until)
        .min_by_key(|it| it.since)
        .map_or(current, |it| it.decl.function.name);
    if next == name {
        return None;
    }
    let count = |name: &str| {
        let mut functions = headers().iter().flat_map(|header| header.functions);
        functions
            .find(|function| function.name == name)
            .map(|function| function.params.len())
    };
    let has_same_arguments = count(next).is_none_or(|it| it == earlier.decl.function.params.len());
    Some(Step {
        symbol: SymbolKind::Function,
        until: earlier.until.into(),
        effect: if has_same_arguments {
            Effect::Renamed(next)
        } else {
            Effect::Replaced(next)
        },
        note: "",
    })
}

/// `true` if a name at this place can refer to a symbol of this kind.
fn is_place_of(place: Place, symbol: SymbolKind, language: Language) -> bool {
    match (place, symbol) {
        (Place::Include, kind) => kind == SymbolKind::Header,
        (_, SymbolKind::Header) => false,
        // In C, tags of structs do not conflict with other names.
        (Place::Expression, SymbolKind::Type) => language == Language::Cpp,
        _ => true,
    }
}

/// `true` if a call has the arguments of the new release, or is certain to be none of before.
fn has_new_arguments(used: &Name, changed: Arguments) -> bool {
    let Some(call) = &used.call else {
        return false;
    };
    match changed {
        Arguments::Count { after, .. } => call.len() == after,
        Arguments::Type {
            index,
            before,
            after,
        } => call
            .get(index)
            .and_then(|argument| argument.type_name.as_deref())
            .is_some_and(|given| {
                given == after || (before.starts_with("doca_") && given != before)
            }),
        Arguments::Prefix { index, after } => call
            .get(index)
            .and_then(|argument| argument.identifier.as_deref())
            .is_none_or(|given| given.starts_with(after) || given.contains(char::is_lowercase)),
    }
}

/// `true` for a header that has a change.
pub fn is_changed_header(name: &str) -> bool {
    let mut headers = CHANGES.iter().filter(|it| it.kind == SymbolKind::Header);
    headers.any(|change| change.name == name)
}

/// The header that declares a name, if its use requires a declaration. Types that are used by pointer do not.
pub fn declaration(name: &str) -> Option<(&'static str, SymbolKind)> {
    static DECLARATIONS: LazyLock<HashMap<&str, (&str, SymbolKind)>> = LazyLock::new(|| {
        let functions = headers().iter().flat_map(|header| header.functions);
        let functions = functions.map(|it| (it.name, (it.header, SymbolKind::Function)));
        let callbacks = CALLBACKS
            .iter()
            .map(|it| (it.name, (it.header, SymbolKind::Type)));
        let values = ENUMS.iter().flat_map(|decl| {
            let values = decl.values.iter();
            values.map(|it| (it.name, (decl.header, SymbolKind::EnumValue)))
        });
        let constants = CONSTANTS
            .iter()
            .map(|it| (it.name, (it.header, SymbolKind::Macro)));
        functions
            .chain(callbacks)
            .chain(values)
            .chain(constants)
            .collect()
    });
    DECLARATIONS.get(name).copied()
}

fn description(changed: Arguments) -> String {
    match changed {
        Arguments::Count { before, after } => format!("takes {after} arguments, not {before}"),
        Arguments::Type {
            index,
            before,
            after,
        } => format!(
            "the type of argument {} is {after}, not {before}",
            index + 1
        ),
        Arguments::Prefix { index, after } => {
            format!("argument {} begins with {after}", index + 1)
        }
    }
}
