//! The steps of a block do not allocate once each task has run.

use doca::{
    Access, BufInventory, Compress, Device, Dma, EcMatrixType, ErasureCoding, Event, Lz4Stream,
    MemoryRegion, Mmap, Pe, Task,
};
use role_common::stored_block::{Checksum, Encoder, Geometry, Place};
use role_common::superblock::SetId;
use wire::stored_block::Header;

const BLOCK: usize = 4096;
const HALF: usize = BLOCK / 2;

/// Offsets in the one region that all tasks use.
const CONTENT: u64 = 0;
const FETCHED: u64 = 4096;
const STORED: u64 = 2 * 4096;
const PARITY: u64 = 3 * 4096;
const RECOVERED: u64 = 4 * 4096;
const DECOMPRESSED: u64 = 5 * 4096;
const SIZE: usize = 6 * 4096;

/// Submits a task and waits until it has succeeded.
fn run(pe: &Pe, task: &Task) {
    task.submit().expect("submitted");
    loop {
        if let Some(Event::Task(completion)) = pe.poll() {
            return assert_eq!(completion.result, Ok(()));
        }
    }
}

#[test]
fn steps_of_a_block_do_not_allocate() {
    let device = Device::open("mlx5_0").expect("device");
    let pe = Pe::new().expect("engine");
    let region = MemoryRegion::new(SIZE).expect("memory");
    let memory =
        Mmap::register(&device, region.clone(), Access::LOCAL_READ_WRITE).expect("registered");
    let inventory = BufInventory::new(16).expect("bufs");
    let with_data = |at, len| inventory.buf_with_data(&memory, at, len).expect("inside");
    let room = |at, len| inventory.buf(&memory, at, len).expect("inside");

    let dma = Dma::start(&pe, &device, 1).expect("DMA");
    let fetched = room(FETCHED, BLOCK);
    let fetch = dma.copy_task(&with_data(CONTENT, BLOCK), &fetched, 0);
    let coding = ErasureCoding::builder(&device)
        .create_tasks(1)
        .recover_tasks(1)
        .start(&pe)
        .expect("erasure coding");
    let encoding = coding
        .matrix(EcMatrixType::Cauchy, 2, 1)
        .expect("a matrix for three blocks");
    let recovery = coding.recover_matrix(&encoding, &[1]).expect("recoverable");
    let parity = room(PARITY, HALF);
    let create = coding.create_task(&encoding, &with_data(STORED, BLOCK), &parity, 0);
    let survivors = with_data(STORED, HALF);
    survivors
        .append(&with_data(PARITY, HALF))
        .expect("a list of two");
    let recovered = room(RECOVERED, HALF);
    let recover = coding.recover_task(&recovery, &survivors, &recovered, 0);
    let decompressor = Compress::builder(&device)
        .decompress_lz4_stream_tasks(1)
        .start(&pe)
        .expect("decompression");
    let (compressed, decompressed) = (room(STORED, BLOCK), room(DECOMPRESSED, BLOCK));
    let decompress = decompressor
        .decompress_lz4_stream_task(&compressed, &decompressed, Lz4Stream::default(), 0)
        .expect("a task");
    let [fetch, create, recover] = [fetch, create, recover].map(|task| task.expect("a task"));

    let mut encoder = Encoder::new(Geometry::compatible(BLOCK as u32), Checksum::Crc32c);
    let mut content = vec![0; BLOCK];
    let place = Place {
        set: SetId::NONE,
        stripe: 0,
    };
    let mut block = |number: usize| {
        // Different content of the same compressibility.
        for (at, byte) in content.iter_mut().enumerate() {
            *byte = (number + at / 16) as u8;
        }
        region.write(CONTENT as usize, &content).expect("inside");
        for buf in [&fetched, &parity, &recovered] {
            buf.reset_data().expect("idle");
        }
        run(&pe, &fetch);
        region.read(FETCHED as usize, &mut content).expect("inside");
        let stored = encoder.encode(&content, place).expect("it compresses");
        let header = Header::parse(&stored[..Header::SIZE]).expect("a header");
        region.write(STORED as usize, stored).expect("inside");
        run(&pe, &create);
        run(&pe, &recover);
        compressed
            .set_data(
                STORED + Header::SIZE as u64,
                header.compressed_size as usize,
            )
            .expect("inside");
        decompressed.set_range(DECOMPRESSED, BLOCK).expect("inside");
        run(&pe, &decompress);
        decompressed.data_len().expect("idle")
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
    let mut plain = vec![0; BLOCK];
    region
        .read(DECOMPRESSED as usize, &mut plain)
        .expect("inside");
    assert!(plain == content, "the steps did their work");
}
