use proptest::prelude::*;

use super::*;
use crate::guest::*;
use crate::inflight::{Inflight, create};

/// Executes all parts of the ring on a disk.
fn serve(ring: &mut Ring, disk: &mut [u8]) -> Result<usize, RingError> {
    let mut count = 0;
    while let Some(part) = ring.next_part()? {
        count += 1;
        let range = part.offset as usize..part.offset as usize + part.len as usize;
        match part.operation {
            Operation::Read => {
                ring.handed_out(&part);
                ring.complete(part.tag, Outcome::Done(&disk[range]));
            }
            Operation::Write { .. } => {
                ring.copy_from_guest(&part, &mut disk[range])
                    .expect("the memory is there");
                ring.handed_out(&part);
                ring.complete(part.tag, Outcome::Done(&[]));
            }
            Operation::WriteZeroes { .. } | Operation::Discard => {
                disk[range].fill(0);
                ring.handed_out(&part);
                ring.complete(part.tag, Outcome::Done(&[]));
            }
            Operation::Flush => {
                ring.handed_out(&part);
                ring.complete(part.tag, Outcome::Done(&[]));
            }
        }
    }
    Ok(count)
}

#[test]
fn large_requests_are_divided_and_complete_once() {
    let mut guest = Guest::new();
    let mut ring = guest.ring().expect("a ring");
    let content: Vec<u8> = (0..20480_u32).map(|at| (at / 7) as u8).collect();
    guest.write(DATA, &content);
    guest.offer_request(0, OUT, 3, 20480);
    let mut disk = vec![0xff; DEVICE.size as usize];
    assert_eq!(serve(&mut ring, &mut disk).expect("served"), 3);
    assert_eq!(disk[3 * 512..3 * 512 + 20480], content);
    assert!(
        disk[..3 * 512]
            .iter()
            .chain(&disk[3 * 512 + 20480..])
            .all(|&byte| byte == 0xff)
    );
    assert_eq!(
        (guest.status(0), guest.used(), guest.used_element(0)),
        (0, 1, (0, 1))
    );
    assert!(ring.take_notification());
    assert!(!ring.take_notification());

    guest.write(DATA, &[0; 20480]);
    guest.offer_request(4, IN, 3, 20480);
    assert_eq!(serve(&mut ring, &mut disk).expect("served"), 3);
    assert_eq!(guest.read(DATA, 20480), content);
    assert_eq!(
        (guest.status(4), guest.used(), guest.used_element(1)),
        (0, 2, (4, 20481))
    );
}

#[test]
fn parts_complete_in_any_order() {
    let mut guest = Guest::new();
    let mut ring = guest.ring().expect("a ring");
    guest.offer_request(0, IN, 0, 16384);
    guest.offer_request(4, IN, 0, 512);
    let mut parts = Vec::new();
    while let Some(part) = ring.next_part().expect("no error") {
        ring.handed_out(&part);
        parts.push(part);
    }
    assert_eq!(parts.len(), 3);
    ring.complete(parts[1].tag, Outcome::Done(&[2; 8192]));
    assert_eq!(guest.used(), 0);
    ring.complete(parts[2].tag, Outcome::Done(&[3; 512]));
    assert_eq!((guest.used(), guest.used_element(0).0), (1, 4));
    assert!(!ring.is_drained());
    ring.complete(parts[0].tag, Outcome::Done(&[1; 8192]));
    assert_eq!((guest.used(), guest.used_element(1).0), (2, 0));
    assert_eq!(
        [
            guest.byte(DATA + 512),
            guest.byte(DATA + 8191),
            guest.byte(DATA + 8192)
        ],
        [1, 1, 2]
    );
    assert!(ring.is_drained());
}

#[test]
fn failed_part_fails_only_its_request() {
    let mut guest = Guest::new();
    let mut ring = guest.ring().expect("a ring");
    guest.offer_request(0, IN, 0, 16384);
    guest.offer_request(4, FLUSH, 0, 0);
    for outcome in [
        Outcome::Failed,
        Outcome::Done(&[0; 8192]),
        Outcome::Done(&[]),
    ] {
        let part = ring.next_part().expect("no error").expect("a part");
        ring.handed_out(&part);
        ring.complete(part.tag, outcome);
    }
    assert_eq!([guest.status(0), guest.status(4)], [1, 0]);
    assert_eq!(guest.used(), 2);
}

#[test]
fn part_without_guest_memory_fails_its_request() {
    let mut guest = Guest::new();
    let mut ring = guest.ring().expect("a ring");
    guest.offer_request(0, OUT, 0, 16384);
    let part = ring.next_part().expect("no error").expect("a part");
    ring.handed_out(&part);
    assert!(ring.next_part().expect("no error").is_some());
    ring.fail_part();
    assert_eq!(guest.used(), 0, "a part is outstanding");
    ring.complete(part.tag, Outcome::Done(&[]));
    assert_eq!((guest.used(), guest.status(0)), (1, 1));
    assert_eq!(ring.next_part().expect("no error"), None);
}

#[test]
fn drivers_without_flush_get_durable_writes() {
    for (write_through, has_flush, fua) in [
        (false, true, false),
        (true, true, true),
        (true, false, false),
    ] {
        let mut guest = Guest::new();
        let device = Device {
            flush: has_flush,
            ..DEVICE
        };
        let mut ring = Ring::new(Setup {
            write_through,
            device,
            ..guest.setup()
        })
        .expect("a ring");
        guest.offer_request(0, OUT, 0, 512);
        let part = ring.next_part().expect("no error").expect("a part");
        assert_eq!(part.operation, Operation::Write { fua });
    }
}

#[test]
fn identifier_is_truncated_to_the_buffer() {
    let mut guest = Guest::new();
    let mut ring = guest.ring().expect("a ring");
    guest.write(DATA, &[0xee; 32]);
    guest.offer_request(0, ID, 0, 20);
    assert_eq!(ring.next_part().expect("no error"), None);
    assert_eq!(guest.read(DATA, 21), [&DEVICE.id[..], &[0xee]].concat());
    assert_eq!((guest.status(0), guest.used_element(0)), (0, (0, 21)));
    guest.write(DATA, &[0xee; 32]);
    guest.offer_request(0, ID, 0, 4);
    assert_eq!(ring.next_part().expect("no error"), None);
    assert_eq!(guest.read(DATA, 5), b"iden\xee");
}

#[test]
fn a_descriptor_that_is_in_flight_cannot_be_available() {
    let mut guest = Guest::new();
    let mut ring = guest.ring().expect("a ring");
    guest.offer_request(0, IN, 0, 512);
    guest.offer(0);
    let part = ring.next_part().expect("no error").expect("a part");
    ring.handed_out(&part);
    assert!(matches!(ring.next_part(), Err(RingError::InFlight(0))));
    ring.complete(part.tag, Outcome::Done(&[0; 512]));
    assert_eq!(guest.used(), 1);
}

#[test]
fn an_impossible_available_index_stops_the_queue() {
    let guest = Guest::new();
    let mut ring = guest.ring().expect("a ring");
    guest.write(AVAILABLE + 2, &(SIZE + 1).to_le_bytes());
    assert!(matches!(
        ring.next_part(),
        Err(RingError::AvailableIndex {
            index: 17,
            next: 0,
            size: SIZE
        })
    ));
}

#[test]
fn rings_outside_of_memory_are_refused() {
    let guest = Guest::new();
    let new = |change: fn(&mut Setup)| {
        let mut setup = guest.setup();
        change(&mut setup);
        Ring::new(setup).map(drop)
    };
    assert!(new(|_| ()).is_ok());
    assert!(matches!(new(|it| it.size = 0), Err(RingError::Size(0))));
    assert!(matches!(new(|it| it.size = 24), Err(RingError::Size(24))));
    assert!(matches!(
        new(|it| it.size = 2048),
        Err(RingError::Size(2048))
    ));
    for change in [
        (|it| it.used = GuestAddress(MEMORY - 4)) as fn(&mut Setup),
        |it| it.descriptors = GuestAddress(u64::MAX - 15),
        |it| it.available = GuestAddress(AVAILABLE + 1),
        |it| it.descriptors = GuestAddress(DESCRIPTORS + 8),
    ] {
        assert!(matches!(new(change), Err(RingError::Rings(_))));
    }
}

#[test]
fn drained_ring_completes_taken_requests_only() {
    let mut guest = Guest::new();
    let mut ring = guest.ring().expect("a ring");
    guest.offer_request(0, IN, 0, 16384);
    guest.offer_request(4, FLUSH, 0, 0);
    let part = ring.next_part().expect("no error").expect("a part");
    ring.handed_out(&part);
    ring.drain();
    ring.complete(part.tag, Outcome::Done(&[0; 8192]));
    assert!(!ring.is_drained());
    assert_eq!(
        serve(&mut ring, &mut vec![0; DEVICE.size as usize]).expect("served"),
        1
    );
    assert!(ring.is_drained());
    assert_eq!((guest.used(), ring.next_available()), (1, 1));
    // Another ring continues at the same position.
    let mut next = Ring::new(Setup {
        next_available: 1,
        ..guest.setup()
    })
    .expect("a ring");
    assert_eq!(serve(&mut next, &mut []).expect("served"), 1);
    assert_eq!((guest.used(), guest.used_element(1).0), (2, 4));
}

#[test]
fn incomplete_requests_are_served_by_the_next_back_end() {
    let mut guest = Guest::new();
    let (file, bytes) = create(1, SIZE).expect("memory");
    let inflight = Inflight::map(file, 0, bytes as u64, 1, SIZE).expect("mapped");
    let setup = |guest: &Guest, next_available| Setup {
        inflight: inflight.queue(0, SIZE),
        next_available,
        ..guest.setup()
    };
    let mut ring = Ring::new(setup(&guest, 0)).expect("a ring");
    for (head, sector) in [(0, 5), (3, 6), (6, 7)] {
        guest.offer_request(head, IN, sector, 512);
    }
    let mut parts = Vec::new();
    while let Some(part) = ring.next_part().expect("no error") {
        ring.handed_out(&part);
        parts.push(part);
    }
    ring.complete(parts[1].tag, Outcome::Done(&[0; 512]));
    ring.complete(parts[2].tag, Outcome::Abandoned);
    assert_eq!(guest.used(), 1);
    drop(ring);
    guest.offer_request(9, IN, 8, 512);
    // The front end knows only the used ring.
    let mut next = Ring::new(setup(&guest, 1)).expect("a ring");
    assert!(!next.arm(), "there is work");
    let mut offsets = Vec::new();
    while let Some(part) = next.next_part().expect("no error") {
        next.handed_out(&part);
        offsets.push(part.offset / 512);
        next.complete(part.tag, Outcome::Done(&[0; 512]));
    }
    assert_eq!(offsets, [5, 7, 8]);
    assert_eq!((guest.used(), next.next_available()), (4, 4));
    assert_eq!([0, 3, 6, 9].map(|head| guest.status(head)), [0; 4]);
}

#[test]
fn notifications_are_sent_if_the_driver_wants_them() {
    for event_idx in [false, true] {
        let mut guest = Guest::new();
        let mut ring = Ring::new(Setup {
            event_idx,
            ..guest.setup()
        })
        .expect("a ring");
        let unwanted = |guest: &Guest, is_unwanted: bool| {
            guest.write(AVAILABLE, &u16::from(is_unwanted).to_le_bytes());
            // The event index is far ahead, or that of the next completion.
            let event = if is_unwanted {
                guest.used() + 100
            } else {
                guest.used()
            };
            guest.write(AVAILABLE + 4 + 2 * u64::from(SIZE), &event.to_le_bytes());
        };
        for is_unwanted in [true, false, true] {
            unwanted(&guest, is_unwanted);
            guest.offer_request(0, FLUSH, 0, 0);
            assert!(!ring.arm(), "a request is available");
            assert_eq!(serve(&mut ring, &mut []).expect("served"), 1);
            assert_eq!(ring.take_notification(), !is_unwanted, "{event_idx}");
            assert!(ring.arm());
        }
    }
}

proptest! {
    /// Arbitrary bytes in rings and descriptors, changed while requests are in flight: no panic, and every part is
    /// within the device.
    #[test]
    fn arbitrary_guest_memory_never_panics(
        rounds in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 256), prop::collection::vec(any::<u8>(), 40), any::<u64>(), any::<bool>()), 1..4),
        lengths in prop::collection::vec(prop_oneof![Just(16_u32), Just(512), Just(1), any::<u32>()], 16),
        kinds in prop::collection::vec(0..15_u32, 4),
    ) {
        let guest = Guest::new();
        let mut ring = guest.ring().expect("a ring");
        let mut outstanding = Vec::new();
        for (descriptors, available, choice, is_plausible) in rounds {
            guest.write(DESCRIPTORS, &descriptors);
            guest.write(AVAILABLE, &available);
            for (index, kind) in kinds.iter().enumerate() {
                guest.header(DATA + 16 * index as u64, *kind, choice % 600);
            }
            if is_plausible {
                for (index, len) in lengths.iter().enumerate() {
                    let flags = if index % 3 == 2 { WRITE } else { NEXT | ((choice >> index) as u16 & WRITE) };
                    let address = DATA + 16 * (choice >> index & 3);
                    guest.descriptor_at(DESCRIPTORS, index as u16, address, *len, flags, (index as u16 + 1) % SIZE);
                }
                guest.write(AVAILABLE + 2, &ring.next_available().wrapping_add(1).to_le_bytes());
                guest.write(AVAILABLE + 4, &[0; 32]);
            }
            for _ in 0..64 {
                let Ok(Some(part)) = ring.next_part() else {
                    break;
                };
                prop_assert!(part.operation == Operation::Flush || part.offset + u64::from(part.len) <= DEVICE.size);
                if let Operation::Write { .. } = part.operation {
                    let mut buffer = vec![0; part.len as usize];
                    if ring.copy_from_guest(&part, &mut buffer).is_err() {
                        ring.fail_part();
                        continue;
                    }
                }
                ring.handed_out(&part);
                outstanding.push(part);
            }
            for part in outstanding.drain(..) {
                let data = vec![0; if part.operation == Operation::Read { part.len as usize } else { 0 }];
                ring.complete(part.tag, if choice & 1 == 0 { Outcome::Done(&data) } else { Outcome::Failed });
            }
            prop_assert_eq!(ring.outstanding(), 0);
        }
    }
}
