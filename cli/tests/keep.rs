//! Commands printed by `demo --keep` work when pasted into a shell, even if paths need quotes.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::Sandbox;

fn shell(line: &str) -> Output {
    Command::new("sh")
        .args(["-c", line])
        .output()
        .expect("a shell")
}

#[test]
fn printed_commands_use_and_remove_a_zero_copy_deployment() {
    the_printed_lines_drive_and_remove("zero-copy", 2);
}

#[test]
fn printed_commands_use_and_remove_a_gga_deployment() {
    the_printed_lines_drive_and_remove("gga", 4);
}

fn the_printed_lines_drive_and_remove(layout: &str, processes: usize) {
    let parent = tempfile::tempdir().expect("a directory");
    let temporary = parent.path().join("it's here");
    std::fs::create_dir(&temporary).expect("a directory");
    let output = Sandbox::new()
        .command(&["demo", "--layout", layout, "--keep", "--operations", "100"])
        .env("TMPDIR", &temporary)
        .output()
        .expect("the program starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let after = |mark: &str| {
        let (_, rest) = text
            .split_once(mark)
            .unwrap_or_else(|| panic!("{mark} in {text}"));
        rest.lines().next().expect("a line").to_owned()
    };

    let initiator = shell(&after("Start the initiator with:\n"));
    let said = String::from_utf8_lossy(&initiator.stderr);
    assert!(initiator.status.success(), "{said}");
    // The session was served completely, so they exit without being killed.
    let roles = after("without one: kill ");
    let (roles, _) = roles.split_once(';').expect("processes");
    assert_eq!(roles.split(' ').count(), processes, "{roles}");
    for role in roles.split(' ') {
        let gone = || {
            let status = std::fs::read_to_string(Path::new("/proc").join(role).join("stat"));
            // An orphan may stay a zombie, because there may be no process that reaps it.
            status.map_or(true, |line| line.contains(") Z "))
        };
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !gone() {
            assert!(std::time::Instant::now() < deadline, "{role} still runs");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
    let removed = shell(&after("afterwards: "));
    assert!(removed.status.success(), "{removed:?}");
    let left = std::fs::read_dir(&temporary).expect("readable").count();
    assert_eq!(left, 0, "files are left in {}", temporary.display());
}
