//! The control connection with the program under test.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use crate::transcript::{Piece, Splitter};

/// How long nothing is done while nothing can happen.
const PAUSE: Duration = Duration::from_millis(1);
const CHUNK: usize = 4096;

/// What came from the program.
#[derive(Debug)]
pub(super) enum Came {
    Piece(Piece),
    /// It sends nothing more.
    Closed,
    /// The connection has failed.
    Failed(io::Error),
    /// Nothing yet.
    Nothing,
}

/// A connection that never blocks.
pub(super) struct Peer {
    stream: TcpStream,
    splitter: Splitter,
    pieces: VecDeque<Piece>,
    closed: bool,
}

impl Peer {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            splitter: Splitter::new(),
            pieces: VecDeque::new(),
            closed: false,
        })
    }

    /// What has come.
    pub(super) fn receive(&mut self) -> Came {
        if let Some(piece) = self.pieces.pop_front() {
            return Came::Piece(piece);
        }
        if self.closed {
            return Came::Closed;
        }
        let mut bytes = [0; CHUNK];
        match self.stream.read(&mut bytes) {
            Ok(0) => {
                self.closed = true;
                self.pieces.extend(self.splitter.rest().map(Piece::Raw));
            }
            Ok(count) => {
                self.splitter.push(&bytes[..count]);
                self.pieces
                    .extend(std::iter::from_fn(|| self.splitter.next()));
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return Came::Nothing;
            }
            Err(error) => return Came::Failed(error),
        }
        match self.pieces.pop_front() {
            Some(piece) => Came::Piece(piece),
            None if self.closed => Came::Closed,
            None => Came::Nothing,
        }
    }

    /// Puts back what came too early.
    pub(super) fn put_back(&mut self, piece: Piece) {
        self.pieces.push_front(piece);
    }

    /// Sends bytes.
    ///
    /// # Errors
    ///
    /// The connection fails, or the program does not take them until `deadline`.
    pub(super) fn send(&mut self, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if Instant::now() >= deadline {
                        return Err(ErrorKind::TimedOut.into());
                    }
                    std::thread::sleep(PAUSE);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends nothing more. The program may have gone already.
    pub(super) fn close(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Lets time pass.
    pub(super) fn pause() {
        std::thread::sleep(PAUSE);
    }
}

/// A program that listens at `HOST:PORT`.
pub(super) fn connect(address: &str, timeout: Duration) -> io::Result<Peer> {
    let mut result = Err(io::Error::other("the name has no address"));
    for address in address.to_socket_addrs()? {
        result = TcpStream::connect_timeout(&address, timeout).and_then(Peer::new);
        if result.is_ok() {
            break;
        }
    }
    result
}

/// The next program that connects.
pub(super) fn accept(listener: &TcpListener, stop: &dyn Fn() -> bool) -> io::Result<Peer> {
    listener.set_nonblocking(true)?;
    loop {
        match listener.accept() {
            Ok((stream, _)) => return Peer::new(stream),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                if stop() {
                    return Err(io::Error::other("interrupted"));
                }
                std::thread::sleep(20 * PAUSE);
            }
            Err(error) => return Err(error),
        }
    }
}
