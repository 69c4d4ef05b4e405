//! The load: an initiator that knows what every block must hold. A process of its own, because it is hurt like everybody else.

mod link;
mod mischief;
mod source;
mod traffic;

use std::path::PathBuf;
use std::time::Duration;

use super::account::{Account, Entry};
use crate::matrix::Layout;
use crate::role::Wrong;

use link::Link;
use source::Source;
use traffic::Traffic;

pub use mischief::Mischief;
pub(super) use mischief::control as control_garbage;

/// What every line begins with that says how far it has come.
const SAYS: &str = "load: ";

/// How far a load has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The witness has heard of it.
    Known,
    /// A service has let it in.
    Connected,
    /// I/O is possible.
    Started,
    /// It does what it was started for.
    Running,
    /// It has sent what it was to send beside its I/Os.
    Acting,
    /// It does no more I/O but to read what all blocks hold.
    Ending,
}

impl Stage {
    const ALL: [(Self, &str); 6] = [
        (Self::Known, "known"),
        (Self::Connected, "connected"),
        (Self::Started, "started"),
        (Self::Running, "running"),
        (Self::Acting, "acting"),
        (Self::Ending, "ending"),
    ];

    /// From a line of the load's standard error, if it says so.
    pub fn parse(line: &str) -> Option<Self> {
        let said = line.strip_prefix(SAYS)?;
        let found = Self::ALL.iter().find(|(_, name)| said == *name);
        found.map(|(stage, _)| *stage)
    }

    fn say(self) {
        if let Some((_, name)) = Self::ALL.iter().find(|(stage, _)| *stage == self) {
            eprintln!("{SAYS}{name}");
        }
    }
}

/// What a load is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// To write every block once.
    Fill,
    /// To read and write at random until it is told to end.
    Run,
    /// To read every block once, to stay until it is told to end, and then to write those that cannot be read.
    ReadBack,
}

/// What a load is told.
#[derive(Debug, Clone)]
pub struct Load {
    /// The service's Comch channel.
    pub channel: String,
    /// The host's device.
    pub device: String,
    /// The witness's socket.
    pub witness: PathBuf,
    /// What the I/Os and the content of the blocks are made from.
    pub seed: u64,
    /// Its number: versions of later ones are higher.
    pub session: u64,
    /// What kind of service it talks to.
    pub layout: Layout,
    /// What it is for.
    pub task: Task,
    /// A target was killed, or missing, when the load before came to its end.
    pub cut_off: bool,
    /// What it does beside proper I/O.
    pub mischief: Mischief,
    /// Time that an answer may take.
    pub patience: Duration,
}

impl Load {
    /// Plays one session, until it is over or `stop` says so.
    ///
    /// # Errors
    ///
    /// The session has broken, or the witness has hung up.
    pub fn play(&self, stop: &dyn Fn() -> bool) -> Result<(), Wrong> {
        let mut account = Account::open(&self.witness)?;
        account.note(&Entry::Hello {
            session: self.session,
            cut_off: self.cut_off,
        });
        account.hand_over()?;
        Stage::Known.say();
        let mut link = Link::connect(self)?;
        Stage::Connected.say();
        link.start()?;
        Stage::Started.say();
        let blocks = link.blocks();
        let mut traffic = Traffic::new(self, &link.storage, account);
        Stage::Running.say();
        let read_all = || Source::read_all(blocks);
        match self.task {
            Task::Fill => traffic.run(&mut link, Source::write_these((0..blocks).collect()))?,
            Task::ReadBack => {
                traffic.run(&mut link, read_all())?;
                Stage::Ending.say();
                traffic.run(&mut link, Source::idle(stop))?;
                let unreadable = traffic.unreadable();
                traffic.run(&mut link, Source::write_these(unreadable))?;
            }
            Task::Run => {
                traffic.run(&mut link, Source::random(self, blocks, stop))?;
                Stage::Ending.say();
                traffic.run(&mut link, read_all())?;
            }
        }
        link.end()?;
        traffic.farewell()
    }
}
