//! The client adds to a counter in the server's memory, and acquires a lock in it.
//!
//! ```text
//! cargo run --example rdma_atomics -- server 18515
//! cargo run --example rdma_atomics -- client 127.0.0.1:18515
//! ```

mod rdma_common;

use doca::{Access, Mmap};
use rdma_common::{Peer, Result, Role, number};

const PERMISSIONS: Access = Access::LOCAL_READ_WRITE.union(Access::RDMA_ATOMIC);
/// Offsets of the counter and the lock in the server's memory, in bytes.
const COUNTER: u64 = 0;
const LOCK: u64 = 8;
/// Value of the lock when it is free.
const FREE: u64 = 0;

fn main() -> Result<()> {
    let role = Role::from_arguments()?;
    let peer = Peer::connect(&role, |builder| {
        builder
            .permissions(PERMISSIONS)
            .fetch_add_tasks(1)
            .compare_swap_tasks(1)
    })?;
    match role {
        Role::Server(_) => server(&peer),
        Role::Client(_) => client(&peer),
    }
}

fn server(peer: &Peer) -> Result<()> {
    let (mmap, _) = peer.memory(4096, PERMISSIONS)?;
    peer.send(&mmap.export_rdma(&peer.device)?)?;
    // The client's operations need no progress here.
    let words = peer.receive()?;
    println!("the client says {:?}", String::from_utf8_lossy(&words));
    println!(
        "the counter is {}, the lock belongs to {}",
        number(&mmap, COUNTER as usize)?,
        number(&mmap, LOCK as usize)?
    );
    peer.rdma.disconnect(&peer.connection)?;
    Ok(())
}

fn client(peer: &Peer) -> Result<()> {
    let remote = Mmap::import(&peer.device, &peer.receive()?)?;
    let (local, bufs) = peer.memory(4096, Access::LOCAL_READ_WRITE)?;
    let old = bufs.buf(&local, 0, 8)?;

    let counter = bufs.buf_with_data(&remote, COUNTER, 8)?;
    let add = peer
        .rdma
        .fetch_add_task(&peer.connection, &counter, &old, 7, 1)?;
    for _ in 0..3 {
        old.reset_data()?;
        peer.run(&add)?;
        println!("the counter was {}", number(&local, 0)?);
    }

    let lock = bufs.buf_with_data(&remote, LOCK, 8)?;
    for owner in [11, 22] {
        old.reset_data()?;
        let swap = peer
            .rdma
            .compare_swap_task(&peer.connection, &lock, &old, (FREE, owner), 2)?;
        peer.run(&swap)?;
        match number(&local, 0)? {
            FREE => println!("{owner} has the lock"),
            other => println!("{owner} does not get the lock: {other} has it"),
        }
    }
    peer.send(b"done")?;
    peer.wait_for_disconnect()
}
