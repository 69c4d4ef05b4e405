use crate::{Device, ErasureCoding, Pe, Result};

/// Settings of an [`ErasureCoding`] instance. A kind of task whose number is not set cannot be made.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it starts"]
pub struct ErasureCodingBuilder {
    pub(super) device: Device,
    pub(super) create_tasks: u32,
    pub(super) update_tasks: u32,
    pub(super) recover_tasks: u32,
}

impl ErasureCodingBuilder {
    pub(super) fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            create_tasks: 0,
            update_tasks: 0,
            recover_tasks: 0,
        }
    }

    /// How many create tasks there may be.
    pub fn create_tasks(mut self, count: u32) -> Self {
        self.create_tasks = count;
        self
    }

    /// How many update tasks there may be.
    pub fn update_tasks(mut self, count: u32) -> Self {
        self.update_tasks = count;
        self
    }

    /// How many recover tasks there may be.
    pub fn recover_tasks(mut self, count: u32) -> Self {
        self.recover_tasks = count;
        self
    }

    /// Starts the instance on `pe`.
    ///
    /// # Errors
    ///
    /// Whatever `doca_ctx_start` and the functions before it return.
    pub fn start(self, pe: &Pe) -> Result<ErasureCoding> {
        ErasureCoding::create(pe, &self)
    }
}
