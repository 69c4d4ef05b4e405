use super::*;

/// A ledger of four blocks with one session.
struct Book(Ledger, u64);

impl Book {
    fn new() -> Self {
        let mut book = Self(Ledger::new(4), 0);
        book.session(false);
        book
    }

    fn session(&mut self, cut_off: bool) {
        self.0.end_session();
        self.1 += 1;
        let session = self.1;
        self.enter(Entry::Hello { session, cut_off });
    }

    fn enter(&mut self, entry: Entry) {
        self.0.enter(&entry).expect("nothing wrong");
    }

    fn write(&mut self, version: u64) -> &mut Self {
        self.enter(Entry::Write(Version { block: 1, version }));
        self
    }

    fn written(&mut self, version: u64) -> &mut Self {
        self.enter(Entry::Written(Version { block: 1, version }));
        self
    }

    fn failed(&mut self, version: u64) -> &mut Self {
        self.enter(Entry::WriteFailed(Version { block: 1, version }));
        self
    }

    fn begin(&mut self, io: u64) -> &mut Self {
        self.enter(Entry::Read(Reading { block: 1, io }));
        self
    }

    fn end(&mut self, io: u64, content: Content) -> Result<(), Kind> {
        let reading = Reading { block: 1, io };
        self.0
            .enter(&Entry::Found { reading, content })
            .map_err(|violation| violation.kind)
    }

    fn find(&mut self, version: u64) -> Result<(), Kind> {
        self.begin(99).end(99, Content::Version(version))
    }
}

#[test]
fn acknowledged_write_hides_older_versions() {
    let mut book = Book::new();
    book.write(1).written(1).write(2).written(2);
    assert_eq!(book.find(2), Ok(()));
    assert_eq!(book.find(1), Err(Kind::Lost));
    // Nor in the next session.
    book.session(true);
    assert_eq!(book.find(1), Err(Kind::Lost));
    assert_eq!(book.find(2), Ok(()));
    assert_eq!(book.0.counts.lost, 1);
}

#[test]
fn unwritten_version_is_a_violation() {
    let mut book = Book::new();
    book.write(1).written(1);
    assert_eq!(book.find(7), Err(Kind::Violation));
    let garbage = Content::Garbage { offset: 64 };
    assert_eq!(book.begin(1).end(1, garbage), Err(Kind::Violation));
    let other = Content::OtherBlock {
        block: 2,
        version: 1,
    };
    assert_eq!(book.begin(1).end(1, other), Err(Kind::Violation));
}

#[test]
fn first_read_decides_a_write_in_doubt() {
    for found in [1, 2] {
        let mut book = Book::new();
        book.write(1).written(1).write(2);
        book.session(false);
        assert_eq!(book.find(found), Ok(()));
        assert_eq!(book.find(found), Ok(()));
        let other = if found == 1 {
            Kind::Violation
        } else {
            Kind::Lost
        };
        assert_eq!(book.find(3 - found), Err(other), "after {found}");
    }
}

#[test]
fn failed_write_is_in_doubt() {
    for found in [1, 2] {
        let mut book = Book::new();
        book.write(1).written(1).write(2).failed(2);
        assert_eq!(book.find(found), Ok(()));
        assert!(book.find(3 - found).is_err(), "after {found}");
    }
}

/// The start of the read counts: a write may complete while the read is pending.
#[test]
fn read_concurrent_with_a_write_returns_either_version() {
    let mut book = Book::new();
    book.write(1).written(1).begin(1).begin(2).write(2);
    assert_eq!(book.end(1, Content::Version(2)), Ok(()));
    // Once read, the version is the current one for reads that start now, but not for earlier ones.
    assert_eq!(book.find(1), Err(Kind::Lost));
    assert_eq!(book.end(2, Content::Version(1)), Ok(()));
    book.begin(3).written(2);
    assert_eq!(book.end(3, Content::Version(1)), Err(Kind::Lost));
}

#[test]
fn concurrent_read_does_not_settle_a_write() {
    let mut book = Book::new();
    book.write(1).written(1).write(2).begin(1).failed(2);
    assert_eq!(book.end(1, Content::Version(1)), Ok(()));
    assert_eq!(book.find(2), Ok(()));
}

#[test]
fn torn_blocks_are_allowed_after_a_kill_until_rewritten() {
    let torn = || Content::Torn(vec![1, 2]);
    let mut book = Book::new();
    book.write(1).written(1).write(2);
    book.session(false);
    assert_eq!(book.begin(1).end(1, torn()), Err(Kind::Violation));
    book.session(true);
    assert_eq!(book.begin(1).end(1, torn()), Ok(()));
    assert_eq!(book.0.counts.torn, 1);
    let never = Content::Torn(vec![1, 3]);
    assert_eq!(book.begin(1).end(1, never), Err(Kind::Violation));
    book.write(3).written(3);
    let after = Content::Torn(vec![1, 3]);
    assert_eq!(book.begin(1).end(1, after), Err(Kind::Violation));
    // No process was killed since.
    book.write(4);
    let under_way = || Content::Torn(vec![3, 4]);
    assert_eq!(book.begin(1).end(1, under_way()), Err(Kind::Violation));
    // Acknowledged writes may not be torn, nor may those that started later.
    book.written(4).session(true);
    book.write(5);
    let afterwards = Content::Torn(vec![4, 5]);
    assert_eq!(book.begin(1).end(1, afterwards), Err(Kind::Violation));
    let acknowledged = Content::Torn(vec![2, 3]);
    assert_eq!(book.begin(1).end(1, acknowledged), Err(Kind::Violation));
}

#[test]
fn unreadable_block_is_lost_unless_its_write_was_cut_off() {
    let mut book = Book::new();
    let fail = |book: &mut Book, excused| {
        book.begin(1);
        let reading = Reading { block: 1, io: 1 };
        let entry = Entry::ReadFailed { reading, excused };
        book.0.enter(&entry).map_err(|violation| violation.kind)
    };
    book.write(1).written(1);
    assert_eq!(fail(&mut book, true), Ok(()));
    assert_eq!(fail(&mut book, false), Err(Kind::Lost));
    book.write(2);
    book.session(true);
    assert_eq!(fail(&mut book, false), Ok(()));
    assert_eq!((book.0.counts.torn, book.0.counts.failed), (1, 1));
}

#[test]
fn violation_names_block_and_versions() {
    let mut book = Book::new();
    book.write(1)
        .written(1)
        .write(2)
        .written(2)
        .write(3)
        .begin(5);
    let reading = Reading { block: 1, io: 5 };
    let content = Content::Version(1);
    let entry = Entry::Found { reading, content };
    let violation = book.0.enter(&entry).expect_err("it is lost");
    assert_eq!(
        violation.to_string(),
        "block 1: expected version 0x2 or 0x3 (under way), got version 0x1"
    );
    assert!(violation.history.len() > 5, "{violation:?}");
    let violation = book
        .0
        .enter(&Entry::Broken("a second result".to_owned()))
        .expect_err("it is not the protocol");
    assert_eq!(violation.kind, Kind::Protocol);
}

#[test]
fn versions_that_no_read_can_return_are_dropped() {
    let mut book = Book::new();
    for version in 1..1000 {
        book.write(version).written(version);
    }
    assert_eq!(book.0.blocks[1].versions.len(), 1);
    book.begin(1);
    for version in 1000..1010 {
        book.write(version).written(version);
    }
    assert_eq!(book.0.blocks[1].versions.len(), 11);
    assert_eq!(book.end(1, Content::Version(1009)), Ok(()));
    assert_eq!(book.0.blocks[1].versions.len(), 1);
}

#[test]
fn counts_are_reset_per_session() {
    let mut book = Book::new();
    book.write(1).written(1).write(2).failed(2).write(3);
    let counts = book.0.end_session();
    assert_eq!(
        (counts.acknowledged, counts.failed, counts.in_doubt),
        (1, 1, 1)
    );
    assert_eq!(book.0.end_session(), Counts::default());
}
