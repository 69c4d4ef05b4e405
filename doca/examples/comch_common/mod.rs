//! Shared by the Comch examples: both sides of a control path.

#![allow(dead_code, reason = "each example uses a part of it")]

use std::error::Error;

use doca::{ComchClient, ComchEvent, ComchServer, Connection, CtxState, Device, Event, Pe};

pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// PCI addresses of the DPU, and of the host's function as seen from the DPU and from the host.
const DPU: &str = "03:00.0";
const HOST: &str = "3b:00.0";

/// Side of this process, and the name of the server.
pub enum Role {
    /// On the DPU.
    Server(String),
    /// On the host.
    Client(String),
}

impl Role {
    /// From the command line: `server NAME` or `client NAME`.
    pub fn from_arguments() -> Result<Role> {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        match &arguments[..] {
            [side, name] if side == "server" => Ok(Role::Server(name.clone())),
            [side, name] if side == "client" => Ok(Role::Client(name.clone())),
            _ => Err("expected `server NAME` or `client NAME`, e.g. `server ping`".into()),
        }
    }
}

/// A server with its first client.
pub struct ServerSide {
    pub client: Connection,
    pub server: ComchServer,
    pub pe: Pe,
    pub device: Device,
}

impl ServerSide {
    /// Starts a server and waits for a client.
    pub fn start(name: &str) -> Result<ServerSide> {
        let device = Device::open(DPU)?;
        let pe = Pe::new()?;
        let server = ComchServer::start(&pe, &device, &device.open_representor(HOST)?, name)?;
        println!("serving {name}");
        let client = connected(&pe)?;
        Ok(ServerSide {
            client,
            server,
            pe,
            device,
        })
    }
}

/// A client with its server.
pub struct ClientSide {
    pub server: Connection,
    pub client: ComchClient,
    pub pe: Pe,
    pub device: Device,
}

impl ClientSide {
    pub fn connect(name: &str) -> Result<ClientSide> {
        let device = Device::open(HOST)?;
        let pe = Pe::new()?;
        let client = ComchClient::start(&pe, &device, name)?;
        let server = connected(&pe)?;
        Ok(ClientSide {
            server,
            client,
            pe,
            device,
        })
    }
}

/// Waits for an event for which `wanted` returns a value.
pub fn wait<T>(pe: &Pe, mut wanted: impl FnMut(ComchEvent) -> Option<T>) -> Result<T> {
    loop {
        match pe.poll() {
            Some(Event::Comch(ComchEvent::SendFailed { code, .. })) => {
                return Err(format!("a message was not delivered: {code}").into());
            }
            Some(Event::Comch(event)) => {
                if let Some(found) = wanted(event) {
                    return Ok(found);
                }
            }
            Some(_) | None => {}
        }
    }
}

/// Waits for a connection. A client that finds no server returns to the idle state.
fn connected(pe: &Pe) -> Result<Connection> {
    loop {
        match pe.poll() {
            Some(Event::Comch(ComchEvent::Connected(connection))) => return Ok(connection),
            Some(Event::State {
                next: CtxState::Idle,
                ..
            }) => return Err("there is no such server".into()),
            Some(_) | None => {}
        }
    }
}

/// Waits for a control message.
pub fn message(pe: &Pe) -> Result<String> {
    wait(pe, |event| match event {
        ComchEvent::Message { bytes, .. } => Some(String::from_utf8_lossy(&bytes).into_owned()),
        _ => None,
    })
}

/// Waits until the peer has disconnected.
pub fn wait_for_disconnect(pe: &Pe) -> Result<()> {
    wait(pe, |event| {
        matches!(event, ComchEvent::Disconnected(_)).then_some(())
    })
}
