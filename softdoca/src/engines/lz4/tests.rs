use std::io::Write as _;

use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
use proptest::prelude::*;

use super::*;

const PLAIN: StreamFormat = StreamFormat {
    block_checksums: false,
    independent_blocks: true,
};

/// Compressible, and different everywhere.
fn text(len: usize) -> Vec<u8> {
    (0u32..)
        .flat_map(|line| format!("line {} of {}\n", line, line % 97).into_bytes())
        .take(len)
        .collect()
}

fn noise(len: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// A frame's blocks as an encoder that we did not write makes them; the encoder itself uses the shortest header, of 7 bytes.
fn stream(data: &[u8], format: StreamFormat, size: BlockSize) -> Vec<u8> {
    let mode = if format.independent_blocks {
        BlockMode::Independent
    } else {
        BlockMode::Linked
    };
    let info = FrameInfo::new()
        .block_mode(mode)
        .block_size(size)
        .block_checksums(format.block_checksums)
        .content_checksum(false);
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(data).unwrap();
    let frame = encoder.finish().unwrap();
    frame[7..frame.len() - 4].to_vec()
}

fn decode(source: &[u8], format: StreamFormat, room: usize) -> Result<Vec<u8>> {
    let mut output = Vec::new();
    let done = Decompressor::default().stream(source, format, room, |data| {
        output.extend_from_slice(data);
        Ok(())
    })?;
    assert_eq!(done, output.len());
    Ok(output)
}

#[test]
fn streams_of_every_format_come_back() {
    let mixed = [text(100_000), noise(150_000), text(70_000)].concat();
    for (block_checksums, independent_blocks) in
        [(false, true), (true, true), (false, false), (true, false)]
    {
        let format = StreamFormat {
            block_checksums,
            independent_blocks,
        };
        for size in [BlockSize::Max64KB, BlockSize::Max256KB, BlockSize::Max4MB] {
            for data in [&mixed[..], &mixed[..1], &mixed[..65_536], &mixed[..65_537]] {
                let source = stream(data, format, size);
                assert!(
                    decode(&source, format, data.len()).unwrap() == data,
                    "{format:?}"
                );
            }
        }
    }
    assert_eq!(decode(&[], PLAIN, 0), Ok(Vec::new()));
}

#[test]
fn a_decompressor_can_be_used_again() {
    let mut decompressor = Decompressor::default();
    let large = text(3 << 20);
    for data in [&large[..], &large[..10], &noise(100_000)] {
        let source = stream(data, PLAIN, BlockSize::Max4MB);
        let mut output = Vec::new();
        let mut sink = |piece: &[u8]| {
            output.extend_from_slice(piece);
            Ok(())
        };
        decompressor
            .stream(&source, PLAIN, data.len(), &mut sink)
            .unwrap();
        assert!(output == data);
    }
}

#[test]
fn data_that_does_not_fit_is_refused() {
    for data in [text(200_000), noise(200_000), text(100)] {
        let source = stream(&data, PLAIN, BlockSize::Max64KB);
        for room in [0, 1, 63, data.len() / 2, data.len() - 1] {
            let mut got = 0;
            let result = Decompressor::default().stream(&source, PLAIN, room, |data| {
                got += data.len();
                Ok(())
            });
            assert_eq!(result, Err(Error::IoFailed));
            assert!(got <= room);
        }
    }
}

#[test]
fn malformed_streams_are_refused() {
    let source = stream(&text(1000), PLAIN, BlockSize::Max64KB);
    for len in 1..source.len() {
        assert_eq!(
            decode(&source[..len], PLAIN, 2000),
            Err(Error::IoFailed),
            "{len}"
        );
    }
    let with_end_mark = [&source[..], &[0; 4]].concat();
    assert_eq!(decode(&with_end_mark, PLAIN, 2000), Err(Error::IoFailed));
    let checked = StreamFormat {
        block_checksums: true,
        ..PLAIN
    };
    let mut source = stream(&text(1000), checked, BlockSize::Max64KB);
    *source.last_mut().unwrap() ^= 1;
    assert_eq!(decode(&source, checked, 2000), Err(Error::IoFailed));
    // A match at the very beginning can refer to nothing.
    let source = [&[5u8, 0, 0, 0][..], &[0x00, 1, 0, 0x10, 7]].concat();
    assert_eq!(decode(&source, PLAIN, 2000), Err(Error::IoFailed));
}

#[test]
fn the_sink_can_refuse() {
    let source = stream(&text(10), PLAIN, BlockSize::Max64KB);
    let result =
        Decompressor::default().stream(&source, PLAIN, 10, |_| Err(Error::ConnectionReset));
    assert_eq!(result, Err(Error::ConnectionReset));
}

#[test]
fn single_blocks() {
    let data = text(5 << 20);
    let source = lz4_flex::block::compress(&data);
    let mut output = Vec::new();
    let mut decompressor = Decompressor::default();
    let done = decompressor
        .single_block(&source, data.len(), |block| {
            output.extend_from_slice(block);
            Ok(())
        })
        .unwrap();
    assert!(output == data && done == data.len());
    let short = decompressor.single_block(&source, data.len() - 1, |_| Ok(()));
    assert_eq!(short, Err(Error::IoFailed));
    let cut = decompressor.single_block(&source[..9], data.len(), |_| Ok(()));
    assert_eq!(cut, Err(Error::IoFailed));
}

proptest! {
    #[test]
    fn nothing_overruns_whatever_comes(
        source in proptest::collection::vec(any::<u8>(), 0..300),
        first in 0u32..300,
        room in 0usize..500,
        block_checksums: bool,
        independent_blocks: bool,
    ) {
        let format = StreamFormat { block_checksums, independent_blocks };
        let source = [&first.to_le_bytes()[..], &source].concat();
        if let Ok(data) = decode(&source, format, room) {
            prop_assert!(data.len() <= room);
        }
    }
}
