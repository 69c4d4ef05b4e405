//! Configuration, operations on values, waiting, and events shared with the other side of PCIe within one process
//! (between processes: `doca_rdma::tests::processes`).

use std::cell::UnsafeCell;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use doca_abi::{doca_buf, doca_devinfo, doca_sync_event, doca_sync_event_remote_net};

use super::super::*;
use super::{Dev, Se, device, ok};
use crate::buffer::BufInventory;
use crate::error::Error;
use crate::memory::{Mmap, Permissions};

#[test]
fn values_can_be_set_added_to_and_read() {
    let event = Se::started();
    assert_eq!(event.get(), 0);
    event.set(40);
    assert_eq!(event.get(), 40);
    assert_eq!(event.add(2), 40);
    assert_eq!(event.get(), 42);
    assert_eq!(event.add(u64::MAX), 42);
    assert_eq!(event.get(), 41, "adding wraps around");
    let invalid = Error::InvalidValue.code();
    let mut value = 0;
    // SAFETY: live handles and valid out-parameters, or NULL.
    unsafe {
        assert_eq!(doca_sync_event_get(event.0, null_mut()), invalid);
        assert_eq!(doca_sync_event_get(null_mut(), &mut value), invalid);
        assert_eq!(doca_sync_event_update_set(null_mut(), 1), invalid);
        assert_eq!(
            doca_sync_event_update_add(null_mut(), 1, &mut value),
            invalid
        );
        assert_eq!(doca_sync_event_update_add(event.0, 1, null_mut()), invalid);
    }
    assert_eq!(event.get(), 41);
}

#[test]
fn concurrent_additions_all_count() {
    let event = Se::started();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    event.add(1);
                }
            });
        }
    });
    assert_eq!(event.get(), 3000);
}

/// Every function that waits returns immediately if its condition is fulfilled, and otherwise after another thread has
/// changed the value.
#[test]
fn waits_end_when_the_masked_value_fulfils_their_condition() {
    type Wait = unsafe extern "C" fn(*mut doca_abi::doca_sync_event, u64, u64) -> u32;
    // The function, its operand for the low byte, a value that does not fulfil the condition, one that does.
    let cases: [(Wait, u64, u64, u64); 6] = [
        (doca_sync_event_wait_eq, 5, 0x0104, 0x0305),
        (doca_sync_event_wait_eq_yield, 5, 0x0106, 0x0205),
        (doca_sync_event_wait_neq, 5, 0x0105, 0x0204),
        (doca_sync_event_wait_neq_yield, 5, 0x0205, 0x0206),
        (doca_sync_event_wait_gt, 5, 0x0105, 0x0106),
        (doca_sync_event_wait_gt_yield, 5, 0x0304, 0x01ff),
    ];
    for (number, (wait, operand, before, after)) in cases.into_iter().enumerate() {
        let event = Se::started();
        event.set(before);
        let waited = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                // SAFETY: a live handle, which the scope keeps.
                ok(unsafe { wait(event.raw(), operand, 0xff) });
                waited.store(true, Ordering::SeqCst);
            });
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waited.load(Ordering::SeqCst), "case {number}");
            event.set(after);
            waiter.join().expect("the wait ends");
        });
        // SAFETY: a live handle.
        ok(unsafe { wait(event.0, operand, 0xff) });
        // SAFETY: NULL.
        let none = unsafe { wait(null_mut(), operand, 0xff) };
        assert_eq!(none, Error::InvalidValue.code());
    }
}

#[test]
fn an_event_that_is_not_started_has_no_value() {
    let event = Se::local();
    let (mut value, state) = (0, Error::BadState.code());
    let check = |value: &mut u64| {
        // SAFETY: a live handle and a valid out-parameter.
        unsafe {
            assert_eq!(doca_sync_event_get(event.0, value), state);
            assert_eq!(doca_sync_event_update_set(event.0, 1), state);
            assert_eq!(doca_sync_event_update_add(event.0, 1, value), state);
            assert_eq!(doca_sync_event_wait_gt(event.0, 0, u64::MAX), state);
        }
    };
    check(&mut value);
    event.start();
    event.set(9);
    // SAFETY: a live handle.
    unsafe {
        assert_eq!(doca_sync_event_start(event.0), state, "a second time");
        assert_eq!(doca_sync_event_destroy(event.0), state, "it is started");
        ok(doca_sync_event_stop(event.0));
        assert_eq!(doca_sync_event_stop(event.0), state, "a second time");
    }
    check(&mut value);
    event.start();
    assert_eq!(event.get(), 0, "it begins anew");
}

/// Every location counts like the CPU in its role.
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
fn the_value_is_at_the_programs_address() {
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
    // SAFETY: not used by another thread at this moment.
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
fn capabilities_are_reported_and_the_rest_is_not_supported() {
    let device = device();
    let info: *const doca_devinfo = Arc::as_ptr(device.info()).cast();
    let invalid = Error::InvalidValue.code();
    let unsupported = Error::NotSupported.code();
    // SAFETY: a live device's information, live events, or NULL; the other pointers are not dereferenced.
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

/// A started event for the other side of PCIe.
fn shared(dev: &Dev) -> Se {
    let event = Se::create();
    // SAFETY: live handles.
    unsafe {
        ok(doca_sync_event_add_publisher_location_remote_pci(event.0));
        ok(doca_sync_event_add_subscriber_location_cpu(event.0, dev.0));
    }
    event.start();
    event
}

fn export_to_pci(event: &Se, dev: &Dev) -> std::result::Result<Vec<u8>, u32> {
    let (mut data, mut size) = (null(), 0);
    // SAFETY: live handles and valid out-parameters; the blob is readable for its size.
    unsafe {
        match doca_sync_event_export_to_remote_pci(event.0, dev.0, &mut data, &mut size) {
            0 => Ok(std::slice::from_raw_parts(data, size).to_vec()),
            code => Err(code),
        }
    }
}

fn import(dev: &Dev, blob: &[u8]) -> std::result::Result<Se, u32> {
    let mut event: *mut doca_sync_event = null_mut();
    // SAFETY: a live handle, readable bytes, and a valid out-parameter.
    match unsafe {
        doca_sync_event_create_from_export(dev.0, blob.as_ptr(), blob.len(), &mut event)
    } {
        0 => Ok(Se(event)),
        code => Err(code),
    }
}

#[test]
fn both_sides_see_one_value() {
    let dev = Dev::open();
    let ours = shared(&dev);
    let blob = export_to_pci(&ours, &dev).expect("it is for PCIe");
    assert!(blob.len() <= 512, "programs have buffers for it");
    assert_eq!(export_to_pci(&ours, &dev).as_ref(), Ok(&blob));
    let theirs = import(&dev, &blob).expect("an export");
    // SAFETY: a live handle.
    unsafe {
        let fixed = doca_sync_event_add_publisher_location_remote_pci(theirs.0);
        assert_eq!(
            fixed,
            Error::NotPermitted.code(),
            "an imported event is as it is"
        );
    }
    theirs.start();
    ours.set(5);
    assert_eq!(theirs.get(), 5);
    assert_eq!(theirs.add(2), 5);
    assert_eq!(ours.get(), 7);
    theirs.set(1);
    assert_eq!(ours.get(), 1);
    // The importer may be destroyed first, and import again.
    drop(theirs);
    let again = import(&dev, &blob).expect("an export");
    again.start();
    assert_eq!(again.get(), 1);
    // Importers lose access when the event is destroyed.
    drop(ours);
    let mut value = 0;
    // SAFETY: a live handle and a valid out-parameter.
    unsafe {
        let not_found = Error::NotFound.code();
        assert_eq!(doca_sync_event_get(again.0, &mut value), not_found);
        assert_eq!(doca_sync_event_update_set(again.0, 2), not_found);
        assert_eq!(doca_sync_event_wait_gt(again.0, 5, u64::MAX), not_found);
    }
    assert_eq!(import(&dev, &blob).err(), Some(Error::NotFound.code()));
}

#[test]
fn exports_are_limited_to_the_declared_locations() {
    let dev = Dev::open();
    let (local, pci) = (Se::started(), shared(&dev));
    let (mut data, mut size) = (null(), 0);
    let (refused, invalid) = (Error::NotPermitted.code(), Error::InvalidValue.code());
    let other =
        crate::device::Device::open_by_name("mlx5_1").expect("the built-in topology has it");
    let other = Dev(crate::capi::give(other));
    assert_eq!(export_to_pci(&local, &dev), Err(refused));
    assert_eq!(
        export_to_pci(&pci, &other),
        Err(invalid),
        "a device that it does not know"
    );
    let blob = export_to_pci(&pci, &dev).expect("it is for PCIe");
    let mut remote = null_mut();
    // SAFETY: live handles and valid out-parameters, or NULL; readable bytes.
    unsafe {
        let to_net = doca_sync_event_export_to_remote_net;
        assert_eq!(to_net(pci.0, &mut data, &mut size), refused);
        assert_eq!(to_net(null_mut(), &mut data, &mut size), invalid);
        assert_eq!(to_net(pci.0, null_mut(), &mut size), invalid);
        assert_eq!(to_net(pci.0, &mut data, null_mut()), invalid);
        let to_pci = doca_sync_event_export_to_remote_pci;
        assert_eq!(to_pci(pci.0, null_mut(), &mut data, &mut size), invalid);
        assert_eq!(to_pci(pci.0, dev.0, null_mut(), &mut size), invalid);
        let make = doca_sync_event_remote_net_create_from_export;
        let wrong = make(dev.0, blob.as_ptr(), blob.len(), &mut remote);
        assert_eq!(wrong, invalid, "an export for PCIe is none for the network");
        assert_eq!(make(dev.0, null(), 5, &mut remote), invalid);
        assert_eq!(
            make(null_mut(), blob.as_ptr(), blob.len(), &mut remote),
            invalid
        );
        assert_eq!(make(dev.0, blob.as_ptr(), blob.len(), null_mut()), invalid);
        let invalid_destroy = doca_sync_event_remote_net_destroy(null_mut());
        assert_eq!(invalid_destroy, invalid);
    }
    for len in [0, 1, 20, blob.len() - 1] {
        assert_eq!(
            import(&dev, &blob[..len]).err(),
            Some(invalid),
            "{len} bytes"
        );
    }
    let mut stopped = blob.clone();
    // An address outside of the value's memory.
    stopped[16] ^= 1;
    assert_eq!(import(&dev, &stopped).err(), Some(invalid));
}

/// The event is one value among others in a map of the program.
#[test]
fn a_value_inside_of_a_larger_map_is_shared() {
    use std::cell::UnsafeCell;
    use std::sync::Arc;

    use crate::buffer::BufInventory;
    use crate::memory::{Mmap, Permissions};

    // Not a whole page: peers use the agent.
    let place = Box::new(UnsafeCell::new([0_u64; 8]));
    let addr = place.get().cast::<u64>().expose_provenance() as u64;
    let mmap = Mmap::new();
    mmap.set_memrange(addr, 64).expect("a range");
    mmap.set_permissions(Permissions::LOCAL_READ_WRITE | Permissions::RDMA)
        .expect("not started");
    mmap.add_device(&super::device()).expect("a device");
    mmap.start().expect("mapped memory");
    let mmap = Arc::new(mmap);
    let inventory = BufInventory::new(1).expect("memory");
    inventory.start();
    let buf = inventory.get_by_data(&mmap, addr + 24, 8).expect("a buf");
    let dev = Dev::open();
    let event = Se::create();
    // SAFETY: live handles.
    unsafe {
        ok(doca_sync_event_add_publisher_location_remote_pci(event.0));
        ok(doca_sync_event_add_subscriber_location_cpu(event.0, dev.0));
        let buf = std::ptr::from_ref(buf).cast_mut().cast();
        ok(doca_sync_event_set_doca_buf(event.0, buf));
    }
    event.start();
    let theirs = import(&dev, &export_to_pci(&event, &dev).expect("for PCIe")).expect("an export");
    theirs.start();
    theirs.set(3);
    assert_eq!(theirs.add(4), 3);
    assert_eq!((event.get(), mmap.load(addr + 24)), (7, Ok(7)));
    assert_eq!(theirs.get(), 7);
}
