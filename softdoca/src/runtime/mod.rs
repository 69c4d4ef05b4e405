//! What processes on this machine share without knowing each other: a private directory with sockets, the boot id, random keys.

mod boot;
mod cleanup;
mod directory;
mod key;
mod listener;
mod received;
mod socket;

pub use boot::BootId;
pub use directory::RuntimeDir;
pub use key::Key;
pub use listener::{Listener, named_socket};
pub(crate) use received::{is_eventfd, is_unix_socket, sealed_memory_len};
pub use socket::{MAX_FDS, MAX_MESSAGE, Socket};
