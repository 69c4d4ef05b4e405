//! Readiness notification for a service manager such as systemd: the protocol of `sd_notify(3)`, one datagram.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Once;

/// Notifies the socket named by `NOTIFY_SOCKET`, if set, that the program is ready. Does so once.
pub(crate) fn ready() {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        if let Some(socket) = std::env::var_os("NOTIFY_SOCKET")
            && let Err(error) = send(&socket, b"READY=1")
        {
            tracing::warn!("NOTIFY_SOCKET {}: {error}", socket.display());
        }
    });
}

fn send(socket: &OsStr, message: &[u8]) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    let sender = UnixDatagram::unbound()?;
    // Do not block on a manager that does not read.
    sender.set_nonblocking(true)?;
    sender.send_to_addr(message, &address).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_message_reaches_path_and_abstract_sockets() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("notify");
        let name = format!("softdoca notify test {}", std::process::id());
        let abstract_address = SocketAddr::from_abstract_name(&name).expect("an address");
        for (receiver, socket) in [
            (UnixDatagram::bind(&path), path.as_os_str().to_owned()),
            (
                UnixDatagram::bind_addr(&abstract_address),
                format!("@{name}").into(),
            ),
        ] {
            let receiver = receiver.expect("bound");
            send(&socket, b"READY=1").expect("sent");
            let mut bytes = [0; 64];
            let length = receiver.recv(&mut bytes).expect("received");
            assert_eq!(&bytes[..length], b"READY=1");
        }
        assert!(send(directory.path().join("none").as_os_str(), b"x").is_err());
    }
}
