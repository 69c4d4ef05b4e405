//! Cost of a task from submission to completion, apart from its work: DMA copies of increasing size.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use doca::{Access, BufInventory, Completion, Device, Dma, Event, MemoryRegion, Mmap, Pe};

/// Sizes of a copy in bytes: the first one is almost free.
const SIZES: [usize; 3] = [8, 4 << 10, 64 << 10];

fn dma_copies(criterion: &mut Criterion) {
    let device = Device::open("0000:03:00.0").expect("a device of the built-in topology");
    let pe = Pe::new().expect("an engine");
    let dma = Dma::start(&pe, &device, 1).expect("an instance");
    let inventory = BufInventory::new(2).expect("an inventory");
    let mut group = criterion.benchmark_group("tasks");
    for size in SIZES {
        let room = MemoryRegion::new(2 * size).expect("memory");
        let mmap = Mmap::register(&device, room, Access::LOCAL_READ_WRITE).expect("a map");
        let source = inventory.buf_with_data(&mmap, 0, size).expect("a buf");
        let to = inventory.buf(&mmap, size as u64, size).expect("a buf");
        let task = dma.copy_task(&source, &to, 0).expect("a task");
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(BenchmarkId::new("DMA copy", size), |bencher| {
            bencher.iter(|| {
                to.reset_data().expect("the buf is idle");
                task.submit().expect("the instance runs");
                loop {
                    if let Some(Event::Task(Completion { result, .. })) = pe.poll() {
                        return result.expect("a copy");
                    }
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, dma_copies);
criterion_main!(benches);
