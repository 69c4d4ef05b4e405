use super::*;

const GEOMETRY: Geometry = Geometry {
    block_size: 512,
    block_count: 4,
};

fn write(file: &BackingFile, offset: u64, bytes: &[u8]) {
    let written = file.file.write_all_at(bytes, CONTENT_OFFSET + offset);
    written.expect("written");
}

fn read(file: &BackingFile, offset: u64, bytes: &mut [u8]) {
    let read = file.file.read_exact_at(bytes, CONTENT_OFFSET + offset);
    read.expect("read");
}

fn zeros() -> Content {
    Content::open(None, GEOMETRY).expect("content")
}

#[test]
fn backing_file_is_created_once_and_reopened() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("blocks");
    let first = BackingFile::open(&path, zeros(), Options::default()).expect("made");
    write(&first, 700, b"kept");
    let identity = first.identity();
    first.sync().expect("synced");
    drop(first);
    let again = BackingFile::open(&path, zeros(), Options::default()).expect("there");
    let mut bytes = [0; 4];
    read(&again, 700, &mut bytes);
    assert_eq!((&bytes, again.identity()), (b"kept", identity));
}

#[test]
fn initial_data_is_loaded_into_a_new_file_only() {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, content) = (
        directory.path().join("blocks"),
        directory.path().join("content"),
    );
    std::fs::write(&content, [7; 2048]).expect("written");
    let open = || Content::open(Some(&content), GEOMETRY).expect("content");
    let first = BackingFile::open(&path, open(), Options::default()).expect("made");
    let byte = |file: &BackingFile| {
        let mut byte = [0];
        read(file, 2047, &mut byte);
        byte[0]
    };
    assert_eq!(byte(&first), 7);
    write(&first, 2047, &[8]);
    drop(first);
    assert_eq!(
        byte(&BackingFile::open(&path, open(), Options::default()).expect("there")),
        8
    );
}

#[test]
fn file_in_use_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("blocks");
    let first = BackingFile::open(&path, zeros(), Options::default()).expect("made");
    let failure = BackingFile::open(&path, zeros(), Options::default()).expect_err("in use");
    assert_eq!(failure.code, ErrorCode::IN_USE);
    assert!(failure.message.contains("another target"), "{failure}");
    drop(first);
    BackingFile::open(&path, zeros(), Options::default()).expect("free");
}

#[test]
fn other_files_and_geometries_are_refused_unchanged() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("letter");
    std::fs::write(
        &path,
        "Dear all, this is no backing file, and it must not become one.",
    )
    .expect("written");
    let before = std::fs::read(&path).expect("there");
    let failure = BackingFile::open(&path, zeros(), Options::default()).expect_err("a letter");
    assert!(
        failure.message.contains("letter") && failure.message.contains("magic"),
        "{failure}"
    );
    assert_eq!(std::fs::read(&path).expect("there"), before);

    let path = directory.path().join("blocks");
    drop(BackingFile::open(&path, zeros(), Options::default()).expect("made"));
    let other = Geometry {
        block_count: 5,
        ..GEOMETRY
    };
    let content = Content::open(None, other).expect("content");
    let failure = BackingFile::open(&path, content, Options::default()).expect_err("larger");
    assert!(failure.message.contains("expected 5 blocks"), "{failure}");
    assert!(BackingFile::open(Path::new("/"), zeros(), Options::default()).is_err());
    let nowhere = directory.path().join("no/such/folder");
    assert_eq!(
        BackingFile::open(&nowhere, zeros(), Options::default())
            .expect_err("nowhere")
            .code,
        ErrorCode::NOT_FOUND
    );
}

#[test]
fn file_of_an_older_version_is_opened_unchanged() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("blocks");
    // Not in whole sectors, one superblock slot, sparse.
    let length = CONTENT_OFFSET + GEOMETRY.capacity() - 512;
    let geometry = Geometry {
        block_count: 3,
        ..GEOMETRY
    };
    let identity = Identity([7; 16]);
    let old = File::create(&path).expect("a file");
    old.write_all_at(&emit(geometry, identity), 0)
        .expect("written");
    old.write_all_at(b"kept", CONTENT_OFFSET + 1000)
        .expect("written");
    old.set_len(length).expect("longer");
    for io in [BackingIo::Auto, BackingIo::Buffered] {
        let content = Content::open(None, geometry).expect("content");
        let options = Options {
            io,
            initialise: true,
        };
        let file = BackingFile::open(&path, content, options).expect("there");
        let mut bytes = [0; 4];
        read(&file, 1000, &mut bytes);
        assert_eq!((&bytes, file.identity()), (b"kept", identity));
        assert_eq!(file.superblock(), None);
        file.sync().expect("synced");
    }
}

#[test]
fn requested_io_mode_is_used_or_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("blocks");
    let open = |io| {
        let options = Options {
            io,
            initialise: false,
        };
        BackingFile::open(&path, zeros(), options)
    };
    assert_eq!(open(BackingIo::Buffered).expect("made").sector(), 1);
    let auto = open(BackingIo::Auto).expect("there").sector();
    match open(BackingIo::Direct) {
        Ok(direct) => {
            assert_eq!(direct.sector(), auto);
            assert!(auto >= 512, "{auto}");
        }
        Err(failure) => {
            assert_eq!(auto, 1, "{failure}");
            assert!(failure.message.contains("buffered"), "{failure}");
        }
    }
}

const THREE_BLOCKS: Geometry = Geometry {
    block_size: 512,
    block_count: 3,
};
const LENGTH: u64 = CONTENT_OFFSET + 3 * 512;

fn identity() -> Identity {
    Identity(*b"0123456789abcdef")
}

#[test]
fn emitted_header_is_accepted() {
    let bytes = emit(THREE_BLOCKS, identity());
    assert_eq!(check(&bytes, LENGTH, THREE_BLOCKS), Ok(identity()));
    assert_eq!(identity().to_string(), "30313233343536373839616263646566");
    assert_ne!(Identity::random(), Identity::random());
}

#[test]
fn every_flipped_bit_of_the_header_is_found() {
    let bytes = emit(THREE_BLOCKS, identity());
    for bit in 0..bytes.len() * 8 {
        let mut wrong = bytes;
        wrong[bit / 8] ^= 1 << (bit % 8);
        assert!(check(&wrong, LENGTH, THREE_BLOCKS).is_err(), "bit {bit}");
    }
    for length in 0..bytes.len() {
        assert!(check(&bytes[..length], length as u64, THREE_BLOCKS).is_err());
    }
}

#[test]
fn geometry_error_has_expected_and_found_geometry() {
    let bytes = emit(THREE_BLOCKS, identity());
    let expected = Geometry {
        block_size: 4096,
        block_count: 128,
    };
    let failure = check(&bytes, LENGTH, expected).expect_err("another");
    for part in ["expected 128 blocks of 4096", "found 3 blocks of 512"] {
        assert!(failure.message.contains(part), "{failure}");
    }
    let failure = check(&bytes, LENGTH - 1, THREE_BLOCKS).expect_err("cut off");
    assert!(
        failure
            .message
            .contains("expected 67072 bytes, found 67071"),
        "{failure}"
    );
    let failure = check(&[0; HEADER_SIZE], LENGTH, THREE_BLOCKS).expect_err("zeros");
    assert!(failure.message.contains("cut short"), "{failure}");
}

#[test]
fn parts_of_blocks_are_permitted_once_the_blocks_are_written() {
    let written = WrittenBlocks::new(1 << 20, 512, 4096);
    assert!(written.permit(0, 4096));
    assert!(written.permit(4096, 3 * 4096));
    for (offset, len) in [(0, 512), (512, 3584), (2048, 4096), (4096, 4608)] {
        assert!(!written.permit(offset, len), "{offset} {len}");
    }
    // A part of block 0, block 1, and a part of block 2.
    written.record(512, 3 * 4096 - 1024);
    assert!(written.permit(4096, 512));
    assert!(!written.permit(2048, 4096));
    assert!(!written.permit(4608, 4096));
    written.record(0, 4096);
    assert!(written.permit(2048, 4096));
    assert!(!written.permit(4608, 4096));
}

#[test]
fn blocks_of_a_huge_file_share_bits() {
    let written = WrittenBlocks::new(1 << 50, 512, 4096);
    assert!(!written.permit(512, 512));
    written.record((1 << 50) - 4096, 4096);
    assert!(written.permit((1 << 50) - 512, 512));
    assert!(!written.permit(512, 512));
    written.record(MOST_BITS * 4096, 4096);
    assert!(written.permit(512, 512));
}

#[test]
fn every_write_is_permitted_where_sectors_are_blocks() {
    for sector in [1, 512, 4096] {
        let written = WrittenBlocks::new(1 << 20, sector, sector);
        assert!(written.permit(sector, 7 * sector));
        written.record(0, 1 << 20);
    }
}
