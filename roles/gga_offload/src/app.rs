//! The gga_offload service, from its flags to its statistics.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use doca::{Device, Mmap};
use role_common::Failure;
use role_common::application::Environment;
use role_common::membership::SetRecord;
use role_common::service::session::{Described, Memory, Returned};
use role_common::service::{self, Errand, Reply, Service, Survival, WorkerSetup};
use role_common::shutdown::Waker;
use role_common::stored_block::MatrixType;

use crate::cli::{ChecksumPolicy, Degraded, Flags};
use crate::data_path::{GgaDataPath, Setup, SurvivalSetup, Volume, all_transactions};
use crate::local_memory::LocalMemory;
use crate::redundancy::{Assembly, Found, Shared, assemble};
use crate::session::Striped;
use crate::statistics::GgaStatistics;
use crate::stripe_order::StripeOrder;
use crate::target::Target;

pub(crate) fn run(flags: Flags, environment: Environment) -> Result<(), Failure> {
    let layout = Striped {
        logical_block_size: flags.logical_block_size,
    };
    let addresses = [
        flags.data_1_storage,
        flags.data_2_storage,
        flags.data_p_storage,
    ];
    let redundancy: Rc<RefCell<Option<Arc<Shared>>>> = Rc::default();
    let rebuild = Rc::new(Cell::new(flags.rebuild));
    let degraded = flags.degraded == Degraded::On;
    if let Some(target) = flags.rebuild.filter(|_| !degraded) {
        let message = format!(
            "--rebuild {} is only possible with --degraded on",
            target.name()
        );
        return Err(Failure::invalid(message));
    }
    let gga = || GgaOffload {
        prepared: None,
        layout,
        matrix_type: flags.matrix_type,
        checksum: flags.checksum,
        recover_every: flags.trigger_recovery_read_every_n,
        survival: degraded.then(|| Degradable {
            waker: environment.shutdown.waker().clone(),
            silence: flags.service.control_timeout / 2,
            rebuild: Rc::clone(&rebuild),
            current: None,
            last: Rc::clone(&redundancy),
        }),
    };
    service::run(
        gga,
        &layout,
        &flags.service,
        &addresses,
        &environment,
        |cores| {
            let redundancy = redundancy.borrow();
            let summary = redundancy.as_deref().map(Shared::summary);
            environment
                .console
                .report(&GgaStatistics::new(crate::NAME, cores, summary));
        },
    )
}

struct GgaOffload {
    /// What all workers share, from the init request on.
    prepared: Option<Prepared>,
    layout: Striped,
    matrix_type: MatrixType,
    checksum: ChecksumPolicy,
    recover_every: u32,
    /// `None` where the loss of a target ends the session.
    survival: Option<Degradable>,
}

/// What the loss of a target is survived with.
struct Degradable {
    waker: Waker,
    /// A target that owes an answer for so long is lost. Initiators do not wait longer than for control answers, by default.
    silence: Duration,
    /// A target that is rebuilt from the beginning, until those know that can.
    rebuild: Rc<Cell<Option<Target>>>,
    /// The redundancy of this session, from its init request on.
    current: Option<Arc<Shared>>,
    /// That of this session, or of the one before.
    last: Rc<RefCell<Option<Arc<Shared>>>>,
}

struct Prepared {
    local: LocalMemory,
    initiator: Mmap,
    stripe_order: Arc<StripeOrder>,
    volume: Volume,
}

impl Service for GgaOffload {
    type Layout = Striped;
    type DataPath = GgaDataPath;

    fn prepare_memory(
        &mut self,
        device: &Device,
        memory: &Memory,
        initiator: Mmap,
    ) -> Result<Bytes, Failure> {
        let target = memory
            .targets
            .first()
            .ok_or_else(|| Failure::unexpected("the targets were not asked for their storage"))?;
        let target = &target.storage;
        let volume = Volume {
            geometry: self.layout.geometry(target)?,
            block_count: target.total_size / u64::from(target.block_size),
        };
        let transactions = all_transactions(memory.transaction_count, self.survival.is_some());
        let chunks = u64::from(memory.core_count) * u64::from(transactions);
        memory
            .limits
            .check_memory(chunks, 5 * u64::from(volume.geometry.half_block_size()))?;
        let (local, export) = LocalMemory::allocate(device, volume.geometry, chunks)?;
        if let Some(survival) = &mut self.survival {
            let waker = survival.waker.clone();
            let assembly = survival.assemble(&memory.targets)?;
            let shared = Shared::new(volume.block_count, memory.core_count, waker, assembly);
            let shared = Arc::new(shared);
            survival.last.replace(Some(Arc::clone(&shared)));
            survival.current = Some(shared);
        }
        self.prepared = Some(Prepared {
            local,
            initiator,
            stripe_order: Arc::new(StripeOrder::new(memory.core_count, chunks)),
            volume,
        });
        Ok(export)
    }

    fn worker(
        &self,
        worker: WorkerSetup,
    ) -> Result<impl FnOnce() -> Result<GgaDataPath, Failure> + Send + 'static, Failure> {
        let prepared = self
            .prepared
            .as_ref()
            .ok_or_else(|| Failure::unexpected("a worker before its memory"))?;
        let setup = Setup {
            worker,
            local: prepared.local.clone(),
            initiator: prepared.initiator.clone(),
            stripe_order: Arc::clone(&prepared.stripe_order),
            volume: prepared.volume,
            matrix_type: self.matrix_type,
            checksum: self.checksum,
            recover_every: self.recover_every,
            survival: self.survival.as_ref().and_then(|survival| {
                Some(SurvivalSetup {
                    shared: survival.current.clone()?,
                    silence: survival.silence,
                })
            }),
        };
        Ok(|| GgaDataPath::create(setup))
    }

    fn survival(&mut self) -> Option<&mut dyn Survival> {
        self.survival.as_mut().map(|survival| survival as _)
    }
}

impl Degradable {
    /// What follows from what the targets keep.
    fn assemble(&self, targets: &[Described]) -> Result<Assembly, Failure> {
        let mut found = [Found::Mute; 3];
        for (found, target) in found.iter_mut().zip(targets) {
            *found = match (&target.identity, target.record) {
                (None, _) => Found::Mute,
                (Some(_), None) => Found::Blank,
                (Some(_), Some(record)) => Found::Record(record),
            };
        }
        let stale = self.last.borrow().as_deref().and_then(Shared::stale);
        let assembly = assemble(found, self.rebuild.get(), stale)?;
        if assembly.membership.is_none() {
            // From now on, this service knows.
            self.rebuild.set(None);
        }
        Ok(assembly)
    }

    /// The redundancy of the session at hand, and what target this is.
    fn of(&self, target: usize) -> Option<(Arc<Shared>, Target)> {
        self.current.clone().zip(Target::ALL.get(target).copied())
    }
}

impl Drop for Degradable {
    /// The session is over.
    fn drop(&mut self) {
        if let Some(shared) = &self.current {
            shared.say_what_is_missing();
        }
    }
}

impl Survival for Degradable {
    fn lose(&mut self, target: usize, why: &Failure) {
        if let Some((shared, target)) = self.of(target) {
            shared.lose(target, why);
        }
    }

    fn has_lost(&self, target: usize) -> bool {
        self.of(target)
            .is_some_and(|(shared, target)| shared.view().lost.contains(target))
    }

    fn to_bring_back(&self) -> Option<usize> {
        self.current.as_ref()?.to_bring_back().map(Target::number)
    }

    fn ask(&mut self, worker: u32, attempt: u32, errand: Errand) {
        if let Some(shared) = &self.current {
            shared.errands.send(worker, (attempt, errand));
        }
    }

    fn next_answer(&mut self) -> Option<(u32, u32, Result<Reply, Failure>)> {
        let answer = self.current.as_ref()?.errands.next_answer()?;
        let (attempt, reply) = answer.reply;
        Some((answer.worker, attempt, reply))
    }

    fn came_back(&mut self, target: usize, returned: &Returned) {
        if let Some((shared, target)) = self.of(target) {
            let keeps = returned.identity.is_some();
            shared.come_back(target, returned.has_kept, keeps);
        }
    }

    fn record_of(&self, target: usize) -> Option<SetRecord> {
        let (shared, target) = self.of(target)?;
        shared.record_of(target)
    }

    fn recorded(&mut self, target: usize, record: SetRecord) {
        if let Some((shared, target)) = self.of(target) {
            shared.recorded(target, record);
            if shared.is_sealed() {
                self.rebuild.set(None);
            }
        }
    }

    fn conclude(&mut self) {
        if let Some(shared) = &self.current {
            shared.conclude();
        }
    }

    fn is_whole(&self) -> bool {
        self.current.as_ref().is_none_or(|shared| shared.is_whole())
    }
}
