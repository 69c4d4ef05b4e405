//! `doca-storage set`: backing files of real targets, examined and verified.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::gga::{BLOCKS, CHUNK, Set, TARGETS};
use crate::support::{killed, lossy, mentions, text};

/// Runs `set COMMAND --json FILE...`, and returns the document and the exit status.
fn run(set: &Set, command: &str, files: &[PathBuf]) -> (Value, i32) {
    let files: Vec<&str> = files.iter().map(|file| text(file)).collect();
    let arguments = [&["set", command, "--json"], &files[..]].concat();
    let output = set.sandbox.command(&arguments).output().expect("it runs");
    let code = output.status.code().expect("it exits");
    assert_ne!(code, 2, "{}", lossy(&output.stderr));
    (
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null),
        code,
    )
}

fn files(set: &Set) -> Vec<PathBuf> {
    (0..3).map(|number| set.path(number)).collect()
}

#[test]
fn files_of_a_set_are_examined_in_use_and_verified_afterwards() {
    let mut set = Set::new();
    set.write(&set.content(0));
    // The files are given in any order, while the targets run.
    let [data_1, data_2, data_p] = [0, 1, 2].map(|number| set.path(number));
    let shuffled = [data_p.clone(), data_1.clone(), data_2.clone()];
    let (report, code) = run(&set, "examine", &shuffled);
    assert_eq!((code, &report["sets"][0]["current"]), (0, &json!(TARGETS)));
    assert_eq!(report["sets"][0]["blocks_to_settle"], json!([]));
    let member = &report["files"][0]["member"];
    assert_eq!(
        (&member["target"], &member["state"]),
        (&json!("data_p"), &json!("clean"))
    );
    assert_eq!(member["form"]["logical_block_size"], json!(4096));
    assert_eq!(report["files"][1]["block_count"], json!(BLOCKS));
    assert_eq!(report["files"][1]["block_size"], json!(CHUNK));
    let (_, code) = run(&set, "verify", &shuffled);
    assert_eq!(code, 1, "targets use the files");
    (0..3).for_each(|number| set.stop(number));
    let (report, code) = run(&set, "verify", &shuffled);
    assert_eq!((code, &report["intact"]), (0, &json!(BLOCKS)));
    let (report, code) = run(&set, "verify", &[data_1.clone(), data_p.clone()]);
    assert_eq!((code, &report["stale"]), (0, &json!("data_2")));
    assert_eq!(report["intact"], json!(BLOCKS));

    set.put(1, 5, 100, b"damage");
    let (report, code) = run(&set, "verify", &shuffled);
    assert_eq!((code, &report["repairable"]), (1, &json!(1)));
    assert_eq!(report["damaged_chunks"], json!([0, 1, 0]));
    assert_eq!(report["examples"][0]["block"], json!(5));
    set.put(2, 5, 100, b"damage");
    let (report, code) = run(&set, "verify", &shuffled);
    assert_eq!(
        (code, &report["lost"], &report["intact"]),
        (1, &json!(1), &json!(BLOCKS - 1))
    );
}

#[test]
fn files_that_do_not_belong_together_are_a_failure() {
    let mut set = Set::new();
    set.write(&set.content(0));
    (0..3).for_each(|number| set.stop(number));
    let copy = set.sandbox.path("copy");
    fs::copy(set.path(0), &copy).expect("copied");
    let (report, code) = run(&set, "examine", &[set.path(0), copy]);
    assert_eq!(code, 1);
    let refusal = report["sets"][0]["refusal"].as_str().expect("a reason");
    mentions(refusal, &["data_1", "copy"]);
    let other = set.sandbox.file("other", b"something else");
    let (report, code) = run(&set, "examine", &[other, set.path(1)]);
    assert_eq!(
        (code, &report["files"][0]["member"]["target"]),
        (1, &json!("data_2"))
    );
    assert_eq!(
        report["sets"],
        json!([]),
        "one file says nothing about the others"
    );
}

#[test]
fn interrupted_session_leaves_blocks_to_settle() {
    let mut set = Set::new();
    let content = set.content(0);
    let service = set.service(&[]);
    let writer = set.writer(&content);
    killed(service);
    drop(writer);
    (0..3).for_each(|number| set.kill(number));
    let (report, code) = run(&set, "examine", &files(&set));
    assert_eq!(code, 0);
    let mut unretired: Vec<u64> = Vec::new();
    for file in report["files"].as_array().expect("three files") {
        assert_eq!(file["member"]["state"], json!("in_use"));
        let blocks = file["member"]["unretired_blocks"]
            .as_array()
            .expect("blocks");
        unretired.extend(blocks.iter().filter_map(Value::as_u64));
    }
    unretired.sort_unstable();
    unretired.dedup();
    assert_eq!(report["sets"][0]["blocks_to_settle"], json!(unretired));
    let (verified, code) = run(&set, "verify", &files(&set));
    assert_eq!((code, &verified["to_settle"]), (0, &json!(unretired.len())));
    assert_eq!(verified["intact"], json!(BLOCKS - unretired.len()));
}
