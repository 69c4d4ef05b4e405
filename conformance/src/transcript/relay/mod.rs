//! A relay between services and targets, and who stands in its middle: a [`Recorder`] writes down what passes.

mod interceptor;
mod recorder;
mod session;
#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub use interceptor::{Action, End, Interceptor, Place};
pub use recorder::{Recorder, Summary};

/// How often a wait looks whether it is still wanted.
const TICK: Duration = Duration::from_millis(50);

/// A relay: whoever connects to a channel's listener is connected to the channel's server.
///
/// Bytes are passed on unchanged, in the portions in which they were read, unless its [`Interceptor`] decides otherwise; so are the
/// end of a direction, and the failure of a connection, as a reset.
#[derive(Debug)]
pub struct Relay {
    /// A listener and the server behind it, `HOST:PORT`, for each channel.
    pub channels: Vec<(TcpListener, String)>,
    /// How long a server that refuses is asked again: it may be about to start.
    pub patience: Duration,
    /// Connections of each channel after which it takes no more; without limit until it is stopped.
    pub sessions: Option<u32>,
}

impl Relay {
    /// Works until each channel has had its sessions, or `stop` says so.
    ///
    /// # Errors
    ///
    /// A listener fails. Failures of connections are events like others.
    pub fn run(
        &self,
        interceptor: &impl Interceptor,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> io::Result<()> {
        let failed = AtomicBool::new(false);
        let stop = &|| stop() || failed.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            let accepting: Vec<_> = std::iter::zip(0.., &self.channels)
                .map(|(channel, (listener, server))| {
                    let failed = &failed;
                    scope.spawn(move || {
                        let mut session = 0;
                        while self.sessions.is_none_or(|limit| session < limit) && !stop() {
                            let client = match accept(listener) {
                                Ok(Some(client)) => client,
                                Ok(None) => continue,
                                Err(error) => {
                                    failed.store(true, Ordering::Relaxed);
                                    return Err(error);
                                }
                            };
                            let place = Place { channel, session };
                            scope.spawn(move || {
                                session::serve(
                                    client,
                                    server,
                                    self.patience,
                                    interceptor,
                                    place,
                                    stop,
                                )
                            });
                            session += 1;
                        }
                        Ok(())
                    })
                })
                .collect();
            accepting.into_iter().try_for_each(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(io::Error::other("a thread has panicked")))
            })
        })
    }
}

/// The next client, if one comes soon.
fn accept(listener: &TcpListener) -> io::Result<Option<TcpStream>> {
    let tick = Timespec::try_from(TICK).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&tick)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
        Ok(_) => {}
        Err(error) => return Err(error.into()),
    }
    match listener.accept() {
        Ok((client, _)) => Ok(Some(client)),
        // It has gone again.
        Err(error) if passing(&error) || error.kind() == ErrorKind::ConnectionAborted => Ok(None),
        Err(error) => Err(error),
    }
}

/// Try again.
fn passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}
