use crate::{Compress, Device, Pe, Result};

/// Settings of a [`Compress`] instance. A kind of task whose number is not set cannot be made.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it starts"]
pub struct CompressBuilder {
    pub(super) device: Device,
    pub(super) compress_deflate_tasks: u32,
    pub(super) decompress_deflate_tasks: u32,
    pub(super) decompress_lz4_stream_tasks: u32,
    pub(super) decompress_lz4_block_tasks: u32,
}

impl CompressBuilder {
    pub(super) fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            compress_deflate_tasks: 0,
            decompress_deflate_tasks: 0,
            decompress_lz4_stream_tasks: 0,
            decompress_lz4_block_tasks: 0,
        }
    }

    /// How many tasks there may be that compress by deflate. BlueField-3 has none.
    pub fn compress_deflate_tasks(mut self, count: u32) -> Self {
        self.compress_deflate_tasks = count;
        self
    }

    /// How many tasks there may be that decompress deflate data.
    pub fn decompress_deflate_tasks(mut self, count: u32) -> Self {
        self.decompress_deflate_tasks = count;
        self
    }

    /// How many tasks there may be that decompress LZ4 streams.
    pub fn decompress_lz4_stream_tasks(mut self, count: u32) -> Self {
        self.decompress_lz4_stream_tasks = count;
        self
    }

    /// Number of tasks that decompress single LZ4 blocks.
    pub fn decompress_lz4_block_tasks(mut self, count: u32) -> Self {
        self.decompress_lz4_block_tasks = count;
        self
    }

    /// Starts the instance on `pe`.
    ///
    /// # Errors
    ///
    /// Whatever `doca_ctx_start` and the functions before it return.
    pub fn start(self, pe: &Pe) -> Result<Compress> {
        Compress::create(pe, &self)
    }
}
