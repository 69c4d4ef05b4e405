//! Tasks on sync events of the peer.

use std::ptr::{null, null_mut};
use std::sync::Arc;

use doca_abi::{
    doca_buf, doca_data, doca_dev, doca_rdma_connection, doca_sync_event,
    doca_sync_event_remote_net, doca_task,
};

use super::super::*;
use super::access::word;
use super::{ALL, Bufs, Memory, Side, c, device, ok, pair, pair_with, submit};
use crate::capi::doca_sync_event::*;
use crate::capi::give;
use crate::device::Device;
use crate::error::Error;
use crate::memory::Permissions;

/// A started event that network peers may signal, and an open device.
pub(super) struct Exported {
    pub(super) event: *mut doca_sync_event,
    dev: *mut doca_dev,
}

impl Exported {
    pub(super) fn new() -> Exported {
        let mut event = null_mut();
        let dev = give::<doca_dev>(device());
        // SAFETY: live handles and a valid out-parameter.
        unsafe {
            ok(doca_sync_event_create(&mut event));
            ok(doca_sync_event_add_publisher_location_remote_net(event));
            ok(doca_sync_event_add_subscriber_location_cpu(event, dev));
            ok(doca_sync_event_start(event));
        }
        Exported { event, dev }
    }

    pub(super) fn blob(&self) -> Vec<u8> {
        let (mut data, mut size) = (null(), 0);
        // SAFETY: a live handle and valid out-parameters; the blob is readable for its size.
        unsafe {
            ok(doca_sync_event_export_to_remote_net(
                self.event, &mut data, &mut size,
            ));
            std::slice::from_raw_parts(data, size).to_vec()
        }
    }

    pub(super) fn value(&self) -> u64 {
        let mut value = 0;
        // SAFETY: a live handle and a valid out-parameter.
        ok(unsafe { doca_sync_event_get(self.event, &mut value) });
        value
    }

    pub(super) fn set(&self, value: u64) {
        // SAFETY: a live handle.
        ok(unsafe { doca_sync_event_update_set(self.event, value) });
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: live handles, not used afterwards.
            unsafe {
                ok(doca_sync_event_stop(self.event));
                ok(doca_sync_event_destroy(self.event));
                drop(Arc::from_raw(self.dev.cast::<Device>()));
            }
        }
    }
}

/// An event imported from an export.
pub(super) struct Remote(pub(super) *mut doca_sync_event_remote_net);

impl Remote {
    pub(super) fn new(blob: &[u8]) -> Remote {
        let mut event = null_mut();
        let dev = give::<doca_dev>(device());
        // SAFETY: a live handle, readable bytes and a valid out-parameter.
        unsafe {
            let make = doca_sync_event_remote_net_create_from_export;
            ok(make(dev, blob.as_ptr(), blob.len(), &mut event));
            drop(Arc::from_raw(dev.cast::<Device>()));
        }
        Remote(event)
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // SAFETY: a live handle, not used afterwards.
        ok(unsafe { doca_sync_event_remote_net_destroy(self.0) });
    }
}

impl Side {
    pub(super) fn event_get(
        &self,
        connection: *mut doca_rdma_connection,
        (event, to): (*mut doca_sync_event_remote_net, *mut doca_buf),
        user: u64,
    ) -> *mut doca_task {
        let (mut task, user) = (null_mut(), doca_data { u64: user });
        // SAFETY: live handles and a valid out-parameter.
        unsafe {
            ok(doca_rdma_task_remote_net_sync_event_get_allocate_init(
                self.rdma, connection, event, to, user, &mut task,
            ));
            self.keep(doca_rdma_task_remote_net_sync_event_get_as_task(task))
        }
    }

    pub(super) fn event_set(
        &self,
        connection: *mut doca_rdma_connection,
        (event, from): (*mut doca_sync_event_remote_net, *mut doca_buf),
        user: u64,
    ) -> *mut doca_task {
        let (mut task, user) = (null_mut(), doca_data { u64: user });
        // SAFETY: as in `event_get`.
        unsafe {
            ok(
                doca_rdma_task_remote_net_sync_event_notify_set_allocate_init(
                    self.rdma, connection, event, from, user, &mut task,
                ),
            );
            self.keep(doca_rdma_task_remote_net_sync_event_notify_set_as_task(
                task,
            ))
        }
    }

    pub(super) fn event_add(
        &self,
        connection: *mut doca_rdma_connection,
        (event, result): (*mut doca_sync_event_remote_net, *mut doca_buf),
        add: u64,
        user: u64,
    ) -> *mut doca_task {
        let (mut task, user) = (null_mut(), doca_data { u64: user });
        // SAFETY: as in `event_get`.
        unsafe {
            ok(
                doca_rdma_task_remote_net_sync_event_notify_add_allocate_init(
                    self.rdma, connection, event, result, add, user, &mut task,
                ),
            );
            self.keep(doca_rdma_task_remote_net_sync_event_notify_add_as_task(
                task,
            ))
        }
    }
}

#[test]
fn remote_events_are_read_set_and_added_to() {
    let ((a, to_b), _b) = pair();
    let theirs = Exported::new();
    assert!(theirs.blob().len() <= 512, "programs have buffers for it");
    let event = Remote::new(&theirs.blob());
    let (local, bufs) = (Memory::local(64), Bufs::new());
    local.write(0, &0xD0CA_u64.to_ne_bytes());
    // A list works like one buf.
    let from = bufs.data(&local.mmap, 0, 3);
    from.chain(bufs.data(&local.mmap, 3, 5)).expect("a list");
    let to = bufs.room(&local.mmap, 32, 4);
    to.chain(bufs.room(&local.mmap, 36, 4)).expect("a list");
    let old = bufs.room(&local.mmap, 48, 8);
    submit(a.event_set(to_b, (event.0, c(from)), 1));
    submit(a.event_add(to_b, (event.0, c(old)), 5, 2));
    let get = a.event_get(to_b, (event.0, c(to)), 3);
    submit(get);
    assert_eq!(a.wait(3), [(1, 0), (2, 0), (3, 0)]);
    assert_eq!(theirs.value(), 0xD0CA + 5);
    assert_eq!(word(&local, 48), 0xD0CA);
    assert_eq!((word(&local, 32), to.list_data_len()), (0xD0CA + 5, 8));
    // SAFETY: a live task.
    let len = unsafe { doca_rdma_task_remote_net_sync_event_get_get_result_len(get.cast()) };
    assert_eq!(len, 8);
    // Changes by the exporter are visible.
    theirs.set(u64::MAX);
    to.reset_data_len();
    let back = bufs.room(&local.mmap, 56, 8);
    submit(a.event_get(to_b, (event.0, c(back)), 4));
    a.wait(4);
    assert_eq!(word(&local, 56), u64::MAX);
}

#[test]
fn events_need_the_permissions_of_the_table() {
    let (local_only, none) = (Permissions::LOCAL_READ_WRITE, Permissions::empty());
    let cases = [
        // Peer's instance, this side's map; may get, set, add.
        (ALL, local_only, [true, true, true]),
        (0b0010, local_only, [true, false, false]),
        (0b0100, local_only, [false, true, false]),
        (0b1000, local_only, [false, false, true]),
        (ALL, none, [false, false, false]),
    ];
    for (number, (instance, ours, allowed)) in cases.into_iter().enumerate() {
        let ((a, to_b), _b) = pair_with(0, instance);
        let theirs = Exported::new();
        let event = Remote::new(&theirs.blob());
        let local = Memory::new(64, ours, super::Placement::Pages);
        let bufs = Bufs::new();
        let room = |at| c(bufs.room(&local.mmap, at, 8));
        submit(a.event_get(to_b, (event.0, room(0)), 0));
        submit(a.event_set(to_b, (event.0, c(bufs.data(&local.mmap, 8, 8))), 1));
        submit(a.event_add(to_b, (event.0, room(16)), 3, 2));
        let codes = allowed.map(|allowed| match allowed {
            true => 0,
            false => Error::NotPermitted.code(),
        });
        let expected = [(0, codes[0]), (1, codes[1]), (2, codes[2])];
        assert_eq!(a.wait(3), expected, "case {number}");
        assert_eq!(theirs.value(), if allowed[2] { 3 } else { 0 });
    }
}

#[test]
fn incomplete_tasks_fail_and_leave_the_event_unchanged() {
    let ((a, to_b), _b) = pair();
    let theirs = Exported::new();
    theirs.set(7);
    let event = Remote::new(&theirs.blob());
    let (local, bufs) = (Memory::local(64), Bufs::new());
    let (none, no_buf) = (null_mut(), null_mut());
    let small = c(bufs.room(&local.mmap, 0, 7));
    let room = c(bufs.room(&local.mmap, 8, 8));
    let (invalid, big) = (Error::InvalidValue.code(), Error::TooBig.code());
    let tasks = [
        (a.event_get(to_b, (none, room), 0), invalid),
        (a.event_get(to_b, (event.0, no_buf), 1), invalid),
        (a.event_get(to_b, (event.0, small), 2), big),
        (
            a.event_set(to_b, (none, c(bufs.data(&local.mmap, 16, 8))), 3),
            invalid,
        ),
        (a.event_set(to_b, (event.0, no_buf), 4), invalid),
        (
            a.event_set(to_b, (event.0, c(bufs.data(&local.mmap, 16, 9))), 5),
            invalid,
        ),
        (
            a.event_set(to_b, (event.0, c(bufs.data(&local.mmap, 16, 4))), 6),
            invalid,
        ),
        (a.event_add(to_b, (none, room), 1, 7), invalid),
        (a.event_add(to_b, (event.0, no_buf), 1, 8), invalid),
        (a.event_add(to_b, (event.0, small), 1, 9), big),
    ];
    for (task, _) in tasks {
        submit(task);
    }
    let expected: Vec<_> = (0..).zip(tasks.map(|(_, code)| code)).collect();
    assert_eq!(a.wait(tasks.len()), expected);
    assert_eq!(theirs.value(), 7);
}

#[test]
fn event_task_fields_can_be_set_and_read() {
    let side = Side::start(ALL, 2);
    let ((_, one), (_, two)) = (side.export(), side.export());
    let theirs = Exported::new();
    let (event, other) = (Remote::new(&theirs.blob()), Remote::new(&theirs.blob()));
    let (memory, bufs) = (Memory::local(64), Bufs::new());
    let buf = c(bufs.room(&memory.mmap, 0, 8));
    macro_rules! check {
        ($task:expr; $($set:ident, $get:ident: $before:expr, $after:expr;)+) => { $(
            assert!(std::ptr::eq($get($task), $before), stringify!($get));
            $set($task, $after);
            assert!(std::ptr::eq($get($task), $after), stringify!($set));
            $set(null_mut(), $before);
            assert!($get(null()).is_null());
        )+ };
    }
    // SAFETY: live tasks of their kinds, or NULL.
    unsafe {
        let get = side.event_get(one, (event.0, null_mut()), 1).cast();
        check!(get;
            doca_rdma_task_remote_net_sync_event_get_set_dst_buf, doca_rdma_task_remote_net_sync_event_get_get_dst_buf: null_mut::<doca_buf>(), buf;
            doca_rdma_task_remote_net_sync_event_get_set_sync_event, doca_rdma_task_remote_net_sync_event_get_get_sync_event: event.0, other.0;
            doca_rdma_task_remote_net_sync_event_get_set_rdma_connection, doca_rdma_task_remote_net_sync_event_get_get_rdma_connection: one, two;);
        let set = side.event_set(one, (event.0, null_mut()), 1).cast();
        check!(set;
            doca_rdma_task_remote_net_sync_event_notify_set_set_src_buf, doca_rdma_task_remote_net_sync_event_notify_set_get_src_buf: null::<doca_buf>(), buf;
            doca_rdma_task_remote_net_sync_event_notify_set_set_sync_event, doca_rdma_task_remote_net_sync_event_notify_set_get_sync_event: event.0, other.0;
            doca_rdma_task_remote_net_sync_event_notify_set_set_rdma_connection, doca_rdma_task_remote_net_sync_event_notify_set_get_rdma_connection: one, two;);
        let add = side.event_add(one, (event.0, null_mut()), 5, 1).cast();
        check!(add;
            doca_rdma_task_remote_net_sync_event_notify_add_set_result_buf, doca_rdma_task_remote_net_sync_event_notify_add_get_result_buf: null_mut::<doca_buf>(), buf;
            doca_rdma_task_remote_net_sync_event_notify_add_set_sync_event, doca_rdma_task_remote_net_sync_event_notify_add_get_sync_event: event.0, other.0;
            doca_rdma_task_remote_net_sync_event_notify_add_set_rdma_connection, doca_rdma_task_remote_net_sync_event_notify_add_get_rdma_connection: one, two;);
        assert_eq!(
            doca_rdma_task_remote_net_sync_event_notify_add_get_add_data(add),
            5
        );
        doca_rdma_task_remote_net_sync_event_notify_add_set_add_data(add, 6);
        assert_eq!(
            doca_rdma_task_remote_net_sync_event_notify_add_get_add_data(add),
            6
        );
        doca_rdma_task_remote_net_sync_event_notify_add_set_add_data(null_mut(), 6);
        assert_eq!(
            doca_rdma_task_remote_net_sync_event_notify_add_get_add_data(null()),
            0
        );
        assert_eq!(
            doca_rdma_task_remote_net_sync_event_get_get_result_len(null()),
            0
        );

        let device = device();
        let info = Arc::as_ptr(device.info()).cast();
        for is_supported in [
            doca_rdma_cap_task_remote_net_sync_event_get_is_supported,
            doca_rdma_cap_task_remote_net_sync_event_notify_set_is_supported,
            doca_rdma_cap_task_remote_net_sync_event_notify_add_is_supported,
        ] {
            assert_eq!(is_supported(info), 0);
            assert_eq!(is_supported(null()), Error::InvalidValue.code());
        }
        let unsupported = Error::NotSupported.code();
        let mut handle = 0;
        assert_eq!(
            doca_rdma_get_dpa_handle(side.rdma, &mut handle),
            unsupported
        );
        assert_eq!(doca_rdma_get_gpu_handle(side.rdma, null_mut()), unsupported);
        assert_eq!(
            doca_rdma_dpa_completion_attach(side.rdma, null_mut()),
            unsupported
        );
        let invalid = Error::InvalidValue.code();
        assert_eq!(doca_rdma_get_dpa_handle(null_mut(), &mut handle), invalid);
        assert_eq!(doca_rdma_get_gpu_handle(null_mut(), null_mut()), invalid);
        assert_eq!(
            doca_rdma_dpa_completion_attach(null_mut(), null_mut()),
            invalid
        );
    }
}
