//! Sessions that start or continue without a target; the other targets answer all requests.

use wire::control::IdentifiedStorage;

use super::*;
use crate::control::ChannelEvent;
use crate::superblock::{Epoch, SetId, Superblock};

const TIMEOUT: Duration = Duration::from_secs(8);
const GRACE: Duration = Duration::from_secs(5);

/// Three targets of the same size.
struct Three;

impl Layout for Three {
    const TARGETS: &'static [&'static str] = &["data_1", "data_2", "data_p"];

    fn present(&self, targets: &[StorageDetails]) -> Result<StorageDetails, Failure> {
        assert_eq!(targets.len(), 3, "one for each target");
        assert!(targets.iter().all(|target| *target == targets[0]));
        Ok(targets[0].clone())
    }
}

fn storage() -> StorageDetails {
    StorageDetails {
        total_size: 4096,
        block_size: 512,
    }
}

fn superblock(target: usize) -> Superblock {
    Superblock {
        set: SetId(7),
        member: target as u32,
        epoch: Epoch { number: 1, id: 2 },
        next: Epoch::NONE,
        state: wire::control::RecordState::Clean,
        checksums: true,
    }
}

struct World {
    now: Instant,
    session: Session<Three>,
    is_announced: bool,
    /// Targets that do not answer.
    silent: Vec<usize>,
    /// Requests to targets, with the targets' numbers.
    asked: Vec<(usize, MessageType)>,
    left: Vec<usize>,
    stalled: Vec<usize>,
    jobs: Vec<Job>,
    answers: Vec<Payload>,
    end: Option<Result<(), Failure>>,
}

impl World {
    fn new(survives: bool) -> Self {
        let mut session = Session::new(Three, 1, TIMEOUT);
        if survives {
            session.maintain_superblocks();
        }
        Self {
            now: Instant::now(),
            session,
            is_announced: false,
            silent: Vec::new(),
            asked: Vec::new(),
            left: Vec::new(),
            stalled: Vec::new(),
            jobs: Vec::new(),
            answers: Vec::new(),
            end: None,
        }
    }

    fn handle(&mut self, event: Event) {
        self.session.handle(event, self.now);
        while let Some(action) = self.session.poll_action() {
            match action {
                Action::Announce => self.is_announced = true,
                Action::SendToClient(message) => self.answers.push(message.payload),
                Action::SendToStorage { target, message } => self.target(target, &message),
                Action::Leave { target } => self.left.push(target),
                Action::Stalled { target, .. } => self.stalled.push(target),
                Action::Do(job) => {
                    let outcome = match job {
                        Job::PrepareMemory(_) | Job::Export { .. } => {
                            Outcome::Exported(Bytes::from_static(b"export"))
                        }
                        _ => Outcome::Done,
                    };
                    self.jobs.push(job);
                    self.session.handle(Event::JobDone(Ok(outcome)), self.now);
                }
                Action::End(result) => self.end = Some(result),
            }
        }
    }

    fn target(&mut self, target: usize, request: &Message) {
        self.asked.push((target, request.payload.message_type()));
        if self.silent.contains(&target) {
            return;
        }
        let answer = match &request.payload {
            Payload::QueryStorageRequest => Payload::QueryStorageResponse(storage()),
            Payload::IdentifyStorageRequest(_) => {
                let query = superblock(target).request();
                Payload::IdentifiedStorageResponse(IdentifiedStorage {
                    total_size: storage().total_size,
                    block_size: storage().block_size,
                    set_high: query.set_high,
                    set_low: query.set_low,
                    epoch: query.epoch,
                    epoch_id: query.epoch_id,
                    next_epoch: query.next_epoch,
                    next_epoch_id: query.next_epoch_id,
                    member: query.member,
                    state: query.state,
                    flags: query.flags,
                    identity: Bytes::from(vec![target as u8]),
                })
            }
            Payload::InitStorageRequest(_) => Payload::InitStorageResponse,
            Payload::CreateRdmaConnectionRequest(details) => {
                Payload::CreateRdmaConnectionResponse(details.clone())
            }
            Payload::StartStorageRequest => Payload::StartStorageResponse,
            Payload::StopStorageRequest => Payload::StopStorageResponse,
            Payload::ShutdownRequest => Payload::ShutdownResponse,
            other => panic!("{other:?}"),
        };
        let event = ChannelEvent::Message(request.response(answer));
        self.session
            .handle(Event::Storage { target, event }, self.now);
    }

    fn connect(&mut self, target: usize) {
        let event = ChannelEvent::Connected;
        self.handle(Event::Storage { target, event });
    }

    fn client(&mut self, event: ChannelEvent) {
        self.handle(Event::Client(event));
    }

    fn request(&mut self, payload: Payload) -> Option<Payload> {
        self.client(ChannelEvent::Message(Message {
            message_id: 1,
            correlation_id: 2,
            payload,
        }));
        self.answers.pop()
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.handle(Event::Timeout);
    }

    fn init(&mut self) {
        let init = self.request(Payload::InitStorageRequest(InitStorage {
            transaction_count: 4,
            core_count: 1,
            mmap_export_blob: Bytes::from_static(b"memory"),
        }));
        assert_eq!(init, Some(Payload::InitStorageResponse));
    }

    /// From the query to I/Os.
    fn begin(&mut self) {
        assert!(self.is_announced && self.session.serves_client());
        self.client(ChannelEvent::Connected);
        let details = self.request(Payload::QueryStorageRequest);
        assert_eq!(details, Some(Payload::QueryStorageResponse(storage())));
        self.init();
        self.client(ChannelEvent::ConsumerAdded(11));
        let started = self.request(Payload::StartStorageRequest);
        assert_eq!(started, Some(Payload::StartStorageResponse));
    }

    /// From I/Os to the end of the session.
    fn finish(&mut self) {
        let stopped = self.request(Payload::StopStorageRequest);
        assert_eq!(stopped, Some(Payload::StopStorageResponse));
        self.client(ChannelEvent::ConsumerExpired(11));
        let ended = self.request(Payload::ShutdownRequest);
        assert_eq!(ended, Some(Payload::ShutdownResponse));
        assert_eq!(self.end, Some(Ok(())));
    }
}

/// Creates a session that starts without this target.
fn without(missing: usize) -> World {
    let mut world = World::new(true);
    (0..3)
        .filter(|&target| target != missing)
        .for_each(|target| world.connect(target));
    world.pass(GRACE);
    world
}

#[test]
fn service_without_redundancy_waits_for_all_targets() {
    let mut world = World::new(false);
    world.connect(0);
    world.connect(2);
    assert_eq!(world.session.poll_timeout(), None);
    world.pass(100 * GRACE);
    assert!(!world.is_announced && !world.session.serves_client());
    assert!(world.session.waiting_for().contains("data_2"));
    world.connect(1);
    world.begin();
    world.finish();
}

#[test]
fn grace_period_starts_when_one_target_is_missing_and_is_5_s_at_most() {
    let mut world = World::new(true);
    world.connect(2);
    assert_eq!(world.session.poll_timeout(), None, "two are missing");
    world.pass(GRACE);
    world.connect(0);
    assert_eq!(world.session.poll_timeout(), Some(world.now + GRACE));
    world.pass(GRACE - Duration::from_millis(1));
    assert!(!world.is_announced);
    world.pass(Duration::from_millis(1));
    assert!(world.is_announced);
    assert_eq!(world.session.poll_timeout(), None);

    let mut hasty = Session::new(Three, 1, Duration::from_secs(2));
    hasty.maintain_superblocks();
    let now = Instant::now();
    for target in [0, 1] {
        let event = ChannelEvent::Connected;
        hasty.handle(Event::Storage { target, event }, now);
    }
    assert_eq!(hasty.poll_timeout(), Some(now + Duration::from_secs(2)));
}

#[test]
fn targets_must_connect_within_the_control_timeout() {
    for survives in [false, true] {
        let mut world = World::new(survives);
        world.session.begin_connecting(world.now);
        world.connect(0);
        world.handle(Event::Refused { target: 1 });
        assert_eq!(world.session.poll_timeout(), Some(world.now + TIMEOUT));
        world.pass(TIMEOUT - Duration::from_millis(1));
        assert_eq!(world.end, None);
        world.pass(Duration::from_millis(1));
        let Some(Err(failure)) = world.end else {
            panic!("{:?}", world.end);
        };
        assert_eq!(failure.code, doca::ErrorCode::TIME_OUT);
        assert!(failure.message.contains("data_2"), "{failure}");
        assert!(!world.is_announced);
    }
}

#[test]
fn grace_period_ends_with_the_control_timeout() {
    let mut world = World::new(true);
    let begin = world.now;
    world.session.begin_connecting(begin);
    world.connect(0);
    world.pass(TIMEOUT - GRACE / 2);
    world.connect(1);
    assert_eq!(world.session.poll_timeout(), Some(begin + TIMEOUT));
    world.pass(GRACE / 2);
    assert!(world.is_announced && world.end.is_none());
}

#[test]
fn service_announces_itself_when_all_targets_are_connected() {
    let mut world = World::new(true);
    (0..3).for_each(|target| world.connect(target));
    assert!(world.is_announced && world.left.is_empty());
    world.begin();
    assert!(world.session.place(1).is_none(), "it is there");
    world.finish();
}

#[test]
fn target_that_connects_before_the_query_is_not_missing() {
    let mut world = without(1);
    assert!(!world.session.is_without(1), "it is waited for");
    world.connect(1);
    world.begin();
    assert!(world.left.is_empty() && world.asked.iter().any(|&(target, _)| target == 1));
    world.finish();
}

#[test]
fn missing_target_gets_no_requests_and_may_rejoin() {
    for missing in 0..3 {
        let mut world = without(missing);
        world.begin();
        assert_eq!(world.left, [missing]);
        assert!(world.session.is_without(missing) && !world.session.may_lose(missing));
        // Events of its channel do not concern this session.
        world.connect(missing);
        let [Job::PrepareMemory(memory), ..] = &world.jobs[..] else {
            panic!("{:?}", world.jobs)
        };
        for (target, described) in memory.targets.iter().enumerate() {
            let found = described.as_ref().and_then(|it| it.superblock);
            let expected = (target != missing).then(|| superblock(target));
            assert_eq!(found, expected);
        }
        let of_missing = |job: &&Job| match job {
            Job::Export { target, .. } | Job::Connect { target, .. } => *target == missing,
            _ => false,
        };
        assert_eq!(world.jobs.iter().find(of_missing), None);
        let connections = world
            .jobs
            .iter()
            .filter(|job| matches!(job, Job::Connect { .. }));
        assert_eq!(connections.count(), 4, "two roles, two targets");
        let place = world.session.place(missing).expect("it may come");
        assert_eq!((place.target, &place.storage), (missing, &storage()));
        let (init, _) = place.init.as_init_storage().expect("an init request");
        assert_eq!(init.transaction_count, 8);
        world.handle(Event::Rejoined {
            target: missing,
            identity: None,
        });
        assert!(!world.session.is_without(missing));
        world.finish();
        assert!(
            world
                .asked
                .contains(&(missing, MessageType::ShutdownRequest))
        );
    }
}

#[test]
fn session_without_a_target_ends_normally() {
    let mut world = without(0);
    world.begin();
    world.finish();
    assert!(world.asked.iter().all(|&(target, _)| target != 0));
    // I/Os do not start with only one target.
    let mut world = without(0);
    world.client(ChannelEvent::Connected);
    world.request(Payload::QueryStorageRequest);
    assert!(!world.session.may_lose(1));
}

#[test]
fn target_that_disconnects_before_all_are_connected_ends_the_session() {
    let mut world = World::new(true);
    world.connect(0);
    world.handle(Event::Storage {
        target: 0,
        event: ChannelEvent::Closed,
    });
    let failure = world.end.expect("the end").expect_err("a failure");
    assert_eq!(failure.code, doca::ErrorCode::CONNECTION_RESET);
    assert!(!world.session.has_client());
}

#[test]
fn unresponsive_target_is_reported_until_it_is_lost() {
    let mut world = World::new(true);
    (0..3).for_each(|target| world.connect(target));
    world.begin();
    world.silent = vec![2];
    assert_eq!(world.request(Payload::StopStorageRequest), None);
    world.pass(TIMEOUT - Duration::from_millis(1));
    assert!(world.stalled.is_empty());
    world.pass(Duration::from_millis(1));
    assert_eq!(world.stalled, [2]);
    assert_eq!(world.session.poll_timeout(), Some(world.now + TIMEOUT));
    world.pass(TIMEOUT);
    assert_eq!((&world.stalled[..], &world.end), (&[2, 2][..], &None));
    world.handle(Event::Lost { target: 2 });
    assert_eq!(world.answers.pop(), Some(Payload::StopStorageResponse));
    assert_eq!(world.left, [2]);

    let mut plain = World::new(false);
    (0..3).for_each(|target| plain.connect(target));
    plain.begin();
    plain.silent = vec![2];
    plain.request(Payload::StopStorageRequest);
    plain.pass(TIMEOUT);
    assert!(matches!(plain.end, Some(Err(_))) && plain.stalled.is_empty());
}
