//! A client that nobody has asked to come.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use doca::Device;
use fastrand::Rng;

use super::load::control_garbage;
use crate::role::{ComchPeer, ControlPeer as _, Polled, Wrong};

/// Time that it waits to be let in, and for an answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// A client of a service that serves another one. A process of its own, as softdoca's clients are.
#[derive(Debug, Clone)]
pub struct Stranger {
    /// The service's Comch channel.
    pub channel: String,
    /// The host's device.
    pub device: String,
    /// What it sends is made from it.
    pub seed: u64,
}

impl Stranger {
    /// Comes, says something wrong, and goes.
    ///
    /// # Errors
    ///
    /// It cannot try.
    pub fn intrude(&self) -> Result<(), Wrong> {
        let device = Device::open(&self.device)?;
        // Who is not let in has nothing to say.
        let Ok(mut peer) = ComchPeer::connect(&device, &self.channel, PATIENCE) else {
            return Ok(());
        };
        let mut rng = Rng::with_seed(self.seed);
        for _ in 0..3 {
            if peer.send_bytes(&control_garbage(&mut rng)).is_err()
                || matches!(peer.next(PATIENCE), Ok(Polled::Closed) | Err(_))
            {
                break;
            }
        }
        Ok(())
    }
}

/// A client of a target that serves another one: it sends garbage, and reads until it is shown the door or a second has passed.
pub(super) fn disturb_target(port: u16, noise: u64) {
    let mut rng = Rng::with_seed(noise);
    let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else {
        return;
    };
    // What cannot be sent, and what comes, does not matter: it is the others that are watched.
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let _ = stream.write_all(&control_garbage(&mut rng));
    let _ = stream.read(&mut [0; 1024]);
}
