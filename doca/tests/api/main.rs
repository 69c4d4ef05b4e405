//! The Rust API over softdoca: devices, memory maps, inventories and bufs; waiting for events on the engine's descriptor
//! instead of polling. All tests are in one binary to save link time.

mod accelerators;
mod comch;
mod rdma;
#[path = "../support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use doca::{Access, BufInventory, ComchEvent, Device, ErrorCode, Event, MemoryRegion, Mmap, Pe};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use support::{connected_pair, devices, isolated, memory, settle};

#[test]
fn a_device_has_several_names() {
    isolated("a_device_has_several_names", || {
        for name in ["0000:03:00.0", "03:00.0", "mlx5_0"] {
            Device::open(name).unwrap();
        }
        let error = Device::open("no such device").unwrap_err();
        assert_eq!(error.code, ErrorCode::NOT_FOUND);
        assert!(
            error.to_string().contains("0000:03:00.0"),
            "the devices that exist are named: {error}"
        );
        assert_eq!(
            Device::open("mlx5\0").unwrap_err().code,
            ErrorCode::INVALID_VALUE
        );
    });
}

#[test]
fn only_the_dpu_has_representors() {
    isolated("only_the_dpu_has_representors", || {
        let dpu = Device::open("mlx5_0").unwrap();
        dpu.open_representor("3b:00.0").unwrap();
        let error = dpu.open_representor("3c:00.0").unwrap_err();
        assert_eq!(error.code, ErrorCode::NOT_FOUND);
        assert!(error.to_string().contains("0000:3b:00.0"), "{error}");
        let host = Device::open("3b:00.0").unwrap();
        let code = host.open_representor("3b:00.0").unwrap_err().code;
        assert!(
            matches!(code, ErrorCode::NOT_SUPPORTED | ErrorCode::NOT_FOUND),
            "{code}"
        );
    });
}

#[test]
fn a_buf_is_bounded_by_its_map() {
    isolated("a_buf_is_bounded_by_its_map", || {
        let (mmap, inventory) = memory(&devices().dpu, 10_000, Access::LOCAL_READ_WRITE);
        assert_eq!(mmap.len(), 10_000);
        assert_eq!(
            inventory.buf(&mmap, 9_999, 2).unwrap_err().code,
            ErrorCode::INVALID_VALUE
        );
        assert_eq!(
            inventory.buf(&mmap, u64::MAX, 2).unwrap_err().code,
            ErrorCode::INVALID_VALUE
        );
        assert_eq!(
            inventory
                .buf_with_data(&mmap, 1, usize::MAX)
                .unwrap_err()
                .code,
            ErrorCode::INVALID_VALUE
        );

        let buf = inventory.buf_with_data(&mmap, 100, 10).unwrap();
        assert_eq!(buf.data_len().unwrap(), 10);
        for (offset, len) in [(10_000, 1), (0, 10_001), (u64::MAX, 1), (1, usize::MAX)] {
            assert_eq!(
                buf.set_range(offset, len).unwrap_err().code,
                ErrorCode::INVALID_VALUE
            );
            assert_eq!(
                buf.set_data(offset, len).unwrap_err().code,
                ErrorCode::INVALID_VALUE
            );
        }
        assert_eq!(
            (buf.data_len().unwrap(), buf.capacity()),
            (10, 10),
            "a refused change changes nothing"
        );

        // Longer than the initial data, whose length is not a limit.
        buf.set_data(0, 10_000).unwrap();
        assert_eq!((buf.data_len().unwrap(), buf.capacity()), (10_000, 10_000));
        buf.set_range(5_000, 5_000).unwrap();
        assert_eq!((buf.data_len().unwrap(), buf.capacity()), (0, 5_000));
    });
}

#[test]
fn data_is_copied_in_and_out() {
    isolated("data_is_copied_in_and_out", || {
        let (mmap, inventory) = memory(&devices().dpu, 4096, Access::LOCAL_READ_WRITE);
        let buf = inventory.buf(&mmap, 64, 8).unwrap();
        let mut bytes = [0; 16];
        assert_eq!(buf.read_data(&mut bytes).unwrap(), 0);
        buf.write_data(b"request").unwrap();
        assert_eq!(buf.data_len().unwrap(), 7);
        assert_eq!(buf.read_data(&mut bytes).unwrap(), 7);
        assert_eq!(&bytes[..7], b"request");
        assert_eq!(buf.read_data(&mut bytes[..3]).unwrap(), 3);
        mmap.region().unwrap().read(64, &mut bytes).unwrap();
        assert_eq!(&bytes[..8], b"request\0");
        assert_eq!(
            buf.write_data(b"too long.").unwrap_err().code,
            ErrorCode::TOO_BIG
        );
        buf.reset_data().unwrap();
        assert_eq!(buf.data_len().unwrap(), 0);
    });
}

#[test]
fn an_inventory_has_as_many_bufs_as_it_was_made_with() {
    isolated("an_inventory_has_as_many_bufs_as_it_was_made_with", || {
        let (mmap, _) = memory(&devices().dpu, 4096, Access::LOCAL_READ_WRITE);
        let inventory = BufInventory::new(2).unwrap();
        let first = inventory.buf(&mmap, 0, 1).unwrap();
        let second = inventory.buf(&mmap, 0, 1).unwrap();
        let clone = first.clone();
        assert_eq!(
            inventory.buf(&mmap, 0, 1).unwrap_err().code,
            ErrorCode::NO_MEMORY
        );
        drop(first);
        assert!(inventory.buf(&mmap, 0, 1).is_err(), "a clone keeps the buf");
        drop(clone);
        inventory.buf(&mmap, 0, 1).unwrap();
        // The inventory and the map live as long as their bufs.
        drop((inventory, mmap));
        second.write_data(b"x").unwrap();
    });
}

#[test]
fn an_exported_map_is_imported() {
    isolated("an_exported_map_is_imported", || {
        let devices = devices();
        let region = MemoryRegion::new(10_000).unwrap();
        let mmap = Mmap::register(&devices.host, region, Access::PCI_READ_WRITE).unwrap();
        let blob = mmap.export_pci(&devices.host).unwrap();
        assert!(
            blob.len() <= 512,
            "programs have buffers of 512 bytes, and this blob has {}",
            blob.len()
        );
        let imported = Mmap::import(&devices.dpu, &blob).unwrap();
        assert_eq!(imported.len(), 10_000);
        assert!(imported.region().is_none());
        let inventory = BufInventory::new(1).unwrap();
        let buf = inventory.buf(&imported, 9_000, 1_000).unwrap();
        assert_eq!(
            buf.read_data(&mut [0]).unwrap_err().code,
            ErrorCode::NOT_SUPPORTED
        );
        assert_eq!(
            buf.write_data(&[0]).unwrap_err().code,
            ErrorCode::NOT_SUPPORTED
        );
        assert_eq!(
            buf.set_range(9_001, 1_000).unwrap_err().code,
            ErrorCode::INVALID_VALUE
        );
    });
}

#[test]
fn invalid_exports_and_imports_are_refused() {
    isolated("invalid_exports_and_imports_are_refused", || {
        let devices = devices();
        let (local, _) = memory(&devices.host, 4096, Access::LOCAL_READ_WRITE);
        local.export_pci(&devices.host).unwrap_err();
        local.export_rdma(&devices.host).unwrap_err();

        let (mmap, _) = memory(&devices.host, 4096, Access::PCI_READ_WRITE);
        let blob = mmap.export_pci(&devices.host).unwrap();
        Mmap::import(&devices.dpu, &[]).unwrap_err();
        Mmap::import(&devices.dpu, &blob[..blob.len() - 1]).unwrap_err();
        for index in 0..blob.len() {
            let mut damaged = blob.clone();
            damaged[index] ^= 0x55;
            // The import must neither crash nor result in a larger map.
            if let Ok(mmap) = Mmap::import(&devices.dpu, &damaged) {
                assert!(mmap.len() <= 4096, "byte {index}: {}", mmap.len());
            }
        }
    });
}

/// `true` if the engine's descriptor becomes readable within `milliseconds`.
fn is_readable(pe: &Pe, milliseconds: u32) -> bool {
    let time = Timespec::try_from(Duration::from_millis(milliseconds.into())).unwrap();
    let mut fds = [PollFd::new(pe, PollFlags::IN)];
    poll(&mut fds, Some(&time)).unwrap() == 1
}

#[test]
fn an_armed_engine_is_readable_when_something_has_happened() {
    isolated(
        "an_armed_engine_is_readable_when_something_has_happened",
        || {
            let devices = devices();
            let pair = connected_pair(&devices, "notification");
            settle(&[&pair.client_pe, &pair.server_pe]);
            let pe = &pair.client_pe;
            assert!(pe.poll().is_none());
            assert_eq!(pe.arm(), Ok(true));
            assert!(!is_readable(pe, 50), "nothing has happened");
            pair.server.send(&pair.server_end, b"hello").unwrap();
            assert!(is_readable(pe, 10_000));
            pe.disarm().unwrap();
            let start = Instant::now();
            let message = loop {
                assert!(start.elapsed() < Duration::from_secs(10));
                if let Some(Event::Comch(ComchEvent::Message { bytes, .. })) = pe.poll() {
                    break bytes;
                }
            };
            assert_eq!(message, b"hello");
            // Queued events are returned without waiting.
            pair.server.send(&pair.server_end, b"again").unwrap();
            let others = |done: &mut dyn FnMut() -> bool| {
                assert!(pe.progress_until(Duration::from_secs(10), done));
            };
            let before = pe.stats().hits;
            others(&mut || pe.stats().hits > before);
            assert_eq!(pe.arm(), Ok(false));
        },
    );
}

#[test]
fn devices_are_listed_with_their_capabilities() {
    isolated("devices_are_listed_with_their_capabilities", || {
        let list = Device::list().unwrap();
        let dpu = list
            .iter()
            .find(|device| device.ibdev.as_deref() == Some("mlx5_0"))
            .expect("the built-in topology has it");
        assert_eq!(dpu.pci_address, "0000:03:00.0");
        let can = dpu.capabilities;
        assert!(can.comch_server && !can.comch_client);
        let comch = can.comch.unwrap();
        assert!(comch.max_message_size >= 4080 && comch.max_clients > 0);
        assert!(can.consumer.unwrap().max_buf_size >= 1 << 20);
        assert!(can.producer.unwrap().max_tasks > 0);
        assert_eq!(can.rdma.unwrap().max_message_size, 1 << 31);
        assert_eq!(can.dma.unwrap().max_buf_list_len, 64);
        assert!(can.decompress_lz4_block.is_some() && can.compress_deflate.is_some());
        assert!(can.erasure_coding.unwrap().max_block_size >= 1 << 20);
        let open = Device::open(&dpu.pci_address).unwrap();
        assert_eq!(open.info().unwrap(), *dpu);
        assert_eq!(open.representors().unwrap(), ["0000:3b:00.0"]);
        let host = Device::open("3b:00.0").unwrap();
        assert!(host.info().unwrap().capabilities.comch_client);
        assert_eq!(host.representors().unwrap(), [""; 0]);
        assert_eq!(list.len(), 2, "{list:#?}");
    });
}
