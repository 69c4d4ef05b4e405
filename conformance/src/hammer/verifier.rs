//! The verifier: a process without injected faults. It is informed of every write before it is submitted, and checks
//! the result of every read.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getppid;
use serde::{Deserialize, Serialize};

use super::ledger::{Content, Counts, Ledger, Violation};

/// Prefix of the lines on standard error that report a session.
const SESSION: &str = "verifier: session ";
/// Interval between checks that its parent process is running.
const TICK: Duration = Duration::from_millis(500);

/// Verifier's report of a session that has ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Findings {
    /// Number of the session.
    pub session: u64,
    /// Counts of the session's I/Os.
    pub counts: Counts,
    /// `true` if the session ended cleanly, with all its I/Os completed.
    pub ended_well: bool,
    /// Description of the violation, if any.
    pub violation: Option<String>,
}

impl Findings {
    /// Parses a line of the verifier's standard error; `None` for other lines.
    pub fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line.strip_prefix(SESSION)?).ok()
    }
}

/// Parameters of a verifier.
#[derive(Debug, Clone)]
pub struct Verifier {
    /// Path of the socket for loads.
    pub socket: PathBuf,
    /// Number of blocks of the storage.
    pub blocks: u64,
    /// Path of the file to which a violation is written, with the events that led to it.
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
        let (mut session, mut ended_well, mut violation) = (0, false, None);
        // Only the last line of a killed load can be malformed.
        for entry in entries.map_while(Result::ok) {
            match entry {
                Entry::Hello {
                    session: number, ..
                } => session = number,
                Entry::Farewell => ended_well = true,
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
            ended_well,
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
        /// Number of the session.
        session: u64,
        /// `true` if a target was killed or missing when the previous load ended: its pending writes may be torn.
        cut_off: bool,
    },
    /// A block is about to be written. Versions of a block increase.
    Write(Version),
    /// A write was acknowledged.
    Written(Version),
    /// A write has failed: it may or may not have been performed.
    WriteFailed(Version),
    /// A block is about to be read.
    Read(Reading),
    /// A read has returned these contents.
    Found {
        /// Number and block of the read.
        reading: Reading,
        /// Contents of the block.
        content: Content,
    },
    /// A read has failed.
    ReadFailed {
        /// Number and block of the read.
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
    /// Number of the block.
    #[serde(rename = "b")]
    pub block: u64,
    /// Number of the version.
    #[serde(rename = "v")]
    pub version: u64,
}

/// A block of a pending read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// Number of the block.
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
    /// It is not running.
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
    /// It has disconnected, because it has found a violation.
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
