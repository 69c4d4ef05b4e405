//! Headers in files and blocks, compared with handwritten bytes of the documented layout.

use crate::common::hex;
use wire::{DecodeError, backing, sbc, stored_block};

const SBC: &str = "deadf00d1337fade 00001000 00000100";
const SBC_VALUES: sbc::Header = sbc::Header {
    block_size: 4096,
    block_count: 256,
};

#[test]
fn sbc_header_is_as_documented() {
    assert_eq!(SBC_VALUES.emit().as_slice(), hex(SBC));
    assert_eq!(sbc::Header::parse(&hex(SBC)), Ok(SBC_VALUES));
    assert_eq!(SBC_VALUES.content_size(), 1 << 20);
    assert_eq!(
        (sbc::MAGIC, sbc::HEADER_SIZE, sbc::MAX_CONTENT),
        (0xDEAD_F00D_1337_FADE, 16, 2 << 30)
    );
}

#[test]
fn sbc_content_after_the_header_is_left_alone() {
    let mut file = hex(SBC);
    file.extend([1, 2, 3]);
    assert_eq!(sbc::Header::parse(&file), Ok(SBC_VALUES));
}

#[test]
fn truncated_sbc_header_is_refused() {
    let bytes = hex(SBC);
    for (size, field, expected, found) in [
        (0, "magic", 8, 0),
        (7, "magic", 8, 7),
        (8, "block_size", 4, 0),
        (15, "block_count", 4, 3),
    ] {
        assert_eq!(
            sbc::Header::parse(&bytes[..size]),
            Err(DecodeError::Truncated {
                message: "sbc_header",
                field,
                expected,
                found,
            })
        );
    }
}

#[test]
fn sbc_header_of_another_file_is_refused() {
    let error =
        sbc::Header::parse(&hex("cafef00d1337fade 00001000 00000100")).expect_err("not its magic");
    assert_eq!(
        error.to_string(),
        "sbc_header.magic: expected 0xdeadf00d1337fade, got 0xcafef00d1337fade"
    );
}

#[test]
fn sbc_content_has_a_limit() {
    let largest = sbc::Header {
        block_size: 1 << 20,
        block_count: 2048,
    };
    assert_eq!(sbc::Header::parse(&largest.emit()), Ok(largest));
    for (block_size, block_count, found) in [
        (1 << 20, 2049, 2_148_532_224),
        (1, (2 << 30) + 1, (2 << 30) + 1),
        (u32::MAX, u32::MAX, 18_446_744_065_119_617_025),
    ] {
        let header = sbc::Header {
            block_size,
            block_count,
        };
        assert_eq!(
            sbc::Header::parse(&header.emit()),
            Err(DecodeError::OutOfRange {
                message: "sbc_header",
                field: "content_size",
                min: 0,
                max: 2 << 30,
                found,
            })
        );
    }
}

#[test]
fn sbc_blocks_have_a_size() {
    let header = sbc::Header {
        block_size: 0,
        block_count: 1,
    };
    let error = sbc::Header::parse(&header.emit()).expect_err("blocks of nothing");
    assert_eq!(
        error.to_string(),
        "sbc_header.block_size: expected 1 to 4294967295, got 0"
    );
    let empty = sbc::Header {
        block_size: 512,
        block_count: 0,
    };
    assert_eq!(
        sbc::Header::parse(&empty.emit()),
        Ok(empty),
        "no blocks are as good as many"
    );
}

#[test]
fn backing_header_is_as_documented() {
    let header = backing::Header {
        block_size: 512,
        block_count: 3,
        identity_high: 0x0102_0304_0506_0708,
        identity_low: 0xf1f2_f3f4_f5f6_f7f8,
        checksum: 0x98a0_54d2,
    };
    let bytes = hex(
        "444f434154475400 00000002 00000200 00000003 00010000 00001000 0102030405060708 f1f2f3f4f5f6f7f8 98a054d2",
    );
    assert_eq!(header.emit().to_vec(), bytes);
    assert_eq!(backing::Header::parse(&bytes), Ok(header));
    for (at, field) in [
        (0, "magic"),
        (8, "version"),
        (15, "block_size"),
        (20, "content_offset"),
        (24, "record_offset"),
    ] {
        let mut wrong = bytes.clone();
        wrong[at] ^= 1;
        if field == "block_size" {
            wrong[12..16].fill(0);
        }
        let error = backing::Header::parse(&wrong).expect_err(field).to_string();
        assert!(
            error.contains(&format!("backing_header.{field}")),
            "{error}"
        );
    }
}

#[test]
fn superblock_is_as_documented() {
    let superblock = backing::Superblock {
        sequence: 31,
        set_high: 0x0102_0304_0506_0708,
        set_low: 0xf1f2_f3f4_f5f6_f7f8,
        epoch: 7,
        epoch_id: 0x4142_4344_4546_4748,
        next_epoch: 8,
        next_epoch_id: 0x5152_5354_5556_5758,
        member: 2,
        state: 4,
        flags: 1,
        boot_high: 0x2122_2324_2526_2728,
        boot_low: 0x3132_3334_3536_3738,
        checksum: 0x99f1_5605,
    };
    let bytes = hex(
        "444f434153455402 000000000000001f 0102030405060708 f1f2f3f4f5f6f7f8 0000000000000007 4142434445464748 \
         0000000000000008 5152535455565758 00000002 00000004 00000001 2122232425262728 3132333435363738 99f15605",
    );
    assert_eq!(superblock.emit().to_vec(), bytes);
    assert_eq!(backing::Superblock::parse(&bytes), Ok(superblock));
    for (at, value, field) in [
        (7, 0, "magic"),
        (15, 0, "sequence"),
        (71, 0, "state"),
        (71, 6, "state"),
        (75, 2, "flags"),
    ] {
        let mut wrong = bytes.clone();
        wrong[at] = value;
        let error = backing::Superblock::parse(&wrong)
            .expect_err(field)
            .to_string();
        assert!(
            error.contains(&format!("backing_superblock.{field}")),
            "{error}"
        );
    }
}

#[test]
fn set_record_is_as_documented() {
    let record = backing::SetRecord {
        set_high: 0x0102_0304_0506_0708,
        set_low: 0xf1f2_f3f4_f5f6_f7f8,
        epoch: 7,
        member: 2,
        state: 2,
        boot_high: 0x2122_2324_2526_2728,
        boot_low: 0x3132_3334_3536_3738,
        checksum: 0x49e7_0350,
    };
    let bytes = hex(
        "444f434153455400 0102030405060708 f1f2f3f4f5f6f7f8 0000000000000007 00000002 00000002 \
                     2122232425262728 3132333435363738 49e70350",
    );
    assert_eq!(record.emit().to_vec(), bytes);
    assert_eq!(backing::SetRecord::parse(&bytes), Ok(record));
    for (at, field) in [(0, "magic"), (39, "state")] {
        let mut wrong = bytes.clone();
        wrong[at] = 3;
        let error = backing::SetRecord::parse(&wrong)
            .expect_err(field)
            .to_string();
        assert!(
            error.contains(&format!("backing_set_record.{field}")),
            "{error}"
        );
    }
}

#[test]
fn stored_block_is_as_documented() {
    let header = stored_block::Header {
        original_size: 4096,
        compressed_size: 0x0102_0304,
    };
    assert_eq!(header.emit().as_slice(), hex("00001000 01020304"));
    assert_eq!(
        stored_block::Header::parse(&hex("00001000 01020304 ff")),
        Ok(header)
    );

    // The lengths of LZ4 data blocks are little endian, as in LZ4.
    let data_block = stored_block::DataBlock {
        size_and_raw: 0x8000_0102,
    };
    assert_eq!(data_block.emit().as_slice(), hex("02010080"));
    assert_eq!(
        stored_block::DataBlock::parse(&hex("02010080")),
        Ok(data_block)
    );

    let trailer = stored_block::Trailer {
        checksum: 0x0102_0304,
    };
    assert_eq!(trailer.emit().as_slice(), hex("01020304"));
    assert_eq!(stored_block::Trailer::parse(&hex("01020304")), Ok(trailer));
}
