//! Versions of blocks, an extension of the data path that both sides announce: written, read, retired, and still
//! present after the target was killed.
//!
//! A target that does not announce the extension passes all of these checks.

use rustix::process::Signal;
use wire::control::{AnnouncedStorage, FEATURE_FLUSH, FEATURE_VERSIONS, FeatureQuery, Payload};
use wire::io_message::IoMessageType::{self, ReadBefore, WriteVersion, WriteVersionFua};
use wire::io_message::{Repr, SIZE, Version};

use super::io::{read, write};
use super::{Plan, Service, Step, describe};
use crate::role::{Check, Fixture, Running};
use crate::violation::{During as _, Violation};

/// Size of a block in bytes.
const BLOCK: usize = 4096;

/// Epoch of all versions.
const EPOCH: u64 = 3;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "versions-unannounced",
        meaning: "To a service that has announced nothing, or flush only, writes of versions and reads of earlier ones are unknown",
        play: unannounced,
    },
    Check {
        name: "versions-announced",
        meaning: "A target that announces versions has slots for them, and none that is not retired when it is new",
        play: |fixture| {
            with_versions(fixture, |service, announced| {
                Violation::unless(announced.version_slots > 0, "slots for versions", "none")?;
                expect_kept(announced, (0, 0), &[], &[])?;
                service.go_to(Step::Stop)?;
                service.works()
            })
        },
    },
    Check {
        name: "versions-written",
        meaning: "A version replaces the block for reads, and reads before a version get the one before it, up to the block as it was",
        play: |fixture| with_versions(fixture, |service, _| written(service)),
    },
    Check {
        name: "versions-retired",
        meaning: "A version that replaces a retired one is read before and after; more versions than there are slots can be written if they are retired",
        play: |fixture| {
            with_versions(fixture, |service, announced| {
                retired(service, announced.version_slots)
            })
        },
    },
    Check {
        name: "versions-malformed",
        meaning: "A write of a version is of one whole block and has a number; other writes are refused where versions were announced, and others continue",
        play: |fixture| with_versions(fixture, |service, _| malformed(service)),
    },
    Check {
        name: "versions-reserved-bytes",
        meaning: "The reserved bytes and the result of a write of a version mean nothing",
        play: |fixture| with_versions(fixture, |service, _| reserved_bytes(service)),
    },
    Check {
        name: "versions-survive",
        meaning: "A target with a backing file that is killed announces the last version and at least the blocks with versions that are not retired, and has them all",
        play: survive,
    },
];

fn version(number: u64) -> Version {
    Version {
        epoch: EPOCH,
        number,
        retired: 0,
    }
}

fn at(block: u64) -> u64 {
    block * BLOCK as u64
}

/// A target with its blocks in this file, if it supports that.
fn open(fixture: &Fixture<'_>) -> Result<(Running, Service), Violation> {
    let file = fixture.sandbox().path("blocks").display().to_string();
    let flags = ["--backing-file", &file];
    Service::at(fixture, &flags, Plan::SMALL, Step::Query)
        .or_else(|_| Service::at(fixture, &[], Plan::SMALL, Step::Query))
}

/// Announces versions; `None` if the target does not announce them.
fn announce(service: &mut Service) -> Result<Option<AnnouncedStorage>, Violation> {
    let features = FEATURE_FLUSH | FEATURE_VERSIONS;
    let answer = service.ask(Payload::AnnounceStorageRequest(FeatureQuery { features }))?;
    service.taken(Step::Query);
    match answer {
        Payload::AnnouncedStorageResponse(it) if it.features & FEATURE_VERSIONS != 0 => {
            Ok(Some(it))
        }
        Payload::AnnouncedStorageResponse(_) | Payload::QueryStorageResponse(_) => Ok(None),
        other => Err(Violation::expected(
            "query_storage_response",
            describe(&other),
        )),
    }
}

/// Executes a check with a new target that announces versions, and ends the session.
fn with_versions(
    fixture: &Fixture<'_>,
    check: impl FnOnce(&mut Service, &AnnouncedStorage) -> Result<(), Violation>,
) -> Result<(), Violation> {
    let (mut running, mut service) = open(fixture)?;
    if let Some(announced) = announce(&mut service)? {
        check(&mut service, &announced)?;
    }
    service.finish(&mut running)
}

/// Checks that the target has announced this last version, and the blocks `unretired`, whose versions are not retired.
/// In addition, it may announce only blocks of which it has `retired` versions, because it is not required to remember
/// retirement.
fn expect_kept(
    announced: &AnnouncedStorage,
    last: (u64, u64),
    unretired: &[u64],
    retired: &[u64],
) -> Result<(), Violation> {
    let found = (announced.last_epoch, announced.last_number);
    Violation::unless(
        found == last,
        format!("last version {last:?}"),
        format!("{found:?}"),
    )?;
    let words = announced.unretired.chunks(size_of::<u64>());
    let found: Vec<u64> = words
        .map(|word| word.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
        .collect();
    let is_expected = found.is_sorted_by(|a, b| a < b)
        && unretired.iter().all(|block| found.contains(block))
        && (found.iter()).all(|block| unretired.contains(block) || retired.contains(block));
    Violation::unless(
        is_expected,
        format!("versions of {unretired:?} that are not retired, and perhaps of {retired:?}"),
        format!("{found:?}"),
    )
}

/// Sends an I/O with a version, and returns the code of its result.
fn exchange(
    service: &mut Service,
    request: Repr,
    version: Version,
    change: impl FnOnce(&mut [u8; SIZE]),
) -> Result<u32, Violation> {
    let mut bytes = request.to_bytes();
    version.write(&mut bytes);
    change(&mut bytes);
    service.workers[0].send(&bytes)?;
    let result = service.result(0)?;
    let expected = request.answer(result.result);
    Violation::unless(
        result == expected,
        format!("{expected:?}"),
        format!("{result:?}"),
    )?;
    Ok(result.result)
}

fn succeeds(service: &mut Service, request: Repr, version: Version) -> Result<(), Violation> {
    let what = format!("{request:?} {version:?}");
    let code = exchange(service, request, version, |_| {}).during(&what)?;
    Violation::unless(code == 0, "a result of 0", code).during(what)
}

fn is_refused(service: &mut Service, request: Repr, version: Version) -> Result<(), Violation> {
    let what = format!("{request:?} {version:?}");
    let code = exchange(service, request, version, |_| {}).during(&what)?;
    Violation::unless(code != 0, "a result other than 0", code).during(what)?;
    service.works()
}

fn of_type(message_type: IoMessageType, block: u64) -> Repr {
    Repr {
        message_type,
        ..write(0, at(block), BLOCK)
    }
}

/// Writes a block whose bytes all have this value.
fn write_version(
    service: &mut Service,
    message_type: IoMessageType,
    block: u64,
    byte: u8,
    version: Version,
) -> Result<(), Violation> {
    service.memory.fill(0, BLOCK, byte)?;
    succeeds(service, of_type(message_type, block), version)
}

/// Checks that all bytes of the block or, with a version, of the version before it, have this value.
fn expect_block(
    service: &mut Service,
    block: u64,
    before: Option<u64>,
    byte: u8,
) -> Result<(), Violation> {
    service.memory.fill(0, BLOCK, 0xee)?;
    match before {
        None => succeeds(service, read(0, at(block), BLOCK), version(0))?,
        Some(number) => {
            let request = of_type(ReadBefore, block);
            succeeds(service, request, version(number))?;
        }
    }
    let mut bytes = [0; BLOCK];
    service.memory.read(0, &mut bytes)?;
    Violation::unless(
        bytes == [byte; BLOCK],
        format!("block {block} before {before:?} full of {byte:#04x}"),
        format!("{:#04x}", bytes[0]),
    )
}

fn flush(service: &mut Service, retired: u64) -> Result<(), Violation> {
    let request = Repr {
        size: 0,
        ..of_type(IoMessageType::Flush, 0)
    };
    let version = Version {
        retired,
        ..version(0)
    };
    succeeds(service, request, version)
}

fn unannounced(fixture: &Fixture<'_>) -> Result<(), Violation> {
    for features in [0, FEATURE_FLUSH] {
        let (mut running, mut service) = open(fixture)?;
        if features != 0 {
            service.announce(features)?;
        }
        service.go_to(Step::Stop)?;
        for message_type in [WriteVersion, WriteVersionFua, ReadBefore] {
            is_refused(&mut service, of_type(message_type, 1), version(2))?;
        }
        service.finish(&mut running)?;
        // The next target must create a new file.
        let _ = std::fs::remove_file(fixture.sandbox().path("blocks"));
    }
    Ok(())
}

fn written(service: &mut Service) -> Result<(), Violation> {
    service.go_to(Step::Stop)?;
    for (number, message_type) in [(2, WriteVersion), (4, WriteVersionFua), (7, WriteVersion)] {
        write_version(service, message_type, 1, number, version(number.into()))?;
        expect_block(service, 1, None, number)?;
    }
    write_version(service, WriteVersion, 2, 0x55, version(6))?;
    for (before, byte) in [(8, 7), (7, 4), (6, 4), (4, 2), (3, 2), (2, 0), (1, 0)] {
        expect_block(service, 1, Some(before), byte)?;
    }
    expect_block(service, 2, Some(6), 0)?;
    expect_block(service, 2, None, 0x55)?;
    expect_block(service, 3, Some(9), 0)?;
    expect_block(service, 3, None, 0)?;
    // Versions of earlier epochs are older.
    let next = Version {
        epoch: EPOCH + 1,
        number: 1,
        retired: 0,
    };
    write_version(service, WriteVersion, 1, 0x99, next)?;
    expect_block(service, 1, None, 0x99)?;
    expect_block(service, 1, Some(7), 4)?;
    service.memory.fill(0, BLOCK, 0xee)?;
    succeeds(service, of_type(ReadBefore, 1), next)?;
    let mut bytes = [0; BLOCK];
    service.memory.read(0, &mut bytes)?;
    Violation::unless(
        bytes == [7; BLOCK],
        "the last version of the epoch before",
        format!("{:#04x}", bytes[0]),
    )
}

fn retired(service: &mut Service, slots: u32) -> Result<(), Violation> {
    service.go_to(Step::Stop)?;
    let writes = u64::from(slots) * 5 / 2;
    for number in 2..writes + 2 {
        // Two versions are not retired.
        let retired = (number - 2).max(1);
        let version = Version {
            retired,
            ..version(number)
        };
        let block = number % 3;
        write_version(service, WriteVersion, block, number as u8, version)?;
        if number % 64 == 0 {
            flush(service, retired)?;
        }
    }
    let last = writes + 1;
    for number in last - 2..=last {
        expect_block(service, number % 3, None, number as u8)?;
    }
    // The version that the last write replaced is the newest retired version of its block, unless the last write is
    // also retired.
    expect_block(service, last % 3, Some(last), (last - 3) as u8)?;
    flush(service, last + 1)?;
    expect_block(service, last % 3, None, last as u8)
}

fn malformed(service: &mut Service) -> Result<(), Violation> {
    service.go_to(Step::Stop)?;
    write_version(service, WriteVersion, 1, 0x11, version(2))?;
    for message_type in [WriteVersion, WriteVersionFua, ReadBefore] {
        let whole = of_type(message_type, 1);
        let size = BLOCK as u32;
        let wrong = [
            Repr { size: 0, ..whole },
            Repr { size: 1, ..whole },
            Repr {
                size: size / 2,
                ..whole
            },
            Repr {
                size: 2 * size,
                ..whole
            },
            Repr {
                storage_offset: at(1) + 512,
                ..whole
            },
            Repr {
                storage_offset: 1 << 40,
                ..whole
            },
            Repr {
                storage_offset: u64::MAX - at(1) + 1,
                ..whole
            },
            Repr {
                requester_offset: 1 << 40,
                ..whole
            },
        ];
        for request in wrong {
            is_refused(service, request, version(3))?;
        }
        if message_type != ReadBefore {
            is_refused(service, whole, version(0))?;
        }
    }
    for message_type in [IoMessageType::Write, IoMessageType::WriteFua] {
        is_refused(service, of_type(message_type, 1), version(0))?;
    }
    expect_block(service, 1, None, 0x11)?;
    expect_block(service, 1, Some(2), 0)
}

fn reserved_bytes(service: &mut Service) -> Result<(), Violation> {
    service.go_to(Step::Stop)?;
    for (number, message_type) in [(2, WriteVersion), (3, WriteVersionFua), (4, ReadBefore)] {
        service.memory.fill(0, BLOCK, 0x40 | number)?;
        let request = of_type(message_type, 1);
        let code = exchange(service, request, version(number.into()), |bytes| {
            bytes[4..8].fill(0xff);
            bytes[16..20].fill(0xff);
        })?;
        Violation::unless(code == 0, "a result of 0", code).during(format!("{message_type:?}"))?;
    }
    expect_block(service, 1, None, 0x43)?;
    expect_block(service, 1, Some(3), 0x42)
}

fn survive(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let file = fixture.sandbox().path("blocks").display().to_string();
    let flags = ["--backing-file", &file];
    let Ok((mut running, mut service)) = Service::at(fixture, &flags, Plan::SMALL, Step::Query)
    else {
        // The target's blocks are lost when its process exits.
        return Ok(());
    };
    if announce(&mut service)?.is_none() {
        return service.finish(&mut running);
    }
    service.go_to(Step::Stop)?;
    for (number, block) in [(2, 5), (3, 1), (4, 5), (5, 7), (6, 1), (7, 1)] {
        write_version(
            &mut service,
            WriteVersion,
            block,
            number,
            version(number.into()),
        )?;
    }
    // The flush retires versions below 5: the only version of block 5 is retired.
    flush(&mut service, 5)?;
    let restart = |running: &mut Running| {
        running.signal(Signal::KILL);
        let ended = running.ends_within(fixture.timeout());
        Violation::unless(ended, "the target to be killed", "it running")?;
        Service::at(fixture, &flags, Plan::SMALL, Step::Query)
    };
    for _ in 0..2 {
        (running, service) = restart(&mut running)?;
        let announced = announce(&mut service)?;
        let announced = announced.ok_or_else(|| Violation::expected("versions", "none"))?;
        expect_kept(&announced, (EPOCH, 7), &[1, 7], &[5])?;
        service.go_to(Step::Stop)?;
        for (block, byte) in [(5, 4), (1, 7), (7, 5)] {
            expect_block(&mut service, block, None, byte)?;
        }
        for (before, byte) in [(8, 7), (7, 6), (6, 3)] {
            expect_block(&mut service, 1, Some(before), byte)?;
        }
        expect_block(&mut service, 7, Some(5), 0)?;
    }
    write_version(&mut service, WriteVersion, 2, 8, version(8))?;
    flush(&mut service, 9)?;
    service.finish(&mut running)?;
    (running, service) = Service::at(fixture, &flags, Plan::SMALL, Step::Query)?;
    let announced = announce(&mut service)?;
    let announced = announced.ok_or_else(|| Violation::expected("versions", "none"))?;
    expect_kept(&announced, (EPOCH, 8), &[], &[1, 2, 5, 7])?;
    service.go_to(Step::Stop)?;
    for (block, byte) in [(5, 4), (1, 7), (7, 5), (2, 8)] {
        expect_block(&mut service, block, None, byte)?;
    }
    service.finish(&mut running)
}
