use std::io::Write as _;
use std::time::Duration;

use super::{NoDuplicates, without_comments, *};

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
    #[arg(long, default_value = "30", value_parser = timeout)]
    io_timeout: Timeout,
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
        ("0", Timeout(None), None),
        (
            "7",
            Timeout(Some(Duration::from_secs(7))),
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
    assert_eq!(flags.io_timeout, Timeout(Some(Duration::from_secs(120))));
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

#[test]
fn paragraphs_are_joined_and_commands_broken_between_flags() {
    let text = "\
First line of a paragraph,
and its second line.

Another paragraph.

Examples:
  program short            with a comment
  Words before a command, however long they are, are left to clap, which breaks lines between words:
    program --first 1111111111111111111111111 --second 2222222222222222222222222 \\
        --third 3 --fourth 44444444444444444444444444444
    program --flag 11111111111111111111111111111111111111111111111111111111111111111111
  program last";
    let expected = "\
First line of a paragraph, and its second line.

Another paragraph.

Examples:
  program short            with a comment
  Words before a command, however long they are, are left to clap, which breaks lines between words:
    program --first 1111111111111111111111111 \\
        --second 2222222222222222222222222 --third 3 \\
        --fourth 44444444444444444444444444444
    program --flag \\
        11111111111111111111111111111111111111111111111111111111111111111111
  program last";
    assert_eq!(laid_out(text), expected);
}

#[test]
fn subcommands_are_laid_out_too() {
    let command = Command::new("program")
        .subcommand(Command::new("one").subcommand(Command::new("two").after_help("a\nb")));
    let mut command = lay_out(command);
    let one = command.find_subcommand_mut("one").expect("one");
    let two = one.find_subcommand("two").expect("two");
    let text = two.get_after_help().map(ToString::to_string);
    assert_eq!(text.as_deref(), Some("a b"));
}

#[test]
fn mandatory_flags_are_marked() {
    let arg = Arg::new("one").help("First").required(true);
    let text = marked(arg).get_help().map(ToString::to_string);
    assert_eq!(text.as_deref(), Some("First [required]"));
    let text = marked(Arg::new("one").help("First"))
        .get_help()
        .map(ToString::to_string);
    assert_eq!(text.as_deref(), Some("First"));
}

#[test]
fn comments_are_removed_and_strings_kept() {
    let text = "{ // one \"x\"\n \"a//b\": \"c\\\"//\" // end\n}";
    let clean = without_comments(text);
    assert_eq!(clean.lines().count(), 3);
    let value: serde_json::Value = serde_json::from_str(&clean).expect("clean JSON");
    assert_eq!(value["a//b"], "c\"//");
}
#[test]
fn duplicate_keys_are_refused() {
    let check = |text| serde_json::from_str::<NoDuplicates>(text).map(|_| ());
    check(r#"{"a": {"x": [1, -1, 1.5, "s", true, null]}, "b": {"x": {}}}"#).expect("once each");
    for twice in [
        r#"{"a": 1, "a": 1}"#,
        r#"{"o": {"a": 1, "b": 2, "a": [1]}}"#,
        r#"[{"a": 1, "\u0061": 2}]"#,
    ] {
        let error = check(twice).expect_err(twice).to_string();
        assert!(error.contains("found a second \"a\""), "{error}");
    }
}

#[test]
fn block_comments_are_removed_and_lines_kept() {
    let text = "/* a \"\n */{/**/\"a\": /* // */ \"/* b */\", // c */\n\"d\": 1/***/}";
    let clean = without_comments(text);
    assert_eq!(clean.len(), text.len());
    assert_eq!(clean.lines().count(), text.lines().count());
    let value: serde_json::Value = serde_json::from_str(&clean).expect("clean JSON");
    assert_eq!(value, serde_json::json!({ "a": "/* b */", "d": 1 }));
    for open in ["{} /* never closed", "{} /*/"] {
        let clean = without_comments(open);
        serde_json::from_str::<serde_json::Value>(&clean).expect_err(open);
    }
}
