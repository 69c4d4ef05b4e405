//! NBD clients of other projects, against the server with a disk in memory. Tests of programs that are not installed
//! are reported as ignored, and fail in CI.

mod support;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Output};

use libtest_mimic::{Arguments, Failed, Trial};
use support::*;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trials = vec![
        with("nbdinfo", "nbdinfo_describes_the_export", nbdinfo),
        with("nbdcopy", "nbdcopy_copies_both_ways", nbdcopy),
        with("qemu-img", "qemu_img_converts_and_compares", qemu_img),
        with("qemu-io", "qemu_io_writes_zeroes_and_trims", qemu_io),
        with("fio", "fio_verifies_what_it_has_written", fio),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A test that needs this program.
fn with(program: &'static str, name: &str, test: fn() -> Result<(), Failed>) -> Trial {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|it| it.join(program).is_file());
    if is_there {
        return Trial::test(name, test);
    }
    let in_ci = std::env::var_os("CI").is_some();
    Trial::test(name, move || {
        Err(format!("{program} is not installed").into())
    })
    .with_ignored_flag(!in_ci)
}

/// A server, its URI, and the directory of its socket for further files.
struct Place {
    sandbox: Sandbox,
}

impl Place {
    fn new() -> Self {
        Self {
            sandbox: Sandbox::with(Options {
                queues: 2,
                ..Options::default()
            }),
        }
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.sandbox.socket().display())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.sandbox.directory.path().join(name)
    }
}

fn run<I: AsRef<OsStr>>(program: &str, arguments: &[I]) -> Result<Output, Failed> {
    let output = Command::new(program).args(arguments).output()?;
    if output.status.success() {
        return Ok(output);
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Err(format!(
        "{program}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    )
    .into())
}

fn nbdinfo() -> Result<(), Failed> {
    let place = Place::new();
    let output = run("nbdinfo", &["--json", "--list", &place.uri()])?;
    let document: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let export = &document["exports"][0];
    let expected: [(&str, serde_json::Value); 15] = [
        ("export-name", "disk".into()),
        ("description", "a disk of a test".into()),
        ("export-size", (8 << 20).into()),
        ("block_size_minimum", 1.into()),
        ("block_size_preferred", 4096.into()),
        ("block_size_maximum", (32 << 20).into()),
        ("contexts", vec!["base:allocation"].into()),
        ("can_multi_conn", true.into()),
        ("can_flush", true.into()),
        ("can_fua", true.into()),
        ("can_trim", true.into()),
        ("can_zero", true.into()),
        ("can_df", true.into()),
        ("can_fast_zero", false.into()),
        ("is_read_only", false.into()),
    ];
    for (key, value) in expected {
        assert_eq!(export[key], value, "{key}: {document}");
    }
    let map = run("nbdinfo", &["--map", "--json", &place.uri()])?;
    let map: serde_json::Value = serde_json::from_slice(&map.stdout)?;
    assert_eq!(map[0]["length"], 8 << 20, "{map}");
    Ok(())
}

fn nbdcopy() -> Result<(), Failed> {
    let place = Place::new();
    let content = contents::noise(11, 8 << 20);
    let (from, to) = (place.path("from"), place.path("to"));
    std::fs::write(&from, &content)?;
    let uri = place.uri();
    let common = ["--connections=4", "--flush", "--request-size=1048576"];
    let run = |from: &OsStr, to: &OsStr| {
        let arguments: Vec<&OsStr> = common.iter().map(AsRef::as_ref).chain([from, to]).collect();
        run("nbdcopy", &arguments)
    };
    run(from.as_ref(), uri.as_ref())?;
    assert!(place.sandbox.disk.content() == content);
    assert!(place.sandbox.disk.flushes() > 0);
    run(uri.as_ref(), to.as_ref())?;
    assert!(std::fs::read(&to)? == content);
    Ok(())
}

fn qemu_img() -> Result<(), Failed> {
    let place = Place::new();
    let mut content = contents::noise(12, 8 << 20);
    content[1 << 20..3 << 20].fill(0);
    let from = place.path("from");
    std::fs::write(&from, &content)?;
    let uri = place.uri();
    let from: &OsStr = from.as_ref();
    let convert = ["convert", "-n", "-f", "raw", "-O", "raw"];
    let arguments: Vec<&OsStr> = convert
        .iter()
        .map(AsRef::as_ref)
        .chain([from, uri.as_ref()])
        .collect();
    run("qemu-img", &arguments)?;
    assert!(place.sandbox.disk.content() == content);
    let compare = ["compare", "-f", "raw", "-F", "raw"];
    let arguments: Vec<&OsStr> = compare
        .iter()
        .map(AsRef::as_ref)
        .chain([from, uri.as_ref()])
        .collect();
    run("qemu-img", &arguments)?;
    Ok(())
}

fn qemu_io() -> Result<(), Failed> {
    let place = Place::new();
    place.sandbox.disk.fill(&contents::noise(13, 8 << 20));
    let commands = [
        "write -P 0x5a 512 100k",
        "write -f -P 0x11 2M 4k",
        "write -z 1M 64k",
        "write -zu 4M 64k",
        "discard 5M 64k",
        "flush",
        "read -P 0x5a 512 100k",
        "read -P 0 1M 64k",
        "read -P 0 4M 64k",
    ];
    let mut arguments = vec!["-f", "raw"];
    commands.iter().for_each(|it| arguments.extend(["-c", it]));
    let uri = place.uri();
    arguments.push(&uri);
    let output = run("qemu-io", &arguments)?;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        !text.contains("failed") && !text.contains("Pattern"),
        "{text}"
    );
    let content = place.sandbox.disk.content();
    assert!(content[512..][..100 << 10].iter().all(|it| *it == 0x5a));
    Ok(())
}

fn fio() -> Result<(), Failed> {
    let place = Place::new();
    let uri = format!("--uri={}", place.uri());
    let output = run(
        "fio",
        &[
            "--name=verify",
            "--ioengine=nbd",
            &uri,
            "--rw=randwrite",
            "--bsrange=512-200k",
            "--bs_unaligned=1",
            "--iodepth=32",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--verify_state_save=0",
            "--size=8m",
            "--randseed=7",
            "--fsync=50",
        ],
    );
    output.map(|_| ())
}
