//! A relay between a service and a target that overstates the storage.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::thread;

use wire::control::{FrameDecoder, Payload};

/// Bytes that are passed on at a time.
const PIECE: usize = 4096;

/// Listens for a service, and passes everything on between it and the target at `target`, but for the storage's size: the service is
/// told of one block more than there is. So an initiator will ask for that block, and the target cannot do this I/O. Answers
/// the relay's port. It ends with the connection; without one, with this process.
///
/// # Errors
///
/// There is no port.
pub(super) fn overstate(target: u16) -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        // Whatever fails here, both ends see a closed connection, and the session says so.
        if let Ok((service, _)) = listener.accept() {
            drop(listener);
            let _ = relay(&service, target);
            let _ = service.shutdown(Shutdown::Both);
        }
    });
    Ok(port)
}

fn relay(service: &TcpStream, target: u16) -> io::Result<()> {
    let target = TcpStream::connect((Ipv4Addr::LOCALHOST, target))?;
    let (from_service, to_target) = (service.try_clone()?, target.try_clone()?);
    let requests = thread::spawn(move || {
        let _ = io::copy(&mut &from_service, &mut &to_target);
        let _ = to_target.shutdown(Shutdown::Write);
    });
    let responses = pass_responses(&target, service);
    let _ = service.shutdown(Shutdown::Write);
    let _ = requests.join();
    responses
}

fn pass_responses(mut target: &TcpStream, mut service: &TcpStream) -> io::Result<()> {
    let mut decoder = FrameDecoder::new();
    let mut piece = [0; PIECE];
    loop {
        let read = target.read(&mut piece)?;
        if read == 0 {
            return Ok(());
        }
        decoder.push(&piece[..read]);
        while let Some(mut message) = decoder.next().map_err(io::Error::other)? {
            match &mut message.payload {
                Payload::QueryStorageResponse(details) => {
                    details.total_size += u64::from(details.block_size);
                }
                // A service that asks for superblocks is told of the storage with them.
                Payload::IdentifiedStorageResponse(storage) => {
                    storage.total_size += u64::from(storage.block_size);
                }
                _ => {}
            }
            service.write_all(&message.encode_to_vec())?;
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use wire::control::{IdentifiedStorage, Message, RecordState, StorageDetails};

    use super::*;

    #[test]
    fn only_the_size_is_changed() {
        let identified = |total_size| Message {
            message_id: 9,
            correlation_id: 9,
            payload: Payload::IdentifiedStorageResponse(IdentifiedStorage {
                total_size,
                block_size: 512,
                set_high: 1,
                set_low: 2,
                epoch: 3,
                epoch_id: 4,
                next_epoch: 0,
                next_epoch_id: 0,
                member: 0,
                state: RecordState::Clean,
                flags: 0,
                identity: Bytes::from_static(b"the one"),
            }),
        };
        let details = |total_size| Message {
            message_id: 7,
            correlation_id: 9,
            payload: Payload::QueryStorageResponse(StorageDetails {
                total_size,
                block_size: 512,
            }),
        };
        let other = Message {
            message_id: 8,
            correlation_id: 9,
            payload: Payload::StartStorageResponse,
        };
        let target = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = overstate(target.local_addr().expect("an address").port()).expect("a port");
        let mut service = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the relay");
        let (mut target, _) = target.accept().expect("the relay");

        service.write_all(b"a request").expect("sent");
        service.shutdown(Shutdown::Write).expect("closed");
        let mut request = Vec::new();
        target.read_to_end(&mut request).expect("passed on");
        assert_eq!(request, b"a request");

        let sent = [details(4096), other.clone(), identified(4096)];
        let sent = sent.map(|message| message.encode_to_vec());
        // In two pieces, the first of which ends within a frame.
        let bytes = sent.concat();
        target.write_all(&bytes[..30]).expect("sent");
        target.write_all(&bytes[30..]).expect("sent");
        drop(target);
        let mut response = Vec::new();
        service.read_to_end(&mut response).expect("passed on");
        let expected = [details(4096 + 512), other, identified(4096 + 512)];
        let expected = expected.map(|message| message.encode_to_vec());
        assert_eq!(response, expected.concat());
    }
}
