//! `doca-storage conformance samples` with programs that behave correctly and incorrectly. Shell scripts replace
//! the samples; the real ones are in `given_binaries.rs`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use ::deployment::process::{Process, Signal};
use serde_json::Value;
use tempfile::TempDir;

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
        let path = self.directory.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a program");
        self
    }

    fn run(&self, arguments: &[&str]) -> Output {
        samples(self.directory.path())
            .args(arguments)
            .output()
            .expect("the program runs")
    }

    /// The only run of the document.
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
    let mut command = Command::new(env!("CARGO_BIN_EXE_doca-storage"));
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
    assert!(line("pe_event").contains("All tasks completed"), "{text}");
    assert!(line("pe_single").contains("exit status: 3"), "{text}");
    assert!(line("graph").contains("NOT FOUND"), "{text}");
    assert!(text.contains("1 passed, 2 failed, 1 not found"), "{text}");

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
    stand_ins.add("doca_pe_polling", "echo $$ is my process; exec sleep 1000");
    let started = Instant::now();
    let run = stand_ins.result("pe_polling", &["--timeout", "1"]);
    assert!(started.elapsed() < Duration::from_secs(100));
    assert_eq!(run["reason"], "after 1s, sample has not ended");
    let line = run["output"][0]["lines"][0].as_str().expect("a line");
    let process = line.strip_suffix(" is my process").expect("its process");
    assert!(!Path::new("/proc").join(process).exists(), "{line}");
}

/// After an interruption there is no table, and no process is left running.
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

    // The DPU never tells the host to exit.
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
