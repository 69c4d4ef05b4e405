//! The pkg-config files and their flags.

use crate::support;
use std::path::Path;
use std::process::Command;

use crate::support::{Sdk, lacks_pkg_config, succeed};
use softdoca_sdk::{Directories, Layout, MODULES, Side};

fn pkg_config(sdk: &Sdk, side: Side, arguments: &[&str]) -> String {
    succeed(
        Command::new("pkg-config")
            .env(
                "PKG_CONFIG_PATH",
                sdk.prefix().join(Directories::PLAIN.packages(side)),
            )
            .args(arguments),
    )
}

/// Prints the side that it was compiled for.
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
        // Several packages are still one library.
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
fn installation_is_found_through_the_environment() {
    let sdk = Sdk::install();
    let source = sdk.source("plain.c", PROGRAM);
    let program = sdk.scratch("programs").join("plain");
    let script = format!(
        "{}cc '{}' -ldoca_comch -ldoca_common -o '{2}' && '{2}'",
        softdoca_sdk::environment(&sdk.prefix(), Directories::PLAIN, Side::Host),
        source.display(),
        program.display()
    );
    assert_eq!(succeed(Command::new("sh").args(["-c", &script])), "host");
}

/// A program linked to NVIDIA's libraries runs with softdoca instead, and one that is built with it finds the paths
/// used in build files.
#[test]
fn nvidia_layout_replaces_nvidias_packages() {
    let sdk = Sdk::install();
    let prefix = sdk.scratch("opt").join("mellanox/doca");
    softdoca_sdk::install(
        &support::built_library(),
        &prefix,
        Layout::Nvidia(Side::Host),
    )
    .expect("an installation");
    let directories = Directories::found_in(&prefix).expect("an installation");
    let libraries = prefix.join(directories.libraries());
    let source = sdk.source("layout.c", PROGRAM);

    // As if linked against NVIDIA's libraries: it requests two libraries by their SONAMEs.
    let theirs = sdk.scratch("theirs");
    let mut needed = Vec::new();
    for name in ["libdoca_common.so.2", "libdoca_comch.so.2"] {
        let stub = sdk.source(
            "stub.c",
            &format!(
                "const char *doca_error_get_name(int error) {{ return error ? 0 : \"{name}\"; }}\n"
            ),
        );
        let library = theirs.join(name);
        succeed(
            Command::new("cc")
                .args(["-shared", "-fPIC", &format!("-Wl,-soname,{name}")])
                .arg(&stub)
                .arg("-o")
                .arg(&library),
        );
        needed.push(library);
    }
    let program = sdk.scratch("programs").join("theirs");
    succeed(
        Command::new("cc")
            .arg("-I")
            .arg(prefix.join("include"))
            .arg(&source)
            .arg("-Wl,--no-as-needed")
            .args(&needed)
            .arg("-o")
            .arg(&program),
    );
    let dynamic = succeed(Command::new("readelf").arg("-d").arg(&program));
    assert!(
        dynamic.contains("[libdoca_common.so.2]") && dynamic.contains("[libdoca_comch.so.2]"),
        "{dynamic}"
    );
    let run = |program: &Path| {
        succeed(
            Command::new(program)
                .env("LD_LIBRARY_PATH", &libraries)
                .env("SOFTDOCA_RUNTIME_DIR", sdk.scratch("run")),
        )
    };
    assert_eq!(run(&program), "host");

    // Paths used in build files.
    let program = sdk.scratch("programs").join("named");
    succeed(
        Command::new("cc")
            .arg("-I")
            .arg(prefix.join("infrastructure/include"))
            .arg(&source)
            .arg("-L")
            .arg(&libraries)
            .args(["-ldoca_comch", "-ldoca_common", "-o"])
            .arg(&program),
    );
    assert_eq!(run(&program), "host");
    if lacks_pkg_config() {
        return;
    }
    for directory in [
        libraries.join("pkgconfig"),
        prefix.join("lib64/pkgconfig"),
        prefix.join("infrastructure/lib/pkgconfig"),
    ] {
        let flags = succeed(
            Command::new("pkg-config")
                .env("PKG_CONFIG_PATH", &directory)
                .args(["--cflags", "--libs", "doca"]),
        );
        for module in MODULES {
            let library = format!("-l{}", module.library);
            assert!(flags.split(' ').any(|flag| flag == library), "{flags}");
        }
        let program = sdk.scratch("programs").join("packaged");
        build(&sdk, &program, &source, &flags);
        assert_eq!(run(&program), "host", "{}", directory.display());
    }
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
