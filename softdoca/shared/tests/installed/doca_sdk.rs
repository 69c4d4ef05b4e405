//! The programs of the roles, linked through pkg-config to an installed softdoca as they would be to NVIDIA's libraries.
//!
//! They are rebuilt with `--cfg doca_sdk`. The first run compiles everything but build scripts and procedural macros,
//! to which `RUSTFLAGS` does not apply with `--target`: those are reused from this test's build.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use conformance::matrix::{Check, Layout, Matrix, Member, Settings, Strategy, mixes};
use deployment::implementation::{Implementation, Role};

use crate::support::{Sdk, lacks_pkg_config, succeed};
use softdoca_sdk::{Directories, Side};

const PACKAGES: [&str; 5] = [
    "role-initiator",
    "role-zero-copy",
    "role-gga-offload",
    "role-target",
    "role-sbc-generator",
];

/// Lower bound of the number of library functions that a program imports; the smallest program imports 53.
const FEWEST_FUNCTIONS: usize = 40;

/// Builds the roles' programs; returns their directory.
fn build(sdk: &Sdk) -> PathBuf {
    // The target directory of this test's build.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .expect("the target directory");
    let flags = format!(
        "{} --cfg doca_sdk",
        env::var("RUSTFLAGS").unwrap_or_default()
    );
    succeed(
        Command::new(env!("CARGO"))
            .args(["build", "--offline", "--bins"])
            .args(["--target", env!("TARGET")])
            .args(PACKAGES.map(|package| format!("--package={package}")))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env(
                "PKG_CONFIG_PATH",
                sdk.prefix().join(Directories::PLAIN.packages(Side::Dpu)),
            )
            .env("CARGO_TARGET_DIR", target)
            // The value for this test does not apply.
            .env_remove("OUT_DIR")
            .env("RUSTFLAGS", flags.trim())
            // Debug information would take a third of the time.
            .env("CARGO_PROFILE_DEV_DEBUG", "0"),
    );
    target.join(env!("TARGET")).join("debug")
}

/// The DOCA functions in a program's symbol table, with their nm(1) type.
fn functions(program: &Path) -> Vec<(String, String)> {
    succeed(Command::new("nm").arg("--format=posix").arg(program))
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').map(str::to_owned);
            Some((words.next()?, words.next()?))
        })
        .filter(|(name, _)| name.starts_with("doca_"))
        .collect()
}

/// The initiator writes and reads back every block, in a deployment of these programs.
fn run(sdk: &Sdk, programs: &Path) {
    let implementation = Implementation::in_directory("installed", programs)
        .expect("the programs")
        .with_library_path(Some(sdk.libraries()));
    let members = [Member::probe(implementation).expect("a program for each role")];
    let matrix = Matrix::new(Settings {
        operations: 2000,
        timeout: Duration::from_secs(120),
        retries: 0,
        protocol: None,
        cpus: deployment::allowed_cpus().expect("CPUs"),
        hosts: 1,
        scripted_target: Vec::new(),
    });
    for layout in Layout::ALL {
        let check = Check::Strategy(Strategy::WriteReadValidation);
        let mixes = mixes(layout, &members);
        assert_eq!(mixes.len(), 1);
        let tried = matrix.run(&mixes[0], check, &|| false);
        assert!(tried.passed(), "{layout}: {tried:#?}");
    }
}

#[test]
fn roles_import_every_function_from_the_installed_library() {
    if lacks_pkg_config() {
        return;
    }
    let sdk = Sdk::install();
    let programs = build(&sdk);
    for role in Role::ALL {
        let program = programs.join(role.program());
        let functions = functions(&program);
        for (name, kind) in &functions {
            assert_eq!(kind, "U", "{name} is in {}", role.program());
        }
        assert!(
            functions.len() > FEWEST_FUNCTIONS,
            "{}: {functions:?}",
            role.program()
        );
        // Without the library the functions are missing.
        let output = sdk
            .command(&program, "run")
            .env("LD_LIBRARY_PATH", "")
            .arg("--version")
            .output()
            .expect("a process");
        assert!(!output.status.success(), "{}: {output:?}", role.program());
    }
    run(&sdk, &programs);
}
