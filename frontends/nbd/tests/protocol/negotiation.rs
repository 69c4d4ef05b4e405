//! The handshake, without a socket.

use std::sync::Arc;

use crate::support::*;
use nbd_frontend::negotiation::{
    Agreement, MAX_HANDSHAKE, MAX_OPTIONS, Negotiation, Next, Security, Violation,
};

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
        // As above, without DF.
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
        // One request more than the count says, and one less.
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
