//! Arguments.

use super::*;

#[test]
fn flags_are_read_in_order_and_in_every_spelling() {
    let d = program();
    accepts(&d, "-d 03:00.0", "device=03:00.0");
    accepts(&d, "--device=a=b -n=x", "device=a=b name=x");
    accepts(
        &d,
        "-q --cpu 1 -d x --cpu 0",
        "quiet=true cpu=1 device=x cpu=0",
    );
    accepts(&d, "-nd 2 -n d -d -", "num-devices=2 name=d device=-");
    accepts(
        &d,
        "-d x -nd -5 --cpu 0x1F",
        "device=x num-devices=-5 cpu=31",
    );
    accepts(&d, "--list", "list=true");
}

#[test]
fn mistakes_are_refused_and_named() {
    let d = program();
    use Error::{InvalidValue, NotSupported};
    refuses(&d, "", InvalidValue, "--device is mandatory");
    refuses(&d, "-d x --what", NotSupported, "--what");
    refuses(&d, "-d x -x", NotSupported, "-x");
    refuses(&d, "-d x y", NotSupported, "\"y\"");
    refuses(&d, "-d x --", NotSupported, "--");
    refuses(&d, "-d", InvalidValue, "-d expects a value");
    refuses(&d, "-d --cpu 0", InvalidValue, "-d expects a value");
    refuses(&d, "-d x -d y", InvalidValue, "only once");
    refuses(&d, "-d x --quiet=1", InvalidValue, "takes no value");
    for wrong in ["1x", "", "--1", "0x", "2147483648", "1.5"] {
        refuses(
            &d,
            &format!("-d x --cpu={wrong}"),
            InvalidValue,
            "a number from",
        );
    }
    refuses(
        &d,
        "--list -d x",
        InvalidValue,
        "--list cannot be used together with --device",
    );
    refuses(&d, "-d x -l 45", InvalidValue, "--log-level: expected 10");
    refuses(&d, "-d x -l info", InvalidValue, "expected a number");
    refuses(
        &d,
        "-d x -j /nowhere/at-all",
        Error::IoFailed,
        "/nowhere/at-all",
    );
}

#[test]
fn help_and_version_end_the_reading() {
    let d = program();
    assert!(matches!(parse(&d, "-h --nonsense"), Ok(Outcome::Help(_))));
    assert!(matches!(parse(&d, "-q --help"), Ok(Outcome::Help(_))));
    assert!(matches!(parse(&d, "-v --nonsense"), Ok(Outcome::Version)));
    refuses(&d, "--nonsense -h", Error::NotSupported, "--nonsense");
    let arguments = [c"program", c"-v", c"-d", c"x"];
    let shown = crate::argp::parse(&d, &arguments, true);
    assert!(matches!(shown, Ok(Outcome::Run(run)) if said(&d, &run) == "device=x"));
}

#[test]
fn log_levels_are_read_and_the_command_line_wins() {
    let d = program();
    let file = file(r#"{"doca_general_flags": {"log-level": 60, "sdk-log-level": 70}}"#);
    let path = file.path().display();
    let levels = run(&d, &format!("-d x -l 30 -j {path}")).levels;
    assert_eq!(levels.program.map(|level| level as u32), Some(30));
    assert_eq!(levels.sdk.map(|level| level as u32), Some(70));
    let levels = run(&d, "-d x --sdk-log-level=20").levels;
    assert_eq!(levels.program, None);
    assert_eq!(levels.sdk.map(|level| level as u32), Some(20));
}

#[test]
fn dpdk_gets_what_comes_before_two_dashes() {
    let mut d = program();
    d.with_dpdk = true;
    let dpdk = |line: &str| {
        let run = run(&d, line);
        let texts: Vec<&str> = run.dpdk.iter().map(|text| text.to_str().unwrap()).collect();
        texts.join(" ")
    };
    assert_eq!(dpdk("-l 0-3 -n 4 -- -d x"), "bin/program -l 0-3 -n 4");
    assert_eq!(dpdk("-d x"), "bin/program");
    let file = file(
        r#"{"doca_dpdk_flags": {"core-mask": "0xff", "devices": [{"device": "pf", "id": "03:00.0"}], "flags": " -n  4"}}"#,
    );
    let path = file.path().display();
    assert_eq!(
        dpdk(&format!("-d x -j {path}")),
        "bin/program -c 0xff -a 03:00.0 -n 4"
    );
}

#[test]
fn a_program_may_take_a_short_general_flag() {
    let mut d = Definitions::default();
    param(&mut d, None, ("v", "vuid"), ValueType::String, |_| ());
    accepts(&d, "-v x", "vuid=x");
    assert!(matches!(parse(&d, "--version"), Ok(Outcome::Version)));
    assert!(usage(&d, None, &Scope::new()).contains("\n  --version "));
}
