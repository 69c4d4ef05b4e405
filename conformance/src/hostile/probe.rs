//! A client that connects repeatedly during an attack. It may be refused, but without delay.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::bytes::Bytes;
use super::channel::{Channel, ControlEndpoint};

/// Pause between connections.
const PAUSE: Duration = Duration::from_millis(300);
/// Limit of the wait for a reaction.
const LONGEST: Duration = Duration::from_secs(20);

/// Connects repeatedly until stopped.
pub(super) struct Probe {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Probe {
    pub(super) fn start(endpoint: ControlEndpoint<'_>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, endpoint) = (Arc::clone(&stop), OwnedControlEndpoint::from(endpoint));
        let thread = std::thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !stopped.load(Ordering::Relaxed) {
                let begin = Instant::now();
                // Any answer is a reaction, and so is a closed connection.
                let _ = probe(endpoint.borrow());
                longest = longest.max(begin.elapsed());
                std::thread::sleep(PAUSE);
            }
            longest
        });
        Self { stop, thread }
    }

    /// Ends the connections, and returns the longest time that the role took to react.
    pub(super) fn stop(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or(LONGEST)
    }
}

fn probe(endpoint: ControlEndpoint<'_>) -> io::Result<()> {
    match Channel::open_within(endpoint, LONGEST)? {
        // A service has answered the hello already.
        Channel::Comch(_) => Ok(()),
        mut channel => {
            channel.send(&Bytes::Query.make())?;
            channel.read(LONGEST).map(drop)
        }
    }
}

/// An owned [`ControlEndpoint`], for another thread.
pub(super) enum OwnedControlEndpoint {
    Tcp(u16),
    Comch { runtime: PathBuf, channel: String },
}

impl From<ControlEndpoint<'_>> for OwnedControlEndpoint {
    fn from(endpoint: ControlEndpoint<'_>) -> Self {
        match endpoint {
            ControlEndpoint::Tcp(port) => Self::Tcp(port),
            ControlEndpoint::Comch { runtime, channel } => Self::Comch {
                runtime: runtime.to_owned(),
                channel: channel.to_owned(),
            },
        }
    }
}

impl OwnedControlEndpoint {
    pub(super) fn borrow(&self) -> ControlEndpoint<'_> {
        match self {
            Self::Tcp(port) => ControlEndpoint::Tcp(*port),
            Self::Comch { runtime, channel } => ControlEndpoint::Comch { runtime, channel },
        }
    }
}
