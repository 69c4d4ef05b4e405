//! `gga-offload --degraded on`: services and targets that are killed, and what the next ones make of what is left.

mod support;

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use conformance::process::{Process, Signal};
use serde_json::Value;
use support::gga::{TARGETS, compressible};
use support::{BLOCK_SIZE, Bench, PATIENCE, complaint, document, said, soon, text};

const BLOCKS: usize = 64;
const HALF: usize = BLOCK_SIZE / 2;
/// Where the blocks begin in a backing file.
const CONTENT_OFFSET: usize = 65536;
/// The two places of the record in a backing file, and where in it are its sequence and the boot id of the machine during which blocks were written
/// that may not be durable; zeros when all are.
const RECORDS: [usize; 2] = [4096, 8192];
const SEQUENCE: std::ops::Range<usize> = 8..16;
const SINCE: std::ops::Range<usize> = 48..64;
/// More than any test waits for.
const ENDLESS: usize = 2_000_000_000;

const VERIFYING: &str = "has come to no good end";
const VERIFIED: &str = "the halves of all stripes fit each other";

/// Three targets that keep their blocks in files, and serve one session after the other.
struct Set {
    bench: Bench,
    /// `crc32c` or `off`.
    checksum: &'static str,
    ports: [u16; 3],
    targets: [Option<Process>; 3],
}

impl Set {
    fn new(checksum: &'static str) -> Self {
        let bench = Bench::new();
        let started = [0, 1, 2].map(|number| bench.target(&arguments(&bench, number)));
        let ports = started.each_ref().map(|(_, port)| *port);
        Self {
            checksum,
            ports,
            targets: started.map(|(target, _)| Some(target)),
            bench,
        }
    }

    /// Blocks that differ from those of any other number.
    fn content(&self, number: usize) -> PathBuf {
        let all = compressible((number + 1) * BLOCKS * BLOCK_SIZE);
        let name = format!("content {number}");
        self.bench.file(&name, &all[number * BLOCKS * BLOCK_SIZE..])
    }

    fn service(&self, arguments: &[&str]) -> Process {
        let base = ["--degraded", "on", "--checksum", self.checksum];
        self.bench
            .gga_service(self.ports, 2, &[&base[..], arguments].concat())
    }

    fn initiator(&self, strategy: &str, content: &Path, operations: usize) -> Process {
        self.bench.gga_initiator(
            strategy,
            content,
            operations,
            2,
            &["--progress", "always", "--io-timeout", "30"],
        )
    }

    /// Writes this, in a session of its own.
    fn write(&self, content: &Path) -> Value {
        let service = self.service(&[]);
        document(self.initiator("read_write_data_validity_test", content, BLOCKS));
        document(service)
    }

    /// An initiator that writes this again and again, and has written all of it.
    fn writer(&self, content: &Path) -> Process {
        let mut writer = self.initiator("read_write_data_validity_test", content, ENDLESS);
        under_way(&mut writer);
        writer
    }

    fn kill(&mut self, number: usize) {
        killed(self.targets[number].take().expect("it runs"));
    }

    fn start(&mut self, number: usize) {
        let arguments = arguments(&self.bench, number);
        let target = self.bench.target_again(self.ports[number], &arguments);
        self.targets[number] = Some(target);
    }

    /// Reads all the time, and compares.
    fn reader(&self, content: &Path) -> Process {
        let mut reader = self.initiator("read_only_data_validity_test", content, ENDLESS);
        under_way(&mut reader);
        reader
    }

    /// Of the three targets, each is killed and comes back while this one reads.
    fn reads_with_any_two(&mut self, service: &Process, mut reader: Process) {
        for (number, name) in TARGETS.iter().enumerate() {
            let whole = format!("storage target {name} is whole again");
            let before = service.stderr().matches(&whole).count();
            self.kill(number);
            let lost = format!("lost storage target {name}");
            said(service, &lost, 1);
            under_way(&mut reader);
            self.start(number);
            said(service, &whole, before + 1);
        }
        interrupted(reader);
    }

    /// Overwrites what a target that does not run keeps of a block.
    fn put(&self, number: usize, block: usize, half: &[u8]) {
        let path = self.bench.path(TARGETS[number]);
        let file = std::fs::File::options().write(true).open(path);
        let offset = CONTENT_OFFSET + block * HALF;
        file.and_then(|file| file.write_all_at(half, offset as u64))
            .expect("written");
    }

    /// What a target that does not run keeps.
    fn stored(&self, number: usize) -> Vec<u8> {
        let bytes = std::fs::read(self.bench.path(TARGETS[number])).expect("there");
        bytes[CONTENT_OFFSET..].to_vec()
    }

    /// The halves that the three targets keep of this content.
    fn halves(&self, content: &Path) -> [Vec<u8>; 3] {
        let bytes = std::fs::read(content).expect("there");
        let name = format!(
            "halves of {}",
            content.file_name().expect("a name").display()
        );
        let flags = ["--checksum", self.checksum, "--block-size", "4096"];
        let files = self.bench.generate(&name, &bytes, &flags);
        files.map(|file| {
            let bytes = std::fs::read(file).expect("there");
            bytes[bytes.len() - BLOCKS * HALF..].to_vec()
        })
    }
}

/// Flags of a target that keeps its blocks in a file.
fn arguments(bench: &Bench, number: usize) -> Vec<&'static str> {
    let words = [
        "--cpu".to_owned(),
        "0".to_owned(),
        "--sessions".to_owned(),
        "forever".to_owned(),
        "--block-count".to_owned(),
        BLOCKS.to_string(),
        "--block-size".to_owned(),
        HALF.to_string(),
        "--backing-file".to_owned(),
        text(&bench.path(TARGETS[number])).to_owned(),
    ];
    words.map(|word| &*word.leak()).to_vec()
}

fn killed(mut process: Process) {
    process.signal(Signal::KILL);
    assert!(process.wait(soon()).is_some(), "killed");
}

/// Ends a run that all is well with.
fn interrupted(initiator: Process) {
    initiator.signal(Signal::INT);
    let said = complaint(initiator);
    assert!(said.contains("interrupted by the user"), "{said}");
}

/// Waits until a run has shown progress twice.
fn under_way(initiator: &mut Process) {
    for _ in 0..2 {
        initiator
            .wait_for("shown progress", PATIENCE, |line| {
                line.contains("per second").then_some(())
            })
            .expect("the run is under way");
    }
}

fn redundancy(service: Process) -> Value {
    document(service)["redundancy"].clone()
}

#[test]
fn a_good_end_is_trusted() {
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
fn a_use_by_a_service_that_keeps_no_records_is_not_trusted() {
    let set = Set::new("crc32c");
    let (old, new) = (set.content(0), set.content(1));
    set.write(&old);
    // It does not say when its last use has come to a good end.
    let service = set.bench.gga_service(set.ports, 2, &[]);
    document(set.initiator("read_write_data_validity_test", &new, BLOCKS));
    document(service);
    let service = set.service(&[]);
    let reader = set.reader(&new);
    said(&service, VERIFIED, 1);
    interrupted(reader);
    assert_eq!(redundancy(service)["verified_stripes"]["fitting"], BLOCKS);
}

#[test]
fn blocks_are_noted_to_be_on_the_disk_after_a_clean_stop_only() {
    let mut set = Set::new("crc32c");
    let content = set.content(0);
    let since = |set: &Set, number: usize| -> Vec<u8> {
        let bytes = std::fs::read(set.bench.path(TARGETS[number])).expect("there");
        let records = RECORDS.map(|place| &bytes[place..place + 68]);
        let newest = records
            .into_iter()
            .max_by_key(|record| record[SEQUENCE].to_vec());
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
fn a_service_that_is_killed_while_it_writes_loses_nothing() {
    for checksum in ["crc32c", "off"] {
        let mut set = Set::new(checksum);
        let (old, new) = (set.content(0), set.content(1));
        set.write(&old);
        let service = set.service(&[]);
        let writer = set.writer(&new);
        killed(service);
        complaint(writer);
        let service = set.service(&[]);
        let read = set.initiator("read_only_data_validity_test", &new, 10_000);
        said(&service, VERIFIED, 1);
        document(read);
        let redundancy = redundancy(service);
        assert_eq!(redundancy["verified_stripes"]["unreadable"], 0);
        let service = set.service(&[]);
        let reader = set.reader(&new);
        set.reads_with_any_two(&service, reader);
    }
}

/// Every mix of old and new halves that an interrupted write may leave.
#[test]
fn what_was_being_written_at_the_kill_is_old_or_new() {
    for checksum in ["crc32c", "off"] {
        let mut set = Set::new(checksum);
        let (old, new) = (set.content(0), set.content(1));
        set.write(&old);
        // In use, and nothing in flight.
        let service = set.service(&[]);
        let reader = set.reader(&old);
        killed(service);
        complaint(reader);
        (0..3).for_each(|number| set.kill(number));
        let halves = set.halves(&new);
        let (mut expected, bytes) = (
            std::fs::read(&old).expect("there"),
            std::fs::read(&new).expect("there"),
        );
        for block in 0..BLOCKS {
            for (number, half) in halves.iter().enumerate() {
                if block >> number & 1 == 1 {
                    set.put(number, block, &half[block * HALF..][..HALF]);
                }
            }
            // Two of one write make it up, whichever.
            if (block & 7).count_ones() > 1 {
                let place = block * BLOCK_SIZE..(block + 1) * BLOCK_SIZE;
                expected[place.clone()].copy_from_slice(&bytes[place]);
            }
        }
        let expected = set.bench.file("expected", &expected);
        (0..3).for_each(|number| set.start(number));
        let service = set.service(&[]);
        // From the first I/O on, and not only when all stripes were looked at.
        let read = set.initiator("read_only_data_validity_test", &expected, 4 * BLOCKS);
        document(read);
        document(service);
        let service = set.service(&[]);
        let reader = set.reader(&expected);
        set.reads_with_any_two(&service, reader);
        // What was made anew is of the same write as the others.
        let end = redundancy(service);
        assert_eq!(end["verified_stripes"]["unreadable"], 0);
        (0..3).for_each(|number| set.kill(number));
        let halves = set.halves(&expected);
        for (number, expected) in halves.iter().enumerate() {
            assert!(
                set.stored(number) == *expected,
                "what {} holds",
                TARGETS[number]
            );
        }
    }
}

/// A run in which a target is killed, and that goes on without it: the others keep that.
fn lose_under_load(set: &mut Set, service: &Process, content: &Path, lost: usize) -> Process {
    const KEPT: &str = ": epoch ";
    let mut writer = set.writer(content);
    let kept = |target: &Process| target.stderr().matches(KEPT).count();
    let before = set.targets.each_ref().map(|it| it.as_ref().map_or(0, kept));
    set.kill(lost);
    said(service, "lost storage target", 1);
    for (target, before) in set.targets.iter().zip(before) {
        if let Some(target) = target {
            said(target, KEPT, before + 1);
        }
    }
    under_way(&mut writer);
    under_way(&mut writer);
    writer
}

#[test]
fn a_target_that_was_lost_when_the_service_was_killed_is_rebuilt_by_the_next() {
    for (checksum, lost) in [("crc32c", 0), ("off", 1), ("crc32c", 2), ("off", 0)] {
        let mut set = Set::new(checksum);
        let (old, new) = (set.content(0), set.content(1));
        set.write(&old);
        let service = set.service(&[]);
        let writer = lose_under_load(&mut set, &service, &new, lost);
        killed(service);
        complaint(writer);

        set.start(lost);
        let service = set.service(&[]);
        // What it has is old, and would be compared.
        let reader = set.reader(&new);
        said(&service, "stripes, which is all it has", 1);
        let whole = format!("storage target {} is whole again", TARGETS[lost]);
        said(&service, &whole, 1);
        set.reads_with_any_two(&service, reader);
        assert_eq!(redundancy(service)["state"], "healthy");
    }
}

#[test]
fn the_next_session_knows_what_the_last_one_has_lost() {
    let mut set = Set::new("crc32c");
    let (old, new) = (set.content(0), set.content(1));
    set.write(&old);
    let service = set.service(&["--sessions", "forever"]);
    let writer = lose_under_load(&mut set, &service, &new, 1);
    interrupted(writer);
    for number in [0, 2] {
        let target = set.targets[number].as_ref().expect("it runs");
        said(target, "session 2 ended", 1);
    }
    set.start(1);
    // A target may still have refused the service when its last session was ending: then this one fails, and the next does not.
    let deadline = soon();
    let reader = loop {
        let mut reader = set.initiator("read_only_data_validity_test", &new, ENDLESS);
        let begun = reader.wait_for("shown progress", PATIENCE, |line| {
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
    said(&service, "storage target data_2 is whole again", 1);
    set.reads_with_any_two(&service, reader);
}

#[test]
fn without_two_that_have_what_was_written_nothing_is_served() {
    let mut set = Set::new("crc32c");
    let content = set.content(0);
    let service = set.service(&[]);
    let writer = lose_under_load(&mut set, &service, &content, 0);
    set.kill(1);
    complaint(writer);
    drop(service);
    // One has missed writes, and the other one has lost what it had.
    std::fs::remove_file(set.bench.path(TARGETS[1])).expect("it was there");
    (0..2).for_each(|number| set.start(number));
    let service = set.service(&[]);
    let refused = complaint(set.initiator("read_throughput_test", &content, BLOCKS));
    for part in [
        "expected two storage targets",
        "data_1 is of epoch 1",
        "data_2 is empty",
        "epoch 2",
    ] {
        assert!(refused.contains(part), "{refused}");
    }
    complaint(service);
}

#[test]
fn targets_that_do_not_belong_together_are_refused() {
    let (set, other) = (Set::new("crc32c"), Set::new("crc32c"));
    let content = set.content(0);
    set.write(&content);
    other.write(&content);
    let refused = |ports: [u16; 3]| {
        let service = set.bench.gga_service(ports, 2, &["--degraded", "on"]);
        let refused = complaint(set.initiator("read_throughput_test", &content, BLOCKS));
        complaint(service);
        refused
    };
    let [data_1, data_2, data_p] = set.ports;
    let exchanged = refused([data_2, data_1, data_p]);
    assert!(
        exchanged.contains("expected data_1 of its set, data_2 came"),
        "{exchanged}"
    );
}
