use std::ffi::OsString;

use role_common::flags::{FlagsError, OutputFormat};

use super::*;

fn parse(args: &[&str]) -> Result<Flags, FlagsError> {
    flags::read(
        NAME,
        std::iter::once(NAME)
            .chain(args.iter().copied())
            .map(OsString::from),
    )
}

/// A CPU that this process may use, as a flag's value.
fn cpu() -> String {
    (0..4096)
        .map(|index: u32| index.to_string())
        .find(|index| flags::cpu(index).is_ok())
        .expect("a CPU")
}

fn with(more: &[&str]) -> Result<Flags, FlagsError> {
    let cpu = cpu();
    let mut args = vec![
        "-d",
        "3b:00.0",
        "--cpu",
        &cpu,
        "--execution-strategy",
        "read_throughput_test",
    ];
    args.extend(more);
    parse(&args)
}

fn usage_error(result: Result<Flags, FlagsError>) -> String {
    match result {
        Err(FlagsError::Usage(text)) => text,
        other => panic!("expected a usage error, got {other:?}"),
    }
}

#[test]
fn defaults_are_those_of_the_reference() {
    let flags = with(&[]).expect("complete");
    assert_eq!(flags.device, "3b:00.0");
    assert_eq!(flags.execution_strategy, Strategy::ReadThroughputTest);
    assert_eq!(flags.run_limit_operation_count, 1_000_000);
    assert_eq!(flags.transaction_count, 64);
    assert_eq!(flags.command_channel_name, "doca_storage_comch");
    assert_eq!(flags.control_timeout, Duration::from_secs(5));
    assert_eq!(flags.local_io_region_size, 0);
    assert_eq!(flags.blocks_per_io, 1);
    assert_eq!(flags.io_timeout, Duration::from_secs(5));
    assert_eq!(
        (flags.seed, flags.progress, flags.output().output),
        (None, ProgressMode::Auto, OutputFormat::Text)
    );
    assert!(flags.check().is_ok());
}

#[test]
fn every_flag_is_read() {
    let cpu = cpu();
    let flags = with(&[
        "--cpu",
        &cpu,
        "--storage-plain-content",
        "file",
        "--run-limit-operation-count",
        "7",
        "--transaction-count",
        "8",
        "--command-channel-name",
        "channel",
        "--control-timeout",
        "9",
        "--local-io-region-size",
        "8589934592",
        "--blocks-per-io",
        "4",
        "--io-timeout",
        "2",
        "--seed",
        "18446744073709551615",
        "--progress",
        "never",
        "--output",
        "json",
    ])
    .expect("all known");
    assert_eq!(flags.cpu.len(), 2);
    assert_eq!(flags.storage_plain_content, Some("file".into()));
    assert_eq!(
        (flags.run_limit_operation_count, flags.transaction_count),
        (7, 8)
    );
    assert_eq!(flags.command_channel_name, "channel");
    assert_eq!(
        (flags.control_timeout.as_secs(), flags.io_timeout.as_secs()),
        (9, 2)
    );
    assert_eq!(
        (flags.local_io_region_size, flags.blocks_per_io),
        (8 << 30, 4)
    );
    assert_eq!(
        (flags.seed, flags.progress, flags.output().output),
        (Some(u64::MAX), ProgressMode::Never, OutputFormat::Json)
    );
}

#[test]
fn strategy_names_are_those_of_the_reference() {
    let strategies = [
        (
            "read_throughput_test",
            Strategy::ReadThroughputTest,
            (true, false, false),
        ),
        (
            "write_throughput_test",
            Strategy::WriteThroughputTest,
            (false, true, false),
        ),
        (
            "read_write_data_validity_test",
            Strategy::ReadWriteDataValidityTest,
            (true, true, true),
        ),
        (
            "read_only_data_validity_test",
            Strategy::ReadOnlyDataValidityTest,
            (true, false, true),
        ),
    ];
    for (name, strategy, does) in strategies {
        let cpu = cpu();
        let flags = parse(&["-d", "x", "--cpu", &cpu, "--execution-strategy", name]).expect(name);
        assert_eq!(flags.execution_strategy, strategy);
        assert_eq!(
            (strategy.reads(), strategy.writes(), strategy.validates()),
            does,
            "{name}"
        );
        assert_eq!(serde_json::to_value(strategy).expect("serializable"), name);
    }
}

#[test]
fn error_for_a_wrong_value_names_flag_and_accepted_values() {
    let wrong = [
        ("--run-limit-operation-count", "0", "1 to 4294967295"),
        ("--transaction-count", "0", "1 to 65536"),
        ("--transaction-count", "65537", "1 to 65536"),
        ("--blocks-per-io", "0", "1 to 65535"),
        ("--blocks-per-io", "65536", "1 to 65535"),
        ("--local-io-region-size", "-1", "0 to"),
        ("--control-timeout", "0", "seconds"),
        ("--io-timeout", "x", "seconds"),
        ("--progress", "sometimes", "auto"),
        ("--output", "xml", "json"),
    ];
    for (flag, value, accepts) in wrong {
        let text = usage_error(with(&[flag, value]));
        assert!(
            text.contains(flag) && text.contains(accepts),
            "{flag} {value}: {text}"
        );
    }
    let cpu = cpu();
    let text = usage_error(parse(&[
        "-d",
        "x",
        "--cpu",
        &cpu,
        "--execution-strategy",
        "read",
    ]));
    assert!(
        text.contains("--execution-strategy") && text.contains("read_only_data_validity_test"),
        "{text}"
    );
}

#[test]
fn errors_name_missing_mandatory_flags() {
    for (missing, args) in [
        (
            "--device",
            vec!["--cpu", "0", "--execution-strategy", "read_throughput_test"],
        ),
        (
            "--cpu",
            vec!["-d", "x", "--execution-strategy", "read_throughput_test"],
        ),
        ("--execution-strategy", vec!["-d", "x", "--cpu", "0"]),
    ] {
        let text = usage_error(parse(&args));
        assert!(text.contains(missing), "{missing}: {text}");
    }
}

#[test]
fn read_only_validation_needs_content() {
    let cpu = cpu();
    let args = [
        "-d",
        "x",
        "--cpu",
        &cpu,
        "--execution-strategy",
        "read_only_data_validity_test",
    ];
    let error = parse(&args)
        .expect("syntactically complete")
        .check()
        .expect_err("no content");
    assert!(error.message.contains("--storage-plain-content"), "{error}");
    let mut args = args.to_vec();
    args.extend(["--storage-plain-content", "file"]);
    assert!(parse(&args).expect("complete").check().is_ok());
}
