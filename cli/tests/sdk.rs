//! `doca-storage sdk`: what it installs, and what it says when it cannot.

mod support;

use std::fs;
use std::path::Path;
use std::process::Output;

use support::Bench;

fn sdk(arguments: &[&str]) -> Output {
    Bench::new()
        .command(&[&["sdk"], arguments].concat())
        .output()
        .expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn an_installation_has_an_environment() {
    let directory = tempfile::tempdir().unwrap();
    let library = directory.path().join("library.so");
    fs::write(&library, b"\x7fELF and more").unwrap();
    let prefix = directory.path().join("prefix");

    let early = sdk(&["env", "--prefix", path(&prefix)]);
    assert!(!early.status.success());
    assert!(
        text(&early.stderr).contains("sdk install --prefix"),
        "{early:?}"
    );

    let installed = sdk(&[
        "install",
        "--prefix",
        path(&prefix),
        "--library",
        path(&library),
    ]);
    assert!(installed.status.success(), "{installed:?}");
    for file in [
        "include/doca_comch.h",
        "lib/libdoca_rdma.so",
        "lib/pkgconfig/doca-dma.pc",
        "lib/pkgconfig-dpu/doca-dma.pc",
    ] {
        assert!(prefix.join(file).exists(), "{file}");
    }

    let host = sdk(&["env", "--prefix", path(&prefix)]);
    assert!(host.status.success(), "{host:?}");
    assert!(
        text(&host.stdout).contains(&format!(
            "export PKG_CONFIG_PATH='{}/lib/pkgconfig'",
            prefix.display()
        )),
        "{host:?}"
    );
    let dpu = sdk(&["env", "--prefix", path(&prefix), "--dpu"]);
    assert!(text(&dpu.stdout).contains("/lib/pkgconfig-dpu'"), "{dpu:?}");
}

#[test]
fn what_is_no_library_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let prefix = directory.path().join("prefix");
    let output = sdk(&[
        "install",
        "--prefix",
        path(&prefix),
        "--library",
        "/dev/null",
    ]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("/dev/null"), "{output:?}");
    assert!(!prefix.exists());
}

#[test]
fn functions_are_listed() {
    let output = sdk(&["functions"]);
    assert!(output.status.success(), "{output:?}");
    assert!(
        text(&output.stdout).contains("| `doca_rdma_connect` | works |"),
        "{output:?}"
    );
}
