//! The gga_offload service, from its flags to its statistics.

use std::array;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::{Parser, ValueEnum};
use control::Failure;
use control::network::HostPort;
use control::shutdown::Waker;
use control::verifier::{KnownStorage, OtherStorage, StorageId, Verifier, derived};
use doca::{Device, ErrorCode, Mmap};
use gga_engine::assembly::{Assembly, Found, Instructions, Log, assemble};
use gga_engine::chunk::Stamp;
use gga_engine::membership::EpochIds;
use gga_engine::request::Volume;
use gga_engine::rests::{self, RejoinRests};
use gga_engine::set::{Candidate, ScrubPlan, Set, Unfinished};
use gga_engine::stripes::{StripeBitmap, StripeLocks};
use gga_engine::{Placement, Target, Targets};
use role_common::application::Environment;
use role_common::flags::{
    GeneralFlags, OutputFlags, RoleFlags, logical_block_size, mebibytes, server_address,
};
use role_common::service::session::{Described, KeptVersions, Layout, Memory, Returned};
use role_common::service::{
    self, DegradedMode, NextRejoin, Reply, Service, ServiceFlags, WorkerCommand, WorkerSetup,
};
use role_common::superblock::no_random_number;
use role_formats::stored_block::{Geometry, MatrixType};
use role_formats::superblock::{self, Form, Format, SetId, Superblock};
use serde::Serialize;
use wire::control::{FEATURE_FLUSH, FEATURE_VERSIONS};
use wire::release::Release;

use crate::data_path::slots::{StripeBuffer, StripeMemory};
use crate::data_path::{self, AnyGgaDataPath, Commands, Setup, all_slots};
use crate::layout::Striped;
use crate::operator::{GgaOperator, LatestSet, scrub_interval};
use crate::statistics::{self, COUNTS, GgaStatistics};

const EXAMPLES: &str = "\
Examples:
  A service for the host function 3b:00.0, with three targets:
    doca_storage_comch_to_rdma_gga_offload -d 03:00.0 -r 3b:00.0 --cpu 0 --data-1-storage 172.17.0.1:12345 \\
        --data-2-storage 172.17.0.2:12345 --data-p-storage 172.17.0.3:12345
  Blocks of 4096 bytes of any content, on targets with blocks of 2112 bytes, every 10th read through parity:
    doca_storage_comch_to_rdma_gga_offload -d 03:00.0 -r 3b:00.0 --cpu 0 --data-1-storage 172.17.0.1:12345 \\
        --data-2-storage 172.17.0.2:12345 --data-p-storage 172.17.0.3:12345 \\
        --logical-block-size 4096 --trigger-recovery-read-every-n 10";

// Help texts that are not doc comments, because rustdoc would read the placeholders as HTML tags.
const DATA_1_STORAGE: &str =
    "Storage server addresses in <ip_addr>:<port> or <host>:<port> format: first half blocks";
const DATA_2_STORAGE: &str =
    "Storage server addresses in <ip_addr>:<port> or <host>:<port> format: second half blocks";
const DATA_P_STORAGE: &str = "Storage server addresses in <ip_addr>:<port> or <host>:<port> format: parity of the half blocks";

/// A storage service that compresses the blocks of an initiator and keeps them, with parity, on three targets
#[derive(Debug, Clone, Parser)]
#[command(after_help = EXAMPLES)]
pub struct Flags {
    /// DOCA's general flags.
    #[command(flatten)]
    pub general: GeneralFlags,

    /// Devices, CPUs, and the connection to the initiator.
    #[command(flatten)]
    pub service: ServiceFlags,

    /// Address of the target with the first half blocks.
    #[arg(long = "data-1-storage", value_name = "ADDRESS", value_parser = server_address, help = DATA_1_STORAGE)]
    pub data_1_storage: HostPort,

    /// Address of the target with the second half blocks.
    #[arg(long = "data-2-storage", value_name = "ADDRESS", value_parser = server_address, help = DATA_2_STORAGE)]
    pub data_2_storage: HostPort,

    /// Address of the target with the parity.
    #[arg(long = "data-p-storage", value_name = "ADDRESS", value_parser = server_address, help = DATA_P_STORAGE)]
    pub data_p_storage: HostPort,

    /// Type of matrix to use
    #[arg(long, value_enum, value_name = "TYPE", default_value = "vandermonde")]
    pub matrix_type: MatrixType,

    /// Recover a chunk instead of reading it in every N-th read; 0 for never
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub trigger_recovery_read_every_n: u32,

    /// Size of the initiator's blocks. They may have any content, and survive the loss of any one target. Without it, blocks have the reference's form:
    /// they have the size of the stored blocks, and must compress
    #[arg(long, value_name = "BYTES", value_parser = logical_block_size)]
    pub logical_block_size: Option<u32>,

    /// Placement of stored blocks on the targets
    #[arg(
        long,
        value_enum,
        value_name = "PLACEMENT",
        default_value = "half-blocks"
    )]
    pub placement: Placement,

    /// Continue I/O without a target that fails or does not respond: on with --logical-block-size, off without it, since the reference's form
    /// of blocks has nothing to tell a stale chunk by
    #[arg(long, value_enum, value_name = "SWITCH")]
    pub degraded: Option<Degraded>,

    /// Rebuild all of this target from the other two, whatever it contains
    #[arg(long, value_enum, value_name = "TARGET")]
    pub rebuild: Option<Target>,

    /// Verify and repair all stripes while I/Os are served: off, once (from the first session on), or periodically, after this time in
    /// service, for example 12h or 7d
    #[arg(long, value_name = "off|once|PERIOD", value_parser = scrub, default_value = "7d")]
    pub scrub: Scrub,

    /// Maximum rate of a scrub, in MiB of blocks per second, or as a size such as 512k
    #[arg(long, value_name = "MIB", value_parser = mebibytes, default_value = "64")]
    pub scrub_rate: u64,

    /// Leave the targets alone while no initiator is connected. Otherwise, a service with --sessions forever and
    /// --logical-block-size also notices lost targets, rebuilds, resyncs and scrubs in that time
    #[arg(long)]
    pub no_maintenance: bool,

    /// Flags of output, log and metrics.
    #[command(flatten)]
    pub output: OutputFlags,
}

/// Schedule of scrubs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scrub {
    /// Never.
    Off,
    /// Once, from the first session on.
    Once,
    /// Periodically, after this time in service.
    Every(Duration),
}

fn scrub(text: &str) -> Result<Scrub, String> {
    match text {
        "off" => Ok(Scrub::Off),
        "once" => Ok(Scrub::Once),
        period => match period
            .parse()
            .map(Duration::from_secs)
            .or_else(|_| humantime::parse_duration(period))
        {
            Ok(period) if period >= Duration::from_secs(1) => Ok(Scrub::Every(period)),
            Ok(_) => Err("expected off, once, or a period of at least 1s".to_owned()),
            Err(error) => Err(format!(
                "expected off, once, or a period such as 12h or 7d: {error}"
            )),
        },
    }
}

/// Policy for the loss of a target during I/O.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Degraded {
    /// End the session, as the reference does
    #[default]
    Off,
    /// Continue with the other two; after a second loss, wait until one of them is back
    On,
}

impl RoleFlags for Flags {
    fn general(&self) -> &GeneralFlags {
        &self.general
    }

    fn output(&self) -> &OutputFlags {
        &self.output
    }

    fn cpu(&self) -> &[u32] {
        &self.service.cpu
    }

    fn check(&self) -> Result<(), Failure> {
        self.service.tls.check()?;
        let stores_chunks = self.logical_block_size.is_some();
        let refused = |text: &str| Err(Failure::invalid(text.to_owned()));
        match (stores_chunks, self.degraded) {
            (false, Some(Degraded::On)) => refused(
                "--degraded on needs --logical-block-size: in the reference's form of blocks, nothing tells a stale chunk from a current one",
            ),
            (true, Some(Degraded::Off)) => {
                refused("--degraded off is only possible without --logical-block-size")
            }
            (false, _) if self.rebuild.is_some() => {
                refused("--rebuild is only possible with --logical-block-size")
            }
            (true, _) if !self.placement.is_writable() => refused(
                "--placement whole-blocks is only possible without --logical-block-size: nothing is written to such targets",
            ),
            _ => Ok(()),
        }
    }
}

pub(crate) fn run(flags: Flags, environment: Environment) -> Result<(), Failure> {
    let layout = Striped {
        logical_block_size: flags.logical_block_size,
        placement: flags.placement,
    };
    let addresses = [
        flags.data_1_storage.clone(),
        flags.data_2_storage.clone(),
        flags.data_p_storage.clone(),
    ];
    let set = LatestSet::default();
    let scrub_rate = Arc::new(AtomicU64::new(flags.scrub_rate));
    let began = Instant::now();
    let operator = GgaOperator {
        set: set.clone(),
        began,
        scrub_rate: Arc::clone(&scrub_rate),
        logical_block_size: flags.logical_block_size,
    };
    let holder = flags.service.holder(&layout)?;
    let _control_socket = (flags.service).start_control_socket(
        crate::NAME,
        &environment,
        holder.as_ref(),
        operator,
    )?;
    environment.metrics.declare(&COUNTS, false);
    let section_of = set.clone();
    environment
        .metrics
        .add_section(move |page| match section_of.last() {
            Some(set) => statistics::write(page, &set.snapshot()),
            None => Ok(()),
        });
    let history = Rc::new(History {
        set,
        rebuild: Cell::new(flags.rebuild),
        scrub: Cell::new(plan_of(&flags)),
        unfinished: Cell::default(),
        known: Cell::default(),
        scrub_rate,
        began,
    });
    let gga = || GgaOffload {
        prepared: None,
        layout,
        matrix_type: flags.matrix_type,
        recover_every: flags.trigger_recovery_read_every_n,
        waker: environment.shutdown.waker().clone(),
        stall_timeout: flags.service.control_timeout() / 2,
        parking_timeout: parking_timeout(flags.service.io_timeout.0),
        history: Rc::clone(&history),
        maintains: !flags.no_maintenance,
        rejoining: None,
        rests: RejoinRests::default(),
    };
    service::run(
        gga,
        &layout,
        &flags.service,
        &addresses,
        holder.as_ref(),
        &environment,
        |cores| {
            let summary = history.set.last().as_deref().map(Set::summary);
            let summary = summary.filter(|_| layout.format() == Format::StoredChunks);
            environment
                .console
                .report(&GgaStatistics::new(crate::NAME, cores, summary));
        },
    )
}

/// Time that I/Os wait for two current targets: shorter than the time without a completion after which the session is abandoned.
fn parking_timeout(io_timeout: Option<Duration>) -> Duration {
    io_timeout.map_or(Duration::from_secs(u64::from(u32::MAX)), |timeout| {
        timeout * 4 / 5
    })
}

/// State that outlives a session.
struct History {
    set: LatestSet,
    /// A target whose contents have to be discarded; `None` once the superblocks record that.
    rebuild: Cell<Option<Target>>,
    scrub: Cell<ScrubPlan>,
    /// The target that was offline when the last session ended, and the identity of its storage.
    unfinished: Cell<Option<(Unfinished, Option<Bytes>)>>,
    /// Maximum rate of a scrub in bytes of blocks per second.
    scrub_rate: Arc<AtomicU64>,
    /// The storage of earlier sessions, if initiators have requested its verifier.
    known: Cell<KnownStorage>,
    /// Origin of all times.
    began: Instant,
}

/// Schedule of the first scrub. The interval between stripes is set later, when the block size is known.
fn plan_of(flags: &Flags) -> ScrubPlan {
    let (next, every) = match flags.scrub {
        // Blocks of the reference's form cannot be verified.
        _ if flags.logical_block_size.is_none() => (None, None),
        Scrub::Off => (None, None),
        Scrub::Once => (Some(Duration::ZERO), None),
        Scrub::Every(period) => (Some(period), Some(period)),
    };
    ScrubPlan {
        next,
        every,
        interval: Duration::ZERO,
        cursor: 0,
    }
}

struct GgaOffload {
    /// `None` before the init request.
    prepared: Option<Prepared>,
    layout: Striped,
    matrix_type: MatrixType,
    recover_every: u32,
    waker: Waker,
    stall_timeout: Duration,
    /// Time that I/Os wait for two current targets.
    parking_timeout: Duration,
    history: Rc<History>,
    /// `true` if the set is maintained while no initiator is connected.
    maintains: bool,
    /// The target that was admitted last, until it has rejoined.
    rejoining: Option<Candidate>,
    rests: RejoinRests,
}

/// State that all workers of a session share.
struct Prepared {
    memory: StripeMemory,
    initiator: Mmap,
    locks: Arc<StripeLocks>,
    set: Arc<Set>,
    set_id: SetId,
    /// Targets that had all acknowledged writes at the start of the session; `None` without superblocks.
    current: Option<Targets>,
    commands: Arc<Commands>,
    volume: Volume,
    /// Identities of the targets' storages, if the targets report them.
    identities: [Option<Bytes>; 3],
}

impl GgaOffload {
    fn wake(&self) -> impl Fn() + Send + Sync + 'static {
        let waker = self.waker.clone();
        move || waker.wake()
    }

    fn stores_chunks(&self) -> bool {
        self.layout.format() == Format::StoredChunks
    }

    /// Decides which targets are current, from their superblocks.
    fn assemble(
        &self,
        targets: &[Option<Described>],
        geometry: Geometry,
    ) -> Result<Assembly, Failure> {
        let mut found = [Found::Missing; 3];
        let mut logs = <[Log; 3]>::default();
        for ((found, log), target) in found.iter_mut().zip(&mut logs).zip(targets) {
            if let Some(target) = target {
                *found = found_of(target);
                *log = log_of(&target.versions);
            }
        }
        if found.iter().any(|it| matches!(it, Found::Superblock(_))) {
            for target in Target::ALL {
                if found[target.number()] == Found::Blank {
                    warn_of_blank(target);
                }
            }
        }
        let random = superblock::random().map_err(no_random_number)?;
        let (seed, _) = random.split_at(size_of::<u64>());
        let instructions = Instructions {
            rebuild: self.history.rebuild.get(),
            form: Form {
                format: Format::StoredChunks,
                matrix: self.matrix_type,
                logical_block_size: geometry.logical_block_size,
            },
            new_set: SetId::random().map_err(no_random_number)?,
            ids: EpochIds::new(u64::from_be_bytes(seed.try_into().unwrap_or_default())),
        };
        assemble(found, &logs, instructions)
            .map_err(|refusal| Failure::invalid(refusal.to_string()))
    }

    /// Returns the set of the session and the target with this number.
    fn set_and(&self, target: usize) -> Option<(&Set, Target)> {
        let set = &self.prepared.as_ref()?.set;
        Some((set, Target::ALL.get(target).copied()?))
    }
}

/// Offset of the first stripe buffer in a session of 3.0. Its messages encode an offset in the requester's memory as a
/// positive 32-bit distance from the offset in the target's storage, so the buffers are preceded by as many unused
/// bytes as a target stores.
fn first_of_mirrored(capacity: u64, geometry: Geometry, buffers: u64) -> Result<u64, Failure> {
    let end = buffers
        .checked_mul(StripeBuffer::size(geometry))
        .and_then(|size| size.checked_add(capacity));
    if end.is_some_and(|end| end <= u64::from(u32::MAX)) {
        return Ok(capacity);
    }
    Err(Failure::invalid(format!(
        "targets of {capacity} bytes, and {buffers} transactions: in a session of 3.0, expected less than 4 GiB together with the buffers of the \
         transactions"
    )))
}

/// Logs why an empty target is rebuilt.
fn warn_of_blank(target: Target) {
    tracing::warn!(
        "storage target {} is empty or of no set: it is rebuilt from the other two; if it was a member of the set, check that its file system \
         is mounted",
        target.name()
    );
}

/// The description of a reachable target, for the assembly.
fn found_of(target: &Described) -> Found {
    target.superblock.map_or(Found::Blank, Found::Superblock)
}

/// The log of versions of a target, for the assembly.
fn log_of(versions: &KeptVersions) -> Log {
    let stamp =
        |(epoch, number)| Some(Stamp { epoch, number }).filter(|&it| it != Stamp::UNWRITTEN);
    Log {
        last: stamp(versions.last),
        retired: stamp(versions.retired),
        unretired: versions.unretired.clone(),
    }
}

/// Checks that all targets that are present can store chunks, and returns the number of versions that each of them can
/// store.
fn version_slots(targets: &[Option<Described>]) -> Result<u32, Failure> {
    let mut least = u32::MAX;
    for (target, name) in targets.iter().zip(<Striped as Layout>::TARGETS) {
        let Some(target) = target else {
            continue;
        };
        if target.identity.is_none() || target.features & FEATURE_VERSIONS == 0 {
            return Err(Failure::new(
                ErrorCode::NOT_SUPPORTED,
                format!(
                    "{name}: --logical-block-size needs targets that keep versions of blocks (doca_storage_target_rdma of this project, in a session of 3.2)"
                ),
            ));
        }
        least = least.min(target.versions.slots);
    }
    Ok(least)
}

/// Checks that no target of blocks in the reference's form belongs to a set.
fn refuse_members(targets: &[Option<Described>]) -> Result<(), Failure> {
    for (target, name) in targets.iter().zip(<Striped as Layout>::TARGETS) {
        if let Some(superblock) = target.as_ref().and_then(|target| target.superblock) {
            return Err(Failure::invalid(format!(
                "{name}: it is a member of set {}, which stores {}; start the service with --logical-block-size {}",
                superblock.set, superblock.form, superblock.form.logical_block_size
            )));
        }
    }
    Ok(())
}

impl Service for GgaOffload {
    type Layout = Striped;
    type DataPath = AnyGgaDataPath;

    fn prepare_memory(
        &mut self,
        device: &Device,
        memory: &Memory,
        initiator: Mmap,
    ) -> Result<Bytes, Failure> {
        let described = memory.targets.iter().flatten().next();
        let described = described
            .ok_or_else(|| Failure::unexpected("the targets were not asked for their storage"))?;
        let storage = &described.storage;
        let geometry = self.layout.geometry(storage)?;
        let volume = Volume {
            geometry,
            format: self.layout.format(),
            block_count: storage.total_size / u64::from(storage.block_size),
            placement: self.layout.placement,
        };
        let slots = u64::from(all_slots(memory.transaction_count));
        let buffers = u64::from(memory.core_count) * slots;
        memory
            .limits
            .check_memory(buffers, 5 * u64::from(geometry.half_block_size()))?;
        let first = match memory.release {
            Release::V3_0 => {
                let first = first_of_mirrored(storage.total_size, geometry, buffers)?;
                memory.limits.check_memory(1, first)?;
                first
            }
            Release::V3_1 | Release::V3_2 => 0,
        };
        let (stripe_memory, export) = StripeMemory::allocate(device, geometry, first, buffers)?;
        let (assembly, slots) = if self.stores_chunks() {
            let slots = version_slots(&memory.targets)?;
            (self.assemble(&memory.targets, geometry)?, slots)
        } else {
            refuse_members(&memory.targets)?;
            (Assembly::unmanaged(), 0)
        };
        let set_id = assembly
            .membership
            .as_ref()
            .map_or(SetId::NONE, |membership| membership.set());
        if set_id != SetId::NONE {
            // Before any data is written to the targets: empty targets would become a new set.
            let known = self.history.known.get();
            known.check(StorageId(set_id.0)).map_err(another_set)?;
        }
        let managed = assembly.membership.is_some();
        let current = managed.then(|| assembly.stale.map_or(Targets::ALL, Targets::without));
        let mut plan = self.history.scrub.get();
        let block = u64::from(geometry.logical_block_size);
        plan.interval = scrub_interval(block, self.history.scrub_rate.load(Ordering::Relaxed));
        let mut identities = array::from_fn(|target| {
            let described = memory.targets.get(target)?.as_ref()?;
            described.identity.clone()
        });
        let unfinished = self.history.unfinished.take();
        let unfinished = unfinished.filter(|(it, identity)| {
            let described = memory.targets.get(it.target().number());
            let described = described.and_then(Option::as_ref);
            let found = described.map_or(Found::Missing, found_of);
            let is_same =
                described.is_some_and(|it| identity.is_some() && it.identity == *identity);
            let last = described.and_then(|it| log_of(&it.versions).last);
            it.applies(&assembly, found, is_same, last.unwrap_or(Stamp::UNWRITTEN))
        });
        let unfinished = unfinished.map(|(it, identity)| {
            identities[it.target().number()] = identity;
            it
        });
        let set = Set::new(
            StripeBitmap::new(volume.block_count),
            memory.core_count,
            assembly,
            unfinished,
            plan,
            slots,
            self.wake(),
        );
        let set = Arc::new(set);
        self.history.set.begin(&set, memory.is_maintenance);
        self.prepared = Some(Prepared {
            memory: stripe_memory,
            initiator,
            locks: Arc::new(StripeLocks::new(memory.core_count, buffers)),
            set,
            set_id,
            current,
            commands: Arc::new(Commands::of_workers(memory.core_count, self.wake())),
            volume,
            identities,
        });
        Ok(export)
    }

    fn worker(
        &self,
        worker: WorkerSetup,
    ) -> Result<impl FnOnce() -> Result<AnyGgaDataPath, Failure> + Send + 'static, Failure> {
        let prepared = self
            .prepared
            .as_ref()
            .ok_or_else(|| Failure::unexpected("a worker before its memory"))?;
        let setup = Setup {
            flush: worker.features & FEATURE_FLUSH != 0,
            worker,
            memory: prepared.memory.clone(),
            initiator: prepared.initiator.clone(),
            locks: Arc::clone(&prepared.locks),
            set: Arc::clone(&prepared.set),
            commands: Arc::clone(&prepared.commands),
            volume: prepared.volume,
            matrix_type: self.matrix_type,
            set_id: prepared.set_id,
            recover_every: self.recover_every,
            stall_timeout: self.stall_timeout,
            parking_timeout: self.parking_timeout,
            began: self.history.began,
        };
        Ok(|| data_path::create(setup))
    }

    fn verifier(&mut self, targets: &[Option<Verifier>]) -> Result<Option<Verifier>, Failure> {
        let prepared = self.prepared.as_ref();
        let verifier = prepared.and_then(|it| verifier_of_set(it.set_id, it.current, targets));
        if let Some(verifier) = &verifier {
            let mut known = self.history.known.get();
            known
                .accept(verifier.identity, verifier.is_in_memory)
                .map_err(another_set)?;
            self.history.known.set(known);
        }
        Ok(verifier)
    }

    fn identifies_targets(&self) -> bool {
        true
    }

    fn maintains(&self) -> bool {
        self.stores_chunks() && self.maintains
    }

    fn quiesce(&mut self) {
        if let Some(prepared) = &self.prepared {
            prepared.set.quiesce();
        }
    }

    fn is_quiet(&self) -> bool {
        (self.prepared.as_ref()).is_none_or(|prepared| prepared.set.is_quiet())
    }

    fn degraded_mode(&mut self) -> Option<&mut dyn DegradedMode> {
        if self.stores_chunks() {
            Some(self)
        } else {
            None
        }
    }
}

/// Failure of a session whose targets differ from those of earlier sessions.
fn another_set(other: OtherStorage) -> Failure {
    Failure::new(
        ErrorCode::BAD_STATE,
        format!(
            "storage targets: {other}; start the targets with the backing files that they had (are their file systems mounted?), or restart \
             this service to use the others"
        ),
    )
}

/// Combines the verifiers of three targets.
///
/// With superblocks, two targets that have all acknowledged writes suffice to preserve them: the third one is rebuilt
/// from these. `current` contains the targets that had all of them at the start of the session, so a target that missed
/// writes while it was offline is not counted. Without superblocks, lost writes of a target cannot be detected, so all
/// three must have kept theirs.
fn verifier_of_set(
    set: SetId,
    current: Option<Targets>,
    targets: &[Option<Verifier>],
) -> Option<Verifier> {
    let is_in_memory = targets.iter().flatten().any(|target| target.is_in_memory);
    let incarnations = Target::ALL.map(|target| {
        let is_current = current.is_none_or(|current| current.contains(target));
        let verifier = targets.get(target.number())?.as_ref()?;
        verifier
            .incarnations
            .first()
            .copied()
            .flatten()
            .filter(|_| is_current)
    });
    let quorum = if current.is_some() { 2 } else { 3 };
    if incarnations.iter().flatten().count() < quorum {
        return None;
    }
    let identity = if set == SetId::NONE {
        let identities: Vec<_> = targets
            .iter()
            .flatten()
            .map(|target| target.identity.0.to_be_bytes())
            .collect();
        derived(&identities.iter().map(|it| &it[..]).collect::<Vec<_>>())
    } else {
        set.0
    };
    Some(Verifier {
        identity: StorageId(identity),
        is_in_memory,
        quorum: quorum as u32,
        incarnations: incarnations.to_vec(),
    })
}

impl Drop for GgaOffload {
    /// Keeps the scrub plan for the next session, and warns of missed stripes.
    fn drop(&mut self) {
        self.history.set.end();
        if let Some(prepared) = &self.prepared {
            self.history.scrub.set(prepared.set.scrub_plan());
            let unfinished = prepared.set.unfinished();
            let unfinished = unfinished.map(|it| {
                let identity = prepared.identities[it.target().number()].clone();
                (it, identity)
            });
            self.history.unfinished.set(unfinished);
            if self.stores_chunks() {
                prepared.set.warn_of_missed_stripes();
            }
        }
    }
}

impl DegradedMode for GgaOffload {
    fn target_lost(&mut self, target: usize, why: &Failure) {
        if let Some((set, target)) = self.set_and(target) {
            set.detach(target, why);
        }
    }

    fn stalled(&mut self, target: usize, why: &Failure) -> bool {
        self.set_and(target)
            .is_none_or(|(set, target)| set.stalled(target, why))
    }

    fn is_lost(&self, target: usize) -> bool {
        self.set_and(target)
            .is_some_and(|(set, target)| set.view().offline.contains(target))
    }

    fn next_rejoin(&mut self, now: Instant) -> NextRejoin {
        let Some(prepared) = &self.prepared else {
            return NextRejoin::Whole;
        };
        match self.rests.next(&prepared.set, now) {
            rests::NextRejoin::Whole => NextRejoin::Whole,
            rests::NextRejoin::Wait(until) => NextRejoin::Wait(until),
            rests::NextRejoin::Candidate(it) => NextRejoin::Target(it.target.number()),
        }
    }

    fn admit(&mut self, target: usize, described: &Described) -> Result<bool, Failure> {
        let Some((prepared, target)) = self.prepared.as_ref().zip(Target::ALL.get(target)) else {
            return Err(Failure::unexpected("a target that rejoins no session"));
        };
        if found_of(described) == Found::Blank {
            warn_of_blank(*target);
        }
        let candidate = prepared.set.rejoin_candidate();
        self.rejoining = candidate.filter(|it| it.target == *target);
        let before = &prepared.identities[target.number()];
        let is_same_storage = before.is_some() && *before == described.identity;
        let (epoch, number) = described.versions.last;
        let last = Stamp { epoch, number };
        prepared
            .set
            .admit(*target, found_of(described), is_same_storage, last)
            .map_err(Failure::invalid)
    }

    fn may_continue(&self) -> bool {
        (self.prepared.as_ref()).is_none_or(|prepared| prepared.set.may_continue())
    }

    fn send_command(&mut self, worker: u32, attempt: u32, command: WorkerCommand) {
        if let Some(prepared) = &self.prepared {
            prepared.commands.send(worker, attempt, command);
        }
    }

    fn next_reply(&mut self) -> Option<(u32, u32, Result<Reply, Failure>)> {
        let reply = self.prepared.as_ref()?.commands.next_reply()?;
        Some((reply.worker, reply.attempt, reply.reply))
    }

    fn rejoined(&mut self, target: usize, returned: &Returned, now: Instant) -> bool {
        let candidate = self.rejoining.take();
        let has_rejoined = candidate
            .zip(self.set_and(target))
            .is_some_and(|(candidate, (set, _))| set.rejoin(candidate, returned.has_kept));
        if has_rejoined {
            self.rests.rejoined(target, now);
            let prepared = self.prepared.as_mut();
            if let Some(identity) = prepared.and_then(|it| it.identities.get_mut(target)) {
                identity.clone_from(&returned.identity);
            }
        }
        has_rejoined
    }

    fn superblock_of(&self, target: usize) -> Option<Superblock> {
        let (set, target) = self.set_and(target)?;
        set.superblock_of(target)
    }

    fn persisted(&mut self, target: usize, superblock: Superblock) {
        if let Some((set, target)) = self.set_and(target) {
            set.persisted(target, superblock);
            if set.is_open() {
                self.history.rebuild.set(None);
            }
        }
    }

    fn conclude(&mut self) {
        if let Some(prepared) = &self.prepared {
            prepared.set.conclude();
        }
    }

    fn is_concluded(&self) -> bool {
        (self.prepared.as_ref()).is_none_or(|prepared| prepared.set.is_concluded())
    }

    fn is_open(&self) -> bool {
        (self.prepared.as_ref()).is_none_or(|prepared| prepared.set.is_open())
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use control::verifier::Incarnation;
    use role_common::flags::{self, FlagsError};

    use super::*;

    const MANDATORY: &str = "-d 03:00.0 -r 3b:00.0 --cpu 0 --data-1-storage 172.17.0.1:12345 \
                         --data-2-storage 172.17.0.2:12345 --data-p-storage 172.17.0.3:12345";

    fn parse(args: &str) -> Result<Flags, FlagsError> {
        flags::read(
            crate::NAME,
            std::iter::once("x")
                .chain(args.split_whitespace())
                .map(OsString::from),
        )
    }

    #[test]
    fn example_of_the_guide_is_accepted_with_reference_defaults() {
        let flags = parse(MANDATORY).expect("flags");
        assert_eq!(flags.data_p_storage.to_string(), "172.17.0.3:12345");
        assert_eq!(flags.matrix_type, MatrixType::Vandermonde);
        assert_eq!(flags.trigger_recovery_read_every_n, 0);
        assert_eq!(flags.logical_block_size, None);
        assert_eq!(flags.degraded, None);
        assert_eq!(flags.service.command_channel_name, "doca_storage_comch");
    }

    #[test]
    fn extensions_are_parsed() {
        let flags = parse(&format!(
            "{MANDATORY} --matrix-type cauchy --trigger-recovery-read-every-n 10 --logical-block-size 4096"
        ))
        .expect("flags");
        assert_eq!(flags.matrix_type, MatrixType::Cauchy);
        assert_eq!(flags.trigger_recovery_read_every_n, 10);
        assert_eq!(flags.logical_block_size, Some(4096));
        let chunks = format!("{MANDATORY} --logical-block-size 4096");
        let flags = parse(&format!("{chunks} --degraded on")).expect("flags");
        assert_eq!((flags.degraded, flags.rebuild), (Some(Degraded::On), None));
        let flags = parse(&format!("{chunks} --rebuild data_p")).expect("flags");
        assert_eq!(flags.rebuild, Some(Target::DataP));
    }

    #[test]
    fn missing_and_invalid_flags_are_named() {
        for flag in [
            "-d",
            "-r",
            "--cpu",
            "--data-1-storage",
            "--data-2-storage",
            "--data-p-storage",
        ] {
            let mut words: Vec<&str> = MANDATORY.split_whitespace().collect();
            let at = words.iter().position(|word| *word == flag).expect("there");
            words.drain(at..at + 2);
            let name = match flag {
                "-d" => "--device",
                "-r" => "--representor",
                long => long,
            };
            refused(&words.join(" "), name);
        }
        for (flag, wrong, part) in [
            ("--matrix-type", "xor", "vandermonde"),
            (
                "--trigger-recovery-read-every-n",
                "-1",
                "--trigger-recovery",
            ),
            ("--logical-block-size", "0", "--logical-block-size"),
            ("--control-timeout", "0", "--control-timeout"),
            ("--degraded", "", "--degraded"),
            ("--degraded", "yes", "--degraded"),
            ("--degraded=on --rebuild", "data_3", "data_p"),
        ] {
            refused(&format!("{MANDATORY} {flag} {wrong}"), part);
        }
    }

    fn refused(args: &str, part: &str) {
        match parse(args) {
            Err(FlagsError::Usage(text)) => assert!(text.contains(part), "{args}: {text}"),
            other => panic!("{args}: {other:?}"),
        }
    }

    /// Targets in files with these incarnations; 0 for a missing one.
    fn verifiers(incarnations: [u128; 3]) -> Vec<Option<Verifier>> {
        let verifiers = incarnations.into_iter().enumerate().map(|(index, number)| {
            let identity = StorageId(100 + index as u128);
            let verifier = Verifier::of_one(identity, false, Incarnation(number));
            (number != 0).then_some(verifier)
        });
        verifiers.collect()
    }

    #[test]
    fn set_keeps_writes_while_two_current_targets_do() {
        let set = SetId(7);
        let all = |targets| verifier_of_set(set, Some(Targets::ALL), &verifiers(targets));
        let first = all([1, 2, 3]).expect("a verifier");
        assert_eq!((first.identity, first.is_in_memory), (StorageId(7), false));
        assert!(all([1, 9, 3]).expect("one").has_kept_since(&first));
        assert!(!all([1, 9, 8]).expect("one").has_kept_since(&first));
        let without = |target, targets| {
            let current = Some(Targets::without(target));
            verifier_of_set(set, current, &verifiers(targets)).expect("a verifier")
        };
        // Missing, or rejoined with all the data that it had, which is not sufficient.
        let second = without(Target::Data2, [1, 0, 3]);
        assert!(second.has_kept_since(&first));
        let stale = without(Target::Data2, [1, 2, 3]);
        assert!(stale.has_kept_since(&second));
        assert!(!without(Target::Data2, [1, 2, 9]).has_kept_since(&second));
        assert_eq!(all([1, 0, 0]), None);
    }

    #[test]
    fn targets_without_superblocks_must_all_keep_their_writes() {
        let of = |targets| verifier_of_set(SetId::NONE, None, &verifiers(targets));
        let first = of([1, 2, 3]).expect("a verifier");
        assert!(of([1, 2, 3]).expect("one").has_kept_since(&first));
        assert!(!of([1, 2, 9]).expect("one").has_kept_since(&first));
        assert_eq!(of([1, 2, 9]).expect("one").identity, first.identity);
        assert_eq!(of([1, 2, 0]), None);
        let mut exchanged = verifiers([1, 2, 3]);
        exchanged.swap(0, 1);
        let exchanged = verifier_of_set(SetId::NONE, None, &exchanged).expect("one");
        assert_ne!(exchanged.identity, first.identity);
    }

    #[test]
    fn buffers_of_3_0_lie_behind_as_many_bytes_as_a_target_has_and_below_4_gib() {
        let geometry = Geometry::compatible(4096);
        let buffers = 100 * StripeBuffer::size(geometry);
        let most = u64::from(u32::MAX) - buffers;
        for capacity in [4096, most] {
            assert_eq!(first_of_mirrored(capacity, geometry, 100), Ok(capacity));
            let last = StripeBuffer::of(geometry, capacity, 99).chunk(Target::DataP);
            // From any place in a target's storage, the distance is positive and has 32 bits.
            assert!(u32::try_from(last).is_ok());
        }
        for (capacity, buffers) in [(most + 1, 100), (u64::MAX, 1), (0, u64::MAX)] {
            let failure = first_of_mirrored(capacity, geometry, buffers).expect_err("too far");
            assert_eq!(failure.code, doca::ErrorCode::INVALID_VALUE);
        }
    }
}
