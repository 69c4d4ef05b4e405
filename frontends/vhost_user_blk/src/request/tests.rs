use proptest::prelude::*;

use super::*;
use crate::guest::*;

fn parse(guest: &Guest, device: &Device) -> (Request, Result<Verdict, ChainError>) {
    let mut request = Request::default();
    let verdict = request.parse(&guest.memory, Guest::table(), 0, device);
    (request, verdict)
}

/// Parses a request with a header, these further descriptors, and a status byte.
fn with(
    kind: u32,
    sector: u64,
    data: &[(u64, u32, u16)],
) -> (Request, Result<Verdict, ChainError>) {
    let guest = Guest::new();
    guest.header(DATA, kind, sector);
    let chain = [&[(DATA, 16, 0)], data, &[(STATUS_AT, 1, WRITE)]].concat();
    guest.chain(0, &chain);
    parse(&guest, &DEVICE)
}

fn segment(address: u64, len: u32) -> Segment {
    Segment {
        address: GuestAddress(address),
        len,
    }
}

#[test]
fn read_has_its_segments_and_status() {
    let (request, verdict) = with(
        VIRTIO_BLK_T_IN,
        8,
        &[(DATA + 0x1000, 512, WRITE), (DATA + 0x3000, 1024, WRITE)],
    );
    assert_eq!(verdict, Ok(Verdict::Execute(Kind::Read)));
    assert_eq!(
        request.segments,
        [segment(DATA + 0x1000, 512), segment(DATA + 0x3000, 1024)]
    );
    assert_eq!((request.offset, request.len), (4096, 1536));
    assert_eq!(request.status, GuestAddress(STATUS_AT));
}

#[test]
fn write_is_parsed_with_any_framing() {
    let guest = Guest::new();
    guest.header(DATA, VIRTIO_BLK_T_OUT, 3);
    // The header is in two descriptors, the second of which also has data, and the status byte is preceded by other writable bytes.
    guest.chain(
        0,
        &[
            (DATA, 5, 0),
            (0, 0, 0),
            (DATA + 5, 11 + 500, 0),
            (DATA + 0x2000, 12, 0),
            (STATUS_AT - 9, 10, WRITE),
        ],
    );
    let (request, verdict) = parse(&guest, &DEVICE);
    assert_eq!(verdict, Ok(Verdict::Execute(Kind::Write)));
    assert_eq!(
        request.segments,
        [segment(DATA + 16, 500), segment(DATA + 0x2000, 12)]
    );
    assert_eq!((request.offset, request.len), (3 * 512, 512));
    assert_eq!(request.status, GuestAddress(STATUS_AT));
}

#[test]
fn indirect_table_is_followed() {
    let guest = Guest::new();
    let table = DATA + 0x4000;
    guest.header(DATA, VIRTIO_BLK_T_OUT, 0);
    guest.chain(0, &[(table, 48, INDIRECT)]);
    guest.descriptor_at(table, 0, DATA, 16, NEXT, 2);
    guest.descriptor_at(table, 2, DATA + 0x1000, 512, NEXT, 1);
    guest.descriptor_at(table, 1, STATUS_AT, 1, WRITE, 0);
    let (request, verdict) = parse(&guest, &DEVICE);
    assert_eq!(verdict, Ok(Verdict::Execute(Kind::Write)));
    assert_eq!(request.segments, [segment(DATA + 0x1000, 512)]);
}

#[test]
fn indirect_tables_of_wrong_shape_stop_the_queue() {
    let table = DATA + 0x4000;
    for (len, flags) in [
        (0, INDIRECT),
        (47, INDIRECT),
        (1025 * 16, INDIRECT),
        (48, INDIRECT | NEXT),
    ] {
        let guest = Guest::new();
        guest.descriptor_at(DESCRIPTORS, 0, table, len, flags, 1);
        assert_eq!(
            parse(&guest, &DEVICE).1,
            Err(ChainError::Indirect),
            "{len} {flags}"
        );
    }
    let guest = Guest::new();
    guest.chain(0, &[(table, 48, INDIRECT)]);
    guest.descriptor_at(table, 0, table, 48, INDIRECT, 0);
    assert_eq!(parse(&guest, &DEVICE).1, Err(ChainError::Indirect));
    let guest = Guest::new();
    guest.chain(0, &[(MEMORY - 8, 48, INDIRECT)]);
    assert_eq!(
        parse(&guest, &DEVICE).1,
        Err(ChainError::Table {
            address: MEMORY - 8
        })
    );
}

#[test]
fn loops_stop_the_queue() {
    let guest = Guest::new();
    guest.descriptor_at(DESCRIPTORS, 0, DATA, 16, NEXT, 1);
    guest.descriptor_at(DESCRIPTORS, 1, DATA, 16, NEXT, 0);
    assert_eq!(
        parse(&guest, &DEVICE).1,
        Err(ChainError::TooLong { most: SIZE })
    );
    let guest = Guest::new();
    guest.descriptor_at(DESCRIPTORS, 0, DATA, 16, NEXT, SIZE);
    assert_eq!(
        parse(&guest, &DEVICE).1,
        Err(ChainError::Index {
            index: SIZE,
            size: SIZE
        })
    );
}

#[test]
fn chains_without_a_status_byte_stop_the_queue() {
    let guest = Guest::new();
    guest.header(DATA, VIRTIO_BLK_T_OUT, 0);
    guest.chain(0, &[(DATA, 16, 0), (DATA, 512, 0)]);
    assert_eq!(parse(&guest, &DEVICE).1, Err(ChainError::Status));
    guest.chain(0, &[(DATA, 16, 0), (DATA, 512, 0), (MEMORY, 1, WRITE)]);
    assert_eq!(parse(&guest, &DEVICE).1, Err(ChainError::Status));
    guest.chain(0, &[(DATA, 16, 0), (u64::MAX, 2, WRITE)]);
    assert_eq!(parse(&guest, &DEVICE).1, Err(ChainError::Status));
}

#[test]
fn readable_behind_writable_stops_the_queue() {
    let guest = Guest::new();
    guest.chain(0, &[(DATA, 16, 0), (STATUS_AT, 1, WRITE), (DATA, 512, 0)]);
    assert_eq!(parse(&guest, &DEVICE).1, Err(ChainError::Order));
}

#[test]
fn ranges_and_lengths_are_checked() {
    let sectors = DEVICE.sectors();
    let data = |len| [(DATA + 0x1000, len, WRITE)];
    let io_error = Ok(Verdict::Answer(Status::IoError));
    assert_eq!(
        with(VIRTIO_BLK_T_IN, sectors - 1, &data(512)).1,
        Ok(Verdict::Execute(Kind::Read))
    );
    for (sector, len) in [
        (sectors - 1, 1024),
        (sectors, 512),
        (u64::MAX, 512),
        (u64::MAX / 512, 1024),
        (0, 511),
        (0, 513),
        (0, 0),
    ] {
        assert_eq!(
            with(VIRTIO_BLK_T_IN, sector, &data(len)).1,
            io_error,
            "{sector} {len}"
        );
    }
    // Data for the device where data for the driver is expected, and vice versa.
    assert_eq!(with(VIRTIO_BLK_T_IN, 0, &[(DATA, 512, 0)]).1, io_error);
    assert_eq!(with(VIRTIO_BLK_T_OUT, 0, &data(512)).1, io_error);
    // Data partially or completely outside guest memory.
    for address in [MEMORY - 511, MEMORY, u64::MAX - 600, u64::MAX] {
        assert_eq!(
            with(VIRTIO_BLK_T_OUT, 0, &[(address, 512, 0)]).1,
            io_error,
            "{address:#x}"
        );
    }
}

#[test]
fn unknown_and_unoffered_types_are_unsupported() {
    let unsupported = Ok(Verdict::Answer(Status::Unsupported));
    for kind in [2, 3, 5, 14, 16, u32::MAX] {
        assert_eq!(with(kind, 0, &[]).1, unsupported, "{kind}");
    }
    let guest = Guest::new();
    guest.header(DATA, VIRTIO_BLK_T_FLUSH, 0);
    guest.chain(0, &[(DATA, 16, 0), (STATUS_AT, 1, WRITE)]);
    assert_eq!(parse(&guest, &DEVICE).1, Ok(Verdict::Execute(Kind::Flush)));
    assert_eq!(
        parse(
            &guest,
            &Device {
                flush: false,
                ..DEVICE
            }
        )
        .1,
        unsupported
    );
}

#[test]
fn read_only_refuses_operations_that_write() {
    let device = Device {
        read_only: true,
        ..DEVICE
    };
    for kind in [
        VIRTIO_BLK_T_OUT,
        VIRTIO_BLK_T_DISCARD,
        VIRTIO_BLK_T_WRITE_ZEROES,
    ] {
        let guest = Guest::new();
        guest.header(DATA, kind, 0);
        guest.write(DATA + 16, &1_u64.to_le_bytes());
        guest.write(DATA + 24, &1_u32.to_le_bytes());
        guest.chain(
            0,
            &[
                (DATA, 16, 0),
                (
                    DATA + 16,
                    if kind == VIRTIO_BLK_T_OUT { 512 } else { 16 },
                    0,
                ),
                (STATUS_AT, 1, WRITE),
            ],
        );
        assert!(
            matches!(parse(&guest, &DEVICE).1, Ok(Verdict::Execute(_))),
            "{kind}"
        );
        assert_eq!(
            parse(&guest, &device).1,
            Ok(Verdict::Answer(Status::IoError)),
            "{kind}"
        );
    }
}

#[test]
fn zeroes_and_discards_have_ranges() {
    let zeroes = |kind, segments: &[(u64, u32, u32)]| {
        let guest = Guest::new();
        guest.header(DATA, kind, 0);
        for (at, (sector, sectors, flags)) in segments.iter().enumerate() {
            let bytes = [
                &sector.to_le_bytes()[..],
                &sectors.to_le_bytes(),
                &flags.to_le_bytes(),
            ]
            .concat();
            guest.write(DATA + 16 + 16 * at as u64, &bytes);
        }
        guest.chain(
            0,
            &[
                (DATA, 16 + 16 * segments.len() as u32, 0),
                (STATUS_AT, 1, WRITE),
            ],
        );
        let (request, verdict) = parse(&guest, &DEVICE);
        (request.ranges, verdict)
    };
    let (discard, write_zeroes) = (VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_WRITE_ZEROES);
    let two = [
        Range {
            offset: 512,
            len: 1024,
        },
        Range {
            offset: 5120,
            len: 512,
        },
    ];
    let execute = |kind| Ok(Verdict::Execute(kind));
    let answer = |status| Ok(Verdict::Answer(status));
    assert_eq!(
        zeroes(discard, &[(1, 2, 0), (4, 0, 0), (10, 1, 0)]),
        (two.to_vec(), execute(Kind::Discard))
    );
    assert_eq!(
        zeroes(write_zeroes, &[(1, 2, 1), (10, 1, 0)]),
        (two.to_vec(), execute(Kind::WriteZeroes))
    );
    assert_eq!(zeroes(write_zeroes, &[(1, 0, 0)]).1, answer(Status::Ok));
    assert_eq!(zeroes(discard, &[(1, 2, 1)]).1, answer(Status::Unsupported));
    assert_eq!(
        zeroes(write_zeroes, &[(1, 2, 2)]).1,
        answer(Status::Unsupported)
    );
    assert_eq!(
        zeroes(write_zeroes, &[(DEVICE.sectors(), 1, 0)]).1,
        answer(Status::IoError)
    );
    assert_eq!(
        zeroes(write_zeroes, &[(u64::MAX, 1, 0)]).1,
        answer(Status::IoError)
    );
    assert_eq!(
        zeroes(write_zeroes, &[(0, u32::MAX, 0)]).1,
        answer(Status::IoError)
    );
    assert_eq!(zeroes(write_zeroes, &[]).1, answer(Status::IoError));
    assert_eq!(
        zeroes(write_zeroes, &[(0, 1, 0); 17]).1,
        answer(Status::IoError)
    );
}

#[test]
fn each_part_finds_its_bytes() {
    let request = Request {
        segments: vec![segment(100, 10), segment(300, 5), segment(500, 20)],
        ..Request::default()
    };
    let parts = |from, len| {
        let mut parts = Vec::new();
        let result = request.each_part(from, len, |address, range| {
            parts.push((address.0, range));
            Ok(())
        });
        (parts, result)
    };
    assert_eq!(parts(0, 10), (vec![(100, 0..10)], Ok(())));
    assert_eq!(
        parts(8, 10),
        (vec![(108, 0..2), (300, 2..7), (500, 7..10)], Ok(()))
    );
    assert_eq!(parts(15, 20), (vec![(500, 0..20)], Ok(())));
    assert_eq!(parts(15, 21).1, Err(Status::IoError));
}

/// A descriptor that is valid often enough.
fn descriptor() -> impl Strategy<Value = (u64, u32, u16, u16)> {
    let address = prop_oneof![
        Just(DATA),
        Just(DATA + 0x4000),
        Just(STATUS_AT),
        Just(DESCRIPTORS),
        0..MEMORY + 600,
        any::<u64>()
    ];
    let len = prop_oneof![
        Just(1),
        Just(16),
        Just(32),
        Just(512),
        Just(1024),
        0..2000_u32,
        any::<u32>()
    ];
    let flags = prop_oneof![
        Just(NEXT),
        Just(NEXT | WRITE),
        Just(WRITE),
        Just(0),
        Just(INDIRECT),
        any::<u16>()
    ];
    (address, len, flags, 0..SIZE + 2)
}

proptest! {
    #[test]
    fn arbitrary_chain_is_parsed_within_the_limits(
        descriptors in prop::collection::vec(descriptor(), usize::from(SIZE)),
        indirect in prop::collection::vec(descriptor(), 8),
        kind in prop_oneof![0..20_u32, any::<u32>()],
        sector in prop_oneof![0..600_u64, any::<u64>()],
        head in 0..SIZE + 2,
        read_only in any::<bool>(),
    ) {
        let guest = Guest::new();
        guest.header(DATA, kind, sector);
        for (table, descriptors) in [(DESCRIPTORS, &descriptors), (DATA + 0x4000, &indirect)] {
            for (index, &(address, len, flags, next)) in descriptors.iter().enumerate() {
                guest.descriptor_at(table, index as u16, address, len, flags, next);
            }
        }
        let device = Device { read_only, ..DEVICE };
        let mut request = Request::default();
        let Ok(verdict) = request.parse(&guest.memory, Guest::table(), head, &device) else {
            return Ok(());
        };
        prop_assert!(request.status.0 < MEMORY);
        if let Verdict::Execute(kind) = verdict {
            prop_assert!(request.segments.len() <= usize::from(MAX_QUEUE_SIZE));
            prop_assert!(!read_only || matches!(kind, Kind::Read | Kind::Flush));
            if matches!(kind, Kind::Read | Kind::Write) {
                prop_assert!(request.offset + request.len <= device.size);
                prop_assert_eq!(request.len, request.segments.iter().map(|it| u64::from(it.len)).sum::<u64>());
                for it in &request.segments {
                    prop_assert!(it.len != 0 && it.address.0 + u64::from(it.len) <= MEMORY);
                }
            }
            for range in &request.ranges {
                prop_assert!(range.len != 0 && range.offset + u64::from(range.len) <= device.size);
            }
        }
    }
}
