//! Connections by address that are being established, and the descriptors watched for them.

use super::blob::ConnectionDetails;
use super::transport::ConnectionOutbox;
use crate::runtime::{Listener, Socket};

/// Kind of a watched descriptor; the rest of its token is the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watched {
    /// Liveness of a connection's peer.
    Liveness = 0,
    /// Socket of a connection being established.
    Handshake = 1,
    /// A listening port.
    Port = 2,
    /// An accepted connection that has not sent its request.
    Caller = 3,
    /// Receiving socket from a peer on another machine.
    Inbox = 4,
    /// Sending socket to a peer on another machine.
    Outbox = 5,
    /// Socket for access to its memory.
    Lane = 6,
}

impl Watched {
    /// Upper limit of numbers.
    pub(super) const NUMBERS: u32 = 1 << 29;

    pub(super) fn token(self, number: u32) -> u32 {
        (self as u32) << 29 | number
    }

    /// Kind and number of a token.
    pub(super) fn of(token: u32) -> (Watched, u32) {
        let watched = match token >> 29 {
            0 => Watched::Liveness,
            1 => Watched::Handshake,
            2 => Watched::Port,
            3 => Watched::Caller,
            4 => Watched::Inbox,
            5 => Watched::Outbox,
            _ => Watched::Lane,
        };
        (watched, token % Watched::NUMBERS)
    }
}

/// State of a connection by address.
pub(super) enum Handshake {
    /// Requested by this side.
    Asked(Socket),
    /// Requested by the peer; the program has not responded yet.
    Requested(Socket, ConnectionDetails),
    /// Accepted by the program; the peer is connecting.
    Accepted(Socket, Box<ConnectionOutbox>, u32),
}

impl Handshake {
    pub(super) fn socket(&self) -> &Socket {
        match self {
            Handshake::Asked(socket)
            | Handshake::Requested(socket, _)
            | Handshake::Accepted(socket, ..) => socket,
        }
    }
}

/// Listening ports and accepted connections.
#[derive(Default)]
pub(super) struct Reception {
    pub(super) ports: Vec<(u16, Listener)>,
    /// Number, port and socket of each accepted connection.
    pub(super) callers: Vec<(u32, u16, Socket)>,
    pub(super) next_caller: u32,
}
