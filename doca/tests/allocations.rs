//! The promise that I/O allocates no memory, counted.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use doca::{Access, Event, Pe, Rdma};
use support::{devices, isolated, memory};

struct Counting;

thread_local! {
    /// Allocations of this thread: the test's harness and softdoca's agent, which answers peers, are in others.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: all work is the system allocator's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn messages_and_completions_allocate_nothing() {
    isolated("messages_and_completions_allocate_nothing", || {
        const MESSAGES: u64 = 10_000;
        let device = devices().dpu;
        let pe = Pe::new().unwrap();
        let start = |tasks| {
            let rdma = Rdma::builder(&device)
                .receive_tasks(tasks)
                .send_tasks(tasks)
                .start(&pe)
                .unwrap();
            let (description, connection) = rdma.export().unwrap();
            (rdma, description, connection)
        };
        let (a, a_description, a_connection) = start(4);
        let (b, b_description, b_connection) = start(4);
        a.connect(&a_connection, &b_description).unwrap();
        b.connect(&b_connection, &a_description).unwrap();
        let (mmap, inventory) = memory(&device, 8192, Access::LOCAL_READ_WRITE);
        let pairs: Vec<_> = (0..4)
            .map(|i| {
                let source = inventory.buf_with_data(&mmap, i * 64, 64).unwrap();
                let destination = inventory.buf(&mmap, 4096 + i * 64, 64).unwrap();
                let send = a.send_task(&a_connection, &source, 10 + i).unwrap();
                let receive = b.receive_task(&destination, i).unwrap();
                receive.submit().unwrap();
                send.submit().unwrap();
                (send, receive, source, destination)
            })
            .collect();
        let mut received = 0;
        let mut before = None;
        while received < MESSAGES {
            if received >= MESSAGES / 10 && before.is_none() {
                // Everything that is made on first use has been made.
                before = Some(ALLOCATIONS.get());
            }
            let Some(Event::Task(completion)) = pe.poll() else {
                continue;
            };
            assert_eq!(completion.result, Ok(()));
            let (send, receive, source, destination) = &pairs[(completion.token % 10) as usize];
            if completion.token >= 10 {
                source.write_data(&received.to_le_bytes()).unwrap();
                send.submit().unwrap();
            } else {
                received += 1;
                assert!(destination.data_len().unwrap() > 0);
                destination.reset_data().unwrap();
                receive.submit().unwrap();
            }
        }
        let allocations = ALLOCATIONS.get() - before.unwrap();
        assert_eq!(allocations, 0, "for {} messages", MESSAGES - MESSAGES / 10);
    });
}
