//! What stands in the middle of a relay.

use bytes::Bytes;

use crate::transcript::{Event, Piece, Side};

/// Where something happens: on which connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// Which of the relay's channels, from 0.
    pub channel: u32,
    /// Which of the channel's connections, from 0.
    pub session: u32,
}

/// How a relay ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Both sides read an orderly end.
    Close,
    /// Both sides get a reset.
    Reset,
}

/// What a relay does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// What came is passed on as it is.
    Pass,
    /// These bytes are passed on in its place, as if the same side had sent them; maybe none.
    Replace(Bytes),
    /// The same, and then the connections with both sides end.
    Cut(Bytes, End),
}

/// Who sees what passes a relay, and may have a say in it. The relay calls it from two threads for each connection, one for each
/// direction, which wait while it works.
pub trait Interceptor: Sync {
    /// Something has happened, which the other side does not know yet. Nobody sends what the relay does itself.
    fn observe(&self, place: Place, from: Option<Side>, event: Event);

    /// Where a new connection goes, instead of to the channel's `server`, `HOST:PORT`. Nothing of it happens while this waits.
    fn route(&self, _place: Place, server: &str) -> String {
        server.to_owned()
    }

    /// A connection has ended, and both sides know it.
    fn ended(&self, _place: Place) {}

    /// Whether nothing is passed on until [`intercept`](Self::intercept) has said so. Otherwise bytes are passed on in the portions in
    /// which they came, parts of frames among them, and it is not asked.
    fn decides(&self) -> bool {
        false
    }

    /// What becomes of a frame, or of bytes that are none. As long as it does not answer, nothing else passes in this direction.
    fn intercept(&self, _place: Place, _from: Side, _piece: &Piece) -> Action {
        Action::Pass
    }

    /// Asked often while nothing comes from this side: whether the relay is to do something by itself.
    fn interrupt(&self, _place: Place, _from: Side) -> Action {
        Action::Pass
    }
}
