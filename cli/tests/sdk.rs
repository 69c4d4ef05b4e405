//! `doca-storage sdk`: installation, and errors. `doca-storage conformance samples` with programs that behave correctly
//! and incorrectly: shell scripts replace the samples; the real ones are in `given_binaries.rs`. Also the program
//! outside of a checkout, and under the names of the reference's programs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use deployment::process::{Process, Signal};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{PROGRAM, Sandbox, lossy, mentions, script, text};

fn sdk(arguments: &[&str]) -> Output {
    Sandbox::new()
        .command(&[&["sdk"], arguments].concat())
        .output()
        .expect("the program starts")
}

#[test]
fn an_installation_has_an_environment() {
    let directory = tempfile::tempdir().unwrap();
    let library = directory.path().join("library.so");
    fs::write(&library, b"\x7fELF and more").unwrap();
    let prefix = directory.path().join("prefix");

    let early = sdk(&["env", "--prefix", text(&prefix)]);
    assert!(!early.status.success());
    assert!(lossy(&early.stderr).contains(text(&prefix)), "{early:?}");

    let installed = sdk(&[
        "install",
        "--prefix",
        text(&prefix),
        "--library",
        text(&library),
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

    let host = sdk(&["env", "--prefix", text(&prefix)]);
    assert!(host.status.success(), "{host:?}");
    assert!(
        lossy(&host.stdout).contains(&format!(
            "export PKG_CONFIG_PATH='{}/lib/pkgconfig'",
            prefix.display()
        )),
        "{host:?}"
    );
    let dpu = sdk(&["env", "--prefix", text(&prefix), "--dpu"]);
    assert!(
        lossy(&dpu.stdout).contains("/lib/pkgconfig-dpu'"),
        "{dpu:?}"
    );
}

#[test]
fn an_installation_for_2_5_has_comm_channel() {
    let directory = tempfile::tempdir().unwrap();
    let library = directory.path().join("library.so");
    let prefix = directory.path().join("prefix");
    let install = |api: &str| {
        sdk(&[
            "install",
            "--api",
            api,
            "--prefix",
            text(&prefix),
            "--library",
            text(&library),
        ])
    };
    // The invalid library has no marker of a release that could be replaced.
    fs::write(&library, b"\x7fELF and more").unwrap();
    let refused = install("2.5");
    assert!(!refused.status.success() && !prefix.exists(), "{refused:?}");
    assert!(lossy(&refused.stderr).contains("2.5"), "{refused:?}");
    let unknown = install("2.4");
    assert!(lossy(&unknown.stderr).contains("2.6"), "{unknown:?}");

    let content = b"\x7fELF softdoca is installed for release 3.3\0libsoftdoca.so.3\0";
    fs::write(&library, content).unwrap();
    let installed = install("2.5");
    assert!(installed.status.success(), "{installed:?}");
    assert!(prefix.join("include/doca_cc.h").exists());
    assert!(prefix.join("lib/libdoca_cc.so").exists());
    let host = sdk(&["env", "--prefix", text(&prefix)]);
    assert!(host.status.success(), "{host:?}");
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
            text(&prefix),
            "--library",
            text(&library),
        ];
        sdk(&[&common[..], extra].concat())
    };
    let wrong = install(&["--dpu"]);
    assert!(!wrong.status.success() && !prefix.exists(), "{wrong:?}");
    let installed = install(&["--layout", "nvidia", "--dpu"]);
    assert!(installed.status.success(), "{installed:?}");
    let environment = sdk(&["env", "--prefix", text(&prefix)]);
    let directory = format!("{}/lib/aarch64-linux-gnu", prefix.display());
    let expected = format!("export PKG_CONFIG_PATH='{directory}/pkgconfig'");
    assert!(
        lossy(&environment.stdout).contains(&expected),
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
        text(&prefix),
        "--library",
        "/dev/null",
    ]);
    assert!(!output.status.success());
    assert!(lossy(&output.stderr).contains("/dev/null"), "{output:?}");
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
    assert!(lossy(&table.stdout).contains("0000:3b:00.0"), "{table:?}");
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
    assert!(readme.contains(lossy(&table.stdout).trim()), "{table:?}");
    assert_eq!(
        lossy(&table.stderr),
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
    let stderr = lossy(&output.stderr);
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
        lossy(&output.stdout).contains("| `doca_rdma_connect` | works |"),
        "{output:?}"
    );
}

/// Scripts with the names of samples.
struct StandIns {
    directory: TempDir,
}

impl StandIns {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().expect("a directory"),
        }
    }

    fn add(&self, name: &str, script: &str) -> &Self {
        self::script(self.directory.path(), name, script);
        self
    }

    fn run(&self, arguments: &[&str]) -> Output {
        samples(self.directory.path())
            .args(arguments)
            .output()
            .expect("the program runs")
    }

    /// The result of the only run in the document.
    fn result(&self, only: &str, more: &[&str]) -> Value {
        let output = self.run(&[&["--json", "--only", only], more].concat());
        let mut document: Value = serde_json::from_slice(&output.stdout).expect("a JSON document");
        let run = document["runs"][0].take();
        let passed = run["result"] == "pass";
        assert_eq!(output.status.code(), Some(i32::from(!passed)), "{run:#}");
        run
    }

    fn fails(&self, only: &str, reason: &str) {
        let run = self.result(only, &[]);
        assert_eq!(run["result"], "fail", "{run:#}");
        let got = run["reason"].as_str().expect("a reason");
        assert!(got.contains(reason), "{got}");
    }
}

fn samples(bin: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["conformance", "samples", "--bin"]).arg(bin);
    command
}

const POLLING: &str = "echo All tasks are completed; echo Sample finished successfully";

#[test]
fn table_has_totals() {
    let stand_ins = StandIns::new();
    stand_ins
        .add("doca_pe_polling", POLLING)
        .add("doca_common_pe_event", "echo Sample finished successfully")
        .add("doca_pe_single_task_comp_cb", "exit 3");
    let only = ["pe_polling", "pe_event", "pe_single_task_comp_cb", "graph"];
    let flags: Vec<_> = only.iter().flat_map(|name| ["--only", name]).collect();
    let output = stand_ins.run(&flags);
    let text = String::from_utf8(output.stdout).expect("text");
    assert_eq!(output.status.code(), Some(1), "{text}");
    let line = |name: &str| {
        let found = text
            .lines()
            .find(|line| line.contains(&format!("│ {name}")));
        found.unwrap_or_else(|| panic!("no {name} in {text}"))
    };
    assert!(line("pe_polling").contains("PASS"), "{text}");
    assert!(line("pe_event").contains("FAIL"), "{text}");
    // The output that is missing.
    mentions(line("pe_event"), &["completed"]);
    mentions(line("pe_single"), &["3"]);
    assert!(line("graph").contains("NOT FOUND"), "{text}");
    mentions(text.lines().last().expect("totals"), &["1", "2"]);

    let output = stand_ins.run(&["--only", "graph_of_functions"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && text.contains("rdma_send:descriptors"),
        "{text}"
    );
}

#[test]
fn missing_sample_has_not_passed() {
    let run = StandIns::new().result("pe_polling", &[]);
    assert_eq!(run["result"], "not_found");
    assert_eq!(run["reason"], "no program of pe_polling");
}

#[test]
fn a_reported_error_is_a_failure() {
    let stand_ins = StandIns::new();
    let error = "echo '[12:00:00:000000][1][DOCA][ERR][x.c:1][f] Failed to clean up' >&2";
    stand_ins.add("doca_pe_polling", &format!("{POLLING}; {error}"));
    stand_ins.fails("pe_polling", "Failed to clean up");
}

/// A sample that hangs is killed, and its output is reported.
#[test]
fn hanging_sample_is_killed() {
    let stand_ins = StandIns::new();
    stand_ins.add("doca_pe_polling", "echo $$; exec sleep 1000");
    let started = Instant::now();
    let run = stand_ins.result("pe_polling", &["--timeout", "1"]);
    assert!(started.elapsed() < Duration::from_secs(100));
    assert_eq!(run["reason"], "after 1s, sample has not ended");
    let process = run["output"][0]["lines"][0].as_str().expect("its process");
    assert!(process.parse::<u32>().is_ok(), "{process}");
    assert!(!Path::new("/proc").join(process).exists(), "{process}");
}

/// After an interruption, no table is printed and no process is left running.
#[test]
fn interrupted_run_leaves_no_processes() {
    let stand_ins = StandIns::new();
    let process = stand_ins.directory.path().join("process");
    let script = format!(
        "echo $$ > {0}.new; mv {0}.new {0}; exec sleep 1000",
        process.display()
    );
    stand_ins.add("doca_pe_polling", &script);
    let mut command = samples(stand_ins.directory.path());
    command.args(["--only", "pe_polling", "--timeout", "100"]);
    let runner = Process::spawn("runner", command).expect("the program runs");
    let timeout = Instant::now() + Duration::from_secs(60);
    while !process.exists() {
        assert!(Instant::now() < timeout, "{}", runner.stderr());
        std::thread::sleep(Duration::from_millis(5));
    }
    runner.signal(Signal::TERM);
    let failure = runner.finish(timeout, || false).expect_err("no result");
    assert!(failure.stderr.contains("interrupted"), "{failure}");
    let process = fs::read_to_string(&process).expect("a process");
    assert!(!Path::new("/proc").join(process.trim()).exists());
}

/// Host side of a copy: writes its two files and waits for Enter.
const HOST: &str = r#"
while [ $# -gt 0 ]; do case $1 in -d) d=$2;; -b) b=$2;; -t) t=$2;; esac; shift; done
printf %s "$t" > "$d"; echo buffer > "$b"
echo "Please copy $d and $b to the DPU"
echo "Wait for the DPU and press enter"
read enter && echo Sample finished successfully"#;

/// DPU side: copies the contents of the descriptor file.
const DPU: &str = r#"
while [ $# -gt 0 ]; do case $1 in -d) d=$2;; -b) b=$2;; esac; shift; done
[ "$(cat $b)" = buffer ] || exit 1
echo "Memory content: $(cat $d)"; echo "Host sample can be closed"
echo Sample finished successfully"#;

#[test]
fn pair_gets_its_files_and_key_press() {
    let only = "dma_copy_dpu:short_1_to_1";
    let stand_ins = StandIns::new();
    stand_ins
        .add("host_doca_dma_dma_copy_host", HOST)
        .add("dpu_doca_dma_dma_copy_dpu", DPU)
        .add("doca_dma_copy_dpu", "exit 1");
    let run = stand_ins.result(only, &[]);
    assert_eq!(run["result"], "pass", "{run:#}");

    // A DPU that never notifies the host that it may exit.
    let silent = DPU.replace("can be closed", "stays");
    stand_ins.add("dpu_doca_dma_dma_copy_dpu", &silent);
    let run = stand_ins.result(only, &["--timeout", "1"]);
    let reason = "after 1s, host waits for dpu to write \"can be closed\"";
    assert_eq!(run["reason"], reason);

    // The host exits without a prompt.
    stand_ins.add("dpu_doca_dma_dma_copy_dpu", DPU).add(
        "host_doca_dma_dma_copy_host",
        &HOST.replace("press", "wait for"),
    );
    let run = stand_ins.result(only, &["--timeout", "1"]);
    let reason = "after 1s, host has not ended, nor asked \"press enter\"";
    let got = run["reason"].as_str().expect("a reason");
    assert!(got.starts_with(reason), "{got}");
}

/// A sample's own report of success is not sufficient.
#[test]
fn files_are_compared() {
    let compress = r#"
while [ $# -gt 0 ]; do case $1 in -f) f=$2;; -o) o=$2;; esac; shift; done
cp "$f" "$o"
echo "File was compressed successfully and saved in: $o"
echo "Checksum is 0"
echo Sample finished successfully"#;

    let stand_ins = StandIns::new();
    stand_ins
        .add("doca_compress_deflate", compress)
        .add("doca_decompress_deflate", compress);
    let run = stand_ins.result("compress_deflate:one_byte", &[]);
    let reason = run["reason"].as_str().expect("a reason");
    let checksum = reason.split_once("Checksum is ").map(|(_, rest)| rest);
    let checksum = checksum.and_then(|rest| rest.split('"').next());
    let honest = compress.replace("is 0", &format!("is {}", checksum.expect("a checksum")));
    stand_ins
        .add("doca_compress_deflate", &honest)
        .add("doca_decompress_deflate", &honest);
    stand_ins.fails("compress_deflate:one_byte", "is no Deflate stream");
}

fn run(program: &Path, runtime: &Path, arguments: &[&str]) -> Output {
    Command::new(program)
        .args(arguments)
        .env("SOFTDOCA_RUNTIME_DIR", runtime)
        .current_dir("/")
        .output()
        .expect("it runs")
}

#[test]
fn demo_works_without_a_checkout() {
    let sandbox = crate::support::Sandbox::new();
    let program = sandbox.path("program");
    fs::copy(PROGRAM, &program).expect("copied");
    let arguments = [
        "demo",
        "--layout",
        "zero-copy",
        "--operations",
        "64",
        "--json",
    ];
    let output = run(&program, sandbox.runtime(), &arguments);
    assert!(output.status.success(), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).expect("a JSON document");
    assert_eq!(document["verdict"], "PASS", "{document:#}");
}

#[test]
fn link_named_like_a_role_runs_that_role() {
    let sandbox = crate::support::Sandbox::new();
    let help = |program: &Path, arguments: &[&str]| {
        let output = run(program, sandbox.runtime(), arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let program = Path::new(PROGRAM);
    for (subcommand, name, flag) in [
        ("target", "doca_storage_target_rdma", "--backing-file"),
        (
            "zero-copy",
            "doca_storage_comch_to_rdma_zero_copy",
            "--storage-server",
        ),
        (
            "gga-offload",
            "doca_storage_comch_to_rdma_gga_offload",
            "--scrub-rate",
        ),
        ("initiator", "doca_storage_initiator_comch", "--flush-every"),
        (
            "sbc-generator",
            "doca_storage_gga_offload_sbc_generator",
            "--data-p",
        ),
        ("nbd", "doca_storage_nbd", "--max-connections"),
        ("vhost-user-blk", "doca_storage_vhost_user_blk", "--queues"),
    ] {
        let link = sandbox.path(name);
        symlink(program, &link).expect("a link");
        let text = help(&link, &["--help"]);
        assert!(text.contains(name) && text.contains(flag), "{name}: {text}");
        assert_eq!(help(program, &["help", subcommand]), text);
        assert_eq!(help(program, &[subcommand, "--help"]), text);
    }
    assert!(help(program, &["help", "demo"]).contains("--layout"));
}

#[test]
fn output_fits_the_terminal() {
    let sandbox = crate::support::Sandbox::new();
    let matrix = [
        "conformance",
        "matrix",
        "--layout",
        "zero-copy",
        "--strategy",
        "read_throughput_test",
        "--operations",
        "64",
    ];
    for (arguments, widths) in [
        (&["conformance", "layout"][..], &[80, 100, 120][..]),
        (&["conformance", "layout", "--print"], &[80, 100, 120]),
        (
            &["conformance", "role", "target", "--list"],
            &[80, 100, 120],
        ),
        (
            &["conformance", "role", "target", "--only", "ids"],
            &[80, 120],
        ),
        (
            &["conformance", "hostile", "--role", "target", "--list"],
            &[80, 100, 120],
        ),
        (&["conformance", "faults", "--list"], &[80]),
        (&["conformance", "simulate", "--duration", "1s"], &[80]),
        (&matrix, &[80]),
        (&["sdk", "devices"], &[80, 100, 120]),
        (&["status", "1", "2"], &[80, 100, 120]),
        (&["demo", "--layout", "gga", "--operations", "64"], &[80]),
        (&["demo", "--layout", "all", "--operations", "64"], &[100]),
    ] {
        for &width in widths {
            let output = sandbox
                .command(arguments)
                .env("COLUMNS", width.to_string())
                .output()
                .expect("it runs");
            let text = String::from_utf8(output.stdout).expect("text");
            for line in text.lines() {
                assert!(
                    line.chars().count() <= width,
                    "{arguments:?} at {width}: {line}"
                );
            }
            assert!(!text.is_empty(), "{arguments:?}");
        }
    }
}
