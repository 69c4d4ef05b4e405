use std::io::Write as _;
use std::time::Duration;

use super::*;

#[derive(Debug, Parser)]
#[command(
    about = "A program for tests",
    after_help = "Example:\n  test -d 03:00.0 --cpu 0"
)]
struct TestFlags {
    #[command(flatten)]
    general: GeneralFlags,
    /// Device identifier
    #[arg(short, long)]
    device: String,
    #[arg(long, required = true, value_parser = cpu)]
    cpu: Vec<u32>,
    #[arg(long, default_value = "5", value_parser = duration)]
    control_timeout: Duration,
    #[arg(long, default_value = "30", value_parser = patience)]
    io_timeout: Patience,
    #[arg(long, default_value = "1")]
    sessions: SessionLimit,
    #[arg(long, default_value = "128", value_parser = nonzero_u32)]
    block_count: u32,
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    output: OutputFlags,
}

fn parse(args: &[&str]) -> Result<TestFlags, FlagsError> {
    read(
        "test_app",
        std::iter::once("ignored")
            .chain(args.iter().copied())
            .map(OsString::from),
    )
}

fn usage_error(args: &[&str]) -> String {
    match parse(args) {
        Err(FlagsError::Usage(text)) => text,
        other => panic!("expected a usage error, got {other:?}"),
    }
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("temporary file");
    file.write_all(text.as_bytes()).expect("written");
    file
}

fn path(file: &tempfile::NamedTempFile) -> &str {
    file.path().to_str().expect("UTF-8 path")
}

#[test]
fn help_has_both_sections_and_the_examples() {
    let Err(FlagsError::Information(text)) = parse(&["-h"]) else {
        panic!("help is information")
    };
    for part in [
        "Usage: test_app [DOCA Flags] [Program Flags]",
        "DOCA Flags:",
        "Program Flags:",
        "--sdk-log-level",
        "--json",
        "Example:",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let (doca, program) = (text.find("DOCA Flags:\n"), text.find("Program Flags:\n"));
    assert!(doca < program, "{text}");
    assert!(
        text.find("--log-level") < program && text.find("--device") > program,
        "{text}"
    );
}

#[test]
fn version_is_information() {
    assert!(matches!(parse(&["-v"]), Err(FlagsError::Information(text)) if text.is_empty()));
}

#[test]
fn errors_name_missing_flags_and_wrong_values() {
    assert!(usage_error(&["--cpu", "0"]).contains("--device"));
    assert!(usage_error(&["-d", "x", "--cpu", "123456"]).contains("--cpu"));
    let text = usage_error(&["-d", "x", "--cpu", "0", "--block-count", "-1"]);
    assert!(
        text.contains("--block-count") && text.contains("1 to 4294967295"),
        "{text}"
    );
    assert!(usage_error(&["-d", "x", "-d", "y", "--cpu", "0"]).contains("--device"));
}

#[test]
fn command_line_overrides_the_file() {
    let file = file(
        r#"{
            // general
            "doca_general_flags": { "log-level": 60, "sdk-log-level": 30 },
            "doca_program_flags": { "device": "03:00.0", "cpu": [0, 0], "control-timeout": 9, "quick": true, "output": "json" }
        }"#,
    );
    let flags = parse(&["--json", path(&file), "-d", "3b:00.0", "-l", "70"]).expect("flags");
    assert_eq!(flags.device, "3b:00.0");
    assert_eq!(flags.cpu, [0, 0]);
    assert_eq!(flags.general.log_level.number(), 70);
    assert_eq!(flags.general.sdk_log_level.number(), 30);
    assert_eq!(flags.control_timeout, Duration::from_secs(9));
    assert!(flags.quick);
    assert_eq!(flags.output.output, OutputFormat::Json);
    assert_eq!(flags.block_count, 128);

    let flags = parse(&["-j", path(&file), "--cpu", "0"]).expect("flags");
    assert_eq!(
        flags.cpu,
        [0],
        "a repeated flag on the command line replaces the file's"
    );
}

#[test]
fn errors_in_the_file_name_file_and_flag() {
    let cases = [
        (
            r#"{"doca_program_flags": {"devise": "x"}}"#,
            &["devise", "accepted are: device, cpu"][..],
        ),
        (
            r#"{"doca_program_flags": {"log-level": 50}}"#,
            &["unknown key \"log-level\""],
        ),
        (
            r#"{"doca_general_flags": {"json": "x"}}"#,
            &["unknown key \"json\"", "log-level, sdk-log-level"],
        ),
        (
            r#"{"doca_program_flags": {"device": 3}}"#,
            &["--device", "expected a string", "the number 3"],
        ),
        (
            r#"{"doca_program_flags": {"cpu": "0"}}"#,
            &["--cpu", "expected a number"],
        ),
        (
            r#"{"doca_program_flags": {"device": ["x"]}}"#,
            &["--device", "found an array"],
        ),
        (
            r#"{"doca_program_flags": {"quick": 1}}"#,
            &["--quick", "true or false"],
        ),
        (
            r#"{"doca_program_flags": {"block-count": 0}}"#,
            &["--block-count", "1 to 4294967295"],
        ),
        (
            r#"{"doca_program_flags": {"block-count": 1.5}}"#,
            &["--block-count", "1 to 4294967295"],
        ),
        (
            r#"{"doca_general_flags": {"log-level": 55}}"#,
            &["--log-level", "60 (debug)"],
        ),
        (
            r#"{"flags": {}}"#,
            &["unknown key \"flags\"", "doca_general_flags"],
        ),
        (r#"{"doca_program_flags": []}"#, &["expected an object"]),
        (r#"[]"#, &["expected an object"]),
        ("{\n  \"doca_program_flags\": }", &["not JSON", "line 2"]),
    ];
    for (text, parts) in cases {
        let file = file(text);
        let message = usage_error(&["-d", "x", "--cpu", "0", "-j", path(&file)]);
        for part in parts.iter().chain(&[path(&file)]) {
            assert!(
                message.contains(part),
                "{part:?} is missing in {message:?} for {text}"
            );
        }
    }
    assert!(
        usage_error(&["-d", "x", "--cpu", "0", "-j", "/no/such/file"]).contains("/no/such/file")
    );
}

#[test]
fn file_accepts_json_numbers_for_numeric_flags() {
    let read = |flags: &str| {
        let flags =
            format!(r#"{{ "doca_program_flags": {{ "device": "d", "cpu": 0, {flags} }} }}"#);
        parse(&["-j", path(&file(&flags))])
    };
    for (number, io_timeout, sessions) in [
        ("0", Patience(None), None),
        (
            "7",
            Patience(Some(Duration::from_secs(7))),
            Some(SessionLimit::Count(7)),
        ),
    ] {
        let flags = read(&format!(r#""io-timeout": {number}"#)).expect("a number");
        assert_eq!(flags.io_timeout, io_timeout);
        let flags = read(&format!(r#""sessions": {number}"#));
        assert_eq!(flags.ok().map(|flags| flags.sessions), sessions);
    }
    let flags = read(r#""sessions": "forever""#).expect("a word");
    assert_eq!(flags.sessions, SessionLimit::Forever);
    let flags = read(r#""io-timeout": "2m""#).expect("a time with a unit");
    assert_eq!(flags.io_timeout, Patience(Some(Duration::from_secs(120))));
    let flags = read(r#""control-timeout": "2m""#).expect("a time with a unit");
    assert_eq!(flags.control_timeout, Duration::from_secs(120));
    let wrong = [
        r#""block-count": "2m""#,
        r#""control-timeout": "2q""#,
        r#""io-timeout": "7q""#,
        r#""io-timeout": true"#,
        r#""control-timeout": "7""#,
        r#""sessions": true"#,
        r#""sessions": 1, "sessions": 1"#,
    ];
    for wrong in wrong {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn mandatory_flags_may_come_from_file_or_command_line() {
    let file = file(r#"{"doca_program_flags": {"device": "x"}}"#);
    assert!(parse(&["-j", path(&file), "--cpu", "0"]).is_ok());
    assert!(usage_error(&["-j", path(&file)]).contains("--cpu"));
}

#[test]
fn file_size_is_limited_even_if_unknown() {
    let text = usage_error(&["-j", "/dev/zero"]);
    assert!(text.contains("--json /dev/zero"), "{text}");
    assert!(text.contains("1048576 bytes"), "{text}");
}
