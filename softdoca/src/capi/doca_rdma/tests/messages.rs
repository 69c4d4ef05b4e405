//! Send and receive; an instance with several connections; programs that wait on an engine's descriptor, without a
//! timeout: a missed wake-up would hang them.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Barrier;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use doca_abi::{
    DOCA_CTX_STATE_IDLE, DOCA_RDMA_OPCODE_RECV_SEND, DOCA_RDMA_OPCODE_RECV_SEND_WITH_IMM,
    doca_rdma_connection, doca_rdma_task_receive,
};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::super::*;
use super::{ALL, Bufs, Memory, Placement, Side, c, import, ok, pair, submit};
use crate::capi::doca_pe::{doca_ctx_stop, doca_task_free, *};
use crate::error::Error;
use crate::memory::{ExportKind, Permissions};

fn received(task: *mut doca_abi::doca_task) -> (u32, u32, u32) {
    let task: *const doca_rdma_task_receive = task.cast();
    // SAFETY: a live receive task.
    unsafe {
        (
            doca_rdma_task_receive_get_result_opcode(task),
            doca_rdma_task_receive_get_result_len(task),
            doca_rdma_task_receive_get_result_immediate_data(task),
        )
    }
}

#[test]
fn messages_arrive_in_order_at_the_tail_of_the_data() {
    let ((a, to_b), (b, _)) = pair();
    let (from, to, bufs) = (Memory::local(4096), Memory::local(4096), Bufs::new());
    let mut receives = Vec::new();
    for i in 0..40u8 {
        from.write(usize::from(i) * 64, &[i; 64]);
        let buf = bufs.room(&to.mmap, usize::from(i) * 100, 80);
        buf.set_data_len(3).expect("inside the buf");
        let task = b.receive(c(buf), u64::from(i));
        submit(task);
        receives.push((task, buf));
    }
    for i in 0..40u8 {
        let buf = bufs.data(&from.mmap, usize::from(i) * 64, usize::from(i) + 1);
        submit(a.send(to_b, c(buf), u64::from(i)));
    }
    let expected: Vec<_> = (0..40).map(|i| (i, 0)).collect();
    assert_eq!(a.wait(40), expected);
    assert_eq!(b.wait(40), expected);
    for (i, (task, buf)) in receives.into_iter().enumerate() {
        assert_eq!(
            received(task),
            (DOCA_RDMA_OPCODE_RECV_SEND, i as u32 + 1, 0)
        );
        assert_eq!(buf.data_len(), 3 + i + 1);
        assert_eq!(to.read(i * 100 + 3, i + 1), vec![i as u8; i + 1]);
        assert_eq!(to.read(i * 100 + 3 + i + 1, 1), [0], "no byte more");
    }
}

#[test]
fn sends_wait_for_the_connection_and_for_receives_in_order() {
    let (a, b) = (Side::start(super::ALL, 1), Side::start(super::ALL, 1));
    let ((a_details, to_b), (b_details, to_a)) = (a.export(), b.export());
    let (memory, bufs) = (Memory::local(4096), Bufs::new());
    memory.write(0, b"onetwothree");
    for (i, (offset, len)) in [(0, 3), (3, 3), (6, 5)].into_iter().enumerate() {
        submit(a.send(to_b, c(bufs.data(&memory.mmap, offset, len)), i as u64));
    }
    a.progress();
    assert_eq!(a.completed(), [], "no peer to send to");
    super::ok(a.connect(to_b, &b_details));
    super::ok(b.connect(to_a, &a_details));
    a.rest(&b);
    assert_eq!(a.completed(), [], "no receive is posted");
    let task = b.receive(c(bufs.room(&memory.mmap, 100, 100)), 7);
    submit(task);
    assert_eq!(a.wait(1), [(0, 0)], "without any progress by the receiver");
    a.rest(&a);
    assert_eq!(a.completed(), [(0, 0)], "one receive, one message");
    assert_eq!(b.wait(1), [(7, 0)]);
    submit(task);
    submit(b.receive(c(bufs.room(&memory.mmap, 200, 100)), 8));
    assert_eq!(a.wait(3), [(0, 0), (1, 0), (2, 0)]);
    assert_eq!(b.wait(3), [(7, 0), (7, 0), (8, 0)]);
    assert_eq!(
        memory.read(100, 7),
        b"onetwo\0",
        "the second one follows the first"
    );
    assert_eq!(memory.read(200, 5), b"three");
}

#[test]
fn immediate_values_and_empty_messages() {
    let ((a, to_b), (b, _)) = pair();
    let (memory, bufs) = (Memory::local(4096), Bufs::new());
    memory.write(0, b"data");
    let tasks: Vec<_> = (0..3u64)
        .map(|i| {
            let buf = match i {
                1 => std::ptr::null_mut(),
                _ => c(bufs.room(&memory.mmap, 100 * (i as usize + 1), 10)),
            };
            let task = b.receive(buf, i);
            submit(task);
            task
        })
        .collect();
    submit(a.send_imm(to_b, c(bufs.data(&memory.mmap, 0, 4)), 0xabcd_0123, 0));
    submit(a.send_imm(to_b, std::ptr::null_mut(), 5, 1));
    submit(a.send(to_b, std::ptr::null_mut(), 2));
    assert_eq!(b.wait(3), [(0, 0), (1, 0), (2, 0)]);
    assert_eq!(
        received(tasks[0]),
        (DOCA_RDMA_OPCODE_RECV_SEND_WITH_IMM, 4, 0xabcd_0123)
    );
    assert_eq!(
        received(tasks[1]),
        (DOCA_RDMA_OPCODE_RECV_SEND_WITH_IMM, 0, 5)
    );
    assert_eq!(received(tasks[2]), (DOCA_RDMA_OPCODE_RECV_SEND, 0, 0));
    assert_eq!(memory.read(100, 5), b"data\0");
}

#[test]
fn large_messages_go_in_fragments_between_chained_bufs() {
    const LEN: usize = 1 << 20;
    let ((a, to_b), (b, _)) = pair();
    let (from, to, bufs) = (Memory::local(LEN), Memory::local(LEN), Bufs::new());
    let pattern: Vec<u8> = (0..LEN).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect();
    from.write(0, &pattern);
    let source = bufs.data(&from.mmap, 0, 300_001);
    source
        .chain(bufs.data(&from.mmap, 300_001, 0))
        .expect("a list");
    source
        .chain(bufs.data(&from.mmap, 300_001, LEN - 300_001))
        .expect("a list");
    let destination = bufs.room(&to.mmap, 0, 77);
    destination
        .chain(bufs.room(&to.mmap, 77, 600_000))
        .expect("a list");
    destination
        .chain(bufs.room(&to.mmap, 600_077, LEN - 600_077))
        .expect("a list");
    let receive = b.receive(c(destination), 1);
    submit(receive);
    submit(b.receive(std::ptr::null_mut(), 2));
    submit(a.send_imm(to_b, c(source), 9, 1));
    submit(a.send(to_b, std::ptr::null_mut(), 2));
    a.wait_until("both sides", |a| {
        b.progress();
        a.completed().len() == 2 && b.completed().len() == 2
    });
    assert_eq!(a.completed(), [(1, 0), (2, 0)]);
    assert_eq!(b.completed(), [(1, 0), (2, 0)]);
    assert_eq!(
        received(receive),
        (DOCA_RDMA_OPCODE_RECV_SEND_WITH_IMM, LEN as u32, 9)
    );
    assert_eq!(destination.list_data_len(), LEN);
    assert!(to.read(0, LEN) == pattern);
}

#[test]
fn a_message_that_does_not_fit_fails_its_receive_and_no_other() {
    let ((a, to_b), (b, _)) = pair();
    let (memory, bufs) = (Memory::local(1 << 20), Bufs::new());
    let small = bufs.room(&memory.mmap, 0, 100_000);
    submit(b.receive(c(small), 0));
    submit(b.receive(c(bufs.room(&memory.mmap, 200_000, 10)), 1));
    memory.write(300_000, &vec![7; 200_000]);
    submit(a.send(to_b, c(bufs.data(&memory.mmap, 300_000, 200_000)), 0));
    submit(a.send(to_b, c(bufs.data(&memory.mmap, 300_000, 10)), 1));
    a.wait_until("both sides", |a| {
        b.progress();
        a.completed().len() == 2 && b.completed().len() == 2
    });
    assert_eq!(b.completed(), [(0, Error::TooBig.code()), (1, 0)]);
    assert_eq!(
        memory.read(100_000, 100_000),
        vec![0; 100_000],
        "nothing outside of the buf"
    );
    assert_eq!(
        memory.read(200_000, 11),
        [[7; 10].as_slice(), &[0]].concat()
    );
}

#[test]
fn both_directions_at_once_keep_their_order_between_threads() {
    const MESSAGES: u64 = 20_000;
    const WINDOW: u64 = 32;
    let (to_first, for_second) = std::sync::mpsc::channel::<Vec<u8>>();
    let (to_second, for_first) = std::sync::mpsc::channel::<Vec<u8>>();
    let run = |send: std::sync::mpsc::Sender<Vec<u8>>, take: std::sync::mpsc::Receiver<Vec<u8>>| {
        move || {
            let side = Side::start(super::ALL, 1);
            let (memory, bufs) = (Memory::local(1 << 16), Bufs::new());
            let (details, connection) = side.export();
            send.send(details).expect("a peer");
            super::ok(side.connect(connection, &take.recv().expect("a peer")));
            let mut sends = Vec::new();
            for slot in 0..WINDOW {
                let at = slot as usize * 16;
                submit(side.receive(c(bufs.room(&memory.mmap, at, 8)), 1000 + slot));
                let buf = bufs.data(&memory.mmap, 8192 + at, 8);
                sends.push(side.send(connection, c(buf), slot));
            }
            let (mut sent, mut seen, mut free) = (0u64, 0u64, (0..WINDOW).collect::<Vec<_>>());
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
            let mut completed = 0;
            while completed < MESSAGES || seen < MESSAGES {
                assert!(
                    std::time::Instant::now() < deadline,
                    "stuck at {sent} {completed} {seen}"
                );
                while sent < MESSAGES {
                    let Some(slot) = free.pop() else { break };
                    memory.write(8192 + slot as usize * 16, &sent.to_le_bytes());
                    submit(sends[slot as usize]);
                    sent += 1;
                }
                side.progress();
                let completions = side.log.completions.take();
                for done in completions {
                    assert_eq!(done.status, 0);
                    if done.user < 1000 {
                        completed += 1;
                        free.push(done.user);
                        continue;
                    }
                    let slot = (done.user - 1000) as usize;
                    let got = memory.read(slot * 16, 8);
                    assert_eq!(got, seen.to_le_bytes());
                    seen += 1;
                    // SAFETY: a live receive task.
                    let buf = unsafe { doca_rdma_task_receive_get_dst_buf(done.task.cast()) };
                    // SAFETY: handles of bufs point to them.
                    unsafe { &*buf.cast::<crate::buffer::Buf>() }.reset_data_len();
                    submit(done.task);
                }
            }
            // The peer may still wait for sent messages, but not for more.
        }
    };
    let first = std::thread::spawn(run(to_second, for_second));
    let second = std::thread::spawn(run(to_first, for_first));
    first.join().expect("the first side");
    second.join().expect("the second side");
}

/// Memory of another host that is accessible only through its agent.
fn across_pcie() -> (Memory, std::sync::Arc<crate::memory::Mmap>) {
    let theirs = Memory::new(100_000, Permissions::PCI_READ_WRITE, Placement::Unaligned);
    let imported = import(&theirs.export_for(ExportKind::Pci));
    (theirs, imported)
}

#[test]
fn memory_across_pcie_is_sent_from_and_received_into() {
    let ((a, to_b), (b, _)) = pair();
    let (theirs, imported) = across_pcie();
    let pattern: Vec<u8> = (0..40_000).map(|i| (i ^ (i >> 8)) as u8).collect();
    theirs.write(0, &pattern);
    let bufs = Bufs::new();
    submit(b.receive(c(bufs.room(&imported, 50_000, 45_000)), 1));
    submit(a.send(to_b, c(bufs.data(&imported, 0, 40_000)), 2));
    a.wait_until("both sides", |a| {
        b.progress();
        a.completed().len() == 1 && b.completed().len() == 1
    });
    assert_eq!((a.completed(), b.completed()), (vec![(2, 0)], vec![(1, 0)]));
    assert!(theirs.read(50_000, 40_000) == pattern);
}

#[test]
fn an_incomplete_message_closes_the_connection_for_both() {
    let ((a, to_b), (b, _)) = pair();
    let (theirs, imported) = across_pcie();
    let (local, bufs) = (Memory::local(1 << 20), Bufs::new());
    let source = bufs.data(&local.mmap, 0, 300_000);
    source
        .chain(bufs.data(&imported, 0, 40_000))
        .expect("a list");
    submit(b.receive(c(bufs.room(&local.mmap, 400_000, 400_000)), 1));
    submit(b.receive(std::ptr::null_mut(), 2));
    theirs.mmap.stop().expect("it has no bufs");
    a.free_failed_tasks();
    b.free_failed_tasks();
    submit(a.send(to_b, c(source), 3));
    submit(a.send(to_b, std::ptr::null_mut(), 4));
    a.wait_until("both sides", |a| {
        b.progress();
        a.completed().len() == 2 && b.completed().len() == 2
    });
    let (aborted, reset) = (
        Error::ConnectionAborted.code(),
        Error::ConnectionReset.code(),
    );
    assert_eq!(a.completed(), [(3, Error::NotFound.code()), (4, aborted)]);
    assert_eq!(b.completed(), [(1, reset), (2, aborted)]);
}

#[test]
fn receives_that_are_freed_while_posted_do_not_keep_the_context() {
    let ((a, to_b), (b, _)) = pair();
    let (memory, bufs) = (Memory::local(4096), Bufs::new());
    for at in 0..4 {
        let task = b.receive(c(bufs.room(&memory.mmap, 100 * at, 100)), at as u64);
        submit(task);
        // SAFETY: a live task; it is freed when it completes or is flushed.
        unsafe { doca_task_free(task) };
    }
    b.tasks.borrow_mut().clear();
    submit(a.send(to_b, c(bufs.data(&memory.mmap, 2000, 8)), 0));
    assert_eq!(b.wait(1), [(0, 0)], "a freed receive still takes a message");
    // SAFETY: a live context.
    let stopped = unsafe { doca_ctx_stop(b.ctx()) };
    assert_eq!(stopped, Error::InProgress.code(), "three are to be flushed");
    b.wait_until("the idle state", |b| b.state() == DOCA_CTX_STATE_IDLE);
    let flushed = Error::ConnectionAborted.code();
    let expected = [(0, 0), (1, flushed), (2, flushed), (3, flushed)];
    assert_eq!(b.completed(), expected);
}

type End = (Side, *mut doca_rdma_connection);

/// A central instance with a connection to each of `count` others.
fn star(count: u16) -> (Side, Vec<*mut doca_rdma_connection>, Vec<End>) {
    let middle = Side::start(ALL, count);
    let (mut connections, mut others) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let other = Side::start(ALL, 1);
        let ((details, connection), (other_details, other_connection)) =
            (middle.export(), other.export());
        ok(middle.connect(connection, &other_details));
        ok(other.connect(other_connection, &details));
        connections.push(connection);
        others.push((other, other_connection));
    }
    (middle, connections, others)
}

#[test]
fn receives_are_shared_by_senders_and_report_the_connection() {
    let (middle, connections, others) = star(4);
    assert_eq!(middle.try_export().unwrap_err(), Error::Full.code());
    let (memory, bufs) = (Memory::local(4096), Bufs::new());
    let receive = |at: usize| {
        let task = middle.receive(c(bufs.room(&memory.mmap, at * 8, 8)), at as u64);
        submit(task);
        task
    };
    // One receive at a time, for any of the four senders: none of them blocks the others.
    for (round, index) in [3, 0, 0, 2, 1, 3].into_iter().enumerate() {
        let task: *const doca_rdma_task_receive = receive(round).cast();
        let (other, connection) = &others[index];
        memory.write(2048, &[round as u8; 8]);
        submit(other.send(*connection, c(bufs.data(&memory.mmap, 2048, 8)), 100));
        assert_eq!(other.wait(1), [(100, 0)]);
        other.log.completions.take();
        assert_eq!(middle.wait(round + 1)[round], (round as u64, 0));
        // SAFETY: a live receive task.
        let from = unsafe { doca_rdma_task_receive_get_result_rdma_connection(task) };
        assert_eq!(from, connections[index].cast_const());
        assert_eq!(memory.read(round * 8, 8), [round as u8; 8]);
    }
}

#[test]
fn as_many_messages_as_receives_are_taken() {
    let (middle, connections, others) = star(3);
    for (other, connection) in &others {
        for user in 0..10 {
            submit(other.send(*connection, std::ptr::null_mut(), user));
        }
    }
    let sent = || -> usize {
        others
            .iter()
            .map(|(other, _)| other.completed().len())
            .sum()
    };
    let settle = || {
        for (other, _) in &others {
            other.rest(&middle);
        }
    };
    settle();
    assert_eq!(sent(), 0);
    for user in 0..7 {
        submit(middle.receive(std::ptr::null_mut(), user));
    }
    settle();
    assert_eq!((sent(), middle.completed().len()), (7, 7));
    for user in 7..40 {
        submit(middle.receive(std::ptr::null_mut(), user));
    }
    settle();
    assert_eq!((sent(), middle.completed().len()), (30, 30));
    // The remaining sends are pending, and the center sends to each of the others.
    for ((other, _), connection) in others.iter().zip(connections) {
        submit(other.receive(std::ptr::null_mut(), 50));
        submit(middle.send(connection, std::ptr::null_mut(), 60));
        assert_eq!(other.wait(11)[10], (50, 0));
    }
    assert_eq!(middle.wait(33)[30..], [(60, 0), (60, 0), (60, 0)]);
}

#[test]
fn closing_one_connection_leaves_the_others() {
    let (middle, connections, mut others) = star(3);
    submit(middle.receive(std::ptr::null_mut(), 1));
    drop(others.remove(1));
    middle.wait_until("the end", |middle| middle.log.disconnected.get() == 1);
    submit(middle.send(connections[1], std::ptr::null_mut(), 2));
    assert_eq!(middle.wait(1), [(2, Error::ConnectionReset.code())]);
    let (other, connection) = &others[1];
    submit(other.send(*connection, std::ptr::null_mut(), 3));
    assert_eq!(other.wait(1), [(3, 0)]);
    assert_eq!(middle.wait(2)[1], (1, 0));
    // Its slot can be used again.
    let (new, (details, connection)) = (Side::start(ALL, 1), middle.export());
    let (new_details, new_connection) = new.export();
    ok(middle.connect(connection, &new_details));
    ok(new.connect(new_connection, &details));
    submit(middle.receive(std::ptr::null_mut(), 4));
    submit(new.send(new_connection, std::ptr::null_mut(), 5));
    assert_eq!(new.wait(1), [(5, 0)]);
    assert_eq!(middle.wait(3)[2], (4, 0));
}

fn arm(side: &Side) {
    // SAFETY: a live engine.
    ok(unsafe { doca_pe_request_notification(side.pe) });
}

/// Waits on the descriptor of an armed engine, and delivers pending events.
#[track_caller]
fn sleep(side: &Side, what: &str) {
    let mut handle = std::io::stdin().as_raw_fd();
    // SAFETY: a live engine and a valid out-parameter; the descriptor lives as long as the engine.
    let fd = unsafe {
        ok(doca_pe_get_notification_handle(side.pe, &mut handle));
        BorrowedFd::borrow_raw(handle)
    };
    let timeout = Timespec {
        tv_sec: 5,
        tv_nsec: 0,
    };
    let woken = rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout));
    assert_eq!(woken, Ok(1), "no wake-up for {what}");
    // SAFETY: a live engine.
    unsafe {
        ok(doca_pe_clear_notification(side.pe, handle));
        while doca_pe_progress(side.pe) == 1 {}
    }
}

#[track_caller]
fn wait(side: &Side, count: usize, what: &str) {
    while side.completed().len() < count {
        arm(side);
        sleep(side, what);
    }
}

#[test]
fn a_submission_after_arming_wakes_the_engine() {
    let ((a, to_b), (b, _)) = pair();
    let (memory, bufs) = (Memory::local(4096), Bufs::new());
    let receive = b.receive(c(bufs.room(&memory.mmap, 0, 64)), 1);
    let send = a.send(to_b, c(bufs.data(&memory.mmap, 64, 64)), 2);
    submit(receive);
    a.rest(&b);
    arm(&a);
    // Completes immediately: no peer has a reason to send a wake-up.
    submit(send);
    while a.completed().is_empty() {
        sleep(&a, "a send that is complete");
    }
    b.wait(1);
}

/// Sends and receives one message per round, and sleeps at random moments.
fn play(
    seed: u32,
    connections: u16,
    (ours, theirs): (Sender<Vec<u8>>, Receiver<Vec<u8>>),
    end: &Barrier,
) {
    const ROUNDS: usize = 200;
    let side = Side::start(ALL, connections);
    let (details, connection) = side.export();
    ours.send(details).expect("a peer");
    ok(side.connect(connection, &theirs.recv().expect("a peer")));
    let (memory, bufs) = (Memory::local(4096), Bufs::new());
    let room = bufs.room(&memory.mmap, 0, 64);
    let receive = side.receive(c(room), 1);
    let send = side.send(connection, c(bufs.data(&memory.mmap, 64, 64)), 2);
    let mut random = seed;
    for round in 1..=ROUNDS {
        for task in [send, receive] {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if random >> 30 == 0 {
                std::thread::sleep(Duration::from_micros(u64::from(random >> 20 & 0xff)));
            }
            submit(task);
        }
        wait(&side, 2 * round, "a round");
        room.reset_data_len();
    }
    assert!(side.completed().iter().all(|(_, status)| *status == 0));
    end.wait();
}

#[test]
fn two_threads_that_sleep_at_any_moment_always_wake_each_other() {
    for connections in [1, 2] {
        let (a, b) = (channel(), channel());
        let end = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| play(1, connections, (a.0, b.1), &end));
            scope.spawn(|| play(2, connections, (b.0, a.1), &end));
        });
    }
}
