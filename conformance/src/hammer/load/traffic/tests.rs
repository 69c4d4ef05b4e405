use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

use fastrand::Rng;

use super::*;
use crate::hammer::load::Malformed;
use crate::hammer::verifier;
use crate::matrix::Layout;

const STORAGE: StorageDetails = StorageDetails {
    total_size: 16 * 512,
    block_size: 512,
};

/// I/Os without a service: the test creates the results.
struct Fixture {
    traffic: Traffic,
    memory: Arc<MemoryRegion>,
    verifier: UnixStream,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let load = Load {
            channel: String::new(),
            device: String::new(),
            verifier: directory.path().join("verifier"),
            seed: 1,
            session: 1,
            layout: Layout::ZeroCopy,
            task: Task::Run,
            cut_off: false,
            malformed: Malformed::None,
            timeout: Duration::from_secs(1),
        };
        let listener = UnixListener::bind(&load.verifier).expect("a socket");
        let account = Account::open(&load.verifier).expect("a verifier");
        Self {
            traffic: Traffic::new(&load, &STORAGE, account),
            memory: MemoryRegion::new(DEPTH * MOST_BLOCKS * 512).expect("memory"),
            verifier: listener.accept().expect("the account").0,
        }
    }

    /// Submits an I/O of one block and returns its request.
    fn begin(&mut self, kind: Kind) -> Repr {
        let slot = self.traffic.free.pop().expect("a slot");
        let bytes = self.traffic.io(&self.memory, slot, kind, 3, 1);
        let message = IoMessage::new_checked(bytes.expect("an I/O")).expect("64 bytes");
        Repr::parse(&message).expect("a request")
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        self.traffic.take_result(&self.memory, bytes)
    }

    /// Violations reported to the verifier.
    fn broken(self) -> Vec<String> {
        drop(self.traffic);
        verifier::entries(self.verifier)
            .filter_map(|entry| match entry.expect("readable") {
                Entry::Broken(what) => Some(what),
                _ => None,
            })
            .collect()
    }
}

/// Checks that one valid result is accepted, and the wrong one after it refused.
fn refuses(kind: Kind, wrong: impl FnOnce(Repr) -> Vec<u8>, what: &str) {
    let mut fixture = Fixture::new();
    let (first, other) = (fixture.begin(kind), fixture.begin(kind));
    fixture
        .take(&first.answer(0).to_bytes())
        .expect("its result is taken");
    let wrong = wrong(first);
    let failure = fixture.take(&wrong).expect_err(what).to_string();
    assert!(failure.contains(what), "{failure}");
    // The result does not identify its request: the others stay pending.
    assert!(fixture.traffic.under_way.contains_key(&other.user_data));
    let messages = fixture.broken();
    assert!(
        messages.len() == 1 && messages[0].contains(what),
        "{messages:?}"
    );
}

#[test]
fn second_result_is_reported() {
    for kind in [Kind::Read, Kind::Write] {
        refuses(
            kind,
            |first| first.answer(0).to_bytes().to_vec(),
            "or a second one",
        );
    }
}

#[test]
fn result_without_request_is_reported() {
    for kind in [Kind::Read, Kind::Write] {
        let intruder = |first: Repr| {
            let user_data = first.user_data + (77 << 24);
            Repr { user_data, ..first }.answer(0).to_bytes().to_vec()
        };
        refuses(kind, intruder, "a result for what is not under way");
    }
}

#[test]
fn message_that_is_not_a_result_is_reported() {
    let echo = |first: Repr| first.to_bytes().to_vec();
    refuses(Kind::Read, echo, "a message that is no result");
}

#[test]
fn result_with_fields_of_another_request_is_reported() {
    let mut fixture = Fixture::new();
    let request = fixture.begin(Kind::Write);
    let other = Repr {
        storage_offset: 0,
        ..request
    };
    assert!(fixture.take(&other.answer(0).to_bytes()).is_err());
    assert_eq!(fixture.broken().len(), 1);
}

#[test]
fn truncated_message_is_refused_without_user_data() {
    let mut fixture = Fixture::new();
    let mut rng = Rng::with_seed(1);
    let cut = std::iter::repeat_with(|| Improper::new(&mut rng, 512, 16 * 512, 4096))
        .find(|message| !message.is_whole())
        .expect("one of many");
    let slot = fixture.traffic.free.pop().expect("a slot");
    fixture.traffic.improper(slot, cut);
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
    fixture.take(&refusal).expect("it is that of what was cut");
    assert!(fixture.take(&refusal).is_err(), "nothing else is under way");
}
