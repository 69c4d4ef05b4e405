use super::*;

const GEOMETRY: Geometry = Geometry {
    block_size: 512,
    block_count: 4,
};

fn zeros() -> Content {
    Content::open(None, GEOMETRY).expect("content")
}

#[test]
fn a_file_is_made_once_and_found_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("blocks");
    let first = BackingFile::open(&path, zeros()).expect("made");
    first.region().write(700, b"kept").expect("inside");
    let identity = first.identity();
    first.sync().expect("synced");
    drop(first);
    let again = BackingFile::open(&path, zeros()).expect("there");
    let mut bytes = [0; 4];
    again.region().read(700, &mut bytes).expect("inside");
    assert_eq!((&bytes, again.identity()), (b"kept", identity));
}

#[test]
fn the_first_content_is_loaded_into_a_new_file_only() {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, content) = (
        directory.path().join("blocks"),
        directory.path().join("content"),
    );
    std::fs::write(&content, [7; 2048]).expect("written");
    let open = || Content::open(Some(&content), GEOMETRY).expect("content");
    let first = BackingFile::open(&path, open()).expect("made");
    let byte = |file: &BackingFile| {
        let mut byte = [0];
        file.region().read(2047, &mut byte).expect("inside");
        byte[0]
    };
    assert_eq!(byte(&first), 7);
    first.region().write(2047, &[8]).expect("inside");
    drop(first);
    assert_eq!(byte(&BackingFile::open(&path, open()).expect("there")), 8);
}

#[test]
fn a_file_in_use_is_refused_until_it_is_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("blocks");
    let first = BackingFile::open(&path, zeros()).expect("made");
    let failure = BackingFile::open(&path, zeros()).expect_err("in use");
    assert_eq!(failure.code, ErrorCode::IN_USE);
    assert!(failure.message.contains("another target"), "{failure}");
    drop(first);
    BackingFile::open(&path, zeros()).expect("free");
}

#[test]
fn other_files_and_geometries_are_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("letter");
    std::fs::write(
        &path,
        "Dear all, this is no backing file, and it must not become one.",
    )
    .expect("written");
    let before = std::fs::read(&path).expect("there");
    let failure = BackingFile::open(&path, zeros()).expect_err("a letter");
    assert!(
        failure.message.contains("letter") && failure.message.contains("magic"),
        "{failure}"
    );
    assert_eq!(std::fs::read(&path).expect("there"), before);

    let path = directory.path().join("blocks");
    drop(BackingFile::open(&path, zeros()).expect("made"));
    let other = Geometry {
        block_count: 5,
        ..GEOMETRY
    };
    let content = Content::open(None, other).expect("content");
    let failure = BackingFile::open(&path, content).expect_err("larger");
    assert!(failure.message.contains("expected 5 blocks"), "{failure}");
    assert!(BackingFile::open(Path::new("/"), zeros()).is_err());
    let nowhere = directory.path().join("no/such/folder");
    assert_eq!(
        BackingFile::open(&nowhere, zeros())
            .expect_err("nowhere")
            .code,
        ErrorCode::NOT_FOUND
    );
}
