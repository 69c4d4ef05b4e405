//! A vhost-user-blk disk on a deployment of real processes, with libblkio as the client.

use std::mem::MaybeUninit;
use std::path::Path;

use crate::support::{Sandbox, TIMEOUT, content, default_deadline, expect_failure, mentions, text};
use blkio::{Blkio, Blkioq, Completion, MemoryRegion, ReqFlags};
use deployment::process::{Process, Signal};

const BLOCKS: usize = 1024;
const SIZE: usize = BLOCKS * crate::support::BLOCK_SIZE;

/// A client with this number of queues, and memory of the size of the disk.
struct Client {
    queues: Vec<Blkioq>,
    memory: MemoryRegion,
    // Last field, because it owns the memory.
    blkio: Blkio,
}

impl Client {
    fn connect(socket: &Path, queues: i32) -> Self {
        Self::start(socket, queues, false).expect("started")
    }

    /// As `connect`; fails for a read-only disk unless `read_only`.
    fn start(socket: &Path, queues: i32, read_only: bool) -> blkio::Result<Self> {
        let mut blkio = Blkio::new("virtio-blk-vhost-user").expect("the driver");
        blkio.set_str("path", text(socket)).expect("a property");
        blkio.set_bool("read-only", read_only).expect("a property");
        blkio.connect().expect("connected");
        blkio.set_i32("num-queues", queues).expect("as many queues");
        let queues = blkio.start()?.queues;
        let memory = blkio.alloc_mem_region(SIZE).expect("memory");
        blkio.map_mem_region(&memory).expect("mapped");
        Ok(Self {
            queues,
            memory,
            blkio,
        })
    }

    fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < SIZE);
        (self.memory.addr as *mut u8).wrapping_add(offset)
    }

    fn set(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= SIZE);
        // SAFETY: within the region, which is mapped as long as the client exists. No I/O is in flight on these bytes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(offset), bytes.len()) };
    }

    fn get(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= SIZE);
        let mut bytes = vec![0; len];
        // SAFETY: as in `set`.
        unsafe { std::ptr::copy_nonoverlapping(self.at(offset), bytes.as_mut_ptr(), len) };
        bytes
    }

    /// Transfers bytes between the disk and the same offset of the memory.
    fn transfer(&mut self, queue: usize, is_write: bool, offset: usize, len: usize) {
        let address = self.at(offset);
        let (queue, flags) = (&mut self.queues[queue], ReqFlags::empty());
        if is_write {
            queue.write(offset as u64, address, len, 0, flags);
        } else {
            queue.read(offset as u64, address, len, 0, flags);
        }
    }

    /// Waits for `count` I/Os of a queue; returns their results.
    fn wait(&mut self, queue: usize, count: usize) -> Vec<i32> {
        let mut results = Vec::new();
        while results.len() < count {
            let mut completions = [const { MaybeUninit::<Completion>::uninit() }; 64];
            let most = completions.len().min(count - results.len());
            let done = self.queues[queue]
                .do_io(&mut completions[..most], 1, None, None)
                .expect("completions");
            for completion in &completions[..done] {
                // SAFETY: the call has initialised as many elements as it returned.
                results.push(unsafe { completion.assume_init_ref() }.ret);
            }
        }
        results
    }

    /// Transfers the whole disk in pieces of odd lengths, over all queues.
    fn transfer_all(&mut self, is_write: bool) {
        let mut counts = vec![0; self.queues.len()];
        let (mut offset, mut turn) = (0, 0);
        while offset < SIZE {
            let len = ((turn * 7 % 300 + 1) * 512).min(SIZE - offset);
            let queue = turn % counts.len();
            self.transfer(queue, is_write, offset, len);
            counts[queue] += 1;
            offset += len;
            turn += 1;
            if counts[queue] == 16 {
                assert_eq!(self.wait(queue, 16), [0; 16]);
                counts[queue] = 0;
            }
        }
        for (queue, count) in counts.into_iter().enumerate() {
            assert_eq!(self.wait(queue, count), vec![0; count]);
        }
    }

    fn flush(&mut self) {
        self.queues[0].flush(0, ReqFlags::empty());
        assert_eq!(self.wait(0, 1), [0]);
    }

    /// Reads the disk and compares.
    fn compare(&mut self, expected: &[u8]) {
        self.set(0, &vec![0xee; SIZE]);
        self.transfer_all(false);
        let actual = self.get(0, SIZE);
        let differs = actual.iter().zip(expected).position(|(a, b)| a != b);
        assert_eq!(differs, None, "the first byte that differs");
    }
}

fn target(sandbox: &Sandbox) -> (Process, u16) {
    let (file, blocks) = (sandbox.path("blocks"), BLOCKS.to_string());
    let flags = [
        "--cpu",
        "0",
        "--backing-file",
        text(&file),
        "--block-count",
        &blocks,
        "--sessions",
        "forever",
    ];
    sandbox.target(&flags)
}

fn service(sandbox: &Sandbox, port: u16) -> Process {
    sandbox.service(port, &["--cpu", "0", "--sessions", "forever"])
}

fn back_end(sandbox: &Sandbox, flags: &[&str]) -> Process {
    let socket = sandbox.path("disk");
    let base = [
        "vhost-user-blk",
        "-d",
        "3b:00.0",
        "--queues",
        "2",
        "--socket",
        text(&socket),
        "--control-timeout",
        "60",
        "--reconnect-timeout",
        "300",
        // With JSON output, announcements are written to standard error.
        "--output",
        "json",
    ];
    let mut process = sandbox.spawn("back end", &[&base[..], flags].concat());
    process
        .wait_for("was listening", TIMEOUT, |line| {
            // The line names the socket, the size and the number of virtqueues.
            line.contains(text(&socket))
                .then(|| mentions(line, &["4194304", "2"]))
        })
        .expect("it listens");
    process
}

fn ended(mut process: Process) {
    process.signal(Signal::TERM);
    let status = process.wait(default_deadline()).expect("it ends");
    assert_eq!(status.code(), Some(0), "{}", process.stderr());
}

#[test]
fn libblkio_round_trips() {
    let sandbox = Sandbox::new();
    let (target, port) = target(&sandbox);
    let service = service(&sandbox, port);
    let process = back_end(&sandbox, &[]);
    let mut expected = content(BLOCKS);
    let mut client = Client::connect(&sandbox.path("disk"), 2);
    assert_eq!(
        client.blkio.get_u64("capacity").expect("a property"),
        SIZE as u64
    );
    assert!(client.blkio.get_bool("flush-needed").expect("a property"));
    client.set(0, &expected);
    client.transfer_all(true);
    client.flush();
    client.compare(&expected);
    // Zeroing and discarding of partial and of many blocks.
    for (is_discard, sector, sectors) in [
        (false, 3, 1),
        (true, 17, 40),
        (false, 1000, 3000),
        (true, 8000, 1),
    ] {
        let (start, len) = (sector * 512, sectors * 512);
        let (queue, flags) = (&mut client.queues[1], ReqFlags::empty());
        if is_discard {
            queue.discard(start as u64, len as u64, 0, flags);
        } else {
            queue.write_zeroes(start as u64, len as u64, 0, flags);
        }
        assert_eq!(client.wait(1, 1), [0]);
        expected[start..start + len].fill(0);
    }
    client.compare(&expected);
    client.flush();
    drop(client);
    // Another client, and another back end.
    Client::connect(&sandbox.path("disk"), 1).compare(&expected);
    ended(process);
    assert!(!sandbox.path("disk").exists());
    let process = back_end(&sandbox, &["--read-only"]);
    assert!(Client::start(&sandbox.path("disk"), 2, false).is_err());
    let mut client = Client::start(&sandbox.path("disk"), 2, true).expect("started");
    client.compare(&expected);
    drop(client);
    for process in [process, service, target] {
        ended(process);
    }
}

#[test]
fn writes_outlive_the_service() {
    let sandbox = Sandbox::new();
    let (target, port) = target(&sandbox);
    let mut first = service(&sandbox, port);
    let process = back_end(&sandbox, &[]);
    let expected = content(BLOCKS);
    let mut client = Client::connect(&sandbox.path("disk"), 2);
    client.set(0, &expected);
    for at in 0..64 {
        client.transfer(at % 2, true, at * 65536, 65536);
    }
    first.signal(Signal::KILL);
    assert!(first.wait(default_deadline()).is_some(), "killed");
    let second = service(&sandbox, port);
    for queue in 0..2 {
        assert_eq!(client.wait(queue, 32), [0; 32]);
    }
    client.compare(&expected);
    drop(client);
    ended(process);
    ended(second);
    // The exit status reports that a session was interrupted.
    target.signal(Signal::TERM);
}

#[test]
fn missing_service_is_an_error() {
    let sandbox = Sandbox::new();
    let socket = sandbox.path("disk");
    let flags = [
        "-d",
        "3b:00.0",
        "--socket",
        text(&socket),
        "--control-timeout",
        "1",
    ];
    expect_failure(sandbox.spawn("back end", &[&["vhost-user-blk"][..], &flags].concat()));
    assert!(!socket.exists());
}
