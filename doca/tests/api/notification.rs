//! Waiting for events without polling: the engine's descriptor.

use std::time::{Duration, Instant};

use crate::support::{connected_pair, devices, isolated, settle};
use doca::{ComchEvent, Device, Event, Pe};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

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
