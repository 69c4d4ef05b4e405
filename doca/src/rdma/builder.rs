use crate::{Access, Device, Pe, Rdma, Result};

/// Settings of an [`Rdma`] instance. A kind of task whose number is not set cannot be made.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it starts"]
pub struct RdmaBuilder {
    pub(super) device: Device,
    pub(super) permissions: Access,
    pub(super) receive_tasks: u32,
    pub(super) send_tasks: u32,
    pub(super) read_tasks: u32,
    pub(super) write_tasks: u32,
    /// DOCA's default when absent.
    pub(super) max_connections: Option<u16>,
    /// DOCA's default when absent.
    pub(super) gid_index: Option<u32>,
}

impl RdmaBuilder {
    pub(super) fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            permissions: Access::LOCAL_READ_WRITE,
            receive_tasks: 0,
            send_tasks: 0,
            read_tasks: 0,
            write_tasks: 0,
            max_connections: None,
            gid_index: None,
        }
    }

    /// What peers may do, within the permissions of the memory maps: nothing unless set.
    pub fn permissions(mut self, permissions: Access) -> Self {
        self.permissions = permissions;
        self
    }

    /// How many receive tasks there may be.
    pub fn receive_tasks(mut self, count: u32) -> Self {
        self.receive_tasks = count;
        self
    }

    /// How many send tasks there may be.
    pub fn send_tasks(mut self, count: u32) -> Self {
        self.send_tasks = count;
        self
    }

    /// How many read tasks there may be.
    pub fn read_tasks(mut self, count: u32) -> Self {
        self.read_tasks = count;
        self
    }

    /// How many write tasks there may be.
    pub fn write_tasks(mut self, count: u32) -> Self {
        self.write_tasks = count;
        self
    }

    /// How many connections there may be; DOCA's default unless set.
    pub fn max_connections(mut self, count: u16) -> Self {
        self.max_connections = Some(count);
        self
    }

    /// Index in the device's table of GIDs, on networks that need it; DOCA's default unless set.
    pub fn gid_index(mut self, index: u32) -> Self {
        self.gid_index = Some(index);
        self
    }

    /// Starts the instance on `pe`.
    ///
    /// # Errors
    ///
    /// Whatever `doca_ctx_start` and the functions before it return.
    pub fn start(self, pe: &Pe) -> Result<Rdma> {
        Rdma::create(pe, &self)
    }
}
