//! Tests between processes: this test starts its own executable again, which runs only [`peer`].
//!
//! Both exchange lines of text over the peer's standard input and output: `name hex`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use doca_abi::{DOCA_CTX_STATE_IDLE, doca_dev, doca_rdma_connection, doca_sync_event};

use super::access::{Exported, REMOTE_ATOMIC, Remote, aligned, word};
use super::addresses::{Addr, port, start};
use super::{ALL, Bufs, ConnectionEvent, Memory, Placement, Side, c, device, import, ok, submit};
use crate::capi::doca_sync_event::*;
use crate::capi::give;
use crate::device::Device;
use crate::error::Error;
use crate::memory::Permissions;

const ROLE: &str = "SOFTDOCA_RDMA_TEST_PEER";

const REMOTE: Permissions = Permissions::LOCAL_READ_WRITE
    .union(Permissions::RDMA_READ)
    .union(Permissions::RDMA_WRITE);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.trim().as_bytes();
    digits
        .chunks(2)
        .map(|pair| {
            let pair = std::str::from_utf8(pair).expect("digits");
            u8::from_str_radix(pair, 16).expect("hexadecimal digits")
        })
        .collect()
}

pub(super) struct Peer {
    pub(super) child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Peer {
    pub(super) fn start(directory: &Path, role: &str) -> Peer {
        let mut child = Command::new(std::env::current_exe().expect("a path"))
            .args([
                "capi::doca_rdma::tests::processes::peer",
                "--exact",
                "--nocapture",
            ])
            .env(ROLE, role)
            .env("SOFTDOCA_RUNTIME_DIR", directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this executable again");
        Peer {
            input: child.stdin.take().expect("a pipe"),
            output: BufReader::new(child.stdout.take().expect("a pipe")),
            child,
        }
    }

    pub(super) fn tell(&mut self, name: &str, bytes: &[u8]) {
        writeln!(self.input, "{name} {}", hex(bytes)).expect("the peer listens");
    }

    /// Waits for the line `name`; other lines, such as those of the test harness, are skipped.
    #[track_caller]
    pub(super) fn hear(&mut self, name: &str) -> Vec<u8> {
        loop {
            let mut line = String::new();
            let read = self.output.read_line(&mut line).expect("text");
            assert_ne!(read, 0, "the peer ended before it said {name}");
            // The harness writes the test's name at the start of a line.
            if let Some(at) = line.find(&format!("{name} ")) {
                return unhex(&line[at + name.len() + 1..]);
            }
        }
    }

    pub(super) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("a living child");
    }

    /// Sends SIGSTOP and waits until the process has stopped.
    pub(super) fn stop(&self) {
        self.signal(rustix::process::Signal::STOP);
        let pid = rustix::process::Pid::from_child(&self.child);
        let (_, status) =
            rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::UNTRACED)
                .expect("a child")
                .expect("a change");
        assert!(status.stopped());
    }

    pub(super) fn end(mut self) {
        drop(self.input);
        // A full pipe must not prevent the child from exiting.
        let rest =
            std::thread::spawn(move || std::io::copy(&mut self.output, &mut std::io::sink()));
        assert!(self.child.wait().expect("an exit").success());
        rest.join().expect("the reader").expect("text");
    }
}

pub(super) fn say(name: &str, bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{name} {}", hex(bytes)).expect("the parent listens");
    out.flush().expect("the parent listens");
}

pub(super) fn listen(name: &str) -> Vec<u8> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("text");
    let (got, bytes) = line.split_once(' ').expect("a name");
    assert_eq!(got, name);
    unhex(bytes)
}

/// Waits until the parent closes the pipe.
fn wait_for_the_end() {
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).expect("a pipe");
}

/// Entry point of the peer process; has no effect in a normal test run.
#[test]
fn peer() {
    match std::env::var(ROLE).as_deref() {
        Ok("sleeper") => sleeper(),
        Ok("echo") => echo(),
        Ok("initiator") => initiator(),
        Ok("server") => server(),
        Ok("counter") => counter(),
        Ok("pci") => pci(),
        Ok("visitor") => {
            let side = Side::start(ALL, 1);
            side.export();
            std::mem::forget(side);
        }
        _ => {}
    }
}

/// Exports and posts one receive, and never calls the library again.
fn sleeper() {
    let side = Side::start(ALL, 1);
    let (memory, bufs) = (Memory::new(8192, REMOTE, Placement::Pages), Bufs::new());
    let unaligned = Memory::new(8192, REMOTE, Placement::Unaligned);
    memory.write(0, b"pages");
    unaligned.write(0, b"unaligned");
    let (details, _) = side.export();
    submit(side.receive(c(bufs.room(&memory.mmap, 4096, 100)), 1));
    say("memory", &memory.export());
    say("unaligned", &unaligned.export());
    say("details", &details);
    wait_for_the_end();
    assert_eq!(memory.read(100, 5), b"PAGES");
    assert_eq!(unaligned.read(100, 9), b"UNALIGNED");
    side.wait_until("the message", |side| side.completed() == [(1, 0)]);
    assert_eq!(memory.read(4096, 5), b"hello");
}

fn with_runtime_dir(test: impl FnOnce(&Path)) {
    // The runtime directory of this process is fixed at its first use, so the peers share it.
    let directory = crate::runtime::RuntimeDir::get().expect("a runtime directory");
    test(directory.path());
}

#[test]
fn a_peer_that_sleeps_can_be_connected_to_sent_to_read_and_written() {
    with_runtime_dir(|directory| {
        let mut peer = Peer::start(directory, "sleeper");
        let [memory, unaligned, details] =
            ["memory", "unaligned", "details"].map(|name| peer.hear(name));
        let side = Side::start(ALL, 1);
        let (_, connection) = side.export();
        ok(side.connect(connection, &details));
        let (local, bufs) = (Memory::local(4096), Bufs::new());
        local.write(0, b"helloPAGESUNALIGNED");
        submit(side.send(connection, c(bufs.data(&local.mmap, 0, 5)), 1));
        for (descriptor, text, at) in [(memory, 5, 5), (unaligned, 9, 10)] {
            let remote = import(&descriptor);
            let read = (
                bufs.data(&remote, 0, text),
                bufs.room(&local.mmap, 100 + at, text),
            );
            submit(side.read(connection, (c(read.0), c(read.1)), 2));
            let write = (
                bufs.data(&local.mmap, at, text),
                bufs.room(&remote, 100, text),
            );
            submit(side.write(connection, (c(write.0), c(write.1)), 3));
        }
        assert_eq!(side.wait(5), [(1, 0), (2, 0), (3, 0), (2, 0), (3, 0)]);
        assert_eq!(local.read(105, 14), b"pagesunaligned");
        peer.end();
    });
}

/// Echoes messages until it is asked to exit.
fn echo() {
    let side = Side::start(ALL, 1);
    let (memory, bufs) = (Memory::local(4096), Bufs::new());
    let (details, connection) = side.export();
    say("details", &details);
    ok(side.connect(connection, &listen("details")));
    let room = bufs.room(&memory.mmap, 0, 4096);
    let receive = side.receive(c(room), 1);
    let send = side.send(connection, c(room), 2);
    submit(receive);
    while side.state() != DOCA_CTX_STATE_IDLE {
        side.progress();
        for done in side.log.completions.take() {
            match (done.status, done.user) {
                (0, 1) => submit(send),
                (0, _) => {
                    room.reset_data_len();
                    submit(receive);
                }
                _ => return,
            }
        }
        if side.log.disconnected.get() != 0 {
            return;
        }
    }
}

fn connect(directory: &Path, role: &str) -> (Peer, Side, *mut doca_rdma_connection) {
    let mut peer = Peer::start(directory, role);
    let side = Side::start(ALL, 1);
    let (details, connection) = side.export();
    peer.tell("details", &details);
    ok(side.connect(connection, &peer.hear("details")));
    (peer, side, connection)
}

#[test]
fn messages_are_echoed_between_processes() {
    with_runtime_dir(|directory| {
        let (peer, side, connection) = connect(directory, "echo");
        let (local, bufs) = (Memory::local(8192), Bufs::new());
        let (out, back) = (
            bufs.room(&local.mmap, 0, 4096),
            bufs.room(&local.mmap, 4096, 4096),
        );
        let (send, receive) = (side.send(connection, c(out), 1), side.receive(c(back), 2));
        for round in 0..2000usize {
            let message: Vec<u8> = (0..round % 300).map(|i| (i * 3 + round) as u8).collect();
            local.write(0, &message);
            out.set_data_len(message.len()).expect("room");
            back.reset_data_len();
            submit(receive);
            submit(send);
            let mut completions = side.wait(2);
            completions.sort_unstable();
            assert_eq!(completions, [(1, 0), (2, 0)]);
            side.log.completions.take();
            assert_eq!(back.data_len(), message.len());
            assert_eq!(local.read(4096, message.len()), message);
        }
        side.stop();
        peer.end();
    });
}

#[test]
fn a_killed_peer_is_detected_within_a_second_and_its_tasks_fail() {
    with_runtime_dir(|directory| {
        let (mut peer, side, connection) = connect(directory, "echo");
        let (local, bufs) = (Memory::local(4096), Bufs::new());
        submit(side.receive(c(bufs.room(&local.mmap, 0, 64)), 1));
        // The first message is answered; the peer posts its only receive again, which the second message consumes.
        submit(side.send(connection, c(bufs.data(&local.mmap, 100, 64)), 2));
        let mut completions = side.wait(2);
        completions.sort_unstable();
        assert_eq!(completions, [(1, 0), (2, 0)]);
        peer.stop();
        submit(side.receive(c(bufs.room(&local.mmap, 200, 64)), 3));
        for user in 4..8 {
            submit(side.send(connection, c(bufs.data(&local.mmap, 100, 64)), user));
        }
        let before = side.wait(2).len();
        side.free_failed_tasks();
        let killed = Instant::now();
        peer.signal(rustix::process::Signal::KILL);
        side.wait_until("the end of the tasks", |side| side.completed().len() == 7);
        let noticed = killed.elapsed();
        assert!(
            noticed < Duration::from_secs(1),
            "noticed after {noticed:?}"
        );
        let failed = &side.completed()[before..];
        assert!(
            failed.iter().filter(|(_, status)| *status != 0).count() >= 4,
            "at most one of the later sends found a receive: {failed:?}"
        );
        assert!(
            failed.contains(&(3, Error::ConnectionAborted.code())),
            "{failed:?}"
        );
        side.wait_until("the disconnection", |side| side.log.disconnected.get() == 1);
        side.stop();
        peer.child.wait().expect("an exit");
    });
}

/// Connects to the given details, reports the connection, and waits.
fn initiator() {
    let side = Side::start(ALL, 1);
    let (_, connection) = side.export();
    ok(side.connect(connection, &listen("details")));
    say("connected", &[]);
    wait_for_the_end();
}

#[test]
fn a_sender_that_dies_before_this_side_has_connected_is_detected() {
    with_runtime_dir(|directory| {
        let mut peer = Peer::start(directory, "initiator");
        let side = Side::start(ALL, 1);
        let (details, _) = side.export();
        submit(side.receive(std::ptr::null_mut(), 1));
        peer.tell("details", &details);
        peer.hear("connected");
        side.free_failed_tasks();
        peer.signal(rustix::process::Signal::KILL);
        assert_eq!(side.wait(1), [(1, Error::ConnectionAborted.code())]);
        peer.child.wait().expect("an exit");
    });
}

#[test]
fn processes_leave_nothing_in_the_runtime_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("run");
    let mut peer = Peer::start(&path, "sleeper");
    peer.hear("details");
    let sockets = || {
        let entries = std::fs::read_dir(&path).expect("the runtime directory");
        entries
            .map(|entry| entry.expect("an entry").file_name())
            .filter(|name| name.to_string_lossy().ends_with(".sock"))
            .count()
    };
    assert_eq!(sockets(), 1, "the agent's");
    peer.signal(rustix::process::Signal::KILL);
    peer.child.wait().expect("an exit");
    // The next process removes the files of a killed one, and its own when it exits without stopping.
    Peer::start(&path, "visitor").end();
    assert_eq!(sockets(), 0);
}

/// Listens, accepts, and answers one message.
pub(super) fn server() {
    let port = u16::from_be_bytes(listen("port").try_into().expect("2 bytes"));
    let side = start(1);
    ok(side.listen(port));
    say("listening", &[]);
    let (memory, bufs) = (Memory::local(4096), Bufs::new());
    let room = bufs.room(&memory.mmap, 0, 64);
    submit(side.receive(c(room), 1));
    side.wait_until("a message", |side| side.completed() == [(1, 0)]);
    let (event, connection) = {
        let events = side.log.by_address.borrow();
        (events[1].0, events[1].1)
    };
    assert_eq!(event, ConnectionEvent::Established);
    submit(side.send(connection, c(room), 2));
    side.wait(2);
    side.wait_until("the end", |side| {
        side.events().last().map(|event| event.0) == Some(ConnectionEvent::Disconnection)
    });
}

#[test]
fn a_client_connects_to_a_server_of_another_process() {
    with_runtime_dir(|directory| {
        let port = port();
        let addr = Addr::local(port);
        let mut peer = Peer::start(directory, "server");
        peer.tell("port", &port.to_be_bytes());
        peer.hear("listening");
        let client = start(1);
        ok(client.call(&addr, 3));
        client.wait_until("the connection", |client| client.events().len() == 1);
        assert_eq!(client.events(), [(ConnectionEvent::Established, 3)]);
        let connection = client.last_connection();
        let (memory, bufs) = (Memory::local(4096), Bufs::new());
        memory.write(0, b"there and back");
        submit(client.receive(c(bufs.room(&memory.mmap, 100, 64)), 1));
        submit(client.send(connection, c(bufs.data(&memory.mmap, 0, 14)), 2));
        client.wait(2);
        assert_eq!(memory.read(100, 14), b"there and back");
        // SAFETY: a live connection.
        ok(unsafe { super::super::doca_rdma_connection_disconnect(connection) });
        peer.end();
    });
}

#[test]
fn a_server_that_dies_is_detected_before_and_after_its_answer() {
    with_runtime_dir(|directory| {
        for connected in [false, true] {
            let port = port();
            let addr = Addr::local(port);
            let mut peer = Peer::start(directory, "server");
            peer.tell("port", &port.to_be_bytes());
            peer.hear("listening");
            let client = start(1);
            client.free_failed_tasks();
            if !connected {
                peer.stop();
            }
            ok(client.call(&addr, 3));
            if connected {
                client.wait_until("the connection", |client| client.events().len() == 1);
                submit(client.receive(null_mut(), 1));
            }
            peer.signal(rustix::process::Signal::KILL);
            let event = if connected {
                ConnectionEvent::Disconnection
            } else {
                ConnectionEvent::Failure
            };
            client.wait_until("the end", |client| {
                client.events().last() == Some(&(event, 3))
            });
            if connected {
                let aborted = Error::ConnectionAborted.code();
                assert_eq!(client.wait(1), [(1, aborted)]);
            }
            peer.child.wait().expect("an exit");
        }
    });
}

/// Exports two kinds of memory and an event, and waits for all of them to reach a value.
pub(super) fn counter() {
    const ROUNDS: u64 = 300;
    let side = Side::start(ALL, 1);
    let memories = [Placement::Pages, Placement::Unaligned]
        .map(|placement| Memory::new(8192, REMOTE_ATOMIC, placement));
    let event = Exported::new();
    let (details, _) = side.export();
    for memory in &memories {
        say("memory", &memory.export());
    }
    say("event", &event.blob());
    say("details", &details);
    // Concurrently with the peer: additions of both count.
    for _ in 0..ROUNDS {
        let mut old = 0;
        for memory in &memories {
            let addr = memory.addr() + aligned(memory) as u64;
            memory.mmap.fetch_add(addr, 1).expect("own memory");
        }
        // SAFETY: a live handle and a valid out-parameter.
        ok(unsafe { doca_sync_event_update_add(event.event, 1, &mut old) });
    }
    // SAFETY: a live handle.
    ok(unsafe { doca_sync_event_wait_eq(event.event, 2 * ROUNDS, u64::MAX) });
    let sums = memories
        .each_ref()
        .map(|memory| word(memory, aligned(memory)));
    // Set last by the peer.
    event.set(1000);
    // SAFETY: a live handle.
    ok(unsafe { doca_sync_event_wait_gt(event.event, 1000, u64::MAX) });
    assert_eq!(sums, [2 * ROUNDS; 2]);
    say("done", &[]);
    wait_for_the_end();
}

#[test]
fn atomics_and_events_of_two_processes_add_up() {
    const ROUNDS: usize = 300;
    with_runtime_dir(|directory| {
        let mut peer = Peer::start(directory, "counter");
        let remotes = [(); 2].map(|()| import(&peer.hear("memory")));
        let event = Remote::new(&peer.hear("event"));
        let side = Side::start(ALL, 1);
        let (_, connection) = side.export();
        ok(side.connect(connection, &peer.hear("details")));
        let (local, bufs) = (Memory::local(4096), Bufs::new());
        let result = bufs.room(&local.mmap, 0, 8);
        let ons = remotes.each_ref().map(|remote| {
            let start = remote.memrange().expect("a range").0;
            let at = (start.next_multiple_of(8) - start) as usize;
            bufs.data(remote, at, 8)
        });
        let adds = ons.map(|on| side.fetch_add(connection, (c(on), c(result)), 1, 1));
        let add = side.event_add(connection, (event.0, c(result)), 1, 2);
        for _ in 0..ROUNDS {
            for task in [adds[0], adds[1], add] {
                side.log.completions.take();
                result.reset_data_len();
                submit(task);
                assert_eq!(side.wait(1)[0].1, 0);
            }
        }
        // The peer has detected the sum and reports it.
        let get = side.event_get(connection, (event.0, c(result)), 3);
        let deadline = Instant::now() + Duration::from_secs(20);
        while word(&local, 0) != 1000 {
            assert!(Instant::now() < deadline, "it is {}", word(&local, 0));
            side.log.completions.take();
            result.reset_data_len();
            submit(get);
            assert_eq!(side.wait(1)[0].1, 0);
        }
        local.write(8, &1001_u64.to_ne_bytes());
        side.log.completions.take();
        let source = c(bufs.data(&local.mmap, 8, 8));
        submit(side.event_set(connection, (event.0, source), 4));
        assert_eq!(side.wait(1), [(4, 0)]);
        peer.hear("done");
        peer.end();
    });
}

/// Exports an event for PCIe, and reports how it is signalled.
pub(super) fn pci() {
    let (mut event, dev) = (null_mut(), give::<doca_dev>(device()));
    let (mut data, mut size) = (null(), 0);
    // SAFETY: live handles and valid out-parameters; the blob is readable for its size.
    unsafe {
        ok(doca_sync_event_create(&mut event));
        ok(doca_sync_event_add_publisher_location_remote_pci(event));
        ok(doca_sync_event_add_subscriber_location_cpu(event, dev));
        ok(doca_sync_event_start(event));
        ok(doca_sync_event_export_to_remote_pci(
            event, dev, &mut data, &mut size,
        ));
        say("event", std::slice::from_raw_parts(data, size));
        ok(doca_sync_event_update_set(event, 1));
        ok(doca_sync_event_wait_eq_yield(event, 2, u64::MAX));
    }
    say("seen", &[]);
    wait_for_the_end();
}

#[test]
fn an_event_is_shared_across_pcie_and_its_destruction_ends_waits() {
    with_runtime_dir(|directory| {
        let mut peer = Peer::start(directory, "pci");
        let blob = peer.hear("event");
        let dev = give::<doca_dev>(device());
        let mut event: *mut doca_sync_event = null_mut();
        let mut fetched = 0;
        // SAFETY: live handles, readable bytes and valid out-parameters.
        unsafe {
            let make = doca_sync_event_create_from_export;
            ok(make(dev, blob.as_ptr(), blob.len(), &mut event));
            ok(doca_sync_event_start(event));
            ok(doca_sync_event_wait_eq(event, 1, u64::MAX));
            ok(doca_sync_event_update_add(event, 1, &mut fetched));
        }
        assert_eq!(fetched, 1);
        peer.hear("seen");
        peer.signal(rustix::process::Signal::KILL);
        peer.child.wait().expect("an exit");
        let began = Instant::now();
        // SAFETY: a live handle; its last use is the destruction.
        unsafe {
            let waited = doca_sync_event_wait_gt(event, 2, u64::MAX);
            assert_eq!(waited, Error::ConnectionReset.code());
            assert!(began.elapsed() < Duration::from_secs(2));
            ok(doca_sync_event_stop(event));
            ok(doca_sync_event_destroy(event));
            drop(Arc::from_raw(dev.cast::<Device>()));
        }
    });
}
