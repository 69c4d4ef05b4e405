//! Contexts of a worker: Comch towards the initiator, RDMA towards the targets, and the memory of their messages.

use std::sync::Arc;
use std::time::Duration;

use doca::{
    Consumer, CtxState, Device, ErrorCode, Event, MemoryRegion, Pe, Producer, Rdma, RdmaBuilder,
    RdmaConnection,
};
use wire::control::RdmaConnectionRole;
use wire::io_message;

use crate::failure::Failure;
use crate::worker::RunFlag;

/// One of the two RDMA contexts of a worker, with its connection once it is made.
pub struct RdmaEndpoint {
    // Dropped before the context.
    connection: Option<(RdmaConnection, Vec<u8>)>,
    rdma: Rdma,
    role: RdmaConnectionRole,
}

impl RdmaEndpoint {
    /// Takes a started context for this role.
    #[must_use]
    pub fn new(role: RdmaConnectionRole, rdma: Rdma) -> Self {
        Self {
            connection: None,
            rdma,
            role,
        }
    }

    /// The RDMA context.
    #[inline]
    #[must_use]
    pub fn rdma(&self) -> &Rdma {
        &self.rdma
    }

    /// Creates the connection and returns its export. Later calls return the same export, because the context allows
    /// one connection and the peer may have refused the export.
    ///
    /// # Errors
    ///
    /// As [`Rdma::export`].
    pub fn export(&mut self) -> Result<Vec<u8>, Failure> {
        if let Some((_, export)) = &self.connection {
            return Ok(export.clone());
        }
        let (export, connection) = self.rdma.export()?;
        self.connection = Some((connection, export.clone()));
        Ok(export)
    }

    /// Connects to the peer's export.
    ///
    /// # Errors
    ///
    /// `export` was not called; as [`Rdma::connect`] for invalid connection details.
    pub fn connect(&self, details: &[u8]) -> Result<(), Failure> {
        self.rdma
            .connect(self.connection()?, details)
            .map_err(|error| {
                Failure::from(error).context(format_args!("{} connection details", self.role))
            })
    }

    /// The RDMA connection.
    ///
    /// # Errors
    ///
    /// `export` was not called.
    pub fn connection(&self) -> Result<&RdmaConnection, Failure> {
        let made = self.connection.as_ref().map(|(connection, _)| connection);
        made.ok_or_else(|| {
            let message = format!("the {} connection was not made yet", self.role);
            Failure::new(ErrorCode::NOT_CONNECTED, message)
        })
    }
}

/// Makes progress until all contexts are running. `states` returns their states each time it is called; `what` names
/// them in errors.
///
/// # Errors
///
/// A context has stopped by itself, which indicates the loss of its peer, or is not running `within` the time.
pub fn wait_until_running<S: IntoIterator<Item = CtxState>>(
    pe: &Pe,
    within: Duration,
    what: &str,
    states: impl Fn() -> S,
) -> Result<(), Failure> {
    let mut readiness = Readiness::Starting;
    let is_over = pe.progress_until(within, || {
        readiness = Readiness::of(states());
        readiness != Readiness::Starting
    });
    match readiness {
        Readiness::Lost => Err(Failure::new(
            ErrorCode::CONNECTION_RESET,
            format!("a peer has gone, or its device failed, before {what} were ready"),
        )),
        _ if is_over => Ok(()),
        _ => Err(Failure::timed_out(
            format_args!("{what} to be ready"),
            within,
        )),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Readiness {
    Running,
    Starting,
    Lost,
}

impl Readiness {
    fn of(states: impl IntoIterator<Item = CtxState>) -> Self {
        let mut readiness = Self::Running;
        for state in states {
            match state {
                CtxState::Running => {}
                CtxState::Starting => readiness = Self::Starting,
                CtxState::Stopping | CtxState::Idle => return Self::Lost,
            }
        }
        readiness
    }
}

/// Handles an event that is not a completion. `lost` is the error message for a connection that is lost during the run.
///
/// # Errors
///
/// A connection was lost.
#[cold]
pub fn handle_event(pe: &Pe, run: &RunFlag, lost: &'static str) -> Result<(), Failure> {
    match pe.poll() {
        Some(Event::State {
            next: CtxState::Stopping | CtxState::Idle,
            ..
        }) if run.is_set() => Err(Failure::new(ErrorCode::CONNECTION_RESET, lost)),
        _ => Ok(()),
    }
}

/// Memory of I/O messages.
#[derive(Debug, Clone)]
pub struct Messages {
    region: Arc<MemoryRegion>,
}

impl Messages {
    /// Allocates memory for `places` messages.
    ///
    /// # Errors
    ///
    /// Out of memory.
    pub fn new(places: usize) -> doca::Result<Self> {
        let region = MemoryRegion::new(places.saturating_mul(io_message::SIZE))?;
        Ok(Self { region })
    }

    /// The memory region.
    #[must_use]
    pub fn region(&self) -> &Arc<MemoryRegion> {
        &self.region
    }

    /// Byte offset of a slot in the memory.
    #[inline]
    #[must_use]
    pub const fn offset(place: usize) -> usize {
        place * io_message::SIZE
    }
}

/// Comch endpoints of the fast path to the initiator.
pub struct ComchEndpoints {
    /// Receives the initiator's messages.
    pub consumer: Consumer,
    /// Sends messages to the initiator.
    pub producer: Producer,
}

impl ComchEndpoints {
    /// States of both contexts.
    #[must_use]
    pub fn states(&self) -> [CtxState; 2] {
        [self.consumer.state(), self.producer.state()]
    }

    /// Stops both, even if the first fails to stop.
    ///
    /// # Errors
    ///
    /// As [`Consumer::stop`] and [`Producer::stop`].
    pub fn stop(self) -> Result<(), Failure> {
        let results = [self.consumer.stop(), self.producer.stop()];
        results.into_iter().collect::<Result<(), _>>()?;
        Ok(())
    }
}

/// The two RDMA endpoints of one target.
pub struct TargetEndpoints {
    /// Carries I/O messages.
    pub control: RdmaEndpoint,
    /// Used by the target to read and write blocks; nothing is submitted here.
    pub data: RdmaEndpoint,
}

impl TargetEndpoints {
    /// Starts both contexts. The control context has capacity for this many sends and as many receives; `settings`
    /// makes further settings of it, such as completion handlers.
    ///
    /// # Errors
    ///
    /// As the start of an [`Rdma`] context.
    pub fn start(
        pe: &Pe,
        device: &Device,
        messages: u32,
        settings: impl FnOnce(RdmaBuilder) -> RdmaBuilder,
    ) -> Result<Self, Failure> {
        use doca::Access;
        let permissions = Access::LOCAL_READ_WRITE | Access::RDMA_READ | Access::RDMA_WRITE;
        let builder = || Rdma::builder(device).permissions(permissions);
        let control = builder().receive_tasks(messages).send_tasks(messages);
        let control = settings(control).start(pe)?;
        let data = builder().start(pe)?;
        Ok(Self {
            control: RdmaEndpoint::new(RdmaConnectionRole::IoControl, control),
            data: RdmaEndpoint::new(RdmaConnectionRole::IoData, data),
        })
    }

    /// Endpoint with this role.
    pub fn endpoint(&mut self, role: RdmaConnectionRole) -> &mut RdmaEndpoint {
        match role {
            RdmaConnectionRole::IoData => &mut self.data,
            RdmaConnectionRole::IoControl => &mut self.control,
        }
    }

    /// Returns `true` if both are running.
    #[must_use]
    pub fn are_running(&self) -> bool {
        self.states() == [CtxState::Running; 2]
    }

    /// States of both contexts.
    #[must_use]
    pub fn states(&self) -> [CtxState; 2] {
        [self.control.rdma().state(), self.data.rdma().state()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_stopped_context_fails_at_once() {
        use CtxState::{Idle, Running, Starting, Stopping};
        assert_eq!(Readiness::of([Running, Running]), Readiness::Running);
        assert_eq!(Readiness::of([Running, Starting]), Readiness::Starting);
        for gone in [Idle, Stopping] {
            assert_eq!(Readiness::of([gone, Starting]), Readiness::Lost);
            assert_eq!(Readiness::of([Starting, Running, gone]), Readiness::Lost);
        }
    }
}
