//! A scripted storage target for one session, which can inject faults.

mod versions;
mod worker;

use std::collections::HashSet;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use doca::{Device, MemoryRegion, Mmap};
use wire::control::{
    AnnouncedStorage, FEATURE_VERSIONS, FrameDecoder, IdentityQuery, Message, Payload,
    RdmaConnectionDetails, RdmaConnectionRole, RecordState, StorageDetails,
};
use wire::io_message::{Repr, SIZE, Version};
use wire::release::Release;

use super::role::REMOTE;
use worker::{Io, Storage, Worker};

pub use versions::Versions;
pub(crate) use worker::{Io as IoOfRelease, Messages};

/// Failure of a scripted target.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A DOCA call failed.
    #[error(transparent)]
    Doca(#[from] doca::Error),
    /// The control connection failed.
    #[error("control connection: {0}")]
    Control(#[from] io::Error),
    /// The service has sent bytes that are not a control frame.
    #[error("control frame: {0}")]
    Frame(#[from] wire::DecodeError),
    /// The service has sent a message that the script does not expect.
    #[error("expected {expected}, got {got}")]
    Unexpected {
        /// The event that the script waited for.
        expected: &'static str,
        got: String,
    },
}

/// Storage of a target, and its fault.
#[derive(Debug, Clone)]
pub struct Script {
    /// DOCA device, as in the roles' flags.
    pub device: String,
    /// Block size in bytes.
    pub block_size: u32,
    /// Contents of the blocks, whose length is the capacity.
    pub content: Vec<u8>,
    pub fault: Fault,
    /// Number of superblocks that it persists before it stops answering these requests; `None` for a target without
    /// superblocks, like the reference's.
    pub records: Option<u32>,
    /// Extensions of the data path that it announces (`FeatureQuery::features`), and supports. With 0, it does not support
    /// announcements, as the reference.
    pub features: u32,
    /// Release of its services' protocol.
    pub release: Release,
}

/// State of a storage that outlives a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Contents of the blocks: the newest version of each.
    pub content: Vec<u8>,
    /// Unique identity of the storage.
    pub identity: Bytes,
    /// The last superblock; its state is `None` if none was stored.
    pub superblock: IdentityQuery,
    /// Earlier versions of blocks.
    pub versions: Versions,
}

impl Kept {
    /// A new storage with these contents.
    #[must_use]
    pub fn new(content: Vec<u8>) -> Self {
        Self {
            content,
            identity: Bytes::copy_from_slice(&fastrand::u128(..).to_be_bytes()),
            superblock: IdentityQuery::WITHOUT_SUPERBLOCK,
            versions: Versions::default(),
        }
    }
}

/// I/O message that a scripted target has received or sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    /// Number of the target in the recorder.
    pub target: usize,
    pub io: Repr,
    /// Version in the request; zeros if the request has none.
    pub version: Version,
    /// `false` for a request, `true` for its result, with the type of the request.
    pub is_result: bool,
}

/// Records the I/O messages of several scripted targets in one order: a result is recorded before it can arrive, a
/// request after it was sent.
#[derive(Debug, Clone, Default)]
pub struct Recorder(Arc<Mutex<Vec<Recorded>>>);

impl Recorder {
    /// The messages so far.
    #[must_use]
    pub fn messages(&self) -> Vec<Recorded> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Recorded>> {
        // Messages are only ever appended.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub struct ScriptedTarget {
    listener: TcpListener,
    script: Script,
    kept: Option<Kept>,
    recorder: Option<(usize, Recorder)>,
}

impl ScriptedTarget {
    /// Listens on `port` of 127.0.0.1; 0 selects a free one.
    ///
    /// # Errors
    ///
    /// The port is in use.
    pub fn listen(script: Script, port: u16) -> io::Result<Self> {
        Self::listen_at(script, SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))
    }

    /// Listens on an address of this machine; port 0 selects a free one.
    ///
    /// # Errors
    ///
    /// The port is in use, or the machine does not have the address.
    pub fn listen_at(script: Script, address: SocketAddrV4) -> io::Result<Self> {
        Ok(Self {
            listener: TcpListener::bind(address)?,
            script,
            kept: None,
            recorder: None,
        })
    }

    /// Serves this storage, left by an earlier session, instead of a new one with the script's contents.
    #[must_use]
    pub fn with_kept(mut self, kept: Kept) -> Self {
        self.kept = Some(kept);
        self
    }

    /// Records its I/O messages, with this number of the target.
    #[must_use]
    pub fn with_recorder(mut self, target: usize, recorder: &Recorder) -> Self {
        self.recorder = Some((target, recorder.clone()));
        self
    }

    /// TCP port of the control connection.
    ///
    /// # Errors
    ///
    /// The system call failed.
    pub fn port(&self) -> io::Result<u16> {
        Ok(self.listener.local_addr()?.port())
    }

    /// Serves one session, until the service shuts it down or disconnects. Returns the contents of the storage, of the
    /// script's size.
    ///
    /// # Errors
    ///
    /// The target could not follow its script. A service that disconnects early is not an error.
    pub fn serve(self) -> Result<Vec<u8>, Error> {
        self.serve_and_keep().map(|kept| kept.content)
    }

    /// As [`serve`](Self::serve), and returns the whole state of the storage.
    ///
    /// # Errors
    ///
    /// As those of `serve`.
    pub fn serve_and_keep(self) -> Result<Kept, Error> {
        let Self {
            listener,
            script,
            kept,
            recorder,
        } = self;
        let kept = kept.unwrap_or_else(|| Kept::new(script.content.clone()));
        let mut session = Session::with_kept(&script, kept)?;
        session.faults.recorder = recorder;
        serve(&listener, session)
    }
}

// Control side of the scripted target: one TCP connection, one session.

/// Sleep between two idle polls.
const PAUSE: Duration = Duration::from_millis(1);

/// Serves one session, until the service has shut it down or disconnected. Returns the state of the storage.
fn serve(listener: &TcpListener, mut session: Session) -> Result<Kept, Error> {
    let (stream, _) = listener.accept()?;
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    let mut connection = Connection {
        stream,
        decoder: FrameDecoder::new(),
    };
    loop {
        match connection.receive()? {
            Received::Message(request) if session.withholds(&request.payload) => {}
            Received::Message(request) => {
                let response = session.answer(&request.payload)?;
                let last = matches!(request.payload, Payload::ShutdownRequest);
                connection.send(&request.response(response))?;
                if last {
                    break;
                }
            }
            Received::Closed => break,
            Received::Nothing if session.is_running() => session.progress()?,
            Received::Nothing => std::thread::sleep(PAUSE),
        }
    }
    session.into_kept()
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

// Session of the scripted target, without its control channel.

/// Responses of the target to a service's requests, and the I/Os of its workers, independent of the transport of requests.
pub(crate) struct Session {
    workers: Vec<Worker>,
    device: Device,
    block_size: u32,
    capacity: u64,
    local: Mmap,
    region: Arc<MemoryRegion>,
    faults: Faults,
    records: Records,
    features: u32,
    /// Extensions that were announced in this session.
    announced: u32,
    versions: Versions,
    release: Release,
    running: bool,
}

impl Session {
    /// Creates a session with the contents and the fault of the script.
    pub(crate) fn new(script: &Script) -> Result<Self, Error> {
        Self::with_kept(script, Kept::new(script.content.clone()))
    }

    /// As [`new`](Self::new), for a storage in this state.
    fn with_kept(script: &Script, kept: Kept) -> Result<Self, Error> {
        let device = Device::open(&script.device)?;
        let region = MemoryRegion::new(kept.content.len())?;
        region.write(0, &kept.content)?;
        let local = Mmap::register(&device, Arc::clone(&region), REMOTE)?;
        Ok(Self {
            workers: Vec::new(),
            device,
            block_size: script.block_size,
            capacity: kept.content.len() as u64,
            local,
            region,
            faults: Faults::new(script.fault, script.block_size),
            records: Records {
                identity: kept.identity,
                kept: kept.superblock,
                left: script.records,
            },
            features: script.features,
            announced: 0,
            versions: kept.versions,
            release: script.release,
            running: false,
        })
    }

    /// Starts to record I/Os.
    pub(crate) fn watch_ios(&mut self) {
        self.faults.watch();
    }

    /// Returns the recorded I/Os since the last call, in the order of their arrival.
    pub(crate) fn take_ios(&mut self) -> Vec<Repr> {
        self.faults.take_received()
    }

    /// Returns `true` if I/Os are served.
    pub(crate) fn is_running(&self) -> bool {
        self.running
    }

    /// Final state of the storage. Closes the workers' connections first, so that no peer can still write.
    fn into_kept(mut self) -> Result<Kept, Error> {
        self.workers.clear();
        Ok(Kept {
            content: self.content()?,
            identity: self.records.identity,
            superblock: self.records.kept,
            versions: self.versions,
        })
    }

    /// Current contents of the storage.
    pub(crate) fn content(&self) -> Result<Vec<u8>, Error> {
        let mut content = vec![0; self.region.len()];
        self.region.read(0, &mut content)?;
        Ok(content)
    }

    /// Returns `true` if a request must not be answered.
    fn withholds(&mut self, request: &Payload) -> bool {
        self.records.withholds(request)
    }

    /// Executes a request and returns the response.
    pub(crate) fn answer(&mut self, request: &Payload) -> Result<Payload, Error> {
        let details = StorageDetails {
            total_size: self.capacity,
            block_size: self.block_size,
        };
        Ok(match request {
            Payload::IdentifyStorageRequest(query) if self.records.left.is_some() => {
                self.records.answer(query, &details)
            }
            Payload::AnnounceStorageRequest(query) if query.features & self.features != 0 => {
                self.announced = query.features & self.features;
                Payload::AnnouncedStorageResponse(self.announcement(&details))
            }
            // Like the reference, it ignores the fields after the shorter request.
            Payload::QueryStorageRequest
            | Payload::IdentifyStorageRequest(_)
            | Payload::AnnounceStorageRequest(_) => Payload::QueryStorageResponse(details),
            Payload::InitStorageRequest(_) | Payload::BatchedInitStorageRequest(_) => {
                let init = request.as_init_storage();
                let (init, _) = init.ok_or_else(|| Error::Unexpected {
                    expected: "an init_storage_request",
                    got: request.message_type().to_string(),
                })?;
                let remote = Mmap::import(&self.device, &init.mmap_export_blob)?;
                let storage = Arc::new(Storage {
                    local: self.local.clone(),
                    region: Arc::clone(&self.region),
                    block_size: self.block_size,
                    has_versions: self.has_versions(),
                    messages: Messages {
                        release: self.release,
                        requester_address: remote.base_address(),
                    },
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

    /// Executes the I/Os that have arrived.
    pub(crate) fn progress(&mut self) -> Result<(), Error> {
        for worker in &mut self.workers {
            worker.progress(&mut self.faults, &mut self.versions)?;
        }
        Ok(())
    }

    fn has_versions(&self) -> bool {
        self.announced & FEATURE_VERSIONS != 0
    }

    fn announcement(&self, details: &StorageDetails) -> AnnouncedStorage {
        let nothing = AnnouncedStorage {
            total_size: details.total_size,
            block_size: details.block_size,
            features: self.announced,
            version_slots: 0,
            last_epoch: 0,
            last_number: 0,
            retired_epoch: 0,
            retired_number: 0,
            unretired: Bytes::new(),
        };
        if !self.has_versions() {
            return nothing;
        }
        let (last_epoch, last_number) = self.versions.last();
        let unretired = self.versions.unretired();
        AnnouncedStorage {
            version_slots: versions::SLOTS,
            last_epoch,
            last_number,
            unretired: unretired.flat_map(u64::to_be_bytes).collect(),
            ..nothing
        }
    }
}

// Superblock of a scripted target.

/// Last superblock, and identity of the storage.
#[derive(Debug)]
struct Records {
    identity: Bytes,
    kept: IdentityQuery,
    /// Number of superblocks that it will still persist; `None` if it has none.
    left: Option<u32>,
}

impl Records {
    /// Returns `true` if a request must not be answered; [`answer`](Self::answer) persists the superblocks in other requests.
    fn withholds(&mut self, request: &Payload) -> bool {
        match request {
            Payload::IdentifyStorageRequest(query) if query.state != RecordState::None => {
                let withholds = self.left == Some(0);
                self.left = self.left.map(|left| left.saturating_sub(1));
                withholds
            }
            _ => false,
        }
    }

    /// Response to a query, for a storage of this size.
    fn answer(&mut self, query: &IdentityQuery, storage: &StorageDetails) -> Payload {
        if query.state != RecordState::None {
            self.kept = query.clone();
        }
        Payload::IdentifiedStorageResponse(self.kept.answer(storage, self.identity.clone()))
    }
}

// Faults of a scripted target.

/// A fault. Blocks are numbered from the start of the storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Writes are answered with success and not executed.
    IgnoreWrites,
    /// Writes to one of these two blocks are stored in the other block.
    SwapBlocks(u64, u64),
    /// Only the first write to a block is executed: later reads return the data of an earlier pass.
    ReplayPreviousPass,
    /// The n-th I/O, counted from 0, is answered with this `doca_error_t` and not executed.
    FailIo {
        nth: u64,
        /// The result, not 0.
        result: u32,
    },
    /// After a read is answered, its memory is overwritten repeatedly with other data.
    ScribbleAfterRead,
    /// Every I/O is answered twice.
    AnswerTwice,
    /// Every I/O is answered a second time when the next I/O has arrived, before the latter is executed.
    AnswerLate,
    /// Every I/O is sent back unchanged before it is executed.
    Echo,
    /// Every I/O is answered with a result that lacks its last byte, before it is executed.
    Truncate,
    /// The n-th I/O, counted from 0, is answered with a message that is not a result.
    Nonsense {
        nth: u64,
    },
    /// Results are sent in reverse order, in groups of this size.
    Reverse {
        /// Number of results per group, at least 1.
        together: usize,
    },
    /// The n-th I/O, counted from 0, is never answered.
    SwallowIo {
        nth: u64,
    },
    /// Reads of this block fail with `DOCA_ERROR_IO_FAILED` until it is written.
    UnreadableBlock(u64),
    /// Flushes are answered with this `doca_error_t`.
    FailFlush {
        /// The result, not 0.
        result: u32,
    },
}

/// The text is not the name of a fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected none, ignore-writes, swap-blocks:A:B, replay-previous-pass, fail-io:N:RESULT, unreadable-block:B, fail-flush:RESULT, scribble-after-read, answer-twice, answer-late, echo, truncate, nonsense:N, reverse:N or swallow-io:N, \
     got {0:?}"
)]
pub struct UnknownFault(String);

impl FromStr for Fault {
    type Err = UnknownFault;

    fn from_str(text: &str) -> Result<Self, UnknownFault> {
        let unknown = || UnknownFault(text.to_owned());
        let number = |word: &str| word.parse::<u64>().map_err(|_| unknown());
        let result = |word: &str| match u32::try_from(number(word)?) {
            Ok(result @ 1..) => Ok(result),
            _ => Err(unknown()),
        };
        match text.split(':').collect::<Vec<_>>()[..] {
            ["none"] => Ok(Self::None),
            ["ignore-writes"] => Ok(Self::IgnoreWrites),
            ["swap-blocks", a, b] => Ok(Self::SwapBlocks(number(a)?, number(b)?)),
            ["replay-previous-pass"] => Ok(Self::ReplayPreviousPass),
            ["fail-io", nth, code] => Ok(Self::FailIo {
                nth: number(nth)?,
                result: result(code)?,
            }),
            ["unreadable-block", block] => Ok(Self::UnreadableBlock(number(block)?)),
            ["fail-flush", code] => Ok(Self::FailFlush {
                result: result(code)?,
            }),
            ["answer-twice"] => Ok(Self::AnswerTwice),
            ["answer-late"] => Ok(Self::AnswerLate),
            ["echo"] => Ok(Self::Echo),
            ["truncate"] => Ok(Self::Truncate),
            ["scribble-after-read"] => Ok(Self::ScribbleAfterRead),
            ["nonsense", nth] => Ok(Self::Nonsense { nth: number(nth)? }),
            ["reverse", together] => match usize::try_from(number(together)?) {
                Ok(together @ 1..) => Ok(Self::Reverse { together }),
                _ => Err(unknown()),
            },
            ["swallow-io", nth] => Ok(Self::SwallowIo { nth: number(nth)? }),
            _ => Err(unknown()),
        }
    }
}

/// Handling of one I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Execute the I/O at this storage offset.
    Do(u64),
    /// Answer with this result, without a transfer.
    Answer(u32),
    /// Answer with a message that is not a result.
    Nonsense,
    /// Do not answer.
    Swallow,
}

/// A fault and its state.
#[derive(Debug)]
struct Faults {
    fault: Fault,
    block_size: u64,
    ios: u64,
    written: HashSet<u64>,
    /// I/Os received so far, if they are recorded.
    received: Option<Vec<Repr>>,
    recorder: Option<(usize, Recorder)>,
}

impl Faults {
    fn new(fault: Fault, block_size: u32) -> Self {
        Self {
            fault,
            block_size: u64::from(block_size).max(1),
            ios: 0,
            written: HashSet::new(),
            received: None,
            recorder: None,
        }
    }

    /// Starts to record I/Os.
    fn watch(&mut self) {
        self.received = Some(Vec::new());
    }

    /// Returns the recorded I/Os since the last call.
    fn take_received(&mut self) -> Vec<Repr> {
        self.received
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Records an I/O that has arrived.
    fn record(&mut self, io: &Repr, version: Version) {
        if let Some(received) = &mut self.received {
            received.push(*io);
        }
        self.record_message(*io, version, false);
    }

    /// Records the result of an I/O that is about to be sent.
    fn record_result(&mut self, request: &Repr, version: Version, result: u32) {
        self.record_message(Repr { result, ..*request }, version, true);
    }

    fn record_message(&mut self, io: Repr, version: Version, is_result: bool) {
        if let Some((target, recorder)) = &self.recorder {
            recorder.lock().push(Recorded {
                target: *target,
                io,
                version,
                is_result,
            });
        }
    }

    /// Result of a flush.
    fn flush(&self) -> u32 {
        match self.fault {
            Fault::FailFlush { result } => result,
            _ => 0,
        }
    }

    /// Number of results that are sent together, in reverse order.
    fn together(&self) -> usize {
        match self.fault {
            Fault::Reverse { together } => together,
            _ => 1,
        }
    }

    /// Returns `true` if the memory of reads is overwritten after the answer.
    fn scribbles(&self) -> bool {
        self.fault == Fault::ScribbleAfterRead
    }

    /// Returns `true` if every I/O is answered twice.
    fn answers_twice(&self) -> bool {
        self.fault == Fault::AnswerTwice
    }

    /// Returns `true` if every I/O is answered a second time when the next I/O has arrived.
    fn answers_late(&self) -> bool {
        self.fault == Fault::AnswerLate
    }

    /// Message to send before an I/O is executed, other than its result.
    fn premature(&self, messages: Messages, io: &Io) -> Option<Vec<u8>> {
        match self.fault {
            Fault::Echo => Some(messages.to_bytes(io).to_vec()),
            Fault::Truncate => Some(messages.to_bytes(&io.answer(0))[..SIZE - 1].to_vec()),
            _ => None,
        }
    }

    /// Decides on the next I/O.
    fn judge(&mut self, is_write: bool, storage_offset: u64) -> Verdict {
        let nth = self.ios;
        self.ios += 1;
        let (block, within) = (
            storage_offset / self.block_size,
            storage_offset % self.block_size,
        );
        match self.fault {
            Fault::IgnoreWrites if is_write => Verdict::Answer(0),
            Fault::SwapBlocks(a, b) if is_write && block == a => {
                Verdict::Do(b * self.block_size + within)
            }
            Fault::SwapBlocks(a, b) if is_write && block == b => {
                Verdict::Do(a * self.block_size + within)
            }
            Fault::ReplayPreviousPass if is_write && !self.written.insert(block) => {
                Verdict::Answer(0)
            }
            Fault::UnreadableBlock(unreadable) if block == unreadable => {
                if is_write {
                    self.written.insert(block);
                }
                match self.written.contains(&block) {
                    true => Verdict::Do(storage_offset),
                    false => Verdict::Answer(worker::IO_FAILED),
                }
            }
            Fault::FailIo { nth: n, result } if n == nth => Verdict::Answer(result),
            Fault::Nonsense { nth: n } if n == nth => Verdict::Nonsense,
            Fault::SwallowIo { nth: n } if n == nth => Verdict::Swallow,
            _ => Verdict::Do(storage_offset),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_have_names() {
        assert_eq!("swap-blocks:3:17".parse(), Ok(Fault::SwapBlocks(3, 17)));
        assert_eq!("scribble-after-read".parse(), Ok(Fault::ScribbleAfterRead));
        assert_eq!("unreadable-block:9".parse(), Ok(Fault::UnreadableBlock(9)));
        assert_eq!("echo".parse(), Ok(Fault::Echo));
        assert_eq!("truncate".parse(), Ok(Fault::Truncate));
        assert_eq!(
            "fail-io:1:17".parse(),
            Ok(Fault::FailIo { nth: 1, result: 17 })
        );
        assert_eq!("fail-flush:17".parse(), Ok(Fault::FailFlush { result: 17 }));
        assert_eq!("reverse:2".parse(), Ok(Fault::Reverse { together: 2 }));
        for wrong in [
            "",
            "swap-blocks:3",
            "fail-io:1:0",
            "fail-io:x:1",
            "fail-flush:0",
            "none:1",
            "reverse:0",
        ] {
            assert_eq!(wrong.parse::<Fault>(), Err(UnknownFault(wrong.to_owned())));
        }
    }

    #[test]
    fn faults_affect_only_the_named_io() {
        let judge = |fault, ios: &[(bool, u64)]| {
            let mut faults = Faults::new(fault, 512);
            ios.iter()
                .map(|&(is_write, offset)| faults.judge(is_write, offset))
                .collect::<Vec<_>>()
        };
        use Verdict::{Answer, Do, Nonsense, Swallow};
        assert_eq!(
            judge(Fault::Nonsense { nth: 1 }, &[(true, 0), (true, 0)]),
            [Do(0), Nonsense]
        );
        assert_eq!(
            judge(Fault::None, &[(true, 512), (false, 0)]),
            [Do(512), Do(0)]
        );
        assert_eq!(
            judge(Fault::IgnoreWrites, &[(true, 0), (false, 0)]),
            [Answer(0), Do(0)]
        );
        assert_eq!(
            judge(
                Fault::SwapBlocks(1, 3),
                &[(true, 512), (true, 1536), (false, 512)]
            ),
            [Do(1536), Do(512), Do(512)]
        );
        assert_eq!(
            judge(
                Fault::ReplayPreviousPass,
                &[(true, 0), (true, 512), (true, 0)]
            ),
            [Do(0), Do(512), Answer(0)]
        );
        assert_eq!(
            judge(
                Fault::UnreadableBlock(1),
                &[(false, 512), (false, 0), (true, 512), (false, 512)]
            ),
            [Answer(17), Do(0), Do(512), Do(512)]
        );
        assert_eq!(
            judge(
                Fault::FailIo { nth: 1, result: 17 },
                &[(false, 0), (false, 0)]
            ),
            [Do(0), Answer(17)]
        );
        assert_eq!(
            judge(Fault::SwallowIo { nth: 0 }, &[(true, 0), (true, 0)]),
            [Swallow, Do(0)]
        );
    }
}
