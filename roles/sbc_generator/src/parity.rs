//! Parity of two half blocks, calculated by the device.

use doca::{
    Access, BufInventory, Device, ErasureCoding, ErrorCode, Event, MemoryRegion, Mmap, Pe, Task,
};
use role_common::Failure;
use role_common::stored_block::MatrixType;

/// Halves of a stored block.
const DATA_BLOCKS: usize = 2;
/// Parity blocks for them.
const REDUNDANCY_BLOCKS: usize = 1;

/// Calculates the parity of stored blocks of one size.
pub(crate) struct ParityEncoder {
    task: Task,
    data: Mmap,
    redundancy: doca::Buf,
    parity: Vec<u8>,
    // Kept for the task; after what uses them.
    _coding: ErasureCoding,
    pe: Pe,
}

impl ParityEncoder {
    /// An encoder for stored blocks of `stored_block_size` bytes, a multiple of 128.
    pub(crate) fn new(
        device: &Device,
        matrix_type: MatrixType,
        stored_block_size: u32,
    ) -> Result<Self, Failure> {
        let size = stored_block_size as usize;
        let half = size / DATA_BLOCKS;
        let pe = Pe::new()?;
        let coding = ErasureCoding::builder(device).create_tasks(1).start(&pe)?;
        let matrix = coding.matrix(matrix_type.into(), DATA_BLOCKS, REDUNDANCY_BLOCKS)?;
        let memory = |len| -> doca::Result<Mmap> {
            Mmap::register(device, MemoryRegion::new(len)?, Access::LOCAL_READ_WRITE)
        };
        let (data, parity) = (memory(size)?, memory(half)?);
        let inventory = BufInventory::new(2)?;
        let source = inventory.buf_with_data(&data, 0, size)?;
        let redundancy = inventory.buf(&parity, 0, half)?;
        let task = coding.create_task(&matrix, &source, &redundancy, 0)?;
        Ok(Self {
            task,
            data,
            redundancy,
            parity: vec![0; half],
            _coding: coding,
            pe,
        })
    }

    /// The parity of the two halves of `stored`.
    pub(crate) fn parity(&mut self, stored: &[u8]) -> Result<&[u8], Failure> {
        let region = self.data.region().expect("registered here");
        region.write(0, stored)?;
        self.redundancy.reset_data()?;
        self.task.submit().map_err(refused("submit the parity"))?;
        loop {
            if let Some(Event::Task(done)) = self.pe.poll() {
                done.result.map_err(refused("calculate the parity"))?;
                break;
            }
        }
        let length = self.redundancy.read_data(&mut self.parity)?;
        if length != self.parity.len() {
            return Err(Failure::unexpected(format!(
                "the device made {length} bytes of parity, expected {}",
                self.parity.len()
            )));
        }
        Ok(&self.parity)
    }
}

fn refused(what: &'static str) -> impl Fn(ErrorCode) -> Failure {
    move |code| Failure::new(code, format!("cannot {what}: {}", code.description()))
}
