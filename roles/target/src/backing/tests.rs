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
