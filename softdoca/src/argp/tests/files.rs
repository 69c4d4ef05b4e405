//! JSON files, and values of all types.

use super::*;
use crate::api::Api;

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
fn unknown_keys_are_ignored_when_the_program_wants_that() {
    let mut d = program();
    let text = r#"{"doca_general_flags": {"colour": 1, "log-level": 60}, "doca_program_flags": {"wheels": 4, "cpu": [3]}, "other": {"a": 1}}"#;
    let file = file(text);
    let line = format!("-d x -j {}", file.path().display());
    refuses(&d, &line, Error::NotSupported, "unknown key \"colour\"");
    d.ignores_unknown_keys = true;
    accepts(&d, &line, "cpu=3 device=x");
    assert!(run(&d, &line).levels.program.is_some());
    // What is known must be right all the same.
    let wrong = self::file(r#"{"doca_program_flags": {"cpu": "three"}}"#);
    let line = format!("-d x -j {}", wrong.path().display());
    refuses(&d, &line, Error::InvalidValue, "expected a number");
}

#[test]
fn numbers_with_fractions_are_read() {
    let mut d = Definitions::default();
    param(&mut d, None, ("r", "ratio"), ValueType::Double, |_| ());
    for (text, value) in [
        ("12.5", "12.5"),
        ("-1e3", "-1000"),
        ("7", "7"),
        (".5", "0.5"),
    ] {
        accepts(&d, &format!("-r {text}"), &format!("ratio={value}"));
    }
    for text in ["many", "1,5", "inf", "NaN", "1e999", "12.5x"] {
        refuses(&d, &format!("-r {text}"), Error::InvalidValue, "12.5");
    }
    let file = file(r#"{"doca_program_flags": {"ratio": 0.25}}"#);
    accepts(&d, &format!("-j {}", file.path().display()), "ratio=0.25");
    let whole = self::file(r#"{"doca_program_flags": {"ratio": 3}}"#);
    accepts(&d, &format!("-j {}", whole.path().display()), "ratio=3");
    let text = self::file(r#"{"doca_program_flags": {"ratio": "3"}}"#);
    let line = format!("-j {}", text.path().display());
    refuses(&d, &line, Error::InvalidValue, "expected a number");
}

#[test]
fn types_have_the_numbers_of_the_release() {
    use ValueType::*;
    let types = |api| [1, 2, 3, 4, 5, 6, 256].map(|number| ValueType::from_number(api, number));
    let [one, two, three] = [Some(String), Some(Int), Some(Boolean)];
    let object = Some(JsonObject);
    assert_eq!(
        types(Api::V3_0),
        [one, two, three, object, None, None, object]
    );
    for api in [Api::V3_1, Api::V3_2, Api::V3_3] {
        assert_eq!(
            types(api),
            [
                one,
                two,
                three,
                Some(Device),
                Some(Representor),
                Some(Double),
                object
            ]
        );
        assert_eq!(ValueType::from_number(api, 0), None);
        assert_eq!(ValueType::from_number(api, 7), None);
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
