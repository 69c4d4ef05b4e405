//! Addresses, atomics and events between processes.

use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use doca_abi::{doca_dev, doca_sync_event};

use super::addresses::{Addr, port, start};
use super::atomics::{REMOTE, aligned, word};
use super::memory::{Bufs, Memory, Placement, c, device, import};
use super::processes::{Peer, listen, say, wait_for_the_end, with_runtime_dir};
use super::remote_events::{Exported, Remote};
use super::side::{ALL, Side, Told, ok, submit};
use crate::capi::doca_sync_event::*;
use crate::capi::give;
use crate::device::Device;
use crate::error::Error;

/// Listens, accepts, and answers one message.
pub(super) fn server() {
    let port = u16::from_be_bytes(listen("port").try_into().expect("2 bytes"));
    let side = start(1);
    ok(side.listen(port));
    say("listening", &[]);
    let (memory, bufs) = (Memory::local(4096), Bufs::new());
    let room = bufs.room(&memory.mmap, 0, 64);
    submit(side.receive(c(room), 1));
    side.wait_until("a message", |side| side.completed() == [(1, 0)]);
    let (told, connection) = {
        let told = side.log.by_address.borrow();
        (told[1].0, told[1].1)
    };
    assert_eq!(told, Told::Established);
    submit(side.send(connection, c(room), 2));
    side.wait(2);
    side.wait_until("the end", |side| {
        side.told().last().map(|told| told.0) == Some(Told::Disconnection)
    });
}

#[test]
fn a_client_connects_to_a_server_of_another_process() {
    with_runtime_dir(|directory| {
        let port = port();
        let addr = Addr::local(port);
        let mut peer = Peer::start(directory, "server");
        peer.tell("port", &port.to_be_bytes());
        peer.hear("listening");
        let client = start(1);
        ok(client.call(&addr, 3));
        client.wait_until("the connection", |client| client.told().len() == 1);
        assert_eq!(client.told(), [(Told::Established, 3)]);
        let connection = client.last_connection();
        let (memory, bufs) = (Memory::local(4096), Bufs::new());
        memory.write(0, b"there and back");
        submit(client.receive(c(bufs.room(&memory.mmap, 100, 64)), 1));
        submit(client.send(connection, c(bufs.data(&memory.mmap, 0, 14)), 2));
        client.wait(2);
        assert_eq!(memory.read(100, 14), b"there and back");
        // SAFETY: a live connection.
        ok(unsafe { super::super::doca_rdma_connection_disconnect(connection) });
        peer.end();
    });
}

#[test]
fn a_server_that_dies_is_noticed_before_and_after_it_has_answered() {
    with_runtime_dir(|directory| {
        for connected in [false, true] {
            let port = port();
            let addr = Addr::local(port);
            let mut peer = Peer::start(directory, "server");
            peer.tell("port", &port.to_be_bytes());
            peer.hear("listening");
            let client = start(1);
            client.free_failed_tasks();
            if !connected {
                peer.stop();
            }
            ok(client.call(&addr, 3));
            if connected {
                client.wait_until("the connection", |client| client.told().len() == 1);
                submit(client.receive(null_mut(), 1));
            }
            peer.signal(rustix::process::Signal::KILL);
            let told = if connected {
                Told::Disconnection
            } else {
                Told::Failure
            };
            client.wait_until("the end", |client| client.told().last() == Some(&(told, 3)));
            if connected {
                let aborted = Error::ConnectionAborted.code();
                assert_eq!(client.wait(1), [(1, aborted)]);
            }
            peer.child.wait().expect("an exit");
        }
    });
}

/// Gives away two kinds of memory and an event, and waits for them to reach a value.
pub(super) fn counter() {
    const ROUNDS: u64 = 300;
    let side = Side::start(ALL, 1);
    let memories = [Placement::Pages, Placement::Unaligned]
        .map(|placement| Memory::new(8192, REMOTE, placement));
    let event = Exported::new();
    let (details, _) = side.export();
    for memory in &memories {
        say("memory", &memory.export());
    }
    say("event", &event.blob());
    say("details", &details);
    // At the same time as the peer: additions of both count.
    for _ in 0..ROUNDS {
        let mut old = 0;
        for memory in &memories {
            let addr = memory.addr() + aligned(memory) as u64;
            memory.mmap.fetch_add(addr, 1).expect("own memory");
        }
        // SAFETY: a live handle and a valid out-parameter.
        ok(unsafe { doca_sync_event_update_add(event.event, 1, &mut old) });
    }
    // SAFETY: a live handle.
    ok(unsafe { doca_sync_event_wait_eq(event.event, 2 * ROUNDS, u64::MAX) });
    let sums = memories
        .each_ref()
        .map(|memory| word(memory, aligned(memory)));
    // Set last by the peer.
    event.set(1000);
    // SAFETY: a live handle.
    ok(unsafe { doca_sync_event_wait_gt(event.event, 1000, u64::MAX) });
    assert_eq!(sums, [2 * ROUNDS; 2]);
    say("done", &[]);
    wait_for_the_end();
}

#[test]
fn atomics_and_events_of_two_processes_add_up() {
    const ROUNDS: usize = 300;
    with_runtime_dir(|directory| {
        let mut peer = Peer::start(directory, "counter");
        let remotes = [(); 2].map(|()| import(&peer.hear("memory")));
        let event = Remote::new(&peer.hear("event"));
        let side = Side::start(ALL, 1);
        let (_, connection) = side.export();
        ok(side.connect(connection, &peer.hear("details")));
        let (local, bufs) = (Memory::local(4096), Bufs::new());
        let result = bufs.room(&local.mmap, 0, 8);
        let ons = remotes.each_ref().map(|remote| {
            let start = remote.memrange().expect("a range").0;
            let at = (start.next_multiple_of(8) - start) as usize;
            bufs.data(remote, at, 8)
        });
        let adds = ons.map(|on| side.fetch_add(connection, (c(on), c(result)), 1, 1));
        let add = side.event_add(connection, (event.0, c(result)), 1, 2);
        for _ in 0..ROUNDS {
            for task in [adds[0], adds[1], add] {
                side.log.completions.take();
                result.reset_data_len();
                submit(task);
                assert_eq!(side.wait(1)[0].1, 0);
            }
        }
        // The peer has seen the sum and says so.
        let get = side.event_get(connection, (event.0, c(result)), 3);
        let deadline = Instant::now() + Duration::from_secs(20);
        while word(&local, 0) != 1000 {
            assert!(Instant::now() < deadline, "it is {}", word(&local, 0));
            side.log.completions.take();
            result.reset_data_len();
            submit(get);
            assert_eq!(side.wait(1)[0].1, 0);
        }
        local.write(8, &1001_u64.to_ne_bytes());
        side.log.completions.take();
        let source = c(bufs.data(&local.mmap, 8, 8));
        submit(side.event_set(connection, (event.0, source), 4));
        assert_eq!(side.wait(1), [(4, 0)]);
        peer.hear("done");
        peer.end();
    });
}

/// Exports an event for PCIe, and answers what is signalled.
pub(super) fn pci() {
    let (mut event, dev) = (null_mut(), give::<doca_dev>(device()));
    let (mut data, mut size) = (null(), 0);
    // SAFETY: live handles and valid out-parameters; the blob is readable for its size.
    unsafe {
        ok(doca_sync_event_create(&mut event));
        ok(doca_sync_event_add_publisher_location_remote_pci(event));
        ok(doca_sync_event_add_subscriber_location_cpu(event, dev));
        ok(doca_sync_event_start(event));
        ok(doca_sync_event_export_to_remote_pci(
            event, dev, &mut data, &mut size,
        ));
        say("event", std::slice::from_raw_parts(data, size));
        ok(doca_sync_event_update_set(event, 1));
        ok(doca_sync_event_wait_eq_yield(event, 2, u64::MAX));
    }
    say("seen", &[]);
    wait_for_the_end();
}

#[test]
fn an_event_goes_across_pcie_and_its_end_ends_waits() {
    with_runtime_dir(|directory| {
        let mut peer = Peer::start(directory, "pci");
        let blob = peer.hear("event");
        let dev = give::<doca_dev>(device());
        let mut event: *mut doca_sync_event = null_mut();
        let mut fetched = 0;
        // SAFETY: live handles, readable bytes and valid out-parameters.
        unsafe {
            let make = doca_sync_event_create_from_export;
            ok(make(dev, blob.as_ptr(), blob.len(), &mut event));
            ok(doca_sync_event_start(event));
            ok(doca_sync_event_wait_eq(event, 1, u64::MAX));
            ok(doca_sync_event_update_add(event, 1, &mut fetched));
        }
        assert_eq!(fetched, 1);
        peer.hear("seen");
        peer.signal(rustix::process::Signal::KILL);
        peer.child.wait().expect("an exit");
        let began = Instant::now();
        // SAFETY: a live handle; then for the last time.
        unsafe {
            let nobody = doca_sync_event_wait_gt(event, 2, u64::MAX);
            assert_eq!(nobody, Error::ConnectionReset.code());
            assert!(began.elapsed() < Duration::from_secs(2));
            ok(doca_sync_event_stop(event));
            ok(doca_sync_event_destroy(event));
            drop(Arc::from_raw(dev.cast::<Device>()));
        }
    });
}
