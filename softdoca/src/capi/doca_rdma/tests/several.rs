//! One instance with several connections.

use doca_abi::{doca_rdma_connection, doca_rdma_task_receive};

use super::super::*;
use super::memory::{Bufs, Memory, c};
use super::side::{ALL, Side, ok, submit};
use crate::error::Error;

type End = (Side, *mut doca_rdma_connection);

/// An instance in the middle with a connection to each of `count` others.
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
fn receives_belong_to_whoever_sends_and_tell_who_it_was() {
    let (middle, connections, others) = star(4);
    assert_eq!(middle.try_export().unwrap_err(), Error::Full.code());
    let (memory, bufs) = (Memory::local(4096), Bufs::new());
    let receive = |at: usize| {
        let task = middle.receive(c(bufs.room(&memory.mmap, at * 8, 8)), at as u64);
        submit(task);
        task
    };
    // One receive at a time, for whichever of the four sends: none of them keeps it from the others.
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
    // The rest waits, and the middle sends to each of them.
    for ((other, _), connection) in others.iter().zip(connections) {
        submit(other.receive(std::ptr::null_mut(), 50));
        submit(middle.send(connection, std::ptr::null_mut(), 60));
        assert_eq!(other.wait(11)[10], (50, 0));
    }
    assert_eq!(middle.wait(33)[30..], [(60, 0), (60, 0), (60, 0)]);
}

#[test]
fn the_end_of_one_connection_leaves_the_others() {
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
    // Its place can be taken again.
    let (new, (details, connection)) = (Side::start(ALL, 1), middle.export());
    let (new_details, new_connection) = new.export();
    ok(middle.connect(connection, &new_details));
    ok(new.connect(new_connection, &details));
    submit(middle.receive(std::ptr::null_mut(), 4));
    submit(new.send(new_connection, std::ptr::null_mut(), 5));
    assert_eq!(new.wait(1), [(5, 0)]);
    assert_eq!(middle.wait(3)[2], (4, 0));
}
