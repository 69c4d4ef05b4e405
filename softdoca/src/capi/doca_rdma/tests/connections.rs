//! Exporting, connecting and disconnecting; dynamic connections, where only one side connects.

use doca_abi::{
    DOCA_CTX_STATE_IDLE, DOCA_CTX_STATE_RUNNING, DOCA_CTX_STATE_STOPPING,
    DOCA_RDMA_TRANSPORT_TYPE_DC,
};

use super::super::*;
use super::{ALL, Bufs, Memory, Side, c, ok, pair, submit};
use crate::capi::doca_pe::doca_ctx_start;
use crate::error::Error;

#[test]
fn an_instance_runs_when_it_is_started_and_is_idle_when_stopped() {
    let side = Side::new(ALL, 1);
    assert_eq!(
        side.try_export().unwrap_err(),
        Error::BadState.code(),
        "not started"
    );
    // SAFETY: a live handle.
    ok(unsafe { crate::capi::doca_pe::doca_ctx_start(side.ctx()) });
    assert_eq!(side.state(), DOCA_CTX_STATE_RUNNING);
    // SAFETY: a live handle.
    unsafe {
        assert_eq!(
            doca_rdma_set_permissions(side.rdma, 1),
            Error::BadState.code()
        );
        assert_eq!(doca_rdma_destroy(side.rdma), Error::BadState.code());
    }
    let (details, _) = side.export();
    assert!(details.len() <= 512);
    assert_eq!(side.try_export().unwrap_err(), Error::Full.code());
    side.stop();
    assert_eq!(
        *side.log.states.borrow(),
        [
            (DOCA_CTX_STATE_IDLE, DOCA_CTX_STATE_RUNNING),
            (DOCA_CTX_STATE_RUNNING, DOCA_CTX_STATE_IDLE)
        ]
    );
    // SAFETY: a live handle.
    ok(unsafe { crate::capi::doca_pe::doca_ctx_start(side.ctx()) });
    side.export();
}

#[test]
fn details_are_valid_for_one_peer_while_the_connection_exists() {
    let (a, b, late) = (
        Side::start(ALL, 1),
        Side::start(ALL, 1),
        Side::start(ALL, 1),
    );
    let ((details, _), (b_details, b_connection), (_, late_connection)) =
        (a.export(), b.export(), late.export());
    assert_eq!(
        b.connect(late_connection, &details),
        Error::InvalidValue.code(),
        "another's"
    );
    assert_eq!(
        b.connect(b_connection, &details[1..]),
        Error::InvalidValue.code()
    );
    assert_eq!(b.connect(b_connection, &[]), Error::InvalidValue.code());
    ok(b.connect(b_connection, &details));
    assert_eq!(b.connect(b_connection, &details), Error::BadState.code());
    assert_eq!(
        late.connect(late_connection, &details),
        Error::AlreadyExist.code(),
        "a replay"
    );
    b.stop();
    assert_eq!(
        late.connect(late_connection, &b_details),
        Error::ConnectionAborted.code()
    );
    late.wait_until("nothing", |_| true);
    assert_eq!(a.log.established.get() + late.log.established.get(), 0);
    assert_eq!(
        b.log.established.get(),
        0,
        "it stopped before the callback was called"
    );
}

#[test]
fn stopping_flushes_tasks_and_closes_the_connection_for_the_peer() {
    let ((a, to_b), (b, to_a)) = pair();
    let (memory, bufs) = (Memory::local(4096), Bufs::new());
    submit(b.receive(c(bufs.room(&memory.mmap, 0, 10)), 1));
    submit(b.receive(c(bufs.room(&memory.mmap, 10, 10)), 2));
    submit(b.send(to_a, c(bufs.data(&memory.mmap, 20, 10)), 3));
    // Messages sent before the disconnection arrive before its event.
    memory.write(30, b"last words");
    submit(a.send(to_b, c(bufs.data(&memory.mmap, 30, 10)), 4));
    a.wait(1);
    a.stop();
    let reset = Error::ConnectionReset.code();
    b.free_failed_tasks();
    assert_eq!(b.wait(2)[..2], [(1, 0), (3, reset)]);
    assert_eq!(memory.read(0, 10), b"last words");
    assert_eq!(b.log.established.get(), 1);
    // The failed send was the last possible use of the connection, which breaks the context.
    b.wait_until("the stop", |b| b.state() == DOCA_CTX_STATE_STOPPING);
    b.wait_until("the flush", |b| b.completed().len() == 3);
    assert_eq!(b.completed()[2], (2, Error::ConnectionAborted.code()));
    b.wait_until("the disconnection", |b| b.log.disconnected.get() == 1);
}

#[test]
fn an_orderly_disconnect_leaves_receives_posted() {
    let ((a, to_b), (b, _)) = pair();
    submit(b.receive(std::ptr::null_mut(), 1));
    a.stop();
    b.wait_until("the disconnection", |b| b.log.disconnected.get() == 1);
    assert_eq!(b.state(), DOCA_CTX_STATE_RUNNING);
    assert_eq!(b.completed(), []);
    let _ = to_b;
    // Its slot is free again.
    let c = Side::start(ALL, 1);
    let ((b_details, b_connection), (c_details, c_connection)) = (b.export(), c.export());
    ok(b.connect(b_connection, &c_details));
    ok(c.connect(c_connection, &b_details));
    submit(c.send(c_connection, std::ptr::null_mut(), 5));
    assert_eq!(c.wait(1), [(5, 0)]);
    assert_eq!(b.wait(1), [(1, 0)]);
}

#[test]
fn a_disconnected_connection_fails_its_tasks() {
    let ((a, to_b), (b, _)) = pair();
    let queued = a.send(to_b, std::ptr::null_mut(), 1);
    submit(queued);
    // SAFETY: a live connection.
    unsafe {
        ok(doca_rdma_connection_disconnect(to_b));
        // As programs do when they are notified.
        ok(doca_rdma_connection_disconnect(to_b));
    }
    a.free_failed_tasks();
    assert_eq!(a.wait(1), [(1, Error::ConnectionReset.code())]);
    b.wait_until("the disconnection", |b| b.log.disconnected.get() == 1);
    a.rest(&b);
    assert_eq!(a.log.disconnected.get(), 1, "reported once");
}

#[test]
fn a_send_on_an_ended_connection_fails_through_its_callback() {
    let ((a, to_b), (b, _)) = pair();
    b.stop();
    a.wait_until("the disconnection", |a| a.log.disconnected.get() == 1);
    submit(a.send(to_b, std::ptr::null_mut(), 1));
    assert_eq!(a.wait(1), [(1, Error::ConnectionReset.code())]);
}

#[test]
fn pointers_that_are_no_connection_are_refused() {
    let ((a, _), (_, to_a)) = pair();
    let mut task = std::ptr::null_mut();
    let none = doca_abi::doca_data { u64: 0 };
    // SAFETY: the connection pointer is not dereferenced; the others are valid.
    unsafe {
        assert_eq!(
            doca_rdma_task_send_allocate_init(a.rdma, to_a, std::ptr::null(), none, &mut task),
            Error::InvalidValue.code()
        );
        assert_eq!(
            doca_rdma_task_send_allocate_init(
                a.rdma,
                std::ptr::null_mut(),
                std::ptr::null(),
                none,
                &mut task
            ),
            Error::InvalidValue.code()
        );
        assert_eq!(
            doca_rdma_connection_disconnect(std::ptr::null_mut()),
            Error::InvalidValue.code()
        );
        assert_eq!(
            doca_rdma_create(std::ptr::null_mut(), &mut std::ptr::null_mut()),
            Error::InvalidValue.code()
        );
    }
}

fn start() -> Side {
    let side = Side::new(ALL, 2);
    // SAFETY: live handles.
    unsafe {
        ok(doca_rdma_set_transport_type(
            side.rdma,
            DOCA_RDMA_TRANSPORT_TYPE_DC,
        ));
        ok(doca_ctx_start(side.ctx()));
    }
    side
}

#[test]
fn a_send_reaches_a_target_that_has_not_connected() {
    let (initiator, target) = (start(), start());
    let ((_, to_target), (details, _)) = (initiator.export(), target.export());
    ok(initiator.connect(to_target, &details));

    let (memory, bufs) = (Memory::local(4096), Bufs::new());
    memory.write(0, b"dynamic");
    submit(target.receive(c(bufs.room(&memory.mmap, 100, 50)), 1));
    submit(initiator.send(to_target, c(bufs.data(&memory.mmap, 0, 7)), 2));
    assert_eq!(initiator.wait(1), [(2, 0)]);
    assert_eq!(target.wait(1), [(1, 0)]);
    assert_eq!(memory.read(100, 8), b"dynamic\0");

    // The target is not notified of a departing initiator, and accepts the next.
    initiator.stop();
    for _ in 0..1000 {
        target.progress();
    }
    assert_eq!(target.log.disconnected.get(), 0);
    assert_eq!(target.log.established.get(), 0);
    target.export();
    target.export();
}

#[test]
fn both_sides_need_the_same_transport_and_dynamic_ones_cannot_listen() {
    let (dynamic, reliable) = (start(), Side::start(ALL, 1));
    let ((details, connection), (others, other)) = (dynamic.export(), reliable.export());
    let invalid = Error::InvalidValue.code();
    assert_eq!(reliable.connect(other, &details), invalid);
    assert_eq!(dynamic.connect(connection, &others), invalid);
    // SAFETY: a live handle.
    let listens = unsafe { doca_rdma_start_listen_to_port(dynamic.rdma, 4791) };
    assert_eq!(listens, Error::NotSupported.code());
}
