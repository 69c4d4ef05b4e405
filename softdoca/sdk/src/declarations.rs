//! The declarations of one release: the current table, with the release's replacements.

use doca_abi::{
    CALLBACKS, CallbackDecl, ConstantDecl, EARLIER_CALLBACKS, EARLIER_ENUMS, EARLIER_FUNCTIONS,
    ENUMS, EnumDecl, FunctionDecl, Release, is_current_in,
};

/// A function of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function {
    pub decl: FunctionDecl,
    /// Symbol that the library exports: the name, unless a current function with another signature has it.
    pub symbol: &'static str,
}

pub(crate) struct Declarations {
    pub release: Release,
    pub functions: Vec<Function>,
    pub enums: Vec<EnumDecl>,
    pub callbacks: Vec<CallbackDecl>,
}

impl Declarations {
    pub(crate) fn of(release: Release) -> Self {
        let has = |header, name| is_current_in(release, header) && is_current_in(release, name);
        Self {
            release,
            functions: functions(release),
            enums: replaced(
                ENUMS.iter().filter(|decl| has(decl.header, decl.name)),
                EARLIER_ENUMS
                    .iter()
                    .filter(|earlier| earlier.is_in(release))
                    .map(|earlier| earlier.decl),
                |decl| decl.name,
            ),
            callbacks: replaced(
                CALLBACKS.iter().filter(|decl| has(decl.header, decl.name)),
                EARLIER_CALLBACKS
                    .iter()
                    .filter(|earlier| earlier.is_in(release))
                    .map(|earlier| earlier.decl),
                |decl| decl.name,
            ),
        }
    }

    /// The value of a constant; for the version, it depends on the release.
    pub(crate) fn value_of(&self, constant: &ConstantDecl) -> u64 {
        let [major, minor, patch] = self.release.version();
        match constant.name {
            "DOCA_VERSION_MAJOR" => major.into(),
            "DOCA_VERSION_MINOR" => minor.into(),
            "DOCA_VERSION_PATCH" => patch.into(),
            _ => constant.value,
        }
    }
}

/// All functions that the headers of a release declare, in the order of the table.
pub fn functions(release: Release) -> Vec<Function> {
    let current = doca_abi::headers()
        .iter()
        .filter(|header| is_current_in(release, header.name))
        .flat_map(|header| header.functions)
        .filter(|function| is_current_in(release, function.name));
    let earlier = EARLIER_FUNCTIONS
        .iter()
        .filter(|earlier| earlier.is_in(release));
    replaced(
        current
            .map(|&decl| Function {
                decl,
                symbol: decl.name,
            })
            .collect::<Vec<_>>()
            .iter(),
        earlier.map(|earlier| Function {
            decl: documented(earlier.decl.function, earlier.decl.current),
            symbol: earlier.decl.symbol,
        }),
        |function| function.decl.name,
    )
}

/// A function of an earlier release with the documentation of the current function that it calls, or that has its name.
fn documented(decl: FunctionDecl, current: Option<&str>) -> FunctionDecl {
    let name = current.unwrap_or(decl.name);
    let doc = doca_abi::headers()
        .iter()
        .flat_map(|header| header.functions)
        .find(|function| function.name == name)
        .map_or("", |function| function.doc);
    FunctionDecl { doc, ..decl }
}

/// The current declarations, of which those with the same name are replaced by the release's own.
fn replaced<'a, T: Copy + 'a>(
    current: impl Iterator<Item = &'a T>,
    earlier: impl Iterator<Item = T>,
    name: impl Fn(&T) -> &'static str,
) -> Vec<T> {
    let mut all: Vec<T> = current.copied().collect();
    for decl in earlier {
        match all.iter_mut().find(|known| name(known) == name(&decl)) {
            Some(known) => *known = decl,
            None => all.push(decl),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn names(release: Release) -> BTreeSet<&'static str> {
        functions(release)
            .iter()
            .map(|function| function.decl.name)
            .collect()
    }

    #[test]
    fn each_release_has_its_own_functions() {
        let [lts, later, next_lts, current] = Release::ALL.map(names);
        assert!(lts.contains("doca_cc_server_send_task_set_conf"));
        assert!(!lts.contains("doca_cc_server_task_send_set_conf"));
        assert!(later.contains("doca_cc_server_task_send_set_conf"));
        assert!(!later.contains("doca_cc_server_send_task_set_conf"));
        assert!(current.contains("doca_comch_server_task_send_set_conf"));
        assert!(current.iter().all(|name| !name.starts_with("doca_cc_")));
        let added: Vec<_> = current.difference(&next_lts).collect();
        assert!(next_lts.is_subset(&current) && added.contains(&&"doca_clock_create"));
        assert_eq!(added.len(), 21);
        for (names, count) in [(&lts, 66), (&later, 70)] {
            let cc = names.iter().filter(|name| name.starts_with("doca_cc_"));
            assert_eq!(cc.count(), count);
            assert!(names.iter().all(|name| !name.starts_with("doca_comch_")));
            assert!(
                names.contains("doca_buf_inventory_create")
                    && !names.contains("doca_buf_inventory_expand")
            );
        }
    }

    #[test]
    fn a_function_with_another_signature_has_a_symbol_of_its_own() {
        let symbol = |release| {
            functions(release)
                .iter()
                .find(|function| function.decl.name == "doca_devinfo_get_active_rate")
                .map(|function| (function.symbol, function.decl.params[1].ty.base()))
        };
        assert_eq!(
            symbol(Release::V2_6),
            Some(("doca_devinfo_get_active_rate_2_6", "f64"))
        );
        assert_eq!(
            symbol(Release::CURRENT),
            Some(("doca_devinfo_get_active_rate", "u64"))
        );
    }

    #[test]
    fn names_that_a_release_lacks_are_names_of_the_table() {
        let functions = doca_abi::headers()
            .iter()
            .flat_map(|header| header.functions)
            .map(|function| function.name);
        let headers = crate::headers(Release::CURRENT);
        let known: BTreeSet<&str> = functions
            .chain(headers.iter().map(|header| header.name))
            .chain(ENUMS.iter().map(|decl| decl.name))
            .chain(CALLBACKS.iter().map(|decl| decl.name))
            .collect();
        for (_, names) in doca_abi::ADDED.iter().chain(doca_abi::UNADAPTED) {
            for name in *names {
                assert!(known.contains(name), "{name}");
            }
        }
    }
}
