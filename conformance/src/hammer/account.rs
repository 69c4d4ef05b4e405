//! What the load tells the witness, in the order in which it happens: one JSON document a line.
//!
//! An intention is handed to the operating system before it is carried out: what a load has told before it was killed is
//! read all the same.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::content::Seen;

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
