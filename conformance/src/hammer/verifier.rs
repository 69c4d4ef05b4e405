//! The verifier: a process without injected faults. It is informed of every write before it is submitted, and checks
//! the result of every read with its ledger of the versions that a block may hold.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, fs};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getppid;
use serde::{Deserialize, Serialize};

/// Prefix of the lines on standard error that report a session.
const SESSION: &str = "verifier: session ";
/// Interval between checks that its parent process is running.
const TICK: Duration = Duration::from_millis(500);

/// Verifier's report of a session that has ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Findings {
    pub session: u64,
    /// Counts of the session's I/Os.
    pub counts: Counts,
    /// `true` if the session ended cleanly, with all its I/Os completed.
    pub ended_cleanly: bool,
    /// Description of the violation, if any.
    pub violation: Option<String>,
}

impl Findings {
    /// Parses a line of the verifier's standard error; `None` for other lines.
    pub fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line.strip_prefix(SESSION)?).ok()
    }
}

#[derive(Debug, Clone)]
pub struct Verifier {
    /// Path of the socket for loads.
    pub socket: PathBuf,
    /// Number of blocks of the storage.
    pub blocks: u64,
    /// Path of the file to which a violation is written, with the preceding events.
    pub evidence: PathBuf,
}

impl Verifier {
    /// Serves loads, one after the other, until its parent process has exited.
    ///
    /// # Errors
    ///
    /// The socket, or the evidence file, cannot be created.
    pub fn watch(&self) -> io::Result<()> {
        let listener = UnixListener::bind(&self.socket)?;
        eprintln!("verifier: listening");
        let mut ledger = Ledger::new(self.blocks);
        let parent = getppid();
        let tick = Timespec::try_from(TICK).map_err(io::Error::other)?;
        while getppid() == parent {
            let ready = poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&tick));
            if !matches!(ready, Ok(1..)) {
                continue;
            }
            let (stream, _) = listener.accept()?;
            let findings = self.listen(&mut ledger, entries(stream))?;
            eprintln!("{SESSION}{}", serde_json::to_string(&findings)?);
        }
        Ok(())
    }

    /// Checks the messages of one load, up to the first violation.
    fn listen(
        &self,
        ledger: &mut Ledger,
        entries: impl Iterator<Item = io::Result<Entry>>,
    ) -> io::Result<Findings> {
        let (mut session, mut ended_cleanly, mut violation) = (0, false, None);
        // Only the last line of a killed load can be malformed.
        for entry in entries.map_while(Result::ok) {
            match entry {
                Entry::Hello {
                    session: number, ..
                } => session = number,
                Entry::Farewell => ended_cleanly = true,
                _ => {}
            }
            if let Err(found) = ledger.enter(&entry) {
                evidence(&self.evidence, session, &found)?;
                violation = Some(found.to_string());
                break;
            }
        }
        Ok(Findings {
            session,
            counts: ledger.end_session(),
            ended_cleanly,
            violation,
        })
    }
}

fn evidence(path: &Path, session: u64, violation: &Violation) -> io::Result<()> {
    #[derive(Serialize)]
    struct Evidence<'a> {
        session: u64,
        #[serde(flatten)]
        violation: &'a Violation,
    }
    let evidence = Evidence { session, violation };
    fs::write(path, serde_json::to_vec_pretty(&evidence)?)
}

// Messages of the load to the verifier, in order: one JSON document per line.
//
// A message is passed to the operating system before its action is carried out: the verifier also reads the messages
// of a load that was killed afterwards.

/// A message of the load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// The load has connected.
    Hello {
        session: u64,
        /// `true` if a target was killed or missing when the previous load ended: its pending writes may be torn.
        cut_off: bool,
    },
    /// A block is about to be written. Versions of a block increase.
    Write(Version),
    /// A write was acknowledged.
    Written(Version),
    /// A write has failed: the block contains either version.
    WriteFailed(Version),
    /// A block is about to be read.
    Read(Reading),
    /// A read has returned these contents.
    Found {
        /// Identifies the read.
        reading: Reading,
        content: Content,
    },
    ReadFailed {
        /// Identifies the read.
        reading: Reading,
        /// `true` if a fault is being injected, which may be the cause.
        excused: bool,
    },
    /// A malformed message was refused.
    Refused,
    /// A message violates the protocol.
    Broken(String),
    /// All I/Os have completed, and the session has ended.
    Farewell,
}

/// A version of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    #[serde(rename = "b")]
    pub block: u64,
    #[serde(rename = "v")]
    pub version: u64,
}

/// A block of a pending read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    #[serde(rename = "b")]
    pub block: u64,
    /// Number of the read, unique in its session.
    #[serde(rename = "io")]
    pub io: u64,
}

/// Load's end of the connection to the verifier.
#[derive(Debug)]
pub struct Account {
    stream: UnixStream,
    pending: Vec<u8>,
}

impl Account {
    /// Connects to the verifier.
    ///
    /// # Errors
    ///
    /// The verifier is not running.
    pub fn open(verifier: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(verifier)?;
        Ok(Self {
            stream,
            pending: Vec::new(),
        })
    }

    /// Queues a message, which [`Account::hand_over`] sends.
    pub fn note(&mut self, entry: &Entry) {
        // Serialisation to memory does not fail.
        let _ = serde_json::to_writer(&mut self.pending, entry);
        self.pending.push(b'\n');
    }

    /// Sends the queued messages to the verifier.
    ///
    /// # Errors
    ///
    /// The verifier has disconnected, because it has found a violation.
    pub fn hand_over(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.pending)?;
        self.pending.clear();
        Ok(())
    }
}

/// Parses the messages of one load. The last line of a killed load may be truncated.
pub fn entries(stream: UnixStream) -> impl Iterator<Item = io::Result<Entry>> {
    BufReader::with_capacity(1 << 16, stream)
        .split(b'\n')
        .map(|line| Ok(serde_json::from_slice(&line?)?))
}

// Versions that a block may hold, derived from its writes and reads.
//
// Versions of a block increase, and its writes do not overlap. So a read must return the last version that was
// acknowledged or read before the read began, or a later one that was issued before it completed. A write that was not
// acknowledged may or may not have been performed; a read that began after the write had failed determines the version
// permanently.

/// Number of entries per block that are kept to explain a violation.
const HISTORY: usize = 24;

/// A violated guarantee of the storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// An acknowledged or already read version is missing.
    Lost,
    /// A read returned contents that the block cannot have.
    Violation,
    /// A message that the protocol does not allow: a duplicate result, or a result without a request.
    Protocol,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    pub kind: Kind,
    /// The block, for a violation of a single block.
    pub block: Option<u64>,
    /// Valid versions.
    pub expected: String,
    /// The version that was read.
    pub came: String,
    /// The last entries of the block.
    pub history: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(block) = self.block {
            write!(f, "block {block}: ")?;
        }
        write!(f, "expected {}, got {}", self.expected, self.came)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct Counts {
    /// Number of blocks of acknowledged writes.
    pub acknowledged: u64,
    /// Blocks read with valid contents.
    pub read_back: u64,
    /// Number of blocks of failed reads and writes.
    pub failed: u64,
    /// Number of blocks of writes that have not completed, because the load or its session ended.
    pub in_doubt: u64,
    /// Torn blocks: a target was killed or missing when an unacknowledged write was interrupted.
    pub torn: u64,
    /// Invalid requests that were refused.
    pub refused: u64,
    /// Violations: missing acknowledged writes.
    pub lost: u64,
    /// Violations: all others.
    pub wrong: u64,
}

impl std::ops::Add for Counts {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.acknowledged += other.acknowledged;
        self.read_back += other.read_back;
        self.failed += other.failed;
        self.in_doubt += other.in_doubt;
        self.torn += other.torn;
        self.refused += other.refused;
        self.lost += other.lost;
        self.wrong += other.wrong;
    }
}

/// State of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    InFlight,
    Acknowledged,
    /// The write ended in this epoch with an unknown result.
    InDoubt(u64),
}

#[derive(Debug, Default)]
struct Block {
    /// Last version that is known to have been stored.
    floor: u64,
    /// Versions that a read may return: the oldest permitted version, later ones, and earlier ones as long as a pending
    /// read may return them.
    versions: BTreeMap<u64, Fate>,
    /// Pending reads: number of the read, epoch of its start, and the floor at its start.
    reads: Vec<(u64, u64, u64)>,
    /// `true` if a write was in doubt when a target was killed, so that it may be partially stored.
    may_be_torn: bool,
    history: VecDeque<String>,
}

/// State of all blocks.
#[derive(Debug)]
pub struct Ledger {
    blocks: Vec<Block>,
    session: u64,
    /// Number of entries so far, used as a logical clock.
    now: u64,
    counts: Counts,
}

impl Ledger {
    /// Creates a ledger for this many unwritten blocks.
    pub fn new(blocks: u64) -> Self {
        Self {
            blocks: (0..blocks).map(|_| Block::default()).collect(),
            session: 0,
            now: 0,
            counts: Counts::default(),
        }
    }

    /// Counts of this session so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Records an event.
    ///
    /// # Errors
    ///
    /// The event violates a guarantee.
    pub fn enter(&mut self, entry: &Entry) -> Result<(), Violation> {
        self.now += 1;
        match entry {
            Entry::Hello { session, cut_off } => {
                self.session = *session;
                self.hello(*cut_off);
                Ok(())
            }
            Entry::Write(write) => self.write(*write),
            Entry::Written(write) => self.written(*write),
            Entry::WriteFailed(write) => self.write_failed(*write),
            Entry::Read(reading) => self.read(*reading),
            Entry::Found { reading, content } => self.found(*reading, content),
            Entry::ReadFailed { reading, excused } => self.read_failed(*reading, *excused),
            Entry::Refused => {
                self.counts.refused += 1;
                Ok(())
            }
            Entry::Broken(what) => {
                self.counts.wrong += 1;
                Err(Violation {
                    kind: Kind::Protocol,
                    block: None,
                    expected: "one result for each I/O, and nothing else".to_owned(),
                    came: what.clone(),
                    history: Vec::new(),
                })
            }
            Entry::Farewell => Ok(()),
        }
    }

    /// Ends the session of a load that has exited: the results of its pending writes are unknown. Returns the counts
    /// of the session.
    pub fn end_session(&mut self) -> Counts {
        self.now += 1;
        for block in &mut self.blocks {
            block.reads.clear();
            for fate in block.versions.values_mut() {
                if *fate == Fate::InFlight {
                    *fate = Fate::InDoubt(self.now);
                    self.counts.in_doubt += 1;
                }
            }
            block.prune();
        }
        std::mem::take(&mut self.counts)
    }

    fn hello(&mut self, cut_off: bool) {
        for block in &mut self.blocks {
            let doubt = block.versions.range(block.floor + 1..).next().is_some();
            block.may_be_torn |= cut_off && doubt;
        }
    }

    fn block(&mut self, block: u64, event: &dyn fmt::Display) -> Result<&mut Block, Violation> {
        let count = self.blocks.len();
        let text = format!("{} session {}: {event}", self.now, self.session);
        let found = usize::try_from(block)
            .ok()
            .and_then(|at| self.blocks.get_mut(at));
        let Some(found) = found else {
            return Err(Violation {
                kind: Kind::Protocol,
                block: Some(block),
                expected: format!("one of {count} blocks"),
                came: text,
                history: Vec::new(),
            });
        };
        if found.history.len() == HISTORY {
            found.history.pop_front();
        }
        found.history.push_back(text);
        Ok(found)
    }

    fn write(&mut self, write: Version) -> Result<(), Violation> {
        let version = write.version;
        let block = self.block(write.block, &format_args!("writes {version}"))?;
        block.versions.insert(version, Fate::InFlight);
        Ok(())
    }

    fn written(&mut self, write: Version) -> Result<(), Violation> {
        let version = write.version;
        let block = self.block(write.block, &format_args!("has written {version}"))?;
        block.versions.insert(version, Fate::Acknowledged);
        block.floor = block.floor.max(version);
        block.may_be_torn = false;
        block.prune();
        self.counts.acknowledged += 1;
        Ok(())
    }

    fn write_failed(&mut self, write: Version) -> Result<(), Violation> {
        let (now, version) = (self.now, write.version);
        let block = self.block(write.block, &format_args!("has failed to write {version}"))?;
        block.versions.insert(version, Fate::InDoubt(now));
        self.counts.failed += 1;
        Ok(())
    }

    fn read(&mut self, reading: Reading) -> Result<(), Violation> {
        let now = self.now;
        let block = self.block(reading.block, &format_args!("reads, I/O {}", reading.io))?;
        block.reads.push((reading.io, now, block.floor));
        Ok(())
    }

    fn read_failed(&mut self, reading: Reading, excused: bool) -> Result<(), Violation> {
        let io = reading.io;
        let block = self.block(reading.block, &format_args!("has failed to read, I/O {io}"))?;
        block.reads.retain(|(other, _, _)| *other != io);
        block.prune();
        let may_be_torn = block.may_be_torn;
        let violation = (!excused && !may_be_torn)
            .then(|| block.violation(Kind::Lost, reading.block, block.floor, &"an error"));
        self.counts.failed += 1;
        self.counts.torn += u64::from(!excused && may_be_torn);
        self.counts.lost += u64::from(violation.is_some());
        violation.map_or(Ok(()), Err)
    }

    fn found(&mut self, reading: Reading, content: &Content) -> Result<(), Violation> {
        let io = reading.io;
        let block = self.block(reading.block, &format_args!("has read {content}, I/O {io}"))?;
        let Some(at) = block.reads.iter().position(|(other, _, _)| *other == io) else {
            let violation = block.violation(Kind::Protocol, reading.block, 0, content);
            self.counts.wrong += 1;
            return Err(violation);
        };
        let (_, began, least) = block.reads.swap_remove(at);
        match block.judge(began, least, content) {
            Verdict::Right => self.counts.read_back += 1,
            Verdict::Torn => self.counts.torn += 1,
            Verdict::Broken(kind) => {
                let violation = block.violation(kind, reading.block, least, content);
                match kind {
                    Kind::Lost => self.counts.lost += 1,
                    Kind::Violation | Kind::Protocol => self.counts.wrong += 1,
                }
                return Err(violation);
            }
        }
        Ok(())
    }
}

enum Verdict {
    Right,
    /// Valid once: the write was interrupted together with its target.
    Torn,
    Broken(Kind),
}

impl Block {
    /// Checks the contents returned by a read that began in epoch `began` with the floor `least`.
    fn judge(&mut self, began: u64, least: u64, content: &Content) -> Verdict {
        match content {
            Content::Version(version) if *version < least => Verdict::Broken(Kind::Lost),
            Content::Version(version) if self.versions.contains_key(version) => {
                self.settle(*version, began);
                Verdict::Right
            }
            Content::Torn(versions)
                if self.may_be_torn && versions.iter().all(|version| self.may_hold(*version)) =>
            {
                Verdict::Torn
            }
            Content::Version(_)
            | Content::Torn(_)
            | Content::OtherBlock { .. }
            | Content::Garbage { .. } => Verdict::Broken(Kind::Violation),
        }
    }

    fn may_hold(&self, version: u64) -> bool {
        version >= self.floor && self.versions.contains_key(&version)
    }

    /// Records that a read that began at `began` has returned this version: the version is permanent, and earlier
    /// writes that had ended by then without being read were never performed.
    fn settle(&mut self, found: u64, began: u64) {
        self.versions.retain(|version, fate| {
            !matches!(fate, Fate::InDoubt(ended) if *ended < began && *version > found)
        });
        self.floor = self.floor.max(found);
        self.prune();
    }

    /// Removes versions that a read can no longer return.
    fn prune(&mut self) {
        let least = self.reads.iter().map(|(_, _, least)| *least).min();
        let keep = least.unwrap_or(self.floor).min(self.floor);
        while let Some(first) = self.versions.first_entry()
            && *first.key() < keep
        {
            first.remove();
        }
    }

    fn violation(&self, kind: Kind, block: u64, least: u64, came: &dyn fmt::Display) -> Violation {
        let allowed = self.versions.range(least..).map(|(version, fate)| {
            let fate = match fate {
                Fate::InFlight => " (in flight)",
                Fate::InDoubt(_) => " (never acknowledged)",
                Fate::Acknowledged => "",
            };
            format!("{version:#x}{fate}")
        });
        Violation {
            kind,
            block: Some(block),
            expected: format!("version {}", allowed.collect::<Vec<_>>().join(" or ")),
            came: came.to_string(),
            history: self.history.iter().cloned().collect(),
        }
    }
}

// Self-describing blocks: every line of 64 bytes contains the number of the block and the version that was written,
// and half of its bytes depend on both and on the seed. So a read identifies the write that it returns, and
// distinguishes wrong blocks, torn blocks, old versions and garbage.

/// Size of a line in bytes. Block sizes are multiples of it.
pub const LINE: usize = 64;

/// Bytes of a line that depend on block, version and seed; the others are the block, the version, and spaces, so that
/// blocks compress.
const NOISE: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// This version of the block.
    Version(u64),
    /// Lines of these versions of the block, in ascending order.
    Torn(Vec<u64>),
    /// A line that was written to another block.
    OtherBlock { block: u64, version: u64 },
    /// Bytes that do not match this seed.
    Garbage {
        /// Offset of the first such line in the block, in bytes.
        offset: u64,
    },
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(f, "version {version:#x}"),
            Self::Torn(versions) => write!(f, "lines of the versions {versions:#x?}"),
            Self::OtherBlock { block, version } => {
                write!(f, "block {block} in version {version:#x}")
            }
            Self::Garbage { offset } => {
                write!(f, "bytes that were never written, at offset {offset}")
            }
        }
    }
}

/// Generates the contents of blocks from a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern {
    /// Patterns with different seeds have no line in common.
    pub seed: u64,
}

impl Pattern {
    /// Fills `into` with the contents of a block in this version.
    pub fn fill(self, block: u64, version: u64, into: &mut [u8]) {
        for (number, line) in into.chunks_mut(LINE).enumerate() {
            let content = self.line(block, version, number);
            line.copy_from_slice(&content[..line.len()]);
        }
    }

    /// Identifies contents that were read from `block`.
    pub fn look(self, block: u64, bytes: &[u8]) -> Content {
        let mut versions = Vec::new();
        for (number, line) in bytes.chunks(LINE).enumerate() {
            let (of, version) = (word(line, NOISE), word(line, NOISE + 8));
            if self.line(of, version, number)[..line.len()] != *line {
                let offset = (number * LINE) as u64;
                return Content::Garbage { offset };
            }
            if of != block {
                return Content::OtherBlock { block: of, version };
            }
            if versions.last() != Some(&version) {
                versions.push(version);
            }
        }
        versions.sort_unstable();
        versions.dedup();
        match versions[..] {
            [version] => Content::Version(version),
            _ => Content::Torn(versions),
        }
    }

    fn line(self, block: u64, version: u64, number: usize) -> [u8; LINE] {
        let mut line = [b' '; LINE];
        let mut state = mix(mix(mix(self.seed) ^ block) ^ version) ^ number as u64;
        for word in line[..NOISE].chunks_exact_mut(8) {
            state = mix(state);
            word.copy_from_slice(&state.to_be_bytes());
        }
        line[NOISE..NOISE + 8].copy_from_slice(&block.to_be_bytes());
        line[NOISE + 8..NOISE + 16].copy_from_slice(&version.to_be_bytes());
        line
    }
}

/// Number at offset `at`, or 0 after the end of the line.
fn word(line: &[u8], at: usize) -> u64 {
    let bytes = line.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u64::from_be_bytes)
}

/// SplitMix64: every bit of the result depends on every bit of the argument.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATTERN: Pattern = Pattern { seed: 7 };

    fn block(block: u64, version: u64) -> Vec<u8> {
        let mut bytes = vec![0; 512];
        PATTERN.fill(block, version, &mut bytes);
        bytes
    }

    #[test]
    fn content_identifies_its_version() {
        assert_eq!(PATTERN.look(3, &block(3, 9)), Content::Version(9));
    }

    #[test]
    fn wrong_torn_and_garbage_blocks_are_distinguished() {
        let other = Content::OtherBlock {
            block: 4,
            version: 9,
        };
        assert_eq!(PATTERN.look(3, &block(4, 9)), other);
        let torn = [&block(3, 9)[..128], &block(3, 8)[128..]].concat();
        assert_eq!(PATTERN.look(3, &torn), Content::Torn(vec![8, 9]));
        // Swapped halves of a block contain no valid line.
        let whole = block(3, 9);
        let swapped = [&whole[256..], &whole[..256]].concat();
        assert_eq!(PATTERN.look(3, &swapped), Content::Garbage { offset: 0 });
        assert_eq!(PATTERN.look(3, &[0; 512]), Content::Garbage { offset: 0 });
        let foreign = Pattern { seed: 8 };
        assert_eq!(
            foreign.look(3, &block(3, 9)),
            Content::Garbage { offset: 0 }
        );
    }

    #[test]
    fn every_changed_byte_is_detected() {
        for at in 0..512 {
            let mut bytes = block(3, 9);
            bytes[at] ^= 1;
            let offset = (at / LINE * LINE) as u64;
            assert_eq!(
                PATTERN.look(3, &bytes),
                Content::Garbage { offset },
                "byte {at}"
            );
        }
    }

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
        // The same applies to the next session.
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
        // Once read, the version is the current version for reads that start now, but not for earlier reads.
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
        // No process has been killed since.
        book.write(4);
        let in_flight = || Content::Torn(vec![3, 4]);
        assert_eq!(book.begin(1).end(1, in_flight()), Err(Kind::Violation));
        // Acknowledged writes may not be torn, nor may writes that started later.
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
            "block 1: expected version 0x2 or 0x3 (in flight), got version 0x1"
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
}
