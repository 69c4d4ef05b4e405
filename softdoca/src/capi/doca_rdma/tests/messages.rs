//! Send and receive; an instance with several connections; programs that wait on an engine's descriptor without a
//! timeout, so that a missed wake-up would block them forever. Properties of instances, fields of tasks, and
//! capabilities of devices.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{null, null_mut};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use doca_abi::{
    DOCA_CTX_STATE_IDLE, DOCA_CTX_STATE_RUNNING, DOCA_CTX_STATE_STOPPING, DOCA_MTU_SIZE_4K_BYTES,
    DOCA_RDMA_OPCODE_RECV_SEND, DOCA_RDMA_OPCODE_RECV_SEND_WITH_IMM, DOCA_RDMA_TRANSPORT_TYPE_DC,
    DOCA_RDMA_TRANSPORT_TYPE_RC, doca_data, doca_devinfo, doca_rdma_connection, doca_rdma_gid,
    doca_rdma_task_atomic_cmp_swp, doca_rdma_task_atomic_fetch_add, doca_rdma_task_read,
    doca_rdma_task_receive, doca_rdma_task_send, doca_rdma_task_send_imm, doca_rdma_task_write,
    doca_rdma_task_write_imm,
};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::mm::{MapFlags, ProtFlags};

use super::super::*;
use super::access::REMOTE_ATOMIC;
use super::{ALL, Bufs, Memory, Placement, Side, c, device, import, ok, pair, submit};
use crate::capi::doca_pe::*;
use crate::error::Error;
use crate::memory::{ExportKind, Mmap, Permissions};

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

/// Connects two instances that were started.
fn connect(a: &Side, b: &Side) -> (*mut doca_rdma_connection, *mut doca_rdma_connection) {
    let ((a_details, to_b), (b_details, to_a)) = (a.export(), b.export());
    ok(a.connect(to_b, &b_details));
    ok(b.connect(to_a, &a_details));
    (to_b, to_a)
}

#[test]
fn submissions_beyond_the_send_queue_are_refused_until_completions_are_reaped() {
    let (a, b) = (Side::new(ALL, 1), Side::start(ALL, 1));
    // SAFETY: a live handle.
    ok(unsafe { doca_rdma_set_send_queue_size(a.rdma, 3) });
    // SAFETY: a live handle.
    ok(unsafe { doca_ctx_start(a.ctx()) });
    let (to_b, _) = connect(&a, &b);
    let tasks: Vec<_> = (0..8).map(|user| a.send(to_b, null_mut(), user)).collect();
    for task in &tasks[..4] {
        submit(*task);
    }
    // SAFETY: a live task.
    let refused = |task| unsafe { doca_task_submit(task) } == Error::Full.code();
    assert!(refused(tasks[4]), "3 is rounded up to 4");
    for user in 0..2 {
        submit(b.receive(null_mut(), user));
    }
    assert!(refused(tasks[4]), "no completion was reaped");
    assert_eq!(a.wait(2), [(0, 0), (1, 0)]);
    submit(tasks[4]);
    submit(tasks[5]);
    assert!(refused(tasks[6]));
    // A task that is complete when its submission returns is in the queue until its completion is reaped.
    for user in 2..6 {
        submit(b.receive(null_mut(), user));
    }
    assert_eq!(a.wait(6).len(), 6);
    let (theirs, local, bufs) = (
        Memory::new(64, REMOTE_ATOMIC, Placement::Pages),
        Memory::local(64),
        Bufs::new(),
    );
    let remote = import(&theirs.export());
    let mut reads: Vec<_> = (0..5)
        .map(|at| {
            let from = bufs.data(&remote, at * 8, 8);
            let to = bufs.room(&local.mmap, at * 8, 8);
            a.read(to_b, (c(from), c(to)), 10 + at as u64)
        })
        .collect();
    let last = reads.pop().expect("five");
    reads.into_iter().for_each(submit);
    assert!(refused(last));
    assert_eq!(a.wait(10).len(), 10);
    submit(last);
    assert_eq!(a.wait(11)[10], (14, 0));
}

#[test]
fn default_send_queue_has_room_for_all_configured_tasks() {
    let (a, b) = pair();
    let ((a, to_b), (b, _)) = (a, b);
    let mut size = 0;
    // SAFETY: a live handle and a valid out-parameter.
    ok(unsafe { doca_rdma_get_send_queue_size(a.rdma, &mut size) });
    assert!(size >= 10 * super::POOL, "{size}");
    for user in 0..u64::from(super::POOL) {
        submit(a.send(to_b, null_mut(), user));
        submit(a.send_imm(to_b, null_mut(), 0, user));
        submit(a.write_imm(to_b, (null_mut(), null_mut()), 0, user));
    }
    a.rest(&b);
    assert_eq!(a.completed(), []);
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
    // Over the network, the sender makes progress to learn of receives that were posted late.
    b.wait_until("three messages", |b| {
        a.progress();
        b.completed().len() == 3
    });
    assert_eq!(b.completed(), [(0, 0), (1, 0), (2, 0)]);
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
    // One receive at a time, for any of the four senders, which do not block each other.
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
    // The remaining sends are pending, and the central instance sends to each of the others.
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
    // The slot of the ended connection can be reused.
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
    // Completes immediately, because no peer has a reason to send a wake-up.
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

/// An instance with this number of retries, connected to another.
fn pair_with_retries(count: u8) -> ((Side, *mut doca_rdma_connection), Side) {
    let (a, b) = (Side::new(ALL, 1), Side::start(ALL, 1));
    // SAFETY: a live handle.
    unsafe {
        ok(doca_rdma_set_rnr_retry_count(a.rdma, count));
        ok(doca_ctx_start(a.ctx()));
    }
    let (to_b, _) = connect(&a, &b);
    ((a, to_b), b)
}

#[test]
fn message_without_a_receive_fails_after_the_retries_and_stops_the_context() {
    let (failed, aborted) = (Error::IoFailed.code(), Error::ConnectionAborted.code());
    for kind in 0..3 {
        let ((a, to_b), b) = pair_with_retries(0);
        let no_buf = null_mut();
        submit(match kind {
            0 => a.send(to_b, no_buf, 1),
            1 => a.send_imm(to_b, no_buf, 5, 1),
            _ => a.write_imm(to_b, (no_buf, no_buf), 5, 1),
        });
        submit(a.send(to_b, no_buf, 2));
        assert_eq!(a.wait(2), [(1, failed), (2, aborted)], "without retries");
        assert_eq!(a.state(), DOCA_CTX_STATE_STOPPING);
        let states = a.log.states.borrow().clone();
        let last = (DOCA_CTX_STATE_RUNNING, DOCA_CTX_STATE_STOPPING);
        assert_eq!(states.last(), Some(&last));
        b.wait_until("the end", |b| b.log.disconnected.get() == 1);
    }
}

#[test]
fn sleeping_engine_wakes_when_the_last_retry_fails() {
    let ((a, to_b), b) = pair_with_retries(1);
    submit(b.receive(null_mut(), 1));
    submit(a.send(to_b, null_mut(), 2));
    assert_eq!(a.wait(1), [(2, 0)], "a receive is posted");
    a.rest(&b);
    let start = Instant::now();
    submit(a.send(to_b, null_mut(), 3));
    wait(&a, 2, "the last retry");
    assert_eq!(a.completed()[1], (3, Error::IoFailed.code()));
    let waited = start.elapsed();
    assert!(waited >= Duration::from_millis(655), "{waited:?}");
}

#[test]
fn receive_that_is_posted_between_retries_is_used() {
    let ((a, to_b), b) = pair_with_retries(6);
    submit(a.send(to_b, null_mut(), 1));
    a.rest(&b);
    assert_eq!(a.completed(), []);
    submit(b.receive(null_mut(), 2));
    assert_eq!(a.wait(1), [(1, 0)]);
    assert_eq!(b.wait(1), [(2, 0)]);
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

/// Sets a property of an idle instance, gets it, and fails to set it while the instance runs.
macro_rules! check {
    ($idle:expr, $running:expr; $($set:ident, $get:ident: $set_to:expr => $value:expr;)+) => { $(
        let mut value = Default::default();
        ok($get($idle.rdma, &mut value));
        assert_ne!(value, $value, "{}: the test sets what it was", stringify!($set));
        ok($set($idle.rdma, $set_to));
        ok($get($idle.rdma, &mut value));
        assert_eq!(value, $value, stringify!($get));
        assert_eq!($set($running.rdma, $set_to), Error::BadState.code(), stringify!($set));
        assert_eq!($get($idle.rdma, null_mut()), Error::InvalidValue.code());
        assert_eq!($get(null_mut(), &mut value), Error::InvalidValue.code());
        assert_eq!($set(null_mut(), $set_to), Error::InvalidValue.code());
    )+ };
}

#[test]
fn properties_are_set_before_the_start_and_read_afterwards() {
    let (idle, running) = (Side::new(0b11, 3), Side::start(ALL, 1));
    // SAFETY: live handles, or NULL; valid out-parameters, or NULL.
    unsafe {
        check! { idle, running;
            doca_rdma_set_permissions, doca_rdma_get_permissions: 0b111 => 0b111;
            doca_rdma_set_max_num_connections, doca_rdma_get_max_num_connections: 5 => 5;
            doca_rdma_set_max_send_buf_list_len, doca_rdma_get_max_send_buf_list_len: 2 => 2;
            doca_rdma_task_receive_set_dst_buf_list_len, doca_rdma_task_receive_get_dst_buf_list_len: 3 => 3;
            doca_rdma_set_transport_type, doca_rdma_get_transport_type:
                DOCA_RDMA_TRANSPORT_TYPE_DC => DOCA_RDMA_TRANSPORT_TYPE_DC;
            doca_rdma_set_gid_index, doca_rdma_get_gid_index: 1 => 1;
            doca_rdma_set_send_queue_size, doca_rdma_get_send_queue_size: 2000 => 2048;
            doca_rdma_set_recv_queue_size, doca_rdma_get_recv_queue_size: 200 => 256;
            doca_rdma_set_mtu, doca_rdma_get_mtu: DOCA_MTU_SIZE_4K_BYTES => DOCA_MTU_SIZE_4K_BYTES;
            doca_rdma_set_sl, doca_rdma_get_sl: 4 => 4;
            doca_rdma_set_rnr_retry_count, doca_rdma_get_rnr_retry_count: 6 => 6;
            doca_rdma_set_connection_request_timeout, doca_rdma_get_connection_request_timeout: 50 => 50;
        }
        let mut grh = 0;
        ok(doca_rdma_set_grh_enabled(idle.rdma, 1));
        ok(doca_rdma_get_grh_enabled(idle.rdma, &mut grh));
        assert_eq!(grh, 1);
        let other = doca_rdma_set_transport_type(idle.rdma, 2);
        assert_eq!(other, Error::NotSupported.code());
    }
}

#[test]
fn lists_that_are_longer_than_configured_are_refused() {
    let side = Side::new(ALL, 1);
    // SAFETY: live handles.
    unsafe {
        ok(doca_rdma_set_max_send_buf_list_len(side.rdma, 1));
        ok(doca_rdma_task_receive_set_dst_buf_list_len(side.rdma, 2));
        ok(doca_ctx_start(side.ctx()));
    }
    let (_, connection) = side.export();
    let (memory, bufs) = (Memory::local(64), Bufs::new());
    let list = bufs.data(&memory.mmap, 0, 8);
    list.chain(bufs.data(&memory.mmap, 8, 8)).expect("a list");
    submit(side.receive(c(list), 1));
    let send = side.send(connection, c(list), 2);
    // SAFETY: a live task.
    let refused = unsafe { crate::capi::doca_pe::doca_task_submit(send) };
    assert_eq!(refused, Error::InvalidValue.code());
    list.chain(bufs.data(&memory.mmap, 16, 8)).expect("a list");
    let receive = side.receive(c(list), 3);
    // SAFETY: a live task.
    let refused = unsafe { crate::capi::doca_pe::doca_task_submit(receive) };
    assert_eq!(refused, Error::InvalidValue.code());
}

#[test]
fn data_longer_than_a_message_is_refused() {
    const LIMIT: usize = 1 << 31;
    let ((a, to_b), (b, _)) = super::pair();
    // Never accessed, so the kernel allocates no pages for it. SAFETY: a new mapping at an address chosen by the
    // kernel.
    let base = unsafe {
        rustix::mm::mmap_anonymous(
            null_mut(),
            LIMIT + 4096,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    };
    let base = base.expect("room for addresses").cast::<u8>();
    let mmap = Mmap::new();
    mmap.set_memrange(base.expose_provenance() as u64, LIMIT as u64 + 4096)
        .expect("a range");
    mmap.add_device(&device()).expect("a first device");
    mmap.start().expect("the range is mapped");
    let (mmap, bufs) = (Arc::new(mmap), Bufs::new());
    let receive = b.receive(null_mut(), 1);
    submit(receive);
    let long = c(bufs.data(&mmap, 0, LIMIT + 1));
    let too_big = Error::TooBig.code();
    submit(a.send(to_b, long, 2));
    submit(a.write(to_b, (long, c(bufs.room(&mmap, 0, 8))), 3));
    assert_eq!(a.wait(2), [(2, too_big), (3, too_big)]);
    // The peer's receive is still posted.
    submit(a.send(to_b, null_mut(), 4));
    assert_eq!(a.wait(3)[2], (4, 0));
    assert_eq!(b.wait(1), [(1, 0)]);
    drop((bufs, mmap));
    // SAFETY: created above, and not used any more.
    unsafe { rustix::mm::munmap(base.cast(), LIMIT + 4096) }.expect("a mapping");
}

#[test]
fn devices_report_their_capabilities() {
    let device = device();
    let info: *const doca_devinfo = Arc::as_ptr(device.info()).cast();
    // SAFETY: a live device's information, or NULL; valid out-parameters, or NULL.
    unsafe {
        for is_supported in [
            doca_rdma_cap_task_receive_is_supported,
            doca_rdma_cap_task_send_is_supported,
            doca_rdma_cap_task_send_imm_is_supported,
            doca_rdma_cap_task_read_is_supported,
            doca_rdma_cap_task_write_is_supported,
            doca_rdma_cap_task_write_imm_is_supported,
            doca_rdma_cap_task_atomic_cmp_swp_is_supported,
            doca_rdma_cap_task_atomic_fetch_add_is_supported,
        ] {
            assert_eq!(is_supported(info), 0);
            assert_eq!(is_supported(null()), Error::InvalidValue.code());
        }
        for (tell, expected) in [
            (
                doca_rdma_cap_get_max_send_queue_size as unsafe extern "C" fn(_, _) -> _,
                32_768,
            ),
            (doca_rdma_cap_get_max_recv_queue_size, 32_768),
            (doca_rdma_cap_get_max_send_buf_list_len, 32),
            (doca_rdma_cap_get_max_message_size, 1 << 31),
            (doca_rdma_cap_get_gid_table_size, 2),
        ] {
            let mut value = 0;
            ok(tell(info, &mut value));
            assert_eq!(value, expected);
            assert_eq!(tell(info, null_mut()), Error::InvalidValue.code());
            assert_eq!(tell(null(), &mut value), Error::InvalidValue.code());
        }
        let mut len = 0;
        let rc = DOCA_RDMA_TRANSPORT_TYPE_RC;
        ok(doca_rdma_cap_task_receive_get_max_dst_buf_list_len(
            info, rc, &mut len,
        ));
        assert_eq!(len, 32);
        let list_len = doca_rdma_cap_task_receive_get_max_dst_buf_list_len;
        let invalid = Error::InvalidValue.code();
        assert_eq!(list_len(info, rc, null_mut()), invalid);
        assert_eq!(list_len(null(), rc, &mut len), invalid);
        assert_eq!(list_len(info, 2, &mut len), invalid);
        for transport in [rc, DOCA_RDMA_TRANSPORT_TYPE_DC] {
            ok(doca_rdma_cap_transport_type_is_supported(info, transport));
        }
        let unsupported = doca_rdma_cap_transport_type_is_supported(info, 2);
        assert_eq!(unsupported, Error::NotSupported.code());

        let mut gids = [doca_rdma_gid::default(); 2];
        ok(doca_rdma_cap_get_gid(info, 1, 1, gids.as_mut_ptr()));
        assert_eq!(gids[0].raw[10..], [0xff, 0xff, 127, 0, 0, 1]);
        assert_eq!(gids[1].raw, [0; 16], "one was asked for");
        for (start, count) in [(0, 0), (0, 3), (2, 1), (u32::MAX, u32::MAX)] {
            let refused = doca_rdma_cap_get_gid(info, start, count, gids.as_mut_ptr());
            assert_eq!(refused, Error::InvalidValue.code(), "{count} from {start}");
        }
    }
}

#[test]
fn connections_have_numbers_and_data() {
    let side = Side::start(ALL, 2);
    let ((_, one), (_, two)) = (side.export(), side.export());
    let (mut ids, mut data) = ([9; 2], doca_data { u64: 1 });
    // SAFETY: live connections and valid out-parameters, or NULL.
    unsafe {
        ok(doca_rdma_connection_get_id(one, &mut ids[0]));
        ok(doca_rdma_connection_get_id(two, &mut ids[1]));
        assert_ne!(ids[0], ids[1]);
        ok(doca_rdma_connection_get_user_data(one, &mut data));
        assert_eq!(data.u64, 0);
        ok(doca_rdma_connection_set_user_data(
            one,
            doca_data { u64: 5 },
        ));
        ok(doca_rdma_connection_get_user_data(one, &mut data));
        assert_eq!(data.u64, 5);
        let invalid = Error::InvalidValue.code();
        assert_eq!(doca_rdma_connection_get_id(null(), &mut ids[0]), invalid);
        assert_eq!(doca_rdma_connection_get_id(one, null_mut()), invalid);
        assert_eq!(
            doca_rdma_connection_get_user_data(null(), &mut data),
            invalid
        );
    }
}

/// Sets and gets a buf; a NULL task is ignored.
macro_rules! check_bufs {
    ($task:expr, $buf:expr; $($set:ident, $get:ident;)+) => { $(
        assert!(!std::ptr::eq($get($task), $buf), stringify!($get));
        $set($task, $buf);
        assert!(std::ptr::eq($get($task), $buf), stringify!($get));
        $set($task, null_mut());
        assert!($get($task).is_null());
        $set(null_mut(), $buf);
        assert!($get(null()).is_null());
    )+ };
}

macro_rules! check_values {
    ($task:expr; $($set:ident, $get:ident: $before:expr;)+) => { $(
        assert_eq!($get($task), $before, stringify!($get));
        $set($task, 0x1234_5678);
        assert_eq!($get($task), 0x1234_5678, stringify!($set));
        $set(null_mut(), 1);
        assert_eq!($get(null()), 0);
    )+ };
}

macro_rules! check_connection {
    ($task:expr, $old:expr, $new:expr; $set:ident, $get:ident) => {
        assert_eq!($get($task), $old.cast_const(), stringify!($get));
        $set($task, null_mut());
        assert_eq!(
            $get($task),
            $old.cast_const(),
            "no connection of the instance"
        );
        $set($task, $new);
        assert_eq!($get($task), $new.cast_const(), stringify!($set));
        $set(null_mut(), $new);
        assert!($get(null()).is_null());
    };
}

#[test]
fn task_fields_can_be_set_and_read() {
    let side = Side::start(ALL, 2);
    let ((_, one), (_, two)) = (side.export(), side.export());
    let (memory, bufs) = (Memory::local(64), Bufs::new());
    let buf = c(bufs.room(&memory.mmap, 0, 8));
    let none = (null_mut(), null_mut());
    // SAFETY: live tasks of their kinds, or NULL.
    unsafe {
        let send: *mut doca_rdma_task_send = side.send(one, null_mut(), 1).cast();
        check_bufs!(send, buf; doca_rdma_task_send_set_src_buf, doca_rdma_task_send_get_src_buf;);
        check_connection!(send, one, two; doca_rdma_task_send_set_rdma_connection, doca_rdma_task_send_get_rdma_connection);
        assert_eq!(doca_rdma_task_send_as_task(send), send.cast());

        let send: *mut doca_rdma_task_send_imm = side.send_imm(one, null_mut(), 7, 1).cast();
        check_bufs!(send, buf; doca_rdma_task_send_imm_set_src_buf, doca_rdma_task_send_imm_get_src_buf;);
        check_values!(send; doca_rdma_task_send_imm_set_immediate_data, doca_rdma_task_send_imm_get_immediate_data: 7;);
        check_connection!(send, one, two; doca_rdma_task_send_imm_set_rdma_connection, doca_rdma_task_send_imm_get_rdma_connection);
        assert_eq!(doca_rdma_task_send_imm_as_task(send), send.cast());

        let receive: *mut doca_rdma_task_receive = side.receive(null_mut(), 1).cast();
        check_bufs!(receive, buf; doca_rdma_task_receive_set_dst_buf, doca_rdma_task_receive_get_dst_buf;);
        assert_eq!(doca_rdma_task_receive_as_task(receive), receive.cast());

        let read: *mut doca_rdma_task_read = side.read(one, none, 1).cast();
        check_bufs!(read, buf;
            doca_rdma_task_read_set_src_buf, doca_rdma_task_read_get_src_buf;
            doca_rdma_task_read_set_dst_buf, doca_rdma_task_read_get_dst_buf;);
        check_connection!(read, one, two; doca_rdma_task_read_set_rdma_connection, doca_rdma_task_read_get_rdma_connection);
        assert_eq!(doca_rdma_task_read_as_task(read), read.cast());

        let write: *mut doca_rdma_task_write = side.write(one, none, 1).cast();
        check_bufs!(write, buf;
            doca_rdma_task_write_set_src_buf, doca_rdma_task_write_get_src_buf;
            doca_rdma_task_write_set_dst_buf, doca_rdma_task_write_get_dst_buf;);
        check_connection!(write, one, two; doca_rdma_task_write_set_rdma_connection, doca_rdma_task_write_get_rdma_connection);
        assert_eq!(doca_rdma_task_write_as_task(write), write.cast());

        let write: *mut doca_rdma_task_write_imm = side.write_imm(one, none, 8, 1).cast();
        check_bufs!(write, buf;
            doca_rdma_task_write_imm_set_src_buf, doca_rdma_task_write_imm_get_src_buf;
            doca_rdma_task_write_imm_set_dst_buf, doca_rdma_task_write_imm_get_dst_buf;);
        check_values!(write; doca_rdma_task_write_imm_set_immediate_data, doca_rdma_task_write_imm_get_immediate_data: 8;);
        check_connection!(write, one, two; doca_rdma_task_write_imm_set_rdma_connection, doca_rdma_task_write_imm_get_rdma_connection);
        assert_eq!(doca_rdma_task_write_imm_as_task(write), write.cast());

        let swap: *mut doca_rdma_task_atomic_cmp_swp =
            side.compare_swap(one, none, (3, 4), 1).cast();
        check_bufs!(swap, buf;
            doca_rdma_task_atomic_cmp_swp_set_dst_buf, doca_rdma_task_atomic_cmp_swp_get_dst_buf;
            doca_rdma_task_atomic_cmp_swp_set_result_buf, doca_rdma_task_atomic_cmp_swp_get_result_buf;);
        check_values!(swap;
            doca_rdma_task_atomic_cmp_swp_set_cmp_data, doca_rdma_task_atomic_cmp_swp_get_cmp_data: 3;
            doca_rdma_task_atomic_cmp_swp_set_swap_data, doca_rdma_task_atomic_cmp_swp_get_swap_data: 4;);
        check_connection!(swap, one, two;
            doca_rdma_task_atomic_cmp_swp_set_rdma_connection, doca_rdma_task_atomic_cmp_swp_get_rdma_connection);

        let add: *mut doca_rdma_task_atomic_fetch_add = side.fetch_add(one, none, 5, 1).cast();
        check_bufs!(add, buf;
            doca_rdma_task_atomic_fetch_add_set_dst_buf, doca_rdma_task_atomic_fetch_add_get_dst_buf;
            doca_rdma_task_atomic_fetch_add_set_result_buf, doca_rdma_task_atomic_fetch_add_get_result_buf;);
        check_values!(add; doca_rdma_task_atomic_fetch_add_set_add_data, doca_rdma_task_atomic_fetch_add_get_add_data: 5;);
        check_connection!(add, one, two;
            doca_rdma_task_atomic_fetch_add_set_rdma_connection, doca_rdma_task_atomic_fetch_add_get_rdma_connection);
    }
}

/// Fields that are set after the allocation of a task apply when it is submitted.
#[test]
fn fields_that_were_set_take_effect() {
    let (a, b, other) = (
        Side::start(ALL, 2),
        Side::start(ALL, 1),
        Side::start(ALL, 1),
    );
    let ((a1, to_b), (a2, to_other)) = (a.export(), a.export());
    let ((b1, b_connection), (other1, other_connection)) = (b.export(), other.export());
    ok(a.connect(to_b, &b1));
    ok(a.connect(to_other, &other1));
    ok(b.connect(b_connection, &a1));
    ok(other.connect(other_connection, &a2));
    let theirs = Memory::new(4096, REMOTE_ATOMIC, Placement::Pages);
    let remote = import(&theirs.export());
    let (local, bufs) = (Memory::local(64), Bufs::new());
    local.write(0, b"moved");

    let send = a.send_imm(to_b, null_mut(), 1, 1);
    let write = a.write(to_b, (null_mut(), null_mut()), 2);
    let add = a.fetch_add(to_b, (null_mut(), null_mut()), 1, 3);
    // SAFETY: live tasks of these kinds.
    unsafe {
        doca_rdma_task_send_imm_set_rdma_connection(send.cast(), to_other);
        doca_rdma_task_send_imm_set_src_buf(send.cast(), c(bufs.data(&local.mmap, 0, 5)));
        doca_rdma_task_send_imm_set_immediate_data(send.cast(), 0xBEEF);
        doca_rdma_task_write_set_src_buf(write.cast(), c(bufs.data(&local.mmap, 0, 5)));
        doca_rdma_task_write_set_dst_buf(write.cast(), c(bufs.room(&remote, 8, 8)));
        doca_rdma_task_atomic_fetch_add_set_dst_buf(add.cast(), c(bufs.data(&remote, 16, 8)));
        doca_rdma_task_atomic_fetch_add_set_result_buf(add.cast(), c(bufs.room(&local.mmap, 8, 8)));
        doca_rdma_task_atomic_fetch_add_set_add_data(add.cast(), 77);
    }
    let room = bufs.room(&local.mmap, 32, 16);
    let receive = other.receive(c(room), 9);
    submit(receive);
    for task in [send, write, add] {
        submit(task);
    }
    assert_eq!(a.wait(3), [(1, 0), (2, 0), (3, 0)]);
    assert_eq!(other.wait(1), [(9, 0)]);
    assert_eq!(local.read(32, 5), b"moved");
    // SAFETY: a completed receive task.
    let immediate = unsafe { doca_rdma_task_receive_get_result_immediate_data(receive.cast()) };
    assert_eq!(immediate, 0xBEEF);
    assert_eq!(theirs.read(8, 5), b"moved");
    assert_eq!(super::access::word(&theirs, 16), 77);
}
