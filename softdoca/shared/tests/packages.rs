//! pkg-config and the flags that it gives.

mod support;

use std::path::Path;
use std::process::Command;

use softdoca_sdk::{MODULES, Side};
use support::{Sdk, lacks_pkg_config, succeed};

fn pkg_config(sdk: &Sdk, side: Side, arguments: &[&str]) -> String {
    succeed(
        Command::new("pkg-config")
            .env(
                "PKG_CONFIG_PATH",
                sdk.prefix().join(side.package_directory()),
            )
            .args(arguments),
    )
}

/// Succeeds on the side that it is compiled for.
const PROGRAM: &str = r#"
#include <doca_build_config.h>
#include <doca_error.h>
#include <stdio.h>

int main(void)
{
#ifdef DOCA_ARCH_DPU
	printf("dpu");
#else
	printf("host");
#endif
	return doca_error_get_name(DOCA_SUCCESS) == NULL;
}
"#;

fn build(sdk: &Sdk, program: &Path, source: &Path, flags: &str) {
    succeed(
        Command::new("cc")
            .arg(source)
            .args(flags.split_whitespace())
            .arg("-o")
            .arg(program),
    );
    assert!(program.is_file(), "{}", sdk.prefix().display());
}

#[test]
fn every_package_compiles_and_links_a_program_of_its_side() {
    if lacks_pkg_config() {
        return;
    }
    let sdk = Sdk::install();
    let source = sdk.source("side.c", PROGRAM);
    for (side, expected) in [(Side::Host, "host"), (Side::Dpu, "dpu")] {
        for module in MODULES {
            let flags = pkg_config(&sdk, side, &["--cflags", "--libs", module.package]);
            assert!(
                flags.contains(&format!("-l{}", module.library)) && flags.contains("-ldoca_common"),
                "{flags}"
            );
            let program = sdk.scratch("programs").join("side");
            build(&sdk, &program, &source, &flags);
            assert_eq!(succeed(&mut sdk.command(&program, "run")), expected);
        }
        // Several at once are still one library.
        let all: Vec<&str> = ["--cflags", "--libs"]
            .into_iter()
            .chain(MODULES.iter().map(|module| module.package))
            .collect();
        let program = sdk.scratch("programs").join("all");
        build(&sdk, &program, &source, &pkg_config(&sdk, side, &all));
        let needed = succeed(Command::new("readelf").arg("-d").arg(&program));
        assert_eq!(needed.matches("softdoca").count(), 1, "{needed}");
        assert!(!needed.contains("libdoca_"), "{needed}");
    }
}

#[test]
fn the_version_is_that_of_the_table() {
    if lacks_pkg_config() {
        return;
    }
    let sdk = Sdk::install();
    let version = pkg_config(&sdk, Side::Host, &["--modversion", "doca-common"]);
    assert_eq!(
        version.trim(),
        format!(
            "{}.{}.{}",
            doca_abi::DOCA_VERSION_MAJOR,
            doca_abi::DOCA_VERSION_MINOR,
            doca_abi::DOCA_VERSION_PATCH
        )
    );
}

#[test]
fn the_shell_finds_it_without_flags() {
    let sdk = Sdk::install();
    let source = sdk.source("plain.c", PROGRAM);
    let program = sdk.scratch("programs").join("plain");
    let script = format!(
        "{}cc '{}' -ldoca_comch -ldoca_common -o '{2}' && '{2}'",
        softdoca_sdk::environment(&sdk.prefix(), Side::Host),
        source.display(),
        program.display()
    );
    assert_eq!(succeed(Command::new("sh").args(["-c", &script])), "host");
}

#[test]
fn a_moved_prefix_works() {
    if lacks_pkg_config() {
        return;
    }
    let sdk = Sdk::install();
    let moved = sdk.prefix().with_file_name("moved");
    std::fs::rename(sdk.prefix(), &moved).unwrap();
    let flags = succeed(
        Command::new("pkg-config")
            .env("PKG_CONFIG_PATH", moved.join("lib/pkgconfig"))
            .args(["--cflags", "doca-rdma"]),
    );
    let include = flags.trim().strip_prefix("-I").unwrap();
    assert_eq!(
        Path::new(include).canonicalize().unwrap(),
        moved.join("include").canonicalize().unwrap()
    );
}
