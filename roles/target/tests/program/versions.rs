//! Targets that keep versions of blocks, as processes: this test acts as the service, and kills the target.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use doca::ErrorCode;
use role_formats::stored_block::MatrixType;
use role_formats::superblock::{Epoch, Form, Format, SetId, Superblock};
use rustix::process::Signal;
use wire::control::{
    AnnouncedStorage, FEATURE_FLUSH, FEATURE_VERSIONS, FeatureQuery, IdentityQuery, Payload,
    RecordState,
};
use wire::io_message::IoMessageType::{
    self, Flush, Read, ReadBefore, Write, WriteFua, WriteVersion, WriteVersionFua,
};
use wire::io_message::Version;

use crate::{BLOCK, Client, TIMEOUT, Target, request, start};

const BLOCKS: usize = 16;
const EPOCH: u64 = 5;
/// Slots of a small storage.
const SLOTS: u64 = 1024;
/// Offset of the first block in a file.
const CONTENT: u64 = 65536;

fn flags(file: Option<&Path>) -> String {
    let file = file.map(|path| format!(" --backing-file {}", path.display()));
    format!("--block-count {BLOCKS}{}", file.unwrap_or_default())
}

/// A service that has announced versions.
struct Writer {
    client: Client,
    announced: AnnouncedStorage,
}

impl Writer {
    /// Begins a session with a member of a set.
    fn new(target: &Target) -> Self {
        let mut writer = Self::without_superblock(target);
        writer.persist(MEMBER);
        writer
    }

    fn without_superblock(target: &Target) -> Self {
        let query = Payload::AnnounceStorageRequest(FeatureQuery {
            features: FEATURE_FLUSH | FEATURE_VERSIONS,
        });
        let mut service = target.connect();
        // Members refuse services that do not request superblocks.
        let identify = Payload::IdentifyStorageRequest(IdentityQuery::WITHOUT_SUPERBLOCK);
        let identified = service.request(identify);
        assert!(
            matches!(identified, Payload::IdentifiedStorageResponse(_)),
            "{identified:?}"
        );
        match Client::with(service, BLOCK * BLOCKS, query) {
            (client, Payload::AnnouncedStorageResponse(announced)) => Self { client, announced },
            (_, other) => panic!("expected an announcement, got {other:?}"),
        }
    }

    fn persist(&mut self, superblock: Superblock) {
        let request = Payload::IdentifyStorageRequest(superblock.request());
        let answer = self.client.service.request(request);
        assert!(
            matches!(answer, Payload::IdentifiedStorageResponse(_)),
            "{answer:?}"
        );
    }

    fn unretired(&self) -> Vec<u64> {
        let numbers = self.announced.unretired.chunks_exact(8);
        numbers
            .map(|bytes| u64::from_be_bytes(bytes.try_into().expect("8 bytes")))
            .collect()
    }

    fn last(&self) -> (u64, u64) {
        (self.announced.last_epoch, self.announced.last_number)
    }

    fn io(
        &mut self,
        kind: IoMessageType,
        (offset, size): (usize, usize),
        version: Version,
    ) -> ErrorCode {
        let request = request(kind, 0, offset, size);
        let mut bytes = request.to_bytes();
        version.write(&mut bytes);
        let answer = self.client.exchange(&bytes);
        assert_eq!(answer, request.answer(answer.result));
        ErrorCode(answer.result)
    }

    /// Writes a version, all of whose bytes are its number.
    fn write(&mut self, kind: IoMessageType, block: usize, number: u64, retired: u64) -> ErrorCode {
        let memory = &self.client.memory;
        memory.fill(0, BLOCK, number as u8).expect("inside");
        let version = Version {
            epoch: EPOCH,
            number,
            retired,
        };
        self.io(kind, (block * BLOCK, BLOCK), version)
    }

    /// Number of the version of a block before this one.
    fn before(&mut self, block: usize, number: u64) -> u8 {
        let version = Version {
            epoch: EPOCH,
            number,
            retired: 0,
        };
        let code = self.io(ReadBefore, (block * BLOCK, BLOCK), version);
        assert_eq!(code, ErrorCode::SUCCESS);
        self.number(BLOCK)
    }

    fn newest(&mut self, block: usize) -> u8 {
        let code = self.io(Read, (block * BLOCK, BLOCK), NONE);
        assert_eq!(code, ErrorCode::SUCCESS);
        self.number(BLOCK)
    }

    /// The common value of all bytes.
    fn number(&self, size: usize) -> u8 {
        let mut bytes = vec![0; size];
        self.client.memory.read(0, &mut bytes).expect("inside");
        assert!(
            bytes.iter().all(|&byte| byte == bytes[0]),
            "torn: {bytes:?}"
        );
        bytes[0]
    }

    fn flush(&mut self, retired: u64) {
        let version = Version {
            epoch: EPOCH,
            number: 0,
            retired,
        };
        assert_eq!(self.io(Flush, (0, 0), version), ErrorCode::SUCCESS);
    }

    /// Waits until the version before this one is at the block's place.
    fn wait_until_applied(&mut self, block: usize, number: u64) {
        let deadline = Instant::now() + TIMEOUT;
        while u64::from(self.before(block, 1)) != number {
            assert!(Instant::now() < deadline, "it is not applied");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

const MEMBER: Superblock = Superblock {
    set: SetId(7),
    member: 0,
    epoch: Epoch {
        number: EPOCH,
        id: 9,
    },
    next: Epoch::NONE,
    state: RecordState::InUse,
    form: Form {
        format: Format::StoredChunks,
        matrix: MatrixType::Vandermonde,
        logical_block_size: 4096,
    },
};

const NONE: Version = Version {
    epoch: 0,
    number: 0,
    retired: 0,
};

fn in_memory_and_in_a_file(test: impl Fn(Option<&Path>)) {
    test(None);
    let directory = tempfile::tempdir().expect("a directory");
    test(Some(&directory.path().join("blocks")));
}

#[test]
fn versions_of_a_block_are_read_one_after_the_other() {
    in_memory_and_in_a_file(|file| {
        let target = start(&flags(file));
        let mut writer = Writer::new(&target);
        let flush = if file.is_some() { FEATURE_FLUSH } else { 0 };
        assert_eq!(writer.announced.features, FEATURE_VERSIONS | flush);
        assert_eq!(u64::from(writer.announced.version_slots), SLOTS);
        assert_eq!((writer.last(), writer.unretired()), ((0, 0), vec![]));
        for (kind, block, number) in [
            (WriteVersion, 2, 1),
            (WriteVersionFua, 2, 2),
            (WriteVersion, 3, 3),
            (WriteVersion, 2, 4),
        ] {
            let code = writer.write(kind, block, number, 0);
            assert_eq!(code, ErrorCode::SUCCESS);
        }
        assert_eq!((writer.newest(2), writer.newest(3)), (4, 3));
        let before: Vec<_> = [9, 4, 3, 2, 1].map(|it| writer.before(2, it)).into();
        assert_eq!(before, [4, 2, 2, 1, 0]);
        // Blocks 1 to 4, from the middle of the first to the middle of the last.
        let code = writer.io(Read, (BLOCK + BLOCK / 2, 3 * BLOCK), NONE);
        assert_eq!(code, ErrorCode::SUCCESS);
        let mut bytes = vec![7; 3 * BLOCK];
        writer.client.memory.read(0, &mut bytes).expect("inside");
        let halves: Vec<u8> = bytes.chunks(BLOCK / 2).map(|half| half[1]).collect();
        assert_eq!(halves, [0, 4, 4, 3, 3, 0]);

        for kind in [Write, WriteFua] {
            assert_eq!(
                writer.write(kind, 5, 5, 0),
                ErrorCode::NOT_PERMITTED,
                "{kind:?}"
            );
        }
        assert_eq!(
            writer.write(WriteVersion, 5, 0, 0),
            ErrorCode::INVALID_VALUE
        );
        for (offset, size) in [(0, BLOCK / 2), (BLOCK / 2, BLOCK), (0, 2 * BLOCK)] {
            let version = Version {
                epoch: EPOCH,
                number: 9,
                retired: 0,
            };
            for kind in [WriteVersion, WriteVersionFua, ReadBefore] {
                let code = writer.io(kind, (offset, size), version);
                assert_eq!(code, ErrorCode::INVALID_VALUE, "{kind:?} {offset} {size}");
            }
        }

        // Retired versions are applied once more than half of the slots are used.
        writer.flush(4);
        assert_eq!(writer.before(2, 1), 0);
        for number in 5..=SLOTS / 2 + 2 {
            let code = writer.write(WriteVersion, 9, number, 4);
            assert_eq!(code, ErrorCode::SUCCESS, "{number}");
        }
        writer.wait_until_applied(2, 2);
        assert_eq!(
            (writer.newest(2), writer.newest(3), writer.before(2, 4)),
            (4, 3, 2)
        );
        let exit = writer.client.stop(target);
        assert_eq!(exit.status.code(), Some(0), "{exit:?}");
    });
}

#[test]
fn versions_survive_a_kill_and_those_that_are_not_retired_are_announced() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("blocks");
    let target = start(&flags(Some(&path)));
    let mut writer = Writer::new(&target);
    let mut number = 0;
    for block in [7, 3, 3, 11, 3, 7] {
        number += 1;
        let code = writer.write(WriteVersion, block, number, 3);
        assert_eq!(code, ErrorCode::SUCCESS);
    }
    target.signal(Signal::KILL);
    drop((writer, target));

    let target = start(&flags(Some(&path)));
    let mut writer = Writer::new(&target);
    // Versions 1 and 2 are retired.
    assert_eq!(writer.unretired(), [3, 7, 11]);
    assert_eq!(writer.last(), (EPOCH, 6));
    let newest = [3, 7, 11, 0].map(|block| writer.newest(block));
    assert_eq!(newest, [5, 6, 4, 0]);
    assert_eq!((writer.before(3, 5), writer.before(3, 3)), (3, 2));
    assert_eq!((writer.before(7, 6), writer.before(11, 4)), (1, 0));
    // A later epoch retires all earlier ones.
    let version = Version {
        epoch: EPOCH + 1,
        number: 1,
        retired: 1,
    };
    let code = writer.io(WriteVersionFua, (3 * BLOCK, BLOCK), version);
    assert_eq!(code, ErrorCode::SUCCESS);
    let exit = writer.client.stop(target);
    assert_eq!(exit.status.code(), Some(0), "{exit:?}");

    // A clean shutdown has copied retired versions to their places.
    let place = |block: usize| {
        let mut bytes = vec![0; BLOCK];
        let file = File::open(&path).expect("there");
        let offset = CONTENT + (block * BLOCK) as u64;
        file.read_exact_at(&mut bytes, offset).expect("read");
        assert!(bytes.iter().all(|&byte| byte == bytes[0]));
        bytes[0]
    };
    assert_eq!([3, 7, 11, 0].map(place), [5, 6, 4, 0]);
    let target = start(&flags(Some(&path)));
    let writer = Writer::new(&target);
    assert_eq!(writer.unretired(), [3]);
    assert_eq!(writer.last(), (EPOCH + 1, 1));
    drop(writer);
}

#[test]
fn full_slots_are_an_error_until_versions_are_retired() {
    in_memory_and_in_a_file(|file| {
        let target = start(&flags(file));
        let mut writer = Writer::new(&target);
        for number in 1..=SLOTS {
            let code = writer.write(WriteVersion, number as usize % BLOCKS, number, 0);
            assert_eq!(code, ErrorCode::SUCCESS, "{number}");
        }
        let code = writer.write(WriteVersion, 1, SLOTS + 1, 0);
        assert_eq!(code, ErrorCode::NO_MEMORY);
        // A service that retires its writes therefore never has to wait for long.
        for number in SLOTS + 1..=5 * SLOTS {
            let block = number as usize % BLOCKS;
            let code = writer.write(WriteVersion, block, number, number - 3);
            assert_eq!(code, ErrorCode::SUCCESS, "{number}");
            assert_eq!(writer.newest(block), number as u8);
            assert_eq!(
                writer.before(block, number),
                (number - BLOCKS as u64) as u8,
                "{number}"
            );
        }
        let exit = writer.client.stop(target);
        assert_eq!(exit.status.code(), Some(0), "{exit:?}");
    });
}

#[test]
fn service_without_versions_reads_the_newest_and_writes_over_it() {
    in_memory_and_in_a_file(|file| {
        let target = start(&format!("{} --sessions 3", flags(file)));
        let mut writer = Writer::without_superblock(&target);
        for number in 1..=3 {
            let code = writer.write(WriteVersion, 6, number, 0);
            assert_eq!(code, ErrorCode::SUCCESS);
        }
        end(writer.client);
        let mut client = Client::new(target.connect());
        let read = request(Read, 0, 6 * BLOCK, BLOCK);
        assert_eq!(client.io(read), ErrorCode::SUCCESS);
        let mut bytes = [0; BLOCK];
        client.memory.read(0, &mut bytes).expect("inside");
        assert_eq!(bytes, [3; BLOCK]);
        client.memory.fill(0, BLOCK, 9).expect("inside");
        let write = request(Write, 0, 6 * BLOCK, BLOCK);
        assert_eq!(client.io(write), ErrorCode::SUCCESS);
        for kind in [WriteVersion, WriteVersionFua, ReadBefore] {
            let unknown = request(kind, 0, 6 * BLOCK, BLOCK);
            assert_eq!(client.io(unknown), ErrorCode::INVALID_VALUE);
        }
        end(client);
        let mut writer = Writer::without_superblock(&target);
        assert_eq!((writer.newest(6), writer.unretired()), (9, vec![]));
        let exit = writer.client.stop(target);
        assert_eq!(exit.status.code(), Some(0), "{exit:?}");
    });
}

/// Ends one of several sessions of a target.
fn end(mut client: Client) {
    for (request, answer) in [
        (Payload::StopStorageRequest, Payload::StopStorageResponse),
        (Payload::ShutdownRequest, Payload::ShutdownResponse),
    ] {
        assert_eq!(client.service.request(request), answer);
    }
}

#[test]
fn versions_are_forgotten_with_the_set_of_the_superblock() {
    in_memory_and_in_a_file(|file| {
        let target = start(&flags(file));
        let mut writer = Writer::new(&target);
        assert_eq!(writer.write(WriteVersion, 6, 1, 0), ErrorCode::SUCCESS);
        for kept in [
            Superblock {
                state: RecordState::Closing,
                ..MEMBER
            },
            Superblock {
                epoch: Epoch::NONE,
                ..MEMBER
            },
        ] {
            writer.persist(kept);
            assert_eq!(writer.newest(6), 1, "the same set: {kept:?}");
        }
        writer.persist(Superblock {
            set: SetId(8),
            ..MEMBER
        });
        assert_eq!(writer.newest(6), 0);
        assert_eq!(writer.write(WriteVersion, 6, 2, 0), ErrorCode::SUCCESS);
        if let Some(path) = file {
            target.signal(Signal::KILL);
            drop((writer, target));
            let target = start(&flags(Some(path)));
            let mut service = target.connect();
            let query = Payload::AnnounceStorageRequest(FeatureQuery {
                features: FEATURE_VERSIONS,
            });
            let Payload::AnnouncedStorageResponse(announced) = service.request(query) else {
                panic!("expected an announcement");
            };
            assert_eq!(announced.unretired[..], 6_u64.to_be_bytes());
            assert_eq!((announced.last_epoch, announced.last_number), (EPOCH, 2));
        }
    });
}

/// A replaced target is rebuilt while its first superblock is in flight.
#[test]
fn versions_before_the_first_superblock_belong_to_its_set_if_they_are_of_the_same_session() {
    in_memory_and_in_a_file(|file| {
        let target = start(&format!("{} --sessions 3", flags(file)));
        let mut writer = Writer::without_superblock(&target);
        assert_eq!(writer.write(WriteVersion, 6, 9, 0), ErrorCode::SUCCESS);
        end(writer.client);
        let mut writer = Writer::without_superblock(&target);
        assert_eq!(writer.newest(6), 0, "of no set");
        assert_eq!(writer.write(WriteVersion, 6, 1, 0), ErrorCode::SUCCESS);
        writer.persist(MEMBER);
        assert_eq!(writer.newest(6), 1);
        end(writer.client);
        let mut writer = Writer::new(&target);
        assert_eq!(writer.newest(6), 1);
    });
}
