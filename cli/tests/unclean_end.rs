//! `gga-offload --degraded on`: killed services and targets, and the next session with the remaining data.

use std::path::Path;

use crate::support::gga::TARGETS;
use crate::support::set::{BLOCKS, ENDLESS, Set, interrupted, killed, redundancy, under_way};
use crate::support::{
    BLOCK_SIZE, TIMEOUT, default_deadline, document, expect_failure, wait_for_log,
};
use ::deployment::process::{Process, Signal};

const HALF: usize = BLOCK_SIZE / 2;
/// Offsets of the two copies of the superblock in a backing file, and the offsets in it of its sequence number and of
/// the boot id of the machine while written blocks may not be durable; zeros when all are.
const RECORDS: [usize; 2] = [4096, 8192];
const SEQUENCE: std::ops::Range<usize> = 8..16;
const SINCE: std::ops::Range<usize> = 76..92;

const VERIFYING: &str = "was not shut down cleanly";
const VERIFIED: &str = "resync completed";

#[test]
fn clean_shutdown_is_trusted() {
    let set = Set::new("crc32c");
    let content = set.content(0);
    set.write(&content);
    let service = set.service(&[]);
    document(set.initiator("read_only_data_validity_test", &content, BLOCKS));
    let said = service.stderr();
    assert!(
        !said.contains(VERIFYING) && !said.contains("rebuilding"),
        "{said}"
    );
    let redundancy = redundancy(service);
    assert_eq!(redundancy["verified_stripes"]["fitting"], 0);
    assert_eq!(redundancy["rebuilt_stripes"], 0);
}

#[test]
fn use_by_a_service_without_superblocks_is_not_trusted() {
    let set = Set::new("crc32c");
    let (old, new) = (set.content(0), set.content(1));
    set.write(&old);
    // It does not record that its last session was shut down cleanly.
    let service = set.sandbox.gga_service(set.ports, 2, &[]);
    document(set.initiator("read_write_data_validity_test", &new, BLOCKS));
    document(service);
    let service = set.service(&[]);
    let reader = set.reader(&new);
    wait_for_log(&service, VERIFIED, 1);
    interrupted(reader);
    assert_eq!(redundancy(service)["verified_stripes"]["fitting"], BLOCKS);
}

#[test]
fn blocks_are_recorded_as_durable_only_after_a_clean_stop() {
    let mut set = Set::new("crc32c");
    let content = set.content(0);
    let since = |set: &Set, number: usize| -> Vec<u8> {
        let bytes = std::fs::read(set.sandbox.path(TARGETS[number])).expect("there");
        let superblocks = RECORDS.map(|place| &bytes[place..place + 96]);
        let newest = superblocks
            .into_iter()
            .max_by_key(|superblock| superblock[SEQUENCE].to_vec());
        newest.expect("two places")[SINCE].to_vec()
    };
    set.write(&content);
    let now = since(&set, 0);
    assert_ne!(now, [0; 16]);
    for target in set.targets.iter().flatten() {
        target.signal(Signal::INT);
    }
    for number in 0..3 {
        document(set.targets[number].take().expect("it runs"));
        assert_eq!(since(&set, number), [0; 16]);
        set.start(number);
    }
    set.write(&content);
    for number in 0..3 {
        set.kill(number);
        assert_eq!(since(&set, number), now, "it was used again");
    }
}

#[test]
fn killed_service_loses_no_acknowledged_write() {
    for checksum in ["crc32c", "off"] {
        let mut set = Set::new(checksum);
        let (old, new) = (set.content(0), set.content(1));
        set.write(&old);
        let service = set.service(&[]);
        let writer = set.writer(&new);
        killed(service);
        expect_failure(writer);
        let service = set.service(&[]);
        let read = set.initiator("read_only_data_validity_test", &new, 10_000);
        wait_for_log(&service, VERIFIED, 1);
        document(read);
        let redundancy = redundancy(service);
        assert_eq!(redundancy["verified_stripes"]["unreadable"], 0);
        let service = set.service(&[]);
        let reader = set.reader(&new);
        set.reads_with_any_two(&service, reader);
    }
}

/// Every combination of old and new chunks that an interrupted write may leave.
#[test]
fn block_being_written_at_the_kill_is_old_or_new() {
    for checksum in ["crc32c", "off"] {
        let mut set = Set::new(checksum);
        let (old, new) = (set.content(0), set.content(1));
        // Checksums are bound to the set, so only the set's own targets have valid chunks of either content.
        let [new_chunks, old_chunks] = [&new, &old].map(|content| {
            set.write(content);
            [0, 1, 2].map(|number| set.stored(number))
        });
        // A session without I/O in flight.
        let service = set.service(&[]);
        let reader = set.reader(&old);
        killed(service);
        expect_failure(reader);
        (0..3).for_each(|number| set.kill(number));
        let (mut expected, bytes) = (
            std::fs::read(&old).expect("there"),
            std::fs::read(&new).expect("there"),
        );
        let mut expected_chunks = old_chunks;
        for block in 0..BLOCKS {
            let chunk = block * HALF..(block + 1) * HALF;
            for (number, chunks) in new_chunks.iter().enumerate() {
                if block >> number & 1 == 1 {
                    set.put(number, block, 0, &chunks[chunk.clone()]);
                }
            }
            // Any two chunks of one write are sufficient.
            if (block & 7).count_ones() > 1 {
                let place = block * BLOCK_SIZE..(block + 1) * BLOCK_SIZE;
                expected[place.clone()].copy_from_slice(&bytes[place]);
                for (expected, new) in expected_chunks.iter_mut().zip(&new_chunks) {
                    expected[chunk.clone()].copy_from_slice(&new[chunk.clone()]);
                }
            }
        }
        let expected = set.sandbox.file("expected", &expected);
        (0..3).for_each(|number| set.start(number));
        let service = set.service(&[]);
        // From the first I/O on, and not only once the resync is complete.
        let read = set.initiator("read_only_data_validity_test", &expected, 4 * BLOCKS);
        document(read);
        document(service);
        let service = set.service(&[]);
        let reader = set.reader(&expected);
        set.reads_with_any_two(&service, reader);
        // Recovered chunks are of the same write as the others.
        let end = redundancy(service);
        assert_eq!(end["verified_stripes"]["unreadable"], 0);
        (0..3).for_each(|number| set.kill(number));
        for (number, expected) in expected_chunks.iter().enumerate() {
            assert!(
                set.stored(number) == *expected,
                "what {} holds",
                TARGETS[number]
            );
        }
    }
}

/// A run that loses a target and continues, with the loss persisted by the other targets.
fn lose_under_load(set: &mut Set, service: &Process, content: &Path, lost: usize) -> Process {
    const KEPT: &str = ": epoch ";
    let mut writer = set.writer(content);
    let kept = |target: &Process| target.stderr().matches(KEPT).count();
    let before = set.targets.each_ref().map(|it| it.as_ref().map_or(0, kept));
    set.kill(lost);
    wait_for_log(service, "detached storage target", 1);
    for (target, before) in set.targets.iter().zip(before) {
        if let Some(target) = target {
            // They prepare an epoch without the lost target, and commit it.
            wait_for_log(target, KEPT, before + 2);
        }
    }
    under_way(&mut writer);
    under_way(&mut writer);
    writer
}

#[test]
fn target_lost_before_the_kill_is_rebuilt_by_the_next_service() {
    for (checksum, lost) in [("crc32c", 0), ("off", 1), ("crc32c", 2), ("off", 0)] {
        let mut set = Set::new(checksum);
        let (old, new) = (set.content(0), set.content(1));
        set.write(&old);
        let service = set.service(&[]);
        let writer = lose_under_load(&mut set, &service, &new, lost);
        killed(service);
        expect_failure(writer);

        set.start(lost);
        let service = set.service(&[]);
        // It has old data, which would be a mismatch.
        let reader = set.reader(&new);
        wait_for_log(&service, "stripes, all of them", 1);
        let whole = format!("storage target {} is up to date", TARGETS[lost]);
        wait_for_log(&service, &whole, 1);
        set.reads_with_any_two(&service, reader);
        assert_eq!(redundancy(service)["state"], "healthy");
    }
}

#[test]
fn next_session_excludes_the_lost_target() {
    let mut set = Set::new("crc32c");
    let (old, new) = (set.content(0), set.content(1));
    set.write(&old);
    let service = set.service(&["--sessions", "forever"]);
    let writer = lose_under_load(&mut set, &service, &new, 1);
    interrupted(writer);
    for number in [0, 2] {
        let target = set.targets[number].as_ref().expect("it runs");
        wait_for_log(target, "session 2 has ", 1);
    }
    set.start(1);
    // A target may refuse the service while its last session is ending: then this attempt fails, and the next one succeeds.
    let deadline = default_deadline();
    let reader = loop {
        let mut reader = set.initiator("read_only_data_validity_test", &new, ENDLESS);
        let begun = reader.wait_for("shown progress", TIMEOUT, |line| {
            line.contains("per second").then_some(())
        });
        match begun {
            Ok(()) => break reader,
            Err(failure) => assert!(
                std::time::Instant::now() < deadline,
                "{failure}: {}",
                service.stderr()
            ),
        }
    };
    wait_for_log(&service, "storage target data_2 is up to date", 1);
    set.reads_with_any_two(&service, reader);
}

#[test]
fn without_two_current_targets_no_session_starts() {
    let mut set = Set::new("crc32c");
    let content = set.content(0);
    let service = set.service(&[]);
    let writer = lose_under_load(&mut set, &service, &content, 0);
    set.kill(1);
    expect_failure(writer);
    drop(service);
    // One has missed writes, and the other one has lost its data.
    std::fs::remove_file(set.sandbox.path(TARGETS[1])).expect("it was there");
    (0..2).for_each(|number| set.start(number));
    let service = set.service(&[]);
    let refused = expect_failure(set.initiator("read_throughput_test", &content, BLOCKS));
    for part in [
        "expected two storage targets",
        "up to epoch 2",
        ", epoch 1 (",
        "data_2: empty or of no set",
        "name the one of epoch 2 with --rebuild",
    ] {
        assert!(refused.contains(part), "{refused}");
    }
    expect_failure(service);
}

#[test]
fn targets_of_different_sets_are_refused() {
    let (set, other) = (Set::new("crc32c"), Set::new("crc32c"));
    let content = set.content(0);
    set.write(&content);
    other.write(&content);
    let refused = |ports: [u16; 3]| {
        let service = set.sandbox.gga_service(ports, 2, &["--degraded", "on"]);
        let refused = expect_failure(set.initiator("read_throughput_test", &content, BLOCKS));
        expect_failure(service);
        refused
    };
    let [data_1, data_2, data_p] = set.ports;
    let exchanged = refused([data_2, data_1, data_p]);
    assert!(
        exchanged.contains("expected data_1 of its set, got data_2"),
        "{exchanged}"
    );
    let mixed = refused([data_1, other.ports[1], data_p]);
    assert!(
        mixed.contains("expected three storage targets of one set"),
        "{mixed}"
    );
}
