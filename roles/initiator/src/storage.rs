//! The session's view of the storage: its division, local memory, and expected data.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use doca::{Access, Device, MemoryRegion, Mmap};
use role_common::Failure;
use wire::control::{InitStorage, StorageDetails};
use wire::release::Release;

use crate::cli::{Flags, Strategy};
use crate::data_path::{Content, Extent, Pattern, Task, Validator};
use crate::layout::{Layout, Request};

/// Reads the expected data, if the strategy compares with a file.
///
/// # Errors
/// The file cannot be read.
pub fn load_content(flags: &Flags) -> Result<Option<Arc<[u8]>>, Failure> {
    let wanted = flags.execution_strategy.validates();
    flags
        .storage_plain_content
        .as_deref()
        .filter(|_| wanted)
        .map(read)
        .transpose()
}

fn read(path: &Path) -> Result<Arc<[u8]>, Failure> {
    let bytes = std::fs::read(path).map_err(|error| {
        Failure::invalid(format!(
            "--storage-plain-content {}: {error}",
            path.display()
        ))
    })?;
    Ok(bytes.into())
}

/// Seed of the pattern; `None` if no pattern is validated.
#[must_use]
pub fn reported_seed(flags: &Flags, plain: Option<&Arc<[u8]>>, seed: u64) -> Option<u64> {
    (flags.execution_strategy == Strategy::ReadWriteDataValidityTest && plain.is_none())
        .then_some(seed)
}

/// Division of the storage, and the local memory for it.
#[derive(Debug)]
pub struct Storage {
    layout: Layout,
    content: Content,
    region: Arc<MemoryRegion>,
    /// Keeps the region registered.
    mmap: Mmap,
}

impl Storage {
    /// Divides the storage, allocates the local region and registers it.
    ///
    /// # Errors
    /// The storage does not match the flags or the expected data, or there is no memory.
    pub fn open(
        device: &Device,
        details: &StorageDetails,
        flags: &Flags,
        plain: Option<Arc<[u8]>>,
        seed: u64,
    ) -> Result<Self, Failure> {
        let layout = Layout::new(
            details,
            Request {
                workers: flags.cpu.len() as u32,
                blocks_per_io: flags.blocks_per_io,
                local_region_size: flags.local_io_region_size,
                is_mirrored: flags.release() == Release::V3_0,
                transactions: flags.transaction_count,
                operations: flags.run_limit_operation_count,
            },
        )?;
        let content = match plain {
            Some(bytes) => {
                layout.check_content(bytes.len() as u64)?;
                Content::Plain(bytes)
            }
            None => Content::Pattern(Pattern::new(seed)),
        };
        let size = layout.region_size;
        let memory = |error: doca::Error| {
            Failure::from(error).context(format_args!(
                "{size} bytes of local memory (--local-io-region-size makes it less)"
            ))
        };
        let length = usize::try_from(size).map_err(|_| {
            Failure::invalid(format!(
                "{size} bytes of local memory are no size of memory"
            ))
        })?;
        let region = MemoryRegion::new(length).map_err(memory)?;
        if flags.execution_strategy == Strategy::WriteThroughputTest {
            fill(&layout, &region, seed).map_err(memory)?;
        }
        let access = Access::LOCAL_READ_WRITE
            | Access::PCI_READ_WRITE
            | Access::RDMA_READ
            | Access::RDMA_WRITE;
        let mmap = Mmap::register(device, Arc::clone(&region), access).map_err(memory)?;
        Ok(Self {
            layout,
            content,
            region,
            mmap,
        })
    }

    /// Builds the init request.
    ///
    /// # Errors
    /// The region could not be exported.
    pub fn init(&self, device: &Device) -> Result<InitStorage, Failure> {
        Ok(InitStorage {
            transaction_count: self.layout.transactions,
            core_count: self.layout.shares.len() as u32,
            mmap_export_blob: Bytes::from(self.mmap.export_pci(device)?),
        })
    }

    /// Address of the local region.
    #[must_use]
    pub fn local_address(&self) -> u64 {
        self.mmap.base_address()
    }

    /// Tasks of the workers.
    #[must_use]
    pub fn tasks(&self, flags: &Flags) -> Vec<Task> {
        let strategy = flags.execution_strategy;
        let validator = || {
            Validator::new(
                self.content.clone(),
                Arc::clone(&self.region),
                self.layout.block_size,
            )
        };
        let task = |&share| Task {
            share,
            io_size: self.layout.io_size,
            strategy,
            validator: strategy.validates().then(validator),
            operations: flags.run_limit_operation_count,
            flush_every: flags.flush_every,
            order: flags.access_order,
            io_timeout: flags.io_timeout,
            is_mirrored: flags.release() == Release::V3_0,
        };
        self.layout.shares.iter().map(task).collect()
    }
}

/// Fills the region with the pattern, so that a write test does not write zero pages only.
fn fill(layout: &Layout, region: &Arc<MemoryRegion>, seed: u64) -> doca::Result<()> {
    let mut validator = Validator::new(
        Content::Pattern(Pattern::new(seed)),
        Arc::clone(region),
        layout.block_size,
    );
    let slots = layout.region_size / u64::from(layout.io_size);
    (0..slots).try_for_each(|slot| {
        let offset = slot * u64::from(layout.io_size);
        validator.fill(Extent {
            local_offset: offset,
            storage_offset: offset,
            size: layout.io_size,
            pass: 0,
        })
    })
}
