//! Programs that wait on an engine's descriptor. Nothing bounds their sleep, as it does inside `doca_pe_progress`: a ring
//! that is missed is an end that never comes.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Barrier;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use super::memory::{Bufs, Memory, c};
use super::side::{ALL, Side, ok, pair, submit};
use crate::capi::doca_pe::*;

fn arm(side: &Side) {
    // SAFETY: a live engine.
    ok(unsafe { doca_pe_request_notification(side.pe) });
}

/// Waits on the descriptor of an armed engine, and delivers what there is.
#[track_caller]
fn sleep(side: &Side, what: &str) {
    let mut handle = std::io::stdin().as_raw_fd();
    // SAFETY: a live engine and a valid out-parameter; the descriptor lives as long as the engine.
    let fd = unsafe {
        ok(doca_pe_get_notification_handle(side.pe, &mut handle));
        BorrowedFd::borrow_raw(handle)
    };
    let patience = Timespec {
        tv_sec: 5,
        tv_nsec: 0,
    };
    let woken = rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&patience));
    assert_eq!(woken, Ok(1), "nobody rang for {what}");
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
fn what_the_program_submits_after_arming_rings() {
    let ((a, to_b), (b, _)) = pair();
    let (memory, bufs) = (Memory::local(4096), Bufs::new());
    let receive = b.receive(c(bufs.room(&memory.mmap, 0, 64)), 1);
    let send = a.send(to_b, c(bufs.data(&memory.mmap, 64, 64)), 2);
    submit(receive);
    a.rest(&b);
    arm(&a);
    // Sent, and therefore complete, at once: no peer has a reason to ring.
    submit(send);
    while a.completed().is_empty() {
        sleep(&a, "a send that is complete");
    }
    b.wait(1);
}

/// Sends and receives one message per round, and sleeps at whatever moment chance says.
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
