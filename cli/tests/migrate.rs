//! `doca-storage sdk migrate`: changes that programs need for another release.

use std::fs;
use std::process::Output;

use serde_json::{Value, json};

use crate::support::{Sandbox, lossy, text};

const OLD: &str = "\
#include <doca_cc.h>
#include <doca_flow.h>

int stop(struct doca_cc_client *client, void *details)
{
	doca_rdma_connect(rdma, details, 1); /* doca_cc_client_destroy */
	return doca_cc_client_destroy(client);
}
";

const NEW: &str = "\
#include <doca_comch.h>

int stop(struct doca_comch_client *client, void *details)
{
	doca_rdma_connect(rdma, details, 1, connection);
	return doca_comch_client_destroy(client);
}
";

/// A directory with files, in which the command runs.
struct Program {
    sandbox: Sandbox,
}

impl Program {
    fn new(files: &[(&str, &str)]) -> Self {
        let sandbox = Sandbox::new();
        for (name, content) in files {
            let path = sandbox.path(name);
            fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            fs::write(path, content).expect("written");
        }
        Self { sandbox }
    }

    fn migrate(&self, arguments: &[&str]) -> Output {
        self.sandbox
            .command(&[&["sdk", "migrate"], arguments].concat())
            .current_dir(self.sandbox.path(""))
            .output()
            .expect("the program starts")
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.migrate(arguments);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }

    /// File, line and name of each finding.
    fn places(&self, arguments: &[&str]) -> Vec<(String, u64, String)> {
        let report = self.json(&[arguments, &["--json"]].concat());
        let findings = report["findings"].as_array().expect("a list").iter();
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        findings
            .map(|it| {
                (
                    text(&it["file"]),
                    it["line"].as_u64().expect("a number"),
                    text(&it["name"]),
                )
            })
            .collect()
    }
}

fn place(file: &str, line: u64, name: &str) -> (String, u64, String) {
    (file.to_owned(), line, name.to_owned())
}

#[test]
fn exit_status_says_whether_something_is_left() {
    let program = Program::new(&[("old.c", OLD), ("new.c", NEW), ("a.txt", ""), ("x/b.c", "")]);
    let cases: [(&[&str], i32); 12] = [
        (&["old.c"], 1),
        (&["new.c"], 0),
        (&["new.c", "old.c"], 1),
        (&["--json", "old.c"], 1),
        (&["--sarif", "old.c"], 1),
        (&["--sarif", "new.c"], 0),
        (&["--to", "2.6", "old.c"], 0),
        (&["missing.c"], 1),
        (&["a.txt"], 2),
        (&["--from", "2.4", "new.c"], 2),
        (&["--from", "3.0", "--to", "2.9", "new.c"], 2),
        (&["--compile-commands", "x", "new.c"], 2),
    ];
    for (arguments, code) in cases {
        let output = program.migrate(arguments);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{arguments:?}: {output:?}"
        );
    }
}

#[test]
fn table_has_each_place_with_its_replacement() {
    let program = Program::new(&[("old.c", OLD)]);
    let output = lossy(&program.migrate(&["old.c"]).stdout);
    let rows = [
        ("old.c:1:11", "doca_cc.h", "doca_comch.h"),
        ("old.c:4:17", "doca_cc_client", "doca_comch_client"),
        ("old.c:6:2", "doca_rdma_connect", "other arguments"),
        (
            "old.c:7:9",
            "doca_cc_client_destroy",
            "doca_comch_client_destroy",
        ),
    ];
    for (place, name, instead) in rows {
        let line = output.lines().find(|line| line.contains(place));
        let cells: Vec<&str> = line.expect(place).split('│').map(str::trim).collect();
        assert_eq!(cells[2..4], [name, instead], "{output}");
    }
    assert!(
        output.contains("4 places to change from 2.5 to 3.3 in 1 file"),
        "{output}"
    );
    assert!(output.contains("1 name outside of the tables"), "{output}");
}

#[test]
fn json_has_findings_and_names_outside_of_the_tables() {
    let program = Program::new(&[("old.c", OLD)]);
    let report = program.json(&["--from", "2.6", "--json", "old.c"]);
    assert_eq!(
        (&report["from"], &report["to"], &report["files"]),
        (&json!("2.6"), &json!("3.3"), &json!(1))
    );
    assert_eq!(
        report["findings"][3],
        json!({
            "file": "old.c", "line": 7, "column": 9, "end_column": 31,
            "name": "doca_cc_client_destroy", "symbol": "function",
            "change": "renamed", "replacement": "doca_comch_client_destroy", "note": "",
        })
    );
    let connect = &report["findings"][2];
    assert_eq!(
        (&connect["change"], &connect["replacement"]),
        (&json!("arguments"), &Value::Null)
    );
    assert_eq!(
        report["outside_of_tables"],
        json!([{
            "name": "doca_flow.h",
            "places": [{ "file": "old.c", "line": 2, "column": 11, "end_column": 22 }],
        }])
    );
}

#[test]
fn sarif_has_rules_regions_and_fixes() {
    let program = Program::new(&[("a b.c", OLD)]);
    let log = program.json(&["--sarif", "a b.c"]);
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    let rules = run["tool"]["driver"]["rules"].as_array().expect("a list");
    let results = run["results"].as_array().expect("a list");
    assert_eq!(results.len(), 4);
    for result in results {
        let rule = result["ruleIndex"].as_u64().expect("a number");
        let rule = &rules[usize::try_from(rule).expect("small")];
        assert_eq!(rule["id"], result["ruleId"]);
        assert!(result["message"]["text"].is_string());
        let place = &result["locations"][0]["physicalLocation"];
        assert_eq!(place["artifactLocation"]["uri"], "a%20b.c");
        let has_fix = result.get("fixes").is_some();
        assert_eq!(has_fix, result["ruleId"] == "renamed", "{result}");
    }
    let region = json!({ "startLine": 7, "startColumn": 9, "endColumn": 31 });
    let last = &results[3];
    assert_eq!(last["locations"][0]["physicalLocation"]["region"], region);
    assert_eq!(
        last["fixes"][0]["artifactChanges"][0]["replacements"],
        json!([{
            "deletedRegion": region,
            "insertedContent": { "text": "doca_comch_client_destroy" },
        }])
    );
}

#[test]
fn compilation_database_names_files_and_their_headers_are_followed() {
    let program = Program::new(&[
        (
            "src/main.c",
            "#include \"own.h\"\n#include \"further.h\"\nint a = DOCA_VER_MAJOR;\n",
        ),
        ("src/own.h", "#include \"own.h\"\nstruct doca_cc_server;\n"),
        ("include/further.h", "#define VERSION DOCA_VER_MINOR\n"),
        ("src/other.cpp", "using client = doca_cc_client;\n"),
        ("src/unrelated.c", OLD),
        ("src/start.s", "doca_cc_client_destroy\n"),
    ]);
    let directory = program.sandbox.path("");
    let entry = |file: &str, command: &str| json!({ "directory": text(&directory.join("build")), "file": file, "command": command });
    let mut arguments = entry("../src/other.cpp", "");
    arguments["arguments"] = json!(["c++", "-c", "../src/other.cpp"]);
    let database = json!([
        entry("../src/main.c", "cc -I../include -c ../src/main.c"),
        entry(
            "../src/main.c",
            "cc -DSECOND -I ../include -c ../src/main.c"
        ),
        entry("../src/start.s", "cc -c ../src/start.s"),
        arguments,
    ]);
    fs::create_dir(directory.join("build")).expect("a directory");
    let database_file = directory.join("build/compile_commands.json");
    fs::write(&database_file, database.to_string()).expect("written");
    assert_eq!(
        program.places(&["--compile-commands", "build"]),
        [
            place("include/further.h", 1, "DOCA_VER_MINOR"),
            place("src/main.c", 3, "DOCA_VER_MAJOR"),
            place("src/other.cpp", 1, "doca_cc_client"),
            place("src/own.h", 2, "doca_cc_server"),
        ]
    );

    for (content, code) in [("[]", 0), ("{}", 1)] {
        fs::write(&database_file, content).expect("written");
        let output = program.migrate(&["--compile-commands", "build"]);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
    }
    let output = program.migrate(&["--compile-commands", "nowhere"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(lossy(&output.stderr).contains("nowhere/compile_commands.json"));
}

#[test]
fn headers_that_are_not_included_any_more_are_reported() {
    let main = "#include <doca_dma.h>\n#include \"own.h\"\nint f(void) { return doca_pe_progress(0) + doca_ctx_start(0); }\n";
    let program = Program::new(&[("main.c", main), ("own.h", "#include <doca_ctx.h>\n")]);
    let report = program.json(&["--json", "main.c"]);
    assert_eq!(
        report["findings"].as_array().map(Vec::len),
        Some(1),
        "{report}"
    );
    let finding = &report["findings"][0];
    assert_eq!(
        (&finding["change"], &finding["name"], &finding["line"]),
        (&json!("include"), &json!("doca_pe_progress"), &json!(3))
    );
    let note = finding["note"].as_str().expect("a text");
    assert!(
        note.contains("doca_pe.h") && note.contains("doca_dma.h"),
        "{note}"
    );
    let later = program.migrate(&["--from", "2.9", "main.c"]);
    assert_eq!(later.status.code(), Some(0), "{later:?}");
}

#[test]
fn names_that_another_file_of_the_program_defines_are_not_reported() {
    let own = "#define DOCA_VER_MAJOR 2\nint doca_helper(void) { return DOCA_VER_MAJOR; }\n";
    let program = Program::new(&[
        ("own.h", own),
        (
            "main.c",
            "int main(void) { return DOCA_VER_MAJOR + DOCA_VER_MINOR + doca_helper(); }\n",
        ),
    ]);
    let found = [place("main.c", 1, "DOCA_VER_MINOR")];
    assert_eq!(program.places(&["own.h", "main.c"]), found);
    let report = program.json(&["--json", "own.h", "main.c"]);
    assert_eq!(report["outside_of_tables"], json!([]));
    assert_eq!(program.places(&["main.c"]).len(), 2);
}
