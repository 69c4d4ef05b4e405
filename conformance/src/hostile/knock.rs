//! Another client that comes while a session is attacked: it is refused, but at once.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::bytes::Bytes;
use super::channel::{Channel, Door};

/// Time between two knocks.
const PAUSE: Duration = Duration::from_millis(300);
/// A role that has not reacted by then is held up for good, as far as this client is concerned.
const LONGEST: Duration = Duration::from_secs(20);

/// Knocks until it is told to stop.
pub(super) struct Knocking {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Knocking {
    pub(super) fn start(door: Door<'_>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, door) = (Arc::clone(&stop), OwnedDoor::from(door));
        let thread = std::thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !stopped.load(Ordering::Relaxed) {
                let begin = Instant::now();
                // Whatever the role answers, or that it hangs up, is a reaction.
                let _ = knock(door.borrow());
                longest = longest.max(begin.elapsed());
                std::thread::sleep(PAUSE);
            }
            longest
        });
        Self { stop, thread }
    }

    /// The longest time that the role took to react.
    pub(super) fn stop(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or(LONGEST)
    }
}

fn knock(door: Door<'_>) -> io::Result<()> {
    match Channel::open_within(door, LONGEST)? {
        // A service has answered the hello already.
        Channel::Comch(_) => Ok(()),
        mut channel => {
            channel.send(&Bytes::Query.make())?;
            channel.read(LONGEST).map(drop)
        }
    }
}

/// A [`Door`] for a thread.
pub(super) enum OwnedDoor {
    Tcp(u16),
    Comch { runtime: PathBuf, channel: String },
}

impl From<Door<'_>> for OwnedDoor {
    fn from(door: Door<'_>) -> Self {
        match door {
            Door::Tcp(port) => Self::Tcp(port),
            Door::Comch { runtime, channel } => Self::Comch {
                runtime: runtime.to_owned(),
                channel: channel.to_owned(),
            },
        }
    }
}

impl OwnedDoor {
    pub(super) fn borrow(&self) -> Door<'_> {
        match self {
            Self::Tcp(port) => Door::Tcp(*port),
            Self::Comch { runtime, channel } => Door::Comch { runtime, channel },
        }
    }
}
