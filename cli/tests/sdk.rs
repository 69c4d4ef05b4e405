//! `doca-storage sdk`: installation, and errors.

use std::fs;
use std::path::Path;
use std::process::Output;

use crate::support::Sandbox;

fn sdk(arguments: &[&str]) -> Output {
    Sandbox::new()
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
fn the_layout_of_nvidia_has_an_environment() {
    let directory = tempfile::tempdir().unwrap();
    let library = directory.path().join("library.so");
    let mut elf = b"\x7fELF".to_vec();
    elf.resize(18, 0);
    elf.extend([183, 0]);
    fs::write(&library, elf).unwrap();
    let prefix = directory.path().join("prefix");
    let install = |extra: &[&str]| {
        let common = [
            "install",
            "--prefix",
            path(&prefix),
            "--library",
            path(&library),
        ];
        sdk(&[&common[..], extra].concat())
    };
    let wrong = install(&["--dpu"]);
    assert!(!wrong.status.success() && !prefix.exists(), "{wrong:?}");
    let installed = install(&["--layout", "nvidia", "--dpu"]);
    assert!(installed.status.success(), "{installed:?}");
    let environment = sdk(&["env", "--prefix", path(&prefix)]);
    let directory = format!("{}/lib/aarch64-linux-gnu", prefix.display());
    let expected = format!("export PKG_CONFIG_PATH='{directory}/pkgconfig'");
    assert!(
        text(&environment.stdout).contains(&expected),
        "{environment:?}"
    );
    let package = fs::read_to_string(format!("{directory}/pkgconfig/doca-comch.pc")).unwrap();
    assert!(package.contains("DOCA_ARCH_DPU"), "{package}");
}

#[test]
fn file_that_is_not_a_library_is_refused() {
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

/// `sdk devices --json` with a topology file, or the built-in devices.
fn devices(sandbox: &Sandbox, topology: Option<&Path>) -> Vec<serde_json::Value> {
    let mut command = sandbox.command(&["sdk", "devices", "--json"]);
    command.env_remove("SOFTDOCA_TOPOLOGY");
    if let Some(topology) = topology {
        command.env("SOFTDOCA_TOPOLOGY", topology);
    }
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn listed_devices_are_those_of_programs() {
    let sandbox = Sandbox::new();
    let built_in = devices(&sandbox, None);
    assert_eq!(built_in.len(), 2);
    assert_eq!(built_in[0]["pci"], "0000:03:00.0");
    assert_eq!(built_in[0]["ibdev"], "mlx5_0");
    assert_eq!(built_in[0]["representors"][0]["pci"], "0000:3b:00.0");
    assert_eq!(built_in[0]["representors"][0]["kind"], "net");
    assert_eq!(built_in[1]["representors"], serde_json::json!([]));

    let table = sdk(&["devices"]);
    assert!(table.status.success(), "{table:?}");
    assert!(text(&table.stdout).contains("0000:3b:00.0"), "{table:?}");
}

/// The example of the documentation has the described devices.
#[test]
fn documented_topology_is_seen_by_programs() {
    let sandbox = Sandbox::new();
    let topology = Path::new(env!("CARGO_MANIFEST_DIR")).join("../softdoca/examples/topology.toml");
    let devices = devices(&sandbox, Some(&topology));
    let addresses: Vec<_> = devices.iter().map(|device| &device["pci"]).collect();
    assert_eq!(
        addresses,
        [
            "0000:b1:00.0",
            "0000:b1:00.1",
            "0001:17:00.0",
            "0001:17:00.2"
        ]
    );
    assert_eq!(devices[0]["ipv4"], "192.168.100.2");
    let representors = devices[0]["representors"].as_array().unwrap();
    let kinds: Vec<_> = representors
        .iter()
        .map(|rep| {
            (
                rep["pci"].as_str().unwrap(),
                rep["function"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(kinds, [("0001:17:00.0", "pf"), ("0001:17:00.2", "vf")]);
    assert_eq!(devices[1]["representors"][0]["kind"], "emulated");
    let table = sandbox
        .command(&["sdk", "devices"])
        .env("SOFTDOCA_TOPOLOGY", &topology)
        .output()
        .expect("the program starts");
    let readme = include_str!("../../softdoca/README.md");
    assert!(readme.contains(text(&table.stdout).trim()), "{table:?}");
    assert_eq!(
        text(&table.stderr),
        "",
        "queries of capabilities are no errors"
    );
}

#[test]
fn error_in_a_topology_has_its_location() {
    let sandbox = Sandbox::new();
    let file = sandbox.file(
        "topology.toml",
        b"version = 1\n[[device]]\npci = \"3:00.0\"\nibdev = \"mlx5_0\"\n",
    );
    let output = sandbox
        .command(&["sdk", "devices"])
        .env("SOFTDOCA_TOPOLOGY", &file)
        .output()
        .expect("the program starts");
    assert!(!output.status.success());
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("topology.toml") && stderr.contains("line 3"),
        "{stderr}"
    );
    assert_eq!(output.stdout, b"");
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
