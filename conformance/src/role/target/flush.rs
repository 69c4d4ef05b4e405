//! Flushes and durable writes, an extension of the data path that both sides announce.

use wire::control::FEATURE_FLUSH;
use wire::io_message::{IoMessageType, Repr};

use super::io::{read, write};
use super::plan::{Plan, Step};
use super::service::Service;
use crate::role::{Bench, Check, During as _, Running, Wrong};

/// Bytes of a block.
const BLOCK: usize = 4096;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "flush-unannounced",
        meaning: "To a service that has announced nothing, flushes and durable writes are unknown, whatever the target has",
        play: |bench| {
            let (mut running, mut service) = open(bench)?;
            service.go_to(Step::Stop)?;
            refused(&mut service)?;
            service.finish(&mut running)
        },
    },
    Check {
        name: "flush-announced",
        meaning: "An announcement is answered as a query, and with flush only by a target that has it: then flushes and durable writes succeed, else they are unknown",
        play: announced,
    },
    Check {
        name: "flush-other-features",
        meaning: "Extensions that nobody knows are not announced back, and bring no flush",
        play: |bench| {
            let (mut running, mut service) = open(bench)?;
            let features = service.announce(!FEATURE_FLUSH)?;
            Wrong::unless(features == 0, "no extensions", format!("{features:#x}"))?;
            service.go_to(Step::Stop)?;
            refused(&mut service)?;
            service.finish(&mut running)
        },
    },
];

/// A target whose blocks are in a file, if it can have them there: only then there is something to flush.
fn open(bench: &Bench<'_>) -> Result<(Running, Service), Wrong> {
    let file = bench.scene().path("blocks").display().to_string();
    Service::at(bench, &["--backing-file", &file], Plan::SMALL, Step::Query)
        .or_else(|_| Service::at(bench, &[], Plan::SMALL, Step::Query))
}

fn of_type(message_type: IoMessageType, block: usize) -> Repr {
    let size = if message_type == IoMessageType::Flush {
        0
    } else {
        BLOCK
    };
    let offset = if size == 0 { 0 } else { block * BLOCK } as u64;
    Repr {
        message_type,
        ..write(0, offset, size)
    }
}

fn refused(service: &mut Service) -> Result<(), Wrong> {
    for message_type in [IoMessageType::Flush, IoMessageType::WriteFua] {
        let code = service.io(0, &of_type(message_type, 1))?;
        Wrong::unless(code != 0, "a result other than 0", code)
            .during(format!("{message_type:?}"))?;
        service.works()?;
    }
    Ok(())
}

fn announced(bench: &Bench<'_>) -> Result<(), Wrong> {
    let (mut running, mut service) = open(bench)?;
    let features = service.announce(FEATURE_FLUSH)?;
    service.go_to(Step::Stop)?;
    if features == 0 {
        refused(&mut service)?;
        return service.finish(&mut running);
    }
    let good = |service: &mut Service, request: Repr| {
        let code = service.io(0, &request)?;
        Wrong::unless(code == 0, "a result of 0", code).during(format!("{request:?}"))
    };
    for round in 1..=3_u8 {
        service.memory.fill(0, BLOCK, round)?;
        good(&mut service, of_type(IoMessageType::Write, 1))?;
        good(&mut service, of_type(IoMessageType::Flush, 0))?;
        service.memory.fill(0, BLOCK, round | 0x80)?;
        good(&mut service, of_type(IoMessageType::WriteFua, 2))?;
        good(&mut service, of_type(IoMessageType::Flush, 0))?;
        for (block, byte) in [(1, round), (2, round | 0x80)] {
            good(&mut service, read(0, (block * BLOCK) as u64, BLOCK))?;
            let mut bytes = [0; BLOCK];
            service.memory.read(0, &mut bytes)?;
            Wrong::unless(
                bytes == [byte; BLOCK],
                format!("block {block} full of {byte:#04x}"),
                format!("{:#04x}", bytes[0]),
            )?;
        }
    }
    let outside = Repr {
        storage_offset: 1 << 40,
        ..of_type(IoMessageType::WriteFua, 0)
    };
    let code = service.io(0, &outside)?;
    Wrong::unless(code != 0, "an error result beyond the end", code)?;
    service.finish(&mut running)
}
