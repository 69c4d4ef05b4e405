//! Sessions of a vhost-user front end: messages with descriptors in any order, and the virtqueues of its guest.

use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::ops::Range;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arbitrary::{Arbitrary, Result, Unstructured};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, OFlags, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::pipe::{PipeFlags, pipe_with};
use vhost::vhost_user::BackendReqHandler;
use vhost_user_blk_frontend::device::{Device, ID_BYTES};
use vhost_user_blk_frontend::inflight::queue_bytes;
use vhost_user_blk_frontend::server::Session;
use vhost_user_blk_frontend::worker::Worker;
use volume::testing::{MemoryDisk, Settings};

use crate::harness::{self, Many};
use crate::virtqueue::{self, AVAILABLE, DATA, DESCRIPTORS, DISK, HEADERS, MEMORY, SIZE, USED};

/// Number of virtqueues of the device.
const QUEUES: u32 = 2;
/// Bytes of the file before and after the guest's memory, to which the back end has no access unless a message grants
/// it.
const MARGIN: u64 = 16 << 10;
/// The value of these bytes.
const UNTOUCHED: u8 = 0xc5;
/// Base address of the guest's memory in the front end, as used in messages.
const USER: u64 = 0x7000_0000_0000;
/// Offset of the second virtqueue in the guest's memory, after the first one.
const SECOND: u64 = 0x8000;
/// Time limit of a session, sufficient on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Operations without data can use the whole depth.
const SETTINGS: Settings = Settings {
    depth: 16,
    buffers: 12,
    largest_transfer: vhost_user_blk_frontend::MAX_TRANSFER,
    delay: 0,
};

// Codes of messages.
const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const SET_MEM_TABLE: u32 = 5;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
const GET_VRING_BASE: u32 = 11;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const SET_VRING_ERR: u32 = 14;
const SET_PROTOCOL_FEATURES: u32 = 16;
const SET_VRING_ENABLE: u32 = 18;
const GET_CONFIG: u32 = 24;
const SET_CONFIG: u32 = 25;
const GET_INFLIGHT_FD: u32 = 31;
const SET_INFLIGHT_FD: u32 = 32;
const ADD_MEM_REG: u32 = 37;
const REM_MEM_REG: u32 = 38;

/// Codes that most generated messages have.
const FREQUENT: [u32; 12] = [
    SET_FEATURES,
    SET_MEM_TABLE,
    SET_VRING_NUM,
    SET_VRING_ADDR,
    SET_VRING_BASE,
    GET_VRING_BASE,
    SET_VRING_KICK,
    SET_VRING_CALL,
    SET_VRING_ENABLE,
    SET_INFLIGHT_FD,
    ADD_MEM_REG,
    REM_MEM_REG,
];

/// Version 1 of the protocol.
const VERSION: u32 = 1;
const NEED_REPLY: u32 = 8;

/// VERSION_1, PROTOCOL_FEATURES, EVENT_IDX, INDIRECT_DESC and FLUSH.
const FEATURES: u64 = 1 << 32 | 1 << 30 | 1 << 29 | 1 << 28 | 1 << 9;
/// MQ, REPLY_ACK, CONFIG, INFLIGHT_SHMFD, RESET_DEVICE, CONFIGURE_MEM_SLOTS.
const PROTOCOL_FEATURES: u64 = 1 << 0 | 1 << 3 | 1 << 9 | 1 << 12 | 1 << 13 | 1 << 15;

/// A session, and the events in it.
#[derive(Debug, Clone)]
pub struct Input {
    read_only: bool,
    flush: bool,
    /// `true` to send features, protocol features and memory first, as every successful session does.
    is_set_up: bool,
    steps: Vec<Step>,
}

/// An event caused by the front end or its guest.
#[derive(Debug, Clone, Arbitrary)]
enum Step {
    Message(Message),
    /// The messages that start a virtqueue with these rings.
    Start(bool, Box<virtqueue::Input>),
    /// The guest overwrites the rings, which the back end may be using.
    Guest(bool, Box<virtqueue::Input>),
    Kick(bool),
    /// The storage delays completions until the next message.
    Hold,
    Fail(bool),
    /// Arbitrary bytes, followed by the end of the connection.
    Bytes(Vec<u8>, Many<Attachment, 3>),
}

#[derive(Debug, Clone)]
struct Message {
    code: u32,
    flags: u32,
    body: Vec<u8>,
    files: Vec<Attachment>,
    /// Range of the attached file to which the message grants access.
    gives: Option<Range<u64>>,
}

/// A file descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Arbitrary)]
enum Attachment {
    /// The guest's memory.
    Guest,
    /// The eventfd that kicks a virtqueue.
    Kick(bool),
    /// Another eventfd; writes to it block while it is full.
    Event,
    /// Memory for requests in flight.
    Inflight,
    /// A full pipe, to which writes block.
    FullPipe,
    /// An empty pipe, from which reads block.
    EmptyPipe,
    /// A file that can be neither polled nor mapped.
    Null,
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(Self {
            read_only: u.ratio(1, 4)?,
            flush: u.arbitrary()?,
            is_set_up: !u.ratio(1, 8)?,
            steps: u.arbitrary::<Many<Step, 24>>()?.0,
        })
    }
}

/// Usually a value of `usual`.
fn mostly<'a>(u: &mut Unstructured<'a>, usual: &[u64]) -> Result<u64> {
    if u.ratio(1, 16)? {
        u.arbitrary()
    } else {
        Ok(*u.choose(usual)?)
    }
}

impl<'a> Arbitrary<'a> for Message {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let code = if u.ratio(1, 4)? {
            u.int_in_range(0..=44)?
        } else {
            *u.choose(&FREQUENT)?
        };
        let mut message = Self::new(code, &[], &[]);
        if u.ratio(1, 8)? {
            message.flags = u.arbitrary()?;
        }
        match code {
            SET_FEATURES => message.put(mostly(u, &[FEATURES, FEATURES & !(1 << 9), 0])?),
            SET_PROTOCOL_FEATURES => message.put(mostly(u, &[PROTOCOL_FEATURES, 0])?),
            SET_MEM_TABLE => {
                let count = u.int_in_range(0..=3_u32)?;
                message.body.extend(count.to_ne_bytes());
                message.body.extend([0; 4]);
                for _ in 0..count {
                    message.region(u)?;
                }
            }
            ADD_MEM_REG | REM_MEM_REG => {
                message.put(0);
                message.region(u)?;
                if code == REM_MEM_REG {
                    message.files.clear();
                    message.gives = None;
                }
            }
            SET_VRING_NUM | SET_VRING_BASE | GET_VRING_BASE | SET_VRING_ENABLE => {
                let index = mostly(u, &[0, 1, 2])? as u32;
                let value = mostly(u, &[0, 1, SIZE.into(), 1024, 2048])? as u32;
                message.body.extend(index.to_ne_bytes());
                message.body.extend(value.to_ne_bytes());
            }
            SET_VRING_ADDR => {
                message
                    .body
                    .extend((mostly(u, &[0, 1])? as u32).to_ne_bytes());
                message.body.extend((mostly(u, &[0])? as u32).to_ne_bytes());
                for at in [DESCRIPTORS, USED, AVAILABLE] {
                    let end = USER + MEMORY as u64;
                    message.put(mostly(
                        u,
                        &[USER + at, USER + SECOND + at, end - 16, end, 0],
                    )?);
                }
                message.put(0);
            }
            SET_VRING_KICK | SET_VRING_CALL | SET_VRING_ERR => {
                message.put(mostly(u, &[0, 0, 1, 1, 2, 0x100])?);
                message.files.push(u.arbitrary()?);
            }
            GET_CONFIG | SET_CONFIG => {
                let size = u.int_in_range(0..=300_u32)?;
                let offset = mostly(u, &[0, 0, 8, 96, 255])? as u32;
                for value in [offset, size, 0] {
                    message.body.extend(value.to_ne_bytes());
                }
                message.body.resize(12 + size as usize, 0);
            }
            GET_INFLIGHT_FD | SET_INFLIGHT_FD => {
                let offset = mostly(u, &[0, 0, 4096, MARGIN, 1])?;
                let bytes = mostly(u, &[4096, queue_bytes(SIZE) as u64, 0])?;
                message.put(bytes);
                message.put(offset);
                for value in [mostly(u, &[1, 2, 3])?, mostly(u, &[SIZE.into(), 1024, 0])?] {
                    message.body.extend((value as u16).to_ne_bytes());
                }
                message.body.extend([0; 4]);
                if code == SET_INFLIGHT_FD {
                    message.files.push(u.arbitrary()?);
                    message.gives = Some(offset..offset.saturating_add(bytes));
                }
            }
            _ => message.body = u.arbitrary::<Many<u8, 40>>()?.0,
        }
        if u.ratio(1, 16)? {
            message.files = u.arbitrary::<Many<Attachment, 4>>()?.0;
        }
        Ok(message)
    }
}

impl Message {
    fn new(code: u32, body: &[u64], files: &[Attachment]) -> Self {
        let mut message = Self {
            code,
            flags: VERSION | NEED_REPLY,
            body: Vec::new(),
            files: files.to_vec(),
            gives: None,
        };
        body.iter().for_each(|&word| message.put(word));
        message
    }

    fn put(&mut self, word: u64) {
        self.body.extend(word.to_ne_bytes());
    }

    /// Index and value in one word.
    fn vring(code: u32, index: u64, value: u64) -> Self {
        Self::new(code, &[index | value << 32], &[])
    }

    /// A region for all of the guest's memory.
    fn memory() -> Self {
        let region = [1, 0, MEMORY as u64, USER, MARGIN];
        Self {
            gives: Some(MARGIN..MARGIN + MEMORY as u64),
            ..Self::new(SET_MEM_TABLE, &region, &[Attachment::Guest])
        }
    }

    /// Appends a region with its file.
    fn region(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let size = MEMORY as u64;
        let guest = mostly(u, &[0, 0, 0x1000, size, u64::MAX - 0x1000])?;
        let bytes = mostly(u, &[size, size, 0x1000, size + 2 * MARGIN])?;
        let user = mostly(u, &[USER, USER, USER + size, u64::MAX - 0x1000])?;
        let offset = mostly(u, &[MARGIN, MARGIN, 0, 0x1000, 1])?;
        for word in [guest, bytes, user, offset] {
            self.put(word);
        }
        self.files.push(if u.ratio(1, 8)? {
            u.arbitrary()?
        } else {
            Attachment::Guest
        });
        let end = offset.saturating_add(bytes);
        let known = self.gives.take().unwrap_or(offset..end);
        self.gives = Some(known.start.min(offset)..known.end.max(end));
        Ok(())
    }
}

/// For any messages and guest memory: every message is handled in bounded time, no byte changes outside the memory that
/// the back end was granted, or on a read-only disk, and the next front end is served.
///
/// # Panics
///
/// If the property does not hold.
pub fn property(input: &Input) {
    let input = input.clone();
    let (sender, receiver) = channel();
    let thread = std::thread::spawn(move || {
        run(&input);
        let _ = sender.send(());
    });
    match receiver.recv_timeout(TIMEOUT) {
        Ok(()) => {}
        Err(RecvTimeoutError::Disconnected) => {
            if let Err(panic) = thread.join() {
                resume_unwind(panic);
            }
        }
        Err(RecvTimeoutError::Timeout) => panic!("no end of the session"),
    }
}

fn run(input: &Input) {
    let content: Vec<u8> = (0..DISK).map(|at| (at / 512 * 7 + at) as u8).collect();
    let disk = MemoryDisk::new(content.clone());
    let workers: Arc<[Worker]> = (0..QUEUES as usize)
        .map(|index| {
            Worker::spawn(index, disk.queue(SETTINGS).expect("a queue"), None).expect("a thread")
        })
        .collect();
    let device = Device {
        size: DISK,
        block_size: 4096,
        flush: input.flush,
        read_only: input.read_only,
        queues: QUEUES as u16,
        id: [b'i'; ID_BYTES],
    };
    let mut front_end = FrontEnd::new(device, &workers, &disk);
    front_end.session(input);
    front_end.check_memory();
    drop(front_end);
    if input.read_only {
        assert!(disk.content() == content, "a read-only disk has changed");
    }
    disk.fail(0..0);
    FrontEnd::new(device, &workers, &disk).reads_the_first_sector();
}

struct FrontEnd {
    socket: UnixStream,
    handler: BackendReqHandler<Mutex<Session>>,
    disk: MemoryDisk,
    features: u64,
    guest: File,
    kicks: [OwnedFd; QUEUES as usize],
    /// Ranges of the guest memory's file to which the back end has access.
    given: Vec<Range<u64>>,
    /// Other ends of pipes.
    pipes: Vec<OwnedFd>,
    /// `true` while the session is open.
    is_open: bool,
}

impl FrontEnd {
    fn new(device: Device, workers: &Arc<[Worker]>, disk: &MemoryDisk) -> Self {
        let (socket, other) = UnixStream::pair().expect("a pair");
        let session = Session::new(device, Arc::clone(workers));
        let guest = memory_file(MEMORY as u64 + 2 * MARGIN);
        for margin in [0, MARGIN + MEMORY as u64] {
            guest
                .write_all_at(&[UNTOUCHED; MARGIN as usize], margin)
                .expect("memory");
        }
        let counter = || eventfd(0, EventfdFlags::CLOEXEC).expect("an event counter");
        Self {
            handler: BackendReqHandler::from_stream(other, Arc::new(Mutex::new(session))),
            socket,
            disk: disk.clone(),
            features: FEATURES & !(u64::from(!device.flush) << 9),
            guest,
            kicks: [counter(), counter()],
            given: Vec::new(),
            pipes: Vec::new(),
            is_open: true,
        }
    }

    fn session(&mut self, input: &Input) {
        if input.is_set_up {
            self.set_up();
        }
        for step in &input.steps {
            if !self.is_open {
                break;
            }
            match step {
                Step::Message(message) => {
                    let is_handled = self.send(message);
                    harness::count("vhost-user message", is_handled);
                }
                Step::Start(second, rings) => {
                    self.write_rings(*second, rings);
                    self.start(*second, rings.next_available());
                }
                Step::Guest(second, rings) => self.write_rings(*second, rings),
                Step::Kick(second) => self.kick(*second),
                Step::Hold => self.disk.hold(true),
                Step::Fail(fails) => self.disk.fail(0..if *fails { u64::MAX } else { 0 }),
                Step::Bytes(bytes, files) => {
                    self.send_bytes(bytes, &files.0);
                    self.given.push(0..u64::MAX);
                    let _ = self.socket.shutdown(Shutdown::Write);
                    while self.handle() {}
                }
            }
        }
        self.disk.hold(false);
    }

    fn set_up(&mut self) {
        for message in [
            Message::new(GET_FEATURES, &[], &[]),
            Message::new(SET_FEATURES, &[self.features], &[]),
            Message::new(SET_PROTOCOL_FEATURES, &[PROTOCOL_FEATURES], &[]),
            Message::memory(),
        ] {
            assert!(self.send(&message), "{message:?}");
        }
    }

    /// Sends the messages that start a virtqueue; its rings may be refused.
    fn start(&mut self, second: bool, next_available: u16) {
        let (index, base) = (u64::from(second), USER + u64::from(second) * SECOND);
        let addresses = [index, base + DESCRIPTORS, base + USED, base + AVAILABLE, 0];
        let mut is_started = self.is_open;
        for message in [
            Message::vring(SET_VRING_NUM, index, SIZE.into()),
            Message::vring(SET_VRING_BASE, index, next_available.into()),
            Message::new(SET_VRING_ADDR, &addresses, &[]),
            Message::new(SET_VRING_CALL, &[index], &[Attachment::Event]),
            Message::new(SET_VRING_KICK, &[index], &[Attachment::Kick(second)]),
            Message::vring(SET_VRING_ENABLE, index, 1),
        ] {
            if self.is_open {
                is_started = self.send(&message);
            }
        }
        harness::count("vhost-user virtqueue", is_started);
    }

    /// Writes to the guest's memory.
    fn write(&self, address: u64, bytes: &[u8]) {
        assert!(address + bytes.len() as u64 <= MEMORY as u64);
        self.guest
            .write_all_at(bytes, MARGIN + address)
            .expect("guest memory");
    }

    fn read<const N: usize>(&self, address: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.guest
            .read_exact_at(&mut bytes, MARGIN + address)
            .expect("guest memory");
        bytes
    }

    fn write_rings(&self, second: bool, rings: &virtqueue::Input) {
        let base = u64::from(second) * SECOND;
        rings.write(|address, bytes| {
            // Damage may be at any address.
            self.write(
                (base + address) % (MEMORY as u64 - bytes.len() as u64 + 1),
                bytes,
            );
        });
    }

    fn kick(&self, second: bool) {
        let _ = rustix::io::write(&self.kicks[usize::from(second)], &1_u64.to_ne_bytes());
    }

    /// Sends a message and lets the back end handle it; returns `false` if that ended the session.
    fn send(&mut self, message: &Message) -> bool {
        // A stopped virtqueue first completes the requests that it has taken.
        self.disk.hold(false);
        if message.files.contains(&Attachment::Guest) {
            self.given.extend(message.gives.clone());
        }
        let mut bytes = message.code.to_ne_bytes().to_vec();
        bytes.extend(message.flags.to_ne_bytes());
        bytes.extend((message.body.len() as u32).to_ne_bytes());
        bytes.extend(&message.body);
        self.send_bytes(&bytes, &message.files);
        self.handle()
    }

    fn send_bytes(&mut self, bytes: &[u8], files: &[Attachment]) {
        if bytes.is_empty() {
            return;
        }
        let files: Vec<OwnedFd> = files.iter().map(|&it| self.file(it)).collect();
        let borrowed: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !borrowed.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(&borrowed)));
        }
        let parts = [IoSlice::new(bytes)];
        let sent = sendmsg(&self.socket, &parts, &mut control, SendFlags::empty());
        assert_eq!(sent, Ok(bytes.len()));
    }

    /// Lets the back end handle one message, and drops the reply.
    fn handle(&mut self) -> bool {
        self.is_open = self.handler.handle_request().is_ok();
        let mut reply = [0; 4096];
        let flags = rustix::net::RecvFlags::DONTWAIT;
        while rustix::net::recv(&self.socket, &mut reply[..], flags).is_ok_and(|(len, _)| len != 0)
        {
        }
        self.is_open
    }

    fn file(&mut self, attachment: Attachment) -> OwnedFd {
        match attachment {
            Attachment::Guest => self.guest.try_clone().expect("a descriptor").into(),
            Attachment::Kick(second) => self.kicks[usize::from(second)]
                .try_clone()
                .expect("a descriptor"),
            Attachment::Event => eventfd(0, EventfdFlags::CLOEXEC).expect("an event counter"),
            Attachment::Inflight => memory_file(1 << 16).into(),
            Attachment::FullPipe => {
                let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
                let set = |flags| rustix::fs::fcntl_setfl(&writer, flags).expect("flags");
                set(OFlags::NONBLOCK);
                while rustix::io::write(&writer, &[0; 4096]).is_ok() {}
                while rustix::io::write(&writer, &[0]).is_ok() {}
                set(OFlags::empty());
                // Kept open, because a write would fail without a reader.
                self.pipes.push(reader);
                writer
            }
            Attachment::EmptyPipe => {
                let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
                self.pipes.push(writer);
                reader
            }
            Attachment::Null => File::open("/dev/null").expect("a file").into(),
        }
    }

    /// Checks that memory to which the back end has no access has not changed.
    fn check_memory(&self) {
        let size = MEMORY as u64 + 2 * MARGIN;
        let mut bytes = vec![0; size as usize];
        self.guest.read_exact_at(&mut bytes, 0).expect("memory");
        for (at, &byte) in (0..).zip(&bytes) {
            let is_margin = !(MARGIN..MARGIN + MEMORY as u64).contains(&at);
            if is_margin && !self.given.iter().any(|range| range.contains(&at)) {
                assert_eq!(byte, UNTOUCHED, "byte {at} of the file has changed");
            }
        }
    }

    /// Checks that a correct front end is served.
    fn reads_the_first_sector(&mut self) {
        const NEXT: u16 = 1;
        const WRITE: u16 = 2;
        self.set_up();
        let status = DATA + 512;
        let chain = [
            (HEADERS, 16_u32, NEXT, 1_u16),
            (DATA, 512, NEXT | WRITE, 2),
            (status, 1, WRITE, 0),
        ];
        for (at, (address, len, flags, next)) in (DESCRIPTORS..).step_by(16).zip(chain) {
            self.write(at, &address.to_le_bytes());
            self.write(at + 8, &len.to_le_bytes());
            self.write(at + 12, &flags.to_le_bytes());
            self.write(at + 14, &next.to_le_bytes());
        }
        self.write(status, &[0xff]);
        self.write(AVAILABLE + 2, &1_u16.to_le_bytes());
        self.start(false, 0);
        assert!(self.is_open, "a good message was refused");
        self.kick(false);
        let deadline = Instant::now() + TIMEOUT / 2;
        while u16::from_le_bytes(self.read(USED + 2)) != 1 {
            assert!(
                Instant::now() < deadline,
                "no completion for the next front end"
            );
            std::thread::sleep(Duration::from_micros(50));
        }
        assert_eq!(self.read::<1>(status), [0]);
        assert_eq!(self.read::<512>(DATA), self.disk.content()[..512]);
    }
}

fn memory_file(size: u64) -> File {
    let file = memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("memory");
    ftruncate(&file, size).expect("memory");
    file.into()
}
