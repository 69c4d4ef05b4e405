//! The witness: a process of its own that nobody hurts. It hears of each write before it is made, and judges every read.

use std::fs;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getppid;
use serde::{Deserialize, Serialize};

use super::account::{Entry, entries};
use super::ledger::{Counts, Ledger, Violation};

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
