//! Connections by address that are being made, and what an instance waits for meanwhile.

use super::blob::ConnectionDetails;
use super::transport::ConnectionOutbox;
use crate::runtime::{Listener, Socket};

/// What is watched for an instance; the rest of the token says which one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watched {
    /// That the peer of a connection lives.
    Liveness = 0,
    /// The socket over which a connection is being made.
    Handshake = 1,
    /// A port.
    Port = 2,
    /// Somebody who has come to a port and not yet said what he wants.
    Caller = 3,
    /// The socket over which a peer on another machine sends.
    Inbox = 4,
    /// That over which this side sends to it.
    Outbox = 5,
    /// That over which this side reaches its memory.
    Lane = 6,
}

impl Watched {
    /// Numbers are below this.
    pub(super) const NUMBERS: u32 = 1 << 29;

    pub(super) fn token(self, number: u32) -> u32 {
        (self as u32) << 29 | number
    }

    /// What a token stands for, and its number.
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

/// How far a connection by address has come.
pub(super) enum Handshake {
    /// This side has asked.
    Asked(Socket),
    /// The peer has asked, and the program has not answered yet.
    Requested(Socket, ConnectionDetails),
    /// The program has accepted; the peer is connecting.
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

/// Who listens, and who has come.
#[derive(Default)]
pub(super) struct Reception {
    pub(super) ports: Vec<(u16, Listener)>,
    /// Number of each, the port that it has come to, and its socket.
    pub(super) callers: Vec<(u32, u16, Socket)>,
    pub(super) next_caller: u32,
}
