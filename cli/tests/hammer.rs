//! `doca-storage conformance hammer`: our roles lose no data, and roles that lose data are detected.

use std::fs;
use std::process::{Command, Output};

use crate::support::{PROGRAM, json, script, text};
use serde_json::Value;

fn hammer(arguments: &[&str]) -> Output {
    Command::new(PROGRAM)
        .args(["conformance", "hammer", "--json"])
        .args(arguments)
        .output()
        .expect("started")
}

/// Runs the hammer on our roles for some seconds; no fault may lose data.
fn ours_lose_nothing(arguments: &[&str]) {
    let output = hammer(arguments);
    // The command contains the seed, with which a failure can be reproduced.
    let stderr = String::from_utf8_lossy(&output.stderr);
    let totals = json(&output);
    println!("{stderr}{totals:#}");
    assert!(output.status.success(), "{stderr}{totals:#}");
    assert_eq!(totals["failed"], Value::Null);
    let blocks = &totals["blocks"];
    assert_eq!((&blocks["lost"], &blocks["wrong"]), (&0.into(), &0.into()));
    for count in ["acknowledged", "read_back"] {
        assert!(blocks[count].as_u64() > Some(64), "{count}: {totals:#}");
    }
    let rows = totals["rows"].as_array().expect("rows");
    let injected = |row: &&Value| row["injected"].as_u64() > Some(0);
    for row in rows.iter().filter(injected) {
        assert_eq!(row["injected"], row["survived"], "{row:#}");
    }
    assert_ne!(rows.iter().filter(injected).count(), 0, "{totals:#}");
}

#[test]
fn zero_copy_loses_no_acknowledged_write() {
    ours_lose_nothing(&["--layout", "zero-copy", "--seed", "1", "--duration", "15s"]);
}

#[test]
fn gga_loses_no_acknowledged_write() {
    ours_lose_nothing(&["--layout", "gga", "--seed", "2", "--duration", "20s"]);
}

/// One round each of the front end's own faults and of the loss of a target; more would take too long for a test.
#[test]
fn clients_of_an_nbd_server_lose_no_data() {
    let arguments = [
        "--load",
        "nbd",
        "--layout",
        "gga",
        "--only",
        "kill, front end, degraded",
        "--seed",
        "3",
        "--duration",
        "1s",
    ];
    let output = hammer(&arguments);
    let (stderr, tally) = (String::from_utf8_lossy(&output.stderr), json(&output));
    assert!(output.status.success(), "{stderr}{tally:#}");
    assert_eq!(tally["failed"], Value::Null);
    let row = &tally["rows"][0];
    assert!(row["injected"].as_u64() > Some(0), "{tally:#}");
    assert_eq!(row["injected"], row["survived"], "{tally:#}");
    // The clients have reconnected.
    assert_eq!(row["went_on"], 0, "{tally:#}");
    let blocks = &tally["blocks"];
    for count in ["lost", "wrong", "failed", "in_doubt"] {
        assert_eq!(blocks[count], 0, "{tally:#}");
    }
    assert!(blocks["read_back"].as_u64() > Some(64), "{tally:#}");
}

/// Runs the hammer on a deployment whose target is this shell script. Returns the totals of a run in which the
/// verifier must detect a violation.
fn found_out(script: &str, arguments: &[&str]) -> Value {
    let (totals, left) = fails(script, arguments);
    assert!(left.iter().any(|name| name == "violation.json"), "{left:?}");
    totals
}

/// Runs the hammer on a deployment whose target is this shell script. Returns the totals of a run that must fail, and
/// the files that it kept.
fn fails(script: &str, arguments: &[&str]) -> (Value, Vec<String>) {
    let directory = tempfile::tempdir().expect("a directory");
    std::os::unix::fs::symlink(PROGRAM, directory.path().join("doca-storage")).expect("a link");
    // Shell variables for the arguments that the hammer passes to a target.
    let head = format!(
        "program={PROGRAM}\nall=\"$*\"\nwhile [ $# -gt 0 ]; do case $1 in\n\
         --listen-port) port=$2;; --backing-file) blocks=$2;; --block-size) size=$2;; --block-count) count=$2;;\nesac; shift; done\n"
    );
    let target = [&head, script].concat();
    self::script(directory.path(), "doca_storage_target_rdma", &target);
    let output = hammer(&[&["--bin", text(directory.path())], arguments].concat());
    let totals = json(&output);
    assert!(!output.status.success(), "{totals:#}");
    let directory = totals["failed"]["directory"]
        .as_str()
        .unwrap_or_else(|| panic!("nothing was found: {totals:#}"));
    let left = fs::read_dir(directory)
        .expect("a directory")
        .map(|entry| {
            let name = entry.expect("a file").file_name();
            name.into_string().expect("a name")
        })
        .collect();
    fs::remove_dir_all(directory).expect("removed");
    (totals, left)
}

#[test]
fn target_that_ignores_writes_is_detected() {
    // The target serves one session; the initial writes are a session.
    let script = "\
        trap 'kill $child; exit' TERM\n\
        head -c $((size * count)) /dev/zero > $blocks\n\
        while true; do\n\
        $program conformance faulty-target --content $blocks --block-size $size --fault ignore-writes --listen-port $port &\n\
        child=$!; wait $child; done\n";
    let arguments = [
        "--layout",
        "zero-copy",
        "--only",
        "none",
        "--duration",
        "60s",
    ];
    let totals = found_out(script, &arguments);
    assert_eq!(totals["blocks"]["wrong"], 1, "{totals:#}");
}

#[test]
fn ignored_writes_are_detected_below_an_nbd_server() {
    let script = "\
        trap 'kill $child; exit' TERM\n\
        head -c $((size * count)) /dev/zero > $blocks\n\
        $program conformance faulty-target --content $blocks --block-size $size --fault ignore-writes --listen-port $port &\n\
        child=$!; wait $child\n";
    let arguments = ["--load", "nbd", "--layout", "zero-copy", "--only", "none"];
    let (tally, _) = fails(script, &arguments);
    // The block, and its expected version.
    let what = tally["failed"]["what"].as_str().expect("a text");
    assert!(what.starts_with("block ") && what.contains(" 0x"), "{what}");
}

#[test]
fn target_that_loses_an_acknowledged_write_is_detected() {
    // At its third start, the target has the blocks of the second.
    let script = "\
        if [ -f $blocks.old ]; then cp $blocks.old $blocks; elif [ -f $blocks ]; then cp $blocks $blocks.old; fi\n\
        exec $program target $all\n";
    let arguments = [
        "--layout",
        "zero-copy",
        "--only",
        "kill, target, I/O",
        "--duration",
        "60s",
    ];
    let totals = found_out(script, &arguments);
    assert_eq!(totals["blocks"]["lost"], 1, "{totals:#}");
}

/// Failures other than wrong blocks are detected, too: failed I/Os, and leftovers after the run.
#[test]
fn failed_ios_and_leftover_processes_and_files_are_detected() {
    let arguments = [
        "--layout",
        "zero-copy",
        "--only",
        "none",
        "--duration",
        "3s",
    ];
    let cases = [
        (
            "head -c $((size * count)) /dev/zero > $blocks\n\
             exec $program conformance faulty-target --content $blocks --block-size $size --fault fail-io:7:17 --listen-port $port\n",
            "failed: 1",
        ),
        ("sleep 20 &\nexec $program target $all\n", "/proc/"),
        (
            "touch $SOFTDOCA_RUNTIME_DIR/left\nexec $program target $all\n",
            "/left",
        ),
    ];
    for (script, expected) in cases {
        let (totals, _) = fails(script, &arguments);
        let what = totals["failed"]["what"].as_str().expect("a text");
        assert!(what.contains(expected), "{what}");
    }
}
