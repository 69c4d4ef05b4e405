//! Order in which RDMA connections are created: for each worker io_data, then io_control.

use wire::control::RdmaConnectionRole;

/// The connection being created.
#[derive(Debug)]
pub(super) struct Connections {
    workers: u32,
    index: u32,
    role: RdmaConnectionRole,
}

impl Default for Connections {
    fn default() -> Self {
        Self::of_workers(0)
    }
}

impl Connections {
    pub(super) fn of_workers(workers: u32) -> Self {
        Self {
            workers,
            index: 0,
            role: RdmaConnectionRole::IoData,
        }
    }

    pub(super) fn current(&self) -> (u32, RdmaConnectionRole) {
        (self.index, self.role)
    }

    /// Advances to the next connection; `None` after the last.
    pub(super) fn advance(&mut self) -> Option<(u32, RdmaConnectionRole)> {
        match self.role {
            RdmaConnectionRole::IoData => self.role = RdmaConnectionRole::IoControl,
            RdmaConnectionRole::IoControl if self.index + 1 < self.workers => {
                self.index += 1;
                self.role = RdmaConnectionRole::IoData;
            }
            RdmaConnectionRole::IoControl => return None,
        }
        Some(self.current())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_data_then_control_for_each_worker() {
        use RdmaConnectionRole::{IoControl, IoData};
        let mut connections = Connections::of_workers(2);
        assert_eq!(connections.current(), (0, IoData));
        let rest: Vec<_> = std::iter::from_fn(|| connections.advance()).collect();
        assert_eq!(rest, [(0, IoControl), (1, IoData), (1, IoControl)]);
    }
}
