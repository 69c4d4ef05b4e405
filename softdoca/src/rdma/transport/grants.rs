//! Receives of a connection's receiving end, of which a sender on another machine is told in messages.

use super::credits::SharedReceives;

/// Counts the receives that a sender may use, and decides when it is told of more.
pub(super) struct Grants {
    /// Receives that the sender may not use yet.
    available: u64,
    /// Receives that the sender may use.
    granted: u64,
    /// The sender has a message and no receive.
    wanted: bool,
    /// The receives that several senders share.
    receives: Option<SharedReceives>,
}

impl Grants {
    /// For a sender that was told of `granted` receives.
    pub(super) fn new(granted: u64, receives: Option<SharedReceives>) -> Grants {
        Grants {
            available: 0,
            granted,
            wanted: false,
            receives,
        }
    }

    pub(super) fn post(&mut self, count: u64) {
        self.available += count;
    }

    /// The sender waits for a receive.
    pub(super) fn want(&mut self) {
        self.wanted = true;
    }

    /// Number of receives that the sender is told of now. While this goes on, only when it may have used half of those that it knows of.
    pub(super) fn take(&mut self, goes_on: bool) -> Option<u32> {
        let count = match &self.receives {
            None if self.available > 0 && (self.available >= self.granted || !goes_on) => {
                std::mem::take(&mut self.available)
            }
            None => return None,
            // Only for a message that waits: what one sender has, the others have not.
            Some(receives) if self.wanted && receives.take() => {
                self.wanted = false;
                1
            }
            Some(_) => return None,
        };
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.granted += u64::from(count);
        Some(count)
    }

    /// Returns `true` if the sender may send a message.
    pub(super) fn has_receive(&self) -> bool {
        self.granted > 0
    }

    /// A message has used a receive.
    pub(super) fn use_one(&mut self) {
        self.granted = self.granted.saturating_sub(1);
    }
}
