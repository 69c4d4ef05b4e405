use std::ffi::OsString;

use role_common::flags::{self, FlagsError};

use super::*;

const MANDATORY: &str = "-d 03:00.0 -r 3b:00.0 --cpu 0 --data-1-storage 172.17.0.1:12345 \
                         --data-2-storage 172.17.0.2:12345 --data-p-storage 172.17.0.3:12345";

fn parse(args: &str) -> Result<Flags, FlagsError> {
    flags::read(
        crate::NAME,
        std::iter::once("x")
            .chain(args.split_whitespace())
            .map(OsString::from),
    )
}

#[test]
fn example_of_the_guide_is_accepted_with_reference_defaults() {
    let flags = parse(MANDATORY).expect("flags");
    assert_eq!(flags.data_p_storage.to_string(), "172.17.0.3:12345");
    assert_eq!(flags.matrix_type, MatrixType::Vandermonde);
    assert_eq!(flags.trigger_recovery_read_every_n, 0);
    assert_eq!(flags.logical_block_size, None);
    assert_eq!(flags.checksum, ChecksumPolicy::Crc32c);
    assert_eq!(flags.degraded, Degraded::Off);
    assert_eq!(flags.service.command_channel_name, "doca_storage_comch");
}

#[test]
fn extensions_are_parsed() {
    let flags = parse(&format!(
        "{MANDATORY} --matrix-type cauchy --trigger-recovery-read-every-n 10 --logical-block-size 4096 --checksum require"
    ))
    .expect("flags");
    assert_eq!(flags.matrix_type, MatrixType::Cauchy);
    assert_eq!(flags.trigger_recovery_read_every_n, 10);
    assert_eq!(flags.logical_block_size, Some(4096));
    assert_eq!(flags.checksum.written(), Checksum::Crc32c);
    let flags = parse(&format!("{MANDATORY} --degraded on")).expect("flags");
    assert_eq!(flags.degraded, Degraded::On);
    assert_eq!(flags.rebuild, None);
    let flags = parse(&format!("{MANDATORY} --degraded on --rebuild data_p")).expect("flags");
    assert_eq!(flags.rebuild, Some(Target::DataP));
    let flags = parse(&format!("{MANDATORY} --checksum off")).expect("flags");
    assert_eq!(flags.checksum.written(), Checksum::Off);
}

#[test]
fn missing_and_invalid_flags_are_named() {
    for flag in [
        "-d",
        "-r",
        "--cpu",
        "--data-1-storage",
        "--data-2-storage",
        "--data-p-storage",
    ] {
        let mut words: Vec<&str> = MANDATORY.split_whitespace().collect();
        let at = words.iter().position(|word| *word == flag).expect("there");
        words.drain(at..at + 2);
        let name = match flag {
            "-d" => "--device",
            "-r" => "--representor",
            long => long,
        };
        refused(&words.join(" "), name);
    }
    for (wrong, part) in [
        ("--matrix-type xor", "vandermonde"),
        ("--trigger-recovery-read-every-n -1", "--trigger-recovery"),
        ("--logical-block-size 0", "--logical-block-size"),
        ("--checksum md5", "require"),
        ("--control-timeout 0", "--control-timeout"),
        ("--degraded", "--degraded"),
        ("--degraded yes", "--degraded"),
        ("--degraded on --rebuild data_3", "data_p"),
    ] {
        refused(&format!("{MANDATORY} {wrong}"), part);
    }
}

fn refused(args: &str, part: &str) {
    match parse(args) {
        Err(FlagsError::Usage(text)) => assert!(text.contains(part), "{args}: {text}"),
        other => panic!("{args}: {other:?}"),
    }
}
