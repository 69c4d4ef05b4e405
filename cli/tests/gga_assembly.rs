//! `gga-offload --degraded on`: targets with an old disk, or missing, at the start of a session or during it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::gga::TARGETS;
use crate::support::set::{BLOCKS, Set, interrupted, killed, redundancy, under_way};
use crate::support::{TIMEOUT, default_deadline, document, expect_failure, wait_for_log};
use serde_json::json;

const READ: &str = "read_only_data_validity_test";

/// Copies the backing files of the targets, which must not be running.
fn snapshot(set: &Set) -> [PathBuf; 3] {
    [0, 1, 2].map(|number| {
        let copy = set.sandbox.path(&format!("copy of {}", TARGETS[number]));
        fs::copy(set.path(number), &copy).expect("copied");
        copy
    })
}

fn restore(set: &Set, copies: &[PathBuf; 3], numbers: &[usize]) {
    for &number in numbers {
        fs::copy(&copies[number], set.path(number)).expect("copied");
    }
}

/// A set that was written twice, and copies of its files after the first time. No target is running.
fn written_twice() -> (Set, PathBuf, PathBuf, [PathBuf; 3]) {
    let mut set = Set::new("crc32c");
    let (old, new) = (set.content(0), set.content(1));
    set.write_and_scrub(&old);
    (0..3).for_each(|number| set.kill(number));
    let copies = snapshot(&set);
    (0..3).for_each(|number| set.start(number));
    set.write(&new);
    (0..3).for_each(|number| set.kill(number));
    (set, old, new, copies)
}

#[test]
fn two_stale_disks_are_refused_unless_the_third_is_discarded() {
    for (restored, latest) in [([1, 2], 0), ([0, 2], 1), ([0, 1], 2)] {
        let (mut set, old, _, copies) = written_twice();
        restore(&set, &copies, &restored);
        (0..3).for_each(|number| set.start(number));
        let service = set.service(&[]);
        let refused = expect_failure(set.initiator(READ, &old, BLOCKS));
        expect_failure(service);
        for part in [
            "expected two storage targets that have all that was written",
            "with --rebuild",
            "what was written since is lost",
        ] {
            assert!(refused.contains(part), "{refused}");
        }
        // Discarding one of the two others does not help.
        let service = set.service(&["--rebuild", TARGETS[restored[0]]]);
        let refused = expect_failure(set.initiator(READ, &old, BLOCKS));
        expect_failure(service);
        assert!(
            refused.contains("expected two storage targets"),
            "{refused}"
        );

        let name = TARGETS[latest];
        let service = set.service(&["--rebuild", name]);
        let reader = set.reader(&old);
        wait_for_log(&service, &format!("{name} is up to date"), 1);
        set.reads_with_any_two(&service, reader);
        document(service);
        // The superblocks record the decision.
        let service = set.service(&[]);
        document(set.initiator(READ, &old, BLOCKS));
        assert_eq!(redundancy(service)["rebuilt_stripes"], 0);
    }
}

#[test]
fn stale_disk_is_rebuilt() {
    for (number, name) in TARGETS.iter().enumerate() {
        let (mut set, _, new, copies) = written_twice();
        restore(&set, &copies, &[number]);
        (0..3).for_each(|number| set.start(number));
        let service = set.service(&[]);
        let reader = set.reader(&new);
        let all =
            format!("storage target {name} is online: rebuilding {BLOCKS} stripes, all of them");
        wait_for_log(&service, &all, 1);
        wait_for_log(&service, &format!("{name} is up to date"), 1);
        set.reads_with_any_two(&service, reader);
        assert_eq!(redundancy(service)["state"], "healthy");
    }
}

#[test]
fn disk_replaced_by_an_older_one_within_a_session_is_rebuilt() {
    for (number, name) in TARGETS.iter().enumerate() {
        let (mut set, _, new, copies) = written_twice();
        (0..3).for_each(|number| set.start(number));
        let service = set.service(&["--scrub", "off"]);
        let mut reader = set.reader(&new);
        set.kill(number);
        wait_for_log(&service, &format!("detached storage target {name}"), 1);
        under_way(&mut reader);
        restore(&set, &copies, &[number]);
        set.start(number);
        let all =
            format!("storage target {name} is online: rebuilding {BLOCKS} stripes, all of them");
        wait_for_log(&service, &all, 1);
        wait_for_log(&service, &format!("{name} is up to date"), 1);
        set.reads_with_any_two(&service, reader);
        assert_eq!(redundancy(service)["state"], "healthy");
    }
}

/// Its superblock does not show it, but a scrub finds the blocks.
#[test]
fn disk_that_lost_writes_within_a_session_is_scrubbed_on_rejoin() {
    for (number, name) in TARGETS.iter().enumerate() {
        let (mut set, _, new, copies) = written_twice();
        let current = set.stored(number);
        let before = set.stored_in(&copies[number]);
        assert!(current != before);
        (0..3).for_each(|number| set.start(number));
        let service = set.service(&["--scrub", "off"]);
        let mut reader = set.reader(&new);
        set.kill(number);
        wait_for_log(&service, &format!("detached storage target {name}"), 1);
        under_way(&mut reader);
        for (block, chunk) in before.chunks(set.chunk_size()).enumerate() {
            set.put(number, block, 0, chunk);
        }
        set.start(number);
        let missed = format!("{name} is online: rebuilding 0 stripes, those that it has missed");
        wait_for_log(&service, &missed, 1);
        wait_for_log(&service, "scrub completed", 1);
        assert!(set.stored(number) == current, "{name} has old chunks");
        set.reads_with_any_two(&service, reader);
        let redundancy = redundancy(service);
        let mut repaired = [0; 3];
        repaired[number] = BLOCKS;
        assert_eq!(redundancy["repaired_chunks"], json!(repaired));
    }
}

/// A target of another set on the port of a lost one is not overwritten.
#[test]
fn target_of_another_set_does_not_replace_a_lost_one() {
    let (mut set, mut other) = (Set::new("crc32c"), Set::new("crc32c"));
    let (content, foreign) = (set.content(0), other.content(1));
    set.write(&content);
    other.write(&foreign);
    let service = set.service(&[]);
    let mut reader = set.reader(&content);
    set.kill(1);
    wait_for_log(&service, "detached storage target data_2", 1);
    other.kill(1);
    fs::copy(other.path(1), set.path(1)).expect("copied");
    set.start(1);
    wait_for_log(&service, "expected a target of set", 1);
    under_way(&mut reader);
    set.kill(1);
    assert!(set.stored(1) == other.stored(1), "it was overwritten");
    interrupted(reader);
    assert_eq!(redundancy(service)["state"], "degraded");
}

/// Begins a session without a target, reads and writes, and checks that the target is rebuilt when it starts.
fn begins_without(set: &mut Set, number: usize, old: &Path, new: &Path) {
    let name = TARGETS[number];
    let service = set.service(&["--control-timeout", "2", "--sessions", "2"]);
    document(set.initiator(READ, old, 4 * BLOCKS));
    wait_for_log(
        &service,
        &format!("{name} is missing: starting without it"),
        1,
    );
    // The target is still missing in the next session.
    let mut writer = set.writer(new);
    set.start(number);
    let all = format!("storage target {name} is online: rebuilding {BLOCKS} stripes, all of them");
    wait_for_log(&service, &all, 1);
    wait_for_log(&service, &format!("{name} is up to date"), 1);
    under_way(&mut writer);
    set.reads_with_any_two(&service, writer);
    service
        .finish(default_deadline(), || false)
        .expect("a good end");
}

#[test]
fn session_starts_without_a_target_after_a_clean_shutdown() {
    for (number, checksum) in [(0, "crc32c"), (1, "off"), (2, "crc32c")] {
        let mut set = Set::new(checksum);
        let (old, new) = (set.content(0), set.content(1));
        set.write(&old);
        set.kill(number);
        begins_without(&mut set, number, &old, &new);
    }
}

#[test]
fn session_starts_without_a_target_after_an_unclean_shutdown() {
    for number in 0..3 {
        let mut set = Set::new("crc32c");
        let (old, new) = (set.content(0), set.content(1));
        let service = set.service(&[]);
        // All blocks have this content, so interrupted writes do not matter.
        let writer = set.writer(&old);
        killed(service);
        expect_failure(writer);
        set.kill(number);
        begins_without(&mut set, number, &old, &new);
    }
}

#[test]
fn service_with_one_target_waits_for_a_second_one() {
    let mut set = Set::new("crc32c");
    let content = set.content(0);
    set.write(&content);
    set.kill(0);
    set.kill(1);
    let mut service = set.start_service(&["--control-timeout", "30"]);
    let waiting = |line: &str| line.contains("waiting for the initiator").then_some(());
    std::thread::sleep(Duration::from_secs(3));
    assert!(!service.stderr().contains("waiting for the initiator"));
    set.start(1);
    service
        .wait_for("was waiting for the initiator", TIMEOUT, waiting)
        .expect("two are enough");
    document(set.initiator(READ, &content, BLOCKS));
    assert_eq!(redundancy(service)["state"], "degraded");
}

/// Without superblocks, two targets are not known to be up to date.
#[test]
fn new_set_does_not_start_without_a_target() {
    let mut set = Set::new("crc32c");
    let content = set.content(0);
    set.kill(2);
    let service = set.service(&["--control-timeout", "1"]);
    let refused = expect_failure(set.initiator(READ, &content, BLOCKS));
    assert!(
        refused.contains("storage target data_p is missing"),
        "{refused}"
    );
    expect_failure(service);
}
