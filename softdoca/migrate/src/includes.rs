//! Headers that a program has to include itself, because the headers that it includes no longer do.

use std::collections::{BTreeMap, BTreeSet};

use doca_abi::{EARLIER_INCLUDES, EARLIER_INCLUDES_UNTIL};

use crate::{Examined, Finding, Kind, Releases};

/// Adds findings for headers that were included by other headers, and no longer are. `included` contains the files that
/// a file includes in quotes, `None` for a file that was not found: as it may include the missing header, no findings
/// are added. The same applies to headers of libraries that are not in the tables.
pub fn add_missing_includes<K: Ord + Clone>(
    files: &mut BTreeMap<K, Examined>,
    included: &BTreeMap<K, Vec<Option<K>>>,
    releases: Releases,
) {
    let until = EARLIER_INCLUDES_UNTIL;
    if releases.from().version() > until || releases.to().version() <= until {
        return;
    }
    let closures: BTreeMap<&K, Option<BTreeSet<&K>>> = files
        .keys()
        .map(|file| (file, closure(file, included)))
        .collect();
    let missing: BTreeMap<&K, BTreeMap<&'static str, &'static str>> = closures
        .iter()
        .filter_map(|(file, closure)| {
            let closure = closure.as_ref()?;
            let examined = closure.iter().filter_map(|file| files.get(file));
            if examined.clone().any(|it| it.has_other_headers) {
                return None;
            }
            let headers: BTreeSet<&str> = examined
                .flat_map(|it| it.headers.iter().map(String::as_str))
                .collect();
            Some((*file, missing(&files[file], &headers)))
        })
        .collect();
    let mut found: Vec<(K, Finding)> = Vec::new();
    for (file, missing_here) in &missing {
        let others = closures[file].iter().flatten();
        // The program's header that has to include it has its own finding.
        let elsewhere: BTreeSet<&str> = others
            .filter(|other| *other != file)
            .filter_map(|other| missing.get(other))
            .flat_map(|it| it.keys().copied())
            .collect();
        for (header, by) in missing_here {
            if let Some((position, name, symbol)) = files[file].declared_in.get(header)
                && !elsewhere.contains(header)
            {
                let finding = Finding {
                    position: *position,
                    name: name.clone(),
                    symbol: *symbol,
                    kind: Kind::Include,
                    replacement: None,
                    note: format!("include {header}: {by} includes it until {until} only"),
                };
                found.push(((*file).clone(), finding));
            }
        }
    }
    for (file, finding) in found {
        if let Some(examined) = files.get_mut(&file) {
            examined.findings.push(finding);
            examined.findings.sort();
        }
    }
}

/// Headers whose names a file uses without including them, each with an included header that used to include it.
fn missing(examined: &Examined, headers: &BTreeSet<&str>) -> BTreeMap<&'static str, &'static str> {
    let declared_in = examined.declared_in.keys();
    declared_in
        .filter(|header| !headers.contains(*header))
        .filter_map(|header| {
            let mut earlier = EARLIER_INCLUDES.iter();
            let (by, _) = earlier.find(|(by, had)| headers.contains(by) && had.contains(header))?;
            Some((*header, *by))
        })
        .collect()
}

/// A file and all files that it includes in quotes, directly or indirectly; `None` if one of them was not found.
fn closure<'k, K: Ord>(
    file: &'k K,
    included: &'k BTreeMap<K, Vec<Option<K>>>,
) -> Option<BTreeSet<&'k K>> {
    let mut closure = BTreeSet::new();
    let mut open = vec![file];
    while let Some(file) = open.pop() {
        if closure.insert(file) {
            for include in included.get(file).into_iter().flatten() {
                open.push(include.as_ref()?);
            }
        }
    }
    Some(closure)
}
