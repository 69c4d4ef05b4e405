//! Dynamic connections: only one side connects.

use doca_abi::DOCA_RDMA_TRANSPORT_TYPE_DC;

use super::super::*;
use super::memory::{Bufs, Memory, c};
use super::side::{ALL, Side, ok, submit};
use crate::capi::doca_ctx::doca_ctx_start;
use crate::error::Error;

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
fn a_target_that_has_not_connected_is_sent_to() {
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

    // The target does not hear of one that goes, and has room for the next.
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
fn both_sides_are_of_one_type_and_need_no_addresses() {
    let (dynamic, reliable) = (start(), Side::start(ALL, 1));
    let ((details, connection), (others, other)) = (dynamic.export(), reliable.export());
    let invalid = Error::InvalidValue.code();
    assert_eq!(reliable.connect(other, &details), invalid);
    assert_eq!(dynamic.connect(connection, &others), invalid);
    // SAFETY: a live handle.
    let listens = unsafe { doca_rdma_start_listen_to_port(dynamic.rdma, 4791) };
    assert_eq!(listens, Error::NotSupported.code());
}
