//! The operator's commands, and the set to which they apply.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use control::Failure;
use doca::ErrorCode;
use gga_engine::Target;
use gga_engine::set::{Needed, Set, Snapshot};
use role_common::control_socket::{Command, Operator};
use serde_json::{Map, Value, json};

/// The set of the current or the previous session.
#[derive(Debug, Clone, Default)]
pub(crate) struct LatestSet(Arc<Mutex<Latest>>);

#[derive(Debug, Default)]
struct Latest {
    set: Option<Arc<Set>>,
    is_in_use: bool,
    /// `true` for a session without an initiator.
    is_maintenance: bool,
}

impl LatestSet {
    /// A session begins.
    pub(crate) fn begin(&self, set: &Arc<Set>, is_maintenance: bool) {
        *self.lock() = Latest {
            set: Some(Arc::clone(set)),
            is_in_use: true,
            is_maintenance,
        };
    }

    /// Returns `true` if an initiator has a session.
    fn has_initiator(&self) -> bool {
        let latest = self.lock();
        latest.is_in_use && !latest.is_maintenance
    }

    /// The session has ended.
    pub(crate) fn end(&self) {
        self.lock().is_in_use = false;
    }

    pub(crate) fn last(&self) -> Option<Arc<Set>> {
        self.lock().set.clone()
    }

    fn in_use(&self) -> Option<Arc<Set>> {
        let latest = self.lock();
        latest.set.clone().filter(|_| latest.is_in_use)
    }

    fn lock(&self) -> MutexGuard<'_, Latest> {
        // The values are only ever replaced.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Minimum time between two stripes of `block` bytes of a scrub, at `rate` bytes per second.
pub(crate) fn scrub_interval(block: u64, rate: u64) -> Duration {
    Duration::from_nanos(block.saturating_mul(1_000_000_000) / rate.max(1))
}

pub(crate) struct GgaOperator {
    pub(crate) set: LatestSet,
    /// Origin of the set's times.
    pub(crate) began: Instant,
    /// Maximum rate of a scrub in bytes of blocks per second.
    pub(crate) scrub_rate: Arc<AtomicU64>,
    pub(crate) logical_block_size: Option<u32>,
}

impl Operator for GgaOperator {
    fn status(&self) -> Map<String, Value> {
        let mut status = Map::new();
        status.insert("session".to_owned(), json!(self.set.has_initiator()));
        status.insert(
            "targets_in_use".to_owned(),
            json!(self.set.in_use().is_some()),
        );
        if self.logical_block_size.is_some() {
            let rate = self.scrub_rate.load(Ordering::Relaxed);
            status.insert("scrub_rate".to_owned(), json!(rate));
            let set = self.set.last().map(|set| described(&set.snapshot()));
            status.insert("set".to_owned(), json!(set));
        }
        status
    }

    fn execute(&self, command: &Command) -> Result<Value, Failure> {
        let Some(block) = self.logical_block_size.map(u64::from) else {
            return Err(Failure::new(
                ErrorCode::NOT_SUPPORTED,
                Needed::NoRedundancy.to_string(),
            ));
        };
        if let Command::ScrubRate { rate } = *command {
            if rate == 0 {
                return Err(Failure::invalid(
                    "rate: expected at least 1 byte per second",
                ));
            }
            // Kept for later sessions.
            self.scrub_rate.store(rate, Ordering::Relaxed);
            if let Some(set) = self.set.in_use() {
                set.pace_scrub(scrub_interval(block, rate));
            }
            tracing::info!("the operator has set the rate of scrubs to {rate} bytes per second");
            return Ok(json!({}));
        }
        let set = self.set.in_use().ok_or_else(|| {
            bad_state(
                "expected a session or maintenance: the service does not access its targets at present",
            )
        })?;
        let now = self.began.elapsed();
        match command {
            Command::ScrubStart {} => {
                tracing::info!("the operator starts a scrub");
                set.start_scrub(now);
            }
            Command::ScrubStop {} => {
                if !set.stop_scrub(now) {
                    return Err(bad_state("expected a scrub that is running"));
                }
                tracing::info!("the operator has stopped the scrub");
            }
            Command::Detach { target } => set.hold(named(target)?).map_err(refused)?,
            Command::Attach { target } => {
                let target = named(target)?;
                if !set.release(target) {
                    return Err(bad_state(format!(
                        "expected a target that is kept offline, got {}",
                        target.name()
                    )));
                }
            }
            Command::Rebuild { target } => set.rebuild(named(target)?).map_err(refused)?,
            other => {
                return Err(Failure::new(
                    ErrorCode::NOT_SUPPORTED,
                    format!("expected a command of gga_offload, got {other:?}"),
                ));
            }
        }
        Ok(json!({}))
    }
}

fn bad_state(expected: impl Into<String>) -> Failure {
    Failure::new(ErrorCode::BAD_STATE, expected)
}

fn named(name: &str) -> Result<Target, Failure> {
    let target = Target::ALL.into_iter().find(|it| it.name() == name);
    target.ok_or_else(|| {
        Failure::invalid(format!(
            "target: expected data_1, data_2 or data_p, got {name:?}"
        ))
    })
}

fn refused(needed: Needed) -> Failure {
    let code = match needed {
        Needed::NoRedundancy => ErrorCode::NOT_SUPPORTED,
        Needed::NotCurrent(_) | Needed::Failed => ErrorCode::BAD_STATE,
    };
    Failure::new(code, needed.to_string())
}

fn described(snapshot: &Snapshot) -> Value {
    let targets = Target::ALL.map(|target| {
        let number = target.number();
        json!({
            "target": target.name(),
            "is_online": snapshot.online[number],
            "is_kept_offline": snapshot.held == Some(target),
            "detachments": snapshot.summary.lost[number],
            "repaired_chunks": snapshot.summary.repaired_chunks[number],
        })
    });
    let work = snapshot.pass.map(|pass| {
        let work = if pass.is_rebuild { "rebuild" } else { "resync" };
        json!({ "work": work, "done": pass.done, "total": pass.total })
    });
    json!({
        "set": snapshot.epoch.map(|(set, _)| format!("{:032x}", set.0)),
        "epoch": snapshot.epoch.map(|(_, epoch)| epoch.number),
        "state": snapshot.summary.state,
        "targets": targets,
        "stripes": snapshot.stripes,
        "missed_stripes": snapshot.summary.missed_stripes,
        "unsettled_stripes": snapshot.unsettled_stripes,
        "work": work,
        "scrub": snapshot.scrub.map(|stripe| json!({ "stripe": stripe })),
        "scrubbed": snapshot.summary.scrubbed,
    })
}
