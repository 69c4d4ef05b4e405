//! Generated code for a schema with features that the protocol does not use, to test these features.
#![allow(
    dead_code,
    missing_docs,
    reason = "the tests use what they are about, and no more of a generated module"
)]

include!(concat!(env!("OUT_DIR"), "/odd/odd.rs"));

mod recording {
    include!(concat!(env!("OUT_DIR"), "/odd/recording.rs"));
}

mod table {
    use crate::layout::{ByteOrder, Field, Kind, Message};

    include!(concat!(env!("OUT_DIR"), "/odd/layout_table.rs"));
}

mod tests {
    use bytes::{Bytes, BytesMut};

    use super::*;
    use crate::DecodeError;

    fn letters() -> [(Letter, &'static [u8]); 3] {
        let letter = |content| Letter {
            id: 0x0102,
            content,
        };
        let widths = Widths {
            one: 0x11,
            two: 0x2122,
            four: 0x4142_4344,
            eight: 0x8182_8384_8586_8788,
            colour: Colour::BrightRed,
        };
        let note = Note {
            r#type: Shade::Light,
            text: "hi".into(),
        };
        [
            (
                letter(Content::Widths(widths)),
                b"\x1a\x00\xc8\x00\x01\x02\x00\x00\
                  \x11\x22\x21\x44\x43\x42\x41\x88\x87\x86\x85\x84\x83\x82\x81\x00\xcd\xab\x01\x02",
            ),
            (
                letter(Content::Note(note)),
                b"\x0d\x00\x05\x00\x01\x02\x00\x00\xff\x00\x00\x00\x02hi",
            ),
            (
                letter(Content::Nothing),
                b"\x06\x00\xff\x00\x01\x02\x00\x00",
            ),
        ]
    }

    fn decode(bytes: &[u8]) -> Result<Letter, DecodeError> {
        assert_eq!(Letter::frame_size(bytes)?, Some(bytes.len()));
        Letter::decode_frame(&Bytes::copy_from_slice(bytes))
    }

    /// The first letter's frame with one byte changed.
    fn damaged(at: usize, value: u8) -> Result<Letter, DecodeError> {
        let mut bytes = letters()[0].1.to_vec();
        bytes[at] = value;
        decode(&bytes)
    }

    #[test]
    fn letters_are_written_and_read() {
        for (letter, bytes) in letters() {
            let mut out = BytesMut::new();
            letter.encode(&mut out);
            assert_eq!(out, bytes);
            assert_eq!(decode(bytes), Ok(letter));
        }
    }

    #[test]
    fn frame_size_comes_from_a_length_of_two_bytes() {
        assert_eq!(Letter::frame_size(&[6]), Ok(None));
        assert_eq!(Letter::frame_size(&[6, 0]), Ok(Some(8)));
        assert_eq!(Letter::frame_size(&[0x2a, 1]), Ok(Some(300)));
        for refused in [[5, 0], [0x2b, 1]] {
            let error = Letter::frame_size(&refused).expect_err("too short, too long");
            assert!(matches!(
                error,
                DecodeError::OutOfRange {
                    min: 6,
                    max: 298,
                    ..
                }
            ));
        }
    }

    #[test]
    fn reserved_bytes_are_skipped() {
        for at in [3, 6, 7, 23] {
            let (letter, _) = &letters()[0];
            assert_eq!(damaged(at, 0xff).as_ref(), Ok(letter), "byte {at}");
        }
    }

    #[test]
    fn limits_constants_and_values_are_checked() {
        let error = |at, value| damaged(at, value).expect_err("not accepted").to_string();
        assert_eq!(error(8, 101), "widths.one: expected 0 to 100, got 101");
        assert_eq!(error(24, 0xce), "widths.mark: expected 0xabcd, got 0xabce");
        assert_eq!(
            error(26, 2),
            "widths.colour: expected 0 (black) or 513 (bright_red), got 514"
        );
        assert_eq!(
            error(2, 1),
            "letter.type: expected 200 (widths), 5 (note) or 255 (nothing), got 1"
        );
        let mut bytes = letters()[0].1.to_vec();
        bytes[9..11].copy_from_slice(&[1, 0]);
        let error = decode(&bytes).expect_err("too small").to_string();
        assert_eq!(error, "widths.two: expected 2 to 65535, got 1");
    }

    #[test]
    fn view_reads_and_writes_both_byte_orders() {
        let values = Repr {
            shade: Shade::Light,
            x: 0x0102,
            y: 0x0304,
        };
        let mut tile = Tile::new_unchecked_len([0xee; SIZE]);
        values.emit(&mut tile);
        assert_eq!(Repr::parse(&tile), Ok(values));
        assert_eq!(tile.into_inner(), [0xff, 0x02, 0x01, 0x00, 0x03, 0x04]);
    }

    #[test]
    fn record_has_reserved_bytes_and_a_limit() {
        let bytes = [5, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0];
        let values = Box {
            height: 5,
            width: 10,
            depth: 20,
        };
        assert_eq!(values.emit(), bytes);
        let mut odd = bytes;
        odd[1..4].fill(0xff);
        assert_eq!(Box::parse(&odd), Ok(values));

        odd[0] = 6;
        let error = Box::parse(&odd).expect_err("too large").to_string();
        assert_eq!(error, "box.volume: expected 0 to 1000, got 1200");
        odd[4..].fill(0xff);
        let error = Box::parse(&odd)
            .expect_err("larger than any number")
            .to_string();
        assert_eq!(
            error,
            "box.volume: expected 0 to 1000, got 18446744073709551615"
        );
    }

    #[test]
    fn recordings_keep_narrow_numbers_and_refuse_wide_ones() {
        for (letter, _) in letters() {
            let recorded = recording::odd::Letter::from(&letter);
            assert_eq!(Letter::try_from(recorded), Ok(letter));
        }
        let wide = recording::odd::Letter {
            id: 0x1_0000,
            content: Some(recording::odd::letter::Content::Nothing(())),
        };
        let error = Letter::try_from(wide)
            .expect_err("two bytes hold less")
            .to_string();
        assert_eq!(error, "letter.id: expected 0 to 65535, got 65536");
    }

    #[test]
    fn table_counts_from_the_beginning_of_the_frame() {
        let widths = &table::TABLE[0];
        let rows: Vec<_> = widths
            .fields
            .iter()
            .map(|field| (field.name, field.offset, field.width))
            .collect();
        let expected = [
            ("length", 0, 2),
            ("type", 2, 1),
            ("reserved", 3, 1),
            ("id", 4, 2),
            ("reserved", 6, 2),
            ("one", 8, 1),
            ("two", 9, 2),
            ("four", 11, 4),
            ("eight", 15, 8),
            ("reserved", 23, 1),
            ("mark", 24, 2),
            ("colour", 26, 2),
        ];
        assert_eq!(rows, expected);
        assert_eq!((widths.size, widths.max_size), (28, 28));
        assert_eq!((table::TABLE[1].size, table::TABLE[1].max_size), (13, 213));
    }
}
