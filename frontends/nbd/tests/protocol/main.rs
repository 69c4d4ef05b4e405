//! The phases of a connection without a socket: the handshake, and the transmission phase, with validation of requests and completions
//! in any order.

mod server;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use nbd_frontend::negotiation::{
    Agreement, MAX_HANDSHAKE, MAX_OPTIONS, Negotiation, Next, Security, Violation,
};
use nbd_frontend::protocol::Export;
use nbd_frontend::transmission::{self, Body, Limits, Outcome, Part, Transmission};
use proptest::prelude::*;
use volume::{IoError, Operation};

use crate::support::*;

struct Handshake {
    negotiation: Negotiation,
    next: Next,
}

/// Replies to an option, and the next step.
type Answer = (Vec<OptionReply>, Next);

impl Handshake {
    fn new(security: Security, flags: u32) -> Self {
        let mut greeting = Vec::new();
        let mut negotiation = Negotiation::new(Arc::new(export(1 << 20)), security, &mut greeting);
        assert_eq!(greeting, b"NBDMAGICIHAVEOPT\x00\x03");
        let mut out = Vec::new();
        let flags = negotiation.advance(&flags.to_be_bytes(), &mut out);
        assert_eq!(flags, Ok((4, Next::Message)));
        assert_eq!(out, b"");
        Self {
            negotiation,
            next: Next::Message,
        }
    }

    fn plain() -> Self {
        Self::new(Security::Plain, 3)
    }

    fn option(&mut self, number: u32, data: &[u8]) -> Result<Answer, Violation> {
        assert_eq!(self.next, Next::Message);
        let message = option(number, data);
        let mut out = Vec::new();
        for end in [0, 15, message.len() - 1] {
            // An incomplete message has no effect.
            if end < message.len() && data.len() < 30_000 {
                let result = self.negotiation.advance(&message[..end], &mut out);
                assert_eq!(result, Ok((0, Next::Message)));
            }
        }
        let mut at = 0;
        while at < message.len() {
            let (consumed, next) = self.negotiation.advance(&message[at..], &mut out)?;
            at += consumed;
            self.next = next;
        }
        let replies = option_replies(&mut &out[..], number).expect("replies");
        Ok((replies, self.next))
    }

    fn refusal(&mut self, number: u32, data: &[u8]) -> u32 {
        let (replies, next) = self.option(number, data).expect("a reply");
        assert_eq!((replies.len(), next), (1, Next::Message));
        assert!(!replies[0].1.is_empty(), "a text for the user");
        replies[0].0
    }

    fn accepted(&mut self, number: u32, data: &[u8]) -> Vec<OptionReply> {
        let (mut replies, _) = self.option(number, data).expect("a reply");
        assert_eq!(replies.pop(), Some((ACK, vec![])));
        replies
    }
}

#[test]
fn go_describes_the_export_and_begins_transmission() {
    let mut handshake = Handshake::plain();
    assert_eq!(handshake.accepted(STRUCTURED_REPLY, &[]), []);
    let infos = handshake.accepted(INFO, &info_data("disk", &[0, 1, 2, 3, 77]));
    let size = (1_u64 << 20).to_be_bytes();
    // HAS_FLAGS, FLUSH, FUA, TRIM, WRITE_ZEROES, DF, CAN_MULTI_CONN.
    let flags = [1, 0b1110_1101];
    let block_sizes = [[0, 0, 0, 1], [0, 0, 16, 0], [2, 0, 0, 0]].concat();
    let expected = [
        [&[0, 0][..], &size, &flags].concat(),
        b"\0\x01disk".to_vec(),
        b"\0\x02a disk of a test".to_vec(),
        [&[0, 3][..], &block_sizes].concat(),
    ];
    assert_eq!(infos, expected.map(|data| (REP_INFO, data)));
    let again = handshake.accepted(GO, &info_data("disk", &[0, 1, 2, 3, 77]));
    assert_eq!(again, infos);
    let agreed = Agreement {
        structured: true,
        allocation: false,
    };
    assert_eq!(handshake.next, Next::Transmission(agreed));
}

#[test]
fn default_export_is_the_export_and_others_are_unknown() {
    let mut handshake = Handshake::plain();
    assert_eq!(handshake.refusal(GO, &info_data("tape", &[])), ERR_UNKNOWN);
    assert_eq!(handshake.refusal(INFO, &info_data("dis", &[])), ERR_UNKNOWN);
    assert_eq!(handshake.accepted(INFO, &info_data("", &[])).len(), 1);
}

#[test]
fn export_name_is_answered_with_and_without_zeroes() {
    for (flags, zeroes) in [(3, 0), (1, 124), (0, 124)] {
        let mut handshake = Handshake::new(Security::Plain, flags);
        let mut out = Vec::new();
        let message = option(EXPORT_NAME, b"disk");
        let next = handshake.negotiation.advance(&message, &mut out);
        let begins = Next::Transmission(Agreement::default());
        assert_eq!(next, Ok((message.len(), begins)));
        // Same as above, without DF.
        let expected = [
            &(1_u64 << 20).to_be_bytes()[..],
            &[1, 0b0110_1101],
            &vec![0; zeroes],
        ];
        assert_eq!(out, expected.concat());
    }
}

#[test]
fn options_without_replies_end_the_connection() {
    let cases = [
        (3, option(EXPORT_NAME, b"tape"), Violation::UnknownExport),
        (0, option(LIST, &[]), Violation::NotFixed(LIST)),
        (0, option(99, &[]), Violation::NotFixed(99)),
    ];
    for (flags, message, expected) in cases {
        let mut handshake = Handshake::new(Security::Plain, flags);
        let result = handshake.negotiation.advance(&message, &mut Vec::new());
        assert_eq!(result, Err(expected));
    }
    for name in [&[0xff][..], &[b'a'; 4097]] {
        let result = Handshake::plain()
            .negotiation
            .advance(&option(EXPORT_NAME, name), &mut Vec::new());
        assert!(
            matches!(result, Err(Violation::ExportName(_))),
            "{result:?}"
        );
    }
    let mut tls = Handshake::new(Security::TlsRequired, 3);
    let result = tls
        .negotiation
        .advance(&option(EXPORT_NAME, b""), &mut Vec::new());
    assert_eq!(result, Err(Violation::TlsRequired));
}

#[test]
fn unknown_client_flags_and_magic_end_the_connection() {
    let mut negotiation = Negotiation::new(Arc::new(export(1)), Security::Plain, &mut Vec::new());
    let result = negotiation.advance(&[0, 0, 0, 5], &mut Vec::new());
    assert_eq!(result, Err(Violation::ClientFlags(5)));
    let result = Handshake::plain()
        .negotiation
        .advance(b"GET / HTTP/1.1\r\n", &mut Vec::new());
    assert_eq!(
        result,
        Err(Violation::OptionMagic(u64::from_be_bytes(*b"GET / HT")))
    );
}

#[test]
fn list_names_the_export() {
    let mut handshake = Handshake::plain();
    let expected = b"\0\0\0\x04diska disk of a test".to_vec();
    assert_eq!(handshake.accepted(LIST, &[]), [(REP_SERVER, expected)]);
    assert_eq!(handshake.refusal(LIST, b"x"), ERR_INVALID);
}

#[test]
fn malformed_options_are_refused() {
    let mut handshake = Handshake::plain();
    assert_eq!(handshake.refusal(4, &[]), ERR_UNSUP);
    assert_eq!(handshake.refusal(11, &[]), ERR_UNSUP);
    assert_eq!(handshake.refusal(STRUCTURED_REPLY, &[0]), ERR_INVALID);
    handshake.accepted(STRUCTURED_REPLY, &[]);
    let cases: [&[u8]; 7] = [
        &[],
        &[0, 0, 0],
        &[0, 0, 0, 9, b'a', 0, 0],
        &[0xff, 0xff, 0xff, 0xff],
        // The list has one request more than its count, and one less.
        &[0, 0, 0, 0, 0, 1],
        &[0, 0, 0, 0, 0, 0, 0, 1],
        &[0, 0, 0, 1, 0xff, 0, 0],
    ];
    for data in cases {
        assert_eq!(handshake.refusal(INFO, data), ERR_INVALID, "{data:?}");
        assert_eq!(handshake.refusal(GO, data), ERR_INVALID, "{data:?}");
    }
    let cases: [&[u8]; 4] = [
        &[0, 0, 0, 0],
        &[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
        &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, b':'],
        &[0, 0, 0, 0, 0, 0, 0, 0, 0],
    ];
    for data in cases {
        for number in [LIST_META_CONTEXT, SET_META_CONTEXT] {
            assert_eq!(handshake.refusal(number, data), ERR_INVALID, "{data:?}");
        }
    }
    let no_namespace = meta_data("", &["allocation"]);
    assert_eq!(
        handshake.refusal(SET_META_CONTEXT, &no_namespace),
        ERR_INVALID
    );
}

#[test]
fn allocation_context_is_listed_and_selected() {
    let mut handshake = Handshake::plain();
    let wanted = meta_data("disk", &["base:allocation"]);
    // Refused before structured replies are negotiated.
    assert_eq!(handshake.refusal(SET_META_CONTEXT, &wanted), ERR_INVALID);
    assert_eq!(handshake.refusal(LIST_META_CONTEXT, &wanted), ERR_INVALID);
    handshake.accepted(STRUCTURED_REPLY, &[]);

    let listed = (REP_META_CONTEXT, b"\0\0\0\0base:allocation".to_vec());
    for queries in [&[][..], &["base:"], &["x:y", "base:allocation"]] {
        let contexts = handshake.accepted(LIST_META_CONTEXT, &meta_data("disk", queries));
        assert_eq!(contexts, std::slice::from_ref(&listed), "{queries:?}");
    }
    for queries in [&["base:other"][..], &["qemu:dirty-bitmap:b"]] {
        let data = meta_data("disk", queries);
        assert_eq!(handshake.accepted(LIST_META_CONTEXT, &data), []);
        assert_eq!(handshake.accepted(SET_META_CONTEXT, &data), []);
    }
    // Wildcards are for the list only.
    assert_eq!(
        handshake.accepted(SET_META_CONTEXT, &meta_data("", &["base:"])),
        []
    );
    let other = meta_data("tape", &["base:allocation"]);
    assert_eq!(handshake.refusal(SET_META_CONTEXT, &other), ERR_UNKNOWN);

    let selected = (REP_META_CONTEXT, b"\0\0\0\x01base:allocation".to_vec());
    assert_eq!(handshake.accepted(SET_META_CONTEXT, &wanted), [selected]);
    handshake.accepted(GO, &info_data("", &[]));
    let agreed = Agreement {
        structured: true,
        allocation: true,
    };
    assert_eq!(handshake.next, Next::Transmission(agreed));
}

#[test]
fn failed_selection_deselects_contexts() {
    let mut handshake = Handshake::plain();
    handshake.accepted(STRUCTURED_REPLY, &[]);
    let wanted = meta_data("", &["base:allocation"]);
    for bad in [meta_data("tape", &["base:allocation"]), b"\0".to_vec()] {
        handshake.accepted(SET_META_CONTEXT, &wanted);
        handshake.refusal(SET_META_CONTEXT, &bad);
    }
    handshake.accepted(GO, &info_data("", &[]));
    let agreed = Agreement {
        structured: true,
        allocation: false,
    };
    assert_eq!(handshake.next, Next::Transmission(agreed));
}

#[test]
fn options_other_than_starttls_and_abort_require_tls() {
    let mut handshake = Handshake::new(Security::TlsRequired, 3);
    for number in [
        LIST,
        INFO,
        GO,
        STRUCTURED_REPLY,
        LIST_META_CONTEXT,
        SET_META_CONTEXT,
        4,
    ] {
        assert_eq!(handshake.refusal(number, &[]), ERR_TLS_REQD, "{number}");
    }
    assert_eq!(handshake.refusal(GO, &info_data("", &[])), ERR_TLS_REQD);
    assert_eq!(handshake.refusal(STARTTLS, b"x"), ERR_INVALID);
    assert_eq!(handshake.accepted(STARTTLS, &[]), []);
    assert_eq!(handshake.next, Next::StartTls);
    handshake.negotiation.encrypted();
    handshake.next = Next::Message;
    assert_eq!(handshake.refusal(STARTTLS, &[]), ERR_INVALID);
    assert_eq!(handshake.accepted(GO, &info_data("", &[])).len(), 1);
    assert_eq!(handshake.next, Next::Transmission(Agreement::default()));
}

#[test]
fn without_a_certificate_tls_is_refused() {
    assert_eq!(Handshake::plain().refusal(STARTTLS, &[]), ERR_POLICY);
}

#[test]
fn abort_is_acknowledged_in_any_mode() {
    for security in [Security::Plain, Security::TlsRequired, Security::Encrypted] {
        let mut handshake = Handshake::new(security, 3);
        assert_eq!(handshake.accepted(ABORT, b"ignored"), []);
        assert_eq!(handshake.next, Next::Close);
    }
}

#[test]
fn long_options_are_skipped_and_longer_ones_end_the_connection() {
    let mut handshake = Handshake::plain();
    assert_eq!(handshake.refusal(GO, &vec![0; 40_000]), ERR_TOO_BIG);
    assert_eq!(handshake.accepted(LIST, &[]).len(), 1);
    let mut header = option(GO, &[]);
    header[12..].copy_from_slice(&u32::MAX.to_be_bytes());
    let result = handshake.negotiation.advance(&header, &mut Vec::new());
    assert_eq!(result, Err(Violation::TooLong));
}

#[test]
fn handshake_is_bounded() {
    let mut handshake = Handshake::plain();
    for _ in 0..MAX_OPTIONS {
        handshake.refusal(4, &[]);
    }
    assert_eq!(handshake.option(4, &[]), Err(Violation::TooManyOptions));

    let mut handshake = Handshake::plain();
    let mut received = 4;
    let result = loop {
        received += 40_016;
        match handshake.option(4, &vec![0; 40_000]) {
            Ok(_) => assert!(received <= MAX_HANDSHAKE),
            Err(violation) => break violation,
        }
    };
    assert_eq!(result, Violation::TooLong);
}

const SIZE: u64 = 64 * 1024;
const LIMITS: Limits = Limits {
    segment: 8192,
    in_flight: 4,
    unsent: 40_000,
    parts: 8,
    piece: 16_384,
    pieces: 2,
};

/// A transmission phase over an array of bytes.
struct Simulated {
    transmission: Transmission,
    disk: Vec<u8>,
    /// Offset of a byte on which I/Os fail.
    bad: u64,
    issued: Vec<(u32, Part, Vec<u8>)>,
    sent: Vec<u8>,
    /// Bytes of replies that the client has not read.
    unsent: usize,
    flushes: u32,
    /// `true` once the connection must be closed.
    is_broken: bool,
}

impl Simulated {
    fn new(structured: bool, export: Export, native_fua: bool) -> Self {
        Self::with(structured, export, native_fua, LIMITS)
    }

    fn with(structured: bool, export: Export, native_fua: bool, limits: Limits) -> Self {
        let agreed = Agreement {
            structured,
            allocation: structured,
        };
        Self {
            transmission: Transmission::new(Arc::new(export), native_fua, agreed, limits),
            disk: contents::noise(1, SIZE as usize),
            bad: u64::MAX,
            issued: Vec::new(),
            sent: Vec::new(),
            unsent: 0,
            flushes: 0,
            is_broken: false,
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
            match self.transmission.next(self.unsent) {
                transmission::Next::Request => {
                    let Some(bytes) = rest.first_chunk() else {
                        return at;
                    };
                    let taken = self.transmission.request(bytes, &mut self.sent);
                    taken.expect("a request");
                    at += bytes.len();
                }
                transmission::Next::Issue(part) => {
                    assert!(part.operation != Operation::Read || part.len <= LIMITS.segment);
                    self.issue(part, Vec::new());
                }
                transmission::Next::Fill(part) => {
                    assert!(part.len <= LIMITS.segment);
                    let Some(payload) = rest.get(..part.len as usize) else {
                        return at;
                    };
                    self.issue(part, payload.to_vec());
                    at += part.len as usize;
                }
                transmission::Next::Skip(count) => {
                    let count = rest.len().min(count as usize);
                    if count == 0 {
                        return at;
                    }
                    self.transmission.skipped(count as u32);
                    at += count;
                }
                transmission::Next::Wait | transmission::Next::End => return at,
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
            Operation::WriteZeroes { .. } | Operation::Discard => self.disk[range].fill(0),
            Operation::Flush => self.flushes += 1,
        }
        let result = if is_bad {
            Err(IoError::Failed { code: 17 })
        } else {
            Ok(())
        };
        match self
            .transmission
            .complete(number, result, &data, &mut self.sent)
        {
            Outcome::Pending | Outcome::Reply(Body::None) => {}
            Outcome::Reply(Body::Part) => self.sent.extend(data),
            Outcome::Reply(Body::Whole(bytes)) => self.sent.extend(bytes),
            Outcome::Submit(number, part) => self.issued.push((number, part, Vec::new())),
            Outcome::Broken => self.is_broken = true,
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
                self.receive(&[]);
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
    // These commands were not negotiated.
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
        // The reply must not be sent before the flush.
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
    assert_eq!(
        (taken, it.transmission.next(it.unsent)),
        (4 * 28, transmission::Next::Wait)
    );
    it.complete(2);
    assert_eq!(it.receive(&input[taken..]), 28);
}

#[test]
fn memory_of_replies_is_bounded() {
    // Two parts of 8192 bytes, and a small reply.
    let limits = Limits {
        unsent: 20_000,
        in_flight: 100,
        ..LIMITS
    };
    for structured in [false, true] {
        let mut it = Simulated::with(structured, export(SIZE), true, limits);
        let input: Vec<u8> = (0..8)
            .flat_map(|cookie| request(0, READ, cookie, 0, 8192))
            .collect();
        let taken = it.receive(&input);
        // The third request was received, and waits.
        assert_eq!((taken, it.issued.len()), (3 * 28, 2));
        while !it.issued.is_empty() {
            it.complete(0);
        }
        // The client does not read the replies.
        it.unsent = it.sent.len();
        assert_eq!((it.receive(&input[taken..]), it.issued.len()), (0, 0));
        it.unsent = 20_000;
        assert_eq!(it.transmission.next(it.unsent), transmission::Next::Wait);
        it.unsent = 8192;
        assert_eq!((it.receive(&input[taken..]), it.issued.len()), (28, 1));
        it.unsent = 0;
        assert_eq!((it.receive(&input[taken + 28..]), it.issued.len()), (28, 2));
    }
}

#[test]
fn no_request_is_received_while_too_many_replies_are_unsent() {
    let mut it = Simulated::plain(true);
    it.unsent = LIMITS.unsent;
    assert_eq!(it.receive(&request(0, BLOCK_STATUS, 1, 0, 512)), 0);
    it.unsent -= 1;
    assert_eq!(it.receive(&request(0, BLOCK_STATUS, 1, 0, 512)), 28);
}

/// Limits with which a simple read of more than 17,000 bytes is sent in windows of 8500.
const STREAMING: Limits = Limits {
    unsent: 17_000,
    in_flight: 100,
    ..LIMITS
};

#[test]
fn simple_read_longer_than_the_limit_is_sent_in_windows() {
    let mut it = Simulated::with(false, export(SIZE), true, STREAMING);
    it.receive(&request(0, READ, 1, 0, 512));
    let input = [
        request(0, READ, 2, 100, 30_000),
        request(0, READ, 3, 0, 512),
    ]
    .concat();
    assert_eq!(it.receive(&input), 28);
    assert_eq!(it.issued.len(), 1, "it waits for earlier requests");
    it.complete(0);
    it.sent.clear();
    let mut sizes = Vec::new();
    while it.sent.len() < 16 + 30_000 {
        assert_eq!(it.receive(&input[28..]), 0, "no other reply may be sent");
        let issued: u32 = it.issued.iter().map(|(_, part, _)| part.len).sum();
        assert!(issued <= 8500, "{issued}");
        it.complete(it.issued.len() - 1);
        if it.issued.is_empty() {
            sizes.push(it.sent.len());
            // Two windows are unsent, so the next one has to wait.
            it.unsent = 17_000;
            it.receive(&input[28..]);
            assert_eq!(it.issued.len(), 0);
            it.unsent = 8500;
        }
    }
    assert_eq!(sizes, [8516, 17_016, 25_516, 30_016]);
    assert_eq!(it.sent[16..], it.disk[100..30_100]);
    assert_eq!(it.receive(&input[28..]), 28);
}

#[test]
fn error_in_a_window_ends_the_connection_if_data_was_sent() {
    for (bad, is_broken) in [(5000, false), (20_000, true)] {
        let mut it = Simulated::with(false, export(SIZE), true, STREAMING);
        it.bad = bad;
        let input = request(0, READ, 1, 0, 30_000);
        let mut at = 0;
        while !it.is_broken && (at < input.len() || !it.issued.is_empty()) {
            at += it.receive(&input[at..]);
            if !it.issued.is_empty() {
                it.complete(0);
                it.receive(&[]);
            }
        }
        assert_eq!(it.is_broken, is_broken);
        assert!(it.transmission.is_idle());
        if !is_broken {
            let expected = Reply::Simple {
                cookie: 1,
                error: EIO,
            };
            assert_eq!(reply(&mut &it.sent[..]).expect("a reply"), expected);
            assert_eq!(it.sent.len(), 16);
            // The connection is usable.
            it.sent.clear();
            assert_eq!(it.run(0, READ, 0, 512, &[]).len(), 16 + 512);
        }
    }
}

#[test]
fn requests_are_served_between_the_pieces_of_long_ones() {
    for command in [WRITE_ZEROES, TRIM] {
        let mut it = Simulated::plain(true);
        let input = [
            request(0, command, 1, 100, 60_000),
            request(0, command, 2, 0, 65_536),
            request(0, READ, 3, 0, 512),
        ]
        .concat();
        assert_eq!(it.receive(&input), input.len());
        let parts: Vec<_> = it
            .issued
            .iter()
            .map(|(_, part, _)| (part.offset, part.len))
            .collect();
        // Pieces end at blocks.
        assert_eq!(parts, [(100, 16_284), (16_384, 16_384), (0, 512)]);
        // The read is served before the remaining pieces.
        it.complete(2);
        let first = reply(&mut &it.sent[..]).expect("a reply");
        assert!(matches!(first, Reply::Chunk { cookie: 3, .. }), "{first:?}");
        it.sent.clear();
        let mut completed = 0;
        while !it.issued.is_empty() {
            assert!(it.issued.len() <= LIMITS.pieces);
            it.complete(0);
            completed += 1;
            it.receive(&[]);
        }
        assert_eq!(completed, 4 + 4);
        let mut rest = &it.sent[..];
        for cookie in [1, 2] {
            let expected = Reply::Simple { cookie, error: 0 };
            assert_eq!(reply(&mut rest).expect("a reply"), expected, "in order");
        }
        assert!(it.transmission.is_idle());
        assert_eq!(it.disk, vec![0; SIZE as usize]);
    }
}

#[test]
fn failed_piece_drops_the_rest_of_its_request() {
    let mut it = Simulated::plain(false);
    it.bad = 0;
    it.receive(&request(0, WRITE_ZEROES, 1, 0, 65_536));
    it.complete(0);
    it.receive(&[]);
    assert_eq!(it.issued.len(), 1, "the piece in flight");
    it.complete(0);
    assert_eq!(it.issued.len(), 0);
    let expected = Reply::Simple {
        cookie: 1,
        error: EIO,
    };
    assert_eq!(reply(&mut &it.sent[..]).expect("a reply"), expected);
    assert!(it.transmission.is_idle());
}

#[test]
fn parts_of_long_requests_leave_space_for_others() {
    let mut it = Simulated::plain(true);
    let payload = vec![1; 20_000];
    // With the limit of 8 parts in flight, only the first part of a write of 3 parts is issued.
    for cookie in 0..3 {
        let input = [request(0, WRITE, cookie, 0, 20_000), payload.clone()].concat();
        it.receive(&input);
    }
    assert_eq!(it.issued.len(), LIMITS.parts);
    assert_eq!(it.transmission.next(0), transmission::Next::Wait);
    it.complete(0);
    assert_ne!(it.transmission.next(0), transmission::Next::Wait);
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
    assert_eq!(it.transmission.next(it.unsent), transmission::Next::End);
    assert!(!it.transmission.is_idle());
    it.complete(0);
    assert!(it.transmission.is_idle());
    assert_eq!(it.sent.len(), 20 + 8 + 512);
}

#[test]
fn aborted_request_is_forgotten_when_its_parts_have_completed() {
    for structured in [false, true] {
        for command in [READ, WRITE, WRITE_ZEROES, TRIM] {
            let limits = Limits {
                piece: 4096,
                ..LIMITS
            };
            let mut it = Simulated::with(structured, export(SIZE), true, limits);
            let mut input = request(0, command, 1, 0, 16_384);
            if command == WRITE {
                // The second of two parts is never received.
                input.extend([5; 10_000]);
            }
            it.receive(&input);
            it.transmission.abort();
            while !it.issued.is_empty() {
                it.complete(0);
            }
            assert!(it.transmission.is_idle(), "{structured} {command}");
            assert_eq!(it.transmission.next(it.unsent), transmission::Next::End);
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
        // Skipped payload must also be sent.
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

    /// Arbitrary requests, split arbitrarily, with completions in any order and one bad byte on the disk: each request
    /// gets exactly one reply, according to its validity and the device's result, and the data of a read was on the
    /// disk at some time between request and reply.
    #[test]
    fn every_request_has_one_reply(
        structured: bool,
        native_fua: bool,
        streaming: bool,
        bad in prop_oneof![Just(u64::MAX), 0..SIZE],
        requests in requests(),
        choices in prop::collection::vec(any::<prop::sample::Index>(), 1..50),
        pieces in prop::collection::vec(1..20_000_usize, 1..20),
    ) {
        let limits = if streaming { STREAMING } else { LIMITS };
        let mut it = Simulated::with(structured, export(SIZE), native_fua, limits);
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
        while !it.is_broken && (at < input.len() || !it.issued.is_empty()) {
            available = (available + pieces.next().expect("endless")).min(input.len());
            let taken = it.receive(&input[at..available]);
            at += taken;
            if !it.issued.is_empty() {
                let choice = choices.next().expect("endless").index(it.issued.len());
                it.complete(choice);
                it.receive(&[]);
            }
        }
        if it.is_broken {
            // Only for a simple read that was sent in windows, one of which contains the bad byte.
            prop_assert!(streaming && !structured && bad != u64::MAX);
            return Ok(());
        }
        prop_assert!(it.transmission.is_idle());
        prop_assert_eq!(it.transmission.next(it.unsent), transmission::Next::Request);

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
