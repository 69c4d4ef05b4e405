use crate::{Access, Device, Pe, Rdma, Result};

/// Settings of an [`Rdma`] instance. A kind of task whose number is not set cannot be made.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it starts"]
pub struct RdmaBuilder {
    pub(super) device: Device,
    pub(super) permissions: Access,
    pub(super) tasks: TaskCounts,
    /// DOCA's default when absent.
    pub(super) max_connections: Option<u16>,
    /// DOCA's default when absent.
    pub(super) gid_index: Option<u32>,
    pub(super) by_address: bool,
}

/// How many tasks of each kind there may be.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TaskCounts {
    pub(super) receive: u32,
    pub(super) send: u32,
    pub(super) send_immediate: u32,
    pub(super) read: u32,
    pub(super) write: u32,
    pub(super) write_immediate: u32,
    pub(super) compare_swap: u32,
    pub(super) fetch_add: u32,
    pub(super) event_get: u32,
    pub(super) event_set: u32,
    pub(super) event_add: u32,
}

impl TaskCounts {
    pub(super) fn sum(&self) -> usize {
        let counts = [
            self.receive,
            self.send,
            self.send_immediate,
            self.read,
            self.write,
            self.write_immediate,
            self.compare_swap,
            self.fetch_add,
            self.event_get,
            self.event_set,
            self.event_add,
        ];
        counts
            .iter()
            .fold(0usize, |sum, &count| sum.saturating_add(count as usize))
    }
}

macro_rules! counts {
    ($($setter:ident: $field:ident, $what:literal;)+) => { $(
        #[doc = concat!("How many ", $what, " tasks there may be.")]
        pub fn $setter(mut self, count: u32) -> Self {
            self.tasks.$field = count;
            self
        }
    )+ };
}

impl RdmaBuilder {
    pub(super) fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            permissions: Access::LOCAL_READ_WRITE,
            tasks: TaskCounts::default(),
            max_connections: None,
            gid_index: None,
            by_address: false,
        }
    }

    /// What peers may do, within the permissions of the memory maps: nothing unless set.
    pub fn permissions(mut self, permissions: Access) -> Self {
        self.permissions = permissions;
        self
    }

    counts! {
        receive_tasks: receive, "receive";
        send_tasks: send, "send";
        send_immediate_tasks: send_immediate, "send-with-immediate";
        read_tasks: read, "read";
        write_tasks: write, "write";
        write_immediate_tasks: write_immediate, "write-with-immediate";
        compare_swap_tasks: compare_swap, "compare-and-swap";
        fetch_add_tasks: fetch_add, "fetch-and-add";
        event_get_tasks: event_get, "remote-event get";
        event_set_tasks: event_set, "remote-event set";
        event_add_tasks: event_add, "remote-event add";
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

    /// Lets the instance listen to ports and connect to addresses, and tell what becomes of connections:
    /// [`Rdma::connection_event`].
    pub fn by_address(mut self) -> Self {
        self.by_address = true;
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
