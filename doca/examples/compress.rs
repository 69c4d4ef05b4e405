//! Compression: deflates a text, inflates it again, and compares content and checksums.
//!
//! Run it with `cargo run -p doca --example compress`.

use doca::{Access, BufInventory, Compress, Device, Event, MemoryRegion, Mmap, Pe, Task};

const SIZE: usize = 4096;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

fn main() -> Result<()> {
    let device = Device::open("0000:03:00.0")?;
    let memory = MemoryRegion::new(3 * SIZE)?;
    let mmap = Mmap::register(&device, memory.clone(), Access::LOCAL_READ_WRITE)?;
    let text: Vec<u8> = b"to be, or not to be: "
        .iter()
        .copied()
        .cycle()
        .take(SIZE)
        .collect();
    memory.write(0, &text)?;

    let pe = Pe::new()?;
    let compress = Compress::builder(&device)
        .compress_deflate_tasks(1)
        .decompress_deflate_tasks(1)
        .start(&pe)?;
    let bufs = BufInventory::new(3)?;
    let original = bufs.buf_with_data(&mmap, 0, SIZE)?;
    let deflated = bufs.buf(&mmap, SIZE as u64, SIZE)?;
    let inflated = bufs.buf(&mmap, 2 * SIZE as u64, SIZE)?;

    let deflate = compress.compress_deflate_task(&original, &deflated, 1)?;
    run(&pe, &deflate)?;
    println!("{SIZE} bytes are {} deflated", deflated.data_len()?);
    // The source is the output of the first task.
    let inflate = compress.decompress_deflate_task(&deflated, &inflated, 2)?;
    run(&pe, &inflate)?;

    let mut again = vec![0; SIZE];
    inflated.read_data(&mut again)?;
    assert_eq!(again, text);
    assert_eq!(inflate.checksums(), deflate.checksums());
    println!("{} bytes inflated are the original", inflated.data_len()?);
    drop((deflate, inflate));
    compress.stop()?;
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
