//! RDMA contexts of the protocol: pairs, with one connection per context.

use doca::{ErrorCode, Rdma, RdmaConnection};
use wire::control::RdmaConnectionRole;

use crate::failure::Failure;

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
