//! Exports and services of this process's agent, and its lifetime.

use std::sync::{Arc, Mutex, PoisonError};

use super::address::AgentAddress;
use super::export::Export;
use super::server::{Handler, Server};
use crate::error::Result;
use crate::runtime::Key;

struct Running {
    server: Arc<Server>,
    users: usize,
}

static AGENT: Mutex<Option<Running>> = Mutex::new(None);

/// Keeps the agent running; dropping the last one stops it.
#[derive(Debug)]
struct AgentRef {
    server: Arc<Server>,
}

impl AgentRef {
    fn acquire() -> Result<AgentRef> {
        let mut agent = AGENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = &mut *agent {
            running.users += 1;
            return Ok(AgentRef {
                server: Arc::clone(&running.server),
            });
        }
        let server = Server::start(&AgentAddress::local()?)?;
        *agent = Some(Running {
            server: Arc::clone(&server),
            users: 1,
        });
        Ok(AgentRef { server })
    }
}

impl Drop for AgentRef {
    fn drop(&mut self) {
        let mut agent = AGENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = &mut *agent {
            running.users -= 1;
            if running.users == 0 {
                // Under the lock, so that the name is free before the next agent binds it.
                self.server.stop();
                *agent = None;
            }
        }
    }
}

/// Withdraws an export when dropped: afterwards the agent copies nothing to or from the memory. Memory that a peer has
/// mapped stays mapped there.
#[derive(Debug)]
pub struct ExportGuard {
    key: Key,
    agent: AgentRef,
}

impl ExportGuard {
    /// The key under which the memory is offered.
    pub fn key(&self) -> Key {
        self.key
    }
}

impl Drop for ExportGuard {
    fn drop(&mut self) {
        self.agent.server.withdraw_export(self.key);
    }
}

/// Exports memory under `key`, starting the agent if necessary.
///
/// # Errors
/// The agent cannot start: no runtime directory, thread or descriptors.
pub fn export(key: Key, export: Export) -> Result<ExportGuard> {
    let agent = AgentRef::acquire()?;
    agent.server.add_export(key, export);
    Ok(ExportGuard { key, agent })
}

/// Withdraws a service when dropped, and closes the connections that were made through it (without calling their
/// [`OnClose`](super::OnClose)). A call that runs in the agent thread at that moment still finishes.
#[derive(Debug)]
pub struct PublishGuard {
    key: Key,
    agent: AgentRef,
}

impl PublishGuard {
    /// The key under which the service is called.
    pub fn key(&self) -> Key {
        self.key
    }
}

impl Drop for PublishGuard {
    fn drop(&mut self) {
        self.agent.server.withdraw_service(self.key);
    }
}

/// Lets other processes call `handler` through [`request`](super::request), starting the agent if necessary.
///
/// # Errors
/// As [`export`].
pub fn publish(key: Key, handler: Handler) -> Result<PublishGuard> {
    let agent = AgentRef::acquire()?;
    agent.server.add_service(key, handler);
    Ok(PublishGuard { key, agent })
}
