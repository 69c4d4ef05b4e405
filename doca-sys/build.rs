//! With `--cfg doca_sdk`, finds NVIDIA's libraries through pkg-config; otherwise softdoca is linked as a crate.

use std::env;

/// Packages that hold the functions of the table.
const PACKAGES: &[&str] = &[
    "doca-common",
    "doca-argp",
    "doca-comch",
    "doca-rdma",
    "doca-dma",
    "doca-compress",
    "doca-erasure-coding",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Set by cargo for `--cfg doca_sdk`.
    if env::var_os("CARGO_CFG_DOCA_SDK").is_none() {
        return;
    }
    for package in PACKAGES {
        if let Err(error) = pkg_config::Config::new()
            .atleast_version("3.0")
            .probe(package)
        {
            eprintln!(
                "--cfg doca_sdk asks for the DOCA libraries, but pkg-config does not find {package}: {error}\n\
                 Install the DOCA SDK (or softdoca) and name its pkgconfig directory in PKG_CONFIG_PATH, or build without the cfg."
            );
            std::process::exit(1);
        }
    }
}
