//! The roles, linked through pkg-config to an installed softdoca as they would be to NVIDIA's libraries.
//!
//! They are built again for that, with `--cfg doca_sdk` and in a separate directory: the first time takes minutes.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Sdk, lacks_pkg_config, succeed};
use softdoca_sdk::{Directories, Side};

/// `doca-storage`, which contains all roles.
fn roles(sdk: &Sdk) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("doca_sdk");
    let flags = format!(
        "{} --cfg doca_sdk",
        env::var("RUSTFLAGS").unwrap_or_default()
    );
    succeed(
        Command::new(env!("CARGO"))
            .args(["build", "--offline", "--package", "doca-storage"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env(
                "PKG_CONFIG_PATH",
                sdk.prefix().join(Directories::PLAIN.packages(Side::Dpu)),
            )
            .env("CARGO_TARGET_DIR", &target)
            // The value for this test does not apply.
            .env_remove("OUT_DIR")
            .env("RUSTFLAGS", flags.trim())
            // Debug information would take a third of the time.
            .env("CARGO_PROFILE_DEV_DEBUG", "0"),
    );
    target.join("debug/doca-storage")
}

#[test]
fn roles_take_every_function_from_the_installed_library() {
    if lacks_pkg_config() {
        return;
    }
    let sdk = Sdk::install();
    let program = roles(&sdk);

    let symbols = succeed(Command::new("nm").arg("--format=posix").arg(&program));
    let functions: Vec<(&str, &str)> = symbols
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.next()?, words.next()?))
        })
        .filter(|(name, _)| name.starts_with("doca_"))
        .collect();
    assert!(functions.len() > 80, "{functions:?}");
    for (name, kind) in functions {
        assert_eq!(kind, "U", "{name} is in the program");
    }

    let report =
        succeed(
            sdk.command(&program, "run")
                .args(["demo", "--json", "--operations", "2000"]),
        );
    assert!(
        report.contains("\"verdict\": \"PASS\"") || report.contains("\"verdict\":\"PASS\""),
        "{report}"
    );

    // Without the library the functions are missing.
    let output = sdk
        .command(&program, "run")
        .env("LD_LIBRARY_PATH", "")
        .arg("--version")
        .output()
        .expect("a process");
    assert!(!output.status.success());
}
