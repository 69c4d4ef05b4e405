//! Arbitrary bytes of a peer on another machine, in arbitrary pieces: the receiver decodes them as documented, in bounded
//! memory.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::super::shared_memory::SharedMemory;
use super::*;
use crate::ring::EventFd;

/// A fragment with its immediate data and data.
type Received = (Fragment, Vec<u8>, Vec<u8>);

/// The ways in which a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Closed,
    /// In the middle of something, or without a word.
    Lost,
    /// The sender has broken the protocol.
    Broken,
}

/// Fragments and end according to the documentation of the frames, for a receiver with so many receives.
fn expected(mut bytes: &[u8], mut receives: u64) -> (Vec<Received>, End) {
    let (mut found, mut is_within) = (Vec::new(), false);
    while let Some((header, rest)) = bytes.split_first_chunk::<8>() {
        let len = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        match header[0] {
            1 => {
                let (flags, immediate) = (header[1], usize::from(header[2]));
                let is_first = flags & 1 != 0;
                let is_sound = flags < 8
                    && header[3] == 0
                    && immediate <= 8
                    && (flags & 4 != 0) == (immediate != 0)
                    && immediate + len <= 32 * 1024
                    && is_first != is_within
                    && (is_within || receives > 0);
                if !is_sound {
                    return (found, End::Broken);
                }
                let Some((payload, rest)) = rest.split_at_checked(immediate + len) else {
                    return (found, End::Lost);
                };
                let fragment = Fragment {
                    len,
                    immediate_len: (immediate > 0).then_some(immediate),
                    more: flags & 2 != 0,
                };
                let (first, second) = payload.split_at(immediate);
                found.push((fragment, first.to_vec(), second.to_vec()));
                receives -= u64::from(is_first);
                is_within = fragment.more;
                bytes = rest;
            }
            2 => return (found, End::Closed),
            3 => bytes = rest,
            _ => return (found, End::Broken),
        }
    }
    (found, End::Lost)
}

/// A receiver with so many receives, and a socket of its sender.
fn receiver(receives: usize) -> (SharedMemory, NetworkInbox, Stream) {
    let wake = Arc::new(EventFd::new().unwrap());
    let memory = SharedMemory::new(1, 16, &wake, None).unwrap();
    let (here, there) = crate::agent::stream_pair();
    let offered = Box::new(memory.offer(0).unwrap());
    let mut inbox = NetworkInbox::new(offered, (here, 0), receives).unwrap();
    inbox.flush();
    (memory, inbox, there)
}

/// Takes the fragments that are there.
fn take(inbox: &mut NetworkInbox, found: &mut Vec<Received>) -> Result<()> {
    inbox.set_readable();
    while let Some(fragment) = inbox.peek()? {
        let (mut immediate, mut data) = (
            vec![0; fragment.immediate_len.unwrap_or(0)],
            vec![0; fragment.len],
        );
        inbox.read_immediate(&mut immediate);
        // SAFETY: the vector has so many bytes.
        unsafe { inbox.read(0, data.as_mut_ptr(), data.len()) };
        found.push((fragment, immediate, data));
        inbox.advance();
    }
    Ok(())
}

/// Fragments and end of a receiver that gets `bytes` in pieces of these sizes.
fn received(bytes: &[u8], sizes: &[usize], receives: usize) -> (Vec<Received>, End) {
    let (_memory, mut inbox, sender) = receiver(receives);
    let mut found = Vec::new();
    let (mut rest, mut sizes) = (bytes, sizes.iter().cycle());
    while !rest.is_empty() {
        let size = sizes
            .next()
            .map_or(rest.len(), |size| rest.len().min(*size));
        let (piece, behind) = rest.split_at(size);
        assert_eq!(sender.send_from(piece), Ok(size), "it fits into the socket");
        rest = behind;
        if take(&mut inbox, &mut found).is_err() {
            return (found, End::Broken);
        }
        assert_eq!(inbox.buffer.len(), BUFFER);
        assert!(inbox.output.bytes.capacity() <= 1024);
        if inbox.has_ended() {
            break;
        }
    }
    sender.shut_down_output();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if take(&mut inbox, &mut found).is_err() {
            return (found, End::Broken);
        }
        match inbox.peer() {
            Peer::Closed => return (found, End::Closed),
            Peer::Lost => return (found, End::Lost),
            _ => assert!(Instant::now() < deadline, "no end"),
        }
    }
}

/// Bytes of a frame: mostly sound.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let bytes = |most| proptest::collection::vec(any::<u8>(), 0..most);
    let fragment = |is_first: bool| {
        (any::<bool>(), bytes(9), bytes(200)).prop_map(move |(more, immediate, data)| {
            let mut flags = u8::from(is_first) | u8::from(more) << 1;
            if !immediate.is_empty() {
                flags |= 4;
            }
            let header = frame(FRAGMENT, flags, immediate.len(), data.len() as u32);
            [&header[..], &immediate, &data].concat()
        })
    };
    let long = (1_usize..4).prop_map(|quarters| {
        let data = vec![0x5a; quarters * 8 * 1024];
        let header = frame(FRAGMENT, FIRST, 0, data.len() as u32);
        [&header[..], &data].concat()
    });
    prop_oneof![
        8 => fragment(true),
        4 => fragment(false),
        2 => long,
        2 => Just(frame(WANT, 0, 0, 0).to_vec()),
        1 => Just(frame(END, 0, 0, 0).to_vec()),
        1 => any::<[u8; HEADER]>().prop_map(Vec::from),
        1 => bytes(12),
        1 => (0..4_u8, any::<u8>(), 0..10_u8, any::<u32>()).prop_map(|(kind, flags, immediate, len)| {
            frame(kind, flags, usize::from(immediate), len).to_vec()
        }),
    ]
}

proptest! {
    #[test]
    fn any_bytes_in_any_pieces_are_decoded_as_documented(
        frames in proptest::collection::vec(frames(), 0..12),
        sizes in proptest::collection::vec(prop_oneof![1..20_usize, 1..40_000_usize], 1..8),
        receives in 0..8_usize,
    ) {
        let bytes = frames.concat();
        // Many pieces of a long input take long, and show nothing more.
        let sizes: Vec<usize> = sizes.into_iter().map(|size| size.max(bytes.len() / 100)).collect();
        let expected = expected(&bytes, receives as u64);
        prop_assert_eq!(received(&bytes, &sizes, receives), expected);
    }

    #[test]
    fn any_answers_of_a_receiver_cost_no_memory(
        answers in proptest::collection::vec(any::<[u8; HEADER]>(), 0..20),
        sizes in proptest::collection::vec(1..20_usize, 1..4),
    ) {
        let (here, there) = crate::agent::stream_pair();
        let link = Link::example();
        let bell = link.bell().unwrap();
        let mut outbox = NetworkOutbox::over(here, link, bell);
        let (bytes, mut sizes) = (answers.concat(), sizes.iter().cycle());
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
            // Fails after the end.
            let _ = there.send_from(piece);
            rest = behind;
            outbox.set_readable();
            outbox.look();
        }
        there.shut_down_output();
        let deadline = Instant::now() + Duration::from_secs(60);
        while outbox.end.is_none() {
            prop_assert!(Instant::now() < deadline, "no end");
            outbox.set_readable();
            outbox.look();
        }
        // Granted are the credits before the first frame of another kind.
        let credits = answers.iter().take_while(|answer| answer[0] == CREDITS).fold(0_u64, |sum, answer| {
            sum + u64::from(u32::from_le_bytes([answer[4], answer[5], answer[6], answer[7]]))
        });
        prop_assert_eq!(outbox.credits, credits);
        let other = answers.iter().find(|answer| answer[0] != CREDITS);
        let end = match other {
            Some([END, ..]) => Peer::Closed,
            _ => Peer::Lost,
        };
        prop_assert_eq!(outbox.end, Some(end));
        prop_assert_eq!(outbox.output.bytes.len(), 0);
    }
}
