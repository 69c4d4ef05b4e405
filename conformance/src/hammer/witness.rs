//! The witness: a process of its own that nobody hurts. It hears of each write before it is made, and judges every read.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getppid;
use serde::{Deserialize, Serialize};

use super::ledger::{Counts, Ledger, Seen, Violation};

/// What the line begins with that tells of a session.
const SESSION: &str = "witness: session ";
/// How often it looks whether whoever started it is still there.
const TICK: Duration = Duration::from_millis(500);

/// What the witness says of a session that is over.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Testimony {
    /// Number of the session.
    pub session: u64,
    /// How often what happened in it.
    pub counts: Counts,
    /// It came to its end, all that was begun with it.
    pub ended_well: bool,
    /// What was broken, in words.
    pub violation: Option<String>,
}

impl Testimony {
    /// From a line of the witness's standard error, if it is one.
    pub fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line.strip_prefix(SESSION)?).ok()
    }
}

/// What a witness is told.
#[derive(Debug, Clone)]
pub struct Witness {
    /// The socket that loads find it at.
    pub socket: PathBuf,
    /// Blocks of the storage.
    pub blocks: u64,
    /// The file that a violation is written to, with what led to it.
    pub evidence: PathBuf,
}

impl Witness {
    /// Listens to one load after the other, until the process that has started this one is gone.
    ///
    /// # Errors
    ///
    /// The socket, or the file for evidence, cannot be made.
    pub fn watch(&self) -> io::Result<()> {
        let listener = UnixListener::bind(&self.socket)?;
        eprintln!("witness: listening");
        let mut ledger = Ledger::new(self.blocks);
        let parent = getppid();
        let tick = Timespec::try_from(TICK).map_err(io::Error::other)?;
        while getppid() == parent {
            let ready = poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&tick));
            if !matches!(ready, Ok(1..)) {
                continue;
            }
            let (stream, _) = listener.accept()?;
            let testimony = self.listen(&mut ledger, entries(stream))?;
            eprintln!("{SESSION}{}", serde_json::to_string(&testimony)?);
        }
        Ok(())
    }

    /// Hears one load. It hangs up at the first violation.
    fn listen(
        &self,
        ledger: &mut Ledger,
        entries: impl Iterator<Item = io::Result<Entry>>,
    ) -> io::Result<Testimony> {
        let (mut session, mut ended_well, mut violation) = (0, false, None);
        // What cannot be read is the last line of a load that was killed.
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
        Ok(Testimony {
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

// What the load tells the witness, in the order in which it happens: one JSON document a line.
//
// An intention is handed to the operating system before it is carried out: what a load has told before it was killed is
// read all the same.

/// One thing that happened, or is about to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// A load is there.
    Hello {
        /// Its number.
        session: u64,
        /// A target was killed, or missing, when the load before came to its end: writes that were under way may be half done.
        cut_off: bool,
    },
    /// A block is about to be written. Versions of a block rise.
    Write(Version),
    /// A write was acknowledged.
    Written(Version),
    /// A write ended in an error: it may have happened, or not.
    WriteFailed(Version),
    /// A block is about to be read.
    Read(Reading),
    /// A read was answered with success, and brought this.
    Found {
        /// Which read.
        reading: Reading,
        /// What.
        seen: Seen,
    },
    /// A read ended in an error.
    ReadFailed {
        /// Which read.
        reading: Reading,
        /// A fault is on the way, which may be why.
        excused: bool,
    },
    /// Something that is no proper I/O was refused, as it should be.
    Refused,
    /// Something came that must not.
    Broken(String),
    /// All that was begun has ended, and the session with it.
    Farewell,
}

/// A block in a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// The block.
    #[serde(rename = "b")]
    pub block: u64,
    /// What it is written with.
    #[serde(rename = "v")]
    pub version: u64,
}

/// A block of a read that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// The block.
    #[serde(rename = "b")]
    pub block: u64,
    /// Number of the read, unique in its session.
    #[serde(rename = "io")]
    pub io: u64,
}

/// The load's end.
#[derive(Debug)]
pub struct Account {
    stream: UnixStream,
    pending: Vec<u8>,
}

impl Account {
    /// Finds the witness.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn open(witness: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(witness)?;
        Ok(Self {
            stream,
            pending: Vec::new(),
        })
    }

    /// Notes something. It counts once [`Account::hand_over`] has returned.
    pub fn note(&mut self, entry: &Entry) {
        // Numbers and texts, into memory: nothing that can fail.
        let _ = serde_json::to_writer(&mut self.pending, entry);
        self.pending.push(b'\n');
    }

    /// Gives the witness all that was noted.
    ///
    /// # Errors
    ///
    /// It has hung up: it has seen enough.
    pub fn hand_over(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.pending)?;
        self.pending.clear();
        Ok(())
    }
}

/// The witness's end: what one load tells. The last line of one that was killed may be cut.
pub fn entries(stream: UnixStream) -> impl Iterator<Item = io::Result<Entry>> {
    BufReader::with_capacity(1 << 16, stream)
        .split(b'\n')
        .map(|line| Ok(serde_json::from_slice(&line?)?))
}
