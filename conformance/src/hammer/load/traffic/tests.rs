use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

use fastrand::Rng;

use super::*;
use crate::hammer::load::Mischief;
use crate::hammer::witness;
use crate::matrix::Layout;

const STORAGE: StorageDetails = StorageDetails {
    total_size: 16 * 512,
    block_size: 512,
};

/// Traffic without a service: the test makes the results.
struct Bench {
    traffic: Traffic,
    memory: Arc<MemoryRegion>,
    witness: UnixStream,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let load = Load {
            channel: String::new(),
            device: String::new(),
            witness: directory.path().join("witness"),
            seed: 1,
            session: 1,
            layout: Layout::ZeroCopy,
            task: Task::Run,
            cut_off: false,
            mischief: Mischief::None,
            patience: Duration::from_secs(1),
        };
        let listener = UnixListener::bind(&load.witness).expect("a socket");
        let account = Account::open(&load.witness).expect("a witness");
        Self {
            traffic: Traffic::new(&load, &STORAGE, account),
            memory: MemoryRegion::new(DEPTH * MOST_BLOCKS * 512).expect("memory"),
            witness: listener.accept().expect("the account").0,
        }
    }

    /// Begins an I/O of one block; its request.
    fn begin(&mut self, kind: Kind) -> Repr {
        let slot = self.traffic.free.pop().expect("a slot");
        let bytes = self.traffic.io(&self.memory, slot, kind, 3, 1);
        let message = IoMessage::new_checked(bytes.expect("an I/O")).expect("64 bytes");
        Repr::parse(&message).expect("a request")
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), Wrong> {
        self.traffic.take_result(&self.memory, bytes)
    }

    /// What the witness was told that must not be.
    fn broken(self) -> Vec<String> {
        drop(self.traffic);
        witness::entries(self.witness)
            .filter_map(|entry| match entry.expect("readable") {
                Entry::Broken(what) => Some(what),
                _ => None,
            })
            .collect()
    }
}

/// A result is taken, and this one that comes after it is not.
fn refuses(kind: Kind, wrong: impl FnOnce(Repr) -> Vec<u8>, what: &str) {
    let mut bench = Bench::new();
    let (first, other) = (bench.begin(kind), bench.begin(kind));
    bench
        .take(&first.answer(0).to_bytes())
        .expect("its result is taken");
    let wrong = wrong(first);
    let failure = bench.take(&wrong).expect_err(what).to_string();
    assert!(failure.contains(what), "{failure}");
    // What it is the result of, nobody can say: the others go on waiting.
    assert!(bench.traffic.under_way.contains_key(&other.user_data));
    let told = bench.broken();
    assert!(told.len() == 1 && told[0].contains(what), "{told:?}");
}

#[test]
fn a_second_result_is_told() {
    for kind in [Kind::Read, Kind::Write] {
        refuses(
            kind,
            |first| first.answer(0).to_bytes().to_vec(),
            "or a second one",
        );
    }
}

#[test]
fn a_result_for_nothing_is_told() {
    for kind in [Kind::Read, Kind::Write] {
        let stranger = |first: Repr| {
            let user_data = first.user_data + (77 << 24);
            Repr { user_data, ..first }.answer(0).to_bytes().to_vec()
        };
        refuses(kind, stranger, "a result for what is not under way");
    }
}

#[test]
fn what_is_no_result_is_told() {
    let echo = |first: Repr| first.to_bytes().to_vec();
    refuses(Kind::Read, echo, "a message that is no result");
}

#[test]
fn a_result_that_repeats_another_request_is_told() {
    let mut bench = Bench::new();
    let request = bench.begin(Kind::Write);
    let other = Repr {
        storage_offset: 0,
        ..request
    };
    assert!(bench.take(&other.answer(0).to_bytes()).is_err());
    assert_eq!(bench.broken().len(), 1);
}

#[test]
fn what_was_cut_is_refused_once_without_its_name() {
    let mut bench = Bench::new();
    let mut rng = Rng::with_seed(1);
    let cut = std::iter::repeat_with(|| Improper::new(&mut rng, 512, 16 * 512, 4096))
        .find(|message| !message.is_whole())
        .expect("one of many");
    let slot = bench.traffic.free.pop().expect("a slot");
    bench.traffic.improper(slot, cut);
    let refusal = Repr {
        message_type: IoMessageType::Read,
        user_data: 0,
        result: 0,
        size: 0,
        requester_offset: 0,
        storage_offset: 0,
    }
    .answer(6)
    .to_bytes();
    bench.take(&refusal).expect("it is that of what was cut");
    assert!(bench.take(&refusal).is_err(), "nothing else is under way");
}
