//! Endpoints of a worker's data path: Comch towards the initiator, RDMA towards the targets.

use doca::{Consumer, CtxState, Device, Pe, Producer, Rdma, RdmaBuilder};
use wire::control::RdmaConnectionRole;

use crate::failure::Failure;
use crate::rdma::RdmaEndpoint;

/// Comch endpoints of the fast path to the initiator.
pub struct ComchEnds {
    /// Receives the initiator's messages.
    pub consumer: Consumer,
    /// Sends messages to the initiator.
    pub producer: Producer,
}

impl ComchEnds {
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
pub struct TargetEnds {
    /// Carries I/O messages.
    pub control: RdmaEndpoint,
    /// Used by the target to read and write blocks; nothing is submitted here.
    pub data: RdmaEndpoint,
}

impl TargetEnds {
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
