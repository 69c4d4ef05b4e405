//! The library's symbols and file names.

use std::collections::BTreeSet;
use std::process::Command;

use crate::support::{Sdk, built_library, succeed};

fn exported() -> BTreeSet<String> {
    succeed(
        Command::new("nm")
            .args(["--dynamic", "--defined-only", "--format=posix"])
            .arg(built_library()),
    )
    .lines()
    .filter_map(|line| line.split(' ').next().map(str::to_owned))
    .collect()
}

#[test]
fn every_function_of_the_table_is_exported() {
    let exported = exported();
    let expected: BTreeSet<String> = doca_abi::headers()
        .iter()
        .flat_map(|header| header.functions)
        .map(|function| function.name)
        .chain(softdoca_sdk::VARIADIC_FUNCTIONS.iter().copied())
        .map(str::to_owned)
        .collect();
    let missing: Vec<_> = expected.difference(&exported).collect();
    assert!(missing.is_empty(), "not exported: {missing:?}");
    // An exported symbol without a declaration is a leak, except those that variadic.c calls.
    let surplus: Vec<_> = exported
        .difference(&expected)
        .filter(|name| *name != "softdoca_log_formatted")
        .collect();
    assert!(
        surplus.is_empty(),
        "exported, but not declared: {surplus:?}"
    );
}

#[test]
fn the_library_has_one_name() {
    let sdk = Sdk::install();
    for entry in sdk.libraries().read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "so") {
            let target = path.canonicalize().unwrap();
            assert_eq!(target.file_name().unwrap(), softdoca_sdk::SONAME);
        }
    }
    let dynamic = succeed(
        Command::new("readelf")
            .arg("-d")
            .arg(sdk.libraries().join("libdoca_comch.so")),
    );
    assert!(
        dynamic.contains(&format!("soname: [{}]", softdoca_sdk::SONAME)),
        "{dynamic}"
    );
}
