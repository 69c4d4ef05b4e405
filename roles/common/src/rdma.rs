//! RDMA contexts as the protocol uses them: in pairs, each with one connection.

use doca::{ErrorCode, Rdma, RdmaConnection};
use wire::control::RdmaConnectionRole;

use crate::failure::Failure;

/// One of the two RDMA contexts of a worker, and its connection once there is one.
pub struct RdmaEndpoint {
    // A connection goes before its context.
    connection: Option<(RdmaConnection, Vec<u8>)>,
    rdma: Rdma,
    role: RdmaConnectionRole,
}

impl RdmaEndpoint {
    /// A context that was started for this role.
    #[must_use]
    pub fn new(role: RdmaConnectionRole, rdma: Rdma) -> Self {
        Self {
            connection: None,
            rdma,
            role,
        }
    }

    /// The context.
    #[inline]
    #[must_use]
    pub fn rdma(&self) -> &Rdma {
        &self.rdma
    }

    /// Makes the connection, and exports it for the peer; the same one again after the first time, since there is room for
    /// one only and the peer's export may have been refused.
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
    /// There was no export before; as [`Rdma::connect`] for details that are no export.
    pub fn connect(&self, details: &[u8]) -> Result<(), Failure> {
        self.rdma
            .connect(self.connection()?, details)
            .map_err(|error| {
                Failure::from(error).context(format_args!("{} connection details", self.role))
            })
    }

    /// The connection.
    ///
    /// # Errors
    ///
    /// There was no export yet.
    pub fn connection(&self) -> Result<&RdmaConnection, Failure> {
        let made = self.connection.as_ref().map(|(connection, _)| connection);
        made.ok_or_else(|| {
            let message = format!("the {} connection was not made yet", self.role);
            Failure::new(ErrorCode::NOT_CONNECTED, message)
        })
    }
}
