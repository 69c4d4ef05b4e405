//! Counts allocations: I/O must not allocate memory.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use doca::{Access, Compress, Dma, EcMatrixType, ErasureCoding, Event, Lz4Stream, Pe, Rdma};
use support::{devices, isolated, memory};

struct Counting;

thread_local! {
    /// Allocations of this thread, without those of the test harness and of softdoca's agent, which have their own
    /// threads.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: all work is the system allocator's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: guaranteed by the caller.
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
                // All lazy initialization has been performed.
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

#[test]
fn accelerators_allocate_nothing() {
    isolated("accelerators_allocate_nothing", || {
        const ROUNDS: u64 = 1000;
        const LEN: usize = 4096;
        let device = devices().dpu;
        let pe = Pe::new().unwrap();
        let (mmap, inventory) = memory(&device, 8 * LEN, Access::LOCAL_READ_WRITE);
        let dma = Dma::start(&pe, &device, 1).unwrap();
        let compress = Compress::builder(&device)
            .decompress_lz4_stream_tasks(1)
            .start(&pe)
            .unwrap();
        let ec = ErasureCoding::builder(&device)
            .create_tasks(1)
            .start(&pe)
            .unwrap();
        let matrix = ec.matrix(EcMatrixType::Cauchy, 2, 1).unwrap();
        let source = inventory.buf_with_data(&mmap, 0, LEN).unwrap();
        let results: Vec<_> = (2..5)
            .map(|place| inventory.buf(&mmap, place * LEN as u64, LEN).unwrap())
            .collect();
        // An LZ4 block: a literal, a match of 15 + 3 * 255 + 4 bytes at distance 1, and the last literals.
        let block = [0x1f, b'x', 1, 0, 255, 255, 255, 0, 0x50, 1, 2, 3, 4, 5];
        let stream = inventory.buf(&mmap, 6 * LEN as u64, 64).unwrap();
        stream
            .write_data(&[&[block.len() as u8, 0, 0, 0][..], &block].concat())
            .unwrap();
        let copy = dma.copy_task(&source, &results[0], 0).unwrap();
        let create = ec.create_task(&matrix, &source, &results[1], 1).unwrap();
        let unpack = compress
            .decompress_lz4_stream_task(&stream, &results[2], Lz4Stream::default(), 2)
            .unwrap();
        let mut before = 0;
        for round in 0..ROUNDS {
            if round == ROUNDS / 10 {
                // All lazy initialization has been performed.
                before = ALLOCATIONS.get();
            }
            results.iter().for_each(|buf| buf.reset_data().unwrap());
            [&copy, &create, &*unpack]
                .iter()
                .for_each(|task| task.submit().unwrap());
            let mut done = 0;
            while done < 3 {
                if let Some(Event::Task(completion)) = pe.poll() {
                    assert_eq!(completion.result, Ok(()));
                    done += 1;
                }
            }
        }
        assert_eq!(results[2].data_len(), Ok(1 + 15 + 3 * 255 + 4 + 5));
        let allocations = ALLOCATIONS.get() - before;
        assert_eq!(allocations, 0, "in {} rounds", ROUNDS - ROUNDS / 10);
    });
}
