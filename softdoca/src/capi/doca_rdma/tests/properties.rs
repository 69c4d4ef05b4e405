//! Properties of instances, fields of tasks, and capabilities of devices.

use std::ptr::{null, null_mut};
use std::sync::Arc;

use doca_abi::{
    DOCA_MTU_SIZE_4K_BYTES, DOCA_RDMA_TRANSPORT_TYPE_DC, DOCA_RDMA_TRANSPORT_TYPE_RC, doca_data,
    doca_devinfo, doca_rdma_gid, doca_rdma_task_atomic_cmp_swp, doca_rdma_task_atomic_fetch_add,
    doca_rdma_task_read, doca_rdma_task_receive, doca_rdma_task_send, doca_rdma_task_send_imm,
    doca_rdma_task_write, doca_rdma_task_write_imm,
};
use rustix::mm::{MapFlags, ProtFlags};

use super::super::*;
use super::access::REMOTE_ATOMIC;
use super::{ALL, Bufs, Memory, Placement, Side, c, device, import, ok, submit};
use crate::capi::doca_pe::doca_ctx_start;
use crate::error::Error;
use crate::memory::Mmap;

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
            doca_rdma_set_send_queue_size, doca_rdma_get_send_queue_size: 1000 => 1024;
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
    // Never accessed: the kernel allocates no pages for it.
    // SAFETY: a new mapping at an address chosen by the kernel.
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
        assert_eq!(list_len(info, 2, &mut len), Error::NotSupported.code());
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
