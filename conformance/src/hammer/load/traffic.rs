//! I/Os in flight: each completes once, and the contents of reads are reported to the verifier.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use doca::MemoryRegion;
use fastrand::Rng;
use wire::control::{Payload, StorageDetails};
use wire::io_message::{IoMessage, IoMessageType, Repr, SIZE};

use super::{DEPTH, Improper, Link, Load, LoadState, Malformed, Task};
use crate::hammer::verifier::{Account, Entry, Pattern, Reading, Version};
use crate::matrix::Layout;
use crate::role::ControlPeer as _;
use crate::violation::Violation;

/// Sleep between two idle polls.
const PAUSE: Duration = Duration::from_millis(1);
/// Poll iterations between polls of the control channel while results arrive.
const TURNS: u32 = 64;

/// Submits I/Os and checks their results.
pub(super) struct Traffic {
    account: Account,
    pattern: Pattern,
    block_size: usize,
    timeout: Duration,
    /// Version of the next write, and number of the next I/O.
    next_version: u64,
    next_io: u64,
    in_flight: HashMap<u64, InFlight>,
    free: Vec<usize>,
    busy: Vec<Busy>,
    /// `true` while faults are being injected, so that I/Os may fail.
    excused: bool,
    /// Blocks that could not be read.
    unreadable: BTreeSet<u64>,
    /// `true` if a malformed message was sent on the control channel, which may be answered.
    provoked: bool,
    buffer: Vec<u8>,
}

struct InFlight {
    slot: usize,
    since: Instant,
    what: What,
}

enum What {
    Io {
        request: Repr,
        kind: Kind,
        first: u64,
        versions: Vec<u64>,
    },
    Improper {
        message: Improper,
    },
}

impl Traffic {
    pub(super) fn new(load: &Load, storage: &StorageDetails, account: Account) -> Self {
        let block_size = storage.block_size as usize;
        let blocks = storage.total_size as usize / block_size;
        Self {
            account,
            pattern: Pattern { seed: load.seed },
            block_size,
            timeout: load.timeout,
            next_version: load.session << 32,
            next_io: 0,
            in_flight: HashMap::new(),
            free: (0..DEPTH).collect(),
            busy: vec![Busy::default(); blocks],
            excused: load.task == Task::Run,
            unreadable: BTreeSet::new(),
            provoked: false,
            buffer: vec![0; block_size],
        }
    }

    /// Executes all I/Os of `source`, and waits for their results.
    pub(super) fn run(&mut self, link: &mut Link, mut source: Source<'_>) -> Result<(), Violation> {
        let mut turns = 0;
        loop {
            let mut is_idle = true;
            while let Some(bytes) = link.io()?.poll()? {
                self.take_result(&link.memory, &bytes)?;
                is_idle = false;
            }
            let is_over = self.begin(link, &mut source)?;
            if is_over && self.in_flight.is_empty() {
                return Ok(self.account.hand_over()?);
            }
            turns += 1;
            if is_idle && self.in_flight.is_empty() {
                std::thread::sleep(PAUSE);
            }
            if is_idle || turns % TURNS == 0 {
                self.listen(link)?;
                self.expect_progress()?;
            }
        }
    }

    /// Number of blocks that could not be read so far.
    pub(super) fn unreadable(&self) -> Vec<u64> {
        self.unreadable.iter().copied().collect()
    }

    /// Reports the end of the session.
    pub(super) fn farewell(mut self) -> Result<(), Violation> {
        self.account.note(&Entry::Farewell);
        Ok(self.account.hand_over()?)
    }

    /// Submits I/Os up to the depth. Returns `true` once the source has no more I/Os.
    fn begin(&mut self, link: &mut Link, source: &mut Source<'_>) -> Result<bool, Violation> {
        let mut messages = Vec::new();
        let mut is_over = false;
        while let Some(slot) = self.free.pop() {
            let (block_size, memory) = (link.storage.block_size, link.memory.len() as u64);
            match source.next(&self.busy, block_size, memory) {
                Next::Io { kind, first, count } => {
                    messages.push(self.io(&link.memory, slot, kind, first, count)?);
                    continue;
                }
                Next::Improper(message) => {
                    messages.push(self.improper(slot, message));
                    continue;
                }
                Next::Control(bytes) => {
                    LoadState::Acting.say();
                    self.provoked = true;
                    link.control.send_bytes(&bytes)?;
                }
                Next::Wait => {}
                Next::End => is_over = true,
            }
            self.free.push(slot);
            break;
        }
        // The verifier is informed of a write before it is submitted.
        self.account.hand_over()?;
        for message in messages {
            link.io()?.send_bytes(&message, self.timeout)?;
        }
        Ok(is_over)
    }

    fn io(
        &mut self,
        memory: &MemoryRegion,
        slot: usize,
        kind: Kind,
        first: u64,
        count: u64,
    ) -> Result<Vec<u8>, Violation> {
        let io = self.number();
        let base = slot * MOST_BLOCKS * self.block_size;
        let mut versions = Vec::new();
        for (index, block) in (first..first + count).enumerate() {
            let place = base + index * self.block_size;
            let busy = &mut self.busy[block as usize];
            match kind {
                Kind::Read => {
                    busy.readers += 1;
                    // Cleared, so that a read that transfers nothing does not return the data of the previous read.
                    memory.fill(place, self.block_size, 0xa5)?;
                    self.account.note(&Entry::Read(Reading { block, io }));
                }
                Kind::Write => {
                    busy.writers += 1;
                    self.next_version += 1;
                    let version = self.next_version;
                    self.pattern.fill(block, version, &mut self.buffer);
                    memory.write(place, &self.buffer)?;
                    self.account.note(&Entry::Write(Version { block, version }));
                    versions.push(version);
                }
            }
        }
        let request = Repr {
            message_type: match kind {
                Kind::Read => IoMessageType::Read,
                Kind::Write => IoMessageType::Write,
            },
            user_data: io,
            result: 0,
            size: (count as usize * self.block_size) as u32,
            requester_offset: base as u64,
            storage_offset: first * self.block_size as u64,
        };
        let what = What::Io {
            request,
            kind,
            first,
            versions,
        };
        self.add(io, slot, what);
        Ok(request.to_bytes().to_vec())
    }

    fn improper(&mut self, slot: usize, message: Improper) -> Vec<u8> {
        let io = self.number();
        let bytes = message.to_bytes(io);
        self.add(io, slot, What::Improper { message });
        bytes
    }

    fn number(&mut self) -> u64 {
        self.next_io += 1;
        // User data may be any number; setting all bytes detects truncation.
        self.next_io << 24 | 0x00a5_a5a5
    }

    fn add(&mut self, io: u64, slot: usize, what: What) {
        let since = Instant::now();
        self.in_flight.insert(io, InFlight { slot, since, what });
    }

    /// Handles a result, which must be that of an I/O in flight.
    fn take_result(&mut self, memory: &MemoryRegion, bytes: &[u8]) -> Result<(), Violation> {
        let Some(answer) = parse(bytes) else {
            return self.broken(format!("a message that is no result: {bytes:02x?}"));
        };
        let io = match self.in_flight.contains_key(&answer.user_data) {
            true => answer.user_data,
            false => match self.unnamed() {
                Some(io) => io,
                None => {
                    return self.broken(format!(
                        "a result without a request in flight, or a duplicate: {answer:?}"
                    ));
                }
            },
        };
        let Some(ended) = self.in_flight.remove(&io) else {
            return Ok(());
        };
        self.free.push(ended.slot);
        match ended.what {
            What::Improper { message } => {
                if answer.result == 0 {
                    return self.broken(format!("success for {message:?}"));
                }
                self.account.note(&Entry::Refused);
                Ok(())
            }
            What::Io {
                request,
                kind,
                first,
                versions,
            } => {
                if answer != request.answer(answer.result) {
                    return self.broken(format!("{answer:?} as the result of {request:?}"));
                }
                let is_good = answer.result == 0;
                match kind {
                    Kind::Read => {
                        let count = u64::from(request.size) / self.block_size as u64;
                        self.read(memory, (io, ended.slot), first..first + count, is_good)
                    }
                    Kind::Write => {
                        self.written(first, &versions, is_good);
                        Ok(())
                    }
                }
            }
        }
    }

    fn written(&mut self, first: u64, versions: &[u64], is_good: bool) {
        for (block, version) in std::iter::zip(first.., versions) {
            self.busy[block as usize].writers -= 1;
            let write = Version {
                block,
                version: *version,
            };
            self.account.note(&if is_good {
                Entry::Written(write)
            } else {
                Entry::WriteFailed(write)
            });
        }
    }

    fn read(
        &mut self,
        memory: &MemoryRegion,
        (io, slot): (u64, usize),
        blocks: std::ops::Range<u64>,
        is_good: bool,
    ) -> Result<(), Violation> {
        let excused = self.excused;
        let base = slot * MOST_BLOCKS * self.block_size;
        for (index, block) in blocks.enumerate() {
            self.busy[block as usize].readers -= 1;
            let reading = Reading { block, io };
            let entry = if is_good {
                memory.read(base + index * self.block_size, &mut self.buffer)?;
                let content = self.pattern.look(block, &self.buffer);
                Entry::Found { reading, content }
            } else {
                self.unreadable.insert(block);
                Entry::ReadFailed { reading, excused }
            };
            self.account.note(&entry);
        }
        Ok(())
    }

    /// Returns a message that was truncated, so that its result need not contain its user data.
    fn unnamed(&self) -> Option<u64> {
        let cut = self.in_flight.iter().filter(|(_, in_flight)| {
            matches!(&in_flight.what, What::Improper { message } if !message.is_whole())
        });
        cut.map(|(io, _)| *io).min()
    }

    fn broken(&mut self, what: String) -> Result<(), Violation> {
        self.account.note(&Entry::Broken(what.clone()));
        self.account.hand_over()?;
        Err(Violation::expected(
            "one result for each I/O, and nothing else",
            what,
        ))
    }

    fn listen(&mut self, link: &mut Link) -> Result<(), Violation> {
        match link.heard()? {
            None => Ok(()),
            Some(message)
                if self.provoked && matches!(message.payload, Payload::ErrorResponse(_)) =>
            {
                self.provoked = false;
                Ok(())
            }
            Some(message) => Err(Violation::expected(
                "nothing on the control channel",
                format!("{message:?}"),
            )),
        }
    }

    fn expect_progress(&self) -> Result<(), Violation> {
        let oldest = self.in_flight.values().min_by_key(|ended| ended.since);
        match oldest {
            Some(oldest) if oldest.since.elapsed() > self.timeout => Err(Violation::expected(
                format!("a result within {:?}", self.timeout),
                "none",
            )),
            _ => Ok(()),
        }
    }
}

/// Parses a result; `None` for other messages.
fn parse(bytes: &[u8]) -> Option<Repr> {
    let bytes = <[u8; SIZE]>::try_from(bytes).ok()?;
    let answer = Repr::parse(&IoMessage::new_unchecked_len(&bytes)).ok()?;
    (answer.message_type == IoMessageType::Result).then_some(answer)
}

// Sequences of I/Os: each block once, or random ones.

/// Maximum number of blocks of one I/O.
pub(super) const MOST_BLOCKS: usize = 4;
/// Attempts to find blocks for an I/O that no pending I/O overlaps.
const ATTEMPTS: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
}

/// Next action of a load.
#[derive(Debug, Clone)]
pub(super) enum Next {
    /// An I/O of `count` blocks from block `first` on.
    Io {
        kind: Kind,
        first: u64,
        count: u64,
    },
    /// Send a malformed message.
    Improper(Improper),
    /// Send these bytes on the control channel.
    Control(Vec<u8>),
    /// Wait for a completion.
    Wait,
    End,
}

/// Number of I/Os in flight on each block.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Busy {
    pub(super) readers: u32,
    pub(super) writers: u32,
}

/// A sequence of I/Os.
pub(super) struct Source<'a> {
    choice: Choice<'a>,
    blocks: u64,
}

enum Choice<'a> {
    /// One I/O for each block in `left`.
    These { kind: Kind, left: VecDeque<u64> },
    Random {
        rng: Rng,
        layout: Layout,
        malformed: Malformed,
        /// Number of I/Os until the next malformed control message.
        until_control: u64,
        stop: &'a dyn Fn() -> bool,
    },
    /// No I/Os until the function returns `true`.
    Idle(&'a dyn Fn() -> bool),
}

impl<'a> Source<'a> {
    /// Reads every block once with a separate I/O, so that an unreadable block does not affect reads of other blocks.
    pub(super) fn read_all(blocks: u64) -> Self {
        let (kind, left) = (Kind::Read, (0..blocks).collect());
        Self {
            choice: Choice::These { kind, left },
            blocks,
        }
    }

    pub(super) fn write_these(blocks: Vec<u64>) -> Self {
        let (kind, left) = (Kind::Write, VecDeque::from(blocks));
        Self {
            choice: Choice::These { kind, left },
            blocks: 0,
        }
    }

    /// No I/Os until `stop` returns `true`.
    pub(super) fn idle(stop: &'a dyn Fn() -> bool) -> Self {
        Self {
            choice: Choice::Idle(stop),
            blocks: 0,
        }
    }

    /// Random I/Os, derived from the seed and the number of the session, until `stop` returns `true`.
    pub(super) fn random(load: &Load, blocks: u64, stop: &'a dyn Fn() -> bool) -> Self {
        let mut rng = Rng::with_seed(load.seed ^ load.session.rotate_left(32));
        Self {
            choice: Choice::Random {
                until_control: rng.u64(200..2000),
                rng,
                layout: load.layout,
                malformed: load.malformed,
                stop,
            },
            blocks,
        }
    }

    /// The next action, given the pending I/Os.
    pub(super) fn next(&mut self, busy: &[Busy], block_size: u32, memory: u64) -> Next {
        let blocks = self.blocks;
        match &mut self.choice {
            Choice::These { kind, left } => match left.pop_front() {
                Some(first) => Next::Io {
                    kind: *kind,
                    first,
                    count: 1,
                },
                None => Next::End,
            },
            Choice::Idle(stop) if stop() => Next::End,
            Choice::Idle(_) => Next::Wait,
            Choice::Random { stop, .. } if stop() => Next::End,
            Choice::Random {
                rng,
                layout,
                malformed,
                until_control,
                ..
            } => {
                *until_control = until_control.saturating_sub(1);
                match malformed {
                    Malformed::Io if rng.u8(..) < 32 => {
                        let storage = blocks * u64::from(block_size);
                        return Next::Improper(Improper::new(rng, block_size, storage, memory));
                    }
                    Malformed::Control if *until_control == 0 => {
                        *malformed = Malformed::None;
                        return Next::Control(super::malformed_control(rng));
                    }
                    _ => {}
                }
                random(rng, *layout, blocks, busy)
            }
        }
    }
}

fn random(rng: &mut Rng, layout: Layout, blocks: u64, busy: &[Busy]) -> Next {
    for _ in 0..ATTEMPTS {
        let kind = if rng.bool() { Kind::Read } else { Kind::Write };
        let most = blocks.min(MOST_BLOCKS as u64);
        // Half of the I/Os have one block.
        let count = if rng.bool() { 1 } else { rng.u64(1..=most) };
        let first = rng.u64(..=blocks - count);
        let place = first as usize..(first + count) as usize;
        let is_free = |busy: &Busy| match kind {
            // A service that serialises I/Os on a block returns the block before or after a concurrent write.
            Kind::Read => busy.writers == 0 || layout == Layout::Gga,
            Kind::Write => busy.writers == 0 && (busy.readers == 0 || layout == Layout::Gga),
        };
        if busy[place].iter().all(is_free) {
            return Next::Io { kind, first, count };
        }
    }
    Next::Wait
}

#[cfg(test)]
mod source_tests {
    use std::time::Duration;

    use super::*;
    use crate::hammer::load::Task;

    fn load(seed: u64, session: u64) -> Load {
        Load {
            channel: String::new(),
            device: String::new(),
            verifier: Default::default(),
            seed,
            session,
            layout: Layout::ZeroCopy,
            task: Task::Run,
            cut_off: false,
            malformed: Malformed::Io,
            timeout: Duration::ZERO,
        }
    }

    fn sequence(load: &Load) -> String {
        let mut source = Source::random(load, 64, &|| false);
        let next = |_| source.next(&[Busy::default(); 64], 4096, 1 << 20);
        format!("{:?}", (0..200).map(next).collect::<Vec<_>>())
    }

    #[test]
    fn sequence_depends_on_seed_and_session() {
        assert_eq!(sequence(&load(1, 2)), sequence(&load(1, 2)));
        assert_ne!(sequence(&load(1, 2)), sequence(&load(1, 3)));
        assert_ne!(sequence(&load(1, 2)), sequence(&load(2, 2)));
    }

    #[test]
    fn no_block_is_read_during_its_write() {
        let mut source = Source::random(&load(1, 1), 8, &|| false);
        let mut busy = [Busy::default(); 8];
        busy[..7].fill(Busy {
            readers: 0,
            writers: 1,
        });
        for _ in 0..500 {
            if let Next::Io { first, count, .. } = source.next(&busy, 4096, 1 << 20) {
                assert_eq!((first, count), (7, 1));
            }
        }
    }

    #[test]
    fn read_all_reads_every_block_once() {
        let mut source = Source::read_all(10);
        let mut read = Vec::new();
        while let Next::Io { first, count, .. } = source.next(&[], 4096, 0) {
            read.extend(first..first + count);
        }
        assert_eq!(read, (0..10).collect::<Vec<_>>());
    }
}

#[cfg(test)]
mod tests {
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

    /// Checks that a valid result is accepted, and that the invalid one after it is refused.
    fn refuses(kind: Kind, wrong: impl FnOnce(Repr) -> Vec<u8>, what: &str) {
        let mut fixture = Fixture::new();
        let (first, other) = (fixture.begin(kind), fixture.begin(kind));
        fixture
            .take(&first.answer(0).to_bytes())
            .expect("its result is taken");
        let wrong = wrong(first);
        let failure = fixture.take(&wrong).expect_err(what).to_string();
        assert!(failure.contains(what), "{failure}");
        // The result does not identify its request: the other requests remain pending.
        assert!(fixture.traffic.in_flight.contains_key(&other.user_data));
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
                "or a duplicate",
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
            refuses(kind, intruder, "a result without a request in flight");
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
        assert!(fixture.take(&refusal).is_err(), "nothing else is in flight");
    }
}
