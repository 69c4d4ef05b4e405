//! JSON files, and values of all types.

use super::*;

#[test]
fn files_give_what_the_command_line_does_not() {
    let d = program();
    let file = file(
        r#"{
            // the order of the file is kept
            "doca_program_flags": {
                "quiet": false, "device": "file:00.0", /* both */ "cpu": [2, 1], "num-devices": 7
            }
        }"#,
    );
    let path = file.path().display();
    accepts(
        &d,
        &format!("-j {path}"),
        "quiet=false device=file:00.0 cpu=2 cpu=1 num-devices=7",
    );
    accepts(
        &d,
        &format!("--cpu 0 --json={path} -d line"),
        "quiet=false num-devices=7 cpu=0 device=line",
    );
}

#[test]
fn files_are_checked() {
    let mut d = program();
    param(&mut d, None, ("", "only-line"), ValueType::Int, |param| {
        param.command_line_only = true
    });
    param(&mut d, None, ("s", ""), ValueType::Int, |_| ());
    let program_flags = |flags: &str| format!("{{\"doca_program_flags\": {flags}}}");
    use Error::{InvalidValue, IoFailed, NotSupported};
    for (text, error, part) in [
        ("{".to_owned(), IoFailed, "--json"),
        ("[]".to_owned(), IoFailed, "an object of flags"),
        (program_flags("1"), IoFailed, "an object of flags"),
        (program_flags(r#"{"cpu": 1, "cpu": 2}"#), IoFailed, "twice"),
        (
            r#"{"flags": {}}"#.to_owned(),
            NotSupported,
            "doca_program_flags",
        ),
        (
            r#"{"doca_dpdk_flags": {}}"#.to_owned(),
            NotSupported,
            "doca_program_flags",
        ),
        (
            program_flags(r#"{"only-line": 1}"#),
            NotSupported,
            "unknown key",
        ),
        (program_flags(r#"{"s": 1}"#), NotSupported, "unknown key"),
        (
            program_flags(r#"{"log-level": 50}"#),
            NotSupported,
            "unknown key",
        ),
        (
            program_flags(r#"{"cpu": "1"}"#),
            InvalidValue,
            "expected a number, found the string",
        ),
        (
            program_flags(r#"{"cpu": 1.5}"#),
            InvalidValue,
            "whole number",
        ),
        (
            program_flags(r#"{"num-devices": [1]}"#),
            InvalidValue,
            "found an array",
        ),
        (
            program_flags(r#"{"quiet": "true"}"#),
            InvalidValue,
            "true or false",
        ),
        (
            program_flags(r#"{"device": 1}"#),
            InvalidValue,
            "expected a string",
        ),
        (
            r#"{"doca_general_flags": {"log-level": "50"}}"#.to_owned(),
            InvalidValue,
            "a number",
        ),
        (
            r#"{"doca_general_flags": {"log-level": 51}}"#.to_owned(),
            InvalidValue,
            "--log-level",
        ),
        (
            r#"{"doca_general_flags": {"json": "x"}}"#.to_owned(),
            NotSupported,
            "unknown key",
        ),
    ] {
        let file = file(&text);
        // A wrong value in the file does not hide behind one on the command line.
        let line = format!("-d x --cpu 1 -j {}", file.path().display());
        refuses(&d, &line, error, part);
    }
}

#[test]
fn objects_and_devices_are_read() {
    let mut d = Definitions::default();
    param(&mut d, None, ("", "rules"), ValueType::JsonObject, |_| ());
    param(&mut d, None, ("d", "device"), ValueType::Device, |_| ());
    param(&mut d, None, ("r", "rep"), ValueType::Representor, |_| ());
    let file = file(r#"{"doca_program_flags": {"rules": {"a": [1, 2]}, "device": "mlx5_0"}}"#);
    accepts(
        &d,
        &format!("-j {}", file.path().display()),
        r#"rules={"a":[1,2]} device=0000:03:00.0()"#,
    );
    accepts(
        &d,
        "-d pci/0000:03:00.0,dv_flow_en=2,x",
        "device=0000:03:00.0(dv_flow_en=2,x)",
    );
    accepts(
        &d,
        "-r pci/03:00.0,3b:00.0,args",
        "rep=0000:03:00.0>0000:3b:00.0(args)",
    );
    refuses(&d, "--rules {}", Error::InvalidValue, "only in a JSON file");
    refuses(&d, "-d mlx5_9", Error::NotFound, "no device \"mlx5_9\"");
    refuses(
        &d,
        "-r mlx5_0",
        Error::InvalidValue,
        "<device>,<representor>",
    );
    refuses(
        &d,
        "-r mlx5_0,pf9",
        Error::NotFound,
        "no representor \"pf9\"",
    );
}
