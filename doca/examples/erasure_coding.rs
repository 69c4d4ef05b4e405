//! Erasure coding: two data blocks and a redundancy block; one data block is lost, and recovered from the other two.
//!
//! Run the example with `cargo run -p doca --example erasure_coding`.

use doca::{
    Access, BufInventory, Device, EcMatrixType, ErasureCoding, Event, MemoryRegion, Mmap, Pe, Task,
};

/// Size of a block in bytes.
const BLOCK: usize = 1024;
/// Number of the lost block.
const LOST: u32 = 1;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

fn main() -> Result<()> {
    let device = Device::open("0000:03:00.0")?;
    // Data, redundancy, and the recovered block.
    let memory = MemoryRegion::new(4 * BLOCK)?;
    let mmap = Mmap::register(&device, memory.clone(), Access::LOCAL_READ_WRITE)?;
    let data: Vec<u8> = (0..2 * BLOCK).map(|at| (at * 7 + at / 251) as u8).collect();
    memory.write(0, &data)?;

    let pe = Pe::new()?;
    let ec = ErasureCoding::builder(&device)
        .create_tasks(1)
        .recover_tasks(1)
        .start(&pe)?;
    let bufs = BufInventory::new(5)?;
    let matrix = ec.matrix(EcMatrixType::Cauchy, 2, 1)?;
    let blocks = bufs.buf_with_data(&mmap, 0, 2 * BLOCK)?;
    let redundancy = bufs.buf(&mmap, 2 * BLOCK as u64, BLOCK)?;
    run(&pe, &ec.create_task(&matrix, &blocks, &redundancy, 1)?)?;
    println!("computed {} bytes of redundancy", redundancy.data_len()?);

    memory.fill(LOST as usize * BLOCK, BLOCK, 0)?;
    // The remaining blocks in ascending order, as a list of bufs.
    let remaining = bufs.buf_with_data(&mmap, 0, BLOCK)?;
    remaining.append(&bufs.buf_with_data(&mmap, 2 * BLOCK as u64, BLOCK)?)?;
    let recovered = bufs.buf(&mmap, 3 * BLOCK as u64, BLOCK)?;
    let recover = ec.recover_matrix(&matrix, &[LOST])?;
    run(&pe, &ec.recover_task(&recover, &remaining, &recovered, 2)?)?;

    let mut block = vec![0; BLOCK];
    recovered.read_data(&mut block)?;
    assert_eq!(block, data[LOST as usize * BLOCK..]);
    println!("recovered block {LOST}");
    drop((matrix, recover));
    ec.stop()?;
    Ok(())
}

/// Submits the task, and waits for its completion.
fn run(pe: &Pe, task: &Task) -> Result<()> {
    task.submit()?;
    loop {
        if let Some(Event::Task(completion)) = pe.poll() {
            return Ok(completion.result?);
        }
    }
}
