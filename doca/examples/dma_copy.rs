//! DMA: the DPU fetches memory that a host has exported, and writes the answer back.
//!
//! Both sides are in this process; between two processes, the export is sent over Comch. Run the example with `cargo
//! run -p doca --example dma_copy`.

use doca::{Access, BufInventory, Device, Dma, Event, MemoryRegion, Mmap, Pe, Task};

const REQUEST: &[u8] = b"from the host";
const ANSWER: &[u8] = b"from the DPU";
/// Offset of the answer in the host's memory.
const ANSWER_OFFSET: u64 = 2048;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

fn main() -> Result<()> {
    let dpu = Device::open("0000:03:00.0")?;
    let host = MemoryRegion::new(4096)?;
    let access = Access::LOCAL_READ_WRITE | Access::PCI_READ_WRITE;
    let exported = Mmap::register(&dpu, host.clone(), access)?;
    host.write(0, REQUEST)?;

    let remote = Mmap::import(&dpu, &exported.export_pci(&dpu)?)?;
    let local = MemoryRegion::new(4096)?;
    let mmap = Mmap::register(&dpu, local.clone(), Access::LOCAL_READ_WRITE)?;
    let pe = Pe::new()?;
    let dma = Dma::start(&pe, &dpu, 2)?;
    let bufs = BufInventory::new(4)?;

    // A source contains data; a destination is free space, to which data is appended.
    let there = bufs.buf_with_data(&remote, 0, REQUEST.len())?;
    let here = bufs.buf(&mmap, 0, 1024)?;
    run(&pe, &dma.copy_task(&there, &here, 1)?)?;
    let mut fetched = vec![0; here.data_len()?];
    here.read_data(&mut fetched)?;
    println!("fetched {:?}", String::from_utf8_lossy(&fetched));

    local.write(1024, ANSWER)?;
    let answer = bufs.buf_with_data(&mmap, 1024, ANSWER.len())?;
    let room = bufs.buf(&remote, ANSWER_OFFSET, ANSWER.len())?;
    run(&pe, &dma.copy_task(&answer, &room, 2)?)?;
    let mut stored = [0; ANSWER.len()];
    host.read(ANSWER_OFFSET as usize, &mut stored)?;
    println!("stored {:?}", String::from_utf8_lossy(&stored));
    dma.stop()?;
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
