//! One side of a recorded session, played again against a live program.
//!
//! What was sent is sent, what was received is compared, field by field, in the recorded order. What cannot be the same in two runs
//! is made anew: exports of memory and of RDMA contexts are real ones of this process, and those that come are used. So a
//! program that answers with something that looks like an export fails here.
//!
//! A [`Script`] is a session of a transcript. [`against_target`] plays the service, [`against_service`] the target.

mod compare;
mod journal;
mod peer;
mod player;
mod script;
mod service;
mod target;

use std::io;
use std::net::TcpListener;
use std::time::Duration;

pub use script::{NoScript, Script};

use super::Side;
use crate::report::Case;
use journal::Journal;
use player::Player;

/// How a script is played.
#[derive(Debug, Clone)]
pub struct Settings {
    /// DOCA device of the side that is played, as the roles name it.
    pub device: String,
    /// How long an answer may take.
    pub timeout: Duration,
    /// Whether the ids of a live service's requests are compared, too: those of another implementation, or behind another
    /// initiator, may be others. A target's answers always have the ids of their requests.
    pub compare_ids: bool,
    /// Whether a block is read through the live connections once a target has started.
    pub probe: bool,
    /// What a played target's storage holds at first; zeros where it is too short.
    pub content: Vec<u8>,
}

/// Plays the service against the target at `address`, `HOST:PORT`: one case for everything that the target is to send. `stop` says
/// that nobody wants to wait any longer.
pub fn against_target(
    script: &Script,
    address: &str,
    settings: &Settings,
    stop: &dyn Fn() -> bool,
) -> Vec<Case> {
    let mut journal = Journal::new(script, "target");
    match peer::connect(address, settings.timeout) {
        Ok(peer) => {
            let mut part = service::Service::new(settings);
            Player::new(script, Side::Client, peer, &mut part, settings, stop).play(&mut journal);
        }
        Err(error) => journal.unreachable(format!("cannot connect to {address}: {error}")),
    }
    journal.finish(script, Side::Server)
}

/// Plays the target to the next service that connects to `listener`: one case for everything that the service is to send. It waits
/// without limit for the connection, and while the data path runs: both are up to an initiator.
///
/// # Errors
///
/// The listener fails, or `stop` said that nobody wants to wait any longer before anybody came.
pub fn against_service(
    script: &Script,
    listener: &TcpListener,
    settings: &Settings,
    stop: &dyn Fn() -> bool,
) -> io::Result<Vec<Case>> {
    let mut journal = Journal::new(script, "service");
    let peer = peer::accept(listener, stop)?;
    let mut part = target::Target::new(settings);
    Player::new(script, Side::Server, peer, &mut part, settings, stop).play(&mut journal);
    Ok(journal.finish(script, Side::Client))
}
