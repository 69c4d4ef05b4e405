//! The zero copy service, from its flags to its statistics.

use bytes::Bytes;
use doca::{Device, Mmap};
use role_common::Failure;
use role_common::application::Environment;
use role_common::metrics::{Count, Statistics};
use role_common::service::session::Memory;
use role_common::service::{self, Service, WorkerSetup};

use crate::cli::Flags;
use crate::data_path::ZeroCopyDataPath;
use crate::session::Passthrough;

pub(crate) fn run(flags: Flags, environment: Environment) -> Result<(), Failure> {
    let addresses = [flags.storage_server.clone()];
    environment
        .metrics
        .declare(&[Count::Refused, Count::Unexpected], false);
    service::run(
        || ZeroCopy { memory: None },
        &Passthrough,
        &flags.service,
        &addresses,
        &environment,
        |cores| {
            environment
                .console
                .report(&Statistics::new(crate::NAME, cores));
        },
    )
}

struct ZeroCopy {
    /// The initiator's memory; the target can access it while the import exists.
    memory: Option<Mmap>,
}

impl Service for ZeroCopy {
    type Layout = Passthrough;
    type DataPath = ZeroCopyDataPath;

    fn prepare_memory(
        &mut self,
        device: &Device,
        _: &Memory,
        initiator: Mmap,
    ) -> Result<Bytes, Failure> {
        let export = initiator
            .export_rdma(device)
            .map_err(|error| Failure::from(error).context("memory map of the init request"))?;
        self.memory = Some(initiator);
        Ok(Bytes::from(export))
    }

    fn worker(
        &self,
        setup: WorkerSetup,
    ) -> Result<impl FnOnce() -> Result<ZeroCopyDataPath, Failure> + Send + 'static, Failure> {
        Ok(|| ZeroCopyDataPath::create(setup))
    }
}
