//! The transmission phase, without a socket and a device: validation of requests, and completions in any order.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::*;
use nbd_frontend::device::{Failed, Operation};
use nbd_frontend::negotiation::{Agreement, Violation};
use nbd_frontend::protocol::Export;
use nbd_frontend::transmission::{Body, Limits, Next, Outcome, Part, Transmission};
use proptest::prelude::*;

const SIZE: u64 = 64 * 1024;
const LIMITS: Limits = Limits {
    segment: 8192,
    in_flight: 4,
    staged: 20_000,
};

/// A transmission phase over an array of bytes.
struct Simulated {
    transmission: Transmission,
    disk: Vec<u8>,
    /// Offset of a byte on which I/Os fail.
    bad: u64,
    issued: Vec<(u32, Part, Vec<u8>)>,
    sent: Vec<u8>,
    flushes: u32,
}

impl Simulated {
    fn new(structured: bool, export: Export, native_fua: bool) -> Self {
        let agreed = Agreement {
            structured,
            allocation: structured,
        };
        Self {
            transmission: Transmission::new(Arc::new(export), native_fua, agreed, LIMITS),
            disk: pattern(SIZE as usize, 1),
            bad: u64::MAX,
            issued: Vec::new(),
            sent: Vec::new(),
            flushes: 0,
        }
    }

    fn plain(structured: bool) -> Self {
        Self::new(structured, export(SIZE), true)
    }

    /// Consumes as much of the input as possible; returns the number of bytes.
    fn receive(&mut self, input: &[u8]) -> usize {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            match self.transmission.next() {
                Next::Request => {
                    let Some(bytes) = rest.first_chunk() else {
                        return at;
                    };
                    let taken = self.transmission.request(bytes, &mut self.sent);
                    taken.expect("a request");
                    at += bytes.len();
                }
                Next::Issue(part) => {
                    assert!(part.operation != Operation::Read || part.len <= LIMITS.segment);
                    self.issue(part, Vec::new());
                }
                Next::Fill(part) => {
                    assert!(part.len <= LIMITS.segment);
                    let Some(payload) = rest.get(..part.len as usize) else {
                        return at;
                    };
                    self.issue(part, payload.to_vec());
                    at += part.len as usize;
                }
                Next::Skip(count) => {
                    let count = rest.len().min(count as usize);
                    if count == 0 {
                        return at;
                    }
                    self.transmission.skipped(count as u32);
                    at += count;
                }
                Next::Wait | Next::End => return at,
            }
        }
    }

    fn issue(&mut self, part: Part, payload: Vec<u8>) {
        let number = self.transmission.issue();
        assert!(self.issued.iter().all(|(it, ..)| *it != number));
        self.issued.push((number, part, payload));
    }

    /// Completes the I/O at index `at`.
    fn complete(&mut self, at: usize) {
        let (number, part, mut data) = self.issued.remove(at);
        let range = part.offset as usize..part.offset as usize + part.len as usize;
        assert!(range.end <= self.disk.len(), "{part:?}");
        let is_bad = (part.offset..part.offset + u64::from(part.len)).contains(&self.bad);
        match part.operation {
            _ if is_bad => {}
            Operation::Read => data = self.disk[range].to_vec(),
            Operation::Write { .. } => self.disk[range].copy_from_slice(&data),
            Operation::WriteZeroes { .. } => self.disk[range].fill(0),
            Operation::Flush => self.flushes += 1,
            Operation::Discard => {}
        }
        let result = if is_bad { Err(Failed) } else { Ok(()) };
        match self
            .transmission
            .complete(number, result, &data, &mut self.sent)
        {
            Outcome::Pending | Outcome::Reply(Body::None) => {}
            Outcome::Reply(Body::Part) => self.sent.extend(data),
            Outcome::Reply(Body::Whole(bytes)) => self.sent.extend(bytes),
            Outcome::Submit(number, part) => self.issued.push((number, part, Vec::new())),
        }
    }

    /// Executes a request, and returns the bytes sent.
    fn run(&mut self, flags: u16, command: u16, offset: u64, len: u32, payload: &[u8]) -> Vec<u8> {
        let mut input = request(flags, command, 7, offset, len);
        input.extend(payload);
        let mut at = 0;
        while at < input.len() || !self.issued.is_empty() {
            at += self.receive(&input[at..]);
            if !self.issued.is_empty() {
                self.complete(0);
            }
        }
        std::mem::take(&mut self.sent)
    }

    /// Error of a request whose reply has no data; 0 for success.
    fn error(&mut self, flags: u16, command: u16, offset: u64, len: u32, payload: &[u8]) -> u32 {
        let sent = self.run(flags, command, offset, len, payload);
        let mut rest = &sent[..];
        let error = match reply(&mut rest).expect("a reply") {
            Reply::Simple { cookie: 7, error } => error,
            Reply::Chunk {
                cookie: 7,
                done: true,
                kind: 0,
                ..
            } => 0,
            Reply::Chunk {
                cookie: 7,
                done: true,
                kind: 0x8001,
                data,
            } => {
                let message = u16::from_be_bytes([data[4], data[5]]);
                assert_eq!(data.len(), 6 + usize::from(message));
                chunk_error(&data)
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(rest, b"");
        error
    }
}

#[test]
fn requests_outside_of_the_export_fail_and_change_nothing() {
    for structured in [false, true] {
        let mut it = Simulated::plain(structured);
        let before = it.disk.clone();
        let payload = vec![9; 4096];
        for (offset, len) in [
            (SIZE, 1),
            (SIZE - 4095, 4096),
            (u64::MAX, 4096),
            (u64::MAX - 4095, 4096),
        ] {
            assert_eq!(it.error(0, READ, offset, len, &[]), EINVAL);
            assert_eq!(
                it.error(0, WRITE, offset, len, &payload[..len as usize]),
                ENOSPC
            );
            assert_eq!(it.error(0, WRITE_ZEROES, offset, len, &[]), ENOSPC);
            assert_eq!(it.error(0, TRIM, offset, len, &[]), EINVAL);
            assert_eq!(it.error(0, CACHE, offset, len, &[]), EINVAL);
            assert_eq!(it.error(0, BLOCK_STATUS, offset, len, &[]), EINVAL);
        }
        // The last block is within the export.
        assert_eq!(it.error(0, WRITE, SIZE - 4096, 4096, &before[..4096]), 0);
        assert_eq!(it.disk[..60 * 1024], before[..60 * 1024]);
    }
}

#[test]
fn flags_are_accepted_only_where_they_belong() {
    let mut it = Simulated::plain(true);
    let allowed = [
        (READ, FUA | DF),
        (WRITE, FUA),
        (FLUSH, FUA),
        (TRIM, FUA),
        (CACHE, FUA),
        (WRITE_ZEROES, FUA | NO_HOLE),
        (BLOCK_STATUS, FUA | REQ_ONE),
    ];
    for (command, allowed) in allowed {
        for bit in 0..16 {
            let flag = 1 << bit;
            let (len, payload) = match command {
                FLUSH => (0, &[][..]),
                WRITE => (512, &[1; 512][..]),
                _ => (512, &[][..]),
            };
            let is_allowed = allowed & flag != 0;
            if is_allowed && (command == READ || command == BLOCK_STATUS) {
                // Replies with data are checked elsewhere.
                it.run(flag, command, 0, len, payload);
                continue;
            }
            let expected = if is_allowed { 0 } else { EINVAL };
            assert_eq!(
                it.error(flag, command, 0, len, payload),
                expected,
                "{command} {flag:#x}"
            );
        }
    }
    assert_eq!(Simulated::plain(false).error(DF, READ, 0, 512, &[]), EINVAL);
    let mut without_flush = export(SIZE);
    without_flush.flush = false;
    let mut it = Simulated::new(true, without_flush, false);
    assert_eq!(it.error(FUA, WRITE, 0, 2, b"ab"), EINVAL);
    assert_eq!(it.error(0, FLUSH, 0, 0, &[]), EINVAL);
    assert_eq!(it.error(0, WRITE, 0, 2, b"ab"), 0);
}

#[test]
fn read_only_export_refuses_modifications() {
    let mut read_only = export(SIZE);
    read_only.read_only = true;
    let mut it = Simulated::new(false, read_only, true);
    let before = it.disk.clone();
    assert_eq!(it.error(0, WRITE, 0, 3, b"abc"), EPERM);
    assert_eq!(it.error(0, WRITE_ZEROES, 0, 512, &[]), EPERM);
    assert_eq!(it.error(0, TRIM, 0, 512, &[]), EPERM);
    assert_eq!(it.error(0, FLUSH, 0, 0, &[]), 0);
    assert_eq!(it.disk, before);
}

#[test]
fn unknown_commands_and_reserved_fields_are_refused() {
    let mut it = Simulated::plain(false);
    assert_eq!(it.error(0, 8, 0, 0, &[]), EINVAL);
    assert_eq!(it.error(0, 0xffff, 0, 512, &[]), EINVAL);
    assert_eq!(it.error(0, FLUSH, 0, 512, &[]), EINVAL);
    assert_eq!(it.error(0, FLUSH, 512, 0, &[]), EINVAL);
    // Neither was negotiated.
    assert_eq!(it.error(0, BLOCK_STATUS, 0, 512, &[]), EINVAL);
    let mut bytes = request(0, READ, 1, 0, 512);
    bytes[0] = 0;
    let bytes = bytes[..].try_into().expect("a request");
    let result = it.transmission.request(bytes, &mut it.sent);
    assert_eq!(result, Err(Violation::RequestMagic(0x0060_9513)));
}

#[test]
fn empty_requests_succeed() {
    for structured in [false, true] {
        let mut it = Simulated::plain(structured);
        for command in [READ, WRITE, TRIM, CACHE, WRITE_ZEROES] {
            assert_eq!(it.error(0, command, SIZE, 0, &[]), 0, "{command}");
        }
        assert_eq!(it.error(0, BLOCK_STATUS, 0, 0, &[]), EINVAL);
        assert_eq!(it.error(0, FLUSH, 0, 0, &[]), 0);
    }
}

#[test]
fn oversized_requests_fail_and_their_payload_is_skipped() {
    let mut big = export(SIZE);
    big.max_payload = 20_000;
    let mut it = Simulated::new(false, big.clone(), true);
    let before = it.disk.clone();
    assert_eq!(it.error(0, READ, 0, 20_001, &[]), EINVAL);
    assert_eq!(it.error(0, WRITE, 0, 20_001, &vec![1; 20_001]), EINVAL);
    assert_eq!(it.disk, before);
    let mut it = Simulated::new(true, big, true);
    assert_eq!(it.error(0, READ, 0, 20_001, &[]), EOVERFLOW);
    assert_eq!(it.error(DF, READ, 0, LIMITS.segment + 1, &[]), EOVERFLOW);
    // Write-zeroes has no payload.
    assert_eq!(it.error(0, WRITE_ZEROES, 0, SIZE as u32, &[]), 0);
    assert_eq!(it.disk, vec![0; SIZE as usize]);
}

#[test]
fn block_status_is_one_allocated_extent() {
    let mut it = Simulated::plain(true);
    let sent = it.run(REQ_ONE, BLOCK_STATUS, 512, 1024, &[]);
    let expected = Reply::Chunk {
        cookie: 7,
        done: true,
        kind: 5,
        data: [[0, 0, 0, 1], [0, 0, 4, 0], [0; 4]].concat(),
    };
    assert_eq!(reply(&mut &sent[..]).expect("a reply"), expected);
}

#[test]
fn fua_is_native_or_a_following_flush() {
    let mut native = Simulated::plain(false);
    native.receive(&[request(FUA, WRITE, 1, 0, 2), b"ab".to_vec()].concat());
    assert_eq!(native.issued[0].1.operation, Operation::Write { fua: true });
    native.receive(&request(FUA, WRITE_ZEROES, 2, 0, 2));
    assert_eq!(
        native.issued[1].1.operation,
        Operation::WriteZeroes { fua: true }
    );

    for (command, payload) in [(WRITE, &b"abc"[..]), (WRITE_ZEROES, &[]), (TRIM, &[])] {
        let mut emulated = Simulated::new(false, export(SIZE), false);
        emulated.receive(&[&request(FUA, command, 1, 0, 3)[..], payload].concat());
        emulated.complete(0);
        // No reply before the flush.
        assert_eq!((emulated.sent.len(), emulated.issued.len()), (0, 1));
        assert_eq!(emulated.issued[0].1.operation, Operation::Flush);
        emulated.complete(0);
        assert_eq!((emulated.sent.len(), emulated.flushes), (16, 1));
    }
    // A failed write is not flushed.
    let mut failing = Simulated::new(false, export(SIZE), false);
    failing.bad = 1;
    assert_eq!(failing.error(FUA, WRITE, 0, 3, b"abc"), EIO);
    assert_eq!(failing.flushes, 0);
}

#[test]
fn failed_part_of_a_structured_read_is_named() {
    let mut it = Simulated::plain(true);
    it.bad = 9000;
    let sent = it.run(0, READ, 0, 20_000, &[]);
    let mut rest = &sent[..];
    let mut chunks = BTreeMap::new();
    while !rest.is_empty() {
        let Reply::Chunk {
            kind, data, done, ..
        } = reply(&mut rest).expect("a chunk")
        else {
            panic!("a simple reply");
        };
        assert_eq!(done, rest.is_empty());
        let (at, content) = match kind {
            1 => (&data[..8], Some(data[8..].to_vec())),
            0x8002 => {
                assert_eq!(chunk_error(&data), EIO);
                (&data[data.len() - 8..], None)
            }
            kind => panic!("{kind}"),
        };
        let at = u64::from_be_bytes(at.try_into().expect("an offset"));
        chunks.insert(at, content);
    }
    let data = |from: usize, to: usize| Some(it.disk[from..to].to_vec());
    let expected = [
        (0, data(0, 8192)),
        (8192, None),
        (16_384, data(16_384, 20_000)),
    ];
    assert_eq!(chunks, expected.into());
}

#[test]
fn simple_read_fails_as_a_whole_without_data() {
    for len in [4096, 20_000] {
        let mut it = Simulated::plain(false);
        it.bad = 4000;
        assert_eq!(it.error(0, READ, 0, len, &[]), EIO);
    }
}

#[test]
fn parts_of_an_unaligned_request_are_aligned_inside() {
    let mut it = Simulated::plain(true);
    it.receive(&request(0, READ, 1, 100, 30_000));
    let parts: Vec<_> = it
        .issued
        .iter()
        .map(|(_, part, _)| (part.offset, part.len))
        .collect();
    assert_eq!(
        parts,
        [(100, 8092), (8192, 8192), (16_384, 8192), (24_576, 5524)]
    );
}

#[test]
fn requests_in_flight_are_bounded() {
    let mut it = Simulated::plain(true);
    let input: Vec<u8> = (0..10)
        .flat_map(|cookie| request(0, READ, cookie, 0, 512))
        .collect();
    let taken = it.receive(&input);
    assert_eq!((taken, it.transmission.next()), (4 * 28, Next::Wait));
    it.complete(2);
    assert_eq!(it.receive(&input[taken..]), 28);
}

#[test]
fn memory_of_staged_reads_is_bounded() {
    let mut it = Simulated::plain(false);
    let input: Vec<u8> = (0..4)
        .flat_map(|cookie| request(0, READ, cookie, 0, 16_000))
        .collect();
    let taken = it.receive(&input);
    assert_eq!((taken, it.transmission.next()), (2 * 28, Next::Wait));
    while !it.issued.is_empty() {
        it.complete(0);
    }
    assert_eq!(it.receive(&input[taken..]), 2 * 28);
}

#[test]
fn disconnect_completes_requests_in_flight() {
    let mut it = Simulated::plain(true);
    it.receive(
        &[
            request(0, READ, 1, 0, 512),
            request(0, DISC, 2, 0, 0),
            request(0, READ, 3, 0, 1),
        ]
        .concat(),
    );
    assert_eq!(it.transmission.next(), Next::End);
    assert!(!it.transmission.is_idle());
    it.complete(0);
    assert!(it.transmission.is_idle());
    assert_eq!(it.sent.len(), 20 + 8 + 512);
}

#[test]
fn aborted_request_is_forgotten_when_its_parts_have_completed() {
    for structured in [false, true] {
        for command in [READ, WRITE] {
            let mut it = Simulated::plain(structured);
            let mut input = request(0, command, 1, 0, 16_384);
            if command == WRITE {
                // Of two parts, the second one is never received.
                input.extend([5; 10_000]);
            }
            it.receive(&input);
            it.transmission.abort();
            while !it.issued.is_empty() {
                it.complete(0);
            }
            assert!(it.transmission.is_idle(), "{structured} {command}");
            assert_eq!(it.transmission.next(), Next::End);
        }
    }
    let mut it = Simulated::plain(true);
    it.receive(&request(0, WRITE, 1, 0, 512));
    it.transmission.abort();
    assert!(it.transmission.is_idle());
}

#[derive(Debug, Clone)]
struct Random {
    flags: u16,
    command: u16,
    offset: u64,
    len: u32,
}

fn requests() -> impl Strategy<Value = Vec<Random>> {
    let flags = prop_oneof![6 => Just(0), 1 => Just(FUA), 1 => 0..64_u16];
    let offset = prop_oneof![6 => 0..SIZE, 1 => any::<u64>()];
    let len = prop_oneof![4 => 0..5000_u32, 2 => 0..30_000_u32, 1 => any::<u32>()];
    let one = (flags, 0..9_u16, offset, len).prop_map(|(flags, command, offset, len)| {
        // Payload that is skipped must be sent, too.
        let len = if command == WRITE { len % 40_000 } else { len };
        let command = if command == DISC { READ } else { command };
        Random {
            flags,
            command,
            offset,
            len,
        }
    });
    prop::collection::vec(one, 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Arbitrary requests, split arbitrarily, with completions in any order and one bad byte: each request gets
    /// exactly one reply, according to its validity and the device's result, and the data of a read was on the disk
    /// at some time between request and reply.
    #[test]
    fn every_request_has_one_reply(
        structured: bool,
        native_fua: bool,
        bad in prop_oneof![Just(u64::MAX), 0..SIZE],
        requests in requests(),
        choices in prop::collection::vec(any::<prop::sample::Index>(), 1..50),
        pieces in prop::collection::vec(1..20_000_usize, 1..20),
    ) {
        let mut it = Simulated::new(structured, export(SIZE), native_fua);
        it.bad = bad;
        // All writes write the same byte, so that the data of reads can be checked without knowing their order.
        let original = it.disk.clone();
        let mut input = Vec::new();
        for (cookie, random) in requests.iter().enumerate() {
            input.extend(request(random.flags, random.command, cookie as u64, random.offset, random.len));
            if random.command == WRITE {
                input.extend(vec![0; random.len as usize]);
            }
        }
        let mut choices = choices.iter().cycle();
        let mut pieces = pieces.iter().cycle();
        let (mut at, mut available) = (0, 0);
        while at < input.len() || !it.issued.is_empty() {
            available = (available + pieces.next().expect("endless")).min(input.len());
            let taken = it.receive(&input[at..available]);
            at += taken;
            if !it.issued.is_empty() {
                let choice = choices.next().expect("endless").index(it.issued.len());
                it.complete(choice);
            }
        }
        prop_assert!(it.transmission.is_idle());
        prop_assert_eq!(it.transmission.next(), Next::Request);

        let mut rest = &it.sent[..];
        let mut replied = vec![false; requests.len()];
        let mut covered = vec![0_u32; requests.len()];
        while !rest.is_empty() {
            match reply(&mut rest).expect("a whole reply") {
                Reply::Simple { cookie, error } => {
                    let random = &requests[cookie as usize];
                    prop_assert!(!replied[cookie as usize]);
                    replied[cookie as usize] = true;
                    prop_assert!(!(structured && random.command == READ));
                    if random.command == READ && error == 0 {
                        let data = bytes(&mut rest, random.len as usize).expect("data");
                        let offset = random.offset as usize;
                        let fits = |(at, byte): (usize, &u8)| *byte == original[offset + at] || *byte == 0;
                        prop_assert!(data.iter().enumerate().all(fits));
                    }
                }
                Reply::Chunk { cookie, done, kind, data } => {
                    let random = &requests[cookie as usize];
                    prop_assert!(structured);
                    prop_assert!(!replied[cookie as usize]);
                    replied[cookie as usize] = done;
                    match kind {
                        1 => {
                            let at = u64::from_be_bytes(data[..8].try_into().expect("8 bytes"));
                            let len = (data.len() - 8) as u32;
                            prop_assert!(at >= random.offset && at + u64::from(len) <= random.offset + u64::from(random.len));
                            let covered = &mut covered[cookie as usize];
                            *covered = covered.saturating_add(len);
                            let fits = |(index, byte): (usize, &u8)| *byte == original[at as usize + index] || *byte == 0;
                            prop_assert!(data[8..].iter().enumerate().all(fits));
                        }
                        0x8001 | 0x8002 => covered[cookie as usize] = u32::MAX,
                        0 | 5 => prop_assert!(done),
                        kind => prop_assert!(false, "chunk {}", kind),
                    }
                    if done && random.command == READ && covered[cookie as usize] != u32::MAX && bad == u64::MAX {
                        prop_assert_eq!(covered[cookie as usize], random.len);
                    }
                }
            }
        }
        prop_assert!(replied.iter().all(|it| *it), "{:?}", replied);
    }

    /// Arbitrary bytes: no panic, and no more is consumed than available.
    #[test]
    fn any_bytes_are_a_request_or_a_violation(structured: bool, bytes: [u8; 28]) {
        let mut it = Simulated::plain(structured);
        let mut bytes = bytes;
        let result = it.transmission.request(&bytes, &mut it.sent);
        prop_assert_eq!(result.is_ok(), bytes[..4] == 0x2560_9513_u32.to_be_bytes());
        bytes[..4].copy_from_slice(&0x2560_9513_u32.to_be_bytes());
        let mut it = Simulated::plain(structured);
        prop_assert!(it.transmission.request(&bytes, &mut it.sent).is_ok());
        prop_assert!(it.sent.len() <= 100);
    }
}
