//! Events of the other side of PCIe, within one process. Between processes: `doca_rdma::tests::across`.

use std::ptr::{null, null_mut};

use doca_abi::doca_sync_event;

use super::super::*;
use super::fixture::{Dev, Se, ok};
use crate::error::Error;

/// An event for the other side of PCIe, started.
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
    // The importer may go first, and come back.
    drop(theirs);
    let again = import(&dev, &blob).expect("an export");
    again.start();
    assert_eq!(again.get(), 1);
    // With the event its importers lose it.
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
fn exports_are_for_whom_they_were_announced() {
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
    // Another address than that of the value, outside of its memory.
    stopped[16] ^= 1;
    assert_eq!(import(&dev, &stopped).err(), Some(invalid));
}

/// A map of the program in which the event is one value among others.
#[test]
fn a_value_inside_of_a_larger_map_is_shared() {
    use crate::buffer::BufInventory;
    use crate::memory::{Mmap, Permissions};
    use std::cell::UnsafeCell;
    use std::sync::Arc;

    // Not a whole page: peers go through the agent.
    let place = Box::new(UnsafeCell::new([0_u64; 8]));
    let addr = place.get().cast::<u64>().expose_provenance() as u64;
    let mmap = Mmap::new();
    mmap.set_memrange(addr, 64).expect("a range");
    mmap.set_permissions(Permissions::LOCAL_READ_WRITE | Permissions::RDMA)
        .expect("not started");
    mmap.add_device(&super::fixture::device())
        .expect("a device");
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
