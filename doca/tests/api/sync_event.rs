//! Sync events, and RDMA tasks on them and on other 64-bit values of the peer.

use crate::support;
use std::time::Duration;

use crate::support::{completions, devices, isolated, memory, settle};
use doca::{Access, Device, ErrorCode, Mmap, Pe, Rdma, RdmaConnection, RemoteSyncEvent, SyncEvent};

#[test]
fn values_are_set_added_to_and_waited_for() {
    isolated("values_are_set_added_to_and_waited_for", || {
        let event = SyncEvent::builder(&devices().dpu).start().unwrap();
        assert_eq!(event.get().unwrap(), 0);
        event.set(40).unwrap();
        assert_eq!(event.add(2).unwrap(), 40);
        assert_eq!(event.get().unwrap(), 42);
        event.wait_equal(0x2a, 0xff).unwrap();
        event.wait_different(41, u64::MAX).unwrap();
        event.wait_greater_than(41, u64::MAX).unwrap();
        for refused in [event.export_to_network(), event.export_to_pci()] {
            assert_eq!(refused.unwrap_err().code, ErrorCode::NOT_PERMITTED);
        }
    });
}

#[test]
fn the_other_side_of_pcie_shares_the_value() {
    isolated("the_other_side_of_pcie_shares_the_value", || {
        let devices = devices();
        let ours = SyncEvent::builder(&devices.host)
            .pci_publisher()
            .pci_subscriber()
            .start()
            .unwrap();
        let description = ours.export_to_pci().unwrap();
        let child = std::thread::spawn(move || {
            let theirs = SyncEvent::import(&devices.dpu, &description).unwrap();
            theirs.wait_equal(1, u64::MAX).unwrap();
            assert_eq!(theirs.add(1).unwrap(), 1);
        });
        std::thread::sleep(Duration::from_millis(20));
        ours.set(1).unwrap();
        ours.wait_equal(2, u64::MAX).unwrap();
        child.join().unwrap();
        let wrong = SyncEvent::import(&support::devices().dpu, b"something else").unwrap_err();
        assert_eq!(wrong.code, ErrorCode::INVALID_VALUE);
    });
}

#[test]
fn tasks_work_on_an_event() {
    isolated("tasks_work_on_an_event", || {
        let pe = Pe::new().unwrap();
        let event = SyncEvent::builder(&devices().dpu).start_on(&pe, 1).unwrap();
        let equal = event.wait_equal_task(5, 0xf, 1).unwrap();
        let different = event.wait_different_task(0, u64::MAX, 2).unwrap();
        equal.submit().unwrap();
        different.submit().unwrap();
        settle(&[&pe]);
        event.set_task(0x14, 3).unwrap().submit().unwrap();
        let mut tokens = [(); 2].map(|()| completions(1, &[&pe])[0].token);
        tokens.sort_unstable();
        assert_eq!(tokens, [2, 3]);
        settle(&[&pe]);
        let add = event.add_task(1, 4).unwrap();
        add.submit().unwrap();
        let done = completions(2, &[&pe]);
        assert!(done.iter().all(|done| done.result == Ok(())), "{done:?}");
        assert_eq!(event.get().unwrap(), 0x15);
        // The pool has one task of each kind.
        let full = event.wait_equal_task(1, 1, 9).unwrap_err();
        assert_eq!(full.code, ErrorCode::NO_MEMORY);
        drop(different);
        let waits = event.wait_different_task(0x15, u64::MAX, 6).unwrap();
        waits.submit().unwrap();
        event.stop().unwrap();
        let flushed = completions(1, &[&pe]);
        assert!(flushed[0].result.is_err() && flushed[0].token == 6);
        assert_eq!(add.submit(), Err(ErrorCode::BAD_STATE));
    });
}

struct End {
    pe: Pe,
    rdma: Rdma,
    connection: RdmaConnection,
}

fn connected(device: &Device, permissions: Access) -> (End, End) {
    let ends = [(); 2].map(|()| {
        let pe = Pe::new().unwrap();
        let rdma = Rdma::builder(device)
            .permissions(permissions)
            .compare_swap_tasks(1)
            .fetch_add_tasks(1)
            .event_get_tasks(1)
            .event_set_tasks(1)
            .event_add_tasks(1)
            .start(&pe)
            .unwrap();
        let (description, connection) = rdma.export().unwrap();
        let end = End {
            pe,
            rdma,
            connection,
        };
        (end, description)
    });
    let [(a, to_a), (b, to_b)] = ends;
    a.rdma.connect(&a.connection, &to_b).unwrap();
    b.rdma.connect(&b.connection, &to_a).unwrap();
    (a, b)
}

const EVERYTHING: Access = Access::LOCAL_READ_WRITE
    .union(Access::RDMA_READ)
    .union(Access::RDMA_WRITE)
    .union(Access::RDMA_ATOMIC);

fn number(mmap: &Mmap, offset: usize) -> u64 {
    let mut bytes = [0; 8];
    mmap.region().unwrap().read(offset, &mut bytes).unwrap();
    u64::from_ne_bytes(bytes)
}

#[test]
fn atomics_change_the_peers_memory() {
    isolated("atomics_change_the_peers_memory", || {
        let device = devices().dpu;
        let (a, _b) = connected(&device, EVERYTHING);
        let (theirs, _) = memory(&device, 4096, EVERYTHING);
        let imported = Mmap::import(&device, &theirs.export_rdma(&device).unwrap()).unwrap();
        let (mine, bufs) = memory(&device, 4096, Access::LOCAL_READ_WRITE);
        let (remote, old) = (
            bufs.buf_with_data(&imported, 8, 8).unwrap(),
            bufs.buf(&mine, 0, 16).unwrap(),
        );
        let connection = &a.connection;
        let add = a
            .rdma
            .fetch_add_task(connection, &remote, &old, 5, 1)
            .unwrap();
        add.submit().unwrap();
        assert_eq!(completions(1, &[&a.pe])[0].result, Ok(()));
        let swap = a
            .rdma
            .compare_swap_task(connection, &remote, &old, (5, 70), 2)
            .unwrap();
        swap.submit().unwrap();
        assert_eq!(completions(1, &[&a.pe])[0].result, Ok(()));
        assert_eq!(number(&theirs, 8), 70);
        assert_eq!((number(&mine, 0), number(&mine, 8)), (0, 5));
        // The result buf is full: the task has no effect.
        add.submit().unwrap();
        assert!(completions(1, &[&a.pe])[0].result.is_err());
        assert_eq!(number(&theirs, 8), 70);
    });
}

#[test]
fn rdma_tasks_signal_the_peers_event() {
    isolated("rdma_tasks_signal_the_peers_event", || {
        let device = devices().dpu;
        let (a, _b) = connected(&device, EVERYTHING);
        let event = SyncEvent::builder(&device)
            .network_publisher()
            .start()
            .unwrap();
        let remote = RemoteSyncEvent::import(&device, &event.export_to_network().unwrap()).unwrap();
        let (mine, bufs) = memory(&device, 4096, Access::LOCAL_READ_WRITE);
        let (value, old, got) = (
            bufs.buf(&mine, 0, 8).unwrap(),
            bufs.buf(&mine, 8, 8).unwrap(),
            bufs.buf(&mine, 16, 8).unwrap(),
        );
        value.write_data(&40_u64.to_ne_bytes()).unwrap();
        let connection = &a.connection;
        let tasks = [
            a.rdma
                .event_set_task(connection, &remote, &value, 1)
                .unwrap(),
            a.rdma
                .event_add_task(connection, &remote, &old, 2, 2)
                .unwrap(),
            a.rdma.event_get_task(connection, &remote, &got, 3).unwrap(),
        ];
        // The tasks keep it alive.
        drop(remote);
        for task in &tasks {
            task.submit().unwrap();
        }
        let done = completions(3, &[&a.pe]);
        assert!(done.iter().all(|done| done.result == Ok(())), "{done:?}");
        assert_eq!(event.get().unwrap(), 42);
        assert_eq!((number(&mine, 8), number(&mine, 16)), (40, 42));
        let wrong = RemoteSyncEvent::import(&device, &[0; 120]).unwrap_err();
        assert_eq!(wrong.code, ErrorCode::INVALID_VALUE);
    });
}
