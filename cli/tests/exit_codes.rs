//! Exit codes of every command: 0 for success, 1 for a failure, 2 for wrong usage. Numbers of failures are in the output only.

use crate::support::Sandbox;

/// Every command, with its mandatory arguments.
const COMMANDS: [&str; 31] = [
    "",
    "demo",
    "bench",
    "conformance",
    "conformance layout",
    "conformance role",
    "conformance role target",
    "conformance matrix",
    "conformance faults",
    "conformance hammer",
    "conformance simulate",
    "conformance hostile",
    "conformance samples",
    "conformance record",
    "conformance replay",
    "conformance show",
    "conformance faulty-target",
    "sdk",
    "sdk install",
    "sdk env",
    "sdk functions",
    "sdk devices",
    "status",
    "top",
    "target",
    "zero-copy",
    "gga-offload",
    "initiator",
    "sbc-generator",
    "nbd",
    "vhost-user-blk",
];

fn code(sandbox: &Sandbox, arguments: &str) -> (Option<i32>, String) {
    let words: Vec<&str> = arguments.split_whitespace().collect();
    let output = sandbox.command(&words).output().expect("it runs");
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

#[test]
fn wrong_usage_is_2_and_help_is_0() {
    let sandbox = Sandbox::new();
    for command in COMMANDS {
        let (wrong, said) = code(&sandbox, &format!("{command} --nonsense"));
        assert_eq!(wrong, Some(2), "{command}: {said}");
        assert!(said.contains("--nonsense"), "{command}: {said}");
        let (help, said) = code(&sandbox, &format!("{command} --help"));
        assert_eq!(help, Some(0), "{command}: {said}");
    }
}

#[test]
fn flags_that_do_not_fit_together_are_wrong_usage() {
    let sandbox = Sandbox::new();
    let service = "-d 03:00.0 -r 3b:00.0 --cpu 0";
    let targets = "--data-1-storage h:1 --data-2-storage h:2 --data-p-storage h:3";
    for arguments in [
        "initiator -d 3b:00.0 --cpu 0 --execution-strategy read_only_data_validity_test",
        &format!("gga-offload {service} {targets} --rebuild data_1"),
        &format!("zero-copy {service} --storage-server 127.0.0:1"),
        "target -d 3b:00.0 --cpu 0 --listen-port 0 --json /no/such/file",
        "conformance layout --only nonsense",
        "conformance role target --only nonsense",
        "conformance hostile --role target --only nonsense",
        "conformance faults --only nonsense",
        "conformance matrix --only nonsense",
        "conformance record --listen 0 --to :1 --to :2 --output x",
    ] {
        let (code, said) = code(&sandbox, arguments);
        assert_eq!(code, Some(2), "{arguments}: {said}");
    }
}

#[test]
fn failures_exit_with_1_whatever_their_number() {
    let sandbox = Sandbox::new();
    for arguments in [
        "target -d 09:00.0 --cpu 0 --listen-port 0",
        "zero-copy -d 03:00.0 -r 3b:00.0 --cpu 0 --storage-server no-such-host.invalid:1",
        "status 1 2 3",
        "conformance show /no/such/file",
        "conformance role target --bin /bin/true --timeout 1s --only ids --only content-sbc",
        "sdk env --prefix /no/such/directory",
        "top 1",
    ] {
        let (code, said) = code(&sandbox, arguments);
        assert_eq!(code, Some(1), "{arguments}: {said}");
    }
    let several = "conformance role zero-copy --bin /bin/true --timeout 1 --only ids";
    let (code, said) = code(&sandbox, several);
    assert!(said.contains("2 failed"), "{said}");
    assert_eq!(code, Some(1), "{said}");
}

/// Checks the width of every help line for common terminal widths.
#[test]
fn help_fits_the_terminal() {
    let sandbox = Sandbox::new();
    for command in COMMANDS {
        for width in [80, 100, 120] {
            let words: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
            let output = sandbox
                .command(&words)
                .env("COLUMNS", width.to_string())
                .output()
                .expect("it runs");
            let text = String::from_utf8(output.stdout).expect("text");
            let longest = text.lines().max_by_key(|line| line.chars().count());
            let longest = longest.expect("help has lines");
            assert!(
                longest.chars().count() <= width,
                "{command} --help at {width}: {longest}"
            );
        }
    }
}
