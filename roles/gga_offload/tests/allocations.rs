//! The steps of a block do not allocate once each slot has been used.

use doca::{
    Access, BufInventory, Compress, Device, Dma, EcMatrixType, ErasureCoding, Lz4Stream,
    MemoryRegion, Mmap, Slot, Slots, TwoBuffers, WorkerPe, completion_handler,
};
use role_formats::stored_block::{Encoder, Geometry};
use wire::stored_block::Header;

const BLOCK: usize = 4096;
const HALF: usize = BLOCK / 2;

/// Offsets in the region that all slots share.
const CONTENT: u64 = 0;
const FETCHED: u64 = 4096;
const STORED: u64 = 2 * 4096;
const PARITY: u64 = 3 * 4096;
const RECOVERED: u64 = 4 * 4096;
const DECOMPRESSED: u64 = 5 * 4096;
const SIZE: usize = 6 * 4096;

const SOURCE: usize = TwoBuffers::SOURCE;
const DESTINATION: usize = TwoBuffers::DESTINATION;
const TASK: usize = 0;

type Step = Slot<(), TwoBuffers>;

/// The slot whose task has completed.
type Worker = Option<Step>;

completion_handler! {
    struct Completed;
    |worker: Worker, slot: Slot<(), TwoBuffers>| *worker = Some(slot),
    |code| panic!("a step has failed: {code}")
}

/// Submits a slot and waits until its task has succeeded.
fn run(pe: &mut WorkerPe<Worker>, step: Step) -> Step {
    step.submit::<TASK>().expect("submitted");
    let mut worker = None;
    loop {
        if pe.progress(&mut worker) {
            pe.poll();
        }
        if let Some(step) = worker.take() {
            return step;
        }
    }
}

#[test]
fn steps_of_a_block_do_not_allocate() {
    let device = Device::open("mlx5_0").expect("device");
    let mut pe = WorkerPe::new().expect("engine");
    let region = MemoryRegion::new(SIZE).expect("memory");
    let memory =
        Mmap::register(&device, region.clone(), Access::LOCAL_READ_WRITE).expect("registered");
    let inventory = BufInventory::new(9).expect("bufs");
    let slots = || Slots::with_two_buffers(&pe, &inventory, &memory, &memory, 1, |_| ());
    let [fetches, creates, recoveries, decompressions] =
        [slots(), slots(), slots(), slots()].map(|slots| slots.expect("bufs"));

    let dma = Dma::start_with::<Completed>(&pe, &device, 1).expect("DMA");
    dma.copy_in::<TASK, Completed>(&fetches).expect("a task");
    let coding = ErasureCoding::builder(&device)
        .create_tasks(1)
        .create_handler::<Completed>()
        .recover_tasks(1)
        .recover_handler::<Completed>()
        .start(&pe)
        .expect("erasure coding");
    let encoding = coding
        .matrix(EcMatrixType::Cauchy, 2, 1)
        .expect("a matrix for three blocks");
    coding
        .create_in::<TASK, Completed>(&creates, &encoding)
        .expect("a task");
    recoveries
        .append_data::<SOURCE>(&inventory, &memory, |_| (PARITY, HALF))
        .expect("a list of two");
    let recovery = coding.recover_matrix(&encoding, &[1]).expect("recoverable");
    coding
        .recover_in::<TASK, Completed>(&recoveries, &recovery)
        .expect("a task");
    let decompressor = Compress::builder(&device)
        .decompress_lz4_stream_tasks(1)
        .decompress_lz4_stream_handler::<Completed>()
        .start(&pe)
        .expect("decompression");
    decompressor
        .decompress_lz4_stream_in::<TASK, Completed>(&decompressions, Lz4Stream::default())
        .expect("a task");
    let [fetch, create, recover, decompress] = [fetches, creates, recoveries, decompressions]
        .map(|slots| slots.into_iter().next().expect("one"));

    let mut steps = Some((fetch, create, recover, decompress));
    let mut encoder = Encoder::new(Geometry::compatible(BLOCK as u32));
    let mut content = vec![0; BLOCK];
    let mut block = |number: usize| {
        // Different content of the same compressibility.
        for (at, byte) in content.iter_mut().enumerate() {
            *byte = (number + at / 16) as u8;
        }
        region.write(CONTENT as usize, &content).expect("inside");
        let (mut fetch, mut create, mut recover, mut decompress) = steps.take().expect("idle");
        fetch.set_data::<SOURCE>(CONTENT, BLOCK).expect("inside");
        fetch
            .set_range::<DESTINATION>(FETCHED, BLOCK)
            .expect("inside");
        let fetch = run(&mut pe, fetch);
        region.read(FETCHED as usize, &mut content).expect("inside");
        let stored = encoder.encode(&content).expect("it compresses");
        let header = Header::parse(&stored[..Header::SIZE]).expect("a header");
        region.write(STORED as usize, stored).expect("inside");
        create.set_data::<SOURCE>(STORED, BLOCK).expect("inside");
        create
            .set_range::<DESTINATION>(PARITY, HALF)
            .expect("inside");
        let create = run(&mut pe, create);
        recover.set_data::<SOURCE>(STORED, HALF).expect("inside");
        recover
            .set_range::<DESTINATION>(RECOVERED, HALF)
            .expect("inside");
        let recover = run(&mut pe, recover);
        let (from, length) = (
            STORED + Header::SIZE as u64,
            header.compressed_size as usize,
        );
        decompress.set_data::<SOURCE>(from, length).expect("inside");
        decompress
            .set_range::<DESTINATION>(DECOMPRESSED, BLOCK)
            .expect("inside");
        let decompress = run(&mut pe, decompress);
        let produced = decompress.data_len::<DESTINATION>();
        steps = Some((fetch, create, recover, decompress));
        produced
    };
    for number in 0..3 {
        assert_eq!(block(number), BLOCK);
    }
    let counted = allocation_counter::measure(|| {
        for number in 3..100 {
            assert_eq!(block(number), BLOCK);
        }
    });
    assert_eq!(counted.count_total, 0, "{counted:?}");
    let read = |at: u64, length| {
        let mut bytes = vec![0; length];
        region.read(at as usize, &mut bytes).expect("inside");
        bytes
    };
    assert!(
        read(DECOMPRESSED, BLOCK) == content,
        "the steps did their work"
    );
    assert!(read(RECOVERED, HALF) == read(STORED + HALF as u64, HALF));
}
