//! The client reads and writes the server's memory; a write with an immediate value notifies the server that it has
//! finished.
//!
//! ```text
//! cargo run --example rdma_read_write -- server 18515
//! cargo run --example rdma_read_write -- client 127.0.0.1:18515
//! ```

mod rdma_common;

use doca::{Access, Mmap, Received};
use rdma_common::{Peer, Result, Role, content};

/// Permissions of the client on the server's memory, for both instance and memory.
const PERMISSIONS: Access = Access::LOCAL_READ_WRITE
    .union(Access::RDMA_READ)
    .union(Access::RDMA_WRITE);
const LEN: usize = 8192;

fn main() -> Result<()> {
    let role = Role::from_arguments()?;
    let peer = Peer::connect(&role, |builder| {
        builder
            .permissions(PERMISSIONS)
            .read_tasks(1)
            .write_tasks(1)
            .write_immediate_tasks(1)
    })?;
    match role {
        Role::Server(_) => server(&peer),
        Role::Client(_) => client(&peer),
    }
}

fn server(peer: &Peer) -> Result<()> {
    let (mmap, _) = peer.memory(LEN, PERMISSIONS)?;
    let region = mmap.region().ok_or("own memory")?;
    region.write(0, b"the server's memory")?;
    // Posted before the client has the memory's description; the immediate value consumes it.
    let done = peer.rdma.receive_any_task(None, 1)?;
    peer.send(&mmap.export_rdma(&peer.device)?)?;
    peer.run(&done)?;
    let Some(Received::Written { len, immediate }) = done.received() else {
        return Err("expected a write with an immediate value".into());
    };
    let mut text = vec![0; len as usize];
    region.read(immediate as usize, &mut text)?;
    println!(
        "the client has written {:?} at {immediate}",
        String::from_utf8_lossy(&text)
    );
    let mut text = [0; 10];
    region.read(1000, &mut text)?;
    println!("and {:?} at 1000", String::from_utf8_lossy(&text));
    peer.rdma.disconnect(&peer.connection)?;
    Ok(())
}

fn client(peer: &Peer) -> Result<()> {
    let remote = Mmap::import(&peer.device, &peer.receive()?)?;
    let (local, bufs) = peer.memory(LEN, Access::LOCAL_READ_WRITE)?;

    let there = bufs.buf_with_data(&remote, 0, 19)?;
    let here = bufs.buf(&local, 0, LEN)?;
    peer.run(&peer.rdma.read_task(&peer.connection, &there, &here, 1)?)?;
    println!("read {:?}", String::from_utf8_lossy(&content(&here)?));

    let text = bufs.buf(&local, 100, 10)?;
    text.write_data(b"was there.")?;
    let there = bufs.buf(&remote, 1000, 10)?;
    peer.run(&peer.rdma.write_task(&peer.connection, &text, &there, 2)?)?;

    // The offset of the write is the immediate value.
    let text = bufs.buf(&local, 200, 5)?;
    text.write_data(b"done.")?;
    let there = bufs.buf(&remote, 4096, 5)?;
    let task = peer
        .rdma
        .write_immediate_task(&peer.connection, &text, &there, 4096, 3)?;
    peer.run(&task)?;
    println!("written");
    peer.wait_for_disconnect()
}
