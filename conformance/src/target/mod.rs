//! A storage target for one session that can be told to lie.

mod control;
mod fault;
mod messages;
mod records;
mod session;
mod worker;

use std::io;
use std::net::TcpListener;

pub use fault::{Fault, UnknownFault};
pub(crate) use messages::{Io as IoOfRelease, Messages};
pub(crate) use session::Session;
use wire::release::Release;

/// Why a scripted target could not go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// DOCA refused something.
    #[error(transparent)]
    Doca(#[from] doca::Error),
    /// The control connection failed.
    #[error("control connection: {0}")]
    Control(#[from] io::Error),
    /// The service sent bytes that are no control frame.
    #[error("control frame: {0}")]
    Frame(#[from] wire::DecodeError),
    /// The service sent something that this script does not expect.
    #[error("expected {expected}, got {got}")]
    Unexpected {
        /// What the script waits for.
        expected: &'static str,
        /// What came.
        got: String,
    },
}

/// What the target holds, and what is wrong with it.
#[derive(Debug, Clone)]
pub struct Script {
    /// DOCA device, as the roles name it.
    pub device: String,
    /// Bytes of a block.
    pub block_size: u32,
    /// The blocks' content; its length is the capacity.
    pub content: Vec<u8>,
    /// What the target does wrong.
    pub fault: Fault,
    /// How many records of sets it keeps, one after the other, before it answers no more of these requests. Without, it knows of none,
    /// as the reference.
    pub records: Option<u32>,
    /// Extensions of the data path that it announces (`FeatureQuery::features`). Without any, it knows of no announcements, as the reference.
    pub features: u32,
    /// The release of the protocol that its services speak.
    pub release: Release,
}

/// A scripted target that listens.
#[derive(Debug)]
pub struct ScriptedTarget {
    listener: TcpListener,
    script: Script,
}

impl ScriptedTarget {
    /// Listens on `port` of 127.0.0.1; 0 for a free one.
    ///
    /// # Errors
    ///
    /// The port is in use.
    pub fn listen(script: Script, port: u16) -> io::Result<Self> {
        Ok(Self {
            listener: TcpListener::bind(("127.0.0.1", port))?,
            script,
        })
    }

    /// TCP port of the control connection.
    ///
    /// # Errors
    ///
    /// The operating system does not say.
    pub fn port(&self) -> io::Result<u16> {
        Ok(self.listener.local_addr()?.port())
    }

    /// Serves one session, until the service has shut it down or has gone. Answers the content that the session has left,
    /// of as many bytes as the script's.
    ///
    /// # Errors
    ///
    /// What kept the target from playing its part; a service that leaves early is no error.
    pub fn serve(self) -> Result<Vec<u8>, Error> {
        control::serve(&self.listener, &self.script)
    }
}
