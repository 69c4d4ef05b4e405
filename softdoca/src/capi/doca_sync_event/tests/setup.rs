//! Who uses an event, and where its value lies.

use std::cell::UnsafeCell;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use doca_abi::{doca_buf, doca_devinfo, doca_sync_event_remote_net};

use super::super::*;
use super::fixture::{Dev, Se, device, ok};
use crate::buffer::BufInventory;
use crate::error::Error;
use crate::memory::{Mmap, Permissions};

/// Each location is worth as much as the CPU, in its role.
#[test]
fn an_event_needs_a_publisher_and_a_subscriber() {
    let dev = Dev::open();
    let cpu_publishes = doca_sync_event_add_publisher_location_cpu;
    let cpu_subscribes = doca_sync_event_add_subscriber_location_cpu;
    // SAFETY: live handles, or NULL.
    unsafe {
        for publish in [
            doca_sync_event_add_publisher_location_remote_net,
            doca_sync_event_add_publisher_location_remote_pci,
        ] {
            let event = Se::create();
            ok(publish(event.0));
            assert_eq!(doca_sync_event_start(event.0), Error::BadState.code());
            ok(cpu_subscribes(event.0, dev.0));
            event.start();
            let late = publish(event.0);
            assert_eq!(late, Error::BadState.code(), "it is started");
            assert_eq!(publish(null_mut()), Error::InvalidValue.code());
        }
        let subscribe = doca_sync_event_add_subscriber_location_remote_pci;
        let event = Se::create();
        ok(subscribe(event.0));
        assert_eq!(doca_sync_event_start(event.0), Error::BadState.code());
        ok(cpu_publishes(event.0, dev.0));
        event.start();
        assert_eq!(subscribe(event.0), Error::BadState.code());
        assert_eq!(subscribe(null_mut()), Error::InvalidValue.code());
        for add in [cpu_publishes, cpu_subscribes] {
            let invalid = Error::InvalidValue.code();
            assert_eq!(add(null_mut(), dev.0), invalid);
            let event = Se::create();
            assert_eq!(add(event.0, null_mut()), invalid);
            assert_eq!(doca_sync_event_start(event.0), Error::BadState.code());
        }
        assert_eq!(
            doca_sync_event_create(null_mut()),
            Error::InvalidValue.code()
        );
        assert_eq!(
            doca_sync_event_destroy(null_mut()),
            Error::InvalidValue.code()
        );
        assert_eq!(
            doca_sync_event_start(null_mut()),
            Error::InvalidValue.code()
        );
        assert_eq!(doca_sync_event_stop(null_mut()), Error::InvalidValue.code());
    }
}

#[test]
fn the_value_lies_where_the_program_wants() {
    let place = Box::new(UnsafeCell::new([7_u64; 2]));
    let addr: *mut u64 = place.get().cast();
    let event = Se::local();
    // SAFETY: a live handle; the address is good until the event is stopped.
    unsafe {
        let crooked = addr.cast::<u8>().add(4).cast();
        let invalid = Error::InvalidValue.code();
        assert_eq!(doca_sync_event_set_addr(event.0, crooked), invalid);
        assert_eq!(doca_sync_event_set_addr(event.0, null_mut()), invalid);
        assert_eq!(doca_sync_event_set_addr(null_mut(), addr), invalid);
        ok(doca_sync_event_set_addr(event.0, addr));
        event.start();
        let late = doca_sync_event_set_addr(event.0, addr);
        assert_eq!(late, Error::BadState.code());
    }
    assert_eq!(event.get(), 7, "what was there");
    event.set(8);
    // SAFETY: nobody else uses it at this moment.
    assert_eq!(unsafe { addr.read() }, 8);
    drop(event);
}

#[test]
fn the_value_lies_in_a_buf() {
    let place = Box::new(UnsafeCell::new([7_u64; 512]));
    let addr = place.get().cast::<u64>().expose_provenance() as u64;
    let map = |permissions: Permissions| {
        let mmap = Mmap::new();
        mmap.set_memrange(addr, 4096).expect("a range");
        mmap.set_permissions(permissions).expect("not started");
        mmap.add_device(&device()).expect("a device");
        mmap.start().expect("mapped memory");
        Arc::new(mmap)
    };
    let everything = Permissions::LOCAL_READ_WRITE | Permissions::RDMA;
    let inventory = BufInventory::new(8).expect("memory");
    inventory.start();
    let event = Se::local();
    let (mmap, private) = (map(everything), map(Permissions::LOCAL_READ_WRITE));
    let buf = |mmap: &Arc<Mmap>, offset, len| -> *mut doca_buf {
        let buf = inventory
            .get_by_data(mmap, addr + offset, len)
            .expect("a buf");
        std::ptr::from_ref(buf).cast_mut().cast()
    };
    let refused = Error::NotPermitted.code();
    // SAFETY: live handles, or NULL.
    unsafe {
        let set_buf = |buf| doca_sync_event_set_doca_buf(event.0, buf);
        assert_eq!(set_buf(buf(&mmap, 8, 9)), refused);
        assert_eq!(set_buf(buf(&mmap, 8, 7)), refused);
        assert_eq!(set_buf(buf(&private, 8, 8)), refused);
        assert_eq!(set_buf(buf(&mmap, 4, 8)), Error::InvalidValue.code());
        assert_eq!(set_buf(null_mut()), Error::InvalidValue.code());
        ok(set_buf(buf(&mmap, 16, 8)));
    }
    event.start();
    event.set(99);
    assert_eq!(mmap.load(addr + 16), Ok(99));
    assert_eq!(mmap.load(addr + 8), Ok(7));
    // SAFETY: a live handle.
    ok(unsafe { doca_sync_event_stop(event.0) });
    assert!(mmap.is_usable(), "it is the program's");
}

#[test]
fn devices_tell_what_they_can_do_and_the_rest_is_not_supported() {
    let device = device();
    let info: *const doca_devinfo = Arc::as_ptr(device.info()).cast();
    let invalid = Error::InvalidValue.code();
    let unsupported = Error::NotSupported.code();
    // SAFETY: a live device's information, live events, or NULL; the other pointers are not followed.
    unsafe {
        for (capability, expected) in [
            (
                doca_sync_event_cap_is_create_from_export_supported as unsafe extern "C" fn(_) -> _,
                0,
            ),
            (doca_sync_event_cap_is_export_to_remote_net_supported, 0),
            (doca_sync_event_cap_is_export_to_remote_pci_supported, 0),
            (
                doca_sync_event_cap_remote_net_is_create_from_export_supported,
                0,
            ),
            (doca_sync_event_cap_task_get_is_supported, 0),
            (doca_sync_event_cap_task_notify_set_is_supported, 0),
            (doca_sync_event_cap_task_notify_add_is_supported, 0),
            (doca_sync_event_cap_task_wait_eq_is_supported, 0),
            (doca_sync_event_cap_task_wait_neq_is_supported, 0),
            (doca_sync_event_cap_is_export_to_dpa_supported, unsupported),
            (doca_sync_event_cap_is_export_to_gpu_supported, unsupported),
            (
                doca_sync_event_cap_remote_net_is_export_to_dpa_supported,
                unsupported,
            ),
            (
                doca_sync_event_cap_remote_net_is_export_to_gpu_supported,
                unsupported,
            ),
        ] {
            assert_eq!(capability(info), expected);
            assert_eq!(capability(null::<doca_devinfo>()), invalid);
        }
        let event = Se::create();
        let (dpa, gpu, mut out) = (null_mut(), null_mut(), 0);
        let remote: *mut doca_sync_event_remote_net = event.0.cast();
        for code in [
            doca_sync_event_add_publisher_location_dpa(event.0, dpa),
            doca_sync_event_add_subscriber_location_dpa(event.0, dpa),
            doca_sync_event_get_dpa_handle(event.0, dpa, &mut out),
            doca_sync_event_remote_net_get_dpa_handle(remote, dpa, &mut out),
            doca_sync_event_add_publisher_location_gpu(event.0, gpu),
            doca_sync_event_add_subscriber_location_gpu(event.0, gpu),
            doca_sync_event_get_gpu_handle(event.0, gpu, null_mut()),
            doca_sync_event_remote_net_get_gpu_handle(remote, gpu, &mut out),
        ] {
            assert_eq!(code, unsupported);
        }
        let none = doca_sync_event_get_dpa_handle(null_mut(), dpa, &mut out);
        assert_eq!(none, invalid);
    }
}
