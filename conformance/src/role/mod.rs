//! Checks of **one** running role from the outside, whoever built it: every peer that it talks to is a script of ours.
//!
//! A [`Check`] starts the role on its [`Bench`], plays its peers over real TCP, Comch and RDMA, and says what was wrong. The peers
//! live in this process, so this process and the role must share one runtime directory: the command gives both a private one.

mod bench;
mod control;
mod initiator;
mod io_channel;
mod run;
pub(crate) mod service;
mod step;
pub(crate) mod target;
mod wrong;

pub use bench::{Bench, Running, Subject};
pub use control::{ComchPeer, ControlPeer, Listening, Polled, TcpPeer};
pub use io_channel::IoChannel;
pub use run::run;
pub use wrong::{During, Wrong};

use wire::release::Release;

use crate::implementation::Role;

/// One thing that a role must do, and how to see whether it does.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// Its name: a few words with dashes.
    pub name: &'static str,
    /// What must happen, in a sentence.
    pub meaning: &'static str,
    /// Plays it.
    pub play: fn(&Bench<'_>) -> Result<(), Wrong>,
}

impl Check {
    /// Whether it can be tried with a role that speaks this release. The local region of an initiator of 3.0 is as large as the storage.
    pub fn is_of(&self, release: Release) -> bool {
        release != Release::V3_0 || !initiator::NEED_SMALL_REGIONS.contains(&self.name)
    }
}

/// All checks of a role; none for the generator, which has no peers.
pub fn checks(role: Role) -> Vec<Check> {
    match role {
        Role::Target => target::checks(),
        Role::Initiator => initiator::checks(),
        Role::ZeroCopy | Role::GgaOffload => service::checks(role),
        Role::SbcGenerator => Vec::new(),
    }
}
