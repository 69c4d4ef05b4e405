//! The control side of the scripted target: one TCP connection, one session.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use doca::{Access, Device, MemoryRegion, Mmap};
use wire::control::{
    FrameDecoder, Message, Payload, RdmaConnectionDetails, RdmaConnectionRole, StorageDetails,
};

use super::fault::Faults;
use super::worker::{Storage, Worker};
use super::{Error, Script};

/// How long nothing is polled while nothing can happen.
const PAUSE: Duration = Duration::from_millis(1);

const ACCESS: Access = Access::LOCAL_READ_WRITE
    .union(Access::RDMA_READ)
    .union(Access::RDMA_WRITE);

/// Serves one session, until the service has shut it down or has gone. Answers what it leaves in the storage.
pub(super) fn serve(listener: &TcpListener, script: &Script) -> Result<Vec<u8>, Error> {
    let device = Device::open(&script.device)?;
    let region = MemoryRegion::new(script.content.len())?;
    region.write(0, &script.content)?;
    let local = Mmap::register(&device, Arc::clone(&region), ACCESS)?;
    let (stream, _) = listener.accept()?;
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    let mut connection = Connection {
        stream,
        decoder: FrameDecoder::new(),
    };
    let mut session = Session {
        device,
        block_size: script.block_size,
        capacity: script.content.len() as u64,
        local,
        workers: Vec::new(),
        faults: Faults::new(script.fault, script.block_size),
        running: false,
    };
    loop {
        match connection.receive()? {
            Received::Message(request) => {
                let response = session.answer(&request.payload)?;
                let last = matches!(request.payload, Payload::ShutdownRequest);
                connection.send(&request.response(response))?;
                if last {
                    break;
                }
            }
            Received::Closed => break,
            Received::Nothing if session.running => session.progress()?,
            Received::Nothing => std::thread::sleep(PAUSE),
        }
    }
    // Nobody writes into the storage any more once the workers' connections are gone.
    drop(session);
    let mut content = vec![0; script.content.len()];
    region.read(0, &mut content)?;
    Ok(content)
}

struct Session {
    device: Device,
    block_size: u32,
    capacity: u64,
    local: Mmap,
    workers: Vec<Worker>,
    faults: Faults,
    running: bool,
}

impl Session {
    fn answer(&mut self, request: &Payload) -> Result<Payload, Error> {
        Ok(match request {
            Payload::QueryStorageRequest => Payload::QueryStorageResponse(StorageDetails {
                total_size: self.capacity,
                block_size: self.block_size,
            }),
            Payload::InitStorageRequest(init) => {
                let remote = Mmap::import(&self.device, &init.mmap_export_blob)?;
                let storage = Arc::new(Storage {
                    local: self.local.clone(),
                    remote,
                });
                for _ in 0..init.core_count {
                    self.workers
                        .push(Worker::new(&self.device, &storage, init.transaction_count)?);
                }
                Payload::InitStorageResponse
            }
            Payload::CreateRdmaConnectionRequest(details) => {
                let index = details.context_index;
                let worker =
                    self.workers
                        .get_mut(index as usize)
                        .ok_or_else(|| Error::Unexpected {
                            expected: "the context index of a worker",
                            got: index.to_string(),
                        })?;
                let is_data = details.role == RdmaConnectionRole::IoData;
                let blob = worker.connect(is_data, &details.connection_details)?;
                Payload::CreateRdmaConnectionResponse(RdmaConnectionDetails {
                    context_index: index,
                    role: details.role,
                    connection_details: blob.into(),
                })
            }
            Payload::StartStorageRequest => {
                for worker in &mut self.workers {
                    worker.start()?;
                }
                self.running = true;
                Payload::StartStorageResponse
            }
            Payload::StopStorageRequest => {
                self.running = false;
                Payload::StopStorageResponse
            }
            Payload::ShutdownRequest => {
                self.workers.clear();
                Payload::ShutdownResponse
            }
            other => {
                return Err(Error::Unexpected {
                    expected: "a request",
                    got: other.message_type().to_string(),
                });
            }
        })
    }

    fn progress(&mut self) -> Result<(), Error> {
        for worker in &mut self.workers {
            worker.progress(&mut self.faults)?;
        }
        Ok(())
    }
}

struct Connection {
    stream: TcpStream,
    decoder: FrameDecoder,
}

enum Received {
    Message(Message),
    Nothing,
    Closed,
}

impl Connection {
    fn receive(&mut self) -> Result<Received, Error> {
        if let Some(message) = self.decoder.next()? {
            return Ok(Received::Message(message));
        }
        let mut bytes = [0; 4096];
        match self.stream.read(&mut bytes) {
            Ok(0) => Ok(Received::Closed),
            Ok(count) => {
                self.decoder.push(&bytes[..count]);
                Ok(self
                    .decoder
                    .next()?
                    .map_or(Received::Nothing, Received::Message))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Received::Nothing),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(Received::Closed),
            Err(error) => Err(error.into()),
        }
    }

    fn send(&mut self, message: &Message) -> Result<(), Error> {
        let bytes = message.encode_to_vec();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(PAUSE)
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
