//! Software cost of one message: pushed into a ring and popped, including the tasks on both sides. Both ends run in one
//! thread, so that waiting, context switches and cache misses to another core take no time.
//!
//! Messages are not parsed, and their tasks are submitted again. A zero-copy read takes four of these and a copy.

use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use doca::{
    Access, Buf, BufInventory, Completion, Device, Event, MemoryRegion, Mmap, Pe, Rdma, Task,
};

/// Size of a message in bytes: an I/O message of the storage protocol.
const MESSAGE: usize = 64;
/// Messages in flight.
const DEPTH: u64 = 16;
/// First token of send tasks.
const SEND: u64 = 1000;

/// A send task, its receive task, and the receive buffer.
struct Pair {
    send: Task,
    receive: Task,
    received: Buf,
}

/// Runs until `count` messages have been received.
fn pump(pe: &Pe, pairs: &[Pair], count: u64) -> Duration {
    let started = Instant::now();
    let mut received = 0;
    while received < count {
        let Some(Event::Task(Completion { token, result })) = pe.poll() else {
            continue;
        };
        assert_eq!(result, Ok(()));
        let pair = &pairs[(token % SEND) as usize];
        if token >= SEND {
            pair.send.submit().expect("a receive is posted");
        } else {
            received += 1;
            pair.received.reset_data().expect("the buf is idle");
            pair.receive.submit().expect("the instance runs");
        }
    }
    started.elapsed()
}

fn rdma_messages(criterion: &mut Criterion) {
    let device = Device::open("0000:03:00.0").expect("a device of the built-in topology");
    let pe = Pe::new().expect("an engine");
    let start = || {
        let rdma = Rdma::builder(&device)
            .receive_tasks(2 * DEPTH as u32)
            .send_tasks(DEPTH as u32)
            .start(&pe)
            .expect("an instance");
        let (description, connection) = rdma.export().expect("an export");
        (rdma, description, connection)
    };
    let (a, a_description, a_connection) = start();
    let (b, b_description, b_connection) = start();
    a.connect(&a_connection, &b_description).expect("a peer");
    b.connect(&b_connection, &a_description).expect("a peer");
    let room = MemoryRegion::new(2 * DEPTH as usize * MESSAGE).expect("memory");
    let mmap = Mmap::register(&device, room, Access::LOCAL_READ_WRITE).expect("a map");
    let inventory = BufInventory::new(2 * DEPTH as usize).expect("an inventory");
    let offset = |number: u64| number * MESSAGE as u64;
    let pairs: Vec<_> = (0..DEPTH)
        .map(|number| {
            let source = inventory
                .buf_with_data(&mmap, offset(number), MESSAGE)
                .expect("a buf");
            let received = inventory
                .buf(&mmap, offset(DEPTH + number), MESSAGE)
                .expect("a buf");
            Pair {
                send: a
                    .send_task(&a_connection, &source, SEND + number)
                    .expect("a task"),
                receive: b.receive_task(&received, number).expect("a task"),
                received,
            }
        })
        .collect();
    for pair in &pairs {
        pair.receive.submit().expect("the instance runs");
        pair.send.submit().expect("a receive is posted");
    }
    let mut group = criterion.benchmark_group("messages");
    group.throughput(Throughput::Elements(1));
    group.bench_function("RDMA send and receive, 64 bytes", |bencher| {
        bencher.iter_custom(|count| pump(&pe, &pairs, count));
    });
    group.finish();
}

criterion_group!(benches, rdma_messages);
criterion_main!(benches);
