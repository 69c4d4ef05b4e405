//! Shared by the RDMA examples: a server and a client that connect by address and exchange messages.

#![allow(dead_code, reason = "each example uses a part of it")]

use std::error::Error;
use std::net::SocketAddr;

use doca::{
    Access, Buf, BufInventory, Completion, Device, Event, MemoryRegion, Mmap, Pe, Rdma,
    RdmaBuilder, RdmaConnection, RdmaEvent, Task,
};

pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Longest message, in bytes.
const MESSAGE: usize = 1024;

pub enum Role {
    /// Listens to this port.
    Server(u16),
    /// Connects to this address.
    Client(SocketAddr),
}

impl Role {
    /// From the command line: `server PORT` or `client ADDRESS:PORT`.
    pub fn from_arguments() -> Result<Role> {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        match arguments[..] {
            ["server", port] => Ok(Role::Server(port.parse()?)),
            ["client", address] => Ok(Role::Client(address.parse()?)),
            _ => Err("expected `server PORT` or `client ADDRESS:PORT`, e.g. `server 18515`".into()),
        }
    }
}

/// One side of a connection.
pub struct Peer {
    pub device: Device,
    pub pe: Pe,
    pub rdma: Rdma,
    pub connection: RdmaConnection,
    /// Memory for messages: the first half is sent, the second received.
    messages: Mmap,
    inventory: BufInventory,
}

impl Peer {
    /// Connects as server or client. `settings` configures the example's operations besides messages.
    pub fn connect(role: &Role, settings: impl FnOnce(RdmaBuilder) -> RdmaBuilder) -> Result<Peer> {
        let device = Device::open("mlx5_0")?;
        let pe = Pe::new()?;
        let builder = Rdma::builder(&device)
            .receive_tasks(4)
            .send_tasks(4)
            .by_address();
        let rdma = settings(builder).start(&pe)?;
        match role {
            Role::Server(port) => {
                rdma.listen(*port)?;
                println!("listening to port {port}");
            }
            Role::Client(address) => rdma.connect_to(*address, 0)?,
        }
        let connection = loop {
            // Makes progress: the instance reports connection changes.
            pe.poll();
            match rdma.connection_event() {
                Some(RdmaEvent::Requested(connection)) => rdma.accept(&connection, 0)?,
                Some(RdmaEvent::Established { connection, .. }) => break connection,
                Some(RdmaEvent::Failed { .. }) => return Err("no server listens there".into()),
                _ => {}
            }
        };
        let memory = MemoryRegion::new(2 * MESSAGE)?;
        let messages = Mmap::register(&device, memory, Access::LOCAL_READ_WRITE)?;
        Ok(Peer {
            device,
            pe,
            rdma,
            connection,
            messages,
            inventory: BufInventory::new(16)?,
        })
    }

    /// Registers memory of this process. Returns its map and an inventory for its bufs.
    pub fn memory(&self, len: usize, access: Access) -> Result<(Mmap, BufInventory)> {
        let mmap = Mmap::register(&self.device, MemoryRegion::new(len)?, access)?;
        Ok((mmap, BufInventory::new(16)?))
    }

    /// Submits a task and waits for its completion.
    pub fn run(&self, task: &Task) -> Result<()> {
        task.submit().map_err(|code| code.to_string())?;
        self.wait_for(task)
    }

    /// Waits for the completion of a submitted task.
    pub fn wait_for(&self, task: &Task) -> Result<()> {
        while task.is_in_flight() {
            if let Some(Event::Task(Completion {
                token,
                result: Err(code),
            })) = self.pe.poll()
            {
                return Err(format!("task {token} failed: {code}").into());
            }
        }
        Ok(())
    }

    /// A buf that contains these bytes.
    pub fn message(&self, bytes: &[u8]) -> Result<Buf> {
        let buf = self.inventory.buf(&self.messages, 0, MESSAGE)?;
        buf.write_data(bytes)?;
        Ok(buf)
    }

    /// A buf to receive into.
    pub fn receive_buf(&self) -> Result<Buf> {
        Ok(self
            .inventory
            .buf(&self.messages, MESSAGE as u64, MESSAGE)?)
    }

    pub fn send(&self, bytes: &[u8]) -> Result<()> {
        let buf = self.message(bytes)?;
        self.run(&self.rdma.send_task(&self.connection, &buf, 100)?)
    }

    pub fn receive(&self) -> Result<Vec<u8>> {
        let buf = self.receive_buf()?;
        self.run(&self.rdma.receive_task(&buf, 101)?)?;
        content(&buf)
    }

    /// Waits until the peer has disconnected.
    pub fn wait_for_disconnect(&self) -> Result<()> {
        loop {
            self.pe.poll();
            if let Some(RdmaEvent::Disconnected { .. }) = self.rdma.connection_event() {
                return Ok(());
            }
        }
    }
}

/// The data of a buf.
pub fn content(buf: &Buf) -> Result<Vec<u8>> {
    let mut bytes = vec![0; buf.data_len()?];
    buf.read_data(&mut bytes)?;
    Ok(bytes)
}

/// The 8 bytes at `offset` of local memory as a number.
pub fn number(mmap: &Mmap, offset: usize) -> Result<u64> {
    let mut bytes = [0; 8];
    let region = mmap.region().ok_or("memory of another process")?;
    region.read(offset, &mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}
