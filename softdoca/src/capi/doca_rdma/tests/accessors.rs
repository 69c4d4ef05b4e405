//! What tasks keep: every function that sets a field, and the one that gets it.

use std::ptr::{null, null_mut};

use doca_abi::{
    doca_rdma_task_atomic_cmp_swp, doca_rdma_task_atomic_fetch_add, doca_rdma_task_read,
    doca_rdma_task_receive, doca_rdma_task_send, doca_rdma_task_send_imm, doca_rdma_task_write,
    doca_rdma_task_write_imm,
};

use super::super::*;
use super::atomics::REMOTE;
use super::memory::{Bufs, Memory, Placement, c, import};
use super::side::{ALL, Side, ok, submit};

/// Sets a buf, and expects to get it; NULL as a task is nothing.
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
fn fields_of_tasks_are_set_and_got() {
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

/// What is set after a task was allocated is what it does when it is submitted.
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
    let theirs = Memory::new(4096, REMOTE, Placement::Pages);
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
    assert_eq!(super::atomics::word(&theirs, 16), 77);
}
