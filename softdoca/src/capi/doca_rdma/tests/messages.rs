//! Send and receive.

use doca_abi::{
    DOCA_CTX_STATE_IDLE, DOCA_RDMA_OPCODE_RECV_SEND, DOCA_RDMA_OPCODE_RECV_SEND_WITH_IMM,
    doca_rdma_task_receive,
};

use super::super::*;
use super::memory::{Bufs, Memory, Placement, c, import};
use super::side::{Side, pair, submit};
use crate::capi::doca_ctx::doca_ctx_stop;
use crate::capi::doca_pe::doca_task_free;
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
    let (a, b) = (
        Side::start(super::side::ALL, 1),
        Side::start(super::side::ALL, 1),
    );
    let ((a_details, to_b), (b_details, to_a)) = (a.export(), b.export());
    let (memory, bufs) = (Memory::local(4096), Bufs::new());
    memory.write(0, b"onetwothree");
    for (i, (offset, len)) in [(0, 3), (3, 3), (6, 5)].into_iter().enumerate() {
        submit(a.send(to_b, c(bufs.data(&memory.mmap, offset, len)), i as u64));
    }
    a.progress();
    assert_eq!(a.completed(), [], "nobody to send to");
    super::side::ok(a.connect(to_b, &b_details));
    super::side::ok(b.connect(to_a, &a_details));
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
            let side = Side::start(super::side::ALL, 1);
            let (memory, bufs) = (Memory::local(1 << 16), Bufs::new());
            let (details, connection) = side.export();
            send.send(details).expect("a peer");
            super::side::ok(side.connect(connection, &take.recv().expect("a peer")));
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
            // The peer may still wait for what is sent, not for more.
        }
    };
    let first = std::thread::spawn(run(to_second, for_second));
    let second = std::thread::spawn(run(to_first, for_first));
    first.join().expect("the first side");
    second.join().expect("the second side");
}

/// Memory of another host that only its agent reaches.
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
fn a_message_that_breaks_off_ends_the_connection_for_both() {
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
        // SAFETY: a live task; the free is carried out when it completes or is flushed.
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
