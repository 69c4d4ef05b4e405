//! The ends of the data path of one worker: Comch towards the initiator, RDMA towards the targets.

use doca::{Connection, Consumer, CtxState, Device, Mmap, Pe, Producer, Rdma, RdmaBuilder};
use wire::control::RdmaConnectionRole;

use crate::failure::Failure;
use crate::rdma::RdmaEndpoint;

/// The ends of the fast path to the initiator.
pub struct ComchEnds {
    /// Takes the initiator's messages.
    pub consumer: Consumer,
    /// Sends messages to the initiator.
    pub producer: Producer,
}

impl ComchEnds {
    /// Starts both: a consumer for `receives` messages into `messages`, a producer for `sends`.
    ///
    /// # Errors
    ///
    /// As [`Consumer::start`] and [`Producer::start`].
    pub fn start(
        pe: &Pe,
        client: &Connection,
        messages: &Mmap,
        receives: u32,
        sends: u32,
    ) -> Result<Self, Failure> {
        Ok(Self {
            consumer: Consumer::start(pe, client, messages, receives)?,
            producer: Producer::start(pe, client, sends)?,
        })
    }

    /// How far they are.
    #[must_use]
    pub fn states(&self) -> [CtxState; 2] {
        [self.consumer.state(), self.producer.state()]
    }

    /// Stops both, whatever comes of the first.
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

/// The two RDMA connections to one target.
pub struct TargetEnds {
    /// I/O messages go this way.
    pub control: RdmaEndpoint,
    /// The target reads and writes blocks this way; nothing is submitted here.
    pub data: RdmaEndpoint,
}

impl TargetEnds {
    /// Starts both contexts, the control context with room for this many sends and as many receives.
    ///
    /// # Errors
    ///
    /// As the start of an [`Rdma`] context.
    pub fn start(pe: &Pe, device: &Device, messages: u32) -> Result<Self, Failure> {
        Self::start_with(pe, device, messages, |control| control)
    }

    /// As [`start`](Self::start), with further settings of the control context.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_with(
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

    /// One of the two.
    pub fn endpoint(&mut self, role: RdmaConnectionRole) -> &mut RdmaEndpoint {
        match role {
            RdmaConnectionRole::IoData => &mut self.data,
            RdmaConnectionRole::IoControl => &mut self.control,
        }
    }

    /// Returns `true` if both can be used.
    #[must_use]
    pub fn are_running(&self) -> bool {
        self.states() == [CtxState::Running; 2]
    }

    /// How far they are.
    #[must_use]
    pub fn states(&self) -> [CtxState; 2] {
        [self.control.rdma().state(), self.data.rdma().state()]
    }
}
